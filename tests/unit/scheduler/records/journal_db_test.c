// SPDX-License-Identifier: Apache-2.0
// Windows in which something that was answered might stand in one healthy file only: no room for
// the second, a commit that reaches one of the two, damage that nobody has seen yet and then more
// damage elsewhere, older versions that count more. Nothing answered is lost in any of them. The
// source is included with fault points.
#ifndef HLOD_FAULTS
#define HLOD_FAULTS
#endif
#include "scheduler/records/journal_db.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "scheduler/records/journal.h"
#include "tests/unit/scheduler/folder.h"

static const char *fault; // its point; NULL
static int at, hits;      // the how many-th hit; 0 = each
static bool dies;         // there, as kill -9
bool fault_hit(const char *point) {
    if (!fault || strcmp(fault, point) != 0 || (++hits != at && at)) return false;
    if (dies) _exit(42);
    return true;
}
static void inject(const char *point, int nth) {
    fault = point;
    at = nth;
    hits = 0;
}

static char dir[64];
static int fresh(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/jdb-test-XXXXXX");
    inject(NULL, 0);
    dies = false;
    return mkdtemp(dir) ? 0 : -1;
}
static int gone(void **state) {
    (void)state;
    return folder_remove(dir);
}
static const char *path_of(const char *name, char path[200]) {
    snprintf(path, 200, "%s/%s", dir, name);
    return path;
}
static void copy_file(const char *from, const char *to) {
    char path[200], bytes[4096];
    FILE *in = fopen(path_of(from, path), "r");
    if (!in) { // then there is none
        unlink(path_of(to, path));
        return;
    }
    FILE *out = fopen(path_of(to, path), "w");
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in));)
        fwrite(bytes, 1, n, out);
    fclose(in);
    fclose(out);
}
static void remove_file(const char *name) {
    char path[200];
    unlink(path_of(name, path));
}
static void flip(const char *name, long where) {
    char path[200];
    FILE *f = fopen(path_of(name, path), "r+");
    assert_non_null(f);
    fseek(f, where, SEEK_SET);
    int c = fgetc(f);
    fseek(f, where, SEEK_SET);
    fputc(c ^ 4, f);
    fclose(f);
}
static long find_bytes(const char *name, const char *what) { // the last place
    static char all[1 << 20];
    char path[200];
    FILE *f = fopen(path_of(name, path), "r");
    assert_non_null(f);
    size_t n = fread(all, 1, sizeof all, f);
    fclose(f);
    for (size_t i = n - strlen(what) + 1; i-- > 0;)
        if (!memcmp(all + i, what, strlen(what))) return (long)i;
    fail();
    return -1;
}
// As kill -9 leaves them: what is open is not closed, but taken away under it.
static void as_killed(void) {
    static const char *const names[] = {"journal.db", "journal.db-wal", "journal.copy.db",
                                        "journal.copy.db-wal"};
    char to[60];
    for (int i = 0; i < 4; i++) {
        snprintf(to, sizeof to, "killed.%d", i);
        copy_file(names[i], to);
    }
}
static void start_over(struct journal *j) { // with what as_killed left
    static const char *const names[] = {"journal.db", "journal.db-wal", "journal.copy.db",
                                        "journal.copy.db-wal"};
    char from[60];
    journal_close(j);
    for (int i = 0; i < 4; i++) {
        snprintf(from, sizeof from, "killed.%d", i);
        copy_file(from, names[i]);
    }
}

static struct digest key(int i) {
    return (struct digest){.b = {(uint8_t)i}};
}
static enum status_code put(struct journal *j, int i, const char *text) {
    status_t st = journal_put(j, JOURNAL_MODEL, key(i), key(9),
                              (struct span){(const uint8_t *)text, strlen(text)}, 1);
    enum status_code code = st_code(st);
    st_drop(st);
    return code;
}
static void is(struct journal *j, int i, const char *text) {
    struct arena a = {0};
    struct span s;
    assert_null(journal_get(j, JOURNAL_MODEL, key(i), &a, &s));
    char *got = arena_strndup(&a, (const char *)s.p, s.n);
    assert_string_equal(got, text);
    arena_done(&a);
}
static struct journal *opened(void) {
    struct journal *j = NULL;
    assert_null(journal_open(dir, &j));
    return j;
}
static void filled(struct journal *j) {
    for (int i = 1; i < 100; i++)
        assert_int_equal(put(j, i, "a record of some length, so that there are pages of it"),
                         ST_OK);
}
static void note_file(void *ctx, const char *file, const char *why) {
    assert_non_null(why);
    snprintf(ctx, 60, "%s", file);
}
static void wait_for_a_try(void) {
    nanosleep(&(struct timespec){.tv_nsec = 2 * RETRY_NS}, NULL);
}

