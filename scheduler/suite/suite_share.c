// SPDX-License-Identifier: Apache-2.0
// What makes a suite one that can move: other nodes keep the blobs that it needs, and JetStream its
// request, in parts, and how each job ended. A result is put once, by who is first; whoever comes
// later takes that one for its own. So of two nodes that both think a suite theirs one records each
// result, and both tell the same.
//
//   suites_share: KeepBlobs at other nodes -> parts -> head, new -> the journal -> admitted
//   suite_put: a job has ended -> its record, new -> the journal -> told
//                                  | there is one: read it -> the journal -> told
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "proto/formats/cluster.pb-c.h"
#include "proto/message.h"
#include "proto/reason.h"
#include "proto/tokens.h"
#include "proto/weigh.h"
#include "scheduler/cluster/ask.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/cluster/nodes.h"
#include "scheduler/cluster/registers.h"
#include "scheduler/error.h"
#include "scheduler/job/job.h"
#include "scheduler/loop.h"
#include "scheduler/remote/rendezvous.h"
#include "scheduler/sched_inside.h"
#include "scheduler/suite/suite_inside.h"

enum { PART = 128 << 10, MOST_PARTS = 128, KEEP_MS = 60000, MOST_BLOBS = 20000 };
enum { SUITES_MOST = 8000 }; // of all nodes: their list is one message

const char *share_key(struct arena *a, const char *what, int64_t suite, uint32_t n) {
    return n ? arena_printf(a, "%s.%" PRId64 ".%u", what, suite, n)
             : arena_printf(a, "%s.%" PRId64, what, suite);
}
uint32_t share_job(const char *key, uint32_t jobs) {
    int64_t n = 0;
    return str_to_i64(str_of(key), &n) && n > 0 && n <= jobs ? (uint32_t)n : 0;
}

// ---- what it needs

static int by_bytes(const void *a, const void *b) {
    return memcmp(a, b, sizeof(struct digest));
}
static bool add_blob(struct share_blobs *b, const char *text) {
    struct digest d;
    if (!digest_parse(str_of(text), &d) || b->n >= 4 * MOST_BLOBS) return false;
    vec_push(b, d);
    return true;
}
static bool add_tensors(struct share_blobs *b, Hlod__V1__JobTensor *const *v, size_t n) {
    for (size_t k = 0; k < n; k++)
        if (*v[k]->blob && !add_blob(b, v[k]->blob)) return false;
    return true;
}
bool share_blobs(const Hlod__V1__SubmitJobsRequest *q, struct share_blobs *out) {
    bool fits = true;
    size_t n = 0;
    for (size_t k = 0; k < q->n_models && fits; k++)
        fits = add_blob(out, q->models[k]->model);
    for (size_t k = 0; k < q->n_inputs && fits; k++)
        fits = add_tensors(out, q->inputs[k]->inputs, q->inputs[k]->n_inputs) &&
               add_tensors(out, q->inputs[k]->expect, q->inputs[k]->n_expect);
    if (out->n) qsort(out->v, out->n, sizeof *out->v, by_bytes);
    for (size_t k = 0; k < out->n; k++)
        if (!n || !digest_eq(out->v[n - 1], out->v[k])) out->v[n++] = out->v[k];
    out->n = n;
    return fits && n <= MOST_BLOBS;
}

// ---- a suite, before it is accepted

