// SPDX-License-Identifier: Apache-2.0
// From a digest to records (memory, then journal, then ingest), and from shapes to the key. A
// digest may name a source or an executable; an executable brings the source it was compiled from,
// whose weights are used unless the request names another source of the same program.
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
#include "scheduler/job/job_run.h"
#include "scheduler/records/journal.h"
#include "scheduler/loop.h"
#include "scheduler/sched.h"

enum { MAX_KINDS = 16 };

// What pool work found for one digest.
struct lookup {
    struct job *j;
    struct arena arena;
    Hlod__Wire__IngestReply *source;
    Hlod__V1__ExecutableInfo *exe;
    struct digest model;              // of source
    Hlod__Wire__IngestReply *weights; // of spec.weights
    bool have_blob;
    bool want_model, want_weights;
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
        l->owns_weights = owns(l, j->spec.weights, &l->weights_source);
    if (l->want_model) {
        l->model = j->spec.model;
        if (!l->owns_model) l->owns_model = owns(l, l->model, &l->model_source);
        if (!l->owns_model) return;
        l->source = j->tried_ingest ? NULL : read_source(l, l->model);
        struct span rec;
        if (!l->source && !l->st) {
            status_t st =
                journal_get(j->s->journal, JOURNAL_EXECUTABLE, j->spec.model, &l->arena, &rec);
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
    }
    if (l->want_weights && !l->st && l->owns_weights) l->weights = read_source(l, j->spec.weights);
}

static status_t not_found(struct digest d) MUST_CHECK;
static status_t not_found(struct digest d) {
    char hex[65];
    digest_hex(d, hex);
    return st_reason(st_new(ST_NOT_FOUND, "no model or executable %s here", hex),
                     HLOD__V1__REASON__REASON_MODEL_NOT_FOUND);
}

// The job was for an executable: its key and how it was made come from its record.
static status_t adopt_exe(struct job *j, struct exe *e) {
    if (job_wants_auto(j)) j->spec.device = ""; // it has its kind
    const Hlod__V1__ExecutableInfo *x = e->info;
    j->key = e->key;
    j->exe = exe_ref(e);
    j->bound = true;
    j->device_kind = arena_strdup(&j->arena, x->device_kind);
    j->n_bindings = 0;
    j->bindings = arena_array(&j->arena, Hlod__Wire__Binding *, x->n_bindings + 1);
    for (size_t i = 0; i < x->n_bindings; i++) {
        struct str value = str_of(x->bindings[i]), symbol;
        Hlod__Wire__Binding *b = arena_new_of(&j->arena, Hlod__Wire__Binding);
        hlod__wire__binding__init(b);
        const char *eq = strrchr(x->bindings[i], '=');
        if (!eq || !str_to_i64(str_of(eq + 1), &b->size))
            return st_new(ST_DATA_LOSS, "unreadable record of an executable");
        symbol = (struct str){value.p, (size_t)(eq - value.p)};
        b->symbol = arena_strndup(&j->arena, symbol.p, symbol.n);
        j->bindings[j->n_bindings++] = b;
    }
    j->key_parts =
        (struct key_parts){.program = j->model->program,
                           .bindings = key_bindings_text(&j->arena, j->bindings, j->n_bindings),
                           .options = arena_strdup(&j->arena, x->options),
                           .target_id = arena_strdup(&j->arena, x->target_id),
                           .build_id = arena_strdup(&j->arena, x->build_id),
                           .kernel_abi = x->kernel_abi};
    j->r.cache_hit = true;
    metric_add(M_CACHE_HITS, 1);
    return ST_OK;
}

// ---- values that decide shapes

static const Hlod__V1__TensorSpec *signature_input(const Hlod__V1__Signature *sig,
                                                   const char *name) {
    for (size_t i = 0; i < sig->n_inputs; i++)
        if (!strcmp(sig->inputs[i]->name, name)) return sig->inputs[i];
    return NULL;
}

// Elements of a by_value input, from the request's payload. More than the limit are left out: the
// binder says so.
static status_t job_values(struct job *j, const struct job_input *in,
                           const Hlod__V1__TensorSpec *spec, struct key_shape *s) {
    uint8_t bytes[KEY_MAX_VALUES * 8];
    int64_t width = in->dtype->bytes, n = width ? in->size / width : 0;
    if (!spec || !spec->by_value || in->resident || n > KEY_MAX_VALUES || width > 8) return ST_OK;
    if (j->spec.payload_fd >= 0) {
        if (in->size && pread(j->spec.payload_fd, bytes, (size_t)in->size, in->offset) != in->size)
            return st_errno(errno, "tensor memory");
    } else if (in->size) {
        memcpy(bytes, j->spec.payload_bytes.p + in->offset, (size_t)in->size);
    }
    int64_t *v = arena_array(&j->arena, int64_t, n + 1);
    for (int64_t k = 0; k < n; k++)
        v[k] = key_element(bytes + k * width, in->dtype);
    s->values = v;
    s->n_values = n;
    return ST_OK;
}

// The shapes of a run's inputs, with the values of those that are bound by value.
static status_t input_shapes(struct job *j, struct key_shape **out) {
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    size_t n = j->spec.n_inputs;
    struct key_shape *shapes = arena_zarray(&j->arena, struct key_shape, n + 1);
    const struct job_input *inputs;
    RETURN_IF_ERR(job_one_replica(j, &inputs));
    for (size_t i = 0; i < n; i++) {
        const struct job_input *in = &inputs[i];
        const char *name = *in->name ? in->name : i < sig->n_inputs ? sig->inputs[i]->name : "";
        shapes[i] = (struct key_shape){.input = name, .rank = in->rank, .dims = in->dims};
        RETURN_IF_ERR(job_values(j, in, signature_input(sig, name), &shapes[i]));
    }
    *out = shapes;
    return ST_OK;
}

// A run of an executable by its digest: the values it was made for must be those given.
static status_t same_values(struct job *j) {
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    bool any = false;
    for (size_t i = 0; i < sig->n_inputs; i++)
        any |= sig->inputs[i]->by_value;
    if (!any || !job_takes_inputs(j)) return ST_OK;
    Hlod__Wire__Binding **given;
    struct key_shape *shapes;
    size_t n;
    RETURN_IF_ERR(input_shapes(j, &shapes));
    RETURN_IF_ERR(key_bind(&j->arena, sig, shapes, j->spec.n_inputs, true, &given, &n));
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; given[k]->symbol[0] == '=' && i < j->n_bindings; i++)
            if (!strcmp(given[k]->symbol, j->bindings[i]->symbol) &&
                given[k]->size != j->bindings[i]->size)
                return st_reason(st_new(ST_INVALID_ARGUMENT,
                                        "input %s: this executable was made for the value %" PRId64
                                        ", found %" PRId64
                                        ": run the model instead of the executable",
                                        given[k]->symbol + 1, j->bindings[i]->size, given[k]->size),
                                 HLOD__V1__REASON__REASON_SHAPE_MISMATCH);
    return ST_OK;
}

