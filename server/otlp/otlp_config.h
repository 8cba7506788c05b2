// SPDX-License-Identifier: Apache-2.0
// otlp_config: what is exported, where and how: hlod's options, and OpenTelemetry's environment
// variables where an option is not given. A mistake in an option is an error; one in a variable of
// OpenTelemetry's is told, and the variable as none (the specification's rule). Thread: start-up,
// and a reload on the loop.
#pragma once
#include "base/vec.h"
#include "server/otlp/otlp_record.h"
#include "server/otlp/otlp_send.h"
#include "server/otlp/sampler.h"

struct config;
enum { OTLP_STOP_MS = 5000 }; // for what waits at the end
struct otlp_config {
    struct otlp_target to[OTLP_SIGNALS];
    struct sampler sampler;
    struct otlp_keep keep;
    int64_t queue_bytes, metrics_ms;
    int64_t batch, delay_ms; // spans of a request; how long they wait for more
    const struct otlp_attribute *resource;
    size_t n_resource;
    VEC(const char *) warnings; // in the arena
};
// Everything lies in a. env is like environ. errors: INVALID_ARGUMENT; of the headers' file
status_t otlp_config_read(struct arena *a, const struct config *c, char *const *env,
                          struct otlp_config *out) MUST_CHECK;
// Only what a reload changes: sampler and keep. errors: INVALID_ARGUMENT
status_t otlp_config_live(struct arena *a, const struct config *c, char *const *env,
                          struct otlp_config *out) MUST_CHECK;
