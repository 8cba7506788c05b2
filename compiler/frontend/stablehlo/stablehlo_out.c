// SPDX-License-Identifier: Apache-2.0
// Functions, operations and regions. Values are numbered through the text; one of tuple type is a
// list of numbers, so tuples and their elements leave no operation behind.
#include "compiler/frontend/stablehlo/stablehlo_out.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compiler/frontend/mlir/mlir.h"
#include "compiler/frontend/stablehlo/stablehlo.h"
#include "compiler/frontend/stablehlo/stablehlo_out_inside.h"
#include "compiler/ir/op.h"

enum { MAX_DEPTH = 100 };

// ---- types and constants

void out_type(struct strbuf *b, const struct shape *s) {
    int64_t dims[HLO_MAX_RANK], bounds[HLO_MAX_RANK];
    struct mlir_type t = {.kind = s->dtype == DT_TOKEN ? MLIR_TOKEN : MLIR_TENSOR,
                          .dtype = s->dtype,
                          .rank = s->rank,
                          .dims = dims};
    for (int d = 0; d < s->rank; d++) {
        bool dynamic = s->dynamic && s->dynamic[d];
        dims[d] = dynamic ? -1 : s->dims[d];
        bounds[d] = dynamic && !(s->unbounded >> d & 1) ? s->dims[d] : -1;
        if (bounds[d] >= 0) t.bounds = bounds;
    }
    mlir_print_type(b, &t);
}
static void types(struct strbuf *b, const struct shape *const *s, int n) {
    strbuf_putc(b, '(');
    for (int k = 0; k < n; k++) {
        if (k) strbuf_puts(b, ", ");
        out_type(b, s[k]);
    }
    strbuf_putc(b, ')');
}
// A float as MLIR reads it: digits on both sides of a point; else its bits.
static void one_float(struct strbuf *b, enum dtype t, double v, uint64_t bits) {
    struct strbuf s = {0};
    if (!isfinite(v)) {
        strbuf_printf(b, "0x%0*llX", dtype_size(t) * 2, (unsigned long long)bits);
        return;
    }
    if (t == DT_F64)
        strbuf_f64(&s, v);
    else
        strbuf_f32(&s, (float)v);
    const char *text = strbuf_cstr(&s), *e = strchr(text, 'e');
    size_t n = e ? (size_t)(e - text) : s.n;
    strbuf_add(b, text, n);
    if (!memchr(text, '.', n)) strbuf_puts(b, ".0");
    if (e) strbuf_puts(b, e);
    strbuf_done(&s);
}
static void one(struct strbuf *b, const struct literal *l, int64_t at) {
    enum dtype t = l->shape->dtype;
    size_t size = (size_t)dtype_size(t), half = size / 2;
    const uint8_t *p = (const uint8_t *)l->data + (size_t)at * size;
    uint64_t bits[2] = {0};
    if (t == DT_PRED) {
        strbuf_puts(b, *p ? "true" : "false");
    } else if (dtype_is_complex(t)) {
        double v[2];
        enum dtype part = t == DT_C64 ? DT_F32 : DT_F64;
        lit_get_c128(l, at, v);
        memcpy(&bits[0], p, half);
        memcpy(&bits[1], p + half, half);
        strbuf_putc(b, '(');
        one_float(b, part, v[0], bits[0]);
        strbuf_puts(b, ", ");
        one_float(b, part, v[1], bits[1]);
        strbuf_putc(b, ')');
    } else if (dtype_is_float(t)) {
        memcpy(&bits[0], p, size);
        one_float(b, t, lit_get_f64(l, at), bits[0]);
    } else if (dtype_class(t) == DC_UNSIGNED) {
        strbuf_printf(b, "%llu", (unsigned long long)lit_get_i64(l, at));
    } else {
        strbuf_i64(b, lit_get_i64(l, at));
    }
}
static void nested(struct strbuf *b, const struct literal *l, int d, int64_t *at) {
    if (d == l->shape->rank) {
        one(b, l, (*at)++);
        return;
    }
    strbuf_putc(b, '[');
    for (int64_t k = 0; k < l->shape->dims[d]; k++) {
        if (k) strbuf_puts(b, ", ");
        nested(b, l, d + 1, at);
    }
    strbuf_putc(b, ']');
}
// One element where all are the same, some in their order, many as the bytes they are.
void out_literal(struct strbuf *b, const struct literal *l) {
    enum { SOME = 64 };
    int64_t n = shape_elements(l->shape), at = 0;
    size_t size = (size_t)dtype_size(l->shape->dtype);
    bool same = n > 0 && (n == 1 || memcmp(l->data, (const uint8_t *)l->data + size,
                                           (size_t)(n - 1) * size) == 0);
    if (same || n == 0 || n <= SOME) {
        strbuf_puts(b, "dense<");
        if (same)
            one(b, l, 0);
        else if (n)
            nested(b, l, 0, &at);
        strbuf_puts(b, "> : ");
        out_type(b, l->shape);
        return;
    }
    struct mlir_type t = {.kind = MLIR_TENSOR,
                          .dtype = l->shape->dtype,
                          .rank = l->shape->rank,
                          .dims = l->shape->dims};
    struct mlir_attr x = {
        .kind = MLIR_A_DENSE, .type = &t, .bytes = {l->data, (size_t)n * size}, .weight = -1};
    mlir_print_attr(b, &x);
}

