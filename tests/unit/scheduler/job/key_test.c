// SPDX-License-Identifier: Apache-2.0
// Keys: every component changes the key and is the one explain names; options are canonical;
// symbols bind.
#include "scheduler/job/key.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

static struct arena a;

static void components(void **state) {
    (void)state;
    const struct key_parts base = {
        .bindings = "N=1", .options = "", .target_id = "t", .build_id = "b", .kernel_abi = 1};
    struct key_parts v[7] = {base, base, base, base, base, base, base};
    v[1].program.b[31] = 1;
    v[2].bindings = "N=2";
    v[3].options = "precision=strict";
    v[4].target_id = "u";
    v[5].kernel_abi = 2;
    v[6].build_id = "c";
    const char *names[] = {NULL, "program", "bindings", "options", "target", "abi", "build"};
    for (int i = 0; i < 7; i++) {
        const char *x, *y, *name = key_explain(&a, &base, &v[i], &x, &y);
        if (names[i])
            assert_string_equal(name, names[i]);
        else
            assert_null(name);
        for (int k = 0; k < 7; k++)
            assert_int_equal(digest_eq(key_of(&v[i]), key_of(&v[k])), i == k);
    }
    // Fields must not run together.
    struct key_parts p = base, q = base;
    p.bindings = "N=1t";
    p.target_id = "";
    q.bindings = "N=1";
    q.target_id = "t";
    assert_false(digest_eq(key_of(&p), key_of(&q)));
}

static void options(void **state) {
    (void)state;
    Hlod__V1__CompileOptions o = HLOD__V1__COMPILE_OPTIONS__INIT;
    const char *text;
    assert_null(key_options(&a, NULL, &text));
    assert_string_equal(text, "");
    char *passes[] = {(char *)"fuse", (char *)"cse", (char *)"fuse"};
    o.disable_passes = passes;
    o.n_disable_passes = 3;
    o.precision = (char *)"strict";
    o.verify_each = 1;
    assert_null(key_options(&a, &o, &text));
    assert_string_equal(text, "disable_passes=cse,fuse;precision=strict;verify_each=1");
    o.precision = (char *)"default";
    o.n_disable_passes = 0;
    o.verify_each = 0;
    assert_null(key_options(&a, &o, &text));
    assert_string_equal(text, "");
    o.precision = (char *)"fast";
    assert_null(key_options(&a, &o, &text));
    assert_string_equal(text, "precision=fast");
    o.precision = (char *)"faster";
    status_t st = key_options(&a, &o, &text);
    assert_int_equal(st_get_reason(st), HLOD__V1__REASON__REASON_BAD_OPTION);
    st_drop(st);
    o.precision = (char *)"";
    passes[0] = (char *)"a;b";
    o.n_disable_passes = 1;
    st = key_options(&a, &o, &text);
    assert_int_equal(st_get_reason(st), HLOD__V1__REASON__REASON_BAD_OPTION);
    st_drop(st);
}

static Hlod__V1__TensorSpec *spec(const char *name, int64_t d0, const char *s0, int64_t d1,
                                  const char *s1) {
    Hlod__V1__TensorSpec *t = arena_new_of(&a, Hlod__V1__TensorSpec);
    hlod__v1__tensor_spec__init(t);
    t->name = (char *)name;
    t->dims = arena_array(&a, Hlod__V1__Dim *, 2);
    t->n_dims = 2;
    for (int i = 0; i < 2; i++) {
        t->dims[i] = arena_new_of(&a, Hlod__V1__Dim);
        hlod__v1__dim__init(t->dims[i]);
        t->dims[i]->size = i ? d1 : d0;
        t->dims[i]->symbol = (char *)(i ? s1 : s0);
    }
    return t;
}

static unsigned how;
static void expect(const Hlod__V1__Signature *sig, const struct key_shape *s, size_t n, int reason,
                   const char *words) {
    Hlod__Wire__Binding **b;
    size_t n_b;
    status_t st = key_bind(&a, sig, s, n, how, &b, &n_b);
    if (!reason) {
        if (st) fail_msg("%s", st_message(st));
        assert_string_equal(key_bindings_text(&a, b, n_b), words);
        return;
    }
    assert_int_equal(st_get_reason(st), reason);
    if (!strstr(st_message(st), words)) fail_msg("'%s' lacks '%s'", st_message(st), words);
    st_drop(st);
}

