// SPDX-License-Identifier: Apache-2.0
// A plugin's XSpace as rows: device planes, names that stand behind the lines, times against ours,
// hostile bytes; and plugins whose profiler is missing or refuses.
#include "devices/pjrt/pjrt_profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"

static void varint(struct strbuf *b, uint64_t v) {
    for (; v > 127; v >>= 7)
        strbuf_putc(b, (char)(v | 0x80));
    strbuf_putc(b, (char)v);
}
static void number(struct strbuf *b, int field, uint64_t v) {
    varint(b, (uint64_t)field << 3);
    varint(b, v);
}
static void bytes(struct strbuf *b, int field, const char *p, size_t n) {
    varint(b, (uint64_t)field << 3 | 2);
    varint(b, n);
    strbuf_add(b, p, n);
}
static void nested(struct strbuf *b, int field, struct strbuf *inner) {
    bytes(b, field, strbuf_cstr(inner), inner->n);
    strbuf_done(inner);
}
static void event(struct strbuf *line, int name, int64_t offset_ps, int64_t ps) {
    struct strbuf e = {0};
    number(&e, 1, (uint64_t)name);
    number(&e, 2, (uint64_t)offset_ps);
    number(&e, 3, (uint64_t)ps);
    nested(line, 4, &e);
}
static void event_name(struct strbuf *plane, int id, const char *text) {
    struct strbuf entry = {0}, meta = {0};
    number(&entry, 1, (uint64_t)id);
    number(&meta, 1, (uint64_t)id);
    bytes(&meta, 2, text, strlen(text));
    nested(&entry, 2, &meta);
    nested(plane, 4, &entry);
}
static void plane(struct strbuf *space, const char *name, const char *line_name) {
    struct strbuf p = {0}, line = {0};
    bytes(&p, 2, name, strlen(name));
    bytes(&line, 2, line_name, strlen(line_name));
    number(&line, 3, 5000); // ns
    event(&line, 7, 1000000, 2000000);
    event(&line, 9, 4000000, 500000);
    event(&line, 8, 0, 1); // a name that is not there
    nested(&p, 3, &line);
    event_name(&p, 7, "fusion.7");
    event_name(&p, 9, "copy.9");
    nested(space, 1, &p);
}

static void rows(void **state) {
    (void)state;
    struct arena a = {0};
    struct strbuf b = {0};
    struct profile_row v[8];
    struct profile p = {.rows = v, .cap = 8, .n = 1};
    plane(&b, "/host:CPU", "XLA Ops");
    plane(&b, "/device:TPU:0", "XLA Ops");
    plane(&b, "/device:TPU:0", "XLA Modules"); // covers the others
    assert_null(pj_profile_read((struct span){(const uint8_t *)strbuf_cstr(&b), b.n}, &a, 100, &p));
    assert_int_equal(p.n, 3);
    assert_string_equal(v[1].name, "fusion.7");
    assert_string_equal(v[1].op, "XLA Ops");
    assert_int_equal(v[1].start_ns, 100); // the earliest of them begins with the execution
    assert_int_equal(v[1].ns, 2000);
    assert_string_equal(v[2].name, "copy.9");
    assert_int_equal(v[2].start_ns, 3100);
    assert_int_equal(v[2].ns, 500);
    assert_int_equal(v[2].depth, 1);
    p.n = 7; // room for one more
    assert_null(pj_profile_read((struct span){(const uint8_t *)strbuf_cstr(&b), b.n}, &a, 0, &p));
    assert_int_equal(p.n, 8);
    for (size_t cut = 0; cut < b.n; cut++) { // every truncation ends, with all rows or with none
        p.n = 0;
        status_t st =
            pj_profile_read((struct span){(const uint8_t *)strbuf_cstr(&b), cut}, &a, 0, &p);
        if (st) assert_int_equal(p.n, 0);
        st_drop(st);
    }
    strbuf_done(&b);
    arena_done(&a);
}

static void none(void **state) {
    (void)state;
    struct pj_api api = {.struct_size = sizeof api};
    struct pj_plugin p = {.api = &api};
    struct profile out = {0};
    assert_null(pj_profiler_begin(&p));
    struct {
        struct pj_extension head;
        const void *table;
    } e = {{sizeof e, PJ_EXT_PROFILER, NULL}, NULL};
    api.extension = &e;
    assert_null(pj_profiler_begin(&p)); // an extension without its table
    pj_profiler_end(NULL, NULL, 0, &out);
}

// ---- profilers of our own, as the interface's text has it, and as XLA's are

static struct strbuf space; // what they saw
static bool gives_memory;   // its own, at the first call, with a byte more
struct call {
    size_t struct_size;
    void *profiler; // of create: options
    void *buffer;   // of create: their size
    union {
        size_t size;
        void *created;
    };
};
static void *create(void *args) {
    ((struct call *)args)->created = &space;
    return NULL;
}
static void *done(void *args) {
    assert_ptr_equal(((struct call *)args)->profiler, &space);
    return NULL;
}
static void *collect(void *args) {
    struct call *c = args;
    if (gives_memory) {
        assert_null(c->buffer); // a second call would write nothing
        c->buffer = (void *)(uintptr_t)strbuf_cstr(&space);
        c->size = space.n + 1;
    } else if (c->buffer) {
        memcpy(c->buffer, strbuf_cstr(&space), c->size);
    } else {
        c->size = space.n;
    }
    return NULL;
}

static void profilers(void **state) {
    (void)state;
    struct {
        size_t struct_size;
        void *unused[4];
        void *(*calls[5])(void *args);
    } table = {sizeof table, {0}, {create, done, done, done, collect}};
    struct {
        struct pj_extension head;
        const void *table;
    } e = {{sizeof e, PJ_EXT_PROFILER, NULL}, &table};
    struct pj_api api = {.struct_size = sizeof api, .extension = &e};
    struct pj_plugin p = {.api = &api};
    struct arena a = {0};
    plane(&space, "/device:GPU:0", "Stream #13(Compute)");
    for (int k = 0; k < 2; k++) {
        struct profile_row v[8];
        struct profile out = {.rows = v, .cap = 8};
        gives_memory = k;
        struct pj_profiler *x = pj_profiler_begin(&p);
        assert_non_null(x);
        pj_profiler_end(x, &a, 50, &out);
        assert_int_equal(out.n, 2);
        assert_string_equal(v[0].name, "fusion.7");
        assert_int_equal(v[0].start_ns, 50);
    }
    strbuf_done(&space);
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows), cmocka_unit_test(none),
                                       cmocka_unit_test(profilers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
