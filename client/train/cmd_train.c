// SPDX-License-Identifier: Apache-2.0
// hlo train: the program that trains a model is compiled and run like any other, many steps a run;
// its state and the rows stay on the device between runs. A run is sized to take about a quarter of
// a second, so that others' work on the device waits no longer for it, and what is told of it is
// fresh.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/store/file.h"
#include "client/cli/hlo.h"
#include "client/files/input.h"
#include "client/files/opt_tool.h"
#include "client/hlod_buffers.h"
#include "client/train/train.h"
#include "proto/numbers.h"

enum { SLICE = 1024, SLICE_MS = 250, USUAL_BATCH = 32 };
enum { HANDLE_BYTES = 128, LEASE_MS = 6 * 3600 * 1000 }; // a validation may take long
static volatile sig_atomic_t interrupted;
static void on_interrupt(int signal) {
    (void)signal;
    interrupted = 1;
}

// ---- what is asked for

bool train_interrupted(void) {
    return interrupted;
}
static bool is_flag(struct train *t, int k) {
    const struct {
        const char *name;
        bool *to;
    } table[] = {{"--no-shuffle", &t->in_order}, {"--job", &t->job}, {"--detach", &t->detach}};
    for (size_t j = 0; j < sizeof table / sizeof *table; j++)
        if (strcmp(t->h->argv[k], table[j].name) == 0) return *table[j].to = true;
    return false;
}
static int read_text(struct train *t, int *k) { // 1: taken; 0: another word; -1: refused
    struct hlo *h = t->h;
    const struct {
        const char *name, **to;
        int *n, most;
    } table[] = {{"--loss", &t->loss, NULL, 0},
                 {"--optimizer", &t->optimizer, NULL, 0},
                 {"--schedule", &t->schedule, NULL, 0},
                 {"--checkpoint", &t->checkpoint, NULL, 0},
                 {"--resume", &t->resume, NULL, 0},
                 {"--device", &t->device, NULL, 0},
                 {"--attach", &t->attach, NULL, 0},
                 {"-o", &t->out, NULL, 0},
                 {"-d", t->data, &t->n_data, MAX_DATA},
                 {"--validate", t->held, &t->n_held, MAX_DATA},
                 {"--set", t->sets, &t->n_sets, MAX_SETS},
                 {"--whole", t->whole, &t->n_whole, MAX_DATA},
                 {"--precision", &t->precision, NULL, 0}};
    for (size_t j = 0; j < sizeof table / sizeof *table; j++) {
        const char *v = option_value(h, k, table[j].name);
        if (!v) continue;
        if (table[j].n && *table[j].n == table[j].most)
            return usage_error("%s more than %d times", table[j].name, table[j].most), -1;
        table[j].to[table[j].n ? (*table[j].n)++ : 0] = v;
        return 1;
    }
    return 0;
}
static int read_count(struct train *t, int *k) {
    const struct {
        const char *name;
        int low, *to;
    } table[] = {{"--batch", 1, &t->batch},  {"--epochs", 1, &t->epochs},
                 {"--steps", 1, &t->steps},  {"--seed", 0, &t->seed},
                 {"--every", 1, &t->every},  {"--patience", 1, &t->patience},
                 {"--window", 1, &t->window}};
    for (size_t j = 0; j < sizeof table / sizeof *table; j++) {
        int r = option_count(t->h, k, table[j].name, table[j].low, INT32_MAX, table[j].to);
        if (r) return r;
    }
    return 0;
}
bool train_ends_in(const char *path, const char *suffix) {
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && strcmp(path + n - m, suffix) == 0;
}
static int check_options(struct train *t) {
    t->job |= t->detach || t->attach;
    if (t->job && t->out && !train_ends_in(t->out, ".onnx"))
        return usage_error("-o %s: a job gives a model, .onnx; --checkpoint its state", t->out);
    if (t->detach && (t->out || t->checkpoint || t->attach))
        return usage_error("--detach only starts a job; --attach JOB -o FILE brings its result");
    if (t->attach)
        return t->model || t->loss || t->n_data
                   ? usage_error("--attach JOB takes no model and no rows: the job has them")
                   : 0;
    if (!t->model) return usage_error("train needs a model's file");
    if (!t->loss) return usage_error("train needs --loss; softmax-cross-entropy for classes, mse");
    if (!t->n_data) return usage_error("train needs rows: -d NAME=@FILE.npy for each input");
    if (!t->out && !t->checkpoint && !t->detach) return usage_error("train needs -o OUT.onnx");
    if (t->out && !train_ends_in(t->out, ".onnx") && !train_ends_in(t->out, ".safetensors"))
        return usage_error("-o %s: expected a name that ends in .onnx or .safetensors", t->out);
    if (t->every && !t->checkpoint && !t->job)
        return usage_error("--every needs --checkpoint FILE");
    if (t->patience && !t->n_held) return usage_error("--patience needs --validate NAME=VALUE");
    if (t->steps && t->epochs) return usage_error("--steps and --epochs exclude each other");
    return 0;
}
static int read_options(struct train *t) {
    struct hlo *h = t->h;
    for (int k = 0; k < h->argc; k++) {
        int r = is_flag(t, k) ? 1 : read_text(t, &k);
        if (!r) r = read_count(t, &k);
        if (r < 0) return EXIT_USAGE;
        if (r) continue;
        if (h->argv[k][0] == '-' || t->model) return unknown_word(h, "train", k);
        t->model = h->argv[k];
    }
    return check_options(t);
}

