// SPDX-License-Identifier: Apache-2.0
// A model as the program that trains it, and what the program's parameters are.
#include "compiler/tools/opt.h"

#include <errno.h>
#include <stdio.h>

static const char *const roles[] = {
    [TRAIN_WEIGHT] = "weight",       [TRAIN_SLOT] = "slot",   [TRAIN_MEAN] = "mean",
    [TRAIN_STATISTIC] = "statistic", [TRAIN_ORDER] = "order", [TRAIN_STEP] = "step",
    [TRAIN_FROZEN] = "frozen",       [TRAIN_DATA] = "data",   [TRAIN_LABEL] = "label",
    [TRAIN_SEED] = "seed",           [TRAIN_LIMIT] = "limit"};

static void put_leaf(struct strbuf *b, const struct train_leaf *l) {
    strbuf_puts(b, "  {\"name\": ");
    strbuf_json_str(b, str_of(l->name));
    strbuf_printf(b, ", \"role\": \"%s\"", roles[l->role]);
    if (l->of) {
        strbuf_puts(b, ", \"of\": ");
        strbuf_json_str(b, str_of(l->of));
    }
    strbuf_printf(b, ", \"dtype\": \"%s\", \"shape\": [", dtype_name(l->shape->dtype));
    for (int k = 0; k < l->shape->rank; k++)
        strbuf_printf(b, "%s%lld", k ? ", " : "", (long long)l->shape->dims[k]);
    strbuf_puts(b, "]");
    if (l->role == TRAIN_SLOT) {
        strbuf_puts(b, ", \"initial\": ");
        strbuf_f64(b, l->initial);
    }
    strbuf_puts(b, "}");
}
static status_t put_file(const char *path, const struct strbuf *b) {
    FILE *f = fopen(path, "wbe");
    if (!f) return st_errno(errno, path);
    bool whole = fwrite(b->p, 1, b->n, f) == b->n;
    int err = errno;
    whole &= fclose(f) == 0;
    return whole ? ST_OK : st_errno(err, path);
}
status_t opt_train(struct hlo_module *m, const struct ingest_result *r,
                   const struct train_spec *spec, const char *path) {
    struct train_program p;
    struct strbuf b = {0}, text = {0};
    RETURN_IF_ERR(train_module(m, r, spec, &p));
    if (!path) return ST_OK;
    train_spec_print(spec, &text);
    strbuf_puts(&b, "{\"spec\": ");
    strbuf_json_str(&b, (struct str){strbuf_cstr(&text), text.n});
    strbuf_printf(&b,
                  ",\n \"steps_per_epoch\": %lld, \"classes\": %lld, \"state\": %d, "
                  "\"accuracy\": %s,\n \"leaves\": [\n",
                  (long long)p.steps_per_epoch, (long long)p.classes, p.n_state,
                  p.accuracy ? "true" : "false");
    for (int k = 0; k < p.n_leaves; k++) {
        put_leaf(&b, &p.leaves[k]);
        strbuf_puts(&b, k + 1 < p.n_leaves ? ",\n" : "\n");
    }
    strbuf_puts(&b, " ]}\n");
    status_t st = put_file(path, &b);
    strbuf_done(&b);
    strbuf_done(&text);
    return st;
}
