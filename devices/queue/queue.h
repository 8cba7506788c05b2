// SPDX-License-Identifier: Apache-2.0
// queue: what devices have in common that give a plan's steps to a driver's command queue, which
// runs them in order while the host goes on. Here: plans with a driver's kernel a step, the walk
// over them with control flow on the host and the reference evaluator for steps without a kernel,
// weights, runs, buffers. A device of a driver (devices/opencl, devices/gl) fills in a
// queue_driver and points its vtable at the functions below. Thread: the device's.
#pragma once
#include "base/str.h"
#include "base/vec.h"
#include "compiler/plan/plan.h"
#include "devices/device.h"
#include "devices/reference.h"

struct queue_place { // a byte of the device's memory
    void *mem;       // the driver's
    int64_t at;
};
struct queue_memory {
    struct queue_place place; // of the first byte; mem NULL: none
    int64_t bytes;
};
struct queue_device {
    struct device base;
    const struct queue_driver *driver;
    struct arena arena;
    const struct target *target;
    const char *description;
    int64_t memory_bytes, used_bytes;
    int64_t most_bytes; // of one piece of memory
    bool lost;
    bool compiles_only; // no driver is here: what is loaded can be explained and unloaded
};

struct queue_step {
    const struct plan_step *plan;
    void *kernel; // the driver's, who runs it; NULL: control flow, or the reference evaluator
    const struct kernel_info *info; // of the kernel
    const char *why;                // the driver's: there is no kernel; or NULL
    struct queue_plan **called;
    int64_t stage_at;       // of a loop whose state changes places: in the executable's stage
    struct queue_place *at; // [operand and result leaves] while it runs
    int64_t bytes;
};
struct queue_plan {
    struct plan *plan;
    struct queue_step *steps;
    struct queue_place *consts; // [n_consts]
};
struct queue_exe {
    struct dev_exe base;
    struct executable *exe; // owned
    struct arena arena;
    struct queue_plan *main, *prepare;
    VEC(struct queue_memory) consts;
    struct queue_memory memory, stage; // of runs; stage of prepare too
    struct queue_memory *inputs;       // [parameter leaves of main], made when needed
    int64_t stage_bytes;
    struct dev_reference reference;
    struct dev_stats stats;
};
static inline struct queue_device *queue_of(const struct dev_exe *x) {
    return (struct queue_device *)x->dev;
}
struct queue_walk {
    struct queue_exe *x;
    const _Atomic bool *cancel;
    struct profile *profile; // or NULL
};

struct queue_driver {
    const char *name; // "OpenCL": for messages
    size_t exe_bytes; // of its own struct, which begins with a queue_exe; zeroed
    // Memory of n bytes, at least one. RESOURCE_EXHAUSTED; who calls has checked most_bytes.
    status_t (*take)(struct queue_device *d, int64_t n, struct queue_memory *out);
    void (*give)(struct queue_device *d, const struct queue_memory *m); // not none
    // More than 0 bytes. wait: until it is done; else host memory stays until `finish`.
    status_t (*write)(struct queue_device *d, struct queue_place to, const void *from,
                      int64_t bytes, bool wait);
    status_t (*read)(struct queue_device *d, void *to, struct queue_place from, int64_t bytes,
                     bool wait);
    // Places whose bytes are apart. Bytes behind the last, up to the next word, may change.
    status_t (*copy)(struct queue_device *d, struct queue_place to, struct queue_place from,
                     int64_t bytes);
    status_t (*finish)(struct queue_device *d); // all that was given is over
    // Loading: a module's kernels; then of each step that has one (s->info) its `kernel`, which may
    // stay NULL; then, all being bound, what kernels need beside their buffers. The first two also
    // where the device compiles only, for `why`.
    status_t (*begin)(struct queue_exe *x, const struct kernel_set *k);
    status_t (*bind)(struct queue_exe *x, struct queue_step *s);
    status_t (*ready)(struct queue_exe *x);
    void (*unload)(struct queue_exe *x); // what these made; after an error of theirs too
    // A step's kernel, of places in s->at; s->info->extent is not 0. Rows of the profile are its
    // own.
    status_t (*run)(struct queue_walk *w, const struct queue_step *s);
    void (*settle)(struct queue_walk *w); // all is over: fills in what `run` left open. Or NULL
    void (*explain)(const struct queue_step *s, struct strbuf *out); // "kernel k1, ..."
};

// ---- options of a spec (queue_memory.c)

