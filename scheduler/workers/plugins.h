// SPDX-License-Identifier: Apache-2.0
// plugins: the PJRT plugins that this daemon knows by name, and what names of devices and targets
// mean with them. A plugin may come while the daemon runs: its file is looked for when it is asked
// for. Pure but for that. Thread: loop.
//
//     device spec   cpu | sim:... | pjrt:... | KIND[:OPTIONS] | cpu:plugin=NAME[:OPTIONS]
//     target        cpu | KIND[:TOPOLOGY] | cpu:plugin=NAME
#pragma once
#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

struct plugin {
    const char *name, *kind; // "tpu", "tpu"; "cuda", "gpu"
    const char *path;        // the shared object; may be absent
    const char *options;     // of its devices, KEY=VALUE joined by ':'; ""
    const char *examples;    // targets that it compiles for without a device, with spaces between
    bool installs;           // `hlo plugins install NAME` brings it
    const char *data;        // behind that command: " --data DIR", or "" for the usual data folder
};
struct plugins {
    struct plugin *v;
    size_t n, cap;
};
// The ones of proto/plugins.def under `dir`/plugins, and those of `list`
// ("NAME=FILE[:OPTIONS],..."), which win. All texts in `a`. INVALID_ARGUMENT.
status_t plugins_init(struct arena *a, const char *dir, const char *list,
                      struct plugins *out) MUST_CHECK;
const struct plugin *plugins_of_kind(const struct plugins *p, const char *kind); // NULL
// NOT_FOUND, and how to install it, when the file is not there.
status_t plugin_present(const struct plugin *p) MUST_CHECK;
// A device spec with `cpu:plugin=NAME` put as the kind of NAME. INVALID_ARGUMENT for an unknown
// NAME.
status_t plugins_device(const struct plugins *p, struct arena *a, const char *spec,
                        const char **out) MUST_CHECK;
// What a worker is started with for that spec: of a plugin's kind "pjrt:plugin=FILE:kind=...:...".
const char *plugins_worker_spec(const struct plugins *p, struct arena *a, const char *spec);
// A target's name apart: the kind whose compile workers know it, and what they know it by.
// INVALID_ARGUMENT, REASON_BAD_TARGET for an empty name or one of no kind.
status_t plugins_target(const struct plugins *p, struct arena *a, const char *target,
                        const char **out_kind, const char **out_name) MUST_CHECK;