// ---- the program and its values

static const struct npy *named(const struct npy *v, int n, const char *name) {
    for (int k = 0; k < n; k++)
        if (strcmp(v[k].name, name) == 0) return &v[k];
    return NULL;
}
status_t train_read_rows(struct train *t, const char *const *words, int n, struct npy *v,
                         int64_t *rows) {
    struct image_options o = {.std = {1, 1, 1}};
    for (int k = 0; k < n; k++) {
        RETURN_IF_ERR(input_parse(&t->h->arena, words[k], &o, &v[k]));
        if (!rows) continue;
        if (!v[k].rank)
            return st_invalid("'%s' has no rows: what all rows share is given by --whole %s=VALUE",
                              v[k].name, v[k].name);
        if (k && v[k].dims[0] != *rows)
            return st_invalid("'%s' has %lld rows, '%s' %lld; what all rows share is given by "
                              "--whole NAME=VALUE",
                              v[k].name, (long long)v[k].dims[0], v[0].name, (long long)*rows);
        *rows = v[k].dims[0];
    }
    return ST_OK;
}
static const char *spec_of(struct train *t, int64_t rows, bool evaluate) {
    struct strbuf b = {0};
    strbuf_printf(&b, "loss=%s;batch=%d;rows=%lld;slice=%d", t->loss, t->batch, (long long)rows,
                  SLICE);
    if (t->optimizer) strbuf_printf(&b, ";optimizer=%s", t->optimizer);
    if (t->schedule) strbuf_printf(&b, ";schedule=%s", t->schedule);
    if (!t->in_order) strbuf_puts(&b, ";shuffle=1");
    for (int k = 0; k < t->n_sets; k++)
        strbuf_printf(&b, ";%s", t->sets[k]);
    for (int k = 0; k < t->n_whole; k++) {
        strbuf_puts(&b, k ? "," : ";whole=");
        strbuf_glob(&b, t->given_whole[k].name);
    }
    if (evaluate) strbuf_puts(&b, ";evaluate=1");
    const char *s = arena_strdup(&t->h->arena, strbuf_cstr(&b));
    strbuf_done(&b);
    return s;
}
// "x:1000x3x32x32;label:1000"
static const char *shapes_of(struct train *t, const struct npy *v, int n) {
    struct strbuf b = {0};
    for (int k = 0; k < n + t->n_whole; k++) {
        const struct npy *x = k < n ? &v[k] : &t->given_whole[k - n];
        strbuf_printf(&b, "%s%s:", k ? ";" : "", x->name);
        for (int d = 0; d < x->rank; d++)
            strbuf_printf(&b, "%s%lld", d ? "x" : "", (long long)x->dims[d]);
    }
    const char *s = arena_strdup(&t->h->arena, strbuf_cstr(&b));
    strbuf_done(&b);
    return s;
}
static bool is_rows(const struct train_leaf *l) {
    return strcmp(l->role, "data") == 0 || strcmp(l->role, "label") == 0;
}
static status_t not_given(const struct train_leaf *l) {
    if (strcmp(l->role, "label") == 0)
        return st_invalid("no rows for the target 'label': -d label=@FILE.npy");
    return is_rows(l) ? st_invalid("no rows for input '%s': -d %s=@FILE.npy", l->of, l->of)
                      : st_invalid("no value for input '%s', which has no rows: --whole %s=VALUE",
                                   l->of, l->of);
}
// The values of p's inputs: n arrays by rows, and those that are whole.
static status_t give_rows(struct train *t, struct arena *a, struct train_program *p,
                          const struct npy *v, int n) {
    for (int k = 0; k < p->n_leaves; k++) {
        struct train_leaf *l = &p->leaves[k];
        bool label = strcmp(l->role, "label") == 0, whole = strcmp(l->role, "whole") == 0;
        if (!is_rows(l) && !whole) continue;
        const struct npy *x =
            whole ? named(t->given_whole, t->n_whole, l->of) : named(v, n, label ? "label" : l->of);
        if (!x) return not_given(l);
        RETURN_IF_ERR(train_program_give(a, p, l, x));
    }
    for (int k = 0; k < n + t->n_whole; k++) {
        const char *name = k < n ? v[k].name : t->given_whole[k - n].name;
        bool known = false;
        for (int j = 0; j < p->n_leaves; j++)
            known |= strcmp(name, p->leaves[j].of) == 0 ||
                     (strcmp(name, "label") == 0 && strcmp(p->leaves[j].role, "label") == 0);
        if (!known) return st_invalid("the model has no input '%s'", name);
    }
    return ST_OK;
}
static void tell_program(const struct train *t, const struct hlod_executable *e) {
    const struct train_program *p = &t->p;
    int weights = 0, frozen = 0;
    double state = 0, numbers = 0;
    for (int k = 0; k < p->n_leaves; k++) {
        const struct train_leaf *l = &p->leaves[k];
        bool trained = k < p->n_state && strcmp(l->role, "weight") == 0;
        double n = 1;
        for (int d = 0; d < l->rank; d++)
            n *= (double)l->dims[d];
        weights += trained, numbers += trained ? n : 0;
        state += k < p->n_state ? (double)l->size_bytes : 0;
        frozen += strcmp(l->role, "frozen") == 0;
    }
    fprintf(stderr, "%s: %d weights of %.0f numbers are trained, %d are not\n", t->model, weights,
            numbers, frozen);
    for (int k = 0; k < p->n_state; k++)
        if (p->leaves[k].still)
            fprintf(stderr, "the loss does not depend on '%s'\n", p->leaves[k].of);
    fprintf(stderr,
            "one executable of %lld instructions (%lld before), state %s, working memory %s; %s\n",
            (long long)e->total_after, (long long)e->total_before, size_text(state).s,
            size_text((double)e->peak_bytes).s, e->cache_hit ? "cached" : "compiled");
}
static int compile(struct train *t, const struct train_program *p, char **digest) {
    struct hlod_compile_options o = HLOD_COMPILE_OPTIONS;
    struct hlod_executable *e;
    struct hlo *h = t->h;
    o.device = t->device, o.format = "hlo-proto", o.precision = t->precision;
    if (hlod_compile_file(h->hlod, p->path, &o, &e)) return hlo_fail(h, EXIT_COMPILE);
    *digest = arena_strdup(&h->arena, e->digest);
    if (p == &t->p && !h->quiet && !h->json) tell_program(t, e);
    if (p == &t->p) {
        t->names = arena_zarray(&h->arena, const char *, p->n_state + 1);
        for (int k = 0; k < p->n_state; k++)
            t->names[k] = arena_strdup(&h->arena, e->outputs[k].name);
    }
    hlod_executable_free(e);
    return 0;
}
static void set_handle(struct train *t, char **handle, const char *text) {
    if (!*handle) *handle = arena_zalloc(&t->h->arena, HANDLE_BYTES);
    snprintf(*handle, HANDLE_BYTES, "%s", text);
}
// Leaves that are rows (or those that are not), where there is a value, to the device.
static int put_leaves(struct train *t, const struct train_program *p, char **handles, bool rows) {
    struct hlo *h = t->h;
    struct hlod_put_options o = HLOD_PUT_OPTIONS;
    struct hlod_buffers *b;
    o.device = t->device, o.lease_ms = LEASE_MS;
    for (int k = 0; k < p->n_leaves; k++) {
        const struct train_leaf *l = &p->leaves[k];
        struct hlod_tensor x = {l->name, l->dtype, l->rank, l->dims, l->data, l->size_bytes};
        if (!l->data || is_rows(l) != rows) continue;
        if (handles[k] && *handles[k]) hlod_buffer_free(h->hlod, handles[k]);
        if (handles[k]) *handles[k] = 0;
        if (hlod_buffer_put(h->hlod, &x, 1, &o, &b)) return hlo_fail(h, EXIT_RUN);
        set_handle(t, &handles[k], b->buffers[0].handle);
        hlod_buffers_free(b);
    }
    return 0;
}
static void free_leaves(struct train *t, const struct train_program *p, char *const *handles) {
    for (int k = 0; k < p->n_leaves && handles; k++)
        if (handles[k] && *handles[k]) hlod_buffer_free(t->h->hlod, handles[k]);
}

