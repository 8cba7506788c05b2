// SPDX-License-Identifier: Apache-2.0
// A stream of JetStream that keeps the last message of each subject, spoken to by messages of its
// own (tickets.c says why): a key is a subject, the number of a record that of its message.
#include "scheduler/cluster/registers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/str.h"
#include "base/vec.h"
#include "proto/json.h"
#include "scheduler/cluster/seal.h"
#include "scheduler/loop.h"

enum {
    ANSWER_MS = 3000,
    AGAIN_MS = 2000,
    TICK_MS = 250,
    AT_A_TIME = 32,
    IN_A_TICK = 300,
    MOST_KEYS = 100000
};
enum { NAME_IN_USE = 10058, WRONG_LAST = 10071, NO_MESSAGE = 10037 };
struct request {
    uint64_t id;
    enum { R_PUT, R_GET, R_LIST, R_DROP } what;
    char key[REGISTER_KEY + 1];
    struct span bytes; // from malloc
    int64_t number;
    register_done *done;
    void *ctx;
    bool sent, unfit; // unfit: by its key; it fails
    int64_t since_ns; // that it was asked for, or sent
};
struct register_mail {
    uint64_t id; // 0: of the stream
    int status;
    const char *text;
};
struct registers {
    struct registers_config cfg;
    struct loop_timer *timer;
    bool up, ready, said;
    int64_t setup_ns;
    uint64_t last;
    VEC(struct request *) all; // the oldest first
    size_t n_sent, in_tick;
    int64_t ok, failed, conflicts, bad;
};

// ---- words

