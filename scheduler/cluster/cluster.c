// SPDX-License-Identifier: Apache-2.0
// A beat goes out when its time has come, when something that matters has changed, and soon after a
// node that was not known is heard, so that one that comes knows all others within a moment. Many
// that come at once are answered by one beat.
#include "scheduler/cluster/cluster.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "proto/message.h"
#include "proto/reason.h"
#include "scheduler/cluster/ask.h"
#include "scheduler/cluster/attempt.h"
#include "scheduler/cluster/beat.h"
#include "scheduler/cluster/forward.h"
#include "scheduler/cluster/names.h"
#include "scheduler/cluster/nodes.h"
#include "scheduler/cluster/pull.h"
#include "scheduler/cluster/registers.h"
#include "scheduler/cluster/seal.h"
#include "scheduler/cluster/tickets.h"
#include "scheduler/cluster/use.h"
#include "scheduler/loop.h"

enum { GREET_MS = 150, LIFE_BYTES = 8, QUIET_MS = 3000 };
struct cluster {
    struct cluster_config cfg;
    struct bus *bus;
    struct nodes nodes;
    struct names *names; // NULL: no secret
    struct pull *pull;   // the same, as for
    struct forward *forward;
    struct tickets *tickets;
    struct attempts *attempts;
    struct use *use;
    struct asks *asks;
    struct registers *registers; // NULL: suites do not move
    struct loop_timer *beat, *age;
    char life[2 * LIFE_BYTES + 1];
    int64_t start_ns, next_ns; // next_ns: of our next beat
    bool up, said_down;
    int64_t since_ns, connects, heard, unknown;
    const char *server; // the bus's
    char why[200], conflict[BEAT_TEXT + 1];
    int64_t conflict_ns; // when that one was last heard
};

// ---- what we say

// The next beat is due in so many milliseconds, unless it is due sooner.
static void beat_in(struct cluster *c, int64_t ms) {
    int64_t at = clock_ns() + ms * CLOCK_MS;
    if (at >= c->next_ns) return;
    c->next_ns = at;
    loop_timer_start(c->beat, ms);
}
static Hlod__V1__Node *ourselves(struct cluster *c, struct arena *a) {
    Hlod__V1__Node *m = message_new(a, &hlod__v1__node__descriptor);
    c->cfg.describe(c->cfg.ctx, a, m);
    m->node = (char *)(uintptr_t)c->cfg.node;
    m->life = c->life;
    m->address = (char *)(uintptr_t)c->cfg.address;
    m->beat_ms = (int32_t)c->cfg.beat_ms;
    m->uptime_ms = (clock_ns() - c->start_ns) / CLOCK_MS;
    if (c->names) {
        size_t n;
        m->names_sum = models_sum(c->cfg.models, &n);
        m->names = (int32_t)n;
    }
    if (m->n_targets > BEAT_MAX_TARGETS) m->n_targets = BEAT_MAX_TARGETS;
    return m;
}
static void say(struct cluster *c, const char *state) {
    struct arena a = {0};
    Hlod__V1__Node *m = ourselves(c, &a);
    if (state) m->state = (char *)(uintptr_t)state;
    if (c->cfg.seal) {
        Hlod__Cluster__Body b = HLOD__CLUSTER__BODY__INIT;
        b.beat = m;
        bus_publish(c->bus, seal_message(c->cfg.seal, &a, &b));
    } else
        bus_publish(c->bus, beat_write(&a, m));
    arena_done(&a);
}
static void say_sealed(const struct cluster *c, Hlod__Cluster__Body *b) {
    struct arena a = {0};
    bus_publish(c->bus, seal_message(c->cfg.seal, &a, b));
    arena_done(&a);
}
static void say_names(void *ctx, Hlod__Cluster__Names *m) {
    Hlod__Cluster__Body b = HLOD__CLUSTER__BODY__INIT;
    b.names = m;
    say_sealed(ctx, &b);
}
static void say_use(void *ctx, Hlod__Cluster__Use *m) {
    Hlod__Cluster__Body b = HLOD__CLUSTER__BODY__INIT;
    b.use = m;
    say_sealed(ctx, &b);
}
static void on_beat(void *arg) {
    struct cluster *c = arg;
    if (c->up) say(c, NULL);
    if (c->use) use_beat(c->use);
    c->next_ns = INT64_MAX;
    beat_in(c, c->cfg.beat_ms);
}
void cluster_tell(struct cluster *c) {
    if (c) beat_in(c, 0);
}

// ---- what we hear

