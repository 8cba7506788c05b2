// SPDX-License-Identifier: Apache-2.0
// What a submit must be: sizes, names, references that exist. Everything that can be known before
// the suite is accepted is refused here, with the place, so that no typing error shows an hour
// later.
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/store/store.h"
#include "base/str.h"
#include "base/text.h"
#include "base/vec.h"
#include "proto/frame.h"
#include "proto/message.h"
#include "proto/numbers.h"
#include "scheduler/records/blobs.h"
#include "scheduler/records/journal.h"
#include "scheduler/records/owners.h"
#include "scheduler/suite/suite.h"

enum {
    MAX_LIST = 4096,
    MAX_TENSORS = 256,
    MAX_NAME = 200,
    MAX_RANK = 64,
    MAX_RAW = 64 << 10,
    MAX_ATTEMPTS = 100,
    MAX_SETTINGS = 64,
    MAX_SETTING = 500
};

MUST_CHECK static status_t bad(const char *where, size_t i, const char *what) {
    return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "%s[%zu]: %s", where, i, what);
}

static status_t check_name(const char *where, size_t i, const char *name) {
    if (!*name || text_is_name(str_of(name), MAX_NAME)) return ST_OK;
    return bad(where, i, "a name of more than 200 bytes, or with characters that are not seen");
}

// It is there, and the tenant's.
static status_t check_blob(struct digest d, const struct suite_checker *k, int64_t *out_size) {
    int fd;
    RETURN_IF_ERR(blob_open(k->store, k->journal, k->tenant, d, &fd, out_size));
    close(fd);
    return ST_OK;
}

static status_t check_tensor(const char *where, size_t i, const Hlod__V1__JobTensor *t,
                             const struct suite_checker *k) {
    const struct dtype_row *type = numbers_dtype(str_of(t->dtype));
    struct digest d;
    RETURN_IF_ERR(check_name(where, i, t->name));
    if (!type) return bad(where, i, "unknown dtype");
    if (t->n_shape > MAX_RANK) return bad(where, i, "more than 64 dimensions");
    int64_t bytes, n = 1;
    for (size_t dim = 0; dim < t->n_shape; dim++)
        if (!sz_mul(n, t->shape[dim], &n)) return bad(where, i, "absurd shape");
    if (t->raw.len > MAX_RAW) return bad(where, i, "raw of more than 64 KiB: send it as a blob");
    if (type->cls == NUM_STRING) {
        if (*t->blob) return bad(where, i, "strings come as raw, not as a blob");
        return st_note(numbers_check_strings((struct span){t->raw.data, t->raw.len}, n), "%s[%zu]",
                       where, i);
    }
    if (!sz_mul(n, type->bytes, &bytes)) return bad(where, i, "absurd shape");
    if (!*t->blob)
        return (int64_t)t->raw.len == bytes ? ST_OK
                                            : bad(where, i, "raw does not have the shape's size");
    if (t->raw.len) return bad(where, i, "both blob and raw");
    if (!digest_parse(str_of(t->blob), &d)) return bad(where, i, "blob is no digest");
    int64_t size;
    RETURN_IF_ERR(st_note(check_blob(d, k, &size), "%s[%zu]", where, i));
    return size == bytes ? ST_OK : bad(where, i, "the blob does not have the shape's size");
}

static status_t check_budget(const char *where, size_t i, const Hlod__V1__JobBudget *b) {
    bool ok =
        !b || (b->run_ms >= 0 && b->compile_ms >= 0 && b->instructions >= 0 && b->peak_bytes >= 0);
    return ok ? ST_OK : bad(where, i, "a budget is negative");
}

static bool tolerance(double v) {
    return v >= 0; // not NaN
}

static status_t check_model(size_t i, const Hlod__V1__JobModel *m, const struct suite_checker *k) {
    struct digest d;
    RETURN_IF_ERR(check_name("models", i, m->name));
    RETURN_IF_ERR(check_budget("models", i, m->budget));
    if (!digest_parse(str_of(m->model), &d)) return bad("models", i, "model is no digest");
    struct digest source;
    status_t owned = k->by_tenant ? owner_read(k->journal, k->tenant, d, &source) : ST_OK;
    bool may = !owned;
    st_drop(owned);
    if (may && store_has(k->store, STORE_BLOB, d)) return ST_OK;
    for (int t = JOURNAL_SOURCE; may && t <= JOURNAL_EXECUTABLE; t++) {
        struct arena a = {0};
        struct span rec;
        status_t st = journal_get(k->journal, (enum journal_table)t, d, &a, &rec);
        arena_done(&a);
        if (!st) return ST_OK;
        st_drop(st);
    }
    return st_because(ST_NOT_FOUND, MODEL_NOT_FOUND, "models[%zu]: no model or executable %s here",
                      i, m->model);
}