// While there is no room for the second file nothing is taken, and all is served.
static void nothing_is_written_in_one_file(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct journal *j = opened();
        assert_int_equal(put(j, 1, "one"), ST_OK);
        inject("journal.room", 0);
        remove_file(k ? "journal.copy.db" : "journal.db");
        assert_int_equal(put(j, 1, "two"), ST_RESOURCE_EXHAUSTED);
        assert_int_equal(put(j, 2, "two"), ST_RESOURCE_EXHAUSTED);
        is(j, 1, "one");
        char file[60] = "";
        assert_null(journal_verify(j, note_file, file));
        assert_string_equal(file, k ? "journal.copy.db" : "journal.db");
        inject(NULL, 0);
        wait_for_a_try();
        assert_int_equal(put(j, 1, "three"), ST_OK);
        as_killed();
        start_over(j); // the other one alone has it too
        remove_file(k ? "journal.db" : "journal.copy.db");
        remove_file(k ? "journal.db-wal" : "journal.copy.db-wal");
        j = opened();
        is(j, 1, "three");
        journal_close(j);
    }
}

// Written in one, no room to make the other again: it is not said to be written, and the other,
// which has all that was, stands in for the one when that is damaged.
static void a_commit_in_one_file_is_no_answer(void **state) {
    (void)state;
    struct journal *j = opened();
    filled(j);
    assert_int_equal(put(j, 1, "answered"), ST_OK);
    fault = NULL;
    inject("journal.commit", 2);
    struct jdb *db = *(struct jdb **)j;
    // No room once the commit has failed: a file that cannot be written stands for it.
    char path[200];
    assert_int_equal(mkdir(path_of("journal.copy.db.new", path), 0700), 0);
    assert_int_not_equal(put(j, 1, "not answered"), ST_OK);
    assert_int_not_equal(put(j, 2, "not taken"), ST_OK);
    assert_true(!db->f[1].c.db);
    inject(NULL, 0);
    as_killed();
    start_over(j);
    remove_file("journal.db");
    remove_file("journal.db-wal");
    rmdir(path);
    j = opened();
    is(j, 1, "answered");
    journal_close(j);
}
static void a_flush_that_fails_writes_nothing(void **state) {
    (void)state;
    for (int k = 1; k <= 2; k++) {
        struct journal *j = opened();
        assert_int_equal(put(j, 1, "one"), ST_OK);
        inject("journal.flush", k);
        assert_int_equal(put(j, 1, "two"), ST_RESOURCE_EXHAUSTED);
        inject(NULL, 0);
        is(j, 1, "one");
        assert_int_equal(put(j, 1, "three"), ST_OK);
        char file[60] = "";
        assert_null(journal_verify(j, note_file, file));
        assert_string_equal(file, "");
        journal_close(j);
    }
}

// A bit in a frame of the log that no reader looks at any more: what follows it is lost at a start
// after kill -9. A look that says all is well has to mean that a start finds it so.
static void an_old_frame_of_the_log(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct journal *j = opened();
        filled(j);
        for (int i = 0; i < 5; i++)
            assert_int_equal(put(j, 1, "earlier"), ST_OK);
        flip(k ? "journal.copy.db-wal" : "journal.db-wal", 32 + 3 * (24 + 4096) + 100);
        char file[60] = "";
        assert_null(journal_verify(j, note_file, file));
        assert_int_equal(put(j, 1, "answered"), ST_OK);
        as_killed();
        start_over(j);
        remove_file(k ? "journal.db" : "journal.copy.db"); // the other
        remove_file(k ? "journal.db-wal" : "journal.copy.db-wal");
        j = opened();
        is(j, 1, "answered");
        journal_close(j);
    }
}

