// SPDX-License-Identifier: Apache-2.0
// hlo aside: work that the server refuses for a time, since its workers died of it.
#include <stdio.h>
#include <string.h>

#include "client/cli/hlo.h"

static int list(struct hlo *h) {
    json_t *j, *x;
    size_t k;
    int rc = get_json(h, "/v1/aside", &j);
    if (rc) return rc;
    if (h->json)
        print_json(j);
    else
        json_array_foreach(json_object_get(j, "aside"), k, x)
            printf("%-12s %-8s %s  deaths %.0f  for %.0f s more  %s\n", text_at(x, "tenant"),
                   text_at(x, "step"), text_at(x, "digest"), number_at(x, "deaths"),
                   number_at(x, "seconds"), text_at(x, "why"));
    json_decref(j);
    return 0;
}

static int lift(struct hlo *h, const char *digest) {
    json_t *j;
    const char *path = arena_printf(&h->arena, "/v1/aside%s%s", *digest ? "/" : "", digest);
    int rc = send_json(h, NULL, &(struct http_request){.method = "DELETE", .path = path}, &j);
    if (rc) return rc;
    if (h->json)
        print_json(j);
    else
        printf("%.0f lifted\n", number_at(j, "lifted"));
    json_decref(j);
    return 0;
}

int cmd_aside(struct hlo *h) {
    if (!h->argc || (h->argc == 1 && !strcmp(h->argv[0], "ls"))) return list(h);
    if (h->argc <= 2 && !strcmp(h->argv[0], "lift")) return lift(h, h->argc == 2 ? h->argv[1] : "");
    return usage_error("aside [ls] | aside lift [DIGEST]");
}
