// SPDX-License-Identifier: Apache-2.0
// wgsl: kernels as WGSL, for WebGPU: the back end "wgsl" (kernel_set.object is the text of all),
// the target whose kernels it can say, and one kernel as text for packages (compiler/web), which
// keep what WGSL lacks in WebAssembly. Thread: any.
//
// All memory is one array of words; a kernel has, in group 0,
//     binding 0  m: array<u32>               memory
//     binding 1  s: array<u32>               scratch
//     binding 2  p: array<vec4<u32>, 16>     what this dispatch is about:
//                p[0] = first unit, end of units, 0, 0
//                p[1 + k / 4][k % 4]         the word at which buffer k begins
// where the buffers are those of the kernel, then its tables. Invocation i of a dispatch, whose
// workgroups (of 64, in x and y) follow one another, computes unit first + i, where that is below
// the end, and has WORDS of scratch from word i * WORDS on.
#pragma once
#include "compiler/kernel/kir.h"
#include "compiler/target.h"

enum { WGSL_MAX_BUFFERS = 60, WGSL_GROUP = 64, WGSL_WORK_OF_FEW = 4 << 20 };
// Lives for ever. 32-bit integers and f32; other types are read only, 64-bit ones not at all.
const struct target *wgsl_target(void);
// What stands before kernels: declarations and functions.
const char *wgsl_prologue(void);
// A kernel, appended: "@compute ... fn NAME(...)". UNIMPLEMENTED: what the language lacks.
status_t wgsl_kernel(struct strbuf *b, const struct kir_fn *f, const char *name) MUST_CHECK;
// Few units that each do much would hold the whole GPU up, until a watchdog ends them.
bool wgsl_too_narrow(const struct kir_fn *f);