static const char *model_name(const Hlod__V1__JobModel *m) {
    return *m->name ? m->name : m->model;
}
static bool wants(const Hlod__V1__JobInput *in, const Hlod__V1__JobModel *m) {
    for (size_t i = 0; i < in->n_models; i++)
        if (!strcmp(in->models[i], model_name(m))) return true;
    return in->n_models == 0;
}

static status_t check_input(size_t i, const Hlod__V1__SubmitJobsRequest *q,
                            const struct suite_checker *k) {
    const Hlod__V1__JobInput *in = q->inputs[i];
    RETURN_IF_ERR(check_name("inputs", i, in->name));
    if (in->n_inputs > MAX_TENSORS || in->n_expect > MAX_TENSORS)
        return bad("inputs", i, "more than 256 tensors");
    if (in->n_expect && !in->n_inputs) return bad("inputs", i, "expect without inputs");
    if (!tolerance(in->rtol) || !tolerance(in->atol))
        return bad("inputs", i, "a tolerance is negative");
    for (size_t w = 0; w < in->n_models; w++) {
        bool found = false;
        for (size_t m = 0; m < q->n_models; m++)
            found = found || !strcmp(in->models[w], model_name(q->models[m]));
        if (!found) return bad("inputs", i, "names a model that the suite does not have");
    }
    const char *where[2] = {"inputs[].inputs", "inputs[].expect"};
    for (size_t t = 0; t < in->n_inputs; t++)
        RETURN_IF_ERR(st_note(check_tensor(where[0], t, in->inputs[t], k), "inputs[%zu]", i));
    for (size_t t = 0; t < in->n_expect; t++) {
        RETURN_IF_ERR(st_note(check_tensor(where[1], t, in->expect[t], k), "inputs[%zu]", i));
    }
    return ST_OK;
}

static status_t check_target(size_t i, const Hlod__V1__SubmitJobsRequest *q) {
    const Hlod__V1__JobTarget *t = q->targets[i];
    if (*t->target && (*t->device || q->n_inputs))
        return bad("targets", i, "a target is compiled for only: without a device, without inputs");
    return check_name("targets", i, t->name);
}

// Words that the service says itself, or that would be two settings.
static bool is_setting(const char *text) {
    static const char *const own[] = {
        "loss=",  "optimizer=", "schedule=", "batch=", "rows=",
        "slice=", "shuffle=",   "evaluate=", "whole="};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (str_starts(str_of(text), own[i])) return false;
    return strchr(text, '=') && !strchr(text, ';') && text_is_name(str_of(text), MAX_SETTING);
}
static bool is_words(const char *text) {
    return !*text || (!strchr(text, ';') && text_is_name(str_of(text), MAX_SETTING));
}
static status_t check_training(const Hlod__V1__SubmitJobsRequest *q,
                               const struct suite_checker *k) {
    const Hlod__V1__Training *t = q->train;
    const char *where = "train";
    struct digest d;
    if (!*t->loss) return bad(where, 0, "there is no loss");
    if (!is_words(t->loss) || !is_words(t->optimizer) || !is_words(t->schedule))
        return bad(where, 0, "a loss, optimizer or schedule of more than 500 bytes, or with ';'");
    if (t->epochs && t->steps) return bad(where, 0, "both epochs and steps");
    if (t->steps > INT32_MAX || t->batch > INT32_MAX || t->epochs > INT32_MAX)
        return bad(where, 0, "at most 2147483647 steps, epochs and rows of a batch");
    if (t->patience && !t->n_validation) return bad(where, 0, "patience without validation");

    if (t->n_settings > MAX_SETTINGS) return bad(where, 0, "more than 64 settings");
    for (size_t i = 0; i < t->n_settings; i++)
        if (!is_setting(t->settings[i]))
            return st_because(
                ST_INVALID_ARGUMENT, BAD_OPTION,
                "train: setting '%.80s': expected NAME=VALUE, not one that has a field "
                "of its own",
                t->settings[i]);
    if (t->n_validation > MAX_TENSORS || t->n_whole > MAX_TENSORS)
        return bad(where, 0, "more than 256 tensors");
    for (size_t i = 0; i < t->n_validation; i++)
        RETURN_IF_ERR(check_tensor("train.validation", i, t->validation[i], k));
    for (size_t i = 0; i < t->n_whole; i++) {
        RETURN_IF_ERR(check_tensor("train.whole", i, t->whole[i], k));
        if (strpbrk(t->whole[i]->name, ",;"))
            return bad("train.whole", i, "a name with ',' or ';'");
    }
    if (*t->resume) {
        if (!digest_parse(str_of(t->resume), &d)) return bad(where, 0, "resume is no digest");
        int64_t size;
        RETURN_IF_ERR(st_note(check_blob(d, k, &size), "train.resume"));
    }

    if (!q->n_inputs) return bad("inputs", 0, "a training needs rows");
    for (size_t i = 0; i < q->n_inputs; i++)
        if (!q->inputs[i]->n_inputs || q->inputs[i]->n_expect)
            return bad("inputs", i, "a training has rows, and nothing that is expected");
    return ST_OK;
}

