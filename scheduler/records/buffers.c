// SPDX-License-Identifier: Apache-2.0
// Handles are few (thousands) and live for seconds to hours: one map by text, one list, a scan for
// what happens rarely (a lease that ends, a worker that dies).
#include "scheduler/records/buffers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/metrics.h"
#include "base/vec.h"
#include "proto/reason.h"

// MAX_PLACES of all tenants: an array takes one, and each that a handle names one more.
enum { MAX_DEAD = 4096, MAX_PLACES = 65536 };
struct holder { // a tenant
    int places;
    char name[];
};
struct buffer_use {     // of a tenant on a worker
    const char *tenant; // a holder's name
    int worker, n;
    int64_t bytes;
};
struct list {
    struct handle *first, *last;
    int n;
};
struct buffers {
    struct buffers_config cfg;
    const char *node;              // "": none
    struct smap by_local, tenants; // tenants: name -> struct holder
    struct list live, dead;
    VEC(struct buffer_use *) use;
    VEC(uint64_t) epochs; // by worker
    uint64_t next_id;
    int64_t due_ns;
    int64_t bytes;
    int arrays, places;
};

static void list_add(struct list *l, struct handle *h) {
    h->prev = l->last;
    h->next = NULL;
    *(l->last ? &l->last->next : &l->first) = h;
    l->last = h;
    l->n++;
}
static void list_remove(struct list *l, struct handle *h) {
    *(h->prev ? &h->prev->next : &l->first) = h->next;
    *(h->next ? &h->next->prev : &l->last) = h->prev;
    l->n--;
}

struct buffers *buffers_new(const struct buffers_config *cfg) {
    struct buffers *b = arena_must_calloc(1, sizeof *b);
    b->cfg = *cfg;
    b->node = "";
    smap_seed_random(&b->by_local);
    smap_seed_random(&b->tenants);
    return b;
}

void buffers_set_node(struct buffers *b, const char *node) {
    b->node = node;
}
void buffers_configure(struct buffers *b, int64_t lease_ms, int64_t quota_bytes) {
    b->cfg.lease_ms = lease_ms;
    b->cfg.quota_bytes = quota_bytes;
}

// ---- buffers

static struct holder *holder_of(struct buffers *b, const char *tenant) {
    struct holder *x = smap_get(&b->tenants, str_of(tenant));
    if (x) return x;
    size_t n = strlen(tenant) + 1;
    x = arena_must_calloc(1, sizeof *x + n);
    memcpy(x->name, tenant, n);
    smap_put(&b->tenants, str_of(tenant), x);
    return x;
}
static void take_places(struct buffers *b, const char *tenant, int n) {
    holder_of(b, tenant)->places += n;
    b->places += n;
}
status_t buffers_room(struct buffers *b, const char *tenant, size_t n) {
    int mine = holder_of(b, tenant)->places, left = MAX_PLACES - b->places;
    if ((int64_t)n <= (int64_t)left - mine) return ST_OK;
    return st_because(ST_RESOURCE_EXHAUSTED, BUFFER_QUOTA,
                      "resident buffers: %zu more, and this tenant holds %d already (arrays, "
                      "and those that handles name); it may have as many as it leaves of %d",
                      n, mine, MAX_PLACES);
}

static void count(struct buffers *b, struct buffer_use *u, int n, int64_t bytes) {
    u->n += n;
    u->bytes += bytes;
    b->arrays += n;
    b->bytes += bytes;
    take_places(b, u->tenant, n);
    metric_set(M_BUFFERS, b->arrays);
    metric_set(M_BUFFER_BYTES, b->bytes);
}

static struct buffer_use *use_of(struct buffers *b, const char *tenant, int worker) {
    const char *kept = holder_of(b, tenant)->name;
    for (size_t k = 0; k < b->use.n; k++)
        if (b->use.v[k]->tenant == kept && b->use.v[k]->worker == worker) return b->use.v[k];
    struct buffer_use *u = arena_must_calloc(1, sizeof *u);
    *u = (struct buffer_use){.tenant = kept, .worker = worker};
    vec_push(&b->use, u);
    return u;
}
void buffers_used(const struct buffers *b, const char *tenant, int worker, int64_t *out_bytes,
                  int *out_n) {
    *out_bytes = *out_n = 0;
    for (size_t k = 0; k < b->use.n; k++) {
        const struct buffer_use *u = b->use.v[k];
        if (u->worker != worker || (tenant && strcmp(u->tenant, tenant) != 0)) continue;
        *out_bytes += u->bytes;
        *out_n += u->n;
    }
}
int64_t buffers_quota(const struct buffers *b, int64_t device_bytes) {
    return b->cfg.quota_bytes ? b->cfg.quota_bytes : device_bytes / 2;
}

