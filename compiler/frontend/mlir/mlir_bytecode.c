// SPDX-License-Identifier: Apache-2.0
// The envelope of MLIR's bytecode: its sections and the tables that operations refer to.
#include "compiler/frontend/mlir/mlir_bytecode.h"

#include <stdio.h>
#include <string.h>

#include "compiler/frontend/mlir/mlir_bytecode_reader.h"

enum section {
    STRINGS = 0,
    DIALECTS = 1,
    ENTRIES = 2,
    ENTRY_SIZES = 3,
    IR = 4,
    PROPERTIES = 8,
    N_SECTIONS = 9
};
enum { MAX_VERSION = 6 };

static const struct mb_row rows[] = {
#define OP(name, attrs) {name, attrs},
#include "compiler/frontend/mlir/vhlo.def"
#undef OP
};
enum { N_ROWS = sizeof rows / sizeof *rows };

// ---- tables

// Lengths of all strings, the last one first, then their characters with a NUL each.
static status_t read_strings(struct mb *b, struct span s) {
    struct mb_cursor c = mb_open(s);
    const uint8_t *end = c.end;
    int32_t n;
    RETURN_IF_ERR(mb_count(b, &c, sizeof *b->strings, &n));
    b->strings = arena_zarray(b->a, struct str, n + 1);
    for (int32_t k = n; k-- > 0;) {
        uint64_t size;
        RETURN_IF_ERR(mb_int(b, &c, &size));
        if (c.p > end || size < 1 || size > (uint64_t)(end - c.p))
            return mb_error(b, &c, "a string's length is not valid");
        end -= size;
        b->strings[k] = (struct str){(const char *)end, (size_t)size - 1};
    }
    b->n_strings = (size_t)n;
    return c.p == end ? ST_OK : mb_error(b, &c, "strings and their lengths do not fit");
}
static const struct mb_row *row_of(struct str name) {
    for (size_t k = 0; k < N_ROWS; k++)
        if (str_is(name, rows[k].name)) return &rows[k];
    return NULL;
}
static status_t read_op_names(struct mb *b, struct mb_cursor *c, struct str dialect) {
    int32_t n;
    RETURN_IF_ERR(mb_count(b, c, sizeof *b->op_names, &n));
    for (int32_t k = 0; k < n; k++) {
        uint64_t v;
        bool registered;
        if (b->version >= 5)
            RETURN_IF_ERR(mb_flagged(b, c, &v, &registered));
        else
            RETURN_IF_ERR(mb_int(b, c, &v));
        RETURN_IF_ERR(mb_check_index(b, c, v, b->n_strings, "string"));
        struct mb_op_name x = {.dialect = dialect, .name = b->strings[v]};
        if (str_is(dialect, "vhlo") && !(x.row = row_of(x.name)))
            return st_unimplemented("operation vhlo.%.*s is not known: the file was written by a "
                                    "StableHLO beyond 1.20",
                                    STR_ARG(x.name));
        b->op_names[b->n_op_names++] = x;
    }
    return ST_OK;
}
static status_t read_dialects(struct mb *b, struct span s) {
    struct mb_cursor c = mb_open(s);
    struct span version;
    int32_t n;
    uint8_t id;
    RETURN_IF_ERR(mb_count(b, &c, sizeof *b->dialects, &n));
    b->dialects = arena_zarray(b->a, struct str, n + 1);
    for (int32_t k = 0; k < n; k++) {
        uint64_t v;
        bool versioned = false;
        if (b->version >= 1)
            RETURN_IF_ERR(mb_flagged(b, &c, &v, &versioned));
        else
            RETURN_IF_ERR(mb_int(b, &c, &v));
        RETURN_IF_ERR(mb_check_index(b, &c, v, b->n_strings, "string"));
        if (versioned) RETURN_IF_ERR(mb_section(b, &c, &id, &version));
        b->dialects[b->n_dialects++] = b->strings[v];
    }

    uint64_t total;
    if (b->version >= 4) RETURN_IF_ERR(mb_int(b, &c, &total));
    size_t most = (size_t)(c.end - c.p); // each name takes a byte
    RETURN_IF_ERR(mb_spend(b, (int64_t)(most * sizeof *b->op_names)));
    b->op_names = arena_zarray(b->a, struct mb_op_name, most + 1);
    while (c.p < c.end) {
        size_t k;
        RETURN_IF_ERR(mb_index(b, &c, b->n_dialects, "dialect", &k));
        RETURN_IF_ERR(read_op_names(b, &c, b->dialects[k]));
    }
    return ST_OK;
}