static void bind(void **state) {
    (void)state;
    Hlod__V1__Signature sig = HLOD__V1__SIGNATURE__INIT;
    Hlod__V1__TensorSpec *in[] = {spec("x", -1, "T", 4, ""), spec("y", -1, "N", -1, "T")};
    sig.inputs = in;
    sig.n_inputs = 2;
    const int64_t x[] = {3, 4}, y[] = {2, 3}, y_bad[] = {2, 5}, x_bad[] = {3, 5},
                  x_open[] = {-1, 4};
    const struct key_shape good[] = {{"y", 2, y, NULL, 0}, {"x", 2, x, NULL, 0}};
    expect(&sig, good, 2, 0, "N=2;T=3");
    expect(&sig, good, 1, 0, "N=2;T=3");     // x needs nothing more
    expect(&sig, good + 1, 1, 0, "N=1;T=3"); // a leading dimension is 1 where nothing says it
    expect(&sig, NULL, 0, 0, "N=1;T=1");
    how = KEY_COMPLETE;
    expect(&sig, good + 1, 1, HLOD__V1__REASON__REASON_UNBOUND_DIM, "'y', dimension 0 ('N')");
    how = 0;
    const struct key_shape conflict[] = {{"x", 2, x, NULL, 0}, {"y", 2, y_bad, NULL, 0}};
    expect(&sig, conflict, 2, HLOD__V1__REASON__REASON_SHAPE_MISMATCH,
           "'y', dimension 1 ('T'): expected 3, as elsewhere in the request, found 5");
    const struct key_shape fixed[] = {{"x", 2, x_bad, NULL, 0}}, rank[] = {{"x", 1, x, NULL, 0}},
                           name[] = {{"z", 2, x, NULL, 0}}, open[] = {{"x", 2, x_open, NULL, 0}};
    expect(&sig, fixed, 1, HLOD__V1__REASON__REASON_SHAPE_MISMATCH, "expected 4, found 5");
    expect(&sig, rank, 1, HLOD__V1__REASON__REASON_SHAPE_MISMATCH, "expected rank 2, found 1");
    expect(&sig, name, 1, HLOD__V1__REASON__REASON_UNKNOWN_INPUT, "'z'");
    expect(&sig, open, 1, HLOD__V1__REASON__REASON_UNBOUND_DIM, "needs a size");
}

// Elements of an input that decides shapes are bound one by one, by the input's position.
static void values(void **state) {
    (void)state;
    Hlod__V1__Signature sig = HLOD__V1__SIGNATURE__INIT;
    Hlod__V1__TensorSpec *in[] = {spec("x", -1, "T", 4, ""), spec("axes", -1, "N", 1, "")};
    sig.inputs = in;
    sig.n_inputs = 2;
    in[1]->by_value = 1;
    const int64_t x[] = {3, 4}, two[] = {2, 1}, none[] = {0, 1}, v[] = {-1, 7};
    const struct key_shape good[] = {{"x", 2, x, NULL, 0}, {"axes", 2, two, v, 2}};
    expect(&sig, good, 2, 0, "=1[000]=-1;=1[001]=7;N=2;T=3");
    const struct key_shape empty[] = {{"x", 2, x, NULL, 0}, {"axes", 2, none, NULL, 0}};
    expect(&sig, empty, 2, 0, "N=0;T=3");
    const struct key_shape missing[] = {{"x", 2, x, NULL, 0}, {"axes", 2, two, NULL, 0}};
    expect(&sig, missing, 2, HLOD__V1__REASON__REASON_UNBOUND_VALUE, "'axes'");
    expect(&sig, missing, 1, HLOD__V1__REASON__REASON_UNBOUND_VALUE, "'axes'");
    const int64_t many[] = {300, 1};
    const struct key_shape wide[] = {{"x", 2, x, NULL, 0}, {"axes", 2, many, v, 300}};
    expect(&sig, wide, 2, HLOD__V1__REASON__REASON_SHAPE_MISMATCH, "at most 256");
}

// Sequences and optionals: how many tensors, and the shape of each.
static void loose(void **state) {
    (void)state;
    Hlod__V1__Signature sig = HLOD__V1__SIGNATURE__INIT;
    Hlod__V1__TensorSpec *in[] = {spec("s", 0, "", 0, ""), spec("x", -1, "T", 4, ""),
                                  spec("o", 0, "", 0, "")};
    sig.inputs = in;
    sig.n_inputs = 3;
    in[0]->sequence = in[2]->optional = 1;
    in[0]->n_dims = in[2]->n_dims = 0;
    const int64_t x[] = {3, 4}, e[] = {5};
    const struct key_shape two[] = {
        {"x", 2, x, NULL, 0}, {"s[1]", 0, e, NULL, 0}, {"s[0]", 1, e, NULL, 0}};
    how = KEY_COMPLETE;
    expect(&sig, two, 3, 0, "#0=2;#0[0000]=1;#0[0000].0=5;#0[0001]=0;#2=0;T=3");
    expect(&sig, two, 1, 0, "#0=0;#2=0;T=3");
    expect(&sig, two, 2, HLOD__V1__REASON__REASON_UNKNOWN_INPUT, "without gaps");
    const struct key_shape whole[] = {{"x", 2, x, NULL, 0}, {"s", 1, e, NULL, 0}};
    expect(&sig, whole, 2, HLOD__V1__REASON__REASON_UNKNOWN_INPUT, "is a sequence");
    how = 0;
    expect(&sig, two, 1, HLOD__V1__REASON__REASON_UNBOUND_DIM, "'s[0]'");
}

