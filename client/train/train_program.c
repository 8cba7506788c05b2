// SPDX-License-Identifier: Apache-2.0
#include "client/train/train_program.h"

#include <stdlib.h>
#include <string.h>

#include "base/store/file.h"
#include "client/cli/hlo.h"
#include "client/files/input.h"
#include "client/files/opt_tool.h"
#include "proto/numbers.h"

static status_t read_leaf(struct arena *a, const json_t *j, struct train_leaf *l) {
    const json_t *shape = json_object_get(j, "shape"), *d;
    size_t k;
    *l = (struct train_leaf){.name = arena_strdup(a, text_at(j, "name")),
                             .role = arena_strdup(a, text_at(j, "role")),
                             .of = arena_strdup(a, text_at(j, "of")),
                             .key = arena_strdup(a, text_at(j, "key")),
                             .dtype = arena_strdup(a, text_at(j, "dtype")),
                             .still = json_is_true(json_object_get(j, "still")),
                             .rank = (int)json_array_size(shape)};
    const struct dtype_row *t = numbers_dtype(str_of(l->dtype));
    if (!t || l->rank > NPY_MAX_RANK)
        return st_invalid("'%s' is %s of rank %d", l->name, l->dtype, l->rank);
    l->size_bytes = (size_t)t->bytes;
    json_array_foreach(shape, k, d) {
        l->dims[k] = json_integer_value(d);
        l->size_bytes *= (size_t)l->dims[k]; // of a program that the compiler took
    }
    return ST_OK;
}
static status_t read_about(struct arena *a, const char *path, struct train_program *p) {
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e), *leaf;
    status_t st = j ? ST_OK : st_invalid("%s: %s", path, e.text);
    const json_t *all = json_object_get(j, "leaves");
    size_t k;
    p->n_leaves = (int)json_array_size(all);
    p->leaves = arena_zarray(a, struct train_leaf, p->n_leaves + 1);
    json_array_foreach(all, k, leaf) if (!st) st = read_leaf(a, leaf, &p->leaves[k]);
    p->n_state = (int)number_at(j, "state");
    p->accuracy = json_is_true(json_object_get(j, "accuracy"));
    p->steps_per_epoch = (int64_t)number_at(j, "steps_per_epoch");
    p->classes = (int64_t)number_at(j, "classes");
    p->slice = (int64_t)number_at(j, "slice");
    json_decref(j);
    return st;
}
static bool is_kept(const struct train_program *p, int k) {
    const char *role = p->leaves[k].role;
    return k < p->n_state || strcmp(role, "frozen") == 0 || strcmp(role, "weight") == 0;
}
status_t train_program_take(struct arena *a, struct train_program *p, const char *file) {
    struct span bytes;
    struct safetensor *v;
    size_t n;
    RETURN_IF_ERR(file_map(a, file, &bytes));
    RETURN_IF_ERR(st_note(safetensors_read(a, bytes, &v, &n, NULL), "%s", file));
    for (size_t j = 0; j < n; j++) {
        bool known = false;
        for (int k = 0; k < p->n_leaves && !known; k++)
            known = is_kept(p, k) && strcmp(p->leaves[k].key, v[j].name) == 0;
        if (!known)
            return st_invalid("%s: '%s' is not of this training: it has another optimizer or model",
                              file, v[j].name);
    }
    for (int k = 0; k < p->n_leaves; k++) {
        struct train_leaf *l = &p->leaves[k];
        const struct safetensor *t = NULL;
        if (!is_kept(p, k)) continue;
        for (size_t j = 0; j < n && !t; j++)
            if (strcmp(v[j].name, l->key) == 0) t = &v[j];
        if (!t && l->data && strcmp(l->role, "frozen") == 0) continue; // as the model has it
        if (!t) return st_invalid("%s has no '%s': it is of another training", file, l->key);
        if (strcmp(t->dtype, l->dtype) != 0 || t->rank != l->rank || t->data.n != l->size_bytes ||
            (l->rank && memcmp(t->dims, l->dims, sizeof *l->dims * (size_t)l->rank) != 0))
            return st_invalid("%s: '%s' has another type or shape than the model's", file, l->key);
        l->data = t->data.p;
    }
    return ST_OK;
}
int train_program_make(struct hlo *h, const char *model, const char *spec, const char *shapes,
                       const char *dir, const char *stem, struct train_program *out) {
    const char *about = arena_printf(&h->arena, "%s/%s.json", dir, stem),
               *state = arena_printf(&h->arena, "%s/%s.safetensors", dir, stem);
    const char *argv[] = {"--to=proto",
                          arena_printf(&h->arena, "--train=%s", spec),
                          arena_printf(&h->arena, "--train-rows=%s", shapes),
                          arena_printf(&h->arena, "--train-to=%s", about),
                          arena_printf(&h->arena, "--train-state=%s", state),
                          NULL};
    *out = (struct train_program){.path = arena_printf(&h->arena, "%s/%s.pb", dir, stem)};
    int rc = hlo_opt_into(h, out->path, argv, model);
    if (rc) return rc;
    status_t st = read_about(&h->arena, about, out);
    if (!st) st = train_program_take(&h->arena, out, state);
    return st ? fail_status(st) : 0;
}

// ---- values

static status_t check_classes(const struct train_program *p, const struct train_leaf *l) {
    if (strcmp(l->role, "label") != 0 || !p->classes) return ST_OK;
    const int32_t *v = l->data;
    for (size_t k = 0; k < l->size_bytes / sizeof *v; k++)
        if (v[k] < 0 || v[k] >= p->classes)
            return st_invalid("label: element %zu is %d, there are classes 0 to %lld", k, v[k],
                              (long long)p->classes - 1);
    return ST_OK;
}
status_t train_program_give(struct arena *a, const struct train_program *p, struct train_leaf *l,
                            const struct npy *x) {
    const char *datatype = input_type(x);
    const struct dtype_row *from = datatype ? numbers_dtype(str_of(datatype)) : NULL,
                           *to = numbers_dtype(str_of(l->dtype));
    int64_t n = 1;
    bool same = x->rank == l->rank;
    for (int k = 0; k < l->rank; k++)
        n *= l->dims[k], same &= k >= x->rank || x->dims[k] == l->dims[k];
    // Labels often come as one column.
    if (x->rank == l->rank + 1 && x->dims[l->rank] == 1 &&
        (!l->rank || memcmp(x->dims, l->dims, sizeof *l->dims * (size_t)l->rank) == 0))
        same = true;

    if (!same || !from || from->cls == NUM_RAW || from->cls == NUM_STRING) {
        struct strbuf b = {0};
        for (int k = 0; k < l->rank; k++)
            strbuf_printf(&b, "%s%lld", k ? "x" : "", (long long)l->dims[k]);
        for (int k = 0; k < x->rank; k++)
            strbuf_printf(&b, "%s%lld", k ? "x" : ", not ", (long long)x->dims[k]);
        status_t st = st_invalid("'%s' must be %s %s%s", x->name, l->dtype, strbuf_cstr(&b),
                                 from ? "" : ", of numbers");
        strbuf_done(&b);
        return st;
    }

    l->data = x->data;
    if (from == to) return check_classes(p, l);
    void *out = arena_alloc(a, l->size_bytes + 1);
    for (int64_t k = 0; k < n; k++)
        if (!numbers_put(to, out, k, numbers_at(from, x->data, k)))
            return st_invalid("'%s': element %lld, %Lg, is no %s", x->name, (long long)k,
                              numbers_at(from, x->data, k), l->dtype);
    l->data = out;
    return check_classes(p, l);
}
