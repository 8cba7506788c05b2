// SPDX-License-Identifier: Apache-2.0
// The library side of gRPC. Each pending operation has a tag inside its call; the queue's thread
// only marks it and posts it (`deliver`), so that calls are touched by the loop alone. A call is
// freed when no tag is pending and its end is known.
//
//   accept (always some armed; unknown methods must be answered) -> close watch + service.begin
//   receive: one at a time, on demand: flow control holds the client back meanwhile
//   send: a queue; one batch under way; the status goes when the queue is empty
#include "server/grpc/grpc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/spin.h"
#include "base/tsan.h"
#include "base/vec.h"
#include "scheduler/loop.h"
#include "server/body/budget.h"
#include "server/grpc/grpc_call.h"
#include "server/grpc/grpc_gate.h"
#include "server/grpc/grpc_port.h"
#include "server/grpc/grpc_trailer.h"
#include "server/reserve.h"

struct tag {
    struct rpc *r;
    struct rpc_call *c; // NULL: the server's
    void (*fn)(struct tag *t);
    bool pending, ok;
};
enum { GATE_NS = 50 * 1000 * 1000 };
enum { ACCEPTS = 16 };         // requests asked for at a time
enum { MAX_STRANGERS = 1024 }; // calls that were not admitted, at a time: then the oldest are ended
enum { OPEN_ROOM = 128 << 20 }; // for all messages while nobody is there who may send more
enum { OWN_BYTES = 64 << 10 };  // a larger message of our own we ask for ourselves
struct outgoing {
    struct outgoing *next;
    grpc_byte_buffer *bytes;
    size_t n;
};
struct rpc_call {
    struct rpc *r;
    struct rpc_call *prev, *next;
    const struct rpc_method *method;
    void *data;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array headers;
    struct tag accepted, closed, received, sent;
    grpc_byte_buffer *in, *current, *held; // current: in the callback; held: still in use after it
    grpc_byte_buffer_reader reader;
    struct arena pieces;
    int was_cancelled; // written by the library with `closed`
    struct outgoing *out, **out_end;
    size_t unsent;
    struct {
        const char *key, *value;
    } head[2], tail;
    int64_t open_until_ns;            // its first message must be there; 0: no matter
    struct rpc_call *older, *younger; // of the strangers' list
    bool stranger, listed;            // counted there; in the list
    struct budget_hold place;         // of the tenant's calls
    struct gate_call of_gate;         // of the connection's
    bool admitted, had_message;
    bool has_room; // counted in n_messages
    bool late;     // it came when the daemon took no more
    bool head_sent, receive_wanted, ending, status_sent, cancelled, is_closed, in_callback,
        told_end;
    status_t end;
};
struct rpc {
    struct loop *loop;
    struct api *api;
    struct rpc_config cfg;
    struct grpc_port port;
    int n_messages; // that admitted calls wait for or have
    int n_lent;     // messages whose pieces the library has not given back
    struct loop_timer *open_timer;
    bool open_looks;          // it runs
    int64_t open_bytes;       // of memory, when last measured
    int64_t open_measured_ns; // 0: not yet
    pthread_t thread;
    bool thread_runs, quiesced; // quiesced: what comes is refused
    atomic_bool stopped;
    struct rpc_call *calls;
    struct rpc_call *waiting[ACCEPTS];  // armed for the next requests
    grpc_call *asked[ACCEPTS];          // where the library puts them; NULL: it has none left over
    struct budget *places;              // for calls of tenants
    struct rpc_call *oldest, *youngest; // strangers: calls that were not admitted
    int n_listed, n_strangers; // in the list; with those that were ended and are not free yet
    struct loop_timer *gate_timer;
    atomic_int n_posts; // of the gate's, on their way to the loop
    struct tag shut;
    struct rpc_health *health;
};

// ---- the queue's thread

