// SPDX-License-Identifier: Apache-2.0
// A sorted list, and an index of each tenant's names, so that a look-up does not walk over other
// tenants'. Changes go to the journal on the pool, in the order they were made (one at a time, see
// save_next).
#include "scheduler/records/models.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"
#include "base/text.h"
#include "base/vec.h"
#include "proto/journal.pb-c.h"
#include "proto/message.h"
#include "proto/weigh.h"
#include "scheduler/job/job.h"
#include "scheduler/loop.h"
#include "scheduler/records/journal.h"

enum { MAX_NAME = 200 };
struct change { // waiting to be written
    struct digest key;
    struct digest source;
    Hlod__Journal__NamedModel record;
    struct arena arena;
    bool removed;
    status_t st;        // of the writing, which is over
    models_saved_fn fn; // who waits for it, or NULL
    void *ctx;
};
struct models {
    struct sched *s;
    struct named_model *first;
    struct smap names;   // tenant and name -> its newest version
    struct smap tenants; // -> how many each has, a count
    size_t n;
    VEC(struct change *) changes;
    struct change *saving; // the pool's while not NULL
    status_t failed;       // the first error that no caller was told of
};

static struct digest key_of_name(const char *tenant, const char *name, int64_t version) {
    struct sha256 h;
    sha256_init(&h);
    if (strcmp(tenant, MODELS_DEFAULT)) sha256_str(&h, str_of(tenant));
    sha256_str(&h, str_of(name));
    sha256_u64(&h, (uint64_t)version);
    return sha256_end(&h);
}

// ---- the journal

static void save_work(void *arg) {
    struct models *m = arg;
    struct change *c = m->saving;
    struct journal *j = sched_journal(m->s);
    status_t st = c->removed
                      ? journal_remove(j, JOURNAL_MODEL, c->key)
                      : journal_put_message(j, JOURNAL_MODEL, c->key, c->source, &c->record.base);
    if (st)
        log_event(LOG_ERROR, "models.save", "name=\"%s\" why=\"%s\"", c->record.name,
                  st_message(st));
    c->st = st;
}
static void free_change(struct change *c) {
    arena_done(&c->arena);
    free(c);
}
static void saved(void *arg);
static void save_next(struct models *m) {
    if (m->saving || !m->changes.n) return;
    m->saving = m->changes.v[0];
    memmove(m->changes.v, m->changes.v + 1, --m->changes.n * sizeof *m->changes.v);
    loop_work(sched_loop(m->s), save_work, saved, m);
}
static void saved(void *arg) {
    struct models *m = arg;
    struct change *c = m->saving;
    m->saving = NULL;
    if (m->failed)
        st_drop(c->st);
    else
        m->failed = c->st;
    if (c->fn) {
        status_t st = m->failed;
        m->failed = ST_OK;
        c->fn(c->ctx, st);
    }
    free_change(c);
    save_next(m);
}
bool models_when_saved(struct models *m, models_saved_fn fn, void *ctx) {
    struct change *last = m->changes.n ? m->changes.v[m->changes.n - 1] : m->saving;
    if (!last || last->fn) return false; // its caller waits for it already
    last->fn = fn;
    last->ctx = ctx;
    return true;
}
static void save(struct models *m, const struct named_model *x, bool removed) {
    struct change *c = arena_must_calloc(1, sizeof *c);
    c->key = key_of_name(x->tenant, x->name, x->version);
    c->source = x->source;
    c->removed = removed;
    hlod__journal__named_model__init(&c->record);
    c->record.name = arena_strdup(&c->arena, x->name);
    c->record.tenant = arena_strdup(&c->arena, x->tenant);
    c->record.version = x->version;
    c->record.source = (ProtobufCBinaryData){sizeof c->source.b, c->source.b};
    c->record.unloaded = !x->loaded;
    c->record.batch_max = x->batching.max;
    c->record.batch_delay_us = x->batching.delay_us;
    c->record.batch_unchecked = x->batching.unchecked;
    c->record.labels = arena_array(&c->arena, Hlod__Journal__Labels *, x->n_labels + 1);
    for (size_t i = 0; i < x->n_labels; i++) {
        Hlod__Journal__Labels *l = c->record.labels[i] =
            message_new(&c->arena, &hlod__journal__labels__descriptor);
        l->output = arena_strdup(&c->arena, x->labels[i].output);
        l->text = arena_strdup(&c->arena, x->labels[i].text);
    }
    c->record.n_labels = x->n_labels;
    vec_push(&m->changes, c);
    save_next(m);
}

// ---- the index

