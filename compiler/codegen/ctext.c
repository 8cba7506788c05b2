// SPDX-License-Identifier: Apache-2.0
#include "compiler/codegen/ctext.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum value_class { CLASS_F, CLASS_S, CLASS_U, CLASS_P, CLASS_I, CLASS_V, CLASS_L, CLASS_A };
struct op_text {
    enum kop op;
    enum value_class of;
    const char *text[CTEXT_LANGUAGES];
};
static const struct op_text op_texts[] = {
#define CTEXT(op, of, opencl, wgsl, glsl) {K_##op, CLASS_##of, {opencl, wgsl, glsl}},
#include "compiler/codegen/ctext.def"
};
static const struct {
    enum value_class from, to;
    const char *text[CTEXT_LANGUAGES];
} cast_texts[] = {
#define CCAST(from, to, opencl, wgsl, glsl) {CLASS_##from, CLASS_##to, {opencl, wgsl, glsl}},
#include "compiler/codegen/ctext.def"
};
static const struct memory_text {
    enum dtype elem;
    const char *load[CTEXT_LANGUAGES], *store[CTEXT_LANGUAGES], *table[CTEXT_LANGUAGES];
} memory_texts[] = {
#define CMEMORY(elem, load, store, table, wgsl_load, wgsl_store, glsl_load, glsl_store)            \
    {DT_##elem,                                                                                    \
     {load, wgsl_load, glsl_load},                                                                 \
     {store, wgsl_store, glsl_store},                                                              \
     {table, wgsl_load, glsl_load}},
#include "compiler/codegen/ctext.def"
};
static const char *const quant_texts[DT_COUNT][CTEXT_LANGUAGES] = {
#define CQUANT(elem, opencl, wgsl, glsl) [DT_##elem] = {opencl, wgsl, glsl},
#include "compiler/codegen/ctext.def"
};
static const char *const type_texts[DT_COUNT][CTEXT_LANGUAGES] = {
#define CTYPE(dtype, opencl, wgsl, glsl) [DT_##dtype] = {opencl, wgsl, glsl},
#include "compiler/codegen/ctext.def"
};

// Of a value: how many have it as an argument, how many of these are sums that take it in (it is a
// product), and one of them.
struct use {
    int n, taken;
    const struct kir_val *by;
};
struct writer {
    struct ctext *x;
    const struct kir_fn *f;
    int64_t n_vals;   // that have names
    struct use *uses; // by id
    uint32_t n_uses;
    int indent;
    bool wgsl, glsl, words; // words: either, whose values have 32 bits
    bool unknown; // constants are written as values that the language's compiler does not know
    status_t st;  // the first failure
};

// ---- types

static enum value_class class_of(enum dtype t) {
    if (dtype_is_float(t)) return CLASS_F;
    return t == DT_PRED ? CLASS_P : dtype_class(t) == DC_SIGNED ? CLASS_S : CLASS_U;
}
// An s64 that is a variable of 32 bits. Carried values have 64: what is carried may not fit.
static bool is_short(const struct kir_val *v) {
    return kir_fits_32(v) && v->op != K_CARRY && v->op != K_RESULT;
}
static enum dtype var_type(const struct kir_val *v) {
    return is_short(v) ? DT_S32 : v->type;
}
// A type that is kept in 32 bits.
static bool is_narrow(const struct writer *w, enum dtype t) {
    return w->words && dtype_is_int(t) && dtype_bits(t) < 32;
}
static enum dtype unsigned_of(int bits) {
    return bits == 8 ? DT_U8 : bits == 16 ? DT_U16 : bits == 32 ? DT_U32 : DT_U64;
}
static enum value_class lanes_class(enum dtype t) {
    return dtype_is_float(t) ? CLASS_V : CLASS_L;
}
static const char *type_text(const struct writer *w, enum dtype t) {
    const char *text = type_texts[t][w->x->language];
    return text ? text : "?";
}
const char *ctext_bits(enum ctext_language l, int bytes) {
    return type_texts[unsigned_of(bytes * 8)][l];
}

// ---- values

