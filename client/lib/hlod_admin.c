// SPDX-License-Identifier: Apache-2.0
// Unary calls, each a message and a copy of its fields into the public struct.
#include "client/hlod_admin.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/wire.h"

// A reply's message in a new result, or an error already reported: then NULL.
static const void *ask(struct hlod *h, const char *method, const ProtobufCMessage *request,
                       const ProtobufCMessageDescriptor *type, size_t public_bytes,
                       struct arena **out_arena, void *out) {
    ProtobufCMessage *m;
    status_t st = wire_unary(h, method, request, type, &m);
    wire_end(h, st);
    if (h->error.code) return NULL;
    void *result = wire_result_new(public_bytes, out_arena);
    wire_keep(*out_arena, m);
    *(void **)out = result;
    return m;
}

enum hlod_code hlod_server(struct hlod *h, struct hlod_server *out) {
    Hlod__V1__VersionRequest vq = HLOD__V1__VERSION_REQUEST__INIT;
    Hlod__V1__HealthRequest hq = HLOD__V1__HEALTH_REQUEST__INIT;
    ProtobufCMessage *v, *s;
    status_t st = wire_unary(h, "Version", &vq.base, &hlod__v1__version_reply__descriptor, &v);
    if (st) return wire_end(h, st);
    st = wire_unary(h, "Health", &hq.base, &hlod__v1__health_reply__descriptor, &s);
    if (!st) {
        const Hlod__V1__VersionReply *r = (const Hlod__V1__VersionReply *)v;
        *out = (struct hlod_server){.ready = ((const Hlod__V1__HealthReply *)s)->ready};
        memcpy(out->version, r->version, strnlen(r->version, sizeof out->version - 1));
        memcpy(out->api, r->api, strnlen(r->api, sizeof out->api - 1));
        protobuf_c_message_free_unpacked(s, NULL);
    }
    protobuf_c_message_free_unpacked(v, NULL);
    return wire_end(h, st);
}

enum hlod_code hlod_inspect(struct hlod *h, const char *digest, const char *stage, char **out) {
    Hlod__V1__InspectRequest q = HLOD__V1__INSPECT_REQUEST__INIT;
    q.digest = (char *)digest;
    q.stage = (char *)stage;
    ProtobufCMessage *m;
    status_t st = wire_unary(h, "Inspect", &q.base, &hlod__v1__inspect_reply__descriptor, &m);
    if (!st) {
        char *text = strdup(((const Hlod__V1__InspectReply *)m)->text);
        if (text)
            *out = text;
        else
            st = st_oom();
        protobuf_c_message_free_unpacked(m, NULL);
    }
    return wire_end(h, st);
}
static status_t metrics(struct hlod *h, char **out) {
    struct http_request q = {.method = "GET", .path = "/metrics"};
    struct http_reply r;
    h->answered = false;
    if (h->grpc) return st_new(ST_UNIMPLEMENTED, "the metrics are read over http://");
    RETURN_IF_ERR(http_send(h->http, &q, &r));
    h->answered = r.code != 200;
    char *text = h->answered ? NULL : strdup(strbuf_cstr(&r.body));
    status_t st = h->answered ? wire_refusal(&r) : text ? ST_OK : st_oom();
    if (text) *out = text;
    http_reply_done(&r);
    return st;
}
enum hlod_code hlod_metrics(struct hlod *h, char **out) {
    return wire_end(h, metrics(h, out));
}
void hlod_text_free(char *text) {
    free(text);
}