struct heard { // one of them
    const Hlod__V1__Node *beat;
    const struct names_heard *names;
    const Hlod__Cluster__Use *use;
    const struct tickets_mail *mail;
    const struct register_mail *record;
};
// On the bus's thread: of the cluster it reads what never changes.
static void *read_message(void *ctx, struct arena *a, const struct bus_mail *m) {
    const struct cluster *c = ctx;
    struct span bytes = m->bytes;
    struct heard *h = arena_new_of(a, struct heard);
    const char *why;
    *h = (struct heard){0};
    if (m->at) {
        h->record = c->cfg.records ? registers_read(a, m) : NULL;
        if (!h->record) h->mail = c->cfg.seal ? tickets_read(c->cfg.seal, a, m) : NULL;
        return h->mail || h->record ? h : NULL;
    }
    if (!c->cfg.seal) {
        h->beat = beat_read(a, bytes, &why);
        return h->beat ? h : NULL;
    }
    Hlod__Cluster__Body *b = seal_open(c->cfg.seal, a, bytes, &why);
    if (b && b->beat && !beat_fault(b->beat)) {
        b->beat->proved = seal_fits(b);
        b->beat->incompatible = !b->beat->proved;
        h->beat = b->beat;
    } else if (b && b->names)
        h->names = names_read(a, b->names, clock_wall_ns() / CLOCK_MS);
    else if (b && b->use && !use_fault(b->use))
        h->use = b->use;
    return h->beat || h->names || h->use ? h : NULL;
}
static void log_node(enum log_level level, const char *event, const Hlod__V1__Node *m) {
    log_event(level, event, "node=%s address=%s state=%s targets=%zu devices=%d", m->node,
              m->address, m->state, m->n_targets, (int)m->devices_up);
}
// Calls of the process that had that name until now are over, whatever TCP believes.
static void end_calls(struct cluster *c, const char *node) {
    if (c->attempts) attempts_lost(c->attempts, node);
    if (c->asks) asks_lost(c->asks, node);
    if (c->pull) pull_lost(c->pull, node);
    if (c->use) use_lost(c->use, node);
}
static void on_lost(void *ctx, const struct node *x) {
    log_node(LOG_WARN, "node.lost", x->m);
    end_calls(ctx, x->m->node);
}
static void on_age(void *arg) {
    struct cluster *c = arg;
    if (c->up) nodes_age(&c->nodes, clock_ns(), on_lost, c);
    loop_timer_start(c->age, c->cfg.beat_ms < 1000 ? c->cfg.beat_ms : 1000);
}
// Somebody else has our name, or says so.
static void doubled(struct cluster *c, const Hlod__V1__Node *m) {
    if (strcmp(c->conflict, m->address) != 0)
        log_event(LOG_WARN, "node.doubled",
                  "node=%s address=%s why=\"another process has this node's name (--node)\"",
                  m->node, m->address);
    struct strbuf b = strbuf_over(c->conflict, sizeof c->conflict);
    strbuf_puts(&b, m->address);
    c->conflict_ns = clock_ns();
}
static bool is_there(const struct node *x) {
    return x->m->proved && !x->lost && !x->gone;
}
static bool differ(void *ctx, uint64_t sum) {
    struct cluster *c = ctx;
    bool other = false;
    for (size_t k = 0; k < c->nodes.v.n; k++)
        other = other || (is_there(c->nodes.v.v[k]) && c->nodes.v.v[k]->m->names_sum != sum);
    return other;
}
// The others are to know that we know the same now.
static void on_names(void *ctx) {
    beat_in(ctx, GREET_MS);
}
static void compare_names(struct cluster *c, const struct node *x, bool fresh) {
    size_t n;
    if (c->names && is_there(x) && x->m->names_sum != models_sum(c->cfg.models, &n))
        names_look(c->names, fresh);
}
static void hear_beat(struct cluster *c, struct arena *a, const Hlod__V1__Node *m) {
    bool ours = !strcmp(m->life, c->life), name = !strcmp(m->node, c->cfg.node);
    c->heard += !ours;
    if (ours || name) {
        if (!ours && strcmp(m->state, "gone") != 0) doubled(c, m);
        arena_free(a);
        return;
    }

    enum nodes_news news = nodes_hear(&c->nodes, a, m, clock_ns()); // m may be gone now
    const struct node *x =
        news == NODES_FULL || news == NODES_STRANGER ? NULL : nodes_find(&c->nodes, m->node);
    if (!x)
        c->unknown++;
    else if (x->m->incompatible && (news == NODES_NEW || news == NODES_BACK))
        log_event(LOG_WARN, "node.incompatible",
                  "node=%s address=%s version=%s why=\"its version and this one (%s) do not work "
                  "together: nothing is sent to it or taken from it\"",
                  x->m->node, x->m->address, x->m->version, HLOD_VERSION);
    else if (news == NODES_NEW || news == NODES_BACK)
        log_node(LOG_INFO, "node.up", x->m);
    else if (news == NODES_GONE) {
        log_node(LOG_INFO, "node.gone", x->m);
        if (c->use) use_lost(c->use, x->m->node);
    } else if (news == NODES_STATE)
        log_node(LOG_INFO, "node.state", x->m);
    if (news == NODES_NEW) {
        beat_in(c, GREET_MS);
        end_calls(c, x->m->node);
    }
    if (x) compare_names(c, x, news == NODES_NEW || news == NODES_BACK);
}
static void on_message(void *ctx, struct arena *a, void *message) {
    struct cluster *c = ctx;
    const struct heard *h = message;
    if (h->beat) {
        hear_beat(c, a, h->beat);
        return;
    }
    if (h->record && c->registers)
        registers_hear(c->registers, h->record);
    else if (h->mail && c->tickets)
        tickets_hear(c->tickets, h->mail);
    else if (h->use && c->use)
        use_hear(c->use, h->use);
    else if (h->names && c->names)
        names_hear(c->names, h->names);
    arena_free(a);
}
static void on_state(void *ctx, bool up, const char *server, const char *why) {
    struct cluster *c = ctx;
    bool changed = up != c->up;
    struct strbuf b = strbuf_over(c->why, sizeof c->why);
    strbuf_puts(&b, why ? why : "");
    c->server = server;
    c->up = up;
    if (changed) c->since_ns = clock_ns();
    if (c->tickets) tickets_connected(c->tickets, up);
    if (c->use) use_connected(c->use, up);
    if (c->registers) registers_connected(c->registers, up);

    if (up) {
        c->connects++;
        c->said_down = false;
        log_event(LOG_INFO, "cluster.up", "cluster=%s server=%s", c->cfg.name, server);
        nodes_excuse(&c->nodes, clock_ns());
        beat_in(c, 0);
    } else if (!c->said_down) { // once, until it is there again
        c->said_down = true;
        log_event(LOG_WARN, "cluster.down",
                  "cluster=%s server=%s why=\"%s; this node serves alone\"", c->cfg.name, server,
                  c->why);
    }
}

