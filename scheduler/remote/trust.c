// SPDX-License-Identifier: Apache-2.0
#include "scheduler/remote/trust.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/store/file.h"
#include "base/str.h"
#include "proto/signing/bundle.h"
#include "proto/signing/signing.h"

enum { MAX_KEYS = 16, MIN_CHARS = 32, MAX_FILE = 1 << 16 };
struct trust {
    atomic_int refs;
    struct arena arena;
    struct str secret[MAX_KEYS];
    int n_secrets;
    struct sign_public public[MAX_KEYS + 1];
    size_t n_public;
    struct sign_private *private; // NULL: none
};

// ---- reading

static status_t read_secrets(struct trust *t, const char *path) {
    struct str text, line;
    RETURN_IF_ERR(file_read_secret(&t->arena, path, MAX_FILE, &text));
    for (int number = 1; str_cut(&text, '\n', &line); number++) {
        line = str_trim(line);
        if (!line.n || line.p[0] == '#') continue;
        if (line.n < MIN_CHARS)
            return st_invalid(
                "%s:%d: a key has at least %d characters, as from `openssl rand -hex 32`", path,
                number, MIN_CHARS);
        if (t->n_secrets == MAX_KEYS) return st_invalid("%s: more than %d keys", path, MAX_KEYS);
        t->secret[t->n_secrets++] = line;
    }
    return t->n_secrets ? ST_OK : st_invalid("%s has no key", path);
}
static status_t read_all(struct trust *t, const struct trust_files *f) {
    if (*f->secrets) RETURN_IF_ERR(st_note(read_secrets(t, f->secrets), "cache_key"));
    if (*f->verify)
        RETURN_IF_ERR(st_note(sign_read_public(f->verify, t->public, MAX_KEYS, &t->n_public),
                              "cache_verify"));
    if (!*f->sign) return ST_OK;
    RETURN_IF_ERR(st_note(sign_read_private(f->sign, &t->private), "cache_sign"));
    t->public[t->n_public++] = *sign_public_of(t->private); // what it signed it takes
    return ST_OK;
}
status_t trust_open(const struct trust_files *files, struct trust **out) {
    struct trust *t = calloc(1, sizeof *t);
    if (!t) return st_oom();
    t->refs = 1;
    status_t st = read_all(t, files);
    if (st)
        trust_unref(t);
    else
        *out = t;
    return st;
}
struct trust *trust_ref(struct trust *t) {
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}
struct trust *trust_unref(struct trust *t) {
    if (!t || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) > 1) return NULL;
    sign_private_free(t->private);
    arena_done(&t->arena);
    free(t);
    return NULL;
}

// ---- signatures

bool trust_asks(const struct trust *t) {
    return t->n_secrets || t->n_public;
}
bool trust_signs(const struct trust *t) {
    return t->n_secrets || t->private;
}
void trust_sign(const struct trust *t, struct arena *a, Hlod__V1__ExecutableBundle *b) {
    if (t->n_secrets) {
        struct digest d = bundle_digest(b, &t->secret[0]);
        b->hmac = (ProtobufCBinaryData){sizeof d.b, arena_dup(a, d.b, sizeof d.b)};
    }
    if (t->private) bundle_sign(a, t->private, b);
}

static bool by_secret(const struct trust *t, const Hlod__V1__ExecutableBundle *b) {
    struct digest found;
    if (b->hmac.len != sizeof found.b) return false;
    memcpy(found.b, b->hmac.data, sizeof found.b);
    bool right = false;
    for (int i = 0; i < t->n_secrets; i++)
        right |= digest_eq_secret(bundle_digest(b, &t->secret[i]), found);
    return right;
}
// All keys are tried: the id in the bundle is only what it says.
static const char *by_key(const struct trust *t, const Hlod__V1__ExecutableBundle *b) {
    struct span signature = {b->ed25519.data, b->ed25519.len};
    if (signature.n != SIGN_BYTES || !t->n_public) return NULL;
    struct digest d = bundle_digest(b, NULL);
    for (size_t i = 0; i < t->n_public; i++)
        if (sign_verify(&t->public[i], d, signature)) return t->public[i].id;
    return NULL;
}
status_t trust_check(const struct trust *t, const Hlod__V1__ExecutableBundle *b,
                     const char **out_by) {
    *out_by = "";
    if (!trust_asks(t)) return ST_OK;
    *out_by = by_secret(t, b) ? "hmac" : by_key(t, b);
    if (*out_by) return ST_OK;
    if (!b->hmac.len && !b->ed25519.len)
        return st_new(ST_PERMISSION_DENIED,
                      "it has no signature: the server it comes from has no key, or took it from "
                      "one without");
    return st_new(ST_PERMISSION_DENIED,
                  "its signature is not by a key that this server trusts, or it was changed");
}
