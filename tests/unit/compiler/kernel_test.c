// SPDX-License-Identifier: Apache-2.0
// Kernels against the evaluator: every instruction of small modules is compiled, run on buffers in
// its layouts (units in two uneven pieces), and compared with hlo_eval on the same operands.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/str.h"
#include "compiler/codegen/abi.h"
#include "compiler/codegen/codegen.h"
#include "compiler/eval.h"
#include "compiler/ir/text/text.h"
#include "compiler/kernel/lower.h"
#include "tests/unit/compiler/kernel_cases.h"

static struct target host = {.id = "test",
                             .kind = "cpu",
                             .llvm_triple = "",
                             .llvm_cpu = "",
                             .llvm_features = "",
                             .vector_bits = 512,
                             .threads = 2};

static const char *current = "";
static void must(status_t st) {
    if (!st) return;
    print_error("%s\n%.600s\n", st_message(st), current);
    st_drop(st);
    fail();
}
static uint64_t state = 1;
static double unit(void) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state >> 11) * 0x1p-53;
}
static bool wild; // some numbers are none
static struct literal *random_literal(struct arena *a, const struct shape *s) {
    struct literal *l = lit_new(a, s);
    for (int64_t i = 0; i < shape_elements(s); i++) {
        double v = unit() * 4 - 2;
        if (dtype_class(s->dtype) == DC_PRED)
            lit_set_i64(l, i, v > 0);
        else if (dtype_is_int(s->dtype))
            lit_set_i64(l, i,
                        (int64_t)(v * (dtype_class(s->dtype) == DC_SIGNED ? 3 : 6)) % 7 +
                            (dtype_class(s->dtype) == DC_UNSIGNED ? 3 : 0));
        else if (dtype_is_complex(s->dtype))
            lit_set_c128(l, i, v, unit());
        else
            lit_set_f64(l, i, wild && i % 97 == 5 ? (i % 2 ? INFINITY : NAN) : v);
    }
    return l;
}
// Values in the order of the buffer; padding zero (in) or garbage (out).
static void *to_buffer(const struct literal *l, int fill) {
    const struct shape *s = l->shape;
    size_t n = (size_t)shape_bytes(s) + 64, e = (size_t)dtype_size(s->dtype);
    char *b = aligned_alloc(64, (n + 63) / 64 * 64);
    memset(b, fill, n);
    int64_t idx[HLO_MAX_RANK] = {0}, total = shape_elements(s);
    for (int64_t i = 0; i < total; i++) {
        memcpy(b + (size_t)shape_offset(s, idx) * e, (const char *)l->data + (size_t)i * e, e);
        for (int d = s->rank - 1; d >= 0 && ++idx[d] == s->dims[d]; d--)
            idx[d] = 0;
    }
    return b;
}
static bool close_to(const struct shape *s, const struct literal *want, const struct literal *got,
                     int64_t i) {
    enum dtype t = s->dtype;
    double w[2], g[2],
        tol = t == DT_F64 || t == DT_C128 ? 1e-9
              : t == DT_BF16              ? 2e-2
              : t == DT_F16               ? 3e-3
              : dtype_bits(t) == 8        ? 0.26 // one step of two mantissa bits
                                          : 3e-5;
    if (!dtype_is_float(t) && !dtype_is_complex(t))
        return lit_get_i64(want, i) == lit_get_i64(got, i);
    lit_get_c128(want, i, w);
    lit_get_c128(got, i, g);
    for (int k = 0; k < 2; k++) {
        if (isnan(w[k]) && isnan(g[k])) continue;
        if (w[k] == g[k] && signbit(w[k]) == signbit(g[k])) continue;
        if (!(fabs(w[k] - g[k]) <= tol * (1 + fabs(w[k])))) return false;
        if (w[k] == 0 && g[k] == 0) return false;
    }
    return true;
}
static void compare(const char *name, const struct literal *want, const char *buf) {
    const struct shape *s = want->shape;
    size_t e = (size_t)dtype_size(s->dtype);
    struct arena a = {0};
    struct literal *got = lit_new(&a, s);
    int64_t idx[HLO_MAX_RANK] = {0}, total = shape_elements(s);
    char *seen = calloc(1, (size_t)shape_bytes(s) + 1);
    for (int64_t i = 0; i < total; i++) {
        memcpy((char *)got->data + (size_t)i * e, buf + (size_t)shape_offset(s, idx) * e, e);
        memset(seen + (size_t)shape_offset(s, idx) * e, 1, e);
        for (int d = s->rank - 1; d >= 0 && ++idx[d] == s->dims[d]; d--)
            idx[d] = 0;
    }
    for (int64_t i = 0; i < total; i++)
        if (!close_to(s, want, got, i)) {
            double w[2], g[2];
            lit_get_c128(want, i, w);
            lit_get_c128(got, i, g);
            print_error("%s: element %ld of %ld: want %.9g got %.9g\n", name, (long)i, (long)total,
                        w[0], g[0]);
            fail();
        }
    for (int64_t i = 0; i < shape_bytes(s); i++)
        if (!seen[i] && buf[i]) {
            print_error("%s: padding byte %ld is not zero\n", name, (long)i);
            fail();
        }
    for (int i = 0; i < 64; i++)
        assert_int_equal((unsigned char)buf[shape_bytes(s) + i], 0xa5);
    free(seen);
    arena_done(&a);
}

