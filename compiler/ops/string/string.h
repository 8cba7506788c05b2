// SPDX-License-Identifier: Apache-2.0
// string: evaluation of the custom-calls that look inside strings, by the run's table
// (compiler/strings.h). Elements of a string tensor are s32 places. Shapes are checked here: the
// calls may come from anyone's HLO.
//   hlod.text.concat     (x, y of one shape) -> the strings one behind the other
//   hlod.text.normalize  (x[n], stop[k], flags s32[]) -> (kept s32[max(n, 1)], how many s64[])
//                        flags: 1 lower, 2 upper, 4 stop words in any case; none kept: one empty
//                        string
//   hlod.text.split      (x, delimiter s32[], most s64[]) -> (parts s32[x..., bound], how many of
//                        each s64[x], of the longest s64[]); delimiter "" = white space; most -1 =
//                        no limit. OUT_OF_RANGE when a string has more parts than the bound.
//   hlod.text.tokens     (x, expressions s32[k], pad s32[], least s64[], flags s32[]) ->
//                        (tokens s32[x..., bound], of the longest s64[]): what the one expression
//                        finds, or, by flag 1, what stands between finds of each in turn; of fewer
//                        characters than `least` none counts. Flag 2: between U+0002 and U+0003.
//                        Then `pad` up to the bound.
//   hlod.text.match      (x, pattern s32[]) -> pred of x's shape: whole strings, string_match.h
//   hlod.text.parse      (x) -> numbers of the result's type; INVALID_ARGUMENT names the first
//   string
//                        that is none
//   hlod.text.hash       (x, seed u32[]) -> u32 of x's shape: MurmurHash3_x86_32 of its bytes
//   hlod.text.rank       (x) -> s32 of x's shape: how many different strings of x stand in front of
//                        each in the order of their bytes
//   hlod.text.print      (numbers) -> their shortest decimal strings that read back the same
#pragma once
#include "compiler/eval.h"

#define STRING_CALLS(X)                                                                            \
    X(concat)                                                                                      \
    X(normalize)                                                                                   \
    X(split)                                                                                       \
    X(tokens)                                                                                      \
    X(match)                                                                                       \
    X(parse)                                                                                       \
    X(hash)                                                                                        \
    X(rank)                                                                                        \
    X(print)
#define STRING_DECLARE(name)                                                                       \
    status_t hlo_string_##name(struct hlo_eval *ev, const struct hlo_instr *i,                     \
                               struct literal *const *in, struct literal **out) MUST_CHECK;
STRING_CALLS(STRING_DECLARE)
#undef STRING_DECLARE
enum { STRING_LOWER = 1, STRING_UPPER = 2, STRING_ANY_CASE = 4 };
enum { STRING_BETWEEN = 1, STRING_MARKED = 2 };
