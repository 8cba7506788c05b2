// SPDX-License-Identifier: Apache-2.0
// pjrt_load: a PJRT plugin in this process, and calls into it. A plugin is a shared object of
// someone else's (TPU, GPU, CPU): it is opened once, never closed, may start threads, and may
// abort, which costs this worker process. Its version is probed, not asserted: minor versions from
// 57 up, and each function only when the plugin has it. Thread: one at a time.
#pragma once
#include "base/arena.h"
#include "base/status.h"
#include "devices/pjrt/pjrt_abi.h"

// What its devices are, by the extensions that it offers.
enum pj_family { PJ_FAMILY_OTHER, PJ_FAMILY_TPU, PJ_FAMILY_GPU };
enum pj_extension_type {
    PJ_EXT_GPU_CUSTOM_CALL = 0,
    PJ_EXT_PROFILER = 1,
    PJ_EXT_TPU_TOPOLOGY = 16,
    PJ_EXT_TPU_EXECUTABLE = 17
};
struct pj_extension {
    size_t struct_size;
    int type; // enum pj_extension_type, or one that we do not know
    const struct pj_extension *next;
};
struct pj_plugin {
    const struct pj_api *api;
    enum pj_family family;
    const char *path;
    char digest[17]; // of the plugin's file, 16 hex digits
};
// NOT_FOUND: no such file. FAILED_PRECONDITION: not a plugin, or too old. The same path gives the
// same plugin again.
status_t pj_open(const char *path, const struct pj_plugin **out) MUST_CHECK;
bool pj_has(const struct pj_plugin *p, enum pj_slot slot);
const struct pj_extension *pj_find_extension(const struct pj_plugin *p,
                                             enum pj_extension_type type); // NULL if it has none
// Calls a function with its zeroed struct; fills in the head. UNIMPLEMENTED when the plugin lacks
// it; the plugin's own code and message otherwise.
status_t pj_call(const struct pj_plugin *p, enum pj_slot slot, void *args, size_t bytes) MUST_CHECK;
#define PJ_CALL(plugin, slot, args) pj_call((plugin), PJ_##slot, (args), sizeof *(args))
void pj_drop_error(const struct pj_plugin *p, void *error); // NULL is fine
// Destroys one object by its Destroy function; NULL is fine.
void pj_destroy(const struct pj_plugin *p, enum pj_slot slot, void *object);
// Waits for an event, destroys it, gives what it says. NULL is done.
status_t pj_await(const struct pj_plugin *p, void *event) MUST_CHECK;
// A text that a function gives of an object, in `a`; "" when it gives none.
const char *pj_text(const struct pj_plugin *p, enum pj_slot slot, const void *object,
                    struct arena *a);
