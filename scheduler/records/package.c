// SPDX-License-Identifier: Apache-2.0
#include "scheduler/records/package.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/vec.h"
#include "proto/weigh.h"

// An entry: bytes of the record, little-endian, the record, the package.
enum { HEAD = 8, MOST_INFO = 1 << 20 };

// ---- key

static const char *or_else(const char *text, const char *usual) {
    return *text ? text : usual;
}
struct digest package_key(const struct package_parts *p) {
    struct sha256_text t = {0};
    Hlod__V1__ExportWebRequest q = *p->how;
    q.model = (char *)(uintptr_t)protobuf_c_empty_string;
    q.backend = (char *)(uintptr_t)or_else(q.backend, "auto");
    q.weights = (char *)(uintptr_t)or_else(q.weights, "f32");
    q.n_shapes = q.base.n_unknown_fields = 0;
    q.timeout_ms = 0;
    q.priority = 0;
    size_t n = hlod__v1__export_web_request__get_packed_size(&q);
    uint8_t *how = arena_must_calloc(1, n + 1);
    hlod__v1__export_web_request__pack(&q, how);

    sha256_text_str(&t, STR("hlod package 1"));
    sha256_text_str(&t, str_of(p->tenant));
    sha256_text_add(&t, p->source.b, sizeof p->source.b);
    sha256_text_str(&t, str_of(p->format));
    sha256_text_str(&t, str_of(p->bindings));
    sha256_text_str(&t, (struct str){(const char *)how, n});
    sha256_text_str(&t, str_of(p->build_id));
    free(how);
    return sha256_text_end(&t);
}

// ---- keep

struct kept {
    struct digest key;
    int64_t bytes, mtime;
};
struct all {
    VEC(struct kept) v;
    int64_t bytes;
};
static void add(void *ctx, UNUSED enum store_kind kind, struct digest key, int64_t bytes,
                int64_t mtime, UNUSED bool pinned) {
    struct all *a = ctx;
    a->bytes += bytes;
    vec_push(&a->v, ((struct kept){key, bytes, mtime}));
}
static int oldest_first(const void *a, const void *b) {
    const struct kept *x = a, *y = b;
    return x->mtime < y->mtime ? -1 : x->mtime > y->mtime;
}
static void trim(struct store *s, int64_t most) {
    struct all a = {0};
    st_drop(store_list(s, STORE_PACKAGE, add, &a));
    if (a.v.n) qsort(a.v.v, a.v.n, sizeof *a.v.v, oldest_first);
    for (size_t k = 0; k < a.v.n && a.bytes > most; k++) {
        st_drop(store_remove(s, STORE_PACKAGE, a.v.v[k].key)); // gone already is as good
        a.bytes -= a.v.v[k].bytes;
    }
    vec_done(&a.v);
}

status_t package_keep(struct store *s, struct digest key, const Hlod__V1__WebPackage *info,
                      struct span bytes, int64_t most) {
    size_t n = hlod__v1__web_package__get_packed_size(info), all = HEAD + n + bytes.n;
    if (n > MOST_INFO || bytes.n > PACKAGE_MOST || (int64_t)all > most) return ST_OK;
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
