// SPDX-License-Identifier: Apache-2.0
#include "client/files/tensors.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/files/input.h"
#include "client/files/npy_text.h"
#include "proto/numbers.h"

// ---- requests

json_t *tensor_describe(const struct npy *x) {
    json_t *shape = json_array();
    for (int d = 0; d < x->rank; d++)
        json_array_append_new(shape, json_integer(x->dims[d]));
    return json_pack("{s:s, s:s, s:o, s:{s:I}}", "name", x->name, "datatype", input_type(x),
                     "shape", shape, "parameters", "binary_data_size", (json_int_t)x->size_bytes);
}

status_t tensors_send(struct hlo *h, const char *path, json_t *head, const struct npy *in, int n,
                      enum reply_form form, struct http_reply *out) {
    char *text = json_dumps(head, JSON_COMPACT), length[64];
    json_decref(head);
    if (!text) return st_oom();
    struct span *parts = arena_array(&h->arena, struct span, n + 1);
    parts[0] = (struct span){(const uint8_t *)text, strlen(text)};
    for (int k = 0; k < n; k++)
        parts[k + 1] = (struct span){in[k].data, in[k].size_bytes};
    snprintf(length, sizeof length, "Inference-Header-Content-Length: %zu", strlen(text));
    const char *headers[] = {length, NULL};
    status_t st =
        hlo_http(h,
                 &(struct http_request){.method = "POST",
                                        .path = path,
                                        .content_type = "application/octet-stream",
                                        .accept = form == REPLY_JSON ? "application/json"
                                                                     : "application/octet-stream",
                                        .headers = headers,
                                        .parts = parts,
                                        .n_parts = (size_t)n + 1},
                 out);
    free(text);
    return st;
}

// ---- replies

enum reply_form reply_form(const struct hlo *h, const char *out) {
    return h->json && !out ? REPLY_JSON : REPLY_BYTES;
}

// Not by way of jansson, which has no integers of 64 bits without a sign.
int64_t reply_print(const struct http_reply *reply) {
    json_error_t e;
    fwrite(strbuf_cstr(&reply->body), 1, reply->body.n, stdout);
    if (!reply->body.n || reply->body.p[reply->body.n - 1] != '\n') putchar('\n');
    json_t *j = json_loadb(strbuf_cstr(&reply->body), reply->body.n, JSON_DECODE_INT_AS_REAL, &e);
    int64_t job = (int64_t)number_at(j, "job");
    json_decref(j);
    return job;
}

static status_t read_outputs(struct arena *a, const json_t *j, struct span tail, struct npy **out,
                             int *out_n) {
    const json_t *list = json_object_get(j, "outputs"), *o;
    size_t k, at = 0;
    *out = arena_zarray(a, struct npy, json_array_size(list) + 1);
    *out_n = 0;
    json_array_foreach(list, k, o) {
        if (*text_at(o, "handle")) continue; // stays on the device
        struct npy *x = &(*out)[(*out_n)++];
        size_t n = (size_t)number_at(json_object_get(o, "parameters"), "binary_data_size");
        const char *type = *text_at(o, "datatype") ? text_at(o, "datatype") : text_at(o, "dtype");
        x->name = arena_strdup(a, text_at(o, "name"));
        bool known = input_set_type(x, type);
        size_t d;
        const json_t *dim;
        json_array_foreach(json_object_get(o, "shape"), d, dim) if (x->rank < NPY_MAX_RANK)
            x->dims[x->rank++] = json_integer_value(dim);
        if (!known) // a later server's type: bytes
            memcpy(x->descr, "|u1", 4), x->rank = 1, x->dims[0] = (int64_t)n;
        if (n > tail.n - at) return st_new(ST_DATA_LOSS, "the reply is shorter than it says");
        x->data = arena_dup(a, tail.p + at, n);
        x->size_bytes = n;
        at += n;
    }
    return ST_OK;
}

status_t tensors_read(struct arena *a, const struct http_reply *reply, json_t **out_head,
                      struct npy **out, int *out_n) {
    json_error_t e;
    size_t head = reply->json_bytes >= 0 && (size_t)reply->json_bytes <= reply->body.n
                      ? (size_t)reply->json_bytes
                      : reply->body.n;
    json_t *j = json_loadb(strbuf_cstr(&reply->body), head, 0, &e);
    if (!j) return st_new(ST_DATA_LOSS, "the reply is not JSON: %s", e.text);
    *out_head = j;
    return read_outputs(a, j,
                        (struct span){(const uint8_t *)reply->body.p + head, reply->body.n - head},
                        out, out_n);
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

json_t *resident_input(const struct residents *r, int k) {
    json_t *x = json_pack("{s:s, s:s}", "name", r->in[k].name, "handle", r->in[k].handle);
    if (r->in[k].donate) json_object_set_new(x, "donate", json_true());
    return x;
}

void resident_outputs(const struct residents *r, json_t *request) {
    json_t *keep = json_array();
    for (int k = 0; k < r->n_keep; k++)
        json_array_append_new(keep, json_string(r->keep[k]));
    json_object_set_new(request, "keep", keep);
    if (r->tuple) json_object_set_new(request, "keep_tuple", json_true());
    if (r->lease_ms) json_object_set_new(request, "lease_ms", json_integer(r->lease_ms));
}