static struct str index_key(struct strbuf *b, const char *tenant, const char *name) {
    strbuf_clear(b);
    strbuf_puts(b, tenant);
    strbuf_putc(b, 0);
    strbuf_puts(b, name);
    return (struct str){b->p, b->n};
}
static struct named_model *newest_of(const struct models *m, const char *tenant, const char *name) {
    struct strbuf b = {0};
    struct named_model *x = smap_get(&m->names, index_key(&b, tenant, name));
    strbuf_done(&b);
    return x;
}
static void set_newest(struct models *m, const char *tenant, const char *name,
                       struct named_model *x) {
    struct strbuf b = {0};
    struct str key = index_key(&b, tenant, name);
    if (x)
        smap_put(&m->names, key, x);
    else
        smap_del(&m->names, key);
    strbuf_done(&b);
}
static size_t count_of(const struct models *m, const char *tenant) {
    return (size_t)(uintptr_t)smap_get(&m->tenants, str_of(tenant));
}
static void count(struct models *m, const char *tenant, size_t n) {
    if (n)
        smap_put(&m->tenants, str_of(tenant), (void *)(uintptr_t)n);
    else
        smap_del(&m->tenants, str_of(tenant));
}
static void index_add(struct models *m, struct named_model *x) {
    struct named_model *newest = newest_of(m, x->tenant, x->name), **at = &newest;
    while (*at && (*at)->version > x->version)
        at = &(*at)->older;
    x->older = *at;
    *at = x;
    set_newest(m, x->tenant, x->name, newest);
    count(m, x->tenant, count_of(m, x->tenant) + 1);
}
static void index_drop(struct models *m, struct named_model *x) {
    struct named_model *newest = newest_of(m, x->tenant, x->name), **at = &newest;
    while (*at && *at != x)
        at = &(*at)->older;
    if (*at) *at = x->older;
    set_newest(m, x->tenant, x->name, newest);
    count(m, x->tenant, count_of(m, x->tenant) - 1);
}

static struct named_model *new_model(struct models *m, const char *tenant, const char *name,
                                     int64_t version) {
    struct named_model *x = calloc(1, sizeof *x);
    if (!x || !(x->name = strdup(name)) || !(x->tenant = strdup(tenant))) abort();
    x->version = version;
    m->n++;
    index_add(m, x);
    return x;
}
// Order of the list: by name, the newest version first.
static int compare(const struct named_model *a, const struct named_model *b) {
    int names = strcmp(a->name, b->name);
    return names ? names : (a->version < b->version) - (a->version > b->version);
}
static int compare_listed(const void *a, const void *b) {
    return compare(*(struct named_model *const *)a, *(struct named_model *const *)b);
}
static struct named_model *insert(struct models *m, const char *tenant, const char *name,
                                  int64_t version) {
    struct named_model *x = new_model(m, tenant, name, version), **at = &m->first;
    while (*at && compare(*at, x) < 0)
        at = &(*at)->next;
    x->next = *at;
    *at = x;
    return x;
}

static void add_labels(struct named_model *x, const char *output, const char *text) {
    struct model_labels *v = realloc(x->labels, (x->n_labels + 1) * sizeof *v);
    if (!v) abort();
    x->labels = v;
    v += x->n_labels++;
    if (!(v->output = strdup(output)) || !(v->text = strdup(text))) abort();
}
static void drop_labels(struct named_model *x) {
    while (x->n_labels) {
        free(x->labels[--x->n_labels].output);
        free(x->labels[x->n_labels].text);
    }
    free(x->labels);
    x->labels = NULL;
}
void models_set_labels(struct models *m, struct named_model *x, const struct model_labels *v,
                       size_t n) {
    drop_labels(x);
    for (size_t i = 0; i < n; i++)
        add_labels(x, v[i].output, v[i].text);
    save(m, x, false);
}

struct reading {
    struct models *m;
    VEC(struct named_model *) found;
};
static void read_one(void *ctx, UNUSED struct digest key, struct span record) {
    struct reading *g = ctx;
    Hlod__Journal__NamedModel *r =
        weigh_unpack_or_null(&hlod__journal__named_model__descriptor, record);
    if (r && *r->name && r->source.len == sizeof(struct digest)) {
        struct named_model *x =
            new_model(g->m, *r->tenant ? r->tenant : MODELS_DEFAULT, r->name, r->version);
        vec_push(&g->found, x);
        memcpy(x->source.b, r->source.data, sizeof x->source.b);
        x->loaded = !r->unloaded;
        x->reason = r->unloaded ? "unloaded" : "";
        x->batching = (struct batching){r->batch_max, r->batch_delay_us, r->batch_unchecked};
        for (size_t i = 0; i < r->n_labels; i++)
            add_labels(x, r->labels[i]->output, r->labels[i]->text);
    }
    if (r) hlod__journal__named_model__free_unpacked(r, NULL);
}

