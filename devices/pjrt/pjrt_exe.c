// SPDX-License-Identifier: Apache-2.0
// Executables of a plugin: loaded, with their weights resident, run. Everything that a call has for
// the device is begun before the first of it is waited for (pjrt_events.h). With several replicas
// each of the executable's devices has its own copy of the weights; inputs and outputs of all
// replicas lie one behind the other (device.h).
#include <stdlib.h>

#include "base/clock.h"
#include "devices/pjrt/pjrt_device.h"
#include "devices/pjrt/pjrt_profile.h"

struct pj_exe {
    struct dev_exe base;
    struct executable *exe; // owned
    void *main, *prepare;   // loaded executables; prepare NULL when it has no results
    void *const *devices;   // [replicas]
    int replicas;
    size_t n_in;              // parameters of main
    const struct shape **out; // [n_out] results of main
    size_t n_out;
    struct arena arena;
    struct arena names; // of the last profile's rows
    struct dev_stats stats;
};
struct pj_weights {
    struct dev_weights base;
    void **bound; // [replicas][n] results of prepare, device buffers
    size_t n;
};

static struct pj_device *device_of(const struct dev_exe *x) {
    return (struct pj_device *)x->dev;
}

// ---- run

// What a call begins on the device. It waits for inputs whatever happens: they are read from the
// caller's memory. What is at work on the device alone may be left to itself.
struct pj_work {
    void **in, **own, **out; // [replicas][parameters or results]; own: what this call sends
    struct pj_pending inputs, execution;
};

// Begins it. keep[k]: argument k must not be donated.
static status_t execute(const struct pj_exe *x, void *loaded, const struct hlo_computation *c,
                        const bool *keep, struct pj_work *w) {
    struct pj_device *d = device_of(&x->base);
    size_t n = (size_t)x->replicas, n_in = c->params.n;
    size_t n_out = (size_t)shape_leaves(c->root->shape);
    struct arena a = {0};
    struct pj_execute_options o = {.struct_size = sizeof o};
    int64_t *kept = arena_array(&a, int64_t, n_in + 1);
    for (size_t k = 0; k < n_in; k++)
        if (keep[k]) kept[o.n_keep_inputs++] = (int64_t)k;
    o.keep_inputs = kept;
    void *const **arguments = arena_array(&a, void *const *, n);
    void ***outputs = arena_array(&a, void **, n), **events = arena_zarray(&a, void *, n);

    for (size_t r = 0; r < n; r++) {
        arguments[r] = w->in + r * n_in;
        outputs[r] = w->out + r * n_out;
    }
    struct pj_execute e = {.loaded = loaded,
                           .options = &o,
                           .arguments = arguments,
                           .n_devices = n,
                           .n_arguments = n_in,
                           .outputs = outputs,
                           .events = events,
                           .device = n == 1 ? d->device : NULL};

    status_t st = PJ_CALL(d->plugin, LoadedExecutable_Execute, &e);
    for (size_t r = 0; r < n; r++)
        pj_pending_add(&w->execution, events[r], "execution on device", r);
    arena_done(&a);
    return st;
}

// The end of a call that went well so far, or did not.
static status_t work_end(struct pj_device *d, struct pj_work *w, status_t st,
                         const _Atomic bool *cancel) {
    status_t sent = pj_pending_wait(d->plugin, &w->inputs, NULL);
    status_t done = pj_pending_wait(d->plugin, &w->execution, cancel);
    pj_give_up(d, &w->execution); // what is left of it
    if (!st) st = sent, sent = ST_OK;
    if (!st) st = done, done = ST_OK;
    st_drop(sent);
    st_drop(done);
    return st;
}

// ---- executables

void pj_exe_unload(struct dev_exe *base) {
    struct pj_exe *x = (struct pj_exe *)base;
    const struct pj_plugin *p = device_of(base)->plugin;
    pj_destroy(p, PJ_LoadedExecutable_Destroy, x->main);
    pj_destroy(p, PJ_LoadedExecutable_Destroy, x->prepare);
    executable_free(x->exe);
    arena_done(&x->arena);
    arena_done(&x->names);
    free(x);
}