// Part w of the rows as the program's values. The last part begins where it is whole.
static status_t give_window(struct train *t, int64_t w) {
    struct npy part[MAX_DATA];
    int64_t rows = t->windows > 1 ? t->window : t->rows, from = w * rows;
    if (from > t->rows - rows) from = t->rows - rows;
    for (int k = 0; k < t->n_data; k++) {
        part[k] = t->given[k];
        size_t row = t->rows ? part[k].size_bytes / (size_t)t->rows : 0;
        part[k].dims[0] = rows;
        part[k].data = (char *)part[k].data + row * (size_t)from;
        part[k].size_bytes = row * (size_t)rows;
    }
    arena_done(&t->window_of);
    status_t st = give_rows(t, &t->window_of, &t->p, part, t->n_data);
    return t->windows > 1 ? st_note(st, "rows from %lld", (long long)from) : st;
}
// The rows of the next steps are on the device.
static int show_window(struct train *t) {
    int64_t w = t->step / t->p.steps_per_epoch % t->windows;
    if (w == t->at) return 0;
    status_t st = give_window(t, w);
    if (st) return fail_status(st);
    t->at = w;
    return put_leaves(t, &t->p, t->handles, true);
}
static int prepare_validation(struct train *t) {
    struct hlo *h = t->h;
    struct npy *held = arena_zarray(&h->arena, struct npy, MAX_DATA);
    struct train_program *p = &t->validation;
    int64_t n = 0;
    status_t st = train_read_rows(t, t->held, t->n_held, held, &n);
    if (!st && n < t->batch)
        st = st_invalid("--validate: %lld rows are fewer than a batch of %d", (long long)n,
                        t->batch);
    if (st) return fail_status(st);
    int rc = train_program_make(h, t->model, spec_of(t, n, true), shapes_of(t, held, t->n_held),
                                t->dir, "held", p);
    if (rc) return rc;
    for (int k = 0; k < p->n_leaves; k++) // weights come from the training
        p->leaves[k].data = NULL;
    st = give_rows(t, &h->arena, p, held, t->n_held);
    if (st) return fail_status(st);
    t->held_handles = arena_zarray(&h->arena, char *, p->n_leaves + 1);
    rc = compile(t, p, &t->validation_digest);
    return rc ? rc : put_leaves(t, p, t->held_handles, true);
}
// The program, its rows (all looked at once) and what its state begins with.
static int prepare_program(struct train *t) {
    struct hlo *h = t->h;
    t->given = arena_zarray(&h->arena, struct npy, MAX_DATA);
    t->given_whole = arena_zarray(&h->arena, struct npy, MAX_DATA);
    status_t st = train_read_rows(t, t->data, t->n_data, t->given, &t->rows);
    if (!st) st = train_read_rows(t, t->whole, t->n_whole, t->given_whole, NULL);
    if (st) return fail_status(st);
    if (!t->batch) t->batch = t->rows < USUAL_BATCH ? (int)t->rows : USUAL_BATCH;
    bool parts = t->window && t->window < t->rows;
    t->windows = parts ? (t->rows + t->window - 1) / t->window : 1;
    t->at = -1;
    int rc = train_program_make(h, t->model, spec_of(t, parts ? t->window : t->rows, false),
                                shapes_of(t, t->given, t->n_data), t->dir, "train", &t->p);
    if (rc) return rc;

    for (int64_t w = 0; w < t->windows && !st; w++)
        st = give_window(t, w);
    if (!st && t->resume) st = train_program_take(&h->arena, &t->p, t->resume);
    if (st) return fail_status(st);
    for (int k = 0; k < t->p.n_leaves; k++) {
        struct train_leaf *l = &t->p.leaves[k];
        if (strcmp(l->role, "seed") == 0) l->data = &t->seed;
        if (strcmp(l->role, "step") == 0) t->step = *(const int32_t *)l->data;
    }
    t->saved = t->step;
    int64_t per_epoch = t->p.steps_per_epoch * t->windows;
    t->end = t->steps ? t->steps : (int64_t)(t->epochs ? t->epochs : 1) * per_epoch;
    return 0;
}
static int prepare(struct train *t) {
    struct hlo *h = t->h;
    int rc = prepare_program(t);
    status_t st = rc ? ST_OK : hlo_open(h);
    if (st) return fail_status(st);
    if (!rc) rc = compile(t, &t->p, &t->digest);
    t->handles = arena_zarray(&h->arena, char *, t->p.n_leaves + 1);
    if (!rc) rc = put_leaves(t, &t->p, t->handles, false);
    if (!rc) rc = show_window(t);
    return rc || !t->n_held ? rc : prepare_validation(t);
}

