// SPDX-License-Identifier: Apache-2.0
#include "server/api/api.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "proto/formats/inference.pb-c.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/cluster/seal.h"
#include "scheduler/records/models.h"
#include "server/relay.h"
#include "server/reserve.h"

struct api_row api_rows[ALL_ROWS] = {
#define ROW(service, dialect, method, handler, verb, body, reply, scope, state, alias)             \
    {service,                                                                                      \
     #method,                                                                                      \
     dialect,                                                                                      \
     handler,                                                                                      \
     VERB_##verb,                                                                                  \
     BODY_##body,                                                                                  \
     REPLY_##reply,                                                                                \
     SCOPE_##scope,                                                                                \
     STATE_##state,                                                                                \
     alias,                                                                                        \
     REPLY_##reply == REPLY_STREAM,                                                                \
     NULL,                                                                                         \
     NULL},
#define RPC(...) ROW("hlod.v1.Hlod", DIALECT_V1, __VA_ARGS__)
#include "server/api/api.def"
#undef RPC
#define RPC(...) ROW("inference.GRPCInferenceService", DIALECT_OIP, __VA_ARGS__)
#include "server/oip/oip.def"
#undef RPC
#undef ROW
};

const char *api_version_text(void) {
    return HLOD_VERSION;
}
const char *api_verb_name(enum api_verb v) {
    static const char *const names[] = {"GET", "POST", "PUT", "DELETE", "GET, POST"};
    return names[v];
}

static bool ends_with(struct str path, const char *end) {
    size_t n = strlen(end);
    return path.n > n && !memcmp(path.p + path.n - n, end, n);
}
enum api_generate api_generate(const struct api_row *row, struct str path) {
    if (row->reply != REPLY_INFER) return GENERATE_NO;
    return ends_with(path, "/generate")          ? GENERATE_REPLY
           : ends_with(path, "/generate_stream") ? GENERATE_STREAM
                                                 : GENERATE_NO;
}

static status_t join(const ProtobufCServiceDescriptor *d, struct api_row *rows, unsigned n) {
    if (d->n_methods != n)
        return st_internal("the table has %u rows, %s %u methods", n, d->name, d->n_methods);
    for (unsigned i = 0; i < n; i++) {
        if (strcmp(d->methods[i].name, rows[i].method) || strcmp(d->name, rows[i].service))
            return st_internal("row %u is %s.%s, the service's method %s.%s", i, rows[i].service,
                               rows[i].method, d->name, d->methods[i].name);
        rows[i].input = d->methods[i].input;
        rows[i].output = d->methods[i].output;
    }
    return ST_OK;
}
status_t api_init(void) {
    RETURN_IF_ERR(join(&hlod__v1__hlod__descriptor, api_rows, API_ROWS));
    return join(&inference__grpcinference_service__descriptor, api_rows + API_ROWS,
                ALL_ROWS - API_ROWS);
}

char *api_hex(struct arena *a, struct digest d) {
    return arena_strdup(a, digest_to_hex(d).z);
}

status_t api_digest(const char *text, const char *what, struct digest *out) {
    if (!digest_parse(str_of(text), out))
        return st_because(ST_INVALID_ARGUMENT, BAD_DIGEST,
                          "%s: expected a digest of 64 hex digits, found '%.80s'", what, text);
    return ST_OK;
}

bool api_sees_all(const struct call *c) {
    return !c->api->auth || c->principal.scopes & SCOPE_ADMIN;
}
const char *api_space(struct call *c, const char *name) {
    if (!c->api->auth) return MODELS_DEFAULT;
    struct models *all = sched_models(c->api->sched);
    const char *own = c->principal.tenant;
    const struct named_model *x = api_sees_all(c) && !models_find(all, own, name, "")
                                      ? models_find(all, NULL, name, "")
                                      : NULL;
    return x ? arena_strdup(&c->arena, x->tenant) : own; // x may be removed under a run
}
bool api_sees(const struct call *c, const struct named_model *x) {
    return api_sees_all(c) || !strcmp(x->tenant, c->principal.tenant);
}

// NAME or NAME:VERSION; NULL: there is none.
static const struct named_model *named(struct call *c, const char *text) {
    struct models *all = sched_models(c->api->sched);
    const char *colon = strrchr(text, ':');
    const struct named_model *x = models_find(all, api_space(c, text), text, "");
    if (!x && colon) {
        const char *name = arena_strndup(&c->arena, text, (size_t)(colon - text));
        x = models_find(all, api_space(c, name), name, colon + 1);
    }
    return x;
}

