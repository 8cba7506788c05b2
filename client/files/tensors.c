// SPDX-License-Identifier: Apache-2.0
#include "client/files/tensors.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/files/input.h"
#include "client/files/npy_text.h"
#include "proto/numbers.h"

// ---- calls

static void free_outputs(void *o) {
    hlod_outputs_free(o);
}
static struct npy *arrays_of(struct arena *a, const struct hlod_outputs *o, int *out_n) {
    struct npy *v = arena_zarray(a, struct npy, o->n_outputs + 1);
    for (size_t k = 0; k < o->n_outputs; k++) {
        const struct hlod_tensor *t = &o->outputs[k].tensor;
        if (o->outputs[k].handle) continue; // stays on the device
        struct npy *x = &v[(*out_n)++];
        x->name = t->name;
        x->data = (void *)(uintptr_t)t->data;
        x->size_bytes = t->size_bytes;
        for (; x->rank < t->rank && x->rank < NPY_MAX_RANK; x->rank++)
            x->dims[x->rank] = t->dims[x->rank];
        if (!input_set_type(x, t->dtype)) // a later server's type: bytes
            memcpy(x->descr, "|u1", 4), x->rank = 1, x->dims[0] = (int64_t)t->size_bytes;
    }
    return v;
}

static int tensors_fail(struct hlo *h) {
    enum hlod_code code = hlod_error(h->hlod)->code;
    return hlo_fail(h, code == HLOD_INVALID_ARGUMENT || code == HLOD_NOT_FOUND ||
                               code == HLOD_FAILED_PRECONDITION || code == HLOD_OUT_OF_RANGE
                           ? EXIT_REFUSED
                           : EXIT_RUN);
}

static status_t keep_reply(struct hlo *h, char *text, struct hlod_outputs *o, const char *file,
                           struct tensors_reply *out) {
    json_error_t e;
    if (o) arena_link(&h->arena, free_outputs, o);
    if (!o) puts(text); // as it came: jansson has no integers of 64 bits without a sign
    out->printed = !o;
    out->head = json_loads(text, o ? 0 : JSON_DECODE_INT_AS_REAL, &e);
    hlod_text_free(text);
    if (!out->head) return st_new(ST_DATA_LOSS, "the reply is not JSON: %s", e.text);
    if (!o) return ST_OK;
    out->v = arrays_of(&h->arena, o, &out->n);
    return file ? tensors_write(&h->arena, file, out->v, out->n) : ST_OK;
}

int tensors_call(struct hlo *h, const char *method, json_t *request, const struct npy *in, int n,
                 const struct residents *r, const char *file, struct tensors_reply *out) {
    struct hlod_input *v = arena_zarray(&h->arena, struct hlod_input, n + MAX_RESIDENTS);
    struct hlod_outputs *o = NULL;
    char *text = json_dumps(request, JSON_COMPACT), *reply = NULL;
    *out = (struct tensors_reply){0};
    json_decref(request);
    for (int k = 0; k < n; k++)
        v[k].tensor = (struct hlod_tensor){in[k].name, input_type(&in[k]), in[k].rank,
                                           in[k].dims, in[k].data,         in[k].size_bytes};
    for (int k = 0; r && k < r->n_in; k++, n++)
        v[n] = (struct hlod_input){
            .tensor.name = r->in[k].name, .handle = r->in[k].handle, .donate = r->in[k].donate};

    status_t st = text ? hlo_open(h) : st_oom();
    enum hlod_code code = HLOD_OK;
    if (!st)
        code = hlod_call_tensors(h->hlod, method, text, v, (size_t)n, &reply,
                                 h->json && !file ? NULL : &o);
    free(text);
    if (!st && !code) st = keep_reply(h, reply, o, file, out);
    return st ? fail_status(st) : code ? tensors_fail(h) : 0;
}

static bool ends_in(const char *path, const char *suffix) {
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && strcmp(path + n - m, suffix) == 0;
}
status_t tensors_can_write(const char *path) {
    return !path || ends_in(path, ".npz") || ends_in(path, ".npy")
               ? ST_OK
               : st_new(ST_INVALID_ARGUMENT, "-o %s: expected a name that ends in .npz or .npy",
                        path);
}
status_t tensors_write(struct arena *a, const char *path, struct npy *x, int n_x) {
    for (int k = 0; k < n_x; k++)
        if (strcmp(x[k].descr, NPY_TEXT) == 0) RETURN_IF_ERR(npy_text_write(a, &x[k], &x[k]));
    if (ends_in(path, ".npy")) {
        if (n_x != 1) return st_new(ST_INVALID_ARGUMENT, "there are %d outputs: write a .npz", n_x);
        return npy_write_file(path, &x[0]);
    }
    return npz_write_file(path, x, n_x);
}