status_t suite_check(const Hlod__V1__SubmitJobsRequest *q, const struct suite_checker *k) {
    RETURN_IF_ERR(check_name("name", 0, q->name));
    if (strlen(q->idempotency_key) > MAX_NAME) return bad("idempotency_key", 0, "too long");
    if (!q->n_models) return bad("models", 0, "there is none");
    if (q->n_models > MAX_LIST || q->n_targets > MAX_LIST || q->n_inputs > MAX_LIST)
        return bad("models", q->n_models, "more than 4096 models, targets or inputs");
    if (q->repeat > RUN_MAX_REPEAT) return bad("repeat", 0, "at most 1000");
    if (q->retry && q->retry->max_attempts > MAX_ATTEMPTS)
        return bad("retry", 0, "at most 100 attempts");
    if (!tolerance(q->rtol) || !tolerance(q->atol))
        return bad("rtol", 0, "a tolerance is negative");
    RETURN_IF_ERR(check_budget("budget", 0, q->budget));
    for (size_t i = 0; i < q->n_models; i++)
        RETURN_IF_ERR(check_model(i, q->models[i], k));
    for (size_t i = 0; i < q->n_targets; i++)
        RETURN_IF_ERR(check_target(i, q));
    for (size_t i = 0; i < q->n_inputs; i++)
        RETURN_IF_ERR(check_input(i, q, k));
    if (q->train) RETURN_IF_ERR(check_training(q, k));
    struct arena a = {0};
    struct suite_cell *cells;
    size_t n = suite_expand(q, &a, &cells);
    arena_done(&a);
    if (n == 0) return bad("inputs", 0, "none of them is for any model: there is no job");
    if (n > SUITE_MAX_JOBS)
        return st_because(ST_INVALID_ARGUMENT, LIMIT_EXCEEDED,
                          "the matrix has %zu jobs, at most %d", n, SUITE_MAX_JOBS);
    return ST_OK;
}

// ---- the matrix

size_t suite_expand(const Hlod__V1__SubmitJobsRequest *q, struct arena *a,
                    struct suite_cell **out) {
    size_t targets = q->n_targets ? q->n_targets : 1, n = 0;
    VEC(struct suite_cell) cells = {0};
    for (size_t m = 0; m < q->n_models; m++)
        for (size_t t = 0; t < targets; t++)
            for (size_t i = 0; i < (q->n_inputs ? q->n_inputs : 1); i++) {
                if (q->n_inputs && !wants(q->inputs[i], q->models[m])) continue;
                if (++n > SUITE_MAX_JOBS) continue;
                struct suite_cell c = {(int)m, (int)t, q->n_inputs ? (int)i : -1};
                avec_push(a, &cells, c);
            }
    *out = cells.v;
    return n;
}

Hlod__V1__Job *suite_brief(struct arena *a, const Hlod__V1__SubmitJobsRequest *q,
                           const struct suite_cell *c, const char *tenant, int64_t created_ns) {
    Hlod__V1__Job *b = message_new(a, &hlod__v1__job__descriptor);
    char when[32];
    clock_wall_text(created_ns, when);
    const Hlod__V1__JobTarget *t = q->n_targets ? q->targets[c->target] : NULL;
    b->suite_name = arena_strdup(a, q->name);
    b->model = arena_strdup(a, model_name(q->models[c->model]));
    b->target = arena_strdup(a, !t ? "" : *t->name ? t->name : *t->target ? t->target : t->device);
    if (c->input >= 0) {
        const char *name = q->inputs[c->input]->name;
        b->input = *name ? arena_strdup(a, name) : arena_printf(a, "input%d", c->input);
    }
    b->state = arena_strdup(a, "queued");
    b->created = arena_strdup(a, when);
    b->tenant = arena_strdup(a, tenant);
    return b;
}
