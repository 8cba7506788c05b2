// SPDX-License-Identifier: Apache-2.0
// ROW_KEY: from shapes, options and the device to the key of the executable. The values of inputs
// that decide shapes are read from the request's payload; for "auto" the device is the one that
// history finds fastest.
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "proto/kinds.h"
#include "scheduler/cluster/forward.h"
#include "scheduler/job/job_run.h"

enum { MAX_KINDS = 16 };

// ---- values that decide shapes

// Elements of a by_value input, from the request's payload. More than the limit are left out: the
// binder says so.
static status_t job_values(struct job *j, const struct job_input *in,
                           const Hlod__V1__TensorSpec *spec, struct key_shape *s) {
    uint8_t bytes[KEY_MAX_VALUES * 8];
    int64_t width = in->dtype->bytes, n = width ? in->size / width : 0;
    if (!spec || !spec->by_value || in->resident || n > KEY_MAX_VALUES || width > 8) return ST_OK;
    if (j->spec->payload_fd >= 0) {
        if (in->size && pread(j->spec->payload_fd, bytes, (size_t)in->size, in->offset) != in->size)
            return st_errno(errno, "tensor memory");
    } else if (in->size) {
        memcpy(bytes, j->spec->payload_bytes.p + in->offset, (size_t)in->size);
    }
    int64_t *v = arena_array(&j->arena, int64_t, n + 1);
    for (int64_t k = 0; k < n; k++)
        v[k] = numbers_bits(in->dtype, bytes + k * width);
    s->values = v;
    s->n_values = n;
    return ST_OK;
}

// The shapes of a run's inputs, with the values of those that are bound by value.
static status_t input_shapes(struct job *j, struct key_shape **out) {
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    size_t n = j->spec->n_inputs;
    struct key_shape *shapes = arena_zarray(&j->arena, struct key_shape, n + 1);
    const struct job_input *inputs;
    RETURN_IF_ERR(job_one_replica(j, &inputs));
    for (size_t i = 0; i < n; i++) {
        const struct job_input *in = &inputs[i];
        const char *name = *in->name ? in->name : i < sig->n_inputs ? sig->inputs[i]->name : "";
        shapes[i] = (struct key_shape){.input = name, .rank = in->rank, .dims = in->dims};
        const Hlod__V1__TensorSpec *spec = key_input(sig, name);
        if (!spec) spec = key_default(sig, name);
        RETURN_IF_ERR(job_values(j, in, spec, &shapes[i]));
    }
    *out = shapes;
    return ST_OK;
}

unsigned job_key_how(const struct job *j, bool complete) {
    const struct job_spec *p = j->spec;
    bool onnx = !strcmp(j->model->rec->format, "onnx");
    bool joined = (p->kind == JOB_RUN && p->run.batching.max > 1) || p->kind == JOB_WARM;
    return (complete ? KEY_COMPLETE : 0) | (onnx ? KEY_OWN_SIZES : 0) |
           (joined ? KEY_ROWS_AGREE : 0);
}

static bool has_binding(Hlod__Wire__Binding *const *v, size_t n, const char *symbol) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(v[i]->symbol, symbol)) return true;
    return false;
}
// Does the run replace the values of the model that the executable was made for?
static status_t same_defaults(struct arena *a, const Hlod__V1__Signature *sig,
                              Hlod__Wire__Binding *const *given, size_t n,
                              const struct job_key *k) {
    for (size_t i = 0; i < sig->n_defaults; i++) {
        const char *symbol = arena_printf(a, "~%zu", i);
        bool has = has_binding(k->bindings, k->n_bindings, symbol);
        if (has == has_binding(given, n, symbol)) continue;
        return st_because(ST_INVALID_ARGUMENT, MISSING_INPUT,
                          "this executable was made for runs %s a value of '%s': run the model "
                          "instead of the executable",
                          has ? "that bring" : "without", sig->defaults[i]->name);
    }
    return ST_OK;
}

