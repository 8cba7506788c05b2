// SPDX-License-Identifier: Apache-2.0
// What is signed: a name for this use, the packed record with its length, the artefact. A record
// that one build packed is packed alike by the same build, and others cannot exchange anyway.
#include "server/cache_key.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/store/file.h"
#include "base/hash.h"
#include "base/str.h"

enum { MAX_KEYS = 16, MIN_CHARS = 32, MAX_FILE = 1 << 16 };
struct cache_key {
    struct arena arena;
    struct str key[MAX_KEYS];
    int n;
};

static status_t read_keys(struct cache_key *k, const char *path) {
    struct str text, line;
    unsigned mode;
    RETURN_IF_ERR(file_read(&k->arena, path, MAX_FILE, &mode, &text));
    if (mode & (S_IWGRP | S_IRWXO))
        return st_new(ST_PERMISSION_DENIED, "%s is a secret: chmod g-w,o-rwx it", path);
    for (int number = 1; str_cut(&text, '\n', &line); number++) {
        line = str_trim(line);
        if (!line.n || line.p[0] == '#') continue;
        if (line.n < MIN_CHARS)
            return st_invalid(
                "%s:%d: a key has at least %d characters, as from `openssl rand -hex 32`", path,
                number, MIN_CHARS);
        if (k->n == MAX_KEYS) return st_invalid("%s: more than %d keys", path, MAX_KEYS);
        k->key[k->n++] = line;
    }
    return k->n ? ST_OK : st_invalid("%s has no key", path);
}
status_t cache_key_open(const char *path, struct cache_key **out) {
    struct cache_key *k = calloc(1, sizeof *k);
    if (!k) return st_oom();
    status_t st = read_keys(k, path);
    if (st)
        cache_key_close(k);
    else
        *out = k;
    return st;
}
void cache_key_close(struct cache_key *k) {
    if (!k) return;
    arena_done(&k->arena);
    free(k);
}

static struct digest sign(struct str key, const Hlod__V1__ExecutableBundle *b) {
    static const char what[] = "hlod executable 1";
    struct hmac m;
    size_t n = hlod__v1__executable_info__get_packed_size(b->info);
    uint8_t *record = malloc(n + 1);
    if (!record) abort(); // as large as the message it came from
    hlod__v1__executable_info__pack(b->info, record);
    hmac_init(&m, (struct span){(const uint8_t *)key.p, key.n});
    sha256_str(&m.inner, str_of(what));
    sha256_str(&m.inner, (struct str){(const char *)record, n});
    sha256_add(&m.inner, b->artifact.data, b->artifact.len);
    free(record);
    return hmac_end(&m);
}
struct digest cache_key_sign(const struct cache_key *k, const Hlod__V1__ExecutableBundle *b) {
    return sign(k->key[0], b);
}
status_t cache_key_check(const struct cache_key *k, const Hlod__V1__ExecutableBundle *b) {
    struct digest found;
    if (b->hmac.len != sizeof found.b)
        return st_new(ST_PERMISSION_DENIED, "%s",
                      b->hmac.len ? "its signature is not one"
                                  : "it has no signature of this server's cache key: the server "
                                    "it comes from has none, or took it from one without");
    memcpy(found.b, b->hmac.data, sizeof found.b);
    bool right = false;
    for (int i = 0; i < k->n; i++)
        right |= digest_eq_secret(sign(k->key[i], b), found);
    return right ? ST_OK
                 : st_new(ST_PERMISSION_DENIED,
                          "its signature is not by this server's cache key, or it was changed");
}