static status_t load_into(struct pj_device *d, struct pj_exe *x) {
    const struct hlo_computation *m = x->exe->main->entry;
    if (strcmp(x->exe->target_id, d->own.base.id) != 0)
        return st_new(ST_FAILED_PRECONDITION, "the executable is for target %s, this device is %s",
                      x->exe->target_id, d->own.base.id);
    struct pj_place at = pj_place_of(d, NULL);
    x->replicas = x->exe->replicas;
    x->n_in = m->params.n;
    x->n_out = (size_t)shape_leaves(m->root->shape);
    x->out = arena_array(&x->arena, const struct shape *, x->n_out + 1);
    for (size_t k = 0; k < x->n_out; k++)
        x->out[k] = shape_leaf(m->root->shape, (int)k);
    RETURN_IF_ERR(pj_program_load(&at, x->exe->emitted.code, x->replicas, &x->main));
    if (x->exe->prepare->entry->root->shape->n_elems)
        RETURN_IF_ERR(pj_program_load(&at, x->exe->emitted_prepare.code, x->replicas, &x->prepare));
    x->stats.resident_bytes = (int64_t)x->exe->emitted.code.n;
    x->devices = &d->device;
    if (x->replicas == 1) return ST_OK;
    struct pj_list_args l = {.object = x->main};
    RETURN_IF_ERR(PJ_CALL(d->plugin, LoadedExecutable_AddressableDevices, &l));
    x->devices = l.list;
    if (l.n == (size_t)x->replicas) return ST_OK;
    return st_new(ST_FAILED_PRECONDITION, "%d replicas on %zu devices here", x->replicas, l.n);
}

// A plugin loads as long as it takes.
status_t pj_exe_load(struct device *base, struct executable *exe, UNUSED const _Atomic bool *cancel,
                     struct dev_exe **out) {
    struct pj_device *d = (struct pj_device *)base;
    struct pj_exe *x = calloc(1, sizeof *x);
    if (!x) {
        executable_free(exe);
        return st_oom();
    }
    x->base = (struct dev_exe){.dev = base, .exe = exe};
    x->exe = exe;
    // A compiler without devices loads nothing, but can say what it made.
    status_t st = d->client ? load_into(d, x) : ST_OK;
    if (st)
        pj_exe_unload(&x->base);
    else
        *out = &x->base;
    return st;
}

// ---- weights

void pj_exe_release(struct dev_weights *base) {
    struct pj_weights *w = (struct pj_weights *)base;
    const struct pj_exe *x = (const struct pj_exe *)base->exe;
    pj_destroy_buffers(device_of(base->exe)->plugin, w->bound, w->n * (size_t)x->replicas);
    free(w->bound);
    free(w);
}

static status_t send_weights(struct pj_exe *x, const struct span *weights, int n,
                             struct pj_work *w) {
    const struct hlo_computation *p = x->exe->prepare->entry;
    for (size_t k = 0; k < p->params.n; k++) {
        const struct hlo_instr *q = p->params.v[k];
        const void *bytes;
        RETURN_IF_ERR(dev_find_weight(q, weights, n, &bytes));
        for (size_t r = 0; r < (size_t)x->replicas; r++)
            RETURN_IF_ERR(pj_to_device(device_of(&x->base), x->devices[r], q->shape, bytes, k,
                                       &w->inputs, &w->in[r * p->params.n + k]));
    }
    return ST_OK;
}
static status_t bind_weights(struct pj_exe *x, const struct span *weights, int n,
                             const _Atomic bool *cancel, struct pj_weights *w) {
    struct pj_device *d = device_of(&x->base);
    const struct hlo_computation *p = x->exe->prepare->entry;
    size_t results = (size_t)p->root->shape->n_elems, all = (size_t)x->replicas;
    size_t n_in = p->params.n * all;
    RETURN_IF_ERR(pj_settle(d, cancel));
    void **b = calloc(n_in + 1, sizeof *b);
    bool *keep = calloc(p->params.n + 1, sizeof *keep); // a program's aliases are main's
    w->bound = calloc(results * all + 1, sizeof *w->bound);
    struct pj_work work = {.in = b, .out = w->bound};
    status_t st = b && keep && w->bound ? send_weights(x, weights, n, &work) : st_oom();
    if (!st && cancel && *cancel) st = st_new(ST_CANCELLED, "preparing weights was cancelled");
    if (!st && x->prepare) st = execute(x, x->prepare, p, keep, &work);
    st = work_end(d, &work, st, cancel);
    w->n = w->bound ? results : 0; // those that are NULL are fine
    for (size_t k = 0; k < results && !st; k++)
        w->base.bytes += shape_bytes(p->root->shape->elems[k]) * x->replicas;
    if (b) pj_destroy_buffers(d->plugin, b, n_in);
    free(b);
    free(keep);
    return st;
}

