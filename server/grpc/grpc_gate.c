// SPDX-License-Identifier: Apache-2.0
// Five functions of the C library stand here before glibc's, in every library of the process (as
// server/tls.c's and reserve.c's do): listen, accept4, epoll_ctl, recvmsg, close. All of them do
// glibc's work where a descriptor is not the gate's.
//
// Who must wait is told EAGAIN, and the library waits for the descriptor to become readable, by
// edges. To let it look again we set its epoll event anew, which makes the kernel report it.
#include "server/grpc/grpc_gate.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/metrics.h"
#include "server/grpc/grpc_head.h"

// A client's first call takes some hundred bytes, a TLS handshake up to 3 KiB.
enum { TURN_BYTES = 4 << 10, SHARE_BYTES = 2 << 10, FIRST_BYTES = 8 << 10 };
// What an admitted connection reads at a time, from the least on, twice as much each time.
enum { LEAST_BYTES = 1 << 10, MOST_BYTES = 1 << 20 };
enum { RELEASES = 4 }; // admitted connections that read next, at a time
// Between turns as long as the last one took, but not longer than this.
enum { PAUSE_NS = 10 * 1000 * 1000 };
// So many connections come in a turn; many more do whose client has gone, which cost little.
enum { TURN_ACCEPTS = 32, GONE_ACCEPTS = 256 };
enum { SLACK = 16 }; // connections that were told to end and have not yet
enum { MAX_FDS = 1 << 17, MAX_LISTENERS = 16, BUCKETS = 1024, PIECES = 16 };

