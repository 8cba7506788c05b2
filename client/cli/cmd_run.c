// SPDX-License-Identifier: Apache-2.0
// hlo run: inputs from files or the command line, one request in the binary form of the Open
// Inference Protocol (JSON, then the tensors' bytes), outputs to a file or the terminal.
#include <stdio.h>
#include <stdlib.h>

#include "base/store/file.h"
#include "client/cli/hlo.h"
#include "client/files/hlox.h"
#include "client/files/input.h"
#include "client/files/model_inputs.h"
#include "client/files/tensors.h"

enum { MAX_INPUTS = MODEL_INPUTS_MAX, MAX_LABELS = 64 << 20 };
struct run {
    const char *model, *out, *trace, *labels, *device;
    const char *shaped;  // the executable in whose shapes inputs are made up, or NULL
    const char *weights; // with an executable: the model whose weights it takes, or NULL
    int repeat, top, replicas;
    bool profile;
    struct npy in[MAX_INPUTS];
    int n_in;
    struct residents resident;
    struct npy *results;
    int n_results;
};

static const char *named_as(const struct run *r) {
    return r->weights ? r->weights : r->model;
}
static bool makes_inputs(const struct run *r) {
    return !r->n_in && !r->resident.n_in && r->replicas <= 1;
}
// Nobody gave an input: a run to see whether, and how fast, the model runs.
static int made_up_inputs(struct hlo *h, struct run *r) {
    if (!makes_inputs(r)) return 0;
    int rc = model_inputs_default(h, named_as(r), r->shaped, r->in, &r->n_in);
    for (int k = 0; k < r->n_in && !rc && !h->quiet; k++) {
        fprintf(stderr, "input %s ", r->in[k].name);
        for (int d = 0; d < r->in[k].rank; d++)
            fprintf(stderr, "%s%lld", d ? "x" : "", (long long)r->in[k].dims[d]);
        fprintf(stderr, "%s made up (give it with -i %s=VALUE)\n", r->in[k].rank ? "," : "scalar,",
                r->in[k].name);
    }
    return rc;
}

// A file that exists is a model to upload first; anything else must be a digest.
static int resolve_model(struct hlo *h, struct run *r) {
    bool file;
    int rc = model_is_file(r->model, &file);
    if (rc || !file) return rc;

    struct strbuf q = {0};
    for (int k = 0; k < r->n_in; k++) {
        if (!r->in[k].descr[0]) continue; // of a .hlox, which knows its shapes
        struct strbuf one = {0};
        strbuf_printf(&one, "%s=", r->in[k].name);
        int first = r->replicas > 1; // of a replica's own part
        for (int d = first; d < r->in[k].rank; d++)
            strbuf_printf(&one, "%s%lld", d > first ? "x" : "", (long long)r->in[k].dims[d]);
        query_add(&q, "shape", strbuf_cstr(&one));
        strbuf_done(&one);
    }

    if (r->device) strbuf_printf(&q, "%sdevice=%s", q.n ? "&" : "", r->device);
    if (r->replicas > 1) strbuf_printf(&q, "%sreplicas=%d", q.n ? "&" : "", r->replicas);
    json_t *c = NULL;
    rc = compile_model(h, r->model, strbuf_cstr(&q), makes_inputs(r) ? THEN_TRY : THEN_RUN, &c);
    strbuf_done(&q);
    if (rc) return rc;

    bool whole = text_at(c, "digest")[0];
    if (!h->quiet && whole)
        fprintf(stderr, "executable %s (%s)\n", text_at(c, "digest"),
                json_is_true(json_object_get(c, "cacheHit")) ? "cached" : "compiled");
    // Models that differ in weights or names share an executable: it is run as the one in the file.
    const char *executable = arena_strdup(&h->arena, text_at(c, "digest")),
               *source = arena_strdup(&h->arena, text_at(c, "sourceDigest"));
    if (whole) r->shaped = executable;
    bool exactly = whole && hlox_sniff(r->model);
    r->model = exactly ? executable : source;
    r->weights = exactly ? source : NULL;
    json_decref(c);
    return 0;
}

