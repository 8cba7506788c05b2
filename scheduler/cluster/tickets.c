// SPDX-License-Identifier: Apache-2.0
// JetStream is spoken to by its own messages: requests whose answers come to our inbox. The
// library's calls for it wait, and nobody would read meanwhile (bus.c).
//
//   CONNECTED -> stream made -> a consumer for each kind here -> a pull each, while there is room
#include "scheduler/cluster/tickets.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/str.h"
#include "base/vec.h"
#include "scheduler/cluster/nodes.h"
#include "scheduler/cluster/seal.h"
#include "scheduler/cluster/use.h"
#include "scheduler/loop.h"
#include "scheduler/remote/peers.h"

enum { LIVE_BEATS = 15, LIVE_MS = 4000, LIVE_MOST_MS = 30000 };  // of a ticket
enum { WAIT_BEATS = 5, WAIT_MS = 2000, WAIT_MOST_MS = 10000 };   // for its acknowledgement
enum { OFFER_BEATS = 4, OFFER_MS = 1500, OFFER_MOST_MS = 8000 }; // for the home's call
enum { PULL_MS = 5000, PULL_LATE_MS = 2000, AGAIN_MS = 10000, TICK_MOST_MS = 1000 };
enum { ACK_MAX = 300, TEXT_MAX = 8192, TICKET_BYTES = 4096 };
enum { NAME_IN_USE = 10058, CONSUMER_IS = 10148, CONSUMER_NAMED = 10013, CONSUMER_TAKEN = 10105 };

struct tickets_mail {
    enum { M_SETUP, M_NEXT, M_OFFER, M_NONE } what;
    char kind[TICKETS_KIND + 1]; // of SETUP ("": of the stream) and NEXT
    const char *ack;             // "": none
    int status;
    const Hlod__Cluster__Body *body; // NULL: not sealed by the cluster
    const char *text;
};
struct queue { // of a kind
    char kind[TICKETS_KIND + 1];
    bool made, asked;
    int64_t asked_ns, made_ns;
};
struct promise { // of a place
    uint64_t id;
    int64_t until_ns;
    char *home, *ack;
    bool moved; // the ticket is another home's
};
struct tickets {
    struct tickets_config cfg;
    struct tickets_user user;
    bool used, leaving, up, ready, asks, said; // asks: for the stream
    int64_t setup_ns;
    struct loop_timer *timer;
    struct queue queues[TICKETS_KINDS];
    size_t n_queues;
    VEC(struct promise) promises;
    VEC(char *) held;
    int64_t published, again, taken, given, settled, none, refused, broken;
};

// ---- words

static int64_t beats_ms(const struct tickets *t, int64_t beats, int64_t least, int64_t most) {
    int64_t ms = beats * t->cfg.beat_ms;
    return ms < least ? least : ms > most ? most : ms;
}
int64_t tickets_live_ns(const struct tickets *t) {
    return beats_ms(t, LIVE_BEATS, LIVE_MS, LIVE_MOST_MS) * CLOCK_MS;
}
bool tickets_kind_fits(const char *kind) {
    size_t n = strnlen(kind, TICKETS_KIND + 1);
    for (size_t i = 0; i < n && n <= TICKETS_KIND; i++)
        if (!isalnum((unsigned char)kind[i]) && kind[i] != '_' && kind[i] != '-') return false;
    return n > 0 && n <= TICKETS_KIND;
}
// Of a message that JetStream delivered, and so a subject of its own.
static bool ack_fits(const char *ack) {
    size_t n = strnlen(ack, ACK_MAX + 1);
    if (n > ACK_MAX || strncmp(ack, "$JS.ACK.", 8) != 0) return false;
    for (size_t i = 0; i < n; i++)
        if (ack[i] <= ' ' || ack[i] > '~' || ack[i] == '*' || ack[i] == '>') return false;
    return true;
}
static void send(struct tickets *t, const char *subject, const char *reply, const char *id,
                 struct span bytes) {
    bus_send(t->cfg.bus,
             &(struct bus_letter){.subject = subject, .reply = reply, .id = id, .bytes = bytes});
}
static void send_text(struct tickets *t, const char *subject, const char *reply, const char *s) {
    send(t, subject, reply, NULL, (struct span){(const uint8_t *)s, strlen(s)});
}
static void say(struct tickets *t, const char *ack, const char *word) { // "+ACK", "-NAK", ...
    if (ack_fits(ack)) send_text(t, ack, NULL, word);
}
// To the process whose life it is.
static void send_offer(struct tickets *t, const char *life, const char *what,
                       Hlod__Cluster__Offer *o) {
    struct arena a = {0};
    Hlod__Cluster__Body b = HLOD__CLUSTER__BODY__INIT;
    b.offer = o;
    if (tickets_kind_fits(life))
        send(t, arena_printf(&a, "%s.v1.inbox.%s.%s", t->cfg.name, life, what), NULL, NULL,
             seal_message(t->cfg.seal, &a, &b));
    arena_done(&a);
}

