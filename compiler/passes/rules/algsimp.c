// SPDX-License-Identifier: Apache-2.0
// Drives the rules: each instruction in order, each rule in the table's order, until a sweep
// changes nothing. A rule is asked about the operations that its row names.
#include <pthread.h>

#include "compiler/ir/op.h"
#include "compiler/passes/rules/rules.h"

static const struct rule table[] = {
#define RULE(name, doc, ...) {#name, rule_##name, doc},
#include "compiler/passes/rules/rules.def"
#undef RULE
};
enum { N_RULES = sizeof table / sizeof table[0], MAX_SWEEPS = 10, MAX_OPS = 4 };
static const struct {
    int n;
    enum hlo_op op[MAX_OPS];
} looks_at[] = {
#define RULE(name, doc, ...)                                                                       \
    {sizeof((enum hlo_op[]){__VA_ARGS__}) / sizeof(enum hlo_op), {__VA_ARGS__}},
#include "compiler/passes/rules/rules.def"
#undef RULE
};

// rules_of[op]: the rules to try on it, in the table's order, as places in the table.
static struct {
    uint8_t n, rule[N_RULES];
} rules_of[HLO_OP_COUNT];
_Static_assert(N_RULES < 256, "rules_of counts in bytes");
static void sort_rules(void) {
    for (int op = 0; op < HLO_OP_COUNT; op++)
        for (int k = 0; k < N_RULES; k++) {
            int first = (int)looks_at[k].op[0], traits = (int)hlo_op_info((enum hlo_op)op)->traits;
            bool asked = (first == (int)RULE_COMMUTES && (traits & HLO_T_COMM)) ||
                         (first == (int)RULE_ELEMENTWISE && (traits & HLO_T_EW));
            for (int j = 0; j < looks_at[k].n; j++)
                asked |= (int)looks_at[k].op[j] == op;
            if (asked) rules_of[op].rule[rules_of[op].n++] = (uint8_t)k;
        }
}
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
    for (int n = 0; n < rules_of[i->op].n; n++) {
        int k = rules_of[i->op].rule[n];
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
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool off[N_RULES] = {false};
    pthread_once(&once, sort_rules);
    find_disabled(p->opt->disable_rules, off);
    HLO_EACH_COMPUTATION(c, m) {
        struct rule_ctx r = {
            .b = hb_begin(c), .strict = p->opt->precision == PRECISION_STRICT, .target = p->target};
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
