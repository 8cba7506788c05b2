// SPDX-License-Identifier: Apache-2.0
#include "scheduler/cluster/seal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/store/file.h"
#include "base/str.h"
#include "base/text.h"
#include "proto/message.h"
#include "proto/reason.h"
#include "proto/weigh.h"
#include "scheduler/remote/peers.h"

enum { MAX_FILE = 1 << 16, MAX_PASS = 1024 };
struct keys { // never change
    int refs; // with the seal's mutex
    struct arena arena;
    struct str key[SEAL_KEYS];
    int n;
};
struct seal {
    const char *cluster;
    pthread_mutex_t mutex; // of `keys` as a pointer, held for no longer than that takes
    struct keys *keys;
};

static struct keys *hold(const struct seal *s) {
    pthread_mutex_t *m = (pthread_mutex_t *)(uintptr_t)&s->mutex;
    pthread_mutex_lock(m);
    struct keys *k = s->keys;
    k->refs++;
    pthread_mutex_unlock(m);
    return k;
}
static void release(const struct seal *s, struct keys *k) {
    pthread_mutex_t *m = (pthread_mutex_t *)(uintptr_t)&s->mutex;
    pthread_mutex_lock(m);
    bool last = !--k->refs;
    pthread_mutex_unlock(m);
    if (!last) return;
    arena_done(&k->arena);
    free(k);
}

static status_t read_keys(struct keys *k, const char *path) {
    struct str text, line;
    RETURN_IF_ERR(file_read_secret(&k->arena, path, MAX_FILE, &text));
    for (int number = 1; str_cut(&text, '\n', &line); number++) {
        line = str_trim(line);
        if (!line.n || line.p[0] == '#') continue;
        if (line.n < SEAL_MIN_CHARS)
            return st_invalid(
                "%s:%d: a secret has at least %d characters, as from `openssl rand -hex 32`", path,
                number, SEAL_MIN_CHARS);
        if (k->n == SEAL_KEYS) return st_invalid("%s: more than %d secrets", path, SEAL_KEYS);
        k->key[k->n++] = line;
    }
    return k->n ? ST_OK : st_invalid("%s has no secret", path);
}
status_t seal_new(const char *path, const char *cluster, struct seal **out) {
    struct seal *s = arena_must_calloc(1, sizeof *s);
    s->keys = arena_must_calloc(1, sizeof *s->keys);
    s->keys->refs = 1;
    pthread_mutex_init(&s->mutex, NULL);
    if (!(s->cluster = strdup(cluster))) abort();
    status_t st = read_keys(s->keys, path);
    if (st)
        seal_free(s);
    else
        *out = s;
    return st;
}
void seal_renew(struct seal *s, struct seal *fresh) {
    pthread_mutex_lock(&s->mutex);
    struct keys *old = s->keys;
    s->keys = fresh->keys;
    pthread_mutex_unlock(&s->mutex);
    fresh->keys = NULL;
    release(s, old);
    seal_free(fresh);
}
void seal_free(struct seal *s) {
    if (!s) return;
    if (s->keys) release(s, s->keys);
    pthread_mutex_destroy(&s->mutex);
    free((void *)(uintptr_t)s->cluster);
    free(s);
}

// What a thing of one kind cannot be taken for is one of another kind, or cluster.
static struct digest mac_of(const char *cluster, struct str key, const char *kind,
                            struct span bytes) {
    struct hmac m;
    hmac_init(&m, (struct span){(const uint8_t *)key.p, key.n});
    sha256_add(&m.inner, kind, strlen(kind) + 1);
    sha256_add(&m.inner, cluster, strlen(cluster) + 1);
    sha256_add(&m.inner, bytes.p, bytes.n);
    return hmac_end(&m);
}
static ProtobufCBinaryData mac_in(const struct seal *s, struct arena *a, const char *kind,
                                  struct span bytes) {
    struct keys *k = hold(s);
    struct digest d = mac_of(s->cluster, k->key[0], kind, bytes);
    release(s, k);
    return (ProtobufCBinaryData){sizeof d.b, arena_dup(a, d.b, sizeof d.b)};
}
static bool mac_holds(const struct seal *s, const char *kind, struct span bytes,
                      ProtobufCBinaryData mac) {
    struct digest found;
    bool right = false;
    if (mac.len != sizeof found.b) return false;
    memcpy(found.b, mac.data, sizeof found.b);
    struct keys *all = hold(s);
    for (int k = 0; k < all->n; k++)
        right |= digest_eq_secret(mac_of(s->cluster, all->key[k], kind, bytes), found);
    release(s, all);
    return right;
}

// ---- messages

