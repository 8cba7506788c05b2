// SPDX-License-Identifier: Apache-2.0
// Attribute records, over every opcode: what a record prints reads back equal; clones are deep;
// equality and hash see every field.
#include "tests/unit/compiler/ir_test.h"

// One instruction of each record, with fields away from their defaults. %s: attributes.
static const struct {
    enum hlo_attr_kind kind;
    const char
        *text; // an instruction over parameters a (f32[4,6]), i (s32[4,1]), k (f32[2,3]), s (f32[])
    const char *same, *other; // attributes spelled another way; attributes that differ
} cases[] = {
    {ATTR_dims, "f32[6,4] transpose(a), %s", "dimensions={1,0}", NULL},
    {ATTR_compare, "pred[4,6] compare(a, a), %s", "direction=GE, type=TOTALORDER", "direction=GE"},
    {ATTR_iota, "s32[4,6] iota(), %s", "iota_dimension=1", "iota_dimension=0"},
    {ATTR_slice, "f32[1,2] slice(a), %s", "slice={[1:2], [0:5:3]}", "slice={[2:3], [0:5:3]}"},
    {ATTR_dynslice, "f32[2,3] dynamic-slice(a, n, n), %s", "dynamic_slice_sizes={2,3}", NULL},
    {ATTR_pad, "f32[7,8] pad(a, s), %s", "padding=-1_1_1x2_0", "padding=1_-1_1x2_0"},
    {ATTR_window, "f32[2,5] reduce-window(a, s), %s, to_apply=add",
     "window={size=3x2 stride=2x1 pad=1_0x0_0}", "window={size=3x2 stride=2x1 pad=0_1x0_0}"},
    {ATTR_conv, "f32[1,3,4] convolution(x, w), %s, dim_labels=b0f_0io->b0f",
     "window={size=3 pad=0_0 rhs_reversal=1}", "window={size=3 pad=0_0}"},
    {ATTR_dot, "f32[4,4] dot(a, a), %s", "lhs_contracting_dims={1}, rhs_contracting_dims={1}",
     NULL},
    {ATTR_gather, "f32[4,6] gather(a, i), %s, slice_sizes={1,6}",
     "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1",
     "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
     "indices_are_sorted=true"},
    {ATTR_sort, "f32[4,6] sort(a), %s, to_apply=less", "dimensions={1}, is_stable=true",
     "dimensions={1}"},
    {ATTR_gte, "f32[] get-tuple-element(t), %s", "index=1", NULL},
    {ATTR_custom, "f32[] custom-call(a), %s",
     "custom_call_target=\"a\\\"b\\n\", custom_call_has_side_effect=true, "
     "api_version=API_VERSION_TYPED_FFI",
     "custom_call_target=\"ab\""},
    {ATTR_rng, "f32[3] rng(s, s), %s", "distribution=rng_uniform", "distribution=rng_normal"},
    {ATTR_rngbits, "(u64[2], u32[3]) rng-bit-generator(r), %s", "algorithm=rng_three_fry",
     "algorithm=rng_philox"},
    {ATTR_fft, "c64[4,4] fft(a), %s", "fft_type=RFFT, fft_length={6}", NULL},
    {ATTR_trisolve, "f32[3,3] triangular-solve(m, m), %s",
     "left_side=true, lower=true, unit_diagonal=true, transpose_a=TRANSPOSE",
     "left_side=true, lower=true, unit_diagonal=true, transpose_a=NO_TRANSPOSE"},
    {ATTR_cholesky, "f32[3,3] cholesky(m), %s", "lower=true", "lower=false"},
    {ATTR_redprec, "f32[4,6] reduce-precision(a), %s", "exponent_bits=5, mantissa_bits=10",
     "exponent_bits=5, mantissa_bits=11"},
    {ATTR_topk, "(f32[4,2], s32[4,2]) topk(a), %s", "k=2, largest=true", "k=2"},
    {ATTR_rngstate, "u64[2] rng-get-and-update-state(), %s", "delta=7", "delta=8"},
    {ATTR_scan, "(f32[4,6], f32[6]) scan(a, c), %s, to_apply=step",
     "dimensions={0}, num_carries=1, is_reverse=true", "dimensions={0}, num_carries=1"},
    {ATTR_collective, "f32[4,6] all-gather(a), %s",
     "channel_id=3, dimensions={1}, constrain_layout=true, use_global_device_ids=true",
     "channel_id=4, dimensions={1}"},
    {ATTR_channel, "(f32[4,6], u32[], token[]) send(a, tok), %s",
     "channel_id=2, is_host_transfer=true", "channel_id=2"},
    {ATTR_infeed, "(f32[2], token[]) infeed(tok), %s", "infeed_config=\"q\\\\\"",
     "infeed_config=\"\""},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static const char HEAD[] =
    "HloModule m\n"
    "add { p = f32[] parameter(0)\n q = f32[] parameter(1)\n ROOT r = f32[] add(p, q) }\n"
    "less { p = f32[] parameter(0)\n q = f32[] parameter(1)\n"
    " ROOT r = pred[] compare(p, q), direction=LT }\n"
    "step { p = f32[6] parameter(0)\n q = f32[6] parameter(1)\n r = f32[6] add(p, q)\n"
    " ROOT t = (f32[6], f32[6]) tuple(r, r) }\n"
    "ENTRY e {\n a = f32[4,6] parameter(0)\n i = s32[4,1] parameter(1)\n n = s32[] constant(1)\n"
    " s = f32[] constant(0)\n t = (s32[], f32[]) tuple(n, s)\n m = f32[3,3] parameter(2)\n"
    " r = u64[2] parameter(3)\n x = f32[1,5,4] parameter(4)\n w = f32[3,4,4] parameter(5)\n"
    " c = f32[6] parameter(6)\n tok = token[] after-all()\n ROOT it = ";

static struct hlo_module *module_of(int k, const char *attributes) {
    struct strbuf b = {0};
    strbuf_puts(&b, HEAD);
    const char *at = strstr(cases[k].text, "%s");
    strbuf_add(&b, cases[k].text, (size_t)(at - cases[k].text));
    strbuf_puts(&b, attributes);
    strbuf_puts(&b, at + 2);
    strbuf_puts(&b, "\n}\n");
    struct hlo_module *m = NULL;
    status_t st = hlo_parse(str_of(b.p), NULL, &m);
    if (st) fail_msg("case %d: %s", k, st_message(st));
    strbuf_done(&b);
    return m;
}
static const void *attr_of(const struct hlo_module *m) {
    return m->entry->root->attr;
}

static void printed_records_read_back(void **state) {
    (void)state;
    for (int k = 0; k < N_CASES; k++) {
        struct hlo_module *m = module_of(k, cases[k].same), *again = NULL;
        struct strbuf b = {0};
        assert_int_equal(hlo_op_info(m->entry->root->op)->attrs, cases[k].kind);
        hlo_print_module(&b, m, HLO_PRINT_DEFAULT);
        must(hlo_parse(str_of(b.p), NULL, &again));
        if (!attr_equal(cases[k].kind, attr_of(m), attr_of(again))) fail_msg("%s", b.p);
        assert_true(attr_hash(cases[k].kind, attr_of(m)) ==
                    attr_hash(cases[k].kind, attr_of(again)));
        strbuf_done(&b);
        hlo_module_free(m);
        hlo_module_free(again);
    }
}
static void other_values_are_not_equal(void **state) {
    (void)state;
    for (int k = 0; k < N_CASES; k++) {
        if (!cases[k].other) continue;
        struct hlo_module *m = module_of(k, cases[k].same), *o = module_of(k, cases[k].other);
        if (attr_equal(cases[k].kind, attr_of(m), attr_of(o))) fail_msg("case %d", k);
        assert_false(attr_hash(cases[k].kind, attr_of(m)) == attr_hash(cases[k].kind, attr_of(o)));
        hlo_module_free(m);
        hlo_module_free(o);
    }
}
static void clones_are_deep(void **state) {
    (void)state;
    struct arena a = {0};
    for (int k = 0; k < N_CASES; k++) {
        struct hlo_module *m = module_of(k, cases[k].same), *again = module_of(k, cases[k].same);
        const void *copy = attr_clone(&a, cases[k].kind, attr_of(m));
        hlo_module_free(m); // the copy needs nothing of it
        assert_true(attr_equal(cases[k].kind, copy, attr_of(again)));
        hlo_module_free(again);
    }
    arena_done(&a);
}
static void fields_have_names(void **state) {
    (void)state;
    assert_true(attr_has_field(ATTR_conv, STR("dim_labels")));
    assert_false(attr_has_field(ATTR_conv, STR("dimensions")));
    assert_false(attr_has_field(ATTR_none, STR("dimensions")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_records_read_back),
        cmocka_unit_test(other_values_are_not_equal),
        cmocka_unit_test(clones_are_deep),
        cmocka_unit_test(fields_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