enum kind { STRANGE, ADMITTED, KINDS };
// Strangers that wait: who has read little and may be about to show who it is, and who has not.
enum { NEW, OLD, VOUCHED, QUEUES };
struct address { // of IPv4 in its mapped form; of IPv6 the network: one's own has 2^64 addresses
    uint8_t key[16];
    struct address *next; // in its bucket
    int n;                // connections
    struct queue {
        struct conn *first, **end;
    } held[QUEUES];
    unsigned turns;
    struct address *ring[KINDS]; // the next one of which some are held
    bool in_ring[KINDS];
};
struct watch { // how the library waits for a descriptor
    int fd, epoll;
    struct epoll_event event;
};
struct conn {
    struct watch watch;
    struct address *of;
    uint8_t address[16];
    uint16_t port;
    struct conn *next; // in its bucket, by port
    struct conn *held_next;
    struct queue *held_in; // NULL: it does not wait
    size_t share;          // that it may read; promised in `epoch`, else void
    uint64_t epoch;
    size_t used; // of its bytes in `turn`
    uint64_t turn, bytes, number;
    struct grpc_head head; // of the call that it sends
    bool ending;
    int calls; // admitted
    atomic_bool admitted;
    atomic_size_t most; // that it reads at a time, once it is admitted
};
static struct {
    pthread_mutex_t lock;
    pid_t process; // a child between fork and exec closes what it likes
    atomic_bool on, holds;
    atomic_bool shut, over; // nothing is read any more; all connections have ended
    struct gate_config cfg;
    struct watch listeners[MAX_LISTENERS];
    atomic_int n_listeners;
    bool listeners_wait;
    atomic_bool full; // no descriptors were left
    int64_t full_ns;  // since then
    int accepts;      // left in this turn
    _Atomic(struct conn *) of_fd[MAX_FDS];
    struct conn *by_port[BUCKETS];
    struct address *addresses[BUCKETS];
    struct {
        struct address *first, **end;
    } ring[KINDS];
    struct conn *last; // admitted, that read last
    atomic_int n_strange;
    int n, n_ending;
    uint64_t turn, count;
    size_t left, promised; // of the turn's bytes: to nobody yet; to some who have not read them yet
    uint64_t epoch;
    int64_t epoch_ns;
    atomic_bool in_turn; // strangers have read since it was last seen that all calls were taken
    int64_t turn_ns, next_ns; // when they did first; before then they do not again
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local bool listening;
static _Thread_local bool (*others_full)(int door, int why);

// ---- glibc's own

enum own { LISTEN, ACCEPT4, EPOLL_CTL, RECVMSG, CLOSE, N_OWN };
typedef void (*function)(void);
static function own(enum own which) {
    static const char *const names[] = {"listen", "accept4", "epoll_ctl", "recvmsg", "close"};
    static _Atomic(function) found[N_OWN];
    function f = atomic_load_explicit(&found[which], memory_order_acquire);
    if (f) return f;
    void *p = dlsym(RTLD_NEXT, names[which]);
    if (!p) abort();
    memcpy(&f, &p, sizeof f);
    atomic_store_explicit(&found[which], f, memory_order_release);
    return f;
}
static int own_close(int fd) {
    return ((int (*)(int))own(CLOSE))(fd);
}
static int own_epoll_ctl(int epoll, int op, int fd, struct epoll_event *e) {
    return ((int (*)(int, int, int, struct epoll_event *))own(EPOLL_CTL))(epoll, op, fd, e);
}
static ssize_t own_recvmsg(int fd, struct msghdr *m, int flags) {
    return ((ssize_t(*)(int, struct msghdr *, int))own(RECVMSG))(fd, m, flags);
}

// ---- addresses

static void network_of(const uint8_t address[16], uint8_t out[16]) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    memcpy(out, address, 16);
    if (memcmp(address, mapped, 12) != 0) memset(out + 8, 0, 8);
}
static struct address **place_of(const uint8_t key[16]) {
    struct address **p = &gate.addresses[hash64(key, 16, 0) % BUCKETS];
    while (*p && memcmp((*p)->key, key, 16) != 0)
        p = &(*p)->next;
    return p;
}
static void map_v4(struct in_addr a, uint8_t out[16]) {
    memset(out, 0, 10);
    memset(out + 10, 0xff, 2);
    memcpy(out + 12, &a, 4);
}
static bool peer_of(int fd, uint8_t address[16], uint16_t *port) {
    struct sockaddr_storage s;
    socklen_t n = sizeof s;
    if (getpeername(fd, (struct sockaddr *)&s, &n)) return false;
    const struct sockaddr_in *v4 = (const void *)&s;
    const struct sockaddr_in6 *v6 = (const void *)&s;
    if (s.ss_family == AF_INET)
        map_v4(v4->sin_addr, address);
    else if (s.ss_family == AF_INET6)
        memcpy(address, &v6->sin6_addr, 16);
    else
        return false;
    *port = ntohs(s.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
    return true;
}
// "ipv4:127.0.0.1:80", "ipv6:[::1]:80", the brackets and a zone's % as in URIs.
static bool parse_peer(const char *peer, uint8_t address[16], uint16_t *port) {
    char host[INET6_ADDRSTRLEN + 1];
    const char *p = strchr(peer, ':'), *end = strrchr(peer, ':');
    size_t n = 0;
    if (!p || p == end) return false;
    for (p++; p < end; p++) {
        bool coded = *p == '%' && end - p > 2;
        if (coded && !strncmp(p, "%25", 3)) break; // the zone
        if (!coded && *p != '[' && *p != ']') {
            if (n + 1 >= sizeof host) return false;
            host[n++] = *p;
        }
        if (coded) p += 2;
    }
    host[n] = 0;
    *port = (uint16_t)strtoul(end + 1, NULL, 10);
    struct in_addr v4;
    if (inet_pton(AF_INET6, host, address) == 1) return true;
    if (inet_pton(AF_INET, host, &v4) != 1) return false;
    map_v4(v4, address);
    return true;
}

// ---- who waits. With the lock

static void enter_ring(struct address *a, enum kind k) {
    if (a->in_ring[k]) return;
    a->in_ring[k] = true;
    a->ring[k] = NULL;
    *gate.ring[k].end = a;
    gate.ring[k].end = &a->ring[k];
}
static void out_of_ring(struct address *a, enum kind k) {
    struct address **p = &gate.ring[k].first;
    if (!a->in_ring[k]) return;
    while (*p != a)
        p = &(*p)->ring[k];
    *p = a->ring[k];
    if (!*p) gate.ring[k].end = p;
    a->in_ring[k] = false;
}
static void say_held(void) {
    if (!atomic_exchange(&gate.holds, true) && gate.cfg.held) gate.cfg.held(gate.cfg.ctx);
}
// Those who wait may be next as soon as those before them have read.
static void say_over(void) {
    bool waits = gate.ring[STRANGE].first ? !gate.promised : gate.listeners_wait;
    if (waits && gate.cfg.held) gate.cfg.held(gate.cfg.ctx);
}
static void hold(struct conn *c, int in) {
    if (c->held_in) return;
    struct queue *q = &c->of->held[in];
    c->held_in = q;
    c->held_next = NULL;
    *q->end = c;
    q->end = &c->held_next;
    enter_ring(c->of, in == VOUCHED ? ADMITTED : STRANGE);
    say_held();
}
static void drop_held(struct conn *c) {
    struct queue *q = c->held_in;
    if (!q) return;
    struct conn **p = &q->first;
    while (*p != c)
        p = &(*p)->held_next;
    *p = c->held_next;
    if (!*p) q->end = p;
    c->held_in = NULL;
}
// The next one of an address; the older ones now and then. NULL: they have gone.
static struct conn *next_of(struct address *a, enum kind k) {
    int in = VOUCHED;
    if (k == STRANGE) in = !a->held[NEW].first || (++a->turns % 4 == 0 && a->held[OLD].first);
    struct conn *c = a->held[in].first;
    if (c) drop_held(c);
    return c;
}
// The next one of the next address; NULL: nobody waits.
static struct conn *next_held(enum kind k) {
    struct conn *c = NULL;
    for (struct address *a; !c && (a = gate.ring[k].first);) {
        out_of_ring(a, k);
        c = next_of(a, k);
        bool more = k == ADMITTED ? a->held[VOUCHED].first != NULL
                                  : a->held[NEW].first || a->held[OLD].first;
        if (more) enter_ring(a, k);
    }
    return c;
}
static void look_again(struct watch *w) {
    if (w->epoll >= 0) own_epoll_ctl(w->epoll, EPOLL_CTL_MOD, w->fd, &w->event);
}
static void accept_again(void) {
    gate.listeners_wait = false;
    atomic_store(&gate.full, false);
    for (int i = 0; i < atomic_load(&gate.n_listeners); i++)
        look_again(&gate.listeners[i]);
}
// A connection may be accepted a moment before the kernel says that it is established.
static bool client_has_gone(int fd) {
    struct tcp_info i;
    socklen_t n = sizeof i;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &n)) return false;
    return i.tcpi_state != TCP_ESTABLISHED && i.tcpi_state != TCP_SYN_RECV;
}
static bool has_bytes(const struct conn *c) {
    int n = 0;
    return ioctl(c->watch.fd, FIONREAD, &n) || n > 0;
}
static bool take_share(struct conn *c) {
    if (c->turn != gate.turn) c->used = 0;
    c->turn = gate.turn;
    size_t n = SHARE_BYTES - c->used;
    if (n > gate.left) n = gate.left;
    gate.left -= n;
    gate.promised += n;
    c->share = n;
    c->epoch = gate.epoch;
    return n;
}
static bool has_share(const struct conn *c) {
    return c->share && c->epoch == gate.epoch;
}
static void give_back_share(struct conn *c) {
    if (!has_share(c)) return;
    gate.left += c->share;
    gate.promised -= c->share;
    c->share = 0;
}
// A promise that was not taken up (the library reads of others first, or not at all) lasts so long.
enum { EPOCH_NS = 100 * 1000 * 1000 };
// Where no descriptor was left, one may be free by now, closed by who does not come by here.
enum { FULL_NS = 20 * 1000 * 1000 };
static void next_turn(void) {
    int64_t now = clock_ns();
    if (now - gate.epoch_ns > EPOCH_NS) {
        gate.epoch++;
        gate.epoch_ns = now;
        gate.promised = 0;
    }
    gate.left = TURN_BYTES - gate.promised;
    gate.turn++;
    for (struct conn *c; gate.left && (c = next_held(STRANGE));) {
        // Where there is nothing to read, what comes will wake the library by itself.
        if (!client_has_gone(c->watch.fd) && has_bytes(c)) take_share(c);
        look_again(&c->watch);
    }
    gate.accepts = TURN_ACCEPTS;
    bool full = atomic_load(&gate.full) && now - gate.full_ns < FULL_NS;
    if (gate.listeners_wait && gate.n_ending < SLACK && !full) accept_again();
}
// Nanoseconds until strangers may read again: they have as much of the time as they leave.
static int64_t pause_left(void) {
    int64_t now = clock_ns(), took = now - gate.turn_ns;
    if (atomic_exchange(&gate.in_turn, false))
        gate.next_ns = now + (took < PAUSE_NS ? took : PAUSE_NS);
    return gate.next_ns > now ? gate.next_ns - now : 0;
}
static void release_admitted(int n) {
    for (struct conn *c; n > 0 && (c = next_held(ADMITTED)); n--)
        look_again(&c->watch);
}
static void open_wide(void) {
    release_admitted(INT_MAX);
    for (struct conn *c; (c = next_held(STRANGE));)
        look_again(&c->watch);
    accept_again();
    atomic_store(&gate.holds, false);
}

