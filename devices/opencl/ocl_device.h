// SPDX-License-Identifier: Apache-2.0
// ocl_device: what the files of this folder share. Thread: the device's.
#pragma once
#include "base/vec.h"
#include "compiler/plan/plan.h"
#include "devices/device.h"
#include "devices/opencl/ocl_load.h"
#include "devices/reference.h"

struct ocl_device {
    struct device base;
    struct arena arena;
    const struct ocl_api *cl;
    void *id, *context, *queue; // the queue runs what it is given in order
    const struct target *target;
    const char *description;
    int64_t memory_bytes, used_bytes;
    int64_t most_bytes;      // of one buffer
    int64_t parameter_bytes; // of a kernel
    int64_t most_items;      // of a launch
    size_t most_local, units;
    const char *build_options;
    bool is_cpu, lost;
};
// The status of a call. A lost device stays lost.
status_t ocl_check(struct ocl_device *d, ocl_code code, const char *call) MUST_CHECK;
status_t ocl_alive(const struct ocl_device *d) MUST_CHECK; // UNAVAILABLE once it is lost
status_t ocl_finish(struct ocl_device *d) MUST_CHECK; // all that was given to the queue is over

// ocl_memory.c: the device's memory, counted.
struct ocl_memory {
    void *mem; // NULL: none
    int64_t bytes;
};
// what: for the error, static text. RESOURCE_EXHAUSTED, REASON_DEVICE_MEMORY. At least a byte.
status_t ocl_take(struct ocl_device *d, int64_t bytes, const char *what,
                  struct ocl_memory *out) MUST_CHECK;
void ocl_give(struct ocl_device *d, struct ocl_memory *m); // nothing if it is none
struct ocl_place {
    void *mem;
    int64_t at;
};
// wait: until it is done; else host memory must stay until ocl_finish. Nothing for 0 bytes.
status_t ocl_write(struct ocl_device *d, struct ocl_place to, const void *from, int64_t bytes,
                   bool wait) MUST_CHECK;
status_t ocl_read(struct ocl_device *d, void *to, struct ocl_place from, int64_t bytes,
                  bool wait) MUST_CHECK;
status_t ocl_copy(struct ocl_device *d, struct ocl_place to, struct ocl_place from,
                  int64_t bytes) MUST_CHECK; // nothing where they are the same
struct ocl_buffer {
    struct dev_buffer base;
    struct ocl_memory memory;
};
// Takes the memory.
struct dev_buffer *ocl_buffer_of(struct ocl_device *d, const struct shape *s,
                                 struct ocl_memory memory);
status_t ocl_put(struct device *d, const struct shape *s, const void *data,
                 struct dev_buffer **out) MUST_CHECK;
status_t ocl_get(struct dev_buffer *b, int64_t offset, int64_t n, void *dst) MUST_CHECK;
void ocl_drop(struct dev_buffer *b);

// ---- executables

struct ocl_step {
    const struct plan_step *plan;
    void *kernel; // of the executable; NULL: control flow, or the reference evaluator
    const struct kernel_info *info;
    bool scratch;          // its kernel has parameters for it
    size_t local, items;   // work items of a group, of the launch
    int64_t per;           // units of an item
    int64_t scratch_bytes; // of all items
    struct ocl_plan **called;
    int64_t stage_at;     // of a loop whose state changes places: in the executable's stage
    struct ocl_place *at; // [operand and result leaves] while it runs
    int64_t bytes;
};
struct ocl_plan {
    struct plan *plan;
    struct ocl_step *steps;
    struct ocl_place *consts; // [n_consts]
};
struct ocl_exe {
    struct dev_exe base;
    struct executable *exe; // owned
    struct arena arena;
    struct ocl_plan *main, *prepare;
    void *programs[2];
    VEC(void *) kernels;
    VEC(struct ocl_memory) consts;
    struct ocl_memory memory, scratch, stage; // of runs; scratch and stage of prepare too
    struct ocl_memory *inputs;                // [parameter leaves of main], made when needed
    int64_t scratch_bytes, stage_bytes;
    struct dev_reference reference;
    struct dev_stats stats;
};
struct ocl_weights {
    struct dev_weights base;
    struct ocl_memory *bound; // [n_bound] leaves
    int n_bound;
    struct arena arena;
};
static inline struct ocl_device *ocl_of(const struct dev_exe *x) {
    return (struct ocl_device *)x->dev;
}
status_t ocl_load_exe(struct device *d, struct executable *exe, const _Atomic bool *cancel,
                      struct dev_exe **out) MUST_CHECK;
void ocl_unload(struct dev_exe *x);
status_t ocl_prepare(struct dev_exe *x, const struct span *weights, int n,
                     const _Atomic bool *cancel, struct dev_weights **out) MUST_CHECK;
void ocl_release(struct dev_weights *w);
status_t ocl_run(struct dev_exe *x, struct dev_weights *w, const struct dev_run *r) MUST_CHECK;
void ocl_explain(const struct dev_exe *x, struct strbuf *out);

// ocl_walk.c: the steps of a plan, one after the other.
struct ocl_waiting { // a kernel whose row of the profile waits for its times
    void *event;
    int row;
};
struct ocl_walk {
    struct ocl_exe *x;
    const _Atomic bool *cancel;
    struct profile *profile; // or NULL
    VEC(struct ocl_waiting) waiting;
    int64_t given;              // kernels given to the queue
    void *mark;                 // of one a while ago: NULL, or it is waited for before many more
    int64_t host_ns, device_ns; // of the same moment, once a kernel was given
};
struct ocl_frame {
    const struct ocl_place *params;
    struct ocl_place memory; // of the plan
};
status_t ocl_walk_plan(struct ocl_walk *w, const struct ocl_plan *p,
                       const struct ocl_frame *f) MUST_CHECK;
struct ocl_place ocl_place_of(const struct ocl_plan *p, const struct ocl_frame *f,
                              const struct slice *s);
// Waits for all that was given; after an error too. Fills in the profile.
status_t ocl_walk_end(struct ocl_walk *w, status_t st) MUST_CHECK;
static inline int64_t ocl_aligned(int64_t bytes) {
    return round_up(bytes, 64);
}
