// SPDX-License-Identifier: Apache-2.0
// hlo-opt's work on one module: parse, verify, then run passes, then print, count or hash.
#include "compiler/tools/opt.h"

#include <stdio.h>

#include "base/hash.h"
#include "compiler/tools/cases.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/hlo/hlo_proto.h"
#include "compiler/plan/plan.h"

static status_t print_counts(const struct hlo_module *m) {
    struct hlo_counts n = hlo_count(m);
    struct arena a = {0};
    struct plan *p;
    status_t st = plan_make(&a, m->entry, &p);
    if (!st)
        printf("entry=%lld total=%lld fusions=%lld computations=%lld steps=%d in_place=%d "
               "arena_bytes=%lld values_bytes=%lld\n",
               (long long)n.entry, (long long)n.total, (long long)n.fusions,
               (long long)n.computations, p->n_steps, p->n_in_place, (long long)p->arena_bytes,
               (long long)p->values_bytes);
    arena_done(&a);
    return st;
}

// Any format to a module: HLO text directly, others through ingest and lower.
static status_t read_module(const struct opt_options *o, struct str text, struct hlo_module **out) {
    struct span bytes = {(const uint8_t *)text.p, text.n};
    const char *format = frontend_sniff(bytes);
    struct hlo_parse_limits limits = {.incomplete = !o->passes && !o->stage};
    if (!format || strcmp(format, "hlo-text") == 0) return hlo_parse(text, &limits, out);
    if (strcmp(format, "hlo-proto") == 0)
        return hlo_proto_read(bytes, NULL, limits.incomplete, out);
    struct arena a = {0};
    struct ingest_result r;
    struct lower_request req = {.entry_name = "main"};
    status_t st = frontend_ingest(&a, format, bytes, NULL, &r);
    if (!st) st = frontend_bindings_parse(&a, o->bind, &req);
    req.program = r.program;
    if (!st) st = frontend_lower(format, &req, out);
    arena_done(&a);
    return st;
}

status_t opt_run(const struct opt_options *o, struct str text, int *out_rc) {
    if (o->eval) return cases_check(text, stdout, out_rc);
    if (o->check_passes) return opt_check_passes(text, out_rc);
    if (o->stage && strcmp(o->stage, "tree") == 0) {
        *out_rc = 0;
        return opt_print_tree(text);
    }

    struct hlo_module *m;
    RETURN_IF_ERR(read_module(o, text, &m));
    status_t st = o->passes ? opt_run_passes(m, o) : ST_OK;
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
        st = print_counts(m);
    } else if (o->print || o->stage) {
        struct opt_options po = *o;
        if (!po.stage) po.stage = "hlo";
        st = opt_print_stage(m, &po);
    }
    hlo_module_free(m);
    *out_rc = 0;
    return st;
}
