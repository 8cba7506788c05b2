// SPDX-License-Identifier: Apache-2.0
// A row's key is the hash of tenant and digest, its family the digest, so that all owners of one
// are found; its record the tenant's name, behind it a NUL and the source where there is one.
#include "scheduler/records/owners.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"
#include "scheduler/loop.h"
#include "scheduler/records/journal.h"

enum { MAX_ROWS = 1 << 17 }; // in memory; then all are forgotten and read again
struct row {
    struct digest d, source;
};
struct owners {
    struct loop *loop;
    struct journal *journal;
    struct smap rows;   // by key
    struct smap counts; // by digest: of the rows
};

static struct digest key_of(const char *tenant, struct digest d) {
    struct sha256_text t = {0};
    sha256_text_str(&t, str_of(tenant));
    sha256_text_add(&t, d.b, sizeof d.b);
    return sha256_text_end(&t);
}

// ---- the journal

status_t owner_write(struct journal *j, const char *tenant, struct digest d, struct digest source) {
    struct strbuf b = {0};
    strbuf_puts(&b, tenant);
    if (!digest_is_zero(source)) {
        strbuf_putc(&b, 0);
        strbuf_add(&b, source.b, sizeof source.b);
    }
    status_t st = journal_put(j, JOURNAL_BLOB, key_of(tenant, d), d,
                              (struct span){(const uint8_t *)b.p, b.n}, clock_wall_ns());
    strbuf_done(&b);
    return st;
}
status_t owner_read(struct journal *j, const char *tenant, struct digest d,
                    struct digest *out_source) {
    struct arena a = {0};
    struct span rec;
    size_t n = strlen(tenant);
    *out_source = (struct digest){0};
    status_t st = journal_get(j, JOURNAL_BLOB, key_of(tenant, d), &a, &rec);
    if (!st && rec.n == n + 1 + sizeof out_source->b)
        memcpy(out_source->b, rec.p + n + 1, sizeof out_source->b);
    arena_done(&a);
    return st;
}
static void count_one(void *ctx, UNUSED struct digest key, UNUSED int64_t used_ns) {
    ++*(int *)ctx;
}
status_t owners_written(struct journal *j, struct digest d, int *out) {
    *out = 0;
    return journal_family(j, JOURNAL_BLOB, d, count_one, out);
}
struct write {
    struct journal *journal;
    struct digest d, source;
    char tenant[];
};
static void write_work(void *arg) {
    struct write *w = arg;
    status_t st = owner_write(w->journal, w->tenant, w->d, w->source);
    if (st) // it holds until the daemon ends
        log_event(LOG_WARN, "owners.save", "tenant=%s why=\"%s\"", w->tenant, st_message(st));
    st_drop(st);
}
static void written(void *arg) {
    free(arg);
}

// ---- memory

struct owners *owners_new(struct loop *l, struct journal *j) {
    struct owners *o = arena_must_calloc(1, sizeof *o);
    o->loop = l;
    o->journal = j;
    smap_seed_random(&o->rows);
    smap_seed_random(&o->counts);
    return o;
}
static void forget_all(struct owners *o) {
    struct str k;
    void *v;
    for (size_t i = 0; smap_next(&o->rows, &i, &k, &v);)
        free(v);
    smap_done(&o->rows);
    smap_done(&o->counts);
    smap_seed_random(&o->rows);
    smap_seed_random(&o->counts);
}
void owners_free(struct owners *o) {
    if (!o) return;
    forget_all(o);
    smap_done(&o->rows);
    smap_done(&o->counts);
    free(o);
}

bool owners_knows(const struct owners *o, const char *tenant, struct digest d,
                  struct digest *out_source) {
    struct digest key = key_of(tenant, d);
    const struct row *r = smap_get(&o->rows, digest_str(&key));
    if (r) *out_source = r->source;
    return r;
}
int owners_count(const struct owners *o, struct digest d) {
    return (int)(intptr_t)smap_get(&o->counts, digest_str(&d));
}
static void count(struct owners *o, struct digest d, int by) {
    intptr_t n = owners_count(o, d) + by;
    if (n)
        smap_put(&o->counts, digest_str(&d), (void *)n);
    else
        smap_del(&o->counts, digest_str(&d));
}

void owners_keep(struct owners *o, const char *tenant, struct digest d, struct digest source) {
    struct digest key = key_of(tenant, d);
    struct row *r = smap_get(&o->rows, digest_str(&key));
    if (!r) {
        if (o->rows.n >= MAX_ROWS) forget_all(o);
        if (!(r = calloc(1, sizeof *r))) abort();
        smap_put(&o->rows, digest_str(&key), r);
        count(o, d, 1);
    }
    *r = (struct row){d, source};
}
void owners_forget(struct owners *o, const char *tenant, struct digest d) {
    struct digest key = key_of(tenant, d);
    struct row *r = smap_del(&o->rows, digest_str(&key));
    if (r) count(o, d, -1);
    free(r);
}

void owners_add(struct owners *o, const char *tenant, struct digest d, struct digest source) {
    struct digest old;
    if (owners_knows(o, tenant, d, &old) && digest_eq(old, source)) return;
    owners_keep(o, tenant, d, source);
    struct write *w = malloc(sizeof *w + strlen(tenant) + 1);
    if (!w) abort();
    *w = (struct write){o->journal, d, source};
    memcpy(w->tenant, tenant, strlen(tenant) + 1);
    loop_work(o->loop, write_work, written, w);
}
