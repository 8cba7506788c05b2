// SPDX-License-Identifier: Apache-2.0
// device: runs executables. One device client a worker process. Life: dev_open -> dev_load ->
// dev_prepare -> dev_run ... -> dev_release -> dev_unload -> dev_close. Several executables may be
// loaded, several weight sets prepared for each, and they are let go of in any order that keeps a
// set's executable and an executable's device. Calls are synchronous; one thread calls at a time
// (a worker's run thread) but for runs of streams; dev_target and dev_attributes may be called from
// any thread at any time, and what `cancel` points at is set from any. What fails leaves nothing.
//
// UNAVAILABLE from any call means that the device itself is lost: every later load, prepare and
// run fails the same way; the owner releases what it has and opens it anew (a worker ends itself).
// RESOURCE_EXHAUSTED means the device's memory: the same call may succeed once others are gone.
// Values may stay on the device between calls as buffers (dev_put, dev_run.kept) and be inputs of
// later runs; a buffer whose contents are no longer needed may be donated to a run. Nothing is
// asynchronous here: what runs beside it is the worker's loop.
//
// tests/conform/device_test.c holds every kind of proto/kinds.def to this page.
//     struct device *d; struct dev_exe *x; struct dev_weights *w;
//     RETURN_IF_ERR(dev_open("cpu", &d));
//     RETURN_IF_ERR(dev_load(d, exe, NULL, &x));
//     RETURN_IF_ERR(dev_prepare(x, weights, n, NULL, &w));
//     RETURN_IF_ERR(dev_run(x, w, &(struct dev_run){.in = in, .out = out}));
#pragma once
#include "compiler/compile.h"
#include "compiler/plan/estimate.h"
#include "devices/profile.h"
#include "devices/tuning.h"

struct device {
    const struct dev_vtable *vt;
};
struct dev_exe {
    struct device *dev;
    const struct executable *exe;
    struct span mapped;  // dev_prepare_mapped's, while it goes on
    struct digest which; // too
};
struct dev_weights {
    struct dev_exe *exe;
    int64_t bytes, needs; // resident on the device and counted here; of all it reads; 0: as many
    void (*changed)(struct dev_weights *w); // optional: after `bytes` grew by what another let go
    void *owner;                            // the caller's
};

// An array that lies in the device's memory until its last reference goes. Counted by the thread
// that calls the device. All buffers must be gone before dev_close.
struct dev_buffer {
    struct device *dev;
    int refs;
    const struct shape *shape; // dense, of `arena`
    int64_t bytes;
    struct arena arena;
    bool spent; // a run that failed took it: nothing is in it any more
};

struct dev_attributes {
    int64_t memory_bytes;    // for executables, prepared weights and what runs; > 0
    const char *description; // for people; the device's
    bool foreign;            // runs a plugin, which opens files whenever it likes: no filter
    bool starts_slowly;      // its first calls load and generate code: they may be made for nothing
    bool single_use;         // what a process compiles depends on what it compiled before
    int streams;             // runs of one executable that may go on at once (`stream`); 0: one
};

// What the device could do at best; 0 = not known.
struct dev_peak {
    double flops, bytes;           // a second: f32 arithmetic, reads from memory; all threads
    const struct machine *machine; // for the cost model; NULL: its steps have no estimates
    const char *source;            // how it was found, for people; static
};

// With several replicas an input, and an output, is those of all of them one behind the other: to
// its owner it has one more dimension, the first.
struct dev_run {
    const void *const *in; // [leaves of inputs] host memory in signature order, dense row-major,
                           // element-aligned; borrowed for the call
    void *const *out; // [outputs] host memory to be filled, dense row-major, sizes by the root's
                      // shape; NULL where `kept` takes the result
    // Resident values; each may be NULL. Where in_buffers[k] is set it is the input and in[k] is
    // not looked at. donate[k]: nobody else holds in_buffers[k]; a run that succeeds may take its
    // memory for a result, and it holds nothing any more (unref it still). A run that fails leaves
    // it as it was, or sets its `spent` where the device had it already. kept[k] is set on success
    // where out[k] is NULL: one reference, the caller's.
    struct dev_buffer *const *in_buffers; // [leaves of inputs]
    const bool *donate;                   // [leaves of inputs]
    struct dev_buffer **kept;             // [outputs]
    struct profile *profile;              // or NULL
    const _Atomic bool *cancel;           // or NULL: checked between steps
    struct strings *texts; // or NULL: what places in string tensors stand for (strings.h);
                           // those that the run makes are added
};
struct dev_stats {
    int64_t arena_bytes, shared_bytes; // working memory of a run; of it, what all executables share
    int64_t scratch_bytes;   // of it: what libraries work in; 0 where that is not known
    int64_t prepare_bytes;   // working memory of the last prepare, beside what stays
    int64_t resident_bytes;  // what else stays while it is loaded, as far as that is known
    int64_t runs;            // that succeeded
    int64_t busy_ns;         // their time, by the device's clock (the simulated one may be virtual)
    int64_t reference_steps; // of all runs: how often the reference evaluator stood in
    bool one_thread;         // a run uses the calling thread alone and takes always as long
    int32_t choices;         // steps of main that run as a tuning chose (executable_choose)
};
// A tensor as it came, before anything is known about it.
struct dev_tensor {
    const char *dtype;
    int32_t rank;
    const int64_t *dims;
    struct span data;
};

