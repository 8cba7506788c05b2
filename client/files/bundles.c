// SPDX-License-Identifier: Apache-2.0
#include "client/files/bundles.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/store/file.h"
#include "client/files/hlox.h"
#include "client/hlod_jobs.h"
#include "proto/message.h"
#include "proto/signing/bundle.h"
#include "proto/signing/signing.h"
#include "proto/weigh.h"

int cache_keygen(struct hlo *h, const char *path) {
    struct sign_public public;
    status_t st = sign_make(path, &public);
    if (st) return fail_status(st);
    if (h->json) {
        json_t *j = json_pack("{s:s, s:s, s:s}", "id", public.id, "private", path, "public",
                              arena_printf(&h->arena, "%s.pub", path));
        print_json(j);
        json_decref(j);
    } else
        printf("%s  %s  %s.pub\n", public.id, path, path);
    if (!h->quiet)
        fprintf(stderr,
                "%s signs (hlod --cache-sign, hlo cache sign): keep it where executables are made; "
                "servers get %s.pub (--cache-verify)\n",
                path, path);
    return 0;
}

// ---- bundles

MUST_CHECK static status_t unpack(struct hlo *h, struct span bytes,
                                  Hlod__V1__ExecutableBundle **out) {
    Hlod__V1__ExecutableBundle *b =
        weigh_unpack_in(&h->arena, &hlod__v1__executable_bundle__descriptor, bytes);
    struct digest key;
    if (!b || !b->info || !b->artifact.len || !digest_parse(str_of(b->info->digest), &key))
        return st_invalid("it is no executable as `hlo cache export` writes them");
    *out = b;
    return ST_OK;
}
static struct span with(struct hlo *h, const struct sign_private *key,
                        Hlod__V1__ExecutableBundle *b) {
    Hlod__V1__ExecutableBundle copy = *b; // what is its own stays so
    copy.info = bundle_record(&h->arena, b->info);
    bundle_sign(&h->arena, key, &copy);
    return message_pack(&h->arena, &copy.base);
}
status_t cache_signed(struct hlo *h, struct span bundle, const char *key, struct span *out) {
    struct sign_private *k;
    Hlod__V1__ExecutableBundle *b;
    RETURN_IF_ERR(sign_read_private(key, &k));
    status_t st = unpack(h, bundle, &b);
    if (!st) *out = with(h, k, b);
    sign_private_free(k);
    return st;
}

// Whole or not at all.
static status_t write_whole(struct hlo *h, const char *path, struct span bytes) {
    char *tmp = arena_printf(&h->arena, "%s.XXXXXX", path);
    int fd = mkostemp(tmp, O_CLOEXEC);
    if (fd < 0) return st_errno(errno, path);
    status_t st = fchmod(fd, 0644) ? st_errno(errno, path) : ST_OK;
    if (!st) st = file_write(fd, bytes.p, bytes.n, path);
    if (!st && fsync(fd)) st = st_errno(errno, path);
    close(fd);
    if (!st && rename(tmp, path)) st = st_errno(errno, path);
    if (st) unlink(tmp);
    return st;
}
static status_t write_bundle(struct hlo *h, const char *dir, const char *digest,
                             struct span bytes) {
    char *path = arena_printf(&h->arena, "%s/executables/%.2s/%s", dir, digest, digest);
    RETURN_IF_ERR(file_make_parents(path, 0777));
    RETURN_IF_ERR(write_whole(h, path, bytes));
    puts(path);
    return ST_OK;
}
int cache_export(struct hlo *h, const char *const *digests, int n, const char *dir,
                 const char *key) {
    int rc = 0;
    for (int k = 0; k < n && !rc; k++) {
        struct hlod_blob *blob = NULL;
        Hlod__V1__ExecutableBundle *b;
        rc = hlox_export(h, digests[k], &blob);
        if (rc) break;
        struct span bytes = {blob->data, blob->bytes};
        status_t st = unpack(h, bytes, &b);
        if (!st && strcmp(b->info->digest, digests[k]) != 0)
            st = st_new(ST_DATA_LOSS, "the server sent another executable than was asked for");
        if (!st && key) st = cache_signed(h, bytes, key, &bytes);
        if (!st) st = write_bundle(h, dir, digests[k], bytes);
        if (st) rc = fail_status(st);
        hlod_blob_free(blob);
    }
    return rc;
}
int cache_sign(struct hlo *h, const char *const *files, int n, const char *key) {
    for (int k = 0; k < n; k++) {
        struct str text;
        struct span bytes;
        status_t st = file_read(&h->arena, files[k], (size_t)1 << 31, NULL, &text);
        if (!st)
            st = st_note(
                cache_signed(h, (struct span){(const uint8_t *)text.p, text.n}, key, &bytes), "%s",
                files[k]);
        if (!st) st = write_whole(h, files[k], bytes);
        if (st) return fail_status(st);
        puts(files[k]);
    }
    return 0;
}
int cache_import(struct hlo *h, const char *const *files, int n) {
    for (int k = 0; k < n; k++) {
        struct str text;
        struct hlod_blob *answer = NULL;
        status_t st = file_read(&h->arena, files[k], (size_t)1 << 31, NULL, &text);
        if (!st) st = hlo_open(h);
        if (st) return fail_status(st);
        if (hlod_call_message(h->hlod, "ImportExecutable", text.p, text.n, &answer))
            return hlo_fail(h, EXIT_REFUSED);
        Hlod__V1__ImportExecutableReply *r =
            weigh_unpack_in(&h->arena, &hlod__v1__import_executable_reply__descriptor,
                            (struct span){answer->data, answer->bytes});
        printf("%s%s\n", r ? r->digest : "", r && r->existed ? "  was there" : "");
        hlod_blob_free(answer);
    }
    return 0;
}
