// SPDX-License-Identifier: Apache-2.0
#include "scheduler/cluster/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/text.h"
#include "base/vec.h"
#include "proto/json.h"
#include "proto/reason.h"
#include "proto/weigh.h"
#include "scheduler/cluster/nodes.h"
#include "scheduler/cluster/seal.h"
#include "scheduler/error.h"
#include "scheduler/trace.h"

enum { CONNECT_MS = 1000, LATE_MS = 1000, HEAD = 4, LEAST = 1 << 20 };
struct ask {
    struct asks *s;
    struct ask_spec spec;
    struct fetch *fetch;
    char *node;
    struct strbuf frames; // not yet whole
    bool telling, over;   // events are told, by which it may end: freed when that is done
    status_t error;       // that the node told in the stream
};
struct asks {
    struct asks_config cfg;
    VEC(struct ask *) all;
};

static const struct node *there(const struct asks *s, const char *name) {
    const struct node *n = nodes_find(s->cfg.nodes, name);
    return n && n->m->proved && !n->lost && !n->gone ? n : NULL;
}

// ---- the end

static void drop(struct ask *x) {
    struct asks *s = x->s;
    for (size_t k = 0; k < s->all.n; k++)
        if (s->all.v[k] == x) {
            s->all.v[k] = s->all.v[--s->all.n];
            break;
        }
    fetch_cancel(x->fetch);
    x->fetch = NULL;
    x->over = true;
    if (x->telling) return;
    strbuf_done(&x->frames);
    st_drop(x->error);
    free(x->node);
    free(x);
}
static void finish(struct ask *x, status_t st, struct arena *a, ProtobufCMessage *m) {
    struct ask_spec spec = x->spec;
    drop(x);
    spec.done(spec.ctx, st, a, m);
}
status_t ask_broken(const char *node, const char *why) {
    struct strbuf b = {0};
    text_show(&b, str_of(why), ""); // may hold what it said
    status_t st = st_new(ST_UNAVAILABLE, "node %s: %s", node, strbuf_cstr(&b));
    strbuf_done(&b);
    return st;
}
MUST_CHECK static status_t broken(const struct ask *x, const char *why) {
    return ask_broken(x->node, why);
}
MUST_CHECK static status_t told(const struct ask *x, const Hlod__V1__Error *e) {
    char from[SEAL_TENANT + 8];
    snprintf(from, sizeof from, "node %s", x->node);
    return error_from(e, from);
}
static status_t refusal(const struct ask *x, const struct fetch_reply *r, struct arena *a) {
    char text[40];
    ProtobufCMessage *m;
    struct str body = {(const char *)r->body.p, r->body.n};
    status_t bad = r->body.n ? json_parse(a, &hlod__v1__error__descriptor, body, &m)
                             : st_new(ST_UNKNOWN, "nothing");
    snprintf(text, sizeof text, "HTTP %d", r->code);
    status_t st = bad ? broken(x, text) : told(x, (const Hlod__V1__Error *)m);
    st_drop(bad);
    return st;
}
// The node was told the deadline, and is late with that.
MUST_CHECK static status_t too_late(const struct ask *x) {
    return st_because(ST_DEADLINE_EXCEEDED, DEADLINE, "the deadline passed while node %s was asked",
                      x->node);
}
// What it gives is too much, or ends before it is whole.
MUST_CHECK static status_t broke_off(const struct ask *x, status_t why) {
    if (st_code(why) == ST_RESOURCE_EXHAUSTED)
        return st_exhausted("node %s: %s", x->node, st_message(why));
    return broken(x, st_message(why));
}
static void on_reply(void *ctx, struct fetch_reply *r) {
    struct ask *x = ctx;
    struct arena a = {0};
    ProtobufCMessage *m = NULL;
    x->fetch = NULL;
    status_t st = x->error;
    x->error = ST_OK;
    bool late = r->st && x->spec.deadline_ns && clock_ms_left(x->spec.deadline_ns) <= 0;
    if (!st && r->st && !r->code && x->spec.missed && !late) {
        struct ask_spec spec = x->spec;
        st = st_copy(r->st);
        drop(x);
        spec.missed(spec.ctx, st);
        return;
    }
    if (!st && !r->st && r->code != 200) st = refusal(x, r, &a);
    if (!st && r->st)
        st = r->code && r->code != 200 ? refusal(x, r, &a)
             : late                    ? too_late(x)
                                       : broke_off(x, r->st);
    if (!st && x->spec.reply) {
        m = weigh_unpack_in(&a, x->spec.reply, r->body);
        if (!m) st = broken(x, "its answer is none");
    }
    finish(x, st, &a, m);
    arena_done(&a);
}

// ---- a stream: frames of four bytes of length, little-endian, and an Event

static status_t take_event(struct ask *x, struct span bytes) {
    Hlod__V1__Event *e = weigh_unpack_or_null(&hlod__v1__event__descriptor, bytes);
    bool taken = false;
    if (!e) return broken(x, "it sends what is no event");
    if (e->kind_case == HLOD__V1__EVENT__KIND_ERROR && !x->error)
        x->error = told(x, e->error);
    else if (e->kind_case != HLOD__V1__EVENT__KIND_DONE &&
             e->kind_case != HLOD__V1__EVENT__KIND_ERROR &&
             e->kind_case != HLOD__V1__EVENT__KIND__NOT_SET)
        taken = x->spec.event(x->spec.ctx, e);
    if (!taken) hlod__v1__event__free_unpacked(e, NULL);
    return ST_OK;
}
static status_t take_frames(struct ask *x) {
    size_t at = 0;
    status_t st = ST_OK;
    while (!st && !x->over && x->frames.n - at >= HEAD) {
        const uint8_t *p = (const uint8_t *)x->frames.p + at;
        size_t n = p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
        if ((int64_t)n > x->s->cfg.max_bytes) return broken(x, "it sends too much");
        if (x->frames.n - at - HEAD < n) break;
        st = take_event(x, (struct span){p + HEAD, n});
        at += HEAD + n;
    }
    size_t left = x->frames.n - at;
    if (at && left) memmove(x->frames.p, x->frames.p + at, left);
    x->frames.n = left;
    return st;
}
static void on_data(void *ctx, struct span bytes) {
    struct ask *x = ctx;
    struct arena none = {0};
    strbuf_add(&x->frames, bytes.p, bytes.n);
    x->telling = true;
    status_t st = take_frames(x);
    x->telling = false;
    if (x->over) {
        st_drop(st);
        drop(x);
    } else if (st)
        finish(x, st, &none, NULL);
}