// ---- connections

static bool is_worse(const struct conn *c, const struct conn *than) {
    if (!than || c->of->n != than->of->n) return !than || c->of->n > than->of->n;
    bool much = c->bytes > FIRST_BYTES, than_much = than->bytes > FIRST_BYTES;
    return much != than_much ? much : c->number < than->number;
}
// Makes a place by ending a strange connection of the address that has most: one that has read much
// or is there longest. False: there is none.
static bool end_another(void) {
    struct conn *worst = NULL;
    for (int i = 0; i < BUCKETS; i++)
        for (struct conn *c = gate.by_port[i]; c; c = c->next)
            if (!c->ending && !atomic_load(&c->admitted) && is_worse(c, worst)) worst = c;
    if (!worst) return false;
    worst->ending = true;
    gate.n_ending++;
    give_back_share(worst);
    drop_held(worst);
    shutdown(worst->watch.fd, SHUT_RDWR); // the library sees the end of it
    return true;
}
static bool has_place(const struct address *a) {
    int most = gate.cfg.max_per_address;
    if (a && most && a->n >= most) return false;
    most = gate.cfg.max_connections;
    return !most || gate.n - gate.n_ending < most || end_another();
}
static struct address *make_address(const uint8_t key[16]) {
    struct address **p = place_of(key), *a = *p ? *p : calloc(1, sizeof *a);
    if (*p || !a) return a;
    memcpy(a->key, key, 16);
    for (int i = 0; i < QUEUES; i++)
        a->held[i].end = &a->held[i].first;
    return *p = a;
}
// False: too many.
static bool enter(int fd) {
    struct conn *c = fd < MAX_FDS ? calloc(1, sizeof *c) : NULL;
    uint8_t network[16];
    if (!c || !peer_of(fd, c->address, &c->port)) {
        free(c);
        return false;
    }

    network_of(c->address, network);
    pthread_mutex_lock(&gate.lock);
    gate.accepts--;
    c->of = has_place(*place_of(network)) ? make_address(network) : NULL;
    if (c->of) {
        struct conn **q = &gate.by_port[c->port % BUCKETS];
        c->of->n++;
        gate.n++;
        atomic_fetch_add(&gate.n_strange, 1);
        c->watch = (struct watch){.fd = fd, .epoll = -1};
        atomic_store(&c->most, LEAST_BYTES);
        c->number = ++gate.count;
        c->next = *q;
        *q = c;
        atomic_store(&gate.of_fd[fd], c);
    }
    pthread_mutex_unlock(&gate.lock);

    if (c->of) {
        metric_add(M_GRPC_CONNECTIONS, 1);
        return true;
    }
    metric_add(M_GRPC_REFUSED, 1);
    free(c);
    return false;
}
static void forget_address(struct address *a) {
    if (a->n) return;
    for (int k = 0; k < KINDS; k++)
        out_of_ring(a, (enum kind)k);
    struct address **p = place_of(a->key);
    *p = a->next;
    free(a);
}
static void leave(int fd) {
    pthread_mutex_lock(&gate.lock);
    struct conn *c = atomic_exchange(&gate.of_fd[fd], NULL);
    if (c) {
        drop_held(c);
        struct conn **p = &gate.by_port[c->port % BUCKETS];
        while (*p != c)
            p = &(*p)->next;
        *p = c->next;
        give_back_share(c);
        if (!atomic_load(&c->admitted)) atomic_fetch_sub(&gate.n_strange, 1);
        if (gate.last == c) gate.last = NULL;
        gate.n--;
        gate.n_ending -= c->ending;
        c->of->n--;
        forget_address(c->of);
        say_over();
    }
    pthread_mutex_unlock(&gate.lock);
    if (c) metric_add(M_GRPC_CONNECTIONS, -1);
    free(c);
}
static struct conn *conn_of(int fd) {
    return fd >= 0 && fd < MAX_FDS ? atomic_load_explicit(&gate.of_fd[fd], memory_order_acquire)
                                   : NULL;
}

