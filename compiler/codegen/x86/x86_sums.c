// SPDX-License-Identifier: Apache-2.0
// Sums of contractions (compiler/kernel/lower_tile.c, ops/lower/small_dot_lower.c): values of
// several lanes, which are whole registers here. What the loops over terms need to run at the speed
// of their products: a sum stays in one register from the beginning of its outermost loop to its
// end, whatever turns and terms written out lie between; a product is part of its sum; a value that
// is splat fills its register anyway; and a distance that is known is part of the instruction that
// reads there. The registers that operations elsewhere have for themselves hold values too in loops
// of nothing but such sums ("plain"), and TMP0 in those within where all sums are floats ("bare"):
// tiles are as large as there are registers.
#include "compiler/codegen/x86/x86_plan.h"

enum { FAR_PLACE = 1 << 24 };

const char *x86_sums_refuse(const struct x86_plan *p, const struct kir_val *v) {
    static const char no[] = "a contraction in tiles";
    enum dtype t = v->op == K_STORE ? v->elem : v->type;
    bool type = t == DT_F32 || t == DT_F64 || t == DT_S32 || t == DT_U32;
    int bytes = dtype_size(t) * v->lanes;
    if (!type || bytes < 8 || bytes > (p->vex ? 32 : 64) || (bytes & (bytes - 1))) return no;
    switch (v->op) {
    case K_LOAD:
    case K_STORE:
        return v->imm_i >= KIR_SCRATCH && v->elem == t ? NULL : no;
    case K_SPLAT:
    case K_ADD:
    case K_MUL:
    case K_ZIP:
        return NULL;
    default:
        return no;
    }
}

// ---- distances

int64_t x86_distance(const struct kir_val *at, const struct kir_val **index) {
    int64_t c = 0;
    *index = at;
    if (at->op != K_ADD || !x86_of(at)->fused) return 0;
    for (int k = 0; k < 2; k++)
        if (kir_is_const(at->args[k], &c)) {
            *index = at->args[1 - k];
            return c;
        }
    return 0;
}
static void count_places(const struct kir_block *b) {
    for (const struct kir_val *v = b->first; v; v = v->next) {
        bool reads = v->op == K_LOAD || v->op == K_STORE || v->op == K_TABLE;
        if (v->op == K_FOR) count_places(&v->loop->body);
        if (reads && x86_of(v->args[0])->shape == SHAPE_SAME) x86_of(v->args[0])->places++;
    }
}
static void join_distances(const struct kir_block *b) {
    for (const struct kir_val *v = b->first; v; v = v->next) {
        struct x86_val *x = x86_of(v);
        int64_t c;
        if (v->op == K_FOR) join_distances(&v->loop->body);
        if (v->op != K_ADD || v->type != DT_S64 || x->places != x->uses || !x->places) continue;
        int k = v->args[0]->op == K_CONST ? 0 : 1;
        if (!kir_is_const(v->args[k], &c) || v->args[1 - k]->op == K_CONST) continue;
        x->fused = -FAR_PLACE < c && c < FAR_PLACE;
    }
}

// ---- what is summed in place

// The value that v, one of a chain of sums in the loop l, adds to; NULL: none. Each has no reader
// but the next.
static struct kir_val *before(const struct kir_val *v) {
    struct kir_val *found = NULL;
    if (v->op == K_RESULT) return v->loop->init[v->imm_i];
    if (v->op != K_ADD) return NULL;
    for (int k = 0; k < 2; k++) {
        struct kir_val *x = v->args[k];
        if (x->op != K_ADD && x->op != K_RESULT && x->op != K_CARRY) continue;
        if (found) return NULL;
        found = x;
    }
    return found;
}
static bool is_chain(const struct kir_loop *l, int c) {
    const struct kir_val *v = l->yield[c];
    for (; v != l->carry[c]; v = before(v)) {
        if (!v || !v->lanes || x86_of(v)->uses != 1) return false;
        bool inner = v->op == K_RESULT && v->loop != l;
        if (inner ? !is_chain(v->loop, (int)v->imm_i) : v->op != K_ADD || v->block != &l->body)
            return false;
    }
    return x86_of(v)->uses == 1;
}
static void take_chain(const struct kir_loop *l, int c, const struct kir_val *owner) {
    struct kir_val *v = l->yield[c];
    for (; v != l->carry[c]; v = before(v)) {
        x86_of(v)->sum = owner;
        if (v->op == K_RESULT) take_chain(v->loop, (int)v->imm_i, owner);
    }
    x86_of(v)->sum = owner;
}
static void note_splat(const struct kir_val *v) {
    struct x86_val *x = x86_of(v->args[0]);
    int bytes = v->lanes * dtype_size(v->type);
    x86_of(v)->fused = true;
    x->places++;
    if (bytes > x->splat) x->splat = bytes;
}
// Is memory as it was from `load` to `sum`, of one block?
static bool is_quiet(const struct kir_val *load, const struct kir_val *sum) {
    for (const struct kir_val *v = load; v; v = v->next) {
        if (v == sum) return true;
        if (v->op == K_STORE || v->op == K_FOR) return false;
    }
    return false;
}
// A value that one product alone reads is read from memory by it, into all lanes.
static void join_load(const struct kir_val *sum) {
    for (int k = 0; k < 2; k++) {
        const struct kir_val *m = sum->args[k];
        for (int n = 0; n < 2 && m->op == K_MUL && x86_of(m)->fused; n++) {
            const struct kir_val *s = m->args[n], *load = s->args[0];
            if (s->op != K_SPLAT || load->op != K_LOAD || load->elem != load->type ||
                x86_of(s)->uses != 1 || x86_of(load)->uses != 1 || !is_quiet(load, sum))
                continue;
            x86_of(load)->fused = true;
            return;
        }
    }
}
static void find_chains(const struct x86_plan *p, const struct kir_block *b) {
    for (const struct kir_val *v = b->first; v; v = v->next) {
        if (v->op == K_SPLAT) note_splat(v);
        const struct kir_val *z = v->lanes && v->op == K_ADD ? before(v) : NULL;
        if (z && z->op == K_ADD && z->block == b && x86_of(z)->uses == 1 && !x86_of(v)->sum)
            x86_of(v)->sum = x86_of(z)->sum ? x86_of(z)->sum : z;
        if (!p->vex && v->lanes && v->op == K_ADD) join_load(v);
        if (v->op != K_FOR) continue;
        const struct kir_loop *l = v->loop;
        for (int c = 0; c < l->n_carry; c++)
            if (l->carry[c]->lanes && !x86_of(l->carry[c])->sum && is_chain(l, c))
                take_chain(l, c, l->carry[c]);
        find_chains(p, &l->body);
    }
}

