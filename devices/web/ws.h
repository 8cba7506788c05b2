// SPDX-License-Identifier: Apache-2.0
// ws: the server's side of a WebSocket's framing (RFC 6455, section 5) as a reader of bytes that
// takes no memory of its own. It follows frames, unmasks payloads in place, and stops at the first
// thing that the protocol, or its owner, does not allow: frames without a mask, reserved bits and
// opcodes, text, lengths that are not the shortest, a message beyond its bound (seen in the frame's
// head, before any of its payload), a fragment out of turn, a control frame that is long or cut.
// Pure; thread: whoever owns it.
//     struct ws w = {.most = 1 << 20};
//     for (enum ws_event e; (e = ws_take(&w, &in, &out)) != WS_MORE;) ...
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WS_HEAD_BYTES = 14,     // of a frame, at most
    WS_CONTROL_BYTES = 125, // of a control frame's payload, at most
    WS_EMPTY_FRAGMENTS = 16 // of one message: they say nothing, and cost no payload
};
enum ws_event {
    WS_MORE,  // all was taken; it goes on with what comes next
    WS_BYTES, // a piece of the message's payload
    WS_END,   // the message is whole
    WS_PING,  // `control` is to be sent back
    WS_PONG,
    WS_CLOSE, // the peer says that it ends; nothing more is read
    WS_BAD    // `why` and `code`; nothing more is read
};
enum ws_code { WS_NORMAL = 1000, WS_PROTOCOL = 1002, WS_NOT_BINARY = 1003, WS_TOO_LARGE = 1009 };
struct ws {
    int64_t most;    // bytes that a message may have; its owner may change it between two
    const char *why; // WS_BAD: in words; static
    enum ws_code code;
    uint8_t control[WS_CONTROL_BYTES]; // of WS_PING, WS_PONG, WS_CLOSE
    size_t n_control;
    // The rest is its own; all zeros at the start.
    int64_t bytes, left; // of the message so far as heads said it; of the frame's payload
    uint8_t head[WS_HEAD_BYTES], mask[4], opcode;
    uint8_t n_head, n_wanted, n_empty;
    uint32_t at; // in the mask
    bool in_frame, in_message, last, over;
};
struct ws_bytes { // that came; pieces of it are unmasked where they lie
    uint8_t *p;
    size_t n;
};
// Takes from the front of *in. *out: of WS_BYTES, its piece, within *in.
enum ws_event ws_take(struct ws *w, struct ws_bytes *in, struct ws_bytes *out);

enum ws_opcode {
    WS_CONTINUATION = 0,
    WS_TEXT_FRAME = 1,
    WS_BINARY_FRAME = 2,
    WS_CLOSE_FRAME = 8,
    WS_PING_FRAME = 9,
    WS_PONG_FRAME = 10
};
// The head of a frame of our own, whole and without a mask; gives its bytes.
size_t ws_head(uint8_t out[WS_HEAD_BYTES], enum ws_opcode opcode, uint64_t payload_bytes);