// ---- life

bool cluster_name_fits(const char *name) {
    enum { NAME_MAX_ = 60 };
    size_t n = strnlen(name, NAME_MAX_ + 1);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_' && name[i] != '-') return false;
    return n > 0 && n <= NAME_MAX_;
}
static bool is_settled(const void *c) {
    return cluster_settled(c);
}
static void on_room(void *ctx) {
    const struct cluster *c = ctx;
    c->cfg.room(c->cfg.ctx);
}
// What those who share a secret do for each other.
static void share(struct cluster *c) {
    const struct cluster_config *cfg = &c->cfg;
    c->asks = asks_new(&(struct asks_config){.fetcher = cfg->fetcher,
                                             .auth = cfg->auth,
                                             .nodes = &c->nodes,
                                             .node = cfg->node,
                                             .seal = cfg->seal,
                                             .max_bytes = cfg->max_reply_bytes});
    c->names = names_new(&(struct names_config){.loop = cfg->loop,
                                                .models = cfg->models,
                                                .node = cfg->node,
                                                .beat_ms = cfg->beat_ms,
                                                .send = say_names,
                                                .differ = differ,
                                                .changed = on_names,
                                                .ctx = c});
    c->pull = pull_new(&(struct pull_config){.loop = cfg->loop,
                                             .fetcher = cfg->fetcher,
                                             .auth = cfg->auth,
                                             .cluster = c,
                                             .seal = cfg->seal,
                                             .store = cfg->store,
                                             .journal = cfg->journal,
                                             .max_bytes = cfg->max_model_bytes});

    c->forward = forward_new(&(struct forward_config){.asks = c->asks, .cluster = c});

    c->use = use_new(&(struct use_config){.tenants = cfg->tenants,
                                          .nodes = &c->nodes,
                                          .node = cfg->node,
                                          .life = c->life,
                                          .beat_ms = cfg->beat_ms,
                                          .send = say_use,
                                          .room = on_room,
                                          .ctx = c});
    c->tickets = tickets_new(&(struct tickets_config){.loop = cfg->loop,
                                                      .bus = c->bus,
                                                      .nodes = &c->nodes,
                                                      .seal = cfg->seal,
                                                      .name = cfg->name,
                                                      .node = cfg->node,
                                                      .life = c->life,
                                                      .beat_ms = cfg->beat_ms,
                                                      .replicas = cfg->nats_replicas,
                                                      .settled = is_settled,
                                                      .use = c->use,
                                                      .cluster = c});
    c->attempts = attempts_new(&(struct attempts_config){.asks = c->asks, .nodes = &c->nodes});
    if (cfg->records) // suites that move
        c->registers = registers_new(&(struct registers_config){.loop = cfg->loop,
                                                                .bus = c->bus,
                                                                .seal = cfg->seal,
                                                                .name = cfg->name,
                                                                .replicas = cfg->nats_replicas});
}
status_t cluster_new(const struct cluster_config *cfg, struct cluster **out) {
    uint8_t drawn[LIFE_BYTES];
    struct arena a = {0};
    int64_t quiet = NODES_BEATS * cfg->beat_ms;
    struct cluster *c = arena_must_calloc(1, sizeof *c);
    c->cfg = *cfg;
    c->start_ns = c->since_ns = clock_ns();
    c->next_ns = INT64_MAX;
    c->server = cfg->servers[0].url;
    if (getrandom(drawn, sizeof drawn, 0) != sizeof drawn) abort();
    str_put_hex(c->life, drawn, sizeof drawn);

    struct bus_config bc = {
        .loop = cfg->loop,
        .servers = cfg->servers,
        .n_servers = cfg->n_servers,
        .name = arena_printf(&a, "hlod %s", cfg->node),
        .subject = arena_printf(&a, "%s.v1.nodes", cfg->name),
        .inbox = cfg->seal ? arena_printf(&a, "%s.v1.inbox.%s", cfg->name, c->life) : "",
        .credentials = cfg->credentials,
        .ca = cfg->ca,
        .cert = cfg->cert,
        .key = cfg->key,
        .max_bytes = cfg->records ? 2 * SEAL_MAX_BYTES
                     : cfg->seal  ? SEAL_MAX_BYTES
                                  : BEAT_MAX_BYTES,
        .quiet_ms = quiet < QUIET_MS ? QUIET_MS : quiet,
        .read = read_message,
        .take = on_message,
        .state = on_state,
        .ctx = c};
    status_t st = bus_new(&bc, &c->bus);
    arena_done(&a);
    if (st) {
        free(c);
        return st;
    }

    c->beat = loop_timer_new(cfg->loop, on_beat, c);
    c->age = loop_timer_new(cfg->loop, on_age, c);
    beat_in(c, cfg->beat_ms);
    on_age(c);
    if (cfg->seal) share(c);
    *out = c;
    return ST_OK;
}
void cluster_leave(struct cluster *c) {
    if (c) tickets_leave(c->tickets);
    cluster_tell(c);
}
void cluster_stop(struct cluster *c) {
    if (!c || !c->beat) return;
    forward_stop(c->forward); // each ends what it asks for before
    attempts_stop(c->attempts);
    asks_stop(c->asks);
    registers_stop(c->registers);
    tickets_stop(c->tickets);
    names_stop(c->names);
    pull_stop(c->pull);
    use_stop(c->use);
    say(c, "gone");
    bus_stop(c->bus);
    loop_timer_free(c->beat);
    loop_timer_free(c->age);
    c->beat = c->age = NULL;
}
void cluster_free(struct cluster *c) {
    if (!c) return;
    bus_free(c->bus);
    names_free(c->names);
    pull_free(c->pull);
    forward_free(c->forward);
    tickets_free(c->tickets);
    attempts_free(c->attempts);
    use_free(c->use);
    asks_free(c->asks);
    registers_free(c->registers);
    nodes_done(&c->nodes);
    free(c);
}

