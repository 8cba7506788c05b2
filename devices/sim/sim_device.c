// SPDX-License-Identifier: Apache-2.0
// The simulated device: answers come from the reference evaluator, everything else is made up. Its
// time, its memory and its faults are options, so that what depends on them (the scheduler, the
// worker, clients) can be tested; and it is the shortest complete device: a new one starts as a
// copy of this file (docs/adding/device.md).
//
//     sim:latency_us=500:memory=64M            a run takes 0.5 ms; 64 MiB for everything resident
//     sim:latency_us=1000000:clock=virtual     a run takes a second of virtual time and no waiting
//     sim:crash=run@3                          the third run of this process's life kills it
//     sim:hang=prepare  sim:oom=load  sim:lose=run@2  sim:crash=open
//
// Faults: crash ends the process by a signal, hang never returns and does not look at cancel, oom
// answers RESOURCE_EXHAUSTED, lose makes the device UNAVAILABLE from then on, escape opens a file
// as injected code would, and fails where that is refused, wild overwrites the weights that are
// prepared for other executables. Without @N a fault happens every time.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "compiler/eval.h"
#include "compiler/plan/plan.h"
#include "devices/host_buffer.h"
#include "proto/hlod.pb-c.h"

enum sim_step { STEP_NONE, STEP_OPEN, STEP_LOAD, STEP_PREPARE, STEP_RUN, STEP_COUNT };
enum sim_fault {
    FAULT_CRASH,
    FAULT_HANG,
    FAULT_OOM,
    FAULT_LOSE,
    FAULT_ESCAPE,
    FAULT_WILD,
    FAULT_COUNT
};
static const char *const step_names[STEP_COUNT] = {"", "open", "load", "prepare", "run"};
static const char *const fault_names[FAULT_COUNT] = {"crash", "hang",   "oom",
                                                     "lose",  "escape", "wild"};

struct sim_trigger {
    enum sim_step step;
    int64_t nth; // 0 = every time
};
struct sim_device {
    struct device base;
    int64_t latency_ns[STEP_COUNT];
    int64_t memory_bytes, used_bytes;
    bool virtual_clock, lost;
    int64_t now_ns; // of the virtual clock
    int64_t times[STEP_COUNT];
    struct sim_trigger faults[FAULT_COUNT];
    struct sim_weights *weights; // all that are prepared
};
struct sim_exe {
    struct dev_exe base;
    struct executable *exe; // owned
    struct arena plan_arena;
    struct plan *plan;      // of main: what a run's memory would be
    int64_t resident_bytes; // charged to the device
    struct dev_stats stats;
};
struct sim_weights {
    struct dev_weights base;
    struct sim_weights *next; // of the device
    struct arena arena;
    struct literal **bound; // [bound parameters of main]
    int n;
};

static struct sim_device *sim_of(const struct dev_exe *x) {
    return (struct sim_device *)x->dev;
}

// ---- options

static status_t parse_trigger(struct str text, struct sim_trigger *t) {
    struct str name;
    str_cut(&text, '@', &name);
    for (int k = STEP_OPEN; k < STEP_COUNT; k++)
        if (str_is(name, step_names[k])) t->step = (enum sim_step)k;
    if (!t->step || (text.n && (!str_to_i64(text, &t->nth) || t->nth < 1)))
        return st_invalid("a fault is open, load, prepare or run, then @N for the N-th time only; "
                          "found '" STR_FMT "'",
                          STR_ARG(name));
    return ST_OK;
}

static bool parse_us(struct str s, int64_t *out_ns) {
    return str_to_i64(s, out_ns) && *out_ns >= 0 && sz_mul(*out_ns, 1000, out_ns);
}

static status_t set_option(struct sim_device *d, struct str key, struct str value) {
    for (int k = 0; k < FAULT_COUNT; k++)
        if (str_is(key, fault_names[k])) return parse_trigger(value, &d->faults[k]);
    bool known = true, good = true;
    if (str_is(key, "latency_us"))
        good = parse_us(value, &d->latency_ns[STEP_RUN]);
    else if (str_is(key, "load_us"))
        good = parse_us(value, &d->latency_ns[STEP_LOAD]);
    else if (str_is(key, "prepare_us"))
        good = parse_us(value, &d->latency_ns[STEP_PREPARE]);
    else if (str_is(key, "memory"))
        good = str_to_bytes(value, &d->memory_bytes) && d->memory_bytes > 0;
    else if (str_is(key, "clock"))
        good = (d->virtual_clock = str_is(value, "virtual")) || str_is(value, "real");
    else
        known = false;
    if (known && good) return ST_OK;
    return st_invalid(known ? "option " STR_FMT " cannot be '" STR_FMT "'"
                            : "no option " STR_FMT "=" STR_FMT
                              "; there are latency_us, load_us, prepare_us, memory, clock, crash, "
                              "hang, oom, lose, escape, wild",
                      STR_ARG(key), STR_ARG(value));
}

