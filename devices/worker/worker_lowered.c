// SPDX-License-Identifier: Apache-2.0
// What the next COMPILE will ask for. Between INGEST's reply and COMPILE the daemon keeps what was
// found, and this process would wait: it lowers the program meanwhile, where nobody need say a size
// (no open dimension but a batch, which is 1 as usual), and compiles it by the default options if
// it is small. One program at most; the next COMPILE takes it or it goes. What is made ahead is
// what would be made then, byte for byte: the same bytes, sizes, limits, options and target are
// compared. Not for large graphs, nor for loops that become such. It is no call, so no deadline
// ends it: it stops for any call but that COMPILE (worker_made_for), with that one's end, and when
// none comes (worker.c).
#include "devices/worker/worker_calls.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { MAX_NODES = 4000, MAX_LOWERED = 20000, MAX_SYMBOLS = 8 };
enum { SMALL = 150 }; // nodes: what compiles in the time that the daemon takes, or little more

static struct { // one of the two, or nothing
    struct hlo_module *module;
    struct executable *exe;
    int64_t ns; // of lowering
    struct arena arena;
    const char *format;
    struct lower_request req;
} ahead; // run thread

static void forget(void) {
    hlo_module_free(ahead.module);
    executable_free(ahead.exe);
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

void worker_expect_compile(struct worker_call *c, const struct ingest_result *r,
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
    c->expected_small = r->info.nodes <= SMALL;
}

static void compile_ahead(const struct lower_request *q, const struct target *t) {
    struct compile_options opt = {.disable_passes = "", .disable_rules = ""};
    struct lower_request lowered = *q;
    lowered.lowered = ahead.module;
    ahead.module = NULL;
    struct compile_observer obs = {.cancel = q->cancel};
    st_drop(hlo_compile(ahead.format, &lowered, &opt, t, &obs, &ahead.exe));
}

bool worker_made_for(const struct worker_call *from, struct worker_call *next) {
    if (next->type != HLOD__WIRE__TYPE__TYPE_COMPILE) return false;
    struct span program, made = from->expected->program;
    status_t st =
        worker_call_blob(next, ((const Hlod__Wire__Compile *)next->request)->program, &program);
    bool same = !st && program.n == made.n && memcmp(program.p, made.p, made.n) == 0;
    st_drop(st);
    return same;
}

void worker_lower_ahead(struct worker_call *c, const struct target *t) {
    if (!c->expected) return;
    struct hlo_module *m = NULL;
    struct lower_request bounded = *c->expected;
    int64_t start = clock_ns();
    bounded.limits.channel_block = t ? t->conv_block : 0;
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
    ahead.ns = clock_ns() - start;
    ahead.format = arena_strdup(a, c->expected_format);
    ahead.req = *q;
    ahead.req.limits.channel_block = bounded.limits.channel_block;
    ahead.req.program.p = arena_dup(a, q->program.p, q->program.n);
    ahead.req.bindings = b;
    if (c->expected_small && t && !t->emit && hlo_total(m) <= 8 * SMALL) compile_ahead(q, t);
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
           x->max_nodes == y->max_nodes && x->max_tensor_bytes == y->max_tensor_bytes &&
           x->channel_block == y->channel_block;
}
static bool same_options(const struct compile_options *opt) {
    struct strbuf b = {0};
    compile_options_print(&b, opt);
    bool same = strcmp(strbuf_cstr(&b), ahead.exe->options_text) == 0;
    strbuf_done(&b);
    return same;
}
struct made_ahead worker_take_ahead(const char *format, const struct lower_request *req,
                                    const struct compile_options *opt, const struct target *t) {
    const struct lower_request *q = &ahead.req;
    struct made_ahead made = {.lower_ns = ahead.ns};
    // Its own limit of nodes was tighter, and it kept that.
    if ((ahead.module || ahead.exe) && strcmp(ahead.format, format) == 0 &&
        strcmp(q->entry_name, req->entry_name) == 0 && q->program.n == req->program.n &&
        memcmp(q->program.p, req->program.p, q->program.n) == 0 && same_sizes(q, req) &&
        same_limits(&q->limits, &req->limits)) {
        made.module = ahead.module;
        ahead.module = NULL;
        if (ahead.exe && same_options(opt) && strcmp(ahead.exe->target_id, t->id) == 0) {
            made.exe = ahead.exe;
            ahead.exe = NULL;
        }
    }
    forget();
    return made;
}
