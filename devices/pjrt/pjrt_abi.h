// SPDX-License-Identifier: Apache-2.0
// pjrt_abi: the binary interface of a PJRT plugin, in our own words (facts: OpenXLA's PJRT C API,
// struct layouts as of version 0.81, which later ones only extend). A plugin exports
// `GetPjrtApi`, which gives a table of functions; each takes one struct that begins with its size
// as the caller knows it and a NULL extension list, and gives NULL or an error object. Fields that
// an older plugin does not know stay as the caller left them, so every struct is zeroed first.
// Comments say what the callee fills in. Calls go through pjrt_load.h.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pj_slot {
#define PJ_SLOT(name) PJ_##name,
#include "devices/pjrt/pjrt_slots.def"
#undef PJ_SLOT
    PJ_SLOT_COUNT
};

#define PJ_HEAD                                                                                    \
    size_t struct_size;                                                                            \
    void *extension

struct pj_api {
    PJ_HEAD;
    struct {
        PJ_HEAD;
        int major, minor;
    } version;
    void *slots[];
};
_Static_assert(offsetof(struct pj_api, slots) == 40, "the table begins at byte 40");

enum pj_value_type { PJ_STRING, PJ_INT64, PJ_INT64_LIST, PJ_FLOAT, PJ_BOOL };
struct pj_named_value {
    PJ_HEAD;
    const char *name;
    size_t name_size;
    enum pj_value_type type;
    union {
        const char *string;
        int64_t i64;
        const int64_t *i64s;
        float f32;
        bool boolean;
    };
    size_t value_size; // elements; 1 for scalars
};

struct pj_error_args {
    PJ_HEAD;
    const void *error;
};
struct pj_error_message {
    PJ_HEAD;
    const void *error;
    const char *message; // filled in, as long as the error
    size_t message_size;
};
struct pj_error_code {
    PJ_HEAD;
    const void *error;
    int code; // filled in: absl's canonical codes, which are ours
};
struct pj_no_args {
    PJ_HEAD;
};
// Destroys, awaits: everything that takes one object and gives nothing.
struct pj_object_args {
    PJ_HEAD;
    void *object;
};
// Takes one object, gives a borrowed text.
struct pj_text_args {
    PJ_HEAD;
    const void *object;
    const char *text; // filled in
    size_t text_size;
};
// Takes one object, gives another.
struct pj_get_args {
    PJ_HEAD;
    void *object;
    void *out; // filled in
};
// Takes one object, gives a borrowed array of objects.
struct pj_list_args {
    PJ_HEAD;
    const void *object;
    void *const *list; // filled in
    size_t n;
};

struct pj_client_create {
    PJ_HEAD;
    const struct pj_named_value *options;
    size_t n_options;
    void *kv_get, *kv_get_arg, *kv_put, *kv_put_arg; // many hosts: not used
    void *client;                                    // filled in
    void *kv_try_get, *kv_try_get_arg;
};

struct pj_program {
    PJ_HEAD;
    char *code;
    size_t code_size;
    const char *format; // "hlo": HloModuleProto; "mlir": StableHLO
    size_t format_size;
};
struct pj_client_compile {
    PJ_HEAD;
    void *client;
    const struct pj_program *program;
    const char *options; // CompileOptionsProto
    size_t options_size;
    void *loaded; // filled in
};
// Ahead of time: devices described by name, none present.
struct pj_topology_create {
    PJ_HEAD;
    const char *name;
    size_t name_size;
    const struct pj_named_value *options;
    size_t n_options;
    void *topology; // filled in
};
struct pj_compile {
    PJ_HEAD;
    const void *topology;
    const struct pj_program *program;
    const char *options; // CompileOptionsProto
    size_t options_size;
    void *client;     // or NULL
    void *executable; // filled in; not loaded
};
// Of a device description: the count comes first.
struct pj_attributes {
    PJ_HEAD;
    const void *object;
    size_t n;
    const struct pj_named_value *list; // filled in
};
struct pj_optimized_program {
    PJ_HEAD;
    const void *executable;
    struct pj_program *program; // code NULL: code_size is filled in
};
struct pj_memory_stats {
    PJ_HEAD;
    const void *executable;
    int64_t code, argument, output, alias, temp; // filled in, bytes of device memory
    int64_t host_code, host_argument, host_output, host_alias, host_temp;
    int64_t peak, total; // since 0.85; 0 from older ones
};
struct pj_serialize {
    PJ_HEAD;
    const void *executable;
    const char *bytes; // filled in, as long as `backing`
    size_t bytes_size;
    void *backing;
    void (*free_backing)(void *backing);
};
struct pj_deserialize {
    PJ_HEAD;
    void *client;
    const char *bytes;
    size_t bytes_size;
    void *loaded; // filled in
    const char *options;
    size_t options_size;
};
struct pj_device_memory {
    PJ_HEAD;
    void *device;
    int64_t in_use; // filled in
    struct {
        int64_t value;
        bool set;
    } peak, allocs, largest, limit, reserved, peak_reserved, reservable, largest_free, pool,
        peak_pool;
};