status_t buffers_reserve(struct buffers *b, const char *tenant, int worker, uint64_t epoch,
                         int64_t device_bytes, int64_t bytes, int64_t credit, struct buffer **out) {
    struct buffer_use *u = use_of(b, tenant, worker);
    int64_t quota = buffers_quota(b, device_bytes);
    if (bytes > quota - (u->bytes - credit))
        return st_because(
            ST_RESOURCE_EXHAUSTED, BUFFER_QUOTA,
            "resident buffers: %lld bytes wanted, %lld of %lld in use by this tenant on this "
            "device",
            (long long)bytes, (long long)u->bytes, (long long)quota);
    RETURN_IF_ERR(buffers_room(b, tenant, 1));
    struct buffer *x = arena_must_calloc(1, sizeof *x);
    *x = (struct buffer){.refs = 1,
                         .id = ++b->next_id,
                         .worker = worker,
                         .epoch = epoch,
                         .bytes = bytes,
                         .owner = b,
                         .use = u};
    count(b, u, 1, bytes);
    *out = x;
    return ST_OK;
}

void buffer_fill(struct buffer *x, const char *name, const struct dtype_row *dtype, int32_t rank,
                 const int64_t *dims) {
    int64_t bytes = dtype->bytes;
    if (!(x->name = strdup(name))) abort();
    x->dtype = dtype;
    x->rank = rank;
    x->dims = arena_must_calloc((size_t)rank + 1, sizeof *dims);
    for (int32_t d = 0; d < rank; d++)
        bytes *= x->dims[d] = dims[d];
    if (x->state == BUFFER_GONE) return;
    x->state = BUFFER_READY;
    count(x->owner, x->use, 0, bytes - x->bytes);
    x->bytes = bytes;
}

void buffer_gone(struct buffer *x) {
    if (x->state == BUFFER_GONE) return;
    x->state = BUFFER_GONE;
    count(x->owner, x->use, -1, -x->bytes);
}

struct buffer *buffer_ref(struct buffer *x) {
    x->refs++;
    return x;
}
void buffer_unref(struct buffer *x) {
    if (!x || --x->refs) return;
    if (x->state == BUFFER_READY) x->owner->cfg.drop(x->owner->cfg.ctx, x);
    buffer_gone(x);
    free(x->name);
    free(x->dims);
    free(x);
}

// ---- handles

static void drop_leaves(struct handle *h) {
    if (h->n) take_places(h->leaf[0]->owner, h->tenant, -(int)h->n);
    for (size_t k = 0; k < h->n; k++)
        buffer_unref(h->leaf[k]);
    h->n = 0;
}
static void free_handle(struct handle *h) {
    drop_leaves(h);
    free(h->leaf);
    free(h->text);
    free(h);
}

static int64_t ends_ns(const struct handle *h) {
    return h->lease_ms < 0 ? INT64_MAX : h->used_ns + clock_of_ms((double)h->lease_ms);
}
static void use(struct buffers *b, struct handle *h, int64_t now_ns) {
    h->used_ns = now_ns;
    int64_t end = ends_ns(h);
    if (end != INT64_MAX && (!b->due_ns || end < b->due_ns)) b->due_ns = end;
}
static void set_lease(struct buffers *b, struct handle *h, int64_t lease_ms) {
    enum { DAY_MS = 86400000 };
    if (lease_ms == 0) lease_ms = b->cfg.lease_ms;
    h->lease_ms = lease_ms < 0 ? -1 : lease_ms < 365ll * DAY_MS ? lease_ms : 365ll * DAY_MS;
}

