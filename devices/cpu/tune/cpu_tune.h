// SPDX-License-Identifier: Apache-2.0
// cpu_tune: what the files of this folder share. Thread compatible; called by the device's thread.
#pragma once
#include "devices/cpu/cpu_bind.h"

// ---- cpu_tune_rule.c: what is made of times

enum { TUNE_WAYS = 8, TUNE_ROUNDS = 11, TUNE_LEAST_ROUNDS = 5 };
// Times of the ways to run a step, a round after the other: in each round every way ran once.
// Way 0 is the usual one.
struct tune_times {
    int n_ways, n_rounds;
    int64_t ns[TUNE_WAYS][TUNE_ROUNDS];
};
// Does `way` take clearly less than way 0? Its time is at most 95% of way 0's in the median of
// rounds, and less than way 0's in three rounds of four: a disturbance that lasts is in both times
// of a round, a short one is in few rounds. False for fewer than TUNE_LEAST_ROUNDS.
bool tune_wins(const struct tune_times *t, int way);
// Of the ways that win the one with the smallest median; 0: none wins.
int tune_choose(const struct tune_times *t);
int64_t tune_median(const struct tune_times *t, int way); // 0: no rounds

// ---- cpu_tune_values.c: what steps run on, and what their results may differ by

// Fills a buffer of s as it lies (blocks' padding with zeros): floats in [-1/2, 1/2], or in
// [1/2, 1) where `positive`; integers over what 8 bits hold, or small. The same each time.
void tune_fill(const struct shape *s, bool positive, void *to);
// The product or convolution of a step: itself, or what its fusion is about; NULL: neither.
const struct hlo_instr *tune_hero(const struct hlo_instr *i);
// Do a and b, heroes' steps, differ in nothing but names and values?
bool tune_alike(const struct hlo_instr *a, const struct hlo_instr *b);
// Is `other` the result of step i as `usual` is, on operands of tune_fill: two sums of the same
// terms, each within the bound of docs/precision.md, and the same operations behind them?
bool tune_same(const struct hlo_instr *i, const void *usual, const void *other);
