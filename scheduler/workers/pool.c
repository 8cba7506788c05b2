// SPDX-License-Identifier: Apache-2.0
// See pool.h. Life of a slot:
//
//   DOWN --spawn--> STARTING --HELLO--> READY --EOF, exit, bad frame, no health, kill--> DOWN --(0,
//   100 ms, 200 ms, ... 10 s)--> spawn
//
// A process is lost when its socket ends, not when it exits: that is seen first, and the exit only
// reaps it.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/metrics.h"
#include "proto/kinds.h"
#include "proto/weigh.h"
#include "scheduler/loop.h"
#include "scheduler/workers/memfds.h"
#include "scheduler/workers/plugins.h"
#include "scheduler/workers/pool_inside.h"
#include "scheduler/workers/pool_process.h"
#include "scheduler/workers/pool_slots.h"

enum {
    MAX_GROUPS = 1024, // of devices and their compilers
    HEALTH_EVERY_MS = 1000,
    AGAIN_AFTER_MS = 5000,
    PLUGIN_PATIENCE = 6,
    IDLE_TENANT_MS = 300000,
    RELIEF_PART = 4 // of a compile worker's memory: what needs more is moved
};

static void start_worker(void *arg);
static void on_socket(void *arg, int events);

static const char *role_name(const struct worker *w) {
    return w->role == ROLE_COMPILE ? "compile" : "device";
}
static void changed(struct pool *p) {
    if (p->cfg.on_change && !p->stopping) p->cfg.on_change(p->cfg.ctx);
}

// ---- death

static void free_process(uv_handle_t *h) {
    free(h);
}
static void on_exit_cb(uv_process_t *pr, int64_t status, int sig) {
    struct worker *w = pr->data;
    if (w) { // still the present process of the slot: say how it ended
        log_event(LOG_DEBUG, "worker.exit", "worker=%d pid=%d status=%lld signal=%d", w->index,
                  pr->pid, (long long)status, sig);
        w->process = NULL;
    }
    uv_close((uv_handle_t *)pr, free_process);
}

static int64_t backoff_ms(int failures) {
    int64_t ms = failures <= 1 ? 0 : 100ll << (failures - 2 < 7 ? failures - 2 : 7);
    return ms < 10000 ? ms : 10000;
}

// The device that came from outside goes with its process: the next one brings its own.
static void part(struct worker *w) {
    void (*left)(void *ctx) = w->left;
    if (!w->joins) return;
    loop_timer_stop(w->timer);
    w->sleeps = true;
    w->joined = -1;
    w->left = NULL;
    if (left) left(w->left_ctx);
}
// Lets go of the process and of what it held.
static void end_life(struct worker *w) {
    w->state = w->pool->stopping ? W_STOPPED : W_DOWN;
    loop_watch_free(w->watch);
    w->watch = NULL;
    close(w->sock);
    w->sock = -1;
    if (w->process) {
        if (!w->pool->stopping) uv_process_kill(w->process, SIGKILL);
        w->process->data = NULL; // reaped by on_exit_cb
        w->process = NULL;
    }
    warm_done(&w->warm);
    memfds_drop(w->pool->memfds, w->index);
    w->rss_bytes = w->prepared_bytes = w->buffer_bytes = 0;
    w->resident = w->buffers = 0;
    w->refused = 0;
    w->moves = false;
    worker_drop_unsent(w);
    w->tenant[0] = 0; // the next process has no tenant
    w->served = false;
    loop_timer_stop(w->kill);
    w->kill_ns = 0;
    part(w);
}

// A compile worker for one compile has done it: the next one gets a new process, which starts now.
static void renew(struct worker *w) {
    log_event(LOG_DEBUG, "worker.renewed", "worker=%d pid=%d", w->index, w->pid);
    end_life(w);
    loop_timer_start(w->timer, 0);
}

static void end_calls(struct worker *w, const char *why) {
    __typeof__(w->calls) calls = w->calls; // handlers may call again
    memset(&w->calls, 0, sizeof w->calls);
    for (size_t i = 0; i < calls.n; i++)
        calls.v[i].fn(calls.v[i].ctx, NULL,
                      st_because(ST_UNAVAILABLE, WORKER_LOST,
                                 "the %s worker was lost (%s); the same request may be sent again",
                                 role_name(w), why));
    vec_done(&calls);
    changed(w->pool);
}

