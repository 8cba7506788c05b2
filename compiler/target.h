// SPDX-License-Identifier: Apache-2.0
// target: what the compiler must know of a device without knowing the device. Filled in by devices/
// (or from a text description) and passed to hlo_compile. `id` is canonical text over everything
// here that changes the code: it is part of the cache key.
#pragma once
#include "compiler/ir/module.h"

// What a target's own compiler made of a module. Sizes are bytes of device memory; 0 = it does not
// say. Its estimate of the time is not asked for: it was seen negative (docs/decisions/0012).
struct emitted {
    struct span code;      // what the device loads
    struct span optimized; // HloProto of its optimised module; may be empty
    int64_t code_bytes, argument_bytes, output_bytes, alias_bytes, temp_bytes, peak_bytes;
};

// How the library likes an NCHW value to lie.
enum conv_form {
    FORM_ROWS,    // row-major
    FORM_BLOCKED, // T(conv_block,1,1) over it
    FORM_LAST,    // channels last: {1,3,2,0}
    FORM_OTHER    // none of these
};

// Whose row of lower_tile.c's table the tiles of contractions are scheduled by.
// _ALWAYS: for tests, however few units are left. TILES_OF_DRAWS: sums are a kernel of their own
// (kir_fn.sums), which the kernel reads, because units write nothing but their own place.
enum tile_schedule {
    TILES_OF_CPU,
    TILES_OF_WASM,
    TILES_OF_GPU,
    TILES_OF_GPU_ALWAYS,
    TILES_OF_DRAWS,
    TILES_OF_DRAWS_ALWAYS
};
// What the kernels of a target may be made of: a back end says what it lacks, and the lowering
// obeys or refuses by name (compiler/kernel/policy.h).
struct kernel_policy {
    int64_t units; // parallel units that a kernel should have, if its result has so many parts
    bool elements; // instead: a unit is one element, and no value is kept from one to the next
    bool rows;     // but where a fusion keeps the values of a row: `units`, values in scratch
    bool tiled;    // and contractions are units of `tiles`, with vectors; TILES_OF_GPU: of few sums
    int max_buffers, max_results; // of a kernel; 0 = any number
    bool has_f64, has_s64;        // values of these types; without, indices stay below 2^31
    bool has_fma;     // one rounding; without, products that fuse are rounded before the sum
    bool has_libm;    // functions of libm.def
    bool has_scratch; // memory of a unit's own
    enum tile_schedule tiles;
};

struct lib_call; // compiler/passes/fusion/library.h
enum precision {
    PRECISION_DEFAULT,
    PRECISION_STRICT, // no Winograd, no reassociation beyond sums, no fusing of products with sums
                      // outside of reductions, no function with an error above 2.5 ULP
                      // (kernel/README.md)
    PRECISION_FAST,   // convolutions and dots of f32 read bf16 and sum in f32, where the target has
                      // library_bf16
};
struct target {
    const char *id;      // "cpu:x86-64:avx512f+avx512vl+...:block16:cost1"
    const char *kind;    // "cpu", "sim", "web", "tpu", "gpu"
    const char *backend; // that makes its kernels, of codegen/backends.def; NULL = "llvm"
    const struct kernel_policy *policy;                 // NULL = a CPU's, which lacks nothing
    const char *llvm_triple, *llvm_cpu, *llvm_features; // "" = host's
    int vector_bits;                                    // 512, 256, 128
    bool direct; // x86-64 with AVX-512 (F, BW, DQ, VL) or AVX2 (FMA, F16C): kernels without LLVM
    bool direct_bf16;  // and AVX512-BF16
    bool direct_loops; // all loops that are one function which can be, not only where that is as
                       // quick: for tests
    bool merged;       // the kernels of a loop that is one function, and run on one thread
                       // (kernel/merge.c)
    int conv_block;    // channel block of library layouts: 16, 8, or 0 = no blocked layouts
    int threads;       // compute threads the code is made for
    // Kernels that do fewer operations are compiled with little or less effort: their run takes
    // less than what more would save (kir_work); 0 = all with full effort.
    int64_t little_work, less_work;
    bool runs_once;              // a program that runs once for all of the others' runs: prepare
    int64_t min_kernel_elements; // results with fewer are not worth a kernel; 0 = all are
    bool expands_calls;     // it has no code for calls of ours (compiler/calls), nor a fallback
    bool evaluates_prepare; // prepare runs in the reference evaluator: no kernels for it
    // Would the device's library run this (a convolution, a dot, or a kOutput fusion around one)?
    // Pure, same answer every time. NULL = no library.
    bool (*library_accepts)(const struct target *t, const struct hlo_instr *i);
    // Would a routine of the device that needs no kernel run it, where it is a step of its own?
    // Then none is made. Pure, same answer every time. NULL = none would.
    bool (*routine_runs)(const struct target *t, const struct hlo_instr *i);
    // Would it run a contraction with these steps behind it in a kernel made for speed? Asked while
    // the steps are not fused yet. NULL = always.
    bool (*library_runs)(const struct target *t, const struct lib_call *call);
    bool library_channels;  // it runs compiler/passes/layout/channels.h's fusions of 32-bit values
    bool library_dim_maps;  // it runs compiler/passes/fusion/dim_maps.h's fusions
    bool library_attention; // it runs compiler/passes/fusion/attention.h's calls
    bool library_bf16;      // it multiplies bf16 with bf16, summing in f32, faster than f32
    bool library_odd;       // and keeps NaN in its place where convolutions' channels are odd
    bool bf16_emulated;     // it does not, and is to give the values of one that does: for tests
    bool few_bits;          // it runs compiler/calls/bits.h's products of any number of rows
    bool few_bits_x8;       // and those of .x8 in 8 bits
    bool library_int8;      // it multiplies s8 or u8 with s8, summing exactly in s32
    bool kernel_pairs;      // no library; but kernels have sums of two products of s16 (K_PAIRS)
    // In which form does the library want this convolution's input and output (3 input channels may
    // stay as they are)? False: it takes them row-major only.
    bool (*wants_form)(const struct target *t, const struct hlo_instr *conv,
                       enum conv_form *out_input, enum conv_form *out_output);
    // A target with a compiler of its own (a PJRT plugin): passes stop where targets begin to
    // differ, and the module becomes *out, bytes in `a`, instead of kernels. What contractions may
    // round is in the module already (operand_precision). NULL = kernels.
    status_t (*emit)(const struct target *t, struct arena *a, const struct hlo_module *m,
                     int replicas, enum precision precision, struct emitted *out);
    int max_replicas;     // devices that one executable may run on together; 0 = 1
    int64_t memory_bytes; // of one device, where it is known without one; 0 = not known
};