static void line(struct writer *w) {
    for (int k = 0; k < w->indent; k++)
        strbuf_puts(w->x->out, w->words ? " " : "  "); // of pages, which are sent it
}
// WGSL: constant expressions that overflow are errors, so hlod_i and the like hide their argument.
static void put_int_of_words(struct writer *w, enum dtype t, int64_t v) {
    struct strbuf *b = w->x->out;
    if (t == DT_PRED)
        strbuf_puts(b, v ? "true" : "false");
    else if (dtype_class(t) == DC_SIGNED && (w->unknown || v == INT32_MIN))
        strbuf_printf(b, "hlod_i(0x%xu)", (unsigned)(uint32_t)v);
    else if (dtype_class(t) == DC_SIGNED)
        strbuf_printf(b, v < 0 ? "(%" PRId64 "%s)" : "%" PRId64 "%s", v, w->wgsl ? "i" : "");
    else
        strbuf_printf(b, w->unknown ? "hlod_u(%uu)" : "%uu", (unsigned)(uint32_t)v);
}
static void put_int(struct writer *w, enum dtype t, int64_t v) {
    struct strbuf *b = w->x->out;
    if (w->words) {
        put_int_of_words(w, t, v);
        return;
    }

    switch (t) {
    case DT_PRED:
        strbuf_puts(b, v ? "true" : "false");
        break;
    case DT_S32:
        if (v == INT32_MIN)
            strbuf_puts(b, "(-2147483647 - 1)");
        else
            strbuf_printf(b, v < 0 ? "(%" PRId64 ")" : "%" PRId64, v);
        break;
    case DT_S64:
        if (v == INT64_MIN)
            strbuf_puts(b, "(-9223372036854775807L - 1)");
        else
            strbuf_printf(b, v < 0 ? "(%" PRId64 "L)" : "%" PRId64 "L", v);
        break;
    case DT_U32:
        strbuf_printf(b, "%uu", (unsigned)(uint32_t)v);
        break;
    case DT_U64:
        strbuf_printf(b, "%" PRIu64 "UL", (uint64_t)v);
        break;
    default:
        strbuf_printf(b, "(%s)(%" PRId64 ")", type_text(w, t), v);
    }
}
// GLSL ES has no hexadecimal floats: all are bits but small whole numbers.
static void put_float_glsl(struct writer *w, float f, uint32_t u) {
    if (fabsf(f) < 65536 && f == floorf(f))
        strbuf_printf(w->x->out, signbit(f) ? "(%.1f)" : "%.1f", (double)f);
    else
        strbuf_printf(w->x->out, "uintBitsToFloat(0x%08xu)", u);
}
// Hexadecimal, so exact; what is no number by its bits.
static void put_float(struct writer *w, enum dtype t, double v) {
    struct strbuf *b = w->x->out;
    if (t == DT_F32) {
        float f = (float)v;
        uint32_t u;
        memcpy(&u, &f, 4);
        if (w->words && (!isfinite(f) || w->unknown || (f == 0 && signbit(f))))
            strbuf_printf(b, "hlod_f(0x%08xu)", u);
        else if (w->glsl)
            put_float_glsl(w, f, u);
        else if (isfinite(f))
            strbuf_printf(b, signbit(f) ? "(%af)" : "%af", (double)f);
        else
            strbuf_printf(b, "as_float(0x%08xu)", u);
    } else {
        uint64_t u;
        memcpy(&u, &v, 8);
        if (isfinite(v))
            strbuf_printf(b, signbit(v) ? "(%a)" : "%a", v);
        else
            strbuf_printf(b, "as_double(0x%016" PRIx64 "UL)", u);
    }
}
// Vectors: of pred in OpenCL, integers that are 0 or -1.
static void put_type(struct writer *w, enum dtype t, int lanes) {
    struct strbuf *b = w->x->out;
    if (lanes && w->wgsl)
        strbuf_printf(b, "vec%d%s", lanes,
                      t == DT_PRED  ? "<bool>"
                      : t == DT_F32 ? "f"
                      : t == DT_S32 ? "i"
                                    : "u");
    else if (lanes && w->glsl)
        strbuf_printf(b, "%svec%d",
                      t == DT_F32   ? ""
                      : t == DT_S32 ? "i"
                      : t == DT_U32 ? "u"
                                    : "b",
                      lanes);
    else
        strbuf_puts(b, type_text(w, lanes && t == DT_PRED ? DT_S32 : t));
    if (lanes && !w->words) strbuf_i64(b, lanes);
}
static void name(struct writer *w, struct kir_val *v) {
    if (!v->emit) v->emit = (void *)(intptr_t)++w->n_vals;
}
static void expression(struct writer *w, const struct kir_val *v);
static bool is_inside(const struct writer *w, const struct kir_val *v);
// wide: as its own 64 bits, where the variable has 32.
static void put_val(struct writer *w, const struct kir_val *v, bool wide) {
    struct strbuf *b = w->x->out;
    if (v == w->f->begin || v == w->f->end) {
        strbuf_puts(b, v == w->f->begin ? "begin" : "end");
    } else if (v->op == K_CONST && w->x->n_sizes && v->type == DT_S64 && v->imm_j) {
        strbuf_printf(b, is_short(v) && !wide ? "(int)s%" PRId64 : "s%" PRId64, v->imm_j);
    } else if (v->op == K_CONST && dtype_is_float(v->type)) {
        put_float(w, v->type, v->imm_f);
    } else if (v->op == K_CONST) {
        put_int(w, wide ? v->type : var_type(v), v->imm_i);
    } else if (v->op == K_SPLAT && w->words) {
        const struct kir_val *of = v->args[0];
        bool zero = w->wgsl && of->op == K_CONST && of->imm_i == 0 && of->imm_f == 0;
        put_type(w, v->type, v->lanes);
        strbuf_putc(b, '(');
        if (!zero || signbit(of->imm_f)) put_val(w, of, false);
        strbuf_putc(b, ')');
    } else if (is_inside(w, v)) {
        bool apart = v->op == K_ADD && w->uses[v->id].by->op == K_MUL;
        strbuf_puts(b, apart ? "(" : "");
        expression(w, v);
        strbuf_puts(b, apart ? ")" : "");
    } else {
        if (wide && is_short(v) && !w->words) strbuf_printf(b, "(%s)", type_text(w, v->type));
        strbuf_printf(b, "v%" PRIdPTR, (intptr_t)v->emit);
    }
}