static void run_tag(void *arg) {
    struct tag *t = arg;
    t->pending = false;
    t->fn(t);
}
// The next event, looked for as base/spin.h says.
static grpc_event next_event(grpc_completion_queue *q, struct spin *spin) {
    grpc_event e = {.type = GRPC_QUEUE_TIMEOUT};
    spin_begin(spin);
    while (e.type == GRPC_QUEUE_TIMEOUT && spin_again(spin))
        e = grpc_completion_queue_next(q, gpr_time_0(GPR_CLOCK_MONOTONIC), NULL);
    if (e.type == GRPC_QUEUE_TIMEOUT)
        e = grpc_completion_queue_next(q, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    spin_end(spin);
    return e;
}
static void *take_events(void *arg) {
    struct rpc *r = arg;
    struct spin spin = {.limit_ns = r->cfg.spin_ns};
    for (;;) {
        grpc_event e = next_event(r->port.queue, &spin);
        if (e.type == GRPC_QUEUE_SHUTDOWN) return NULL;
        if (e.type != GRPC_OP_COMPLETE) continue;
        struct tag *t = e.tag;
        tsan_acquire(t);
        t->ok = e.success;
        loop_post(r->loop, run_tag, t);
    }
}
static void arm(struct tag *t, void (*fn)(struct tag *)) {
    t->fn = fn;
    t->pending = true;
    tsan_release(t);
}

// ---- calls that were not admitted

static void unlist_stranger(struct rpc_call *c) {
    struct rpc *r = c->r;
    if (!c->listed) return;
    c->listed = false;
    r->n_listed--;
    *(c->older ? &c->older->younger : &r->oldest) = c->younger;
    *(c->younger ? &c->younger->older : &r->youngest) = c->older;
}
static void enter_strangers(struct rpc_call *c) {
    struct rpc *r = c->r;
    c->stranger = c->listed = true;
    r->n_strangers++;
    r->n_listed++;
    c->older = r->youngest;
    *(c->older ? &c->older->younger : &r->oldest) = c;
    r->youngest = c;
    while (r->n_listed > MAX_STRANGERS) { // `closed` follows
        struct rpc_call *out = r->oldest;
        unlist_stranger(out);
        grpc_call_cancel_with_status(out->call, GRPC_STATUS_RESOURCE_EXHAUSTED,
                                     "too many calls of clients without credentials", NULL);
    }
}
// Has the library made calls that were not asked for? Not while one that was asked for has not
// come. Thread: any.
static bool keeps_up(void *arg) {
    struct rpc *r = arg;
    bool place = atomic_load(&r->stopped);
    for (int i = 0; i < ACCEPTS && !place; i++)
        place = !__atomic_load_n(&r->asked[i], __ATOMIC_SEQ_CST);
    return place;
}
// Lets the gate's next turn begin where all calls that the library has made were taken.
static void let_read(struct rpc *r) {
    int64_t pause = 0;
    if (!gate_waits() || r->stopped) return;
    if (keeps_up(r)) pause = gate_turn(r->n_strangers <= MAX_STRANGERS + MAX_STRANGERS / 2);
    if (gate_waits()) loop_timer_start_ns(r->gate_timer, pause ? pause : GATE_NS);
}
static void on_gate_timer(void *arg) { // what was let in may not have come
    let_read(arg);
}
static void leave_strangers(struct rpc_call *c) {
    if (!c->stranger) return;
    unlist_stranger(c);
    c->stranger = false;
    c->r->n_strangers--;
    let_read(c->r);
}
static void look_at_gate(void *arg) {
    struct rpc *r = arg;
    atomic_fetch_sub(&r->n_posts, 1);
    let_read(r);
}
static void on_held(void *arg) {
    struct rpc *r = arg;
    atomic_fetch_add(&r->n_posts, 1);
    loop_post(r->loop, look_at_gate, r);
}

// ---- a call's life

static void pump(struct rpc_call *c);

static void make_room(struct rpc_call *c, bool over);
static void free_call(struct rpc_call *c) {
    struct rpc *r = c->r;
    make_room(c, true);
    leave_strangers(c);
    budget_drop(&c->place);
    gate_ended(&c->of_gate);
    while (c->out) {
        struct outgoing *o = c->out;
        c->out = o->next;
        grpc_byte_buffer_destroy(o->bytes);
        free(o);
    }
    st_drop(c->end);
    grpc_call_details_destroy(&c->details);
    grpc_metadata_array_destroy(&c->headers);
    if (c->call) {
        *(c->prev ? &c->prev->next : &r->calls) = c->next;
        if (c->next) c->next->prev = c->prev;
        grpc_call_unref(c->call);
    }
    free(c);
}
static void maybe_free(struct rpc_call *c) {
    if (c->in_callback || c->held || c->accepted.pending || c->closed.pending ||
        c->received.pending || c->sent.pending)
        return;
    if (!c->is_closed || !(c->status_sent || c->cancelled)) return;
    if (!c->told_end) {
        c->told_end = true;
        if (c->method && c->method->service->ended) {
            c->in_callback = true;
            c->method->service->ended(c);
            c->in_callback = false;
        }
    }
    free_call(c);
}
static void tell(struct rpc_call *c, void (*fn)(struct rpc_call *)) {
    if (!fn) return;
    bool outer = c->in_callback;
    c->in_callback = true;
    fn(c);
    c->in_callback = outer;
}

static void start(struct rpc_call *c, const grpc_op *ops, size_t n, struct tag *t,
                  void (*fn)(struct tag *)) {
    arm(t, fn);
    grpc_call_error e = grpc_call_start_batch(c->call, ops, n, t, NULL);
    if (e == GRPC_CALL_OK) return;
    t->pending = false; // only a batch that contradicts itself: a bug of ours
    abort();
}

static void on_closed(struct tag *t) {
    struct rpc_call *c = t->c;
    c->is_closed = true;
    if (c->was_cancelled && !c->status_sent) {
        c->cancelled = true;
        if (c->method) tell(c, c->method->service->cancelled);
    } else if (!c->status_sent)
        c->cancelled = true;
    maybe_free(c);
}

static void drop_message(struct rpc_call *c, grpc_byte_buffer *b) {
    grpc_byte_buffer_reader_destroy(&c->reader);
    grpc_byte_buffer_destroy(b);
    arena_done(&c->pieces);
    make_room(c, false);
}

static void give_message(struct rpc_call *c, grpc_byte_buffer *b) {
    VEC(struct span) pieces = {0};
    struct rpc_bytes m = {0};
    grpc_slice *s;
    if (!grpc_byte_buffer_reader_init(&c->reader, b)) {
        grpc_byte_buffer_destroy(b);
        rpc_finish(c, st_invalid("a message that cannot be read"));
        return;
    }
    while (grpc_byte_buffer_reader_peek(&c->reader, &s)) {
        struct span piece = {GRPC_SLICE_START_PTR(*s), GRPC_SLICE_LENGTH(*s)};
        avec_push(&c->pieces, &pieces, piece);
        m.bytes += piece.n;
    }
    m.pieces = pieces.v;
    m.n = pieces.n;
    m.compressed = b->data.raw.compression != GRPC_COMPRESS_NONE;
    c->current = b;
    c->method->service->message(c, &m);
    c->current = NULL;
    if (!c->held) drop_message(c, b);
}
void rpc_hold(struct rpc_call *c) {
    c->held = c->current;
}
void rpc_release(struct rpc_call *c) {
    grpc_byte_buffer *held = c->held;
    c->held = NULL;
    drop_message(c, held);
    if (c->receive_wanted) rpc_receive(c);
    maybe_free(c);
}

static void on_received(struct tag *t) {
    struct rpc_call *c = t->c;
    grpc_byte_buffer *b = c->in;
    c->in = NULL;
    c->had_message = true;
    c->open_until_ns = 0;
    if (!c->cancelled && !c->ending) {
        c->in_callback = true;
        if (t->ok && b)
            give_message(c, b);
        else
            c->method->service->message(c, NULL);
        c->in_callback = false;
    } else if (b)
        grpc_byte_buffer_destroy(b);
    make_room(c, false);
    maybe_free(c);
}

static void on_sent(struct tag *t) {
    struct rpc_call *c = t->c;
    if (!t->ok) c->cancelled = true; // `closed` says so too
    if (!c->cancelled && !c->out && !c->ending && c->method) tell(c, c->method->service->sent);
    pump(c);
    maybe_free(c);
}

static void accept_next(struct rpc *r, struct rpc_call **place);

static const struct rpc_method *(*const lookups[])(const char *path) = {
    rpc_api_method, rpc_health_method, rpc_reflection_method};

static void on_accepted(struct tag *t) {
    struct rpc_call *c = t->c;
    struct rpc *r = c->r;
    struct rpc_call **place = r->waiting;
    while (*place != c)
        place++;
    *place = NULL;
    c->call = r->asked[place - r->waiting];
    c->late = r->quiesced;
    if (!t->ok) { // the server shuts down
        c->call = NULL;
        free_call(c);
        return;
    }
    c->next = r->calls;
    if (c->next) c->next->prev = c;
    r->calls = c;
    enter_strangers(c);
    if (!r->stopped) accept_next(r, place);
    let_read(r);

    char *path = grpc_slice_to_c_string(c->details.method);
    for (size_t i = 0; i < sizeof lookups / sizeof *lookups && !c->method; i++)
        c->method = lookups[i](path);
    grpc_op watch = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    watch.data.recv_close_on_server.cancelled = &c->was_cancelled;
    start(c, &watch, 1, &c->closed, on_closed);
    if (c->method)
        tell(c, c->method->service->begin);
    else
        rpc_finish(c, st_because(ST_UNIMPLEMENTED, NO_ROUTE, "no method '%.200s' here", path));
    gpr_free(path);
}

static void accept_next(struct rpc *r, struct rpc_call **place) {
    struct rpc_call *c = arena_must_calloc(1, sizeof *c);
    c->r = r;
    c->out_end = &c->out;
    grpc_call_details_init(&c->details);
    grpc_metadata_array_init(&c->headers);
    struct tag *tags[] = {&c->accepted, &c->closed, &c->received, &c->sent};
    for (size_t i = 0; i < 4; i++)
        *tags[i] = (struct tag){.r = r, .c = c};
    *place = c;
    arm(&c->accepted, on_accepted);
    grpc_completion_queue *q = r->port.queue;
    grpc_call **asked = &r->asked[place - r->waiting];
    __atomic_store_n(asked, NULL, __ATOMIC_SEQ_CST);
    if (grpc_server_request_call(r->port.server, asked, &c->details, &c->headers, q, q,
                                 &c->accepted) != GRPC_CALL_OK)
        abort();
}

// ---- sending

// The next batch: head, a message, or the status when all messages have gone.
static void pump(struct rpc_call *c) {
    if (c->sent.pending || c->cancelled || c->status_sent || (!c->out && !c->ending)) return;
    grpc_op ops[3] = {{0}};
    size_t n = 0;
    struct trailer head = {0};
    if (!c->head_sent) {
        for (int k = 0; k < 2; k++)
            if (c->head[k].value) trailer_add(&head, c->head[k].key, c->head[k].value);
        ops[n].op = GRPC_OP_SEND_INITIAL_METADATA;
        ops[n].data.send_initial_metadata.metadata = head.v;
        ops[n++].data.send_initial_metadata.count = head.n;
    }
    c->head_sent = true;

    struct outgoing *o = c->out;
    if (o) {
        c->out = o->next;
        if (!c->out) c->out_end = &c->out;
        c->unsent -= o->n;
        ops[n].op = GRPC_OP_SEND_MESSAGE;
        ops[n++].data.send_message.send_message = o->bytes;
    }

    if (!c->out && c->ending) {
        struct trailer t;
        trailer_status(&t, c->end, c->tail.key, c->tail.value, &ops[n++]);
        c->status_sent = true;
        gate_ended(&c->of_gate);
        start(c, ops, n, &c->sent, on_sent);
        trailer_done(&t);
    } else
        start(c, ops, n, &c->sent, on_sent);
    trailer_done(&head);
    if (o) {
        grpc_byte_buffer_destroy(o->bytes);
        free(o);
    }
}

static void queue_slices(struct rpc_call *c, grpc_slice *v, size_t n, size_t bytes) {
    struct outgoing *o = arena_must_calloc(1, sizeof *o);
    o->bytes = grpc_raw_byte_buffer_create(v, n);
    o->n = bytes;
    for (size_t i = 0; i < n; i++)
        grpc_slice_unref(v[i]);
    *c->out_end = o;
    c->out_end = &o->next;
    c->unsent += bytes;
}
// False: no memory, and the call ends.
static bool queue_message(struct rpc_call *c, const ProtobufCMessage *m) {
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *own = n > OWN_BYTES ? malloc(n) : NULL;
    if (n > OWN_BYTES && !own) {
        rpc_finish(c, st_oom());
        return false;
    }
    grpc_slice s = own ? grpc_slice_new(own, n, free) : grpc_slice_malloc(n);
    protobuf_c_message_pack(m, GRPC_SLICE_START_PTR(s));
    queue_slices(c, &s, 1, n);
    return true;
}

// Pieces that the library has: the last of them comes back on any thread.
struct lent {
    struct rpc *r;
    atomic_size_t n;
    void (*done)(void *arg);
    void *arg;
};
static void all_back(void *arg) {
    struct lent *l = arg;
    l->r->n_lent--;
    l->done(l->arg);
    free(l);
}
static void one_back(void *arg) {
    struct lent *l = arg;
    tsan_acquire(l);
    if (atomic_fetch_sub(&l->n, 1) == 1) loop_post(l->r->loop, all_back, l);
}
void rpc_send_lent(struct rpc_call *c, const struct span *v, size_t n, void (*done)(void *arg),
                   void *arg) {
    if (c->cancelled || c->ending || !n) {
        done(arg);
        return;
    }
    struct lent *l = malloc(sizeof *l);
    grpc_slice *s = malloc(n * sizeof *s);
    if (!l || !s) abort();
    *l = (struct lent){.r = c->r, .done = done, .arg = arg};
    atomic_init(&l->n, n);
    c->r->n_lent++;
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        s[i] = grpc_slice_new_with_user_data((void *)(uintptr_t)v[i].p, v[i].n, one_back, l);
        bytes += v[i].n;
    }
    tsan_release(l);
    queue_slices(c, s, n, bytes);
    free(s);
    pump(c);
}

