// SPDX-License-Identifier: Apache-2.0
// mlir_parser: what the files that read the text share. A cursor over the source; functions move
// it on and write their results only where they succeed.
#pragma once
#include "base/map.h"
#include "compiler/frontend/mlir/mlir.h"

struct mt_name { // a value, or several under one name
    struct str name;
    uint32_t first;
    int32_t n;
    size_t hidden; // binding of the same name outside, + 1; 0 = none
};
struct mt {         // one reading
    struct str all; // the source
    const char *p, *end;
    struct arena *a;
    struct mlir_module *m;
    struct mlir_func *f; // the one that is read, or NULL
    struct mlir_limits limits;
    int64_t ops, values, attr_bytes; // used so far
    int depth;
    struct smap attr_aliases, type_aliases; // "#x" -> struct mlir_attr, "!x" -> struct mlir_type
    struct smap names;                      // of a value -> its binding's place + 1
    VEC(struct mt_name) bound;
    VEC(const struct mlir_type *) results; // of the operation read last
};

// ---- the cursor
void mt_skip(struct mt *t);                   // blanks and comments
bool mt_at(struct mt *t, const char *text);   // does it stand here? blanks before it are skipped
bool mt_take(struct mt *t, const char *text); // and if so, past it
bool mt_take_word(struct mt *t, const char *word); // not a part of a longer one
status_t mt_want(struct mt *t, const char *text) MUST_CHECK;
bool mt_word(struct mt *t, struct str *out); // letters, digits, _ $ . : "stablehlo.add"
bool mt_int(struct mt *t, int64_t *out);     // decimal, with a sign; no float
status_t mt_string(struct mt *t, struct str *out) MUST_CHECK; // "..", unescaped
// Text up to the bracket that closes the one it stands behind; past it.
status_t mt_balanced(struct mt *t, char close, struct str *out) MUST_CHECK;
status_t mt_error(struct mt *t, const char *fmt, ...) MUST_CHECK
    __attribute__((format(printf, 2, 3)));
int64_t mt_line(const struct mt *t);
status_t mt_spend(struct mt *t, int64_t bytes) MUST_CHECK; // of the attributes' budget
status_t mt_enter(struct mt *t) MUST_CHECK;                // one level deeper; t->depth-- to leave
void mt_loc(struct mt *t);                                 // loc(...), if there is one

// ---- types and attributes
status_t mt_type(struct mt *t, const struct mlir_type **out) MUST_CHECK;
typedef VEC(const struct mlir_type *) mt_types;
status_t mt_type_list(struct mt *t, const char *close, mt_types *out) MUST_CHECK;
// "(a, b) -> c", "(a) -> (b, c)"
status_t mt_function_type(struct mt *t, mt_types *in, mt_types *out) MUST_CHECK;
const struct mlir_type *mt_new_type(struct mt *t, struct mlir_type x);
status_t mt_attr(struct mt *t, const struct mlir_attr **out) MUST_CHECK;
status_t mt_dense(struct mt *t, const struct mlir_attr **out) MUST_CHECK; // behind "dense<"
typedef VEC(struct mlir_named) mt_named;
status_t mt_dict(struct mt *t, mt_named *out) MUST_CHECK; // {a = b, c}
struct mlir_attr *mt_new_attr(struct mt *t, enum mlir_attr_kind kind);
const struct mlir_attr *mt_int_attr(struct mt *t, int64_t v);
const struct mlir_attr *mt_text_attr(struct mt *t, enum mlir_attr_kind kind, struct str s);
const struct mlir_attr *mt_list_attr(struct mt *t, enum mlir_attr_kind kind,
                                     const struct mlir_named *v, size_t n);
status_t mt_int_list(struct mt *t, const struct mlir_attr **out) MUST_CHECK; // [1, 2] as ints
// [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f] as a structure
status_t mt_conv_labels(struct mt *t, const struct mlir_attr **out) MUST_CHECK;
status_t mt_fields(struct mt *t, const char *close, const struct mlir_attr **out) MUST_CHECK;

// ---- operations
status_t mt_value(struct mt *t, uint32_t *out) MUST_CHECK; // %x or %x#1
typedef VEC(uint32_t) mt_values;
status_t mt_bind(struct mt *t, struct str name, uint32_t first, int32_t n) MUST_CHECK;
status_t mt_new_value(struct mt *t, const struct mlir_type *type, uint32_t *out) MUST_CHECK;
// "{ ^bb0(...): ... }"; args: arguments that were read before it, or NULL.
struct mt_arg {
    struct str name;
    const struct mlir_type *type;
};
status_t mt_region(struct mt *t, const struct mt_arg *args, int32_t n_args,
                   struct mlir_region *out) MUST_CHECK;
void mt_put(struct mt *t, struct mlir_op *op, const char *name, const struct mlir_attr *v);
// An operation in its own form, behind its name. Types of its results go to t->results.
status_t mt_pretty(struct mt *t, struct mlir_op *op) MUST_CHECK;
// One operation with its results' names.
status_t mt_op(struct mt *t, struct mlir_region *into) MUST_CHECK;
