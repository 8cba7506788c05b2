// SPDX-License-Identifier: Apache-2.0
// Output fusion: from each convolution or dot, follow known steps (bias, sum, activation) as long
// as the device's library takes the whole as one call.
#include "compiler/passes/fusion/fusion.h"
#include "compiler/passes/fusion/library.h"
#include "compiler/passes/pass.h"

enum { MAX_MEMBERS = 64 };

// A sum's other operand must exist before the fusion does, and must not depend on it.
static bool operand_ready(const struct lib_step *s, const struct hlo_instr *hero) {
    return !s->post.operand || !hlo_depends_on_by_place(s->post.operand, hero);
}

// Why the chain ends behind `at`, and the decision for each of its users.
static void tell_end(const struct pass_ctx *p, const struct hlo_instr *hero,
                     const struct hlo_instr *at, int posts, const struct lib_step *s, bool known,
                     const char *refused) {
    const char *why = posts == LIB_MAX_POST              ? "the call has its most post-operations"
                      : known && !operand_ready(s, hero) ? "the other operand depends on this value"
                      : known                            ? refused
                      : at->parent->root == at           ? "it is a result of the computation"
                      : at->users.n > 1 ? "it has several users, which are no known activation"
                                        : "the library has no such step";
    for (size_t k = 0; k < at->users.n; k++)
        pass_tell_fusion(p, at, at->users.v[k], why);
}

// A contraction and the steps that follow it, as far as they may be one call.
struct chain {
    struct hlo_instr *members[MAX_MEMBERS];
    struct lib_post post[LIB_MAX_POST];
    const struct hlo_instr *from[LIB_MAX_POST + 1]; // what each step reads; at last the chain's end
    int n, posts;
    bool known;           // there is a step behind the end:
    struct lib_step next; // this one
    const char *refused;  // and why it is no part
};

// Does the library run these steps behind the contraction as fast as none?
static bool runs(const struct pass_ctx *p, struct hlo_instr *hero, const struct lib_post *post,
                 int posts, const struct shape *result) {
    struct lib_call c = {.instr = hero,
                         .hero = hero,
                         .lhs = hero->operands[0],
                         .rhs = hero->operands[1],
                         .result = result,
                         .n_post = posts};
    if (!p->target->library_runs) return true;
    memcpy(c.post, post, sizeof *post * (size_t)posts);
    return p->target->library_runs(p->target, &c);
}

// ask: each step is asked for, and the chain ends before the first that the library does not run.
static void follow(struct hlo_instr *hero, const struct pass_ctx *p, bool ask, struct chain *c) {
    bool strict = p->opt && p->opt->precision == PRECISION_STRICT;
    struct lib_step *s = &c->next;
    c->members[0] = hero;
    c->from[0] = hero;
    c->n = 1;
    c->posts = 0;
    c->known = false;
    c->refused = "the call has a step of this kind already";
    while (c->posts < LIB_MAX_POST && (c->known = lib_step(hero, c->from[c->posts], s)) &&
           c->n + s->n <= MAX_MEMBERS && operand_ready(s, hero)) {
        if (lib_post_taken(c->post, c->posts, &s->post)) break;
        // The library multiplies by the inverse of the scale.
        if (s->post.kind == LIB_POST_QUANTISE && strict) break;
        c->post[c->posts] = s->post;
        if (ask && !runs(p, hero, c->post, c->posts + 1, s->covers[s->n - 1]->shape)) {
            c->refused = "the library has no fast kernel with this step";
            break;
        }
        for (int k = 0; k < s->n; k++)
            c->members[c->n++] = s->covers[k];
        c->from[++c->posts] = s->covers[s->n - 1];
    }
}

// In rows, or in a form that the pass `layout` gives it.
static bool taken(const struct target *t, const struct hlo_instr *i) {
    enum conv_form in, out;
    if (t->library_accepts(t, i)) return true;
    return i->parent == i->parent->module->entry && t->wants_form && t->wants_form(t, i, &in, &out);
}
// The longest chain that the library runs; false: it does not even take the contraction. The whole
// is asked for first: an answer costs the library a choice among its kernels, and it is mostly yes.
static bool longest(struct hlo_instr *hero, const struct pass_ctx *p, struct chain *c) {
    bool any_form = hero->parent == hero->parent->module->entry;
    if (!any_form && !taken(p->target, hero)) return false;
    follow(hero, p, false, c);
    if (c->posts && p->target->library_runs &&
        runs(p, hero, c->post, c->posts, c->from[c->posts]->shape))
        return true;
    if (!taken(p->target, hero)) return false;
    if (c->posts && p->target->library_runs) follow(hero, p, true, c);
    return true;
}

// Removes i if nothing reads it, and then what only it read.
static void remove_unread(struct hlo_instr *i) {
    if (i->users.n || i == i->parent->root || i->op == HLO_PARAMETER || hlo_has_effect(i)) return;
    struct hlo_instr *in[4];
    int n = i->n_operands < 4 ? i->n_operands : 4;
    for (int k = 0; k < n; k++)
        in[k] = i->operands[k];
    hlo_remove_instr(i);
    for (int k = 0; k < n; k++)
        if (in[k]->parent) remove_unread(in[k]);
}

// ordered: some instructions wait for others, so that what nobody reads may still be waited for.
static status_t fuse_from(struct hlo_instr *hero, struct pass_ctx *p, bool ordered) {
    struct chain c;
    if (!longest(hero, p, &c)) return ST_OK;
    struct hlo_instr **members = c.members;
    int n = c.n, posts = c.posts;
    for (int k = 0; k < posts; k++)
        pass_tell_fusion(p, c.from[k], c.from[k + 1], NULL);
    tell_end(p, hero, c.from[posts], posts, &c.next, c.known, c.refused);
    if (posts == 0) return ST_OK;
    // List order, each once; shared splats may have been covered twice.
    fusion_in_list_order(members, n);
    int unique = 1;
    for (int k = 1; k < n; k++)
        if (members[k] != members[unique - 1]) members[unique++] = members[k];
    struct hlo_instr *f;
    RETURN_IF_ERR(fusion_make(members, unique, FUSION_OUTPUT, hero, &f));
    p->changed = true;
    for (int k = unique - 1; k >= 0 && !ordered; k--)
        if (members[k]->parent) remove_unread(members[k]);
    if (ordered) hlo_remove_dead(f->parent);
    return ST_OK;
}

status_t pass_fuse_epilogue(struct hlo_module *m, struct pass_ctx *p) {
    if (!p->target || !p->target->library_accepts) return ST_OK;
    VEC(struct hlo_instr *) heroes = {0};
    bool ordered = false;
    HLO_EACH_COMPUTATION(c, m) {
        if (c->fusion) continue;
        hlo_number_list(c);
        for (struct hlo_instr *i = c->first; i; i = i->next) {
            ordered |= i->control_preds.n != 0;
            if (i->op == HLO_CONVOLUTION || i->op == HLO_DOT) avec_push(&p->scratch, &heroes, i);
        }
    }
    for (size_t k = 0; k < heroes.n; k++)
        if (heroes.v[k]->parent) RETURN_IF_ERR(fuse_from(heroes.v[k], p, ordered));
    return ST_OK;
}
