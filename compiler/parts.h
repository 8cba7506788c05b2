// SPDX-License-Identifier: Apache-2.0
// parts: a program whose sizes its own values decide runs in parts. A part ends where nothing more
// can be lowered without values that only a run has: its first results are those values, the others
// are what the next part goes on with. The next part is compiled with the values bound as
// "@<part>[<element>]" and takes, behind the program's inputs, what the part before it left. The
// module says so in frontend_attributes={hlod_part="INDEX:SIZES:CARRIED"}; docs/decisions/0022.
// Thread: any.
#pragma once
#include "compiler/ir/module.h"

enum { MAX_PARTS = 64, MAX_PART_SIZES = 1024 };
struct part {
    int index;   // parts that ran before it
    int sizes;   // results, the first, that bind the next part; 0 = it is the last
    int carried; // inputs, the last, that the part before it left
};
void parts_set(struct hlo_module *m, const struct part *p);
// False: the program is one part. What is malformed or does not fit the module counts as that.
bool parts_of(const struct hlo_module *m, struct part *out);
// The symbol of element k of part `index`'s sizes, all of them counted through; in arena a.
const char *parts_symbol(struct arena *a, int index, int64_t k);
// How a part ends and the next begins: an element as a binding has it, integers sign-extended,
// floating-point ones as their bits. width: bytes, 1 to 8.
int64_t parts_element(const void *p, int width, bool is_signed);
