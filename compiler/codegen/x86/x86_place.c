// SPDX-License-Identifier: Apache-2.0
// Where values live: an interval of positions each, from where it is made to its last use, over the
// whole of a loop that uses it again and again; then a linear scan (Poletto and Sarkar 1999) of
// each class. What does not fit stays in memory: the cheapest, by uses and depth of loops.
#include <math.h>
#include <stdlib.h>

#include "compiler/codegen/x86/x86_plan.h"

enum { MAX_DEPTH = KIR_MAX_LEVEL + 2, MAX_FRAME = 32768, MAX_HOMES = 60000, MAX_REGISTERS = 40 };
static const int8_t registers[CLASSES][32] = {
    [CLASS_G] = {RSI, RDI, R8, R9, R10, R11, RBX, R12, R13, R14, R15, -1},
    [CLASS_V] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14,
                 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, -1},
    [CLASS_K] = {2, 3, 4, 5, 6, -1}};
// With AVX2, of masks too: 11 is MASK_TMP, the others are TMP0 to TMP3.
static const int8_t vex_registers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -1};
// In plain loops nothing uses these (TMP1 to TMP3, and MASK_TMP of AVX2), if all else that such a
// loop has is in registers.
static const int8_t plain_registers[] = {29, 30, 31, 27}, bare_register = 28;

struct walk {
    struct x86_plan *p;
    int32_t at;
    struct x86_loop *open[MAX_DEPTH];
    int depth;
    float weight[MAX_DEPTH];
    bool plain, bare; // within such loops
    int copy;         // of turns side by side: x86_beside.c
};

static void note_inside(struct walk *w, struct x86_home *h) {
    if (w->plain && h->class != CLASS_G) avec_push(w->p->a, &w->p->inside, h);
}
static struct x86_home *home(struct walk *w, enum x86_class class) {
    struct x86_home *h = arena_new_of(w->p->a, struct x86_home);
    h->plain = w->plain;
    h->bare = w->bare && class != CLASS_G;
    h->first = h->last = w->at;
    h->slot = -1;
    h->reg = -1;
    h->class = (uint8_t)class;
    avec_push(w->p->a, &w->p->homes, h);
    note_inside(w, h);
    return h;
}
static void read_home(struct walk *w, struct x86_home *h) {
    if (!h) return;
    if (!h->plain) note_inside(w, h);
    if (h->last < w->at) h->last = w->at;
    h->weight += w->weight[w->depth];
    if (h->class == CLASS_G) avec_push(w->p->a, &h->reads, w->at);
    for (int d = 1; d <= w->depth; d++)
        if (w->open[d]->start > h->first || h->constant) { // from outside of this loop
            avec_push(w->p->a, &w->open[d]->outer, h);
            return;
        }
}
static struct x86_home **buffer(struct x86_plan *p, int64_t buf) {
    return buf == KIR_SCRATCH ? &p->scratch : &p->bufs[buf];
}
static void read_buffer(struct walk *w, int64_t buf) {
    struct x86_home **h = buffer(w->p, buf);
    if (!*h) {
        *h = home(w, CLASS_G);
        (*h)->first = 0;
        (*h)->constant = false;
    }
    read_home(w, *h);
}
// v is read; lanes: as a vector.
static void read_value(struct walk *w, struct kir_val *v, bool lanes) {
    struct x86_val *x = x86_of(v);
    if (v->op == K_CONST) {
        if (x86_is_index(v->type) || v->type == DT_PRED) return;
        if (!x->home) {
            x->home = home(w, CLASS_V);
            x->home->first = 0;
            x->home->constant = true;
            x->home->plain = x->home->bare = false;
        }
        read_home(w, x->home);
        return;
    }
    if (x->fused) {
        for (int k = 0; k < v->n_args; k++)
            read_value(w, v->args[k], true);
        if (v->op == K_LOAD) read_buffer(w, v->imm_i);
        return;
    }
    if (w->copy && x->beside && (lanes || x86_class(v) != CLASS_G)) {
        read_home(w, x->beside[w->copy - 1]);
        return;
    }
    read_home(w, lanes && x->lanes ? x->lanes : x->home);
    if (lanes && x->lanes && x86_of(v)->shape == SHAPE_SAME) read_home(w, x->home);
}
static void make(struct walk *w, struct kir_val *v) {
    struct x86_val *x = x86_of(v);
    if (w->copy) {
        x->beside[w->copy - 1] = home(w, x86_class(v) == CLASS_G ? CLASS_V : x86_class(v));
        return;
    }
    x->home = x->sum ? x86_of(x->sum)->home : NULL;
    if (!x->home) x->home = home(w, x86_class(v));
    x->home->kept |= x->sum && x->home->plain;
    x->home->by_tmp0 |= x->sum && !x->home->plain;
    if (x->spread && x86_class(v) == CLASS_G) x->lanes = home(w, CLASS_V);
}

