// SPDX-License-Identifier: Apache-2.0
// The call goes as it came, but for its tensors, which lie outside its message and are packed once
// more; the reply's are the call's outputs, from where they lie in what came back.
#include "server/relay.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "proto/message.h"
#include "scheduler/cluster/ask.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/cluster/nodes.h"
#include "scheduler/remote/peers.h"
#include "scheduler/workers/memfds.h"
#include "server/api/api.h"
#include "server/body/tensors.h"

enum { LIST_MS = 2000 };
struct relay { // in the call's arena
    struct call *c;
    const char *node;
    ProtobufCMessage *request; // the call's, or a copy with its tensors inside
    struct span body;          // it packed, from malloc
    struct ask *ask;
    bool sizes; // a part is asked for: how much there is comes first
    bool told;  // its result
};

char *relay_handle(struct call *c, const char *local) {
    const struct cluster *k = c->api->cluster;
    return k && cluster_asks(k) ? arena_printf(&c->arena, "%s:%s", cluster_node(k), local)
                                : arena_strdup(&c->arena, local);
}

// ---- where to

struct homes { // of what a call names
    struct call *c;
    const char *own, *node; // NULL: none yet
    bool several;
};
static void add(struct homes *h, const char *handle) {
    const char *colon = handle ? strrchr(handle, ':') : NULL;
    if (!handle || !*handle) return;
    const char *node = colon && colon != handle
                           ? arena_strndup(&h->c->arena, handle, (size_t)(colon - handle))
                           : h->own;
    h->several = h->several || (h->node && strcmp(h->node, node) != 0);
    h->node = node;
}
static void add_steps(struct homes *h, const Hlod__V1__RunPlanRequest *q) {
    for (size_t k = 0; k < q->n_steps; k++)
        for (size_t i = 0; i < q->steps[k]->n_inputs; i++)
            add(h, q->steps[k]->inputs[i]->handle);
}
static void find_homes(struct homes *h) {
    struct call *c = h->c;
    const ProtobufCMessage *q = c->request;

    switch (c->row - api_rows) {
    case ROW_RunPlan:
    case ROW_RunPlanUnary:
        add_steps(h, (const Hlod__V1__RunPlanRequest *)q);
        // fall through
    case ROW_Run:
    case ROW_RunUnary:
        for (size_t k = 0; k < c->n_inputs; k++)
            add(h, c->inputs[k].handle);
        break;
    case ROW_GetBuffer:
        add(h, ((const Hlod__V1__GetBufferRequest *)q)->handle);
        break;
    case ROW_FreeBuffer:
        add(h, ((const Hlod__V1__FreeBufferRequest *)q)->handle);
        break;
    case ROW_RenewBuffer:
        add(h, ((const Hlod__V1__RenewBufferRequest *)q)->handle);
        break;
    case ROW_MakeTuple:
        for (size_t k = 0; k < ((const Hlod__V1__MakeTupleRequest *)q)->n_elements; k++)
            add(h, ((const Hlod__V1__MakeTupleRequest *)q)->elements[k]);
        break;
    case ROW_AppendUpload:
        add(h, ((const Hlod__V1__AppendUploadRequest *)q)->upload);
        break;
    case ROW_GetUpload:
        add(h, ((const Hlod__V1__GetUploadRequest *)q)->upload);
        break;
    case ROW_FinishUpload:
        add(h, ((const Hlod__V1__FinishUploadRequest *)q)->upload);
        break;
    case ROW_CancelUpload:
        add(h, ((const Hlod__V1__CancelUploadRequest *)q)->upload);
        break;
    }
}
static bool of_uploads(const struct call *c) {
    ptrdiff_t row = c->row - api_rows;
    return row >= ROW_StartUpload && row <= ROW_CancelUpload;
}
MUST_CHECK static status_t not_there(struct call *c, const char *node, const struct node *n) {
    c->api->relays.away++;
    if (!n) return st_new(ST_UNAVAILABLE, "node %s, which has it, was not heard yet", node);
    if (n->gone && !of_uploads(c))
        return st_because(ST_UNAVAILABLE, BUFFER_LOST,
                          "node %s, where it lay, has ended: put it again", node);
    return st_new(ST_UNAVAILABLE, "node %s, which has it, is %s", node, node_state(n));
}

