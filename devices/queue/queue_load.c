// SPDX-License-Identifier: Apache-2.0
// Loading: plans as the compiler made them, constants on the device, a driver's kernel a step, and
// the memory of runs.
#include <stdlib.h>

#include "base/map.h"
#include "base/str.h"
#include "compiler/eval.h"
#include "compiler/ir/op.h"
#include "devices/queue/queue.h"

struct loader {
    struct queue_exe *x;
    struct queue_device *d;
    struct smap infos;  // instruction -> kernel_info
    struct pmap consts; // literal -> its queue_place
};
status_t queue_evaluates(const struct queue_device *d, const struct hlo_instr *i) {
    return st_note(hlo_eval_supports(i), "the %s device cannot run %s%s%s", d->driver->name,
                   i->op_type ? i->op_type : hlo_op_name(i->op), i->op_name ? " " : "",
                   i->op_name ? i->op_name : "");
}
static status_t upload(struct loader *l, struct queue_plan *p) {
    const struct plan *plan = p->plan;
    p->consts = arena_zarray(&l->x->arena, struct queue_place, plan->n_consts + 1);
    for (int k = 0; k < plan->n_consts; k++) {
        const struct literal *lit = plan->consts[k];
        struct queue_place *known = pmap_get_ptr(&l->consts, lit);
        if (!known) {
            struct queue_memory m = {0};
            RETURN_IF_ERR(queue_take(l->d, (int64_t)lit->size_bytes, "constants", &m));
            vec_push(&l->x->consts, m);
            known = arena_dup(&l->x->arena, &m.place, sizeof m.place);
            pmap_put_ptr(&l->consts, lit, known);
            RETURN_IF_ERR(queue_write(l->d, m.place, lit->data, (int64_t)lit->size_bytes, true));
            l->x->stats.resident_bytes += m.bytes;
        }
        p->consts[k] = *known;
    }
    return ST_OK;
}
static status_t bind_kernel(struct loader *l, struct queue_step *s) {
    const struct kernel_info *k = smap_get(&l->infos, str_of(s->plan->instr->name));
    if (!k) return ST_OK;
    if (k->n_bufs != s->plan->n_in + s->plan->n_out || k->extent < 0 || k->scratch_bytes < 0)
        return st_new(ST_DATA_LOSS, "kernel '%s' has %d buffers, its step %d", k->symbol, k->n_bufs,
                      s->plan->n_in + s->plan->n_out);
    s->info = k;
    RETURN_IF_ERR(l->d->driver->bind(l->x, s));
    if (s->why || (!s->kernel && !l->d->compiles_only)) s->info = NULL;
    return ST_OK;
}
static status_t lay_out(struct loader *l, struct plan *plan, const _Atomic bool *cancel,
                        struct queue_plan **out);
static status_t bind_step(struct loader *l, struct queue_step *s, const _Atomic bool *cancel) {
    const struct hlo_instr *i = s->plan->instr;
    struct arena *a = &l->x->arena;
    s->at = arena_zarray(a, struct queue_place, s->plan->n_in + s->plan->n_out + 1);
    s->bytes = plan_step_bytes(s->plan);
    if (!s->plan->called) {
        RETURN_IF_ERR(bind_kernel(l, s));
        if (s->info) return ST_OK;
        return queue_evaluates(l->d, i);
    }

    s->called = arena_zarray(a, struct queue_plan *, i->n_called + 1);
    for (int c = 0; c < i->n_called; c++)
        RETURN_IF_ERR(lay_out(l, s->plan->called[c], cancel, &s->called[c]));
    if (i->op != HLO_WHILE) return ST_OK;
    s->stage_at = l->x->stage_bytes;
    for (int k = 0; k < s->plan->n_out; k++)
        if (plan_moves(s->called[1]->plan, k))
            l->x->stage_bytes += queue_aligned(s->called[1]->plan->root[k].size_bytes);
    return ST_OK;
}
static status_t lay_out(struct loader *l, struct plan *plan, const _Atomic bool *cancel,
                        struct queue_plan **out) {
    struct queue_plan *p = arena_new_of(&l->x->arena, struct queue_plan);
    p->plan = plan;
    p->steps = arena_zarray(&l->x->arena, struct queue_step, plan->n_steps + 1);
    *out = p;
    for (int k = 0; k < plan->n_steps; k++) {
        if (cancel && *cancel) return st_new(ST_CANCELLED, "the call was cancelled");
        p->steps[k].plan = &plan->steps[k];
        RETURN_IF_ERR(bind_step(l, &p->steps[k], cancel));
    }
    return l->d->compiles_only ? ST_OK : upload(l, p);
}
static status_t load_module(struct queue_exe *x, bool main, const _Atomic bool *cancel,
                            struct queue_plan **out) {
    const struct executable *e = x->exe;
    const struct kernel_set *k = main ? &e->kernels : &e->prepare_kernels;
    struct loader l = {.x = x, .d = queue_of(&x->base)};
    struct plan *plan;
    RETURN_IF_ERR(plan_make(&x->arena, (main ? e->main : e->prepare)->entry, &plan));
    RETURN_IF_ERR(l.d->driver->begin(x, k));
    for (int n = 0; n < k->n && k->object.n; n++)
        smap_put(&l.infos, str_of(k->k[n].instr), (void *)&k->k[n]);
    status_t st = lay_out(&l, plan, cancel, out);
    smap_done(&l.infos);
    pmap_done(&l.consts);
    return st;
}