struct share {
    struct suites *s;
    struct arena arena;
    int64_t id;
    Hlod__Cluster__Suite head;
    const char *tenant;
    struct span request;
    struct share_blobs blobs;
    const char **candidates;
    size_t n_candidates, at;
    struct ask *ask;
    uint32_t part;
    bool ended;                 // its results alone are needed
    struct suite_record *fresh; // whose id was drawn for it; NULL: it is put again
    char why[300];
    void (*done)(void *ctx, status_t st);
    void *ctx;
};
static void finish(struct share *h, status_t st) { // takes st
    void (*done)(void *, status_t) = h->done;
    void *ctx = h->ctx;
    h->s->n_runs--;
    vec_done(&h->blobs);
    arena_done(&h->arena);
    free(h);
    done(ctx, st);
}
static void give_up(struct share *h, const char *why) {
    finish(h, st_new(ST_UNAVAILABLE, "the suite cannot be kept by other nodes (jobs_replicas): %s",
                     why));
}
void suites_share_ends(struct suites *s, int64_t id) {
    for (size_t k = 0; k < s->sharing.n; k++)
        if (s->sharing.v[k] == id) {
            s->sharing.v[k] = s->sharing.v[--s->sharing.n];
            return;
        }
}
// What is there is another suite's, and stays.
static void is_taken(struct share *h) {
    if (h->fresh) {
        suites_share_ends(h->s, h->id);
        h->fresh->id = 0;
    }
    give_up(h, "its id is another one's");
}
static void on_head(void *ctx, const struct register_reply *r) {
    struct share *h = ctx;
    if (r->what == REGISTER_OK)
        finish(h, ST_OK);
    else if (r->what == REGISTER_CONFLICT)
        is_taken(h);
    else
        give_up(h, r->what == REGISTER_FAILED ? r->why : "JetStream refuses");
}
static void put_next(struct share *h);
static void on_part(void *ctx, const struct register_reply *r) {
    struct share *h = ctx;
    if (r->what == REGISTER_OK)
        put_next(h);
    else if (r->what == REGISTER_CONFLICT)
        is_taken(h);
    else
        give_up(h, r->what == REGISTER_FAILED ? r->why : "JetStream refuses");
}
static void put_next(struct share *h) {
    struct arena a = {0};
    struct registers *g = h->s->fleet.registers;
    size_t from = (size_t)h->part * PART, left = h->request.n - from;
    if (!g)
        give_up(h, "the cluster has ended");
    else if (h->part == h->head.parts)
        registers_put(g, share_key(&a, "head", h->id, 0), message_pack(&a, &h->head.base),
                      REGISTER_NEW, on_head, h);
    else
        registers_put(g, share_key(&a, "part", h->id, ++h->part),
                      (struct span){h->request.p + from, left < PART ? left : PART},
                      h->fresh ? REGISTER_NEW : REGISTER_ANY, on_part, h);
    arena_done(&a);
}
static void ask_next(struct share *h);
static void on_kept(void *ctx, status_t st, UNUSED struct arena *a, UNUSED ProtobufCMessage *m) {
    struct share *h = ctx;
    h->ask = NULL;
    if (st) {
        struct strbuf b = strbuf_over(h->why, sizeof h->why);
        strbuf_puts(&b, st_message(st));
        log_event(LOG_WARN, "suite.kept", "node=%s why=\"%s\"", h->candidates[h->at - 1],
                  st_message(st));
        st_drop(st);
    } else
        h->head.keepers[h->head.n_keepers++] = (char *)(uintptr_t)h->candidates[h->at - 1];
    ask_next(h);
}
static void ask_next(struct share *h) {
    const struct suites_fleet *f = &h->s->fleet;
    Hlod__V1__KeepBlobsRequest q = HLOD__V1__KEEP_BLOBS_REQUEST__INIT;
    if (h->ended || (int)h->head.n_keepers == h->s->cfg.replicas || !f->registers) {
        put_next(h);
        return;
    }
    q.home = h->head.home;
    q.digests = arena_array(&h->arena, ProtobufCBinaryData, h->blobs.n + 1);
    for (; q.n_digests < h->blobs.n; q.n_digests++)
        q.digests[q.n_digests] = (ProtobufCBinaryData){32, h->blobs.v[q.n_digests].b};
    while (!h->ask && h->at < h->n_candidates)
        h->ask =
            ask_start(f->asks, &(struct ask_spec){.node = h->candidates[h->at++],
                                                  .method = "KeepBlobs",
                                                  .tenant = h->tenant,
                                                  .scopes = SCOPE_JOBS,
                                                  .request = &q.base,
                                                  .reply = &hlod__v1__keep_blobs_reply__descriptor,
                                                  .timeout_ms = KEEP_MS,
                                                  .done = on_kept,
                                                  .ctx = h});
    if (h->ask) return;
    char text[400];
    struct strbuf b = strbuf_over(text, sizeof text);
    strbuf_printf(&b, "%zu of %d nodes keep a copy%s%s", h->head.n_keepers, h->s->cfg.replicas,
                  *h->why ? "; " : "", h->why);
    give_up(h, strbuf_cstr(&b));
}
// Those that serve, in an order of the suite's own.
static void choose(struct share *h) {
    const struct nodes *all = cluster_nodes(h->s->fleet.cluster);
    const char *names[RENDEZVOUS_MAX];
    size_t n = 0, order[RENDEZVOUS_MAX];
    for (size_t k = 0; k < all->v.n && n < RENDEZVOUS_MAX; k++) {
        const struct node *x = all->v.v[k];
        if (x->m->proved && !x->lost && !x->gone && !strcmp(x->m->state, "serving"))
            names[n++] = x->m->node;
    }
    n = rendezvous(sha256_of(&h->id, sizeof h->id), names, n, order, n);
    h->candidates = arena_array(&h->arena, const char *, n + 1);
    h->head.keepers = arena_array(&h->arena, char *, n + 1);
    for (size_t k = 0; k < n; k++)
        h->candidates[h->n_candidates++] = arena_strdup(&h->arena, names[order[k]]);
}
static void begin(void *arg) {
    struct share *h = arg;
    struct suites *s = h->s;
    Hlod__V1__SubmitJobsRequest *q =
        weigh_unpack_or_null(&hlod__v1__submit_jobs_request__descriptor, h->request);
    bool fits = q && h->head.parts <= MOST_PARTS && share_blobs(q, &h->blobs);
    if (q) hlod__v1__submit_jobs_request__free_unpacked(q, NULL);
    if (!fits)
        finish(h, st_because(ST_RESOURCE_EXHAUSTED, BODY_TOO_LARGE,
                             "a suite that other nodes are to keep (jobs_replicas) has at most "
                             "%d MiB and %d blobs: bring its tensors as blobs, or less at a time",
                             MOST_PARTS * PART >> 20, MOST_BLOBS));
    else if (!s->fleet.registers || !registers_ready(s->fleet.registers))
        give_up(h, "JetStream is not reached");
    else {
        choose(h);
        ask_next(h);
    }
}
static struct share *new_share(struct suites *s, const struct suite_record *r) {
    struct share *h = arena_must_calloc(1, sizeof *h);
    struct arena *a = &h->arena;
    h->s = s;
    h->id = r->id;
    h->tenant = arena_strdup(a, r->tenant);
    h->request = (struct span){arena_dup(a, r->request.p, r->request.n), r->request.n};
    h->head = (Hlod__Cluster__Suite)HLOD__CLUSTER__SUITE__INIT;
    h->head.home = arena_strdup(a, cluster_node(s->fleet.cluster));
    h->head.tenant = (char *)(uintptr_t)h->tenant;
    if (!digest_is_zero(r->key))
        h->head.key = (ProtobufCBinaryData){32, arena_dup(a, r->key.b, sizeof r->key.b)};
    h->head.created_ns = r->created_ns;
    h->head.jobs = r->n_jobs;
    h->head.parts = (uint32_t)((r->request.n + PART - 1) / PART);
    struct digest d = sha256_of(r->request.p, r->request.n);
    h->head.request = (ProtobufCBinaryData){32, arena_dup(a, d.b, sizeof d.b)};
    h->head.traceparent = arena_strdup(a, r->traceparent ? r->traceparent : "");
    h->head.tracestate = arena_strdup(a, r->tracestate ? r->tracestate : "");
    s->n_runs++;
    return h;
}
bool suites_share_new(const struct suites *s) {
    return s->cfg.replicas > 0;
}
void suites_share(struct suites *s, struct suite_record *r, void (*done)(void *, status_t),
                  void *ctx) {
    uint32_t drawn = 0;
    if (!s->fleet.registers) { // told from outside
        r->id = 0;
        done(ctx, st_new(ST_UNAVAILABLE, "the cluster is not reached yet (jobs_replicas)"));
        return;
    }
    if (s->n_listed + s->sharing.n >= SUITES_MOST) {
        r->id = 0;
        done(ctx, st_new(ST_RESOURCE_EXHAUSTED,
                         "%d suites of all nodes go on, or ended a short while ago: as many as "
                         "their list takes (jobs_replicas)",
                         SUITES_MOST));
        return;
    }
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) abort();
    r->id = (clock_wall_ns() / CLOCK_MS) << 20 | (drawn & 0xfffff); // by age, and one's own
    struct share *h = new_share(s, r);
    h->fresh = r;
    h->done = done;
    h->ctx = ctx;
    vec_push(&s->sharing, r->id);
    loop_post(s->sched->loop, begin, h);
}

