// SPDX-License-Identifier: Apache-2.0
#include "compiler/frontend/hlo/hlo_params.h"

#include "base/vec.h"

struct split {
    struct hlo_module *m;
    int64_t looks;                    // at arrays on the way to what is donated: how many more
    VEC(struct hlo_instr *) arrays;   // the parameters to be, by number
    VEC(const struct shape *) border; // hlo_entry_shape of each, then of the result
    struct smap named;                // instructions by name, without the entry's parameters
    struct pmap gone;                 // tuple parameters, for control predecessors
    VEC(const struct shape *) old;    // shapes of the parameters that were
    VEC(int64_t) first;               // number of the first array of each of these
};

// Puts the arrays of a value of shape s, as the border has it, before `at`; gives the value.
static status_t add_arrays(struct split *w, const struct shape *s, const struct shape *border,
                           const char *name, struct hlo_instr *at, struct hlo_instr **out) {
    struct hlo_computation *e = w->m->entry;
    if (!shape_is_tuple(s)) {
        struct hlo_instr *other = smap_get(&w->named, str_of(name)); // its name is nobody's matter
        if (other) hlo_set_name(other, arena_printf(w->m->arena, "%s.inner", name));
        *out = hlo_add_param(e, (int64_t)e->params.n, s, name);
        hlo_move_before(*out, at);
        vec_push(&w->arrays, *out);
        vec_push(&w->border, border);
        return ST_OK;
    }

    struct hlo_instr **parts = arena_array(w->m->arena, struct hlo_instr *, s->n_elems + 1);
    for (int k = 0; k < s->n_elems; k++)
        RETURN_IF_ERR(add_arrays(w, s->elems[k], border->elems[k],
                                 arena_printf(w->m->arena, "%s.%d", name, k), at, &parts[k]));
    RETURN_IF_ERR(hlo_add_instr(e, HLO_TUPLE, NULL, parts, s->n_elems, NULL, NULL, 0, out));
    hlo_move_before(*out, at);
    return ST_OK;
}

static status_t split_params(struct split *w) {
    struct hlo_computation *e = w->m->entry;
    size_t n = e->params.n;
    for (size_t k = 0; k < n; k++) {
        struct hlo_instr *p = e->params.v[k], *value;
        const struct shape *border = hlo_entry_shape(w->m, (int)k);
        vec_push(&w->old, p->shape);
        vec_push(&w->first, (int64_t)w->arrays.n);
        if (!shape_is_tuple(p->shape)) {
            vec_push(&w->arrays, p);
            vec_push(&w->border, border);
            continue;
        }
        RETURN_IF_ERR(add_arrays(w, p->shape, border, p->name, p, &value));
        hlo_replace_uses(p, value);
        pmap_put_ptr(&w->gone, p, NULL);
    }

    vec_push(&w->border, hlo_entry_shape(w->m, (int)n));
    hlo_replace_control_preds(e, &w->gone);
    for (size_t k = 0; k < n; k++)
        if (pmap_has_ptr(&w->gone, e->params.v[k])) hlo_remove_instr(e->params.v[k]);
    e->params.n = 0;
    for (size_t k = 0; k < w->arrays.n; k++) {
        w->arrays.v[k]->param_number = (int64_t)k;
        avec_push(w->m->arena, &e->params, w->arrays.v[k]);
    }
    return ST_OK;
}

// The number of the array at *path ("1,0") of what was parameter `number`: all of it is lent. -1 =
// there is none, as of a whole tuple, or more than can be looked for.
static int64_t array_at(void *ctx, int64_t number, struct str *of) {
    struct split *w = ctx;
    if (number < 0 || (size_t)number >= w->old.n) return -1;
    const struct shape *s = w->old.v[number];
    int64_t at = w->first.v[number], k;
    struct str path = str_trim(*of), part;
    of->n = 0;
    while (path.n) {
        str_cut(&path, ',', &part);
        if (!str_to_i64(str_trim(part), &k) || !shape_is_tuple(s) || k < 0 || k >= s->n_elems)
            return -1;
        for (int64_t j = 0; j < k; j++) {
            int n = shape_leaves(s->elems[j]);
            w->looks -= n + 1;
            if (w->looks < 0) return -1;
            at += n;
        }
        s = s->elems[k];
    }
    return shape_is_tuple(s) ? -1 : at;
}

status_t hlo_split_tuple_params(struct hlo_module *m) {
    struct split w = {.m = m, .looks = INT64_C(1) << 24};
    bool any = false;
    for (size_t k = 0; k < m->entry->params.n; k++)
        any |= shape_is_tuple(m->entry->params.v[k]->shape);
    if (!any) return ST_OK;

    HLO_EACH_COMPUTATION(c, m)
    for (struct hlo_instr *i = c->first; i; i = i->next)
        if (c != m->entry || i->op != HLO_PARAMETER) smap_put(&w.named, str_of(i->name), i);
    status_t st = split_params(&w);
    if (!st) {
        hlo_renumber_donors(m, array_at, &w);
        if (m->entry_layout) m->entry_layout = shape_tuple(m->arena, w.border.v, (int)w.border.n);
    }
    vec_done(&w.arrays);
    vec_done(&w.border);
    vec_done(&w.old);
    vec_done(&w.first);
    smap_done(&w.named);
    pmap_done(&w.gone);
    return st;
}