// What a compile takes for sizes that the request leaves open, what it says of them, and what it
// cannot know.
static void usual(void **state) {
    (void)state;
    Hlod__V1__Signature sig = HLOD__V1__SIGNATURE__INIT;
    Hlod__V1__TensorSpec *in[] = {spec("x", -1, "N", -1, "T"), spec("y", 3, "", -1, "H"),
                                  spec("z", -1, "N", 7, "")};
    sig.inputs = in;
    sig.n_inputs = 3;
    const int64_t x[] = {2, 5}, y[] = {3, 6};
    const struct key_shape some[] = {{"x", 2, x, NULL, 0}};
    expect(&sig, NULL, 0, HLOD__V1__REASON__REASON_UNBOUND_DIM,
           "2 symbolic dimensions without a size:\n  input 'x', dimension 1 ('T')\n"
           "  input 'y', dimension 1 ('H')\n"
           "  for example: hlo compile MODEL --shape x=1x128 --shape y=3x128\n"
           "  or by HTTP: POST /v1/executables?shape=x=1x128&shape=y=3x128");
    expect(&sig, some, 1, HLOD__V1__REASON__REASON_UNBOUND_DIM,
           "1 symbolic dimension without a size:\n  input 'y', dimension 1 ('H')\n"
           "  for example: hlo compile MODEL --shape y=3x128\n");
    in[0]->dims[1]->usual = 64;
    in[1]->dims[1]->usual = 9;
    expect(&sig, NULL, 0, 0, "H=9;N=1;T=64");
    expect(&sig, some, 1, 0, "H=9;N=2;T=5");
    const struct key_shape both[] = {some[0], {"y", 2, y, NULL, 0}};
    Hlod__Wire__Binding **b;
    Hlod__V1__ShapeBinding **assumed;
    size_t n_b, n;
    assert_null(key_bind(&a, &sig, both, 1, 0, &b, &n_b));
    key_assumed(&a, &sig, both, 1, b, n_b, &assumed, &n);
    assert_int_equal(n, 1); // z has its size from x
    assert_string_equal(assumed[0]->input, "y");
    assert_int_equal(assumed[0]->dims[0], 3);
    assert_int_equal(assumed[0]->dims[1], 9);
    assert_null(key_bind(&a, &sig, both, 2, 0, &b, &n_b));
    key_assumed(&a, &sig, both, 2, b, n_b, &assumed, &n);
    assert_int_equal(n, 0);
}

// Dimensions that are expressions: they follow from symbols, and symbols from them.
static void expressions(void **state) {
    (void)state;
    Hlod__V1__Signature sig = HLOD__V1__SIGNATURE__INIT;
    Hlod__V1__TensorSpec *in[] = {spec("x", -1, "2*b", -1, "c"), spec("y", -1, "b+c", -1, "b"),
                                  spec("z", -1, "floordiv(b,2)", -1, "b*c-1")};
    sig.inputs = in;
    sig.n_inputs = 3;
    for (int k = 0; k < 3; k++)
        in[k]->dims[0]->expression = strlen(in[k]->dims[0]->symbol) > 1;
    in[2]->dims[1]->expression = true;
    const int64_t x[] = {6, 5}, odd[] = {7, 5}, y[] = {8, 3}, wrong[] = {9, 3}, z[] = {1, 14},
                  none[] = {0, 5}, large[] = {INT64_MAX - 1, 5}, bad[] = {2, 14};
    const struct key_shape all[] = {
        {"x", 2, x, NULL, 0}, {"y", 2, y, NULL, 0}, {"z", 2, z, NULL, 0}};
    const struct key_shape others[] = {all[1], {"z", 2, bad, NULL, 0}};
    const char *bound = "2*b=6;b=3;b*c-1=14;b+c=8;c=5;floordiv(b,2)=1";
    expect(&sig, all, 1, 0, bound);     // b from 2*b
    expect(&sig, all + 1, 1, 0, bound); // c from b+c, b being known
    expect(&sig, all, 3, 0, bound);
    expect(&sig, &(struct key_shape){"x", 2, odd, NULL, 0}, 1,
           HLOD__V1__REASON__REASON_SHAPE_MISMATCH,
           "input 'x', dimension 0 ('2*b'): no size 'b' gives 7");
    expect(&sig, &(struct key_shape){"y", 2, (const int64_t[]){2, 3}, NULL, 0}, 1,
           HLOD__V1__REASON__REASON_SHAPE_MISMATCH,
           "input 'y', dimension 0 ('b+c'): no size 'c' gives 2");
    expect(&sig, (const struct key_shape[]){all[0], {"y", 2, wrong, NULL, 0}}, 2,
           HLOD__V1__REASON__REASON_SHAPE_MISMATCH,
           "input 'y', dimension 0 ('b+c'): expected 8, found 9");
    expect(&sig, others, 2, HLOD__V1__REASON__REASON_SHAPE_MISMATCH,
           "input 'z', dimension 0 ('floordiv(b,2)'): expected 1, found 2");
    expect(&sig, &(struct key_shape){"x", 2, none, NULL, 0}, 1,
           HLOD__V1__REASON__REASON_SHAPE_MISMATCH,
           "input 'z', dimension 1 ('b*c-1'): its size would be -1");
    expect(&sig, &(struct key_shape){"x", 2, large, NULL, 0}, 1,
           HLOD__V1__REASON__REASON_SHAPE_MISMATCH,
           "input 'z', dimension 1 ('b*c-1'): byte 3: a value is beyond 64 bits");
    expect(&sig, NULL, 0, HLOD__V1__REASON__REASON_UNBOUND_DIM,
           "6 symbolic dimensions without a size:");
    in[0]->dims[0]->usual = 2; // leading: taken where its symbols are open
    in[2]->dims[1]->usual = 9; // not leading
    expect(&sig, &(struct key_shape){"y", 2, y, NULL, 0}, 1, 0, bound);
    expect(&sig, NULL, 0, HLOD__V1__REASON__REASON_UNBOUND_DIM, "input 'x', dimension 1 ('c')");
}

