// SPDX-License-Identifier: Apache-2.0
// pjrt_abi_run: the structs of pjrt_abi.h that deal with what runs: events, transfers, executions.
#pragma once
#include "devices/pjrt/pjrt_abi.h"

struct pj_event_ready {
    PJ_HEAD;
    void *event;
    bool ready; // filled in
};
struct pj_event_on_ready {
    PJ_HEAD;
    void *event;
    void (*callback)(void *error, void *arg); // owns the error; from any thread, or during the call
    void *arg;
};
struct pj_buffer_deleted {
    PJ_HEAD;
    void *buffer;
    bool deleted; // filled in
};
enum pj_host_semantics { PJ_COPY_DURING_CALL, PJ_KEEP_UNTIL_DONE };
struct pj_from_host {
    PJ_HEAD;
    void *client;
    const void *data;
    int type; // enum pj_type
    const int64_t *dims;
    size_t n_dims;
    const int64_t *strides; // bytes; NULL = dense, row-major
    size_t n_strides;
    enum pj_host_semantics semantics;
    void *device, *memory, *layout;
    void *done; // filled in: event, `data` may be reused
    void *buffer;
};
struct pj_to_host {
    PJ_HEAD;
    void *buffer;
    void *layout; // of the result: NULL = as on the device
    void *dst;    // NULL: the size is filled in
    size_t dst_size;
    void *event; // filled in
};
enum pj_layout_type { PJ_LAYOUT_TILED, PJ_LAYOUT_STRIDES };
struct pj_layout {
    PJ_HEAD;
    union {
        struct {
            PJ_HEAD;
            const int64_t *minor_to_major;
            size_t n_minor_to_major;
            const int64_t *tile_dims;
            const size_t *tile_dim_sizes;
            size_t n_tiles;
        } tiled;
        struct {
            PJ_HEAD;
            const int64_t *byte_strides;
            size_t n_byte_strides;
        } strides;
    };
    enum pj_layout_type type;
};

struct pj_execute_options {
    PJ_HEAD;
    void **send, **recv;
    size_t n_send, n_recv;
    int launch_id;
    const int64_t *keep_inputs; // indices that must not be donated
    size_t n_keep_inputs;
    void *context;
    const char *call_location;
    size_t n_tasks;
    int *task_ids;
    int64_t *incarnation_ids;
};
struct pj_execute {
    PJ_HEAD;
    void *loaded;
    struct pj_execute_options *options;
    void *const *const *arguments; // [devices][arguments]
    size_t n_devices, n_arguments;
    void **const *outputs; // [devices][outputs], filled in
    void **events;         // [devices], filled in
    void *device;          // NULL: as compiled
};
