// SPDX-License-Identifier: Apache-2.0
// The walk is the CPU device's (devices/cpu/cpu_device.c), done once instead of at each run: places
// follow from the plan alone. Called computations have no frames: their parameters are where the
// caller has the values, their memory lies in the caller's.
#include "compiler/web/web_program.h"

#include "base/map.h"
#include "base/span.h"
#include "compiler/codegen/wasm/wasm_module.h"
#include "compiler/eval.h"
#include "compiler/kernel/lower.h"
#include "compiler/plan/in_place.h"
#include "compiler/results.h"
#include "compiler/strings.h"
#include "proto/hlod.pb-c.h"

enum { ALIGN = 64, STACK = 65536, MAX_DEPTH = 64, MAX_STEPS = 1 << 20, MAX_CUTS = 64, WORD = 4 };
#define MOST_MEMORY ((INT64_C(1) << 32) - 65536)

struct frame {
    const struct plan *plan;
    const int64_t *params; // [leaves]
    int64_t memory;
};
struct maker {
    struct arena *a;
    const struct executable *e;
    const struct web_options *o;
    struct web_program *p;
    struct pmap consts;  // literal -> 1 + its place in p->weights
    struct smap kernels; // instruction -> 1 + index in e->kernels
    struct pmap used;    // kernel_info -> 1 + index in p->kernels
    struct strbuf lacks; // what no kernel computes
    struct smap told;    // its lines
    int n_lacks;
    int64_t n_places; // of all calls
    int n_steps;
    bool overflow;
};

int64_t web_take(struct web_program *p, int64_t bytes, bool *overflow) {
    int64_t at = round_up(p->bytes, ALIGN);
    if (bytes > MOST_MEMORY - at) *overflow = true;
    if (!*overflow) p->bytes = at + bytes;
    return at;
}
status_t web_overflow(void) {
    return st_exhausted("the model takes more than the 4 GiB of memory that WebAssembly has");
}
static int64_t take(struct maker *m, int64_t bytes) {
    return web_take(m->p, bytes, &m->overflow);
}
static int64_t const_at(struct maker *m, const struct literal *l) {
    intptr_t known = (intptr_t)pmap_get_ptr(&m->consts, l);
    if (!known) {
        int64_t n = (int64_t)l->size_bytes;
        avec_push(m->a, &m->p->weights,
                  ((struct web_bytes){.at = take(m, n),
                                      .bytes = n,
                                      .data = l->data,
                                      .result = -1,
                                      .type = l->shape->dtype}));
        known = (intptr_t)m->p->weights.n;
        pmap_put_ptr(&m->consts, l, (void *)known);
    }
    return m->p->weights.v[known - 1].at;
}
static int64_t place(struct maker *m, const struct frame *f, const struct slice *s) {
    switch (s->where) {
    case SLICE_PARAM:
        return f->params[s->index];
    case SLICE_CONST:
        return const_at(m, f->plan->consts[s->index]);
    case SLICE_ARENA:
        return f->memory + s->offset;
    default:
        return 0;
    }
}

static struct web_step *add(struct maker *m, struct web_steps *to, enum web_step_kind kind) {
    avec_push(m->a, to, ((struct web_step){.kind = kind}));
    m->n_steps++;
    return &to->v[to->n - 1];
}
static void copy(struct maker *m, struct web_steps *to, int64_t at, int64_t from, int64_t bytes) {
    if (at == from || bytes == 0) return;
    struct web_step *s = add(m, to, WEB_COPY);
    s->to = at;
    s->from = from;
    s->bytes = bytes;
}

// ---- kernels