// ---- runs

static void take_row(float *to, const struct hlod_output *o) {
    size_t n = o->tensor.size_bytes;
    if (o->tensor.data) memcpy(to, o->tensor.data, n < SLICE * 4 ? n : SLICE * 4);
}
// The steps up to `limit`; the state moves on.
static int run_steps(struct train *t, int64_t limit) {
    struct hlo *h = t->h;
    struct train_program *p = &t->p;
    int32_t to = (int32_t)limit;
    struct hlod_resident_options o = HLOD_RESIDENT_OPTIONS;
    struct hlod_input *in = calloc((size_t)p->n_leaves + 1, sizeof *in);
    struct hlod_outputs *r;
    for (int k = 0; k < p->n_leaves; k++) {
        in[k] = (struct hlod_input){.handle = t->handles[k], .donate = k < p->n_state};
        in[k].tensor.name = p->leaves[k].name;
        if (!t->handles[k])
            in[k].tensor = (struct hlod_tensor){p->leaves[k].name, "s32", 0, NULL, &to, sizeof to};
    }
    o.keep = t->names, o.n_keep = (size_t)p->n_state, o.device = t->device;
    o.lease_ms = LEASE_MS;
    enum hlod_code code = hlod_run_resident(h->hlod, t->digest, in, (size_t)p->n_leaves, &o, &r);
    free(in);
    if (code) return hlo_fail(h, EXIT_RUN);
    for (int k = 0; k < p->n_state; k++)
        set_handle(t, &t->handles[k], r->outputs[k].handle);
    take_row(t->losses, &r->outputs[p->n_state]);
    if (p->accuracy) take_row(t->accuracy, &r->outputs[p->n_state + 1]);
    hlod_outputs_free(r);
    return 0;
}
static int fetch(struct train *t, int leaf, void *to, size_t n) {
    struct hlod_outputs *r;
    if (hlod_buffer_get(t->h->hlod, t->handles[leaf], &r)) return hlo_fail(t->h, EXIT_RUN);
    size_t have = r->n_outputs ? r->outputs[0].tensor.size_bytes : 0;
    if (have == n) memcpy(to, r->outputs[0].tensor.data, n);
    hlod_outputs_free(r);
    return have == n
               ? 0
               : fail_status(st_new(ST_DATA_LOSS, "the server sent %zu bytes for %zu", have, n));
}
static int evaluate(struct train *t) {
    struct hlo *h = t->h;
    const struct train_program *v = &t->validation;
    struct hlod_input *in = calloc((size_t)v->n_leaves + 1, sizeof *in);
    struct hlod_resident_options o = HLOD_RESIDENT_OPTIONS;
    struct hlod_outputs *r;
    o.device = t->device;
    for (int k = 0; k < v->n_leaves; k++) {
        in[k] = (struct hlod_input){.handle = t->held_handles[k]};
        for (int j = 0; j < t->p.n_leaves && !in[k].handle; j++)
            if (strcmp(t->p.leaves[j].key, v->leaves[k].key) == 0) in[k].handle = t->handles[j];
        in[k].tensor.name = v->leaves[k].name;
    }
    enum hlod_code code =
        hlod_run_resident(h->hlod, t->validation_digest, in, (size_t)v->n_leaves, &o, &r);
    free(in);
    if (code) return hlo_fail(h, EXIT_RUN);
    t->held_loss = (double)*(const float *)r->outputs[0].tensor.data;
    if (v->accuracy) t->held_accuracy = (double)*(const float *)r->outputs[1].tensor.data;
    hlod_outputs_free(r);
    train_tell_validation(t, v->accuracy);
    return 0;
}

