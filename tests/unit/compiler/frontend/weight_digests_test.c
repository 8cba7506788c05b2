// SPDX-License-Identifier: Apache-2.0
// Digests of many spans by two threads are those of one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/frontend/weight_digests.h"

enum { SPANS = 40 };

// sizes: of span k, k * step bytes.
static void same_as_one_by_one(size_t step) {
    uint8_t *bytes = malloc(SPANS * (step + 1));
    struct span v[SPANS];
    struct digest out[SPANS];
    struct weight_digests d;
    assert_non_null(bytes);
    for (size_t k = 0; k < SPANS * (step + 1); k++)
        bytes[k] = (uint8_t)(k * k >> 3);
    for (size_t k = 0; k < SPANS; k++)
        v[k] = (struct span){bytes + k, k * step};
    memset(out, 0, sizeof out);
    weight_digests_begin(&d, v, SPANS, out);
    weight_digests_end(&d);
    for (size_t k = 0; k < SPANS; k++)
        assert_true(digest_eq(out[k], sha256_of(v[k].p, v[k].n)));
    free(bytes);
}
static void few_bytes(void **state) {
    (void)state;
    same_as_one_by_one(3);
}
static void many_bytes(void **state) {
    (void)state;
    same_as_one_by_one(5003);
}
static void none(void **state) {
    (void)state;
    struct weight_digests d;
    weight_digests_begin(&d, NULL, 0, NULL);
    weight_digests_end(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(few_bytes), cmocka_unit_test(many_bytes),
                                       cmocka_unit_test(none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
