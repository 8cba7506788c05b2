// SPDX-License-Identifier: Apache-2.0
// The runner.
#include "compiler/passes/pass.h"

#include "base/clock.h"
#include "compiler/ir/text/text.h"
#include "compiler/passes/fusion/library.h"

static const struct pass table[] = {
#define PASS(fn, name, doc) {name, pass_##fn, doc},
#include "compiler/passes/passes.def"
#undef PASS
};
const struct pass *pass_table(int *n) {
    *n = (int)(sizeof table / sizeof table[0]);
    return table;
}
const struct pass *pass_find(struct str name) {
    for (size_t k = 0; k < sizeof table / sizeof table[0]; k++)
        if (str_is(name, table[k].name)) return &table[k];
    return NULL;
}

static bool listed(const char *list, const char *name) {
    struct str all = str_of(list ? list : ""), item;
    while (str_cut(&all, ',', &item))
        if (str_is(str_trim(item), name)) return true;
    return false;
}

status_t pass_run(struct hlo_module *m, const char *name, struct pass_ctx *p) {
    const struct pass *pass = pass_find(str_of(name));

    if (!pass) return st_invalid("no pass is called '%s'", name);
    if (listed(p->opt->disable_passes, name)) return ST_OK;
    if (p->obs && p->obs->cancel && *p->obs->cancel)
        return st_new(ST_CANCELLED, "the compile was cancelled");

    struct pass_stat s = {.name = pass->name, .instrs_before = hlo_total(m)};
    int64_t start = clock_ns();
    p->changed = false;
    p->running = pass->name;
    status_t st = pass->fn(m, p);
    arena_reset(&p->scratch);
    s.ns = clock_ns() - start;
    if (st) return st_note(st, "pass %s", name);

#ifdef HLOD_FAULTS
    bool verify = true;
#else
    bool verify = p->opt->verify_each;
#endif
    if (verify && (st = hlo_verify(m))) {
        status_t broken =
            st_internal("after pass %s the module does not verify: %s", name, st_message(st));
        st_drop(st);
        return broken;
    }

    s.instrs_after = hlo_total(m);
    s.changed = p->changed;
    avec_push(p->keep, &p->stats, s);
    if (p->obs && p->obs->on_pass) p->obs->on_pass(p->obs->ctx, &s);
    if (p->obs && p->obs->on_dump) p->obs->on_dump(p->obs->ctx, name, m);
    return ST_OK;
}

status_t pass_run_list(struct hlo_module *m, const char *const *names, int rounds,
                       struct pass_ctx *p) {
    for (int round = 0; round < rounds; round++) {
        bool any = false;
        for (int k = 0; names[k]; k++) {
            RETURN_IF_ERR(pass_run(m, names[k], p));
            any |= p->changed;
        }
        if (!any) break;
    }
    return ST_OK;
}

void pass_mark_weights(struct hlo_computation *c) {
    for (struct hlo_instr *i = c->first; i; i = i->next) {
        bool only =
            i->op == HLO_CONSTANT || (i->op == HLO_PARAMETER && i->param_kind == PARAM_WEIGHT);
        if (i->n_operands && (hlo_op_info(i->op)->traits & HLO_T_P)) {
            only = true;
            for (int k = 0; k < i->n_operands; k++)
                only &= i->operands[k]->mark == 1;
        }
        i->mark = only;
    }
}

static bool contracts(const struct hlo_instr *i) {
    return i->op == HLO_CONVOLUTION || i->op == HLO_DOT;
}
void pass_ask_bf16(struct hlo_instr *i) {
    static const char name[] = "frontend_attributes", given[] = "{algorithm=\"" LIB_BF16 "\"";
    size_t n = 0;
    if (lib_reads_bf16(i)) return;
    if (i->op == HLO_DOT) {
        if (!hlo_extra(i, "algorithm", NULL)) hlo_set_extra(i, "algorithm", LIB_BF16);
        return;
    }
    const char *others = hlo_extra(i, name, &n); // {a="b",c="d"}
    bool any = others && n > 2 && others[0] == '{';
    hlo_set_extra(
        i, name,
        any ? arena_printf(i->parent->module->arena, "%s,%.*s", given, (int)n - 1, others + 1)
            : arena_printf(i->parent->module->arena, "%s}", given));
}
void pass_ask_alike(struct hlo_instr *to, const struct hlo_instr *from) {
    static const char *const names[] = {"operand_precision", "algorithm"};
    if (to == from || !contracts(to) || !contracts(from)) return;
    if (lib_reads_bf16(from)) pass_ask_bf16(to);
    for (size_t k = 0; k < (to->op == from->op ? 2 : 1); k++) {
        size_t len = 0;
        const char *text = hlo_extra(from, names[k], &len);
        if (!text || hlo_extra(to, names[k], NULL)) continue;
        hlo_set_extra(to, names[k],
                      arena_printf(to->parent->module->arena, "%.*s", (int)len, text));
    }
}
void pass_place(struct hlo_instr *last, struct hlo_instr *pos) {
    for (struct hlo_instr *n = last->next, *next; n; n = next) {
        next = n->next;
        hlo_move_before(n, pos);
        pass_ask_alike(n, pos);
    }
}
status_t pass_put_instead(struct hb *b, struct hlo_instr *last, struct hlo_instr *i,
                          struct hlo_instr *r) {
    pass_place(last, i);
    RETURN_IF_ERR(hb_end(b));
    hlo_replace_uses(i, r);
    hlo_remove_instr(i);
    return ST_OK;
}
status_t pass_rewrite(struct hlo_module *m, struct pass_ctx *p, pass_rewrite_fn fn) {
    HLO_EACH_COMPUTATION(c, m) {
        if (c->fusion) continue;
        struct hb b = hb_begin(c);
        HLO_EACH_INSTR(i, c) {
            struct hlo_instr *last = c->last;
            if (i->n_awaiting && hlo_has_effect(i)) continue; // nothing else does what is awaited
            b.op_type = i->op_type;
            b.op_name = i->op_name;
            struct hlo_instr *r = fn(&b, i, p);
            pass_place(last, i);
            if (!hb_ok(&b)) break;
            if (!r) continue;
            hlo_replace_uses(i, r);
            hlo_remove_instr(i);
            p->changed = true;
        }
        RETURN_IF_ERR(hb_end(&b));
        hlo_remove_dead(c);
    }
    return ST_OK;
}