// ---- time, memory, faults

// Waits in slices, so that a cancelled run ends soon.
static status_t spend(struct sim_device *d, int64_t ns, const _Atomic bool *cancel) {
    if (d->virtual_clock) {
        d->now_ns += ns;
        return ST_OK;
    }
    for (int64_t end = clock_ns() + ns, left; (left = end - clock_ns()) > 0;) {
        if (cancel && *cancel) return st_new(ST_CANCELLED, "the call was cancelled");
        usleep((useconds_t)((left < 1000000 ? left : 1000000) / 1000 + 1));
    }
    return ST_OK;
}
static int64_t sim_now(const struct sim_device *d) {
    return d->virtual_clock ? d->now_ns : clock_ns();
}

static status_t take_memory(struct sim_device *d, int64_t bytes, const char *what) {
    if (bytes <= d->memory_bytes - d->used_bytes) {
        d->used_bytes += bytes;
        return ST_OK;
    }
    return st_reason(st_exhausted("no device memory for %s: %lld bytes wanted, %lld of %lld in use",
                                  what, (long long)bytes, (long long)d->used_bytes,
                                  (long long)d->memory_bytes),
                     HLOD__V1__REASON__REASON_DEVICE_MEMORY);
}

static bool strikes(const struct sim_device *d, enum sim_fault f, enum sim_step step) {
    const struct sim_trigger *t = &d->faults[f];
    return t->step == step && (t->nth == 0 || t->nth == d->times[step]);
}

// Every step begins here.
static status_t begin(struct sim_device *d, enum sim_step step) {
    d->times[step]++;
    if (strikes(d, FAULT_CRASH, step)) raise(SIGKILL);
    while (strikes(d, FAULT_HANG, step))
        pause();
    if (strikes(d, FAULT_LOSE, step)) d->lost = true;
    if (d->lost) return st_new(ST_UNAVAILABLE, "the simulated device is lost");
    if (strikes(d, FAULT_OOM, step))
        return st_reason(st_exhausted("no device memory (a simulated fault)"),
                         HLOD__V1__REASON__REASON_DEVICE_MEMORY);
    if (strikes(d, FAULT_ESCAPE, step)) {
        int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
        if (fd < 0) return st_errno(errno, "the simulated escape");
        close(fd);
    }
    return ST_OK;
}

// ---- open and describe

static status_t sim_open(const char *options, struct device **out) {
    extern const struct dev_vtable sim_vtable;
    struct sim_device *d = calloc(1, sizeof *d);
    if (!d) return st_oom();
    d->base.vt = &sim_vtable;
    d->memory_bytes = INT64_C(16) << 30;
    struct str rest = str_of(options), item, key;
    status_t st = ST_OK;
    while (!st && str_cut(&rest, ':', &item)) {
        str_cut(&item, '=', &key);
        st = set_option(d, key, item);
    }
    if (!st) st = begin(d, STEP_OPEN);
    if (st)
        free(d);
    else
        *out = &d->base;
    return st;
}
static void sim_close(struct device *d) {
    free(d);
}

// No library and no kernels: results smaller than this are left to the device, and all are.
static const struct target *sim_target(UNUSED struct device *d) {
    static const struct target t = {.id = "sim:1",
                                    .kind = "sim",
                                    .llvm_triple = "",
                                    .llvm_cpu = "",
                                    .llvm_features = "",
                                    .vector_bits = 128,
                                    .threads = 1,
                                    .min_kernel_elements = INT64_MAX};
    return &t;
}
static struct dev_attributes sim_attributes(struct device *d) {
    return (struct dev_attributes){.memory_bytes = ((struct sim_device *)d)->memory_bytes,
                                   .description = "simulated: reference evaluator"};
}

// ---- executables

static void sim_unload(struct dev_exe *base) {
    struct sim_exe *x = (struct sim_exe *)base;
    sim_of(base)->used_bytes -= x->resident_bytes;
    executable_free(x->exe);
    arena_done(&x->plan_arena);
    free(x);
}

static status_t load_into(struct sim_device *d, struct sim_exe *x, const _Atomic bool *cancel) {
    if (strcmp(x->exe->target_id, sim_target(&d->base)->id) != 0)
        return st_new(ST_FAILED_PRECONDITION, "the executable is for target %s, this device is %s",
                      x->exe->target_id, sim_target(&d->base)->id);
    RETURN_IF_ERR(begin(d, STEP_LOAD));
    RETURN_IF_ERR(spend(d, d->latency_ns[STEP_LOAD], cancel));
    RETURN_IF_ERR(plan_make(&x->plan_arena, x->exe->main->entry, &x->plan));
    RETURN_IF_ERR(take_memory(d, x->plan->arena_bytes, "the executable's working set"));
    x->resident_bytes = x->stats.arena_bytes = x->stats.resident_bytes = x->plan->arena_bytes;
    return ST_OK;
}