enum { MAX_SHOWN = 8 }; // elements of a tensor on the terminal; all go into files

static void print_texts(const struct npy *x) {
    struct span rest = {x->data, x->size_bytes};
    struct str s;
    for (int k = 0; k < MAX_SHOWN && numbers_next_string(&rest, &s); k++) {
        struct strbuf b = {0};
        strbuf_json_str(&b, s); // a terminal is not asked to obey
        printf(" %s", strbuf_cstr(&b));
        strbuf_done(&b);
    }
}

void tensor_print(const struct npy *x) {
    const char *datatype = input_type(x);
    const struct dtype_row *type = datatype ? numbers_dtype(str_of(datatype)) : NULL;
    bool numbers = type && type->cls != NUM_STRING && type->cls != NUM_RAW;
    int64_t n = numbers ? (int64_t)x->size_bytes / type->bytes : 0;
    printf("%s %s[", x->name, type ? type->name : x->descr);
    for (int d = 0; d < x->rank; d++)
        printf("%s%lld", d ? "," : "", (long long)x->dims[d]);
    printf("]");
    if (strcmp(x->descr, NPY_TEXT) == 0) print_texts(x);
    for (int64_t e = 0; e < n && e < MAX_SHOWN; e++)
        printf(type->cls == NUM_F64  ? " %.12Lg"
               : type->cls >= NUM_F8 ? " %Lg"
                                     : " %.0Lf",
               numbers_at(type, x->data, e));
    puts(n > MAX_SHOWN ? " ..." : "");
}

void tensors_print_kept(const json_t *reply) {
    const json_t *o, *d;
    size_t k, i;
    json_array_foreach(json_object_get(reply, "outputs"), k, o) {
        if (!*text_at(o, "handle")) continue;
        printf("%s %s[", text_at(o, "name"), text_at(o, "dtype"));
        json_array_foreach(json_object_get(o, "shape"), i, d)
            printf("%s%lld", i ? "," : "", (long long)json_integer_value(d));
        printf("] stays as %s\n", text_at(o, "handle"));
    }
    if (*text_at(reply, "tuple")) printf("tuple %s\n", text_at(reply, "tuple"));
}

// ---- resident buffers

bool parse_lease(const char *text, int64_t *out_ms) {
    if (!strcmp(text, "forever")) {
        *out_ms = -1;
        return true;
    }
    return parse_duration(text, out_ms) && *out_ms > 0;
}

status_t resident_option(struct hlo *h, int *k, struct residents *r, bool *out_taken) {
    const char *v;
    bool donate = false;
    *out_taken = true;
    if ((v = option_value(h, k, "--input-handle")) ||
        (donate = (v = option_value(h, k, "--donate")) != NULL)) {
        const char *eq = strrchr(v, '=');
        if (r->n_in == MAX_RESIDENTS || (eq && !eq[1]))
            return st_new(ST_INVALID_ARGUMENT, "%s: expected NAME=HANDLE, %d at most", v,
                          MAX_RESIDENTS);
        r->in[r->n_in++] = (struct resident){
            eq ? arena_strndup(&h->arena, v, (size_t)(eq - v)) : "", eq ? eq + 1 : v, donate};
    } else if ((v = option_value(h, k, "--keep-output"))) {
        if (r->n_keep == MAX_RESIDENTS)
            return st_new(ST_INVALID_ARGUMENT, "more than %d outputs to keep", MAX_RESIDENTS);
        r->keep[r->n_keep++] = strcmp(v, "all") == 0 ? "*" : v;
    } else if (strcmp(h->argv[*k], "--keep-tuple") == 0)
        r->tuple = true;
    else if ((v = option_value(h, k, "--lease"))) {
        if (!parse_lease(v, &r->lease_ms))
            return st_new(ST_INVALID_ARGUMENT, "--lease: as in 90s, 10m, forever");
    } else
        *out_taken = false;
    return ST_OK;
}

void resident_outputs(const struct residents *r, json_t *request) {
    json_t *keep = json_array();
    for (int k = 0; k < r->n_keep; k++)
        json_array_append_new(keep, json_string(r->keep[k]));
    json_object_set_new(request, "keep", keep);
    if (r->tuple) json_object_set_new(request, "keep_tuple", json_true());
    if (r->lease_ms) json_object_set_new(request, "lease_ms", json_integer(r->lease_ms));
}