// Sizes of entries by dialect; *data is what is left of them.
static status_t read_sizes(struct mb *b, struct mb_cursor *c, struct mb_cursor *data,
                           struct mb_entries *out, size_t n) {
    while (out->n < n) {
        size_t dialect;
        int32_t group;
        RETURN_IF_ERR(mb_index(b, c, b->n_dialects, "dialect", &dialect));
        RETURN_IF_ERR(mb_count(b, c, 0, &group));
        if ((size_t)group > n - out->n) return mb_error(b, c, "more entries than were said");
        for (int32_t k = 0; k < group; k++) {
            struct mb_entry *e = &out->v[out->n];
            uint64_t size;
            RETURN_IF_ERR(mb_flagged(b, c, &size, &e->custom));
            RETURN_IF_ERR(mb_bytes(b, data, size, &e->data));
            e->dialect = b->dialects[dialect];
            out->n++;
        }
    }
    return ST_OK;
}
static status_t read_entries(struct mb *b, struct span sizes, struct span data) {
    struct mb_cursor c = mb_open(sizes), d = mb_open(data);
    int32_t n_attrs, n_types;
    RETURN_IF_ERR(mb_count(b, &c, sizeof(struct mb_entry), &n_attrs));
    RETURN_IF_ERR(mb_count(b, &c, sizeof(struct mb_entry), &n_types));
    b->attrs.v = arena_zarray(b->a, struct mb_entry, n_attrs + 1);
    b->types.v = arena_zarray(b->a, struct mb_entry, n_types + 1);
    RETURN_IF_ERR(read_sizes(b, &c, &d, &b->attrs, (size_t)n_attrs));
    return read_sizes(b, &c, &d, &b->types, (size_t)n_types);
}
static status_t read_properties(struct mb *b, struct span s) {
    struct mb_cursor c = mb_open(s);
    int32_t n;
    if (!s.n) return ST_OK;
    RETURN_IF_ERR(mb_count(b, &c, sizeof *b->props, &n));
    b->props = arena_zarray(b->a, struct span, n + 1);
    for (int32_t k = 0; k < n; k++) {
        uint64_t size;
        RETURN_IF_ERR(mb_int(b, &c, &size));
        RETURN_IF_ERR(mb_bytes(b, &c, size, &b->props[k]));
    }
    b->n_props = (size_t)n;
    return ST_OK;
}

// ---- the file

static status_t read_head(struct mb *b, struct mb_cursor *c) {
    static const uint8_t magic[] = {'M', 'L', 0xEF, 'R'};
    struct span head;
    if (b->all.n < sizeof magic || memcmp(b->all.p, magic, sizeof magic) != 0)
        return st_invalid("byte 0: this is no MLIR bytecode");
    RETURN_IF_ERR(mb_bytes(b, c, sizeof magic, &head));
    RETURN_IF_ERR(mb_int(b, c, &b->version));
    if (b->version > MAX_VERSION)
        return st_unimplemented("MLIR bytecode of version %llu, versions up to %d are read",
                                (unsigned long long)b->version, MAX_VERSION);
    const uint8_t *nul = memchr(c->p, 0, (size_t)(c->end - c->p));
    if (!nul) return mb_error(b, c, "the producer's name does not end");
    b->m->producer = (struct str){(const char *)c->p, (size_t)(nul - c->p)};
    c->p = nul + 1;
    return ST_OK;
}
static status_t check_dialects(const struct mb *b) {
    for (size_t k = 0; k < b->n_op_names; k++)
        if (b->op_names[k].row) return ST_OK;
    return st_unimplemented("MLIR bytecode without VHLO (producer '%.*s'): save the program as a "
                            "portable artifact (stablehlo.serialize_portable_artifact)",
                            STR_ARG(b->m->producer));
}
static status_t read_file(struct mb *b) {
    struct mb_cursor c = mb_open(b->all);
    struct span sections[N_SECTIONS] = {0};
    RETURN_IF_ERR(read_head(b, &c));
    while (c.p < c.end) {
        struct span s;
        uint8_t id;
        RETURN_IF_ERR(mb_section(b, &c, &id, &s));
        if (id >= N_SECTIONS) return mb_error(b, &c, "section %u is not known", id);
        if (sections[id].p) return mb_error(b, &c, "section %u is there twice", id);
        sections[id] = s;
    }
    for (int k = STRINGS; k <= IR; k++)
        if (!sections[k].p) return mb_error(b, &c, "section %d is missing", k);
    RETURN_IF_ERR(read_strings(b, sections[STRINGS]));
    RETURN_IF_ERR(read_dialects(b, sections[DIALECTS]));
    RETURN_IF_ERR(check_dialects(b));
    RETURN_IF_ERR(read_entries(b, sections[ENTRY_SIZES], sections[ENTRIES]));
    RETURN_IF_ERR(read_properties(b, sections[PROPERTIES]));
    b->ir = sections[IR];
    return mb_module(b);
}
status_t mlir_read_bytecode(struct arena *a, struct span source, const struct mlir_limits *limits,
                            struct mlir_module *out) {
    struct mlir_module m = {.arena = a, .source = source, .where = "operation"};
    struct mb b = {.all = source, .a = a, .m = &m, .limits = *limits};
    RETURN_IF_ERR(read_file(&b));
    *out = m;
    return ST_OK;
}
