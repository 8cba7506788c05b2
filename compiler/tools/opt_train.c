// SPDX-License-Identifier: Apache-2.0
// A model as the program that trains it: what the program's parameters are, what they begin with,
// and the model with what they became.
#include "compiler/tools/opt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/store/file.h"
#include "proto/safetensors.h"

static const char *const roles[] = {
    [TRAIN_WEIGHT] = "weight",       [TRAIN_SLOT] = "slot",   [TRAIN_MEAN] = "mean",
    [TRAIN_STATISTIC] = "statistic", [TRAIN_ORDER] = "order", [TRAIN_STEP] = "step",
    [TRAIN_FROZEN] = "frozen",       [TRAIN_DATA] = "data",   [TRAIN_LABEL] = "label",
    [TRAIN_SEED] = "seed",           [TRAIN_LIMIT] = "limit"};

// ---- what the parameters are

static void put_leaf(struct strbuf *b, const struct train_leaf *l) {
    strbuf_puts(b, "  {\"name\": ");
    strbuf_json_str(b, str_of(l->name));
    strbuf_printf(b, ", \"role\": \"%s\"", roles[l->role]);
    if (l->of) {
        strbuf_puts(b, ", \"of\": ");
        strbuf_json_str(b, str_of(l->of));
    }
    strbuf_puts(b, ", \"key\": ");
    strbuf_json_str(b, str_of(l->key));
    strbuf_printf(b, ", \"dtype\": \"%s\", \"shape\": [", dtype_name(l->shape->dtype));
    for (int k = 0; k < l->shape->rank; k++)
        strbuf_printf(b, "%s%lld", k ? ", " : "", (long long)l->shape->dims[k]);
    strbuf_puts(b, "]");
    if (l->role == TRAIN_SLOT) {
        strbuf_puts(b, ", \"initial\": ");
        strbuf_f64(b, l->initial);
    }
    strbuf_puts(b, "}");
}
static status_t put_file(const char *path, const struct strbuf *b) {
    FILE *f = fopen(path, "wbe");
    if (!f) return st_errno(errno, path);
    bool whole = fwrite(b->p, 1, b->n, f) == b->n;
    int err = errno;
    whole &= fclose(f) == 0;
    return whole ? ST_OK : st_errno(err, path);
}
static status_t tell(const char *path, const struct train_program *p,
                     const struct train_spec *spec) {
    struct strbuf b = {0}, text = {0};
    train_spec_print(spec, &text);
    strbuf_puts(&b, "{\"spec\": ");
    strbuf_json_str(&b, (struct str){strbuf_cstr(&text), text.n});
    strbuf_printf(&b,
                  ",\n \"steps_per_epoch\": %lld, \"classes\": %lld, \"slice\": %lld, "
                  "\"state\": %d, \"accuracy\": %s,\n \"leaves\": [\n",
                  (long long)p->steps_per_epoch, (long long)p->classes, (long long)spec->slice,
                  p->n_state, p->accuracy ? "true" : "false");
    for (int k = 0; k < p->n_leaves; k++) {
        put_leaf(&b, &p->leaves[k]);
        strbuf_puts(&b, k + 1 < p->n_leaves ? ",\n" : "\n");
    }
    strbuf_puts(&b, " ]}\n");
    status_t st = put_file(path, &b);
    strbuf_done(&b);
    strbuf_done(&text);
    return st;
}

// ---- what they begin with

// Elements in another type.
static struct span converted(struct arena *a, struct span data, const struct shape *from,
                             const struct shape *to) {
    if (from->dtype == to->dtype) return data;
    struct literal *x = lit_borrow(a, from, data.p), *y = lit_new(a, to);
    for (int64_t e = 0; e < shape_elements(to); e++)
        lit_set_f64(y, e, lit_get_f64(x, e));
    return (struct span){y->data, (size_t)shape_bytes(to)};
}
static struct span weight_data(struct arena *a, const struct ingest_result *r, struct span source,
                               const struct train_leaf *l) {
    const struct weight *w = &r->weights[l->weight];
    struct span data = {(w->sidecar ? r->sidecar.p : source.p) + w->offset, (size_t)w->size_bytes};
    return converted(a, data, shape_make(a, w->dtype, w->dims, w->rank), l->shape);
}
static struct span filled(struct arena *a, const struct train_leaf *l) {
    struct literal *x = lit_new(a, l->shape);
    for (int64_t e = 0; e < shape_elements(l->shape) && l->initial != 0; e++)
        lit_set_f64(x, e, l->initial);
    return (struct span){x->data, (size_t)shape_bytes(l->shape)};
}
static status_t put_state(const char *path, const struct train_program *p,
                          const struct ingest_result *r, struct span source) {
    struct arena a = {0};
    struct safetensor *v = arena_zarray(&a, struct safetensor, p->n_leaves + 1);
    size_t n = 0;
    for (int k = 0; k < p->n_leaves; k++) {
        const struct train_leaf *l = &p->leaves[k];
        if (k >= p->n_state && l->role != TRAIN_FROZEN && l->role != TRAIN_WEIGHT) continue;
        struct span data =
            l->weight >= 0 && l->role != TRAIN_SLOT ? weight_data(&a, r, source, l) : filled(&a, l);
        v[n++] = (struct safetensor){l->key, dtype_name(l->shape->dtype), l->shape->rank,
                                     l->shape->dims, data};
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    status_t st = fd < 0 ? st_errno(errno, path) : safetensors_write(fd, path, v, n, NULL);
    if (fd >= 0 && close(fd) && !st) st = st_errno(errno, path);
    arena_done(&a);
    return st;
}

status_t opt_train(struct hlo_module *m, const struct opt_options *o, const struct ingest_result *r,
                   struct span source, const struct train_spec *spec) {
    struct train_program p;
    RETURN_IF_ERR(train_module(m, r, spec, &p));
    if (o->train_to) RETURN_IF_ERR(tell(o->train_to, &p, spec));
    if (o->train_state && !r) return st_invalid("--train-state: the module has no weights");
    return o->train_state ? put_state(o->train_state, &p, r, source) : ST_OK;
}

// ---- what they became

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
        v[(*out)++] = (struct new_weight){w->name, converted(a, t[k].data, from, to), false};
    }
    return ST_OK;
}
status_t opt_with_weights(const struct opt_options *o, struct span source) {
    struct arena a = {0};
    struct span file;
    struct ingest_result r;
    struct safetensor *t;
    struct strbuf b = {0};
    struct frontend_limits train = {.trainable = true};
    size_t n = 0, taken = 0;
    status_t st = file_map(&a, o->with_weights, &file);
    if (!st) st = st_note(safetensors_read(&a, file, &t, &n, NULL), "%s", o->with_weights);
    if (!st) st = frontend_ingest(&a, NULL, source, &train, &r);
    struct new_weight *v = arena_zarray(&a, struct new_weight, n + 1);
    if (!st) st = take_weights(&a, &r, t, n, v, &taken);
    if (!st) st = frontend_with_weights(source, v, taken, &b);
    if (!st && fwrite(b.p, 1, b.n, stdout) != b.n) st = st_errno(errno, "stdout");
    strbuf_done(&b);
    arena_done(&a);
    return st;
}