// ---- reading

static ssize_t read_at_most(int fd, const struct msghdr *m, size_t most, int flags,
                            struct msghdr *given) {
    struct iovec v[PIECES];
    size_t n = 0;
    for (; n < m->msg_iovlen && n < PIECES && most; n++) {
        v[n] = m->msg_iov[n];
        if (v[n].iov_len > most) v[n].iov_len = most;
        most -= v[n].iov_len;
    }
    *given = *m;
    given->msg_iov = v;
    given->msg_iovlen = n;
    ssize_t got = own_recvmsg(fd, given, flags);
    given->msg_iov = m->msg_iov;
    given->msg_iovlen = m->msg_iovlen;
    return got;
}
static ssize_t read_share(struct conn *c, struct msghdr *m, int flags) {
    if (client_has_gone(c->watch.fd)) return 0; // nobody waits for an answer
    pthread_mutex_lock(&gate.lock);
    if (!has_share(c) && !take_share(c)) {
        hold(c, c->bytes > FIRST_BYTES ? OLD : NEW);
        pthread_mutex_unlock(&gate.lock);
        errno = EAGAIN;
        return -1;
    }

    struct msghdr given;
    ssize_t got = read_at_most(c->watch.fd, m, c->share, flags, &given);
    int error = errno;
    if (got > 0) {
        if (!atomic_exchange(&gate.in_turn, true)) gate.turn_ns = clock_ns();
        c->share -= (size_t)got;
        c->used += (size_t)got;
        c->bytes += (uint64_t)got;
        gate.promised -= (size_t)got;
    }
    give_back_share(c); // it may not come again
    say_over();
    *m = given;
    pthread_mutex_unlock(&gate.lock);
    errno = error;
    return got;
}

