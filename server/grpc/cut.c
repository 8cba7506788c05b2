// SPDX-License-Identifier: Apache-2.0
// A cursor over the pieces; fields are copied or noted as they pass. What is copied is small: the
// caller bounds the message.
#include "server/grpc/cut.h"

#include <stdlib.h>

#include "base/str.h"
#include "base/vec.h"

struct cursor {
    const struct span *p;
    size_t n_pieces, piece, at; // at: in the piece
    size_t offset, end;         // of the message
};

static bool next_byte(struct cursor *c, uint8_t *out) {
    while (c->piece < c->n_pieces && c->at == c->p[c->piece].n)
        c->piece++, c->at = 0;
    if (c->offset >= c->end || c->piece >= c->n_pieces) return false;
    *out = c->p[c->piece].p[c->at++];
    c->offset++;
    return true;
}
// Passes n bytes, into `to` if there is one.
static bool pass(struct cursor *c, size_t n, struct strbuf *to) {
    if (n > c->end - c->offset) return false;
    c->offset += n;
    while (n) {
        while (c->piece < c->n_pieces && c->at == c->p[c->piece].n)
            c->piece++, c->at = 0;
        if (c->piece >= c->n_pieces) return false;
        size_t k = c->p[c->piece].n - c->at < n ? c->p[c->piece].n - c->at : n;
        if (to) strbuf_add(to, c->p[c->piece].p + c->at, k);
        c->at += k;
        n -= k;
    }
    return true;
}
static bool varint(struct cursor *c, uint64_t *out) {
    uint8_t b;
    *out = 0;
    for (unsigned shift = 0; shift < 64 && next_byte(c, &b); shift += 7) {
        *out |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) return true;
    }
    return false;
}
static void put_varint(struct strbuf *b, uint64_t v) {
    for (; v >= 0x80; v >>= 7)
        strbuf_putc(b, (char)(uint8_t)(v | 0x80));
    strbuf_putc(b, (char)v);
}

struct work {
    struct arena *a;
    struct cuts *out;
    uint32_t outer, inner, count;
};

static bool fields(struct cursor *c, struct work *w, bool inside, struct strbuf *to);

// A length-delimited field whose length was just read.
static bool delimited(struct cursor *c, struct work *w, bool inside, uint64_t tag, uint64_t n,
                      struct strbuf *to) {
    uint32_t number = (uint32_t)(tag >> 3);
    if (n > c->end - c->offset) return false;
    bool bytes = inside ? number == w->inner : w->inner == 0 && number == w->outer;
    if (bytes) {
        struct cut k = {c->offset, (size_t)n, inside ? w->count - 1 : w->count++};
        if (w->out->n == CUT_MAX) return false;
        avec_push(w->a, w->out, k);
        return pass(c, (size_t)n, NULL);
    }
    if (!inside && w->inner && number == w->outer) {
        struct strbuf sub = {0};
        size_t end = c->end;
        w->count++;
        c->end = c->offset + (size_t)n;
        bool ok = fields(c, w, true, &sub);
        c->end = end;
        put_varint(to, tag);
        put_varint(to, sub.n);
        strbuf_add(to, sub.p, sub.n);
        strbuf_done(&sub);
        return ok;
    }
    put_varint(to, tag);
    put_varint(to, n);
    return pass(c, (size_t)n, to);
}

static bool fields(struct cursor *c, struct work *w, bool inside, struct strbuf *to) {
    while (c->offset < c->end) {
        uint64_t tag, v;
        if (!varint(c, &tag)) return false;
        switch (tag & 7) {
        case 0:
            if (!varint(c, &v)) return false;
            put_varint(to, tag);
            put_varint(to, v);
            break;
        case 1:
        case 5:
            put_varint(to, tag);
            if (!pass(c, (tag & 7) == 1 ? 8 : 4, to)) return false;
            break;
        case 2:
            if (!varint(c, &v) || !delimited(c, w, inside, tag, v, to)) return false;
            break;
        default:
            return false;
        }
    }
    return true;
}

bool cut_fields(struct arena *a, const struct span *pieces, size_t n_pieces, uint32_t outer,
                uint32_t inner, struct cuts *out) {
    struct cursor c = {.p = pieces, .n_pieces = n_pieces};
    for (size_t i = 0; i < n_pieces; i++)
        c.end += pieces[i].n;
    struct work w = {a, out, outer, inner, 0};
    struct strbuf rest = {0};
    *out = (struct cuts){0};
    bool ok = fields(&c, &w, false, &rest);
    if (rest.p) arena_link(a, free, rest.p);
    out->rest = (struct span){(const uint8_t *)strbuf_cstr(&rest), rest.n};
    return ok;
}

status_t cut_each(const struct span *pieces, size_t n_pieces, const struct cut *c,
                  status_t (*fn)(void *, size_t, struct span), void *ctx) {
    size_t start = 0, done = 0;
    for (size_t i = 0; i < n_pieces && done < c->n; start += pieces[i++].n) {
        if (start + pieces[i].n <= c->offset + done) continue;
        size_t from = c->offset + done - start, k = pieces[i].n - from;
        if (k > c->n - done) k = c->n - done;
        RETURN_IF_ERR(fn(ctx, done, (struct span){pieces[i].p + from, k}));
        done += k;
    }
    return ST_OK;
}
