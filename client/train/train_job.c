// SPDX-License-Identifier: Apache-2.0
// hlo train --job: model and rows go to the server, which trains alone; hlo tells of it while it
// waits, and brings the model and the last state. A lost connection, or a restart of the daemon,
// only makes the waiting begin again; interrupted, the job goes on.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/store/file.h"
#include "client/files/input.h"
#include "client/hlod_train.h"
#include "client/train/train.h"
#include "proto/numbers.h"

enum { IN_ONE = 64 << 20, PATIENCE_S = 300, MOST = 1024 };

// ---- what goes to the server

static int put_bytes(struct hlo *h, const void *data, size_t n, const char **digest) {
    char hex[HLOD_DIGEST_CHARS];
    struct hlod_bytes all = {data, n};
    status_t st = hlo_open(h);
    if (st) return fail_status(st);
    if (n > IN_ONE ? hlod_upload(h->hlod, &all, 1, NULL, NULL, hex)
                   : hlod_blob_put(h->hlod, data, n, hex))
        return hlo_fail(h, EXIT_REFUSED);
    *digest = arena_strdup(&h->arena, hex);
    return 0;
}
static int put_tensors(struct train *t, const char *const *words, int n, bool by_rows,
                       struct hlod_job_tensor **out) {
    struct hlo *h = t->h;
    struct npy *v = arena_zarray(&h->arena, struct npy, MAX_DATA);
    struct hlod_job_tensor *x = *out = arena_zarray(&h->arena, struct hlod_job_tensor, n + 1);
    int64_t rows = 0;
    status_t st = train_read_rows(t, words, n, v, by_rows ? &rows : NULL);
    if (st) return fail_status(st);
    for (int k = 0; k < n; k++) {
        const char *datatype = input_type(&v[k]);
        const struct dtype_row *type = datatype ? numbers_dtype(str_of(datatype)) : NULL;
        if (!type || type->cls == NUM_STRING)
            return fail_status(st_invalid("'%s' must be of numbers", v[k].name));
        x[k].tensor = (struct hlod_tensor){
            .name = v[k].name, .dtype = type->name, .rank = v[k].rank, .dims = v[k].dims};
        int rc = put_bytes(h, v[k].data, v[k].size_bytes, &x[k].blob);
        if (rc) return rc;
    }
    return 0;
}
static int put_model(struct train *t, const char **out) {
    char hex[65];
    bool file;
    int rc = model_is_file(t->model, &file);
    if (rc) return rc;
    *out = t->model; // a digest or a name
    if (!file) return 0;
    rc = upload_model(t->h, t->model, hex);
    *out = arena_strdup(&t->h->arena, hex);
    return rc;
}

static int start(struct train *t, const char **job) {
    struct hlo *h = t->h;
    struct hlod_training q = HLOD_TRAINING;
    struct hlod_job_tensor *data, *held, *whole;
    struct hlod_submitted *s;
    int rc = put_model(t, &q.model);
    if (!rc) rc = put_tensors(t, t->data, t->n_data, true, &data);
    if (!rc) rc = put_tensors(t, t->held, t->n_held, true, &held);
    if (!rc) rc = put_tensors(t, t->whole, t->n_whole, false, &whole);
    if (!rc && t->resume) {
        struct span state;
        status_t st = file_map(&h->arena, t->resume, &state);
        rc = st ? fail_status(st) : put_bytes(h, state.p, state.n, &q.resume);
    }
    if (rc) return rc;

    char key[64]; // a client that sends again must not train twice
    snprintf(key, sizeof key, "%d;%lld", (int)getpid(), (long long)clock_wall_ns());
    q.idempotency_key = key;
    q.data = data, q.n_data = (size_t)t->n_data;
    q.validation = held, q.n_validation = (size_t)t->n_held;
    q.settings = t->sets, q.n_settings = (size_t)t->n_sets;
    q.loss = t->loss, q.optimizer = t->optimizer, q.schedule = t->schedule;
    q.batch = (uint32_t)t->batch, q.epochs = (uint32_t)t->epochs, q.steps = (uint64_t)t->steps;
    q.seed = t->seed, q.in_order = t->in_order, q.patience = (uint32_t)t->patience;
    q.checkpoint_steps = (uint64_t)t->every;
    q.whole = whole, q.n_whole = (size_t)t->n_whole;
    q.window = (uint32_t)t->window;
    q.device = t->device, q.precision = t->precision;
    const char *slash = strrchr(t->model, '/');
    q.name = slash ? slash + 1 : t->model;
    enum hlod_code code = hlod_train(h->hlod, &q, &s);
    for (int tries = 0; code == HLOD_UNAVAILABLE && tries < 2; tries++) {
        sleep(1);
        code = hlod_train(h->hlod, &q, &s);
    }
    if (code) return hlo_fail(h, EXIT_REFUSED);
    *job = arena_printf(&h->arena, "%s.1", s->suite);
    hlod_submitted_free(s);
    return 0;
}

