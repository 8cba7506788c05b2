// SPDX-License-Identifier: Apache-2.0
// protobuf-c hands bytes fields to its buffer as they are: those that are an output's are taken by
// reference. What is copied grows in one block, so that its spans are known at the end only.
#include "server/body/pieces.h"

#include <stdlib.h>

#include "base/str.h"
#include "base/vec.h"
#include "server/call.h"

struct part {
    const uint8_t *lent; // NULL: `at` in the copied block
    size_t at, n;
};
struct maker {
    ProtobufCBuffer base;
    const struct call *c;
    size_t next; // output that most likely comes next
    struct strbuf own;
    VEC(struct part) parts;
};

static bool is_output(struct maker *k, const uint8_t *p, size_t n) {
    for (size_t tried = 0; tried < k->c->n_outputs; tried++) {
        struct span data = k->c->outputs[k->next].data;
        k->next = k->next + 1 < k->c->n_outputs ? k->next + 1 : 0;
        if (data.p == p && data.n == n) return true;
    }
    return false;
}
static void append(ProtobufCBuffer *b, size_t n, const uint8_t *p) {
    struct maker *k = (struct maker *)b;
    if (n >= PIECES_LEAST && is_output(k, p, n)) {
        struct part lent = {p, 0, n};
        vec_push(&k->parts, lent);
        return;
    }
    if (!k->parts.n || k->parts.v[k->parts.n - 1].lent) {
        struct part own = {NULL, k->own.n, 0};
        vec_push(&k->parts, own);
    }
    strbuf_add(&k->own, (const char *)p, n);
    k->parts.v[k->parts.n - 1].n += n;
}

void pieces_of(struct call *c, const ProtobufCMessage *m, struct pieces *out) {
    struct maker k = {.base = {append}, .c = c};
    protobuf_c_message_pack_to_buffer(m, &k.base);
    struct span *v = arena_array(&c->arena, struct span, k.parts.n + 1);
    char *own = strbuf_take(&k.own);
    arena_link(&c->arena, free, own);
    *out = (struct pieces){.v = v, .n = k.parts.n};
    for (size_t i = 0; i < k.parts.n; i++) {
        const struct part *p = &k.parts.v[i];
        v[i] = (struct span){p->lent ? p->lent : (const uint8_t *)own + p->at, p->n};
        out->bytes += p->n;
    }
    vec_done(&k.parts);
}