// ---- what is asked

static status_t point(struct call *c, Hlod__V1__Tensor **v) {
    uint8_t *base = (uint8_t *)(uintptr_t)c->payload_bytes.p;
    if (c->payload) RETURN_IF_ERR(memfd_memory(c->payload, &base));
    for (size_t k = 0; k < c->n_inputs; k++)
        if (!c->inputs[k].handle) v[k]->raw.data = base + c->inputs[k].offset;
    return ST_OK;
}
// A copy of the request with its tensors in it, whose bytes are pointed to when it is packed.
static ProtobufCMessage *with_tensors(struct call *c) {
    const ProtobufCMessageDescriptor *d = c->request->descriptor;
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(d, "inputs");
    ProtobufCMessage *m = arena_dup(&c->arena, c->request, d->sizeof_message);
    Hlod__V1__Tensor **v = arena_array(&c->arena, Hlod__V1__Tensor *, c->n_inputs + 1);
    for (size_t k = 0; k < c->n_inputs; k++) {
        const struct job_input *in = &c->inputs[k];
        Hlod__V1__Tensor *t = v[k] = message_new(&c->arena, &hlod__v1__tensor__descriptor);
        t->name = (char *)(uintptr_t)in->name;
        if (in->handle) {
            t->handle = (char *)(uintptr_t)in->handle;
            t->donate = in->donate;
            continue;
        }
        t->dtype = (char *)(uintptr_t)in->dtype->name;
        t->n_shape = (size_t)in->rank;
        t->shape = (int64_t *)(uintptr_t)in->dims;
        t->raw.len = (size_t)in->size;
    }
    memcpy((char *)m + f->offset, &v, sizeof v);
    memcpy((char *)m + f->quantifier_offset, &c->n_inputs, sizeof c->n_inputs);
    return m;
}
static Hlod__V1__GetBufferRequest *get_request(struct relay *x) {
    Hlod__V1__GetBufferRequest *q = arena_dup(&x->c->arena, x->c->request, sizeof *q);
    x->request = &q->base;
    return q;
}
static void prepare(struct relay *x) {
    struct call *c = x->c;
    x->request = c->request;
    if (tensors_in(c->row->input)) x->request = with_tensors(c);
    if (c->row - api_rows == ROW_AppendUpload && c->body.n) { // it came as the body
        Hlod__V1__AppendUploadRequest *q = arena_dup(&c->arena, c->request, sizeof *q);
        q->data = (ProtobufCBinaryData){c->body.n, (uint8_t *)(uintptr_t)c->body.p};
        x->request = &q->base;
    }
    if (c->row - api_rows == ROW_GetBuffer && c->wants_file && *c->range) {
        Hlod__V1__GetBufferRequest *q = get_request(x);
        q->offset = 0;
        q->length = 1;
        x->sizes = true;
    }
}
static status_t pack_work(void *arg) {
    struct relay *x = arg;
    struct call *c = x->c;
    if (tensors_in(c->row->input)) {
        size_t n;
        RETURN_IF_ERR(point(c, tensors_of(x->request, &n)));
    }
    uint8_t *p = malloc(protobuf_c_message_get_packed_size(x->request) + 1);
    if (!p) return st_oom();
    x->body = (struct span){p, protobuf_c_message_pack(x->request, p)};
    return ST_OK;
}
static void free_body(void *arg) { // where it was packed, and the call had ended by then
    struct relay *x = arg;
    free((void *)(uintptr_t)x->body.p);
}

// ---- what comes back