static struct pool_call *find_call(const struct worker *w, uint64_t id) {
    for (size_t i = 0; i < w->calls.n; i++)
        if (w->calls.v[i].id == id) return &w->calls.v[i];
    return NULL;
}
// The call that the process had begun last, if it was at it or had just answered it; or NULL.
static const struct pool_call *last_begun(const struct worker *w) {
    uint64_t at = *w->page;
    const struct pool_call *c = find_call(w, at);
    bool soon = clock_ns() - w->last_ns < AFTER_CALL_MS * CLOCK_MS;
    return c ? c : at && w->last.id == at && soon ? &w->last : NULL;
}
// A fault of the process's own is charged to what it was at. What a relief does is done once more
// elsewhere.
static void blame(const struct worker *w, const char *why) {
    const struct pool_call *c = last_begun(w);
    bool again = w->relief && w->role == ROLE_COMPILE;
    if (!c || !c->of.step || w->ending || again || w->pool->stopping) return;
    struct charge of = c->of;
    if (w->pool->cfg.on_fault) w->pool->cfg.on_fault(w->pool->cfg.ctx, &of, why);
}

// The process is gone or given up. Ends its calls, forgets what it held, plans the next life. One
// that was killed for a request that would not stop, or died at work, says nothing of the next: it
// starts at once, so that such requests do not keep the device down.
static void lose_by(struct worker *w, const char *why, bool fault) {
    if (w->state == W_DOWN || w->state == W_STOPPED) return;
    bool killed = w->kill_ns && w->kill_ns <= clock_ns();
    bool was_ready = w->state == W_READY, was_drained = worker_drained(w);
    bool at_work = was_ready && (w->calls.n || last_begun(w));
    if (fault && was_ready && !killed) blame(w, why);

    snprintf(w->lost, sizeof w->lost, "%s", why);
    end_life(w);
    w->spent = false;
    if (w->joins) {
        log_event(fault ? LOG_WARN : LOG_INFO, fault ? "worker.lost" : "worker.left",
                  "worker=%d pid=%d calls=%zu why=\"%s\"", w->index, w->pid, w->calls.n, why);
    } else if (!w->pool->stopping) {
        metric_add(M_WORKER_DEATHS, 1);
        w->restarts++;
        if (was_ready && clock_ns() - w->ready_ns > STEADY_MS * CLOCK_MS)
            w->failures = w->bad_starts = 0;
        w->failures += !killed;
        w->bad_starts += !killed && !at_work;
        w->starts_without_hello = was_ready ? 0 : w->starts_without_hello + 1;

        log_event(LOG_WARN, "worker.lost",
                  "worker=%d role=%s pid=%d calls=%zu why=\"%s\" restart_ms=%lld", w->index,
                  role_name(w), w->pid, w->calls.n, why, (long long)backoff_ms(w->bad_starts));
        if (worker_drained(w) && !was_drained)
            log_event(LOG_ERROR, "device.drained", "worker=%d device=%s failures=%d why=\"%s\"",
                      w->index, w->name, w->failures, why);
        // One that was asked for and cannot start waits until it is asked for again.
        if (w->relief)
            w->spare = true;
        else if (!w->lazy || w->starts_without_hello < MAX_STARTS_WITHOUT_HELLO)
            loop_timer_start(w->timer, backoff_ms(w->bad_starts));
    }
    end_calls(w, why);
}
static void lose(struct worker *w, const char *why) {
    lose_by(w, why, false);
}

// A compilers' relief that is stuck, and is waited for: what it does is done elsewhere
// (task_moved).
static void move_work(struct worker *w) {
    w->moves = false;
    if (w->state != W_READY || !worker_stuck(w)) return;
    log_event(LOG_INFO, "worker.moved", "worker=%d role=%s pid=%d calls=%zu", w->index,
              role_name(w), w->pid, w->calls.n);
    metric_add(M_COMPILES_MOVED, 1);
    end_life(w);
    loop_timer_start(w->timer, 0);
    end_calls(w, "it was needed for others");
}

// ---- birth