// ---- the call

static void let_go(const struct fetch_body *b) {
    if (b->free) b->free(b->owner);
}
// A fetch that is cancelled may read it for a while.
static struct fetch_body body_of(const struct ask_spec *spec) {
    if (!spec->request) return spec->body;
    uint8_t *p = malloc(protobuf_c_message_get_packed_size(spec->request) + 1);
    if (!p) abort();
    return (struct fetch_body){{p, protobuf_c_message_pack(spec->request, p)}, free, p};
}
struct headers {
    const char *v[9];
    int n;
};
static void add(struct headers *h, const char *text) {
    h->v[h->n++] = text;
}
static void set_headers(const struct ask *x, struct arena *a, const char *life, struct headers *h) {
    const struct asks_config *c = &x->s->cfg;
    const struct ask_spec *spec = &x->spec;
    int64_t left = spec->deadline_ns ? clock_ms_left(spec->deadline_ns) : 0;
    char parent[TRACE_PARENT_TEXT];
    add(h, "Content-Type: application/x-protobuf");
    add(h,
        spec->reply ? "Accept: application/x-protobuf" : "Accept: application/x-protobuf-stream");
    add(h, arena_printf(a, "Hlod-Forwarded: %s", c->node));
    add(h, arena_printf(a, "Authorization: %s",
                        seal_pass(c->seal, a, c->node, life, spec->tenant, spec->scopes)));
    if (left > 0) add(h, arena_printf(a, "Hlod-Timeout-Ms: %lld", (long long)left));
    if (spec->priority) add(h, arena_printf(a, "Hlod-Priority: %d", (int)spec->priority));
    if (!spec->trace) return;
    trace_write(spec->trace, parent);
    add(h, arena_printf(a, "traceparent: %s", parent));
    if (spec->trace->state && *spec->trace->state)
        add(h, arena_printf(a, "tracestate: %s", spec->trace->state));
}
// The client's deadline ends it at that node, with a word about it; ours is for one that hangs.
static int64_t most_ms(const struct ask_spec *spec) {
    int64_t left = spec->deadline_ns ? clock_ms_left(spec->deadline_ns) : 0;
    return spec->deadline_ns ? (left > 0 ? left : 0) + LATE_MS : spec->timeout_ms;
}
struct ask *ask_start(struct asks *s, const struct ask_spec *spec) {
    const struct node *n = spec->life ? nodes_find(s->cfg.nodes, spec->node) : there(s, spec->node);
    const struct asks_config *c = &s->cfg;
    struct arena a = {0};
    struct headers h = {0};
    if (!n) {
        let_go(&spec->body);
        return NULL;
    }
    struct ask *x = arena_must_calloc(1, sizeof *x);
    *x = (struct ask){.s = s, .spec = *spec, .node = strdup(spec->node)};
    if (!x->node) abort();
    vec_push(&s->all, x);
    set_headers(x, &a, spec->life ? spec->life : n->m->life, &h);
    struct fetch_request q = {
        .method = "POST",
        .url = arena_printf(&a, "%s/hlod.v1.Hlod/%s", n->m->address, spec->method),
        .headers = h.v,
        .body = body_of(spec),
        .auth = c->auth,
        .connect_ms = CONNECT_MS,
        .total_ms = most_ms(spec),
        .max_bytes = c->max_bytes + LEAST,
        .data = spec->reply ? NULL : on_data};
    fetch_start(c->fetcher, &q, on_reply, x, &x->fetch);
    arena_done(&a);
    return x;
}
void ask_cancel(struct ask *x) {
    if (x) drop(x);
}
void asks_lost(struct asks *s, const char *node) {
    for (size_t k = s->all.n; k-- > 0;) {
        if (k >= s->all.n || strcmp(s->all.v[k]->node, node) != 0) continue;
        struct arena none = {0};
        finish(s->all.v[k], broken(s->all.v[k], "it is lost"), &none, NULL);
    }
}

// ---- life

const char *asks_node(const struct asks *s) {
    return s->cfg.node;
}
const struct seal *asks_seal(const struct asks *s) {
    return s->cfg.seal;
}
struct asks *asks_new(const struct asks_config *cfg) {
    struct asks *s = arena_must_calloc(1, sizeof *s);
    s->cfg = *cfg;
    fetch_auth_ref(s->cfg.auth);
    return s;
}
void asks_stop(struct asks *s) {
    while (s && s->all.n) {
        struct arena none = {0};
        finish(s->all.v[0],
               st_because(ST_UNAVAILABLE, SHUTTING_DOWN, "the server is shutting down"), &none,
               NULL);
    }
}
void asks_free(struct asks *s) {
    if (!s) return;
    vec_done(&s->all);
    fetch_auth_unref(s->cfg.auth);
    free(s);
}
