// SPDX-License-Identifier: Apache-2.0
// host_buffer: resident buffers of a device whose memory is the process's own (cpu, sim), and where
// the results of a run go. Thread: the one that calls the device.
#pragma once
#include "devices/device.h"

// data NULL: contents are anything. RESOURCE_EXHAUSTED, REASON_DEVICE_MEMORY.
status_t host_buffer_new(struct device *d, const struct shape *s, const void *data,
                         struct dev_buffer **out) MUST_CHECK;
void *host_buffer_data(const struct dev_buffer *b); // 64-byte aligned
void host_buffer_free(struct dev_buffer *b);        // vtable slot `drop`
status_t host_buffer_get(struct dev_buffer *b, int64_t offset, int64_t n, void *dst) MUST_CHECK;

// Input k of a run: its buffer's memory, or the host memory that was given.
static inline const void *host_input(const struct dev_run *r, int64_t k) {
    return r->in_buffers && r->in_buffers[k] ? host_buffer_data(r->in_buffers[k]) : r->in[k];
}
// Is a donated input of this size there, whose memory a result may take?
bool host_has_donor(const struct dev_run *r, int64_t n_in, int64_t bytes);
// Delivers the results of a run, src[n] of shapes[n]: copies into r->out, or into buffers r->kept,
// which take the memory of donated inputs of their size where they can. n_in: inputs of the run.
// reserve (or NULL) is asked for the memory that is needed anew. ahead (or NULL): buffers made
// before the run, in which a result may lie already; on success they are the caller's no more. On
// failure nothing is delivered or donated.
status_t host_deliver(struct device *d, const struct dev_run *r, int64_t n_in, void *const *src,
                      const struct shape *const *shapes, int n, struct dev_buffer *const *ahead,
                      status_t (*reserve)(struct device *d, int64_t bytes)) MUST_CHECK;