static void on_timer(void *arg) {
    struct worker *w = arg;
    if (w->state == W_DOWN && !w->pool->stopping)
        start_worker(w);
    else if (w->state == W_STARTING)
        lose(w, "no handshake in time");
    else if (w->state == W_READY) {
        if ((worker_idle(w) || worker_relief_idle(w)) && w->extra &&
            clock_ns() - w->used_ns > IDLE_TENANT_MS * CLOCK_MS) {
            end_life(w);
            w->spare = true;
            return;
        }
        if (clock_ns() - w->last_sign_ns > clock_of_ms(w->pool->cfg.health_ms)) {
            lose(w, "no sign of life");
            return;
        }
        Hlod__Wire__Stats s = HLOD__WIRE__STATS__INIT;
        st_drop(frame_send_msg(w->sock, HLOD__WIRE__TYPE__TYPE_STATS, 0, &s.base, NULL, 0,
                               0)); // a full socket says nothing about the worker
        loop_timer_start(w->timer, HEALTH_EVERY_MS);
    }
}

static void watch_cancelled(struct worker *w) {
    w->kill_ns = worker_first_kill_ns(w);
    if (w->kill_ns) loop_timer_at(w->kill, w->kill_ns);
}
static void on_kill(void *arg) {
    struct worker *w = arg;
    if (w->moves) move_work(w);
    watch_cancelled(w);
    if (w->state == W_READY && w->kill_ns && w->kill_ns <= clock_ns())
        lose(w, "a cancelled call did not end");
}

static bool is_plugin(const struct worker *w) {
    return kind_has(w->spec, KIND_PLUGIN);
}
// Of a compiler of our own; 0: no bound.
static int64_t worker_memory(const struct worker *w) {
    int64_t bytes = w->role == ROLE_COMPILE && !is_plugin(w) ? w->pool->cfg.compile_memory : 0;
    return w->relief && bytes > RELIEF_PART ? bytes / RELIEF_PART : bytes;
}
static status_t spawn(struct worker *w, int child_fd, int log_fd) {
    struct pool *p = w->pool;
    char role[32], device[4096], name[64], fd[] = "--fd=3", state[] = "--state=4",
                                           filter[] = "--no-filter";
    snprintf(role, sizeof role, "--role=%s", role_name(w));
    snprintf(device, sizeof device, "--device=%s", w->spec);
    snprintf(name, sizeof name, "--name=%s", w->name);
    char memory[48] = "";
    if (worker_memory(w))
        snprintf(memory, sizeof memory, "--memory=%lld", (long long)worker_memory(w));
    else if (w->role == ROLE_DEVICE && p->cfg.device_memory)
        snprintf(memory, sizeof memory, "--device-memory=%lld", (long long)p->cfg.device_memory);
    char *args[10] = {(char *)p->cfg.worker_path, role, device, name, fd, state}, **more = args + 6;
    if (*memory) *more++ = memory;
    char join[] = "--join=5";
    if (w->joins) {
        snprintf(device, sizeof device, "--device=%s:fd=5", w->kind);
        *more++ = join;
    }
    if (!p->cfg.filter) *more++ = filter;

    uv_stdio_container_t io[6] = {{.flags = UV_IGNORE},
                                  {.flags = UV_IGNORE},
                                  {.flags = UV_INHERIT_FD, .data.fd = log_fd},
                                  {.flags = UV_INHERIT_FD, .data.fd = child_fd},
                                  {.flags = UV_INHERIT_FD, .data.fd = w->page_fd},
                                  {.flags = UV_INHERIT_FD, .data.fd = w->joined}};
    *w->page = 0;
    char spin[PROCESS_TEXT], threads[PROCESS_TEXT], cache[4096], *more_env = cache;
    snprintf(cache, sizeof cache, "HLOD_DEVICE_CACHE=%s/devices/%d", p->cfg.dir ? p->cfg.dir : "",
             w->index);
    char **env = process_env(p->cfg.compute_spin, spin, threads, &more_env, p->cfg.dir != NULL);
    uv_process_options_t o = {.file = p->cfg.worker_path,
                              .args = args,
                              .env = env,
                              .exit_cb = on_exit_cb,
                              .stdio = io,
                              .stdio_count = w->joins ? 6 : 5};

    uv_process_t *pr = arena_must_calloc(1, sizeof *pr);
    int err = uv_spawn(loop_uv(p->loop), pr, &o);
    free(env);
    if (err) {
        uv_close((uv_handle_t *)pr, free_process);
        return st_new(ST_UNAVAILABLE, "cannot start %s: %s", p->cfg.worker_path, uv_strerror(err));
    }
    pr->data = w;
    w->process = pr;
    w->pid = pr->pid;
    return ST_OK;
}

