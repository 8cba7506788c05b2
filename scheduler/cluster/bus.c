// SPDX-License-Identifier: Apache-2.0
// One connection at a time, made, served and ended by the thread `cluster`; the library reconnects
// nothing, so that credentials are read, certificates looked at and servers chosen here alone.
//
//   loop: bus_publish, bus_send -> outbox -> thread: natsConnection_PublishMsg
//   thread: natsSubscription_NextMsg -> read -> inbox -> loop: take
//   thread: connected, lost, refused -> news -> loop: state
//
// The thread is the library's event loop, too: it waits for the socket and lets the library read
// and write. Left to its own threads, nats.c 3.4.1 reads and writes one TLS connection from two at
// the same time, which OpenSSL does not allow, and hangs (docs/decisions/0038). What that costs is
// calls that wait for an answer (requests, flush): here nobody would read it. Nothing calls into
// the loop but loop_post, and nothing that may wait is called from the loop.
#include "scheduler/cluster/bus.h"

#include <nats/nats.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/store/file.h"
#include "base/str.h"
#include "base/text.h"
#include "scheduler/loop.h"

enum { INBOX = 256, OUTBOX = 512, A_SECOND = 2000, WHY = 200 };
enum { CONNECT_MS = 2000, LAST_MS = 500, LOOK_MS = 1000, PING_MS = 3600000 };
enum { FIRST_PAUSE_MS = 250, LONGEST_PAUSE_MS = 5000, CLOSE_MS = 3000, JOIN_MS = 6000 };

struct message {
    struct message *next;
    struct arena *arena;
    void *read; // or a bus_letter, whose subject NULL is the shared one
};
struct queue { // the oldest first
    struct message *first, **last;
    int n;
};
struct bus {
    struct bus_config cfg;
    struct arena arena; // copies of its texts
    pthread_t thread;
    pthread_mutex_t lock;
    int wake, ended; // eventfds: there is something for the thread; it has ended
    // Under lock.
    bool stop, told; // told: the loop will look
    struct queue in, out;
    bool news, up;
    const char *server;
    char why[WHY];
    // The thread's.
    int64_t second_ns;
    int in_second;
    // The library's wishes, which it may tell from any thread of its.
    atomic_int socket; // -1: none
    atomic_bool reads, writes;
    atomic_llong refused;
};

static void push(struct queue *q, struct message *m) {
    if (!q->n++) q->last = &q->first;
    m->next = NULL;
    *q->last = m;
    q->last = &m->next;
}
static void drop_all(struct queue *q) {
    for (struct message *m = q->first, *next; q->n; m = next, q->n--) {
        next = m->next;
        arena_free(m->arena);
        free(m);
    }
}

// ---- to the loop

static void on_loop(void *arg) {
    struct bus *b = arg;
    char why[WHY];
    pthread_mutex_lock(&b->lock);
    b->told = false;
    struct queue in = b->in;
    bool news = b->news, up = b->up, stop = b->stop;
    const char *server = b->server;
    memcpy(why, b->why, sizeof why);
    b->in = (struct queue){0};
    b->news = false;
    pthread_mutex_unlock(&b->lock);

    if (news && !stop) b->cfg.state(b->cfg.ctx, up, server, up ? NULL : why);
    for (struct message *m = in.first, *next; in.n && !stop; m = next) {
        next = m->next;
        b->cfg.take(b->cfg.ctx, m->arena, m->read);
        free(m);
        in.n--;
        in.first = next;
    }
    drop_all(&in);
}
static void tell(struct bus *b) { // under lock
    if (!b->told && !b->stop) loop_post(b->cfg.loop, on_loop, b);
    b->told = true;
}
static void tell_state(struct bus *b, const struct bus_server *s, const char *why) {
    pthread_mutex_lock(&b->lock);
    struct strbuf text = strbuf_over(b->why, sizeof b->why);
    text_show(&text, str_of(why ? why : ""), ""); // may hold what the server said
    b->up = !why;
    b->server = s->url;
    b->news = true;
    tell(b);
    pthread_mutex_unlock(&b->lock);
}

// ---- messages