static const char *op_of(const struct hlo_instr *i) {
    return i->op_type ? i->op_type : hlo_op_name(i->op);
}
static void tell(struct maker *m, const char *line) {
    if (smap_put(&m->told, str_of(line), m)) return;
    if (m->n_lacks++) strbuf_putc(&m->lacks, '\n');
    strbuf_puts(&m->lacks, line);
}
static void tell_lack(struct maker *m, const struct hlo_instr *i) {
    struct arena a = {0};
    struct kir_fn *fn;
    const char *why = "no kernel was made";
    status_t st = lower_kernel(&a, i, web_target(), PRECISION_DEFAULT, &fn, &why);
    status_t ends = hlo_eval_ends_run(i);
    if (i->op == HLO_CUSTOM_CALL) why = "a call of the device's own functions";
    if (ends) // of several copies of a branch one is told
        tell(m, arena_printf(&a, "a branch that ends a run: %s", st_message(ends)));
    else
        tell(m, arena_printf(&a, "%s '%s': %s", op_of(i), i->op_name ? i->op_name : i->name, why));
    st_drop(ends);
    st_drop(st);
    arena_done(&a);
}
static int kernel_of(struct maker *m, const struct hlo_instr *i) {
    intptr_t k = (intptr_t)smap_get(&m->kernels, str_of(i->name)), n;
    if (!k) return -1;
    const struct kernel_info *info = &m->e->kernels.k[k - 1];
    if ((n = (intptr_t)pmap_get_ptr(&m->used, info))) return (int)n - 1;
    avec_push(m->a, &m->p->kernels, ((struct web_kernel){.info = info, .of = i}));
    pmap_put_ptr(&m->used, info, (void *)(intptr_t)m->p->kernels.n);
    return (int)m->p->kernels.n - 1;
}
static void note_buffers(struct maker *m, struct web_kernel *k, const struct plan_step *s) {
    int64_t *bytes = arena_array(m->a, int64_t, s->n_in + s->n_out + 1);
    if (k->bytes) return;
    for (int e = 0; e < s->n_in; e++)
        bytes[e] = s->in[e].size_bytes;
    for (int e = 0; e < s->n_out; e++)
        bytes[s->n_in + e] = s->out[e].size_bytes;
    k->n_in = s->n_in;
    k->updates = plan_updates_alone(s->instr);
    k->bytes = bytes;
}
static status_t call(struct maker *m, const struct frame *f, const struct plan_step *s,
                     struct web_steps *to) {
    int k = kernel_of(m, s->instr), n = s->n_in + s->n_out;
    if (k < 0) {
        tell_lack(m, s->instr);
        return ST_OK;
    }
    const struct kernel_info *info = m->p->kernels.v[k].info;
    if (info->n_bufs != n)
        return st_new(ST_DATA_LOSS, "kernel '%s' has %d buffers, its step %d", info->symbol,
                      info->n_bufs, n);
    int64_t *at = arena_array(m->a, int64_t, n + 1);
    for (int e = 0; e < s->n_in; e++)
        at[e] = place(m, f, &s->in[e]);
    for (int e = 0; e < s->n_out; e++)
        at[s->n_in + e] = place(m, f, &s->out[e]);
    note_buffers(m, &m->p->kernels.v[k], s);
    for (int e = 0; plan_updates_alone(s->instr) && e < s->n_out; e++)
        copy(m, to, at[s->n_in + e], at[e], s->out[e].size_bytes);
    struct web_step *step = add(m, to, WEB_CALL);
    step->kernel = k;
    step->at = at;
    m->n_places += n;
    return ST_OK;
}

// ---- control flow

