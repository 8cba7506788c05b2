// SPDX-License-Identifier: Apache-2.0
// random: what the evaluator and the kernel of rng-bit-generator have in common. Constants of
// ThreeFry-2x32 and Philox-4x32 after Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3"
// (2011).
#pragma once
#include "compiler/ir/shape.h"

#define RNG_SKEIN_PARITY 0x1BD11BDAu
#define RNG_PHILOX_M0    0xD2511F53u
#define RNG_PHILOX_M1    0xCD9E8D57u
#define RNG_PHILOX_W0    0x9E3779B9u
#define RNG_PHILOX_W1    0xBB67AE85u
// rng draws from splitmix64 (Steele et al., "Fast Splittable Pseudorandom Number Generators",
// 2014): the state moves on by RNG_STEP a draw.
#define RNG_STEP  0x9E3779B97F4A7C15u
#define RNG_MIX_0 0xBF58476D1CE4E5B9u
#define RNG_MIX_1 0x94D049BB133111EBu
static const uint32_t rng_threefry_rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};

// 32-bit ThreeFry: the first even dimension (or else the longest) is split into (half, 2); the two
// words of a block go to the two positions. Returns that dimension, -1 for a scalar, which takes
// the first word; half[rank]: the dimensions over which blocks are counted.
int random_threefry_split(const struct shape *s, int64_t *half);