// The head first: nobody takes what is there in part.
void share_forget(struct suites *s, int64_t id) {
    static const char *const what[] = {"head", "result", "part"};
    for (size_t k = 0; k < sizeof what / sizeof *what && s->fleet.registers; k++) {
        struct arena a = {0};
        const char *key = share_key(&a, what[k], id, 0);
        registers_drop(s->fleet.registers, k == 0 ? key : arena_printf(&a, "%s.>", key));
        arena_done(&a);
    }
}
void suites_unshare(struct suites *s, int64_t id) {
    share_forget(s, id);
    suites_share_ends(s, id);
}

// ---- a result

struct put {
    struct suite *suite;
    struct suite_job *j;
};
static void put_over(struct put *p) {
    struct suite *x = p->suite;
    x->s->n_runs--;
    free(p);
    suite_unref(x);
}
static bool take_result(struct suite_job *j, struct span bytes) {
    struct arena a = {0};
    const Hlod__Cluster__Ended *e = weigh_unpack_in(&a, &hlod__cluster__ended__descriptor, bytes);
    Hlod__V1__JobOutcome *o = e ? weigh_unpack_in(&j->arena, &hlod__v1__job_outcome__descriptor,
                                                  (struct span){e->result.data, e->result.len})
                                : NULL;
    if (o) {
        j->outcome = o;
        j->attempts = o->attempts;
        strbuf_clear(&j->log);
        strbuf_add(&j->log, e->log.data, e->log.len);
    }
    arena_done(&a);
    return o != NULL;
}
static struct span pack_put(struct arena *a, const struct suite_job *j);
static void on_put(void *ctx, const struct register_reply *r);
static void on_winner(void *ctx, const struct register_reply *r) {
    struct put *p = ctx;
    struct suite_job *j = p->j;
    struct registers *to = p->suite->s->fleet.registers;
    if (r->what == REGISTER_BAD && to && !p->suite->moved) { // nobody's: ours in its place
        struct arena a = {0};
        registers_put(to, share_key(&a, "result", p->suite->id, j->n), pack_put(&a, j),
                      (int64_t)r->number, on_put, p);
        arena_done(&a);
        return;
    }
    bool ok = r->what == REGISTER_OK && !p->suite->moved && take_result(j, r->bytes);
    j->put = ok ? P_NONE : P_FAILED;
    if (ok) suite_save(j);
    put_over(p);
}
static void on_put(void *ctx, const struct register_reply *r) {
    struct put *p = ctx;
    struct suite_job *j = p->j;
    struct arena a = {0};
    bool conflict = r->what == REGISTER_CONFLICT;
    if (p->suite->moved || r->what == REGISTER_FAILED || r->what == REGISTER_NONE ||
        (conflict && !p->suite->s->fleet.registers)) {
        j->put = P_FAILED; // the sweep tries again
        put_over(p);
    } else if (conflict) {
        registers_get(p->suite->s->fleet.registers, share_key(&a, "result", p->suite->id, j->n),
                      on_winner, p);
    } else {
        j->put = P_NONE;
        suite_save(j);
        put_over(p);
    }
    arena_done(&a);
}
static struct span pack_ended(struct arena *a, struct span brief, struct span result,
                              struct span log) {
    Hlod__Cluster__Ended e = HLOD__CLUSTER__ENDED__INIT;
    e.brief = (ProtobufCBinaryData){brief.n, (uint8_t *)(uintptr_t)brief.p};
    e.result = (ProtobufCBinaryData){result.n, (uint8_t *)(uintptr_t)result.p};
    if (brief.n + result.n + log.n < REGISTER_MAX_BYTES - 1024)
        e.log = (ProtobufCBinaryData){log.n, (uint8_t *)(uintptr_t)log.p};
    e.finished_ns = clock_wall_ns();
    return message_pack(a, &e.base);
}
static struct span pack_put(struct arena *a, const struct suite_job *j) {
    Hlod__V1__Job brief = *j->brief;
    suite_ended_brief((struct suite_job *)(uintptr_t)j, &brief);
    return pack_ended(a, message_pack(a, &brief.base), message_pack(a, &j->outcome->base),
                      (struct span){(const uint8_t *)j->log.p, j->log.n});
}
// What is too long for a record is too long for a result.
static void shorten(struct suite_job *j, struct arena *a) {
    size_t n = protobuf_c_message_get_packed_size(&j->outcome->base);
    if (n < REGISTER_MAX_BYTES / 2) return;
    status_t st = st_new(ST_RESOURCE_EXHAUSTED,
                         "the result has %zu bytes, too many for other nodes to keep", n);
    j->outcome->state = (char *)(uintptr_t)"error";
    j->outcome->error = error_of(a, st);
    j->outcome->n_comparisons = j->outcome->n_run_ms = j->outcome->n_outputs = 0;
    st_drop(st);
}
void suite_put(struct suite_job *j) {
    struct suites *s = j->suite->s;
    struct arena a = {0};
    j->put = P_FAILED;
    if (!s->fleet.registers) return;
    struct put *p = arena_must_calloc(1, sizeof *p);
    *p = (struct put){j->suite, j};
    j->put = P_UNDER_WAY;
    j->suite->refs++;
    s->n_runs++;
    shorten(j, &j->arena);
    registers_put(s->fleet.registers, share_key(&a, "result", j->suite->id, j->n), pack_put(&a, j),
                  REGISTER_NEW, on_put, p);
    arena_done(&a);
}