// The model's name of the input that is given as `name`; `name` itself where that is one, or none.
static const char *name_of_alias(const Hlod__V1__Signature *sig, const char *name) {
    if (!*name || signature_input(sig, name)) return name;
    for (size_t i = 0; i < sig->n_inputs; i++)
        if (*sig->inputs[i]->alias && !strcmp(sig->inputs[i]->alias, name))
            return sig->inputs[i]->name;
    return name;
}

void job_set_model(struct job *j, struct model *m) {
    const Hlod__V1__Signature *sig = m->rec->signature;
    bool any = false;
    j->model = model_ref(m);
    for (size_t i = 0; i < sig->n_inputs; i++)
        any |= *sig->inputs[i]->alias != 0;
    if (!any) return;
    if (j->spec.n_inputs) {
        struct job_input *in =
            arena_dup(&j->arena, j->spec.inputs, j->spec.n_inputs * sizeof *j->spec.inputs);
        for (size_t k = 0; k < j->spec.n_inputs; k++)
            in[k].name = name_of_alias(sig, in[k].name);
        j->spec.inputs = in;
    }
    Hlod__V1__ShapeBinding **shapes =
        arena_array(&j->arena, Hlod__V1__ShapeBinding *, j->spec.n_shapes + 1);
    for (size_t k = 0; k < j->spec.n_shapes; k++) {
        shapes[k] = arena_dup(&j->arena, j->spec.shapes[k], sizeof *shapes[k]);
        shapes[k]->input = (char *)(uintptr_t)name_of_alias(sig, shapes[k]->input);
    }
    j->spec.shapes = shapes;
}

