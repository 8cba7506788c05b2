// SPDX-License-Identifier: Apache-2.0
// ROW_MODEL: from a digest to records (memory, then journal, then ingest). A digest may name a
// source or an executable; an executable brings the source it was compiled from, whose weights are
// used unless the request names another source of the same program.
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/store/store.h"
#include "proto/weigh.h"
#include "scheduler/job/job_inside.h"
#include "scheduler/loop.h"
#include "scheduler/records/journal.h"

// What pool work found for one digest.
struct lookup {
    struct job *j;
    struct arena arena;
    Hlod__Wire__IngestReply *source;
    Hlod__V1__ExecutableInfo *exe;
    struct digest model;              // of source
    Hlod__Wire__IngestReply *weights; // of spec.weights
    bool have_blob;
    bool want_weights;
    struct digest by, model_source, weights_source; // by: the owner's model, of an executable
    bool owns_model, owns_weights;
    status_t st;
};

// Does the job's owner, if it has one, own it? On the pool.
static bool owns(struct lookup *l, struct digest d, struct digest *out_source) {
    if (!l->j->owner) return true;
    status_t st = owner_read(l->j->s->journal, l->j->owner, d, out_source);
    if (!st) return true;
    if (st_code(st) != ST_NOT_FOUND && !l->st)
        l->st = st;
    else
        st_drop(st);
    return false;
}

static struct digest record_of(const struct job *j, struct digest source) {
    return sched_record(j->s, j->tenant->name, source);
}

static Hlod__Wire__IngestReply *read_source(struct lookup *l, struct digest d) {
    struct span rec;
    status_t st =
        journal_get(l->j->s->journal, JOURNAL_SOURCE, record_of(l->j, d), &l->arena, &rec);
    if (st) {
        if (st_code(st) != ST_NOT_FOUND)
            l->st = st;
        else
            st_drop(st);
        return NULL;
    }
    Hlod__Wire__IngestReply *r = weigh_unpack_or_null(&hlod__wire__ingest_reply__descriptor, rec);
    if (r && (r->program_digest.len != 32 || r->weights_digest.len != 32 || !r->signature)) {
        hlod__wire__ingest_reply__free_unpacked(r, NULL);
        r = NULL;
    }
    return r;
}

static void lookup_work(void *arg) {
    struct lookup *l = arg;
    struct job *j = l->j;
    if (l->want_weights && !l->owns_weights)
        l->owns_weights = owns(l, j->spec->weights, &l->weights_source);
    l->model = j->subject;
    if (!l->owns_model) l->owns_model = owns(l, l->model, &l->model_source);
    if (!l->owns_model) return;
    l->source = j->reread ? NULL : read_source(l, l->model);
    struct span rec;
    if (!l->source && !l->st) {
        status_t st = journal_get(j->s->journal, JOURNAL_EXECUTABLE, j->subject, &l->arena, &rec);
        if (!st) l->exe = weigh_unpack_or_null(&hlod__v1__executable_info__descriptor, rec);
        st_drop(st);
        l->by = l->model_source; // its owner's model, not whose was compiled first
        if (l->exe && digest_is_zero(l->by) &&
            (!digest_parse(str_of(l->exe->source_digest), &l->by) ||
             !owns(l, l->by, &(struct digest){0})))
            l->by = (struct digest){0};
        if (l->exe && !digest_is_zero(l->by)) {
            l->model = l->by;
            l->source = read_source(l, l->model);
        }
    }
    l->have_blob = store_has(j->s->store, STORE_BLOB, l->model);
    if (l->want_weights && !l->st && l->owns_weights) l->weights = read_source(l, j->spec->weights);
}

static status_t not_found(struct digest d) {
    return st_because(ST_NOT_FOUND, MODEL_NOT_FOUND, "no model or executable %s here",
                      digest_to_hex(d).z);
}

// The job was for an executable: its key and how it was made come from its record.
static status_t adopt_exe(struct job *j, struct exe *e) {
    const Hlod__V1__ExecutableInfo *x = e->info;
    struct job_key k = {.digest = e->key, .device_kind = arena_strdup(&j->arena, x->device_kind)};
    if (job_wants_auto(j)) job_choose_device(j, ""); // it has its kind
    k.bindings = arena_array(&j->arena, Hlod__Wire__Binding *, x->n_bindings + 1);
    for (; k.n_bindings < x->n_bindings; k.n_bindings++) {
        const char *text = x->bindings[k.n_bindings], *eq = strrchr(text, '=');
        int64_t size;
        if (!eq || !str_to_i64(str_of(eq + 1), &size))
            return st_new(ST_DATA_LOSS, "unreadable record of an executable");
        k.bindings[k.n_bindings] =
            key_binding(&j->arena, arena_strndup(&j->arena, text, (size_t)(eq - text)), size);
    }
    k.parts = (struct key_parts){.program = j->model->program,
                                 .bindings = key_bindings_text(&j->arena, k.bindings, k.n_bindings),
                                 .options = arena_strdup(&j->arena, x->options),
                                 .target_id = arena_strdup(&j->arena, x->target_id),
                                 .build_id = arena_strdup(&j->arena, x->build_id),
                                 .kernel_abi = x->kernel_abi};
    job_deliver(j, ROW_KEY, &(struct delivery){.key = &k});
    job_deliver(j, ROW_EXECUTABLE, &(struct delivery){.exe = e, .hit = true});
    metric_add(M_CACHE_HITS, 1);
    return job_same_values(j, &k);
}