static void start_worker(void *arg) {
    struct worker *w = arg;
    int fds[2];
    if (w->joins && w->joined < 0) return;
    status_t st = frame_pair(fds);
    if (!st) {
        int log_fd = -1;
        st = pool_log_new(&w->pool->logs, w->pool->loop, w->index, &log_fd);
        if (!st) st = spawn(w, fds[1], log_fd);
        close(fds[1]);
        if (log_fd >= 0) close(log_fd);
        if (!st) {
            w->sock = fds[0];
            st = loop_watch_new(w->pool->loop, fds[0], on_socket, w, &w->watch);
        }
        if (st) close(fds[0]);
    }

    if (st) {
        w->failures++;
        w->bad_starts++;
        w->starts_without_hello++;
        w->spent = false;
        log_status(LOG_ERROR, "worker.start", st);
        if (w->joins)
            w->failures = w->bad_starts = w->starts_without_hello = 0;
        else
            loop_timer_start(w->timer, backoff_ms(w->bad_starts + 1));
        changed(w->pool);
        return;
    }

    w->state = W_STARTING;
    w->epoch++;
    w->started_ns = w->last_sign_ns = clock_ns();
    metric_add(M_WORKER_STARTS, 1);
    loop_watch_set(w->watch, LOOP_READ);
    // A plugin looks for its hardware first, which takes as long as it takes.
    loop_timer_start(w->timer, w->pool->cfg.hello_ms * (is_plugin(w) ? PLUGIN_PATIENCE : 1));
}

static void on_hello(struct worker *w, const struct frame *f) {
    Hlod__Wire__Hello *h = weigh_unpack_or_null(&hlod__wire__hello__descriptor, f->body);
    if (!h || h->protocol != FRAME_PROTOCOL || strcmp(h->role, role_name(w))) {
        if (h) hlod__wire__hello__free_unpacked(h, NULL);
        lose(w, "bad handshake");
        return;
    }
    free(w->why);
    w->why = *h->error ? strdup(h->error) : NULL;
    if (*h->error) {
        hlod__wire__hello__free_unpacked(h, NULL);
        lose(w, w->why ? w->why : "cannot open its device");
        return;
    }
    if (w->hello) hlod__wire__hello__free_unpacked(w->hello, NULL);
    w->hello = h;
    w->spent = w->ending = false;
    w->state = W_READY;
    w->ready_ns = w->used_ns = clock_ns();
    w->starts_without_hello = 0;
    log_event(LOG_INFO, "worker.ready",
              "worker=%d role=%s pid=%d device=%s target=\"%s\" start_ms=%.1f", w->index,
              role_name(w), w->pid, h->device_name, h->target_id,
              clock_ms(w->ready_ns - w->started_ns));
    if (w->pool->cfg.filter && strcmp(h->filter, "on") != 0)
        log_event(LOG_WARN, "worker.filter", "worker=%d state=\"%s\"", w->index, h->filter);
    loop_timer_start(w->timer, HEALTH_EVERY_MS);
    changed(w->pool);
}

// ---- frames

enum { REPLY = 40 }; // wire.proto: the type of an answer is the request's and this
static bool is_event(uint32_t type) {
    return type == HLOD__WIRE__TYPE__TYPE_PASS || type == HLOD__WIRE__TYPE__TYPE_RUNNING ||
           type == HLOD__WIRE__TYPE__TYPE_STEP || type == HLOD__WIRE__TYPE__TYPE_DRAFT;
}

static void on_stats(struct worker *w, const struct frame *f) {
    Hlod__Wire__StatsReply *s = weigh_unpack_or_null(&hlod__wire__stats_reply__descriptor, f->body);
    if (!s) return;
    w->rss_bytes = s->rss_bytes;
    w->resident = s->resident_executables;
    w->prepared_bytes = s->prepared_bytes;
    w->buffers = s->buffers;
    w->buffer_bytes = s->buffer_bytes;
    w->ending = s->ending;
    if (s->refused > w->refused) {
        log_event(LOG_WARN, "worker.refused", "worker=%d role=%s pid=%d calls=%lld last=%s",
                  w->index, role_name(w), w->pid, (long long)(s->refused - w->refused),
                  s->last_refused);
        metric_add(M_WORKER_REFUSED, s->refused - w->refused);
        w->refused = s->refused;
    }
    hlod__wire__stats_reply__free_unpacked(s, NULL);
}

