// SPDX-License-Identifier: Apache-2.0
// float8: the 8-bit floats of HLO as numbers (ml_dtypes' formats): every code's value, and the code
// nearest to a number, ties to even. Thread: any.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct float8;                                      // a format
const struct float8 *float8_find(const char *name); // "f8e4m3fn", ...; NULL if unknown
float float8_value(const struct float8 *f, uint8_t code);
// False: the number is finite and larger than the largest, or infinite and there is no infinity.
bool float8_code(const struct float8 *f, double v, uint8_t *out);