static status_t walk(struct maker *m, const struct frame *f, struct web_steps *to, int depth);
// The steps of a called computation, and copies of its results to out.
static status_t called(struct maker *m, const struct plan *plan, const int64_t *params,
                       int64_t memory, const int64_t *out, struct web_steps *to, int depth) {
    struct frame f = {plan, params, memory};
    RETURN_IF_ERR(walk(m, &f, to, depth + 1));
    for (int k = 0; k < plan->n_root && out; k++)
        copy(m, to, out[k], place(m, &f, &plan->root[k]), plan->root[k].size_bytes);
    return ST_OK;
}
// A state element that another one's value moves to goes by way of a stage.
static status_t turn_end(struct maker *m, const struct frame *body, const struct plan_step *s,
                         const int64_t *out, struct web_steps *to) {
    const struct slice *root = body->plan->root;
    int64_t *stage = arena_zarray(m->a, int64_t, s->n_out + 1);
    for (int k = 0; k < s->n_out; k++) {
        if (root[k].where != SLICE_PARAM || root[k].index == k || !root[k].size_bytes) continue;
        stage[k] = take(m, root[k].size_bytes);
        copy(m, to, stage[k], out[root[k].index], root[k].size_bytes);
    }
    for (int k = 0; k < s->n_out; k++)
        if (!stage[k]) copy(m, to, out[k], place(m, body, &root[k]), root[k].size_bytes);
    for (int k = 0; k < s->n_out; k++)
        if (stage[k]) copy(m, to, out[k], stage[k], root[k].size_bytes);
    return ST_OK;
}
static status_t loop(struct maker *m, const struct frame *f, const struct plan_step *s,
                     const int64_t *in, const int64_t *out, struct web_steps *to, int depth) {
    struct frame body = {s->called[1], out, f->memory + s->scratch_offset}, cond = body;
    struct web_steps *parts = arena_zarray(m->a, struct web_steps, 2);
    for (int k = 0; k < s->n_out; k++)
        copy(m, to, out[k], in[k], s->out[k].size_bytes);
    cond.plan = s->called[0];
    RETURN_IF_ERR(walk(m, &cond, &parts[0], depth + 1));
    RETURN_IF_ERR(walk(m, &body, &parts[1], depth + 1));
    RETURN_IF_ERR(turn_end(m, &body, s, out, &parts[1]));
    int64_t go = place(m, &cond, &cond.plan->root[0]);
    struct web_step *step = add(m, to, WEB_WHILE);
    step->from = go;
    step->parts = parts;
    step->n_parts = 2;
    return ST_OK;
}
static status_t choice(struct maker *m, const struct frame *f, const struct plan_step *s,
                       const int64_t *in, const int64_t *out, struct web_steps *to, int depth) {
    const struct hlo_instr *i = s->instr;
    struct web_steps *parts = arena_zarray(m->a, struct web_steps, i->n_called + 1);
    for (int k = 0; k < i->n_called; k++)
        RETURN_IF_ERR(called(m, s->called[k], in + plan_branch_leaf(s, k),
                             f->memory + s->scratch_offset, out, &parts[k], depth));
    struct web_step *step = add(m, to, WEB_CASE);
    step->from = in[0];
    step->pred = i->operands[0]->shape->dtype == DT_PRED;
    step->parts = parts;
    step->n_parts = i->n_called;
    return ST_OK;
}
static status_t control(struct maker *m, const struct frame *f, const struct plan_step *s,
                        struct web_steps *to, int depth) {
    int64_t *in = arena_array(m->a, int64_t, s->n_in + 1),
            *out = arena_array(m->a, int64_t, s->n_out + 1);
    for (int e = 0; e < s->n_in; e++)
        in[e] = place(m, f, &s->in[e]);
    for (int e = 0; e < s->n_out; e++)
        out[e] = place(m, f, &s->out[e]);
    if (s->instr->op == HLO_WHILE) return loop(m, f, s, in, out, to, depth);
    if (s->instr->op == HLO_CONDITIONAL) return choice(m, f, s, in, out, to, depth);
    return called(m, s->called[0], in, f->memory + s->scratch_offset, out, to, depth);
}
static status_t walk(struct maker *m, const struct frame *f, struct web_steps *to, int depth) {
    if (depth > MAX_DEPTH) return st_unimplemented("loops and calls more than %d deep", MAX_DEPTH);
    for (int k = 0; k < f->plan->n_steps; k++) {
        const struct plan_step *s = &f->plan->steps[k];
        if (m->n_steps > MAX_STEPS) // a computation is written out wherever it is called
            return st_exhausted("the program has more than %d steps, with what it calls",
                                MAX_STEPS);
        RETURN_IF_ERR(s->called ? control(m, f, s, to, depth) : call(m, f, s, to));
    }
    return ST_OK;
}

// ---- the whole

