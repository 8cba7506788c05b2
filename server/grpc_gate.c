// SPDX-License-Identifier: Apache-2.0
// Four functions of the C library stand here before glibc's, in every library of the process (as
// server/tls.c's and reserve.c's do): listen, accept4, recvmsg, close. All of them do glibc's work
// where a descriptor is not the gate's.
//
// A connection that must wait is told EAGAIN. The library waits for its descriptor to become
// readable, by edges; setting SO_RCVLOWAT makes the kernel look again and gives it one.
#include "server/grpc_gate.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/metrics.h"

// A client's first call takes some hundred bytes, a TLS handshake up to 3 KiB.
enum { TURN_BYTES = 16 << 10, SHARE_BYTES = 2 << 10 };
enum { MAX_FDS = 1 << 17, MAX_LISTENERS = 16, BUCKETS = 1024, PIECES = 16 };

struct address { // of IPv4 in its mapped form; of IPv6 the network: one's own has 2^64 addresses
    uint8_t key[16];
    struct address *next; // in its bucket
    int n;                // connections
    struct conn *held, **held_end;
    struct address *ring; // the next one of which some are held
    bool in_ring;
};
struct conn {
    int fd;
    struct address *of;
    uint8_t address[16];
    uint16_t port;
    struct conn *next; // in its bucket, by port
    struct conn *held_next;
    bool is_held;
    size_t share; // that it may read; promised in `epoch`, else void
    uint64_t epoch;
    atomic_bool admitted;
};
static struct {
    pthread_mutex_t lock;
    pid_t process; // a child between fork and exec closes what it likes
    atomic_bool on, holds, read;
    struct gate_config cfg;
    int listeners[MAX_LISTENERS];
    atomic_int n_listeners;
    _Atomic(struct conn *) of_fd[MAX_FDS];
    struct conn *by_port[BUCKETS];
    struct address *addresses[BUCKETS];
    struct address *ring, **ring_end;
    atomic_int n_strange;
    int n;
    size_t left, promised; // of the turn's bytes: to nobody yet; to some who have not read them yet
    uint64_t epoch;
    int64_t epoch_ns;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local bool listening;

// ---- glibc's own

enum own { LISTEN, ACCEPT4, RECVMSG, CLOSE, N_OWN };
typedef void (*function)(void);
static function own(enum own which) {
    static const char *const names[] = {"listen", "accept4", "recvmsg", "close"};
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

static void enter_ring(struct address *a) {
    if (a->in_ring) return;
    a->in_ring = true;
    a->ring = NULL;
    *gate.ring_end = a;
    gate.ring_end = &a->ring;
}
static struct address *leave_ring(void) {
    struct address *a = gate.ring;
    gate.ring = a->ring;
    if (!gate.ring) gate.ring_end = &gate.ring;
    a->in_ring = false;
    return a;
}
static void hold(struct conn *c) {
    if (c->is_held) return;
    c->is_held = true;
    c->held_next = NULL;
    *c->of->held_end = c;
    c->of->held_end = &c->held_next;
    enter_ring(c->of);
    if (atomic_exchange(&gate.holds, true) || !gate.cfg.held) return;
    gate.cfg.held(gate.cfg.ctx);
}
static void drop_held(struct conn *c) {
    struct conn **p = &c->of->held;
    if (!c->is_held) return;
    while (*p != c)
        p = &(*p)->held_next;
    *p = c->held_next;
    if (!*p) c->of->held_end = p;
    c->is_held = false;
}
static void look_again(const struct conn *c) {
    int one = 1;
    setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
}
static bool client_has_gone(const struct conn *c) {
    struct tcp_info i;
    socklen_t n = sizeof i;
    return !getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &i, &n) && i.tcpi_state != TCP_ESTABLISHED;
}
static bool has_bytes(const struct conn *c) {
    int n = 0;
    return ioctl(c->fd, FIONREAD, &n) || n > 0;
}
static bool take_share(struct conn *c) {
    size_t n = gate.left < SHARE_BYTES ? gate.left : SHARE_BYTES;
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
static void next_turn(void) {
    int64_t now = clock_ns();
    if (now - gate.epoch_ns > EPOCH_NS) {
        gate.epoch++;
        gate.epoch_ns = now;
        gate.promised = 0;
    }
    gate.left = TURN_BYTES - gate.promised;
    atomic_store(&gate.read, false);
    while (gate.left && gate.ring) {
        struct address *a = leave_ring();
        struct conn *c = a->held;
        if (!c) continue; // they have gone
        drop_held(c);
        if (a->held) enter_ring(a);
        // Where there is nothing to read, what comes will wake the library by itself.
        if (!client_has_gone(c) && has_bytes(c)) take_share(c);
        look_again(c);
    }
    atomic_store(&gate.holds, gate.ring != NULL);
}
static void open_wide(void) {
    for (struct address *a; gate.ring;) {
        a = leave_ring();
        while (a->held) {
            struct conn *c = a->held;
            drop_held(c);
            look_again(c);
        }
    }
    atomic_store(&gate.holds, false);
}

// ---- connections

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
    struct address **p = place_of(network), *a = *p;
    bool full = (gate.cfg.max_connections && gate.n >= gate.cfg.max_connections) ||
                (a && gate.cfg.max_per_address && a->n >= gate.cfg.max_per_address);
    if (!full && !a) {
        a = *p = calloc(1, sizeof *a);
        if (a) {
            memcpy(a->key, network, 16);
            a->held_end = &a->held;
        }
    }
    if (full || !a) {
        pthread_mutex_unlock(&gate.lock);
        free(c);
        return false;
    }
    a->n++;
    gate.n++;
    atomic_fetch_add(&gate.n_strange, 1);
    c->fd = fd;
    c->of = a;
    struct conn **q = &gate.by_port[c->port % BUCKETS];
    c->next = *q;
    *q = c;
    atomic_store(&gate.of_fd[fd], c);
    pthread_mutex_unlock(&gate.lock);
    metric_add(M_GRPC_CONNECTIONS, 1);
    return true;
}
static void forget_address(struct address *a) {
    if (a->n) return;
    if (a->in_ring) {
        struct address **p = &gate.ring;
        while (*p != a)
            p = &(*p)->ring;
        *p = a->ring;
        if (!*p) gate.ring_end = p;
    }
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
        gate.n--;
        c->of->n--;
        forget_address(c->of);
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
    if (client_has_gone(c)) return 0; // nobody waits for an answer
    pthread_mutex_lock(&gate.lock);
    if (!has_share(c) && !take_share(c)) {
        hold(c);
        pthread_mutex_unlock(&gate.lock);
        errno = EAGAIN;
        return -1;
    }
    struct msghdr given;
    ssize_t got = read_at_most(c->fd, m, c->share, flags, &given);
    int error = errno;
    if (got > 0) {
        c->share -= (size_t)got;
        gate.promised -= (size_t)got;
        atomic_store(&gate.read, true);
    } else
        give_back_share(c);
    *m = given;
    pthread_mutex_unlock(&gate.lock);
    errno = error;
    return got;
}

// ---- what the daemon asks

void gate_start(const struct gate_config *cfg) {
    pthread_mutex_lock(&gate.lock);
    gate.cfg = *cfg;
    gate.process = getpid();
    gate.left = TURN_BYTES;
    gate.ring_end = &gate.ring;
    gate.epoch = 1;
    pthread_mutex_unlock(&gate.lock);
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
    return atomic_load(&gate.read) || atomic_load(&gate.holds);
}
bool gate_holds(void) {
    return atomic_load(&gate.holds);
}
bool gate_strangers(void) {
    return atomic_load(&gate.n_strange) > 0;
}
void gate_turn(void) {
    pthread_mutex_lock(&gate.lock);
    next_turn();
    pthread_mutex_unlock(&gate.lock);
}
void gate_admit(const char *peer) {
    uint8_t address[16];
    uint16_t port;
    if (!parse_peer(peer, address, &port)) return;
    pthread_mutex_lock(&gate.lock);
    struct conn *c = gate.by_port[port % BUCKETS];
    while (c && (c->port != port || memcmp(c->address, address, 16) != 0))
        c = c->next;
    if (c && !atomic_exchange(&c->admitted, true)) {
        atomic_fetch_sub(&gate.n_strange, 1);
        bool waited = c->is_held;
        give_back_share(c);
        drop_held(c);
        if (waited) look_again(c);
    }
    pthread_mutex_unlock(&gate.lock);
}

// ---- what the library calls

#define OURS __attribute__((visibility("default")))
OURS int listen(int fd, int n) {
    int k = listening ? atomic_load(&gate.n_listeners) : MAX_LISTENERS;
    if (k < MAX_LISTENERS) {
        gate.listeners[k] = fd;
        atomic_store(&gate.n_listeners, k + 1);
    }
    return ((int (*)(int, int))own(LISTEN))(fd, n);
}
static bool is_listener(int fd) {
    for (int i = 0; atomic_load(&gate.on) && i < atomic_load(&gate.n_listeners); i++)
        if (gate.listeners[i] == fd) return true;
    return false;
}
// What else than EAGAIN and EINTR comes back ends the library's listener for good.
OURS int accept4(int fd, struct sockaddr *a, socklen_t *n, int flags) {
    typedef int (*accepts)(int fd, struct sockaddr *a, socklen_t *n, int flags);
    int got = ((accepts)own(ACCEPT4))(fd, a, n, flags);
    if (!is_listener(fd)) return got;
    if (got < 0) {
        bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (full) errno = EAGAIN;
        if (errno != EAGAIN) errno = EINTR;
        return -1;
    }
    if (enter(got)) return got;
    metric_add(M_GRPC_REFUSED, 1);
    own_close(got);
    errno = EINTR; // the next one
    return -1;
}
OURS ssize_t recvmsg(int fd, struct msghdr *m, int flags) {
    struct conn *c = conn_of(fd);
    if (!c || flags || atomic_load(&c->admitted) || !atomic_load(&gate.on))
        return own_recvmsg(fd, m, flags);
    return read_share(c, m, flags);
}
OURS int close(int fd) {
    if (conn_of(fd) && getpid() == gate.process) leave(fd);
    return own_close(fd);
}