static void free_arena(void *arg) {
    arena_done(arg);
}
static void free_event(void *e) {
    protobuf_c_message_free_unpacked(e, NULL);
}
MUST_CHECK static status_t absurd(const struct relay *x) {
    return ask_broken(x->node, "it sends an output that cannot be");
}
static status_t take_output(struct relay *x, const Hlod__V1__Tensor *t, struct call_output *o) {
    const struct dtype_row *type = numbers_dtype(str_of(t->dtype));
    int64_t n = 1, bytes;
    if (!type || t->n_shape > 64) return absurd(x);
    *o = (struct call_output){.name = t->name,
                              .handle = *t->handle ? t->handle : NULL,
                              .dtype = type,
                              .rank = (int32_t)t->n_shape,
                              .dims = t->shape,
                              .data = {t->raw.data, t->raw.len}};
    for (size_t d = 0; d < t->n_shape; d++)
        if (t->shape[d] < 0 || !sz_mul(n, t->shape[d], &n)) return absurd(x);
    if (!sz_mul(n, type->bytes, &bytes)) return absurd(x);
    o->elements = n;
    bool fits = type->cls == NUM_STRING ? n <= INT32_MAX && (int64_t)t->raw.len >= 4 * n
                                        : (int64_t)t->raw.len == bytes;
    return o->handle || fits ? ST_OK : absurd(x);
}
// The outputs leave the message, which is a copy, and become the call's.
static status_t take_outputs(struct relay *x, ProtobufCMessage *m) {
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(m->descriptor, "outputs");
    struct call *c = x->c;
    Hlod__V1__Tensor **v;
    size_t n, none = 0;
    memcpy(&v, (char *)m + f->offset, sizeof v);
    memcpy(&n, (char *)m + f->quantifier_offset, sizeof n);
    memcpy((char *)m + f->quantifier_offset, &none, sizeof none);
    c->outputs = arena_zarray(&c->arena, struct call_output, n + 1);
    for (c->n_outputs = 0; c->n_outputs < n; c->n_outputs++)
        RETURN_IF_ERR(take_output(x, v[c->n_outputs], &c->outputs[c->n_outputs]));
    return ST_OK;
}
static void set_run(struct relay *x, Hlod__V1__RunReply *m) {
    x->c->timings = m->timings;
    x->c->n_timings = m->n_timings;
    if (!*m->node) m->node = (char *)(uintptr_t)x->node;
}
static void send(struct relay *x);
// How much there is decides what part a Range means; then that is asked for.
MUST_CHECK static status_t take_size(struct relay *x) {
    struct call *c = x->c;
    Hlod__V1__GetBufferRequest *q = get_request(x);
    RETURN_IF_ERR(call_range(c->range, &c->file));
    x->sizes = false;
    if (!c->file.part) return ST_OK;
    q->offset = c->file.offset;
    q->length = c->file.bytes;
    return ST_OK;
}
// The bytes of a tensor, or the part of them that the client asked for.
static status_t take_bytes(struct relay *x, Hlod__V1__GetBufferReply *m, bool *out_again) {
    struct call *c = x->c;
    const Hlod__V1__GetBufferRequest *q = (const Hlod__V1__GetBufferRequest *)x->request;
    const Hlod__V1__Buffer *b = m->buffer;
    if (!b || b->bytes < 0) return absurd(x);
    if (b->tuple)
        return st_invalid("the bytes of a tuple: ask for its elements, %s.0 and so on", b->handle);
    if (!c->file.part) c->file = (struct call_file){.fd = -1, .bytes = b->bytes, .total = b->bytes};
    if (x->sizes) {
        RETURN_IF_ERR(take_size(x));
        *out_again = true;
        return ST_OK;
    }
    if (!q->offset && !q->length) {
        if (c->n_outputs != 1) return absurd(x);
        return (int64_t)c->outputs[0].data.n == b->bytes ? ST_OK : absurd(x);
    }

    const struct dtype_row *type = numbers_dtype(str_of(b->dtype));
    if (!type || b->n_shape > 64 || q->offset < 0) return absurd(x);
    int64_t bytes = q->length ? q->length : b->bytes - q->offset;
    if ((int64_t)m->part.len != bytes) return absurd(x);
    c->outputs = arena_zarray(&c->arena, struct call_output, 1);
    c->outputs[0] = (struct call_output){.name = b->name,
                                         .dtype = type,
                                         .rank = (int32_t)b->n_shape,
                                         .dims = b->shape,
                                         .data = {m->part.data, m->part.len}};
    c->n_outputs = 1;
    return ST_OK;
}
static void finish(struct relay *x, const ProtobufCMessage *m, status_t st) {
    x->c->api->relays.ok += !st;
    x->c->api->relays.failed += st != NULL;
    call_finish(x->c, m, st);
}
static bool on_event(void *ctx, Hlod__V1__Event *e) {
    struct relay *x = ctx;
    struct call *c = x->c;
    if (e->kind_case != HLOD__V1__EVENT__KIND_RESULT || !e->result) {
        call_event(c, e);
        return false;
    }
    if (x->told) return false;
    arena_link(&c->arena, free_event, e); // its outputs lie in it
    Hlod__V1__RunReply *m = arena_dup(&c->arena, e->result, sizeof *m);
    Hlod__V1__Event out = *e;
    out.result = m;
    status_t st = take_outputs(x, &m->base);
    if (st) {
        ask_cancel(x->ask);
        x->ask = NULL;
        finish(x, NULL, st);
        return true;
    }
    set_run(x, m);
    x->told = true;
    call_event(c, &out);
    return true;
}
static void on_done(void *ctx, status_t st, struct arena *a, ProtobufCMessage *reply) {
    struct relay *x = ctx;
    struct call *c = x->c;
    bool again = false;
    x->ask = NULL;
    if (!st && c->row->stream && !x->told) st = ask_broken(x->node, "it breaks off");
    if (st || c->row->stream) {
        finish(x, NULL, st);
        return;
    }
    struct arena *kept = arena_dup(&c->arena, a, sizeof *a);
    *a = (struct arena){0};
    arena_link(&c->arena, free_arena, kept);
    ProtobufCMessage *m = arena_dup(&c->arena, reply, reply->descriptor->sizeof_message);
    if (call_has_outputs(m->descriptor)) st = take_outputs(x, m);
    if (!st && m->descriptor == &hlod__v1__run_reply__descriptor)
        set_run(x, (Hlod__V1__RunReply *)m);
    if (!st && c->row - api_rows == ROW_GetBuffer && c->wants_file)
        st = take_bytes(x, (Hlod__V1__GetBufferReply *)m, &again);
    if (again)
        send(x);
    else
        finish(x, m, st);
}