// ---- the stream and its queues

static void make_stream(struct tickets *t) {
    struct arena a = {0};
    const char *name = t->cfg.name;
    long long live = (long long)tickets_live_ns(t);
    t->setup_ns = clock_ns();
    t->asks = true;
    send_text(t, arena_printf(&a, "$JS.API.STREAM.CREATE.%s-jobs", name), ".setup",
              arena_printf(&a,
                           "{\"name\":\"%s-jobs\",\"subjects\":[\"%s.v1.tickets.*\"],"
                           "\"retention\":\"workqueue\",\"storage\":\"file\",\"discard\":\"old\","
                           "\"max_age\":%lld,\"duplicate_window\":%lld,\"max_msg_size\":%d,"
                           "\"max_msgs\":1000000,\"num_replicas\":%d}",
                           name, name, live, live, TICKET_BYTES, t->cfg.replicas));
    arena_done(&a);
}
static void make_queue(struct tickets *t, struct queue *q) {
    struct arena a = {0};
    const char *name = t->cfg.name;
    long long wait = (long long)beats_ms(t, WAIT_BEATS, WAIT_MS, WAIT_MOST_MS) * CLOCK_MS;
    q->made_ns = clock_ns();
    send_text(t, arena_printf(&a, "$JS.API.CONSUMER.DURABLE.CREATE.%s-jobs.%s", name, q->kind),
              arena_printf(&a, ".setup.%s", q->kind),
              arena_printf(&a,
                           "{\"stream_name\":\"%s-jobs\",\"config\":{\"durable_name\":\"%s\","
                           "\"filter_subject\":\"%s.v1.tickets.%s\",\"deliver_policy\":\"all\","
                           "\"ack_policy\":\"explicit\",\"ack_wait\":%lld,\"max_deliver\":-1,"
                           "\"max_ack_pending\":20000,\"max_waiting\":2048}}",
                           name, q->kind, name, q->kind, wait));
    arena_done(&a);
}
static void ask(struct tickets *t, struct queue *q) {
    struct arena a = {0};
    q->asked = true;
    q->asked_ns = clock_ns();
    send_text(t, arena_printf(&a, "$JS.API.CONSUMER.MSG.NEXT.%s-jobs.%s", t->cfg.name, q->kind),
              arena_printf(&a, ".next.%s", q->kind),
              arena_printf(&a, "{\"batch\":1,\"expires\":%lld}", (long long)PULL_MS * CLOCK_MS));
    arena_done(&a);
}
static struct queue *queue_of(struct tickets *t, const char *kind) {
    for (size_t k = 0; k < t->n_queues; k++)
        if (!strcmp(t->queues[k].kind, kind)) return &t->queues[k];
    return NULL;
}
static void find_kinds(struct tickets *t) {
    const char *kinds[TICKETS_KINDS];
    size_t n = t->user.kinds(t->user.ctx, kinds, TICKETS_KINDS);
    for (size_t k = 0; k < n; k++) {
        if (!tickets_kind_fits(kinds[k]) || queue_of(t, kinds[k]) || t->n_queues == TICKETS_KINDS)
            continue;
        struct queue *q = &t->queues[t->n_queues++];
        *q = (struct queue){0};
        snprintf(q->kind, sizeof q->kind, "%s", kinds[k]);
    }
}
void tickets_look(struct tickets *t) {
    int64_t now = clock_ns();
    if (!t->used || !t->ready || t->leaving || !t->cfg.settled(t->cfg.cluster)) return;
    find_kinds(t);
    for (size_t k = 0; k < t->n_queues; k++) {
        struct queue *q = &t->queues[k];
        if (now - q->asked_ns > (PULL_MS + PULL_LATE_MS) * CLOCK_MS) q->asked = false;
        if (!q->made && now - q->made_ns > AGAIN_MS * CLOCK_MS) make_queue(t, q);
        if (q->made && !q->asked && t->user.room(t->user.ctx, q->kind, (int)t->promises.n))
            ask(t, q);
    }
}
static void begin_again(struct tickets *t) {
    t->ready = t->asks = false;
    t->setup_ns = 0;
    for (size_t k = 0; k < t->n_queues; k++) {
        t->queues[k].made = t->queues[k].asked = false;
        t->queues[k].made_ns = 0;
    }
}
void tickets_connected(struct tickets *t, bool up) {
    t->up = up;
    begin_again(t);
    if (up) make_stream(t);
}
bool tickets_ready(const struct tickets *t) {
    return t->ready;
}