// No more than A_SECOND in one: each is a look of the loop at it.
static bool admit(struct bus *b) {
    int64_t now = clock_ns();
    if (now - b->second_ns > 1000 * CLOCK_MS) {
        b->second_ns = now;
        b->in_second = 0;
    }
    return b->in_second++ < A_SECOND;
}
static struct bus_mail mail_of(const struct bus *b, natsMsg *msg, bool inbox) {
    struct bus_mail m = {.reply = natsMsg_GetReply(msg)};
    const char *status = NULL, *subject = natsMsg_GetSubject(msg);
    m.bytes =
        (struct span){(const uint8_t *)natsMsg_GetData(msg), (size_t)natsMsg_GetDataLength(msg)};
    if (!m.reply) m.reply = "";
    if (!inbox) return m;
    size_t own = strlen(b->cfg.inbox) + 1;
    m.at = strncmp(subject, b->cfg.inbox, own - 1) != 0 ? subject : subject + own;
    if (!m.bytes.n && natsMsgHeader_Get(msg, "Status", &status) == NATS_OK && status)
        m.status = (int)strtol(status, NULL, 10);
    return m;
}
static void hear(struct bus *b, natsMsg *msg, bool inbox) { // takes it; NULL: nobody is there
    struct bus_mail mail = {.at = "", .reply = "", .status = BUS_NOBODY};
    struct arena *a = arena_new();
    if (msg) mail = mail_of(b, msg, inbox);
    bool fits = mail.bytes.n <= b->cfg.max_bytes && admit(b);
    void *read = fits ? b->cfg.read(b->cfg.ctx, a, &mail) : NULL;
    natsMsg_Destroy(msg);
    struct message *m = arena_must_calloc(1, sizeof *m);
    *m = (struct message){.arena = a, .read = read};

    pthread_mutex_lock(&b->lock);
    bool taken = read && b->in.n < INBOX && !b->stop;
    if (taken) {
        push(&b->in, m);
        tell(b);
    }
    pthread_mutex_unlock(&b->lock);
    if (taken) return;
    atomic_fetch_add_explicit(&b->refused, 1, memory_order_relaxed);
    arena_free(a);
    free(m);
}

// ---- the library's event loop

static void ring(int fd) {
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one); // full: it has rung
    (void)n;
}
static void wake(struct bus *b) {
    ring(b->wake);
}
static natsStatus on_attach(void **out, void *loop, UNUSED natsConnection *nc, natsSock socket) {
    struct bus *b = *out = loop;
    atomic_store(&b->socket, socket);
    atomic_store(&b->reads, true);
    atomic_store(&b->writes, false);
    return NATS_OK;
}
static natsStatus on_read(void *ctx, bool add) {
    struct bus *b = ctx;
    atomic_store(&b->reads, add);
    wake(b);
    return NATS_OK;
}
static natsStatus on_write(void *ctx, bool add) {
    struct bus *b = ctx;
    atomic_store(&b->writes, add);
    wake(b);
    return NATS_OK;
}
static natsStatus on_detach(void *ctx) {
    struct bus *b = ctx;
    atomic_store(&b->socket, -1);
    return NATS_OK;
}
// Waits for the socket or a wake, and lets the library do what it can.
static void turn(struct bus *b, natsConnection *nc, int64_t ms) {
    uint64_t n;
    int fd = nc ? atomic_load(&b->socket) : -1;
    short events =
        (short)((atomic_load(&b->reads) ? POLLIN : 0) | (atomic_load(&b->writes) ? POLLOUT : 0));
    struct pollfd all[] = {{.fd = b->wake, .events = POLLIN}, {.fd = fd, .events = events}};
    if (poll(all, 2, (int)ms) <= 0) return;
    if (all[0].revents && read(b->wake, &n, sizeof n) < 0) return;
    if (fd < 0) return;
    if (all[1].revents & POLLOUT) natsConnection_ProcessWriteEvent(nc);
    if (all[1].revents & ~POLLOUT) natsConnection_ProcessReadEvent(nc);
}
// Without one the library prints.
static void on_error(UNUSED natsConnection *nc, UNUSED natsSubscription *sub, natsStatus s,
                     void *ctx) {
    struct bus *b = ctx;
    if (s == NATS_SLOW_CONSUMER) atomic_fetch_add_explicit(&b->refused, 1, memory_order_relaxed);
}

// ---- a connection, on the thread