// ---- what is kept

static int save(struct train *t, const char *path, bool weights_only) {
    struct hlo *h = t->h;
    const struct train_program *p = &t->p;
    struct arena a = {0};
    struct safetensor *v = arena_zarray(&a, struct safetensor, p->n_leaves + 1);
    char *part = arena_printf(&a, "%s.part", path);
    size_t n = 0;
    int rc = 0;
    for (int k = 0; k < p->n_leaves && !rc; k++) {
        const struct train_leaf *l = &p->leaves[k];
        bool own = strcmp(l->role, "weight") == 0 || strcmp(l->role, "statistic") == 0;
        bool frozen = strcmp(l->role, "frozen") == 0;
        if (weights_only ? !own : k >= p->n_state && !frozen) continue;
        void *to = arena_alloc(&a, l->size_bytes + 1);
        rc = fetch(t, k, to, l->size_bytes);
        v[n++] = (struct safetensor){l->key, l->dtype, l->rank, l->dims, {to, l->size_bytes}};
    }

    int fd = rc ? -1 : open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    status_t st = rc || fd >= 0 ? ST_OK : st_errno(errno, part);
    if (fd >= 0) {
        st = safetensors_write(fd, part, v, n, NULL);
        if (!st && fsync(fd)) st = st_errno(errno, part);
        if (close(fd) && !st) st = st_errno(errno, part);
        if (!st && rename(part, path)) st = st_errno(errno, path);
    }
    if (st) unlink(part);
    arena_done(&a);
    if (st) return fail_status(st);
    if (!rc && h->json && !weights_only)
        printf("{\"event\":\"checkpoint\",\"step\":%lld}\n", (long long)t->step), fflush(stdout);
    return rc;
}
// With --patience the weights that did best so far are kept.
static int keep_best(struct train *t) {
    if (!t->patience) return 0;
    if (t->best && !(t->held_loss < t->best_loss)) return t->worse++, 0;
    t->best = arena_printf(&t->h->arena, "%s/best.safetensors", t->dir);
    t->best_loss = t->held_loss;
    t->worse = 0;
    return save(t, t->best, true);
}
static int checkpoint(struct train *t) {
    t->saved = t->step;
    return save(t, t->checkpoint, false);
}
static int copy_file(struct train *t, const char *from, const char *to) {
    struct span bytes;
    status_t st = file_map(&t->h->arena, from, &bytes);
    int fd = st ? -1 : open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (!st && fd < 0) st = st_errno(errno, to);
    if (!st) st = file_write(fd, bytes.p, bytes.n, to);
    if (fd >= 0 && close(fd) && !st) st = st_errno(errno, to);
    return st ? fail_status(st) : 0;
}
static int write_model(struct train *t) {
    if (!t->out) return 0;
    bool bare = train_ends_in(t->out, ".safetensors");
    const char *weights = t->best;
    int rc = 0;
    if (!weights) {
        weights = bare ? t->out : arena_printf(&t->h->arena, "%s/weights.safetensors", t->dir);
        rc = save(t, weights, true);
    }
    if (bare) return rc || !t->best ? rc : copy_file(t, t->best, t->out);
    const char *argv[] = {arena_printf(&t->h->arena, "--with-weights=%s", weights), NULL};
    return rc ? rc : hlo_opt_into(t->h, t->out, argv, t->model);
}