// The value the evaluator gives for instruction i on operand literals.
static struct literal *reference(struct arena *a, const struct hlo_instr *i,
                                 struct literal *const *in) {
    struct hlo_eval ev = hlo_eval_begin(a);
    struct literal *out;
    must(hlo_op_info(i->op)->eval(&ev, i, in, &out));
    return out;
}
static void run_instr(const struct hlo_instr *i, const struct kernel_info *k, struct code *code,
                      struct literal *const *in, struct literal *want) {
    void *bufs[64];
    int n = 0, outs = shape_leaves(i->shape);
    for (int o = 0; o < i->n_operands; o++) {
        struct literal l = *in[o];
        l.shape = i->operands[o]->shape;
        bufs[n++] = to_buffer(&l, 0);
    }
    for (int r = 0; r < outs; r++) {
        size_t bytes = (size_t)shape_bytes(shape_leaf(i->shape, r)) + 64;
        bufs[n] = aligned_alloc(64, (bytes + 63) / 64 * 64);
        memset(bufs[n++], 0xa5, bytes);
    }
    void *fn = code_symbol(code, k->symbol);
    assert_non_null(fn);
    char *scratch = aligned_alloc(64, ((size_t)k->scratch_bytes + 127) / 64 * 64);
    memset(scratch, 0xff, (size_t)k->scratch_bytes + 64);
    int64_t cut = k->extent / 3;
    hlod_kernel_call(fn, k->n_bufs, bufs, cut, k->extent, scratch, k->sizes);
    hlod_kernel_call(fn, k->n_bufs, bufs, 0, cut, scratch, k->sizes);
    for (int b = 0; b < 64; b++)
        assert_int_equal((unsigned char)scratch[k->scratch_bytes + b], 0xff);
    for (int r = 0; r < outs; r++) {
        struct literal *w = shape_is_tuple(i->shape) ? want->elems[r] : want;
        struct literal l = *w;
        l.shape = shape_leaf(i->shape, r);
        compare(i->name, &l, bufs[n - outs + r]);
    }
    free(scratch);
    while (n > 0)
        free(bufs[--n]);
}