// Of a connection that somebody vouched for. While calls wait in the library it is held too, and
// who has filled it reads little at a time for a while.
static ssize_t read_vouched(struct conn *c, struct msghdr *m, int flags) {
    pthread_mutex_lock(&gate.lock);
    struct conn *last = gate.last;
    bool keeps_up = gate.cfg.keeps_up(gate.cfg.ctx);
    if (!keeps_up) {
        if (last) atomic_store(&last->most, LEAST_BYTES);
        gate.last = NULL;
        hold(c, VOUCHED);
        keeps_up = gate.cfg.keeps_up(gate.cfg.ctx); // whoever may say so has looked before
        if (keeps_up) drop_held(c);
    }
    if (keeps_up) {
        gate.last = c;
        release_admitted(1); // the next one, meanwhile
    }
    pthread_mutex_unlock(&gate.lock);
    if (!keeps_up) {
        errno = EAGAIN;
        return -1;
    }
    size_t most = atomic_load(&c->most);
    if (most < MOST_BYTES) atomic_store(&c->most, 2 * most);
    struct msghdr given;
    ssize_t got = read_at_most(c->watch.fd, m, most, flags, &given);
    *m = given;
    return got;
}

// False: a head that it sends is too long.
static bool follow(struct conn *c, const struct msghdr *m, ssize_t got) {
    size_t left = got > 0 ? (size_t)got : 0;
    for (size_t k = 0; left && k < m->msg_iovlen; k++) {
        size_t n = m->msg_iov[k].iov_len < left ? m->msg_iov[k].iov_len : left;
        if (!grpc_head_follow(&c->head, m->msg_iov[k].iov_base, n)) return false;
        left -= n;
    }
    return true;
}

// ---- what the daemon asks

