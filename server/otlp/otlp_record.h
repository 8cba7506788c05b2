// SPDX-License-Identifier: Apache-2.0
// otlp_record: work as one piece of memory on its way from the loop to the exporter's thread: what
// it points to is copied, but for texts that live as long as the process. Copying is all that the
// loop does of an export.
#pragma once
#include "base/arena.h"
#include "scheduler/trace.h"
#include "server/otlp/otlp_queue.h"
#include "server/spans.h"

struct otlp_keep { // what of it
    enum spans_detail detail;
    bool names; // of models and tenants, and messages, which have such names in them
};
// Thread: the one that puts. Where there is no room for passes and steps it goes without, else not
// at all; returns the spans that are lost by that.
unsigned otlp_record_put(struct otlp_queue *q, const struct trace_work *w,
                         const struct otlp_keep *keep);
// Thread: the one that takes. Borrows from the record, and from a.
void otlp_record_get(const void *record, struct arena *a, struct trace_work *out);
