// SPDX-License-Identifier: Apache-2.0
// Frames in, replies out. Two threads share a queue and the socket's sending side (worker_call.c),
// each behind a mutex; everything else belongs to one of them.
#include "devices/worker/worker.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "compiler/codegen/abi.h"
#include "devices/worker/sandbox.h"
#include "devices/worker/worker_calls.h"
#include "devices/worker/worker_maps.h"
#include "devices/worker/worker_streams.h"

struct worker {
    const struct worker_options *opt;
    bool device_role;
    struct device *dev;
    pthread_mutex_t mutex;
    struct worker_socket socket;
    pthread_cond_t more;
    struct worker_call *first, *last;
    struct worker_call *running; // one, or a list of those that run at the same time
    int streams;                 // so many of these; 1: never
    bool waited;                 // `first` and the call before it could have been beside each other
    bool full;                   // the run thread waits for one of them to end
    struct worker_call *ahead;   // the INGEST whose COMPILE is made before it is asked for
    int64_t ahead_ns;            // since when
    bool closing;
    _Atomic uint64_t *begun; // the daemon's page, or NULL: tells which call was begun last
    int statm_fd;            // a file of /proc, opened before the filter
    char filter[256];        // "on", "off: why"
    _Atomic bool lost;
};

// ---- the run thread

