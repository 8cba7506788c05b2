// SPDX-License-Identifier: Apache-2.0
// web_wire: the messages between a worker and its page; compiler/web/runtime/tab.js is the other
// side. Each is one binary WebSocket message: 32 bits of its type, 32 of a number, and what the
// type says. All numbers are little-endian. Pure; thread: any.
//
//     to the page     number   then
//     FILE            model    32 bits of a length, a file's name, its bytes
//     LOAD            model    nothing: its files are there
//     RUN             run      32 bits of the model, 32 of zeros, inputs, each padded to 8 bytes
//     FREE            model
//     RESET           turn     what it is at, and all models, are to be forgotten
//     of the page
//     HELLO           version  a text about itself
//     LOADED          model    a text: what runs it
//     RESULT          run      32 bits of a count, 32 of zeros; for each output 16 bytes of its
//                              type's name, 32 bits of its rank, 32 of zeros, 64 of its size in
//                              bytes, 64 of each dimension; then the outputs, each padded to 8
//                              bytes
//     FAILED          as asked a text
//     DONE            turn     of RESET
#pragma once
#include "compiler/ir/shape.h"

enum {
    WEB_VERSION = 1,
    WEB_HEAD_BYTES = 8,
    WEB_TEXT_BYTES = 1024, // of a text of the page's
    WEB_PAD = 8
};
enum web_type {
    WEB_HELLO = 1,
    WEB_LOADED = 2,
    WEB_RESULT = 3,
    WEB_FAILED = 4,
    WEB_DONE = 5,
    WEB_FILE = 16,
    WEB_LOAD = 17,
    WEB_RUN = 18,
    WEB_FREE = 19,
    WEB_RESET = 20
};
void web_put32(uint8_t *p, uint32_t v);
void web_head(uint8_t out[WEB_HEAD_BYTES], enum web_type type, uint32_t number);
// False: shorter than a head.
bool web_read_head(struct span m, enum web_type *out_type, uint32_t *out_number);

// What RESULT must be for outputs of these shapes: it begins with `head`, has so many bytes, and
// output k lies at at[k].
struct web_result {
    struct span head;
    int64_t bytes;
    const int64_t *at; // [n]
    const struct shape *const *shapes;
    int n;
};
// All in a; shapes are borrowed. INVALID_ARGUMENT: they have more bytes than there are numbers.
status_t web_result_make(struct arena *a, const struct shape *const *shapes, int n, uint32_t run,
                         struct web_result *out) MUST_CHECK;
// NULL: m is that, and each element is one of its type; or what is wrong, static.
const char *web_result_fault(const struct web_result *r, struct span m);
// A text of the page's as people may see it: printable ASCII, the rest as '?', cut to the room.
void web_text(struct span m, char *out, size_t room);