struct queue_options {
    int64_t device;      // by number; -1 = any
    int64_t memory;      // bytes at most; 0 = all
    const char *library; // "": the usual one
};
// Takes device=N, memory=SIZE or library=FILE, texts in a. *known: it is one of these; false: it is
// not, or its value is none.
bool queue_option(struct arena *a, struct str key, struct str item, struct queue_options *o,
                  bool *known);
// all: "platform, device, ...", what there is.
status_t queue_bad_option(bool known, struct str key, struct str item, const char *all) MUST_CHECK;

// ---- memory (queue_memory.c)

status_t queue_alive(const struct queue_device *d) MUST_CHECK; // UNAVAILABLE once it is lost
// what: for the error, static text. RESOURCE_EXHAUSTED, REASON_DEVICE_MEMORY. At least a byte.
status_t queue_take(struct queue_device *d, int64_t bytes, const char *what,
                    struct queue_memory *out) MUST_CHECK;
void queue_give(struct queue_device *d, struct queue_memory *m); // nothing if it is none
// As the driver's; nothing for 0 bytes, copy also where both are the same place.
status_t queue_write(struct queue_device *d, struct queue_place to, const void *from, int64_t bytes,
                     bool wait) MUST_CHECK;
status_t queue_read(struct queue_device *d, void *to, struct queue_place from, int64_t bytes,
                    bool wait) MUST_CHECK;
status_t queue_copy(struct queue_device *d, struct queue_place to, struct queue_place from,
                    int64_t bytes) MUST_CHECK;
static inline status_t queue_finish(struct queue_device *d) {
    return d->driver->finish(d);
}
static inline bool queue_same(struct queue_place a, struct queue_place b) {
    return a.mem == b.mem && a.at == b.at;
}
static inline int64_t queue_aligned(int64_t bytes) {
    return round_up(bytes, 64);
}
struct queue_buffer {
    struct dev_buffer base;
    struct queue_memory memory;
};
// Takes the memory.
struct dev_buffer *queue_buffer_of(struct queue_device *d, const struct shape *s,
                                   struct queue_memory memory);

// ---- the walk (queue_walk.c)

struct queue_frame {
    const struct queue_place *params;
    struct queue_place memory; // of the plan
};
status_t queue_walk_plan(struct queue_walk *w, const struct queue_plan *p,
                         const struct queue_frame *f) MUST_CHECK;
struct queue_place queue_place_of(const struct queue_plan *p, const struct queue_frame *f,
                                  const struct slice *s);
// Waits for all that was given; after an error too. Fills in the profile.
status_t queue_walk_end(struct queue_walk *w, status_t st) MUST_CHECK;
// A row of the profile for the step: its number, -1 where there is none.
int queue_begin_row(struct queue_walk *w, const struct queue_step *s, const char *impl);
// The same of what began at `start` (clock_ns) and is over.
void queue_host_row(struct queue_walk *w, const struct queue_step *s, const char *impl,
                    int64_t start);

// ---- slots of dev_vtable (queue_memory.c, queue_load.c, queue_run.c)

struct queue_weights {
    struct dev_weights base;
    struct queue_memory *bound; // [n_bound] leaves
    int n_bound;
    struct arena arena;
};
const struct target *queue_target(struct device *d);
status_t queue_put(struct device *d, const struct shape *s, const void *data,
                   struct dev_buffer **out) MUST_CHECK;
status_t queue_get(struct dev_buffer *b, int64_t offset, int64_t n, void *dst) MUST_CHECK;
void queue_drop(struct dev_buffer *b);
// UNIMPLEMENTED, with names, where the evaluator has no rule for a step without a kernel.
status_t queue_evaluates(const struct queue_device *d, const struct hlo_instr *i) MUST_CHECK;
status_t queue_load(struct device *d, struct executable *exe, const _Atomic bool *cancel,
                    struct dev_exe **out) MUST_CHECK;
void queue_unload(struct dev_exe *x);
void queue_explain(const struct dev_exe *x, struct strbuf *out);
status_t queue_prepare(struct dev_exe *x, const struct span *weights, int n,
                       const _Atomic bool *cancel, struct dev_weights **out) MUST_CHECK;
void queue_release(struct dev_weights *w);
status_t queue_run(struct dev_exe *x, struct dev_weights *w, const struct dev_run *r) MUST_CHECK;
struct dev_stats queue_stats(const struct dev_exe *x);
