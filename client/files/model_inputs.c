// SPDX-License-Identifier: Apache-2.0
#include "client/files/model_inputs.h"

#include <string.h>

#include "client/files/hlox.h"
#include "client/files/npy_text.h"

bool model_inputs_add(struct model_inputs *m, const char *word) {
    if (m->n == MODEL_INPUTS_MAX) return false;
    m->words[m->n++] = word;
    return true;
}

// *out_shaped: the executable of a file, whose shapes are known; or NULL.
static int resolve_model(struct hlo *h, const char **model, struct model_inputs *m,
                         const char **out_shaped) {
    bool file;
    int rc = model_is_file(*model, &file);
    if (rc || !file) return rc;
    struct strbuf q = {0};
    for (int k = 0; k < m->n; k++) {
        if (!m->v[k].descr[0]) continue; // of a .hlox, which knows its shapes
        struct strbuf one = {0};
        strbuf_printf(&one, "%s=", m->v[k].name);
        for (int d = 0; d < m->v[k].rank; d++)
            strbuf_printf(&one, "%s%lld", d ? "x" : "", (long long)m->v[k].dims[d]);
        query_add(&q, "shape", strbuf_cstr(&one));
        strbuf_done(&one);
    }
    json_t *c = NULL;
    rc = compile_model(h, *model, strbuf_cstr(&q), m->n ? THEN_RUN : THEN_TRY, &c);
    strbuf_done(&q);
    if (rc) return rc;
    // Models that differ in weights or names share an executable: it is run as the one in the file.
    const char *source = arena_strdup(&h->arena, text_at(c, "sourceDigest"));
    if (text_at(c, "digest")[0]) *out_shaped = arena_strdup(&h->arena, text_at(c, "digest"));
    bool exactly = *out_shaped && hlox_sniff(*model);
    *model = exactly ? *out_shaped : source;
    m->weights = exactly ? source : NULL;
    json_decref(c);
    return 0;
}

// ---- inputs that nobody gave

// n elements that each are one: of an input whose values decide shapes.
static void ones(struct arena *a, struct npy *x) {
    size_t item = (size_t)npy_item_size(x->descr);
    uint8_t *p = x->data = arena_zalloc(a, x->size_bytes + 1);
    float f = 1;
    double d = 1;
    for (size_t k = 0; item && k + item <= x->size_bytes; k += item)
        if (x->descr[1] == 'f' && item == 4)
            memcpy(p + k, &f, 4);
        else if (x->descr[1] == 'f' && item == 8)
            memcpy(p + k, &d, 8);
        else
            p[k] = 1; // little-endian
}
static void texts(struct arena *a, struct npy *x, int64_t n) {
    x->size_bytes = (size_t)n * 5;
    uint8_t *p = x->data = arena_zalloc(a, x->size_bytes + 1);
    for (int64_t k = 0; k < n; k++, p += 5) {
        p[0] = 1; // the length
        p[4] = 'a';
    }
}

static status_t made_up(struct hlo *h, const json_t *spec, struct npy *x) {
    const json_t *dim;
    size_t d;
    *x = (struct npy){.name = arena_strdup(&h->arena, text_at(spec, "name"))};
    if (json_is_true(json_object_get(spec, "unknownRank")))
        return st_new(ST_INVALID_ARGUMENT, "input '%s' has no shape of its own: give it with -i",
                      x->name);
    if (!input_set_type(x, text_at(spec, "dtype")))
        return st_new(ST_INVALID_ARGUMENT, "input '%s' has type %s: give it with -i", x->name,
                      text_at(spec, "dtype"));
    bool text = strcmp(x->descr, NPY_TEXT) == 0;
    int64_t n = 1, bytes = text ? 5 : npy_item_size(x->descr);
    json_array_foreach(json_object_get(spec, "dims"), d, dim) {
        int64_t size = (int64_t)number_at(dim, "size"), usual = (int64_t)number_at(dim, "usual");
        if (size < 0) size = usual > 0 ? usual : 1;
        n *= size; // below the bound of bytes
        if (x->rank == NPY_MAX_RANK || !sz_mul(bytes, size, &bytes) || bytes > 1ll << 40)
            return st_new(ST_INVALID_ARGUMENT, "input '%s': shape too large", x->name);
        x->dims[x->rank++] = size;
    }
    x->size_bytes = (size_t)bytes;
    if (text)
        texts(&h->arena, x, n);
    else if (json_is_true(json_object_get(spec, "byValue")))
        ones(&h->arena, x);
    else
        input_random(&h->arena, x);
    return ST_OK;
}

// The signature of an executable, whose shapes are known, or of a model.
static int signature_of(struct hlo *h, const char *model, json_t **out) {
    size_t hex = strspn(model, "0123456789abcdef");
    json_t *j = NULL;
    if (hex == 64 && !model[64])
        j = hlo_try(h, "GetExecutable", json_pack("{s:s}", "digest", model));
    if (!j) j = hlo_try(h, "ShowModel", json_pack("{s:s}", "model", model));
    int rc = j ? 0 : hlo_fail(h, EXIT_REFUSED);
    if (!rc) *out = json_incref(json_object_get(j, "signature"));
    json_decref(j);
    return rc;
}