// ---- telling

void train_tell_steps(const struct train *t, int64_t from, int64_t made, double ms, bool accuracy) {
    for (int64_t k = 0; k < made && t->h->json; k++) {
        printf("{\"event\":\"step\",\"step\":%lld,\"loss\":%.9g", (long long)(from + k + 1),
               (double)t->losses[k]);
        if (accuracy) printf(",\"accuracy\":%.9g", (double)t->accuracy[k]);
        printf(",\"ms\":%.4g,\"examples_per_s\":%.6g}\n", ms, t->batch / ms * 1e3);
    }
    if (t->h->json) fflush(stdout);
}
void train_tell_validation(const struct train *t, bool accuracy) {
    if (!t->h->json) return;
    printf("{\"event\":\"validation\",\"step\":%lld,\"loss\":%.9g", (long long)t->step,
           t->held_loss);
    if (accuracy) printf(",\"accuracy\":%.9g", t->held_accuracy);
    puts("}");
    fflush(stdout);
}
static double mean(const float *v, int64_t n) {
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += (double)v[k];
    return n ? sum / (double)n : 0;
}
void train_tell_line(const struct train *t, int64_t per_epoch, int64_t made, bool accuracy,
                     bool ends) {
    if (t->h->json || t->h->quiet || (!ends && !t->h->tty)) return;
    int64_t epoch = (t->step + per_epoch - 1) / per_epoch;
    fprintf(stderr, "%sepoch %lld, step %lld of %lld: loss %.4f", t->h->tty ? "\r\033[K" : "",
            (long long)epoch, (long long)t->step, (long long)t->end, mean(t->losses, made));
    if (accuracy) fprintf(stderr, ", accuracy %.4f", mean(t->accuracy, made));
    if (ends && t->n_held) {
        fprintf(stderr, "; held back: loss %.4f", t->held_loss);
        if (accuracy) fprintf(stderr, ", accuracy %.4f", t->held_accuracy);
    }
    fprintf(stderr, "; %.0f examples/s%s", t->batch / t->per_step_ms * 1e3, ends ? "\n" : "");
}