// ---- texts of the tables

// Of which operations on s64 the lower half follows from the lower halves, or whose arguments are
// promoted as they should be.
static bool is_plain(enum kop op) {
    static const bool plain[KOP_COUNT] = {
        [K_ADD] = true,   [K_SUB] = true,   [K_MUL] = true,    [K_NEG] = true,
        [K_MIN] = true,   [K_MAX] = true,   [K_SELECT] = true, [K_LOAD] = true,
        [K_TABLE] = true, [K_STORE] = true, [K_CMP] = true};
    return plain[op];
}
static bool needs_wide(const struct kir_val *v) {
    bool index = v->op == K_LOAD || v->op == K_STORE || v->op == K_TABLE || v->op == K_CMP;
    if (v->op == K_CAST) return dtype_bits(v->type) == 64 && !dtype_is_float(v->type);
    return !is_plain(v->op) || (!index && !is_short(v));
}
// A sum of a sum whose rounding counts, as in (x + big) - big: compilers of WGSL and GLSL may
// compute it as they would with real numbers, unless they cannot see that it is one.
static bool is_sum(const struct kir_val *v) {
    return (v->op == K_ADD || v->op == K_SUB) && dtype_is_float(v->type) &&
           !(v->flags & KF_REASSOC);
}
struct memory_at {
    const char *qualifier, *base;
};
static void put_text(struct writer *w, const char *text, const struct kir_val *v,
                     const struct memory_at *m) {
    static const char *const signs[] = {"==", "!=", ">=", ">", "<=", "<"};
    struct strbuf *b = w->x->out;
    enum dtype t = v->type ? var_type(v) : DT_U32;
    // Single values of fewer bits become ints in arithmetic, vectors do not.
    int bits = dtype_bits(t) < 32 && !v->lanes ? 32 : dtype_bits(t);
    w->unknown = w->words && v->op != K_STORE;
    for (int k = 0; k < v->n_args; k++)
        w->unknown &= v->args[k]->op == K_CONST;

    for (const char *p = text; *p; p++) {
        if (*p != '$') {
            strbuf_putc(b, *p);
            continue;
        }
        switch (*++p) {
        case 'T':
            put_type(w, t, v->lanes);
            break;
        case 'W':
            put_type(w, unsigned_of(bits), v->lanes);
            break;
        case 'E':
            put_type(w, v->elem, 0);
            break;
        case 'N':
            strbuf_i64(b, v->lanes);
            break;
        case 'c':
            strbuf_puts(b, signs[v->imm_i]);
            break;
        case 'B':
            strbuf_puts(b, m->base);
            break;
        case 'Q':
            strbuf_puts(b, m->qualifier);
            break;
        default: {
            const struct kir_val *arg = v->args[*p - '0'];
            bool stored = v->op == K_STORE && *p == '1',
                 rounded = w->words && is_sum(v) && is_sum(arg);
            strbuf_puts(b, rounded ? "hlod_rounded(" : "");
            bool times = w->words && v->op == K_FMA && arg->op == K_SPLAT && *p == '1';
            put_val(w, times ? arg->args[0] : arg, stored || needs_wide(v));
            strbuf_puts(b, rounded ? ")" : "");
        }
        }
    }
    w->unknown = false;
}

