// SPDX-License-Identifier: Apache-2.0
// hlo-opt's work on one module: parse, verify, then print, count or hash.
#include "compiler/opt.h"

#include <stdio.h>

#include "base/hash.h"
#include "compiler/cases.h"
#include "compiler/frontend/frontend.h"

static void print_counts(const struct hlo_module *m) {
    struct hlo_counts n = hlo_count(m);
    printf("entry=%lld total=%lld fusions=%lld computations=%lld\n", (long long)n.entry,
           (long long)n.total, (long long)n.fusions, (long long)n.computations);
}

// "N=1,S=128" into bindings; texts live in the arena.
static status_t parse_bindings(struct arena *a, const char *text, struct lower_request *req) {
    struct str all = str_of(text), item, name;
    VEC(struct dim_binding) v = {0};
    while (text && str_cut(&all, ',', &item)) {
        struct dim_binding b;
        if (!str_cut(&item, '=', &name) || !str_to_i64(item, &b.size))
            return st_new(ST_INVALID_ARGUMENT, "--bind takes NAME=SIZE,...");
        b.symbol = arena_strndup(a, name.p, name.n);
        avec_push(a, &v, b);
    }
    req->bindings = v.v;
    req->n_bindings = (int32_t)v.n;
    return ST_OK;
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
    if (!st) st = parse_bindings(&a, o->bind, &req);
    req.program = r.program;
    if (!st) st = frontend_lower(format, &req, out);
    arena_done(&a);
    return st;
}

status_t opt_run(const struct opt_options *o, struct str text, int *out_rc) {
    if (o->eval) return cases_check(text, stdout, out_rc);
    struct hlo_module *m;
    RETURN_IF_ERR(read_module(o, text, &m));
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