static int error_in(const char *text) { // 0: none
    const char *at = strstr(text, "\"err_code\":");
    if (at) return (int)strtol(at + 11, NULL, 10);
    return strstr(text, "\"error\"") ? -1 : 0;
}
static void not_ready(struct tickets *t, const char *why) {
    if (!t->said)
        log_event(LOG_WARN, "cluster.jobs", "cluster=%s why=\"%s; batch jobs stay where they are\"",
                  t->cfg.name, why);
    t->said = true;
}
static void on_setup(struct tickets *t, const struct tickets_mail *m) {
    struct queue *q = queue_of(t, m->kind);
    t->asks = false;
    int code = m->status ? -1 : error_in(m->text);
    bool there = code == NAME_IN_USE || code == CONSUMER_IS || code == CONSUMER_NAMED ||
                 code == CONSUMER_TAKEN; // another node made it, with other times
    if (code && !there) {
        not_ready(t, m->status ? "NATS has no JetStream" : "JetStream refuses the work queue");
        begin_again(t);
        t->setup_ns = clock_ns();
        return;
    }

    if (q)
        q->made = true;
    else if (!*m->kind) {
        t->ready = true;
        t->said = false;
        if (t->used) t->user.look(t->user.ctx, strstr(m->text, "\"did_create\":true") != NULL);
    }
    tickets_look(t);
}

// ---- who has room

static void drop_promise(struct tickets *t, size_t k) {
    free(t->promises.v[k].home);
    free(t->promises.v[k].ack);
    t->promises.v[k] = t->promises.v[--t->promises.n];
}
static char *dup(const char *s) {
    char *copy = strdup(s);
    if (!copy) abort();
    return copy;
}
static const struct node *there(const struct tickets *t, const char *name) {
    const struct node *n = nodes_find(t->cfg.nodes, name);
    return n && n->m->proved && !n->lost && !n->gone ? n : NULL;
}
static void offer(struct tickets *t, const struct node *home, const char *kind, const char *ack,
                  bool moved) {
    Hlod__Cluster__Offer o = HLOD__CLUSTER__OFFER__INIT;
    struct promise p = {.home = dup(home->m->node), .ack = dup(ack), .moved = moved};
    if (getrandom(&p.id, sizeof p.id, 0) != sizeof p.id) abort();
    p.until_ns = clock_ns() + beats_ms(t, OFFER_BEATS, OFFER_MS, OFFER_MOST_MS) * CLOCK_MS;
    vec_push(&t->promises, p);
    o.node = (char *)(uintptr_t)t->cfg.node;
    o.life = (char *)(uintptr_t)t->cfg.life;
    o.id = p.id;
    o.kind = (char *)(uintptr_t)kind;
    o.ack = p.ack;
    send_offer(t, home->m->life, "offer", &o);
}
static void take_ticket(struct tickets *t, const struct tickets_mail *m) {
    const Hlod__Cluster__Ticket *x = m->body ? m->body->ticket : NULL;
    bool fits = x && !strcmp(x->kind, m->kind) && peer_name_fits(x->home);
    if (!fits) {
        t->refused++;
        say(t, m->ack, "+TERM");
        return;
    }
    const struct node *home = there(t, x->home);
    if (!home) // one that comes back makes new ones; of ours none waits when there is room
        say(t, m->ack, "+TERM");
    else if (!t->used || t->leaving || !t->user.room(t->user.ctx, x->kind, (int)t->promises.n))
        say(t, m->ack, "-NAK");
    else {
        // A ticket brings a place; whose job gets it is not said by who put it.
        const struct node *chosen = there(t, use_home(t->cfg.use, x->home));
        if (!chosen) chosen = home;
        t->taken++;
        offer(t, chosen, x->kind, m->ack, chosen != home);
    }
}
static void on_next(struct tickets *t, const struct tickets_mail *m) {
    enum { NONE = 404, LATE = 408 };
    struct queue *q = queue_of(t, m->kind);
    if (!q || (!m->status && !ack_fits(m->ack))) return; // not of JetStream
    q->asked = false;
    if (!m->status)
        take_ticket(t, m);
    else if (m->status != NONE && m->status != LATE) { // it is gone, or JetStream is
        begin_again(t);
        return;
    }
    tickets_look(t);
}
static size_t find_promise(const struct tickets *t, uint64_t id) {
    size_t k = 0;
    while (k < t->promises.n && t->promises.v[k].id != id)
        k++;
    return k;
}
static void on_none(struct tickets *t, const Hlod__Cluster__Offer *o) {
    size_t k = find_promise(t, o->id);
    if (k == t->promises.n || strcmp(t->promises.v[k].home, o->node) != 0) return;
    t->none++;
    if (t->promises.v[k].moved) use_nothing(t->cfg.use, o->node);
    say(t, t->promises.v[k].ack, t->promises.v[k].moved ? "-NAK" : "+ACK");
    drop_promise(t, k);
    tickets_look(t);
}
bool tickets_claim(struct tickets *t, uint64_t id, const char *home) {
    size_t k = find_promise(t, id);
    if (k == t->promises.n || strcmp(t->promises.v[k].home, home) != 0) return false;
    drop_promise(t, k);
    return true;
}

