// SPDX-License-Identifier: Apache-2.0
// json: any protobuf-c message as proto3 JSON and back, by one walk over its field descriptors.
// Names are lowerCamel (both forms are read), enums by name (numbers are read), bytes base64,
// fields at their default left out. One relaxation: 64-bit integers below 2^53 are printed as
// numbers, beyond as strings; both are read. Messages made here lie in an arena: never
// protobuf_c_message_free_unpacked them. Thread: any.
#pragma once
#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

// Maps (a repeated message XEntry of key and value) are objects; a message whose fields are one
// oneof called parameter_choice is the bare scalar.
enum { JSON_MAX_DEPTH = 64 };
void json_print(struct strbuf *b, const ProtobufCMessage *m);
// The dialect of the Open Inference Protocol: names as in the .proto, all integers as numbers,
// fields at their default printed too; unknown fields are passed over.
void json_print_oip(struct strbuf *b, const ProtobufCMessage *m);
status_t json_parse_oip(struct arena *a, const ProtobufCMessageDescriptor *d, struct str text,
                        ProtobufCMessage **out) MUST_CHECK;
// Without a byte order mark, which RFC 8259 (8.1) lets a reader pass over.
static inline struct str json_after_mark(struct str text) {
    return str_starts(text, "\xEF\xBB\xBF") ? (struct str){text.p + 3, text.n - 3} : text;
}
// INVALID_ARGUMENT with REASON_BAD_JSON: bad syntax (with line and column), an unknown field, a
// wrong type; names the path ("inputs[2].shape").
status_t json_parse(struct arena *a, const ProtobufCMessageDescriptor *d, struct str text,
                    ProtobufCMessage **out) MUST_CHECK;
// One field from its text, as a query parameter gives it; repeated fields are appended to. Messages
// are not possible. A field is found by either form of its name.
status_t json_set_text(struct arena *a, ProtobufCMessage *m, struct str name,
                       struct str value) MUST_CHECK;
bool json_base64(struct arena *a, struct str text,
                 struct span *out); // either alphabet, padded or not
const ProtobufCFieldDescriptor *json_field(const ProtobufCMessageDescriptor *d,
                                           struct str name);               // NULL if absent
void json_field_name(const ProtobufCFieldDescriptor *f, struct strbuf *b); // lowerCamel
bool json_is_map(const ProtobufCFieldDescriptor *f);                       // an object of any keys
bool json_is_choice(const ProtobufCMessageDescriptor *d);                  // a bare scalar

// What the heads of most requests are made of, read without a document in between (json_quick.c):
// objects, strings without escapes, whole numbers, true and false. It refuses what it is not sure
// of, right or wrong, and leaves the word about it to json_parse, which reads it again.
enum { JSON_QUICK_BYTES = 4 << 10 }; // longer texts are refused: they weigh (weigh.h)
// False: not read; *out is as it was, `a` may have grown. What it reads, json_parse (with `oip`,
// json_parse_oip) reads to an equal message.
bool json_quick(struct arena *a, const ProtobufCMessageDescriptor *d, struct str text, bool oip,
                ProtobufCMessage **out);