static void tell_hit(struct job *j) {
    j->r.ingest_hit = true;
    char hex[65];
    digest_hex(j->model->source, hex);
    Hlod__V1__IngestEvent ingest = HLOD__V1__INGEST_EVENT__INIT;
    ingest.source_digest = hex;
    ingest.hit = true;
    ingest.signature = j->model->rec->signature;
    ingest.format = j->model->rec->format;
    Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
    e.kind_case = HLOD__V1__EVENT__KIND_INGEST;
    e.ingest = &ingest;
    job_event(j, &e);
}

static void resolved(struct job *j, struct model *m, struct exe *e) {
    status_t st = ST_OK;
    job_set_model(j, m);
    if (e) {
        st = adopt_exe(j, e);
        if (!st) st = same_values(j);
    } else if (j->spec.kind == JOB_INSPECT)
        st = st_reason(
            st_new(ST_NOT_FOUND, "the digest names a model; stages belong to an executable"),
            HLOD__V1__REASON__REASON_EXECUTABLE_NOT_FOUND);
    if (st) {
        job_finish(j, st);
        return;
    }
    tell_hit(j);
    job_advance(j);
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
    return j->spec.format && !same_format(j->spec.format, rec->format);
}

static void looked_up(void *arg) {
    struct lookup *l = arg;
    struct job *j = l->j;
    status_t st = l->st;
    struct model *m = NULL;
    struct exe *e = NULL;
    if (l->source)
        m = sched_keep_model(j->s, model_new(record_of(j, l->model), l->model, l->source));
    if (l->weights)
        j->weights = model_ref(sched_keep_model(
            j->s, model_new(record_of(j, j->spec.weights), j->spec.weights, l->weights)));
    // The file of an executable may be gone: that shows when it is loaded, and then it is compiled
    // again.
    if (l->exe && m)
        e = sched_keep_exe(j->s, exe_new(j->spec.model, l->exe));
    else if (l->exe)
        hlod__v1__executable_info__free_unpacked(l->exe, NULL);
    bool have_blob = l->have_blob;
    if (j->owner && l->owns_model)
        owners_keep(j->s->owners, j->owner, j->spec.model, l->model_source);
    if (j->owner && l->owns_weights)
        owners_keep(j->s->owners, j->owner, j->spec.weights, l->weights_source);
    arena_done(&l->arena);
    bool want_weights = l->want_weights, want_model = l->want_model;
    free(l);
    j->resolving = false;
    if (j->finished) {
        st_drop(st);
        if (j->free_later) job_free(j);
        return;
    }
    if (st)
        job_finish(j, st);
    else if (want_weights && !j->weights)
        job_finish(j, not_found(j->spec.weights));
    else if (!want_model)
        job_advance(j);
    else if (m && !e && read_otherwise(j, m->rec))
        op_ingest_start(j);
    else if (m)
        resolved(j, m, e);
    else if (have_blob && !e)
        op_ingest_start(j);
    else
        job_finish(j, not_found(j->spec.model));
}

// Whose model an executable in memory is run with: its owner's, or whose was compiled first. False:
// the journal has to be asked.
static bool source_in_memory(struct job *j, const struct exe *e, struct digest *out) {
    struct digest by = {0}, none;
    *out = j->spec.model;
    if (j->owner && !owners_knows(j->s->owners, j->owner, j->spec.model, &by)) return false;
    if (j->owner && j->spec.has_weights &&
        !owners_knows(j->s->owners, j->owner, j->spec.weights, &none))
        return false;
    if (!e) return true;
    *out = by;
    if (!digest_is_zero(by)) return true;
    return digest_parse(str_of(e->info->source_digest), out) &&
           (!j->owner || owners_knows(j->s->owners, j->owner, *out, &none));
}

void job_resolve(struct job *j) {
    if (!j->tried_ingest) {
        struct exe *e = sched_exe(j->s, j->spec.model);
        struct digest source;
        if (source_in_memory(j, e, &source)) {
            struct model *m = sched_model(j->s, record_of(j, source)), *w;
            bool weights_known = !j->spec.has_weights || j->weights;
            if (!weights_known && (w = sched_model(j->s, record_of(j, j->spec.weights)))) {
                j->weights = model_ref(w);
                weights_known = true;
            }
            if (m && weights_known && !e && read_otherwise(j, m->rec)) {
                op_ingest_start(j);
                return;
            }
            if (m && weights_known) {
                resolved(j, m, e);
                return;
            }
        }
    }
    struct lookup *l = calloc(1, sizeof *l);
    if (!l) abort();
    l->j = j;
    l->want_model = true;
    l->want_weights = j->spec.has_weights && !j->weights;
    // What is known here counts: a row is written on the pool too, perhaps after this lookup.
    if (j->owner) {
        l->owns_model = owners_knows(j->s->owners, j->owner, j->spec.model, &l->model_source);
        l->owns_weights = l->want_weights &&
                          owners_knows(j->s->owners, j->owner, j->spec.weights, &l->weights_source);
    }
    j->resolving = true;
    loop_work(j->s->loop, lookup_work, looked_up, l);
}

