// SPDX-License-Identifier: Apache-2.0
#include "scheduler/cluster/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "base/text.h"
#include "base/vec.h"
#include "proto/json.h"
#include "proto/reason.h"
#include "proto/weigh.h"
#include "scheduler/cluster/nodes.h"
#include "scheduler/cluster/seal.h"
#include "scheduler/error.h"
#include "scheduler/remote/fetch.h"

enum { CONNECT_MS = 1000, HEAD = 4, LEAST = 64 << 10 };
struct ask {
    struct asks *s;
    struct ask_spec spec;
    struct fetch *fetch;
    char *node;
    struct strbuf frames; // not yet whole
    bool telling, over;   // as in forward.c
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
MUST_CHECK static status_t broken(const struct ask *x, const char *why) {
    struct strbuf b = {0};
    text_show(&b, str_of(why), ""); // may hold what it said
    status_t st = st_new(ST_UNAVAILABLE, "node %s: %s", x->node, strbuf_cstr(&b));
    strbuf_done(&b);
    return st;
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
static void on_reply(void *ctx, struct fetch_reply *r) {
    struct ask *x = ctx;
    struct arena a = {0};
    ProtobufCMessage *m = NULL;
    x->fetch = NULL;
    status_t st = x->error;
    x->error = ST_OK;
    if (!st && !r->st && r->code != 200) st = refusal(x, r, &a);
    if (!st && r->st)
        st = r->code && r->code != 200 ? refusal(x, r, &a) : broken(x, st_message(r->st));
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
    if (!e) return broken(x, "it sends what is no event");
    if (e->kind_case == HLOD__V1__EVENT__KIND_ERROR && !x->error)
        x->error = told(x, e->error);
    else if (e->kind_case != HLOD__V1__EVENT__KIND_DONE &&
             e->kind_case != HLOD__V1__EVENT__KIND__NOT_SET)
        x->spec.event(x->spec.ctx, e);
    hlod__v1__event__free_unpacked(e, NULL);
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

struct ask *ask_start(struct asks *s, const struct ask_spec *spec) {
    const struct node *n = there(s, spec->node);
    const struct asks_config *c = &s->cfg;
    struct arena a = {0};
    if (!n) return NULL;
    struct ask *x = arena_must_calloc(1, sizeof *x);
    *x = (struct ask){.s = s, .spec = *spec, .node = strdup(spec->node)};
    size_t bytes = protobuf_c_message_get_packed_size(spec->request);
    uint8_t *body = malloc(bytes + 1); // a fetch that is cancelled may read it for a while
    if (!body || !x->node) abort();
    protobuf_c_message_pack(spec->request, body);
    vec_push(&s->all, x);

    const char *pass = seal_pass(c->seal, &a, c->node, n->m->life, spec->tenant, spec->scopes);
    const char *headers[] = {"Content-Type: application/x-protobuf",
                             spec->reply ? "Accept: application/x-protobuf"
                                         : "Accept: application/x-protobuf-stream",
                             arena_printf(&a, "Hlod-Forwarded: %s", c->node),
                             arena_printf(&a, "Authorization: %s", pass), NULL};
    struct fetch_request q = {
        .method = "POST",
        .url = arena_printf(&a, "%s/hlod.v1.Hlod/%s", n->m->address, spec->method),
        .headers = headers,
        .body = {{body, bytes}, free, body},
        .auth = c->auth,
        .connect_ms = CONNECT_MS,
        .total_ms = spec->timeout_ms,
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
