// SPDX-License-Identifier: Apache-2.0
// hlo buffers: put, get, list, tuple, renew, free what stays on the devices.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/files/input.h"
#include "client/files/tensors.h"

enum { MAX_WORDS = 1024 };
struct buffers {
    const char *words[MAX_WORDS], *out, *device;
    const char *inputs[MAX_WORDS];
    int n_words, n_inputs;
    bool tuple;
    int64_t lease_ms;
};

static void print_buffer(const json_t *b) {
    const json_t *d;
    size_t k;
    char left[32] = "no end";
    if (number_at(b, "leaseMs") >= 0)
        snprintf(left, sizeof left, "%.0f s left", number_at(b, "leftMs") / 1e3);
    printf("%-18s %-12s %-8s %-6s %10.0f B  %s  ", text_at(b, "handle"), text_at(b, "name"),
           text_at(b, "device"), text_at(b, "state"), number_at(b, "bytes"), left);
    if (json_is_true(json_object_get(b, "tuple")))
        printf("tuple of %zu", json_array_size(json_object_get(b, "elements")));
    else {
        printf("%s[", text_at(b, "dtype"));
        json_array_foreach(json_object_get(b, "shape"), k, d)
            printf("%s%lld", k ? "," : "", (long long)json_integer_value(d));
        printf("]");
    }
    puts("");
}

static int list(struct hlo *h) {
    json_t *j, *b;
    size_t k;
    int rc = hlo_print(h, "ListBuffers", NULL, &j);
    if (rc || !j) return rc;
    json_array_foreach(json_object_get(j, "buffers"), k, b) print_buffer(b);
    json_array_foreach(json_object_get(j, "use"), k, b) fprintf(
        stderr, "%s%s%s: %s of %s in %.0f buffers\n", text_at(b, "node"),
        *text_at(b, "node") ? " " : "", text_at(b, "device"), size_text(number_at(b, "bytes")).s,
        size_text(number_at(b, "quotaBytes")).s, number_at(b, "buffers"));
    json_array_foreach(json_object_get(j, "missing"), k, b) fprintf(
        stderr, "node %s did not answer: its buffers are not listed\n", json_string_value(b));
    json_decref(j);
    return 0;
}

static int put(struct hlo *h, const struct buffers *b) {
    struct npy in[MAX_WORDS] = {0};
    struct image_options o = {.std = {1, 1, 1}};
    struct tensors_reply r;
    const json_t *x;
    size_t k;
    for (int i = 0; i < b->n_inputs; i++) {
        status_t st = input_parse(&h->arena, b->inputs[i], &o, &in[i]);
        if (!st) st = input_sendable(&in[i]);
        if (st) return fail_status(st);
    }
    json_t *q = json_pack("{s:b, s:I}", "tuple", b->tuple, "lease_ms", (json_int_t)b->lease_ms);
    if (b->device) json_object_set_new(q, "device", json_string(b->device));

    int rc = tensors_call(h, "PutBuffer", q, in, b->n_inputs, NULL, NULL, &r);
    shown_json(h, r.head);
    if (!r.printed)
        json_array_foreach(json_object_get(r.head, "buffers"), k, x) puts(text_at(x, "handle"));
    json_decref(r.head);
    return rc;
}

static int get(struct hlo *h, const struct buffers *b) {
    struct tensors_reply r;
    json_t *q = json_pack("{s:s}", "handle", b->words[1]);
    int rc = tensors_call(h, "GetBuffer", q, NULL, 0, NULL, b->out, &r);
    for (int k = 0; k < r.n && !rc && !b->out; k++)
        tensor_print(&r.v[k]);
    json_decref(r.head);
    return rc;
}

static int each(struct hlo *h, const struct buffers *b, const char *method) {
    int rc = 0;
    for (int k = 1; k < b->n_words && !rc; k++) {
        json_t *q = json_pack("{s:s}", "handle", b->words[k]), *j;
        if (!strcmp(method, "RenewBuffer"))
            json_object_set_new(q, "lease_ms", json_integer((json_int_t)b->lease_ms));
        rc = hlo_print(h, method, q, &j);
        if (rc || !j) continue;
        if (*text_at(j, "state")) print_buffer(j);
        json_decref(j);
    }
    return rc;
}

static int tuple(struct hlo *h, const struct buffers *b) {
    json_t *elements = json_array(), *j;
    for (int k = 1; k < b->n_words; k++)
        json_array_append_new(elements, json_string(b->words[k]));
    int rc = hlo_print(
        h, "MakeTuple",
        json_pack("{s:o, s:I}", "elements", elements, "lease_ms", (json_int_t)b->lease_ms), &j);
    if (rc || !j) return rc;
    puts(text_at(j, "handle"));
    json_decref(j);
    return 0;
}

int cmd_buffers(struct hlo *h) {
    struct buffers b = {0};
    const char *v;

    for (int k = 0; k < h->argc; k++) {
        if ((v = option_value(h, &k, "-i"))) {
            if (b.n_inputs == MAX_WORDS) return usage_error("more than %d inputs", MAX_WORDS);
            b.inputs[b.n_inputs++] = v;
        } else if ((v = option_value(h, &k, "-o")))
            b.out = v;
        else if ((v = option_value(h, &k, "--device")))
            b.device = v;
        else if ((v = option_value(h, &k, "--lease"))) {
            if (!parse_lease(v, &b.lease_ms))
                return usage_error("--lease: as in 90s, 10m, forever");
        } else if (strcmp(h->argv[k], "--tuple") == 0)
            b.tuple = true;
        else if (h->argv[k][0] == '-')
            return unknown_word(h, "buffers", k);
        else if (b.n_words == MAX_WORDS)
            return usage_error("more than %d words", MAX_WORDS);
        else
            b.words[b.n_words++] = h->argv[k];
    }

    const char *verb = b.n_words ? b.words[0] : "ls";
    if (strcmp(verb, "ls") == 0 && b.n_words <= 1) return list(h);
    if (strcmp(verb, "put") == 0 && b.n_words == 1 && b.n_inputs) return put(h, &b);
    if (strcmp(verb, "get") == 0 && b.n_words == 2) return get(h, &b);
    if (strcmp(verb, "tuple") == 0 && b.n_words > 1) return tuple(h, &b);
    if (strcmp(verb, "free") == 0 && b.n_words > 1) return each(h, &b, "FreeBuffer");
    if (strcmp(verb, "renew") == 0 && b.n_words > 1) return each(h, &b, "RenewBuffer");
    return usage_error("buffers takes ls, put -i NAME=VALUE, get HANDLE, tuple HANDLE..., renew "
                       "HANDLE, free HANDLE...");
}
