// SPDX-License-Identifier: Apache-2.0
// cpu_onednn: what the two files about oneDNN share: the engine, which forms of convolutions and
// dots there are primitives for, and how their shapes are told.
#pragma once
#include <dnnl.h>

#include "compiler/passes/library.h"
#include "devices/cpu/cpu.h"

// Below this a call takes about 15 us on one thread, and waking another costs as much.
enum { ONEDNN_ALONE_FLOPS = 1000000 };

dnnl_engine_t onednn_engine(void); // after onednn_start
dnnl_stream_t onednn_stream(void);
status_t onednn_start(void) MUST_CHECK; // the first call starts the engine
status_t onednn_failed(const char *what, dnnl_status_t rc) MUST_CHECK;

bool onednn_conv_ok(const struct hlo_instr *h); // forms, not types
bool onednn_dot_ok(const struct hlo_instr *h);
void onednn_conv_dims(const struct hlo_instr *h, dnnl_dims_t stride, dnnl_dims_t dilate,
                      dnnl_dims_t low, dnnl_dims_t high);
// A kernel's dims with its groups apart, where there are any. Gives their number.
int onednn_kernel_dims(const struct hlo_instr *h, dnnl_dims_t dims);
// An operand of a dot as [batch..., rows, cols] by strides. Rows collapse into one dimension when
// they lie together.
void onednn_matrix(const struct shape *s, struct i64s batch, int64_t contract, bool contract_last,
                   dnnl_dims_t dims, dnnl_dims_t strides);
int64_t onednn_flops(const struct hlo_instr *i, const struct lib_call *c);
// Once, at PREPARE. plain may lie unaligned.
status_t onednn_reorder_once(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                             const void *plain, void *packed) MUST_CHECK;

bool cpu_int8_accepts(const struct hlo_instr *i); // cpu_onednn_int8.c
