// SPDX-License-Identifier: Apache-2.0
// What every module must satisfy between passes: lists and links agree, operands come first,
// parameters are numbered, callees stand before callers (so there is no recursion), and every shape
// is what its op's rule infers. Errors name computation and instruction.
#include "compiler/ir/text/text.h"

#include <stdlib.h>

#include "compiler/ir/op.h"
#include "compiler/ir/work.h"

static status_t bad(const struct hlo_instr *i, const char *why) {
    return st_invalid("computation '%s', instruction '%s' (%s): %s",
                      i->parent ? i->parent->name : "?", i->name, hlo_op_name(i->op), why);
}

// A bit an instruction: those that stand above, by id.
static bool is_placed(const uint64_t *placed, const struct hlo_instr *i) {
    return i->id < i->parent->module->next_id && hlo_set_has(placed, i);
}
// One user's part in a sum over users: where the sum over operand slots is the same, the two agree.
// Linear, where looking for each user's slot is not.
static uint64_t share(const struct hlo_instr *user) {
    uint64_t x = (user->id + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
}
// links: sums by id, of what was seen of the computation so far.
static status_t verify_links(const struct hlo_instr *i, const uint64_t *placed, uint64_t *links) {
    const struct hlo_op_info *info = hlo_op_info(i->op);
    if (info->arity >= 0 && i->n_operands != info->arity) return bad(i, "wrong number of operands");
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *x = i->operands[k];
        if (!x || x->parent != i->parent)
            return bad(i, "an operand belongs to another computation");
        if (!is_placed(placed, x)) return bad(i, "an operand comes after its user");
        links[x->id] -= share(i);
    }
    for (size_t k = 0; k < i->control_preds.n; k++)
        if (i->control_preds.v[k]->parent != i->parent || !is_placed(placed, i->control_preds.v[k]))
            return bad(i, "a control predecessor comes after it");
    for (size_t k = 0; k < i->users.n; k++) {
        const struct hlo_instr *u = i->users.v[k];
        if (u->parent != i->parent) return bad(i, "users and operands disagree");
        links[i->id] += share(u);
    }
    if (i->n_called && !(info->traits & HLO_T_REGION))
        return bad(i, "calls a computation but has no region");
    return ST_OK;
}

static status_t verify_users(const struct hlo_computation *c, const uint64_t *links) {
    for (const struct hlo_instr *i = c->first; i; i = i->next)
        if (links[i->id]) return bad(i, "users and operands disagree");
    return ST_OK;
}

static status_t verify_shape(struct arena *a, const struct hlo_instr *i) {
    const struct shape *s = NULL;
    RETURN_IF_ERR(st_note(hlo_op_info(i->op)->infer(a, i, &s),
                          "computation '%s', instruction '%s' (%s)", i->parent->name, i->name,
                          hlo_op_name(i->op)));
    if (!shape_compatible(s, i->shape))
        return st_invalid(
            "computation '%s', instruction '%s' (%s): shape is %s, its operands give %s",
            i->parent->name, i->name, hlo_op_name(i->op), shape_text(a, i->shape),
            shape_text(a, s));
    return st_note(shape_check(i->shape, i->parent->module->max_bytes), "instruction '%s'",
                   i->name);
}

// above: computations that stand above c, each with how many call it.
static status_t verify_calls(const struct hlo_instr *i, struct pmap *above) {
    for (int k = 0; k < i->n_called; k++) {
        if (!pmap_has_ptr(above, i->called[k]))
            return bad(i, "calls a computation that does not stand above");
        intptr_t calls = (intptr_t)pmap_get_ptr(above, i->called[k]) + 1;
        if (calls > i->called[k]->n_callers)
            return st_internal("computation '%s': %d calls counted, more are there",
                               i->called[k]->name, i->called[k]->n_callers);
        pmap_put_ptr(above, i->called[k], (void *)calls);
    }
    return ST_OK;
}

