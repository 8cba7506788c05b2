// SPDX-License-Identifier: Apache-2.0
// device: runs executables. One device client a worker process. Life: dev_open -> dev_load ->
// dev_prepare -> dev_run ... -> dev_unload -> dev_close. All functions are called on the run
// thread; dev_target may be called from any thread.
//     struct device *d; struct dev_exe *x; struct dev_weights *w;
//     RETURN_IF_ERR(dev_open("cpu", &d));
//     RETURN_IF_ERR(dev_load(d, exe, &x));
//     RETURN_IF_ERR(dev_prepare(x, weights, n, &w));
//     RETURN_IF_ERR(dev_run(x, w, &(struct dev_run){.in = in, .out = out}));
#pragma once
#include "compiler/compile.h"
#include "devices/profile.h"

struct device {
    const struct dev_vtable *vt;
};
struct dev_exe {
    struct device *dev;
    const struct executable *exe;
};
struct dev_weights {
    struct dev_exe *exe;
    int64_t bytes;
}; // bytes resident on the device

struct dev_run {
    const void *const *in; // [inputs] host memory in signature order, dense row-major,
                           // element-aligned; borrowed for the call
    void *const
        *out; // [outputs] host memory to be filled, dense row-major, sizes by the root's shape
    struct profile *profile;     // or NULL
    const volatile bool *cancel; // or NULL: checked between steps
};
struct dev_stats {
    int64_t arena_bytes, resident_bytes, runs, reference_steps;
};

// Every slot is required.
struct dev_vtable {
    const char *kind;
    status_t (*open)(struct device **out);
    void (*close)(struct device *d);
    const struct target *(*target)(struct device *d);
    status_t (*load)(struct device *d, struct executable *exe,
                     struct dev_exe **out); // takes exe, also on failure
    void (*unload)(struct dev_exe *x);      // prepared sets must be released before
    // weights[k] = bytes of manifest entry k (possibly unaligned, read-only); entries the
    // executable does not use may be empty.
    status_t (*prepare)(struct dev_exe *x, const struct span *weights, int n,
                        struct dev_weights **out);
    void (*release)(struct dev_weights *w);
    // CANCELLED when r->cancel; INVALID_ARGUMENT never: the caller has checked shapes.
    status_t (*run)(struct dev_exe *x, struct dev_weights *w, const struct dev_run *r);
    struct dev_stats (*stats)(const struct dev_exe *x);
    // How each step of main runs, for `hlo inspect --stage plan`: appends text.
    void (*explain)(const struct dev_exe *x, struct strbuf *out);
};
status_t dev_open(const char *kind, struct device **out) MUST_CHECK; // NOT_FOUND lists the kinds
static inline void dev_close(struct device *d) {
    if (d) d->vt->close(d);
}
static inline const struct target *dev_target(struct device *d) {
    return d->vt->target(d);
}
static inline MUST_CHECK status_t dev_load(struct device *d, struct executable *e,
                                           struct dev_exe **out) {
    return d->vt->load(d, e, out);
}
static inline void dev_unload(struct dev_exe *x) {
    if (x) x->dev->vt->unload(x);
}
static inline MUST_CHECK status_t dev_prepare(struct dev_exe *x, const struct span *w, int n,
                                              struct dev_weights **out) {
    return x->dev->vt->prepare(x, w, n, out);
}
static inline void dev_release(struct dev_weights *w) {
    if (w) w->exe->dev->vt->release(w);
}
static inline MUST_CHECK status_t dev_run(struct dev_exe *x, struct dev_weights *w,
                                          const struct dev_run *r) {
    return x->dev->vt->run(x, w, r);
}
static inline struct dev_stats dev_stats(const struct dev_exe *x) {
    return x->dev->vt->stats(x);
}