// ---- bind

bool job_wants_auto(const struct job *j) {
    return j->spec.device && !strcmp(j->spec.device, "auto");
}

// What history knows a run by: all that decides its executable but the device.
static struct digest work_of(const struct job *j, const struct key_parts *parts) {
    struct key_parts k = *parts;
    k.program = j->model->program;
    k.target_id = k.build_id = "";
    k.kernel_abi = 0;
    return key_of(&k);
}

// The kinds that run, by what was measured of this work and what is planned. "": none is up.
static const char *best_device(struct job *j, struct digest work) {
    struct history_candidate c[MAX_KINDS];
    const char *kinds[MAX_KINDS];
    int n = 0;
    enum history_why why;
    for (int i = 0; i < pool_size(j->s->pool); i++) {
        struct worker *w = pool_worker(j->s->pool, i);
        struct place_worker v = pool_place(w);
        const char *id =
            v.role == ROLE_DEVICE && v.ready && !v.drained ? worker_hello(w)->target_id : NULL;
        int at = 0;
        while (at < n && id && strcmp(c[at].target, id) != 0)
            at++;
        if (!id || at == MAX_KINDS) continue;
        if (at == n) {
            kinds[n] = v.kind;
            c[n++] = (struct history_candidate){id, v.calls};
        } else if (v.calls < c[at].calls) {
            c[at].calls = v.calls;
        }
    }
    if (!n) return "";
    int best = history_choose(&j->s->history, work, c, n, &why);
    if (n > 1)
        log_event(LOG_DEBUG, "place.auto", "job=%llu device=%s why=%s of=%d",
                  (unsigned long long)j->r.id, kinds[best], history_why_name(why), n);
    return arena_strdup(&j->arena, kinds[best]);
}

static void choose_device(struct job *j) {
    j->work = work_of(j, &j->key_parts);
    if (job_wants_auto(j)) j->spec.device = best_device(j, j->work);
}

static status_t parts_of_rows(struct job *j, int64_t rows, struct key_parts *out) MUST_CHECK;
static status_t parts_of_rows(struct job *j, int64_t rows, struct key_parts *out) {
    struct key_shape *shapes;
    Hlod__Wire__Binding **bindings;
    size_t n_bindings, n = j->spec.n_inputs;
    RETURN_IF_ERR(input_shapes(j, &shapes));
    for (size_t i = 0; i < n; i++) {
        int64_t *dims = arena_dup(&j->arena, shapes[i].dims, (size_t)shapes[i].rank * sizeof *dims);
        dims[0] = rows;
        shapes[i].dims = dims;
    }
    RETURN_IF_ERR(
        key_bind(&j->arena, j->model->rec->signature, shapes, n, true, &bindings, &n_bindings));
    *out = j->key_parts;
    out->bindings = key_bindings_text(&j->arena, bindings, n_bindings);
    return key_options(&j->arena, j->spec.options, &out->options);
}
const char *job_auto_device(struct job *j, int64_t rows) {
    struct key_parts parts = j->key_parts;
    st_drop(parts_of_rows(j, rows, &parts)); // what is wrong with it, its run will say
    return best_device(j, work_of(j, &parts));
}

// The device worker whose target the key is made for: the first that fits and has ever said hello;
// one that keeps failing only where there is no other.
static const Hlod__Wire__Hello *find_target(struct job *j, bool *out_hopeless) {
    struct place_want want = {.role = ROLE_DEVICE,
                              .device = j->spec.device && !job_wants_auto(j) ? j->spec.device : ""};
    const Hlod__Wire__Hello *drained = NULL;
    *out_hopeless = true;
    for (int i = 0; i < pool_size(j->s->pool); i++) {
        struct worker *w = pool_worker(j->s->pool, i);
        struct place_worker v = pool_place(w);
        // Before its handshake a worker has no name yet: it may be the one.
        bool may =
            v.role == ROLE_DEVICE && !v.hopeless && !v.spare &&
            (place_matches(&want, &v) || !worker_hello(w));
        if (may) *out_hopeless = false;
        if (!may || !worker_hello(w) || !place_matches(&want, &v)) continue;
        if (!v.drained) return worker_hello(w);
        if (!drained) drained = worker_hello(w);
    }
    return drained;
}