void gate_start(const struct gate_config *cfg) {
    pthread_mutex_lock(&gate.lock);
    gate.cfg = *cfg;
    gate.process = getpid();
    gate.left = TURN_BYTES;
    gate.accepts = TURN_ACCEPTS;
    for (int k = 0; k < KINDS; k++)
        gate.ring[k].end = &gate.ring[k].first;
    gate.epoch = gate.turn = 1;
    pthread_mutex_unlock(&gate.lock);
    atomic_store(&gate.shut, false);
    atomic_store(&gate.over, false);
    atomic_store(&gate.on, true);
}
void gate_stop(void) {
    pthread_mutex_lock(&gate.lock);
    atomic_store(&gate.on, false);
    atomic_store(&gate.n_listeners, 0);
    gate.cfg.held = NULL;
    open_wide();
    pthread_mutex_unlock(&gate.lock);
}
void gate_listens(bool on) {
    listening = on;
}
bool gate_waits(void) {
    return atomic_load(&gate.holds) || atomic_load(&gate.in_turn);
}
int64_t gate_turn(bool strangers) {
    pthread_mutex_lock(&gate.lock);
    release_admitted(RELEASES);
    int64_t pause = pause_left();
    if (strangers && !pause) next_turn();
    bool held = gate.ring[STRANGE].first || gate.ring[ADMITTED].first || gate.listeners_wait;
    atomic_store(&gate.holds, held);
    pthread_mutex_unlock(&gate.lock);
    return pause;
}
void gate_shut_doors(void) { // accept4 says so to the library
    for (int i = 0; i < atomic_load(&gate.n_listeners); i++)
        shutdown(gate.listeners[i].fd, SHUT_RDWR);
}
void gate_hold_all(void) {
    atomic_store(&gate.shut, true);
}
void gate_end_all(void) {
    pthread_mutex_lock(&gate.lock);
    atomic_store(&gate.over, true);
    for (int i = 0; i < BUCKETS; i++)
        for (struct conn *c = gate.by_port[i]; c; c = c->next)
            shutdown(c->watch.fd, SHUT_RDWR);
    pthread_mutex_unlock(&gate.lock);
}
static struct conn *conn_of_peer(const char *peer) {
    uint8_t address[16];
    uint16_t port;
    if (!parse_peer(peer, address, &port)) return NULL;
    struct conn *c = gate.by_port[port % BUCKETS];
    while (c && (c->port != port || memcmp(c->address, address, 16) != 0))
        c = c->next;
    return c;
}
static void wake_held(struct conn *c) {
    bool waited = c->held_in;
    drop_held(c);
    if (waited) look_again(&c->watch);
}
bool gate_admit(const char *peer, struct gate_call *out) {
    *out = (struct gate_call){0};
    pthread_mutex_lock(&gate.lock);
    struct conn *c = conn_of_peer(peer);
    bool room = !c || !gate.cfg.max_calls || c->calls < gate.cfg.max_calls;
    if (c && room) {
        *out = (struct gate_call){.connection = c->number, .port = c->port};
        c->calls++;
        if (!atomic_exchange(&c->admitted, true)) {
            atomic_fetch_sub(&gate.n_strange, 1);
            give_back_share(c);
            wake_held(c);
        }
    }
    pthread_mutex_unlock(&gate.lock);
    return room;
}
void gate_ended(struct gate_call *call) {
    if (!call->connection) return;
    pthread_mutex_lock(&gate.lock);
    struct conn *c = gate.by_port[call->port % BUCKETS];
    while (c && c->number != call->connection)
        c = c->next;
    if (c) c->calls--;
    pthread_mutex_unlock(&gate.lock);
    *call = (struct gate_call){0};
}
void gate_doubt(const char *peer) {
    pthread_mutex_lock(&gate.lock);
    struct conn *c = conn_of_peer(peer);
    if (c && atomic_exchange(&c->admitted, false)) {
        atomic_fetch_add(&gate.n_strange, 1);
        if (gate.last == c) gate.last = NULL;
        wake_held(c);
    }
    pthread_mutex_unlock(&gate.lock);
}

// ---- what the library calls

