// SPDX-License-Identifier: Apache-2.0
// pjrt_options: what a spec of the pjrt device says.
//
//     pjrt:plugin=/path/to/plugin.so            first device of the plugin's client
//     pjrt:plugin=...:device=1:set.NAME=VALUE   another one; NAME is an option of the plugin's
//     client: true and false, whole numbers, numbers with a point and texts as such
//     pjrt:plugin=...:drain_ms=10000            how long a cancelled run's execution may go on
//     before the device counts as lost
//     pjrt:plugin=...:kind=tpu                  how the daemon calls its devices; default "pjrt"
//
// Without plugin= the path is the environment's HLOD_PJRT_PLUGIN.
#pragma once
#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"
#include "devices/pjrt/pjrt_abi.h"

enum { PJ_MAX_OPTIONS = 16 };
struct pj_options {
    const char *plugin, *kind;
    int64_t device, drain_ms;
    struct pj_named_value set[PJ_MAX_OPTIONS]; // of the client or topology
    size_t n_set;
};
// Texts lie in `a`. INVALID_ARGUMENT, FAILED_PRECONDITION when no plugin is named. Thread: any.
status_t pj_options_parse(struct arena *a, const char *text, struct pj_options *out) MUST_CHECK;
struct pj_named_value pj_text_option(const char *name, const char *value);
struct pj_named_value pj_bool_option(const char *name, bool value);
