// SPDX-License-Identifier: Apache-2.0
// hlo compile: compiles, prints what was made of the model, and writes it as a file (-o).
// hlo tune: compiles where needed, and has who runs each step measured.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/store/file.h"
#include "client/files/model.h"
#include "client/files/model_inputs.h"
#include "client/files/opt_tool.h"

// What a plugin's compiler says of what it made.
static void print_plugin(const json_t *e) {
    const json_t *n = json_object_get(e, "optimized"), *m = json_object_get(e, "memory");
    printf("target       %s\nwork         %.4g flops, %s moved\n", text_at(e, "targetId"),
           number_at(e, "flops"), size_text(number_at(e, "bytesAccessed")).s);
    printf("artefact     %s\n", size_text(number_at(e, "artifactBytes")).s);
    if (n)
        printf(
            "on device    entry %.0f, total %.0f instructions, %.0f fusions, %.0f computations\n",
            number_at(n, "entry"), number_at(n, "total"), number_at(n, "fusions"),
            number_at(n, "computations"));
    if (!m) return;
    printf("memory       needs %s", size_text(number_at(m, "needed")).s);
    if (number_at(m, "limit") > 0)
        printf(" of the device's %s: %s", size_text(number_at(m, "limit")).s,
               json_is_true(json_object_get(m, "fits")) ? "fits" : "does not fit");
    printf("; arguments %s, results %s, temporaries %s, code %s",
           size_text(number_at(m, "arguments")).s, size_text(number_at(m, "results")).s,
           size_text(number_at(m, "temporaries")).s, size_text(number_at(m, "code")).s);
    putchar('\n');
}

void print_assumed(const json_t *compiled, FILE *f) {
    const json_t *s;
    size_t k;
    json_array_foreach(json_object_get(compiled, "assumed"), k, s) {
        fprintf(f, "%s%s=", k ? " " : "shapes       ", text_at(s, "input"));
        print_shape(json_object_get(s, "dims"), f);
    }
    if (!k) return;
    s = json_array_get(json_object_get(compiled, "assumed"), 0);
    fprintf(f, "  (assumed; to choose: --shape %s=", text_at(s, "input"));
    print_shape(json_object_get(s, "dims"), f);
    fputs(")\n", f);
}

// The passes that took longest, in the order in which they ran, and the others together.
static void print_passes(const json_t *executable) {
    enum { LONGEST = 6 };
    const json_t *rows = json_object_get(executable, "passes"), *row;
    double total = number_at(executable, "compileMs"), rest = 0, ms;
    size_t longest[LONGEST], n = 0, k, others = 0;
    printf("compile      %s, peak %s\n", time_text(total).s,
           size_text(number_at(executable, "compilePeakRss")).s);
    json_array_foreach(rows, k, row) {
        size_t at = n;
        for (ms = number_at(row, "ms"); at > 0; at--)
            if (ms <= number_at(json_array_get(rows, longest[at - 1]), "ms")) break;
        if (at == LONGEST || ms < total / 100) continue;
        if (n < LONGEST) n++;
        memmove(longest + at + 1, longest + at, (n - 1 - at) * sizeof *longest);
        longest[at] = k;
    }
    json_array_foreach(rows, k, row) {
        size_t at = 0;
        while (at < n && longest[at] != k)
            at++;
        ms = number_at(row, "ms");
        if (at < n)
            printf("  %-21s %9s  %5.0f -> %.0f instructions\n", text_at(row, "name"),
                   time_text(ms).s, number_at(row, "before"), number_at(row, "after"));
        else
            rest += ms, others++;
    }
    if (others) printf("  %-3zu %-17s %9s\n", others, "other passes", time_text(rest).s);
}