void rpc_send(struct rpc_call *c, const ProtobufCMessage *m) {
    if (c->cancelled || c->ending) return;
    if (queue_message(c, m)) pump(c);
}

void rpc_reply(struct rpc_call *c, const ProtobufCMessage *m) {
    if (c->cancelled || c->ending) return;
    if (queue_message(c, m)) rpc_finish(c, ST_OK);
}

void rpc_finish(struct rpc_call *c, status_t st) {
    if (c->ending || c->cancelled) {
        st_drop(st);
        return;
    }
    c->ending = true;
    c->end = st;
    pump(c);
}

// Whoever is nobody yet has so long for its first message, which is small; and hardly any time
// while memory grows by what such calls send: else the library, at its bound, would end any call,
// those of others too.
enum { OPEN_MS = 2000, OPEN_LOOK_MS = 20, PRESSED_MS = 20, PRESSED_BYTES = 32 << 20 };
static void on_open_look(void *arg) {
    struct rpc *r = arg;
    int64_t now = clock_ns();
    bool more = false, pressed = reserve_resident_bytes() - r->open_bytes > PRESSED_BYTES;
    for (struct rpc_call *c = r->calls; c; c = c->next) {
        if (!c->open_until_ns || c->cancelled || c->ending) continue;
        int64_t early = pressed ? clock_of_ms(OPEN_MS - PRESSED_MS) : 0;
        if (now < c->open_until_ns - early)
            more = true;
        else // `closed` follows
            grpc_call_cancel_with_status(c->call, GRPC_STATUS_DEADLINE_EXCEEDED,
                                         "the request took too long", NULL);
    }
    r->open_looks = more;
    if (more) loop_timer_start(r->open_timer, OPEN_LOOK_MS);
}
static void expect_soon(struct rpc_call *c) {
    struct rpc *r = c->r;
    if (c->admitted || c->had_message) return;
    if (!r->open_timer) r->open_timer = loop_timer_new(r->loop, on_open_look, r);
    c->open_until_ns = clock_ns() + clock_of_ms(OPEN_MS);
    if (r->open_looks) return;
    r->open_looks = true;
    loop_timer_start(r->open_timer, OPEN_LOOK_MS);
    // What calls leave behind is no growth of others'.
    if (clock_ns() - r->open_measured_ns < clock_of_ms(OPEN_MS)) return;
    r->open_measured_ns = clock_ns();
    r->open_bytes = reserve_resident_bytes();
}