static bool no_llvm; // all kernels must be the direct generator's
static int refused;  // kernels that host.policy does not allow
static void check_module(const char *text) {
    current = text;
    struct hlo_module *m;
    struct arena a = {0};
    struct kernel_set set;
    struct code *code;
    struct pmap values = {0};
    int made = 0;
    must(hlo_parse(str_of(text), NULL, &m));
    must(codegen_module(&a, m, &host, PRECISION_DEFAULT, NULL, NULL, &set));
    must(code_load(set.object, &code));
    HLO_EACH_INSTR(i, m->entry) {
        struct literal *in[64], *v;
        if (i->op == HLO_PARAMETER) {
            pmap_put_ptr(&values, i, random_literal(&a, i->shape));
            continue;
        }
        for (int o = 0; o < i->n_operands; o++)
            in[o] = pmap_get_ptr(&values, i->operands[o]);
        v = reference(&a, i, in);
        pmap_put_ptr(&values, i, v);
        const char *why;
        const struct kernel_info *k = NULL;
        for (int n = 0; n < set.n; n++)
            if (strcmp(set.k[n].instr, i->name) == 0) k = &set.k[n];
        if (!k && host.policy && codegen_supports(i, &why)) {
            struct kir_fn *fn;
            status_t st = lower_kernel(&a, i, &host, PRECISION_DEFAULT, &fn, &why);
            assert_int_equal(st_code(st), ST_UNIMPLEMENTED);
            assert_non_null(why);
            st_drop(st);
            refused++;
            continue;
        }
        assert_int_equal(codegen_supports(i, &why), k != NULL);
        if (!k && i->op != HLO_CONSTANT && i->op != HLO_TUPLE && i->op != HLO_GET_TUPLE_ELEMENT) {
            print_error("%s: no kernel: %s\n", i->name, why);
            fail();
        }
        if (!k) continue;
        // What the generator can make but LLVM makes faster (x86_choose.c) is left to it.
        bool left = k->why_llvm && strcmp(k->why_llvm, "elements that do not lie side by side");
        if (no_llvm && left) print_error("%s: %s\n", i->name, k->why_llvm);
        assert_false(no_llvm && left);
        run_instr(i, k, code, in, v);
        made++;
    }
    assert_true(made > 0 || host.policy);
    pmap_done(&values);
    code_free(code);
    arena_done(&a);
    hlo_module_free(m);
}

