// SPDX-License-Identifier: Apache-2.0
// text: UTF-8 from outside that is shown to people, in logs, terminals, pages and lists. Some
// characters move what stands around them or are not seen at all (control characters and escape
// sequences, directions, joiners, fillers, tags): a name with them can pass for another, a line
// with them for two. Names may not have them; such text is shown by number. Thread: any.
#pragma once
#include <stdint.h>

#include "base/span.h"

struct strbuf;
// The character at the front: its bytes in UTF-8, at least 1. *code: UINT32_MAX where the byte
// begins no character. s is not empty.
size_t text_first(struct str s, uint32_t *code);
// Is it shown as something of its own, where it stands? Spaces other than U+0020 are not.
bool text_seen(uint32_t code);
// May that be a name: UTF-8 of characters that are seen, not empty, at most `most` bytes?
bool text_is_name(struct str s, size_t most);
// Appends s as it may be shown: what is not seen as \u202e, bytes that are no UTF-8 as \xff, and
// what `quoted` holds behind a backslash. A line end is not seen.
void text_show(struct strbuf *b, struct str s, const char *quoted);