static void lacks(struct writer *w, const struct kir_val *v) {
    if (!w->st)
        w->st = st_unimplemented("the language of the kernels has no %s of %s", kop_name(v->op),
                                 dtype_name(v->elem     ? v->elem
                                            : v->n_args ? v->args[0]->type
                                                        : v->type));
}
// The row of the class itself, else of any.
static const char *op_text(const struct writer *w, enum kop op, enum value_class of) {
    const char *any = NULL;
    for (size_t k = 0; k < sizeof op_texts / sizeof *op_texts; k++) {
        if (op_texts[k].op != op) continue;
        if (op_texts[k].of == of) return op_texts[k].text[w->x->language];
        bool one = of != CLASS_V && of != CLASS_L;
        if (op_texts[k].of == CLASS_A && one) any = op_texts[k].text[w->x->language];
    }
    if (of == CLASS_I && !any) return op_text(w, op, CLASS_S);
    return any;
}
static const char *cast_text(const struct writer *w, const struct kir_val *v) {
    enum value_class from = class_of(v->args[0]->type), to = class_of(v->type);
    if (v->flags & KF_FITS) return w->words ? "$T($0)" : "($T)$0";
    bool narrows = from == CLASS_F && is_narrow(w, v->type), small = dtype_bits(v->type) == 8;
    if (narrows && to == CLASS_S)
        return small ? "clamp(hlod_i32($0), -128, 127)" : "clamp(hlod_i32($0), -32768, 32767)";
    if (narrows && to == CLASS_U)
        return small ? "min(hlod_u32($0), 255u)" : "min(hlod_u32($0), 65535u)";
    for (size_t k = 0; k < sizeof cast_texts / sizeof *cast_texts; k++)
        if (cast_texts[k].from == from && cast_texts[k].to == to)
            return cast_texts[k].text[w->x->language];
    return NULL;
}
// Types of less than a byte lie in one; small floats are their bits.
static const struct memory_text *memory_text(enum dtype elem) {
    if (dtype_is_int(elem) && dtype_bits(elem) < 8) elem = kir_type(elem);
    if (kir_is_f8(elem)) elem = DT_U8;
    for (size_t k = 0; k < sizeof memory_texts / sizeof *memory_texts; k++)
        if (memory_texts[k].elem == elem) return &memory_texts[k];
    return NULL;
}

// ---- statements