void rpc_receive(struct rpc_call *c) {
    c->receive_wanted = c->held != NULL; // one message at a time: rpc_release asks again
    if (c->received.pending || c->held || c->cancelled) return;
    expect_soon(c);
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &c->in;
    start(c, &op, 1, &c->received, on_received);
    make_room(c, false);
}

// ---- what services ask

struct rpc *rpc_of(struct rpc_call *c) {
    return c->r;
}
struct api *rpc_api(struct rpc *r) {
    return r->api;
}
struct loop *rpc_loop(struct rpc *r) {
    return r->loop;
}
const struct rpc_config *rpc_cfg(const struct rpc *r) {
    return &r->cfg;
}
const struct rpc_method *rpc_method_of(const struct rpc_call *c) {
    return c->method;
}
void rpc_set_data(struct rpc_call *c, void *data) {
    c->data = data;
}
void *rpc_data(const struct rpc_call *c) {
    return c->data;
}
size_t rpc_unsent(const struct rpc_call *c) {
    return c->unsent;
}
bool rpc_over(const struct rpc_call *c) {
    return c->ending || c->cancelled;
}
struct rpc_health **rpc_health_slot(struct rpc *r) {
    return &r->health;
}
int64_t rpc_timeout_ms(const struct rpc_call *c) {
    return grpc_port_ms_left(c->details.deadline);
}
void rpc_head(struct rpc_call *c, int slot, const char *key, const char *value) {
    c->head[slot].key = key;
    c->head[slot].value = value;
}
void rpc_tail(struct rpc_call *c, const char *key, const char *value) {
    c->tail.key = key;
    c->tail.value = value;
}
const char *rpc_header(struct rpc_call *c, struct arena *a, const char *name) {
    return metadata_find(&c->headers, a, name);
}
bool rpc_header_clear(const struct rpc_call *c, const char *name) {
    return metadata_clear(&c->headers, name);
}
size_t rpc_peer_names(struct rpc_call *c, struct arena *a, const char *const **out) {
    *out = NULL;
    return c->r->cfg.tls ? grpc_port_names(c->call, a, out) : 0;
}

