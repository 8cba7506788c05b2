// SPDX-License-Identifier: Apache-2.0
// ctext: kir as statements of a C-like language, one a value, in order. What differs between the
// languages is a column of ctext.def; a back end writes what stands around the statements: the
// function's head, its parameters, helper functions. Private to codegen. Thread: any.
#pragma once
#include "base/str.h"
#include "compiler/kernel/kir.h"

enum ctext_language { CTEXT_OPENCL, CTEXT_WGSL, CTEXT_GLSL, CTEXT_LANGUAGES };
// Names that the head must declare: b0, b1, ... (bytes of each buffer), `scratch`, `begin` and
// `end` (integers of 64 bits), s1, s2, ... (constants that a shared body reads), and the tables of
// ctext_table_name. In WGSL all buffers are one array m of words, and oK the place of buffer K in
// it (tables are the buffers behind the others); scratch is s, from word q on. In GLSL memory is
// read by hlod_w(word), oK are places too, and a function computes one element of one result: `at`
// of number HLOD_RESULT, whose bits it leaves in r; hlod_sum(place) reads KIR_SUMS. What needs more
// than an operator is a function of shader/.
struct ctext {
    struct strbuf *out;
    enum ctext_language language;
    const char *symbol; // of the kernel, in names of tables
    int n_sizes;        // 0: f's constants are its own
    bool contracts;     // a product that a sum may take in is written as fma
    bool one_unit;      // `end` is begin + 1: the loop over units is no loop
};
// The statements of f. Writes f's `emit` fields. UNIMPLEMENTED names what the language lacks.
status_t ctext_body(struct ctext *x, const struct kir_fn *f) MUST_CHECK;
// The bits of a table's elements, comma separated; its elements' type is ctext_bits of their size.
void ctext_table(struct ctext *x, const struct kir_fn *f, int table);
const char *ctext_bits(enum ctext_language l, int bytes);
