// SPDX-License-Identifier: Apache-2.0
// key: from a request to the name of its executable (D6). Shapes are matched against the model's
// signature, which binds its symbols; the key is SHA-256 over program digest, bindings, canonical
// options, target id, kernel ABI and compiler build id. Weights and names are not in it. Pure.
// Thread: any.
#pragma once
#include "base/arena.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/status.h"
#include "base/str.h"
#include "base/vec.h"
#include "proto/numbers.h"
#include "proto/reason.h"
#include "proto/wire.pb-c.h"

struct key_parts {
    struct digest program;
    const char *bindings; // "N=8;T=128", sorted by symbol
    const char *options;  // canonical, see proto/wire.proto Compile.options
    const char *target_id, *build_id;
    uint32_t kernel_abi;
};
struct digest key_of(const struct key_parts *p);
// Those that an executable's record says; borrows from x, in a.
struct key_parts key_parts_of(struct arena *a, const Hlod__V1__ExecutableInfo *x);
// The first component that differs, as its name, with both values; NULL when equal.
const char *key_explain(struct arena *a, const struct key_parts *x, const struct key_parts *y,
                        const char **out_x, const char **out_y);

// Canonical text of the options: defaults left out, lists sorted and without repeats.
// INVALID_ARGUMENT, REASON_BAD_OPTION for an unknown precision or a name with odd characters.
status_t key_options(struct arena *a, const Hlod__V1__CompileOptions *o,
                     const char **out) MUST_CHECK;

struct key_shape {
    const char *input;
    int32_t rank;
    const int64_t *dims;
    const int64_t *values; // elements, for by_value inputs; NULL = not given
    int64_t n_values;
};
Hlod__Wire__Binding *key_binding(struct arena *a, const char *symbol, int64_t size);
size_t key_index(Hlod__V1__TensorSpec *const *v, size_t n, const char *name); // n: none
// The model's input of that name, or NULL.
const Hlod__V1__TensorSpec *key_input(const Hlod__V1__Signature *sig, const char *name);
void key_sort_bindings(Hlod__Wire__Binding **b, size_t n); // as a key has them
enum { KEY_MAX_VALUES = 256 };                             // elements of one by_value input

enum key_how {
    KEY_COMPLETE = 1,  // what is not given is absent (a run), not unknown (a compile)
    KEY_OWN_SIZES = 2, // a symbol is but a name: dimensions that share it may have other sizes
    KEY_ROWS_AGREE = 4 // but for dimension 0, along which runs are joined
};
struct key_binder { // bindings as they are found
    struct arena *a;
    VEC(Hlod__Wire__Binding *) bound;
    struct smap index; // of bound, by symbol
    unsigned how;
    bool own; // there are dimensions with a size of their own
};
void key_add(struct key_binder *b, const char *symbol, int64_t size); // borrows symbol
// Adds what follows from those that are there by way of dimensions that are expressions
// (Dim.expression): sizes of these, and symbols of the signature whose size they tell. Where they
// contradict each other or tell no size: INVALID_ARGUMENT, REASON_SHAPE_MISMATCH, naming input,
// dimension and expression.
status_t key_settle(struct key_binder *b, const Hlod__V1__Signature *sig) MUST_CHECK;
// Binds the signature's symbols, each element of its by_value inputs as "=<input>[<element>]", and
// of inputs without a rank (key_is_loose) "#<input>", "#<input>[<tensor>]", "#<input>[..].<dim>":
// number of tensors, ranks, sizes. how: of enum key_how.
// Inputs without either may be missing from `shapes`, those present must agree; with KEY_OWN_SIZES
// one that does not is bound as "*<input>.<dim>", in the order of the signature. A symbol that no
// shape binds gets its usual size (Dim.usual; 1 for a leading dimension) unless KEY_COMPLETE; if it
// has none, the error lists all such with a command line that would do. Errors name input,
// dim, expected, found (REASON_UNKNOWN_INPUT, SHAPE_MISMATCH, UNBOUND_DIM, UNBOUND_VALUE). Bindings
// come sorted by symbol.
status_t key_bind(struct arena *a, const Hlod__V1__Signature *sig, const struct key_shape *shapes,
                  size_t n, unsigned how, Hlod__Wire__Binding ***out, size_t *out_n) MUST_CHECK;
// The inputs of which a size was taken that no shape binds, with the shapes that they got. Borrows
// names from sig.
void key_assumed(struct arena *a, const Hlod__V1__Signature *sig, const struct key_shape *shapes,
                 size_t n, Hlod__Wire__Binding *const *b, size_t n_b, Hlod__V1__ShapeBinding ***out,
                 size_t *out_n);
// "the model has no input 'y'; it has x f32[N,3], ...": what is an input or an output, v those that
// there are.
status_t key_no_such(const char *what, const char *name, Hlod__V1__TensorSpec *const *v,
                     size_t n) MUST_CHECK;
// Of the inputs that `names` has, and of the values of `sig`'s that a request may replace.
status_t key_no_such_input(struct arena *a, const char *name, const Hlod__V1__Signature *names,
                           const Hlod__V1__Signature *sig) MUST_CHECK;
// SHAPE_MISMATCH: a dimension has another size.
status_t key_wrong_size(const char *input, size_t dim, int64_t expected, int64_t found) MUST_CHECK;
// `name` came with another number of dimensions than t has.
status_t key_wrong_rank(const Hlod__V1__TensorSpec *t, const char *name, int32_t rank) MUST_CHECK;
// "x f32[N,3]"
void key_spec_text(struct strbuf *b, const Hlod__V1__TensorSpec *t);
// Of the values that a request may replace; NULL = there is none.
const Hlod__V1__TensorSpec *key_default(const Hlod__V1__Signature *sig, const char *name);
bool key_is_loose(const Hlod__V1__TensorSpec *input); // sequence, optional or of unknown rank
// The name that tensor e of a loose input travels by.
const char *key_element_name(struct arena *a, const Hlod__V1__TensorSpec *input, size_t e);
enum { KEY_MAX_ELEMENTS = 1024 }; // of one sequence
// The executable's output "result2[1]" by the model's name of output 2.
const char *key_output_name(struct arena *a, const Hlod__V1__Signature *sig, const char *name);
// An executable's signature (its shapes, the compiler's names) with the names of a model of the
// same program. Borrows from both. `bound` as it is where they do not fit; what the parts of a
// program hand over has no names.
Hlod__V1__Signature *key_signature(struct arena *a, const Hlod__V1__ExecutableInfo *x,
                                   const Hlod__V1__Signature *names);
// Of the code that runs: main as a plugin's compiler left it, else as ours did. NULL: not known.
const Hlod__V1__Counts *key_counts(const Hlod__V1__ExecutableInfo *info);
const char *key_bindings_text(struct arena *a, Hlod__Wire__Binding *const *b, size_t n);