static status_t sim_load(struct device *d, struct executable *exe, const _Atomic bool *cancel,
                         struct dev_exe **out) {
    struct sim_exe *x = calloc(1, sizeof *x);
    if (!x) {
        executable_free(exe);
        return st_oom();
    }
    x->base = (struct dev_exe){.dev = d, .exe = exe};
    x->exe = exe;
    status_t st = load_into((struct sim_device *)d, x, cancel);
    if (st)
        sim_unload(&x->base);
    else
        *out = &x->base;
    return st;
}

// ---- weights

static void sim_release(struct dev_weights *base) {
    struct sim_weights *w = (struct sim_weights *)base, **at = &sim_of(base->exe)->weights;
    sim_of(base->exe)->used_bytes -= base->bytes;
    while (*at && *at != w)
        at = &(*at)->next;
    if (*at) *at = w->next;
    arena_done(&w->arena);
    free(w);
}

// Evaluates the prepare module on the weights; `scratch` holds what need not stay.
static status_t bind_weights(struct sim_exe *x, const struct span *weights, int n,
                             const _Atomic bool *cancel, struct arena *scratch,
                             struct sim_weights *w) {
    const struct hlo_computation *p = x->exe->prepare->entry;
    struct literal **args = arena_array(scratch, struct literal *, p->params.n + 1), *root;
    for (size_t k = 0; k < p->params.n; k++) {
        const struct hlo_instr *q = p->params.v[k];
        const void *bytes;
        RETURN_IF_ERR(dev_find_weight(q, weights, n, &bytes));
        args[k] = lit_borrow(scratch, q->shape, bytes);
    }
    struct hlo_eval ev = hlo_eval_begin(scratch);
    ev.cancel = cancel;
    RETURN_IF_ERR(hlo_eval_module(&ev, x->exe->prepare, args, (int)p->params.n, &root));
    int n_bound = p->root->shape->n_elems;
    int64_t bytes = 0;
    for (int k = 0; k < n_bound; k++)
        bytes += shape_bytes(root->elems[k]->shape);
    RETURN_IF_ERR(take_memory(sim_of(&x->base), bytes, "prepared weights"));
    w->base.bytes = bytes;
    w->bound = arena_array(&w->arena, struct literal *, n_bound + 1);
    for (w->n = 0; w->n < n_bound; w->n++)
        w->bound[w->n] = lit_clone(&w->arena, root->elems[w->n]);
    return ST_OK;
}

static status_t sim_prepare(struct dev_exe *base, const struct span *weights, int n,
                            const _Atomic bool *cancel, struct dev_weights **out) {
    struct sim_device *d = sim_of(base);
    RETURN_IF_ERR(begin(d, STEP_PREPARE));
    RETURN_IF_ERR(spend(d, d->latency_ns[STEP_PREPARE], cancel));
    struct sim_weights *w = calloc(1, sizeof *w);
    if (!w) return st_oom();
    w->base.exe = base;
    struct arena scratch = {0};
    status_t st = bind_weights((struct sim_exe *)base, weights, n, cancel, &scratch, w);
    arena_done(&scratch);
    if (st) {
        sim_release(&w->base);
        return st;
    }
    w->next = d->weights;
    d->weights = w;
    *out = &w->base;
    return ST_OK;
}

// ---- buffers

static status_t sim_put(struct device *base, const struct shape *s, const void *data,
                        struct dev_buffer **out) {
    struct sim_device *d = (struct sim_device *)base;
    if (d->lost) return st_new(ST_UNAVAILABLE, "the simulated device is lost");
    RETURN_IF_ERR(take_memory(d, shape_bytes(s), "a buffer"));
    status_t st = host_buffer_new(base, s, data, out);
    if (st) d->used_bytes -= shape_bytes(s);
    return st;
}
// A donated buffer's memory belongs to a result, which gives it back.
static void sim_drop(struct dev_buffer *b) {
    if (host_buffer_data(b)) ((struct sim_device *)b->dev)->used_bytes -= b->bytes;
    host_buffer_free(b);
}

// ---- run

// A parameter's value from its leaves.
static struct literal *take_leaves(struct arena *a, const struct shape *s, const struct dev_run *r,
                                   int *k) {
    if (!shape_is_tuple(s)) return lit_borrow(a, s, host_input(r, (*k)++));
    struct literal **e = arena_array(a, struct literal *, s->n_elems + 1);
    for (int i = 0; i < s->n_elems; i++)
        e[i] = take_leaves(a, s->elems[i], r, k);
    return lit_tuple(a, s, e);
}

