// SPDX-License-Identifier: Apache-2.0
// weigh: how much memory a message will take when it is built from its bytes or its JSON, found by
// one pass that builds nothing, so that who sends little cannot make much of it: an empty message
// of two bytes on the wire is a hundred in memory. What is found is an upper bound for the parsers
// here (protobuf-c, jansson and json.c), their working memory included. Pure. Thread: any.
#pragma once
#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"

enum { WEIGH_MAX_DEPTH = 100 }; // of messages in messages
// Bytes in memory; -1: not such a message (wire types, lengths, depth).
int64_t weigh_message(const ProtobufCMessageDescriptor *d, struct span bytes);
// Bytes of the document's tree and of the message made of it; what is no JSON weighs what was seen.
int64_t weigh_json(const ProtobufCMessageDescriptor *d, struct str text);
// What n bytes may come to, at most.
int64_t weigh_limit(size_t n);
// INVALID_ARGUMENT, REASON_BODY_TOO_LARGE, when `weight` is more than that.
status_t weigh_check(int64_t weight, size_t n) MUST_CHECK;

// Weighs, then unpacks: the message is from malloc (protobuf_c_message_free_unpacked with NULL).
// INVALID_ARGUMENT: REASON_BODY_TOO_LARGE, or no reason: not such a message.
status_t weigh_unpack(const ProtobufCMessageDescriptor *d, struct span bytes,
                      ProtobufCMessage **out) MUST_CHECK;
// The same for what is not a client's: NULL where it is none, or too much.
void *weigh_unpack_or_null(const ProtobufCMessageDescriptor *d, struct span bytes);
// That for as long as the arena.
void *weigh_unpack_in(struct arena *a, const ProtobufCMessageDescriptor *d, struct span bytes);
