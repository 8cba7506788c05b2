// SPDX-License-Identifier: Apache-2.0
// text: evaluation of the custom-calls that look inside texts, by the run's table
// (compiler/texts.h). Elements of text are s32 places. Shapes are checked here: the calls may come
// from anyone's HLO.
//   hlod.text.concat     (x, y of one shape) -> the texts one behind the other
//   hlod.text.normalize  (x[n], stop[k], flags s32[]) -> (kept s32[max(n, 1)], how many s64[])
//                        flags: 1 lower, 2 upper, 4 stop words in any case; none kept: one empty
//                        text
//   hlod.text.split      (x, delimiter s32[], most s64[]) -> (parts s32[x..., bound], how many of
//                        each s64[x], of the longest s64[]); delimiter "" = white space; most -1 =
//                        no limit. OUT_OF_RANGE when a text has more parts than the bound.
//   hlod.text.match      (x, pattern s32[]) -> pred of x's shape: whole texts, text_match.h
//   hlod.text.parse      (x) -> numbers of the result's type; INVALID_ARGUMENT names the first text
//                        that is none
//   hlod.text.hash       (x, seed u32[]) -> u32 of x's shape: MurmurHash3_x86_32 of its bytes
//   hlod.text.print      (numbers) -> their shortest decimal texts that read back the same
#pragma once
#include "compiler/eval.h"

#define TEXT_CALLS(X)                                                                              \
    X(concat)                                                                                      \
    X(normalize)                                                                                   \
    X(split)                                                                                       \
    X(match)                                                                                       \
    X(parse)                                                                                       \
    X(hash)                                                                                        \
    X(print)
#define TEXT_DECLARE(name)                                                                         \
    status_t hlo_text_##name(struct hlo_eval *ev, const struct hlo_instr *i,                       \
                             struct literal *const *in, struct literal **out) MUST_CHECK;
TEXT_CALLS(TEXT_DECLARE)
#undef TEXT_DECLARE
enum { TEXT_LOWER = 1, TEXT_UPPER = 2, TEXT_ANY_CASE = 4 };
