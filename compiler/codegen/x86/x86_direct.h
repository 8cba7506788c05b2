// SPDX-License-Identifier: Apache-2.0
// x86_direct: the second code generator: kir straight to x86-64 machine code with AVX-512 or AVX2,
// in some tens of microseconds a kernel where LLVM takes milliseconds. See docs/decisions/0017.
#pragma once
#include "base/span.h"
#include "compiler/kernel/kir.h"
#include "compiler/kernel/merge.h"

// Code of the kernel, called as abi.h says: position independent, to be placed at 64 bytes, with
// its constants behind it. vector_bits: 512 (AVX-512 F, BW, DQ, VL) or 256 (AVX2, FMA, F16C).
// has_bf16: AVX512-BF16 too; the results are the same bits.
// turns: how often one run of the program calls it, where that is known, else 1; 0: once for all
// runs.
// Empty, with *why (static text): not taken, LLVM must make it. Any thread; allocates in `a`;
// writes the kernel's `emit` fields.
struct span x86_direct(struct arena *a, const struct kir_fn *f, int64_t turns, int vector_bits,
                       bool has_bf16, const char **why);
// The same of a loop that is one function (x86_loop.c), called as hlod_loop_call does.
struct span x86_direct_loop(struct arena *a, const struct merged_loop *l, int vector_bits,
                            bool has_bf16, const char **why);