// The library's text of an error may have its own place in front, and say no more than the status.
MUST_CHECK static status_t wrap(natsStatus s, const char *what) {
    natsStatus last;
    if (s == NATS_OK) return ST_OK;
    const char *text = natsStatus_GetText(s), *more = nats_GetLastError(&last);
    const char *place = more && *more == '(' ? strstr(more, "): ") : NULL;
    if (place) more = place + 3;
    bool says = more && *more && strcmp(more, text) != 0;
    return st_new(ST_UNAVAILABLE, "%s: %s%s%.120s", what, text, says ? ": " : "", says ? more : "");
}
// A file of credentials, or its one line.
MUST_CHECK static status_t identify(const struct bus *b, natsOptions *o, struct arena *a) {
    struct str text, user;
    const char *path = b->cfg.credentials;
    if (!*path) return ST_OK;
    RETURN_IF_ERR(file_read_secret(a, path, 64 << 10, &text));
    if (strstr(text.p, "BEGIN NATS USER JWT"))
        return wrap(natsOptions_SetUserCredentialsFromFiles(o, path, NULL), path);
    text = str_trim(text);
    if (!text.n || memchr(text.p, '\n', text.n))
        return st_invalid("%s: expected credentials, or one line, USER:PASSWORD or a token", path);

    const char *token = arena_strndup(a, text.p, text.n);
    if (!memchr(text.p, ':', text.n)) return wrap(natsOptions_SetToken(o, token), path);
    str_cut(&text, ':', &user);
    return wrap(natsOptions_SetUserInfo(o, arena_strndup(a, user.p, user.n),
                                        arena_strndup(a, text.p, text.n)),
                path);
}
MUST_CHECK static status_t encrypt(const struct bus *b, natsOptions *o,
                                   const struct bus_server *x) {
    if (!x->tls) return ST_OK;
    RETURN_IF_ERR(wrap(natsOptions_SetSecure(o, true), "TLS"));
    RETURN_IF_ERR(wrap(natsOptions_SetExpectedHostname(o, x->host), x->host));
    if (*b->cfg.ca)
        RETURN_IF_ERR(wrap(natsOptions_LoadCATrustedCertificates(o, b->cfg.ca), b->cfg.ca));
    if (*b->cfg.cert)
        RETURN_IF_ERR(
            wrap(natsOptions_LoadCertificatesChain(o, b->cfg.cert, b->cfg.key), b->cfg.cert));
    return ST_OK;
}
MUST_CHECK static status_t configure(struct bus *b, natsOptions *o, const struct bus_server *x) {
    natsStatus s = natsOptions_SetURL(o, x->url);
    if (s == NATS_OK) s = natsOptions_SetName(o, b->cfg.name);
    if (s == NATS_OK) s = natsOptions_SetTimeout(o, CONNECT_MS);
    if (s == NATS_OK) s = natsOptions_SetPingInterval(o, PING_MS); // serve() looks itself
    if (s == NATS_OK) s = natsOptions_SetAllowReconnect(o, false);
    if (s == NATS_OK) s = natsOptions_SetSendAsap(o, true);
    if (s == NATS_OK) s = natsOptions_SetMaxPendingMsgs(o, INBOX);
    if (s == NATS_OK) s = natsOptions_SetEventLoop(o, b, on_attach, on_read, on_write, on_detach);
    if (s == NATS_OK) s = natsOptions_SetErrorHandler(o, on_error, b);
    return wrap(s, x->url);
}
struct subscribed {
    natsSubscription *shared, *inbox;
};
static void hang_up(natsConnection *nc, const struct subscribed *sub) {
    natsSubscription_Destroy(sub->shared);
    natsSubscription_Destroy(sub->inbox);
    natsConnection_Destroy(nc);
}
MUST_CHECK static status_t connect_to(struct bus *b, const struct bus_server *x,
                                      natsConnection **out, struct subscribed *sub) {
    struct arena a = {0};
    natsOptions *o = NULL;
    const char *inbox = arena_printf(&a, "%s.>", b->cfg.inbox);
    *out = NULL;
    *sub = (struct subscribed){0};
    status_t st = wrap(natsOptions_Create(&o), "NATS");
    if (!st) st = configure(b, o, x);
    if (!st) st = identify(b, o, &a);
    if (!st) st = encrypt(b, o, x);
    if (!st) st = wrap(natsConnection_Connect(out, o), x->url);
    if (!st)
        st = wrap(natsConnection_SubscribeSync(&sub->shared, *out, b->cfg.subject), b->cfg.subject);
    if (!st && *b->cfg.inbox)
        st = wrap(natsConnection_SubscribeSync(&sub->inbox, *out, inbox), inbox);
    // By itself the library drops what makes more than INBOX KiB wait, one long message too.
    int room = INBOX * 1024 + 4 * (int)b->cfg.max_bytes;
    if (!st && sub->inbox)
        st = wrap(natsSubscription_SetPendingLimits(sub->inbox, INBOX, room), inbox);
    natsOptions_Destroy(o);
    arena_done(&a);
    if (st) hang_up(*out, sub);
    return st;
}

