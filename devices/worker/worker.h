// SPDX-License-Identifier: Apache-2.0
// worker: the process side of the wire protocol (proto/wire.proto). The loop thread reads frames,
// answers STATS and CANCEL at once, and queues the rest for the run thread, which owns compiler and
// device. Roles: "compile" (INGEST, COMPILE, INSPECT, TUNE; no resident state) and "device" (LOAD,
// PREPARE, RUN, UNLOAD).
#pragma once
#include <stdbool.h>

#include "base/status.h"
enum { WORKER_OUT_OF_MEMORY = 66 }; // exit status, for the daemon to tell
struct worker_options {
    const char *role;
    const char *device; // spec: KIND[:OPTIONS], see device.h; compile role: the kind
    const char *name;   // "cpu:0": how the daemon calls it
    int fd;
    int state;      // descriptor of the state page (proto/frame.h); 0 = none
    int64_t device_memory; // of the device, that this process may plan with; 0 = all
    int64_t memory; // bytes that the process may take (RLIMIT_DATA); 0 = no bound
    bool filter;    // enter the system call filter (devices/worker/sandbox.h)
};
// Serves until the daemon closes the socket, then returns ST_OK, or ends the process when a call is
// still under way. Otherwise returns what ended it.
status_t worker_serve(const struct worker_options *o) MUST_CHECK;
