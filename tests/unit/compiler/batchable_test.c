// SPDX-License-Identifier: Apache-2.0
// Rows: what is shown to keep them apart, and what is not. Each program that is shown is also run
// by the evaluator, with one row of its inputs changed: no other row of its results may change, and
// the same row in another place must give the same.
#include "compiler/batchable.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "compiler/eval.h"
#include "compiler/ir/text/text.h"

enum { N = 4 };

static struct hlo_module *parse(const char *body) {
    struct hlo_module *m;
    char text[6000];
    snprintf(
        text, sizeof text,
        "HloModule m\n"
        "add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b)\n}\n"
        "lt {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = pred[] compare(a, b), "
        "direction=LT\n}\n"
        "lt2 {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n c = s32[] parameter(2)\n d = "
        "s32[] parameter(3)\n ROOT r = pred[] compare(a, b), direction=LT\n}\n"
        "ENTRY e {\n zero = f32[] constant(0)\n %s}\n",
        body);
    status_t st = hlo_parse(str_of(text), NULL, &m);
    if (st) fail_msg("%s in\n%s", st_message(st), text);
    return m;
}

static struct literal *random_input(struct arena *a, const struct shape *s, uint32_t *rng) {
    struct literal *l = lit_new(a, s);
    for (int64_t k = 0; k < shape_elements(s); k++) {
        *rng = *rng * 1664525 + 1013904223;
        if (dtype_is_int(s->dtype))
            lit_set_i64(l, k, *rng >> 30);
        else
            lit_set_f64(l, k, (double)(*rng >> 16) / 65536 - 0.5);
    }
    return l;
}
static struct literal *eval(struct arena *a, const struct hlo_module *m, struct literal **in,
                            int n) {
    struct literal *out;
    struct hlo_eval ev = hlo_eval_begin(a);
    status_t st = hlo_eval_module(&ev, m, in, n, &out);
    if (st) fail_msg("%s", st_message(st));
    return shape_is_tuple(out->shape) ? out->elems[0] : out;
}
static void *row(const struct literal *l, int r) {
    return (char *)l->data + l->size_bytes / N * (size_t)r;
}

// Rows are rotated by one, and one is changed: the results must follow.
static void hold_apart(struct arena *a, const struct hlo_module *m) {
    int n = (int)m->entry->params.n;
    struct literal *in[4], *turned[4], *changed[4];
    uint32_t rng = 5;
    for (int k = 0; k < n; k++) {
        in[k] = random_input(a, m->entry->params.v[k]->shape, &rng);
        turned[k] = lit_clone(a, in[k]);
        changed[k] = lit_clone(a, in[k]);
        for (int r = 0; r < N; r++)
            memcpy(row(turned[k], (r + 1) % N), row(in[k], r), in[k]->size_bytes / N);
        struct literal *other = random_input(a, in[k]->shape, &rng);
        memcpy(row(changed[k], 2), row(other, 2), in[k]->size_bytes / N);
    }
    struct literal *out = eval(a, m, in, n), *after = eval(a, m, turned, n),
                   *beside = eval(a, m, changed, n);
    for (int r = 0; r < N; r++) {
        assert_memory_equal(row(after, (r + 1) % N), row(out, r), out->size_bytes / N);
        if (r != 2) assert_memory_equal(row(beside, r), row(out, r), out->size_bytes / N);
    }
}

