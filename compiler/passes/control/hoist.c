// SPDX-License-Identifier: Apache-2.0
// A value is hoisted when it depends on weights and constants alone and something that depends on
// inputs uses it. Cheap movements (broadcast, reshape, constants) are not worth memory: they are
// computed again in main from what they move. Neither are values beyond what a model's own weights
// account for: prepare has a budget of operations and of bytes that stay, and what exceeds it the
// run computes.
#include "compiler/passes/control/hoist.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/ir/work.h"

enum { MAIN = 1, FRONTIER = 2 };
// Products of weight matrices of 4096 x 4096 and what comes of gigabytes of weights fit, chains of
// larger ones do not. Results may be 16 times what they came from (int4 to f32, forms for
// libraries).
static const int64_t MAX_WORK = INT64_C(1) << 39, MAX_BYTES = INT64_C(256) << 20;
enum { MAX_GROWTH = 16, PLACES_BYTES = 1 << 16 };

static bool cheap(const struct hlo_instr *i) {
    return i->op == HLO_BROADCAST || i->op == HLO_RESHAPE || i->op == HLO_BITCAST ||
           i->op == HLO_CONSTANT || i->op == HLO_IOTA;
}

// The table of texts is a run's (strings.h): what looks into it stays in main.
static bool reads_texts(const struct hlo_instr *i, const struct pmap *readers) {
    static const char prefix[] = "hlod.text.";
    if (i->op == HLO_CUSTOM_CALL) {
        struct str target = HLO_ATTR(i, custom)->custom_call_target;
        return target.n >= sizeof prefix && memcmp(target.p, prefix, sizeof prefix - 1) == 0;
    }
    for (int k = 0; k < i->n_called; k++)
        if (pmap_has_ptr(readers, i->called[k])) return true;
    return false;
}
// In `readers`: computations with such calls; those called come first.
static void find_readers(const struct hlo_module *m, struct pmap *readers) {
    HLO_EACH_COMPUTATION(c, m) {
        bool yes = false;
        for (const struct hlo_instr *i = c->first; i && !yes; i = i->next)
            yes = reads_texts(i, readers);
        if (yes) pmap_put_ptr(readers, c, NULL);
    }
}

// Whole numbers that simple operations make of places alone (random numbers' counters): computing
// them takes less than reading them. `only` says so of operands by PLACES.
static char PLACES[1];
static bool of_places(const struct hlo_instr *i, struct pmap *only) {
    if (i->op == HLO_IOTA) return true;
    if (shape_is_tuple(i->shape) || !dtype_is_int(i->shape->dtype)) return false;
    if (i->op == HLO_CONSTANT) return shape_elements(i->shape) == 1;
    switch (i->op) {
    case HLO_BROADCAST:
    case HLO_RESHAPE:
    case HLO_CONVERT:
    case HLO_ADD:
    case HLO_SUBTRACT:
    case HLO_MULTIPLY:
    case HLO_AND:
    case HLO_SHIFT_LEFT:
    case HLO_SHIFT_RIGHT_LOGICAL:
        break;
    default:
        return false;
    }
    for (int k = 0; k < i->n_operands; k++)
        if (pmap_get_ptr(only, i->operands[k]) != PLACES) return false;
    return true;
}

// In `only`: values that depend on weights and constants alone.
static void find_weight_only(const struct hlo_computation *c, struct pmap *only) {
    struct pmap readers = {0};
    int64_t work = 0, all;
    find_readers(c->module, &readers);
    for (const struct hlo_instr *i = c->first; i; i = i->next) {
        bool yes = i->op == HLO_CONSTANT || i->op == HLO_IOTA ||
                   (i->op == HLO_PARAMETER && i->param_kind == PARAM_WEIGHT);
        if (i->n_operands && (hlo_op_info(i->op)->traits & HLO_T_P) && i->op != HLO_TUPLE) {
            yes = !reads_texts(i, &readers);
            for (int k = 0; k < i->n_operands; k++)
                yes &= pmap_has_ptr(only, i->operands[k]);
        }
        if (yes && i->n_operands) { // beyond the budget: it, and what is made of it
            yes = sz_add(work, hlo_work(i), &all) && all <= MAX_WORK;
            if (yes) work = all;
        }
        if (yes) pmap_put_ptr(only, i, of_places(i, only) ? PLACES : NULL);
    }
    pmap_done(&readers);
}