// Every slot is required but for those marked optional.
struct dev_vtable {
    const char *kind;
    // options: what follows "KIND:" in the spec, KEY=VALUE joined by ':'; "" = defaults.
    // INVALID_ARGUMENT for one that the kind does not have.
    status_t (*open)(const char *options, struct device **out);
    void (*close)(struct device *d); // all executables must be unloaded before
    // Optional. As open, for a process that compiles and runs nothing: claims no hardware, needs
    // none where the kind can compile without. NULL = open.
    status_t (*open_compiler)(const char *options, struct device **out);
    // Optional, of a device opened to compile: what it can compile for, by name ("v5e:2x2"; "" =
    // the kind's own devices) or by a target's id. Lives as long as d. INVALID_ARGUMENT for a name
    // that it does not have. NULL = only its own.
    status_t (*find_target)(struct device *d, const char *name, const struct target **out);
    // What the compiler must know; the same for every device of the kind in this process, whatever
    // its options: a compile worker asks its own.
    const struct target *(*target)(struct device *d);
    struct dev_attributes (*attributes)(struct device *d);
    // FAILED_PRECONDITION when the executable is for another target. CANCELLED when *cancel (looked
    // at between steps; NULL: never).
    status_t (*load)(struct device *d, struct executable *exe, const _Atomic bool *cancel,
                     struct dev_exe **out); // takes exe, also on failure
    void (*unload)(struct dev_exe *x);      // prepared sets must be released before
    // Optional, both or none: load in two parts. begin: exe is a draft (executable_unpack_main) or
    // whole; does of a load what takes long and needs main alone, until *stop. finish: what is
    // left, once exe is whole; CANCELLED leaves x as far as it came, to be finished or unloaded,
    // any other error only to be unloaded. No other call may use x in between; a second is a no-op.
    status_t (*begin)(struct device *d, struct executable *exe, const _Atomic bool *stop,
                      struct dev_exe **out); // takes exe, also on failure
    status_t (*finish)(struct dev_exe *x, const _Atomic bool *cancel);
    // weights[k] = bytes of manifest entry k (possibly unaligned, read-only); entries the
    // executable does not use may be empty. INVALID_ARGUMENT names one that is missing or has the
    // wrong size. Borrowed for the call. CANCELLED as from load.
    status_t (*prepare)(struct dev_exe *x, const struct span *weights, int n,
                        const _Atomic bool *cancel, struct dev_weights **out);
    void (*release)(struct dev_weights *w);
    // A new buffer with these bytes (dense row-major; copied). s is copied.
    status_t (*put)(struct device *d, const struct shape *s, const void *data,
                    struct dev_buffer **out);
    // Bytes [offset, offset + n) of the buffer's dense row-major form; within its size.
    status_t (*get)(struct dev_buffer *b, int64_t offset, int64_t n, void *dst);
    void (*drop)(struct dev_buffer *b); // the last reference is gone; b->arena too is the device's
    // CANCELLED when r->cancel; INVALID_ARGUMENT never: the caller has checked shapes
    // (dev_check_inputs). On failure the outputs hold anything.
    status_t (*run)(struct dev_exe *x, struct dev_weights *w, const struct dev_run *r);
    struct dev_stats (*stats)(const struct dev_exe *x);
    // Optional. A second executable of x's program, for runs at the same time: it has working
    // memory of its own, runs on the calling thread alone and takes the weight sets of x. Runs of
    // several, but not of x meanwhile, may go on at once, each in its thread; all other calls come
    // while there are none. Unloaded before x. UNIMPLEMENTED: it has none. RESOURCE_EXHAUSTED.
    status_t (*stream)(struct dev_exe *x, struct dev_exe **out);
    // Optional. Between calls: is the device still at work for a run that was cancelled? *busy: ask
    // again soon. Does not wait. UNAVAILABLE as from any call.
    status_t (*idle)(struct device *d, bool *busy);
    // How each step of main runs, for `hlo inspect --stage plan`: appends text.
    void (*explain)(const struct dev_exe *x, struct strbuf *out);
    // Optional. A table of main's steps for `hlo compile --explain`: what each should take, where
    // it comes from, what runs it, and why nothing before that in the list does: appends text.
    void (*explain_costs)(struct dev_exe *x, struct strbuf *out);
    // Optional. Measures the implementations that could take each step of main in turns, on values
    // of its own making, and says which is to: one that takes clearly less time than who takes it
    // by the cost model, and gives the same within the step's bound (docs/precision.md). What *out
    // holds lies in a. Takes e, also on failure. CANCELLED as from load; FAILED_PRECONDITION where
    // there is nothing to choose from.
    status_t (*tune)(struct device *d, struct executable *e, const struct dev_tune *how,
                     struct arena *a, struct dev_tuning *out);
    // May measure at the first call (some 50 ms); later calls say the same.
    struct dev_peak (*peak)(struct device *d);
};
// spec: "cpu", "sim:latency_us=500". NOT_FOUND lists the kinds.
status_t dev_open(const char *spec, struct device **out) MUST_CHECK;
status_t dev_open_compiler(const char *spec, struct device **out) MUST_CHECK;
status_t dev_find_target(struct device *d, const char *name, const struct target **out) MUST_CHECK;
// Is this what the executable takes: count, element types, shapes, sizes in bytes? The error names
// the first input that is not, what was expected and what was found. Thread: any.
status_t dev_check_inputs(const struct dev_exe *x, const struct dev_tensor *in, int n) MUST_CHECK;
// For devices: the weight that parameter q of prepare takes, out of those given to dev_prepare.
// INVALID_ARGUMENT names one that is missing or has the wrong size. Thread: any.
status_t dev_find_weight(const struct hlo_instr *q, const struct span *weights, int n,
                         const void **out) MUST_CHECK;
