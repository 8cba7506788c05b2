// SPDX-License-Identifier: Apache-2.0
// ocl_device: what the files of this folder share. Thread: the device's.
#pragma once
#include "base/map.h"
#include "devices/opencl/ocl_load.h"
#include "devices/queue/queue.h"

struct ocl_waiting { // a kernel whose row of the profile waits for its times
    void *event;
    int row;
};
struct ocl_device {
    struct queue_device base;
    const struct ocl_api *cl;
    void *id, *context, *queue; // the queue runs what it is given in order
    int64_t parameter_bytes;    // of a kernel
    int64_t most_items;         // of a launch
    size_t most_local, units;
    const char *build_options;
    bool is_cpu;
    // Of the walk that goes on.
    VEC(struct ocl_waiting) waiting;
    int64_t given;              // kernels given to the queue
    void *mark;                 // of one a while ago: NULL, or it is waited for before many more
    int64_t host_ns, device_ns; // of the same moment, once a kernel was given
};
// The status of a call. A lost device stays lost.
status_t ocl_check(struct ocl_device *d, ocl_code code, const char *call) MUST_CHECK;
status_t ocl_finish(struct queue_device *d) MUST_CHECK; // all that was given to the queue is over

struct ocl_kernel {        // a step's
    void *kernel;          // of the executable
    bool scratch;          // it has parameters for it
    size_t local, items;   // work items of a group, of the launch
    int64_t per;           // units of an item
    int64_t scratch_bytes; // of all items
};
struct ocl_exe {
    struct queue_exe base;
    VEC(void *) programs;
    VEC(void *) kernels;
    void *program;       // of the module that is loaded
    struct smap symbols; // of it: symbol -> kernel
    struct queue_memory scratch;
    int64_t scratch_bytes;
};
static inline struct ocl_device *ocl_of(const struct queue_exe *x) {
    return (struct ocl_device *)x->base.dev;
}
extern const struct queue_driver ocl_driver;

// ocl_memory.c, ocl_kernels.c, ocl_run.c: slots of the driver.
status_t ocl_take(struct queue_device *d, int64_t n, struct queue_memory *out) MUST_CHECK;
void ocl_give(struct queue_device *d, const struct queue_memory *m);
status_t ocl_write(struct queue_device *d, struct queue_place to, const void *from, int64_t bytes,
                   bool wait) MUST_CHECK;
status_t ocl_read(struct queue_device *d, void *to, struct queue_place from, int64_t bytes,
                  bool wait) MUST_CHECK;
status_t ocl_copy(struct queue_device *d, struct queue_place to, struct queue_place from,
                  int64_t bytes) MUST_CHECK;
status_t ocl_begin(struct queue_exe *x, const struct kernel_set *k) MUST_CHECK;
status_t ocl_bind(struct queue_exe *x, struct queue_step *s) MUST_CHECK;
status_t ocl_ready(struct queue_exe *x) MUST_CHECK;
void ocl_unload(struct queue_exe *x);
void ocl_explain(const struct queue_step *s, struct strbuf *out);
status_t ocl_run(struct queue_walk *w, const struct queue_step *s) MUST_CHECK;
void ocl_settle(struct queue_walk *w);
