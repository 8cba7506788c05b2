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
static const int64_t KEEP_GONE_US = MODELS_GONE_DAYS * INT64_C(86400000000);
struct gone_model { // that was removed
    struct gone_model *newer, *older;
    struct arena arena;
    Hlod__Journal__NamedModel record;
};
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
    struct named_model *first, *inserted; // inserted: the last that was, or NULL
    struct smap names;                    // tenant and name -> its newest version
    struct smap tenants;                  // -> how many each has, a count
    size_t n;
    VEC(struct change *) changes;
    struct change *saving; // the pool's while not NULL
    status_t failed;       // the first error that no caller was told of
    // Of a cluster.
    const char *writer; // ourselves; NULL: no other node has these names
    models_told_fn told;
    void *told_ctx;
    uint64_t sum;     // of the marks
    struct smap gone; // by tenant, name and version
    struct gone_model *newest_gone, *oldest_gone;
    struct named_model *walk; // the next of models_walk
    struct gone_model *walk_gone;
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
static void fill_record(struct arena *a, const struct named_model *x,
                        Hlod__Journal__NamedModel *r) {
    hlod__journal__named_model__init(r);
    r->name = arena_strdup(a, x->name);
    r->tenant = arena_strdup(a, x->tenant);
    r->version = x->version;
    r->source = (ProtobufCBinaryData){sizeof x->source.b, arena_dup(a, x->source.b, 32)};
    r->unloaded = !x->loaded;
    r->batch_max = x->batching.max;
    r->batch_delay_us = x->batching.delay_us;
    r->batch_unchecked = x->batching.unchecked;
    r->revision = x->revision;
    r->writer = arena_strdup(a, x->writer);
    r->labels = arena_array(a, Hlod__Journal__Labels *, x->n_labels + 1);
    for (size_t i = 0; i < x->n_labels; i++) {
        Hlod__Journal__Labels *l = r->labels[i] =
            message_new(a, &hlod__journal__labels__descriptor);
        l->output = arena_strdup(a, x->labels[i].output);
        l->text = arena_strdup(a, x->labels[i].text);
    }
    r->n_labels = x->n_labels;
}
static struct change *new_change(struct models *m, const char *tenant, const char *name,
                                 int64_t version, struct digest source) {
    struct change *c = arena_must_calloc(1, sizeof *c);
    c->key = key_of_name(tenant, name, version);
    c->source = source;
    vec_push(&m->changes, c);
    return c;
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
    if (m->inserted && compare(m->inserted, x) < 0) at = &m->inserted->next; // many come in order
    while (*at && compare(*at, x) < 0)
        at = &(*at)->next;
    x->next = *at;
    *at = x;
    return m->inserted = x;
}

// ---- what is written, and told to other nodes

static int64_t wall_us(void) {
    return clock_wall_ns() / 1000;
}
// What a version's state adds to the sum over all: the same on every node that has that state.
static uint64_t mark_of(const struct named_model *x) {
    struct sha256 h;
    uint64_t mark;
    sha256_init(&h);
    sha256_str(&h, str_of(x->tenant));
    sha256_str(&h, str_of(x->name));
    sha256_u64(&h, (uint64_t)x->version);
    sha256_u64(&h, (uint64_t)x->revision);
    sha256_str(&h, str_of(x->writer));
    struct digest d = sha256_end(&h);
    memcpy(&mark, d.b, sizeof mark);
    return mark;
}
static void set_mark(struct models *m, struct named_model *x, bool there) {
    if (!m->writer) return;
    m->sum -= x->mark;
    x->mark = there ? mark_of(x) : 0;
    m->sum += x->mark;
}