// A file made from what was left of both counts on from where they were.
static void an_older_version_after_a_salvage(void **state) {
    (void)state;
    struct journal *j = opened();
    filled(j);
    for (int i = 0; i < 200; i++)
        assert_int_equal(put(j, 1, "older"), ST_OK);
    journal_close(j);
    copy_file("journal.copy.db", "older");
    flip("journal.db", find_bytes("journal.db", "a record") + 3);
    flip("journal.copy.db", find_bytes("journal.copy.db", "a record") + 3);
    j = opened();
    assert_int_equal(put(j, 1, "newer"), ST_OK);
    journal_close(j);
    copy_file("older", "journal.copy.db");
    j = opened();
    is(j, 1, "newer");
    journal_close(j);
}
// Both damaged, the first an older version too: what both have is taken from the newer.
static void newer_rows_are_salvaged(void **state) {
    (void)state;
    struct journal *j = opened();
    filled(j);
    assert_int_equal(put(j, 1, "older"), ST_OK);
    journal_close(j);
    copy_file("journal.db", "older");
    j = opened();
    assert_int_equal(put(j, 1, "newer"), ST_OK);
    journal_close(j);
    copy_file("older", "journal.db");
    flip("journal.db", find_bytes("journal.db", "a record") + 3);
    flip("journal.copy.db", find_bytes("journal.copy.db", "a record") + 3);
    j = opened();
    is(j, 1, "newer");
    journal_close(j);
}
// Its name is gone, its contents are open: they are what there is.
static void the_only_file_is_removed_in_use(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct journal *j = opened();
        filled(j);
        inject("journal.room", 0);
        remove_file(k ? "journal.copy.db" : "journal.db");
        assert_int_equal(put(j, 1, "two"), ST_RESOURCE_EXHAUSTED);
        remove_file(k ? "journal.db" : "journal.copy.db");
        assert_int_equal(put(j, 1, "two"), ST_RESOURCE_EXHAUSTED);
        assert_int_equal(journal_count(j, JOURNAL_MODEL), 99);
        inject(NULL, 0);
        wait_for_a_try();
        assert_int_equal(put(j, 1, "three"), ST_OK);
        assert_int_equal(journal_count(j, JOURNAL_MODEL), 99);
        journal_close(j);
        j = opened();
        is(j, 1, "three");
        assert_int_equal(journal_count(j, JOURNAL_MODEL), 99);
        journal_close(j);
    }
}
// A bit in the number of the schema of one.
static void a_newer_schema_in_one_file(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct journal *j = opened();
        assert_int_equal(put(j, 1, "one"), ST_OK);
        journal_close(j);
        flip(k ? "journal.copy.db" : "journal.db", 61); // user_version: four bytes from 60 on
        j = opened();
        is(j, 1, "one");
        assert_int_equal(put(j, 1, "two"), ST_OK);
        journal_close(j);
    }
}
// Both damaged and no room to make one of what is left: it waits for the room.
static void a_salvage_without_room(void **state) {
    (void)state;
    struct journal *j = opened();
    filled(j);
    journal_close(j);
    flip("journal.db", find_bytes("journal.db", "a record") + 3);
    flip("journal.copy.db", find_bytes("journal.copy.db", "a record") + 3);
    struct rlimit was, few;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    few = was;
    few.rlim_cur = 8192;
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
        status_t st = journal_open(dir, &j);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
        assert_non_null(st);
        st_drop(st);
    }
    j = opened();
    assert_in_range(journal_count(j, JOURNAL_MODEL), 98, 99);
    journal_close(j);
}

// kill -9 at each point of a write, no room at the next start, and damage to one of the two.
static int answered_by_child(const char *point, int nth) {
    int fds[2], n = 0;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (!pid) {
        struct journal *j = opened();
        inject(point, nth);
        dies = true;
        for (int i = 1; i < 8; i++) {
            char text[20];
            snprintf(text, sizeof text, "write %d", i);
            if (put(j, 1, text)) _exit(1);
            if (write(fds[1], "w", 1) != 1) _exit(2);
        }
        _exit(0);
    }
    close(fds[1]);
    char c;
    while (read(fds[0], &c, 1) == 1)
        n++;
    close(fds[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    return n;
}
static void killed_anywhere_and_damaged(void **state) {
    (void)state;
    static const char *const points[] = {"journal.flush", "journal.commit"};
    for (int p = 0; p < 2; p++)
        for (int nth = 3; nth < 12; nth++)
            for (int k = 0; k < 3; k++) {
                struct journal *j = opened();
                assert_int_equal(put(j, 1, "write 0"), ST_OK);
                journal_close(j);
                int n = answered_by_child(points[p], nth);
                if (k < 2) remove_file(k ? "journal.copy.db" : "journal.db");
                if (k < 2) remove_file(k ? "journal.copy.db-wal" : "journal.db-wal");
                inject("journal.room", 0);
                j = opened();
                struct arena a = {0};
                struct span s;
                assert_null(journal_get(j, JOURNAL_MODEL, key(1), &a, &s));
                int found = s.p[s.n - 1] - '0'; // the last one may be there without an answer
                assert_in_range(found, n, n + 1);
                arena_done(&a);
                journal_close(j);
                inject(NULL, 0);
            }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, fresh, gone)
    const struct CMUnitTest t[] = {
        TEST(nothing_is_written_in_one_file),
        TEST(a_commit_in_one_file_is_no_answer),
        TEST(a_flush_that_fails_writes_nothing),
        TEST(an_old_frame_of_the_log),
        TEST(an_older_version_after_a_salvage),
        TEST(newer_rows_are_salvaged),
        TEST(the_only_file_is_removed_in_use),
        TEST(a_newer_schema_in_one_file),
        TEST(a_salvage_without_room),
        TEST(killed_anywhere_and_damaged),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
