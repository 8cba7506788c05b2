// SPDX-License-Identifier: Apache-2.0
// opencl: the back end "opencl", kernels as OpenCL C 1.2 (kernel_set.object is the text), and the
// targets that take it. A compile needs no OpenCL. Thread: any.
//
// A kernel SYMBOL has the parameters
//     for each buffer: __global uchar *, ulong  its first byte is so many behind
//     for each size of a shared body: long
//     ulong extent                              units
// and, where the kernel keeps values in scratch,
//     ulong per                                 units of a work item, in turn
//     __global uchar *, ulong                   scratch: so many bytes for each work item
// Work item g of dimension 0 computes units [g * per, (g + 1) * per) below extent; without scratch
// per is 1. Work groups may have any size.
#pragma once
#include "compiler/target.h"

enum opencl_feature {
    OPENCL_F64 = 1, // cl_khr_fp64
    OPENCL_FMA = 2, // CL_FP_FMA: rounds once, in the machine
    OPENCL_CPU = 4, // a CPU: work items are few and each is a vector machine
    OPENCL_TILES = 8, // for tests: TILES_OF_GPU_ALWAYS; not with OPENCL_CPU
    OPENCL_FEATURES = 12
};
// Bytes of a kernel's parameters that every device takes (CL_DEVICE_MAX_PARAMETER_SIZE).
enum { OPENCL_PARAMETER_BYTES = 1024, OPENCL_MAX_SIZES = 32, OPENCL_MAX_BUFFERS = 44 };
// features: enum opencl_feature, joined. Lives for ever.
const struct target *opencl_target(unsigned features);
// By id; "opencl" has f64 and fma, "opencl-cpu" these on a CPU. NULL: none is called so.
const struct target *opencl_target_named(const char *name);