static bool stopping(struct bus *b) {
    pthread_mutex_lock(&b->lock);
    bool stop = b->stop;
    pthread_mutex_unlock(&b->lock);
    return stop;
}
static void rest(struct bus *b, int64_t ms) {
    int64_t until = clock_ns() + ms * CLOCK_MS;
    while (!stopping(b) && clock_ns() < until)
        turn(b, NULL, clock_ms_left(until));
    pthread_mutex_lock(&b->lock);
    drop_all(&b->out); // of before
    pthread_mutex_unlock(&b->lock);
}

static void publish(struct bus *b, natsConnection *nc, const struct bus_letter *x) {
    natsMsg *msg = NULL;
    const char *subject = x->subject ? x->subject : b->cfg.subject;
    natsStatus s =
        natsMsg_Create(&msg, subject, x->reply, (const char *)x->bytes.p, (int)x->bytes.n);
    if (s == NATS_OK && x->id) s = natsMsgHeader_Set(msg, "Nats-Msg-Id", x->id);
    if (s == NATS_OK && x->expect) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)(x->expect - 1));
        s = natsMsgHeader_Set(msg, "Nats-Expected-Last-Subject-Sequence", number);
    }
    if (s == NATS_OK) natsConnection_PublishMsg(nc, msg); // or it is closed
    natsMsg_Destroy(msg);
}
// False: the bus stops.
static bool publish_all(struct bus *b, natsConnection *nc) {
    pthread_mutex_lock(&b->lock);
    struct queue out = b->out;
    b->out = (struct queue){0};
    bool stop = b->stop;
    pthread_mutex_unlock(&b->lock);
    struct message *m = out.first;
    for (int k = 0; k < out.n; k++, m = m->next)
        publish(b, nc, m->read);
    drop_all(&out);
    return !stop;
}
// Until the connection has ended or the bus stops; why it ended. What is published comes back from
// the server: where nothing comes for quiet_ms, the server or the way to it is no use any more,
// whatever TCP believes.
static const char *serve(struct bus *b, natsConnection *nc, const struct subscribed *sub) {
    int64_t heard_ns = clock_ns();
    natsMsg *msg;
    while (publish_all(b, nc)) {
        turn(b, nc, LOOK_MS);
        while (natsSubscription_NextMsg(&msg, sub->shared, 0) == NATS_OK) {
            heard_ns = clock_ns();
            hear(b, msg, false);
        }
        for (natsStatus s = NATS_OK; sub->inbox;) {
            s = natsSubscription_NextMsg(&msg, sub->inbox, 0);
            if (s != NATS_OK && s != NATS_NO_RESPONDERS) break;
            hear(b, s == NATS_OK ? msg : NULL, true);
        }
        if (natsConnection_IsClosed(nc)) return "the connection ended";
        if (clock_ns() - heard_ns > b->cfg.quiet_ms * CLOCK_MS)
            return "what this node publishes does not come back: the server hangs, or does not "
                   "let it publish and subscribe";
    }
    for (int64_t until = clock_ns() + LAST_MS * CLOCK_MS;
         atomic_load(&b->writes) && !natsConnection_IsClosed(nc) && clock_ns() < until;)
        turn(b, nc, clock_ms_left(until));
    return "it stops";
}
// Every signal is the main thread's.
static void block_signals(void) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
}
static void *work(void *arg) {
    struct bus *b = arg;
    int64_t pause_ms = FIRST_PAUSE_MS;
    block_signals(); // of the library's threads, too
    nats_Open(-1);
    for (size_t k = 0; !stopping(b); k = (k + 1) % b->cfg.n_servers) {
        const struct bus_server *x = &b->cfg.servers[k];
        natsConnection *nc;
        struct subscribed sub;
        status_t st = connect_to(b, x, &nc, &sub);
        bool met = !st;
        if (met) {
            tell_state(b, x, NULL);
            st = st_new(ST_UNAVAILABLE, "%s: %s", x->url, serve(b, nc, &sub));
            hang_up(nc, &sub);
            pause_ms = FIRST_PAUSE_MS;
        }
        tell_state(b, x, st_message(st));
        st_drop(st);
        if (!met && k + 1 < b->cfg.n_servers) continue;
        rest(b, pause_ms);
        if (!met) pause_ms = pause_ms * 2 < LONGEST_PAUSE_MS ? pause_ms * 2 : LONGEST_PAUSE_MS;
    }
    nats_CloseAndWait(CLOSE_MS);
    ring(b->ended);
    return NULL;
}