static void divmod(struct writer *w, const struct kir_val *v) {
    struct strbuf *b = w->x->out;
    enum dtype t = v->args[0]->hi < INT64_C(0xffffffff) ? DT_U32 : DT_U64;
    if (w->words)
        strbuf_printf(b, "%s(%s(", type_text(w, DT_S32), type_text(w, t));
    else
        strbuf_printf(b, "(%s)((%s)", type_text(w, var_type(v)), type_text(w, t));
    put_val(w, v->args[0], t == DT_U64);
    strbuf_puts(b, w->words ? ")" : "");
    if (v->imm_i != 1) {
        strbuf_puts(b, " / ");
        put_int(w, t, v->imm_i);
    }
    if (v->imm_j) {
        strbuf_puts(b, " % ");
        put_int(w, t, v->imm_j);
    }
    strbuf_putc(b, ')');
}
// KIR_OWN: in OpenCL an array of elements, else one of vectors.
static void declare_own(struct writer *w) {
    const struct kir_own *own = &w->f->own;
    struct strbuf *b = w->x->out;
    if (!own->n) return;
    line(w);
    if (w->wgsl) strbuf_puts(b, "var own: array<");
    put_type(w, own->type, w->words ? own->lanes : 0);
    strbuf_printf(b, w->wgsl ? ", %d>;\n" : " own[%d];\n", own->n * (w->words ? 1 : own->lanes));
}
static void own_memory(struct writer *w, const struct kir_val *v) {
    int lanes = w->f->own.lanes;
    struct strbuf *b = w->x->out;
    if (v->op == K_STORE && w->words) {
        strbuf_printf(b, "own[%d] = ", (int)v->args[0]->imm_i / lanes);
        put_val(w, v->args[1], false);
    } else if (v->op == K_STORE) {
        strbuf_printf(b, "vstore%d(", lanes);
        put_val(w, v->args[1], false);
        strbuf_printf(b, ", 0, own + %d)", (int)v->args[0]->imm_i);
    } else {
        strbuf_puts(b, "own[");
        put_val(w, v->args[0], false);
        if (w->words) strbuf_printf(b, w->wgsl ? " >> %du][" : " >> %d][", lanes / 2);
        if (w->words) put_val(w, v->args[0], false);
        if (w->words) strbuf_printf(b, " & %d", lanes - 1);
        strbuf_putc(b, ']');
    }
}
static void drawn_memory(struct writer *w, const struct kir_val *v) {
    struct strbuf *b = w->x->out;
    strbuf_puts(b, v->type == DT_F32   ? "uintBitsToFloat(hlod_sum("
                   : v->type == DT_S32 ? "int(hlod_sum("
                                       : "(hlod_sum(");
    put_val(w, v->args[0], false);
    strbuf_puts(b, "))");
}
static void memory(struct writer *w, const struct kir_val *v) {
    if (v->imm_i == KIR_OWN && v->op != K_TABLE) {
        own_memory(w, v);
        return;
    }
    if (v->imm_i == KIR_SUMS && v->op == K_LOAD) {
        drawn_memory(w, v);
        return;
    }

    const struct memory_text *t = memory_text(v->elem);
    enum ctext_language l = w->x->language;
    char base[64], qualifier[64];
    int buffer = (int)v->imm_i + (v->op == K_TABLE ? w->f->n_bufs : 0);
    snprintf(base, sizeof base, w->wgsl ? "s[q" : "scratch");
    snprintf(qualifier, sizeof qualifier, "HLOD_RESULT == %d", buffer - w->f->n_in);
    struct memory_at m = {w->glsl ? qualifier : "__global", base};
    const char *text = v->lanes           ? op_text(w, v->op, lanes_class(v->elem))
                       : !t               ? NULL
                       : v->op == K_STORE ? t->store[l]
                       : v->op == K_TABLE ? t->table[l]
                                          : t->load[l];
    if (!text) {
        lacks(w, v);
        return;
    }

    if (w->words && v->imm_i != KIR_SCRATCH)
        snprintf(base, sizeof base, w->wgsl ? "m[o%d" : "o%d", buffer);
    else if (v->op == K_TABLE)
        snprintf(base, sizeof base, "%s_t%d", w->x->symbol, (int)v->imm_i);
    else if (v->imm_i != KIR_SCRATCH)
        snprintf(base, sizeof base, "b%d", (int)v->imm_i);
    if (v->op == K_LOAD && v->imm_i != KIR_SCRATCH && v->imm_i < w->f->n_in)
        m.qualifier = "__global const";
    put_text(w, text, v, &m);
}
// The product that a sum takes in, with the sum's other argument. Of vectors in any language: it is
// the same statement.
static const struct kir_val *product_in(const struct writer *w, const struct kir_val *v, int *at) {
    bool contracts = w->x->contracts || (w->words && v->lanes);
    if (!contracts || v->op != K_ADD || !dtype_is_float(v->type) ||
        !(v->flags & (KF_REASSOC | KF_CONTRACT)))
        return NULL;
    for (*at = 1; *at >= 0; --*at) {
        const struct kir_val *m = v->args[*at];
        if (m->op == K_MUL && m->flags & KF_CONTRACT) return m;
    }
    return NULL;
}
// ---- what is written where it is used

