// SPDX-License-Identifier: Apache-2.0
#include "scheduler/records/package.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/vec.h"
#include "proto/weigh.h"

// An entry: bytes of the record, little-endian, the record, the package.
enum { HEAD = 8, MOST_INFO = 1 << 20 };

// ---- key

static const char *or_else(const char *text, const char *usual) {
    return *text ? text : usual;
}
struct span package_how(struct arena *a, const Hlod__V1__ExportWebRequest *how) {
    Hlod__V1__ExportWebRequest q = *how;
    q.model = (char *)(uintptr_t)protobuf_c_empty_string;
    q.backend = (char *)(uintptr_t)or_else(q.backend, "auto");
    q.weights = (char *)(uintptr_t)or_else(q.weights, "f32");
    q.n_shapes = q.base.n_unknown_fields = 0;
    q.timeout_ms = 0;
    q.priority = 0;
    size_t n = hlod__v1__export_web_request__get_packed_size(&q);
    uint8_t *p = arena_alloc(a, n + 1);
    hlod__v1__export_web_request__pack(&q, p);
    return (struct span){p, n};
}

// The tenant's mark in a key, by which its packages are known without a look into files.
enum { MARK = 8, MARK_AT = 32 - MARK };
struct digest package_key(const struct package_parts *p) {
    struct sha256_text t = {0};
    sha256_text_str(&t, STR("hlod package 1"));
    sha256_text_str(&t, str_of(p->tenant));
    sha256_text_add(&t, p->source.b, sizeof p->source.b);
    sha256_text_str(&t, str_of(p->format));
    sha256_text_str(&t, str_of(p->bindings));
    sha256_text_str(&t, (struct str){(const char *)p->how.p, p->how.n});
    sha256_text_str(&t, str_of(p->build_id));
    struct digest key = sha256_text_end(&t), tenant = sha256_of(p->tenant, strlen(p->tenant));
    memcpy(key.b + MARK_AT, tenant.b, MARK);
    return key;
}

// ---- keep

struct kept {
    struct digest key;
    int64_t bytes, mtime;
    size_t of; // its tenant, among all
};
struct has { // a tenant
    uint8_t mark[MARK];
    int64_t bytes;
};
struct all {
    VEC(struct kept) v;
    VEC(struct has) tenants;
    int64_t bytes;
};
static size_t tenant_of(struct all *a, const struct digest *key) {
    for (size_t k = 0; k < a->tenants.n; k++)
        if (!memcmp(a->tenants.v[k].mark, key->b + MARK_AT, MARK)) return k;
    struct has h = {.bytes = 0};
    memcpy(h.mark, key->b + MARK_AT, MARK);
    vec_push(&a->tenants, h);
    return a->tenants.n - 1;
}
static void add(void *ctx, UNUSED enum store_kind kind, struct digest key, int64_t bytes,
                int64_t mtime, UNUSED bool pinned) {
    struct all *a = ctx;
    size_t of = tenant_of(a, &key);
    a->bytes += bytes;
    a->tenants.v[of].bytes += bytes;
    vec_push(&a->v, ((struct kept){key, bytes, mtime, of}));
}
static int oldest_first(const void *a, const void *b) {
    const struct kept *x = a, *y = b;
    return x->mtime < y->mtime ? -1 : x->mtime > y->mtime;
}
// While there is too much of all some tenant has more than an even share.
static void trim(struct store *s, int64_t most) {
    struct all a = {0};
    st_drop(store_list(s, STORE_PACKAGE, add, &a));
    if (a.v.n) qsort(a.v.v, a.v.n, sizeof *a.v.v, oldest_first);
    int64_t share = a.tenants.n ? most / (int64_t)a.tenants.n : most;
    for (size_t k = 0; k < a.v.n && a.bytes > most; k++) {
        const struct kept *e = &a.v.v[k];
        struct has *h = &a.tenants.v[e->of];
        if (h->bytes <= share) continue;
        st_drop(store_remove(s, STORE_PACKAGE, e->key)); // gone already is as good
        h->bytes -= e->bytes;
        a.bytes -= e->bytes;
    }
    vec_done(&a.v);
    vec_done(&a.tenants);
}

status_t package_keep(struct store *s, struct digest key, const Hlod__V1__WebPackage *info,
                      struct span bytes, int64_t most) {
    size_t n = hlod__v1__web_package__get_packed_size(info), all = HEAD + n + bytes.n;
    if (n > MOST_INFO || all > PACKAGE_MOST || (int64_t)all > most) return ST_OK;
    int64_t room = FAULT("package.room") ? 0 : store_free_bytes(s) - (int64_t)all;
    if (room < PACKAGE_ROOM) return ST_OK;
    uint8_t *p = malloc(all);
    if (!p) return st_oom();
    for (int k = 0; k < HEAD; k++)
        p[k] = (uint8_t)((uint64_t)n >> 8 * k);
    hlod__v1__web_package__pack(info, p + HEAD);
    if (bytes.n) memcpy(p + HEAD + n, bytes.p, bytes.n);
    status_t st = store_put(s, STORE_PACKAGE, key, p, all, false);
    free(p);
    if (!st) trim(s, most);
    return st;
}

// ---- open

static status_t whole(int fd, void *to, size_t n, int64_t at) {
    ssize_t got = pread(fd, to, n, at);
    if (got == (ssize_t)n) return ST_OK;
    return got < 0 ? st_errno(errno, "a package") : st_new(ST_DATA_LOSS, "a package is cut short");
}
static status_t read_info(int fd, int64_t size, struct package *out) {
    uint8_t head[HEAD];
    uint64_t n = 0;
    int64_t at = out->offset;
    if (size < HEAD) return st_new(ST_DATA_LOSS, "a package without a record");
    RETURN_IF_ERR(whole(fd, head, sizeof head, at));
    for (int k = HEAD; k--;)
        n = n << 8 | head[k];
    if (n > MOST_INFO || (int64_t)n >= size - HEAD)
        return st_new(ST_DATA_LOSS, "a package whose record does not fit");
    uint8_t *p = malloc(n + 1);
    if (!p) return st_oom();
    status_t st = whole(fd, p, n, at + HEAD);
    if (!st)
        out->info = weigh_unpack_or_null(&hlod__v1__web_package__descriptor, (struct span){p, n});
    free(p);
    if (!st && !out->info) st = st_new(ST_DATA_LOSS, "a package with an unreadable record");
    out->offset = at + HEAD + (int64_t)n;
    out->bytes = size - HEAD - (int64_t)n;
    return st;
}
status_t package_open(struct store *s, struct digest key, struct package *out) {
    int64_t size;
    *out = (struct package){0};
    RETURN_IF_ERR(store_open_fd(s, STORE_PACKAGE, key, STORE_COPY, &out->fd, &out->offset, &size));
    status_t st = read_info(out->fd, size, out);
    if (!st) return ST_OK;
    close(out->fd);
    if (st_code(st) == ST_DATA_LOSS) st_drop(store_remove(s, STORE_PACKAGE, key));
    return st;
}
