// SPDX-License-Identifier: Apache-2.0
// Follows the frames of an HTTP/2 connection (RFC 9113, 4.1), as far as it takes to see a call's
// head that goes on and on: HEADERS and CONTINUATION frames without END_HEADERS. The gRPC library
// bounds what it keeps of each such frame, not of all of them together.
//   On a port without TLS the gate (grpc_gate.h) shows what it reads. Over TLS the library's reads
// come by SSL_read, which is ours by the linker's order, as the gate's functions are; a head beyond
// the bound ends the connection there.
//   What does not begin with HTTP/2's preface is not followed: TLS below SSL_read, other protocols.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Of one head, as it travels: several times what a call may have (as over HTTP, GUARD_HEAD_BYTES),
// names and values with 32 bytes each. The library refuses a call with more than that with
// RESOURCE_EXHAUSTED, and the connection's next one does not come through.
enum { GRPC_METADATA_BYTES = 32 << 10, GRPC_HEAD_BYTES = 128 << 10 };
struct grpc_head { // zeroed: nothing was read yet
    uint8_t frame[9];
    uint8_t have;    // of `frame`
    uint8_t preface; // of its bytes
    bool other;      // not HTTP/2
    uint32_t left;   // of the frame's payload
    size_t bytes;    // of the head that has not ended
};
// The next n bytes of the connection. False: a head is too long, and so is the rest of it. Thread:
// the connection's reader.
bool grpc_head_follow(struct grpc_head *h, const void *bytes, size_t n);
