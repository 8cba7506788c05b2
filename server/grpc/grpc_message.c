// SPDX-License-Identifier: Apache-2.0
// A received message as one piece, and out of its coding. Only bytes: the library is grpc.c's.
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "server/grpc/grpc_call.h"
#include "server/http/coding.h"

struct span rpc_flat(struct arena *a, const struct rpc_bytes *m) {
    if (m->n == 1) return m->pieces[0];
    uint8_t *p = arena_alloc(a, m->bytes + 1);
    size_t at = 0;
    for (size_t i = 0; i < m->n; i++) {
        memcpy(p + at, m->pieces[i].p, m->pieces[i].n);
        at += m->pieces[i].n;
    }
    return (struct span){p, at};
}

// The library would inflate whatever comes, before it knows who sends it and before it looks at the
// size. We ask it not to.
status_t rpc_inflate(struct arena *a, struct rpc_bytes *m, int64_t max_bytes) {
    if (!m->compressed) return ST_OK;
    struct strbuf inside = {0};
    struct span flat = rpc_flat(a, m), *piece = arena_new_of(a, struct span);
    status_t st = coding_undo((struct str){(const char *)flat.p, flat.n}, max_bytes, &inside);
    if (st) {
        strbuf_done(&inside);
        return st;
    }
    if (inside.p) arena_link(a, free, inside.p);
    *piece = (struct span){(const uint8_t *)inside.p, inside.n};
    *m = (struct rpc_bytes){.pieces = piece, .n = 1, .bytes = inside.n};
    return ST_OK;
}
int64_t rpc_inflated_bytes(const struct rpc_bytes *m, int64_t max_bytes) {
    int64_t n = (int64_t)m->bytes;
    return m->compressed ? coding_most(n, max_bytes) : n;
}
status_t rpc_small(struct arena *a, const struct rpc_bytes *m, struct span *out) {
    struct rpc_bytes all = *m;
    if (all.bytes > API_OPEN_BYTES)
        return st_because(ST_INVALID_ARGUMENT, BODY_TOO_LARGE,
                          "the message is larger than %d bytes", API_OPEN_BYTES);
    RETURN_IF_ERR(rpc_inflate(a, &all, API_OPEN_BYTES));
    *out = rpc_flat(a, &all);
    return ST_OK;
}
