// SPDX-License-Identifier: Apache-2.0
// string_match: does a regular expression match a whole string, and where in it does it match?
// Syntax and meaning are RE2's (which ONNX names), without groups' contents and greed: finds are
// the longest. A pattern becomes a program of character tests and forks that all run side by side,
// so the time is at most the pattern's size times the string's, whatever the pattern. Not taken,
// and refused with the place: \p{...}, \C, and what RE2 has not either (backreferences,
// look-around). Texts are UTF-8; a byte that is not counts as U+FFFD. Thread: any.
#pragma once
#include "base/span.h"
#include "base/status.h"

struct string_pattern;
// INVALID_ARGUMENT names the place in the pattern; RESOURCE_EXHAUSTED when it becomes too large.
status_t string_pattern_new(struct str pattern, struct string_pattern **out) MUST_CHECK;
// False too once *cancel (or NULL) is set.
bool string_pattern_matches(struct string_pattern *p, struct str text, const _Atomic bool *cancel);
// The match that begins first at `begin` or behind, and of those the longest; where that has fewer
// than `least` characters, the next that begins behind. What stands before `begin` is seen by ^
// and \b.
bool string_pattern_find(struct string_pattern *p, struct str text, size_t begin, int64_t least,
                         struct str *out, const _Atomic bool *cancel);
int64_t string_pattern_steps(const struct string_pattern *p); // at most, for each character
void string_pattern_free(struct string_pattern *p);           // NULL is fine
// The code point at *at, which moves on; U+FFFD for a byte that begins none.
uint32_t string_utf8(struct str s, size_t *at);
// Its bytes; gives their number, 1 to 4.
int text_utf8_put(uint32_t u, char out[4]);
// The other case where Unicode has one code point for it (string_cases.def); belongs to no
// language.
uint32_t text_lower(uint32_t u);
uint32_t text_upper(uint32_t u);