const char *job_device_kind(struct job *j) {
    bool hopeless;
    const Hlod__Wire__Hello *h = find_target(j, &hopeless);
    return h ? h->device_kind : NULL;
}

static status_t no_device(const struct job *j) {
    bool named = j->spec.device && *j->spec.device;
    const char *why = pool_why(j->s->pool, ROLE_DEVICE, named ? j->spec.device : "");
    struct strbuf there = {0};
    if (named && !*why) pool_devices(j->s->pool, &there);
    status_t st = st_new(named ? ST_NOT_FOUND : ST_UNAVAILABLE, "no device worker%s%s%s%s%s%s",
                         named ? " for " : "", named ? j->spec.device : "", *why ? ": " : "", why,
                         there.n ? "; there are " : "", strbuf_cstr(&there));
    strbuf_done(&there);
    return st_reason(st, HLOD__V1__REASON__REASON_NO_WORKER);
}

// For whom the job compiles, into its key. *out_wait: not known yet, and who tells is under way.
static status_t bind_target(struct job *j, bool *out_wait) {
    struct key_parts *k = &j->key_parts;
    const Hlod__Wire__Hello *h;
    if (j->spec.target && *j->spec.target) {
        const struct target_rec *t = sched_target(j->s, j->spec.target);
        if (!t) {
            *out_wait = true;
            return op_target_start(j);
        }
        h = worker_hello(t->worker);
        k->target_id = arena_strdup(&j->arena, t->id);
        j->device_kind = arena_strdup(&j->arena, t->kind);
    } else {
        bool hopeless;
        h = find_target(j, &hopeless);
        if (!h && hopeless) return no_device(j);
        if (!h) {
            j->waits_for_worker = *out_wait = true;
            return ST_OK;
        }
        k->target_id = arena_strdup(&j->arena, h->target_id);
        j->device_kind = arena_strdup(&j->arena, h->device_kind);
    }
    k->build_id = arena_strdup(&j->arena, h->build_id);
    k->kernel_abi = h->kernel_abi;
    return ST_OK;
}

status_t job_bind(struct job *j, bool *out_wait) {
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    for (size_t i = 0; job_replicas(j) > 1 && i < sig->n_inputs; i++)
        if (sig->inputs[i]->by_value || key_is_loose(sig->inputs[i]))
            return st_reason(st_new(ST_INVALID_ARGUMENT,
                                    "input '%s' decides shapes by its values, or has no rank: that "
                                    "does not go with replicas",
                                    sig->inputs[i]->name),
                             HLOD__V1__REASON__REASON_BAD_OPTION);
    if (job_takes_inputs(j)) RETURN_IF_ERR(job_check_inputs(j));
    size_t n = job_takes_inputs(j) ? j->spec.n_inputs : j->spec.n_shapes;
    struct key_shape *shapes;
    if (job_takes_inputs(j)) {
        RETURN_IF_ERR(input_shapes(j, &shapes));
    } else {
        shapes = arena_zarray(&j->arena, struct key_shape, n + 1);
        for (size_t i = 0; i < n; i++) {
            const Hlod__V1__ShapeBinding *s = j->spec.shapes[i];
            shapes[i] = (struct key_shape){.input = s->input,
                                           .rank = (int32_t)s->n_dims,
                                           .dims = s->dims,
                                           .values = s->values,
                                           .n_values = (int64_t)s->n_values};
        }
    }
    RETURN_IF_ERR(
        key_bind(&j->arena, sig, shapes, n, job_takes_inputs(j), &j->bindings, &j->n_bindings));
    if (!job_takes_inputs(j))
        key_assumed(&j->arena, sig, shapes, n, j->bindings, j->n_bindings, &j->r.assumed,
                    &j->r.n_assumed);
    RETURN_IF_ERR(key_options(&j->arena, j->spec.options, &j->key_parts.options));
    j->key_parts.program = j->model->program;
    j->key_parts.bindings = key_bindings_text(&j->arena, j->bindings, j->n_bindings);
    choose_device(j);
    RETURN_IF_ERR(bind_target(j, out_wait));
    if (*out_wait) return ST_OK;
    j->key = key_of(&j->key_parts);
    return ST_OK;
}