static bool key_fits(const char *key) {
    static const char may[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.>";
    size_t n = strlen(key);
    return n && n <= REGISTER_KEY && strspn(key, may) == n;
}
static void send(struct registers *r, const char *subject, const char *reply, const char *text) {
    bus_send(r->cfg.bus, &(struct bus_letter){.subject = subject,
                                              .reply = reply,
                                              .bytes = {(const uint8_t *)text, strlen(text)}});
}
static void make_stream(struct registers *r) {
    struct arena a = {0};
    const char *n = r->cfg.name;
    r->setup_ns = clock_ns();
    send(r, arena_printf(&a, "$JS.API.STREAM.CREATE.%s-suites", n), ".reg.0",
         arena_printf(&a,
                      "{\"name\":\"%s-suites\",\"subjects\":[\"%s.v1.suites.>\"],"
                      "\"retention\":\"limits\",\"storage\":\"file\",\"discard\":\"old\","
                      "\"max_msgs_per_subject\":1,\"max_msg_size\":%d,\"num_replicas\":%d}",
                      n, n, REGISTER_MAX_BYTES + 4096, r->cfg.replicas));
    arena_done(&a);
}
// The number behind "name": in a text that NATS wrote; 0: none.
static uint64_t number_in(const char *text, const char *name) {
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

// ---- the end of a request

static void end(struct registers *r, size_t k, const struct register_reply *x) {
    struct request *q = r->all.v[k];
    if (q->sent) r->n_sent--;
    for (size_t i = k + 1; i < r->all.n; i++)
        r->all.v[i - 1] = r->all.v[i];
    r->all.n--;
    r->ok += x->what == REGISTER_OK || x->what == REGISTER_NONE;
    r->failed += x->what == REGISTER_FAILED;
    r->conflicts += x->what == REGISTER_CONFLICT;
    r->bad += x->what == REGISTER_BAD;
    if (q->done) q->done(q->ctx, x);
    free((void *)(uintptr_t)q->bytes.p);
    free(q);
}
static void fail(struct registers *r, size_t k, const char *why) {
    end(r, k, &(struct register_reply){.what = REGISTER_FAILED, .why = why});
}

// ---- what is asked

static void transmit(struct registers *r, struct request *q) {
    struct arena a = {0};
    const char *n = r->cfg.name;
    const char *reply = arena_printf(&a, ".reg.%llu", (unsigned long long)q->id);
    q->sent = true;
    q->since_ns = clock_ns();
    r->n_sent++;
    r->in_tick++;

    switch (q->what) {
    case R_PUT:
        bus_send(r->cfg.bus,
                 &(struct bus_letter){.subject = arena_printf(&a, "%s.v1.suites.%s", n, q->key),
                                      .reply = reply,
                                      .expect = q->number + 1,
                                      .bytes = q->bytes});
        break;
    case R_GET:
        send(r, arena_printf(&a, "$JS.API.STREAM.MSG.GET.%s-suites", n), reply,
             arena_printf(&a, "{\"last_by_subj\":\"%s.v1.suites.%s\"}", n, q->key));
        break;
    case R_LIST:
        send(r, arena_printf(&a, "$JS.API.STREAM.INFO.%s-suites", n), reply,
             arena_printf(&a, "{\"subjects_filter\":\"%s.v1.suites.%s.>\"}", n, q->key));
        break;
    case R_DROP:
        send(r, arena_printf(&a, "$JS.API.STREAM.PURGE.%s-suites", n), reply,
             arena_printf(&a, "{\"filter\":\"%s.v1.suites.%s\"}", n, q->key));
        break;
    }
    arena_done(&a);
}
// Not faster than the bus lets answers in (bus.c).
static void pump(struct registers *r) {
    for (size_t k = 0; k < r->all.n && r->ready && r->n_sent < AT_A_TIME; k++)
        if (!r->all.v[k]->sent && !r->all.v[k]->unfit && r->in_tick < IN_A_TICK)
            transmit(r, r->all.v[k]);
}
static void pump_soon(void *arg) {
    pump(arg);
}
static struct request *ask(struct registers *r, const char *key, register_done *done, void *ctx) {
    struct request *q = arena_must_calloc(1, sizeof *q);
    q->unfit = !key_fits(key);
    q->id = ++r->last;
    q->since_ns = clock_ns();
    q->done = done;
    q->ctx = ctx;
    snprintf(q->key, sizeof q->key, "%s", key);
    vec_push(&r->all, q);
    loop_post(r->cfg.loop, pump_soon, r);
    return q;
}
void registers_put(struct registers *r, const char *key, struct span bytes, int64_t number,
                   register_done *done, void *ctx) {
    struct arena a = {0};
    struct request *q = ask(r, key, done, ctx);
    struct span sealed = seal_record(r->cfg.seal, &a, key, bytes);
    uint8_t *own = malloc(sealed.n + 1);
    if (!own) abort();
    memcpy(own, sealed.p, sealed.n);
    q->what = R_PUT;
    q->bytes = (struct span){own, sealed.n};
    q->number = number;
    arena_done(&a);
}
void registers_get(struct registers *r, const char *key, register_done *done, void *ctx) {
    ask(r, key, done, ctx)->what = R_GET;
}
void registers_list(struct registers *r, const char *prefix, register_done *done, void *ctx) {
    ask(r, prefix, done, ctx)->what = R_LIST;
}
void registers_drop(struct registers *r, const char *prefix) {
    struct request *q = ask(r, prefix, NULL, NULL);
    q->what = R_DROP;
}

// ---- what is answered

static bool read_record(struct registers *r, const struct request *q, const char *text,
                        struct register_reply *x) {
    static const char DATA[] = "\"data\":\"";
    const char *at = strstr(text, DATA), *to = at ? strchr(at + sizeof DATA - 1, '"') : NULL;
    const char *why;
    struct span bytes;
    x->number = number_in(text, "\"seq\":");
    if (!to) return false;
    struct str b64 = {at + sizeof DATA - 1, (size_t)(to - at) - (sizeof DATA - 1)};
    bool whole = json_base64(x->a, b64, &bytes) &&
                 seal_open_record(r->cfg.seal, x->a, q->key, bytes, &x->bytes, &why);
    return whole;
}
// "created":"2026-01-31T12:00:00.123456789Z", of the stream.
static int64_t made_at(const char *text) {
    static const char CREATED[] = "\"created\":\"";
    const char *at = strstr(text, CREATED), *to = at ? strchr(at + sizeof CREATED - 1, '"') : NULL;
    int64_t ns = 0;
    if (!to) return 0;
    at += sizeof CREATED - 1;
    return clock_wall_read((struct str){at, (size_t)(to - at)}, &ns) ? ns : 0;
}
// {"...subjects":{"NAME.v1.suites.PREFIX.KEY":1,...}}
static void read_keys(const struct registers *r, const struct request *q, const char *text,
                      struct register_reply *x) {
    char own[200];
    VEC(const char *) keys = {0};
    int n = snprintf(own, sizeof own, "\"%s.v1.suites.%s.", r->cfg.name, q->key);
    const char *at = strstr(text, "\"state\":");
    x->made_ns = made_at(text);
    while (at && keys.n < MOST_KEYS && (at = strstr(at, own))) {
        at += n;
        const char *to = strchr(at, '"');
        if (!to) break;
        avec_push(x->a, &keys, arena_strndup(x->a, at, (size_t)(to - at)));
        at = to;
    }
    x->keys = keys.v;
    x->n_keys = keys.n;
}
static void answer(struct registers *r, size_t k, const struct register_mail *m) {
    struct request *q = r->all.v[k];
    struct arena a = {0};
    struct register_reply x = {.what = REGISTER_OK, .a = &a};
    uint64_t code = number_in(m->text, "\"err_code\":");
    if (m->status || (!code && strstr(m->text, "\"error\":"))) {
        x.what = REGISTER_FAILED;
        x.why = "JetStream does not take it";
    } else if (code == WRONG_LAST)
        x.what = REGISTER_CONFLICT;
    else if (code == NO_MESSAGE)
        x.what = REGISTER_NONE;
    else if (code) {
        x.what = REGISTER_FAILED;
        x.why = "JetStream refuses";
        if (q->what != R_DROP) r->ready = false; // it may be gone
    } else if (q->what == R_PUT)
        x.number = number_in(m->text, "\"seq\":");
    else if (q->what == R_GET && !read_record(r, q, m->text, &x)) {
        x.what = REGISTER_BAD;
        x.why = "what JetStream keeps is no record of the cluster";
    } else if (q->what == R_LIST)
        read_keys(r, q, m->text, &x);
    if (q->what == R_PUT && x.what == REGISTER_OK && !x.number) {
        x.what = REGISTER_FAILED;
        x.why = "JetStream's answer is none";
    }
    end(r, k, &x);
    arena_done(&a);
}
static void on_setup(struct registers *r, const struct register_mail *m) {
    uint64_t code = number_in(m->text, "\"err_code\":");
    bool bad =
        m->status || (code && code != NAME_IN_USE) || (!code && strstr(m->text, "\"error\""));
    if (bad && !r->said)
        log_event(LOG_WARN, "cluster.suites",
                  "cluster=%s why=\"JetStream refuses the records of "
                  "suites (code %llu): no suites are accepted\"",
                  r->cfg.name, (unsigned long long)code);
    r->said = bad;
    r->ready = !bad;
    pump(r);
}
struct register_mail *registers_read(struct arena *a, const struct bus_mail *mail) {
    if (strncmp(mail->at, "reg.", 4) != 0) return NULL;
    struct register_mail *m = arena_new_of(a, struct register_mail);
    *m = (struct register_mail){.id = strtoull(mail->at + 4, NULL, 10), .status = mail->status};
    m->text = arena_strndup(a, (const char *)mail->bytes.p, mail->bytes.n);
    return m;
}
void registers_hear(struct registers *r, const struct register_mail *m) {
    if (!m->id) {
        on_setup(r, m);
        return;
    }
    for (size_t k = 0; k < r->all.n; k++)
        if (r->all.v[k]->id == m->id && r->all.v[k]->sent) {
            answer(r, k, m);
            break;
        }
    pump(r);
}

// ---- life

static void fail_all(struct registers *r, const char *why) {
    while (r->all.n) // from the back, where it costs no move of the others
        fail(r, r->all.n - 1, why);
}
void registers_connected(struct registers *r, bool up) {
    r->up = up;
    r->ready = false;
    if (up)
        make_stream(r);
    else
        fail_all(r, "NATS is not reached");
}
static void on_timer(void *arg) {
    struct registers *r = arg;
    int64_t now = clock_ns();
    r->in_tick = 0;
    for (size_t k = r->all.n; k-- > 0;) {
        if (k >= r->all.n) continue; // one that ended took others along
        const struct request *q = r->all.v[k];
        if (q->unfit) {
            fail(r, k, "its key is none");
            continue;
        }
        bool late = now - q->since_ns > ANSWER_MS * CLOCK_MS;
        if (late && (q->sent || !r->ready))
            fail(r, k, q->sent ? "JetStream does not answer" : "JetStream is not there");
    }
    if (r->up && !r->ready && now - r->setup_ns > AGAIN_MS * CLOCK_MS) make_stream(r);
    pump(r);
    loop_timer_start(r->timer, TICK_MS);
}
struct registers *registers_new(const struct registers_config *cfg) {
    struct registers *r = arena_must_calloc(1, sizeof *r);
    r->cfg = *cfg;
    r->timer = loop_timer_new(cfg->loop, on_timer, r);
    on_timer(r);
    return r;
}
void registers_stop(struct registers *r) {
    if (!r || !r->timer) return;
    r->up = r->ready = false;
    fail_all(r, "the server is shutting down");
    loop_timer_free(r->timer);
    r->timer = NULL;
}
void registers_free(struct registers *r) {
    if (!r) return;
    fail_all(r, "the server is shutting down");
    vec_done(&r->all);
    free(r);
}
bool registers_ready(const struct registers *r) {
    return r->ready;
}
void registers_metrics(const struct registers *r, struct strbuf *b) {
    const struct metric_count all[] = {
        {"ok", r->ok}, {"failed", r->failed}, {"conflict", r->conflicts}, {"bad", r->bad}};
    metrics_counts(b, "hlod_cluster_records_total",
                   "reads and writes of records of suites in JetStream, those that failed, writes "
                   "that another node's came before, and records that are not the cluster's",
                   "outcome", all, sizeof all / sizeof *all);
}