struct handle *buffers_name(struct buffers *b, const char *tenant, struct buffer *const *leaf,
                            size_t n, bool tuple, int64_t lease_ms, int64_t now_ns) {
    struct handle *h = arena_must_calloc(1, sizeof *h);
    enum { LOCAL = 20 };
    size_t before = *b->node ? strlen(b->node) + 1 : 0;
    uint64_t number;
    h->text = arena_must_calloc(1, before + LOCAL);
    h->local = h->text + before;
    do { // not to be guessed; tenants are checked besides
        if (getrandom(&number, sizeof number, 0) != sizeof number) abort();
        snprintf(h->text, before + LOCAL, "%s%sb%016llx", b->node, before ? ":" : "",
                 (unsigned long long)number);
    } while (smap_has(&b->by_local, str_of(h->local)));
    h->tenant = holder_of(b, tenant)->name;
    h->leaf = arena_must_calloc(n + 1, sizeof *leaf);
    for (; h->n < n; h->n++)
        h->leaf[h->n] = buffer_ref(leaf[h->n]);
    take_places(b, tenant, (int)n);
    h->tuple = tuple;
    set_lease(b, h, lease_ms);
    use(b, h, now_ns);
    smap_put(&b->by_local, str_of(h->local), h);
    list_add(&b->live, h);
    return h;
}

// The handle cannot be used any more; why is kept.
static void end(struct buffers *b, struct handle *h, enum status_code code, int reason,
                const char *why) {
    list_remove(&b->live, h);
    drop_leaves(h);
    h->state = HANDLE_DEAD;
    h->code = (int)code;
    h->reason = reason;
    snprintf(h->why, sizeof h->why, "%s", why);
    list_add(&b->dead, h);
    while (b->dead.n > MAX_DEAD) {
        struct handle *oldest = b->dead.first;
        list_remove(&b->dead, oldest);
        smap_del(&b->by_local, str_of(oldest->local));
        free_handle(oldest);
    }
}

MUST_CHECK static status_t refusal(const struct handle *h) {
    if (h->state == HANDLE_BUSY)
        return st_because(ST_FAILED_PRECONDITION, BUFFER_DONATED,
                          "buffer %s is donated to a run that is under way", h->text);
    return st_reason(st_new((enum status_code)h->code, "buffer %s %s", h->text, h->why), h->reason);
}

// Dead or not. NOT_FOUND: unknown to this tenant.
static status_t look_up(struct buffers *b, const char *tenant, const char *text,
                        struct handle **out, int *out_leaf) {
    const char *colon = strrchr(text, ':');
    const char *local = colon ? colon + 1 : text;
    struct str number = str_of(local), name;
    int64_t leaf = -1;
    str_cut(&number, '.', &name);
    struct handle *h = smap_get(&b->by_local, name);
    bool element = name.n < strlen(local);
    bool known = h && strcmp(h->tenant, tenant) == 0;
    bool fits = !element || (str_to_i64(number, &leaf) && leaf >= 0 &&
                             (!known || (h->tuple && (leaf < (int64_t)h->n || !h->n))));
    if (!known || !fits)
        return st_because(ST_NOT_FOUND, BUFFER_NOT_FOUND, "no buffer '%.100s'%s", text,
                          known ? ": it has no such element" : "");
    *out = h;
    *out_leaf = (int)leaf;
    return ST_OK;
}

status_t buffers_find(struct buffers *b, const char *tenant, const char *text, int64_t now_ns,
                      struct handle **out, int *out_leaf) {
    struct handle *h;
    int leaf;
    RETURN_IF_ERR(look_up(b, tenant, text, &h, &leaf));
    if (h->state != HANDLE_READY) return refusal(h);
    use(b, h, now_ns);
    *out = h;
    *out_leaf = leaf;
    return ST_OK;
}

status_t buffers_renew(struct buffers *b, const char *tenant, const char *text, int64_t lease_ms,
                       int64_t now_ns, struct handle **out) {
    int leaf;
    RETURN_IF_ERR(buffers_find(b, tenant, text, now_ns, out, &leaf));
    if (leaf >= 0) return st_invalid("an element has no lease of its own: renew the tuple");
    set_lease(b, *out, lease_ms);
    use(b, *out, now_ns);
    return ST_OK;
}

