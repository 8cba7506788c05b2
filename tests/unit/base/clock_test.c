// SPDX-License-Identifier: Apache-2.0
// Moments of RFC 3339 as numbers, and what is none. The numbers are GNU date's.
#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void reads(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {{"1970-01-01T00:00:00Z", 0},
                {"2026-11-21T14:34:21Z", 1795271661000},
                {"2026-11-21T14:34:21.25z", 1795271661250},
                {"2026-11-21T16:34:21+02:00", 1795271661000},
                {"2026-11-21t09:04:21-05:30", 1795271661000},
                {"2026-11-21", 1795219200000},
                {"2028-02-29", 1835395200000},
                {"1969-12-31T23:59:59.5Z", -500}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t ns = 1;
        if (!clock_wall_read(str_of(rows[i].text), &ns) || ns != rows[i].ms * 1000000)
            fail_msg("%s is %lld", rows[i].text, (long long)ns);
    }
}

static void refuses(void **state) {
    (void)state;
    static const char *const rows[] = {"",
                                       "2026",
                                       "2026-11-21T",
                                       "2026-11-21 14:00:00Z",
                                       "2026-11-21T14:00Z",
                                       "2026-11-21T14:00:00",
                                       "2026-11-21T14:00:00.Z",
                                       "2026-11-21T14:00:00Zulu",
                                       "2026-11-21T14:00:00+2:00",
                                       "2026-11-21T14:00:00+24:00",
                                       "2026-11-21T24:00:00Z",
                                       "2026-11-21T14:60:00Z",
                                       "2027-02-29",
                                       "2026-13-01",
                                       "2026-00-10",
                                       "9999-01-01",
                                       "+026-01-01"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t ns;
        if (clock_wall_read(str_of(rows[i]), &ns)) fail_msg("taken: '%s'", rows[i]);
    }
    int64_t ns;
    assert_false(clock_wall_read((struct str){"2026-11-21", 9}, &ns));
}

static void written_and_read(void **state) {
    (void)state;
    char text[32];
    int64_t back;
    for (int64_t ns = 0; ns < INT64_C(8000000000000000000); ns += INT64_C(123456789012000000)) {
        clock_wall_text(ns, text);
        assert_true(clock_wall_read(str_of(text), &back));
        assert_int_equal(back / 1000000, ns / 1000000);
    }
}

static void milliseconds_left(void **state) {
    (void)state;
    assert_int_equal(clock_ms_left(clock_ns()), 0);
    assert_int_equal(clock_ms_left(INT64_MIN / 2), 0);
    assert_true(clock_ms_left(clock_ns() + 1) <= 1);
    assert_in_range(clock_ms_left(clock_ns() + clock_of_ms(60000)), 1000, 60000);
    int64_t far = clock_ns() + 5000000; // rounded up: after so many ms the time has come
    struct timespec wait = {.tv_nsec = clock_ms_left(far) * 1000000};
    nanosleep(&wait, NULL);
    assert_true(clock_ns() >= far);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(reads), cmocka_unit_test(milliseconds_left),
                                   cmocka_unit_test(refuses), cmocka_unit_test(written_and_read)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
