// SPDX-License-Identifier: Apache-2.0
// The journal: put, get, replace, order of use, survival of a reopen; one of its two files damaged
// in each way, at rest and in use, costs nothing; both damaged cost no row that is still whole.
#include "scheduler/records/journal.h"

#include "base/clock.h"
#include "scheduler/records/journal_db.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/journal-test-XXXXXX";

static void path_of(char path[100], const char *name) {
    snprintf(path, 100, "%s%s%s", *name == '/' ? "" : dir, *name == '/' ? "" : "/", name);
}
static void unlink_all(void) {
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));)
        unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
}
static void rename_to(const char *from, const char *to) {
    char a[100], b[100];
    path_of(a, from);
    path_of(b, to);
    assert_int_equal(rename(a, b), 0);
}
static struct digest key(int i) {
    struct digest d = {{0}};
    d.b[0] = (uint8_t)i;
    return d;
}
static void put_in(struct journal *j, enum journal_table t, int i, const char *text, int64_t at) {
    assert_null(journal_put(j, t, key(i), key(9),
                            (struct span){(const uint8_t *)text, strlen(text)}, at));
}
// text: NULL where there is none.
static void is_in(struct journal *j, enum journal_table t, int i, const char *text) {
    struct arena a = {0};
    struct span s;
    status_t st = journal_get(j, t, key(i), &a, &s);
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
static void put(struct journal *j, int i, const char *text) {
    put_in(j, JOURNAL_SOURCE, i, text, 1);
}
static void is(struct journal *j, int i, const char *text) {
    is_in(j, JOURNAL_SOURCE, i, text);
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
    unlink_all();
    path_of(path, "journal.db");
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

// ---- damage

static void write_file(const char *name, const char *text, int times) {
    char path[100];
    path_of(path, name);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < times; i++)
        fputs(text, f);
    fclose(f);
}
static void copy_file(const char *from, const char *to) {
    char a[100], b[100], bytes[4096];
    path_of(a, from);
    path_of(b, to);
    FILE *in = fopen(a, "r"), *out = fopen(b, "w");
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in));)
        fwrite(bytes, 1, n, out);
    fclose(in);
    fclose(out);
}
static bool exists(const char *name) {
    char path[100];
    path_of(path, name);
    return access(path, F_OK) == 0;
}
static long find_bytes(const char *name, const char *what) { // the last place; -1
    char path[100];
    path_of(path, name);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    static char all[1 << 20];
    size_t n = fread(all, 1, sizeof all, f);
    fclose(f);
    for (size_t i = n < strlen(what) ? 0 : n - strlen(what) + 1; i-- > 0;)
        if (!memcmp(all + i, what, strlen(what))) return (long)i;
    return -1;
}
static void flip(const char *name, long at) {
    char path[100];
    path_of(path, name);
    FILE *f = fopen(path, "r+");
    fseek(f, at, SEEK_SET);
    int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 4, f);
    fclose(f);
}
static const char *const both[] = {"journal.db", "journal.copy.db"};
static const char *const asides[] = {"journal.db.damaged", "journal.copy.db.damaged"};