// ---- the loop

// The next run's last step: about a quarter of a second away, not past the rows that are there or a
// checkpoint.
static int64_t next_stop(const struct train *t) {
    int64_t most = t->per_step_ms > 0 ? (int64_t)(SLICE_MS / t->per_step_ms) : 1;
    if (most < 1) most = 1;
    if (most > t->p.slice) most = t->p.slice;
    int64_t to = t->step + most, per = t->p.steps_per_epoch;
    int64_t epoch = (t->step / per + 1) * per;
    if (to > epoch) to = epoch;
    if (t->every && to > t->saved + t->every) to = t->saved + t->every;
    return to < t->end ? to : t->end;
}
// What of the rows is no finite number, the first of it; "" where all are.
static const char *odd_rows(struct train *t) {
    for (int k = 0; k < t->n_data; k++) {
        const struct npy *x = &t->given[k];
        const char *datatype = input_type(x);
        const struct dtype_row *type = datatype ? numbers_dtype(str_of(datatype)) : NULL;
        if (!type || type->cls < NUM_F16 || type->cls > NUM_F64) continue;
        for (int64_t e = 0; e < (int64_t)x->size_bytes / type->bytes; e++) {
            double v = (double)numbers_at(type, x->data, e);
            if (!isfinite(v))
                return arena_printf(&t->h->arena, "; '%s': element %lld is %g", x->name,
                                    (long long)e, v);
        }
    }
    return "";
}
static int one_run(struct train *t) {
    int rc = show_window(t);
    if (rc) return rc;
    int64_t to = next_stop(t), from = t->step, begin = clock_ns();
    rc = run_steps(t, to);
    if (rc) return rc;
    double ms = (double)(clock_ns() - begin) / 1e6;
    int64_t made = to - from, bad = made;
    for (int64_t k = made - 1; k >= 0; k--)
        if (!isfinite((double)t->losses[k])) bad = k;

    int32_t step;
    for (int k = 0; k < t->p.n_state && !rc; k++)
        if (strcmp(t->p.leaves[k].role, "step") == 0 && bad < made)
            rc = fetch(t, k, &step, sizeof step);
    t->step = bad < made && !rc ? step : to;
    t->per_step_ms = ms / (double)made;
    train_tell_steps(t, from, bad < made ? t->step - from : made, t->per_step_ms, t->p.accuracy);

    if (rc || t->step == to) {
        bool ends = to % (t->p.steps_per_epoch * t->windows) == 0 || to == t->end;
        if (!rc && ends && t->n_held) rc = evaluate(t);
        if (!rc && ends && t->n_held) rc = keep_best(t);
        train_tell_line(t, t->p.steps_per_epoch * t->windows, made, t->p.accuracy, ends);
        return rc;
    }
    fail_status(st_new(ST_FAILED_PRECONDITION,
                       "the loss of step %lld, or the norm of its gradients, is %g: nothing was "
                       "updated by it; --set nan=skip leaves such steps out, a smaller rate or "
                       "--set clip=1 may avoid them%s",
                       (long long)t->step + 1, fabs((double)t->losses[bad]), odd_rows(t)));
    return EXIT_RUN;
}
static int train(struct train *t) {
    int rc = 0;
    t->losses = arena_zarray(&t->h->arena, float, SLICE);
    t->accuracy = arena_zarray(&t->h->arena, float, SLICE);
    while (!rc && t->step < t->end && !interrupted && !(t->patience && t->worse >= t->patience)) {
        rc = one_run(t);
        bool due = t->every && t->step >= t->saved + t->every;
        if (!rc && due) rc = checkpoint(t);
    }
    if (t->handles && t->checkpoint && t->step > t->saved) {
        int kept = checkpoint(t); // also after a failure: what was reached is not lost
        if (!rc) rc = kept;
    }
    if (!rc) rc = write_model(t);
    return rc ? rc : interrupted ? EXIT_INTERRUPTED : 0;
}
static void remove_folder(const char *dir) {
    static const char *const names[] = {
        "train.pb",  "train.json",       "train.safetensors",   "held.pb",
        "held.json", "held.safetensors", "weights.safetensors", "best.safetensors"};
    char path[4096];
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[k]);
        unlink(path);
    }
    rmdir(dir);
}

