// SPDX-License-Identifier: Apache-2.0
// web_program: an executable's plan as a program over one memory: every buffer has its place, every
// step is a call of a kernel, a copy, a loop or a choice. Private to compiler/web.
#pragma once
#include "compiler/plan/plan.h"
#include "compiler/web/web.h"

enum web_step_kind { WEB_CALL, WEB_COPY, WEB_WHILE, WEB_CASE };
struct web_steps {
    struct web_step *v;
    size_t n, cap;
};
struct web_step {
    enum web_step_kind kind;
    int kernel;  // CALL: of web_program.kernels
    int64_t *at; // CALL: [its buffers]
    int64_t to, from,
        bytes; // COPY; may overlap. WHILE, CASE: from: where the condition, or index, is
    bool pred; // CASE: of type pred: true is branch 0; else s32, out of range is the last
    struct web_steps *parts; // WHILE: condition, body; CASE: branches
    int n_parts;
};
struct web_kernel {
    const struct kernel_info *info;
    const struct hlo_instr *of; // that it computes; its name is for profiles
    int n_in;                   // buffers that it reads; the others it writes
    bool updates;               // what it writes it also reads
    const int64_t *bytes;       // [buffers]
};
// The same kernel in a language of GPUs.
struct web_gpu_kernel {
    const char *entry;             // of the text; NULL: there is none,
    const char *why;               // because
    int64_t extent, scratch_bytes; // of each unit
    const int64_t *tables;         // [2 * n_tables] of each its place and size
    int n_tables;
    const int *unit_bytes; // [results] that a unit writes (shader.unit_bytes), or NULL
    int64_t sum_units;     // that draw sums before it; 0: none do
    int sums;              // of each
};
enum { WEB_LANGUAGES = 2 };
struct web_gpu {
    const struct shader *language;  // NULL: it was not asked for
    struct strbuf text;             // all of them
    struct web_gpu_kernel *kernels; // [web_program.kernels]
    int n;                          // that have a text
};
struct web_cut { // of an output: how much of a dimension counts, which only a run knows
    int dim;
    int64_t at; // of the size, an s64
};
struct web_value {
    const char *name; // input or output
    const struct shape *shape;
    int64_t at, bytes;
    const struct web_cut *cuts;
    int n_cuts;
};
struct web_bytes { // what is in memory before the first run
    int64_t at, bytes;
    const void *data; // of a constant
    int result;       // of prepare, instead; -1 = a constant
    enum dtype type;
    enum web_form {
        FORM_RAW,
        FORM_F16, // f32 in memory, as the next
        FORM_BF16,
        FORM_TABLE16, // elements of so many bits
        FORM_TABLE32,
        WEB_FORMS
    } form; // as sent
};
struct web_program {
    VEC(struct web_kernel) kernels;
    VEC(struct web_value) inputs;
    VEC(struct web_value) outputs;
    VEC(struct web_bytes) weights; // results of prepare, then constants
    struct web_steps main;
    int64_t stack, frames, scratch;    // ends of the stack; begin of lists of places, of scratch
    int64_t bytes;                     // of memory
    struct web_gpu gpu[WEB_LANGUAGES]; // WGSL, GLSL
};
// UNIMPLEMENTED lists all that no kernel computes. e is not looked at again, but names of its are.
status_t web_program_make(struct arena *a, const struct executable *e, const struct web_options *o,
                          struct web_program *out) MUST_CHECK;
// Aligned memory behind what p has; *overflow: there is not so much, or was not before.
int64_t web_take(struct web_program *p, int64_t bytes, bool *overflow);
status_t web_overflow(void) MUST_CHECK; // what is told then
// web_gpu.c. p->gpu, whose texts the caller frees; constants that it needs lie behind p's memory.
status_t web_gpu_make(struct arena *a, const struct web_options *o,
                      struct web_program *p) MUST_CHECK;
// web_manifest.c. The program as JSON; `files`: kernels, these in each language that has any, then
// chunks of weights in order.
struct web_blob {
    const char *path;
    struct span bytes;
    struct digest digest;
};
void web_manifest_print(struct strbuf *b, const struct executable *e, const struct web_program *p,
                        const struct web_options *o, const struct web_blob *files, int n_files);
// web_weights.c. Evaluates prepare: *out[k] is result k.
status_t web_prepare(struct arena *a, const struct executable *e, const struct span *weights, int n,
                     const _Atomic bool *cancel, const struct literal *const **out) MUST_CHECK;
// What is in memory before the first run, as one stream: each of p->weights in turn, as f16 where
// that is asked for and no element overflows (`narrow` says so), zeros behind it up to 4 bytes.
void web_weights_stream(struct web_program *p, const struct literal *const *results, bool f16,
                        struct strbuf *out);
