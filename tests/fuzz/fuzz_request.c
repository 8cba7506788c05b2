// SPDX-License-Identifier: Apache-2.0
// What clients send: the first byte chooses the reader. JSON of both dialects (what was read prints
// and reads again), tensor data cut out of JSON, numbers, protobuf cut in pieces.
#include <stdlib.h>
#include <string.h>

#include "proto/formats/inference.pb-c.h"
#include "proto/hlod.pb-c.h"
#include "proto/json.h"
#include "proto/numbers.h"
#include "server/grpc/cut.c" // the fuzz build has no server

static void json(struct str text, bool oip, const ProtobufCMessageDescriptor *d) {
    struct arena a = {0};
    ProtobufCMessage *m, *again;
    status_t st = oip ? json_parse_oip(&a, d, text, &m) : json_parse(&a, d, text, &m);
    if (!st) {
        struct strbuf b = {0}, c = {0};
        (oip ? json_print_oip : json_print)(&b, m);
        struct str printed = {b.p, b.n};
        st = oip ? json_parse_oip(&a, d, printed, &again) : json_parse(&a, d, printed, &again);
        if (st) abort();
        (oip ? json_print_oip : json_print)(&c, again);
        if (b.n != c.n || memcmp(b.p, c.p, b.n)) abort();
        strbuf_done(&b);
        strbuf_done(&c);
    }
    st_drop(st);
    arena_done(&a);
}

static status_t count(void *ctx, size_t at, struct span part) {
    size_t *n = ctx;
    if (at != *n) abort();
    *n += part.n;
    return ST_OK;
}
static void cut(struct span s, size_t piece, uint32_t outer, uint32_t inner) {
    struct arena a = {0};
    struct span *v = arena_array(&a, struct span, s.n / piece + 2);
    size_t n = 0;
    for (size_t at = 0; at < s.n; at += piece)
        v[n++] = (struct span){s.p + at, s.n - at < piece ? s.n - at : piece};
    struct cuts c;
    if (cut_fields(&a, v, n, outer, inner, &c))
        for (size_t i = 0; i < c.n; i++) {
            size_t done = 0;
            st_drop(cut_each(v, n, &c.v[i], count, &done));
            if (done != c.v[i].n) abort();
        }
    arena_done(&a);
}

static void numbers(struct str text, const char *type) {
    int64_t out[64];
    const struct dtype_row *t = numbers_dtype(str_of(type));
    for (int64_t n = 0; n <= 64; n = n * 2 + 1)
        st_drop(numbers_scan(text, t, n, out));
}
static void texts(struct str text) {
    for (int64_t n = 0, bytes; n <= 64; n = n * 2 + 1) {
        status_t st = numbers_scan_strings(text, n, NULL, &bytes);
        if (!st) { // what was scanned is whole, and prints
            struct span data = {malloc((size_t)bytes + 1), (size_t)bytes};
            struct strbuf b = {0};
            if (numbers_scan_strings(text, n, (void *)(uintptr_t)data.p, &bytes) ||
                numbers_check_strings(data, n))
                abort();
            numbers_print_strings(&b, n, data);
            strbuf_done(&b);
            free((void *)(uintptr_t)data.p);
        }
        st_drop(st);
        st_drop(numbers_check_strings((struct span){(const uint8_t *)text.p, text.n}, n));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    struct str text = {(const char *)data + 2, size - 2};
    static const char *const types[] = {"f32", "f64", "f16", "bf16", "s8", "s64", "u64", "pred"};
    switch (data[0] % 6) {
    case 0:
        json(text, false, &hlod__v1__run_request__descriptor);
        break;
    case 1:
        json(text, true, &inference__model_infer_request__descriptor);
        break;
    case 2:
        json(text, true, &inference__repository_model_load_request__descriptor);
        break;
    case 3:
        if (data[1] & 0x80)
            texts(text);
        else
            numbers(text, types[data[1] % 8]);
        break;
    case 4:
        cut((struct span){data + 2, size - 2}, data[1] % 16 + 1, 3, 4);
        break;
    case 5:
        cut((struct span){data + 2, size - 2}, data[1] % 16 + 1, 7, 0);
        break;
    }
    return 0;
}
