// SPDX-License-Identifier: Apache-2.0
// A sorted list: there are few names, and they are listed as often as looked up. Changes go to the
// journal on the pool, in the order they were made (one at a time, see save_next).
#include "scheduler/models.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/vec.h"
#include "proto/journal.pb-c.h"
#include "proto/weigh.h"
#include "scheduler/job.h"
#include "scheduler/journal.h"
#include "scheduler/loop.h"

enum { MAX_NAME = 200, MAX_MODELS = 10000 };
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
    size_t n;
    VEC(struct change *) changes;
    struct change *saving; // the pool's while not NULL
    status_t failed;       // the first error that nobody was told of
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
    if (!last || last->fn) return false; // the last one's maker waits for it already
    last->fn = fn;
    last->ctx = ctx;
    return true;
}
static void save(struct models *m, const struct named_model *x, bool removed) {
    struct change *c = calloc(1, sizeof *c);
    if (!c) abort();
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
            arena_new_of(&c->arena, Hlod__Journal__Labels);
        hlod__journal__labels__init(l);
        l->output = arena_strdup(&c->arena, x->labels[i].output);
        l->text = arena_strdup(&c->arena, x->labels[i].text);
    }
    c->record.n_labels = x->n_labels;
    vec_push(&m->changes, c);
    save_next(m);
}

static struct named_model *insert(struct models *m, const char *tenant, const char *name,
                                  int64_t version) {
    struct named_model **at = &m->first, *x = calloc(1, sizeof *x);
    if (!x || !(x->name = strdup(name)) || !(x->tenant = strdup(tenant))) abort();
    x->version = version;
    while (*at && (strcmp((*at)->name, name) < 0 ||
                   (!strcmp((*at)->name, name) && (*at)->version > version)))
        at = &(*at)->next;
    x->next = *at;
    *at = x;
    m->n++;
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

static void read_one(void *ctx, struct digest key, struct span record) {
    struct models *m = ctx;
    (void)key;
    Hlod__Journal__NamedModel *r =
        weigh_unpack_or_null(&hlod__journal__named_model__descriptor, record);
    if (r && *r->name && r->source.len == sizeof(struct digest)) {
        struct named_model *x =
            insert(m, *r->tenant ? r->tenant : MODELS_DEFAULT, r->name, r->version);
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
    struct models *m = calloc(1, sizeof *m);
    if (!m) abort();
    m->s = s;
    status_t st = journal_list(sched_journal(s), JOURNAL_MODEL, -1, read_one, m);
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
    for (struct named_model *x = m->first; x; x = x->next) {
        if (strcmp(x->name, name) || !models_of(x, tenant)) continue;
        if (v ? x->version == v : x->loaded) return x;
        if (!newest) newest = x;
    }
    return v ? NULL : newest;
}

static bool name_fits(const char *name) {
    size_t n = strlen(name);
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < 0x21 || *p == 0x7f || *p == '/') return false;
    return n > 0 && n <= MAX_NAME;
}

status_t models_set(struct models *m, const char *tenant, const char *name, int64_t version,
                    struct digest source, struct batching batching, struct named_model **out) {
    if (!name_fits(name))
        return st_reason(st_new(ST_INVALID_ARGUMENT,
                                "model name '%.100s': expected 1 to %d characters without space "
                                "or '/'",
                                name, MAX_NAME),
                         HLOD__V1__REASON__REASON_BAD_OPTION);
    if (version < 0)
        return st_reason(st_new(ST_INVALID_ARGUMENT, "version %" PRId64, version),
                         HLOD__V1__REASON__REASON_BAD_OPTION);
    struct named_model *x = NULL;
    int64_t newest = 0;
    for (struct named_model *y = m->first; y; y = y->next) {
        if (strcmp(y->name, name) || !models_of(y, tenant)) continue;
        if (y->version > newest) newest = y->version;
        if (y->version == version) x = y;
    }
    if (!x && m->n >= MAX_MODELS)
        return st_new(ST_RESOURCE_EXHAUSTED, "more than %d model versions", MAX_MODELS);
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
    save(m, x, true);
    free_model(x);
}

void models_count_batch(struct models *m, const char *tenant, const char *name, int64_t version,
                        int64_t rows, uint64_t ns) {
    for (struct named_model *x = m->first; x; x = x->next) {
        if (x->version != version || strcmp(x->name, name) || !models_of(x, tenant)) continue;
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