// What a run needs beside what is resident: inputs that came for it, results.
static int64_t transfer_bytes(const struct sim_exe *x, const struct dev_run *r) {
    const struct hlo_computation *m = x->exe->main->entry;
    int64_t bytes = 0;
    int leaf = 0;
    for (size_t k = 0; k < m->params.n; k++) {
        const struct shape *s = m->params.v[k]->shape;
        if (m->params.v[k]->param_kind != PARAM_INPUT) continue;
        for (int e = 0; e < shape_leaves(s); e++, leaf++)
            if (!r->in_buffers || !r->in_buffers[leaf]) bytes += shape_bytes(shape_leaf(s, e));
    }
    for (int k = 0; k < shape_leaves(m->root->shape); k++)
        if (r->out[k]) bytes += shape_bytes(shape_leaf(m->root->shape, k));
    return bytes;
}

static status_t reserve(struct device *d, int64_t bytes) {
    return take_memory((struct sim_device *)d, bytes, "results that stay");
}

static status_t evaluate(struct sim_exe *x, const struct sim_weights *w, const struct dev_run *r,
                         struct arena *a) {
    const struct hlo_computation *m = x->exe->main->entry;
    struct literal **args = arena_array(a, struct literal *, m->params.n + 1), *root;
    int bound = 0, input = 0, n = shape_leaves(m->root->shape);
    for (size_t k = 0; k < m->params.n; k++) {
        const struct hlo_instr *p = m->params.v[k];
        args[k] =
            p->param_kind == PARAM_INPUT ? take_leaves(a, p->shape, r, &input) : w->bound[bound++];
    }
    struct hlo_eval ev = hlo_eval_begin(a);
    ev.cancel = r->cancel;
    ev.texts = r->texts;
    RETURN_IF_ERR(hlo_eval_module(&ev, x->exe->main, args, (int)m->params.n, &root));
    void **src = arena_array(a, void *, n + 1);
    const struct shape **shapes = arena_array(a, const struct shape *, n + 1);
    for (int k = 0; k < n; k++) {
        shapes[k] = shape_leaf(m->root->shape, k);
        src[k] = lit_leaf(root, k)->data;
    }
    return host_deliver(x->base.dev, r, input, src, shapes, n, NULL, reserve);
}

static status_t sim_run(struct dev_exe *base, struct dev_weights *w, const struct dev_run *r) {
    struct sim_exe *x = (struct sim_exe *)base;
    struct sim_device *d = sim_of(base);
    int64_t start = sim_now(d);
    RETURN_IF_ERR(begin(d, STEP_RUN));
    for (struct sim_weights *o = strikes(d, FAULT_WILD, STEP_RUN) ? d->weights : NULL; o;
         o = o->next)
        for (int k = 0; o->base.exe != base && k < o->n; k++)
            memset(o->bound[k]->data, 0x40, o->bound[k]->size_bytes);
    int64_t io_bytes = transfer_bytes(x, r);
    RETURN_IF_ERR(take_memory(d, io_bytes, "inputs and results"));
    struct arena a = {0};
    status_t st = spend(d, d->latency_ns[STEP_RUN], r->cancel);
    if (!st) st = evaluate(x, (struct sim_weights *)w, r, &a);
    arena_done(&a);
    d->used_bytes -= io_bytes;
    if (st) return st;
    int64_t ns = sim_now(d) - start;
    x->stats.runs++;
    x->stats.busy_ns += ns;
    x->stats.reference_steps += x->exe->main->entry->n_instrs;
    if (r->profile && r->profile->n < r->profile->cap)
        r->profile->rows[r->profile->n++] = (struct profile_row){
            .name = x->exe->main->entry->name, .op = "module", .impl = "reference", .ns = ns};
    return ST_OK;
}

static struct dev_stats sim_stats(const struct dev_exe *base) {
    return ((const struct sim_exe *)base)->stats;
}
static void sim_explain(const struct dev_exe *base, struct strbuf *out) {
    plan_print(out, ((const struct sim_exe *)base)->plan);
    strbuf_puts(out, "\nimplementations:\n  every step: reference\n");
}

static struct dev_peak sim_peak(UNUSED struct device *d) {
    return (struct dev_peak){.source = "not known: the device is simulated"};
}

extern const struct dev_vtable sim_vtable;
const struct dev_vtable sim_vtable = {.kind = "sim",
                                      .open = sim_open,
                                      .close = sim_close,
                                      .target = sim_target,
                                      .attributes = sim_attributes,
                                      .load = sim_load,
                                      .unload = sim_unload,
                                      .prepare = sim_prepare,
                                      .release = sim_release,
                                      .put = sim_put,
                                      .get = host_buffer_get,
                                      .drop = sim_drop,
                                      .run = sim_run,
                                      .stats = sim_stats,
                                      .explain = sim_explain,
                                      .peak = sim_peak};
