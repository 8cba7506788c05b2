// SPDX-License-Identifier: Apache-2.0
// sampler: which traces are recorded, by OpenTelemetry's built-in samplers. Pure. Thread: any.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/span.h"

struct trace;
struct sampler {
    bool by_parent; // as the caller's flag says, where there is a caller
    uint64_t below; // the lower 63 bits of a trace's id, of those that are recorded
};
enum { SAMPLER_BITS = 63 };
// The names of OTEL_TRACES_SAMPLER: "parentbased_traceidratio", ...; ratio: from 0 to 1. False: no
// such name, or not here.
bool sampler_named(struct str name, double ratio, struct sampler *out);
// Others that take the same ratio of the same ids record the same traces: by the last 8 bytes, as
// the SDKs do.
bool sampler_takes(const struct sampler *s, const struct trace *t);
