// SPDX-License-Identifier: Apache-2.0
// Drives the op rules over a computation in list order. Values are freed with the arena; a called
// scalar function runs in an arena of its own that is reset at each call, so that a reduction over
// millions of elements stays small.
#include "compiler/eval.h"

#include <stdlib.h>

enum { MAX_DEPTH = 64 };

struct hlo_eval hlo_eval_begin(struct arena *a) {
    return (struct hlo_eval){.arena = a,
                             .max_bytes = INT64_C(16) << 30,
                             .max_steps = 1000000000,
                             .rng_state = 0x853c49e6748fea9bu};
}

status_t hlo_eval_charge(struct hlo_eval *ev, const struct shape *s) {
    int64_t n = shape_bytes(s);
    if (ev->max_bytes && n > ev->max_bytes - ev->used_bytes)
        return st_new(ST_RESOURCE_EXHAUSTED, "evaluation needs more than its budget of %lld bytes",
                      (long long)ev->max_bytes);
    ev->used_bytes += n;
    return ST_OK;
}
status_t hlo_eval_alloc(struct hlo_eval *ev, const struct hlo_instr *i, struct literal **out) {
    RETURN_IF_ERR(st_note(hlo_eval_charge(ev, i->shape), "instruction '%s'", i->name));
    *out = lit_new(ev->arena, i->shape);
    return ST_OK;
}

status_t hlo_eval_alloc_each(struct hlo_eval *ev, const struct hlo_instr *i, int n,
                             struct literal ***out_each, struct literal **out) {
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, out));
    if (n == 1 && !shape_is_tuple(i->shape)) {
        *out_each = arena_array(ev->arena, struct literal *, 1);
        (*out_each)[0] = *out;
    } else {
        *out_each = (*out)->elems;
    }
    return ST_OK;
}

static status_t eval_instr(struct hlo_eval *ev, const struct hlo_instr *i,
                           struct literal *const *values, struct literal **out) {
    hlo_eval_fn fn = hlo_op_info(i->op)->eval;
    struct literal *in[16], **args = in;
    if (!fn)
        return st_new(ST_UNIMPLEMENTED, "instruction '%s': the evaluator has no rule for %s",
                      i->name, hlo_op_name(i->op));
    if (ev->cancel && *ev->cancel) return st_new(ST_CANCELLED, "evaluation was cancelled");
    if (ev->max_steps && ++ev->steps > ev->max_steps)
        return st_new(ST_RESOURCE_EXHAUSTED, "evaluation takes more than %lld steps",
                      (long long)ev->max_steps);
    if (i->n_operands > 16) args = arena_array(ev->arena, struct literal *, i->n_operands);
    for (int k = 0; k < i->n_operands; k++)
        args[k] = values[i->operands[k]->mark];
    return fn(ev, i, args, out);
}

// Positions of instructions are kept in a map from pointer, because `mark` belongs to whoever runs
// passes; numbering here is set at each entry.
static void number(const struct hlo_computation *c) {
    uint32_t n = 0;
    for (struct hlo_instr *i = c->first; i; i = i->next)
        i->mark = n++;
}

static status_t run_body(struct hlo_eval *ev, const struct hlo_computation *c,
                         struct literal *const *args, struct literal **values) {
    for (const struct hlo_instr *i = c->first; i; i = i->next) {
        if (i->op == HLO_PARAMETER)
            values[i->mark] = args[i->param_number];
        else
            RETURN_IF_ERR(eval_instr(ev, i, values, &values[i->mark]));
    }
    return ST_OK;
}

status_t hlo_eval_computation(struct hlo_eval *ev, const struct hlo_computation *c,
                              struct literal *const *args, int n, struct literal **out) {
    if (n != (int)c->params.n)
        return st_new(ST_INVALID_ARGUMENT, "computation '%s' takes %zu arguments, %d given",
                      c->name, c->params.n, n);
    for (int k = 0; k < n; k++)
        if (!shape_compatible(args[k]->shape, c->params.v[k]->shape))
            return st_new(ST_INVALID_ARGUMENT, "argument %d of '%s' is %s, expected %s", k, c->name,
                          shape_text(ev->arena, args[k]->shape),
                          shape_text(ev->arena, c->params.v[k]->shape));
    if (++ev->depth > MAX_DEPTH)
        return st_new(ST_RESOURCE_EXHAUSTED, "computations nest deeper than %d", MAX_DEPTH);
    number(c);
    struct literal **values = calloc((size_t)c->n_instrs + 1, sizeof *values);
    if (!values) return st_oom();
    status_t st = run_body(ev, c, args, values);
    if (!st) *out = values[c->root->mark];
    free(values);
    ev->depth--;
    return st;
}
status_t hlo_eval_module(struct hlo_eval *ev, const struct hlo_module *m,
                         struct literal *const *args, int n, struct literal **out) {
    return hlo_eval_computation(ev, m->entry, args, n, out);
}

