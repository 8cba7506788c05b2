// SPDX-License-Identifier: Apache-2.0
// The table of formats, and binding of symbolic dimensions.
#include "compiler/frontend/frontend.h"

#include "compiler/frontend/hlo/hlo_proto.h"
#include "compiler/frontend/hlo/hlo_text.h"
#include "compiler/frontend/onnx/onnx.h"
#include "compiler/frontend/stablehlo/jax_export.h"
#include "compiler/frontend/stablehlo/stablehlo.h"
#include <stdlib.h>
#include <string.h>

#include "proto/hlod.pb-c.h"
#include "proto/size_expr.h"

static const struct frontend table[] = {
#define FRONTEND(fn, name, media_type) {name, media_type, fn##_sniff, fn##_ingest, fn##_lower},
#include "compiler/frontend/frontends.def"
#undef FRONTEND
};
enum { N_FORMATS = sizeof table / sizeof table[0] };

static const struct frontend *find(const char *format) {
    for (int k = 0; k < N_FORMATS; k++)
        if (format && strcmp(format, table[k].name) == 0) return &table[k];
    return NULL;
}
const char *frontend_sniff(struct span head) {
    for (int k = 0; k < N_FORMATS; k++)
        if (table[k].sniff(head)) return table[k].name;
    return NULL;
}
const char *frontend_from_media_type(struct str media_type) {
    for (int k = 0; k < N_FORMATS; k++)
        if (str_is(media_type, table[k].media_type)) return table[k].name;
    return NULL;
}

