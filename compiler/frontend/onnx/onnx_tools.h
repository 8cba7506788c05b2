// SPDX-License-Identifier: Apache-2.0
// onnx_tools: formulas that several operator families share. All build through c->b, whose errors
// are sticky; none needs its result checked. Axes are valid and non-negative here (axis_of).
#pragma once
#include <string.h>
#include <strings.h>

#include "compiler/frontend/onnx/onnx_lower.h"

hv onnx_add_k(struct onnx_ctx *c, hv x, double k); // x + k
hv onnx_mul_k(struct onnx_ctx *c, hv x, double k); // x * k
hv onnx_compare_k(struct onnx_ctx *c, hv x, double k, enum cmp_direction d);
hv onnx_scalar_in(struct onnx_ctx *c, size_t k); // input k, which has one element, as a scalar
hv onnx_spread(struct onnx_ctx *c, hv scalar,
               const struct shape *like); // a scalar over like's dims
hv onnx_along(struct onnx_ctx *c, hv vector, const struct shape *like, int64_t axis);
hv onnx_index_along(struct onnx_ctx *c, const struct shape *like, enum dtype t,
                    int64_t axis); // iota
hv onnx_lit_f64s(struct onnx_ctx *c, enum dtype t, const double *v, const int64_t *dims, int rank);
hv onnx_lit_f32s(struct onnx_ctx *c, const float *v, const int64_t *dims, int rank);
hv onnx_lit_s64s(struct onnx_ctx *c, const int64_t *v, const int64_t *dims, int rank);
hv onnx_part(struct onnx_ctx *c, hv x, int64_t axis, int64_t from, int64_t to); // slice of one axis
hv onnx_row(struct onnx_ctx *c, hv x, int64_t axis, int64_t k); // part without the axis
hv onnx_add_axis(struct onnx_ctx *c, hv x, int64_t axis);       // a dimension of 1
hv onnx_swap_axes(struct onnx_ctx *c, hv x, int64_t p, int64_t q);
hv onnx_pad_axis(struct onnx_ctx *c, hv x, int64_t axis, int64_t low, int64_t high, double value);
hv onnx_wrapped(struct onnx_ctx *c, hv idx, int64_t size); // negative indices count from the end
// x[..., idx, ...] along an axis (idx within bounds); the result has idx's dims in place of the
// axis.
hv onnx_take(struct onnx_ctx *c, hv x, hv idx, int64_t axis);
// The elements of x at positions idx[..., n]: component j indexes dimension j of the first n; the
// dimensions behind them are taken whole. No component is negative; what is out of bounds clamps.
hv onnx_take_points(struct onnx_ctx *c, hv x, hv idx, int n);
// x with upd put (op HLO_COPY) or combined (add, multiply, maximum, minimum) at idx[..., n].
hv onnx_put_points(struct onnx_ctx *c, hv x, hv idx, int n, hv upd, enum hlo_op op);
// Index vectors [dims(idx)..., rank]: idx along `axis`, the position itself along the others.
hv onnx_element_points(struct onnx_ctx *c, hv idx, int64_t axis);
// x[.., idx[p], ..] along the axis for each position p of idx, and x with upd put there. Index and
// data side by side in all other dimensions where those agree, else by element_points.
hv onnx_take_elements(struct onnx_ctx *c, hv x, hv idx, int64_t axis);
hv onnx_put_elements(struct onnx_ctx *c, hv x, hv idx, int64_t axis, hv upd, enum hlo_op op);
hv onnx_stack_last(struct onnx_ctx *c, hv const *xs, int n); // [...] each -> [..., n]
// x [b, kv, m, p] times y [b, kv, n, p] over p, or [b, kv, p, n] over p when !transposed.
hv onnx_batch_dot(struct onnx_ctx *c, hv x, hv y, bool transposed);
// The sum of y and of input k, if there is one, along dimension dim.
hv onnx_add_along(struct onnx_ctx *c, hv y, size_t k, int64_t dim);
// exp(x) / sum(exp(x)) over the axes, after a shift by the maximum.
hv onnx_softmax_over(struct onnx_ctx *c, hv x, const int64_t *axes, int n);
hv onnx_mean_of(struct onnx_ctx *c, hv x, const int64_t *axes, int n, bool keep);
hv onnx_and(struct onnx_ctx *c, hv x, hv y);
hv onnx_within(struct onnx_ctx *c, hv x, double lo, double hi);                     // lo <= x <= hi
size_t onnx_at_floats(const struct onnx_ctx *c, const char *name, const float **v); // how many
// Is it this word, in letters of any case? Where ONNX Runtime does not look at it either.
static inline bool onnx_says(struct str s, const char *word) {
    return s.n == strlen(word) && strncasecmp(s.p, word, s.n) == 0;
}
enum dtype onnx_attr_dtype(struct onnx_ctx *c, const char *name, enum dtype def);
// onnx_extreme.c: s64 positions of the largest (smallest) elements along an axis, of equal ones the
// first (last); always within the axis, which must not be empty.
hv onnx_place_of_extreme(struct onnx_ctx *c, hv x, int64_t axis, bool largest, bool last,
                         bool keep);