// By type of frame: its body and its reply's, whether workers of devices or compile workers answer
// it, and how.
static const struct handler {
    const ProtobufCMessageDescriptor *request, *reply;
    bool device_role;
    status_t (*answer)(struct worker_call *c, struct device *d, void *reply);
} handlers[] = {
#define ON(type, name, device)                                                                     \
    [HLOD__WIRE__TYPE__TYPE_##type] = {&hlod__wire__##name##__descriptor,                          \
                                       &hlod__wire__##name##_reply__descriptor, device,            \
                                       worker_##name}
    ON(INGEST, ingest, false),    ON(COMPILE, compile, false), ON(INSPECT, inspect, false),
    ON(TARGET, target, false),    ON(LOAD, load, true),        ON(EXPECT, expect, true),
    ON(PREPARE, prepare, true),   ON(RUN, run, true),          ON(UNLOAD, unload, true),
    ON(PUT, put, true),           ON(GET, get, true),          ON(FREE, free, true),
    ON(RUN_PLAN, run_plan, true), ON(TRAIN, train, false),     ON(TRAINED, trained, false),
    ON(TUNE, tune, false),        ON(EXPORT, export, false),
#undef ON
};
// The status of a reply, also on failure: field 1 of each.
static void set_status(struct worker_call *c, ProtobufCMessage *reply, status_t st) {
    size_t at = protobuf_c_message_descriptor_get_field(reply->descriptor, 1)->offset;
    *(Hlod__Wire__Status **)(void *)((char *)reply + at) = worker_call_status(c, st);
}

static void answer_stats(struct worker *w, uint64_t id, bool ending);
static void give_up_device(struct worker *w) { // a new process has a new one
    w->lost = true;
    shutdown(w->opt->fd, SHUT_RDWR); // the loop thread sees the end
}

static void make_ahead(struct worker *w, struct worker_call *c) {
    worker_lower_ahead(c, w->dev ? dev_target(w->dev) : NULL);
    pthread_mutex_lock(&w->mutex);
    w->ahead = NULL;
    pthread_mutex_unlock(&w->mutex);
}

static ProtobufCMessage *begin(struct worker *w, struct worker_call *c) {
    const char *last;
    c->refused_before = sandbox_refused(&last);
    if (w->begun) *w->begun = c->id;
    return message_new(&c->arena, handlers[c->type].reply); // descriptor_of found it
}
// `soon`: more that came with it is answered next.
static void send_reply(struct worker *w, struct worker_call *c, ProtobufCMessage *reply,
                       status_t st, bool soon) {
    set_status(c, reply, st);
    // First, so that nothing is placed here once the reply is known.
    if (c->device_lost) answer_stats(w, 0, true);
    bool hold = soon && !c->device_lost;
    (hold ? worker_send_soon : worker_send)(&w->socket, c->type + 40, c->id, reply, c->reply_fds,
                                            c->n_reply_fds);
}
// `c` is w->running already: no other thread calls the device. Frees it.
static void serve(struct worker *w, struct worker_call *c, bool soon) {
    ProtobufCMessage *reply = begin(w, c);
    send_reply(w, c, reply, handlers[c->type].answer(c, w->dev, reply), soon);
    bool lost = c->device_lost;
    pthread_mutex_lock(&w->mutex);
    w->running = NULL;
    w->waited = w->first && worker_runs_alike(c, w->first);
    if (c->expected && !w->first) w->ahead = c;
    w->ahead_ns = clock_ns();
    bool ahead = w->ahead == c;
    pthread_mutex_unlock(&w->mutex);
    if (ahead) make_ahead(w, c);
    worker_call_free(c);
    if (lost) give_up_device(w);
}

// ---- runs at the same time

// Under the mutex.
static struct worker_call *take_call(struct worker *w) {
    struct worker_call *c = w->first;
    if (!c) return NULL;
    w->first = c->next;
    if (!w->first) w->last = NULL;
    c->next = w->running;
    w->running = c;
    return c;
}
static void end_beside(struct worker *w, struct worker_call *c, ProtobufCMessage *reply,
                       status_t st) {
    send_reply(w, c, reply, st, false);
    bool lost = c->device_lost;
    pthread_mutex_lock(&w->mutex);
    struct worker_call **at = &w->running;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    w->waited = w->first && worker_runs_alike(c, w->first);
    if (w->begun && w->running) *w->begun = w->running->id;
    pthread_mutex_unlock(&w->mutex);
    worker_call_free(c);
    if (lost) give_up_device(w);
}
// Was it begun? Else it is answered.
static bool begin_beside(struct worker *w, struct worker_call *c) {
    struct worker_run *run;
    ProtobufCMessage *reply = begin(w, c);
    if (!((const Hlod__Wire__Run *)c->request)->quiet)
        worker_call_event(c, HLOD__WIRE__TYPE__TYPE_RUNNING, NULL);
    uint64_t oldest = c->id;
    for (const struct worker_call *k = w->running; k; k = k->next)
        if (k->id < oldest) oldest = k->id;
    worker_maps_since(oldest);
    status_t st = worker_run_begin(c, reply, &run);
    if (st) {
        end_beside(w, c, reply, st);
        return false;
    }
    pthread_mutex_lock(&w->mutex);
    worker_streams_put(run);
    pthread_mutex_unlock(&w->mutex);
    return true;
}
// c and what comes behind it, as long as it is more of the same and there is always some.
static void serve_beside(struct worker *w, struct worker_call *c) {
    for (int n = 0;;) {
        struct worker_run *run = NULL;
        if (c) n += begin_beside(w, c);
        c = NULL;
        pthread_mutex_lock(&w->mutex);
        while (n && !(run = worker_streams_done()) && !c) {
            if (n <= w->streams && w->first && worker_runs_alike(w->running, w->first))
                c = take_call(w);
            else {
                w->full = n > w->streams;
                pthread_cond_wait(&w->more, &w->mutex);
                w->full = false;
            }
        }
        pthread_mutex_unlock(&w->mutex);
        if (run) {
            n--;
            status_t st = worker_run_end(run);
            end_beside(w, worker_run_call(run), worker_run_reply(run), st);
        }
        if (!n && !c) break;
    }
    worker_maps_since(UINT64_MAX);
    worker_unpin();
}
// Does more of the same wait behind c, which runs alone? Or will it soon: c waited itself, so the
// client of the run before it may well ask again while c runs.
static bool goes_beside(const struct worker *w, const struct worker_call *c) {
    const struct worker_call *other = w->waited ? c : w->first;
    return w->streams > 1 && other && worker_runs_alike(c, other);
}

// Until there is a call, or a tenth of a second has gone by while the device is at work for a run
// that was cancelled. Under the mutex, so that the loop thread does not use the device meanwhile.
static void wait_for_call(struct worker *w) {
    bool busy = false;
    status_t st = w->dev->vt->idle && !w->lost ? w->dev->vt->idle(w->dev, &busy) : ST_OK;
    struct timespec until = clock_after(100000000);
    if (st) give_up_device(w);
    if (st || !busy)
        pthread_cond_wait(&w->more, &w->mutex);
    else
        pthread_cond_clockwait(&w->more, &w->mutex, CLOCK_MONOTONIC, &until);
    st_drop(st);
}

// Cancels work on what was only expected, unless `next` is what it is made for. Under the mutex.
static void yield_to(struct worker *w, struct worker_call *next) {
    if (next && w->running && w->running->type == HLOD__WIRE__TYPE__TYPE_EXPECT)
        w->running->cancel = true;
    if (w->ahead && w->first == next && !worker_made_for(w->ahead, next)) w->ahead->cancel = true;
}

static void *run_thread(void *arg) {
    struct worker *w = arg;
    if (w->device_role)
        worker_device_warm(w->dev); // nothing is resident: the loop thread has no run either
    else
        worker_compile_warm(dev_target(w->dev));
    for (;;) {
        pthread_mutex_lock(&w->mutex);
        while (!w->first && !w->closing)
            wait_for_call(w);
        struct worker_call *c = take_call(w);
        bool beside = c && goes_beside(w, c);
        w->waited = false;
        if (c) yield_to(w, w->first);
        pthread_mutex_unlock(&w->mutex);
        if (!c) return NULL;
        if (beside && worker_run_has_streams(c, w->streams) &&
            worker_streams_begin(w->streams, &w->mutex, &w->more))
            serve_beside(w, c);
        else
            serve(w, c, false);
    }
}

// ---- the loop thread

static const ProtobufCMessageDescriptor *descriptor_of(const struct worker *w, uint32_t type) {
    bool known = type < sizeof handlers / sizeof *handlers;
    return known && handlers[type].device_role == w->device_role ? handlers[type].request : NULL;
}

// By a descriptor that was opened before the filter.
static int64_t rss_bytes(const struct worker *w) {
    char text[128];
    ssize_t n = pread(w->statm_fd, text, sizeof text - 1, 0);
    struct str s = {text, n > 0 ? (size_t)n : 0}, field;
    int64_t pages = 0;
    str_cut(&s, ' ', &field);
    str_cut(&s, ' ', &field);
    return str_to_i64(field, &pages) ? pages * sysconf(_SC_PAGESIZE) : 0;
}

static void answer_stats(struct worker *w, uint64_t id, bool ending) {
    Hlod__Wire__StatsReply r = HLOD__WIRE__STATS_REPLY__INIT;
    r.ending = ending;
    Hlod__Wire__Status ok = HLOD__WIRE__STATUS__INIT;
    r.status = &ok;
    r.rss_bytes = rss_bytes(w);
    const char *last;
    r.refused = sandbox_refused(&last);
    r.last_refused = (char *)(uintptr_t)last;
    worker_residents(&r.resident_executables, &r.prepared_bytes);
    worker_buffers_held(&r.buffers, &r.buffer_bytes);
    pthread_mutex_lock(&w->mutex);
    for (struct worker_call *c = w->first; c; c = c->next)
        r.calls_active++;
    for (struct worker_call *c = w->running; c; c = c->next)
        r.calls_active++;
    pthread_mutex_unlock(&w->mutex);
    worker_send(&w->socket, HLOD__WIRE__TYPE__TYPE_STATS_REPLY, id, &r.base, NULL, 0);
}

// A call that waits is answered at once: it must not look as if it hung for what runs before it.
// The status is field 1 of each reply (wire.proto).
static void answer_cancelled(struct worker *w, struct worker_call *c) {
    Hlod__Wire__LoadReply r = HLOD__WIRE__LOAD_REPLY__INIT;
    const char *last;
    c->refused_before = sandbox_refused(&last);
    r.status =
        worker_call_status(c, st_new(ST_CANCELLED, "the call was cancelled before it began"));
    worker_send(&w->socket, c->type + 40, c->id, &r.base, NULL, 0);
    worker_call_free(c);
}

// For the daemon the first call behind what is made ahead has begun: both are told to end.
static void cancel_call(struct worker *w, uint64_t id) {
    struct worker_call *waits = NULL, *before = NULL;
    pthread_mutex_lock(&w->mutex);
    for (struct worker_call *c = w->first; c && !waits; before = waits ? before : c, c = c->next)
        if (c->id == id) waits = c;
    if (waits && w->ahead && waits == w->first) {
        waits->cancel = w->ahead->cancel = true;
        waits = NULL;
    }
    if (waits) {
        *(before ? &before->next : &w->first) = waits->next;
        if (w->last == waits) w->last = before;
    }
    for (struct worker_call *c = w->running; c; c = c->next)
        if (c->id == id) c->cancel = true;
    pthread_mutex_unlock(&w->mutex);
    if (waits) answer_cancelled(w, waits);
}

static status_t accept_call(struct worker *w, struct frame *f, bool more) {
    const ProtobufCMessageDescriptor *d = descriptor_of(w, f->type);
    if (!d) return st_internal("frame type %u is not for a %s worker", f->type, w->opt->role);
    struct worker_call *c = calloc(1, sizeof *c);
    if (!c) return st_oom();
    c->type = f->type;
    c->id = f->call;
    c->socket = &w->socket;
    c->request = protobuf_c_message_unpack(d, NULL, f->body.n, f->body.p);
    for (int k = 0; k < f->n_fds; k++)
        c->fds[c->n_fds++] = frame_take_fd(f, k);
    if (!c->request) {
        worker_call_free(c);
        return st_internal("a %s does not parse", d->name);
    }

    // Waking the run thread takes longer than a brief run does. While nothing runs, its tables are
    // this thread's to use.
    pthread_mutex_lock(&w->mutex);
    bool here =
        !w->running && !w->first && c->type == HLOD__WIRE__TYPE__TYPE_RUN && worker_run_is_brief(c);
    if (here) {
        w->running = c;
    } else {
        *(w->last ? &w->last->next : &w->first) = c;
        w->last = c;
        yield_to(w, c);
        if (!w->full) pthread_cond_signal(&w->more);
    }
    pthread_mutex_unlock(&w->mutex);
    if (here) serve(w, c, more);
    return ST_OK;
}

static void say_hello(struct worker *w, const char *error) {
    Hlod__Wire__Hello h = HLOD__WIRE__HELLO__INIT;
    Hlod__Wire__Format formats[] = {HLOD__WIRE__FORMAT__INIT, HLOD__WIRE__FORMAT__INIT},
                       *list[] = {&formats[0], &formats[1]};
    static const char *const names[][2] = {
#define FRONTEND(fn, name, media_type) {name, media_type},
#include "compiler/frontend/frontends.def"
#undef FRONTEND
    };
    for (int k = 0; k < 2; k++) {
        formats[k].name = (char *)(uintptr_t)names[k][0];
        formats[k].media_type = (char *)(uintptr_t)names[k][1];
    }

    h.protocol = FRAME_PROTOCOL;
    h.role = (char *)(uintptr_t)w->opt->role;
    h.pid = (int32_t)getpid();
    h.build_id = (char *)(uintptr_t)compile_build_id();
    h.kernel_abi = HLOD_KERNEL_ABI;
    h.filter = w->filter;
    h.n_formats = 2;
    h.formats = list;
    h.error = (char *)(uintptr_t)error;
    h.single_use = !w->device_role && w->dev && dev_attributes(w->dev).single_use;

    if (w->device_role && w->dev) {
        const struct target *t = dev_target(w->dev);
        struct dev_attributes at = dev_attributes(w->dev);
        h.device_kind = (char *)(uintptr_t)t->kind;
        h.device_name = (char *)(uintptr_t)w->opt->name;
        h.target_id = (char *)(uintptr_t)t->id;
        h.description = (char *)(uintptr_t)at.description;
        h.memory_bytes = at.memory_bytes;
        h.threads = t->threads;
        h.streams = w->streams;
    }
    worker_send(&w->socket, HLOD__WIRE__TYPE__TYPE_HELLO, 0, &h.base, NULL, 0);
}

// Cancels what is made ahead when no call came for it in time. Returns how long the loop may sleep,
// -1: no limit; while a compile worker is at work it looks again.
static int watch_ahead(struct worker *w) {
    enum { AHEAD_MS = 1000, LOOK_MS = 200 };
    pthread_mutex_lock(&w->mutex);
    if (w->ahead && !w->first && clock_ns() - w->ahead_ns > AHEAD_MS * CLOCK_MS)
        w->ahead->cancel = true;
    bool busy = !w->device_role && (w->running || w->ahead);
    pthread_mutex_unlock(&w->mutex);
    return busy ? LOOK_MS : -1;
}

static status_t read_frames(struct worker *w) {
    struct frame_buf *buf = frame_buf_new();
    status_t st = ST_OK;
    for (struct frame f = {0}; !st; frame_done(&f)) {
        st = frame_recv(w->opt->fd, buf, watch_ahead(w), &f);
        if (st_code(st) == ST_DEADLINE_EXCEEDED) {
            st_drop(st);
            st = ST_OK;
            continue;
        }
        if (st || f.type == 0) break;
        if (f.type == HLOD__WIRE__TYPE__TYPE_STATS) {
            answer_stats(w, f.call, false);
        } else if (f.type == HLOD__WIRE__TYPE__TYPE_CANCEL) {
            cancel_call(w, f.call);
        } else {
            st = accept_call(w, &f, frame_buf_has_more(buf));
        }
        if (!frame_buf_has_more(buf)) worker_send_held(&w->socket);
    }
    frame_buf_free(buf);
    return st;
}

// A worker without the filter works too; its HELLO tells why there is none.
static void enter_filter(struct worker *w, bool foreign) {
    w->statm_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    worker_peak_open();
    bool wanted = w->opt->filter && !foreign;
    status_t st = wanted ? sandbox_enter() : ST_OK;
    snprintf(w->filter, sizeof w->filter, "%s%s", wanted && !st ? "on" : "off: ",
             st               ? st_message(st)
             : wanted         ? ""
             : w->opt->filter ? "a plugin needs files"
                              : "by option");
    st_drop(st);
}

// The daemon is gone. True when the run thread was idle and has ended.
static bool end_run_thread(struct worker *w, pthread_t thread) {
    pthread_mutex_lock(&w->mutex);
    bool idle = !w->running && !w->first;
    w->closing = true;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->mutex);
    if (idle) pthread_join(thread, NULL);
    return idle;
}