status_t pj_exe_prepare(struct dev_exe *base, const struct span *weights, int n,
                        const _Atomic bool *cancel, struct dev_weights **out) {
    struct pj_weights *w = calloc(1, sizeof *w);
    if (!w) return st_oom();
    w->base.exe = base;
    status_t st = bind_weights((struct pj_exe *)base, weights, n, cancel, w);
    if (st)
        pj_exe_release(&w->base);
    else
        *out = &w->base;
    return st;
}

static void note(struct profile *p, const char *name, const char *impl, int64_t start_ns,
                 int64_t end_ns, struct hlo_cost cost) {
    if (p && p->n < p->cap)
        p->rows[p->n++] = (struct profile_row){.name = name,
                                               .op = "module",
                                               .impl = impl,
                                               .start_ns = start_ns - p->zero_ns,
                                               .ns = end_ns - start_ns,
                                               .flops = cost.flops,
                                               .bytes = cost.bytes};
}

// The parameters of one replica: prepared weights, and its own part of each input. keep[k] says
// what the run must leave alone: weights, and what lies on the device and was not given to it.
static status_t send_inputs(struct pj_exe *x, const struct pj_weights *w, const struct dev_run *r,
                            size_t replica, struct pj_work *work, bool *keep) {
    const struct hlo_computation *m = x->exe->main->entry;
    void **in = work->in + replica * x->n_in, **own = work->own + replica * x->n_in;
    size_t input = 0;
    for (size_t k = 0; k < x->n_in; k++) {
        const struct hlo_instr *p = m->params.v[k];
        if (p->param_kind != PARAM_INPUT) {
            in[k] = w->bound[replica * w->n + (size_t)p->param_index];
            keep[k] = true;
            continue;
        }
        if (r->in_buffers && r->in_buffers[input]) {
            keep[k] = !r->donate || !r->donate[input];
            in[k] = pj_buffer_of(r->in_buffers[input++]);
            continue;
        }
        const uint8_t *data = r->in[input];
        RETURN_IF_ERR(pj_to_device(device_of(&x->base), x->devices[replica], p->shape,
                                   data + replica * (size_t)shape_bytes(p->shape), input,
                                   &work->inputs, &own[input]));
        in[k] = own[input++];
    }
    return ST_OK;
}

// With a profile inputs are waited for first, so that its rows tell one from the other.
static status_t send_all(struct pj_exe *x, const struct pj_weights *w, const struct dev_run *r,
                         struct pj_work *work, bool *keep) {
    int64_t start = clock_ns();
    for (size_t k = 0; k < (size_t)x->replicas; k++)
        RETURN_IF_ERR(send_inputs(x, w, r, k, work, keep));
    if (r->profile) {
        r->profile->zero_ns = start;
        RETURN_IF_ERR(pj_pending_wait(device_of(&x->base)->plugin, &work->inputs, NULL));
        note(r->profile, "inputs", "pjrt:transfer", start, clock_ns(), (struct hlo_cost){0});
    }
    return r->cancel && *r->cancel ? st_new(ST_CANCELLED, "the run was cancelled") : ST_OK;
}
// With a profile there is also what the plugin's own profiler saw, before the row that covers it.
static status_t run_main(struct pj_exe *x, const struct pj_weights *w, const struct dev_run *r,
                         struct pj_work *work, bool *keep) {
    struct pj_device *d = device_of(&x->base);
    struct profile *p = r->profile;
    status_t st = send_all(x, w, r, work, keep);
    struct pj_profiler *inside = p && !st ? pj_profiler_begin(d->plugin) : NULL;
    int64_t start = clock_ns();
    if (!st) st = execute(x, x->main, x->exe->main->entry, keep, work);
    st = work_end(d, work, st, r->cancel);
    int64_t end = clock_ns();
    if (inside) arena_reset(&x->names);
    pj_profiler_end(inside, &x->names, p ? start - p->zero_ns : 0, p);
    if (!st) note(p, x->exe->main->entry->name, "pjrt:execute", start, end, x->exe->cost);
    return st;
}

// All results are on their way before one is waited for. They go to the caller's memory, so that
// this cannot be given up.
static status_t fetch_results(struct pj_exe *x, const struct dev_run *r, void **out) {
    struct pj_device *d = device_of(&x->base);
    struct pj_pending w = {0};
    status_t st = ST_OK;
    int64_t start = clock_ns();
    for (size_t k = 0; k < (size_t)x->replicas * x->n_out && !st; k++) {
        const struct shape *s = x->out[k % x->n_out];
        uint8_t *dst = r->out[k % x->n_out];
        if (dst) st = pj_to_host(d, s, out[k], dst + k / x->n_out * (size_t)shape_bytes(s), k, &w);
    }
    status_t there = pj_pending_wait(d->plugin, &w, NULL);
    if (!st)
        st = there;
    else
        st_drop(there);
    for (size_t k = 0; k < x->n_out && !st; k++)
        for (int q = 0; r->out[k] && q < x->replicas; q++)
            pj_to_host_end(x->out[k], (uint8_t *)r->out[k] + q * shape_bytes(x->out[k]));
    note(r->profile, "outputs", "pjrt:transfer", start, clock_ns(), (struct hlo_cost){0});
    return st;
}

