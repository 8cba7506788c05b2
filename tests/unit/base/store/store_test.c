// SPDX-License-Identifier: Apache-2.0
// A blob that one write made and another made again: who takes back the first leaves the second.
#include "base/store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/hlod-store-XXXXXX";
static struct store *store;

static int open_it(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return -1;
    status_t st = store_open(dir, 0, &store);
    int rc = st ? -1 : 0;
    st_drop(st);
    return rc;
}
static int close_it(void **state) {
    (void)state;
    char command[80];
    store_close(store);
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}
static struct digest write_blob(const char *text, uint64_t *out_fresh) {
    struct store_writer *w;
    struct digest d;
    assert_null(store_write_begin(store, STORE_BLOB, &w));
    assert_null(store_write(w, text, strlen(text)));
    assert_null(store_write_end(w, &d, out_fresh));
    return d;
}
static void the_later_file_stays(void **state) {
    (void)state;
    uint64_t first, second, third;
    struct digest d = write_blob("no model", &first);
    write_blob("no model", &second);
    assert_true(first != 0);
    assert_true(second == 0);
    assert_false(store_remove_file(store, STORE_BLOB, d, first, true));
    assert_false(store_remove_file(store, STORE_BLOB, d, first, false));
    assert_true(store_has(store, STORE_BLOB, d));
    assert_true(store_size(store, STORE_BLOB, d) > 0);
    assert_null(store_remove(store, STORE_BLOB, d));
    write_blob("no model", &third);
    assert_false(store_remove_file(store, STORE_BLOB, d, first, false));
    assert_true(store_remove_file(store, STORE_BLOB, d, third, true));
    assert_true(store_has(store, STORE_BLOB, d));
    assert_true(store_remove_file(store, STORE_BLOB, d, third, false));
    assert_false(store_has(store, STORE_BLOB, d));
    assert_int_equal(store_size(store, STORE_BLOB, d), 0);
    assert_false(store_remove_file(store, STORE_BLOB, d, third, false));
}

static int n_gone;
static void gone(void *ctx, struct digest key) {
    (void)ctx;
    (void)key;
    n_gone++;
}
static void count(void *ctx, enum store_kind kind, struct digest key, int64_t bytes, int64_t mtime,
                  bool pinned) {
    (void)kind;
    (void)key;
    (void)bytes;
    (void)mtime;
    (void)pinned;
    ++*(int *)ctx;
}
// Puts so many files beyond the budget, the first `pinned` of which stay; gives how many of the
// puts let others go. The last one is there.
static int put_beyond(int most, int beyond, int pinned, int *out_left) {
    enum { BYTES = 100, HEAD = 48 };
    char path[64], text[BYTES] = "";
    struct digest key;
    struct store *s;
    int puts = 0;
    snprintf(path, sizeof path, "%s/of-%d-%d", dir, most, pinned);
    assert_null(store_open(path, (int64_t)most * (BYTES + HEAD), &s));
    store_on_evict(s, gone, NULL);
    n_gone = *out_left = 0;
    for (int k = 0; k < most + beyond; k++) {
        int before = n_gone;
        snprintf(text, sizeof text, "%d", k);
        key = sha256_of(text, sizeof text);
        if (k < pinned) store_pin(s, STORE_EXECUTABLE, key, true);
        assert_null(store_put(s, STORE_EXECUTABLE, key, text, sizeof text, false));
        puts += n_gone > before;
    }
    assert_true(store_has(s, STORE_EXECUTABLE, key));
    assert_null(store_list(s, STORE_EXECUTABLE, count, out_left));
    store_close(s);
    return puts;
}
// Where there are many, more go than must: else all were looked at for each that comes.
static void many_go_together(void **state) {
    (void)state;
    int left, puts = put_beyond(20, 15, 0, &left);
    assert_true(puts == 15 && left == 20);
    puts = put_beyond(800, 120, 0, &left);
    assert_true(puts > 0 && puts < 30);
    assert_true(left <= 800 && left >= 700);
    put_beyond(800, 20, 795, &left); // what is pinned alone is nearly the budget
    assert_true(left == 800);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_later_file_stays),
                                       cmocka_unit_test(many_go_together)};
    return cmocka_run_group_tests(tests, open_it, close_it);
}