static struct str gone_key(struct strbuf *b, const char *tenant, const char *name,
                           int64_t version) {
    index_key(b, tenant, name);
    strbuf_putc(b, 0);
    strbuf_printf(b, "%" PRId64, version);
    return (struct str){b->p, b->n};
}
static struct gone_model *gone_of(const struct models *m, const char *tenant, const char *name,
                                  int64_t version) {
    struct strbuf b = {0};
    struct gone_model *g = smap_get(&m->gone, gone_key(&b, tenant, name, version));
    strbuf_done(&b);
    return g;
}
static void forget_gone(struct models *m, struct gone_model *g) {
    struct strbuf b = {0};
    smap_del(&m->gone, gone_key(&b, g->record.tenant, g->record.name, g->record.version));
    strbuf_done(&b);
    if (m->walk_gone == g) m->walk_gone = g->older;
    *(g->newer ? &g->newer->older : &m->newest_gone) = g->older;
    *(g->older ? &g->older->newer : &m->oldest_gone) = g->newer;
    arena_done(&g->arena);
    free(g);
}
static void keep_gone(struct models *m, const Hlod__Journal__NamedModel *r) {
    struct strbuf b = {0};
    struct gone_model *g = gone_of(m, r->tenant, r->name, r->version);
    if (g) forget_gone(m, g);
    g = arena_must_calloc(1, sizeof *g);
    hlod__journal__named_model__init(&g->record);
    g->record.name = arena_strdup(&g->arena, r->name);
    g->record.tenant = arena_strdup(&g->arena, r->tenant);
    g->record.version = r->version;
    if (r->source.len) {
        uint8_t *source = arena_dup(&g->arena, r->source.data, r->source.len);
        g->record.source = (ProtobufCBinaryData){r->source.len, source};
    }
    g->record.revision = r->revision;
    g->record.writer = arena_strdup(&g->arena, r->writer);
    g->record.removed = true;

    smap_put(&m->gone, gone_key(&b, r->tenant, r->name, r->version), g);
    strbuf_done(&b);
    g->older = m->newest_gone;
    *(g->older ? &g->older->newer : &m->oldest_gone) = g;
    m->newest_gone = g;
}
// What was removed long ago, or so much else since then, is nobody's memory any more.
static void expire_gone(struct models *m) {
    int64_t before_us = wall_us() - KEEP_GONE_US;
    while (m->oldest_gone &&
           (m->gone.n > MODELS_GONE_MAX || m->oldest_gone->record.revision < before_us)) {
        const Hlod__Journal__NamedModel *r = &m->oldest_gone->record;
        struct digest none = {0};
        struct change *c = new_change(m, r->tenant, r->name, r->version, none);
        c->removed = true;
        c->record.name = arena_strdup(&c->arena, r->name);
        forget_gone(m, m->oldest_gone);
    }
    save_next(m);
}

