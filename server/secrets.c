// SPDX-License-Identifier: Apache-2.0
#include "server/secrets.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/vec.h"
#include "scheduler/loop.h"

struct watched {
    struct secret_group g;
    struct digest stamp;
    bool read, failed; // read: in this round
    void *loaded;
    status_t st;
};
struct secrets {
    struct loop *loop;
    struct loop_timer *timer;
    int64_t period_ms;
    VEC(struct watched) v;
    bool under_way, all, stopped; // all: of the round under way
    void (*done)(void *ctx);      // of the round under way
    void *ctx;
    void (*next_done)(void *ctx); // of one that was asked for meanwhile; NULL: none was
    void *next_ctx;
};

static struct digest stamp(const struct secret_group *g) {
    struct sha256 h;
    sha256_init(&h);
    for (int k = 0; k < g->n; k++) {
        struct stat sb = {0};
        if (*g->files[k] && stat(g->files[k], &sb)) memset(&sb, 0, sizeof sb);
        const int64_t of[] = {(int64_t)sb.st_dev, (int64_t)sb.st_ino, sb.st_size,
                              sb.st_mtim.tv_sec,  sb.st_mtim.tv_nsec, sb.st_ctim.tv_sec,
                              sb.st_ctim.tv_nsec, (int64_t)sb.st_mode};
        sha256_add(&h, of, sizeof of);
    }
    return sha256_end(&h);
}
struct secrets *secrets_new(void) {
    return arena_must_calloc(1, sizeof(struct secrets));
}
void secrets_add(struct secrets *s, const struct secret_group *g) {
    struct watched w = {.g = *g, .stamp = stamp(g)};
    vec_push(&s->v, w);
}
void secrets_free(struct secrets *s) {
    if (!s) return;
    secrets_stop(s);
    for (size_t k = 0; k < s->v.n; k++) {
        if (s->v.v[k].loaded) s->v.v[k].g.drop(s->v.v[k].loaded);
        st_drop(s->v.v[k].st);
    }
    vec_done(&s->v);
    free(s);
}

// ---- a round

static void read_work(void *arg) {
    struct secrets *s = arg;
    for (size_t k = 0; k < s->v.n; k++) {
        struct watched *w = &s->v.v[k];
        struct digest now = stamp(&w->g);
        w->read = s->all || !digest_eq(now, w->stamp);
        w->stamp = now; // before it is read: what changes meanwhile is seen next time
        if (w->read) w->st = w->g.load(w->g.ctx, &w->loaded);
    }
}
static void begin(struct secrets *s, bool all, void (*done)(void *ctx), void *ctx);
static void take(struct watched *w) {
    if (!w->read) return;
    w->failed = w->st != ST_OK;
    if (w->st)
        log_event(LOG_ERROR, "server.reload", "what=%s why=\"%s; what was before stays\"",
                  w->g.what, st_message(w->st));
    else {
        log_event(LOG_INFO, "server.reload", "what=%s", w->g.what);
        w->g.take(w->g.ctx, w->loaded);
    }
    st_drop(w->st);
    w->st = ST_OK;
    w->loaded = NULL;
    if (w->g.read) w->g.read(w->g.ctx);
}
static void have_read(void *arg) {
    struct secrets *s = arg;
    s->under_way = false;
    if (s->stopped) return;
    for (size_t k = 0; k < s->v.n; k++)
        take(&s->v.v[k]);
    if (s->done) s->done(s->ctx);
    if (s->next_done)
        begin(s, true, s->next_done, s->next_ctx);
    else if (s->period_ms)
        loop_timer_start(s->timer, s->period_ms);
}
static void begin(struct secrets *s, bool all, void (*done)(void *ctx), void *ctx) {
    loop_timer_stop(s->timer);
    s->under_way = true;
    s->all = all;
    s->done = done;
    s->ctx = ctx;
    s->next_done = NULL;
    loop_work(s->loop, read_work, have_read, s);
}
static void nobody(UNUSED void *ctx) {}
static void on_timer(void *arg) {
    begin(arg, false, nobody, NULL);
}
void secrets_read(struct secrets *s, void (*done)(void *ctx), void *ctx) {
    if (!s->under_way) {
        begin(s, true, done, ctx);
        return;
    }
    s->next_done = done;
    s->next_ctx = ctx;
}
void secrets_start(struct secrets *s, struct loop *l, int64_t period_ms) {
    s->loop = l;
    s->period_ms = s->v.n ? period_ms : 0;
    s->timer = loop_timer_new(l, on_timer, s);
    if (s->period_ms) loop_timer_start(s->timer, s->period_ms);
}
void secrets_stop(struct secrets *s) {
    s->stopped = true;
    loop_timer_free(s->timer);
    s->timer = NULL;
}
bool secrets_ok(const struct secrets *s) {
    bool ok = true;
    for (size_t k = 0; k < s->v.n; k++)
        ok = ok && !s->v.v[k].failed;
    return ok;
}
