// SPDX-License-Identifier: Apache-2.0
// hlo plan: a request for RunPlan from a file, its tensors from the command line. A step's model
// may be a file, which is uploaded first.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/files/input.h"
#include "client/files/tensors.h"

enum { MAX_INPUTS = 1024 };

static int upload_models(struct hlo *h, json_t *plan) {
    json_t *step;
    size_t k;
    json_array_foreach(json_object_get(plan, "steps"), k, step) {
        const char *model = text_at(step, "model");
        char hex[65];
        bool file;
        int rc = *model ? model_is_file(model, &file) : 0;
        if (!*model || (!rc && !file)) continue;
        if (!rc) rc = upload_model(h, model, hex); // the plan says its shapes
        if (rc) return rc;
        json_object_set_new(step, "model", json_string(hex));
    }
    return 0;
}

static status_t read_inputs(struct hlo *h, const char *const *words, int n, struct npy *in) {
    struct image_options o = {.std = {1, 1, 1}};
    for (int k = 0; k < n; k++) {
        RETURN_IF_ERR(input_parse(&h->arena, words[k], &o, &in[k]));
        RETURN_IF_ERR(input_sendable(&in[k]));
    }
    return ST_OK;
}

static void print_steps(const json_t *reply) {
    const json_t *s;
    size_t k;
    json_array_foreach(json_object_get(reply, "steps"), k, s) fprintf(
        stderr, "%-16s %8.3f ms  %.12s%s\n", text_at(s, "name"),
        json_number_value(json_array_get(json_object_get(s, "runMs"), 0)), text_at(s, "executable"),
        json_is_true(json_object_get(s, "cacheHit")) ? "" : " (compiled)");
}

static void answer(struct hlo *h, const struct tensors_reply *r, const char *out) {
    if (r->printed) return;
    if (!h->quiet) print_steps(r->head);
    if (h->json) {
        print_json(r->head);
        return;
    }
    for (int k = 0; k < r->n && !out; k++)
        tensor_print(&r->v[k]);
    tensors_print_kept(r->head);
}

int cmd_plan(struct hlo *h) {
    const char *v, *file = NULL, *out = NULL, *words[MAX_INPUTS];
    struct npy in[MAX_INPUTS] = {0};
    int n = 0;
    int64_t lease_ms = 0;

    for (int k = 0; k < h->argc; k++) {
        if ((v = option_value(h, &k, "-i"))) {
            if (n == MAX_INPUTS) return usage_error("more than %d inputs", MAX_INPUTS);
            words[n++] = v;
        } else if ((v = option_value(h, &k, "-o")))
            out = v;
        else if ((v = option_value(h, &k, "--lease"))) {
            if (!parse_lease(v, &lease_ms)) return usage_error("--lease: as in 90s, 10m, forever");
        } else if (h->argv[k][0] == '-' || file)
            return unknown_word(h, "plan", k);
        else
            file = h->argv[k];
    }
    if (!file) return usage_error("plan needs a file");

    json_error_t e;
    json_t *plan = json_load_file(file, JSON_REJECT_DUPLICATES, &e);
    if (!json_is_object(plan)) {
        json_decref(plan);
        return fail_status(
            e.line < 1 ? st_new(ST_INVALID_ARGUMENT, "%s", e.text)
                       : st_new(ST_INVALID_ARGUMENT, "%s, line %d: %s", file, e.line, e.text));
    }

    int rc = upload_models(h, plan);
    status_t st = rc ? ST_OK : tensors_can_write(out);
    if (!rc && !st) st = read_inputs(h, words, n, in);
    if (lease_ms) json_object_set_new(plan, "lease_ms", json_integer(lease_ms));
    if (rc || st) {
        json_decref(plan);
        return rc ? rc : fail_status(st);
    }

    struct tensors_reply r;
    rc = tensors_call(h, "RunPlanUnary", plan, in, n, NULL, out, &r);
    if (!rc) answer(h, &r, out);
    json_decref(r.head);
    return rc;
}