status_t job_same_values(struct job *j, const struct job_key *k) {
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    bool any = sig->n_defaults > 0;
    for (size_t i = 0; i < sig->n_inputs; i++)
        any |= sig->inputs[i]->by_value;
    if (!any || !job_takes_inputs(j)) return ST_OK;
    Hlod__Wire__Binding **given;
    struct key_shape *shapes;
    size_t n;
    RETURN_IF_ERR(input_shapes(j, &shapes));
    RETURN_IF_ERR(
        key_bind(&j->arena, sig, shapes, j->spec->n_inputs, job_key_how(j, true), &given, &n));
    RETURN_IF_ERR(same_defaults(&j->arena, sig, given, n, k));
    for (size_t g = 0; g < n; g++)
        for (size_t i = 0; given[g]->symbol[0] == '=' && i < k->n_bindings; i++)
            if (!strcmp(given[g]->symbol, k->bindings[i]->symbol) &&
                given[g]->size != k->bindings[i]->size)
                return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH,
                                  "input %s: this executable was made for the value %" PRId64
                                  ", found %" PRId64 ": run the model instead of the executable",
                                  given[g]->symbol + 1, k->bindings[i]->size, given[g]->size);
    return ST_OK;
}

// ---- devices

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
        const char *id = v.role == ROLE_DEVICE && v.ready && !v.drained && !v.asked_only
                             ? worker_hello(w)->target_id
                             : NULL;
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

static status_t parts_of_rows(struct job *j, int64_t rows, struct key_parts *out) {
    struct key_shape *shapes;
    Hlod__Wire__Binding **bindings;
    size_t n_bindings, n = j->spec->n_inputs;
    RETURN_IF_ERR(input_shapes(j, &shapes));
    for (size_t i = 0; i < n; i++) {
        int64_t *dims = arena_dup(&j->arena, shapes[i].dims, (size_t)shapes[i].rank * sizeof *dims);
        dims[0] = rows;
        shapes[i].dims = dims;
    }
    RETURN_IF_ERR(key_bind(&j->arena, j->model->rec->signature, shapes, n, job_key_how(j, true),
                           &bindings, &n_bindings));
    out->bindings = key_bindings_text(&j->arena, bindings, n_bindings);
    return key_options(&j->arena, j->spec->options, &out->options);
}
const char *job_auto_device(struct job *j, int64_t rows) {
    struct key_parts parts = {.bindings = "", .options = ""};
    st_drop(parts_of_rows(j, rows, &parts)); // what is wrong with it, its run will say
    return best_device(j, work_of(j, &parts));
}

// The device worker whose target the key is made for: the first that fits and has ever said hello;
// one that keeps failing only where there is no other.
static const Hlod__Wire__Hello *find_target(struct job *j, bool *out_hopeless) {
    struct place_want want = {.role = ROLE_DEVICE,
                              .device = j->device && !job_wants_auto(j) ? j->device : "",
                              .owner = j->tenant->name};
    const Hlod__Wire__Hello *drained = NULL;
    *out_hopeless = true;
    for (int i = 0; i < pool_size(j->s->pool); i++) {
        struct worker *w = pool_worker(j->s->pool, i);
        if (worker_role(w) != ROLE_DEVICE) continue;
        struct place_worker v = pool_place(w);
        // Before its handshake a worker has no name yet: it may be the one.
        bool may = !v.hopeless && !v.spare && (place_matches(&want, &v) || !worker_hello(w));
        if (may) *out_hopeless = false;
        if (!may || !worker_hello(w) || !place_matches(&want, &v)) continue;
        if (!v.drained) return worker_hello(w);
        if (!drained) drained = worker_hello(w);
    }
    return drained;
}

const char *job_compiled_for(const struct job *j) {
    return j->key.device_kind ? j->key.device_kind : "";
}
const char *job_device_kind(struct job *j) {
    bool hopeless;
    const Hlod__Wire__Hello *h = find_target(j, &hopeless);
    return h ? h->device_kind : NULL;
}

// Devices of that kind come from outside, and may come.
static bool may_come(const struct job *j) {
    struct place_want want = {.role = ROLE_DEVICE, .device = j->device};
    for (int i = 0; i < pool_size(j->s->pool) && kind_has(j->device, KIND_JOINS); i++) {
        struct place_worker v = pool_place(pool_worker(j->s->pool, i));
        if (place_matches(&want, &v)) return true;
    }
    return false;
}
static status_t no_device(const struct job *j) {
    bool named = j->device && *j->device;
    bool elsewhere =
        named && j->spec->may_leave && j->s->forward && forward_knows(j->s->forward, j->device);
    const char *why = pool_why(j->s->pool, ROLE_DEVICE, named ? j->device : "");
    bool later = named && may_come(j);
    if (later && !*why) why = "no page of this tenant has joined (/worker)";
    struct strbuf there = {0};
    if (named && !*why) pool_devices(j->s->pool, &there);
    status_t st =
        st_new(named && !elsewhere && !later ? ST_NOT_FOUND : ST_UNAVAILABLE,
               "no device worker%s%s%s%s%s%s%s", named ? " for " : "", named ? j->device : "",
               *why ? ": " : "", why, there.n ? "; there are " : "", strbuf_cstr(&there),
               elsewhere ? ", and of the nodes that have or had it none takes the run" : "");
    strbuf_done(&there);
    return st_reason(st, HLOD__V1__REASON__REASON_NO_WORKER);
}