// An event or the reply of a call.
static void on_answer(struct worker *w, struct pool_call *at, struct frame *f) {
    struct pool_call c = *at;
    bool over = !is_event(f->type);
    if (over) {
        *at = w->calls.v[--w->calls.n];
        w->last = c;
        w->last_ns = w->last_sign_ns;
    }
    w->spent |= w->hello->single_use && (f->type == HLOD__WIRE__TYPE__TYPE_COMPILE_REPLY ||
                                         f->type == HLOD__WIRE__TYPE__TYPE_INSPECT_REPLY);

    c.fn(c.ctx, f, ST_OK);
    // Nothing was placed behind a cancelled call; now it may be.
    if (c.kill_at_ns && over) changed(w->pool);
    if (w->spent && !w->calls.n && w->state == W_READY && !w->pool->stopping) renew(w);
}

static void on_frame(struct worker *w, struct frame *f) {
    w->last_sign_ns = clock_ns();
    metric_add(M_FRAME_BYTES_IN, (int64_t)f->body.n);
    if (w->state == W_STARTING) {
        if (f->type == HLOD__WIRE__TYPE__TYPE_HELLO)
            on_hello(w, f);
        else
            lose(w, "spoke before its handshake");
        return;
    }
    if (f->type == HLOD__WIRE__TYPE__TYPE_STATS_REPLY && f->call == 0) {
        on_stats(w, f);
        return;
    }
    struct pool_call *at = find_call(w, f->call);
    if (!at)
        lose(w, "answered a call that was never made");
    else if (!is_event(f->type) && f->type != at->type + REPLY)
        lose(w, "answered with another kind of reply");
    else
        on_answer(w, at, f);
}

static void on_socket(void *arg, int events) {
    struct worker *w = arg;
    if (events & LOOP_WRITE) worker_send_rest(w);
    uint64_t epoch = w->epoch;
    struct frame_buf *buf = w->pool->buf;
    frame_buf_empty(buf); // a worker that was lost in mid-message may have left some
    // A bounded batch, so that one chatty worker does not hold the loop.
    for (int i = 0; (i < 32 || frame_buf_has_more(buf)) && w->sock >= 0 && w->epoch == epoch; i++) {
        struct frame f;
        status_t st = frame_recv(w->sock, buf, 0, &f);
        if (st_code(st) == ST_DEADLINE_EXCEEDED) {
            st_drop(st);
            return;
        }
        if (st || f.type == 0) {
            char how[PROCESS_END];
            bool fault = true;
            const char *why = "sent a broken frame";
            if (!st) why = process_end(w->process ? w->pid : 0, worker_memory(w), how, &fault);
            lose_by(w, why, fault);
            st_drop(st);
            return;
        }
        on_frame(w, &f);
        frame_done(&f);
    }
}

struct late_loss {
    pool_reply_fn fn;
    void *ctx;
};
static void tell_loss(void *arg) {
    struct late_loss *l = arg;
    l->fn(l->ctx, NULL, st_because(ST_UNAVAILABLE, WORKER_LOST, "the worker is not up"));
    free(l);
}

uint64_t pool_call(struct worker *w, uint32_t type, const ProtobufCMessage *m, const int *fds,
                   int n_fds, pool_reply_fn fn, void *ctx) {
    uint64_t id = ++w->pool->next_call;
    if (w->state != W_READY) { // lost between placement and call: answer later, as always
        struct late_loss *l = malloc(sizeof *l);
        if (!l) abort();
        *l = (struct late_loss){fn, ctx};
        loop_post(w->pool->loop, tell_loss, l);
        return id;
    }
    struct pool_call c = {.id = id, .type = type, .fn = fn, .ctx = ctx};
    vec_push(&w->calls, c);
    worker_send_frame(w, type, id, m, fds, n_fds);
    return id;
}