// ---- what is told of it

bool cluster_connected(const struct cluster *c) {
    return c->up;
}
bool cluster_settled(const struct cluster *c) {
    return c->up && clock_ns() - c->since_ns > NODES_BEATS * CLOCK_MS * c->cfg.beat_ms;
}
struct forward *cluster_forward(const struct cluster *c) {
    return c->forward;
}
struct tickets *cluster_tickets(const struct cluster *c) {
    return c->tickets;
}
struct attempts *cluster_attempts(const struct cluster *c) {
    return c->attempts;
}
status_t cluster_take_job(const struct cluster *c, struct arena *a,
                          const Hlod__V1__RunJobRequest *q, Hlod__Cluster__Grant **out) {
    const char *why = "this server has no secret of a cluster";
    *out = c->cfg.seal ? attempt_grant(c->cfg.seal, a, q, c->life, &why) : NULL;
    if (!*out) return st_because(ST_UNAUTHENTICATED, BAD_CREDENTIALS, "grant: %s", why);
    if (tickets_claim(c->tickets, (*out)->offer, (*out)->home)) return ST_OK;
    return st_because(ST_UNAVAILABLE, QUEUE_FULL, "no place is offered to node %s", (*out)->home);
}
struct registers *cluster_registers(const struct cluster *c) {
    return c->registers;
}
struct asks *cluster_asks(const struct cluster *c) {
    return c->asks;
}
struct use *cluster_use(const struct cluster *c) {
    return c->use;
}
struct pull *cluster_pull(const struct cluster *c) {
    return c->pull;
}
status_t cluster_admit(const struct cluster *c, struct arena *a, const char *pass,
                       Hlod__Cluster__Pass **out) {
    if (c->cfg.seal) return seal_admit(c->cfg.seal, a, pass, c->life, out);
    return st_because(ST_UNAUTHENTICATED, BAD_CREDENTIALS,
                      "a pass of a node, and this one has no secret of a cluster "
                      "(--cluster-secret)");
}
const char *cluster_node(const struct cluster *c) {
    return c->cfg.node;
}
const struct nodes *cluster_nodes(const struct cluster *c) {
    return &c->nodes;
}
static bool in_conflict(const struct cluster *c) {
    return *c->conflict && clock_ns() - c->conflict_ns < NODES_BEATS * BEAT_MAX_MS * CLOCK_MS;
}
void cluster_describe(struct cluster *c, struct arena *a, Hlod__V1__ListNodesReply *out) {
    int64_t now = clock_ns();
    out->cluster = arena_strdup(a, c->cfg.name);
    out->state = (char *)(c->up ? "connected" : "connecting");
    out->server = arena_strdup(a, c->server);
    out->why = arena_strdup(a, c->why);
    out->seconds = (double)(now - c->since_ns) / 1e9;
    if (in_conflict(c)) out->conflict = arena_strdup(a, c->conflict);

    out->nodes = arena_zarray(a, Hlod__V1__Node *, c->nodes.v.n + 1);
    out->nodes[out->n_nodes] = ourselves(c, a);
    out->nodes[out->n_nodes]->proved = c->cfg.seal != NULL;
    out->nodes[out->n_nodes++]->self = true;
    for (size_t k = 0; k < c->nodes.v.n; k++) {
        const struct node *x = c->nodes.v.v[k];
        Hlod__V1__Node *m = arena_dup(a, x->m, sizeof *m); // the rest stays while the loop is here
        m->state = (char *)(uintptr_t)node_state(x);
        m->seconds = (double)(now - x->heard_ns) / 1e9;
        out->nodes[out->n_nodes++] = m;
    }
}

