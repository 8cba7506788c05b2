// SPDX-License-Identifier: Apache-2.0
// Drives the op rules over a computation in list order. Values are freed with the arena; a called
// scalar function runs in an arena of its own that is reset at each call, so that a reduction over
// millions of elements stays small.
#include "compiler/eval.h"

#include "compiler/ir/work.h"

#include <stdlib.h>

enum { MAX_DEPTH = 64 };

struct hlo_eval hlo_eval_at_compile(struct arena *a, int64_t work, const _Atomic bool *cancel) {
    struct hlo_eval ev = hlo_eval_begin(a);
    ev.max_bytes = EVAL_COMPILE_BYTES;
    ev.max_work = work > 0 ? work : 1;
    ev.max_steps = ev.max_work;
    ev.cancel = cancel;
    return ev;
}

struct hlo_eval hlo_eval_begin(struct arena *a) {
    return (struct hlo_eval){.arena = a,
                             .max_bytes = INT64_C(16) << 30,
                             .max_steps = 1000000000,
                             .rng_state = HLO_EVAL_FIRST_STATE};
}

status_t hlo_eval_charge(struct hlo_eval *ev, const struct shape *s) {
    int64_t n = shape_bytes(s);
    if (ev->max_bytes && n > ev->max_bytes - ev->used_bytes)
        return st_exhausted("evaluation needs more than its budget of %lld bytes",
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

status_t hlo_eval_has_rule(const struct hlo_instr *i) {
    if (hlo_op_info(i->op)->eval || i->op == HLO_PARAMETER) return ST_OK;
    return st_unimplemented(
        "instruction '%s': %s exchanges data with a host program or another device; a "
        "program here has neither",
        i->name, hlo_op_name(i->op));
}

static status_t too_many_steps(const struct hlo_eval *ev) {
    return st_exhausted("evaluation takes more than %lld steps", (long long)ev->max_steps);
}

status_t hlo_eval_spend(struct hlo_eval *ev, int64_t work) {
    if (ev->cancel && *ev->cancel) return st_new(ST_CANCELLED, "evaluation was cancelled");
    if (!ev->max_work) return ST_OK;
    if (work > ev->max_work - ev->work)
        return st_exhausted("evaluation takes more than %lld operations", (long long)ev->max_work);
    ev->work += work;
    return ST_OK;
}

// Before an instruction is evaluated. Control flow is charged for what it comes to.
static status_t admit(struct hlo_eval *ev, const struct hlo_instr *i) {
    bool control =
        i->op == HLO_WHILE || i->op == HLO_CALL || i->op == HLO_CONDITIONAL || i->op == HLO_FUSION;
    if (ev->max_steps && ++ev->steps > ev->max_steps) return too_many_steps(ev);
    return hlo_eval_spend(ev, control || !ev->max_work ? 1 : hlo_work(i));
}

static status_t eval_instr(struct hlo_eval *ev, const struct hlo_instr *i,
                           struct literal *const *values, struct literal **out) {
    hlo_eval_fn fn = hlo_op_info(i->op)->eval;
    struct literal *in[16], **args = in;
    if (!fn) return hlo_eval_has_rule(i);
    RETURN_IF_ERR(admit(ev, i));
    if (i->n_operands > 16) args = arena_array(ev->arena, struct literal *, i->n_operands);
    for (int k = 0; k < i->n_operands; k++)
        args[k] = values[i->operands[k]->mark];
    return fn(ev, i, args, out);
}

// Values are found by an instruction's position, kept in `mark` and set anew at each entry.
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
        return st_invalid("computation '%s' takes %zu arguments, %d given", c->name, c->params.n,
                          n);
    for (int k = 0; k < n; k++)
        if (!shape_compatible(args[k]->shape, c->params.v[k]->shape))
            return st_invalid("argument %d of '%s' is %s, expected %s", k, c->name,
                              shape_text(ev->arena, args[k]->shape),
                              shape_text(ev->arena, c->params.v[k]->shape));
    if (ev->depth >= MAX_DEPTH) return st_exhausted("computations nest deeper than %d", MAX_DEPTH);
    ev->depth++;
    number(c);
    struct literal **values = calloc((size_t)c->n_instrs + 1, sizeof *values);
    if (!values) {
        ev->depth--;
        return st_oom();
    }
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
status_t hlo_eval_value(struct hlo_eval *ev, const struct hlo_instr *i, struct literal **out) {
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
        struct literal **in = arena_array(ev->arena, struct literal *, x->n_operands + 1),
                       *v = NULL;
        for (int k = 0; k < x->n_operands; k++)
            in[k] = pmap_get_ptr(&done, x->operands[k]);

        if (x->op == HLO_PARAMETER)
            st = st_internal("the value depends on parameter '%s'", x->name);
        else if (hlo_has_effect(x))
            st = st_unimplemented("'%s' has no value before the run", x->name);
        else if (!fn)
            st = hlo_eval_has_rule(x);
        else if (!(st = admit(ev, x)))
            st = fn(ev, x, in, &v);
        if (!st) pmap_put_ptr(&done, x, v);
    }

    if (!st) *out = pmap_get_ptr(&done, i);
    vec_done(&stack);
    pmap_done(&done);
    return st;
}

// Most called functions are one binary operation on their two parameters: known at open, run
// without the driver.
enum fast { FAST_NONE, FAST_ADD, FAST_MUL, FAST_MAX, FAST_MIN, FAST_AND, FAST_OR };

struct hlo_fn {
    struct hlo_eval ev;      // its own arena
    struct hlo_eval *parent; // steps, depth, random state are shared
    const struct hlo_computation *c;
    struct arena args_arena, scratch;
    struct literal **args, **values;
    enum fast fast;
};

static enum fast fast_of(const struct hlo_computation *c) {
    const struct hlo_instr *r = c->root;
    if (c->params.n != 2 || c->n_instrs != 3 || r->n_operands != 2 ||
        r->operands[0] != c->params.v[0] || r->operands[1] != c->params.v[1])
        return FAST_NONE;
    enum dtype t = r->shape->dtype;
    if (r->operands[0]->shape->dtype != t || r->operands[1]->shape->dtype != t) return FAST_NONE;
    bool f32 = t == DT_F32, s32 = t == DT_S32, pred = t == DT_PRED;
    switch (r->op) {
    case HLO_ADD:
        return f32 || s32 ? FAST_ADD : FAST_NONE;
    case HLO_MULTIPLY:
        return f32 || s32 ? FAST_MUL : FAST_NONE;
    case HLO_MAXIMUM:
        return f32 || s32 ? FAST_MAX : FAST_NONE;
    case HLO_MINIMUM:
        return f32 || s32 ? FAST_MIN : FAST_NONE;
    case HLO_AND:
        return pred ? FAST_AND : FAST_NONE;
    case HLO_OR:
        return pred ? FAST_OR : FAST_NONE;
    default:
        return FAST_NONE;
    }
}
static float fast_f32(enum fast op, float x, float y) {
    if (op == FAST_ADD) return x + y;
    if (op == FAST_MUL) return x * y;
    if (x != x || y != y) return x + y;                                   // NaN wins
    if (x == y) return (op == FAST_MAX) == !__builtin_signbit(x) ? x : y; // orders -0 below 0
    return (x > y) == (op == FAST_MAX) ? x : y;
}
static int32_t fast_s32(enum fast op, int32_t x, int32_t y) {
    if (op == FAST_ADD) return (int32_t)((uint32_t)x + (uint32_t)y);
    if (op == FAST_MUL) return (int32_t)((uint32_t)x * (uint32_t)y);
    return (x > y) == (op == FAST_MAX) ? x : y;
}
// The result goes where the first argument stood: callers copy it before the next call.
static struct literal *call_fast(struct hlo_fn *f) {
    void *x = f->args[0]->data, *y = f->args[1]->data;
    switch (f->args[0]->shape->dtype) {
    case DT_F32:
        *(float *)x = fast_f32(f->fast, *(float *)x, *(float *)y);
        break;
    case DT_S32:
        *(int32_t *)x = fast_s32(f->fast, *(int32_t *)x, *(int32_t *)y);
        break;
    default:
        *(bool *)x = f->fast == FAST_AND ? *(bool *)x && *(bool *)y : *(bool *)x || *(bool *)y;
        break;
    }
    return f->args[0];
}

status_t hlo_fn_row(struct hlo_fn *f, struct literal *acc, int64_t to, int64_t step,
                    const struct literal *in, int64_t from, int64_t n, bool *did) {
    struct hlo_eval *p = f->parent;
    enum dtype t = f->fast ? f->args[0]->shape->dtype : DT_INVALID;
    *did = (t == DT_F32 || t == DT_S32) && acc->shape->dtype == t && in->shape->dtype == t;
    if (!*did) return ST_OK;
    p->steps += n;
    if (p->max_steps && p->steps > p->max_steps) return too_many_steps(p);
    if (p->cancel && *p->cancel) return st_new(ST_CANCELLED, "evaluation was cancelled");
    if (t == DT_F32) {
        float *a = (float *)acc->data + to;
        for (int64_t k = 0; k < n; k++, a += step) {
            float x;
            memcpy(&x, (const char *)in->data + (from + k) * 4, 4); // a weight lies where its file
            *a = fast_f32(f->fast, *a, x);                          // has it
        }
    } else {
        int32_t *a = (int32_t *)acc->data + to;
        for (int64_t k = 0; k < n; k++, a += step) {
            int32_t x;
            memcpy(&x, (const char *)in->data + (from + k) * 4, 4);
            *a = fast_s32(f->fast, *a, x);
        }
    }
    return ST_OK;
}

static bool scalar_array(const struct shape *s) {
    return s->rank == 0 && dtype_class(s->dtype) != DC_NONE;
}
static bool takes_scalars(const struct hlo_computation *c, int n_args, int n_results) {
    const struct shape *r = c->root->shape;
    if ((int)c->params.n != n_args) return false;
    for (int k = 0; k < n_args; k++)
        if (!scalar_array(c->params.v[k]->shape)) return false;
    if (!shape_is_tuple(r)) return n_results == 1 && scalar_array(r);
    for (int k = 0; k < r->n_elems; k++)
        if (!scalar_array(r->elems[k])) return false;
    return r->n_elems == n_results;
}

status_t hlo_fn_open(struct hlo_eval *ev, const struct hlo_computation *c, int n_args,
                     int n_results, struct hlo_fn **out) {
    if (!takes_scalars(c, n_args, n_results))
        return st_invalid("'%s' must take %d scalars and give %d", c->name, n_args, n_results);
    struct hlo_fn *f = calloc(1, sizeof *f);
    if (!f) return st_oom();
    f->parent = ev;
    f->c = c;
    f->ev = *ev;
    f->ev.arena = &f->scratch;
    f->args = arena_array(&f->args_arena, struct literal *, n_args + 1);
    f->values = arena_zarray(&f->args_arena, struct literal *, c->n_instrs + 1);
    for (int k = 0; k < n_args; k++)
        f->args[k] = lit_new(&f->args_arena, c->params.v[k]->shape);
    f->fast = fast_of(c);
    number(c);
    *out = f;
    return ST_OK;
}
struct literal *hlo_fn_arg(struct hlo_fn *f, int k) {
    return f->args[k];
}

status_t hlo_fn_call(struct hlo_fn *f, struct literal **out) {
    struct hlo_eval *p = f->parent;
    if (f->fast) {
        if (p->max_steps && ++p->steps > p->max_steps) return too_many_steps(p);
        if ((p->steps & 4095) == 0 && p->cancel && *p->cancel)
            return st_new(ST_CANCELLED, "evaluation was cancelled");
        *out = call_fast(f);
        return ST_OK;
    }
    if (p->depth >= MAX_DEPTH) return st_exhausted("computations nest deeper than %d", MAX_DEPTH);
    arena_reset(&f->scratch);
    f->ev.used_bytes = p->used_bytes;
    f->ev.depth = p->depth + 1;
    f->ev.steps = p->steps;
    f->ev.work = p->work;
    f->ev.rng_state = p->rng_state;
    status_t st = run_body(&f->ev, f->c, f->args, f->values);
    p->steps = f->ev.steps;
    p->work = f->ev.work;
    p->rng_state = f->ev.rng_state;
    if (!st) *out = f->values[f->c->root->mark];
    return st;
}
void hlo_fn_close(struct hlo_fn *f) {
    if (!f) return;
    arena_done(&f->args_arena);
    arena_done(&f->scratch);
    free(f);
}
