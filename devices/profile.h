// SPDX-License-Identifier: Apache-2.0
// profile: what a run did, step by step. Rows are written by the run thread into memory taken
// beforehand.
#pragma once
#include <stdint.h>
struct profile_row {
    const char *name; // instruction; borrowed from the executable
    const char *op;   // source op and node, or the opcode; borrowed
    const char *impl; // "onednn:jit:avx512_core", "kernel", "reference"; static or the executable's
    int64_t start_ns, ns, flops, bytes;
};
struct profile {
    struct profile_row *rows;
    int32_t n, cap;
}; // rows beyond cap are not kept