static inline void dev_close(struct device *d) {
    if (d) d->vt->close(d);
}
static inline const struct target *dev_target(struct device *d) {
    return d->vt->target(d);
}
static inline struct dev_attributes dev_attributes(struct device *d) {
    return d->vt->attributes(d);
}
static inline struct dev_peak dev_peak(struct device *d) {
    return d->vt->peak(d);
}
status_t dev_load(struct device *d, struct executable *e, const _Atomic bool *cancel,
                  struct dev_exe **out) MUST_CHECK;
static inline void dev_unload(struct dev_exe *x) {
    if (x) x->dev->vt->unload(x);
}
status_t dev_prepare(struct dev_exe *x, const struct span *w, int n, const _Atomic bool *cancel,
                     struct dev_weights **out) MUST_CHECK;
// dev_prepare of weights that lie in `file`, or some of them: part of a mapping of a file that
// nobody writes through. A device may give its pages back as it has read them (file_forget).
// which: the same for all executables whose weights are the same by number, which may share what is
// prepared of them; zero: not known.
static inline MUST_CHECK status_t dev_prepare_mapped(struct dev_exe *x, const struct span *w, int n,
                                                     struct span file, struct digest which,
                                                     const _Atomic bool *cancel,
                                                     struct dev_weights **out) {
    x->mapped = file, x->which = which;
    status_t st = dev_prepare(x, w, n, cancel, out);
    x->mapped = (struct span){0}, x->which = (struct digest){0};
    return st;
}
static inline void dev_release(struct dev_weights *w) {
    if (w) w->exe->dev->vt->release(w);
}
static inline MUST_CHECK status_t dev_run(struct dev_exe *x, struct dev_weights *w,
                                          const struct dev_run *r) {
    return x->dev->vt->run(x, w, r);
}
static inline MUST_CHECK status_t dev_stream(struct dev_exe *x, struct dev_exe **out) {
    return x->dev->vt->stream ? x->dev->vt->stream(x, out)
                              : st_new(ST_UNIMPLEMENTED, "the device has no streams");
}
static inline MUST_CHECK status_t dev_put(struct device *d, const struct shape *s, const void *data,
                                          struct dev_buffer **out) {
    return d->vt->put(d, s, data, out);
}
static inline MUST_CHECK status_t dev_get(struct dev_buffer *b, int64_t offset, int64_t n,
                                          void *dst) {
    return b->dev->vt->get(b, offset, n, dst);
}
static inline struct dev_buffer *dev_buffer_ref(struct dev_buffer *b) {
    b->refs++;
    return b;
}
static inline void dev_buffer_unref(struct dev_buffer *b) {
    if (b && --b->refs == 0) b->dev->vt->drop(b);
}
static inline struct dev_stats dev_stats(const struct dev_exe *x) {
    return x->dev->vt->stats(x);
}
