// SPDX-License-Identifier: Apache-2.0
// pjrt_program: a module becomes a plugin's executable. The plugin gets a HloModuleProto and does
// its own layout and fusion; what it makes is kept serialised, so that a later process loads it
// without compiling. Thread: as pjrt_load.h.
#pragma once
#include "compiler/ir/ir.h"
#include "compiler/target.h"
#include "devices/pjrt/pjrt_load.h"

// For whom: the devices of a client, or of a topology where there is none.
struct pj_place {
    const struct pj_plugin *plugin;
    void *client, *topology;
    const char *platform; // "cpu", "tpu", "cuda"
};
// Compiles for `replicas` devices; strict: each operation of f16 and bf16 rounds. *out: in `a`; its
// code is for pj_program_load. INVALID_ARGUMENT for what a plugin cannot take; other errors are the
// plugin's.
status_t pj_program_compile(const struct pj_place *at, struct arena *a, const struct hlo_module *m,
                            int replicas, bool strict, struct emitted *out) MUST_CHECK;
// *out: a loaded executable, to be destroyed (LoadedExecutable_Destroy).
status_t pj_program_load(const struct pj_place *at, struct span code, int replicas,
                         void **out) MUST_CHECK;
