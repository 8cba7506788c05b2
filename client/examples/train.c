// SPDX-License-Identifier: Apache-2.0
// Has the server train a model, tells of it, and fetches the result: the same model with other
// weights. It may be stopped at any time: the server goes on.
//     train MODEL OUT [ADDRESS]     the model takes x: f32[N,4] and gives y: f32[N,1]
#include <hlod_train.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 256 };

static bool show(void *ctx, const struct hlod_train_progress *p) {
    int64_t *told = ctx;
    if (p->n_losses && (p->step >= *told + 100 || p->step == p->steps)) {
        printf("step %lld of %lld: loss %.6f\n", (long long)p->step, (long long)p->steps,
               (double)p->losses[p->n_losses - 1]);
        *told = p->step;
    }
    return true; // false would stop watching; the training goes on
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

// Rows of four numbers, and of each row the number that the model is to find.
static void make_rows(float x[ROWS][4], float y[ROWS]) {
    for (int k = 0; k < ROWS; k++) {
        for (int i = 0; i < 4; i++)
            x[k][i] = (float)((k * 7 + i * 13) % 17) / 17.0f;
        y[k] = x[k][0] - 2 * x[k][1] + 3 * x[k][2] + 0.5f;
    }
}

static int start(struct hlod *h, const char *model, struct hlod_submitted **out) {
    static float x[ROWS][4], y[ROWS];
    static const int64_t dims[2] = {ROWS, 4}, one[2] = {ROWS, 1};
    char x_blob[HLOD_DIGEST_CHARS], y_blob[HLOD_DIGEST_CHARS];
    make_rows(x, y);
    if (hlod_blob_put(h, x, sizeof x, x_blob) || hlod_blob_put(h, y, sizeof y, y_blob))
        return fail(h, "rows");
    const struct hlod_job_tensor rows[] = {
        {.tensor = {.name = "x", .dtype = "f32", .rank = 2, .dims = dims}, .blob = x_blob},
        {.tensor = {.name = "label", .dtype = "f32", .rank = 2, .dims = one}, .blob = y_blob}};

    struct hlod_training t = HLOD_TRAINING;
    t.model = model;
    t.loss = "mse";
    t.optimizer = "adam:rate=3e-2";
    t.data = rows;
    t.n_data = 2;
    t.batch = 32;
    t.epochs = 60;
    return hlod_train(h, &t, out) ? fail(h, "train") : 0;
}

int main(int argc, char **argv) {
    struct hlod *h;
    struct hlod_submitted *sent;
    struct hlod_trained *r;
    struct hlod_blob *blob;
    char digest[HLOD_DIGEST_CHARS], job[64];
    int64_t told = 0;
    size_t bytes;
    void *model = argc > 2 ? read_file(argv[1], &bytes) : NULL;
    if (!model || hlod_open(argc > 3 ? argv[3] : NULL, &h)) {
        fprintf(stderr, "usage: train MODEL OUT [ADDRESS]\n");
        return 2;
    }
    if (hlod_blob_put(h, model, bytes, digest)) return fail(h, "upload");
    free(model);

    if (start(h, digest, &sent)) return 1;
    snprintf(job, sizeof job, "%s.1", sent->suite);
    hlod_submitted_free(sent);
    while (hlod_train_watch(h, job, show, &told))
        if (hlod_error(h)->code != HLOD_UNAVAILABLE) return fail(h, "watch"); // else: once more
    if (hlod_train_result(h, job, &r)) return fail(h, job);
    printf("job %s: %s, loss %.6f%s%s\n", job, r->state, r->loss, *r->error ? ": " : "", r->error);
    if (!*r->model) return 1;

    if (hlod_blob_get(h, r->model, &blob)) return fail(h, "model");
    FILE *f = fopen(argv[2], "wb");
    int rc = !f || fwrite(blob->data, 1, blob->bytes, f) != blob->bytes;
    if (f && fclose(f)) rc = 1;
    hlod_blob_free(blob);
    hlod_trained_free(r);
    hlod_close(h);
    return rc;
}
