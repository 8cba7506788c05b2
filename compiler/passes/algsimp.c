// SPDX-License-Identifier: Apache-2.0
// Drives the rules: each instruction in order, each rule in the table's order, until a sweep
// changes nothing.
#include "compiler/passes/rules.h"

static const struct rule table[] = {
#define RULE(name, doc) {#name, rule_##name, doc},
#include "compiler/passes/rules.def"
#undef RULE
};
enum { N_RULES = sizeof table / sizeof table[0], MAX_SWEEPS = 10 };
const struct rule *rule_table(int *n) {
    *n = N_RULES;
    return table;
}

static void find_disabled(const char *list, bool *off) {
    struct str all = str_of(list ? list : ""), item;
    while (str_cut(&all, ',', &item))
        for (int k = 0; k < N_RULES; k++)
            if (str_is(str_trim(item), table[k].name)) off[k] = true;
}

// Tries the rules on i; true when it was replaced.
static bool rewrite(struct rule_ctx *r, struct hlo_instr *i, const bool *off,
                    const struct pass_trace *t) {
    struct hlo_computation *c = i->parent;
    r->b.op_type = i->op_type;
    r->b.op_name = i->op_name;
    for (int k = 0; k < N_RULES; k++) {
        struct hlo_instr *last = c->last, *with = off[k] ? NULL : table[k].fn(r, i);
        pass_place(last, i); // what the rule appended
        if (!with || with == i || !hb_ok(&r->b)) continue;
        if (t && t->rule) t->rule(t->ctx, table[k].name, i, with);
        hlo_replace_uses(i, with);
        hlo_remove_instr(i);
        return true;
    }
    return false;
}

status_t pass_algsimp(struct hlo_module *m, struct pass_ctx *p) {
    bool off[N_RULES] = {false};
    find_disabled(p->opt->disable_rules, off);
    HLO_EACH_COMPUTATION(c, m) {
        struct rule_ctx r = {.b = hb_begin(c), .strict = p->opt->precision == PRECISION_STRICT};
        bool changed = true;
        for (int sweep = 0; changed && sweep < MAX_SWEEPS; sweep++) {
            changed = false;
            HLO_EACH_INSTR(i, c)
            if (i->n_operands && rewrite(&r, i, off, p->trace)) changed = true;
            p->changed |= changed;
        }
        RETURN_IF_ERR(hb_end(&r.b));
    }
    return ST_OK;
}
