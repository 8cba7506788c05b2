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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_later_file_stays)};
    return cmocka_run_group_tests(tests, open_it, close_it);
}