// The signals that end a training as Ctrl-C does: what it has is kept, its folder removed.
static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_ENDING = sizeof ending / sizeof *ending };
static void catch_ending(struct sigaction old[N_ENDING]) {
    struct sigaction quiet = {.sa_handler = on_interrupt};
    for (int k = 0; k < N_ENDING; k++) {
        sigaction(ending[k], NULL, &old[k]);
        if (ending[k] == SIGHUP && old[k].sa_handler == SIG_IGN) continue; // under nohup
        sigaction(ending[k], &quiet, NULL);
    }
}
static void release_ending(const struct sigaction old[N_ENDING]) {
    for (int k = 0; k < N_ENDING; k++)
        sigaction(ending[k], &old[k], NULL);
}

static int with_job(struct train *t) {
    struct sigaction old[N_ENDING];
    catch_ending(old);
    t->losses = arena_zarray(&t->h->arena, float, SLICE);
    t->accuracy = arena_zarray(&t->h->arena, float, SLICE);
    int rc = train_job(t);
    release_ending(old);
    return rc;
}
int cmd_train(struct hlo *h) {
    struct train t = {.h = h};
    struct sigaction old[N_ENDING];
    const char *tmp = getenv("TMPDIR");
    int rc = read_options(&t);
    if (rc) return rc;
    if (t.job) return with_job(&t);
    if (access(t.model, R_OK)) return fail_status(st_errno(errno, t.model));
    char *dir = arena_printf(&h->arena, "%s/hlo-train.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(dir)) return fail_status(st_errno(errno, dir));
    t.dir = dir;
    catch_ending(old);
    rc = prepare(&t);
    if (!rc) rc = train(&t);
    if (h->hlod) {
        free_leaves(&t, &t.p, t.handles);
        free_leaves(&t, &t.validation, t.held_handles);
    }
    release_ending(old);
    arena_done(&t.window_of);
    remove_folder(dir);
    return rc;
}
