// SPDX-License-Identifier: Apache-2.0
// hlo show: what a model is, as the server read it.
#include <stdio.h>
#include <string.h>

#include "client/cli/hlo.h"

enum { COLUMN = 13, WIDTH = 100 };

// "_x_0" stands for a dimension of x that the model gives no name.
static bool unnamed(const char *tensor, const char *symbol) {
    size_t n = strlen(tensor);
    return *symbol == '_' && !strncmp(symbol + 1, tensor, n) && symbol[n + 1] == '_';
}
static void print_tensor(const char *what, const json_t *t) {
    const char *name = text_at(t, "name");
    const json_t *dim;
    size_t d;
    bool usual = false;
    printf("%-*s%s %s", COLUMN, what, text_at(t, "name"), text_at(t, "dtype"));
    if (json_is_true(json_object_get(t, "sequence")))
        fputs(", a sequence", stdout);
    else if (json_is_true(json_object_get(t, "unknownRank")))
        fputs(", of any shape", stdout);
    else {
        putchar('[');
        json_array_foreach(json_object_get(t, "dims"), d, dim) {
            const char *symbol = text_at(dim, "symbol");
            if (d) putchar(',');
            if (*symbol)
                fputs(unnamed(name, symbol) ? "?" : symbol, stdout);
            else
                printf("%.0f", number_at(dim, "size"));
            usual |= number_at(dim, "usual") > 0;
        }
        putchar(']');
    }
    if (json_is_true(json_object_get(t, "optional"))) fputs(", optional", stdout);
    if (json_is_true(json_object_get(t, "byValue"))) fputs(", its values decide shapes", stdout);
    json_array_foreach(usual ? json_object_get(t, "dims") : NULL, d, dim)
        printf("%s%.0f", d ? "x" : "  usually ",
               number_at(dim, "usual") > 0 ? number_at(dim, "usual") : number_at(dim, "size"));
    putchar('\n');
}

static void print_operators(const json_t *all) {
    const json_t *o;
    size_t k;
    int at = printf("%-*s", COLUMN, "operators");
    json_array_foreach(all, k, o) {
        char one[300];
        int n = snprintf(one, sizeof one, "%.250s %.0f", text_at(o, "name"), number_at(o, "count"));
        if (k) fputs(",", stdout);
        if (at + n + 2 > WIDTH && k) at = printf("\n%*s", COLUMN, "") - 1;
        at += printf("%s%s", k && at > COLUMN ? " " : "", one) + 1;
    }
    puts(k ? "" : "not known: the server read this model before it counted them");
}

static void print_model(const json_t *m) {
    const json_t *s = json_object_get(m, "signature"), *t;
    size_t k;
    const char *producer = text_at(m, "producer");
    printf("%-*s%s\n", COLUMN, "model", text_at(m, "sourceDigest"));
    printf("%-*s%s", COLUMN, "format", text_at(m, "format"));
    json_array_foreach(json_object_get(m, "opsets"), k, t)
        printf("%s %s%s%.0f", k ? "," : ", opset", text_at(t, "domain"),
               text_at(t, "domain")[0] ? " " : "", number_at(t, "version"));
    printf("%s%s\n", *producer ? ", written by " : "", producer);
    if (number_at(m, "bytes") > 0)
        printf("%-*s%s\n", COLUMN, "bytes", size_text(number_at(m, "bytes")).s);
    printf("%-*s%.0f in %s\n", COLUMN, "parameters", number_at(m, "parameters"),
           size_text(number_at(m, "weightsBytes")).s);
    json_array_foreach(json_object_get(s, "inputs"), k, t) print_tensor(k ? "" : "inputs", t);
    json_array_foreach(json_object_get(s, "defaults"), k, t) print_tensor(k ? "" : "defaults", t);
    json_array_foreach(json_object_get(s, "outputs"), k, t) print_tensor(k ? "" : "outputs", t);
    printf("%-*s%.0f\n", COLUMN, "nodes", number_at(m, "nodes"));
    print_operators(json_object_get(m, "operators"));
}

int cmd_show(struct hlo *h) {
    const char *model = NULL;
    for (int k = 0; k < h->argc; k++) {
        if (h->argv[k][0] == '-' || model) return unknown_word(h, "show", k);
        model = h->argv[k];
    }
    if (!model) return usage_error("show needs a model's file, name or digest");
    bool file;
    char hex[65];
    json_t *m;
    int rc = model_is_file(model, &file);
    if (!rc && file) rc = upload_model(h, model, hex);
    if (!rc && file) model = hex;
    if (!rc) rc = full_digest(h, &model);
    if (!rc) rc = hlo_print(h, "ShowModel", json_pack("{s:s}", "model", model), &m);
    if (rc || !m) return rc;
    print_model(m);
    json_decref(m);
    return 0;
}