// The result lies where the carried value was, if it is of the same kind. Accumulators stay until
// all results are made.
static void loop_results(struct walk *w, struct x86_loop *x) {
    struct kir_loop *l = x->l;
    w->at++;
    for (int c = 0; c < l->n_carry; c++) {
        struct kir_val *r = l->result[c];
        x86_of(l->carry[c])->home->last = w->at + 1;
        for (int k = 1; k < x->copies; k++)
            x->more[c][k]->last = w->at + 1;
        if (x86_class(r) != x86_class(l->carry[c]))
            make(w, r);
        else {
            x86_of(r)->home = x86_of(l->carry[c])->home;
            if (x86_of(r)->spread && x86_class(r) == CLASS_G) x86_of(r)->lanes = home(w, CLASS_V);
        }
        w->at++;
        read_value(w, l->init[c], true); // sums begin with it when they are done
        w->at--;
    }
    w->at += 2;
}

// v in the turns beside the first.
static void make_beside(struct walk *w, const struct x86_loop *x, struct kir_val *v) {
    if (!x->beside || !x86_beside_each(v)) return;
    x86_of(v)->beside = arena_zarray(w->p->a, struct x86_home *, MAX_COPIES);
    for (w->copy = 1; w->copy < x->copies; w->copy++)
        make(w, v);
    w->copy = 0;
}
static void walk_block(struct walk *w, struct kir_block *b);
static void walk_loop(struct walk *w, struct x86_loop *x) {
    struct kir_loop *l = x->l;
    x->start = w->at;
    avec_push(w->p->a, &w->p->loops, x);
    // What a loop begins with is read while its own values are there already.
    w->at++;
    read_value(w, l->begin, false);
    read_value(w, l->end, false);
    for (int c = 0; c < l->n_carry; c++) {
        read_value(w, l->init[c], false);
        read_value(w, l->init[c], true);
    }
    w->at--;
    if (w->depth + 1 >= MAX_DEPTH) {
        w->p->why = "loops too deep";
        return;
    }

    x->more =
        x->copies > 1 ? arena_zalloc(w->p->a, sizeof *x->more * (size_t)l->n_carry + 1) : NULL;
    make(w, l->var);
    make_beside(w, x, l->var);
    for (int c = 0; c < l->n_carry; c++) {
        make(w, l->carry[c]);
        for (int k = 1; k < x->copies; k++)
            x->more[c][k] = home(w, x86_class(l->carry[c]));
    }
    w->at += 2;

    float weight = w->weight[w->depth];
    bool plain = w->plain, bare = w->bare;
    w->plain |= x->plain;
    w->bare |= x->bare;
    w->open[++w->depth] = x;
    w->weight[w->depth] = weight < 1e6f ? weight * 8 : weight;
    read_home(w, x86_of(l->var)->home);
    read_value(w, l->end, false);
    if (x->window) read_value(w, l->begin, false);
    walk_block(w, &l->body);
    for (int c = 0; c < l->n_carry; c++) {
        for (w->copy = 0; w->copy < (x->beside ? x->copies : 1); w->copy++) {
            read_value(w, l->yield[c], false);
            read_value(w, l->yield[c], true);
        }
        w->copy = 0;
        read_home(w, x86_of(l->carry[c])->home);
        for (int k = 1; k < x->copies; k++)
            read_home(w, x->more[c][k]);
    }
    read_home(w, x86_of(l->var)->home);
    w->depth--;
    w->plain = plain;
    w->bare = bare;

    x->end = w->at;
    for (size_t k = 0; k < x->outer.n; k++)
        if (x->outer.v[k]->last < x->end) x->outer.v[k]->last = x->end;
    loop_results(w, x);
}
static void walk_value(struct walk *w, struct kir_val *v);
// In the order in which it is written: the condition, one arm with what it alone reads, the other.
static void walk_lazy(struct walk *w, struct kir_val *v) {
    read_value(w, v->args[0], false);
    w->at += 2;
    for (int arm = 1; arm < 3; arm++) {
        for (struct kir_val *a = v->block->first; a != v; a = a->next)
            if (x86_of(a)->owner == v && x86_of(a)->arm == arm) walk_value(w, a);
        read_value(w, v->args[arm], false);
        read_value(w, v->args[arm], true);
        w->at += 2;
    }
    make(w, v);
    w->at += 2;
}
static void walk_rare(struct walk *w, const struct kir_val *first) {
    read_value(w, first->args[0], false);
    w->at += 2;
    for (struct kir_val *a = first->block->first; a != first; a = a->next)
        if (x86_of(a)->owner == first->args[0]) walk_value(w, a);
    w->at += 2;
}
static void read_operands(struct walk *w, struct kir_val *v) {
    struct kir_val *const *args = x86_of(v)->power[0] ? x86_of(v)->power : v->args;
    for (int k = 0; k < v->n_args; k++) {
        read_value(w, args[k], false);
        read_value(w, args[k], true);
    }
    if (v->op == K_LOAD || v->op == K_STORE) read_buffer(w, v->imm_i);
}
static void walk_value(struct walk *w, struct kir_val *v) {
    struct x86_val *x = x86_of(v);
    if (x->opens) walk_rare(w, v);
    if (x->lazy) {
        walk_lazy(w, v);
        return;
    }
    if (v->op == K_FOR) {
        walk_loop(w, x->loop);
        return;
    }
    if (v->op == K_CONST || x->fused) return;

    if (v->op == K_STORE && x86_grouped(v)) {
        for (int k = 0; x->group->last == v && k < x->group->n; k++) {
            read_value(w, x->group->store[k]->args[0], false);
            read_value(w, x->group->store[k]->args[1], true);
            read_buffer(w, v->imm_i);
        }
        w->at += 2;
        return;
    }
    const struct x86_loop *l = w->open[w->depth];
    int copies = w->depth && l->beside && x86_beside_each(v) ? l->copies : 1;
    if (copies > 1) x->beside = arena_zarray(w->p->a, struct x86_home *, MAX_COPIES);
    for (w->copy = 0; w->copy < copies; w->copy++) {
        read_operands(w, v);
        if (v->op != K_STORE) make(w, v);
        w->at += 2;
    }
    w->copy = 0;
}
static void walk_block(struct walk *w, struct kir_block *b) {
    for (struct kir_val *v = b->first; v && !w->p->why; v = v->next)
        if (!x86_of(v)->owner) walk_value(w, v);
}

