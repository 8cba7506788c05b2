// SPDX-License-Identifier: Apache-2.0
// weave: elements of some arrays in turn.
#pragma once
#include <stdint.h>

// Of n >= 1 arrays of `rows` elements of 1, 2, 4 or 8 bytes: element r of array k goes to place
// r n + k. They do not overlap `to`, where nothing behind the rows is written.
void cpu_weave(int64_t size, const char *const *from, int n, char *to, int64_t rows);
