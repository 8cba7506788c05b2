// SPDX-License-Identifier: Apache-2.0
// A tree as text in MLIR's generic form.
#include <math.h>
#include <string.h>

#include "compiler/frontend/mlir/mlir.h"

// ---- types

static void print_types(struct strbuf *b, const struct mlir_type *const *v, int32_t n) {
    strbuf_putc(b, '(');
    for (int32_t k = 0; k < n; k++) {
        if (k) strbuf_puts(b, ", ");
        mlir_print_type(b, v[k]);
    }
    strbuf_putc(b, ')');
}
static void print_double(struct strbuf *b, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    strbuf_printf(b, "0x%016llX", (unsigned long long)bits);
}
static void print_scale(struct strbuf *b, double scale, int64_t zero) {
    strbuf_f64(b, scale);
    if (fmod(scale, 1) == 0 && fabs(scale) < 1e15) strbuf_puts(b, ".0"); // it must read as a float
    if (zero) strbuf_printf(b, ":%lld", (long long)zero);
}
static void print_quant(struct strbuf *b, const struct mlir_quant *q) {
    const char *storage = mlir_dtype_text(q->storage);
    strbuf_printf(b, "!quant.uniform<%s<%lld:%lld>:%s", storage, (long long)q->storage_min,
                  (long long)q->storage_max, mlir_dtype_text(q->expressed));
    if (q->axis >= 0) strbuf_printf(b, ":%d", q->axis);
    strbuf_puts(b, q->axis >= 0 ? ", {" : ", ");
    for (int32_t k = 0; k < q->n; k++) {
        if (k) strbuf_puts(b, ", ");
        print_scale(b, q->scales[k], q->zero_points[k]);
    }
    strbuf_puts(b, q->axis >= 0 ? "}>" : ">");
}
static void print_tensor(struct strbuf *b, const struct mlir_type *t) {
    strbuf_puts(b, "tensor<");
    if (t->rank < 0) strbuf_puts(b, "*x");
    for (int32_t d = 0; d < t->rank; d++) {
        if (t->dims[d] < 0)
            strbuf_puts(b, "?x");
        else
            strbuf_printf(b, "%lldx", (long long)t->dims[d]);
    }
    if (t->quant)
        print_quant(b, t->quant);
    else
        strbuf_puts(b, t->index ? "index" : t->name ? t->name : mlir_dtype_text(t->dtype));
    if (t->bounds) {
        strbuf_puts(b, ", #stablehlo.bounds<");
        for (int32_t d = 0; d < t->rank; d++) {
            if (d) strbuf_puts(b, ", ");
            if (t->bounds[d] < 0)
                strbuf_putc(b, '?');
            else
                strbuf_i64(b, t->bounds[d]);
        }
        strbuf_putc(b, '>');
    }
    strbuf_putc(b, '>');
}
void mlir_print_type(struct strbuf *b, const struct mlir_type *t) {
    switch (t->kind) {
    case MLIR_TENSOR:
        print_tensor(b, t);
        break;
    case MLIR_TOKEN:
        strbuf_puts(b, "!stablehlo.token");
        break;
    case MLIR_TUPLE:
        strbuf_puts(b, "tuple<");
        for (int32_t k = 0; k < t->n_elems; k++) {
            if (k) strbuf_puts(b, ", ");
            mlir_print_type(b, t->elems[k]);
        }
        strbuf_putc(b, '>');
        break;

    case MLIR_FUNCTION:
        print_types(b, t->elems, t->n_in);
        strbuf_puts(b, " -> ");
        print_types(b, t->elems + t->n_in, t->n_elems - t->n_in);
        break;
    case MLIR_NONE:
        strbuf_puts(b, "none");
        break;
    case MLIR_SCALAR:
        if (t->quant)
            print_quant(b, t->quant);
        else
            strbuf_puts(b, t->index ? "index" : mlir_dtype_text(t->dtype));
        break;
    case MLIR_OTHER:
        strbuf_puts(b, t->name);
        break;
    }
}

// ---- attributes

