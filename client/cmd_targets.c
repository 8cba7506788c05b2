// SPDX-License-Identifier: Apache-2.0
// hlo targets: what the server compiles for and what it executes.
#include <stdio.h>

#include "client/hlo.h"

static void print_row(const json_t *t) {
    bool compiles = json_is_true(json_object_get(t, "compiles")),
         executes = json_is_true(json_object_get(t, "executes"));
    printf("%-16s  compile %-3s  execute %-3s", text_at(t, "name"), compiles ? "yes" : "no",
           executes ? "yes" : "no");
    if (!compiles)
        printf("  %s", text_at(t, "compilesWhy"));
    else if (!executes)
        printf("  %s", text_at(t, "executesWhy"));
    putchar('\n');
}

int cmd_targets(struct hlo *h) {
    json_t *j, *t;
    size_t k;
    int rc = get_json(h, "/v1/targets", &j);
    if (rc) return rc;
    if (h->json)
        print_json(j);
    else
        json_array_foreach(json_object_get(j, "targets"), k, t) print_row(t);
    json_decref(j);
    return 0;
}