static void cases(void **s) {
    (void)s;
    for (size_t i = 0; i < sizeof kernel_cases / sizeof kernel_cases[0]; i++)
        check_module(kernel_cases[i]);
}
// The same compiled with less and with little effort (codegen/backend.h).
static void efforts(void **s) {
    host.less_work = INT64_MAX;
    cases(s);
    host.little_work = INT64_MAX;
    cases(s);
    host.little_work = host.less_work = 0;
}
// The same for targets that lack something: what they refuse is named, all else is right. As many
// as there are may only become fewer.
static void policies(void **s) {
    static const struct {
        struct kernel_policy p;
        int refused;
    } all[] = {{{.units = 1,
                 .has_f64 = 1,
                 .has_s64 = 1,
                 .has_libm = 1,
                 .has_scratch = 1,
                 .tiles = TILES_OF_WASM},
                0},
               {{.units = 100000,
                 .has_f64 = 1,
                 .has_s64 = 1,
                 .has_fma = 1,
                 .has_libm = 1,
                 .has_scratch = 1},
                0},
               {{.elements = true, .has_f64 = 1, .has_s64 = 1, .has_libm = 1, .has_scratch = 1}, 0},
               {{.elements = true, .max_buffers = 8, .max_results = 4}, 66},
               {{.units = 16384,
                 .elements = true,
                 .rows = true,
                 .max_buffers = 44,
                 .has_f64 = 1,
                 .has_s64 = 1,
                 .has_fma = 1,
                 .has_scratch = 1},
                0}};
    host.little_work = INT64_MAX;
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        host.policy = &all[k].p;
        refused = 0;
        cases(s);
        print_message("policy %zu: %d kernels refused\n", k, refused);
        assert_true(refused <= all[k].refused);
    }
    host.policy = NULL;
    host.little_work = 0;
}
// Infinite weights, beside padding and without: no product where the window hangs over the edge.
static void spoilt(void **s) {
    (void)s;
    static const char *const windows[] = {"size=3x3 pad=1_1x1_1", "size=3x3 stride=2x2 pad=1_1x1_1",
                                          "size=3x3", "size=3x3 lhs_dilate=2x2 pad=2_1x2_1"};
    static const int sizes[] = {12, 6, 10, 24};
    static const struct kernel_policy web = {.units = 1,
                                             .has_f64 = true,
                                             .has_s64 = true,
                                             .has_libm = true,
                                             .has_scratch = true,
                                             .tiles = TILES_OF_WASM};
    for (int k = 0; k < 8; k++) {
        char text[600];
        int n = sizes[k / 2];
        snprintf(text, sizeof text,
                 "HloModule m\nENTRY e {\n x = f32[1,16,12,12] parameter(0)\n w = f32[8,16,3,3] "
                 "parameter(1)\n ROOT y = f32[1,8,%d,%d] convolution(x, w), window={%s}, "
                 "dim_labels=bf01_oi01->bf01\n}\n",
                 n, n, windows[k / 2]);
        wild = true;
        host.policy = k % 2 ? &web : NULL;
        check_module(text);
        wild = false;
        host.policy = NULL;
    }
}
static void work(void **s) {
    (void)s;
    struct arena a = {0};
    struct hlo_module *m;
    struct kir_fn *fn;
    const char *why;
    must(hlo_parse(STR("HloModule m\nENTRY e {\n x = f32[512,4096] parameter(0)\n ROOT y = "
                       "f32[512,4096] negate(x)\n}\n"),
                   NULL, &m));
    must(lower_kernel(&a, m->entry->root, NULL, PRECISION_DEFAULT, &fn, &why));
    int64_t n = 512 * 4096;
    assert_in_range(kir_work(fn), 3 * n, 10 * n); // load, negate, store, some index arithmetic
    arena_done(&a);
    hlo_module_free(m);
}
// Every elementwise operation on every type it is defined for.
static void elementwise(void **s) {
    (void)s;
    enum { FLOATS = 9, INTS = 12, TYPES = FLOATS + INTS };
    static const char *const fl[FLOATS] = {
        "f32", "f64", "f16", "bf16", "f8e4m3fn", "f8e5m2fnuz", "f8e3m4", "f4e2m1fn", "f8e8m0fnu"};
    static const char *const in[INTS] = {"s8",  "s16", "s32", "s64", "u8", "u16",
                                         "u32", "u64", "s4",  "u4",  "s2", "u2"};
    static const char *const f1[] = {"abs",
                                     "cbrt",
                                     "ceil",
                                     "cosine",
                                     "erf",
                                     "exponential",
                                     "exponential-minus-one",
                                     "floor",
                                     "log",
                                     "log-plus-one",
                                     "logistic",
                                     "negate",
                                     "round-nearest-afz",
                                     "round-nearest-even",
                                     "rsqrt",
                                     "sign",
                                     "sine",
                                     "sqrt",
                                     "tan",
                                     "tanh"};
    static const char *const f2[] = {"add",      "atan2", "divide",    "maximum", "minimum",
                                     "multiply", "power", "remainder", "subtract"};
    static const char *const i1[] = {"abs", "negate", "not", "popcnt", "count-leading-zeros",
                                     "sign"};
    static const char *const i2[] = {"add",
                                     "and",
                                     "divide",
                                     "maximum",
                                     "minimum",
                                     "multiply",
                                     "or",
                                     "power",
                                     "remainder",
                                     "shift-left",
                                     "shift-right-arithmetic",
                                     "shift-right-logical",
                                     "subtract",
                                     "xor"};
    for (int t = 0; t < TYPES; t++) {
        const char *ty = t < FLOATS ? fl[t] : in[t - FLOATS];
        struct strbuf b = {0};
        strbuf_printf(
            &b, "HloModule m\nENTRY e {\n x = %s[3,37] parameter(0)\n y = %s[3,37] parameter(1)\n",
            ty, ty);
        const char *const *un = t < FLOATS ? f1 : i1, *const *bin = t < FLOATS ? f2 : i2;
        size_t nu = t < FLOATS ? 20 : 6, nb = t < FLOATS ? 9 : 14;
        for (size_t k = 0; k < nu; k++)
            strbuf_printf(&b, " u%zu = %s[3,37] %s(x)\n", k, ty, un[k]);
        for (size_t k = 0; k < nb; k++)
            strbuf_printf(&b, " b%zu = %s[3,37] %s(x, y)\n", k, ty, bin[k]);
        for (int k = 0; k < TYPES; k++)
            strbuf_printf(&b, " c%d = %s[3,37] convert(x)\n", k,
                          k < FLOATS ? fl[k] : in[k - FLOATS]);
        strbuf_puts(&b, " cp = pred[3,37] compare(x, y), direction=LT\n cq = pred[3,37] compare(x, "
                        "x), direction=NE\n");
        strbuf_printf(&b, " ROOT s = %s[3,37] select(cp, x, y)\n}\n", ty);
        check_module(strbuf_cstr(&b));
        strbuf_done(&b);
    }
}
static void damaged(void **s) {
    (void)s;
    struct hlo_module *m;
    struct arena a = {0};
    struct kernel_set set;
    struct code *code;
    must(hlo_parse(STR("HloModule m\nENTRY e {\n x = f32[8] parameter(0)\n ROOT y = f32[8] "
                       "exponential(x)\n}\n"),
                   NULL, &m));
    must(codegen_module(&a, m, &host, PRECISION_DEFAULT, NULL, NULL, &set));
    for (size_t n = 0; n < set.object.n; n += 1 + set.object.n / 40) {
        status_t st = code_load((struct span){set.object.p, n}, &code);
        assert_non_null(st);
        st_drop(st);
    }
    arena_done(&a);
    hlo_module_free(m);
}
// More buffers than come as arguments of their own.
static void many_buffers(void) {
    struct strbuf b = {0};
    strbuf_puts(&b, "HloModule m\nENTRY e {\n");
    for (int k = 0; k < 12; k++)
        strbuf_printf(&b, " p%d = f32[3,%d] parameter(%d)\n", k, k + 1, k);
    strbuf_puts(&b, " ROOT c = f32[3,78] concatenate(p0");
    for (int k = 1; k < 12; k++)
        strbuf_printf(&b, ", p%d", k);
    strbuf_puts(&b, "), dimensions={1}\n}\n");
    check_module(strbuf_cstr(&b));
    strbuf_done(&b);
}