enum hlod_code hlod_devices(struct hlod *h, struct hlod_devices **out) {
    Hlod__V1__ListDevicesRequest q = HLOD__V1__LIST_DEVICES_REQUEST__INIT;
    struct arena *a;
    struct hlod_devices *x;
    const Hlod__V1__ListDevicesReply *r = ask(
        h, "ListDevices", &q.base, &hlod__v1__list_devices_reply__descriptor, sizeof *x, &a, &x);
    if (!r) return h->error.code;
    struct hlod_device *v = arena_array(a, struct hlod_device, r->n_devices + 1);
    for (size_t i = 0; i < r->n_devices; i++) {
        const Hlod__V1__Device *d = r->devices[i];
        v[i] = (struct hlod_device){d->name,           d->kind,         d->state,
                                    d->target_id,      d->memory_bytes, d->worker_rss_bytes,
                                    d->prepared_bytes, d->threads,      d->restarts,
                                    d->worker_pid};
    }
    x->devices = v;
    x->n_devices = r->n_devices;
    *out = x;
    return HLOD_OK;
}
void hlod_devices_free(struct hlod_devices *d) {
    wire_result_free(d);
}

enum hlod_code hlod_cache_list(struct hlod *h, uint32_t limit, struct hlod_executables **out) {
    Hlod__V1__ListExecutablesRequest q = HLOD__V1__LIST_EXECUTABLES_REQUEST__INIT;
    q.limit = limit;
    struct arena *a;
    struct hlod_executables *x;
    const Hlod__V1__ListExecutablesReply *r =
        ask(h, "ListExecutables", &q.base, &hlod__v1__list_executables_reply__descriptor, sizeof *x,
            &a, &x);
    if (!r) return h->error.code;
    struct hlod_executable *v = arena_zarray(a, struct hlod_executable, r->n_executables + 1);
    for (size_t i = 0; i < r->n_executables; i++)
        wire_executable(a, r->executables[i], &v[i]);
    x->executables = v;
    x->n_executables = r->n_executables;
    *out = x;
    return HLOD_OK;
}
void hlod_executables_free(struct hlod_executables *l) {
    wire_result_free(l);
}

enum hlod_code hlod_cache_remove(struct hlod *h, const char *digest) {
    Hlod__V1__RemoveExecutableRequest q = HLOD__V1__REMOVE_EXECUTABLE_REQUEST__INIT;
    q.digest = (char *)digest;
    ProtobufCMessage *m;
    status_t st = wire_unary(h, "RemoveExecutable", &q.base,
                             &hlod__v1__remove_executable_reply__descriptor, &m);
    if (!st) protobuf_c_message_free_unpacked(m, NULL);
    return wire_end(h, st);
}

enum hlod_code hlod_cache_explain(struct hlod *h, const char *a, const char *b,
                                  struct hlod_difference **out) {
    Hlod__V1__ExplainCacheRequest q = HLOD__V1__EXPLAIN_CACHE_REQUEST__INIT;
    q.a = (char *)a;
    q.b = (char *)b;
    struct arena *arena;
    struct hlod_difference *x;
    const Hlod__V1__ExplainCacheReply *r =
        ask(h, "ExplainCache", &q.base, &hlod__v1__explain_cache_reply__descriptor, sizeof *x,
            &arena, &x);
    if (!r) return h->error.code;
    *x = (struct hlod_difference){r->component, r->a, r->b};
    *out = x;
    return HLOD_OK;
}
void hlod_difference_free(struct hlod_difference *d) {
    wire_result_free(d);
}

enum hlod_code hlod_cache_stats(struct hlod *h, struct hlod_cache_stats *out) {
    Hlod__V1__CacheStatsRequest q = HLOD__V1__CACHE_STATS_REQUEST__INIT;
    ProtobufCMessage *m;
    status_t st =
        wire_unary(h, "CacheStats", &q.base, &hlod__v1__cache_stats_reply__descriptor, &m);
    if (st) return wire_end(h, st);
    const Hlod__V1__CacheStatsReply *r = (const Hlod__V1__CacheStatsReply *)m;
    *out = (struct hlod_cache_stats){r->bytes,  r->budget_bytes, r->executables, r->models, r->hits,
                                     r->misses, r->quarantined,  r->compiles,    r->joins};
    protobuf_c_message_free_unpacked(m, NULL);
    return wire_end(h, ST_OK);
}
