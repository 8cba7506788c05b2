// SPDX-License-Identifier: Apache-2.0
// Evaluation of control flow and of asynchronous pairs, which run at once.
#include "compiler/ops/eval_rules.h"

EVAL(CALL) {
    return hlo_eval_computation(ev, i->called[0], in, i->n_operands, out);
}
EVAL(FUSION) {
    return hlo_eval_computation(ev, i->called[0], in, i->n_operands, out);
}
EVAL(CONDITIONAL) {
    int64_t k = lit_get_i64(in[0], 0);
    if (in[0]->shape->dtype == DT_PRED)
        k = k ? 0 : 1;
    else if (k < 0 || k >= i->n_called)
        k = i->n_called - 1; // out of range takes the last branch
    return hlo_eval_computation(ev, i->called[k], &in[k + 1], 1, out);
}
// Iterations alternate between two arenas, so that a long loop keeps only two states.
EVAL(WHILE) {
    struct arena two[2] = {{0}, {0}}, *home = ev->arena;
    struct literal *state = in[0], *go;
    int64_t used = ev->used_bytes;
    status_t st = ST_OK;
    for (int turn = 0;; turn ^= 1) {
        arena_reset(&two[turn]);
        ev->arena = &two[turn];
        ev->used_bytes = used;
        st = hlo_eval_computation(ev, i->called[0], &state, 1, &go);
        if (st || !lit_get_i64(go, 0)) break;
        st = hlo_eval_computation(ev, i->called[1], &state, 1, &state);
        if (st) break;
        state = lit_clone(&two[turn], state);
    }
    ev->arena = home;
    if (!st) *out = lit_clone(home, state);
    arena_done(&two[0]);
    arena_done(&two[1]);
    return st;
}

// async-start's result is ((operands...), result, contexts...); done takes the result out.
EVAL(ASYNC_START) {
    struct literal *r, *value;
    if (i->n_called != 1 || !shape_is_tuple(i->shape) || i->shape->n_elems < 2 ||
        shape_leaves(i->shape->elems[0]) < i->n_operands || !shape_is_tuple(i->shape->elems[0]) ||
        !shape_compatible(i->shape->elems[1], i->called[0]->root->shape))
        return st_invalid("instruction '%s': async-start gives %s", i->name,
                          shape_text(ev->arena, i->shape));
    RETURN_IF_ERR(hlo_eval_computation(ev, i->called[0], in, i->n_operands, &value));
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    r->elems[1] = value;
    *out = r;
    return ST_OK;
}
EVAL(ASYNC_UPDATE) {
    *out = in[0];
    return ST_OK;
}
EVAL(ASYNC_DONE) {
    if (!shape_is_tuple(in[0]->shape) || in[0]->shape->n_elems < 2 ||
        !shape_compatible(in[0]->shape->elems[1], i->shape))
        return st_invalid("instruction '%s': async-done of %s", i->name,
                          shape_text(ev->arena, in[0]->shape));
    *out = in[0]->elems[1];
    return ST_OK;
}