// Its state to the journal, told to nobody. Removed: where other nodes have it too, a row says so.
static const Hlod__Journal__NamedModel *write(struct models *m, struct named_model *x,
                                              bool removed) {
    struct change *c = new_change(m, x->tenant, x->name, x->version, x->source);
    bool shared = m->writer || *x->writer;
    c->removed = removed && !shared;
    fill_record(&c->arena, x, &c->record);
    c->record.removed = removed;
    if (removed) c->record.source = (ProtobufCBinaryData){0}; // an older hlod takes it for none
    set_mark(m, x, !removed);
    if (removed && shared) keep_gone(m, &c->record);
    save_next(m);
    return &c->record;
}
// The same of a change made here.
static void save(struct models *m, struct named_model *x, bool removed) {
    int64_t now_us = wall_us();
    x->revision = x->revision < now_us ? now_us : x->revision + 1;
    if (m->writer) snprintf(x->writer, sizeof x->writer, "%s", m->writer);
    const Hlod__Journal__NamedModel *r = write(m, x, removed);
    if (m->told) m->told(m->told_ctx, r);
    if (removed) expire_gone(m);
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

static void take_record(struct named_model *x, const Hlod__Journal__NamedModel *r) {
    memcpy(x->source.b, r->source.data, sizeof x->source.b);
    x->loaded = !r->unloaded;
    x->reason = r->unloaded ? "unloaded" : "";
    x->batching = (struct batching){r->batch_max, r->batch_delay_us, r->batch_unchecked};
    x->revision = r->revision;
    snprintf(x->writer, sizeof x->writer, "%s", r->writer);
    drop_labels(x);
    for (size_t i = 0; i < r->n_labels; i++)
        add_labels(x, r->labels[i]->output, r->labels[i]->text);
}
struct reading {
    struct models *m;
    VEC(struct named_model *) found;
};
static void read_one(void *ctx, UNUSED struct digest key, struct span record) {
    struct reading *g = ctx;
    Hlod__Journal__NamedModel *r =
        weigh_unpack_or_null(&hlod__journal__named_model__descriptor, record);
    if (r && *r->name && r->removed) {
        keep_gone(g->m, r);
    } else if (r && *r->name && r->source.len == sizeof(struct digest)) {
        struct named_model *x =
            new_model(g->m, *r->tenant ? r->tenant : MODELS_DEFAULT, r->name, r->version);
        vec_push(&g->found, x);
        take_record(x, r);
    }
    if (r) hlod__journal__named_model__free_unpacked(r, NULL);
}

status_t models_new(struct sched *s, struct models **out) {
    struct models *m = arena_must_calloc(1, sizeof *m);
    m->s = s;
    smap_seed_random(&m->names);
    smap_seed_random(&m->tenants);
    smap_seed_random(&m->gone);
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
    while (m->newest_gone)
        forget_gone(m, m->newest_gone);
    smap_done(&m->gone);
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
    if (*version && (*version < '1' || *version > '9' || !str_to_i64(str_of(version), &v)))
        return NULL; // "0", "01" and "+1" are no version's number
    struct named_model *x = tenant ? newest_of(m, tenant, name) : m->first;
    for (; x; x = tenant ? x->older : x->next) {
        if (!tenant && strcmp(x->name, name)) continue;
        if (v ? x->version == v : x->loaded) return x;
        if (!newest) newest = x;
    }
    return v ? NULL : newest;
}

// "." and ".." would be taken out of a path by clients and proxies.
bool models_name_fits(const char *name) {
    return text_is_name(str_of(name), MAX_NAME) && !strpbrk(name, " /") && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

// What was removed under its name before, it is newer than.
static void revive(struct models *m, struct named_model *x) {
    struct gone_model *g = gone_of(m, x->tenant, x->name, x->version);
    if (!g) return;
    x->revision = g->record.revision;
    snprintf(x->writer, sizeof x->writer, "%s", g->record.writer);
    forget_gone(m, g);
}
status_t models_set(struct models *m, const char *tenant, const char *name, int64_t version,
                    struct digest source, struct batching batching, struct named_model **out) {
    if (!models_name_fits(name))
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

    if (!version && newest == INT64_MAX)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                          "version %" PRId64 " of '%s' is the last that there is: say which",
                          newest, name);

    size_t own = count_of(m, tenant);
    int64_t most = sched_cfg(m->s)->max_names;
    if (!x && most && (int64_t)(own + m->n) >= most)
        return st_exhausted(
            "tenant '%s' has %zu named versions of models, all together have %zu: one "
            "may have as many as it leaves of %" PRId64 " (max_names)",
            tenant, own, m->n, most);
    if (!x) x = insert(m, tenant, name, version ? version : newest + 1);
    revive(m, x);

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

void models_join(struct models *m, struct named_model *x, struct batching b) {
    x->batching = b;
    save(m, x, false);
}

// False: it is none of them.
static bool take_out(struct models *m, struct named_model *x) {
    struct named_model **at = &m->first;
    while (*at && *at != x)
        at = &(*at)->next;
    if (!*at) return false;
    *at = x->next;
    if (m->walk == x) m->walk = x->next;
    if (m->inserted == x) m->inserted = NULL;
    m->n--;
    index_drop(m, x);
    return true;
}
void models_remove(struct models *m, struct named_model *x) {
    if (!take_out(m, x)) return;
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

// ---- names that other nodes have too

void models_share(struct models *m, const char *writer, models_told_fn told, void *ctx) {
    m->writer = writer;
    m->told = told;
    m->told_ctx = ctx;
    for (struct named_model *x = m->first; x; x = x->next) {
        set_mark(m, x, true);
        if (*x->writer) continue;
        if (!x->revision) x->revision = 1; // of before there were any
        snprintf(x->writer, sizeof x->writer, "%s", writer);
        write(m, x, false);
    }
    expire_gone(m);
}
uint64_t models_sum(const struct models *m, size_t *out_n) {
    *out_n = m->n;
    return m->sum;
}

// Is it newer than what stands under its name?
static bool newer(const Hlod__Journal__NamedModel *r, int64_t revision, const char *writer) {
    return r->revision > revision || (r->revision == revision && strcmp(r->writer, writer) > 0);
}
static enum models_merged merge_gone(struct models *m, struct named_model *x,
                                     const Hlod__Journal__NamedModel *r) {
    if (r->revision < wall_us() - KEEP_GONE_US) return MODELS_OLD; // forgotten everywhere
    if (x && take_out(m, x)) {
        x->revision = r->revision;
        snprintf(x->writer, sizeof x->writer, "%s", r->writer);
        write(m, x, true);
        free_model(x);
    } else {
        struct digest none = {0};
        struct change *c = new_change(m, r->tenant, r->name, r->version, none);
        keep_gone(m, r);
        struct gone_model *g = m->newest_gone;
        c->record = g->record;
        c->record.name = arena_strdup(&c->arena, r->name);
        c->record.tenant = arena_strdup(&c->arena, r->tenant);
        c->record.writer = arena_strdup(&c->arena, r->writer);
        c->record.source = (ProtobufCBinaryData){0};
    }
    expire_gone(m);
    return MODELS_TAKEN;
}
enum models_merged models_merge(struct models *m, const Hlod__Journal__NamedModel *r) {
    struct named_model *x = newest_of(m, r->tenant, r->name);
    while (x && x->version != r->version)
        x = x->older;
    struct gone_model *g = x ? NULL : gone_of(m, r->tenant, r->name, r->version);
    if (!newer(r,
               x   ? x->revision
               : g ? g->record.revision
                   : 0,
               x   ? x->writer
               : g ? g->record.writer
                   : ""))
        return MODELS_OLD;
    if (r->removed) return merge_gone(m, x, r);

    int64_t most = sched_cfg(m->s)->max_names;
    if (!x && most && (int64_t)m->n >= most) return MODELS_FULL;
    if (!x) x = insert(m, r->tenant, r->name, r->version);
    if (g) forget_gone(m, g);
    take_record(x, r);
    write(m, x, false);
    return MODELS_TAKEN;
}

void models_walk(struct models *m) {
    m->walk = m->first;
    m->walk_gone = m->newest_gone;
}
bool models_walk_on(struct models *m, int most, models_told_fn fn, void *ctx) {
    for (; most > 0 && m->walk; most--, m->walk = m->walk->next) {
        Hlod__Journal__NamedModel r;
        struct arena a = {0};
        fill_record(&a, m->walk, &r);
        fn(ctx, &r);
        arena_done(&a);
    }
    for (; most > 0 && m->walk_gone; most--, m->walk_gone = m->walk_gone->older)
        fn(ctx, &m->walk_gone->record);
    return m->walk || m->walk_gone;
}
const struct named_model *models_naming(const struct models *m, const char *tenant,
                                        struct digest source) {
    const struct named_model *x = m->first;
    while (x && (!models_of(x, tenant) || !digest_eq(x->source, source)))
        x = x->next;
    return x;
}
