// SPDX-License-Identifier: Apache-2.0
// The journal: put, get, replace, order of use, survival of a reopen, and a damaged file set aside.
#include "scheduler/journal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/journal-test-XXXXXX";

static struct digest key(int i) {
    struct digest d = {{0}};
    d.b[0] = (uint8_t)i;
    return d;
}
static void put(struct journal *j, int i, const char *text) {
    assert_null(journal_put(j, JOURNAL_SOURCE, key(i), key(9),
                            (struct span){(const uint8_t *)text, strlen(text)}, 1));
}
static void is(struct journal *j, int i, const char *text) {
    struct arena a = {0};
    struct span s;
    status_t st = journal_get(j, JOURNAL_SOURCE, key(i), &a, &s);
    if (!text) {
        assert_int_equal(st_code(st), ST_NOT_FOUND);
        st_drop(st);
    } else {
        assert_null(st);
        assert_int_equal(s.n, strlen(text));
        assert_memory_equal(s.p, text, s.n);
    }
    arena_done(&a);
}
static void note(void *ctx, struct digest d, struct span record) {
    (void)record;
    char *out = ctx;
    out[strlen(out)] = (char)('0' + d.b[0]);
}

static void life(void **state) {
    (void)state;
    struct journal *j;
    assert_null(journal_open(dir, &j));
    is(j, 1, NULL);
    put(j, 1, "one");
    put(j, 2, "two");
    put(j, 3, "three");
    put(j, 2, "two again");
    is(j, 1, "one"); // used last
    assert_int_equal(journal_count(j, JOURNAL_SOURCE), 3);
    assert_int_equal(journal_count(j, JOURNAL_EXECUTABLE), 0);
    journal_close(j);
    assert_null(journal_open(dir, &j));
    is(j, 2, "two again");
    char order[8] = "";
    assert_null(journal_list(j, JOURNAL_SOURCE, 2, note, order));
    assert_string_equal(order, "21");
    assert_null(journal_remove(j, JOURNAL_SOURCE, key(2)));
    assert_null(journal_remove(j, JOURNAL_SOURCE, key(2)));
    is(j, 2, NULL);
    journal_close(j);
}

static void count_used(void *ctx, struct digest d, int64_t used_ns) {
    (void)d;
    assert_true(used_ns > 0);
    ++*(int *)ctx;
}
static void families(void **state) {
    (void)state;
    struct journal *j;
    assert_null(journal_open(dir, &j));
    int n = 0;
    for (int i = 1; i <= 5; i++)
        assert_null(journal_put(j, JOURNAL_EXECUTABLE, key(i), key(i < 4 ? 7 : 8),
                                (struct span){(const uint8_t *)"x", 1}, 1));
    assert_null(journal_family(j, JOURNAL_EXECUTABLE, key(7), count_used, &n));
    assert_int_equal(n, 3);
    assert_null(journal_remove(j, JOURNAL_EXECUTABLE, key(2)));
    n = 0;
    assert_null(journal_family(j, JOURNAL_EXECUTABLE, key(7), count_used, &n));
    assert_int_equal(n, 2);
    n = 0;
    assert_null(journal_family(j, JOURNAL_EXECUTABLE, key(1), count_used, &n));
    assert_int_equal(n, 0);
    journal_close(j);
}

// A journal of schema 1 keeps its records and gains families.
static void upgrade(void **state) {
    (void)state;
    char path[100];
    snprintf(path, sizeof path, "%s/journal.db", dir);
    unlink(path);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db,
                     "CREATE TABLE source (key BLOB PRIMARY KEY, record BLOB NOT NULL, created "
                     "INTEGER, used INTEGER) WITHOUT ROWID;"
                     "CREATE TABLE executable (key BLOB PRIMARY KEY, record BLOB NOT NULL, created "
                     "INTEGER, used INTEGER) WITHOUT ROWID;"
                     "INSERT INTO source VALUES (cast(x'01' || zeroblob(31) AS BLOB), 'old', 1, 1);"
                     "PRAGMA user_version=1",
                     NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    struct journal *j;
    assert_null(journal_open(dir, &j));
    is(j, 1, "old");
    put(j, 1, "new");
    int n = 0;
    assert_null(journal_family(j, JOURNAL_SOURCE, key(9), count_used, &n));
    assert_int_equal(n, 1);
    journal_close(j);
}

static void damaged(void **state) {
    (void)state;
    char path[100];
    snprintf(path, sizeof path, "%s/journal.db", dir);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 5000; i++)
        fputs("not a database", f);
    fclose(f);
    struct journal *j;
    assert_null(journal_open(dir, &j));
    is(j, 1, NULL);
    put(j, 1, "new");
    is(j, 1, "new");
    journal_close(j);
    snprintf(path, sizeof path, "%s/journal.db.damaged", dir);
    assert_int_equal(access(path, R_OK), 0);
}

// One page spoiled in the middle: opening and preparing would not see it.
static void a_damaged_page(void **state) {
    (void)state;
    char path[100], record[400];
    snprintf(path, sizeof path, "%s/journal.db", dir);
    struct journal *j;
    assert_null(journal_open(dir, &j));
    memset(record, 'r', sizeof record - 1);
    record[sizeof record - 1] = 0;
    for (uint8_t k = 0; k < 200; k++)
        put(j, k, record);
    journal_close(j);
    FILE *f = fopen(path, "r+");
    fseek(f, 0, SEEK_END);
    assert_true(ftell(f) > 10 * 4096);
    fseek(f, -4096 * 5, SEEK_END); // a leaf of the table
    for (int i = 0; i < 4096; i++)
        fputc(0xee, f);
    fclose(f);
    snprintf(path, sizeof path, "%s/journal.db.damaged", dir);
    unlink(path);
    assert_null(journal_open(dir, &j));
    assert_int_equal(access(path, R_OK), 0);
    is(j, 1, NULL);
    put(j, 1, "new");
    is(j, 1, "new");
    journal_close(j);
}

static int clean(void **state) {
    (void)state;
    static const char *const files[] = {"journal.db", "journal.db-wal", "journal.db-shm",
                                        "journal.db.damaged"};
    for (int i = 0; i < 4; i++) {
        char path[100];
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    return rmdir(dir);
}

int main(void) {
    if (!mkdtemp(dir)) return 1;
    const struct CMUnitTest t[] = {cmocka_unit_test(life), cmocka_unit_test(families),
                                   cmocka_unit_test(upgrade), cmocka_unit_test(damaged),
                                   cmocka_unit_test(a_damaged_page)};
    return cmocka_run_group_tests(t, NULL, clean);
}