static void print_string(struct strbuf *b, struct str s) {
    strbuf_putc(b, '"');
    for (size_t k = 0; k < s.n; k++) {
        uint8_t c = (uint8_t)s.p[k];
        if (c == '"' || c == '\\' || c < ' ' || c > '~')
            strbuf_printf(b, "\\%02X", c);
        else
            strbuf_putc(b, (char)c);
    }
    strbuf_putc(b, '"');
}
static bool plain_name(struct str s) {
    for (size_t k = 0; k < s.n; k++) {
        char c = s.p[k];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (k == 0 || !((c >= '0' && c <= '9') || c == '.' || c == '$'))) return false;
    }
    return s.n > 0;
}
static void print_name(struct strbuf *b, struct str s) {
    if (plain_name(s))
        strbuf_add(b, s.p, s.n);
    else
        print_string(b, s);
}
static void print_symbol(struct strbuf *b, struct str s) {
    strbuf_putc(b, '@');
    print_name(b, s);
}
static void print_named(struct strbuf *b, const struct mlir_named *v, size_t n) {
    strbuf_putc(b, '{');
    for (size_t k = 0; k < n; k++) {
        if (k) strbuf_puts(b, ", ");
        print_name(b, v[k].name);
        if (v[k].attr->kind == MLIR_A_UNIT) continue;
        strbuf_puts(b, " = ");
        mlir_print_attr(b, v[k].attr);
    }
    strbuf_putc(b, '}');
}
// Elements of i1 by name, in lists: MLIR has changed what it means by a string of their bytes.
static const uint8_t *print_bools(struct strbuf *b, const struct mlir_type *t, int d,
                                  const uint8_t *p) {
    if (d >= t->rank) {
        strbuf_puts(b, *p ? "true" : "false");
        return p + 1;
    }
    strbuf_putc(b, '[');
    for (int64_t k = 0; k < t->dims[d]; k++) {
        if (k) strbuf_puts(b, ", ");
        p = print_bools(b, t, d + 1, p);
    }
    strbuf_putc(b, ']');
    return p;
}
static void print_dense(struct strbuf *b, const struct mlir_attr *t) {
    static const char hex[] = "0123456789ABCDEF";
    if (t->weight >= 0) {
        strbuf_printf(b, "dense_resource<w%d>", t->weight);
    } else if (t->bytes.n == 0) {
        strbuf_puts(b, "dense<>");
    } else if (t->type->dtype == DT_PRED) {
        const struct mlir_type scalar = {0};
        strbuf_puts(b, "dense<");
        print_bools(b, t->splat ? &scalar : t->type, 0, t->bytes.p);
        strbuf_putc(b, '>');
    } else {
        strbuf_puts(b, "dense<\"0x");
        for (size_t k = 0; k < t->bytes.n; k++) {
            strbuf_putc(b, hex[t->bytes.p[k] >> 4]);
            strbuf_putc(b, hex[t->bytes.p[k] & 15]);
        }
        strbuf_puts(b, "\">");
    }
    strbuf_puts(b, " : ");
    mlir_print_type(b, t->type);
}
static void print_ints(struct strbuf *b, const struct mlir_attr *t) {
    enum dtype e = t->type ? t->type->dtype : DT_S64;
    strbuf_printf(b, "array<%s", mlir_dtype_text(e));
    for (int32_t k = 0; k < t->n; k++) {
        strbuf_puts(b, k ? ", " : ": ");
        if (e == DT_PRED)
            strbuf_puts(b, t->ints[k] ? "true" : "false");
        else
            strbuf_i64(b, t->ints[k]);
    }
    strbuf_putc(b, '>');
}
static void print_of_type(struct strbuf *b, const struct mlir_type *t, const char *usual) {
    strbuf_puts(b, " : ");
    if (t)
        mlir_print_type(b, t);
    else
        strbuf_puts(b, usual);
}
void mlir_print_attr(struct strbuf *b, const struct mlir_attr *t) {
    switch (t->kind) {
    case MLIR_A_UNIT:
        strbuf_puts(b, "unit");
        break;
    case MLIR_A_BOOL:
        strbuf_puts(b, t->i ? "true" : "false");
        break;
    case MLIR_A_INT:
        strbuf_i64(b, t->i);
        print_of_type(b, t->type, "i64");
        break;
    case MLIR_A_FLOAT: // the bits as an f64 of the value: a type of its own keeps its rounding
        print_double(b, t->f);
        print_of_type(b, NULL, "f64");
        break;
    case MLIR_A_STRING:
        print_string(b, t->s);
        break;
    case MLIR_A_SYMBOL:
        print_symbol(b, t->s);
        break;
    case MLIR_A_TYPE:
        mlir_print_type(b, t->type);
        break;

    case MLIR_A_ARRAY:
        strbuf_putc(b, '[');
        for (int32_t k = 0; k < t->n; k++) {
            if (k) strbuf_puts(b, ", ");
            mlir_print_attr(b, t->list[k]);
        }
        strbuf_putc(b, ']');
        break;
    case MLIR_A_DICT:
        print_named(b, t->dict, (size_t)t->n);
        break;

    case MLIR_A_INTS:
        print_ints(b, t);
        break;
    case MLIR_A_DENSE:
        print_dense(b, t);
        break;
    case MLIR_A_ENUM:
        strbuf_printf(b, "#stablehlo<enum %.*s>", (int)t->s.n, t->s.p); // the attribute says which
        break;
    case MLIR_A_OTHER:
        strbuf_add(b, t->s.p, t->s.n);
        break;
    case MLIR_A_MISSING:
        strbuf_puts(b, "none");
        break;
    }
}