// Resident values belong to one device.
static status_t check_resident(const struct pj_exe *x, const struct dev_run *r) {
    bool any = false;
    for (size_t k = 0, input = 0; r->in_buffers && k < x->n_in; k++)
        if (x->exe->main->entry->params.v[k]->param_kind == PARAM_INPUT)
            any |= r->in_buffers[input++] != NULL;
    for (size_t k = 0; k < x->n_out; k++)
        any |= !r->out[k];
    if (!any || x->replicas == 1) return ST_OK;
    return st_unimplemented("values that stay on the device do not go with replicas");
}

// Results that stay: out[k] goes into a buffer.
static status_t keep_results(struct pj_exe *x, const struct dev_run *r, void **out) {
    status_t st = ST_OK;
    for (size_t k = 0; k < x->n_out && !st; k++) {
        if (r->out[k]) continue;
        st = pj_buffer_wrap(device_of(&x->base), x->out[k], out[k], &r->kept[k]);
        out[k] = NULL;
    }
    for (size_t k = 0; k < x->n_out && st; k++)
        if (!r->out[k] && r->kept[k]) {
            dev_buffer_unref(r->kept[k]);
            r->kept[k] = NULL;
        }
    return st;
}

// A run that was begun and did not succeed may have taken what was given to it.
static void check_given(const struct pj_exe *x, const struct dev_run *r) {
    for (size_t k = 0, input = 0; r->in_buffers && r->donate && k < x->n_in; k++) {
        if (x->exe->main->entry->params.v[k]->param_kind != PARAM_INPUT) continue;
        if (r->in_buffers[input] && r->donate[input]) pj_buffer_check(r->in_buffers[input]);
        input++;
    }
}

status_t pj_exe_run(struct dev_exe *base, struct dev_weights *w, const struct dev_run *r) {
    struct pj_exe *x = (struct pj_exe *)base;
    struct pj_device *d = device_of(base);
    int64_t start = clock_ns();
    size_t all = (size_t)x->replicas, n_own = x->n_in * all, n_out = x->n_out * all;
    RETURN_IF_ERR(check_resident(x, r));
    RETURN_IF_ERR(pj_settle(d, r->cancel));
    void **b = calloc(2 * n_own + n_out + 1, sizeof *b);
    bool *keep = calloc(x->n_in + 1, sizeof *keep);
    struct pj_work work = {.in = b, .own = b + n_own, .out = b + 2 * n_own};
    status_t st = b && keep ? run_main(x, (struct pj_weights *)w, r, &work, keep) : st_oom();
    if (!st && r->cancel && *r->cancel) st = st_new(ST_CANCELLED, "the run was cancelled");
    if (!st) st = fetch_results(x, r, work.out);
    if (!st) st = keep_results(x, r, work.out);
    if (st) check_given(x, r);
    if (b) pj_destroy_buffers(d->plugin, work.own, n_own + n_out);
    free(b);
    free(keep);
    if (st) return st;
    x->stats.runs++;
    x->stats.busy_ns += clock_ns() - start;
    return ST_OK;
}

struct dev_stats pj_exe_stats(const struct dev_exe *base) {
    return ((const struct pj_exe *)base)->stats;
}
void pj_exe_explain(const struct dev_exe *base, struct strbuf *out) {
    const struct pj_device *d = device_of(base);
    const struct emitted *e = &base->exe->emitted;
    strbuf_printf(out,
                  "one executable for %s, %d replica%s, made by plugin %s (sha256 %s...), %zu "
                  "bytes\ndevice memory: arguments %lld, results %lld (%lld of them in arguments), "
                  "temporaries %lld, code %lld, peak %lld bytes\n",
                  base->exe->target_id, base->exe->replicas, base->exe->replicas == 1 ? "" : "s",
                  d->plugin->path, d->plugin->digest, e->code.n, (long long)e->argument_bytes,
                  (long long)e->output_bytes, (long long)e->alias_bytes, (long long)e->temp_bytes,
                  (long long)e->code_bytes, (long long)e->peak_bytes);
}