static void use(struct writer *w, const struct kir_val *by, const struct kir_val *v) {
    int at;
    if (v->id >= w->n_uses) return;
    w->uses[v->id].n++;
    w->uses[v->id].taken += by && by->op == K_ADD && product_in(w, by, &at) == v;
    w->uses[v->id].by = by;
}
static void count_uses(void *ctx, struct kir_val *v) {
    struct writer *w = ctx;
    for (int k = 0; k < v->n_args; k++)
        use(w, v, v->args[k]);
    if (v->op != K_FOR) return;
    use(w, NULL, v->loop->begin);
    use(w, NULL, v->loop->end);
    for (int c = 0; c < v->loop->n_carry; c++) {
        use(w, NULL, v->loop->init[c]);
        use(w, NULL, v->loop->yield[c]);
    }
}
static void find_last(void *ctx, struct kir_val *v) {
    uint32_t *n = ctx;
    if (v->id >= *n) *n = v->id + 1;
}
// A product that all who have it take in.
static bool is_taken_in(const struct writer *w, const struct kir_val *v) {
    return v->op == K_MUL && w->uses[v->id].n && w->uses[v->id].n == w->uses[v->id].taken;
}
static bool is_index_op(const struct kir_val *v) {
    bool op = v->op == K_ADD || v->op == K_MUL || v->op == K_MIN || v->op == K_MAX;
    return op && v->type == DT_S64 && is_short(v);
}
static bool is_index_cmp(const struct kir_val *v) {
    return v->op == K_CMP && v->args[0]->type == DT_S64;
}
// Written within the one statement that has it, for short text: indices, comparisons of them, and
// what vectors are made of.
static bool is_inside(const struct writer *w, const struct kir_val *v) {
    if (!w->words || v->id >= w->n_uses || w->uses[v->id].n != 1) return false;
    const struct kir_val *by = w->uses[v->id].by;
    if (!by || by->block != v->block) return false;
    bool memory = by->op == K_LOAD || by->op == K_STORE || by->op == K_TABLE;
    if (is_index_op(v))
        return is_index_op(by) || (memory && by->args[0] == v && by->imm_i != KIR_OWN &&
                                   dtype_bits(by->elem) == 32 && !by->lanes);
    if (is_index_cmp(v) || (v->op == K_AND && v->type == DT_PRED))
        return (by->op == K_AND && by->type == DT_PRED) || by->op == K_JOIN;
    if (v->op == K_ADD && v->lanes) return by->op == K_SELECT;
    bool load = v->op == K_LOAD && !(v->flags & KF_PINNED) && v->elem == DT_F32 && !v->lanes;
    bool product = v->op == K_MUL && v->flags & KF_CONTRACT && dtype_is_float(v->type);
    if (product) return by->op == K_ADD && by->flags & KF_REASSOC;
    return load && (by->op == K_SPLAT || by->op == K_JOIN || by->op == K_MUL);
}
// "const T v1 = ", or "let v1 = " and "var v1 = " of what has a type; a variable, where what is
// declared changes.
static void put_let(struct writer *w, bool constant, enum dtype t, int lanes, char prefix,
                    intptr_t n) {
    struct strbuf *b = w->x->out;
    line(w);
    if (w->wgsl) {
        strbuf_printf(b, "%s %c%" PRIdPTR " = ", constant ? "let" : "var", prefix, n);
        return;
    }
    strbuf_puts(b, constant && !w->glsl ? "const " : "");
    put_type(w, t, lanes);
    strbuf_printf(b, " %c%" PRIdPTR " = ", prefix, n);
}
// What begins the text of a value of 8 or 16 bits that 32 would not hold as it is.
static const char *wraps(const struct writer *w, const struct kir_val *v) {
    bool kept = v->op == K_LOAD || v->op == K_TABLE || v->op == K_SELECT || v->op == K_CMP;
    return !is_narrow(w, v->type) || kept ? "" : w->wgsl ? "extractBits(" : "hlod_bits(";
}
// The smaller or the larger of two, which a compiler may take for its own min or max.
static bool is_choice(const struct kir_val *v) {
    const struct kir_val *c = v->args[0];
    if (v->op != K_SELECT || c->op != K_CMP || !dtype_is_float(c->args[0]->type)) return false;
    return (c->args[0] == v->args[1] && c->args[1] == v->args[2]) ||
           (c->args[0] == v->args[2] && c->args[1] == v->args[1]);
}
// WGSL and GLSL may take NaN for absent: a comparison of a value with itself is one of its bits,
// and min and max, to which NaN may be nothing, are not to be seen. They count bits of 32.
static const char *text_of_words(const struct writer *w, const struct kir_val *v,
                                 enum value_class of) {
    bool same = v->op == K_CMP && of == CLASS_F && v->args[0] == v->args[1];
    if (same && v->imm_i == CMP_NE) return "hlod_nan($0)";
    if (same && v->imm_i == CMP_EQ) return "!hlod_nan($0)";
    if (is_choice(v))
        return w->glsl ? "$0 ? $1 : hlod_rounded($2)" : "select(hlod_rounded($2), $1, $0)";
    if ((v->op == K_CLZ || v->op == K_POPCNT) && is_narrow(w, v->type)) return NULL;
    return op_text(w, v->op, of);
}
static void join(struct writer *w, const struct kir_val *v) {
    struct strbuf *b = w->x->out;
    if (!w->words) strbuf_putc(b, '(');
    put_type(w, v->type, v->lanes);
    strbuf_puts(b, w->words ? "(" : ")(");
    for (int k = 0; k < v->n_args; k++) {
        strbuf_puts(b, k ? ", " : "");
        if (!w->words && v->type == DT_PRED) strbuf_puts(b, "-(int)");
        put_val(w, v->args[k], false);
    }
    strbuf_putc(b, ')');
}
static void zip(struct writer *w, const struct kir_val *v) {
    struct strbuf *b = w->x->out;
    strbuf_putc(b, '(');
    put_type(w, v->type, v->lanes);
    for (int k = 0; k < v->lanes; k++) {
        strbuf_puts(b, k ? ", " : ")(");
        put_val(w, v->args[k % 2], false);
        strbuf_printf(b, ".s%x", (unsigned)((v->imm_i ? v->lanes / 2 : 0) + k / 2));
    }
    strbuf_putc(b, ')');
}
static void expression(struct writer *w, const struct kir_val *v) {
    int at;
    const struct kir_val *m = product_in(w, v, &at);
    enum value_class of = class_of(v->n_args ? v->args[0]->type : v->type);
    if (v->op == K_SELECT) of = CLASS_A;
    if (v->lanes) of = lanes_class(v->type);
    if (of == CLASS_S && v->type == DT_S64 && is_short(v)) of = CLASS_I;
    for (int k = 0; k < v->n_args && of == CLASS_I; k++)
        if (!is_short(v->args[k])) of = CLASS_S;

    if (v->op == K_DIVMOD) {
        divmod(w, v);
    } else if (v->op == K_JOIN) {
        join(w, v);
    } else if (v->op == K_ZIP && !w->words) {
        zip(w, v);
    } else if (v->op == K_LOAD || v->op == K_TABLE) {
        memory(w, v);
    } else if (m) {
        struct kir_val fma = {
            .op = K_FMA, .type = v->type, .n_args = 3, .args = {m->args[0], m->args[1]}};
        fma.args[2] = v->args[1 - at];
        fma.lanes = v->lanes;
        put_text(w, op_text(w, K_FMA, v->lanes ? CLASS_V : CLASS_F), &fma, NULL);
    } else {
        const char *text = v->op == K_CAST    ? cast_text(w, v)
                           : v->op == K_QUANT ? quant_texts[v->imm_i][w->x->language]
                           : w->words         ? text_of_words(w, v, of)
                                              : op_text(w, v->op, of);
        if (text)
            put_text(w, text, v, NULL);
        else
            lacks(w, v);
    }
}
static void value(struct writer *w, struct kir_val *v) {
    const char *wrap = wraps(w, v);
    name(w, v);
    put_let(w, true, var_type(v), v->lanes, 'v', (intptr_t)v->emit);
    strbuf_puts(w->x->out, wrap);
    expression(w, v);
    if (*wrap) strbuf_printf(w->x->out, w->wgsl ? ", 0u, %du)" : ", 0, %d)", dtype_bits(v->type));
    strbuf_puts(w->x->out, ";\n");
}

