// SPDX-License-Identifier: Apache-2.0
// trees_bits: sums over small trees, several rows at once (cpu_trees_bits.c). Thread: a block may
// run on any thread of a region, with that thread's number.
#pragma once
#include "compiler/calls/trees.h"
#include "devices/cpu/cpu.h"

struct trees_bits;
// NULL when these trees are not such. Lies in a and borrows nothing of t.
struct trees_bits *trees_bits_new(struct arena *a, struct arena *scratch, const struct trees *t);
int64_t trees_bits_lanes(const struct trees_bits *b); // rows of a block
int64_t trees_bits_ns(const struct trees_bits *b);    // that a block takes, about
// scores [rows, targets] of x [rows, features], 1 to lanes rows.
void trees_bits_block(const struct trees_bits *b, const void *x, int64_t features, int64_t rows,
                      void *scores, int thread);