status_t models_new(struct sched *s, struct models **out) {
    struct models *m = arena_must_calloc(1, sizeof *m);
    m->s = s;
    smap_seed_random(&m->names);
    smap_seed_random(&m->tenants);
    struct reading g = {.m = m};
    status_t st = journal_list(sched_journal(s), JOURNAL_MODEL, -1, read_one, &g);
    if (g.found.n) qsort(g.found.v, g.found.n, sizeof *g.found.v, compare_listed);
    for (size_t i = g.found.n; i > 0; i--) {
        g.found.v[i - 1]->next = m->first;
        m->first = g.found.v[i - 1];
    }
    vec_done(&g.found);
    if (st)
        models_free(m);
    else
        *out = m;
    return st;
}

static void free_model(struct named_model *x) {
    vec_done(&x->batches);
    drop_labels(x);
    free(x->name);
    free(x->tenant);
    free(x);
}

bool models_saving(const struct models *m) {
    return m->saving != NULL;
}

void models_free(struct models *m) {
    if (!m) return;
    while (m->first) {
        struct named_model *x = m->first;
        m->first = x->next;
        free_model(x);
    }
    smap_done(&m->names);
    smap_done(&m->tenants);
    st_drop(m->failed);
    for (size_t i = 0; i < m->changes.n; i++)
        free_change(m->changes.v[i]);
    vec_done(&m->changes);
    free(m);
}

// ---- names

struct named_model *models_first(struct models *m) {
    return m->first;
}

bool models_of(const struct named_model *x, const char *tenant) {
    return !tenant || !strcmp(x->tenant, tenant);
}
struct named_model *models_find(struct models *m, const char *tenant, const char *name,
                                const char *version) {
    struct named_model *newest = NULL;
    int64_t v = 0;
    if (*version && !str_to_i64(str_of(version), &v)) return NULL;
    struct named_model *x = tenant ? newest_of(m, tenant, name) : m->first;
    for (; x; x = tenant ? x->older : x->next) {
        if (!tenant && strcmp(x->name, name)) continue;
        if (v ? x->version == v : x->loaded) return x;
        if (!newest) newest = x;
    }
    return v ? NULL : newest;
}

// "." and ".." would be taken out of a path by clients and proxies.
static bool name_fits(const char *name) {
    return text_is_name(str_of(name), MAX_NAME) && !strpbrk(name, " /") && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

status_t models_set(struct models *m, const char *tenant, const char *name, int64_t version,
                    struct digest source, struct batching batching, struct named_model **out) {
    if (!name_fits(name))
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                          "model name '%.100s': expected 1 to %d bytes of UTF-8 without "
                          "space, '/', and characters that are not seen (control, "
                          "direction, zero width), and not '.' or '..'",
                          name, MAX_NAME);
    if (version < 0)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "version %" PRId64, version);

    struct named_model *x = NULL;
    int64_t newest = 0;
    for (struct named_model *y = newest_of(m, tenant, name); y; y = y->older) {
        if (y->version > newest) newest = y->version;
        if (y->version == version) x = y;
    }

    size_t own = count_of(m, tenant);
    int64_t most = sched_cfg(m->s)->max_names;
    if (!x && most && (int64_t)(own + m->n) >= most)
        return st_exhausted(
            "tenant '%s' has %zu named versions of models, all together have %zu: one "
            "may have as many as it leaves of %" PRId64 " (max_names)",
            tenant, own, m->n, most);
    if (!x) x = insert(m, tenant, name, version ? version : newest + 1);

    x->source = source;
    x->batching = batching;
    drop_labels(x);
    x->loaded = true;
    x->reason = "";
    save(m, x, false);
    *out = x;
    return ST_OK;
}

void models_load(struct models *m, struct named_model *x, bool loaded) {
    if (x->loaded == loaded) return;
    x->loaded = loaded;
    x->reason = loaded ? "" : "unloaded";
    save(m, x, false);
}

void models_remove(struct models *m, struct named_model *x) {
    struct named_model **at = &m->first;
    while (*at && *at != x)
        at = &(*at)->next;
    if (!*at) return;
    *at = x->next;
    m->n--;
    index_drop(m, x);
    save(m, x, true);
    free_model(x);
}

void models_count_batch(struct models *m, const char *tenant, const char *name, int64_t version,
                        int64_t rows, uint64_t ns) {
    for (struct named_model *x = newest_of(m, tenant, name); x; x = x->older) {
        if (x->version != version) continue;
        size_t i = 0;
        while (i < x->batches.n && x->batches.v[i].rows < rows)
            i++;
        if (i == x->batches.n || x->batches.v[i].rows != rows) {
            struct model_batches fresh = {.rows = rows};
            vec_push(&x->batches, fresh);
            memmove(x->batches.v + i + 1, x->batches.v + i,
                    (x->batches.n - 1 - i) * sizeof *x->batches.v);
            x->batches.v[i] = fresh;
        }
        x->batches.v[i].infer.n++;
        x->batches.v[i].infer.ns += ns;
        x->executions++;
        x->inferences += (uint64_t)rows;
        return;
    }
}