// ---- plain loops: what is in them needs no register but those of its values and TMP0

static bool is_plain(const struct kir_val *v) {
    enum x86_class class = v->op == K_STORE ? CLASS_V : x86_class(v);
    int bits = dtype_bits(v->op == K_STORE ? v->elem : v->type);
    switch (v->op) {
    case K_CONST:
    case K_SPLAT:
        return true;
    case K_LOAD:
        return v->elem != DT_PRED;
    case K_STORE:
        return v->lanes;
    case K_ADD:
    case K_SUB:
    case K_MUL:
        return !x86_of(v)->spread && (class == CLASS_G || bits == 32 || v->type == DT_F64);
    case K_MIN:
    case K_MAX:
    case K_DIVMOD:
        return !x86_of(v)->spread && class == CLASS_G;
    case K_CAST:
        return x86_casts_freely(v);
    default:
        return false;
    }
}
// Needs it not even TMP0? Sums of float products, all of them in registers.
static bool is_bare(const struct kir_val *v) {
    bool is_float = dtype_is_float(v->type);
    switch (v->op) {
    case K_CONST:
    case K_SPLAT:
    case K_LOAD:
    case K_CAST:
        return true;
    case K_MUL:
        return v->lanes ? is_float && x86_of(v)->fused : x86_class(v) == CLASS_G;
    case K_ADD:
        return v->lanes ? is_float && x86_of(v)->sum : x86_class(v) == CLASS_G;
    default:
        return v->op != K_STORE && v->op != K_FOR && x86_class(v) == CLASS_G;
    }
}
static bool bare_loop(const struct kir_loop *l) {
    for (int c = 0; c < l->n_carry; c++)
        if (!x86_of(l->carry[c])->sum) return false;
    for (const struct kir_val *v = l->body.first; v; v = v->next)
        if (v->op == K_FOR ? !bare_loop(v->loop) : !is_bare(v)) return false;
    return true;
}
static void find_bare(const struct kir_block *b) { // in a plain loop
    for (const struct kir_val *v = b->first; v; v = v->next) {
        if (v->op != K_FOR) continue;
        x86_of(v)->loop->bare = bare_loop(v->loop);
        find_bare(&v->loop->body);
    }
}
static bool plain_loop(const struct kir_val *loop, bool *sums) {
    const struct kir_loop *l = loop->loop;
    if (l->vectorize || x86_of(loop)->loop->window || x86_of(l->var)->spread) return false;
    for (int c = 0; c < l->n_carry; c++)
        if (!l->carry[c]->lanes) return false;
    *sums |= l->n_carry > 0;
    for (const struct kir_val *v = l->body.first; v; v = v->next)
        if (v->op == K_FOR ? !plain_loop(v, sums) : !is_plain(v)) return false;
    return true;
}
static void find_plain(struct x86_plan *p, const struct kir_block *b) {
    for (const struct kir_val *v = b->first; v; v = v->next) {
        bool sums = false;
        if (v->op != K_FOR) continue;
        struct x86_loop *x = x86_of(v)->loop;
        x->plain = plain_loop(v, &sums) && sums;
        for (int c = 0; c < v->loop->n_carry && !x->plain; c++)
            if (p->vex && v->loop->carry[c]->lanes) p->why = "a contraction in tiles";
        if (x->plain)
            find_bare(&v->loop->body);
        else
            find_plain(p, &v->loop->body);
    }
}

void x86_sums_plan(struct x86_plan *p) {
    p->has_lanes = true;
    count_places(&p->f->top);
    join_distances(&p->f->top);
    find_chains(p, &p->f->top);
    find_plain(p, &p->f->top);
}