// ---- memory

static int max_calls(const struct rpc_config *cfg) { // a request each, as on HTTP
    enum { MANY = 4096 };
    return cfg->max_connections ? cfg->max_connections : MANY;
}
// The library assembles a message whole before it looks at its length, for everybody. What all
// messages together may take is little, and as much more as those who may send more wait for or
// have here.
static int64_t room(const struct rpc *r) {
    int64_t most = r->cfg.receive_bytes, more = most - OPEN_ROOM;
    if (more <= 0 || r->n_messages > more / r->cfg.max_message_bytes) return most;
    return OPEN_ROOM + r->n_messages * r->cfg.max_message_bytes;
}
static void make_room(struct rpc_call *c, bool over) {
    struct rpc *r = c->r;
    bool has = !over && c->admitted && (c->received.pending || c->held);
    if (has == c->has_room) return;
    c->has_room = has;
    int64_t before = room(r);
    r->n_messages += has ? 1 : -1;
    if (room(r) != before) grpc_resource_quota_resize(r->port.quota, (size_t)room(r));
}
MUST_CHECK static status_t too_many(const char *whose, int max) {
    status_t st = st_exhausted("too many calls at a time: %s %d", whose, max);
    return st_retry_after(st_reason(st, HLOD__V1__REASON__REASON_LIMIT_EXCEEDED), 1000);
}
MUST_CHECK static status_t take_place(struct rpc_call *c, const char *tenant, const char *peer) {
    struct rpc *r = c->r;
    c->place.tenant = tenant;
    status_t st = budget_try(r->places, &c->place, 1);
    c->place.tenant = NULL; // borrowed until here
    if (st) {
        st_drop(st);
        return too_many("your tenant has its share of", max_calls(&r->cfg));
    }
    return gate_admit(peer, &c->of_gate) ? ST_OK
                                         : too_many("the connection has", GRPC_PORT_MAX_CALLS);
}
status_t rpc_admitted(struct rpc_call *c, const char *tenant) {
    char *peer = grpc_call_get_peer(c->call);
    status_t st = take_place(c, tenant, peer);
    if (st) gate_doubt(peer);
    gpr_free(peer);
    if (st) return st;
    c->admitted = true;
    make_room(c, false);
    leave_strangers(c);
    return ST_OK;
}

