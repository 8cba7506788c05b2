// SPDX-License-Identifier: Apache-2.0
#include "server/otlp/sampler.h"

#include "scheduler/trace.h"

static const uint64_t ALL = UINT64_C(1) << SAMPLER_BITS;

bool sampler_named(struct str name, double ratio, struct sampler *out) {
    static const struct {
        const char *name;
        bool by_parent;
        enum { NONE, RATIO, EVERY } roots;
    } rows[] = {{"always_on", false, EVERY},
                {"always_off", false, NONE},
                {"traceidratio", false, RATIO},
                {"parentbased_always_on", true, EVERY},
                {"parentbased_always_off", true, NONE},
                {"parentbased_traceidratio", true, RATIO}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        if (!str_is(name, rows[k].name)) continue;
        bool every = rows[k].roots == EVERY || (rows[k].roots == RATIO && ratio >= 1),
             none = rows[k].roots == NONE || ratio <= 0;
        *out = (struct sampler){rows[k].by_parent, every  ? ALL
                                                   : none ? 0
                                                          : (uint64_t)(ratio * (double)ALL)};
        return true;
    }
    return false;
}

bool sampler_takes(const struct sampler *s, const struct trace *t) {
    if (s->by_parent && t->remote) return t->flags & TRACE_SAMPLED;
    uint64_t low = 0;
    for (int k = 8; k < 16; k++)
        low = low << 8 | t->id[k];
    return low >> 1 < s->below;
}
