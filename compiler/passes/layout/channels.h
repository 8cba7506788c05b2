// SPDX-License-Identifier: Apache-2.0
// channels: movements of whole channels of images: concatenations, slices and reversals along the
// channels, and shuffles (reshape - transpose - reshape). The pass makes one fusion of several; the
// device reads by channels_source where each channel of the result comes from.
#pragma once
#include "compiler/passes/fusion/library.h"

// True when `i` is a copy to another layout or a kLoop fusion of such movements alone, of images
// (batch, channels, one to three dims of space) whose batch and space are those of the result.
bool channels_match(const struct hlo_instr *i);
// Which operand's channel is channel `at` of the result. Linear in the body. No allocation.
void channels_source(const struct hlo_instr *i, int64_t at, int *operand, int64_t *channel);
