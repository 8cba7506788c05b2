// SPDX-License-Identifier: Apache-2.0
// pjrt_device: what the files of this folder share: a client, or a plugin opened to compile only,
// and what is compiled for. Thread: as pjrt_load.h.
#pragma once
#include "devices/device.h"
#include "devices/pjrt/pjrt_events.h"
#include "devices/pjrt/pjrt_options.h"
#include "devices/pjrt/pjrt_program.h"

struct pj_device;
struct pj_target { // its client's devices, or a topology without any
    struct target base;
    struct pj_device *device;
    void *topology; // NULL: the client's devices
    struct pj_target *next;
};
struct pj_device {
    struct device base;
    const struct pj_plugin *plugin;
    struct pj_options options;
    struct arena arena;
    void *client;         // NULL while it only compiles for topologies
    void *const *devices; // of the client
    size_t n_devices;
    void *device;         // the one that single executables run on
    const char *platform; // "cpu", "tpu", "cuda"
    const char *description;
    int64_t memory_bytes;
    struct pj_target own; // its client's
    struct pj_target *targets;
    struct pj_pending given_up; // pjrt_device.c
    int64_t given_up_ns;        // when the oldest was
};
static inline struct pj_place pj_place_of(const struct pj_device *d, void *topology) {
    return (struct pj_place){d->plugin, d->client, topology, d->platform};
}

// Executions that a cancelled run no longer waits for. Nothing is begun before they are over:
// waits, as long as *cancel is not set (NULL: never). UNAVAILABLE when one does not end within the
// option drain_ms: only a new process gets the device back.
status_t pj_settle(struct pj_device *d, const _Atomic bool *cancel) MUST_CHECK;
void pj_give_up(struct pj_device *d, struct pj_pending *w); // empties w
status_t pj_idle(struct device *base, bool *busy) MUST_CHECK;

// pjrt_buffer.c. Both only begin a transfer: `data` and `dst` must stay until what is added to `w`
// is over. to_host gives the value dense and row-major, once to_host_end was called.
status_t pj_to_device(struct pj_device *d, void *device, const struct shape *s, const void *data,
                      size_t number, struct pj_pending *w, void **out) MUST_CHECK;
status_t pj_to_host(struct pj_device *d, const struct shape *s, void *buffer, void *dst,
                    size_t number, struct pj_pending *w) MUST_CHECK;
void pj_to_host_end(const struct shape *s, void *dst); // s4: the upper half of each byte
void pj_destroy_buffers(const struct pj_plugin *p, void **b, size_t n);
status_t pj_buffer_wrap(struct pj_device *d, const struct shape *s, void *pj,
                        struct dev_buffer **out) MUST_CHECK; // takes pj, also on failure
void *pj_buffer_of(struct dev_buffer *b);
status_t pj_buffer_put(struct device *base, const struct shape *s, const void *data,
                       struct dev_buffer **out) MUST_CHECK;
status_t pj_buffer_get(struct dev_buffer *base, int64_t offset, int64_t n, void *dst) MUST_CHECK;
void pj_buffer_drop(struct dev_buffer *base);
void pj_buffer_check(struct dev_buffer *base); // sets spent

// pjrt_exe.c: the slots of struct dev_vtable that deal with executables.
status_t pj_exe_load(struct device *base, struct executable *exe, const _Atomic bool *cancel,
                     struct dev_exe **out) MUST_CHECK;
void pj_exe_unload(struct dev_exe *base);
status_t pj_exe_prepare(struct dev_exe *base, const struct span *weights, int n,
                        const _Atomic bool *cancel, struct dev_weights **out) MUST_CHECK;
void pj_exe_release(struct dev_weights *base);
status_t pj_exe_run(struct dev_exe *base, struct dev_weights *w,
                    const struct dev_run *r) MUST_CHECK;
struct dev_stats pj_exe_stats(const struct dev_exe *base);
void pj_exe_explain(const struct dev_exe *base, struct strbuf *out);
