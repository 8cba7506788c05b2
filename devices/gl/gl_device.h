// SPDX-License-Identifier: Apache-2.0
// gl_device: what the files of this folder share. The context is current on the thread of a call
// from its begin to its end (gl_enter, gl_leave). Thread: the device's.
#pragma once
#include "base/map.h"
#include "compiler/codegen/shader/shader.h"
#include "devices/gl/gl_load.h"
#include "devices/queue/queue.h"

struct gl_range { // of the device's memory that is taken
    int64_t at, bytes;
};
struct gl_program {
    uint32_t id;        // 0: none
    uint32_t fragment;  // its shader, until it is known to be good
    int32_t places, at; // of the uniforms hlod_p and hlod_q, once it is
};
// A texture of words in rows of 1 << bits, and what reads it, or draws to it.
struct gl_texture {
    uint32_t texture, frame;
    int64_t rows;
};
// What units of contractions sum: four words in each of some layers, a place a unit. frame[n] draws
// to n + 1 of these.
struct gl_sums {
    uint32_t texture, frame[SHADER_SUM_LAYERS];
    int64_t rows;
};
struct gl_device {
    struct queue_device base;
    const struct gl_api *gl;
    void *display, *context;
    int bits;          // a row has 1 << bits words
    int64_t most_rows; // of a texture
    bool resets;       // the driver tells of them
    bool software;     // its memory is this process's
    // A value is some words of `memory`, which kernels read; what they draw goes to `drawn`, from
    // where it is copied.
    struct gl_texture memory, drawn;
    struct gl_sums sums;         // drawn before that, and read by it
    bool reads_one;              // words of `memory` one by one; else four numbers a word
    VEC(struct gl_range) ranges; // by place
    uint32_t vertex;             // the shader that covers the rectangle that is drawn
    struct gl_program copier;
    int64_t given; // kernels since the walk began
    void *mark;    // a fence behind one a while ago: NULL, or waited for before many more are given
};

// UNAVAILABLE where the context cannot be had; else gl_leave follows.
status_t gl_enter(struct gl_device *d) MUST_CHECK;
void gl_leave(struct gl_device *d);
// What calls since the last gl_check left behind: the device is lost, its memory is full, or a call
// was wrong. what: for the error, static text.
status_t gl_check(struct gl_device *d, const char *what) MUST_CHECK;

// ---- gl_memory.c

// Words [word, word + n) as rectangles: a part of a row, whole rows, a part of a row.
struct gl_piece {
    int32_t x, y, w, h;
    int64_t at; // words before it
};
enum { GL_MOST_PIECES = 3 };
int gl_pieces(const struct gl_device *d, int64_t word, int64_t n,
              struct gl_piece out[GL_MOST_PIECES]);
int64_t gl_rows(const struct gl_device *d, int64_t word, int64_t n);  // that these are in
status_t gl_drawn_rows(struct gl_device *d, int64_t rows) MUST_CHECK; // at least so many
status_t gl_sums_rows(struct gl_device *d, int64_t rows) MUST_CHECK;
void gl_drop_textures(struct gl_device *d);

status_t gl_take(struct queue_device *d, int64_t n, struct queue_memory *out) MUST_CHECK;
void gl_give(struct queue_device *d, const struct queue_memory *m);
status_t gl_write(struct queue_device *d, struct queue_place to, const void *from, int64_t bytes,
                  bool wait) MUST_CHECK;
status_t gl_read(struct queue_device *d, void *to, struct queue_place from, int64_t bytes,
                 bool wait) MUST_CHECK;

// ---- gl_program.c

// A program that draws result `result` of a kernel, `bytes` a unit of it. head: what stands before
// kernels. Not whether it could be made: gl_program_good.
struct gl_program gl_program(struct gl_device *d, struct span head, struct span code,
                             const char *name, int result, int bytes);
// The program that draws its sums, to so many layers.
struct gl_program gl_sums_program(struct gl_device *d, struct span head, struct span code,
                                  const char *name, int layers);
// Waits until it is made. False: *why, in a.
bool gl_program_good(struct gl_device *d, struct gl_program *p, struct arena *a, const char **why);
status_t gl_make_copier(struct gl_device *d) MUST_CHECK;

// ---- gl_kernels.c

struct gl_result {
    int64_t words;    // 0: nothing is drawn
    int64_t elements; // of a word or less: complex numbers have two
};
struct gl_text { // a kernel of a module
    const char *name;
    struct span code;
    VEC(int) unit_bytes;            // of each result; of the executable's arena, as the next
    VEC(struct queue_place) tables; // already on the device
    struct gl_program *programs;    // [unit_bytes.n], once a step has it
    int64_t sum_units;              // 0: there are no sums before it
    int sum_layers;
    struct gl_program sums;
    const char *why; // there is none, or the driver refuses it
};
struct gl_kernel { // a step's
    struct gl_text *text;
    struct gl_result *results; // [text->unit_bytes.n]
};
struct gl_exe {
    struct queue_exe base;
    struct span head;               // of the module that is loaded
    struct smap texts;              // of it: symbol -> gl_text
    VEC(struct queue_step *) bound; // with a kernel
    VEC(struct gl_text *) made;     // with programs
    VEC(struct queue_memory) tables;
};
static inline struct gl_device *gl_of(const struct queue_exe *x) {
    return (struct gl_device *)x->base.dev;
}
status_t gl_begin(struct queue_exe *x, const struct kernel_set *k) MUST_CHECK;
status_t gl_bind(struct queue_exe *x, struct queue_step *s) MUST_CHECK;
status_t gl_ready(struct queue_exe *x) MUST_CHECK;
void gl_unload(struct queue_exe *x);
void gl_explain(const struct queue_step *s, struct strbuf *out);

// ---- gl_run.c

status_t gl_run(struct queue_walk *w, const struct queue_step *s) MUST_CHECK;
status_t gl_copy(struct queue_device *d, struct queue_place to, struct queue_place from,
                 int64_t bytes) MUST_CHECK;
status_t gl_finish(struct queue_device *d) MUST_CHECK;
void gl_settle(struct queue_walk *w);