static int64_t max_bytes(const struct hlo_computation *c) {
    int64_t n = 0;
    for (size_t k = 0; k < c->params.n; k++)
        if (c->params.v[k]->param_kind == PARAM_WEIGHT &&
            !sz_add(n, shape_bytes(c->params.v[k]->shape), &n))
            return INT64_MAX;
    return sz_mul(n, MAX_GROWTH, &n) && sz_add(n, MAX_BYTES, &n) ? n : INT64_MAX;
}

// Backwards from the root: what main computes, and where it meets hoisted values. Those are arrays:
// of a hoisted tuple its elements.
static void find_frontier(const struct hlo_computation *c, const struct pmap *only,
                          struct pmap *where) {
    bool weight = c->root->op == HLO_PARAMETER && c->root->param_kind == PARAM_WEIGHT,
         element = c->root->op == HLO_GET_TUPLE_ELEMENT && pmap_has_ptr(only, c->root);
    bool whole = (weight || element) && !shape_is_tuple(c->root->shape);
    int64_t left = max_bytes(c);
    pmap_put_ptr(where, c->root, (void *)(uintptr_t)(whole ? FRONTIER : MAIN));
    for (const struct hlo_instr *i = c->last; i; i = i->prev) {
        if (hlo_has_effect(i)) pmap_put_ptr(where, i, (void *)MAIN);
        if (pmap_get_ptr(where, i) != (void *)MAIN) continue;
        for (int k = 0; k < i->n_operands; k++) {
            const struct hlo_instr *x = i->operands[k];
            if (pmap_has_ptr(where, x)) continue;
            bool hoist = pmap_has_ptr(only, x) && !cheap(x) && !shape_is_tuple(x->shape) &&
                         (pmap_get_ptr(only, x) != PLACES || shape_bytes(x->shape) < PLACES_BYTES);
            if (hoist && x->op != HLO_PARAMETER) {
                hoist = shape_bytes(x->shape) <= left;
                if (hoist) left -= shape_bytes(x->shape);
            }
            pmap_put_ptr(where, x, (void *)(uintptr_t)(hoist ? FRONTIER : MAIN));
        }
    }
}

struct numbers { // of the parameters that were; -1 = it is no input of main
    const int64_t *v;
    size_t n;
};
static int64_t number_now(void *ctx, int64_t old, UNUSED struct str *path) {
    const struct numbers *now = ctx;
    return old < 0 || (size_t)old >= now->n ? -1 : now->v[old];
}

// Renumbers parameters, dropping those that nothing uses and that are not inputs.
static void renumber(struct hlo_computation *c) {
    VEC(struct hlo_instr *) kept = {0};
    for (int bound = 1; bound >= 0; bound--)
        for (size_t k = 0; k < c->params.n; k++) {
            struct hlo_instr *p = c->params.v[k];
            if (!p || (p->param_kind == PARAM_BOUND) != bound) continue;
            avec_push(c->module->arena, &kept, p);
        }
    c->params.n = 0;
    for (size_t k = 0; k < kept.n; k++) {
        kept.v[k]->param_number = (int64_t)c->params.n;
        avec_push(c->module->arena, &c->params, kept.v[k]);
    }
}
static void drop_weights(struct hlo_computation *c) {
    for (size_t k = 0; k < c->params.n; k++) {
        struct hlo_instr *p = c->params.v[k];
        if (!p || p->param_kind != PARAM_WEIGHT || p->users.n || p == c->root) continue;
        hlo_remove_instr(p);
        c->params.v[k] = NULL;
    }
}

