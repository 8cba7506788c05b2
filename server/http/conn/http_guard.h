// SPDX-License-Identifier: Apache-2.0
// http_guard: the strictness that the HTTP library lacks, on the raw bytes of one connection before
// the library has them. It follows requests by RFC 9112's framing (head, body by length or in
// chunks, the next head) and stops at the first byte that another reader could take otherwise:
// lines without CR, folded lines, names that are no tokens, control characters and NUL anywhere,
// two lengths, Hosts, codings or credentials, a length that is no plain number, a bad chunk, long
// extensions. What it lets pass, it passes unchanged, so that library and guard see the same
// requests. It says nothing about what a request means. Pure; thread: whoever owns the connection.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bounds, in bytes, lines and pairs. The library keeps a head, its tables of headers, parameters
// and cookies (these it copies) and those of the reply in GUARD_LIBRARY_BYTES; a head that it has
// no room for it answers late or in its own words.
enum {
    GUARD_LIBRARY_BYTES = 96 << 10,
    GUARD_HEAD_BYTES = 32 << 10,
    GUARD_HEAD_LINES = 128,
    GUARD_PAIRS = 128, // parameters of a path, and cookies
    GUARD_TRAILER_BYTES = 4 << 10,
    GUARD_EXTENSION_BYTES = 256,
};
struct http_guard {
    const char *why; // the fault, in words for the client; NULL: none. It stays
    int status;      // of the reply that tells it
    uint64_t heads;  // that have come whole
    // The rest is its own; all zeros at the start.
    int state, next;
    uint32_t bytes, lines, pairs, at, empty;
    int64_t left; // of the body or the chunk
    bool old, chunked, trailer;
    uint8_t hosts, lengths, codings, once;
    char name[20]; // of the header, in lower case; cut
    uint32_t n_name;
};
void http_guard_pass(struct http_guard *g); // all that comes from now on is good
// How many of the bytes are good; fewer than n: the next is at fault, and so is all that follows.
size_t http_guard_take(struct http_guard *g, const char *p, size_t n);
