// SPDX-License-Identifier: Apache-2.0
// hlo-opt's work on one module: parse, verify, then print, count or hash.
#include "compiler/opt.h"

#include <stdio.h>

#include "base/hash.h"
#include "compiler/cases.h"
#include "compiler/frontend/frontend.h"
#include "compiler/passes/library.h"
#include "compiler/passes/pass.h"

static void print_counts(const struct hlo_module *m) {
    struct hlo_counts n = hlo_count(m);
    printf("entry=%lld total=%lld fusions=%lld computations=%lld\n", (long long)n.entry,
           (long long)n.total, (long long)n.fusions, (long long)n.computations);
}

// Any format to a module: HLO text directly, others through ingest and lower.
static status_t read_module(const struct opt_options *o, struct str text, struct hlo_module **out) {
    struct span bytes = {(const uint8_t *)text.p, text.n};
    const char *format = frontend_sniff(bytes);
    if (!format || strcmp(format, "hlo-text") == 0) return hlo_parse(text, NULL, out);
    struct arena a = {0};
    struct ingest_result r;
    struct lower_request req = {.entry_name = "main"};
    status_t st = frontend_ingest(&a, format, bytes, NULL, &r);
    if (!st) st = bindings_parse(&a, o->bind, &req);
    req.program = r.program;
    if (!st) st = frontend_lower(format, &req, out);
    arena_done(&a);
    return st;
}

// A target for goldens: its library takes every contraction of f32 that is one call, so tests do
// not depend on the machine.
static bool takes_all(const struct target *t, const struct hlo_instr *i) {
    struct lib_call c;
    (void)t;
    return i->shape->dtype == DT_F32 && lib_match(i, &c);
}
static bool wants_all(const struct target *t, const struct hlo_instr *i, bool *out_input,
                      bool *out_output) {
    struct lib_call c;
    bool conv = lib_match(i, &c) && c.hero->op == HLO_CONVOLUTION && i->shape->rank == 4;
    *out_input = *out_output = conv && t->conv_block > 0;
    return conv;
}

static status_t run_passes(struct hlo_module *m, const struct opt_options *o) {
    struct compile_options opt = {.precision = o->strict ? PRECISION_STRICT : PRECISION_DEFAULT,
                                  .disable_passes = "",
                                  .disable_rules = "",
                                  .verify_each = true};
    struct target t = {
        .id = o->target, .kind = "cpu", .library_accepts = takes_all, .wants_blocked = wants_all};
    struct arena keep = {0};
    struct pass_ctx p = {.opt = &opt, .target = o->target ? &t : NULL, .keep = &keep};
    struct str all = str_of(o->passes), name;
    status_t st = ST_OK;
    t.conv_block = o->target && strcmp(o->target, "cpu-avx2") == 0 ? 8 : 16;
    while (!st && str_cut(&all, ',', &name))
        st = pass_run(m, arena_strndup(&keep, name.p, name.n), &p);
    arena_done(&p.scratch);
    arena_done(&keep);
    return st;
}

void opt_list_passes(void) {
    int n;
    const struct pass *t = pass_table(&n);
    puts("| pass | what it does |\n|---|---|");
    for (int k = 0; k < n; k++)
        printf("| `%s` | %s |\n", t[k].name, t[k].doc);
}

status_t opt_run(const struct opt_options *o, struct str text, int *out_rc) {
    if (o->eval) return cases_check(text, stdout, out_rc);
    struct hlo_module *m;
    RETURN_IF_ERR(read_module(o, text, &m));
    status_t st = o->passes ? run_passes(m, o) : ST_OK;
    if (st) {
        hlo_module_free(m);
        return st;
    }
    if (o->hash) {
        struct digest d;
        char hex[65];
        hlo_canonical_hash(m, &d);
        digest_hex(d, hex);
        puts(hex);
    } else if (o->counts) {
        print_counts(m);
    } else if (o->print) {
        struct strbuf b = {0};
        hlo_print_module(&b, m, HLO_PRINT_DEFAULT | (o->canonical ? HLO_PRINT_CANONICAL : 0));
        fwrite(b.p, 1, b.n, stdout);
        strbuf_done(&b);
    }
    hlo_module_free(m);
    *out_rc = 0;
    return ST_OK;
}
