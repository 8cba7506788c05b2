// SPDX-License-Identifier: Apache-2.0
// message: a protobuf-c message in an arena: never protobuf_c_message_free_unpacked it.
#pragma once
#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/span.h"

// A new message of its defaults.
static inline void *message_new(struct arena *a, const ProtobufCMessageDescriptor *d) {
    ProtobufCMessage *m = arena_alloc(a, d->sizeof_message);
    protobuf_c_message_init(d, m);
    return m;
}
// Its bytes on the wire.
static inline struct span message_pack(struct arena *a, const ProtobufCMessage *m) {
    uint8_t *p = arena_alloc(a, protobuf_c_message_get_packed_size(m) + 1);
    return (struct span){p, protobuf_c_message_pack(m, p)};
}