// The model's signature in the shapes of its executable, whose names may be another model's.
static int signature_in(struct hlo *h, const char *model, const char *shaped, json_t **out) {
    json_t *sizes = NULL, *spec;
    size_t k;
    int rc = signature_of(h, model, out);
    if (!rc && shaped) rc = signature_of(h, shaped, &sizes);
    const json_t *of = json_object_get(sizes, "inputs"), *to = json_object_get(*out, "inputs");
    if (json_array_size(of) == json_array_size(to)) json_array_foreach(to, k, spec) {
            json_t *dims = json_object_get(json_array_get(of, k), "dims");
            if (dims) json_object_set(spec, "dims", dims);
        }
    json_decref(sizes);
    return rc;
}

int model_inputs_default(struct hlo *h, const char *model, const char *shaped, struct npy *v,
                         int *n) {
    json_t *signature = NULL, *spec;
    size_t k;
    int rc = signature_in(h, model, shaped, &signature);
    if (rc) return rc;
    json_array_foreach(json_object_get(signature, "inputs"), k, spec) {
        if (json_is_true(json_object_get(spec, "optional")) ||
            json_is_true(json_object_get(spec, "sequence")))
            continue; // may be left out, or have no elements
        if (*n == MODEL_INPUTS_MAX) {
            rc = fail_status(st_new(ST_INVALID_ARGUMENT, "more than %d inputs: give them with -i",
                                    MODEL_INPUTS_MAX));
            break;
        }
        status_t st = made_up(h, spec, &v[(*n)++]);
        if (st) {
            rc = fail_status(st);
            break;
        }
    }
    json_decref(signature);
    return rc;
}

// ---- words that leave type or shape to the model

static status_t fit(struct hlo *h, const json_t *spec, const char *word, struct npy *x) {
    const json_t *dim;
    size_t d;
    struct npy shape = {.rank = 0};
    if (strcmp(strchr(word, '=') + 1, "random") == 0) return made_up(h, spec, x);
    json_array_foreach(json_object_get(spec, "dims"), d, dim) if (shape.rank < NPY_MAX_RANK)
        shape.dims[shape.rank++] = (int64_t)number_at(dim, "size");
    bool any = json_is_true(json_object_get(spec, "unknownRank"));
    return input_fit(&h->arena, word, text_at(spec, "dtype"), any ? NULL : &shape, x);
}

int model_inputs_fit(struct hlo *h, const char *model, const char *shaped, const char *const *words,
                     struct npy *v, int n) {
    const struct image_options none = {.std = {1, 1, 1}};
    bool file, open = false;
    char hex[65];
    json_t *signature = NULL, *spec;
    size_t i;
    for (int k = 0; k < n; k++)
        open |= !v[k].descr[0];
    if (!open) return 0;
    int rc = model_is_file(model, &file);
    if (!rc && file) rc = upload_model(h, model, hex);
    if (!rc) rc = signature_in(h, file ? hex : model, shaped, &signature);
    status_t st = ST_OK;
    for (int k = 0; k < n && !rc && !st; k++) {
        if (v[k].descr[0]) continue;
        bool found = false;
        json_array_foreach(json_object_get(signature, "inputs"), i,
                           spec) if (!strcmp(text_at(spec, "name"), v[k].name) && !found &&
                                     !json_is_true(json_object_get(spec, "sequence"))) {
            found = true;
            st = fit(h, spec, words[k], &v[k]);
        }
        if (!found) st = input_parse(&h->arena, words[k], &none, &v[k]); // the server will tell
    }
    json_decref(signature);
    return st ? fail_status(st) : rc;
}

static int read_inputs(struct hlo *h, struct model_inputs *m) {
    struct image_options o = {.std = {1, 1, 1}};
    for (int k = 0; k < m->n; k++) {
        if (input_untyped(&h->arena, m->words[k], &m->v[k])) continue;
        status_t st = input_parse(&h->arena, m->words[k], &o, &m->v[k]);
        if (st) return fail_status(st);
    }
    return 0;
}

int model_inputs_read(struct hlo *h, const char **model, struct model_inputs *m) {
    int rc = read_inputs(h, m);
    bool file = false, later = false;
    if (!rc) rc = model_is_file(*model, &file);
    if (!rc && file) later = hlox_sniff(*model);
    if (!rc && !later) rc = model_inputs_fit(h, *model, NULL, m->words, m->v, m->n);
    const char *shaped = NULL;
    if (!rc) rc = resolve_model(h, model, m, &shaped);
    const char *named_as = m->weights ? m->weights : *model;
    if (!rc && later) rc = model_inputs_fit(h, named_as, shaped, m->words, m->v, m->n);
    if (!rc && !m->n) rc = model_inputs_default(h, named_as, shaped, m->v, &m->n);
    return rc;
}