static status_t resolved(struct job *j, struct model *m, struct exe *e) {
    job_deliver(j, ROW_MODEL, &(struct delivery){.model = m, .hit = true});
    if (!e && (j->spec->kind == JOB_INSPECT || j->spec->kind == JOB_TUNE))
        return st_because(ST_NOT_FOUND, EXECUTABLE_NOT_FOUND,
                          "the digest names a model; %s",
                          j->spec->kind == JOB_TUNE ? "what is tuned is an executable"
                                                    : "stages belong to an executable");
    if (e) RETURN_IF_ERR(adopt_exe(j, e));
    job_event_ingest(j, j->model, 0);
    return ST_OK;
}

// A hint for reading is a name, or a media type: "onnx", "application/onnx", "text/x-hlo".
static bool same_format(const char *hint, const char *format) {
    struct str all = str_of(hint), h;
    str_cut(&all, ';', &h);
    h = str_trim(h);
    bool text = str_starts(h, "text/");
    const char *slash = memchr(h.p, '/', h.n);
    if (slash) h = (struct str){slash + 1, h.n - (size_t)(slash + 1 - h.p)};
    if (str_starts(h, "x-")) h = (struct str){h.p + 2, h.n - 2};
    if (h.n == 0 || str_is(h, format)) return true;
    size_t n = strlen(format);
    return text && n > h.n && !memcmp(format, h.p, h.n) && !strcmp(format + h.n, "-text");
}
// What was found by another reader than the one that is asked for now does not stand for it.
static bool read_otherwise(const struct job *j, const Hlod__Wire__IngestReply *rec) {
    return j->spec->format && !same_format(j->spec->format, rec->format);
}

static void looked_up(void *arg) {
    struct lookup *l = arg;
    struct job *j = l->j;
    status_t st = l->st;
    struct model *m = NULL, *weights = NULL;
    struct exe *e = NULL;
    if (l->source)
        m = sched_keep_model(j->s, model_new(record_of(j, l->model), l->model, l->source));
    if (l->weights)
        weights = sched_keep_model(
            j->s, model_new(record_of(j, j->spec->weights), j->spec->weights, l->weights));
    // The file of an executable may be gone: that shows when it is loaded, and then it is compiled
    // again.
    if (l->exe && m)
        e = sched_keep_exe(j->s, exe_new(j->subject, l->exe));
    else if (l->exe)
        hlod__v1__executable_info__free_unpacked(l->exe, NULL);

    bool have_blob = l->have_blob;
    if (j->owner && l->owns_model) owners_keep(j->s->owners, j->owner, j->subject, l->model_source);
    if (j->owner && l->owns_weights)
        owners_keep(j->s->owners, j->owner, j->spec->weights, l->weights_source);
    arena_done(&l->arena);
    bool want_weights = l->want_weights, ingest = !m && have_blob && !e;
    free(l);
    if (!job_held_no_more(j)) {
        st_drop(st);
        return;
    }

    if (weights) job_deliver(j, ROW_MODEL, &(struct delivery){.weights = weights});
    if (!st && want_weights && !weights) st = not_found(j->spec->weights);
    if (m && !e && read_otherwise(j, m->rec)) ingest = true;
    if (!st && ingest) {
        op_ingest_start(j);
        return;
    }
    if (!st && !m && op_pull_start(j)) return;
    if (!st) st = m ? resolved(j, m, e) : not_found(j->subject);
    if (st)
        job_finish(j, st);
    else
        job_advance(j);
}

// Whose model an executable in memory is run with: its owner's, or whose was compiled first. False:
// the journal has to be asked.
static bool source_in_memory(struct job *j, const struct exe *e, struct digest *out) {
    struct digest by = {0}, none;
    *out = j->subject;
    if (j->owner && !owners_knows(j->s->owners, j->owner, j->subject, &by)) return false;
    if (j->owner && j->spec->has_weights &&
        !owners_knows(j->s->owners, j->owner, j->spec->weights, &none))
        return false;
    if (!e) return true;
    *out = by;
    if (!digest_is_zero(by)) return true;
    return digest_parse(str_of(e->info->source_digest), out) &&
           (!j->owner || owners_knows(j->s->owners, j->owner, *out, &none));
}

// In memory: true, and *m, *e are what the digest names.
static bool find_in_memory(struct job *j, struct model **m, struct exe **e) {
    struct digest source;
    struct model *w;
    *e = sched_exe(j->s, j->subject);
    if (j->reread || !source_in_memory(j, *e, &source)) return false;
    *m = sched_model(j->s, record_of(j, source));
    if (j->spec->has_weights && !j->weights) {
        if (!(w = sched_model(j->s, record_of(j, j->spec->weights)))) return false;
        job_deliver(j, ROW_MODEL, &(struct delivery){.weights = w});
    }
    return *m;
}

status_t job_resolve(struct job *j, bool *later) {
    struct model *m;
    struct exe *e;
    bool here = find_in_memory(j, &m, &e);
    if (here && (e || !read_otherwise(j, m->rec))) return resolved(j, m, e);
    *later = true;
    if (here) {
        op_ingest_start(j);
        return ST_OK;
    }
    struct lookup *l = arena_must_calloc(1, sizeof *l);
    l->j = j;
    l->want_weights = j->spec->has_weights && !j->weights;
    // What is known here counts: a row is written on the pool too, perhaps after this lookup.
    if (j->owner) {
        l->owns_model = owners_knows(j->s->owners, j->owner, j->subject, &l->model_source);
        l->owns_weights = l->want_weights && owners_knows(j->s->owners, j->owner, j->spec->weights,
                                                          &l->weights_source);
    }
    job_hold(j);
    loop_work(j->s->loop, lookup_work, looked_up, l);
    return ST_OK;
}