void worker_charge(struct worker *w, uint64_t call, const struct charge *of) {
    struct pool_call *c = find_call(w, call);
    if (c) c->of = *of;
}

void pool_cancel(struct worker *w, uint64_t call) {
    struct pool_call *c = find_call(w, call);
    if (!c || c->kill_at_ns) return;
    c->kill_at_ns = clock_ns() + clock_of_ms((double)w->pool->cfg.kill_grace_ms);
    if (!w->kill_ns || c->kill_at_ns < w->kill_ns) watch_cancelled(w);
    Hlod__Wire__Stats empty = HLOD__WIRE__STATS__INIT; // CANCEL has an empty body
    worker_send_frame(w, HLOD__WIRE__TYPE__TYPE_CANCEL, call, &empty.base, NULL, 0);
}

void pool_set_grace(struct pool *p, int64_t ms) {
    p->cfg.kill_grace_ms = ms;
}

// ---- the pool

// Device workers of one kind are numbered in the order of the configuration: cpu:0, sim:0, sim:1.
// Each kind has compile workers of its own: a kind's compiler that crashes or hangs is no other's
// trouble.
static struct worker *describe(struct worker *w, enum worker_role role, const char *spec) {
    struct pool *p = w->pool;
    int number = 0;
    w->role = role;
    snprintf(w->kind, sizeof w->kind, "%.*s", (int)strcspn(spec, ":"), spec);
    w->spec = role == ROLE_DEVICE ? spec : w->kind;
    if (p->cfg.plugins) w->spec = plugins_worker_spec(p->cfg.plugins, &p->arena, w->spec);
    if (role == ROLE_COMPILE) return w;
    for (const struct worker *o = p->w; o < w; o++)
        number += o->role == ROLE_DEVICE && !o->extra && strcmp(o->kind, w->kind) == 0;
    if (w->extra) number--;
    snprintf(w->name, sizeof w->name, "%s:%d", w->kind, number);
    int nth = 0; // of those of its device
    for (const struct worker *o = w; o->extra; o--)
        nth++;
    snprintf(w->shown, sizeof w->shown, nth ? "%s/%d" : "%s", w->name, nth);
    return w;
}

// The slots: a worker for each device, compile workers for each kind of them, and one that sleeps
// for each other kind that there is a plugin for, and for the CPU.
static void fill_slots(struct pool *p) {
    const struct pool_config *cfg = &p->cfg;
    const struct plugins *x = cfg->plugins;
    struct worker *w = p->w;
    for (int i = 0; i < cfg->n_devices; i++)
        for (int k = 0; k < pool_of_device(cfg, i); k++, w++) {
            w->group = i;
            w->extra = w->spare = k > 0;
            w->relief = w->extra && !cfg->isolate;
            w->joins = kind_has(cfg->devices[i], KIND_JOINS);
            describe(w, ROLE_DEVICE, cfg->devices[i]);
        }
    for (int i = 0; i < cfg->n_devices; i++)
        for (int k = 0, n = pool_of_compilers(cfg, cfg->devices[i]);
             k < n && !pool_serves(cfg, cfg->devices[i], i); k++, w++) {
            w->group = i;
            w->extra = w->spare = k >= cfg->n_compile;
            w->relief = w->extra && !cfg->isolate;
            describe(w, ROLE_COMPILE, cfg->devices[i]);
        }
    for (struct worker *o = w; o < p->w + p->n; o++)
        o->group = (int)(o - p->w) + MAX_GROUPS;
    if (!x) return;
    if (!pool_serves(cfg, "cpu", cfg->n_devices)) describe(w++, ROLE_COMPILE, "cpu")->lazy = true;
    for (size_t i = 0; i < x->n; i++)
        if (!pool_serves(cfg, x->v[i].kind, cfg->n_devices))
            describe(w++, ROLE_COMPILE, x->v[i].kind)->lazy = true;
}

static void make_page(struct worker *w) {
    uint8_t *p;
    void *base;
    size_t bytes;
    status_t st = frame_memfd("hlod-worker-state", WORKER_STATE_BYTES, &w->page_fd);
    if (!st) st = frame_map(w->page_fd, 0, WORKER_STATE_BYTES, true, &p, &base, &bytes);
    if (st) abort(); // a page
    w->page = (_Atomic uint64_t *)(void *)p;
}
bool worker_began(const struct worker *w, uint64_t call) {
    return *w->page == call;
}