// Into an 8-bit float, what is out of range becomes the largest finite value if asked.
hv onnx_saturating_convert(struct onnx_ctx *c, hv x, enum dtype t, bool saturate);
hv onnx_gelu(struct onnx_ctx *c, hv x, bool tanh); // onnx_math.c; tanh: by its approximation
// onnx_nn.c: the convolution of a node with the attributes of Conv.
hv onnx_convolve(struct onnx_ctx *c, hv x, hv w);
hv onnx_fused(struct onnx_ctx *c, hv x); // by com.microsoft's attributes activation...
// onnx_ml.c: what the classifiers and regressors of ai.onnx.ml share.
hv onnx_ml_post_transform(struct onnx_ctx *c, hv x, struct str how);
hv onnx_ml_post_targets(struct onnx_ctx *c, hv y, struct str how);
const struct onnx_attr *onnx_ml_labels(struct onnx_ctx *c, const char *ints, const char *texts);
// The labels at places pos [n] as result 0.
void onnx_ml_label_at(struct onnx_ctx *c, hv pos, const struct onnx_attr *labels);
// The label with the largest score [n, classes], the first of equals, as result 0.
void onnx_ml_label(struct onnx_ctx *c, hv scores, const struct onnx_attr *labels);
// That, and the scores as result 1.
void onnx_ml_classify(struct onnx_ctx *c, hv scores, const struct onnx_attr *labels,
                      struct str post);
// The scores of both classes from one, [n, 1]; chance: they add up to 1.
hv onnx_ml_two_scores(struct onnx_ctx *c, hv score, bool chance, struct str post);
// Both results; the second label where the score is above the limit.
void onnx_ml_classify_two(struct onnx_ctx *c, hv score, const struct onnx_attr *labels,
                          double limit, bool chance, struct str post);
// Result k of the node, set by the function of another operator that was called to make it.
hv onnx_result(struct onnx_ctx *c, size_t k);
// fn sees v in the place of input k.
void onnx_with_input(struct onnx_ctx *c, size_t k, hv v, onnx_fn fn);
// fn sees input 0 [N, spatial..., C] as [N, C, spatial...]; result 0 is turned back.
void onnx_channels_first(struct onnx_ctx *c, onnx_fn fn);
// step moves v (entries may be NULL and stay so) n times, given the turn's number as s64: an HLO
// while; n < 0: as often as v[0], an s64, says. step sees v as values of the loop's body and
// nothing else of outside but constants.
typedef void (*repeat_fn)(struct onnx_ctx *c, hv i, hv *v, void *user);
void onnx_loop_times(struct onnx_ctx *c, int64_t n, hv *v, int nv, repeat_fn step, void *user);
// The functions of RNN cells and of operators of the same name.
hv onnx_activate(struct onnx_ctx *c, struct str name, hv x, double alpha, double beta);
// onnx_inverse.c: determinants of m [batch, n, n], [batch]; batch and n above 0.
hv onnx_det_by_lu(struct onnx_ctx *c, hv m);
