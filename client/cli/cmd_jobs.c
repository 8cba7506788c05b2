// SPDX-License-Identifier: Apache-2.0
// hlo jobs: batch jobs on the server: list, look, follow, cancel.
#include <stdio.h>
#include <string.h>

#include "client/cli/hlo.h"

enum { PAGE = 1000 };

void print_job(const json_t *j) {
    printf("%-9s %-9s %s%s%s%s%s", text_at(j, "id"), text_at(j, "state"), text_at(j, "model"),
           *text_at(j, "target") ? " on " : "", text_at(j, "target"),
           *text_at(j, "input") ? ", " : "", text_at(j, "input"));
    if (number_at(j, "attempts") > 1) printf("  attempt %.0f", number_at(j, "attempts"));
    if (number_at(j, "runMs") > 0) printf("  %s", time_text(number_at(j, "runMs")).s);
    if (number_at(j, "instructions") > 0)
        printf("  %.0f instructions, %.0f fusions", number_at(j, "instructions"),
               number_at(j, "fusions"));
    if (*text_at(j, "node")) printf("  by %s", text_at(j, "node"));
    const json_t *t = json_object_get(j, "train");
    if (number_at(t, "steps") > 0)
        printf("  step %.0f of %.0f, loss %.4g", number_at(t, "step"), number_at(t, "steps"),
               number_at(t, "loss"));
    const json_t *e = json_object_get(j, "error");
    if (e) printf("  %s", text_at(e, "message"));
    putchar('\n');
}

// One page, or all pages of one suite.
static int list(struct hlo *h, const char *suite, const char *state) {
    const char *token = "";
    do {
        json_t *page, *j;
        size_t i;
        int rc = hlo_call(h, "ListJobs",
                          json_pack("{s:s, s:s, s:i, s:s}", "suite", suite, "state", state, "limit",
                                    *suite ? PAGE : 100, "pageToken", token),
                          &page);
        if (rc) return rc;
        if (list_begin(h, page, "jobs", "no such batch job: `hlo submit SUITE.yaml` makes some",
                       "JOB       STATE     MODEL, TARGET, INPUT"))
            json_array_foreach(json_object_get(page, "jobs"), i, j) print_job(j);
        token = *suite ? arena_strdup(&h->arena, text_at(page, "nextPageToken")) : "";
        json_decref(page);
    } while (*token);
    return 0;
}

static json_t *of_job(const char *job) {
    return json_pack("{s:s}", "job", job);
}

static int get(struct hlo *h, const char *verb, const char *job) {
    json_t *j;
    bool logs = !strcmp(verb, "logs"), whole = !strcmp(verb, "get");
    int rc = hlo_call(h, logs ? "JobLogs" : whole ? "GetJob" : "JobResult", of_job(job), &j);
    if (rc) return rc;
    if (logs && !h->json)
        fputs(text_at(j, "text"), stdout);
    else if (whole && !h->json)
        print_job(j);
    else
        print_json(j);
    json_decref(j);
    return 0;
}

static bool on_event(void *ctx, const char *event) {
    const struct hlo *h = ctx;
    json_error_t e;
    json_t *j = shown_json(h, json_loads(event, 0, &e));
    if (h->json)
        puts(event);
    else if (json_object_get(j, "job"))
        print_job(json_object_get(j, "job"));
    fflush(stdout);
    json_decref(j);
    return true;
}

static int cancel(struct hlo *h, const char *job) {
    json_t *j;
    int rc = hlo_print(h, "CancelJob", of_job(job), &j);
    if (rc || !j) return rc;
    printf("%.0f cancelled\n", number_at(j, "cancelled"));
    json_decref(j);
    return 0;
}

int cmd_jobs(struct hlo *h) {
    const char *words[2] = {"ls", ""}, *state = "", *v;
    int n = 0;
    for (int k = 0; k < h->argc; k++) {
        if ((v = option_value(h, &k, "--state")))
            state = v;
        else if (h->argv[k][0] == '-' || n == 2)
            return unknown_word(h, "jobs", k);
        else
            words[n++] = h->argv[k];
    }
    if (!strcmp(words[0], "ls")) return list(h, words[1], state);
    if (!*words[1]) return usage_error("jobs %s needs a job", words[0]);
    if (!strcmp(words[0], "watch")) return hlo_stream(h, "WatchJob", of_job(words[1]), on_event, h);
    if (!strcmp(words[0], "cancel")) return cancel(h, words[1]);
    if (!strcmp(words[0], "get") || !strcmp(words[0], "result") || !strcmp(words[0], "logs"))
        return get(h, words[0], words[1]);
    return usage_error("jobs takes ls, get, result, logs, watch or cancel");
}
