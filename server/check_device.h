// SPDX-License-Identifier: Apache-2.0
// check_device: for --check-config, can the device of a spec be opened? Its options are known to
// the worker program alone, so that is asked (--role=check). A PJRT plugin is not loaded: it would
// take an accelerator that a running daemon holds; its file is looked for. Thread: any.
#pragma once
#include "scheduler/workers/plugins.h"

// worker: the hlod-worker program. pjrt_plugin: of --pjrt-plugin, "" = none. A plugin known by name
// may be installed later: that it is absent is no error. INVALID_ARGUMENT and what the worker says;
// the file's error.
status_t check_device(const struct plugins *plugins, struct arena *a, const char *worker,
                      const char *spec, const char *pjrt_plugin) MUST_CHECK;
