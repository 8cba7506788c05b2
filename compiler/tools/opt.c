// SPDX-License-Identifier: Apache-2.0
// hlo-opt's work on one module: parse, verify, then run passes, then print, count or hash.
#include "compiler/tools/opt.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/hlo/hlo_proto.h"
#include "compiler/gradient/gradient.h"
#include "compiler/plan/plan.h"
#include "compiler/tools/cases.h"
#include "compiler/train/model.h"

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

void opt_tell_assumed(const struct lower_request *req, int32_t given, int64_t batch) {
    for (int32_t k = given; k < req->n_bindings; k++)
        if (!batch || req->bindings[k].size != batch) // as the spec says
            fprintf(stderr, "%s=%lld is assumed\n", req->bindings[k].symbol,
                    (long long)req->bindings[k].size);
}
struct source {
    struct arena a; // holds what the module borrows
    struct ingest_result r;
    struct train_spec spec; // with --train
    bool model;             // r is of it
    struct span bytes;
};
static status_t read_training(const struct opt_options *o, struct source *from,
                              struct hlo_module **out) {
    struct lower_request req = {.entry_name = "main"};
    struct train_rows *rows;
    size_t n;
    RETURN_IF_ERR(frontend_bindings_parse(&from->a, o->bind, &req));
    RETURN_IF_ERR(opt_train_rows(&from->a, o->train_rows, &rows, &n));
    int32_t given = req.n_bindings;
    RETURN_IF_ERR(
        train_lower(&from->a, NULL, from->bytes, NULL, rows, n, &from->spec, &req, &from->r, out));
    if (!n) opt_tell_assumed(&req, given, from->spec.batch);
    return ST_OK;
}
// Any format to a module: HLO text directly, others through ingest and lower.
static status_t read_module(const struct opt_options *o, struct str text, struct source *from,
                            struct hlo_module **out) {
    struct span bytes = {(const uint8_t *)text.p, text.n};
    const char *format = frontend_sniff(bytes);
    from->bytes = bytes;
    struct hlo_parse_limits limits = {.incomplete = !o->passes && !o->stage};
    if (!format || strcmp(format, "hlo-text") == 0) return hlo_parse(text, &limits, out);
    if (strcmp(format, "hlo-proto") == 0)
        return hlo_proto_read(bytes, NULL, limits.incomplete, out);
    from->model = true;
    if (o->train) return read_training(o, from, out);

    struct lower_request req = {.entry_name = "main"};
    RETURN_IF_ERR(frontend_ingest(&from->a, format, bytes, NULL, &from->r));
    RETURN_IF_ERR(frontend_bindings_parse(&from->a, o->bind, &req));
    int32_t given = req.n_bindings;
    if (o->weights) {
        train_assume_sizes(&from->a, &from->r.sig, 0, &req);
        opt_tell_assumed(&req, given, 0);
    }
    req.program = from->r.program;
    RETURN_IF_ERR(frontend_lower(format, &req, out));
    status_t st = o->weights ? frontend_bake_weights(*out, &from->r, bytes) : ST_OK;
    if (st) hlo_module_free(*out);
    return st;
}

static status_t derive(const struct opt_options *o, const struct source *from,
                       struct hlo_module *m) {
    if (o->train) return opt_train(m, o, from->model ? &from->r : NULL, from->bytes, &from->spec);
    struct opt_options first = *o;
    first.passes = "lapack"; // its calls become the operations that have derivatives
    RETURN_IF_ERR(opt_run_passes(m, &first));
    return o->jvp ? gradient_forward(m) : gradient_module(m);
}
// The gradient and passes first, then what is asked for.
static status_t work_on(const struct opt_options *o, const struct source *from,
                        struct hlo_module *m) {
    if (o->gradient || o->jvp || o->train) RETURN_IF_ERR(derive(o, from, m));
    if (o->passes) RETURN_IF_ERR(opt_run_passes(m, o));
    if (o->hash) {
        struct digest d;
        char hex[65];
        hlo_canonical_hash(m, &d);
        digest_hex(d, hex);
        puts(hex);
    } else if (o->counts) {
        return print_counts(m);
    } else if (o->print || o->stage) {
        struct opt_options po = *o;
        if (!po.stage) po.stage = "hlo";
        return opt_print_stage(m, &po);
    }
    return ST_OK;
}
status_t opt_run(const struct opt_options *o, struct str text, int *out_rc) {
    if (o->eval) return cases_check(text, stdout, out_rc);
    if (o->check_passes) return opt_check_passes(text, out_rc);
    if (o->check_gradient) return opt_check_gradient(text, out_rc);
    *out_rc = 0;
    if (o->stage && strcmp(o->stage, "tree") == 0) return opt_print_tree(text);
    if (o->web) return opt_web(o, (struct span){(const uint8_t *)text.p, text.n});
    if (o->with_weights) return opt_with_weights(o, (struct span){(const uint8_t *)text.p, text.n});

    struct source from = {.model = false};
    struct hlo_module *m = NULL;
    status_t st = ST_OK;
    if (o->train) st = train_spec_parse(&from.a, str_of(o->train), &from.spec);
    if (!st) st = read_module(o, text, &from, &m);
    if (!st) {
        st = work_on(o, &from, m);
        hlo_module_free(m);
    }
    arena_done(&from.a);
    return st;
}