// ---- start and stop

static void on_shut(UNUSED struct tag *t) {}
// An end waits so long for answers, and for calls that the library's threads are making.
enum { SETTLE_NS = 500 * 1000 * 1000, CALM_NS = 10 * 1000 * 1000 };

status_t rpc_start(struct loop *l, struct api *api, const struct rpc_config *cfg,
                   struct rpc **out) {
    struct rpc *r = calloc(1, sizeof *r);
    if (!r) return st_oom();
    r->loop = l;
    r->api = api;
    r->cfg = *cfg;
    r->shut.r = r;
    // The library ends the process where memory runs out: it gets half of what may be had.
    int64_t half = reserve_spare_bytes() / 2;
    if (half < cfg->receive_bytes) {
        log_event(LOG_WARN, "grpc.room", "bytes=%lld", (long long)half);
        r->cfg.receive_bytes = half;
    }
    r->port.cfg = &r->cfg;

    struct gate_config gc = {.max_connections = cfg->max_connections,
                             .max_per_address = cfg->max_per_address,
                             .max_calls = GRPC_PORT_MAX_CALLS,
                             .held = on_held,
                             .keeps_up = keeps_up,
                             .ctx = r};
    gate_start(&gc);
    status_t st = grpc_port_open(&r->port, room(r));
    if (st) {
        gate_stop();
        free(r);
        return st;
    }

    r->gate_timer = loop_timer_new(l, on_gate_timer, r);
    r->places = budget_new(l, max_calls(cfg), 0, api->auth != NULL, false);
    grpc_server_start(r->port.server);
    for (int i = 0; i < ACCEPTS; i++)
        accept_next(r, &r->waiting[i]);
    if (pthread_create(&r->thread, NULL, take_events, r)) abort();
    r->thread_runs = true;
    rpc_health_start(r);
    *out = r;
    return ST_OK;
}

