// SPDX-License-Identifier: Apache-2.0
// mlir_bytecode_reader: what the files that read bytecode share. Attributes and types are read when
// they are asked for, once; a cursor walks over the bytes of one section or entry. Functions write
// their results only where they succeed. Source: MLIR's description of its bytecode format.
#pragma once
#include "compiler/frontend/mlir/mlir.h"

struct mb_cursor {
    const uint8_t *p, *end;
};
struct mb_row { // of vhlo.def
    const char *name, *attrs;
};
struct mb_op_name {
    struct str dialect, name;
    const struct mb_row *row; // NULL: not an operation of VHLO
};
enum mb_state { MB_UNREAD, MB_READING, MB_READ };
struct mb_entry { // an attribute or a type
    struct span data;
    struct str dialect;
    bool custom; // in the dialect's own encoding; else as text
    enum mb_state state;
    const void *value; // struct mlir_attr or struct mlir_type
};
struct mb_entries {
    struct mb_entry *v;
    size_t n;
};
struct mb { // one reading
    struct span all;
    struct arena *a;
    struct mlir_module *m;
    struct mlir_limits limits;
    int64_t ops, values, attr_bytes; // used so far
    int depth;
    uint64_t version; // of the envelope
    struct str *strings, *dialects;
    size_t n_strings, n_dialects, n_op_names, n_props;
    struct mb_op_name *op_names;
    struct mb_entries attrs, types;
    struct span *props, ir;
};

// ---- bytes
status_t mb_error(const struct mb *b, const struct mb_cursor *c, const char *fmt, ...) MUST_CHECK
    __attribute__((format(printf, 3, 4)));
static inline struct mb_cursor mb_open(struct span s) {
    return (struct mb_cursor){s.p, s.n ? s.p + s.n : s.p};
}
status_t mb_byte(const struct mb *b, struct mb_cursor *c, uint8_t *out) MUST_CHECK;
status_t mb_int(const struct mb *b, struct mb_cursor *c, uint64_t *out) MUST_CHECK;
status_t mb_signed(const struct mb *b, struct mb_cursor *c, int64_t *out) MUST_CHECK;
// A number whose lowest bit is a flag.
status_t mb_flagged(const struct mb *b, struct mb_cursor *c, uint64_t *out, bool *flag) MUST_CHECK;
// Is v below n? INVALID_ARGUMENT; `what` is for the message.
status_t mb_check_index(const struct mb *b, const struct mb_cursor *c, uint64_t v, size_t n,
                        const char *what) MUST_CHECK;
// An index below n; `what` is for the message.
status_t mb_index(const struct mb *b, struct mb_cursor *c, size_t n, const char *what,
                  size_t *out) MUST_CHECK;
// How many things follow, each of a byte at least, each taking `size` bytes of the budget.
status_t mb_count(struct mb *b, struct mb_cursor *c, size_t size, int32_t *out) MUST_CHECK;
status_t mb_bytes(const struct mb *b, struct mb_cursor *c, uint64_t n, struct span *out) MUST_CHECK;
status_t mb_text(const struct mb *b, struct mb_cursor *c, struct str *out) MUST_CHECK;
// One section: its number and its bytes, past it.
status_t mb_section(const struct mb *b, struct mb_cursor *c, uint8_t *id,
                    struct span *out) MUST_CHECK;
status_t mb_spend(struct mb *b, int64_t bytes) MUST_CHECK; // of the attributes' budget

// ---- types and attributes: by an index that stands at the cursor
status_t mb_type(struct mb *b, struct mb_cursor *c, const struct mlir_type **out) MUST_CHECK;
status_t mb_type_at(struct mb *b, size_t k, const struct mlir_type **out) MUST_CHECK;
status_t mb_attr(struct mb *b, struct mb_cursor *c, const struct mlir_attr **out) MUST_CHECK;
status_t mb_attr_at(struct mb *b, size_t k, const struct mlir_attr **out) MUST_CHECK;
status_t mb_type_list(struct mb *b, struct mb_cursor *c, const struct mlir_type ***out,
                      int32_t *n) MUST_CHECK;
status_t mb_signed_list(struct mb *b, struct mb_cursor *c, int64_t **out, int32_t *n) MUST_CHECK;
// An integer of `bits` bits (extended by its sign), a float of the dtype.
status_t mb_apint(struct mb *b, struct mb_cursor *c, int bits, int64_t *out) MUST_CHECK;
status_t mb_apfloat(struct mb *b, struct mb_cursor *c, enum dtype t, double *out) MUST_CHECK;
// The entry's own bytes, behind its code.
status_t mb_vhlo_type(struct mb *b, struct mb_cursor *c, uint64_t code,
                      struct mlir_type *out) MUST_CHECK;
status_t mb_builtin_type(struct mb *b, struct mb_cursor *c, uint64_t code,
                         struct mlir_type *out) MUST_CHECK;
status_t mb_read_type(struct mb *b, struct mb_entry *e, const struct mlir_type **out) MUST_CHECK;
status_t mb_read_attr(struct mb *b, struct mb_entry *e, const struct mlir_attr **out) MUST_CHECK;

// ---- operations
status_t mb_module(struct mb *b) MUST_CHECK; // the IR section
