// SPDX-License-Identifier: Apache-2.0
// How the server and its devices are (devices, health, doctor), and why a model is as slow as it is
// (doctor MODEL, compile --explain=measured): profiled runs, the time of each step beside what the
// cost model expects of it on this machine. A step that takes more than ten times that, and what
// ran by a fallback, is named.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "client/cli/hlo.h"
#include "client/files/model_inputs.h"
#include "client/files/tensors.h"

enum { WAIT_PAUSE_MS = 100 }; // between two questions of health --wait

static const char *device_state(const json_t *d) {
    return json_is_true(json_object_get(d, "drained")) ? "drained" : text_at(d, "state");
}

int cmd_devices(struct hlo *h) {
    json_t *j, *d;
    size_t k;
    int rc = hlo_print(h, "ListDevices", NULL, &j);
    if (rc || !j) return rc;
    json_array_foreach(json_object_get(j, "devices"), k, d)
        printf("%-8s %-9s threads %.0f  memory %s  resident %s  buffers %s  "
               "%s%s%s\n",
               text_at(d, "name"), device_state(d), number_at(d, "threads"),
               size_text(number_at(d, "memoryBytes")).s, size_text(number_at(d, "preparedBytes")).s,
               size_text(number_at(d, "bufferBytes")).s, text_at(d, "targetId"),
               text_at(d, "why")[0] ? "  " : "", text_at(d, "why"));
    json_decref(j);
    return 0;
}

static bool device_up(const json_t *d) {
    const char *state = device_state(d);
    return strcmp(state, "ready") == 0 || strcmp(state, "busy") == 0;
}
static void print_server(const struct hlo *h, const json_t *version, const json_t *j) {
    const json_t *d;
    size_t k;
    const char *theirs = text_at(version, "version");
    printf("server     %s at %s, API %s%s\n", theirs, h->addr, text_at(version, "api"),
           strcmp(theirs, HLOD_VERSION) ? "; this hlo is " HLOD_VERSION : "");
    json_array_foreach(json_object_get(j, "devices"), k, d) {
        bool up = device_up(d);
        printf("device     %s is %s, %.0f restarts%s%s\n", text_at(d, "name"), device_state(d),
               number_at(d, "restarts"), !up && *text_at(d, "why") ? ": " : "",
               up ? "" : text_at(d, "why"));
    }
    const char *filter = text_at(j, "workerFilter");
    bool on = strcmp(filter, "on") == 0;
    printf("filter     %s",
           on ? "on: workers cannot open files or sockets or start programs\n" : filter);
    json_array_foreach(on ? NULL : json_object_get(j, "devices"), k, d) {
        bool open = *text_at(d, "filter") && strcmp(text_at(d, "filter"), "on") != 0;
        if (open) printf("; in %s", text_at(d, "name"));
    }
    if (!on) puts(": a model that breaks into such a worker can open files");
}
static int doctor_server(struct hlo *h) {
    json_t *version = NULL, *j = NULL, *d;
    size_t k;
    int rc = hlo_call(h, "Version", NULL, &version), ready = 0, down = 0;
    if (!rc) rc = hlo_call(h, "ListDevices", NULL, &j);
    json_array_foreach(json_object_get(j, "devices"), k, d) {
        ready += device_up(d);
        down += !device_up(d) && strcmp(device_state(d), "waiting") != 0;
    }
    const char *verdict = !ready ? "no device is ready"
                          : down ? "not all devices are ready"
                                 : "all well";
    if (!rc && h->json) {
        json_t *all = json_pack("{s:s, s:O, s:s}", "verdict", verdict, "server", version, "hlo",
                                HLOD_VERSION);
        json_object_update(all, j);
        print_json(all);
        json_decref(all);
    } else if (!rc) {
        print_server(h, version, j);
        puts(verdict);
    }
    json_decref(version);
    json_decref(j);
    return rc ? rc : ready ? 0 : EXIT_BUSY;
}