// A kernel's object depends on the kernel alone: a module that brings it again gets the same bytes,
// from the cache or not, whatever its neighbours are; and more buffers than are arguments.
static void shared(void **s) {
    (void)s;
    enum { N = 2 };
    static const char *const texts[N] = {
        "HloModule m\nENTRY e {\n x = f32[64,9] parameter(0)\n ROOT y = f32[64,9] sine(x)\n}\n",
        "HloModule other\nENTRY f {\n w = f32[64,9] parameter(0)\n a = f32[64,9] cosine(w)\n "
        "b = f32[64,9] sine(w)\n ROOT t = (f32[64,9], f32[64,9]) tuple(a, b)\n}\n"};
    struct arena a = {0};
    struct hlo_module *m[N];
    struct kernel_set set[N];
    for (int k = 0; k < N; k++) {
        must(hlo_parse(str_of(texts[k]), NULL, &m[k]));
        must(codegen_module(&a, m[k], &host, PRECISION_DEFAULT, NULL, NULL, &set[k]));
    }
    assert_int_equal(set[0].n, 1);
    assert_int_equal(set[1].n, 2);
    assert_string_equal(set[0].k[0].symbol, set[1].k[1].symbol);
    assert_string_not_equal(set[1].k[0].symbol, set[1].k[1].symbol);
    size_t n = set[0].object.n - 8; // after "HKOB" and the count: length and bytes
    assert_non_null(memmem(set[1].object.p, set[1].object.n, set[0].object.p + 8, n));
    for (int k = 0; k < N; k++)
        hlo_module_free(m[k]);
    arena_done(&a);
    many_buffers();
}