// ---- values

static void indent(struct out *o) {
    strbuf_putc(o->b, '\n');
    for (int k = 0; k < o->depth; k++)
        strbuf_puts(o->b, "  ");
}
static void names(struct out *o, struct out_value v) {
    for (int32_t k = 0; k < v.n; k++)
        strbuf_printf(o->b, "%s%%%u", k ? ", " : "", v.v[k]);
}
static struct out_value new_values(struct out *o, const struct shape *s) {
    struct out_value v = {arena_array(&o->a, uint32_t, shape_leaves(s) + 1), shape_leaves(s)};
    for (int32_t k = 0; k < v.n; k++)
        v.v[k] = o->next++;
    return v;
}
static const struct shape **leaves(struct out *o, const struct shape *s) {
    int n = shape_leaves(s);
    const struct shape **v = arena_array(&o->a, const struct shape *, n + 1);
    for (int k = 0; k < n; k++)
        v[k] = shape_leaf(s, k);
    return v;
}
uint32_t out_indices(struct out *o, const int64_t *v, int n) {
    const int64_t dims[1] = {n};
    const struct shape *s = shape_make(&o->a, DT_S64, dims, 1);
    uint32_t x = o->next++;
    indent(o);
    strbuf_printf(o->b, "%%%u = \"stablehlo.constant\"() <{value = ", x);
    out_literal(o->b, lit_borrow(&o->a, s, v));
    strbuf_puts(o->b, "}> : () -> ");
    out_type(o->b, s);
    return x;
}
// The leaves of element k of a tuple.
static struct out_value element(struct out_value v, const struct shape *s, int64_t k) {
    return (struct out_value){v.v + shape_first_leaf(s, (int)k), shape_leaves(s->elems[k])};
}
static struct out_value together(struct out *o, const struct hlo_instr *i,
                                 const struct shape ***types) {
    int32_t n = 0;
    for (int32_t k = 0; k < i->n_operands; k++)
        n += o->of[i->operands[k]->id].n;
    struct out_value v = {arena_array(&o->a, uint32_t, n + 1), 0};
    *types = arena_array(&o->a, const struct shape *, n + 1);
    for (int32_t k = 0; k < i->n_operands; k++) {
        struct out_value x = o->of[i->operands[k]->id];
        for (int32_t e = 0; e < x.n; e++) {
            (*types)[v.n] = shape_leaf(i->operands[k]->shape, e);
            v.v[v.n++] = x.v[e];
        }
    }
    return v;
}

// ---- operations

