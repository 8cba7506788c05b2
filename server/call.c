// SPDX-License-Identifier: Apache-2.0
#include "server/call.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "server/api.h"

void call_init(struct call *c, struct api *api) {
    *c = (struct call){.api = api, .payload_fd = -1, .content_type = "", .start_ns = clock_ns()};
}

void call_event(struct call *c, const Hlod__V1__Event *e) {
    if (!c->finished && c->row->stream) c->sink->event(c, e);
}

void call_finish(struct call *c, const ProtobufCMessage *reply, status_t st) {
    if (c->finished) {
        st_drop(st);
        return;
    }
    c->finished = true;
    metric_add(M_REQUESTS, 1);
    if (st) metric_add(M_REQUEST_ERRORS, 1);
    metric_observe_ns(M_REQUEST_TIME, clock_ns() - c->start_ns);
    c->sink->finish(c, reply, st);
}

void call_cancel(struct call *c) {
    if (c->finished) return;
    c->finished = true;
    metric_add(M_REQUESTS, 1);
    metric_add(M_REQUEST_ERRORS, 1);
    if (c->on_cancel) c->on_cancel(c);
}

void call_done(struct call *c) {
    c->done = true;
    if (c->busy) return;
    if (c->on_free) c->on_free(c);
    if (c->payload_fd >= 0) close(c->payload_fd);
    arena_done(&c->arena);
    free(c);
}

void call_released(struct call *c) {
    if (c->done) call_done(c);
}