// What --precision fast came to.
static void print_fast(const json_t *e) {
    if (!strstr(text_at(e, "options"), "precision=fast")) return;
    const char *note = text_at(e, "precisionNote");
    const json_t *row;
    size_t k;
    if (str_starts(str_of(note), "precision ")) note += 10;
    if (*note) printf("precision    %s\n", note);
    if (!*note)
        printf("precision    fast: %.0f of %.0f convolutions and dots read bf16\n",
               number_at(e, "bf16Contractions"), number_at(e, "contractions"));
    printf("computed in ");
    json_array_foreach(json_object_get(e, "computedIn"), k, row)
        printf("%s%s %.0f", k ? ", " : " ", text_at(row, "type"), number_at(row, "count"));
    printf("\n");
}
static void print_compiled(const json_t *c) {
    const json_t *e = json_object_get(c, "executable"), *b = json_object_get(e, "before"),
                 *a = json_object_get(e, "after"), *p = json_object_get(e, "prepare"), *row;
    bool hit = json_is_true(json_object_get(c, "cacheHit"));
    size_t k;
    printf("executable   %s\nmodel        %s\n", text_at(c, "digest"), text_at(c, "sourceDigest"));
    const char *remote = text_at(c, "remote");
    printf("cache        %s%s\n",
           *remote ? "hit, not compiled: from "
           : hit   ? "hit, not compiled"
                   : "miss, compiled",
           remote);
    if (!hit)
        json_array_foreach(json_object_get(e, "remotes"), k, row)
            printf("  remote     %s: %s%s%s\n", text_at(row, "remote"), text_at(row, "outcome"),
                   *text_at(row, "why") ? ": " : "", text_at(row, "why"));
    print_assumed(c, stdout);

    printf("instructions before: entry %.0f, total %.0f; after: entry %.0f, total %.0f; prepare: "
           "%.0f\n",
           number_at(b, "entry"), number_at(b, "total"), number_at(a, "entry"),
           number_at(a, "total"), number_at(p, "entry"));
    if (!json_object_get(e, "optimized")) { // else the plugin's compiler did that, see below
        printf("fusions      %.0f\n", number_at(a, "fusions"));
        printf("memory       peak %s; all values together %s; weights %s\n",
               size_text(number_at(e, "peakBytes")).s, size_text(number_at(e, "valuesBytes")).s,
               size_text(number_at(e, "weightsBytes")).s);
    } else
        printf("weights      %s\n", size_text(number_at(e, "weightsBytes")).s);
    print_fast(e);
    print_plugin(e);
    json_array_foreach(json_object_get(c, "overBudget"), k, row)
        printf("over budget  %s\n", json_string_value(row));
    if (!hit) print_passes(e);
}

// Behind `query`: the shapes that the compile took.
static void add_assumed(struct strbuf *query, const json_t *compiled) {
    const json_t *s, *d;
    size_t k, i;
    json_array_foreach(json_object_get(compiled, "assumed"), k, s) {
        struct strbuf one = {0};
        strbuf_printf(&one, "%s=", text_at(s, "input"));
        json_array_foreach(json_object_get(s, "dims"), i, d)
            strbuf_printf(&one, "%s%lld", i ? "x" : "", (long long)json_integer_value(d));
        query_add(query, "shape", strbuf_cstr(&one));
        strbuf_done(&one);
    }
}
static int write_ahead(struct hlo *h, const char *path, const char *out, const json_t *compiled,
                       struct strbuf *query) {
    struct source src;
    struct span whole;
    status_t st = source_open(h, path, &src);
    if (!st && !src.n_parts) st = file_map(&h->arena, path, &whole);
    if (st) return fail_status(st);
    add_assumed(query, compiled);
    int rc = hlox_write(h, out, text_at(compiled, "digest"), strbuf_cstr(query),
                        text_at(json_object_get(compiled, "executable"), "targetId"),
                        src.n_parts ? src.parts : &whole, src.n_parts ? src.n_parts : 1);
    if (!rc && !h->quiet) fprintf(stderr, "written      %s\n", out);
    return rc;
}