// ---- life, and what the loop asks for

static void copy_texts(struct bus *b) {
    struct bus_config *c = &b->cfg;
    struct arena *a = &b->arena;
    struct bus_server *all = arena_zarray(a, struct bus_server, c->n_servers);
    for (size_t k = 0; k < c->n_servers; k++)
        all[k] = (struct bus_server){arena_strdup(a, c->servers[k].url),
                                     arena_strdup(a, c->servers[k].host), c->servers[k].tls,
                                     c->servers[k].loopback};
    c->servers = all;
    const char **texts[] = {&c->name, &c->subject, &c->inbox, &c->credentials,
                            &c->ca,   &c->cert,    &c->key};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        *texts[k] = arena_strdup(a, *texts[k]);
}
static void destroy(struct bus *b) {
    drop_all(&b->in);
    drop_all(&b->out);
    if (b->wake >= 0) close(b->wake);
    if (b->ended >= 0) close(b->ended);
    pthread_mutex_destroy(&b->lock);
    arena_done(&b->arena);
    free(b);
}
// At the process' end the library frees OpenSSL's list of compression methods, and OpenSSL does so
// again. TLS uses none of them: there is no list.
static void drop_compression(void) {
    if (SSL_COMP_get_compression_methods())
        sk_SSL_COMP_free(SSL_COMP_set0_compression_methods(NULL));
}
status_t bus_new(const struct bus_config *cfg, struct bus **out) {
    struct bus *b = arena_must_calloc(1, sizeof *b);
    b->cfg = *cfg;
    copy_texts(b);
    drop_compression();
    pthread_mutex_init(&b->lock, NULL);
    b->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    b->ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    b->socket = -1;
    if (b->wake >= 0 && b->ended >= 0 && !pthread_create(&b->thread, NULL, work, b)) {
        *out = b;
        return ST_OK;
    }
    destroy(b);
    return st_exhausted("cannot start a thread for the cluster");
}
void bus_send(struct bus *b, const struct bus_letter *x) {
    struct arena *a = arena_new();
    struct bus_letter *own = arena_new_of(a, struct bus_letter);
    struct message *m = arena_must_calloc(1, sizeof *m);
    *own = (struct bus_letter){
        .subject = x->subject ? arena_strdup(a, x->subject) : NULL,
        .reply =
            x->reply && *x->reply == '.' ? arena_printf(a, "%s%s", b->cfg.inbox, x->reply) : NULL,
        .id = x->id ? arena_strdup(a, x->id) : NULL,
        .expect = x->expect,
        .bytes = {x->bytes.n ? arena_dup(a, x->bytes.p, x->bytes.n) : NULL, x->bytes.n}};
    *m = (struct message){.arena = a, .read = own};
    pthread_mutex_lock(&b->lock);
    bool room = b->up && b->out.n < OUTBOX;
    if (room) push(&b->out, m);
    pthread_mutex_unlock(&b->lock);
    if (room) {
        wake(b);
        return;
    }
    arena_free(a);
    free(m);
}
void bus_publish(struct bus *b, struct span bytes) {
    bus_send(b, &(struct bus_letter){.bytes = bytes});
}
int64_t bus_refused(const struct bus *b) {
    return atomic_load_explicit(&b->refused, memory_order_relaxed);
}
void bus_stop(struct bus *b) {
    if (!b) return;
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    pthread_mutex_unlock(&b->lock);
    wake(b);
}
// A thread that a resolver holds is left to the process' end, with what it uses.
void bus_free(struct bus *b) {
    if (!b) return;
    struct pollfd ended = {.fd = b->ended, .events = POLLIN};
    if (poll(&ended, 1, JOIN_MS) != 1) return;
    pthread_join(b->thread, NULL);
    destroy(b);
}