// The versions that a name has, of which another was asked for; "" if there is no such name.
static const char *its_versions(struct call *c, const char *name) {
    enum { MOST = 8 };
    struct models *all = sched_models(c->api->sched);
    const char *colon = strrchr(name, ':'), *text = "";
    int n = 0;
    if (colon && !models_find(all, api_space(c, name), name, ""))
        name = arena_strndup(&c->arena, name, (size_t)(colon - name));
    const char *space = api_space(c, name);

    for (const struct named_model *x = models_first(all); x; x = x->next) {
        if (strcmp(x->name, name) || !models_of(x, space) || ++n > MOST) continue;
        text = arena_printf(&c->arena, "%s%s%lld", text, n > 1 ? ", " : "", (long long)x->version);
    }
    if (!n) return "";
    return arena_printf(&c->arena, " (there %s %s%s of that name)",
                        n > 1 ? "are versions" : "is version", text, n > MOST ? ", ..." : "");
}

const char *api_like(struct call *c, const char *name) {
    enum { ASKED = 1000 }; // names: a comparison takes some microseconds, on the loop
    const struct named_model *x = models_first(sched_models(c->api->sched));
    const char *versions = its_versions(c, name);
    if (*versions) return versions;
    for (int k = 0; x && k < ASKED; x = x->next, k++)
        if (api_sees(c, x) && strcmp(x->name, name) && str_is_like(str_of(name), str_of(x->name)))
            return arena_printf(&c->arena, " (did you mean '%s'?)", x->name);
    return "";
}
status_t api_model(struct call *c, const char *text, struct digest *out) {
    if (digest_parse(str_of(text), out)) return ST_OK;
    if (!*text)
        return st_because(ST_INVALID_ARGUMENT, MODEL_NOT_FOUND,
                          "no model: say its name or digest, as "
                          "\"model\": \"NAME\"");
    const struct named_model *x = named(c, text);
    if (!x)
        return st_because(
            ST_NOT_FOUND, MODEL_NOT_FOUND,
            "no model is called '%.80s'%s; a model is named by `hlo models set` or by "
            "the digest of its bytes, 64 hex digits",
            text, api_like(c, text));
    if (!c->model) c->model = text;
    *out = x->source;
    return ST_OK;
}

void api_name(struct call *c, const char *text, struct job_spec *out) {
    struct digest d;
    const struct named_model *x = digest_parse(str_of(text), &d) ? NULL : named(c, text);
    if (!x) return;
    out->run.name = arena_strdup(&c->arena, x->name);
    out->run.version = x->version;
    out->run.space = arena_strdup(&c->arena, x->tenant);
    out->run.batching = x->batching;
}

// Another node of the cluster calls for one of its callers: who that is it says.
static status_t who_calls(const struct api *api, const struct api_row *row, struct arena *a,
                          const struct credentials *who, struct principal *out) {
    static const char SCHEME[] = SEAL_SCHEME " ";
    const char *text = who->authorization;
    bool pass = api->cluster && text && !strncmp(text, SCHEME, sizeof SCHEME - 1);
    if (!pass || !api->auth) RETURN_IF_ERR(auth_who(api->auth, a, who, row->scope, out));
    if (!pass) return ST_OK;
    Hlod__Cluster__Pass *p;
    status_t st = cluster_admit(api->cluster, a, text + sizeof SCHEME - 1, &p);
    if (!api->auth) { // anybody may call; whose quota has counted it only a node can say
        out->node = !st;
        if (!st) out->tenant = p->tenant;
        st_drop(st);
        return ST_OK;
    }
    RETURN_IF_ERR(st);
    *out = (struct principal){.name = arena_printf(a, "node:%s", p->from),
                              .tenant = p->tenant,
                              .scopes = p->scopes & SCOPE_ALL,
                              .node = true};
    return ST_OK;
}
status_t api_admit(const struct api *api, const struct api_row *row, struct arena *a,
                   const struct credentials *who, struct principal *out) {
    struct principal p;
    status_t st =
        reserve_there() || row->state == STATE_PROBE
            ? ST_OK
            : st_retry_after(st_because(ST_UNAVAILABLE, RECEIVE_BUDGET, "memory is short"), 1000);
    if (st) return st;
    st = who_calls(api, row, a, who, &p);
    if (!st) st = auth_may(&p, row->scope, row->method);
    if (!st)
        *out = p;
    else {
        metric_add(M_AUTH_REFUSED, 1);
        log_event(LOG_DEBUG, "auth.refused", "method=%s why=\"%s\"", row->method, st_message(st));
    }
    return st;
}

status_t api_ends(void) {
    return st_because(ST_UNAVAILABLE, SHUTTING_DOWN, "the server is shutting down");
}
static status_t dispatch(struct call *c) {
    if (!c->principal.name) return st_internal("a call that was not admitted");
    if (c->api->draining && c->row->state != STATE_PROBE) return api_ends();
    bool away = false;
    RETURN_IF_ERR(relay_start(c, &away));
    return away ? ST_OK : c->row->handler(c);
}
void api_dispatch(struct call *c) {
    call_fail(c, dispatch(c));
}