// Two files with a hundred records, closed.
static void filled(void) {
    unlink_all();
    struct journal *j;
    assert_null(journal_open(dir, &j));
    for (int k = 0; k < 100; k++)
        put(j, k, "a record of some length, so that there are pages of it");
    put(j, 1, "record-one");
    journal_close(j);
}
static void whole(void) {
    struct journal *j;
    assert_null(journal_open(dir, &j));
    is(j, 1, "record-one");
    assert_int_equal(journal_count(j, JOURNAL_SOURCE), 100);
    put(j, 1, "new");
    is(j, 1, "new");
    journal_close(j);
    assert_true(exists(both[0]) && exists(both[1]));
}
static void damage_at_rest(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int how = 0; how < 9; how++) {
            filled();
            char path[100];
            path_of(path, both[k]);
            bool aside = true;
            if (how == 0) write_file(both[k], "not a database", 5000);
            if (how == 1) aside = unlink(path);
            if (how == 2) assert_int_equal(truncate(path, 0), 0);
            if (how == 3) assert_int_equal(truncate(path, 8192), 0);
            if (how == 4) flip(both[k], find_bytes(both[k], "record-one") + 3); // in a value
            if (how == 5) flip(both[k], 4096 * 3 + 5);                          // in a page's head
            if (how == 6) flip(both[k], find_bytes(both[k], "source_family") + 3);
            if (how == 7)
                copy_file(both[!k], "old"), flip("old", find_bytes("old", "record-one") + 3),
                    rename_to("old", both[k]);
            if (how == 8) { // an older version of it
                copy_file(both[k], "old");
                struct journal *j;
                assert_null(journal_open(dir, &j));
                put(j, 1, "younger");
                put(j, 1, "record-one");
                journal_close(j);
                copy_file("old", both[k]);
                aside = false; // put aside, but as one that is behind
            }
            whole();
            if (aside) assert_true(exists(asides[k]));
        }
}
static void note_file(void *ctx, const char *file, const char *why) {
    assert_non_null(why);
    snprintf(ctx, 60, "%s", file);
}
// While it is open: noticed by a look, by verify, or at the next write.
static void damage_in_use(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int how = 0; how < 6; how++) {
            filled();
            struct journal *j;
            char path[100], file[60] = "";
            assert_null(journal_open(dir, &j));
            path_of(path, both[k]);
            if (how == 0) unlink(path);
            if (how == 1) assert_int_equal(truncate(path, 4096), 0);
            if (how == 2) flip(both[k], find_bytes(both[k], "record-one") + 3);
            if (how == 3) copy_file(both[k], "old"), rename_to("old", both[k]);
            if (how >= 4) put(j, 5, "in the log");
            if (how == 4) flip(both[k], 4096 * 3 + 5);
            if (how == 5) {
                strcat(path, "-wal");
                unlink(path);
            }
            if (how % 2) put(j, 7, "another");
            assert_null(journal_verify(j, note_file, file)); // before a touch writes the page anew
            if (!(how % 2)) assert_string_equal(file, both[k]); // else the write saw to it
            is(j, 1, "record-one");
            is(j, 5,
               how >= 4 ? "in the log" : "a record of some length, so that there are pages of it");
            file[0] = 0;
            assert_null(journal_verify(j, note_file, file));
            assert_string_equal(file, "");
            journal_close(j);
            whole();
        }
}
// Removed while a write is under way: the next one sees it.
static status_t remove_meanwhile(struct jcopy *c, void *arg) {
    char path[100];
    (void)c, (void)arg;
    path_of(path, "journal.db");
    unlink(path);
    return ST_OK;
}
static void removed_in_a_write(void **state) {
    (void)state;
    filled();
    struct journal *j;
    assert_null(journal_open(dir, &j));
    assert_null(jdb_write(*(struct jdb **)j, remove_meanwhile, NULL));
    put(j, 5, "after");
    assert_true(exists("journal.db"));
    journal_close(j);
    whole();
}
static void both_removed_in_use(void **state) {
    (void)state;
    filled();
    struct journal *j;
    assert_null(journal_open(dir, &j));
    for (int k = 0; k < 2; k++) {
        char path[100];
        path_of(path, both[k]);
        unlink(path);
    }
    put(j, 5, "after");
    is(j, 5, "after");
    journal_close(j);
    whole();
}
// A bit in each: what has its digest in one of them stays.
static void both_damaged(void **state) {
    (void)state;
    filled();
    for (int k = 0; k < 2; k++)
        flip(both[k], find_bytes(both[k], "record-one") + 3);
    struct journal *j;
    assert_null(journal_open(dir, &j));
    is(j, 1, NULL);
    assert_int_equal(journal_count(j, JOURNAL_SOURCE), 99);
    put(j, 1, "record-one");
    journal_close(j);
    whole();
    filled();
    for (int k = 0; k < 2; k++)
        write_file(both[k], "not a database", 5000);
    assert_null(journal_open(dir, &j));
    assert_int_equal(journal_count(j, JOURNAL_SOURCE), 0);
    put(j, 1, "new");
    journal_close(j);
}
// SQLite takes such a log for none.
static void an_empty_file_beside_its_log(void **state) {
    (void)state;
    filled();
    struct journal *j;
    char path[100];
    assert_null(journal_open(dir, &j));
    put(j, 5, "in the log");
    copy_file("journal.db-wal", "old");
    journal_close(j);
    copy_file("old", "journal.db-wal");
    path_of(path, "journal.db");
    assert_int_equal(truncate(path, 0), 0);
    assert_null(journal_open(dir, &j));
    is(j, 5, "in the log");
    journal_close(j);
    whole();
}