static status_t verify_computation(struct arena *a, const struct hlo_computation *c,
                                   struct pmap *above, uint64_t *placed, uint64_t *links) {
    status_t st = ST_OK;
    int n = 0;

    for (const struct hlo_instr *i = c->first; i && !st; i = i->next, n++) {
        st = i->parent != c ? bad(i, "parent is wrong") : ST_OK;
        if (!st && (i->id >= c->module->next_id || is_placed(placed, i)))
            st = bad(i, "its id is not its own");
        if (!st) st = verify_links(i, placed, links);
        if (!st) st = verify_calls(i, above);
        if (!st && i->op == HLO_PARAMETER &&
            ((size_t)i->param_number >= c->params.n || c->params.v[i->param_number] != i))
            st = bad(i, "parameter numbering is wrong");
        if (!st && i->op == HLO_CONSTANT &&
            (!i->literal || !shape_compatible(i->literal->shape, i->shape)))
            st = bad(i, "literal and shape differ");
        if (!st) st = verify_shape(a, i);
        if (!st) hlo_set_put(placed, i);
        arena_reset(a);
    }

    if (!st && n != c->n_instrs)
        st = st_internal("computation '%s': %d instructions listed, %d counted", c->name, n,
                         c->n_instrs);
    if (!st && (!c->root || c->root->parent != c || !is_placed(placed, c->root)))
        st = st_invalid("computation '%s' has no root", c->name);
    for (size_t k = 0; !st && k < c->params.n; k++)
        if (!c->params.v[k] || c->params.v[k]->parent != c || !is_placed(placed, c->params.v[k]))
            st = st_invalid("computation '%s' has no parameter %zu", c->name, k);
    return st ? st : verify_users(c, links);
}

static status_t verify_names(const struct hlo_module *m) {
    struct smap seen = {.borrows = true};
    status_t st = ST_OK;
    HLO_EACH_COMPUTATION(c, m) {
        for (const struct hlo_instr *i = c->first; i && !st; i = i->next) {
            if (smap_has(&seen, str_of(i->name))) st = bad(i, "its name is there twice");
            smap_put(&seen, str_of(i->name), NULL);
        }
        if (st) break;
    }
    smap_done(&seen);
    return st;
}

static bool unbounded(const struct shape *s) {
    for (int k = 0; k < s->n_elems; k++)
        if (unbounded(s->elems[k])) return true;
    return s->unbounded != 0;
}
status_t hlo_complete(const struct hlo_module *m) {
    HLO_EACH_COMPUTATION(c, m) {
        for (const struct hlo_instr *i = c->first; i; i = i->next) {
            if (unbounded(i->shape))
                return bad(i, "a dimension has no bound: write f32[<=8] in place of f32[?]");
            const char *missing = i->literal ? lit_missing(i->literal) : NULL;
            if (missing) return bad(i, missing);
        }
    }
    return ST_OK;
}

// Whoever follows calls follows each, so that calls of calls multiply: a bound that what reducers
// and layers share is far from.
static status_t verify_size(const struct hlo_module *m) {
    int64_t most = 64 * hlo_total(m) + (1 << 18);
    if (hlo_nesting(m, false) > HLO_MOST_NESTED)
        return st_exhausted("module '%s': loops, branches and other regions nest deeper than %d",
                            m->name, HLO_MOST_NESTED);
    if (hlo_expanded(m, false) <= most) return ST_OK;
    return st_exhausted("module '%s': with what they call, each call for itself, its computations "
                        "have more than %lld instructions",
                        m->name, (long long)most);
}

status_t hlo_verify(const struct hlo_module *m) {
    struct pmap above = {0};
    struct arena a = {0};
    uint64_t *placed = calloc(m->next_id / 64 + 1, sizeof *placed),
             *links = calloc(m->next_id + 1, sizeof *links);
    status_t st = !placed || !links ? st_oom()
                  : m->entry        ? ST_OK
                                    : st_invalid("the module has no entry computation");
    for (const struct hlo_computation *c = m->first; c && !st; c = c->next) {
        st = verify_computation(&a, c, &above, placed, links);
        pmap_put_ptr(&above, c, NULL);
    }
    if (!st && !pmap_has_ptr(&above, m->entry))
        st = st_invalid("the entry computation is not in the module");
    pmap_done(&above);
    arena_done(&a);
    free(placed);
    free(links);
    if (!st) st = verify_size(m);
    return st ? st : verify_names(m);
}