// A plugin's threads may be at work still; its own destructors do not wait for them, or for ever.
static void end_at_once(int status, UNUSED void *arg) {
    _exit(status);
}

status_t worker_serve(const struct worker_options *o) {
    // One a process. The device is not closed: a plugin's client may hang on the way out.
    static struct worker w;
    w.opt = o;
    w.device_role = strcmp(o->role, "device") == 0;
    pthread_t thread;
    if (o->state > 0) {
        uint8_t *p;
        void *base;
        size_t bytes;
        RETURN_IF_ERR(frame_map(o->state, 0, WORKER_STATE_BYTES, true, &p, &base, &bytes));
        close(o->state);
        w.begun = (_Atomic uint64_t *)(void *)p;
    }

    pthread_mutex_init(&w.mutex, NULL);
    w.socket.fd = o->fd;
    pthread_mutex_init(&w.socket.mutex, NULL);
    pthread_cond_init(&w.more, NULL);

    status_t opened = (w.device_role ? dev_open : dev_open_compiler)(o->device, &w.dev);
    if (opened) {
        say_hello(&w, st_message(opened));
        return opened;
    }
    if (!w.device_role) worker_compile_for(w.dev);
    worker_device_memory(o->device_memory);
    int most = w.device_role ? dev_attributes(w.dev).streams : 1;
    w.streams = most < 1 ? 1 : most > WORKER_STREAMS ? WORKER_STREAMS : most;
    bool foreign = dev_attributes(w.dev).foreign;
    if (foreign) on_exit(end_at_once, NULL); // before what the plugin registered
    enter_filter(&w, foreign);
    if (pthread_create(&thread, NULL, run_thread, &w)) return st_exhausted("no thread");
    say_hello(&w, "");

    status_t st = read_frames(&w);
    if (!end_run_thread(&w, thread)) { // no reply can be sent any more
        pthread_detach(thread);
        _exit(st || w.lost);
    }
    if (w.lost) {
        st_drop(st);
        return st_new(ST_UNAVAILABLE, "device '%s' is lost", o->name);
    }
    return st;
}
