// SPDX-License-Identifier: Apache-2.0
// Output fusion: from each convolution or dot, follow known steps (bias, sum, activation) as long
// as the device's library takes the whole as one call.
#include "compiler/passes/fusion.h"
#include "compiler/passes/library.h"
#include "compiler/passes/pass.h"

enum { MAX_MEMBERS = 64 };

// A sum's other operand must exist before the fusion does, and must not depend on it.
static bool operand_ready(const struct lib_step *s, const struct hlo_instr *hero) {
    return !s->post.operand || !hlo_depends_on(s->post.operand, hero);
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

// The library is asked whether the call with this step runs as fast as without.
static bool runs(const struct pass_ctx *p, struct hlo_instr *hero, const struct lib_post *post,
                 int posts, const struct lib_step *s) {
    struct lib_call c = {.instr = hero,
                         .hero = hero,
                         .lhs = hero->operands[0],
                         .rhs = hero->operands[1],
                         .result = s->covers[s->n - 1]->shape,
                         .n_post = posts + 1};
    if (!p->target->library_runs) return true;
    memcpy(c.post, post, sizeof *post * (size_t)posts);
    c.post[posts] = s->post;
    return p->target->library_runs(p->target, &c);
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
    struct hlo_instr *members[MAX_MEMBERS] = {hero};
    int n = 1, posts = 0;
    const struct hlo_instr *at = hero;
    bool known = false;
    const char *refused = "the call has a step of this kind already";
    struct lib_post post[LIB_MAX_POST];
    struct lib_step s;
    while (posts < LIB_MAX_POST && (known = lib_step(hero, at, &s)) && n + s.n <= MAX_MEMBERS &&
           operand_ready(&s, hero)) {
        if (lib_post_taken(post, posts, &s.post)) break;
        // The library multiplies by the inverse of the scale.
        if (s.post.kind == LIB_POST_QUANTISE && p->opt && p->opt->precision == PRECISION_STRICT)
            break;
        refused = "the library has no fast kernel with this step";
        if (!runs(p, hero, post, posts, &s)) break;
        refused = "the call has a step of this kind already";
        post[posts] = s.post;
        for (int k = 0; k < s.n; k++)
            members[n++] = s.covers[k];
        pass_tell_fusion(p, at, s.covers[s.n - 1], NULL);
        at = s.covers[s.n - 1];
        posts++;
    }
    tell_end(p, hero, at, posts, &s, known, refused);
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

// In rows, or in a form that the pass `layout` gives it.
static bool taken(const struct target *t, const struct hlo_instr *i) {
    enum conv_form in, out;
    if (t->library_accepts(t, i)) return true;
    return i->parent == i->parent->module->entry && t->wants_form && t->wants_form(t, i, &in, &out);
}

status_t pass_fuse_epilogue(struct hlo_module *m, struct pass_ctx *p) {
    if (!p->target || !p->target->library_accepts) return ST_OK;
    VEC(struct hlo_instr *) heroes = {0};
    bool ordered = false;
    HLO_EACH_COMPUTATION(c, m) {
        if (c->fusion) continue;
        for (struct hlo_instr *i = c->first; i; i = i->next) {
            ordered |= i->control_preds.n != 0;
            if ((i->op == HLO_CONVOLUTION || i->op == HLO_DOT) && taken(p->target, i))
                avec_push(&p->scratch, &heroes, i);
        }
    }
    for (size_t k = 0; k < heroes.n; k++)
        if (heroes.v[k]->parent) RETURN_IF_ERR(fuse_from(heroes.v[k], p, ordered));
    return ST_OK;
}
