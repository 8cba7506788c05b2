// SPDX-License-Identifier: Apache-2.0
// pool_slots: how many worker processes a configuration asks for, by device and kind. Pure.
#pragma once
#include "scheduler/workers/pool.h"

// Does the configuration name the spec's kind among the first n devices?
bool pool_serves(const struct pool_config *cfg, const char *spec, int n);
// Where workers belong to tenants there are more of each. A device of a plugin is one process's.
int pool_of_device(const struct pool_config *cfg, int i);
int pool_of_compilers(const struct pool_config *cfg, const char *spec); // of the spec's kind
int pool_slots(const struct pool_config *cfg);                          // in all
// What one compile worker may take of a machine, or control group, with so many bytes: those of a
// kind that compile at a time leave a quarter of it to the rest. A relief has a quarter of that.
int64_t pool_compile_memory(const struct pool_config *cfg, int64_t machine_bytes);