// In `keep`, a bit an id: the frontier, and all that it depends on.
static void find_prepared(const struct hlo_computation *c, struct hlo_instr *const *frontier, int n,
                          uint64_t *keep) {
    for (int k = 0; k < n; k++)
        hlo_set_put(keep, frontier[k]);
    for (const struct hlo_instr *i = c->last; i; i = i->prev) {
        if (!hlo_set_has(keep, i)) continue;
        for (int k = 0; k < i->n_operands; k++)
            hlo_set_put(keep, i->operands[k]);
    }
}
// Its instructions are those of `keep`, in the same order.
static status_t finish_prepare(struct hlo_module *p, const struct hlo_module *m,
                               const uint64_t *keep, struct hlo_instr *const *frontier, int n) {
    struct hlo_computation *c = p->entry;
    struct hlo_instr **roots = arena_array(p->arena, struct hlo_instr *, n + 1), *b = c->first,
                     *tuple;
    int k = 0;
    for (const struct hlo_instr *a = m->entry->first; k < n; a = a->next) {
        if (!hlo_set_has(keep, a)) continue;
        if (a == frontier[k]) roots[k++] = b;
        b = b->next;
    }
    RETURN_IF_ERR(hlo_add_instr(c, HLO_TUPLE, NULL, roots, n, NULL, NULL, 0, &tuple));
    hlo_set_root(c, tuple);
    renumber(c);
    hlo_drop_donors(p); // weights are nobody's to give
    return ST_OK;
}
static status_t make_prepare(const struct hlo_module *m, struct hlo_instr *const *frontier, int n,
                             struct hlo_module **out) {
    uint64_t *keep = calloc(m->next_id / 64 + 1, sizeof *keep);
    if (!keep) return st_oom();
    find_prepared(m->entry, frontier, n, keep);
    struct hlo_module *p = hlo_module_clone_part(m, keep);
    p->name = arena_printf(p->arena, "%s.prepare", m->name);
    status_t st = finish_prepare(p, m, keep, frontier, n);
    free(keep);
    if (st)
        hlo_module_free(p);
    else
        *out = p;
    return st;
}

static void make_main(struct hlo_module *t, struct hlo_instr *const *old, int n) {
    struct hlo_computation *c = t->entry;
    size_t old_n = c->params.n;
    t->name = arena_printf(t->arena, "%s.main", t->name);
    for (int k = 0; k < n; k++) {
        struct hlo_instr *p = hlo_add_param(c, (int64_t)c->params.n, old[k]->shape,
                                            old[k]->op == HLO_PARAMETER ? old[k]->name : "bound");
        p->param_kind = PARAM_BOUND;
        p->param_index = k;
        p->op_name = old[k]->op_name;
        hlo_move_before(p, c->first);
        // Hoisted ones are dead then.
        hlo_replace_uses(old[k], p);
    }
    hlo_remove_dead(c);
    drop_weights(c);
    struct hlo_instr **before = arena_dup_array(t->arena, c->params.v, c->params.n);
    int64_t *numbers = arena_array(t->arena, int64_t, old_n + 1);
    renumber(c);
    for (size_t k = 0; k < old_n; k++)
        numbers[k] =
            before[k] && before[k]->param_kind == PARAM_INPUT ? before[k]->param_number : -1;
    hlo_renumber_donors(t, number_now, &(struct numbers){numbers, old_n});
}

status_t hoist_split(struct hlo_module *m, struct hlo_module **out_prepare) {
    struct pmap only = {0}, where = {0};
    struct arena a = {0};
    VEC(struct hlo_instr *) frontier = {0};
    *out_prepare = NULL;
    find_weight_only(m->entry, &only);
    find_frontier(m->entry, &only, &where);
    for (struct hlo_instr *i = m->entry->first; i; i = i->next)
        if (pmap_get_ptr(&where, i) == (void *)FRONTIER) avec_push(&a, &frontier, i);
    status_t st = make_prepare(m, frontier.v, (int)frontier.n, out_prepare);
    if (!st) make_main(m, frontier.v, (int)frontier.n);
    pmap_done(&only);
    pmap_done(&where);
    arena_done(&a);
    return st;
}
