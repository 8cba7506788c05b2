// SPDX-License-Identifier: Apache-2.0
#include "compiler/results.h"

#include <string.h>

#include "base/str.h"

enum { MAX_DYNAMIC = 64 };

void results_set_dynamic(struct hlo_module *m, const struct dynamic_result *r, int n) {
    struct strbuf b = {0};
    for (int k = 0; k < n; k++)
        strbuf_printf(&b, "%s%d:%d:%d", k ? "," : "", r[k].leaf, r[k].dim, r[k].size_leaf);
    hlo_set_frontend(m, "hlod_dynamic", (struct str){b.p, b.n});
    strbuf_done(&b);
}

static bool number(struct str *s, char end, int *out) {
    struct str part;
    int64_t v;
    if (!str_cut(s, end, &part) || !str_to_i64(part, &v) || v < 0 || v > 1 << 20) return false;
    *out = (int)v;
    return true;
}

static bool fits(const struct hlo_module *m, const struct dynamic_result *r) {
    const struct shape *root = m->entry->root->shape;
    int n = shape_leaves(root);
    if (r->leaf >= n || r->size_leaf >= n || r->leaf >= r->size_leaf) return false;
    const struct shape *s = shape_leaf(root, r->leaf), *size = shape_leaf(root, r->size_leaf);
    return r->dim < s->rank && size->rank == 0 && size->dtype == DT_S64;
}

int results_dynamic(const struct hlo_module *m, struct dynamic_result *out, int max) {
    struct str v, item;
    int n = 0;
    if (!hlo_frontend(m, "hlod_dynamic", &v)) return 0;
    while (n < max && n < MAX_DYNAMIC && str_cut(&v, ',', &item)) {
        struct dynamic_result r;
        if (number(&item, ':', &r.leaf) && number(&item, ':', &r.dim) &&
            number(&item, ':', &r.size_leaf) && fits(m, &r))
            out[n++] = r;
    }
    return n;
}

int results_sent(const struct hlo_module *m) {
    struct dynamic_result r[MAX_DYNAMIC];
    int n = results_dynamic(m, r, MAX_DYNAMIC), sent = shape_leaves(m->entry->root->shape);
    for (int k = 0; k < n; k++)
        if (r[k].size_leaf < sent) sent = r[k].size_leaf;
    return sent;
}

int64_t results_cut(int64_t elem_bytes, int rank, int dim, int64_t size, void *data,
                    int64_t *dims) {
    int64_t outer = 1, inner = elem_bytes, bound = dims[dim];
    size = size < 0 ? 0 : size > bound ? bound : size;
    for (int d = 0; d < rank; d++)
        *(d < dim ? &outer : &inner) *= d == dim ? 1 : dims[d];
    dims[dim] = size;
    char *p = data;
    for (int64_t k = 1; k < outer && size < bound; k++)
        memmove(p + k * size * inner, p + k * bound * inner, (size_t)(size * inner));
    return outer * size * inner;
}

int64_t **results_cut_all(struct arena *a, const struct hlo_module *m, void *const *p) {
    struct dynamic_result r[MAX_DYNAMIC];
    const struct shape *root = m->entry->root->shape;
    int n = results_dynamic(m, r, MAX_DYNAMIC);
    int64_t **dims = arena_zarray(a, int64_t *, shape_leaves(root) + 1);
    for (int k = 0; k < n; k++) {
        const struct shape *s = shape_leaf(root, r[k].leaf);
        int64_t size, **d = &dims[r[k].leaf];
        memcpy(&size, p[r[k].size_leaf], sizeof size);
        if (!*d) *d = arena_dup_array(a, s->dims, s->rank);
        results_cut(dtype_size(s->dtype), s->rank, r[k].dim, size, p[r[k].leaf], *d);
    }
    return dims;
}