status_t buffers_free(struct buffers *b, const char *tenant, const char *text, int64_t *out_bytes) {
    struct handle *h;
    int leaf;
    int64_t before = b->bytes;
    RETURN_IF_ERR(look_up(b, tenant, text, &h, &leaf));
    if (h->state == HANDLE_DEAD) return refusal(h);
    if (leaf >= 0) return st_invalid("an element is freed with its tuple: free that");
    if (h->state == HANDLE_BUSY) return refusal(h);
    end(b, h, ST_NOT_FOUND, HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, "was freed");
    *out_bytes = before - b->bytes;
    return ST_OK;
}

void buffers_lend(struct handle *h) {
    h->state = HANDLE_BUSY;
}
void buffers_returned(struct handle *h) {
    if (h->state == HANDLE_BUSY) h->state = HANDLE_READY;
}
void buffers_taken(struct buffers *b, struct handle *h, uint64_t job) {
    char why[64];
    if (h->state != HANDLE_BUSY) return; // its worker is gone, and with it the memory
    snprintf(why, sizeof why, "was donated to job %llu", (unsigned long long)job);
    end(b, h, ST_FAILED_PRECONDITION, HLOD__V1__REASON__REASON_BUFFER_DONATED, why);
}

// ---- what time and workers do

void buffers_expire(struct buffers *b, int64_t now_ns) {
    b->due_ns = 0;
    for (struct handle *h = b->live.first, *next; h; h = next) {
        next = h->next;
        int64_t at = ends_ns(h);
        if (at == INT64_MAX) continue;
        if (at > now_ns || h->state == HANDLE_BUSY) {
            if (at <= now_ns) at = now_ns + 1000000000; // when the run is over, look again
            if (!b->due_ns || at < b->due_ns) b->due_ns = at;
            continue;
        }
        char why[96];
        snprintf(why, sizeof why, "is gone: it was not used for its lease of %lld ms",
                 (long long)h->lease_ms);
        metric_add(M_BUFFERS_EXPIRED, 1);
        end(b, h, ST_NOT_FOUND, HLOD__V1__REASON__REASON_BUFFER_NOT_FOUND, why);
    }
}
int64_t buffers_due(const struct buffers *b) {
    return b->due_ns;
}

static void lose(struct handle *h, const char *who) {
    if (h->state == HANDLE_LOST) return;
    metric_add(M_BUFFERS_LOST, 1);
    h->state = HANDLE_LOST;
    h->code = ST_UNAVAILABLE;
    h->reason = HLOD__V1__REASON__REASON_BUFFER_LOST;
    snprintf(h->why, sizeof h->why, "was lost with worker %s: put it again", who);
}
void buffers_worker(struct buffers *b, int worker, uint64_t epoch, const char *who) {
    while (b->epochs.n <= (size_t)worker)
        vec_push(&b->epochs, 0);
    if (b->epochs.v[worker] == epoch) return;
    b->epochs.v[worker] = epoch;
    for (struct handle *h = b->live.first; h; h = h->next)
        for (size_t k = 0; k < h->n; k++) {
            struct buffer *x = h->leaf[k];
            if (x->worker == worker && x->epoch != epoch) buffer_gone(x);
            if (x->state == BUFFER_GONE) lose(h, who);
        }
}

struct handle *buffers_next(const struct buffers *b, const char *tenant, const struct handle *h) {
    struct handle *x = h ? h->next : b->live.first;
    while (x && strcmp(x->tenant, tenant) != 0)
        x = x->next;
    return x;
}

void buffers_done(struct buffers *b) {
    if (!b) return;
    struct str k;
    void *v;
    for (struct handle *h; (h = b->live.first ? b->live.first : b->dead.first);) {
        list_remove(b->live.first ? &b->live : &b->dead, h);
        for (size_t i = 0; i < h->n; i++)
            buffer_gone(h->leaf[i]); // the workers end as well
        free_handle(h);
    }
    for (size_t i = 0; smap_next(&b->tenants, &i, &k, &v);)
        free(v);
    for (size_t i = 0; i < b->use.n; i++)
        free(b->use.v[i]);
    vec_done(&b->use);
    vec_done(&b->epochs);
    smap_done(&b->by_local);
    smap_done(&b->tenants);
    free(b);
}