status_t pool_new(struct loop *l, const struct pool_config *cfg, struct pool **out) {
    if (access(cfg->worker_path, X_OK))
        return st_note(st_errno(errno, cfg->worker_path), "worker program");
    struct pool *p = calloc(1, sizeof *p);
    if (!p) return st_oom();
    p->loop = l;
    p->cfg = *cfg;
    if (!p->cfg.hello_ms) p->cfg.hello_ms = 30000;
    if (!p->cfg.health_ms) p->cfg.health_ms = 10000;
    if (!p->cfg.kill_grace_ms) p->cfg.kill_grace_ms = 2000;
    p->cfg.compile_memory = pool_compile_memory(cfg, limits_memory());
    if (p->cfg.compile_memory < cfg->compile_memory)
        log_event(LOG_INFO, "worker.memory", "compile_memory=%lld lowered_to=%lld",
                  (long long)cfg->compile_memory, (long long)p->cfg.compile_memory);

    p->n = pool_slots(cfg);
    if (p->n > POOL_MAX_WORKERS) {
        status_t st = st_invalid("%d worker processes, at most %d", p->n, POOL_MAX_WORKERS);
        free(p);
        return st;
    }

    p->w = calloc((size_t)p->n, sizeof *p->w);
    p->buf = frame_buf_new();
    p->memfds = memfds_new(p->n, cfg->keep_bytes);
    if (!p->w) abort();
    for (int i = 0; i < p->n; i++) {
        struct worker *w = &p->w[i];
        w->pool = p;
        w->index = i;
        w->sock = w->joined = -1;
        make_page(w);
        w->timer = loop_timer_new(l, on_timer, w);
        w->kill = loop_timer_new(l, on_kill, w);
        warm_init(&w->warm);
    }

    fill_slots(p);
    for (int i = 0; i < p->n; i++)
        if (!(p->w[i].sleeps = p->w[i].lazy || p->w[i].joins) && !p->w[i].spare)
            start_worker(&p->w[i]);
    *out = p;
    return ST_OK;
}

void pool_stop(struct pool *p) {
    p->stopping = true;
    for (int i = 0; i < p->n; i++) {
        struct worker *w = &p->w[i];
        uv_process_t *pr = w->process;
        loop_timer_stop(w->timer);
        if (w->state == W_DOWN) w->state = W_STOPPED;
        lose(w, "shutdown");
        if (pr)
            uv_process_kill(
                pr, SIGTERM); // they end on their closed socket anyway; busy ones need the signal
    }
}

void pool_free(struct pool *p) {
    if (!p) return;
    process_await_all(p->loop, p->cfg.kill_grace_ms * CLOCK_MS);
    for (int i = 0; i < p->n; i++) {
        struct worker *w = &p->w[i];
        loop_timer_free(w->timer);
        loop_timer_free(w->kill);
        if (w->hello) hlod__wire__hello__free_unpacked(w->hello, NULL);
        vec_done(&w->calls);
        vec_done(&w->out);
        frame_batch_done(&w->batch);
        smap_done(&w->warm.held);
        footprint_done(&w->footprint);
        free(w->why);
    }
    pool_logs_done(&p->logs);
    arena_done(&p->arena);
    frame_buf_free(p->buf);
    memfds_free(p->memfds);
    for (int i = 0; i < p->n; i++) {
        frame_unmap((void *)p->w[i].page, WORKER_STATE_BYTES);
        close(p->w[i].page_fd);
    }
    free(p->w);
    free(p);
}