// Asks until it is ready, or until_ns; what the last answer was is the caller's to ask again.
static void wait_until_ready(struct hlo *h, int64_t until_ns) {
    for (bool ready = false; !ready && clock_ns() < until_ns;) {
        json_t *j = hlo_try(h, "Health", NULL);
        ready = json_is_true(json_object_get(j, "ready"));
        json_decref(j);
        if (!ready) nanosleep(&(struct timespec){.tv_nsec = WAIT_PAUSE_MS * 1000000L}, NULL);
    }
}

int cmd_health(struct hlo *h) {
    int64_t wait_ms = 0;
    const char *v;
    json_t *j;
    for (int k = 0; k < h->argc; k++) {
        if (!(v = option_value(h, &k, "--wait"))) return unknown_word(h, "health", k);
        if (!parse_duration(v, &wait_ms)) return usage_error("--wait: as in 30s, 5m");
    }
    if (wait_ms) wait_until_ready(h, clock_ns() + clock_of_ms(wait_ms));
    int rc = hlo_call(h, "Health", NULL, &j);
    if (rc) return rc;
    bool ready = json_is_true(json_object_get(j, "ready"));
    if (h->json)
        print_json(j);
    else
        puts(text_at(j, "message"));
    json_decref(j);
    return ready ? EXIT_OK : EXIT_BUSY;
}

// ---- a model

// Profiles, of which each is the median of several runs; the least of them: a machine has other
// work.
enum { PROFILES = 3, SHOWN = 12 };
#define CLIFF       10.0 // times the estimate
#define WORTH_SHARE 0.02 // of the run: less is not told

struct step {
    const json_t *row;
    double ms, estimate_ms; // estimate_ms 0: not known
};
static int slowest_first(const void *a, const void *b) {
    double x = ((const struct step *)a)->ms, y = ((const struct step *)b)->ms;
    return (x < y) - (x > y);
}
static int by_impl(const void *a, const void *b) {
    return strcmp(text_at(((const struct step *)a)->row, "impl"),
                  text_at(((const struct step *)b)->row, "impl"));
}

// Why a step by this implementation may be slow; NULL: nothing known against it.
static const char *last_resort(const json_t *row) {
    const char *impl = text_at(row, "impl"), *op = text_at(row, "name");
    if (strstr(impl, "reference")) return "no kernel takes it: the reference evaluator runs it";
    if (strstr(impl, ":ref")) return "the library has only its plain loops for this";
    if (strcmp(impl, "kernel") == 0 && (!strncmp(op, "dot", 3) || !strncmp(op, "convolution", 11)))
        return "a contraction that the library does not take: loops over its elements";
    if (strcmp(impl, "control") == 0)
        return "a loop or branch: its steps are in run --profile --json";
    return NULL;
}

static void print_step(const struct step *s, double total) {
    const json_t *node = json_array_get(json_object_get(s->row, "nodes"), 0);
    const char *why = last_resort(s->row);
    printf("%10s %5.1f%%  ", time_text(s->ms).s, total > 0 ? s->ms / total * 100 : 0);
    if (s->estimate_ms > 0)
        printf("%10s %6.1f times  ", time_text(s->estimate_ms).s, s->ms / s->estimate_ms);
    else
        printf("%23s  ", "");
    printf("%-24.24s %-26.26s %s\n", text_at(s->row, "name"), text_at(s->row, "impl"),
           json_is_string(node) ? json_string_value(node) : text_at(s->row, "op"));
    if (why) printf("%43s%s\n", "", why);
}

static void print_impls(struct step *v, size_t n, double total) {
    qsort(v, n, sizeof *v, by_impl);
    puts("\ntime by implementation");
    for (size_t k = 0, end; k < n; k = end) {
        double ms = 0;
        for (end = k; end < n && by_impl(&v[k], &v[end]) == 0; end++)
            ms += v[end].ms;
        printf("%10s %5.1f%%  %4zu step%s  %s\n", time_text(ms).s, total > 0 ? ms / total * 100 : 0,
               end - k, end - k == 1 ? " " : "s", text_at(v[k].row, "impl"));
    }
}