// Post-order over the operands with an explicit stack: shape arithmetic may be deep.
status_t hlo_eval_value(struct arena *a, const struct hlo_instr *i, struct literal **out) {
    struct hlo_eval ev = hlo_eval_begin(a);
    struct pmap done = {0};
    VEC(const struct hlo_instr *) stack = {0};
    status_t st = ST_OK;
    vec_push(&stack, i);
    while (stack.n && !st) {
        const struct hlo_instr *x = stack.v[stack.n - 1];
        size_t before = stack.n;
        for (int k = 0; k < x->n_operands; k++)
            if (!pmap_get_ptr(&done, x->operands[k])) vec_push(&stack, x->operands[k]);
        if (stack.n > before) continue;
        (void)vec_pop(&stack);
        if (pmap_get_ptr(&done, x)) continue;
        hlo_eval_fn fn = hlo_op_info(x->op)->eval;
        struct literal **in = arena_array(a, struct literal *, x->n_operands + 1), *v = NULL;
        for (int k = 0; k < x->n_operands; k++)
            in[k] = pmap_get_ptr(&done, x->operands[k]);
        if (x->op == HLO_PARAMETER)
            st = st_new(ST_INTERNAL, "the value depends on parameter '%s'", x->name);
        else
            st = fn ? fn(&ev, x, in, &v)
                    : st_new(ST_UNIMPLEMENTED, "the evaluator has no rule for %s",
                             hlo_op_name(x->op));
        if (!st) pmap_put_ptr(&done, x, v);
    }
    if (!st) *out = pmap_get_ptr(&done, i);
    vec_done(&stack);
    pmap_done(&done);
    return st;
}

struct hlo_fn {
    struct hlo_eval ev;      // its own arena and depth
    struct hlo_eval *parent; // steps and cancel are shared
    const struct hlo_computation *c;
    struct arena args_arena, scratch;
    struct literal **args;
    // Most reducers are one binary op on two f32 parameters: known at open, run without the driver.
    enum hlo_op fast;
    bool has_fast;
};

status_t hlo_fn_open(struct hlo_eval *ev, const struct hlo_computation *c, struct hlo_fn **out) {
    struct hlo_fn *f = calloc(1, sizeof *f);
    if (!f) return st_oom();
    f->parent = ev;
    f->c = c;
    f->ev = *ev;
    f->ev.arena = &f->scratch;
    f->ev.max_bytes = 0;
    f->args = arena_array(&f->args_arena, struct literal *, c->params.n + 1);
    for (size_t k = 0; k < c->params.n; k++)
        f->args[k] = lit_new(&f->args_arena, c->params.v[k]->shape);
    const struct hlo_instr *r = c->root;
    f->has_fast =
        c->params.n == 2 && c->n_instrs == 3 && r->n_operands == 2 && r->shape->dtype == DT_F32 &&
        r->operands[0] == c->params.v[0] && r->operands[1] == c->params.v[1] &&
        (r->op == HLO_ADD || r->op == HLO_MULTIPLY || r->op == HLO_MAXIMUM || r->op == HLO_MINIMUM);
    f->fast = r->op;
    *out = f;
    return ST_OK;
}
struct literal *hlo_fn_arg(struct hlo_fn *f, int k) {
    return f->args[k];
}

status_t hlo_fn_call(struct hlo_fn *f, struct literal **out) {
    if (f->has_fast) { // the result goes where the first argument stood: callers copy it before the
                       // next call
        float *x = f->args[0]->data, y = *(float *)f->args[1]->data;
        bool nan = *x != *x || y != y;
        switch (f->fast) {
        case HLO_ADD:
            *x += y;
            break;
        case HLO_MULTIPLY:
            *x *= y;
            break;
        case HLO_MAXIMUM:
            *x = nan ? *x + y : *x > y ? *x : y;
            break;
        default:
            *x = nan ? *x + y : *x < y ? *x : y;
            break;
        }
        *out = f->args[0];
        return ST_OK;
    }
    arena_reset(&f->scratch);
    f->ev.depth = f->parent->depth;
    f->ev.steps = f->parent->steps;
    status_t st = hlo_eval_computation(&f->ev, f->c, f->args, (int)f->c->params.n, out);
    f->parent->steps = f->ev.steps;
    return st;
}
void hlo_fn_close(struct hlo_fn *f) {
    if (!f) return;
    arena_done(&f->args_arena);
    arena_done(&f->scratch);
    free(f);
}