static status_t body(struct out *o, const struct hlo_computation *c);
static void ends(struct out *o, const struct hlo_computation *c, const char *name) {
    const struct hlo_instr *root = hlo_root(c);
    indent(o);
    strbuf_printf(o->b, "\"%s\"(", name);
    names(o, o->of[root->id]);
    strbuf_puts(o->b, ") : ");
    types(o->b, leaves(o, root->shape), shape_leaves(root->shape));
    strbuf_puts(o->b, " -> ()");
}
static status_t region(struct out *o, const struct out_op *op, int k) {
    const struct hlo_computation *c = op->regions[k];
    if (o->depth > MAX_DEPTH) return st_exhausted("regions nest deeper than %d", MAX_DEPTH);
    strbuf_puts(o->b, k ? ", {" : " ({");
    o->depth++;
    if (op->outer) {
        o->of[c->params.v[0]->id] = o->of[op->i->operands[k + 1]->id];
    } else {
        indent(o);
        strbuf_puts(o->b, "^bb0(");
        bool any = false;
        for (size_t p = 0; p < c->params.n; p++) {
            struct out_value v = new_values(o, c->params.v[p]->shape);
            o->of[c->params.v[p]->id] = v;
            for (int32_t e = 0; e < v.n; e++, any = true) {
                strbuf_printf(o->b, "%s%%%u: ", any ? ", " : "", v.v[e]);
                out_type(o->b, shape_leaf(c->params.v[p]->shape, e));
            }
        }
        strbuf_puts(o->b, "):");
    }
    RETURN_IF_ERR(body(o, c));
    ends(o, c, "stablehlo.return");
    o->depth--;
    indent(o);
    strbuf_puts(o->b, k + 1 == op->n_regions ? "})" : "}");
    return ST_OK;
}
static status_t write_op(struct out *o, struct out_op *op) {
    const struct hlo_instr *i = op->i;
    struct out_value results = new_values(o, i->shape);
    o->of[i->id] = results;
    indent(o);
    names(o, results);
    if (results.n) strbuf_puts(o->b, " = ");
    strbuf_printf(o->b, strchr(op->name, '.') ? "\"%s\"(" : "\"stablehlo.%s\"(", op->name);
    names(o, op->in);
    strbuf_putc(o->b, ')');
    if (op->attrs.n) strbuf_printf(o->b, " <{%s}>", strbuf_cstr(&op->attrs));

    for (int32_t k = 0; k < op->n_regions; k++)
        RETURN_IF_ERR(region(o, op, k));
    strbuf_puts(o->b, " : ");
    types(o->b, op->types, op->in.n);
    strbuf_puts(o->b, " -> ");
    if (results.n == 1)
        out_type(o->b, shape_leaf(i->shape, 0));
    else
        types(o->b, leaves(o, i->shape), results.n);
    return ST_OK;
}
static status_t operation(struct out *o, const struct hlo_instr *i) {
    struct out_row row = out_row_of(i->op);
    struct out_op op = {.i = i, .name = row.name};
    op.in = together(o, i, &op.types);
    status_t st = row.fn ? row.fn(o, &op) : st_unimplemented("StableHLO has no such operation");
    if (st) { // go on, so that all of them are told
        if (o->why.n < 4096)
            strbuf_printf(&o->why, "\n%s %s: %s", hlo_op_name(i->op), i->name, st_message(st));
        st_drop(st);
        o->of[i->id] = new_values(o, i->shape);
        st = ST_OK;
    } else {
        st = write_op(o, &op);
    }
    strbuf_done(&op.attrs);
    return st;
}
// A fused computation stands where it is used.
static status_t in_place(struct out *o, const struct hlo_instr *i) {
    const struct hlo_computation *c = i->called[0];
    for (size_t k = 0; k < c->params.n; k++)
        o->of[c->params.v[k]->id] = o->of[i->operands[k]->id];
    RETURN_IF_ERR(body(o, c));
    o->of[i->id] = o->of[hlo_root(c)->id];
    return ST_OK;
}
static status_t body(struct out *o, const struct hlo_computation *c) {
    const struct shape **unused;
    for (const struct hlo_instr *i = c->first; i; i = i->next) {
        const struct hlo_instr *x = i->n_operands ? i->operands[0] : NULL;
        switch (i->op) {
        case HLO_PARAMETER:
            break;
        case HLO_TUPLE:
            o->of[i->id] = together(o, i, &unused);
            break;
        case HLO_GET_TUPLE_ELEMENT:
            o->of[i->id] = element(o->of[x->id], x->shape, HLO_ATTR(i, gte)->index);
            break;
        case HLO_COPY:
        case HLO_DOMAIN:
        case HLO_ADD_DEPENDENCY:
            o->of[i->id] = o->of[x->id];
            break;

        case HLO_FUSION:
            RETURN_IF_ERR(in_place(o, i));
            break;
        default:
            RETURN_IF_ERR(operation(o, i));
        }
    }
    return ST_OK;
}

// ---- functions

