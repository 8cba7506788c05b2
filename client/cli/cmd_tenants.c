// SPDX-License-Identifier: Apache-2.0
// hlo tenants: who shares the server's devices, what they may use and have used. hlo nodes: the
// servers of its cluster, as they last told of themselves.
#include <stdio.h>
#include <string.h>

#include "client/cli/hlo.h"

static const char *limit(struct hlo *h, const json_t *t, const char *field, const char *unit,
                         const char *left) {
    double v = number_at(t, field);
    if (v <= 0) return "";
    if (!left) return arena_printf(&h->arena, "  %.0f %s", v, unit);
    return arena_printf(&h->arena, "  %.0f %s, %.0f left", v, unit, number_at(t, left));
}

int cmd_tenants(struct hlo *h) {
    json_t *j, *t;
    size_t k;
    if (h->argc) return usage_error("tenants takes no words");
    int rc = hlo_print(h, "ListTenants", NULL, &j);
    if (rc || !j) return rc;
    json_array_foreach(json_object_get(j, "tenants"), k, t) printf(
        "%-24s weight %.0f  jobs %.0f (%.0f wait)  device %.1f s  compile %.1f s  "
        "%s  refused %.0f of %.0f%s%s%s\n",
        text_at(t, "name"), number_at(t, "weight"), number_at(t, "jobs"), number_at(t, "waiting"),
        number_at(t, "deviceMs") / 1e3, number_at(t, "compileMs") / 1e3,
        size_text(number_at(t, "totalBytes")).s, number_at(t, "refused"), number_at(t, "totalJobs"),
        limit(h, t, "runsAMinute", "runs/min", "runsLeft"),
        limit(h, t, "bytesAMinute", "bytes/min", "bytesLeft"),
        limit(h, t, "maxPlaces", "places", NULL));
    json_decref(j);
    return 0;
}

// ---- the cluster

static void print_node(const json_t *n) {
    const json_t *t;
    const char *before = "";
    size_t k;
    bool self = json_is_true(json_object_get(n, "self"));
    printf("%c %-24s %-9s devices %.0f of %.0f  room %.0f  jobs %.0f  queued %.0f of %.0f", //
           self ? '*' : ' ', text_at(n, "node"), text_at(n, "state"), number_at(n, "devicesUp"),
           number_at(n, "devices"), number_at(n, "places"), number_at(n, "jobs"),
           number_at(n, "queued"), number_at(n, "maxQueue"));
    if (!self) printf("  heard %.1f s ago", number_at(n, "seconds"));
    printf("  %s  %s ", text_at(n, "address"), text_at(n, "version"));

    json_array_foreach(json_object_get(n, "targets"), k, t) {
        const char *id = text_at(t, "targetId");
        bool seen = false; // of several builds
        for (size_t i = 0; i < k && !seen; i++)
            seen =
                !strcmp(id, text_at(json_array_get(json_object_get(n, "targets"), i), "targetId"));
        if (seen) continue;
        printf("%s %s", before, id);
        before = ",";
    }
    putchar('\n');
}

int cmd_nodes(struct hlo *h) {
    json_t *j, *n;
    size_t k;
    if (h->argc) return usage_error("nodes takes no words");
    int rc = hlo_print(h, "ListNodes", NULL, &j);
    if (rc || !j) return rc;
    const char *cluster = text_at(j, "cluster"), *conflict = text_at(j, "conflict");
    if (!*cluster) {
        puts("no cluster: hlod --cluster nats://HOST:PORT");
    } else if (!strcmp(text_at(j, "state"), "connected")) {
        printf("cluster %s by %s\n", cluster, text_at(j, "server"));
    } else {
        printf("cluster %s is not reached for %.0f s, what follows is of before: %s\n", cluster,
               number_at(j, "seconds"), text_at(j, "why"));
    }
    json_array_foreach(json_object_get(j, "nodes"), k, n) print_node(n);
    if (*conflict) printf("another process has this node's name (--node): %s\n", conflict);
    json_decref(j);
    return 0;
}