// ---- the home

void tickets_put(struct tickets *t, const char *kind, const char *job, const char *id, bool again) {
    struct arena a = {0};
    Hlod__Cluster__Body b = HLOD__CLUSTER__BODY__INIT;
    Hlod__Cluster__Ticket x = HLOD__CLUSTER__TICKET__INIT;
    x.home = (char *)(uintptr_t)t->cfg.node;
    x.kind = (char *)(uintptr_t)kind;
    x.job = (char *)(uintptr_t)job;
    b.ticket = &x;
    t->published++;
    t->again += again;
    send(t, arena_printf(&a, "%s.v1.tickets.%s", t->cfg.name, kind), NULL,
         arena_printf(&a, "%s/%s", t->cfg.node, id), seal_message(t->cfg.seal, &a, &b));
    arena_done(&a);
}
static void on_offer(struct tickets *t, const Hlod__Cluster__Offer *o) {
    const struct node *n = there(t, o->node);
    bool fits = n && !strcmp(n->m->life, o->life) && tickets_kind_fits(o->kind) &&
                ack_fits(o->ack) && !strcmp(n->m->state, "serving");
    if (!fits) {
        t->refused++;
        return;
    }
    if (clock_ns() < n->shun_ns) return; // its ticket goes to another one
    struct tickets_offer x = {o->id, n->m->node, n->m->life, o->kind, o->ack};
    if (t->used && t->user.offered(t->user.ctx, &x)) {
        t->given++;
        return;
    }
    Hlod__Cluster__Offer none = HLOD__CLUSTER__OFFER__INIT;
    none.node = (char *)(uintptr_t)t->cfg.node;
    none.id = o->id;
    none.none = true;
    send_offer(t, n->m->life, "none", &none);
}
void tickets_hold(struct tickets *t, const char *ack) {
    vec_push(&t->held, dup(ack));
}
void tickets_settle(struct tickets *t, const char *ack) {
    for (size_t k = 0; k < t->held.n; k++)
        if (!strcmp(t->held.v[k], ack)) {
            t->settled++;
            say(t, ack, "+ACK");
            free(t->held.v[k]);
            t->held.v[k] = t->held.v[--t->held.n];
            return;
        }
}

// ---- what comes

