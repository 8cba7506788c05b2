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
        int rc =
            get_json(h,
                     arena_printf(&h->arena, "/v1/jobs?suite=%s&state=%s&limit=%d&page_token=%s",
                                  path_part(&h->arena, suite), state, *suite ? PAGE : 100, token),
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

static int get(struct hlo *h, const char *verb, const char *job) {
    json_t *j;
    const char *part = !strcmp(verb, "get") ? "" : arena_printf(&h->arena, "/%s", verb);
    int rc =
        get_json(h, arena_printf(&h->arena, "/v1/jobs/%s%s", path_part(&h->arena, job), part), &j);
    if (rc) return rc;
    if (!strcmp(verb, "logs") && !h->json)
        fputs(text_at(j, "text"), stdout);
    else if (!strcmp(verb, "get") && !h->json)
        print_job(j);
    else
        print_json(j);
    json_decref(j);
    return 0;
}

struct watch {
    struct hlo *h;
    struct strbuf line;
};
static void on_line(void *ctx, struct str line) {
    struct watch *w = ctx;
    json_error_t e;
    json_t *j = shown_json(w->h, json_loadb(line.p, line.n, 0, &e));
    if (w->h->json && line.n)
        printf(STR_FMT "\n", STR_ARG(line));
    else if (json_object_get(j, "job"))
        print_job(json_object_get(j, "job"));
    fflush(stdout);
    json_decref(j);
}
static bool on_bytes(void *ctx, struct span piece) {
    split_lines(&((struct watch *)ctx)->line, piece, on_line, ctx);
    return true;
}
static int watch(struct hlo *h, const char *job) {
    struct watch w = {.h = h};
    struct http_reply r;
    status_t st =
        http_send(h->http,
                  &(struct http_request){.method = "GET",
                                         .path = arena_printf(&h->arena, "/v1/jobs/%s/watch",
                                                              path_part(&h->arena, job)),
                                         .accept = "application/x-ndjson",
                                         .on_bytes = on_bytes,
                                         .ctx = &w},
                  &r);
    strbuf_done(&w.line);
    if (st) return fail_status(st);
    int rc = r.code < 300 ? 0 : fail_reply(&r, EXIT_REFUSED);
    http_reply_done(&r);
    return rc;
}

static int cancel(struct hlo *h, const char *job) {
    struct http_reply r;
    status_t st = http_send(h->http,
                            &(struct http_request){.method = "DELETE",
                                                   .path = arena_printf(&h->arena, "/v1/jobs/%s",
                                                                        path_part(&h->arena, job))},
                            &r);
    if (st) return fail_status(st);
    json_error_t e;
    int rc = r.code < 300 ? 0 : fail_reply(&r, EXIT_REFUSED);
    json_t *j = rc ? NULL : shown_json(h, json_loadb(strbuf_cstr(&r.body), r.body.n, 0, &e));
    if (j && h->json)
        print_json(j);
    else if (j)
        printf("%.0f cancelled\n", number_at(j, "cancelled"));
    json_decref(j);
    http_reply_done(&r);
    return rc;
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
    if (!strcmp(words[0], "watch")) return watch(h, words[1]);
    if (!strcmp(words[0], "cancel")) return cancel(h, words[1]);
    if (!strcmp(words[0], "get") || !strcmp(words[0], "result") || !strcmp(words[0], "logs"))
        return get(h, words[0], words[1]);
    return usage_error("jobs takes ls, get, result, logs, watch or cancel");
}