// " {0}: (2, {}, may-alias)" of input_output_alias: the result that parameter `number` gives its
// memory to, as a leaf's place; -1.
static int64_t alias_of(const struct hlo_module *m, int64_t number) {
    struct str s = hlo_module_extra(m, "input_output_alias"), entry;
    const struct shape *result = hlo_root(m->entry)->shape;
    while (str_cut(&s, ')', &entry)) {
        struct str to;
        int64_t p, k = 0;
        while (entry.n && (*entry.p == '{' || *entry.p == ' ' || *entry.p == ','))
            entry.p++, entry.n--;
        if (!str_cut(&entry, '}', &to)) continue;
        while (entry.n && (*entry.p == ':' || *entry.p == ' ' || *entry.p == '('))
            entry.p++, entry.n--;
        struct str number_text;
        if (!str_cut(&entry, ',', &number_text) || !str_to_i64(str_trim(number_text), &p)) continue;
        entry = str_trim(entry);
        if (p != number || !str_starts(entry, "{}")) continue; // of a part of a tuple
        to = str_trim(to);
        if (to.n && (!str_to_i64(to, &k) || !shape_is_tuple(result))) continue;
        if (k < 0 || (shape_is_tuple(result) && k >= result->n_elems)) continue;
        return shape_is_tuple(result) ? shape_first_leaf(result, (int)k) : 0;
    }
    return -1;
}
static bool donor(const struct hlo_module *m, int64_t number) {
    struct str s = hlo_module_extra(m, "buffer_donor"), entry;
    char want[32];
    snprintf(want, sizeof want, "(%lld, {}", (long long)number);
    while (str_cut(&s, ')', &entry))
        if (memmem(entry.p, entry.n, want, strlen(want))) return true;
    return false;
}
static void argument_attrs(struct out *o, const struct hlo_instr *p) {
    struct strbuf b = {0};
    size_t n;
    if (shape_leaves(p->shape) == 1 && !shape_is_tuple(p->shape)) {
        int64_t to = alias_of(o->m, p->param_number);
        const char *sharding = hlo_extra(p, "sharding", &n);
        strbuf_puts(&b, STABLEHLO_NAME " = ");
        hlo_quote(&b, str_of(p->name));
        if (donor(o->m, p->param_number)) strbuf_puts(&b, ", jax.buffer_donor = true");
        if (sharding) {
            strbuf_puts(&b, ", mhlo.sharding = ");
            hlo_quote(&b, (struct str){sharding, n});
        }
        if (to >= 0) strbuf_printf(&b, ", tf.aliasing_output = %lld : i32", (long long)to);
    }
    if (b.n) strbuf_printf(o->b, " {%s}", strbuf_cstr(&b));
    strbuf_done(&b);
}
static status_t function(struct out *o, const struct hlo_computation *c, bool entry) {
    const struct shape *result = hlo_root(c)->shape;
    bool any = false;
    o->depth = 1;
    indent(o);
    strbuf_printf(o->b, "func.func %s @", entry ? "public" : "private");
    if (entry)
        strbuf_puts(o->b, "main");
    else
        hlo_quote(o->b, str_of(c->name));
    strbuf_putc(o->b, '(');
    for (size_t k = 0; k < c->params.n; k++) {
        const struct hlo_instr *p = c->params.v[k];
        struct out_value v = new_values(o, p->shape);
        o->of[p->id] = v;
        for (int32_t e = 0; e < v.n; e++, any = true) {
            strbuf_printf(o->b, "%s%%%u: ", any ? ", " : "", v.v[e]);
            out_type(o->b, shape_leaf(p->shape, e));
            if (entry) argument_attrs(o, p);
        }
    }

    strbuf_puts(o->b, ") -> ");
    types(o->b, leaves(o, result), shape_leaves(result));
    strbuf_puts(o->b, " {");
    o->depth++;
    RETURN_IF_ERR(body(o, c));
    ends(o, c, "func.return");
    o->depth--;
    indent(o);
    strbuf_putc(o->b, '}');
    return ST_OK;
}
static status_t whole(struct out *o) {
    strbuf_puts(o->b, "module @");
    hlo_quote(o->b, str_of(o->m->name));
    strbuf_puts(o->b, " {");
    RETURN_IF_ERR(function(o, o->m->entry, true));
    for (size_t k = 0; k < o->calls.n; k++) // which grows meanwhile
        RETURN_IF_ERR(function(o, o->calls.v[k], false));
    strbuf_puts(o->b, "\n}\n");
    if (!o->why.n) return ST_OK;
    return st_unimplemented("what StableHLO cannot say:%s", strbuf_cstr(&o->why));
}
status_t stablehlo_print(struct strbuf *b, const struct hlo_module *m) {
    struct out o = {.b = b, .m = m};
    o.of = arena_zarray(&o.a, struct out_value, m->next_id + 1);
    status_t st = whole(&o);
    strbuf_done(&o.why);
    arena_done(&o.a);
    return st;
}
