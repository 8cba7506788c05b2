// SPDX-License-Identifier: Apache-2.0
// Output fusion: from each convolution or dot, follow known steps (bias, sum, activation) as long
// as the device's library takes the whole as one call.
#include "compiler/passes/fusion.h"
#include "compiler/passes/library.h"
#include "compiler/passes/pass.h"

enum { MAX_MEMBERS = 64 };

static bool before(const struct hlo_instr *a, const struct hlo_instr *b) {
    return a->mark < b->mark;
}

// A sum's other operand must exist before the fusion does, and must not depend on it.
static bool operand_ready(const struct lib_step *s, const struct hlo_instr *hero) {
    return !s->post.operand || !hlo_depends_on(s->post.operand, hero);
}

static status_t fuse_from(struct hlo_instr *hero, struct pass_ctx *p) {
    struct hlo_instr *members[MAX_MEMBERS] = {hero};
    int n = 1, posts = 0;
    const struct hlo_instr *at = hero;
    bool summed = false;
    struct lib_step s;
    while (posts < LIB_MAX_POST && lib_step(hero, at, &s) && n + s.n <= MAX_MEMBERS &&
           operand_ready(&s, hero)) {
        if (s.post.kind == LIB_POST_SUM && summed)
            break; // one sum: the library adds into its destination
        summed |= s.post.kind == LIB_POST_SUM;
        for (int k = 0; k < s.n; k++)
            members[n++] = s.covers[k];
        at = s.covers[s.n - 1];
        posts++;
    }
    if (posts == 0) return ST_OK;
    // List order, each once; shared splats may have been covered twice.
    uint32_t number = 0;
    for (struct hlo_instr *i = hero->parent->first; i; i = i->next)
        i->mark = number++;
    for (int k = 1; k < n; k++)
        for (int j = k; j > 0 && before(members[j], members[j - 1]); j--) {
            struct hlo_instr *t = members[j];
            members[j] = members[j - 1];
            members[j - 1] = t;
        }
    int unique = 1;
    for (int k = 1; k < n; k++)
        if (members[k] != members[unique - 1]) members[unique++] = members[k];
    struct hlo_instr *f;
    RETURN_IF_ERR(fusion_make(members, unique, FUSION_OUTPUT, hero, &f));
    p->changed = true;
    return ST_OK;
}

status_t pass_fuse_epilogue(struct hlo_module *m, struct pass_ctx *p) {
    if (!p->target || !p->target->library_accepts) return ST_OK;
    VEC(struct hlo_instr *) heroes = {0};
    HLO_EACH_COMPUTATION(c, m) {
        if (c->fusion) continue;
        for (struct hlo_instr *i = c->first; i; i = i->next)
            if ((i->op == HLO_CONVOLUTION || i->op == HLO_DOT) &&
                p->target->library_accepts(p->target, i))
                avec_push(&p->scratch, &heroes, i);
    }
    for (size_t k = 0; k < heroes.n; k++) {
        struct hlo_computation *c = heroes.v[k]->parent;
        RETURN_IF_ERR(fuse_from(heroes.v[k], p));
        hlo_remove_dead(c);
    }
    return ST_OK;
}
