// SPDX-License-Identifier: Apache-2.0
// What pages send. The first two bytes choose the bound and the cut: the frames read whole and in
// pieces must give the same events and payload, within the bound; a message is then read as results
// of a run would be.
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "devices/web/web_wire.c" // the fuzz build has no devices
#include "devices/web/ws.c"

enum { MOST_EVENTS = 1 << 12 };
static void read_message(struct span m) {
    static const int64_t dims[] = {2, 2};
    static const struct shape f32 = {.dtype = DT_F32, .rank = 2, .dims = (int64_t *)dims},
                              pred = {.dtype = DT_PRED, .rank = 1, .dims = (int64_t *)dims};
    const struct shape *const shapes[] = {&f32, &pred};
    struct arena a = {0};
    struct web_result r;
    enum web_type type;
    uint32_t number = 0;
    char text[32];
    if (!web_read_head(m, &type, &number)) return;
    web_text(m, text, sizeof text);
    if (strlen(text) >= sizeof text) abort();
    status_t st = web_result_make(&a, shapes, 2, number, &r);
    if (!st && !web_result_fault(&r, m) && (int64_t)m.n != r.bytes) abort();
    st_drop(st);
    arena_done(&a);
}
static void take(uint8_t *p, size_t n, size_t cut, int64_t most, struct strbuf *payload,
                 struct strbuf *events) {
    struct ws w = {.most = most};
    size_t begun = 0;
    for (size_t at = 0; at < n; at += cut) {
        struct ws_bytes in = {p + at, n - at < cut ? n - at : cut}, out;
        for (enum ws_event e; (e = ws_take(&w, &in, &out)) != WS_MORE;) {
            if (e == WS_BYTES) {
                strbuf_add(payload, out.p, out.n);
                if ((int64_t)(payload->n - begun) > most) abort();
                continue;
            }
            if (events->n < MOST_EVENTS) strbuf_putc(events, (char)('a' + e));
            if (e == WS_END)
                read_message((struct span){(const uint8_t *)strbuf_cstr(payload) + begun,
                                           payload->n - begun});
            if (e == WS_END) begun = payload->n;
            if (w.n_control > WS_CONTROL_BYTES) abort();
            if (e == WS_BAD || e == WS_CLOSE) return;
        }
        if (in.n) abort();
    }
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct strbuf payload[2] = {{0}}, events[2] = {{0}};
    if (size < 2) return 0;
    int64_t most = data[0] * 16;
    size_t n = size - 2, cut[2] = {n + 1, (size_t)data[1] + 1};
    for (int k = 0; k < 2; k++) {
        uint8_t *copy = malloc(n + 1);
        memcpy(copy, data + 2, n);
        take(copy, n, cut[k], most, &payload[k], &events[k]);
        free(copy);
    }
    if (payload[0].n != payload[1].n || events[0].n != events[1].n ||
        memcmp(strbuf_cstr(&payload[0]), strbuf_cstr(&payload[1]), payload[0].n) ||
        strcmp(strbuf_cstr(&events[0]), strbuf_cstr(&events[1])))
        abort();
    for (int k = 0; k < 2; k++) {
        strbuf_done(&payload[k]);
        strbuf_done(&events[k]);
    }
    return 0;
}