static json_t *request_json(const struct run *r) {
    json_t *options = json_object();
    if (r->profile || r->trace) json_object_set_new(options, "profile", json_true());
    if (r->repeat > 1) json_object_set_new(options, "repeat", json_integer(r->repeat));
    if (r->device) json_object_set_new(options, "device", json_string(r->device));
    if (r->replicas > 1)
        json_object_set_new(options, "compile", json_pack("{s:i}", "replicas", r->replicas));
    json_t *q = json_pack("{s:s, s:o}", "model", r->model, "options", options);
    if (r->weights) json_object_set_new(q, "weights", json_string(r->weights));
    resident_outputs(&r->resident, q);
    return q;
}

// The k-th largest after `before` (-1: the first), ties by index; -1 = none is left.
static int64_t next_largest(const float *v, int64_t n, int64_t before) {
    int64_t best = -1;
    for (int64_t e = 0; e < n; e++) {
        bool below = before < 0 || v[e] < v[before] || (v[e] == v[before] && e > before);
        if (below && (best < 0 || v[e] > v[best])) best = e;
    }
    return best;
}

// Line k of the text, from 0; its number where there is none.
static struct str label(struct arena *a, struct str text, int64_t k) {
    struct str line;
    for (int64_t e = 0; str_cut(&text, '\n', &line); e++)
        if (e == k) return line;
    return str_of(arena_printf(a, "%lld", (long long)k));
}

