// SPDX-License-Identifier: Apache-2.0
// hlo tenants: who shares the server's devices, what they may use and have used.
#include <stdio.h>

#include "client/cli/hlo.h"

static const char *limit(struct hlo *h, const json_t *t, const char *field, const char *unit) {
    double v = number_at(t, field);
    return v > 0 ? arena_printf(&h->arena, "  %.0f %s", v, unit) : "";
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
        limit(h, t, "runsAMinute", "runs/min"), limit(h, t, "bytesAMinute", "bytes/min"),
        limit(h, t, "maxPlaces", "places"));
    json_decref(j);
    return 0;
}
