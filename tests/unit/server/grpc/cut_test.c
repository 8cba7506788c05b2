// SPDX-License-Identifier: Apache-2.0
// Cutting byte fields out of messages: against protobuf-c's own packing, in pieces of every size,
// and damaged messages.
#include "server/grpc/cut.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/hlod.pb-c.h"

static struct arena a;

static struct span message(void) {
    Hlod__V1__RunRequest q = HLOD__V1__RUN_REQUEST__INIT;
    Hlod__V1__Tensor t[3] = {HLOD__V1__TENSOR__INIT, HLOD__V1__TENSOR__INIT,
                             HLOD__V1__TENSOR__INIT},
                     *all[3] = {&t[0], &t[1], &t[2]};
    int64_t dims[2] = {300, 4};
    static uint8_t data[2][700];
    for (int i = 0; i < 700; i++)
        data[0][i] = (uint8_t)i, data[1][i] = (uint8_t)(3 * i);
    t[0].name = (char *)"first";
    t[0].shape = dims;
    t[0].n_shape = 2;
    t[0].raw = (ProtobufCBinaryData){700, data[0]};
    t[2].raw = (ProtobufCBinaryData){5, data[1]};
    t[2].datatype = (char *)"FP32";
    q.model = (char *)"digest";
    q.inputs = all;
    q.n_inputs = 3;
    q.binary_data_output = true;
    size_t n = hlod__v1__run_request__get_packed_size(&q);
    uint8_t *p = arena_alloc(&a, n);
    hlod__v1__run_request__pack(&q, p);
    return (struct span){p, n};
}

static struct span *split(struct span s, size_t size, size_t *out_n) {
    struct span *v = arena_array(&a, struct span, s.n / size + 2);
    *out_n = 0;
    for (size_t at = 0; at < s.n; at += size)
        v[(*out_n)++] = (struct span){s.p + at, s.n - at < size ? s.n - at : size};
    return v;
}

struct gather {
    uint8_t bytes[1000];
    size_t n;
};
static status_t take(void *ctx, size_t at, struct span part) {
    struct gather *g = ctx;
    assert_int_equal(at, g->n);
    memcpy(g->bytes + at, part.p, part.n);
    g->n += part.n;
    return ST_OK;
}

static void cuts(void **state) {
    (void)state;
    struct span m = message();
    for (size_t size = 1; size < 800; size += size < 20 ? 1 : 37) {
        size_t n;
        struct span *pieces = split(m, size, &n);
        struct cuts c;
        assert_true(cut_fields(&a, pieces, n, 3, 4, &c));
        assert_int_equal(c.n, 2);
        assert_int_equal(c.v[0].parent, 0);
        assert_int_equal(c.v[0].n, 700);
        assert_int_equal(c.v[1].parent, 2);
        assert_int_equal(c.v[1].n, 5);
        for (int k = 0; k < 2; k++) {
            struct gather g = {0};
            assert_null(cut_each(pieces, n, &c.v[k], take, &g));
            assert_int_equal(g.n, c.v[k].n);
            for (size_t i = 0; i < g.n; i++)
                assert_int_equal(g.bytes[i], (uint8_t)(k ? 3 * i : i));
        }
        Hlod__V1__RunRequest *q = hlod__v1__run_request__unpack(NULL, c.rest.n, c.rest.p);
        assert_non_null(q);
        assert_int_equal(q->n_inputs, 3);
        assert_string_equal(q->inputs[0]->name, "first");
        assert_int_equal(q->inputs[0]->shape[0], 300);
        assert_int_equal(q->inputs[0]->raw.len, 0);
        assert_string_equal(q->inputs[2]->datatype, "FP32");
        assert_true(q->binary_data_output);
        hlod__v1__run_request__free_unpacked(q, NULL);
    }
    // One level: the bytes field itself; here `model`, field 1.
    struct cuts c;
    assert_true(cut_fields(&a, &m, 1, 1, 0, &c));
    assert_int_equal(c.n, 1);
    assert_memory_equal(m.p + c.v[0].offset, "digest", 6);
}

static void damaged(void **state) {
    (void)state;
    struct span m = message();
    for (size_t n = 0; n < m.n; n++) { // cut short: false, or a whole shorter message
        struct span s = {m.p, n};
        struct cuts c;
        if (cut_fields(&a, &s, 1, 3, 4, &c)) assert_true(c.rest.n <= n);
    }
    for (size_t i = 0; i < m.n; i++)
        for (int bit = 0; bit < 8; bit++) { // any outcome but a crash; cuts stay inside
            uint8_t *p = arena_dup(&a, m.p, m.n);
            p[i] ^= (uint8_t)(1 << bit);
            struct span s = {p, m.n};
            struct cuts c;
            if (!cut_fields(&a, &s, 1, 3, 4, &c)) continue;
            for (size_t k = 0; k < c.n; k++)
                assert_true(c.v[k].offset <= m.n && c.v[k].n <= m.n - c.v[k].offset);
        }
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(cuts), cmocka_unit_test(damaged)};
    int rc = cmocka_run_group_tests(t, NULL, NULL);
    arena_done(&a);
    return rc;
}
