// SPDX-License-Identifier: Apache-2.0
// hlo aside: work that the server refuses for a time, since its workers died of it.
#include <stdio.h>
#include <string.h>

#include "client/cli/hlo.h"

static int list(struct hlo *h) {
    json_t *j, *x;
    size_t k;
    int rc = hlo_print(h, "ListAside", NULL, &j);
    if (rc || !j) return rc;
    json_array_foreach(json_object_get(j, "aside"), k, x)
        printf("%-12s %-8s %s  deaths %.0f  for %.0f s more  %s\n", text_at(x, "tenant"),
               text_at(x, "step"), text_at(x, "digest"), number_at(x, "deaths"),
               number_at(x, "seconds"), text_at(x, "why"));
    json_decref(j);
    return 0;
}

static int lift(struct hlo *h, const char *digest) {
    json_t *j;
    int rc = hlo_print(h, "LiftAside", json_pack("{s:s}", "digest", digest), &j);
    if (rc || !j) return rc;
    printf("%.0f lifted\n", number_at(j, "lifted"));
    json_decref(j);
    return 0;
}

int cmd_aside(struct hlo *h) {
    if (!h->argc || (h->argc == 1 && !strcmp(h->argv[0], "ls"))) return list(h);
    if (h->argc <= 2 && !strcmp(h->argv[0], "lift")) return lift(h, h->argc == 2 ? h->argv[1] : "");
    return usage_error("aside [ls] | aside lift [DIGEST]");
}
