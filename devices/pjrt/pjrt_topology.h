// SPDX-License-Identifier: Apache-2.0
// pjrt_topology: devices that are not here, described by name, to compile for. A name is refused by
// us unless it is well formed: plugins were seen to abort on others, or to take "" for some device
// of their own (docs/decisions/0012).
//
//     TPU   FAMILY:AxB[xC]    v5e:2x2, v4:2x2x1, "TPU v5 lite:2x2"
//     GPU   NAME[:N]          h100, a100:2: a row of pjrt_gpus.def, N devices of one host
//
// Thread: as pjrt_load.h.
#pragma once
#include "devices/pjrt/pjrt_load.h"

struct pj_topology {
    void *handle; // TopologyDescription, the caller's
    // Canonical name: the same for a topology by name and for the client of a machine that has it,
    // and itself a name that gives the topology again. No spaces.
    const char *name;
    int64_t memory_bytes; // of a device; 0 = the plugin does not say
    int n_devices;
};
// INVALID_ARGUMENT for a name that is not well formed, or that the plugin refuses. Texts in `a`.
status_t pj_topology_create(const struct pj_plugin *p, struct arena *a, const char *name,
                            struct pj_topology *out) MUST_CHECK;
// Canonical name of devices by their descriptions: their kind, and the box that their coordinates
// span, where they have any ("TPU_v5_lite:2x2x1"); else the kind alone.
const char *pj_topology_name(const struct pj_plugin *p, struct arena *a, void *const *descriptions,
                             size_t n);
