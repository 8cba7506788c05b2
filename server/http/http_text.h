// SPDX-License-Identifier: Apache-2.0
// http_text: text replies with many numbers in them. The printer leaves a *hole* where a tensor's
// values go; those are printed on the pool, all at once where they are not too many, else piece by
// piece as the client reads, so that neither the loop nor memory is held by them. Thread: loop,
// except http_text_fill and what it prints.
#pragma once
#include <sys/types.h>

#include "base/vec.h"
#include "server/call.h"

struct http;
struct http_req;
struct text_hole {
    size_t at;                    // in the text
    const struct call_output *of; // whose values go there; the call's
};
typedef VEC(struct text_hole) text_holes;
enum {
    TEXT_AT_ONCE = 1024,     // values in all that the loop prints itself
    TEXT_WHOLE = 256 << 10,  // values that are made text in one go, with a length in front
    TEXT_BESIDE = 1024 << 10 // the same where raw bytes follow
};
// Work on replies: in turn, and never on all of the pool's threads.
void http_away(struct http *h, void (*work)(void *arg), void (*done)(void *arg), void *arg);
// Values that a reply's holes stand for; texts count by their bytes.
int64_t http_text_values(const text_holes *holes);
void http_text_print(struct strbuf *b, const struct call_output *o); // all its values, at once
// Prints the output's values, or leaves a hole.
void http_text_put(struct strbuf *b, const struct call_output *o, text_holes *holes);
// The text with its holes filled. Thread: any.
void http_text_fill(const struct strbuf *text, const text_holes *holes, struct strbuf *out);

// A text that is made while it is read.
struct http_text {
    struct http_req *r;
    struct http_text *next; // of a stream, behind more of its text
    size_t at;              // where in the stream's other text it goes
    struct strbuf text, ready;
    text_holes holes;
    size_t hole, text_at, ready_at; // what comes next
    int64_t value;                  // in the hole; -1: not begun
    struct span texts;              // of it, what is left
    bool ended;
};
// Takes text and holes. Freed with http_text_free, when nothing of it is under way.
struct http_text *http_text_new(struct http_req *r, struct strbuf *text, text_holes *holes);
void http_text_free(struct http_text *t);
// As a library's reader: bytes, 0: the connection is suspended until there are more, -1: the end,
// -2: nobody waits for the rest.
ssize_t http_text_read(struct http_text *t, char *buf, size_t max);