// ---- waiting

struct wait {
    struct train *t;
    char checkpoint[HLOD_DIGEST_CHARS];
    int64_t validated, reached_ns;
    int64_t told; // steps
    bool accuracy; // the loss has one
    bool over;
};
static bool stop(UNUSED void *ctx) {
    return train_interrupted();
}
static void tell_checkpoint(struct wait *w, const struct hlod_train_progress *p) {
    if (!*p->checkpoint || strcmp(p->checkpoint, w->checkpoint) == 0) return;
    snprintf(w->checkpoint, sizeof w->checkpoint, "%s", p->checkpoint);
    if (!w->t->h->json) return;
    printf("{\"event\":\"checkpoint\",\"step\":%lld,\"digest\":\"%s\"}\n",
           (long long)p->checkpoint_step, p->checkpoint);
    fflush(stdout);
}
// Steps up to `to` that were made while nobody watched, from the curve: a point of it is a step, or
// the mean of several.
static void tell_missed(struct wait *w, const struct hlod_train_progress *p, int64_t to) {
    if (w->told > p->step) w->told = to; // an attempt began again
    for (size_t k = 0; k < p->n_curve; k++) {
        int64_t step = (int64_t)p->curve[k][0];
        if (step <= w->told || step > to) continue;
        if (w->t->h->json) {
            printf("{\"event\":\"%s\",\"step\":%lld,\"loss\":%.9g",
                   step == w->told + 1 ? "step" : "curve", (long long)step, p->curve[k][1]);
            if (w->accuracy) printf(",\"accuracy\":%.9g", p->curve[k][2]);
            puts("}");
        }
        w->told = step;
    }
    if (w->told < to) w->told = to;
}
static void tell_new(struct wait *w, const struct hlod_train_progress *p, size_t n) {
    struct train *t = w->t;
    bool accuracy = p->n_accuracies > 0;
    memcpy(t->losses, p->losses, n * sizeof *p->losses);
    memset(t->accuracy, 0, MOST * sizeof *t->accuracy);
    if (p->n_accuracies == n) memcpy(t->accuracy, p->accuracies, n * sizeof *t->accuracy);
    t->per_step_ms = p->step_ms;
    t->batch = (int)(p->examples_per_s * p->step_ms / 1e3 + 0.5);
    t->saved = (int64_t)n;
    w->told = p->step;
    train_tell_steps(t, p->step - (int64_t)n, (int64_t)n, p->step_ms, accuracy);
    train_tell_line(t, p->steps_per_epoch, (int64_t)n, accuracy,
                    !t->n_held && (p->step % p->steps_per_epoch == 0 || p->step == p->steps));
}
static bool on_progress(void *ctx, const struct hlod_train_progress *p) {
    struct wait *w = ctx;
    struct train *t = w->t;
    size_t n = p->n_losses < MOST ? p->n_losses : MOST;
    w->reached_ns = clock_ns();
    w->over = p->ended;
    t->step = p->step;
    t->end = p->steps;
    if (p->validation_step) t->n_held = 1; // of a job that is attached to, too
    t->held_loss = p->validation_loss, t->held_accuracy = p->validation_accuracy;

    w->accuracy |= p->n_accuracies > 0 || p->validation_accuracy > 0;
    for (size_t k = 0; k < p->n_curve && !w->accuracy; k++)
        w->accuracy = p->curve[k][2] > 0;
    tell_missed(w, p, p->step - (int64_t)n);
    if (n) tell_new(w, p, n);
    if (p->validation_step > w->validated) {
        w->validated = p->validation_step;
        train_tell_validation(t, w->accuracy);
        train_tell_line(t, p->steps_per_epoch, t->saved, w->accuracy, true);
    }
    tell_checkpoint(w, p);
    return !train_interrupted();
}
// Until it has ended. A broken stream begins again.
static int wait_for_end(struct train *t, const char *job) {
    struct hlo *h = t->h;
    struct wait w = {.t = t, .reached_ns = clock_ns()};
    status_t st = hlo_open(h);
    if (st) return fail_status(st);
    hlod_set_stop(h->hlod, stop, NULL);
    while (!w.over && !train_interrupted()) {
        enum hlod_code code = hlod_train_watch(h->hlod, job, on_progress, &w);
        bool lost =
            code == HLOD_UNAVAILABLE && clock_ns() - w.reached_ns < PATIENCE_S * 1000000000ll;
        if (code && code != HLOD_CANCELLED && !lost) return hlo_fail(h, EXIT_RUN);
        if (!code) w.over = true;
        if (lost && !train_interrupted()) sleep(1);
    }
    hlod_set_stop(h->hlod, NULL, NULL);
    if (w.over) return 0;
    fprintf(stderr,
            "%shlo: interrupted; the training goes on as job %s: `hlo train --attach %s -o "
            "FILE.onnx` waits for it, `hlo jobs cancel %s` ends it\n",
            h->tty ? "\r\033[K" : "", job, job, job);
    return EXIT_INTERRUPTED;
}

