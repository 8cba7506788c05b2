// SPDX-License-Identifier: Apache-2.0
// Elements in turn are those of their arrays, whatever their size, how many arrays and rows; what
// lies behind the last row stays as it is.
#include "devices/cpu/move/cpu_weave.h"
#include "tests/conform/device_help.h"

const char *device_kind = "cpu";

enum { ARRAYS = 64, ROWS = 300, GUARD = 64 };

static void elements_in_turn(UNUSED void **state) {
    static char from[ARRAYS][ROWS * 8], to[ARRAYS * ROWS * 8 + GUARD];
    static const int arrays[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64};
    static const int64_t rows[] = {1, 2, 3, 15, 16, 17, 31, 64, 65, 257, 300};
    const char *parts[ARRAYS];
    for (int k = 0; k < ARRAYS; k++) {
        parts[k] = from[k];
        for (int j = 0; j < ROWS * 8; j++)
            from[k][j] = (char)(k * 37 + j * 11 + (j >> 8));
    }
    for (int64_t size = 1; size <= 8; size *= 2)
        for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++)
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                int64_t n = arrays[a], all = n * rows[r] * size;
                memset(to, 0x5a, sizeof to);
                cpu_weave(size, parts, arrays[a], to, rows[r]);
                for (int64_t j = 0; j < n * rows[r]; j++)
                    assert_memory_equal(to + j * size, from[j % n] + j / n * size, (size_t)size);
                for (int k = 0; k < GUARD; k++)
                    assert_int_equal(to[all + k], 0x5a);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(elements_in_turn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