static double least(const json_t *const *profiles, size_t row) {
    double ms = 0;
    for (int k = 0; k < PROFILES; k++) {
        const json_t *r = json_array_get(json_object_get(profiles[k], "rows"), row);
        if (r && (ms == 0 || number_at(r, "ms") < ms)) ms = number_at(r, "ms");
    }
    return ms;
}

static void print_findings(struct hlo *h, const json_t *const *profiles) {
    const json_t *rows = json_object_get(profiles[0], "rows"), *r;
    struct step *v = arena_array(&h->arena, struct step, json_array_size(rows) + 1);
    double total = 0, estimate = 0;
    size_t n = 0, i, told = 0;
    json_array_foreach(rows, i, r) {
        if (number_at(r, "depth") > 0) continue;
        v[n] = (struct step){r, least(profiles, i), number_at(r, "estimateMs")};
        estimate += v[n].estimate_ms;
        total += v[n++].ms;
    }

    printf("steps      %zu, together %s (of each step the shortest of %d medians of %.0f runs)", n,
           time_text(total).s, PROFILES, number_at(profiles[0], "runs"));
    if (estimate > 0) printf("; estimated at %s", time_text(estimate).s);
    putchar('\n');
    print_impls(v, n, total);

    qsort(v, n, sizeof *v, slowest_first);
    puts("\nlongest steps: measured, share, estimated, their ratio; step, what runs it, its node");
    for (size_t k = 0; k < n && k < SHOWN; k++)
        print_step(&v[k], total);

    for (size_t k = 0; k < n && told < SHOWN; k++) {
        bool cliff = v[k].estimate_ms > 0 && v[k].ms > CLIFF * v[k].estimate_ms;
        if (v[k].ms < WORTH_SHARE * total || !(cliff || strstr(text_at(v[k].row, "impl"), "ref")))
            continue;
        if (!told++)
            printf("\nworth a report: more than %.0f times the estimate, or by a fallback\n",
                   CLIFF);
        print_step(&v[k], total);
    }
    if (!told) puts("\nno step is far from its estimate");
}

static int profiled(struct hlo *h, const char *model, const struct model_inputs *in, json_t **out) {
    struct tensors_reply r;
    json_t *q = json_pack("{s:s, s:{s:b}}", "model", model, "options", "profile", 1);
    if (in->weights) json_object_set_new(q, "weights", json_string(in->weights));
    bool json = h->json;
    h->json = false; // the caller prints
    int rc = tensors_call(h, "RunUnary", q, in->v, in->n, NULL, NULL, &r);
    h->json = json;
    *out = r.head;
    return rc;
}

int explain_measured(struct hlo *h, const char *model, const struct model_inputs *in) {
    json_t *replies[PROFILES] = {NULL};
    const json_t *profiles[PROFILES];
    int rc = 0;
    for (int k = 0; k < PROFILES && !rc; k++) {
        rc = profiled(h, model, in, &replies[k]);
        profiles[k] = json_object_get(replies[k], "profile");
    }
    if (!rc && h->json) {
        print_json(profiles[PROFILES - 1]);
    } else if (!rc) {
        printf("model      %s on %s\n", model, text_at(replies[0], "device"));
        print_findings(h, profiles);
    }
    for (int k = 0; k < PROFILES; k++)
        json_decref(replies[k]);
    return rc;
}
static int doctor_model(struct hlo *h, const char *model, struct model_inputs *in) {
    int rc = model_inputs_read(h, &model, in);
    return rc ? rc : explain_measured(h, model, in);
}

int cmd_doctor(struct hlo *h) {
    struct model_inputs in = {.n = 0};
    const char *model = NULL, *v;
    for (int k = 0; k < h->argc; k++) {
        if ((v = option_value(h, &k, "-i"))) {
            if (!model_inputs_add(&in, v))
                return usage_error("more than %d inputs", MODEL_INPUTS_MAX);
        } else if (h->argv[k][0] == '-' || model)
            return unknown_word(h, "doctor", k);
        else
            model = h->argv[k];
    }
    return model ? doctor_model(h, model, &in) : doctor_server(h);
}
