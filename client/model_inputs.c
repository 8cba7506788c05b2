// SPDX-License-Identifier: Apache-2.0
#include "client/model_inputs.h"

#include <sys/stat.h>

bool model_inputs_add(struct model_inputs *m, const char *word) {
    if (m->n == MODEL_INPUTS_MAX) return false;
    m->words[m->n++] = word;
    return true;
}

static int resolve_model(struct hlo *h, const char **model, const struct model_inputs *m) {
    struct stat sb;
    if (stat(*model, &sb)) return 0;
    struct strbuf q = {0};
    for (int k = 0; k < m->n; k++) {
        strbuf_printf(&q, "%sshape=%s=", k ? "&" : "", m->v[k].name);
        for (int d = 0; d < m->v[k].rank; d++)
            strbuf_printf(&q, "%s%lld", d ? "x" : "", (long long)m->v[k].dims[d]);
    }
    json_t *c = NULL;
    int rc = compile_model(h, *model, strbuf_cstr(&q), true, &c);
    strbuf_done(&q);
    if (rc) return rc;
    *model = arena_strdup(&h->arena, text_at(c, "sourceDigest"));
    json_decref(c);
    return 0;
}

static status_t from_metadata(struct hlo *h, const json_t *spec, struct npy *x) {
    const json_t *dim;
    size_t d;
    *x = (struct npy){.name = arena_strdup(&h->arena, text_at(spec, "name"))};
    if (!input_set_type(x, text_at(spec, "datatype")) || !npy_item_size(x->descr))
        return st_new(ST_INVALID_ARGUMENT, "input '%s' has type %s: give it with -i", x->name,
                      text_at(spec, "datatype"));
    int64_t bytes = npy_item_size(x->descr);
    json_array_foreach(json_object_get(spec, "shape"), d, dim) {
        int64_t n = json_integer_value(dim) < 0 ? 1 : json_integer_value(dim); // symbolic: one
        if (x->rank == NPY_MAX_RANK || !sz_mul(bytes, n, &bytes) || bytes > 1ll << 40)
            return st_new(ST_INVALID_ARGUMENT, "input '%s': shape too large", x->name);
        x->dims[x->rank++] = n;
    }
    x->size_bytes = (size_t)bytes;
    input_random(&h->arena, x);
    return ST_OK;
}

static int read_inputs(struct hlo *h, struct model_inputs *m) {
    struct image_options o = {.std = {1, 1, 1}};
    for (int k = 0; k < m->n; k++) {
        status_t st = input_parse(&h->arena, m->words[k], &o, &m->v[k]);
        if (st) return fail_status(st);
    }
    return 0;
}

static int default_inputs(struct hlo *h, const char *model, struct model_inputs *m) {
    json_t *meta = NULL, *spec;
    size_t k;
    int rc = get_json(h, arena_printf(&h->arena, "/v2/models/%s", model), &meta);
    if (rc) return rc;
    json_array_foreach(json_object_get(meta, "inputs"), k, spec) {
        if (k == MODEL_INPUTS_MAX) break;
        status_t st = from_metadata(h, spec, &m->v[m->n++]);
        if (st) {
            rc = fail_status(st);
            break;
        }
    }
    json_decref(meta);
    return rc;
}

int model_inputs_read(struct hlo *h, const char **model, struct model_inputs *m) {
    int rc = read_inputs(h, m);
    if (!rc) rc = resolve_model(h, model, m);
    if (!rc && !m->n) rc = default_inputs(h, *model, m);
    return rc;
}