#define OURS __attribute__((visibility("default")))
OURS int listen(int fd, int n) {
    int k = listening ? atomic_load(&gate.n_listeners) : MAX_LISTENERS;
    if (k < MAX_LISTENERS) {
        gate.listeners[k] = (struct watch){.fd = fd, .epoll = -1};
        atomic_store(&gate.n_listeners, k + 1);
    }
    return ((int (*)(int, int))own(LISTEN))(fd, n);
}
static struct watch *listener_of(int fd) {
    for (int i = 0; i < atomic_load(&gate.n_listeners); i++)
        if (gate.listeners[i].fd == fd) return &gate.listeners[i];
    return NULL;
}
static void stop_accepting(void) {
    pthread_mutex_lock(&gate.lock);
    gate.accepts = 0;
    gate.listeners_wait = true;
    say_held();
    pthread_mutex_unlock(&gate.lock);
}
// Until a descriptor is closed, or for a while.
static void wait_for_descriptors(void) {
    pthread_mutex_lock(&gate.lock);
    gate.full_ns = clock_ns();
    atomic_store(&gate.full, true);
    gate.listeners_wait = true;
    say_held();
    pthread_mutex_unlock(&gate.lock);
}
static bool may_accept(void) {
    pthread_mutex_lock(&gate.lock);
    bool yes = gate.accepts > 0 && gate.n_ending < SLACK;
    pthread_mutex_unlock(&gate.lock);
    return yes;
}
void gate_others_full(bool (*turn_away)(int door, int why)) {
    others_full = turn_away;
}
typedef int (*accepts)(int fd, struct sockaddr *a, socklen_t *n, int flags);
static int accept_other(accepts theirs, int fd, struct sockaddr *a, socklen_t *n, int flags) {
    int got = theirs(fd, a, n, flags);
    bool full = got < 0 && (errno == EMFILE || errno == ENFILE);
    if (full && others_full) errno = others_full(fd, errno) ? ECONNABORTED : EMFILE;
    return got;
}
// What else than EAGAIN and EINTR comes back ends the library's listener for good. So only what
// says that there is no listener any more does: told EINTR, the library would ask again without
// end.
OURS int accept4(int fd, struct sockaddr *a, socklen_t *n, int flags) {
    accepts theirs = (accepts)own(ACCEPT4);
    if (!atomic_load(&gate.on) || !listener_of(fd)) return accept_other(theirs, fd, a, n, flags);
    socklen_t room = n ? *n : 0;
    for (int gone = 0; gone < GONE_ACCEPTS && may_accept(); gone++) {
        if (n) *n = room;
        int got = theirs(fd, a, n, flags);
        if (got < 0) {
            bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
            bool over = errno == EINVAL || errno == EBADF; // it was shut down
            if (full) wait_for_descriptors();
            if (full) errno = EAGAIN;
            if (errno != EAGAIN && !over) errno = EINTR;
            return -1;
        }
        if (!client_has_gone(got) && enter(got)) return got;
        own_close(got);
    }
    stop_accepting();
    errno = EAGAIN;
    return -1;
}
OURS int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event) {
    struct conn *c = op == EPOLL_CTL_DEL ? NULL : conn_of(fd);
    struct watch *w = c ? &c->watch : op == EPOLL_CTL_DEL ? NULL : listener_of(fd);
    if (w && event) {
        pthread_mutex_lock(&gate.lock);
        w->epoll = epoll;
        w->event = *event;
        pthread_mutex_unlock(&gate.lock);
    }
    return own_epoll_ctl(epoll, op, fd, event);
}
static void free_descriptor(void) {
    pthread_mutex_lock(&gate.lock);
    if (atomic_exchange(&gate.full, false)) say_over();
    pthread_mutex_unlock(&gate.lock);
}
OURS ssize_t recvmsg(int fd, struct msghdr *m, int flags) {
    struct conn *c = conn_of(fd);
    if (!c || flags || !atomic_load(&gate.on)) return own_recvmsg(fd, m, flags);
    if (atomic_load(&gate.over)) return 0;
    if (atomic_load(&gate.shut)) {
        errno = EAGAIN;
        return -1;
    }
    ssize_t got = atomic_load(&c->admitted) ? read_vouched(c, m, flags) : read_share(c, m, flags);
    return follow(c, m, got) ? got : 0; // the library takes it for the end
}
OURS int close(int fd) {
    if (conn_of(fd) && getpid() == gate.process) leave(fd);
    int rc = own_close(fd);
    if (atomic_load(&gate.full) && getpid() == gate.process) free_descriptor();
    return rc;
}