struct tickets_mail *tickets_read(const struct seal *s, struct arena *a,
                                  const struct bus_mail *mail) {
    static const char *const names[] = {"setup", "next", "offer", "none"};
    struct tickets_mail *m = arena_new_of(a, struct tickets_mail);
    *m = (struct tickets_mail){.ack = arena_strdup(a, mail->reply), .status = mail->status};
    static const char SUBJECT[] = ".v1.tickets.";
    const char *why, *queue = strstr(mail->at, SUBJECT), *at = mail->at;
    if (mail->status == BUS_NOBODY) at = "setup";
    if (queue) at = arena_printf(a, "next.%.*s", TICKETS_KIND + 1, queue + sizeof SUBJECT - 1);
    struct str rest = str_of(at), head;
    int what = M_SETUP;
    str_cut(&rest, '.', &head);
    while (what <= M_NONE && !str_eq(head, str_of(names[what])))
        what++;
    bool named = strchr(at, '.') != NULL;
    if (what > M_NONE || (what == M_NEXT) > named || (what > M_NEXT && named)) return NULL;
    m->what = what;
    snprintf(m->kind, sizeof m->kind, STR_FMT, STR_ARG(rest));
    if (named && !tickets_kind_fits(m->kind)) return NULL;

    if (what == M_SETUP)
        m->text = arena_strndup(a, (const char *)mail->bytes.p,
                                mail->bytes.n < TEXT_MAX ? mail->bytes.n : TEXT_MAX);
    else if (!mail->status)
        m->body = seal_open(s, a, mail->bytes, &why);
    // A ticket that is none is looked at, so that it does not come again.
    return what <= M_NEXT || (m->body && m->body->offer) ? m : NULL;
}
void tickets_hear(struct tickets *t, const struct tickets_mail *m) {
    switch (m->what) {
    case M_SETUP:
        on_setup(t, m);
        break;
    case M_NEXT:
        on_next(t, m);
        break;
    case M_OFFER:
        if (!m->body->offer->none) on_offer(t, m->body->offer);
        break;
    case M_NONE:
        if (m->body->offer->none) on_none(t, m->body->offer);
        break;
    }
}

// ---- life

static void on_timer(void *arg) {
    struct tickets *t = arg;
    int64_t now = clock_ns();
    for (size_t k = t->promises.n; k-- > 0;)
        if (now > t->promises.v[k].until_ns) {
            t->broken++;
            drop_promise(t, k);
        }
    for (size_t k = 0; k < t->held.n; k++)
        say(t, t->held.v[k], "+WPI");
    if (t->up && !t->ready && now - t->setup_ns > AGAIN_MS * CLOCK_MS) {
        if (t->asks) not_ready(t, "JetStream does not answer");
        make_stream(t);
    }
    if (t->used && t->ready) t->user.look(t->user.ctx, false);
    tickets_look(t);
    loop_timer_start(t->timer, t->cfg.beat_ms < TICK_MOST_MS ? t->cfg.beat_ms : TICK_MOST_MS);
}
struct tickets *tickets_new(const struct tickets_config *cfg) {
    struct tickets *t = arena_must_calloc(1, sizeof *t);
    t->cfg = *cfg;
    t->timer = loop_timer_new(cfg->loop, on_timer, t);
    on_timer(t);
    return t;
}
void tickets_join(struct tickets *t, const struct tickets_user *u) {
    t->used = u != NULL;
    if (u) t->user = *u;
}
void tickets_leave(struct tickets *t) {
    if (t) t->leaving = true;
}
void tickets_stop(struct tickets *t) {
    if (!t || !t->timer) return;
    t->leaving = true;
    for (size_t k = 0; k < t->promises.n; k++)
        say(t, t->promises.v[k].ack, "-NAK");
    loop_timer_free(t->timer);
    t->timer = NULL;
}
void tickets_free(struct tickets *t) {
    if (!t) return;
    while (t->promises.n)
        drop_promise(t, 0);
    for (size_t k = 0; k < t->held.n; k++)
        free(t->held.v[k]);
    vec_done(&t->promises);
    vec_done(&t->held);
    free(t);
}
void tickets_metrics(const struct tickets *t, struct strbuf *b) {
    const struct metric_count all[] = {{"published", t->published}, {"again", t->again},
                                       {"taken", t->taken},         {"none", t->none},
                                       {"given", t->given},         {"settled", t->settled},
                                       {"expired", t->broken},      {"refused", t->refused}};
    strbuf_printf(b,
                  "# HELP hlod_cluster_jobs_ready 1 while batch jobs may go to other nodes\n"
                  "# TYPE hlod_cluster_jobs_ready gauge\nhlod_cluster_jobs_ready %d\n",
                  t->ready);
    metrics_counts(b, "hlod_cluster_tickets_total",
                   "tickets of waiting batch jobs: published here, of them again; taken by this "
                   "node, for nothing, in vain; given a job here and settled; not the cluster's",
                   "what", all, sizeof all / sizeof *all);
}