int pool_size(const struct pool *p) {
    return p->n;
}
struct worker *pool_worker(struct pool *p, int i) {
    return &p->w[i];
}
struct warm *worker_warm(struct worker *w) {
    return &w->warm;
}
struct footprint *worker_footprint(struct worker *w) {
    return &w->footprint;
}
void pool_wake(struct pool *p, const char *kind) {
    int64_t now = clock_ns();
    for (int i = 0; i < p->n && !p->stopping; i++) {
        struct worker *w = &p->w[i];
        bool gave_up = w->starts_without_hello >= MAX_STARTS_WITHOUT_HELLO;
        if (w->role != ROLE_COMPILE || strcmp(w->kind, kind) != 0 || w->state != W_DOWN) continue;
        if (!w->sleeps && !(gave_up && now - w->started_ns > AGAIN_AFTER_MS * CLOCK_MS)) continue;
        w->sleeps = false;
        w->starts_without_hello = w->failures = w->bad_starts = 0;
        loop_timer_stop(w->timer);
        start_worker(w);
    }
}
static struct worker *without_device(const struct pool *p, const char *kind) {
    for (int i = 0; i < p->n && !p->stopping; i++) {
        struct worker *w = &p->w[i];
        if (w->joins && w->state == W_DOWN && strcmp(w->kind, kind) == 0) return w;
    }
    return NULL;
}
bool pool_may_join(const struct pool *p, const char *kind) {
    return without_device(p, kind);
}
status_t pool_join(struct pool *p, const char *kind, int sock, const char *tenant,
                   void (*left)(void *ctx), void *ctx, struct worker **out) {
    struct worker *w = without_device(p, kind);
    if (!w)
        return st_because(ST_UNAVAILABLE, NO_WORKER, "each device of the kind %s has a page", kind);
    w->joined = sock;
    w->sleeps = false;
    snprintf(w->tenant, sizeof w->tenant, "%s", tenant);
    start_worker(w);
    if (w->state != W_STARTING) {
        part(w);
        return st_because(ST_UNAVAILABLE, NO_WORKER, "its worker cannot be started");
    }
    w->left = left;
    w->left_ctx = ctx;
    *out = w;
    return ST_OK;
}
void worker_part(struct worker *w, const char *why) {
    lose(w, why);
}
struct memfds *pool_memfds(struct pool *p) {
    return p->memfds;
}
int pool_input_owner(const struct pool *p) {
    return p->cfg.n_devices == 1 && !p->cfg.isolate ? 0 : MEMFD_NOBODY; // device workers come first
}
enum worker_role worker_role(const struct worker *w) {
    return w->role;
}
int worker_index(const struct worker *w) {
    return w->index;
}
void worker_flight(struct worker *w, int64_t bytes) {
    w->flight_bytes += bytes;
}
bool worker_ready(const struct worker *w) {
    return w->state == W_READY || (w->spent && w->state != W_STOPPED);
}
const Hlod__Wire__Hello *worker_hello(const struct worker *w) {
    return w->hello;
}
uint64_t worker_epoch(const struct worker *w) {
    return w->epoch;
}
void worker_take(struct worker *w, bool unknown) {
    w->unknown += unknown;
    w->served = true;
    w->used_ns = clock_ns();
    if (w->places_taken++ == 0) w->moved_ns = w->used_ns;
}
void worker_expect(struct worker *w, int64_t ns) {
    w->expected_ns += ns;
}
void worker_release(struct worker *w, bool unknown) {
    w->places_taken--;
    w->unknown -= unknown;
    w->used_ns = w->moved_ns = clock_ns();
    changed(w->pool);
}

void worker_relieve(struct worker *w) {
    int64_t since = clock_ns() - w->started_ns;
    if (w->role == ROLE_COMPILE && w->state == W_READY && !w->moves) { // not in mid-dispatch
        w->moves = true;
        loop_timer_start(w->kill, 0);
    }
    if (!w->spare || w->state != W_DOWN || w->pool->stopping) return;
    if (w->bad_starts && since < backoff_ms(w->bad_starts + 1) * CLOCK_MS) return;
    log_event(LOG_INFO, "worker.relief", "worker=%d role=%s kind=%s", w->index, role_name(w),
              w->kind);
    metric_add(M_WORKER_RELIEFS, 1);
    w->spare = false;
    w->used_ns = clock_ns();
    loop_timer_start(w->timer, 0);
}

void worker_give(struct worker *w, const char *tenant) {
    bool fresh = w->state == W_READY && !*w->tenant;
    if (w->state == W_READY && *w->tenant) end_life(w);
    if (!fresh && w->state == W_DOWN) {
        log_event(LOG_DEBUG, "worker.given", "worker=%d tenant=%s", w->index, tenant);
        w->spare = w->sleeps = w->spent = false;
        loop_timer_start(w->timer, 0);
    }
    snprintf(w->tenant, sizeof w->tenant, "%s", tenant);
    w->used_ns = clock_ns();
}
