// SPDX-License-Identifier: Apache-2.0
// profile: what a run did, step by step. Rows are written by the run thread into memory taken
// beforehand. A step of a loop's body has a row at each turn, one deeper than the loop's own, which
// comes after them and covers them.
#pragma once
#include <stdint.h>
struct hlo_instr;
struct profile_row {
    const char *name; // instruction; borrowed from the executable
    const char *op;   // source op and node, or the opcode; borrowed
    const char *impl; // "onednn:jit:avx512_core", "kernel", "reference"; static or the executable's
    int64_t start_ns, ns, flops, bytes; // start: from the start of the run
    const struct hlo_instr *instr;      // NULL where a row is no instruction
    int32_t depth;                      // 0 = a step of main
};
struct profile {
    struct profile_row *rows;
    int32_t n, cap;
    int64_t zero_ns; // clock at the start of the run; the device's
    int32_t depth;   // of the rows to come; the device's
}; // rows beyond cap are not kept
