// SPDX-License-Identifier: Apache-2.0
// Submits a suite of batch jobs, follows it to its end and prints each result. Sent again with the
// same key it attaches to the suite that exists: what a restarted CI job would want.
//     jobs MODEL KEY [ADDRESS]      the model takes x: f32[1,4] and gives y = x + 1
#include <hlod_jobs.h>
#include <stdio.h>
#include <stdlib.h>

static bool show(void *ctx, const struct hlod_job *j) {
    (void)ctx;
    if (j->ended)
        printf("job %s, input %s: %s%s%s\n", j->id, j->input, j->state, *j->error ? ": " : "",
               j->error);
    return true; // false would stop watching; the jobs go on
}

static int fail(struct hlod *h, const char *what) {
    fprintf(stderr, "%s: %s\n", what, hlod_error(h)->message);
    return 1;
}

static void *read_file(const char *path, size_t *out_bytes) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    void *p = malloc((size_t)n + 1);
    *out_bytes = p ? fread(p, 1, (size_t)n, f) : 0;
    fclose(f);
    return p;
}

int main(int argc, char **argv) {
    struct hlod *h;
    char digest[HLOD_DIGEST_CHARS];
    size_t bytes;
    void *text = argc > 2 ? read_file(argv[1], &bytes) : NULL;
    if (!text || hlod_open(argc > 3 ? argv[3] : NULL, &h)) {
        fprintf(stderr, "usage: jobs MODEL KEY [ADDRESS]\n");
        return 2;
    }
    if (hlod_blob_put(h, text, bytes, digest)) return fail(h, "upload");
    free(text);

    static const int64_t dims[2] = {1, 4};
    static const float x[4] = {1, 2, 3, 4}, y[4] = {2, 3, 4, 5}, wrong[4] = {2, 3, 4, 6};
    const struct hlod_job_tensor in = {.tensor = {"x", "f32", 2, dims, x, sizeof x}};
    const struct hlod_job_tensor good = {.tensor = {"y", "f32", 2, dims, y, sizeof y}};
    const struct hlod_job_tensor bad = {.tensor = {"y", "f32", 2, dims, wrong, sizeof wrong}};
    const struct hlod_job_input inputs[] = {{"good", &in, &good, 1, 1}, {"bad", &in, &bad, 1, 1}};
    const struct hlod_job_model model = {.name = "plus", .model = digest};
    struct hlod_suite s = HLOD_SUITE;
    s.name = "example";
    s.idempotency_key = argv[2];
    s.models = &model;
    s.n_models = 1;
    s.inputs = inputs;
    s.n_inputs = 2;
    s.rtol = 1e-5;
    struct hlod_submitted *sent;
    if (hlod_jobs_submit(h, &s, &sent)) return fail(h, "submit");
    printf("suite %s\n", sent->existed ? "exists" : "is new");
    while (hlod_jobs_watch(h, sent->suite, show, NULL))
        if (hlod_error(h)->code != HLOD_UNAVAILABLE) return fail(h, "watch"); // else: once more
    for (uint32_t k = 1; k <= sent->n_jobs; k++) {
        struct hlod_outcome *o;
        char job[64];
        snprintf(job, sizeof job, "%s.%u", sent->suite, k);
        if (hlod_job_outcome(h, job, &o)) return fail(h, job);
        for (size_t c = 0; c < o->n_comparisons; c++)
            printf("%s: %s differs in %lld of %lld elements, by at most %g\n", o->state,
                   o->comparisons[c].output, (long long)o->comparisons[c].mismatches,
                   (long long)o->comparisons[c].elements, o->comparisons[c].max_abs);
        hlod_outcome_free(o);
    }
    hlod_submitted_free(sent);
    hlod_close(h);
    return 0;
}
