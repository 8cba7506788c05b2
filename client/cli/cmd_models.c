// SPDX-License-Identifier: Apache-2.0
// hlo models: names for uploaded models.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "client/cli/hlo.h"

static const char *batching_text(struct hlo *h, const json_t *model) {
    const json_t *b = json_object_get(model, "batching");
    return b ? arena_printf(&h->arena, "  batches of %.0f, %.0f us", number_at(b, "max"),
                            number_at(b, "delayUs"))
             : "";
}

static int list(struct hlo *h) {
    json_t *j, *m;
    size_t k;
    int rc = hlo_call(h, "ListModels", NULL, &j);
    if (rc) return rc;
    if (list_begin(
            h, j, "models", "no model has a name: `hlo models set NAME MODEL`",
            "NAME                  VERSION  MODEL                                            "
            "                 STATE"))
        json_array_foreach(json_object_get(j, "models"), k, m)
            printf("%-24s %4.0f  %s  %s%s\n", text_at(m, "name"), number_at(m, "version"),
                   text_at(m, "model"),
                   json_is_true(json_object_get(m, "loaded")) ? "loaded" : text_at(m, "reason"),
                   batching_text(h, m));
    json_decref(j);
    return 0;
}

// SetModel and RemoveModel: the model as it is named now.
static int change(struct hlo *h, const char *method, json_t *request) {
    json_t *j;
    int rc = hlo_print(h, method, request, &j);
    if (rc || !j) return rc;
    if (json_object_get(j, "model"))
        printf("%s version %.0f is %s\n", text_at(j, "name"), number_at(j, "version"),
               text_at(j, "model"));
    json_decref(j);
    return 0;
}

static int set(struct hlo *h, const char *name, const char *model, const char *shapes,
               json_int_t version, int64_t batch, int64_t delay_us, bool unchecked) {
    json_t *compiled = NULL;
    bool file;
    int rc = model_is_file(model, &file);
    if (rc) return rc;
    if (file) { // uploaded, and compiled so that it is warm, where that needs no run
        rc = compile_model(h, model, shapes, THEN_RUN, &compiled);
        if (rc) return rc;
        if (!h->quiet) print_assumed(compiled, stderr);
        if (!h->quiet && !json_object_get(compiled, "executable"))
            fputs("not compiled yet: requests bring its shapes, or --shape\n", stderr);
        model = arena_strdup(&h->arena, text_at(compiled, "sourceDigest"));
        json_decref(compiled);
    }
    json_t *q = json_pack("{s:s, s:s, s:I}", "name", name, "model", model, "version", version);
    if (batch > 1)
        json_object_set_new(q, "batching",
                            json_pack("{s:I, s:I, s:b}", "max", (json_int_t)batch, "delayUs",
                                      (json_int_t)delay_us, "unchecked", unchecked));
    return change(h, "SetModel", q);
}

int cmd_models(struct hlo *h) {
    const char *words[3] = {"ls"}, *v;
    int n = 0;
    int64_t version = 0, batch = 0, delay_us = 0;
    bool unchecked = false;
    struct strbuf shapes = {0};

    for (int k = 0; k < h->argc; k++) {
        if ((v = option_value(h, &k, "--version"))) {
            if (!str_to_i64(str_of(v), &version) || version < 1)
                return usage_error("--version: expected a number from 1");
        } else if (!strcmp(h->argv[k], "--batch-unchecked"))
            unchecked = true;
        else if ((v = option_value(h, &k, "--batch"))) {
            if (!str_to_i64(str_of(v), &batch) || batch < 2)
                return usage_error("--batch: expected a number of rows from 2");
        } else if ((v = option_value(h, &k, "--batch-delay-us"))) {
            if (!str_to_i64(str_of(v), &delay_us) || delay_us < 0)
                return usage_error("--batch-delay-us: expected microseconds");
        } else if ((v = option_value(h, &k, "--shape")))
            query_add(&shapes, "shape", v);
        else if (h->argv[k][0] == '-' || n == 3)
            return unknown_word(h, "models", k);
        else
            words[n++] = h->argv[k];
    }

    int rc;
    if (strcmp(words[0], "ls") == 0 && n <= 1)
        rc = list(h);
    else if (strcmp(words[0], "set") == 0 && n == 3)
        rc = set(h, words[1], words[2], strbuf_cstr(&shapes), version, batch, delay_us, unchecked);
    else if (strcmp(words[0], "rm") == 0 && n == 2) {
        rc = change(h, "RemoveModel",
                    json_pack("{s:s, s:I}", "name", words[1], "version", (json_int_t)version));
    } else
        rc = usage_error("models takes ls, set NAME MODEL, rm NAME");
    strbuf_done(&shapes);
    return rc;
}
