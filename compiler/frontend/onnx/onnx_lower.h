// SPDX-License-Identifier: Apache-2.0
// onnx_lower: what the operator functions (onnx_<family>.c) see. An operator is a function that
// reads its inputs and attributes, builds HLO through `b`, and sets its outputs. Errors are sticky
// in the builder; the driver adds the node's name.
#pragma once
#include "compiler/frontend/onnx/onnx_model.h"
#include "compiler/ir/build.h"

// A value: a tensor (v), a sequence (list), or an optional that is absent (neither). How long a
// sequence is and whether an optional is there is known at compile time.
struct onnx_val {
    hv v;
    struct literal *known; // of a tensor that is known at compile time
    struct onnx_list *list;
    hv size; // NULL, or how much of dimension size_dim counts (onnx_dynamic.c)
    int size_dim;
    struct literal *bound[2]; // of integers made of such sizes: NULL, or what they are where the
                              // size is the bound, and one more
    hv bound_of;              // the size itself where those integers only moved it about; else NULL
    bool weight;              // v is a weight: known to no one before the run
    bool failed; // its node was refused: what depends on it is left out, to list all at once
    bool text;   // v's elements are places in the table of texts (onnx_string.c)
};
struct onnx_list {
    struct onnx_val **v;
    size_t n, cap;
    enum dtype dtype; // of text: s32
    bool text;
};
struct onnx_strings { // of a program
    struct strings *table;
    struct { // of each input and result, in the module's order
        bool *v;
        size_t n, cap;
    } in, out;
};
struct onnx_ctx { // one graph being lowered into one computation; onnx_scope.h has children
    struct hb b;
    struct arena *a; // the module's
    const struct onnx_model *m;
    const struct onnx_node *n; // being lowered
    struct smap values;        // name -> struct onnx_val *
    int64_t opset;
    struct pmap *weights;       // manifest index + 1 -> hv in this computation
    int64_t *budget;            // nodes that may still be lowered
    int64_t *folding;           // operations that folding may still take
    const _Atomic bool *cancel; // or NULL
    int depth;
    bool dynamic_ok;            // in_val gives values with a size of their own, too
    bool text_ok;               // and text
    enum lower_purpose purpose; // lower_request.purpose
    int64_t fixed_batch, batch; // lower_request's
    struct onnx_strings *texts;
    struct onnx_chosen { // what NonZero or Compress found, for a second look at the same values
        hv of, at, count;
    } chosen[8];
    unsigned n_chosen;
    struct onnx_parts *parts; // of the program (onnx_parts.h)
    uint32_t wanted;          // bit k: input k of the node had to be known and is not
    const char *within; // of an opened graph (onnx_open.h): where it stands, for messages; or NULL
};
typedef void (*onnx_fn)(struct onnx_ctx *c);

struct onnx_op {
    const char *name;
    int since, until;      // opsets [since, until]
    int min_in, max_in;    // -1 = any
    uint32_t shape_inputs; // bit k: input k must be known at compile time (a shape, axes, pads):
                           // initializers there are baked at any size
    onnx_fn fn;
    int arg; // an enum hlo_op for functions that serve many operators
};
// NULL if unknown
const struct onnx_op *onnx_op_find(const struct onnx_node *n, int64_t opset);
#define ONNX_FN(fn) void onnx_##fn(struct onnx_ctx *c)
// Begins the function of a row: its body sees c and b, the builder of c; with ONNX_X also x, input
// 0, which it cannot do without.
#define ONNX(fn)                                                                                   \
    static void node_##fn(struct onnx_ctx *c, struct hb *b);                                       \
    ONNX_FN(fn) {                                                                                  \
        node_##fn(c, &c->b);                                                                       \
    }                                                                                              \
    static void node_##fn(struct onnx_ctx *c, __attribute__((unused)) struct hb *b)
#define ONNX_X(fn)                                                                                 \
    static void node_##fn(struct onnx_ctx *c, struct hb *b, hv x);                                 \
    ONNX_FN(fn) {                                                                                  \
        node_##fn(c, &c->b, onnx_in_val(c, 0));                                                    \
    }                                                                                              \
    static void node_##fn(struct onnx_ctx *c, __attribute__((unused)) struct hb *b, hv x)

bool onnx_in_has(const struct onnx_ctx *c, size_t k);
hv onnx_in_val(struct onnx_ctx *c, size_t k);                // fails when missing
static inline hv onnx_in_opt(struct onnx_ctx *c, size_t k) { // NULL when left out
    return onnx_in_has(c, k) ? onnx_in_val(c, k) : NULL;
}
static inline const char *onnx_show(const struct onnx_ctx *c, hv x) { // its shape, for messages
    return shape_text(c->a, x->shape);
}
const struct literal *onnx_in_known(struct onnx_ctx *c,
                                    size_t k); // fails when not known at compile time; NULL then
bool onnx_in_ints(struct onnx_ctx *c, size_t k, int64_t *v, int max, int *n); // from a known input
void onnx_out_val(struct onnx_ctx *c, size_t k, hv v);
void onnx_fold_value(struct onnx_ctx *c,
                     struct onnx_val *v); // evaluates a tensor that depends on constants alone
int64_t onnx_at_int(struct onnx_ctx *c, const char *name, int64_t def);
double onnx_at_float(struct onnx_ctx *c, const char *name, float def);
struct str onnx_at_str(struct onnx_ctx *c, const char *name, const char *def);
bool onnx_at_ints(struct onnx_ctx *c, const char *name, int64_t *v, int max,
                  int *n); // false when absent
void onnx_fail(struct onnx_ctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int64_t onnx_axis_of(struct onnx_ctx *c, int64_t axis,
                     int rank); // negative counts from the end; fails out of range (inclusive of
                                // rank only if `rank` says so)
int onnx_op_arg(const struct onnx_ctx *c);
// Axes from input k (newer opsets) or attribute "axes"; *given false when neither.
void onnx_axes_of(struct onnx_ctx *c, size_t k, int rank, int64_t *axes, int *n, bool *given);
// The same as a set: an axis that is there twice counts once, as in ONNX Runtime.
void onnx_axis_set(struct onnx_ctx *c, size_t k, int rank, int64_t *axes, int *n, bool *given);
hv onnx_splat_like(struct onnx_ctx *c, hv x, double v);
hv onnx_reduce_keep(struct onnx_ctx *c, hv x, const int64_t *axes, int n, enum hlo_op op,
                    bool keep); // with init of the op
hv onnx_back_to(struct onnx_ctx *c, hv x, const struct shape *s, const int64_t *dropped,
                int n); // broadcast of a reduced value over the dropped dims

#define ONNX_OP(name, since, until, min, max, shapes, fn, arg) ONNX_FN(fn);
#include "compiler/frontend/onnx/onnx_ops.def"
#undef ONNX_OP