int rpc_port(const struct rpc *r) {
    return r->port.number;
}
int rpc_open_calls(const struct rpc *r) {
    int n = 0;
    for (const struct rpc_call *c = r->calls; c; c = c->next)
        n += c->method && !c->method->service->idle && !c->late;
    return n;
}

// The library is not told yet: it would end the calls that come as CANCELLED. We refuse them.
void rpc_quiesce(struct rpc *r) {
    if (r->quiesced) return;
    r->quiesced = true;
    gate_shut_doors();
    for (struct rpc_call *c = r->calls, *next; c; c = next) {
        next = c->next;
        if (c->method && !c->cancelled) tell(c, c->method->service->quiesce);
    }
}

// Is an answer on its way, or about to be?
static bool answers(struct rpc *r) {
    if (!keeps_up(r)) return true;
    for (const struct rpc_call *c = r->calls; c; c = c->next) {
        bool sent = c->status_sent && !c->sent.pending, refused = c->late && c->had_message;
        if (!c->cancelled && !sent && (c->ending || refused)) return true;
    }
    return false;
}
static void settle(struct rpc *r) {
    int64_t now = clock_ns(), until = now + SETTLE_NS, calm_ns = now;
    while (now < until && now - calm_ns < CALM_NS) {
        loop_timer_start_ns(r->gate_timer, CALM_NS / 2);
        loop_turn(r->loop);
        now = clock_ns();
        if (answers(r)) calm_ns = now;
    }
}

void rpc_stop(struct rpc *r) {
    rpc_quiesce(r);
    gate_hold_all();
    settle(r);
    atomic_store(&r->stopped, true);
    rpc_health_stop(r);
    arm(&r->shut, on_shut);
    grpc_server_shutdown_and_notify(r->port.server, r->port.queue, &r->shut);
    settle(r); // who is idle goes by himself, told that all is well
    gate_end_all();
    grpc_server_cancel_all_calls(r->port.server);
}

bool rpc_stopped(const struct rpc *r) {
    for (int i = 0; i < ACCEPTS; i++)
        if (r->waiting[i]) return false;
    return !r->calls && !r->shut.pending && !r->n_lent;
}

void rpc_free(struct rpc *r) {
    if (!r) return;
    gate_stop();
    while (atomic_load(&r->n_posts))
        loop_turn(r->loop);
    loop_timer_free(r->open_timer);
    loop_timer_free(r->gate_timer);
    grpc_completion_queue_shutdown(r->port.queue);
    if (r->thread_runs) pthread_join(r->thread, NULL);
    grpc_port_close(&r->port);
    budget_free(r->places);
    rpc_health_free(r);
    free(r);
}
