// SPDX-License-Identifier: Apache-2.0
// pjrt_profile: what happens inside a plugin's executable, by the plugin's own profiler (extension
// 1), where it has one: TPU and GPU plugins do, CPU ones do not. It gives an XSpace, whose device
// planes become rows of our profile, one deeper than the execution. Thread: as pjrt_load.h.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "devices/pjrt/pjrt_load.h"
#include "devices/profile.h"

struct pj_profiler;
// NULL where the plugin has none, or it does not start: a run is not refused over its profile.
struct pj_profiler *pj_profiler_begin(const struct pj_plugin *p);
// Stops it (NULL: nothing), adds rows that start start_ns after the profile's zero; names in `a`.
void pj_profiler_end(struct pj_profiler *x, struct arena *a, int64_t start_ns, struct profile *out);
// The rows of an XSpace: its planes "/device:...", their lines of operations. INVALID_ARGUMENT for
// bytes that are not one. Pure.
status_t pj_profile_read(struct span xspace, struct arena *a, int64_t start_ns,
                         struct profile *out) MUST_CHECK;