// ---- what comes back

static int fetch(struct hlo *h, const char *digest, const char *path) {
    struct hlod_blob *b;
    char *part = arena_printf(&h->arena, "%s.part", path);
    if (hlod_blob_get(h->hlod, digest, &b)) return hlo_fail(h, EXIT_RUN);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    status_t st = fd < 0 ? st_errno(errno, part) : file_write(fd, b->data, b->bytes, part);
    if (fd >= 0 && close(fd) && !st) st = st_errno(errno, part);
    if (!st && rename(part, path)) st = st_errno(errno, path);
    if (st) unlink(part);
    hlod_blob_free(b);
    return st ? fail_status(st) : 0;
}
static int bring(struct train *t, const char *job) {
    struct hlo *h = t->h;
    struct hlod_trained *r;
    int rc = 0;
    if (hlod_train_result(h->hlod, job, &r)) return hlo_fail(h, EXIT_RUN);
    if (t->checkpoint && *r->checkpoint) rc = fetch(h, r->checkpoint, t->checkpoint);
    if (!rc && strcmp(r->state, "passed") != 0) {
        fprintf(stderr, "hlo: job %s: %s%s%s\n", job, r->state, *r->error ? ": " : "", r->error);
        rc = EXIT_RUN;
    }
    if (!rc && t->out) rc = fetch(h, r->model, t->out);
    if (!rc && h->json)
        printf("{\"event\":\"trained\",\"job\":\"%s\",\"model\":\"%s\",\"checkpoint\":\"%s\"}\n",
               job, r->model, r->checkpoint);
    else if (!rc && !t->out)
        puts(r->model);
    hlod_trained_free(r);
    return rc;
}

int train_job(struct train *t) {
    const char *job = t->attach;
    int rc = job ? 0 : start(t, &job);
    if (rc) return rc;
    if (t->detach) {
        if (t->h->json)
            printf("{\"event\":\"job\",\"job\":\"%s\"}\n", job);
        else
            puts(job);
        return 0;
    }
    if (!t->attach && !t->h->quiet && !t->h->json) fprintf(stderr, "training is job %s\n", job);
    rc = wait_for_end(t, job);
    return rc ? rc : bring(t, job);
}
