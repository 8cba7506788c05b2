// SPDX-License-Identifier: Apache-2.0
#include "server/http/http_text.h"

#include <stdlib.h>
#include <string.h>

#include "proto/numbers.h"
#include "scheduler/loop.h"
#include "server/http/http_req.h"

enum { PIECE_VALUES = 16 << 10, PIECE_BYTES = 256 << 10 }; // milliseconds of a pool thread

struct http_away {
    struct http *h;
    struct http_away *next;
    void (*work)(void *arg), (*done)(void *arg);
    void *arg;
};
enum { MOST_AWAY = 2 }; // of libuv's four threads

static void go_away(struct http *h);
static void work_away(void *arg) {
    struct http_away *a = arg;
    a->work(a->arg);
}
static void came_back(void *arg) {
    struct http_away *a = arg;
    struct http *h = a->h;
    h->away--;
    go_away(h);
    a->done(a->arg);
    free(a);
}
static void go_away(struct http *h) {
    while (h->away_first && h->away < MOST_AWAY) {
        struct http_away *a = h->away_first;
        h->away_first = a->next;
        if (!h->away_first) h->away_last = NULL;
        h->away++;
        loop_work(h->loop, work_away, came_back, a);
    }
}
void http_away(struct http *h, void (*work)(void *arg), void (*done)(void *arg), void *arg) {
    struct http_away *a = arena_must_calloc(1, sizeof *a);
    *a = (struct http_away){.h = h, .work = work, .done = done, .arg = arg};
    *(h->away_last ? &h->away_last->next : &h->away_first) = a;
    h->away_last = a;
    go_away(h);
}

static int64_t values_of(const struct call_output *o) {
    int64_t bytes = (int64_t)o->data.n;
    return o->dtype->cls == NUM_STRING && bytes > o->elements ? bytes : o->elements;
}
int64_t http_text_values(const text_holes *holes) {
    int64_t n = 0;
    for (size_t i = 0; i < holes->n; i++)
        n += values_of(holes->v[i].of);
    return n;
}

void http_text_print(struct strbuf *b, const struct call_output *o) {
    if (o->dtype->cls == NUM_STRING)
        numbers_print_strings(b, o->elements, o->data);
    else
        numbers_print(b, o->dtype, o->elements, o->data.p);
}
void http_text_put(struct strbuf *b, const struct call_output *o, text_holes *holes) {
    int64_t n = values_of(o);
    struct text_hole hole = {b->n, o};
    if (o->dtype->cls == NUM_RAW || (n <= TEXT_AT_ONCE && !holes->n && b->n < PIECE_BYTES))
        http_text_print(b, o);
    else
        vec_push(holes, hole);
}

void http_text_fill(const struct strbuf *text, const text_holes *holes, struct strbuf *out) {
    size_t at = 0;
    for (size_t i = 0; i < holes->n; i++) {
        strbuf_add(out, text->p + at, holes->v[i].at - at);
        http_text_print(out, holes->v[i].of);
        at = holes->v[i].at;
    }
    strbuf_add(out, text->p + at, text->n - at);
}

// ---- piece by piece

struct http_text *http_text_new(struct http_req *r, struct strbuf *text, text_holes *holes) {
    struct http_text *t = arena_must_calloc(1, sizeof *t);
    *t = (struct http_text){.r = r, .text = *text, .holes = *holes, .value = -1};
    *text = (struct strbuf){0};
    memset(holes, 0, sizeof *holes);
    return t;
}
void http_text_free(struct http_text *t) {
    if (!t) return;
    strbuf_done(&t->text);
    strbuf_done(&t->ready);
    vec_done(&t->holes);
    free(t);
}

// Some of the values of the present hole: a part of an array is printed as one, less its brackets.
static void print_some(struct http_text *t, const struct call_output *o) {
    int64_t n = o->elements - t->value;
    size_t from = t->ready.n;
    if (t->value == 0) t->texts = o->data;
    if (o->dtype->cls == NUM_STRING) {
        struct span rest = t->texts;
        struct str s;
        size_t bytes = 0;
        for (n = 0;
             t->value + n < o->elements && bytes < PIECE_BYTES && numbers_next_string(&rest, &s);
             n++)
            bytes += s.n;
        numbers_print_strings(&t->ready, n, t->texts);
        t->texts = rest;
        if (!n && !t->value) n = o->elements;
    } else {
        if (n > PIECE_VALUES) n = PIECE_VALUES;
        numbers_print(&t->ready, o->dtype, n,
                      o->data.p + (size_t)t->value * (size_t)o->dtype->bytes);
    }
    if (t->value && !n) { // cut short
        t->ready.n = from;
        strbuf_putc(&t->ready, ']');
        t->value = o->elements;
        return;
    }
    if (t->value) t->ready.p[from] = ',';
    t->value += n;
    if (t->value < o->elements) t->ready.n--;
}

static void make_piece(void *arg) {
    struct http_text *t = arg;
    strbuf_clear(&t->ready);
    while (t->ready.n < PIECE_BYTES && !t->ended) {
        const struct text_hole *h = t->hole < t->holes.n ? &t->holes.v[t->hole] : NULL;
        size_t until = h ? h->at : t->text.n;
        if (t->text_at < until) {
            size_t n = until - t->text_at < PIECE_BYTES ? until - t->text_at : PIECE_BYTES;
            strbuf_add(&t->ready, t->text.p + t->text_at, n);
            t->text_at += n;
        } else if (!h) {
            t->ended = true;
        } else {
            if (t->value < 0) t->value = 0;
            print_some(t, h->of);
            if (t->value < h->of->elements) return; // one piece of numbers at a time
            t->value = -1;
            t->hole++;
        }
    }
}
static void made(void *arg) {
    struct http_text *t = arg;
    struct http_req *r = t->r;
    r->pooled = false;
    if (r->gone)
        http_leave(r);
    else
        http_resume(r);
}

ssize_t http_text_read(struct http_text *t, char *buf, size_t max) {
    struct http_req *r = t->r;
    size_t n = t->ready.n - t->ready_at;
    if (n == 0 && t->ended) return -1;
    if (r->gone || r->h->stopping) return -2;
    if (n == 0) { // suspended while the pool works: nobody frees the call meanwhile
        t->ready_at = 0;
        http_suspend(r);
        r->pooled = true;
        http_away(r->h, make_piece, made, t);
        return 0;
    }
    if (n > max) n = max;
    memcpy(buf, t->ready.p + t->ready_at, n);
    t->ready_at += n;
    return (ssize_t)n;
}