// ---- all of a suite, once more

struct again {
    struct suites *s;
    struct arena arena;
    struct suite_record r;
    VEC(struct job_record) ended;
    int64_t id, open;
    bool with_head;
    size_t left;
    int failed;
    status_t st;
    void (*done)(void *ctx, int64_t suite, int failed);
    void *ctx;
};
static struct span dup_span(struct arena *a, struct span v) {
    return (struct span){v.n ? arena_dup(a, v.p, v.n) : NULL, v.n};
}
static void read_suite(void *ctx, const struct suite_record *r) {
    struct again *g = ctx;
    g->ended.n = 0;
    g->r = *r;
    g->r.tenant = arena_strdup(&g->arena, r->tenant);
    g->r.request = dup_span(&g->arena, r->request);
}
static void read_job(void *ctx, const struct job_record *r) {
    struct again *g = ctx;
    struct job_record x = *r;
    if (!r->result.n) return;
    x.brief = dup_span(&g->arena, r->brief);
    x.result = dup_span(&g->arena, r->result);
    x.log = dup_span(&g->arena, r->log);
    vec_push(&g->ended, x);
}
static void read_work(void *arg) {
    struct again *g = arg;
    g->st = journal_suite_read(g->s->journal, g->id,
                               &(struct journal_jobs_reader){read_suite, read_job, g}, &g->open);
}
static void again_over(struct again *g) {
    void (*done)(void *, int64_t, int) = g->done;
    void *ctx = g->ctx;
    int64_t id = g->id;
    int failed = g->failed;
    g->s->n_runs--;
    vec_done(&g->ended);
    arena_done(&g->arena);
    free(g);
    done(ctx, id, failed);
}
static void on_shared(void *ctx, status_t st) {
    struct again *g = ctx;
    if (st)
        log_event(LOG_WARN, "suite.again", "suite=%" PRId64 " why=\"%s\"", g->id, st_message(st));
    g->failed += st != NULL;
    st_drop(st);
    again_over(g);
}
static void all_put(struct again *g) {
    if (!g->with_head || g->failed || !g->s->fleet.registers) {
        again_over(g);
        return;
    }
    struct share *h = new_share(g->s, &g->r);
    h->ended = g->open == 0;
    h->done = on_shared;
    h->ctx = g;
    begin(h);
}
static void on_one(void *ctx, const struct register_reply *r) {
    struct again *g = ctx;
    g->failed += r->what == REGISTER_FAILED;
    if (!--g->left) all_put(g);
}
static void was_read(void *arg) {
    struct again *g = arg;
    struct registers *to = g->s->fleet.registers;
    g->failed += g->st != NULL || g->open < 0 || !to;
    st_drop(g->st);
    g->left = g->failed ? 0 : g->ended.n;
    if (!g->left) {
        all_put(g);
        return;
    }
    for (size_t k = 0; k < g->ended.n; k++) {
        struct arena a = {0};
        const struct job_record *x = &g->ended.v[k];
        registers_put(to, share_key(&a, "result", g->id, x->n),
                      pack_ended(&a, x->brief, x->result, x->log), REGISTER_NEW, on_one, g);
        arena_done(&a);
    }
}
void share_again(struct suites *s, int64_t suite, bool with_head,
                 void (*done)(void *, int64_t, int), void *ctx) {
    struct again *g = arena_must_calloc(1, sizeof *g);
    *g = (struct again){.s = s, .id = suite, .with_head = with_head, .done = done, .ctx = ctx};
    s->n_runs++;
    loop_work(s->sched->loop, read_work, was_read, g);
}