static const char MESSAGE[] = "hlod cluster message 1", PASS[] = "hlod cluster pass 1";
static int64_t wall_ms(void) {
    return clock_wall_ns() / CLOCK_MS;
}
struct span seal_message(const struct seal *s, struct arena *a, Hlod__Cluster__Body *b) {
    Hlod__Cluster__Sealed m = HLOD__CLUSTER__SEALED__INIT;
    b->at_ms = wall_ms();
    b->protocol = SEAL_PROTOCOL;
    b->least = SEAL_LEAST;
    struct span body = message_pack(a, &b->base);
    m.body = (ProtobufCBinaryData){body.n, (uint8_t *)(uintptr_t)body.p};
    m.mac = mac_in(s, a, MESSAGE, body);
    return message_pack(a, &m.base);
}
bool seal_fits(const Hlod__Cluster__Body *b) {
    return b->protocol >= SEAL_LEAST && b->least <= SEAL_PROTOCOL;
}
Hlod__Cluster__Body *seal_open(const struct seal *s, struct arena *a, struct span bytes,
                               const char **out_why) {
    *out_why = "it is too long";
    if (bytes.n > SEAL_MAX_BYTES) return NULL;
    *out_why = "it is no message";
    Hlod__Cluster__Sealed *m = weigh_unpack_in(a, &hlod__cluster__sealed__descriptor, bytes);
    if (!m) return NULL;
    struct span body = {m->body.data, m->body.len};
    *out_why = "it does not prove the cluster's secret";
    if (!mac_holds(s, MESSAGE, body, m->mac)) return NULL;
    *out_why = "it is no message";
    Hlod__Cluster__Body *b = weigh_unpack_in(a, &hlod__cluster__body__descriptor, body);
    if (!b || !b->beat + !b->names + !b->ticket + !b->offer + !b->grant + !b->use != 5) return NULL;
    int64_t now = wall_ms();
    *out_why = b->at_ms < now - SEAL_SKEW_MS || b->at_ms > now + SEAL_SKEW_MS
                   ? "it is of another time, or a clock is wrong"
               : !b->beat && !seal_fits(b) ? "its version and this one do not work together"
                                           : NULL;
    return *out_why ? NULL : b;
}

// ---- records

static const char RECORD[] = "hlod cluster record 1";
static struct span with_key(struct arena *a, const char *key, struct span bytes) {
    size_t n = strlen(key) + 1;
    uint8_t *both = arena_alloc(a, n + bytes.n);
    memcpy(both, key, n);
    if (bytes.n) memcpy(both + n, bytes.p, bytes.n);
    return (struct span){both, n + bytes.n};
}
struct span seal_record(const struct seal *s, struct arena *a, const char *key, struct span bytes) {
    Hlod__Cluster__Sealed m = HLOD__CLUSTER__SEALED__INIT;
    m.body = (ProtobufCBinaryData){bytes.n, (uint8_t *)(uintptr_t)bytes.p};
    m.mac = mac_in(s, a, RECORD, with_key(a, key, bytes));
    return message_pack(a, &m.base);
}
bool seal_open_record(const struct seal *s, struct arena *a, const char *key, struct span bytes,
                      struct span *out, const char **out_why) {
    *out_why = "it is too long, or no record";
    if (bytes.n > SEAL_MAX_BYTES) return false;
    Hlod__Cluster__Sealed *m = weigh_unpack_in(a, &hlod__cluster__sealed__descriptor, bytes);
    if (!m) return false;
    *out = (struct span){m->body.data, m->body.len};
    *out_why = "it does not prove the cluster's secret";
    return mac_holds(s, RECORD, with_key(a, key, *out), m->mac);
}

// ---- passes

static void pass_mac(const struct seal *s, struct arena *a, Hlod__Cluster__Pass *p) {
    p->mac = (ProtobufCBinaryData){0};
    p->mac = mac_in(s, a, PASS, message_pack(a, &p->base));
}
const char *seal_pass(const struct seal *s, struct arena *a, const char *from, const char *to,
                      const char *tenant, unsigned scopes) {
    Hlod__Cluster__Pass p = HLOD__CLUSTER__PASS__INIT;
    struct strbuf b = {0};
    p.from = (char *)(uintptr_t)from;
    p.to = (char *)(uintptr_t)to;
    p.tenant = (char *)(uintptr_t)tenant;
    p.scopes = scopes;
    p.until_ms = wall_ms() + SEAL_PASS_MS;
    pass_mac(s, a, &p);
    struct span bytes = message_pack(a, &p.base);
    strbuf_puts(&b, SEAL_SCHEME " ");
    strbuf_hex(&b, bytes.p, bytes.n);
    const char *text = arena_strdup(a, strbuf_cstr(&b));
    strbuf_done(&b);
    return text;
}
static const char *fault(const struct seal *s, struct arena *a, const Hlod__Cluster__Pass *p,
                         const char *self) {
    Hlod__Cluster__Pass bare = *p;
    bare.mac = (ProtobufCBinaryData){0};
    if (!mac_holds(s, PASS, message_pack(a, &bare.base), p->mac))
        return "the pass does not prove the cluster's secret";
    if (strcmp(p->to, self) != 0) return "the pass is for another node, or for one that has ended";
    int64_t left = p->until_ms - wall_ms();
    if (left < -SEAL_SKEW_MS || left > SEAL_PASS_MS + SEAL_SKEW_MS)
        return "the pass is over, or a clock is wrong";
    bool fits = peer_name_fits(p->from) && text_is_name(str_of(p->tenant), SEAL_TENANT);
    return fits ? NULL : "the pass names nobody";
}
status_t seal_admit(const struct seal *s, struct arena *a, const char *pass, const char *self,
                    Hlod__Cluster__Pass **out) {
    struct str hex = str_trim(str_of(pass));
    uint8_t *bytes = arena_alloc(a, hex.n / 2 + 1);
    const char *why = "the pass is none";
    if (hex.n <= MAX_PASS && hex.n % 2 == 0 && str_from_hex(hex, bytes, hex.n / 2)) {
        *out =
            weigh_unpack_in(a, &hlod__cluster__pass__descriptor, (struct span){bytes, hex.n / 2});
        if (*out) why = fault(s, a, *out, self);
    }
    return why ? st_because(ST_UNAUTHENTICATED, BAD_CREDENTIALS, "%s", why) : ST_OK;
}
