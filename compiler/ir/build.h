// SPDX-License-Identifier: Apache-2.0
// build: short functions to make instructions, for frontends and passes. Errors are sticky: after
// the first failure every call returns a harmless placeholder and hb_end gives the status, so that
// a lowering reads as a formula. Broadcasting is explicit, as in HLO: binary ops take equal shapes.
//     struct hb b = hb_begin(comp);  b.op_name = "node_7"; b.op_type = "Gelu";
//     y = hb_mul(&b, x, hb_splat(&b, x->shape, 0.5));
//     RETURN_IF_ERR(hb_end(&b));
#pragma once
#include "compiler/ir/op.h"

struct hb {
    struct hlo_computation *c;
    status_t st; // first error, owned
    const char *op_type,
        *op_name; // metadata given to what is made; must outlive the module or be in its arena
    struct hlo_instr *placeholder;
};
typedef struct hlo_instr *hv;
struct hb hb_begin(struct hlo_computation *c);
status_t hb_end(struct hb *b) MUST_CHECK; // gives the sticky status
void hb_fail(struct hb *b, status_t s);   // takes s; keeps the first
static inline bool hb_ok(const struct hb *b) {
    return b->st == NULL;
}

hv hb_op(struct hb *b, enum hlo_op op, const struct shape *shape, hv const *operands, int n,
         const void *attr);
hv hb_unary(struct hb *b, enum hlo_op op, hv x);
hv hb_binary(struct hb *b, enum hlo_op op, hv x, hv y);
static inline hv hb_add(struct hb *b, hv x, hv y) {
    return hb_binary(b, HLO_ADD, x, y);
}
static inline hv hb_sub(struct hb *b, hv x, hv y) {
    return hb_binary(b, HLO_SUBTRACT, x, y);
}
static inline hv hb_mul(struct hb *b, hv x, hv y) {
    return hb_binary(b, HLO_MULTIPLY, x, y);
}
static inline hv hb_div(struct hb *b, hv x, hv y) {
    return hb_binary(b, HLO_DIVIDE, x, y);
}
static inline hv hb_max(struct hb *b, hv x, hv y) {
    return hb_binary(b, HLO_MAXIMUM, x, y);
}
static inline hv hb_min(struct hb *b, hv x, hv y) {
    return hb_binary(b, HLO_MINIMUM, x, y);
}
hv hb_compare(struct hb *b, hv x, hv y, enum cmp_direction d);
hv hb_select(struct hb *b, hv pred, hv on_true, hv on_false);
hv hb_clamp(struct hb *b, hv lo, hv x, hv hi); // lo, hi: scalar or x's shape
hv hb_constant(struct hb *b, struct literal *lit);
hv hb_const_f64(struct hb *b, enum dtype t, double v);   // scalar
hv hb_const_i64(struct hb *b, enum dtype t, int64_t v);  // scalar
hv hb_const_s64s(struct hb *b, const int64_t *v, int n); // s64[n]
hv hb_splat(struct hb *b, const struct shape *s,
            double v);                           // scalar constant broadcast to s (s's dtype)
hv hb_convert(struct hb *b, hv x, enum dtype t); // x itself if the dtype is the same
hv hb_reshape(struct hb *b, hv x, const int64_t *dims,
              int rank); // x itself if the dims are the same
hv hb_broadcast(struct hb *b, hv x, const int64_t *dims, int rank,
                const int64_t *map); // operand dim k -> result dim map[k]
hv hb_broadcast_numpy(struct hb *b, hv x, const int64_t *dims,
                      int rank);                // trailing alignment, 1s expand
void hb_numpy_pair(struct hb *b, hv *x, hv *y); // broadcasts both to the common numpy shape
hv hb_transpose(struct hb *b, hv x, const int64_t *perm);
hv hb_slice(struct hb *b, hv x, const struct range *r); // [rank]
hv hb_pad(struct hb *b, hv x, hv value, const struct pad_dim *p);
hv hb_concat(struct hb *b, hv const *xs, int n, int64_t dim);
hv hb_reverse(struct hb *b, hv x, const int64_t *dims, int n);
hv hb_iota(struct hb *b, const struct shape *s, int64_t dim);
hv hb_reduce(struct hb *b, hv x, hv init, const int64_t *dims, int n,
             enum hlo_op reducer); // reducer: add, multiply, maximum, minimum, and, or
hv hb_reduce_window(struct hb *b, hv x, hv init, const struct window *w, enum hlo_op reducer);
hv hb_dot(struct hb *b, hv x, hv y, const struct hlo_attr_dot *d);
// Sums over dimension xd of x and yd of y; no batch dimensions.
hv hb_dot_over(struct hb *b, hv x, hv y, int64_t xd, int64_t yd);
hv hb_matmul(struct hb *b, hv x,
             hv y); // numpy matmul semantics for ranks >= 1, batch dims broadcast
// s64 positions along `axis` of the largest (smallest) elements of x, whose type has up to 32 bits;
// of equal ones the first (last), -0 equals 0, NaN is more extreme than every number. Value and
// position are one s64, so that no value is compared with a copy of itself and none can be out of
// range:
//     key = order(x) * 2^32 + position     reduce(key, max) mod 2^32
hv hb_place_of_extreme(struct hb *b, hv x, int64_t axis, bool largest, bool last);
hv hb_conv(struct hb *b, hv x, hv k, const struct hlo_attr_conv *c);
hv hb_gather(struct hb *b, hv x, hv idx, const struct hlo_attr_gather *g);
hv hb_tuple(struct hb *b, hv const *xs, int n);
hv hb_gte(struct hb *b, hv x, int64_t index);
hv hb_call(struct hb *b, enum hlo_op op, const struct shape *shape, hv const *operands, int n,
           const void *attr, struct hlo_computation *const *called, int n_called);
struct hlo_computation *hb_reducer(struct hlo_module *m, enum hlo_op op,
                                   enum dtype t); // the computation "add_f32", made once per module
// The same for an instruction that b adds: it stands before b's computation.
struct hlo_computation *hb_reducer_for(struct hb *b, enum hlo_op op, enum dtype t);
// A new computation that stands before all others, as what others call must; the caller gives it a
// root.
struct hlo_computation *hb_callee(struct hlo_module *m, const char *name);