// ---- operations

static void indent(struct strbuf *b, int depth) {
    for (int k = 0; k < depth; k++)
        strbuf_puts(b, "  ");
}
static void print_value_types(struct strbuf *b, const struct mlir_func *f, const uint32_t *v,
                              int32_t n, uint32_t first) {
    strbuf_putc(b, '(');
    for (int32_t k = 0; k < n; k++) {
        if (k) strbuf_puts(b, ", ");
        mlir_print_type(b, f->values.v[v ? v[k] : first + (uint32_t)k]);
    }
    strbuf_putc(b, ')');
}
static void print_op(struct strbuf *b, const struct mlir_func *f, const struct mlir_op *op,
                     int depth);
static void print_region(struct strbuf *b, const struct mlir_func *f, const struct mlir_region *r,
                         int depth) {
    strbuf_puts(b, "{\n");
    if (r->n_args) {
        indent(b, depth);
        strbuf_puts(b, "^bb0(");
        for (int32_t k = 0; k < r->n_args; k++) {
            strbuf_printf(b, "%s%%%u: ", k ? ", " : "", r->args + (uint32_t)k);
            mlir_print_type(b, f->values.v[r->args + (uint32_t)k]);
        }
        strbuf_puts(b, "):\n");
    }
    for (size_t k = 0; k < r->ops.n; k++)
        print_op(b, f, r->ops.v[k], depth + 1);
    indent(b, depth);
    strbuf_putc(b, '}');
}
// Results are written one by one, as %N:count names would need a list of their own.
static void print_op(struct strbuf *b, const struct mlir_func *f, const struct mlir_op *op,
                     int depth) {
    indent(b, depth);
    for (int32_t k = 0; k < op->n_results; k++)
        strbuf_printf(b, "%s%%%u", k ? ", " : "", op->result + (uint32_t)k);
    if (op->n_results) strbuf_puts(b, " = ");
    print_string(b, op->name);
    strbuf_putc(b, '(');
    for (int32_t k = 0; k < op->n_operands; k++)
        strbuf_printf(b, "%s%%%u", k ? ", " : "", op->operands[k]);
    strbuf_putc(b, ')');

    if (op->attrs.n) {
        strbuf_puts(b, " <");
        print_named(b, op->attrs.v, op->attrs.n);
        strbuf_putc(b, '>');
    }
    for (int32_t k = 0; k < op->n_regions; k++) {
        strbuf_puts(b, k ? ", " : " (");
        print_region(b, f, &op->regions[k], depth);
    }
    strbuf_puts(b, op->n_regions ? ") : " : " : ");
    print_value_types(b, f, op->operands, op->n_operands, 0);
    strbuf_puts(b, " -> ");
    print_value_types(b, f, NULL, op->n_results, op->result);
    strbuf_putc(b, '\n');
}

static void print_dict_of(struct strbuf *b, const struct mlir_attr *const *v, int32_t k) {
    if (!v || !v[k] || !v[k]->n) return;
    strbuf_putc(b, ' ');
    mlir_print_attr(b, v[k]);
}
static void print_func(struct strbuf *b, const struct mlir_func *f) {
    strbuf_puts(b, f->is_public ? "  func.func public " : "  func.func private ");
    print_symbol(b, f->name);
    strbuf_putc(b, '(');
    for (int32_t k = 0; k < f->body.n_args; k++) {
        uint32_t v = f->body.args + (uint32_t)k;
        strbuf_printf(b, "%s%%%u: ", k ? ", " : "", v);
        mlir_print_type(b, f->values.v[v]);
        print_dict_of(b, f->arg_attrs, k);
    }
    strbuf_puts(b, ") -> (");
    for (int32_t k = 0; k < f->n_results; k++) {
        if (k) strbuf_puts(b, ", ");
        mlir_print_type(b, f->results[k]);
        print_dict_of(b, f->result_attrs, k);
    }
    strbuf_putc(b, ')');
    if (f->body.ops.n) {
        strbuf_puts(b, " {\n");
        for (size_t k = 0; k < f->body.ops.n; k++)
            print_op(b, f, f->body.ops.v[k], 2);
        strbuf_puts(b, "  }");
    }
    strbuf_putc(b, '\n');
}
void mlir_print(struct strbuf *b, const struct mlir_module *m) {
    strbuf_puts(b, "module");
    if (m->name.n) {
        strbuf_putc(b, ' ');
        print_symbol(b, m->name);
    }
    if (m->attrs.n) {
        strbuf_puts(b, " attributes ");
        print_named(b, m->attrs.v, m->attrs.n);
    }
    strbuf_puts(b, " {\n");
    for (size_t k = 0; k < m->funcs.n; k++)
        print_func(b, m->funcs.v[k]);
    strbuf_puts(b, "}\n");
}