// ---- names of models, which are kept a third time

static void put_name(struct journal *j, int i, const char *text) {
    put_in(j, JOURNAL_MODEL, i, text, clock_wall_ns());
}
static void name_is(struct journal *j, int i, const char *text) {
    is_in(j, JOURNAL_MODEL, i, text);
}
static void names_written(void) {
    unlink_all();
    struct journal *j;
    assert_null(journal_open(dir, &j));
    for (int i = 1; i <= 40; i++)
        put_name(j, i, "a name");
    put_name(j, 1, "another");
    assert_null(journal_remove(j, JOURNAL_MODEL, key(2)));
    journal_close(j);
}
static void names_there(const char *wrong) {
    struct journal *j;
    char file[60] = "";
    assert_null(journal_open(dir, &j));
    name_is(j, 1, "another");
    name_is(j, 2, NULL);
    assert_int_equal(journal_count(j, JOURNAL_MODEL), 39);
    assert_null(journal_verify(j, note_file, file));
    assert_string_equal(file, wrong);
    journal_close(j);
}
// Both files of the journal damaged at once, or gone.
static void names_without_the_journal(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        names_written();
        for (int k = 0; k < 2; k++) {
            char path[100];
            path_of(path, both[k]);
            if (how == 0) unlink(path);
            if (how == 1) write_file(both[k], "not a database", 5000);
            if (how == 2) flip(both[k], find_bytes(both[k], "another") + 3);
            if (how == 3) assert_int_equal(truncate(path, 4096), 0);
        }
        names_there("");
        names_there(""); // again, from the journal
    }
}
// Their log damaged: the journal counts, and the log is made anew.
static void names_without_their_log(void **state) {
    (void)state;
    for (int how = 0; how < 5; how++)
        for (int open = 0; open < 2; open++) {
            names_written();
            struct journal *j;
            char path[100], file[60] = "";
            path_of(path, "names.log");
            if (open) assert_null(journal_open(dir, &j));
            if (how == 0) unlink(path);
            if (how == 1) assert_int_equal(truncate(path, 0), 0);
            if (how == 2) assert_int_equal(truncate(path, 777), 0);
            if (how == 3) flip("names.log", 300);
            if (how == 4) write_file("names.log", "something else\n", 50);
            if (open) {
                assert_null(journal_verify(j, note_file, file));
                assert_string_equal(file, "names.log");
                journal_close(j);
            }
            names_there("");
            for (int k = 0; k < 2; k++) { // it holds them all again
                path_of(path, both[k]);
                unlink(path);
            }
            names_there("");
        }
}
// As the process dies between the journal and the log, either way round.
static void names_half_written(void **state) {
    (void)state;
    struct journal *j;
    names_written();
    copy_file("names.log", "old");
    assert_null(journal_open(dir, &j));
    put_name(j, 2, "later");
    journal_close(j);
    copy_file("old", "names.log");
    assert_null(journal_open(dir, &j));
    name_is(j, 2, "later");
    assert_null(journal_remove(j, JOURNAL_MODEL, key(2)));
    journal_close(j);
    names_there("");
}

static int clean(void **state) {
    (void)state;
    unlink_all();
    return rmdir(dir);
}

int main(void) {
    if (!mkdtemp(dir)) return 1;
    const struct CMUnitTest t[] = {cmocka_unit_test(life),
                                   cmocka_unit_test(families),
                                   cmocka_unit_test(upgrade),
                                   cmocka_unit_test(damage_at_rest),
                                   cmocka_unit_test(damage_in_use),
                                   cmocka_unit_test(removed_in_a_write),
                                   cmocka_unit_test(both_removed_in_use),
                                   cmocka_unit_test(both_damaged),
                                   cmocka_unit_test(an_empty_file_beside_its_log),
                                   cmocka_unit_test(names_without_the_journal),
                                   cmocka_unit_test(names_without_their_log),
                                   cmocka_unit_test(names_half_written)};
    return cmocka_run_group_tests(t, NULL, clean);
}