static void block(struct writer *w, const struct kir_block *b);
static void declare(struct writer *w, struct kir_val *v, const struct kir_val *init) {
    name(w, v);
    put_let(w, false, var_type(v), v->lanes, 'v', (intptr_t)v->emit);
    put_val(w, init, !is_short(v));
    strbuf_puts(w->x->out, ";\n");
}
// What is carried changes at a turn's end, all of it at once.
static void yield(struct writer *w, struct kir_loop *l) {
    struct strbuf *b = w->x->out;
    bool apart = false; // one becomes what another was
    for (int c = 0; c < l->n_carry; c++)
        apart |= l->yield[c]->op == K_CARRY && l->yield[c]->loop == l && l->yield[c] != l->carry[c];
    for (int c = 0; c < l->n_carry && !apart; c++) {
        if (l->yield[c] == l->carry[c]) continue;
        line(w);
        strbuf_printf(b, "v%" PRIdPTR " = ", (intptr_t)l->carry[c]->emit);
        put_val(w, l->yield[c], true);
        strbuf_puts(b, ";\n");
    }
    for (int c = 0; c < l->n_carry && apart; c++) {
        put_let(w, true, l->carry[c]->type, l->carry[c]->lanes, 'y', c);
        put_val(w, l->yield[c], true);
        strbuf_puts(b, ";\n");
    }
    for (int c = 0; c < l->n_carry && apart; c++) {
        line(w);
        strbuf_printf(b, "v%" PRIdPTR " = y%d;\n", (intptr_t)l->carry[c]->emit, c);
    }
}
static void loop(struct writer *w, struct kir_loop *l) {
    struct strbuf *b = w->x->out;
    for (int c = 0; c < l->n_carry; c++) {
        declare(w, l->carry[c], l->init[c]);
        l->result[c]->emit = l->carry[c]->emit;
    }

    name(w, l->var);
    bool one = w->x->one_unit && l->begin == w->f->begin && l->end == w->f->end;
    const char *type = type_text(w, var_type(l->var));
    line(w);
    if (one) {
        strbuf_puts(b, "{\n");
        w->indent++;
        put_let(w, true, var_type(l->var), 0, 'v', (intptr_t)l->var->emit);
        strbuf_puts(b, "begin;\n");
    } else {
        intptr_t i = (intptr_t)l->var->emit;
        if (w->wgsl)
            strbuf_printf(b, "for (var v%" PRIdPTR " = ", i);
        else
            strbuf_printf(b, "for (%s v%" PRIdPTR " = ", type, i);
        put_val(w, l->begin, false);
        strbuf_printf(b, "; v%" PRIdPTR " < ", i);
        put_val(w, l->end, false);
        strbuf_printf(b, "; v%" PRIdPTR "++) {\n", i);
        w->indent++;
    }
    block(w, &l->body);
    yield(w, l);
    w->indent--;
    line(w);
    strbuf_puts(b, "}\n");
}
static void block(struct writer *w, const struct kir_block *b) {
    for (struct kir_val *v = b->first; v && !w->st; v = v->next) {
        if (v->op == K_FOR) {
            loop(w, v->loop);
        } else if (v->op == K_STORE) {
            line(w);
            memory(w, v);
            strbuf_puts(w->x->out, ";\n");
        } else if (v->op != K_CONST && !is_taken_in(w, v) && !is_inside(w, v) &&
                   !(v->op == K_SPLAT && w->words)) {
            value(w, v);
        }
    }
}