// Elements that do not lie side by side, of each size, in vectors with and without a last turn that
// is not full; n: enough work that the direct generator would leave a slow kernel to LLVM.
static void apart(int n) {
    static const char *const types[] = {"u8",  "s8",   "s4",  "pred", "u16", "s16",
                                        "f16", "bf16", "f32", "s32",  "f64", "s64"};
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
        const char *t = types[k];
        struct strbuf b = {0};
        strbuf_puts(&b, "HloModule m\nENTRY e {\n");
        for (int c = 2; c <= 9; c++) {
            strbuf_printf(&b, " x%d = %s[%d,%d] parameter(%d)\n", c, t, c, n, c - 2);
            strbuf_printf(&b, " t%d = %s[%d,%d] transpose(x%d), dimensions={1,0}\n", c, t, n, c, c);
            strbuf_printf(&b, " u%d = %s[%d,%d] transpose(t%d), dimensions={1,0}\n", c, t, c, n, c);
            strbuf_printf(&b, " s%d = %s[%d,%d] slice(x%d), slice={[0:%d:1], [1:%d:%d]}\n", c, t, c,
                          (n - 2 + c) / c, c, c, n, c);
            strbuf_printf(&b, " r%d = %s[%d,%d] reverse(x%d), dimensions={1}\n", c, t, c, n, c);
        }
        strbuf_printf(&b, " i = s32[7,%d] parameter(8)\n ROOT g = %s[2,7,%d] gather(x2, i), ", n, t,
                      n);
        strbuf_puts(&b, "offset_dims={0}, collapsed_slice_dims={1}, start_index_map={1}, "
                        "index_vector_dim=2, slice_sizes={2,1}\n}\n");
        check_module(strbuf_cstr(&b));
        strbuf_done(&b);
    }
}

// By the generator without LLVM, where it takes them (x86_direct.h).
static void direct_by(void **s, int vector_bits) {
    int was = host.vector_bits;
    host.direct = true;
    host.vector_bits = vector_bits;
    cases(s);
    elementwise(s);
    many_buffers();
    no_llvm = true;
    for (int n = 15; n < 20; n++)
        apart(n);
    apart(36);
    apart(3001);
    no_llvm = false;
    host.direct = false;
    host.vector_bits = was;
}
// Who makes a kernel: LLVM where its code repays the milliseconds that it takes.
static void who_makes_it(void **s) {
    (void)s;
    static const struct {
        const char *text;
        bool llvm, llvm_once;
    } rows[] = {
        // A quantised result: lanes of 32 bits whoever makes it.
        {"HloModule m\nf { x = f32[64,65536] parameter(0)\n c = f32[] constant(7.5)\n"
         " d = f32[64,65536] broadcast(c), dimensions={}\n"
         " y = f32[64,65536] multiply(x, d)\n z = f32[64,65536] round-nearest-even(y)\n"
         " ROOT q = s8[64,65536] convert(z)\n}\nENTRY e {\n x = f32[64,65536] parameter(0)\n"
         " ROOT r = s8[64,65536] fusion(x), kind=kLoop, calls=f\n}\n",
         false, false},
        // More lanes of 8 bits.
        {"HloModule m\nENTRY e {\n x = u8[64,65536] parameter(0)\n y = u8[64,65536] parameter(1)\n"
         " ROOT r = u8[64,65536] maximum(x, y)\n}\n",
         true, false},
    };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++)
        for (int once = 0; once < 2; once++) {
            struct target t = host;
            struct hlo_module *m;
            struct arena a = {0};
            struct kernel_set set;
            t.direct = true;
            t.runs_once = once;
            must(hlo_parse(str_of(rows[k].text), NULL, &m));
            must(codegen_module(&a, m, &t, PRECISION_DEFAULT, NULL, NULL, &set));
            assert_int_equal(set.n, 1);
            assert_int_equal(set.k[0].why_llvm != NULL, once ? rows[k].llvm_once : rows[k].llvm);
            arena_done(&a);
            hlo_module_free(m);
        }
}
static void direct_avx512(void **s) {
    if (!__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) skip();
    direct_by(s, 512);
}
static void direct_avx2(void **s) {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c")) skip();
    direct_by(s, 256);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise),   cmocka_unit_test(cases),
        cmocka_unit_test(damaged),       cmocka_unit_test(shared),
        cmocka_unit_test(efforts),       cmocka_unit_test(work),
        cmocka_unit_test(policies),      cmocka_unit_test(spoilt),
        cmocka_unit_test(direct_avx512), cmocka_unit_test(direct_avx2),
        cmocka_unit_test(who_makes_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