// Where symbols are but names, a size that differs is bound for its own input and dimension, and
// the bindings are the same in whatever order the request has its inputs.
static void own_sizes(void **state) {
    (void)state;
    Hlod__V1__Signature sig = HLOD__V1__SIGNATURE__INIT;
    Hlod__V1__TensorSpec *in[] = {spec("x", -1, "N", -1, "T"), spec("y", -1, "N", -1, "T"),
                                  spec("z", -1, "N", -1, "T")};
    sig.inputs = in;
    sig.n_inputs = 2;
    sig.defaults = in + 2;
    sig.n_defaults = 1;
    const int64_t x[] = {2, 3}, y[] = {2, 5}, rows[] = {4, 3}, z[] = {6, 3};
    const struct key_shape there[] = {{"x", 2, x, NULL, 0}, {"y", 2, y, NULL, 0}},
                           back[] = {{"y", 2, y, NULL, 0}, {"x", 2, x, NULL, 0}},
                           rows_too[] = {{"x", 2, x, NULL, 0}, {"y", 2, rows, NULL, 0}},
                           value[] = {{"x", 2, x, NULL, 0},
                                      {"y", 2, x, NULL, 0},
                                      {"z", 2, z, NULL, 0}},
                           twice[] = {
                               {"x", 2, x, NULL, 0}, {"x", 2, y, NULL, 0}, {"x", 2, z, NULL, 0}};
    how = KEY_COMPLETE | KEY_OWN_SIZES;
    expect(&sig, there, 2, 0, "*1.1=5;N=2;T=3");
    expect(&sig, back, 2, 0, "*1.1=5;N=2;T=3");
    expect(&sig, rows_too, 2, 0, "*1.0=4;N=2;T=3");
    expect(&sig, value, 3, 0, "*2.0=6;N=2;T=3;~0=1");
    expect(&sig, twice, 3, HLOD__V1__REASON__REASON_SHAPE_MISMATCH, "'x', dimension 1 ('T')");
    how |= KEY_ROWS_AGREE;
    expect(&sig, there, 2, 0, "*1.1=5;N=2;T=3");
    expect(&sig, rows_too, 2, HLOD__V1__REASON__REASON_SHAPE_MISMATCH,
           "'y', dimension 0 ('N'): expected 2, as elsewhere in the request, found 4");
    how = KEY_OWN_SIZES;
    sig.n_inputs = 3;
    sig.n_defaults = 0;
    expect(&sig, there, 2, 0, "*1.1=5;N=2;T=3"); // z has the sizes that the names have
    how = 0;
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(own_sizes), cmocka_unit_test(expressions),
                                   cmocka_unit_test(usual),     cmocka_unit_test(components),
                                   cmocka_unit_test(options),   cmocka_unit_test(bind),
                                   cmocka_unit_test(values),    cmocka_unit_test(loose)};
    int bad = cmocka_run_group_tests(t, NULL, NULL);
    arena_done(&a);
    return bad;
}