static void put(struct strbuf *b, const char *name, const char *type, const char *help, double v) {
    strbuf_printf(b, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, type, name, v);
}
void cluster_metrics(struct cluster *c, struct strbuf *b) {
    static const char *const states[] = {"serving", "starting", "draining",
                                         "lost",    "gone",     "incompatible"};
    put(b, "hlod_cluster_connected", "gauge", "0 while NATS is not reached", c->up);
    put(b, "hlod_cluster_connects_total", "counter", "connections made to NATS",
        (double)c->connects);
    put(b, "hlod_cluster_beats_total", "counter", "what other nodes told of themselves",
        (double)c->heard);
    put(b, "hlod_cluster_refused_total", "counter",
        "messages that were too long, not the cluster's, too many, or of more nodes than are kept",
        (double)(bus_refused(c->bus) + c->unknown));
    put(b, "hlod_cluster_conflict", "gauge", "1 while another process has this node's name",
        in_conflict(c));

    if (c->names) names_metrics(c->names, b);
    if (c->pull) pull_metrics(c->pull, b);
    if (c->forward) forward_metrics(c->forward, b);
    if (c->tickets) tickets_metrics(c->tickets, b);
    if (c->attempts) attempts_metrics(c->attempts, b);
    if (c->use) use_metrics(c->use, b);
    if (c->registers) registers_metrics(c->registers, b);
    const char *name = "hlod_cluster_nodes";
    strbuf_printf(b, "# HELP %s other nodes by state\n# TYPE %s gauge\n", name, name);
    for (size_t s = 0; s < sizeof states / sizeof *states; s++) {
        int n = 0;
        for (size_t k = 0; k < c->nodes.v.n; k++)
            n += !strcmp(node_state(c->nodes.v.v[k]), states[s]);
        strbuf_printf(b, "%s{state=\"%s\"} %d\n", name, states[s], n);
    }
}
