// SPDX-License-Identifier: Apache-2.0
#include "compiler/train/model.h"

#include <string.h>

#include "compiler/passes/pass.h"

const char *train_role_name(enum train_role role) {
    static const char *const names[] = {
        [TRAIN_WEIGHT] = "weight",       [TRAIN_SLOT] = "slot",   [TRAIN_MEAN] = "mean",
        [TRAIN_STATISTIC] = "statistic", [TRAIN_ORDER] = "order", [TRAIN_STEP] = "step",
        [TRAIN_FROZEN] = "frozen",       [TRAIN_WHOLE] = "whole", [TRAIN_DATA] = "data",
        [TRAIN_LABEL] = "label",         [TRAIN_SEED] = "seed",   [TRAIN_LIMIT] = "limit"};
    return names[role];
}

// ---- the program

static bool is_whole(const struct lower_request *req, const struct sig_tensor *t) {
    return t->rank == 0 || (req->whole && str_in_globs(req->whole, t->name));
}
void train_assume_sizes(struct arena *a, const struct signature *sig, int64_t batch,
                        struct lower_request *req) {
    int32_t most = req->n_bindings;
    for (int32_t k = 0; k < sig->n_in; k++)
        most += sig->in[k].rank > 0 ? sig->in[k].rank : 0;
    struct dim_binding *b = arena_array(a, struct dim_binding, most + 1);
    for (int32_t k = 0; k < req->n_bindings; k++)
        b[k] = req->bindings[k];
    req->bindings = b;
    for (int32_t j = 0; j < 2 * sig->n_in; j++) { // expressions follow from the others
        const struct sig_tensor *t = &sig->in[j % sig->n_in];
        for (int32_t d = 0; d < t->rank; d++) {
            const struct sig_dim *dim = &t->dims[d];
            int64_t size = dim->usual > 0 ? dim->usual : 1, bound;
            if (!dim->symbol || dim->expression != (j >= sig->n_in) ||
                frontend_bound(req, dim, &bound))
                continue;
            if (batch && d == 0 && !is_whole(req, t)) size = batch;
            b[req->n_bindings++] = (struct dim_binding){dim->symbol, size};
        }
    }
}

// Where the model fixes dimension 0 of its first input by rows at another size than `batch`, that
// size becomes the batch in req; the file stays as it is.
static void free_batch(const struct signature *sig, int64_t batch, struct lower_request *req) {
    for (int32_t k = 0; k < sig->n_in && batch; k++) {
        const struct sig_tensor *t = &sig->in[k];
        if (t->rank < 1 || t->dims[0].symbol || is_whole(req, t)) continue;
        if (t->dims[0].size < 1 || t->dims[0].size == batch) return;
        req->fixed_batch = t->dims[0].size;
        req->batch = batch;
        return;
    }
}
// Adds to req's bindings what the given arrays say of sizes that the model leaves open.
static void bind_rows(struct arena *a, const struct signature *sig, const struct train_rows *rows,
                      size_t n, struct lower_request *req) {
    int32_t most = req->n_bindings, given = req->n_bindings;
    for (size_t k = 0; k < n; k++)
        most += rows[k].rank;
    struct dim_binding *b = arena_array(a, struct dim_binding, most + 1);
    for (int32_t k = 0; k < given; k++)
        b[k] = req->bindings[k];
    req->bindings = b;
    for (int32_t i = 0; i < sig->n_in; i++)
        for (size_t k = 0; k < n; k++) {
            const struct sig_tensor *t = &sig->in[i];
            if (strcmp(t->name, rows[k].name) != 0 || t->rank != rows[k].rank) continue;
            for (int32_t d = is_whole(req, t) ? 0 : 1; d < t->rank; d++) {
                int64_t bound;
                if (t->dims[d].symbol && !t->dims[d].expression && req->n_bindings < most &&
                    !frontend_bound(req, &t->dims[d], &bound))
                    b[req->n_bindings++] = (struct dim_binding){t->dims[d].symbol, rows[k].dims[d]};
            }
        }
}

// The globs that name more than everything: what single numbers are trained by.
static const char *named(struct arena *a, const char *globs) {
    struct strbuf b = {0};
    struct str all = str_of(globs), one;
    while (str_cut(&all, ',', &one))
        if (!str_is(str_trim(one), "*")) strbuf_printf(&b, STR_FMT ",", STR_ARG(one));
    const char *out = arena_strdup(a, strbuf_cstr(&b));
    strbuf_done(&b);
    return out;
}
status_t train_lower(struct arena *a, const char *format, struct span source,
                     const struct frontend_limits *limits, const struct train_rows *rows, size_t n,
                     const struct train_spec *spec, struct lower_request *req,
                     struct ingest_result *r, struct hlo_module **out) {
    struct frontend_limits l = limits ? *limits : (struct frontend_limits){0};
    l.trainable = true;
    l.constants = spec->constants;
    l.singles = named(a, spec->trainable);
    RETURN_IF_ERR(frontend_ingest(a, format, source, &l, r));
    req->purpose = spec->evaluate ? LOWER_VALIDATION : LOWER_TRAINING;
    req->limits = l;
    req->program = r->program;
    req->whole = spec->whole;
    bind_rows(a, &r->sig, rows, n, req);
    train_assume_sizes(a, &r->sig, spec->batch, req);
    free_batch(&r->sig, spec->batch, req);
    return frontend_lower(r->format, req, out);
}
status_t train_model(struct arena *a, const char *format, struct span source,
                     const struct frontend_limits *limits, const struct train_rows *rows, size_t n,
                     const struct train_spec *spec, const struct target *target,
                     struct ingest_result *r, struct hlo_module **out, struct train_program *p) {
    struct lower_request req = {.entry_name = "main"};
    RETURN_IF_ERR(train_lower(a, format, source, limits, rows, n, spec, &req, r, out));
    status_t st = train_derive(*out, r, spec, target, p);
    if (st) hlo_module_free(*out);
    return st;
}

