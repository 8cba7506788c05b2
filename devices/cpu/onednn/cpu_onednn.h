// SPDX-License-Identifier: Apache-2.0
// cpu_onednn: what the files about oneDNN share: the engine, which forms of convolutions and
// dots there are primitives for, and how their shapes are told.
#pragma once
#include <dnnl.h>

#include "compiler/passes/fusion/library.h"
#include "devices/cpu/cpu.h"

// Below this a call takes about 15 us on one thread, and waking another costs as much.
enum { ONEDNN_ALONE_FLOPS = 1000000 };

dnnl_engine_t onednn_engine(void); // after onednn_start
dnnl_stream_t onednn_stream(void);
status_t onednn_start(void) MUST_CHECK; // the first call starts the engine
status_t onednn_failed(const char *what, dnnl_status_t rc) MUST_CHECK;
status_t onednn_reorder_desc(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                             dnnl_primitive_desc_t *pd) MUST_CHECK; // the caller's to destroy
// Once, at PREPARE, of memory aligned to its elements.
status_t onednn_reorder_once(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                             const void *plain, void *packed) MUST_CHECK;
void onednn_packed(void); // frees what onednn_pack keeps for its thread's unaligned weights

bool onednn_conv_ok(const struct hlo_instr *h); // forms, not types (cpu_onednn_conv.c)
bool onednn_dot_ok(const struct hlo_instr *h);  // the same of a dot (cpu_onednn_call.c)
// An operand of a dot as [batch..., rows, cols] by strides. Rows collapse into one dimension when
// they lie together.
void onednn_matrix(const struct shape *s, struct i64s batch, int64_t contract, bool contract_last,
                   dnnl_dims_t dims, dnnl_dims_t strides);
// Both operands of a dot so, and its result, row-major: n dims each, the batch's first.
struct onednn_dot {
    int n;
    dnnl_dims_t left, left_strides, right, right_strides, out, out_strides;
};
void onednn_dot_dims(const struct hlo_instr *h, struct onednn_dot *out);
dnnl_data_type_t onednn_type(const struct shape *s); // f32 or bf16
dnnl_format_tag_t onednn_rows(int rank);             // row-major, rank 1 to 6
// One value per channel, as a result of n dims sees it: dims of 1 but for the channel's.
dnnl_status_t onednn_channel_desc(const struct lib_call *c, int n, const struct shape *v,
                                  dnnl_data_type_t t, dnnl_memory_desc_t *out);
// A function of one element as a post-operation.
dnnl_status_t onednn_add_function(dnnl_post_ops_t ops, const struct lib_post *p);
// The right operand's two forms, first in the state of a step that packs it, and what a row of the
// implementation list says of them.
struct onednn_packing {
    dnnl_memory_desc_t user, packed; // as the program has it, as the primitive wants it
};
int64_t onednn_pack_bytes(const struct cpu_step *s);
status_t onednn_pack(struct cpu_exe *x, struct cpu_step *s, const void *plain, void *packed);
bool onednn_same_pack(const struct cpu_step *a, const struct cpu_step *b);
// The primitive of a change of form: *out is the caller's to destroy.
status_t onednn_reorder_prim(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                             dnnl_primitive_t *out) MUST_CHECK;

// ---- a convolution (cpu_onednn_conv.c)

// A convolution in one dimension whose dilation, pads and length have a factor f in common is one
// in two with its taps in the first: positions [W] as [W/f, f]. Gives f; 1: as it is.
int64_t onednn_fold(const struct hlo_instr *h);
// An image's dims, folded so. Gives their number.
int onednn_fold_dims(const struct shape *s, int64_t fold, dnnl_dims_t dims);
void onednn_conv_dims(const struct hlo_instr *h, dnnl_dims_t stride, dnnl_dims_t dilate,
                      dnnl_dims_t low, dnnl_dims_t high); // folded