static status_t print_top(struct arena *a, const struct npy *x, int top, const char *labels) {
    const float *v = x->data;
    int64_t n = (int64_t)x->size_bytes / 4, best = -1;
    struct str text = {0};
    if (labels) RETURN_IF_ERR(file_read(a, labels, MAX_LABELS, NULL, &text));
    for (int k = 0; k < top && (best = next_largest(v, n, best)) >= 0; k++) {
        struct str name = label(a, text, best);
        printf("%.3f  " STR_FMT "\n", (double)v[best], STR_ARG(name));
    }
    return ST_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static status_t print_summary(struct hlo *h, const json_t *j, const struct run *r) {
    const json_t *times = json_object_get(j, "runMs");
    size_t n = json_array_size(times);
    double *t = arena_zarray(&h->arena, double, n + 1);
    for (size_t k = 0; k < n; k++)
        t[k] = json_number_value(json_array_get(times, k));
    if (n) qsort(t, n, sizeof *t, by_value);
    if (n)
        fprintf(stderr, "run %.3f ms%s on %s; working memory %s, weights %s\n", t[n / 2],
                n > 1 ? arena_printf(&h->arena, " (median of %zu)", n) : "", text_at(j, "device"),
                size_text(number_at(j, "peakBytes")).s, size_text(number_at(j, "preparedBytes")).s);
    if (*text_at(j, "precisionNote")) fprintf(stderr, "%s\n", text_at(j, "precisionNote"));
    for (int k = 0; k < r->n_results && !r->out && !r->top; k++)
        tensor_print(&r->results[k]);
    tensors_print_kept(j);
    if (r->top && r->n_results && strcmp(r->results[0].descr, "<f4") == 0)
        RETURN_IF_ERR(print_top(&h->arena, &r->results[0], r->top, r->labels));
    return ST_OK;
}

static int send_run(struct hlo *h, struct run *r) {
    struct tensors_reply reply;
    int rc =
        tensors_call(h, "RunUnary", request_json(r), r->in, r->n_in, &r->resident, r->out, &reply);
    r->results = reply.v;
    r->n_results = reply.n;
    if (!rc && h->json && !reply.printed)
        print_json(reply.head);
    else if (!rc && !reply.printed) {
        status_t st = print_summary(h, reply.head, r);
        if (st) rc = fail_status(st);
        if (!rc && r->profile) print_profile(h, json_object_get(reply.head, "profile"));
    }
    if (!rc && r->trace) rc = save_trace(h, (int64_t)number_at(reply.head, "job"), r->trace);
    json_decref(reply.head);
    return rc;
}

status_t image_option(struct hlo *h, int *k, struct image_options *o, bool *out_taken) {
    const char *v;
    *out_taken = true;
    if ((v = option_value(h, k, "--size"))) return input_size(v, o);
    if ((v = option_value(h, k, "--mean"))) return input_channels(v, o->mean);
    if ((v = option_value(h, k, "--std"))) {
        RETURN_IF_ERR(input_channels(v, o->std));
        if (o->std[0] == 0 || o->std[1] == 0 || o->std[2] == 0)
            return st_new(ST_INVALID_ARGUMENT, "--std: zero");
    } else if ((v = option_value(h, k, "--crop"))) {
        if (!str_to_f64(str_of(v), &o->crop) || !(o->crop > 0 && o->crop <= 1))
            return st_new(ST_INVALID_ARGUMENT, "--crop: expected a part of the short side, (0, 1]");
    } else if ((v = option_value(h, k, "--layout"))) {
        o->nhwc = strcmp(v, "nhwc") == 0;
        if (!o->nhwc && strcmp(v, "nchw") != 0)
            return st_new(ST_INVALID_ARGUMENT, "--layout: expected nchw or nhwc");
    } else
        *out_taken = false;
    return ST_OK;
}

static status_t read_inputs(struct hlo *h, struct run *r, const char *const *words, int n,
                            const struct image_options *o) {
    for (; r->n_in < n; r->n_in++) {
        struct npy *x = &r->in[r->n_in];
        if (r->replicas <= 1 && input_untyped(&h->arena, words[r->n_in], x)) continue;
        RETURN_IF_ERR(input_parse(&h->arena, words[r->n_in], o, x));
        RETURN_IF_ERR(input_sendable(x));
    }
    return ST_OK;
}

int cmd_run(struct hlo *h) {
    struct run r = {.repeat = 1};
    struct image_options o = {.std = {1, 1, 1}};
    const char *v, *inputs[MAX_INPUTS];
    int n_inputs = 0, counted;

    for (int k = 0; k < h->argc; k++) {
        bool taken;
        status_t st = image_option(h, &k, &o, &taken);
        if (st) return fail_status(st);
        if (!taken) st = resident_option(h, &k, &r.resident, &taken);
        if (st) return fail_status(st);
        if (taken) continue;
        if ((v = option_value(h, &k, "-i"))) {
            if (n_inputs == MAX_INPUTS) return usage_error("more than %d inputs", MAX_INPUTS);
            inputs[n_inputs++] = v;
        } else if ((v = option_value(h, &k, "-o")))
            r.out = v;
        else if ((v = option_value(h, &k, "--trace")))
            r.trace = v;
        else if (strcmp(h->argv[k], "--profile") == 0)
            r.profile = true;
        else if ((v = option_value(h, &k, "--labels")))
            r.labels = v;
        else if ((v = option_value(h, &k, "--device")))
            r.device = v;
        else if ((counted = option_count(h, &k, "--repeat", 1, 1000000, &r.repeat)) ||
                 (counted = option_count(h, &k, "--replicas", 1, 1 << 16, &r.replicas)) ||
                 (counted = option_count(h, &k, "--top", 1, 1000, &r.top))) {
            if (counted < 0) return EXIT_USAGE;
        } else if (h->argv[k][0] == '-' || r.model)
            return unknown_word(h, "run", k);
        else
            r.model = h->argv[k];
    }

    if (!r.model) return usage_error("run needs a model: a file, name or digest");
    bool scaled = false;
    status_t st = tensors_can_write(r.out);
    if (!st) st = input_scale(&o, &scaled);
    if (!st && scaled && !h->quiet)
        fputs("pictures: --mean and --std are taken of values from 0 to 1\n", stderr);
    if (!st) st = read_inputs(h, &r, inputs, n_inputs, &o);
    if (st) return fail_status(st);

    bool later = hlox_sniff(r.model); // its executable says the shapes
    int rc = later ? 0 : model_inputs_fit(h, r.model, NULL, inputs, r.in, r.n_in);
    if (!rc) rc = resolve_model(h, &r);
    if (!rc && later) rc = model_inputs_fit(h, named_as(&r), r.shaped, inputs, r.in, r.n_in);
    if (!rc) rc = made_up_inputs(h, &r);
    return rc ? rc : send_run(h, &r);
}
