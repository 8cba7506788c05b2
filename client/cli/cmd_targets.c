// SPDX-License-Identifier: Apache-2.0
// hlo targets: what the server compiles for and what it executes.
#include <stdio.h>
#include <string.h>

#include "client/cli/hlo.h"

enum { MAX_REASONS = 64 };
struct reasons { // each is printed once, below the table
    const char *v[MAX_REASONS];
    int n;
};
static int note(struct reasons *r, const char *why) {
    int k = 0;
    while (k < r->n && strcmp(r->v[k], why) != 0)
        k++;
    if (k == r->n && r->n < MAX_REASONS) r->v[r->n++] = why;
    return k + 1;
}

static void print_row(const json_t *t, struct reasons *r) {
    bool compiles = json_is_true(json_object_get(t, "compiles")),
         executes = json_is_true(json_object_get(t, "executes"));
    printf("%-16s  compile %-3s  execute %-3s", text_at(t, "name"), compiles ? "yes" : "no",
           executes ? "yes" : "no");
    const char *why = text_at(t, compiles ? "executesWhy" : "compilesWhy");
    if ((!compiles || !executes) && *why) printf("  (%d)", note(r, why));
    putchar('\n');
}

int cmd_targets(struct hlo *h) {
    json_t *j, *t;
    struct reasons r = {.n = 0};
    size_t k;
    int rc = hlo_print(h, "ListTargets", NULL, &j);
    if (rc || !j) return rc;
    json_array_foreach(json_object_get(j, "targets"), k, t) print_row(t, &r);
    for (int i = 0; i < r.n; i++)
        printf("%s(%d) %s\n", i ? "" : "\n", i + 1, r.v[i]);
    json_decref(j);
    return 0;
}