#define X    "x = f32[4,6] parameter(0)\n "
#define Y    "y = f32[4,6] parameter(1)\n "
#define IDS  "x = s32[4,2] parameter(0)\n "
#define ROOT "ROOT r = "
static const char *const apart[] = {
    X Y ROOT "f32[4,6] multiply(x, y)\n",
    X "b = f32[4,6] broadcast(zero), dimensions={}\n " ROOT "f32[4,6] maximum(x, b)\n",
    X "c = f32[6] constant({1,2,3,4,5,6})\n b = f32[4,6] broadcast(c), dimensions={1}\n " ROOT
      "f32[4,6] add(x, b)\n",
    X "s = f32[4] reduce(x, zero), dimensions={1}, to_apply=add\n b = f32[4,6] broadcast(s), "
      "dimensions={0}\n " ROOT "f32[4,6] subtract(x, b)\n",
    X "w = f32[6,3] constant({{1,2,3},{4,5,6},{7,8,9},{1,1,1},{2,2,2},{3,3,3}})\n " ROOT
      "f32[4,3] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n",
    X
    "w = f32[3,6] constant({{1,2,3,4,5,6},{7,8,9,1,1,1},{2,2,2,3,3,3}})\n d = f32[3,4] dot(w, x), "
    "lhs_contracting_dims={1}, rhs_contracting_dims={1}\n " ROOT "f32[4,3] transpose(d), "
    "dimensions={1,0}\n",
    X Y ROOT "f32[4] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, "
             "rhs_contracting_dims={1}\n",
    X
    "t = f32[4,2,3] reshape(x)\n f = f32[8,3] reshape(t)\n c = f32[3,3] constant({{1,2,3},{4,5,6},"
    "{7,8,9}})\n d = f32[8,3] dot(f, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n " ROOT
    "f32[4,6] reshape(d)\n", // rows within a dimension, and back
    X "c = f32[2,3] constant({{1,2,3},{4,5,6}})\n b = f32[4,2,3] broadcast(c), dimensions={1,2}\n "
      "f = "
      "f32[8,3] reshape(b)\n y = f32[8,3] reshape(x)\n s = f32[8,3] add(y, f)\n " ROOT
      "f32[4,6] reshape(s)\n", // what is the same for each row
    X ROOT "f32[4,2] slice(x), slice={[0:4],[1:3]}\n",
    X Y ROOT "f32[4,12] concatenate(x, y), dimensions={1}\n",
    X ROOT "f32[4,9] pad(x, zero), padding=0_0x1_2\n",
    X ROOT "f32[4,6] reverse(x), dimensions={1}\n",
    X ROOT "f32[4,6] sort(x), dimensions={1}, to_apply=lt\n",
    X "i = s32[6] iota(), iota_dimension=0\n b = s32[4,6] broadcast(i), dimensions={1}\n s = "
      "(f32[4,6], s32[4,6]) sort(x, b), dimensions={1}, to_apply=lt2\n " ROOT
      "s32[4,6] get-tuple-element(s), index=1\n",
    X ROOT "f32[4,6] reduce-window(x, zero), window={size=1x3 pad=0_0x1_1}, to_apply=add\n",
    IDS "t = f32[5,3] constant({{1,2,3},{4,5,6},{7,8,9},{1,1,1},{2,2,2}})\n i = s32[4,2,1] "
        "reshape(x)\n " ROOT "f32[4,2,3] gather(t, i), offset_dims={2}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=2, slice_sizes={1,3}\n",
    X "i = s32[2,1] constant({{1},{3}})\n " ROOT
      "f32[4,2] gather(x, i), offset_dims={0}, collapsed_slice_dims={1}, start_index_map={1}, "
      "index_vector_dim=1, slice_sizes={4,1}\n",
    "x = f32[4,1,5,5] parameter(0)\n k = f32[2,1,3,3] "
    "constant({{{{1,2,3},{4,5,6},{7,8,9}}},{{{1,0,1},{0,1,0},{1,1,1}}}})\n " ROOT
    "f32[4,2,3,3] convolution(x, k), window={size=3x3}, dim_labels=bf01_oi01->bf01\n",
    X "o = f32[4,3] constant({{1,2,3},{1,2,3},{1,2,3},{1,2,3}})\n " ROOT
      "f32[4,9] concatenate(x, o), dimensions={1}\n",
    X "c = f32[] constant(7)\n o = f32[4,2] broadcast(c), dimensions={}\n " ROOT
      "(f32[4,6], f32[4,2]) tuple(x, o)\n",
};
static const char *const joined[] = {
    X "s = f32[6] reduce(x, zero), dimensions={0}, to_apply=add\n " ROOT
      "f32[4,6] broadcast(s), dimensions={1}\n",
    X ROOT "f32[4,6] reverse(x), dimensions={0}\n",
    X "t = f32[6,4] transpose(x), dimensions={1,0}\n " ROOT "f32[4,6] reshape(t)\n",
    X ROOT "f32[4,6] sort(x), dimensions={0}, to_apply=lt\n",
    X "c = f32[4] constant({1,2,3,4})\n b = f32[4,6] broadcast(c), dimensions={0}\n " ROOT
      "f32[4,6] add(x, b)\n", // depends on the place
    X "i = f32[4,6] iota(), iota_dimension=0\n " ROOT "f32[4,6] add(x, i)\n",
    X Y ROOT "f32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n",
    X "w = f32[4,4] constant({{1,2,3,4},{1,2,3,4},{4,3,2,1},{1,1,1,1}})\n " ROOT
      "f32[4,6] dot(w, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n",
    X "w = f32[4,6] constant({{1,2,3,4,5,6},{1,2,3,4,5,7},{4,3,2,1,0,0},{1,1,1,1,1,1}})\n " ROOT
      "f32[4] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, "
      "rhs_contracting_dims={1}\n",
    X "a = f32[2,6] slice(x), slice={[0:2],[0:6]}\n b = f32[2,6] slice(x), "
      "slice={[2:4],[0:6]}\n " ROOT "f32[4,6] concatenate(b, a), dimensions={0}\n",
    X ROOT "f32[4,6] reduce-window(x, zero), window={size=3x1 pad=1_1x0_0}, to_apply=add\n",
    X ROOT "f32[6,4] transpose(x), dimensions={1,0}\n",
    X "f = f32[24] reshape(x)\n t = f32[6,4] reshape(f)\n u = f32[4,6] transpose(t), "
      "dimensions={1,0}\n " ROOT "f32[4,6] add(x, u)\n",
    IDS "t = f32[4,2] convert(x)\n i = s32[4,2,1] reshape(x)\n " ROOT
        "f32[4,2,2] gather(t, i), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=2, slice_sizes={1,2}\n", // a row reads another
};