// ---- load

void queue_unload(struct dev_exe *base) {
    struct queue_exe *x = (struct queue_exe *)base;
    struct queue_device *d = queue_of(base);
    d->driver->unload(x);
    for (size_t k = 0; k < x->consts.n; k++)
        queue_give(d, &x->consts.v[k]);
    for (int k = 0; x->inputs && k < x->main->plan->n_params; k++)
        queue_give(d, &x->inputs[k]);
    queue_give(d, &x->memory);
    queue_give(d, &x->stage);
    vec_done(&x->consts);
    executable_free(x->exe);
    arena_done(&x->arena);
    free(x);
}
static status_t load_into(struct queue_device *d, struct queue_exe *x, const _Atomic bool *cancel) {
    const struct target *found;
    RETURN_IF_ERR(queue_alive(d));
    if (d->compiles_only) // of any that it compiles for
        RETURN_IF_ERR(d->base.vt->find_target(&d->base, x->exe->target_id, &found));
    else if (strcmp(x->exe->target_id, d->target->id) != 0)
        return st_new(ST_FAILED_PRECONDITION, "the executable is for target %s, this device is %s",
                      x->exe->target_id, d->target->id);
    RETURN_IF_ERR(load_module(x, true, cancel, &x->main));
    RETURN_IF_ERR(load_module(x, false, cancel, &x->prepare));
    if (d->compiles_only) return ST_OK;
    x->inputs = arena_zarray(&x->arena, struct queue_memory, x->main->plan->n_params + 1);
    RETURN_IF_ERR(queue_take(d, x->main->plan->arena_bytes, "the working set", &x->memory));
    if (x->stage_bytes)
        RETURN_IF_ERR(queue_take(d, x->stage_bytes, "the states of loops", &x->stage));
    x->stats.arena_bytes = x->memory.bytes + x->stage.bytes;
    return d->driver->ready(x);
}
status_t queue_load(struct device *base, struct executable *exe, const _Atomic bool *cancel,
                    struct dev_exe **out) {
    struct queue_device *d = (struct queue_device *)base;
    struct queue_exe *x = calloc(1, d->driver->exe_bytes);
    if (!x) {
        executable_free(exe);
        return st_oom();
    }
    x->base = (struct dev_exe){.dev = base, .exe = exe};
    x->exe = exe;
    status_t st = load_into(d, x, cancel);
    if (st)
        queue_unload(&x->base);
    else
        *out = &x->base;
    return st;
}

// ---- explain

static void explain_plan(const struct queue_device *d, const struct queue_plan *p, int indent,
                         struct strbuf *out) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        const struct queue_step *s = &p->steps[k];
        strbuf_printf(out, "%*s%s: ", indent, "", s->plan->instr->name);
        if (s->kernel)
            d->driver->explain(s, out);
        else if (s->info)
            strbuf_printf(out, "kernel %s", s->info->symbol);
        else
            strbuf_puts(out, s->called ? "control" : "reference");
        if (s->why) strbuf_printf(out, ": %s", s->why);
        strbuf_puts(out, "\n");
        for (int c = 0; s->called && c < s->plan->instr->n_called; c++)
            explain_plan(d, s->called[c], indent + 2, out);
    }
}
void queue_explain(const struct dev_exe *base, struct strbuf *out) {
    const struct queue_exe *x = (const struct queue_exe *)base;
    const struct queue_device *d = queue_of(base);
    plan_print(out, x->main->plan);
    strbuf_puts(out, "\nimplementations:\n");
    explain_plan(d, x->main, 2, out);
    strbuf_puts(out, "implementations of prepare:\n");
    explain_plan(d, x->prepare, 2, out);
}