// ---- its way

static void on_cancel(struct call *c) {
    struct relay *x = c->handler;
    ask_cancel(x->ask);
    x->ask = NULL;
}
static void send(struct relay *x) {
    struct call *c = x->c;
    struct ask_spec spec = {.node = x->node,
                            .method = c->row->method,
                            .tenant = c->principal.tenant,
                            .scopes = c->principal.scopes,
                            .request = x->body.p ? NULL : x->request,
                            .body = {x->body, free, (void *)(uintptr_t)x->body.p},
                            .reply = c->row->stream ? NULL : c->row->output,
                            .priority = c->priority,
                            .trace = c->trace ? &c->trace->t : NULL,
                            .event = on_event,
                            .done = on_done,
                            .ctx = x};
    if (c->timeout_ms) spec.deadline_ns = c->start_ns + c->timeout_ms * CLOCK_MS;
    x->body = (struct span){0};
    x->ask = ask_start(cluster_asks(c->api->cluster), &spec);
    c->handler = x;
    c->on_cancel = on_cancel;
    if (!x->ask) // since it was looked for
        finish(x, NULL, st_new(ST_UNAVAILABLE, "node %s, which has it, is lost", x->node));
}
static status_t packed(void *arg) {
    send(arg);
    return ST_OK;
}
status_t relay_start(struct call *c, bool *out_away) {
    enum { SMALL = 64 << 10 };
    const struct cluster *k = c->api->cluster;
    if (!k || c->forwarded || !cluster_asks(k)) return ST_OK;
    struct homes h = {.c = c, .own = cluster_node(k)};
    find_homes(&h);
    if (h.several)
        return st_because(ST_FAILED_PRECONDITION, BUFFERS_APART,
                          "the handles lie on different nodes");
    // What cannot be a node's name is nobody's, and is not repeated in an error.
    if (!h.node || !strcmp(h.node, h.own) || !peer_name_fits(h.node)) return ST_OK;
    const struct node *n = nodes_find(cluster_nodes(k), h.node);
    if (!n && cluster_settled(k)) return ST_OK; // nobody's: as one that never was
    if (!n || n->lost || n->gone || !n->m->proved) return not_there(c, h.node, n);

    struct relay *x = arena_new_of(&c->arena, struct relay);
    *x = (struct relay){.c = c, .node = arena_strdup(&c->arena, h.node)};
    arena_link(&c->arena, free_body, x);
    prepare(x);
    *out_away = true;
    if (tensors_bytes(c) + (int64_t)c->body.n > SMALL) return call_work(c, pack_work, packed, x);
    RETURN_IF_ERR(pack_work(x));
    send(x);
    return ST_OK;
}