static void forget(UNUSED void *ctx, struct kir_val *v) {
    v->emit = NULL;
    for (int c = 0; v->op == K_FOR && c < v->loop->n_carry; c++)
        v->loop->carry[c]->emit = v->loop->result[c]->emit = NULL;
    if (v->op == K_FOR) v->loop->var->emit = NULL;
}
status_t ctext_body(struct ctext *x, const struct kir_fn *f) {
    struct writer w = {.x = x,
                       .f = f,
                       .indent = 1,
                       .wgsl = x->language == CTEXT_WGSL,
                       .glsl = x->language == CTEXT_GLSL,
                       .words = x->language != CTEXT_OPENCL};
    struct kir_block *top = (struct kir_block *)(uintptr_t)&f->top;
    kir_each(top, forget, NULL);
    kir_each(top, find_last, &w.n_uses);
    w.uses = calloc(w.n_uses + 1, sizeof *w.uses);
    if (!w.uses) return st_oom();
    kir_each(top, count_uses, &w);
    declare_own(&w);
    block(&w, &f->top);
    free(w.uses);
    return w.st;
}

void ctext_table(struct ctext *x, const struct kir_fn *f, int table) {
    const struct kir_table *t = &f->tables.v[table];
    int size = dtype_size(t->elem);
    const uint8_t *p = t->data;
    for (int64_t k = 0; k < t->n; k++, p += size) {
        uint64_t u = 0;
        memcpy(&u, p, (size_t)size);
        strbuf_printf(x->out, "%s0x%" PRIx64 "%s",
                      k == 0  ? ""
                      : k % 8 ? ", "
                              : ",\n  ",
                      u,
                      size == 8   ? "UL"
                      : size == 4 ? "u"
                                  : "");
    }
}