// What each step should take; measured: and what it takes, on inputs of our own making.
static int print_explained(struct hlo *h, const char *digest, const char *source, bool measured) {
    char *text;
    int rc = stage_text(h, digest, "explain", &text);
    if (rc) return rc;
    printf("\n%s", text);
    hlod_text_free(text);
    if (!measured) return 0;
    putchar('\n');
    struct model_inputs *in = arena_zarray(&h->arena, struct model_inputs, 1);
    in->weights = source;
    rc = model_inputs_default(h, source, digest, in->v, &in->n);
    return rc ? rc : explain_measured(h, digest, in);
}

struct compile_words {
    const char *path, *trace, *out;
    const char *train; // spec: the program that trains the model instead; or NULL
    bool explain, measured;
    struct strbuf query, made; // made: what decides the executable
};
static int read_words(struct hlo *h, struct compile_words *w) {
    static const struct {
        const char *option, *key;
        bool decides;
    } keys[] = {{"--shape", "shape", true},       {"--precision", "precision", true},
                {"--target", "target", true},     {"--device", "device", false},
                {"--replicas", "replicas", true}, {"--budget", "budget", false}};

    for (int k = 0; k < h->argc; k++) {
        const char *v = NULL;
        size_t i = 0;
        while (i < sizeof keys / sizeof *keys && !(v = option_value(h, &k, keys[i].option)))
            i++;
        if (v) {
            query_add(&w->query, keys[i].key, v);
            if (keys[i].decides) query_add(&w->made, keys[i].key, v);
        } else if ((v = option_value(h, &k, "-o")))
            w->out = v;
        else if ((v = option_value(h, &k, "--trace")))
            w->trace = v;
        else if ((v = option_value(h, &k, "--train")))
            w->train = v;
        else if (strcmp(h->argv[k], "--explain") == 0)
            w->explain = true;
        else if (strcmp(h->argv[k], "--explain=measured") == 0)
            w->explain = w->measured = true;
        else if (h->argv[k][0] == '-' || w->path)
            return unknown_word(h, "compile", k);
        else
            w->path = h->argv[k];
    }

    if (!w->path) return usage_error("compile needs a model: a file, name or digest");
    bool file;
    int rc = model_is_file(w->path, &file);
    if (rc) return rc;
    if (w->train && !file) return usage_error("--train takes a model's file");
    if (w->out && !file) return usage_error("-o takes a model's file, which goes into the other");
    if (w->explain && h->json)
        return usage_error("--explain is a text: with --json see inspect --stage explain and "
                           "doctor MODEL");
    if (w->query.n && hlox_sniff(w->path))
        return usage_error("%s is compiled: it has its shapes and options", w->path);
    return 0;
}
static int tell_compiled(struct hlo *h, const struct compile_words *w, const json_t *c) {
    int rc = 0;
    if (h->json)
        print_json(c);
    else
        print_compiled(c);
    if (w->explain)
        rc = print_explained(h, text_at(c, "digest"), text_at(c, "sourceDigest"), w->measured);
    if (w->trace && !rc) rc = save_trace(h, (int64_t)number_at(c, "job"), w->trace);
    return rc ? rc : json_array_size(json_object_get(c, "overBudget")) > 0 ? EXIT_BUDGET : 0;
}

// The program that trains w->path, as a file that `made` names; the caller removes it.
static int make_training(struct hlo *h, struct compile_words *w, char made[]) {
    int fd = mkstemp(made);
    if (fd < 0) return fail_status(st_errno(errno, made));
    close(fd);
    const char *argv[] = {"--to=proto", arena_printf(&h->arena, "--train=%s", w->train), NULL};
    int rc = hlo_opt_into(h, made, argv, w->path);
    w->path = made;
    return rc;
}

int cmd_compile(struct hlo *h) {
    struct compile_words w = {0};
    char made[] = "/tmp/hlo-train.XXXXXX";
    json_t *c = NULL;
    int rc = read_words(h, &w);
    if (!rc && w.train) rc = make_training(h, &w, made);
    if (!rc) rc = compile_model(h, w.path, strbuf_cstr(&w.query), THEN_NOTHING, &c);
    if (!rc && w.out) rc = write_ahead(h, w.path, w.out, c, &w.made);
    if (!rc) rc = tell_compiled(h, &w, c);
    if (w.train && w.path == made) unlink(made);
    json_decref(c);
    strbuf_done(&w.query);
    strbuf_done(&w.made);
    return rc;
}

