// SPDX-License-Identifier: Apache-2.0
// library: reads a convolution or dot, alone or as the hero of a kOutput fusion, as one library
// call: hero, operands, and a chain of post-operations. The epilogue pass grows fusions with
// lib_step, the CPU device builds primitives from lib_match, which walks the same steps: so the two
// cannot disagree. It only reads HLO; it knows no library.
#pragma once
#include "compiler/ir/ir.h"
#include "compiler/target.h"

enum lib_post_kind {
    LIB_POST_BIAS, // + operand, one value per output channel (conv: feature dim; dot: last dim of
                   // the result)
    LIB_POST_SUM,  // + operand of the result's shape, of f32 or bf16
    LIB_POST_RELU, // max(x, 0)
    LIB_POST_CLIP, // clamp(alpha, x, beta)
    LIB_POST_LOGISTIC,
    LIB_POST_TANH,
    LIB_POST_SCALE,    // * alpha
    LIB_POST_GELU_ERF, // 0.5*x*(1+erf(x/sqrt 2)) (Hendrycks & Gimpel, "Gaussian Error Linear
                       // Units", 2016)
    LIB_POST_SWISH,    // x*logistic(x)
    LIB_POST_BF16,     // as bf16, behind a product of bf16; the last
    // Behind a product of 8-bit integers, which gives s32:
    LIB_POST_BIAS_S32,      // as BIAS, before the conversion
    LIB_POST_TO_F32,        // the conversion
    LIB_POST_CHANNEL_SCALE, // * operand, one value per output channel or one for all; right behind
                            // the conversion
    LIB_POST_QUANTISE,      // saturated round(x / alpha) + beta as the result's 8-bit type
};
enum { LIB_MAX_POST = 8, LIB_MAX_STEP = 16 };
struct lib_post {
    enum lib_post_kind kind;
    float alpha, beta;
    const struct hlo_instr *operand; // BIAS: the vector; SUM: the tensor; else NULL
};
// One step behind value `from`: the instructions it covers, the last of which is the new value.
// False when nothing known follows. Every user of `from` is covered.
struct lib_step {
    struct lib_post post;
    struct hlo_instr *covers[LIB_MAX_STEP];
    int n;
};
bool lib_step(const struct hlo_instr *hero, const struct hlo_instr *from, struct lib_step *out);
// Does a call with these steps refuse `p` because it has one of the kind? One sum: the library adds
// into its destination. One scale and one clip: oneDNN 2.6 applies the first one's numbers twice.
bool lib_post_taken(const struct lib_post *posts, int n, const struct lib_post *p);

struct lib_call {
    const struct hlo_instr *instr, *hero;
    const struct hlo_instr *lhs, *rhs; // of the hero: in a fusion its parameters
    const struct shape *result;
    struct lib_post post[LIB_MAX_POST];
    int n_post;
};
// True when `i` (convolution, dot, or kOutput fusion with one of them as hero) is one library call
// in this sense; fills *out. No allocation.
bool lib_match(const struct hlo_instr *i, struct lib_call *out);
// Do the free dims of a dot's operand (neither batch nor contracted) lie together, so that they are
// one dim of rows at one stride? Dims of size 1 lie anywhere.
bool lib_rows_together(const struct shape *s, struct i64s batch, struct i64s contract);
// Are the matrices of a dot's operand rows or columns in memory, so that the dim whose elements lie
// side by side is not the batch's? Libraries read others one element after another.
bool lib_rows_or_columns(const struct shape *s, struct i64s batch);
// True when `i` is a pooling over the inner dims of an image (two or three) that the library can
// do: a maximum, or a sum of f32 over more than four elements.
bool lib_pool(const struct hlo_instr *i);
// True when `i` looks each byte of its second operand up in a table of 256 bytes (tables.c).
bool lib_table(const struct hlo_instr *i);
// The layout that a form is for a value of this rank (3 to 5: batch, channels, space); NULL = rows.
const struct layout *lib_layout(enum conv_form form, int rank, int block);
// The form of a layout; FORM_OTHER for what is none of them. Blocked: its block.
enum conv_form lib_form_of(const struct layout *l, int rank, int *block);
// True when convolution `i` is the gradient of a strided one's input (a transposed convolution) as
// libraries have primitives for it: the input dilated, and the strided one's kernel as that has it,
// [O, I, taps], read as i's dim_labels io01 with all of the window reversed. No groups.
bool lib_transposed(const struct hlo_instr *i);
// True when convolution `i` has so few terms that a kernel of ours, which writes them out and takes
// in what follows, beats the library: depthwise ones of one dimension, 1x1 of small groups, those
// to one feature (stencils: of a library's block of channels seven in eight would be empty). In the
// form of conv-canon.
bool lib_direct(const struct hlo_instr *i);
// Does hero `i` ask for the sums as they are written (operand_precision of highest)? Then
// Winograd's tiles, which err by more, do not take it.
bool lib_sums_as_written(const struct hlo_instr *i);
// Does hero `i` of f32 ask for operands rounded to bf16 and sums in f32? XLA's algorithm of a dot;
// of a convolution, for which XLA reads no algorithm, the same as a frontend attribute.
#define LIB_BF16 "dot_bf16_bf16_f32"
bool lib_reads_bf16(const struct hlo_instr *i);
bool lib_was_bf16(const struct hlo_instr *x); // is x a value of bf16, widened?
// Is convolution `i` such a one, or of types that no library has? Its padding is a value of its
// own, so that the kernel reads rows from front to end.
bool lib_of_ours(const struct hlo_instr *i);
// A convolution of f32 without groups over x, whose dimension `feature` is channels, with this
// window along its last dimension: is its padding better in front, as a value of its own? The
// library's kernels for few channels keep a row of results in registers and take no padding that
// reaches over it; what it has instead runs up to sixteen times as long.
bool lib_reaches_far(const struct shape *x, int64_t feature, const struct window_dim *last);
// Does concatenation i, in a fusion or not, join parts of short rows (a rotation, as jnp.roll
// writes it), which a routine copies from where they lie sooner than a kernel looks for each
// element?
bool lib_joins_rows(const struct hlo_instr *i);
// Index of x (an operand of i, or a parameter of the fusion i) among i's operands; -1 if it is
// neither.
int lib_operand(const struct hlo_instr *i, const struct hlo_instr *x);
// The steps of `c` and, for each, the index of what it reads among the operands of c->instr; -1 =
// nothing. Both of LIB_MAX_POST.
void lib_copy_posts(const struct lib_call *c, struct lib_post *post, int *leaf);
