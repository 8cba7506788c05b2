// SPDX-License-Identifier: Apache-2.0
// hlo-opt's work on one module: parse, verify, then print, count or hash.
#include "compiler/opt.h"

#include <stdio.h>

#include "base/hash.h"
#include "compiler/cases.h"

static void print_counts(const struct hlo_module *m) {
    struct hlo_counts n = hlo_count(m);
    printf("entry=%lld total=%lld fusions=%lld computations=%lld\n", (long long)n.entry,
           (long long)n.total, (long long)n.fusions, (long long)n.computations);
}

status_t opt_run(const struct opt_options *o, struct str text, int *out_rc) {
    if (o->eval) return cases_check(text, stdout, out_rc);
    struct hlo_module *m;
    RETURN_IF_ERR(hlo_parse(text, NULL, &m));
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
