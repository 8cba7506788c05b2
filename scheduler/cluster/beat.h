// SPDX-License-Identifier: Apache-2.0
// beat: what a node tells the others of itself every few seconds, as bytes: Node of hlod.v1 as
// protobuf. Whoever may publish on the subject is heard, so each field is checked before anything
// is kept: names, lengths, numbers, the address. Pure. Thread: any.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "proto/hlod.pb-c.h"

enum {
    BEAT_MAX_BYTES = 32 << 10,
    BEAT_MAX_TARGETS = 64,
    BEAT_TEXT = 200, // of a target's id, a build's, an address, a version
    BEAT_MIN_MS = 100,
    BEAT_MAX_MS = 60000
};
// NULL, and why, where the bytes are no beat. Else a message in a, whose texts are characters that
// may be shown, and whose `self`, `seconds`, `proved` and `incompatible` are not set.
Hlod__V1__Node *beat_read(struct arena *a, struct span bytes, const char **out_why);
// The same checks of a message that is read already: why it is none; NULL: it may be kept.
const char *beat_fault(Hlod__V1__Node *m);
struct span beat_write(struct arena *a, const Hlod__V1__Node *m);
// "http://HOST:PORT" or "https://HOST:PORT", nothing else.
bool beat_address_fits(const char *text);
