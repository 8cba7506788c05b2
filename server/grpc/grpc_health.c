// SPDX-License-Identifier: Apache-2.0
// grpc.health.v1: Check, Watch, List. The state is readiness: workers of both roles are up and the
// server is not ending. Nothing tells of its change, so a timer looks while somebody watches.
#include <stdlib.h>
#include <string.h>

#include "proto/formats/health.pb-c.h"
#include "proto/weigh.h"
#include "scheduler/loop.h"
#include "server/grpc/grpc_call.h"

enum { LOOK_MS = 200 };
typedef Grpc__Health__V1__HealthCheckResponse response;
typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving;
static const char *const services[] = {"", "hlod.v1.Hlod", "inference.GRPCInferenceService"};
enum { N_SERVICES = sizeof services / sizeof *services };

struct watcher {
    struct watcher *prev, *next;
    struct rpc_call *rc;
    bool known;
    serving last;
};
struct rpc_health {
    struct loop_timer *timer;
    struct watcher *watchers;
};

static serving state(struct rpc *r) {
    struct api *api = rpc_api(r);
    return api_serves(api) ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                           : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
}
static bool is_service(const char *name) {
    for (size_t i = 0; i < N_SERVICES; i++)
        if (!strcmp(name, services[i])) return true;
    return false;
}

static void tell(struct watcher *w) {
    response m = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    m.status = w->known ? state(rpc_of(w->rc))
                        : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN;
    if (m.status == w->last) return;
    w->last = m.status;
    rpc_send(w->rc, &m.base);
}
static void look(void *arg) {
    struct rpc *r = arg;
    struct rpc_health *h = *rpc_health_slot(r);
    for (struct watcher *w = h->watchers; w; w = w->next)
        tell(w);
    if (h->watchers) loop_timer_start(h->timer, LOOK_MS);
}
void rpc_health_start(struct rpc *r) {
    struct rpc_health *h = arena_must_calloc(1, sizeof *h);
    h->timer = loop_timer_new(rpc_loop(r), look, r);
    *rpc_health_slot(r) = h;
}
void rpc_health_stop(struct rpc *r) {
    struct rpc_health *h = *rpc_health_slot(r);
    if (!h || !h->timer) return;
    look(r); // the last word: not serving
    loop_timer_free(h->timer);
    h->timer = NULL;
    for (struct watcher *w = h->watchers; w; w = w->next)
        rpc_finish(w->rc, st_new(ST_UNAVAILABLE, "the server is shutting down"));
}
void rpc_health_free(struct rpc *r) {
    free(*rpc_health_slot(r));
}

static void check(struct rpc_call *c, const char *name) {
    response m = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    if (!is_service(name)) {
        rpc_finish(c, st_new(ST_NOT_FOUND, "no service '%.100s'", name));
        return;
    }
    m.status = state(rpc_of(c));
    rpc_reply(c, &m.base);
}

static void list(struct rpc_call *c) {
    Grpc__Health__V1__HealthListResponse m = GRPC__HEALTH__V1__HEALTH_LIST_RESPONSE__INIT;
    Grpc__Health__V1__HealthListResponse__StatusesEntry rows[N_SERVICES], *all[N_SERVICES];
    response one = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    one.status = state(rpc_of(c));
    for (size_t i = 0; i < N_SERVICES; i++) {
        grpc__health__v1__health_list_response__statuses_entry__init(&rows[i]);
        rows[i].key = (char *)services[i];
        rows[i].value = &one;
        all[i] = &rows[i];
    }
    m.statuses = all;
    m.n_statuses = N_SERVICES;
    rpc_reply(c, &m.base);
}

static void watch(struct rpc_call *c, const char *name) {
    struct rpc_health *h = *rpc_health_slot(rpc_of(c));
    struct watcher *w = arena_must_calloc(1, sizeof *w);
    w->rc = c;
    w->known = is_service(name);
    w->last = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__UNKNOWN;
    w->next = h->watchers;
    if (w->next) w->next->prev = w;
    h->watchers = w;
    rpc_set_data(c, w);
    if (!h->timer) return; // it ends
    tell(w);
    if (!w->next) loop_timer_start(h->timer, LOOK_MS); // the first one
}

enum method { CHECK, WATCH, LIST };
static void message(struct rpc_call *c, const struct rpc_bytes *m) {
    if (rpc_over(c) || rpc_data(c)) return;
    struct arena a = {0};
    struct span s = {0};
    status_t st = m ? rpc_small(&a, m, &s) : st_invalid("no request message");
    Grpc__Health__V1__HealthCheckRequest *q =
        st ? NULL : weigh_unpack_or_null(&grpc__health__v1__health_check_request__descriptor, s);
    if (!q)
        rpc_finish(c, st ? st : st_invalid("not a request of health"));
    else
        switch (*(const enum method *)rpc_method_of(c)->datum) {
        case CHECK:
            check(c, q->service);
            break;
        case WATCH:
            watch(c, q->service);
            break;
        case LIST:
            list(c);
            break;
        }
    if (q) grpc__health__v1__health_check_request__free_unpacked(q, NULL);
    arena_done(&a);
}
static void ended(struct rpc_call *c) {
    struct watcher *w = rpc_data(c);
    if (!w) return;
    struct rpc_health *h = *rpc_health_slot(rpc_of(c));
    *(w->prev ? &w->prev->next : &h->watchers) = w->next;
    if (w->next) w->next->prev = w->prev;
    free(w);
}

static const struct rpc_service service = {
    .begin = rpc_receive, .message = message, .ended = ended, .idle = true};
const struct rpc_method *rpc_health_method(const char *path) {
    static const enum method kinds[] = {CHECK, WATCH, LIST};
    static const struct rpc_method methods[] = {
        {"/grpc.health.v1.Health/Check", &service, &kinds[0]},
        {"/grpc.health.v1.Health/Watch", &service, &kinds[1]},
        {"/grpc.health.v1.Health/List", &service, &kinds[2]}};
    for (size_t i = 0; i < 3; i++)
        if (!strcmp(path, methods[i].path)) return &methods[i];
    return NULL;
}
