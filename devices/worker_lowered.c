// SPDX-License-Identifier: Apache-2.0
// The module that the next COMPILE will ask for. Between INGEST's reply and COMPILE the daemon
// keeps what was found, and this process would wait: it lowers the program meanwhile, where nobody
// need say a size (no open dimension but a batch, which is 1 as usual). One module at most; the
// next COMPILE takes it or it goes. What is lowered ahead is what would be lowered then, byte for
// byte: the same bytes, sizes and limits are compared. Not for large graphs, nor for loops that
// become such: other calls would have to wait for them.
#include "devices/worker_calls.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 4000, MAX_LOWERED = 20000, MAX_SYMBOLS = 8 };

static struct { // what was lowered; module NULL = nothing
    struct hlo_module *module;
    struct arena arena;
    const char *format;
    struct lower_request req;
} ahead; // run thread

static void forget(void) {
    hlo_module_free(ahead.module);
    arena_done(&ahead.arena);
    memset(&ahead, 0, sizeof ahead);
}

// The sizes of a request that says none; false: it has to say some.
static bool usual_sizes(const struct signature *sig, struct dim_binding b[MAX_SYMBOLS], int *n) {
    for (int k = 0; k < sig->n_in; k++) {
        if (sig->in[k].rank < 0 || sig->in[k].by_value) return false;
        for (int d = 0; d < sig->in[k].rank; d++) {
            const struct sig_dim *dim = &sig->in[k].dims[d];
            int at = 0;
            if (dim->size >= 0) continue;
            if (!dim->symbol || dim->usual != 1) return false;
            while (at < *n && strcmp(b[at].symbol, dim->symbol) != 0)
                at++;
            if (at < *n) continue;
            if (*n == MAX_SYMBOLS) return false;
            b[(*n)++] = (struct dim_binding){dim->symbol, 1};
        }
    }
    return true;
}

void worker_expect_compile(struct call *c, const struct ingest_result *r,
                           const struct frontend_limits *limits) {
    struct dim_binding b[MAX_SYMBOLS];
    int n = 0;
    if (r->info.nodes > MAX_NODES || !usual_sizes(&r->sig, b, &n)) return;
    struct lower_request *req = arena_new_of(&c->arena, struct lower_request);
    *req = (struct lower_request){.program = r->program,
                                  .bindings = arena_dup_array(&c->arena, b, n + 1),
                                  .n_bindings = n,
                                  .entry_name = "main",
                                  .limits = *limits,
                                  .cancel = &c->cancel};
    c->expected = req;
    c->expected_format = r->format;
}

void worker_lower_ahead(struct call *c) {
    if (!c->expected) return;
    struct hlo_module *m = NULL;
    struct lower_request bounded = *c->expected;
    if (!bounded.limits.max_nodes || bounded.limits.max_nodes > MAX_LOWERED)
        bounded.limits.max_nodes = MAX_LOWERED;
    status_t st = frontend_lower(c->expected_format, &bounded, &m);
    if (st) { // COMPILE will say why
        st_drop(st);
        return;
    }
    forget();
    const struct lower_request *q = c->expected;
    struct arena *a = &ahead.arena;
    struct dim_binding *b = arena_zarray(a, struct dim_binding, q->n_bindings + 1);
    for (int k = 0; k < q->n_bindings; k++)
        b[k] = (struct dim_binding){arena_strdup(a, q->bindings[k].symbol), q->bindings[k].size};
    ahead.module = m;
    ahead.format = arena_strdup(a, c->expected_format);
    ahead.req = *q;
    ahead.req.program.p = arena_dup(a, q->program.p, q->program.n);
    ahead.req.bindings = b;
}

static bool same_sizes(const struct lower_request *x, const struct lower_request *y) {
    if (x->n_bindings != y->n_bindings) return false;
    for (int k = 0; k < x->n_bindings; k++) {
        int at = 0;
        while (at < y->n_bindings && strcmp(x->bindings[k].symbol, y->bindings[at].symbol) != 0)
            at++;
        if (at == y->n_bindings || x->bindings[k].size != y->bindings[at].size) return false;
    }
    return true;
}
static bool same_limits(const struct frontend_limits *x, const struct frontend_limits *y) {
    return x->max_program_bytes == y->max_program_bytes && x->max_depth == y->max_depth &&
           x->max_nodes == y->max_nodes && x->max_tensor_bytes == y->max_tensor_bytes;
}
struct hlo_module *worker_take_lowered(const char *format, const struct lower_request *req) {
    const struct lower_request *q = &ahead.req;
    struct hlo_module *m = NULL;
    if (ahead.module && strcmp(ahead.format, format) == 0 &&
        strcmp(q->entry_name, req->entry_name) == 0 && q->program.n == req->program.n &&
        memcmp(q->program.p, req->program.p, q->program.n) == 0 && same_sizes(q, req) &&
        same_limits(&q->limits, &req->limits)) {
        m = ahead.module; // its own limits were tighter, and it kept them
        ahead.module = NULL;
    }
    forget();
    return m;
}
