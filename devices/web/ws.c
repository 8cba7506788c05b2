// SPDX-License-Identifier: Apache-2.0
#include "devices/web/ws.h"

#include <string.h>

enum { FINAL = 0x80, RESERVED = 0x70, OPCODE = 0x0f, MASKED = 0x80, LENGTH = 0x7f };
enum { LENGTH_OF_16 = 126, LENGTH_OF_64 = 127, CONTROL = 8 };

static enum ws_event bad(struct ws *w, enum ws_code code, const char *why) {
    w->over = true;
    w->code = code;
    w->why = why;
    return WS_BAD;
}
static bool is_control(const struct ws *w) {
    return w->opcode & CONTROL;
}

// ---- heads

static uint64_t big_endian(const uint8_t *p, int n) {
    uint64_t v = 0;
    for (int k = 0; k < n; k++)
        v = v << 8 | p[k];
    return v;
}
// How long the head is follows from its second byte.
static uint8_t head_bytes(const struct ws *w) {
    uint8_t n = w->head[1] & LENGTH;
    return (uint8_t)(2 + (n == LENGTH_OF_16 ? 2 : n == LENGTH_OF_64 ? 8 : 0) + 4);
}
static const char *fault_of_two(struct ws *w) {
    uint8_t opcode = w->head[0] & OPCODE, length = w->head[1] & LENGTH;
    bool final = w->head[0] & FINAL, known = opcode <= WS_BINARY_FRAME;
    known |= opcode >= WS_CLOSE_FRAME && opcode <= WS_PONG_FRAME;
    if (w->head[0] & RESERVED) return "a reserved bit is set";
    if (!known) return "an opcode that does not exist";
    if (!(w->head[1] & MASKED)) return "a frame without a mask";
    if (opcode & CONTROL)
        return !final || length > WS_CONTROL_BYTES ? "a control frame that is long, or a fragment"
                                                   : NULL;
    if (opcode == WS_CONTINUATION && !w->in_message) return "a fragment of no message";
    if (opcode != WS_CONTINUATION && w->in_message) return "a message within a message";
    return NULL;
}
// The head is whole.
static enum ws_event open_frame(struct ws *w) {
    uint8_t n = w->head[1] & LENGTH;
    uint64_t length = n;
    if (n == LENGTH_OF_16) length = big_endian(w->head + 2, 2);
    if (n == LENGTH_OF_64) length = big_endian(w->head + 2, 8);
    if ((n == LENGTH_OF_16 && length < LENGTH_OF_16) || (n == LENGTH_OF_64 && length <= UINT16_MAX))
        return bad(w, WS_PROTOCOL, "a length that could be shorter");
    memcpy(w->mask, w->head + w->n_wanted - 4, 4);
    w->at = 0;
    w->n_control = 0;

    if (!is_control(w)) {
        if (length > (uint64_t)(w->most > w->bytes ? w->most - w->bytes : 0))
            return bad(w, WS_TOO_LARGE, "a message that is larger than it may be");
        if (!length && !w->last && ++w->n_empty > WS_EMPTY_FRAGMENTS)
            return bad(w, WS_PROTOCOL, "too many empty fragments");
        w->bytes += (int64_t)length;
        w->in_message = true;
    }
    w->left = (int64_t)length;
    w->in_frame = true;
    return WS_MORE;
}
static enum ws_event take_head(struct ws *w, struct ws_bytes *in) {
    while (in->n) {
        if (w->n_head < 2) w->n_wanted = 2;
        w->head[w->n_head++] = *in->p++;
        in->n--;
        if (w->n_head < w->n_wanted) continue;
        if (w->n_head > 2) return open_frame(w);
        const char *why = fault_of_two(w);
        if (why) return bad(w, WS_PROTOCOL, why);
        w->opcode = w->head[0] & OPCODE;
        if (w->opcode == WS_TEXT_FRAME) return bad(w, WS_NOT_BINARY, "text");
        if (!is_control(w)) w->last = w->head[0] & FINAL;
        w->n_wanted = head_bytes(w);
    }
    return WS_MORE;
}

// ---- payloads

// The frame is whole.
static enum ws_event close_frame(struct ws *w) {
    w->in_frame = false;
    w->n_head = 0;
    if (w->opcode == WS_PING_FRAME) return WS_PING;
    if (w->opcode == WS_PONG_FRAME) return WS_PONG;
    if (w->opcode == WS_CLOSE_FRAME) {
        w->over = true;
        return WS_CLOSE;
    }
    if (!w->last) return WS_MORE;
    w->in_message = false;
    w->bytes = 0;
    w->n_empty = 0;
    return WS_END;
}
static enum ws_event take_payload(struct ws *w, struct ws_bytes *in, struct ws_bytes *out) {
    size_t n = (uint64_t)w->left < in->n ? (size_t)w->left : in->n;
    for (size_t k = 0; k < n; k++)
        in->p[k] ^= w->mask[(w->at + k) & 3];
    w->at = (uint32_t)((w->at + n) & 3);
    w->left -= (int64_t)n;
    *out = (struct ws_bytes){in->p, n};
    in->p += n;
    in->n -= n;
    if (!is_control(w)) return WS_BYTES;
    memcpy(w->control + w->n_control, out->p, n); // open_frame has bounded it
    w->n_control += n;
    return WS_MORE;
}

enum ws_event ws_take(struct ws *w, struct ws_bytes *in, struct ws_bytes *out) {
    *out = (struct ws_bytes){0};
    for (;;) {
        enum ws_event e = WS_MORE;
        if (w->over) return w->why ? WS_BAD : WS_CLOSE;
        if (!w->in_frame)
            e = take_head(w, in);
        else if (w->left && in->n)
            e = take_payload(w, in, out);
        if (e != WS_MORE) return e;
        if (w->in_frame && !w->left) {
            e = close_frame(w);
            if (e != WS_MORE) return e;
            continue;
        }
        if (!in->n) return WS_MORE;
    }
}

size_t ws_head(uint8_t out[WS_HEAD_BYTES], enum ws_opcode opcode, uint64_t payload_bytes) {
    int more = payload_bytes < LENGTH_OF_16 ? 0 : payload_bytes <= UINT16_MAX ? 2 : 8;
    out[0] = (uint8_t)(FINAL | opcode);
    out[1] = (uint8_t)(more == 0 ? payload_bytes : more == 2 ? LENGTH_OF_16 : LENGTH_OF_64);
    for (int k = 0; k < more; k++)
        out[2 + k] = (uint8_t)(payload_bytes >> 8 * (more - 1 - k));
    return 2 + (size_t)more;
}