// ---- what its state begins with

bool train_leaf_kept(const struct train_program *p, int32_t leaf) {
    enum train_role role = p->leaves[leaf].role;
    return leaf < p->n_state || role == TRAIN_FROZEN || role == TRAIN_WEIGHT;
}

// Elements in another type.
static void convert(struct arena *a, const void *data, const struct shape *from,
                    const struct shape *to, void *out) {
    if (from->dtype == to->dtype) {
        memcpy(out, data, (size_t)shape_bytes(to));
        return;
    }
    struct literal *x = lit_borrow(a, from, data), *y = lit_borrow(a, to, out);
    for (int64_t e = 0; e < shape_elements(to); e++)
        lit_set_f64(y, e, lit_get_f64(x, e));
}
void train_leaf_initial(const struct train_leaf *l, const struct ingest_result *r,
                        struct span source, void *to) {
    struct arena a = {0};
    if (l->weight >= 0 && l->role != TRAIN_SLOT) {
        const struct weight *w = &r->weights[l->weight];
        const uint8_t *data = (w->sidecar ? r->sidecar.p : source.p) + w->offset;
        convert(&a, data, shape_make(&a, w->dtype, w->dims, w->rank), l->shape, to);
    } else {
        struct literal *x = lit_borrow(&a, l->shape, to);
        memset(to, 0, (size_t)shape_bytes(l->shape));
        for (int64_t e = 0; e < shape_elements(l->shape) && l->initial != 0; e++)
            lit_set_f64(x, e, l->initial);
    }
    arena_done(&a);
}

status_t train_leaf_saved(const struct train_leaf *l, const struct safetensor *v, size_t n,
                          struct span *out) {
    const struct safetensor *t = NULL;
    for (size_t k = 0; k < n && !t; k++)
        if (strcmp(v[k].name, l->key) == 0) t = &v[k];
    if (!t) return st_invalid("there is no '%s': it is of another training", l->key);
    if (strcmp(t->dtype, dtype_name(l->shape->dtype)) != 0 || t->rank != l->shape->rank ||
        (t->rank && memcmp(t->dims, l->shape->dims, sizeof *t->dims * (size_t)t->rank) != 0))
        return st_invalid("'%s' has another type or shape than the model's", l->key);
    *out = t->data;
    return ST_OK;
}

status_t train_check_saved(const struct train_program *p, const struct safetensor *v, size_t n) {
    for (size_t k = 0; k < n; k++) {
        bool known = false;
        for (int32_t i = 0; i < p->n_leaves && !known; i++)
            known = train_leaf_kept(p, i) && strcmp(p->leaves[i].key, v[k].name) == 0;
        if (!known)
            return st_invalid("'%s' is not of this training: it has another optimizer or model",
                              v[k].name);
    }
    return ST_OK;
}

// ---- what its weights became

static status_t take_weights(struct arena *a, const struct ingest_result *r,
                             const struct safetensor *t, size_t n, struct new_weight *v,
                             size_t *out) {
    for (size_t k = 0; k < n; k++) {
        const struct weight *w = NULL;
        enum dtype type = dtype_from_name(str_of(t[k].dtype));
        if (strncmp(t[k].name, "hlod.", 5) == 0) continue;
        for (int j = 0; j < r->n_weights; j++)
            if (strcmp(r->weights[j].name, t[k].name) == 0) w = &r->weights[j];
        if (!w) return st_invalid("the model has no weight '%s'", t[k].name);
        const struct shape *to = shape_make(a, w->dtype, w->dims, w->rank);
        const struct shape *from = shape_make(a, type, t[k].dims, t[k].rank);
        if (!shape_same_dims(from, to))
            return st_invalid("weight '%s' is %s, the file has %s", w->name, shape_text(a, to),
                              shape_text(a, from));
        if (w->inner) continue; // frozen: as it is
        void *data = arena_alloc(a, (size_t)shape_bytes(to) + 1);
        convert(a, t[k].data.p, from, to, data);
        v[(*out)++] = (struct new_weight){w->name, {data, (size_t)shape_bytes(to)}, false};
    }
    return ST_OK;
}
status_t train_with_weights(const char *format, struct span source, struct span file,
                            const struct frontend_limits *limits, struct strbuf *out) {
    struct arena a = {0};
    struct ingest_result r;
    struct safetensor *t;
    struct frontend_limits l = limits ? *limits : (struct frontend_limits){0};
    l.trainable = true;
    l.constants = CONSTANTS_TRAINED;
    l.singles = "*";
    size_t n = 0, taken = 0;
    status_t st = safetensors_read(&a, file, &t, &n, NULL);
    if (!st) st = frontend_ingest(&a, format, source, &l, &r);
    struct new_weight *v = arena_zarray(&a, struct new_weight, n + 1);
    if (!st) st = take_weights(&a, &r, t, n, v, &taken);
    if (!st) st = frontend_with_weights(source, v, taken, out);
    arena_done(&a);
    return st;
}