// A kernel's dims, folded, with its groups apart, where there are any. Gives their number.
int onednn_kernel_dims(const struct hlo_instr *h, dnnl_dims_t dims);
// The implementation that is to run it, not by tiles where told so: *out is the caller's to
// destroy.
dnnl_status_t onednn_conv_choose(const dnnl_convolution_desc_t *d, const_dnnl_primitive_attr_t attr,
                                 bool no_tiles, dnnl_primitive_desc_t *out);
// Does this implementation multiply what lies beside a window by zero? Then NaN or an infinity
// there is in the result of another place. EVEN: others of the library do not.
enum onednn_beside { BESIDE_NOT, BESIDE_EVEN, BESIDE_ODD };
enum onednn_beside onednn_reads_beside(const struct hlo_instr *h, const char *info);

// ---- a call of f32 as a primitive (cpu_onednn_call.c)

// l: a form of library.h; fold: onednn_fold, 1 for what is no convolution's image.
dnnl_status_t onednn_desc_of(const struct shape *s, const struct layout *l, int64_t fold,
                             dnnl_memory_desc_t *out);
struct onednn_ask {
    const struct layout *in, *out;     // of a convolution's input and result; a dot's are rows
    bool bound;                        // the right operand may be packed
    bool no_tiles;                     // of AMX
    const dnnl_memory_desc_t *weights; // the packed form that it has; NULL: as the library likes
};
struct onednn_prim {
    dnnl_primitive_desc_t pd; // the caller's to destroy; NULL after an error
    const char *info;         // the implementation that the library chose; static text
    bool has_bias;            // the first step is an argument of the primitive
    dnnl_memory_desc_t src, user, dst, bias; // user: the right operand as the program has it
};
status_t onednn_prim_of(const struct lib_call *c, const struct onednn_ask *q,
                        struct onednn_prim *out) MUST_CHECK;
// The implementation behind a descriptor, static text; empty: the library does not say.
bool onednn_by_tiles(const char *info); // is it one of AMX?
const char *onednn_info(const_dnnl_primitive_desc_t pd);
bool onednn_is_reference(const char *info);
// Is the chosen implementation one made for speed, and right about the call's steps?
bool onednn_fast(const struct lib_call *c, const struct onednn_prim *p);
// Would a kernel made for speed run this call in these forms? Same answer every time. Calls of
// integers have the forms they like: NULL.
enum onednn_answer { ONEDNN_NOT, ONEDNN_RUNS, ONEDNN_TILES }; // TILES: by AMX
enum onednn_answer onednn_asked(const struct lib_call *c, const struct layout *in,
                                const struct layout *out);
bool onednn_runs(const struct lib_call *c, const struct layout *in, const struct layout *out);
int onednn_first_post(const struct lib_call *c); // first step that is a post-operation: 0 or 1
bool onednn_adds_in_place(const struct lib_call *c, int k); // step k adds into the destination
// The tensor that post-operation k reads; false when it reads none.
bool onednn_post_desc(const struct lib_call *c, int k, const dnnl_memory_desc_t *result,
                      dnnl_memory_desc_t *out);
// The first step that loses a NaN (the library's maxima and minima do); c->n_post: none.
int onednn_swallows(const struct lib_call *c, const char *detail); // a step's
// The steps of `c` from number `from` on, on the result as the call left it, NaN kept: one element
// after another. i: the instruction; bufs: its operand leaves, then its result.
void onednn_steps(const struct lib_call *c, int from, const struct hlo_instr *i, void **bufs);
// c NULL: no post-operations.
status_t onednn_make_attr(const struct lib_call *c, const dnnl_memory_desc_t *result,
                          dnnl_primitive_attr_t *out) MUST_CHECK;
int64_t onednn_flops(const struct hlo_instr *i, const struct lib_call *c);

bool cpu_int8_accepts(const struct hlo_instr *i); // cpu_onednn_int8.c
// Has the library a kernel for such a call that is not its reference?
bool cpu_int8_runs(const struct lib_call *call);
bool cpu_int8_asked(const struct lib_call *call); // the same, of the library itself