static int by_first(const void *a, const void *b) {
    const struct x86_home *x = *(struct x86_home *const *)a, *y = *(struct x86_home *const *)b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->last < y->last ? -1 : x->last > y->last;
}
// What it costs to leave it in memory, for each position that its register would be taken: what is
// read at once goes before what waits, which keeps a register from many. A constant read from the
// pool costs little more than one in a register.
static float cost(const struct x86_home *h) {
    float weight = h->constant ? h->weight / 16 : h->weight;
    if (h->kept) return INFINITY;
    return weight / (float)(h->last - h->first + 2);
}
// The class whose registers it takes.
static enum x86_class kept_in(const struct x86_plan *p, const struct x86_home *h) {
    return p->vex && h->class == CLASS_K ? CLASS_V : (enum x86_class)h->class;
}
// A slot of the frame: a vector's may have been another's that was read for the last time before
// this one was made. Of a few slots, so that a long kernel is not searched for each of its values.
static void give_slot(struct x86_plan *p, struct x86_home *h) {
    enum { TRIED = 64 };
    if (h->constant || h->slot >= 0) return;
    bool vector = kept_in(p, h) == CLASS_V;
    int size = vector ? p->vex ? 32 : 64 : 8;
    for (size_t k = 0; vector && k < p->slots.n && k < TRIED; k++) {
        struct x86_slot *t = &p->slots.v[p->next_slot++ % p->slots.n];
        if (t->last >= h->first) continue;
        t->last = h->last;
        h->slot = t->at;
        return;
    }
    p->frame = (p->frame + size - 1) / size * size;
    h->slot = p->frame;
    p->frame += size;
    if (vector) avec_push(p->a, &p->slots, ((struct x86_slot){h->slot, h->last}));
}
// Registers of a class: those that all may have, *n; then those of plain loops, which are counted
// too; then, of vectors, that of bare ones.
static int registers_of(const struct x86_plan *p, enum x86_class class, int8_t *regs, int *n) {
    const int8_t *from = p->vex && class == CLASS_V ? vex_registers : registers[class];
    int all = 0;
    while (from[all] >= 0) {
        regs[all] = from[all];
        all++;
    }
    *n = all;
    if (class != CLASS_V) return all;
    for (int k = 0; k < 3 + p->vex; k++)
        regs[all++] = plain_registers[k];
    regs[all] = bare_register;
    return all;
}
static void scan(struct x86_plan *p, enum x86_class class) {
    struct x86_home *in[MAX_REGISTERS] = {NULL};
    int8_t regs[MAX_REGISTERS];
    int usual, all = registers_of(p, class, regs, &usual);
    for (size_t i = 0; i < p->homes.n; i++) {
        struct x86_home *h = p->homes.v[i];
        int found = -1, cheapest = -1;
        if (kept_in(p, h) != class) continue;
        for (int r = 0; r < (h->plain ? all + h->bare : usual); r++) {
            // Made where the other is read for the last time: that may share its register.
            if (in[r] && in[r]->last <= h->first && !(in[r]->last == in[r]->first)) in[r] = NULL;
            if (in[r] && in[r]->last < h->first) in[r] = NULL;
            if (!in[r] && found < 0) found = r;
            if (in[r] && (cheapest < 0 || cost(in[r]) < cost(in[cheapest]))) cheapest = r;
        }
        if (found < 0 && cheapest >= 0 && cost(in[cheapest]) < cost(h)) {
            found = cheapest;
            in[found]->reg = -1;
            give_slot(p, in[found]);
        }
        if (found < 0) {
            give_slot(p, h);
            continue;
        }
        in[found] = h;
        h->reg = regs[found];
        if (class == CLASS_G) p->saved |= 1u << regs[found];
    }
}
// What plain loops have is in registers, or they would use those that their values have.
static void check_plain(struct x86_plan *p) {
    for (size_t k = 0; k < p->inside.n; k++) {
        const struct x86_home *h = p->inside.v[k];
        if (h->reg < 0 && !h->constant && !h->by_tmp0) p->why = "more sums than registers";
    }
}

bool x86_place(struct x86_plan *p) {
    struct walk w = {.p = p, .at = 2, .weight = {1}};
    x86_beside_plan(p, &p->f->top);
    p->bufs = arena_zarray(p->a, struct x86_home *, p->f->n_bufs + 1);
    w.at = 0;
    x86_of(p->f->begin)->home = p->begin = home(&w, CLASS_G);
    x86_of(p->f->end)->home = p->end = home(&w, CLASS_G);
    w.at = 2;
    walk_block(&w, (struct kir_block *)&p->f->top);
    if (!p->why && p->homes.n > MAX_HOMES) p->why = "too many values";
    if (p->why) return false;
    if (p->homes.n) qsort(p->homes.v, p->homes.n, sizeof p->homes.v[0], by_first);
    for (int c = 0; c < CLASSES; c++)
        scan(p, (enum x86_class)c);
    x86_hold(p, registers[CLASS_G]);
    check_plain(p);
    if (p->frame > MAX_FRAME) p->why = "too many values at once";
    return !p->why;
}