// Files of other tools that users send: what they are, or NULL.
static const char *foreign(struct span source) {
    static const struct {
        size_t at, n;
        const char *bytes, *what;
    } rows[] = {
#define FOREIGN(at, bytes, what) {at, sizeof bytes - 1, bytes, what},
#include "compiler/frontend/foreign.def"
#undef FOREIGN
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (source.n >= rows[k].at + rows[k].n &&
            memcmp(source.p + rows[k].at, rows[k].bytes, rows[k].n) == 0)
            return rows[k].what;
    return NULL;
}
static status_t unknown(const char *format, struct span source) {
    const char *what = format ? NULL : foreign(source);
    struct strbuf b = {0};
    for (int k = 0; k < N_FORMATS; k++)
        strbuf_printf(&b, "%s%s", k ? ", " : "", table[k].name);
    status_t st = format ? st_invalid("format '%s' is not known; known are %s", format, b.p)
                  : what ? st_invalid("this is %s", what)
                         : st_invalid("the bytes are in no known format (%s)", b.p);
    strbuf_done(&b);
    return st_reason(st, HLOD__V1__REASON__REASON_UNSUPPORTED_FORMAT);
}

// A frontend's own reasons stay; anything else it refuses is a malformed model.
static status_t with_reason(status_t st) {
    if (st_code(st) == ST_INVALID_ARGUMENT && st_get_reason(st) == 0)
        return st_reason(st, HLOD__V1__REASON__REASON_MALFORMED_MODEL);
    return st_code(st) == ST_RESOURCE_EXHAUSTED && st_get_reason(st) == 0
               ? st_reason(st, HLOD__V1__REASON__REASON_LIMIT_EXCEEDED)
               : st;
}

status_t frontend_ingest(struct arena *a, const char *format, struct span source,
                         const struct frontend_limits *limits, struct ingest_result *out) {
    if (!format || !format[0]) format = frontend_sniff(source);
    const struct frontend *f = find(format);
    return f ? with_reason(f->ingest(a, source, limits, out)) : unknown(format, source);
}
status_t frontend_lower(const char *format, const struct lower_request *req,
                        struct hlo_module **out) {
    const struct frontend *f = find(format);
    return f ? with_reason(f->lower(req, out)) : unknown(format, (struct span){0});
}

status_t frontend_bake_weights(struct hlo_module *m, const struct ingest_result *r,
                               struct span source) {
    struct hlo_computation *c = m->entry;
    size_t kept = 0;
    for (size_t k = 0; k < c->params.n; k++) {
        struct hlo_instr *p = c->params.v[k];
        if (p->param_kind != PARAM_WEIGHT) {
            p->param_number = (int64_t)kept;
            c->params.v[kept++] = p;
            continue;
        }
        const struct weight *w = p->param_index < r->n_weights ? &r->weights[p->param_index] : NULL;
        if (!w || w->size_bytes != shape_elements(p->shape) * dtype_size(p->shape->dtype))
            return st_invalid("weight '%s' does not fit its parameter", p->name);
        const uint8_t *at = (w->sidecar ? r->sidecar.p : source.p) + w->offset;
        struct hlo_instr *x = hlo_add_constant(c, lit_borrow(m->arena, p->shape, at));
        hlo_move_before(x, c->first);
        hlo_replace_uses(p, x);
        hlo_remove_instr(p);
    }
    c->params.n = kept;
    return ST_OK;
}

status_t frontend_with_weights(struct span source, struct new_weight *v, size_t n,
                               struct strbuf *out) {
    const char *format = frontend_sniff(source);
    if (!format) return unknown(NULL, source);
    if (strcmp(format, "onnx") != 0)
        return st_unimplemented("other weights for a model in format %s", format);
    return with_reason(onnx_with_weights(source, v, n, out));
}

// ---- what is told of a program

void frontend_program_info_count(struct arena *a, struct program_info *p, struct smap *seen,
                                 struct str name) {
    size_t at = (size_t)(uintptr_t)smap_get(seen, name);
    p->nodes++;
    if (at) {
        p->ops.v[at - 1].count++;
        return;
    }
    struct op_count one = {arena_strndup(a, name.p, name.n), 1};
    avec_push(a, &p->ops, one);
    smap_put(seen, name, (void *)(uintptr_t)p->ops.n);
}
static int most_first(const void *x, const void *y) {
    const struct op_count *a = x, *b = y;
    return a->count != b->count ? (a->count < b->count) - (a->count > b->count)
                                : strcmp(a->name, b->name);
}
void frontend_program_info_sort(struct program_info *p) {
    if (p->ops.n) qsort(p->ops.v, p->ops.n, sizeof *p->ops.v, most_first);
}

status_t frontend_bindings_parse(struct arena *a, const char *text, struct lower_request *req) {
    struct str all = str_of(text), item;
    VEC(struct dim_binding) v = {0};
    while (text && str_cut(&all, ',', &item)) {
        struct dim_binding b;
        size_t n = item.n; // the name ends at the last '=': that of an element begins with one
        while (n > 0 && item.p[n - 1] != '=')
            n--;
        if (n < 2 || !str_to_i64((struct str){item.p + n, item.n - n}, &b.size))
            return st_invalid("--bind takes NAME=SIZE,...");
        b.symbol = arena_strndup(a, item.p, n - 1);
        avec_push(a, &v, b);
    }
    req->bindings = v.v;
    req->n_bindings = (int32_t)v.n;
    return ST_OK;
}
static bool find_bound(void *ctx, struct str symbol, int64_t *out) {
    const struct lower_request *req = ctx;
    for (int k = 0; k < req->n_bindings; k++)
        if (str_is(symbol, req->bindings[k].symbol)) {
            *out = req->bindings[k].size;
            return true;
        }
    return false;
}
bool frontend_bound(const struct lower_request *req, const struct sig_dim *dim, int64_t *out) {
    struct size_expr x = {.form = SIZE_OPEN};
    void *ctx = (void *)(uintptr_t)req;
    if (find_bound(ctx, str_of(dim->symbol), out)) return true;
    if (!dim->expression) return false;
    status_t st = size_expr_read(str_of(dim->symbol), find_bound, ctx, &x);
    bool known = !st && x.form == SIZE_KNOWN;
    st_drop(st);
    if (known) *out = x.value;
    return known;
}
