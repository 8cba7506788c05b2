// SPDX-License-Identifier: Apache-2.0
// hlo runs: what the server did last, and one of it as a timeline for Perfetto; the table behind
// `hlo run --profile`.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/hlo.h"

int save_trace(struct hlo *h, int64_t job, const char *path) {
    char *text;
    status_t st = hlo_open(h);
    if (st) return fail_status(st);
    const char *request = arena_printf(&h->arena, "{\"job\":%" PRId64 "}", job);
    int rc = hlod_call_json(h->hlod, "GetTrace", request, NULL, NULL, &text)
                 ? hlo_fail(h, EXIT_REFUSED)
                 : 0;
    FILE *f = rc ? NULL : strcmp(path, "-") ? fopen(path, "wbe") : stdout;
    bool ok = f && fputs(text, f) >= 0;
    if (f && f != stdout && fclose(f)) ok = false;
    if (!rc && !ok) rc = fail_status(st_new(ST_PERMISSION_DENIED, "%s cannot be written", path));
    if (!rc && f != stdout && !h->quiet)
        fprintf(stderr, "trace %s (open it in ui.perfetto.dev or chrome://tracing)\n", path);
    if (!rc) hlod_text_free(text);
    return rc;
}

static int longest_first(const void *a, const void *b) {
    double x = number_at(*(json_t *const *)a, "ms"), y = number_at(*(json_t *const *)b, "ms");
    return x < y ? 1 : x > y ? -1 : 0;
}

static void print_nodes(const json_t *row) {
    const json_t *list = json_object_get(row, "nodes"), *x;
    size_t k, shown = 0;
    json_array_foreach(list, k, x) {
        if (shown++ == 3) {
            printf(" +%zu", json_array_size(list) - 3);
            break;
        }
        printf("%s%s", k ? " " : "", json_string_value(x));
    }
    putchar('\n');
}

void print_profile(struct hlo *h, const json_t *profile) {
    enum { ROWS = 20 };
    const json_t *rows = json_object_get(profile, "rows");
    double total = number_at(profile, "totalMs"), steps = number_at(profile, "stepsMs");

    size_t n = json_array_size(rows), top = 0;
    json_t **v = arena_zarray(&h->arena, json_t *, n + 1);
    for (size_t k = 0; k < n; k++)
        if (number_at(json_array_get(rows, k), "depth") == 0) v[top++] = json_array_get(rows, k);
    qsort(v, top, sizeof *v, longest_first);

    printf("%8s %6s %9s %9s %9s %7s  %-28s %-26s %s\n", "ms", "share", "estimate", "GFLOP/s",
           "GB/s", "of peak", "step", "by", "nodes");
    for (size_t k = 0; k < top && k < ROWS; k++) {
        double ms = number_at(v[k], "ms"), peak = number_at(v[k], "ofPeak") * 100;
        printf("%8.3f %5.1f%% %9.3f %9.1f %9.1f ", ms, steps > 0 ? ms / steps * 100 : 0,
               number_at(v[k], "estimateMs"), ms > 0 ? number_at(v[k], "flops") / ms / 1e6 : 0,
               ms > 0 ? number_at(v[k], "bytes") / ms / 1e6 : 0);
        if (peak > 0)
            printf("%5.0f%%%c  ", peak, text_at(v[k], "bound")[0]);
        else
            printf("%7s  ", "");
        printf("%-28.28s %-26.26s ", text_at(v[k], "name"), text_at(v[k], "impl"));
        print_nodes(v[k]);
    }

    if (top > ROWS) printf("%zu more steps: --json or --trace FILE has them all\n", top - ROWS);
    printf("%zu steps, %.3f of %.3f ms", top, steps, total);
    if (number_at(profile, "runs") > 1)
        printf(" (medians of %.0f runs)", number_at(profile, "runs"));
    if (number_at(profile, "peakGflops") > 0)
        printf("; peak %.0f GFLOP/s, %.1f GB/s (c: bound by compute, m: by memory; above 100%%: "
               "from the caches)",
               number_at(profile, "peakGflops"), number_at(profile, "peakGbytes"));
    printf("\n");
    if (text_at(profile, "peakSource")[0]) printf("peak: %s\n", text_at(profile, "peakSource"));
}

static int list(struct hlo *h) {
    json_t *j, *r;
    size_t k;
    int rc = hlo_call(h, "ListRuns", NULL, &j);
    if (rc) return rc;
    if (list_begin(h, j, "runs", "nothing ran yet",
                   "     JOB  STARTED                  KIND     CODE                     TOTAL     "
                   "DEVICE   EXECUTABLE    MESSAGE"))
        json_array_foreach(json_object_get(j, "runs"), k, r) {
            const json_t *t, *list = json_object_get(r, "timings");
            size_t i;
            double total = 0;
            json_array_foreach(list, i, t) if (!strcmp(text_at(t, "name"), "total")) total =
                number_at(t, "ms");
            printf("%8.0f  %-24s %-8s %-19s %10.3f ms  %-8s %.12s%s%s%s%s\n", number_at(r, "job"),
                   text_at(r, "started"), text_at(r, "kind"), text_at(r, "code"), total,
                   text_at(r, "device"), text_at(r, "executable"),
                   json_is_true(json_object_get(r, "compiled")) ? "  compiled" : "",
                   json_is_true(json_object_get(r, "profiled")) ? "  profiled" : "",
                   text_at(r, "message")[0] ? "  " : "", text_at(r, "message"));
        }
    json_decref(j);
    return 0;
}

int cmd_runs(struct hlo *h) {
    const char *words[2] = {"ls"}, *out = "-", *v;
    int n = 0;
    int64_t job;
    for (int k = 0; k < h->argc; k++) {
        if ((v = option_value(h, &k, "-o")))
            out = v;
        else if (h->argv[k][0] == '-' || n == 2)
            return unknown_word(h, "runs", k);
        else
            words[n++] = h->argv[k];
    }
    if (strcmp(words[0], "ls") == 0 && n <= 1) return list(h);
    if (strcmp(words[0], "trace") == 0 && n == 2 && str_to_i64(str_of(words[1]), &job))
        return save_trace(h, job, out);
    return usage_error("runs takes ls, or trace JOB [-o FILE]");
}