static void shown(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof apart / sizeof *apart; k++) {
        struct arena a = {0};
        struct hlo_module *m = parse(apart[k]);
        struct batchable r = batchable_check(&a, m);
        if (!r.independent) fail_msg("%s\n%s", r.why, apart[k]);
        hold_apart(&a, m);
        hlo_module_free(m);
        arena_done(&a);
    }
}

static void not_shown(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof joined / sizeof *joined; k++) {
        struct arena a = {0};
        struct hlo_module *m = parse(joined[k]);
        struct batchable r = batchable_check(&a, m);
        if (r.independent) fail_msg("shown, but rows meet:\n%s", joined[k]);
        assert_true(strlen(r.why) > 10);
        hlo_module_free(m);
        arena_done(&a);
    }
}

// A value that is used twice, sixty times over, is not looked at 2^60 times.
static void short_of_breath(void **state) {
    (void)state;
    char text[4000];
    int n = snprintf(text, sizeof text, X "i0 = f32[4,6] iota(), iota_dimension=1\n ");
    for (int k = 1; k <= 60; k++)
        n += snprintf(text + n, sizeof text - (size_t)n, "i%d = f32[4,6] add(i%d, i%d)\n ", k,
                      k - 1, k - 1);
    snprintf(text + n, sizeof text - (size_t)n, ROOT "f32[4,6] add(x, i60)\n");
    struct arena a = {0};
    struct hlo_module *m = parse(text);
    assert_false(batchable_check(&a, m).independent); // not known to be
    hlo_module_free(m);
    arena_done(&a);
}

// The number of rows as a value shows as another constant.
static void constants(void **state) {
    (void)state;
    struct digest d[3];
    const char *text[] = {
        X "c = f32[] constant(4)\n b = f32[4,6] broadcast(c), dimensions={}\n " ROOT
          "f32[4,6] divide(x, b)\n",
        "x = f32[8,6] parameter(0)\n c = f32[] constant(8)\n b = f32[8,6] broadcast(c), "
        "dimensions={}\n " ROOT "f32[8,6] divide(x, b)\n",
        "x = f32[8,6] parameter(0)\n c = f32[] constant(4)\n b = f32[8,6] broadcast(c), "
        "dimensions={}\n " ROOT "f32[8,6] divide(x, b)\n"};
    for (int k = 0; k < 3; k++) {
        struct arena a = {0};
        struct hlo_module *m = parse(text[k]);
        struct batchable r = batchable_check(&a, m);
        assert_true(r.independent);
        d[k] = r.constants;
        hlo_module_free(m);
        arena_done(&a);
    }
    assert_false(digest_eq(d[0], d[1]));
    assert_true(digest_eq(d[0], d[2]));
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(shown), cmocka_unit_test(not_shown),
                                   cmocka_unit_test(short_of_breath), cmocka_unit_test(constants)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