// ---- tune

struct tune_words {
    const char *path;
    int64_t seconds; // 0: the server's default
    struct strbuf query;
};
static int read_tune(struct hlo *h, struct tune_words *w) {
    static const char *const keys[] = {"shape", "precision", "device"};
    for (int k = 0; k < h->argc; k++) {
        const char *v = option_value(h, &k, "--seconds");
        if (v) {
            if (!str_to_i64(str_of(v), &w->seconds) || w->seconds < 1 || w->seconds > 300)
                return usage_error("--seconds: 1 to 300");
            continue;
        }
        for (size_t i = 0; i < sizeof keys / sizeof *keys && !v; i++) {
            v = option_value(h, &k, arena_printf(&h->arena, "--%s", keys[i]));
            if (v) query_add(&w->query, keys[i], v);
        }
        if (v) continue;
        if (h->argv[k][0] == '-' || w->path) return unknown_word(h, "tune", k);
        w->path = h->argv[k];
    }
    return w->path ? 0 : usage_error("tune needs a model: a file, a name or a digest");
}

// A row for each kind of step: who takes it without a tuning and who now, and the gain.
static void print_tuned(const json_t *reply) {
    const json_t *t = json_object_get(reply, "tuning"), *rows = json_object_get(t, "steps"), *s;
    size_t k, changed = 0;
    json_array_foreach(rows, k, s) changed += strcmp(text_at(s, "usual"), text_at(s, "kept")) != 0;
    printf("executable   %s\n", text_at(reply, "digest"));
    printf("tuned        %zu of %zu kinds of steps changed, measured in %s with %.0f thread%s%s\n",
           changed, k, time_text(number_at(t, "ms")).s, number_at(t, "threads"),
           number_at(t, "threads") == 1 ? "" : "s",
           json_is_true(json_object_get(t, "complete")) ? "" : "; time was too short for all");
    if (k) printf("\n%-32s %5s  %-22s %-22s %s\n", "step", "times", "usual", "kept", "gain");
    json_array_foreach(rows, k, s) {
        const json_t *names = json_object_get(s, "instructions");
        double usual = number_at(s, "usualMs"), kept = number_at(s, "keptMs");
        bool same = strcmp(text_at(s, "usual"), text_at(s, "kept")) == 0,
             only = json_array_size(json_object_get(s, "candidates")) < 2;
        char was[80], is[80];
        snprintf(was, sizeof was, "%s %s", text_at(s, "usual"), only ? "" : time_text(usual).s);
        snprintf(is, sizeof is, "%s %s", text_at(s, "kept"), time_text(kept).s);
        printf("%-32s %5zu  %-22s %-22s", json_string_value(json_array_get(names, 0)),
               json_array_size(names), was,
               only   ? "nothing else takes it"
               : same ? "the same"
                      : is);
        if (!same && kept > 0) printf(" %.2f", usual / kept);
        putchar('\n');
    }
}

int cmd_tune(struct hlo *h) {
    struct tune_words w = {0};
    json_t *c = NULL, *reply = NULL;
    int rc = read_tune(h, &w);
    if (!rc) rc = compile_model(h, w.path, strbuf_cstr(&w.query), THEN_NOTHING, &c);
    if (!rc)
        rc = hlo_call(h, "TuneExecutable",
                      json_pack("{s:s, s:I}", "digest", text_at(c, "digest"), "budgetMs",
                                (json_int_t)(w.seconds * 1000)),
                      &reply);
    if (!rc && h->json) print_json(reply);
    if (!rc && !h->json) {
        print_assumed(c, stdout);
        print_tuned(reply);
    }
    json_decref(reply);
    json_decref(c);
    strbuf_done(&w.query);
    return rc;
}