// Places of the entry's parameters: inputs and results of prepare.
static int64_t *parameters(struct maker *m) {
    const struct hlo_computation *c = m->e->main->entry;
    int n = 0, input = 0;
    for (size_t k = 0; k < c->params.n; k++)
        n += shape_leaves(c->params.v[k]->shape);
    int64_t *at = arena_array(m->a, int64_t, n + 1);
    n = 0;
    for (size_t k = 0; k < c->params.n; k++) {
        const struct hlo_instr *q = c->params.v[k];
        for (int e = 0; e < shape_leaves(q->shape); e++) {
            const struct shape *s = shape_leaf(q->shape, e);
            int64_t bytes = shape_bytes(s), where = at[n++] = take(m, bytes);
            if (q->param_kind == PARAM_INPUT) {
                const char *name = input < m->o->n_inputs ? m->o->inputs[input] : q->name;
                avec_push(
                    m->a, &m->p->inputs,
                    ((struct web_value){.name = name, .shape = s, .at = where, .bytes = bytes}));
                input++;
            } else {
                avec_push(m->a, &m->p->weights,
                          ((struct web_bytes){.at = where,
                                              .bytes = bytes,
                                              .result = (int)q->param_index,
                                              .type = s->dtype}));
            }
        }
    }
    return at;
}
// Dimensions of leaf k whose size is another leaf.
static void cuts_of(struct maker *m, const struct frame *f, int k, struct web_value *v) {
    struct dynamic_result r[MAX_CUTS];
    int n = results_dynamic(m->e->main, r, MAX_CUTS);
    struct web_cut *cuts = arena_array(m->a, struct web_cut, n + 1);
    for (int j = 0; j < n; j++)
        if (r[j].leaf == k)
            cuts[v->n_cuts++] =
                (struct web_cut){r[j].dim, place(m, f, &f->plan->root[r[j].size_leaf])};
    v->cuts = cuts;
}
static void results(struct maker *m, const struct frame *f) {
    const struct hlo_module *whole = m->e->main;
    const struct shape *s = whole->entry->root->shape;
    int n = m->o->whole ? f->plan->n_root : results_sent(whole);
    for (int k = 0; k < n; k++) {
        struct web_value v = {.shape = shape_leaf(s, k), .at = place(m, f, &f->plan->root[k])};
        v.name = k < m->o->n_outputs ? m->o->outputs[k] : arena_printf(m->a, "result%d", k);
        v.bytes = shape_bytes(v.shape);
        if (!m->o->whole) cuts_of(m, f, k, &v);
        avec_push(m->a, &m->p->outputs, v);
    }
}
static void tell_text(struct maker *m, const char *side, const char *name) {
    if (m->n_lacks++) strbuf_putc(&m->lacks, '\n');
    strbuf_printf(&m->lacks, "%s '%s': a tensor of texts", side, name);
}
static void tell_texts(struct maker *m) {
    struct string_layout text;
    if (!strings_of_module(m->a, m->e->main, &text)) return;
    for (int k = 0; k < text.n_in && k < (int)m->p->inputs.n; k++)
        if (text.in[k]) tell_text(m, "input", m->p->inputs.v[k].name);
    for (int k = 0; k < text.n_out && k < (int)m->p->outputs.n; k++)
        if (text.out[k]) tell_text(m, "output", m->p->outputs.v[k].name);
    strings_free(text.table);
}

static status_t make(struct maker *m) {
    struct plan *plan;
    const struct kernel_set *k = &m->e->kernels;
    int64_t data = 0, scratch = 0;
    if (k->object.n) RETURN_IF_ERR(wasm_data_bytes(k->object, &data));
    for (int n = 0; n < k->n; n++) {
        smap_put(&m->kernels, str_of(k->k[n].instr), (void *)(intptr_t)(n + 1));
        if (k->k[n].scratch_bytes > scratch) scratch = k->k[n].scratch_bytes;
    }
    RETURN_IF_ERR(plan_make(m->a, m->e->main->entry, &plan));
    m->p->bytes = data > ALIGN ? data : ALIGN; // nothing lies at 0
    m->p->stack = take(m, STACK) + STACK;
    struct frame f = {.plan = plan, .params = parameters(m)};
    f.memory = take(m, plan->arena_bytes);
    RETURN_IF_ERR(walk(m, &f, &m->p->main, 0));
    results(m, &f);
    tell_texts(m);
    if (m->n_lacks)
        return st_reason(
            st_unimplemented("the web target cannot run this model:\n%s", strbuf_cstr(&m->lacks)),
            HLOD__V1__REASON__REASON_UNSUPPORTED_OP);

    for (size_t n = 0; n < m->p->kernels.n; n++)
        m->n_places += 2 * m->p->kernels.v[n].info->n_sizes; // of 64 bits
    m->p->frames = take(m, m->n_places * WORD);
    m->p->scratch = take(m, scratch);
    return m->overflow ? web_overflow() : ST_OK;
}

status_t web_program_make(struct arena *a, const struct executable *e, const struct web_options *o,
                          struct web_program *out) {
    struct maker m = {.a = a, .e = e, .o = o, .p = out};
    *out = (struct web_program){0};
    strbuf_limit(&m.lacks, 1 << 16);
    status_t st = make(&m);
    pmap_done(&m.consts);
    smap_done(&m.kernels);
    pmap_done(&m.used);
    strbuf_done(&m.lacks);
    smap_done(&m.told);
    return st;
}