// For whom the job compiles, into its key. *later: not known yet, and who tells is under way.
static status_t bind_target(struct job *j, struct job_key *k, bool *later) {
    const Hlod__Wire__Hello *h;
    const char *id, *kind;
    const char *target = j->spec->kind == JOB_COMPILE ? j->spec->compile.target : NULL;
    if (target && *target) {
        const struct target_rec *t = sched_target(j->s, target);
        *later = !t;
        if (!t) return op_target_start(j);
        h = worker_hello(t->worker);
        id = t->id;
        kind = t->kind;
    } else {
        bool hopeless;
        h = find_target(j, &hopeless);
        if (!h && hopeless) return no_device(j);
        *later = !h;
        if (!h) {
            job_wait_worker(j);
            return ST_OK;
        }
        id = h->target_id;
        kind = h->device_kind;
    }
    k->parts.target_id = arena_strdup(&j->arena, id);
    k->device_kind = arena_strdup(&j->arena, kind);
    k->parts.build_id = arena_strdup(&j->arena, h->build_id);
    k->parts.kernel_abi = h->kernel_abi;
    return ST_OK;
}

// ---- bind

static status_t check_replicas(const struct job *j) {
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    for (size_t i = 0; job_replicas(j) > 1 && i < sig->n_inputs; i++)
        if (sig->inputs[i]->by_value || key_is_loose(sig->inputs[i]))
            return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                              "input '%s' decides shapes by its values, or has no rank: that "
                              "does not go with replicas",
                              sig->inputs[i]->name);
    return ST_OK;
}

// The shapes that a request gives where it brings no inputs.
static struct key_shape *given_shapes(struct job *j, size_t *n) {
    bool warm = j->spec->kind == JOB_WARM;
    Hlod__V1__ShapeBinding **v = warm ? j->warm->shapes : j->shapes;
    *n = warm ? j->warm->n_shapes : j->spec->kind == JOB_COMPILE ? j->spec->compile.n_shapes : 0;
    struct key_shape *shapes = arena_zarray(&j->arena, struct key_shape, *n + 1);
    for (size_t i = 0; i < *n; i++)
        shapes[i] = (struct key_shape){.input = v[i]->input,
                                       .rank = (int32_t)v[i]->n_dims,
                                       .dims = v[i]->dims,
                                       .values = v[i]->values,
                                       .n_values = (int64_t)v[i]->n_values};
    return shapes;
}

status_t job_bind(struct job *j, bool *later) {
    const Hlod__V1__Signature *sig = j->model->rec->signature;
    bool runs = job_takes_inputs(j);
    size_t n = j->spec->n_inputs;
    struct key_shape *shapes;
    struct job_key k = {.parts.program = j->model->program};

    RETURN_IF_ERR(check_replicas(j));
    if (runs) RETURN_IF_ERR(job_check_inputs(j));
    if (runs)
        RETURN_IF_ERR(input_shapes(j, &shapes));
    else
        shapes = given_shapes(j, &n);
    RETURN_IF_ERR(
        key_bind(&j->arena, sig, shapes, n, job_key_how(j, runs), &k.bindings, &k.n_bindings));
    if (!runs)
        key_assumed(&j->arena, sig, shapes, n, k.bindings, k.n_bindings, &k.assumed, &k.n_assumed);
    RETURN_IF_ERR(key_options(&j->arena, j->spec->options, &k.parts.options));
    k.parts.bindings = key_bindings_text(&j->arena, k.bindings, k.n_bindings);

    k.work = work_of(j, &k.parts);
    if (job_wants_auto(j)) job_choose_device(j, best_device(j, k.work));
    RETURN_IF_ERR(bind_target(j, &k, later));
    if (*later) return ST_OK;
    k.digest = key_of(&k.parts);
    job_deliver(j, ROW_KEY, &(struct delivery){.key = &k});
    return ST_OK;
}