// ---- the list of all

struct listing { // in the call's arena
    struct call *c;
    Hlod__V1__ListBuffersReply *own;
    struct listed {
        struct listing *l;
        const char *node;
        struct ask *ask;
        Hlod__V1__ListBuffersReply *reply; // NULL: not yet, or none came
    } *v;
    size_t n, left;
};
#define APPEND(to, of, field)                                                                      \
    for (size_t i_ = 0; i_ < (of)->n_##field; i_++)                                                \
    (to)->field[(to)->n_##field++] = (of)->field[i_]
static void list_reply(struct listing *l) {
    struct call *c = l->c;
    const Hlod__V1__ListBuffersReply *own = l->own;
    Hlod__V1__ListBuffersReply *m =
        message_new(&c->arena, &hlod__v1__list_buffers_reply__descriptor);
    size_t buffers = own->n_buffers, use = own->n_use;
    for (size_t k = 0; k < l->n; k++) {
        buffers += l->v[k].reply ? l->v[k].reply->n_buffers : 0;
        use += l->v[k].reply ? l->v[k].reply->n_use : 0;
    }
    m->buffers = arena_array(&c->arena, Hlod__V1__Buffer *, buffers + 1);
    m->use = arena_array(&c->arena, Hlod__V1__BufferUse *, use + 1);
    m->missing = arena_array(&c->arena, char *, l->n + 1);
    APPEND(m, own, buffers);
    APPEND(m, own, use);
    for (size_t k = 0; k < l->n; k++) {
        const struct listed *x = &l->v[k];
        if (x->reply) {
            APPEND(m, x->reply, buffers);
            APPEND(m, x->reply, use);
        } else
            m->missing[m->n_missing++] = (char *)(uintptr_t)x->node;
    }
    call_finish(c, &m->base, ST_OK);
}
static void on_listed(void *ctx, status_t st, struct arena *a, ProtobufCMessage *reply) {
    struct listed *x = ctx;
    struct listing *l = x->l;
    x->ask = NULL;
    if (!st) {
        struct arena *kept = arena_dup(&l->c->arena, a, sizeof *a);
        *a = (struct arena){0};
        arena_link(&l->c->arena, free_arena, kept);
        x->reply = (Hlod__V1__ListBuffersReply *)reply;
    }
    st_drop(st);
    if (!--l->left) list_reply(l);
}
static void list_cancel(struct call *c) {
    struct listing *l = c->handler;
    for (size_t k = 0; k < l->n; k++) {
        ask_cancel(l->v[k].ask);
        l->v[k].ask = NULL;
    }
}
status_t relay_list(struct call *c, Hlod__V1__ListBuffersReply *own) {
    const struct cluster *k = c->api->cluster;
    const struct nodes *all = k && !c->forwarded && cluster_asks(k) ? cluster_nodes(k) : NULL;
    if (!all || !all->v.n) return call_reply(c, &own->base);
    Hlod__V1__ListBuffersRequest q = HLOD__V1__LIST_BUFFERS_REQUEST__INIT;
    struct listing *l = arena_new_of(&c->arena, struct listing);
    *l = (struct listing){.c = c, .own = own};
    l->v = arena_zarray(&c->arena, struct listed, all->v.n);

    for (size_t i = 0; i < all->v.n; i++) {
        const struct node *n = all->v.v[i];
        if (n->gone || !n->m->proved) continue; // nothing lies there
        struct listed *x = &l->v[l->n++];
        *x = (struct listed){.l = l, .node = arena_strdup(&c->arena, n->m->node)};
        x->ask = ask_start(cluster_asks(k),
                           &(struct ask_spec){.node = x->node,
                                              .method = c->row->method,
                                              .tenant = c->principal.tenant,
                                              .scopes = c->principal.scopes,
                                              .request = &q.base,
                                              .reply = &hlod__v1__list_buffers_reply__descriptor,
                                              .timeout_ms = LIST_MS,
                                              .trace = c->trace ? &c->trace->t : NULL,
                                              .done = on_listed,
                                              .ctx = x});
        l->left += x->ask != NULL;
    }
    c->handler = l;
    c->on_cancel = list_cancel;
    if (!l->left) list_reply(l);
    return ST_OK;
}
