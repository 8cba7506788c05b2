// SPDX-License-Identifier: Apache-2.0
// A page as a device. The spec:
//     web          compiles; there is no page
//     web:fd=5     the WebSocket of a page that has joined is descriptor 5 of this process
// What a page is given are packages (compiler/web), one for each set of weights; what it gives back
// is bounded and compared before a byte of it is used (web_session.h, web_wire.h). A call that is
// cancelled resets the page, which then has no packages any more: they are kept here, and sent
// again before the next run.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/span.h"
#include "compiler/plan/plan.h"
#include "compiler/web/web.h"
#include "devices/host_buffer.h"
#include "devices/web/web_session.h"
#include "devices/web/web_wire.h"

enum { HELLO_MS = 10000, RESET_MS = 1500, FREE_MS = 5000, MOST_FILE_NAME = 64 };
static const char FOLDER[] = "model/"; // of a package: what the runtime loads
struct web_device {
    struct device base;
    bool has_page;
    struct web_session page;
    uint32_t next;      // number of a model or a run
    uint32_t turn;      // counts resets
    int64_t most_bytes; // of the message that may be under way
    char description[160];
};
struct web_exe {
    struct dev_exe base;
    struct arena arena;
    struct plan *plan;
    const struct shape **in, **out; // leaves
    int n_in, n_out;
    const char **in_names, **out_names; // as the package has them
    struct dev_stats stats;
};
struct web_weights {
    struct dev_weights base;
    struct arena arena;
    struct web_files files;
    uint32_t model;
    int64_t turn; // of the device when the page got it; -1: it has not
};
static struct web_device *device_of(const struct dev_exe *x) {
    return (struct web_device *)x->dev;
}

// ---- open

static void web_close(struct device *base) {
    struct web_device *d = (struct web_device *)base;
    if (d->has_page) web_session_close(&d->page);
    free(d);
}
static status_t greet(struct web_device *d) {
    struct web_wait wait = {.until_ns = clock_ns() + HELLO_MS * CLOCK_MS};
    struct span m;
    enum web_type type;
    uint32_t version;
    char text[128];
    RETURN_IF_ERR(web_receive(&d->page, WEB_HEAD_BYTES + WEB_TEXT_BYTES, &wait, &m));
    if (!web_read_head(m, &type, &version) || type != WEB_HELLO)
        return web_session_lose(&d->page, "it did not say what it is");
    if (version != WEB_VERSION)
        return web_session_lose(&d->page, "it speaks another version: load it again");
    web_text((struct span){m.p + WEB_HEAD_BYTES, m.n - WEB_HEAD_BYTES}, text, sizeof text);
    snprintf(d->description, sizeof d->description, "a page: %s", text);
    return ST_OK;
}
MUST_CHECK static status_t parse(const char *options, int *out_fd) {
    struct str rest = str_of(options), item, key;
    *out_fd = -1;
    while (rest.n && str_cut(&rest, ':', &item)) {
        int64_t fd;
        str_cut(&item, '=', &key);
        if (!str_is(key, "fd") || !str_to_i64(item, &fd) || fd < 3 || fd > 1 << 20)
            return st_invalid("option '" STR_FMT "': there is fd=N alone, which the server gives",
                              STR_ARG(key));
        *out_fd = (int)fd;
    }
    return ST_OK;
}
static status_t open_at(int fd, struct device **out);
static status_t web_open(const char *options, struct device **out) {
    int fd;
    RETURN_IF_ERR(parse(options, &fd));
    if (fd < 0) return st_new(ST_UNAVAILABLE, "no page has joined: open /worker of the server");
    return open_at(fd, out);
}
static status_t web_open_compiler(const char *options, struct device **out) {
    int fd;
    RETURN_IF_ERR(parse(options, &fd));
    return open_at(-1, out);
}

static const struct target *web_device_target(UNUSED struct device *d) {
    return web_target();
}
static struct dev_attributes web_attributes(struct device *base) {
    return (struct dev_attributes){.memory_bytes = (INT64_C(1) << 32) - 65536, // of one program
                                   .description = ((struct web_device *)base)->description};
}

// ---- the page's turn

static status_t send_number(struct web_device *d, enum web_type type, uint32_t number,
                            const struct web_wait *wait) {
    uint8_t head[WEB_HEAD_BYTES];
    web_head(head, type, number);
    return web_send(&d->page, &(struct span){head, sizeof head}, 1, wait);
}
// After a call that was cancelled: whatever the page is at, it is to leave it. Takes st and gives
// it, for its call; a page that does not is lost.
static status_t reset(struct web_device *d, status_t st) {
    struct web_wait wait = {.until_ns = clock_ns() + RESET_MS * CLOCK_MS};
    int left = 1; // answer to the call, under way perhaps
    if (st_code(st) != ST_CANCELLED || d->page.lost) return st;
    status_t ended = send_number(d, WEB_RESET, ++d->turn, &wait);
    while (!ended) {
        struct span m;
        enum web_type type;
        uint32_t number;
        ended = web_receive(&d->page, d->most_bytes, &wait, &m);
        if (ended) break;
        if (!web_read_head(m, &type, &number))
            ended = web_session_lose(&d->page, "a message without a head");
        else if (type == WEB_DONE && number == d->turn)
            return st;
        else if (left-- <= 0)
            ended = web_session_lose(&d->page, "it answers what nobody asked");
    }
    st_drop(ended);
    return st;
}
// The answer to what was asked under this number. FAILED: ABORTED, with its words.
static status_t answer(struct web_device *d, enum web_type want, uint32_t number, int64_t most,
                       const struct web_wait *wait, struct span *out) {
    enum web_type type;
    uint32_t of;
    char text[256];
    int64_t least = WEB_HEAD_BYTES + WEB_TEXT_BYTES;
    d->most_bytes = most > least ? most : least;
    RETURN_IF_ERR(web_receive(&d->page, d->most_bytes, wait, out));
    bool whole = web_read_head(*out, &type, &of);
    if (!whole || of != number || (type != want && type != WEB_FAILED))
        return web_session_lose(&d->page, "it answers what nobody asked");
    if (type == want) return ST_OK;
    web_text((struct span){out->p + WEB_HEAD_BYTES, out->n - WEB_HEAD_BYTES}, text, sizeof text);
    return st_new(ST_ABORTED, "the page says: %s", text);
}

static status_t open_at(int fd, struct device **out) {
    struct web_device *d = calloc(1, sizeof *d);
    if (!d) return st_oom();
    extern const struct dev_vtable web_vtable;
    d->base.vt = &web_vtable;
    snprintf(d->description, sizeof d->description, "pages: none has joined this process");
    d->has_page = fd >= 0;
    if (d->has_page) web_session_open(&d->page, fd);
    status_t st = d->has_page ? greet(d) : ST_OK;
    if (st)
        web_close(&d->base);
    else
        *out = &d->base;
    return st;
}
static status_t alive(struct web_device *d) {
    return d->has_page ? web_session_alive(&d->page)
                       : st_new(ST_UNAVAILABLE, "this process only compiles");
}

// ---- executables

static void web_unload(struct dev_exe *base) {
    struct web_exe *x = (struct web_exe *)base;
    executable_free((struct executable *)(uintptr_t)base->exe);
    arena_done(&x->arena);
    free(x);
}
// Names that no two share, whatever the model calls them.
static const char **numbered(struct arena *a, char side, int n) {
    const char **v = arena_zarray(a, const char *, n + 1);
    for (int k = 0; k < n; k++)
        v[k] = arena_printf(a, "%c%d", side, k);
    return v;
}
static void list_leaves(struct web_exe *x) {
    const struct hlo_computation *m = x->base.exe->main->entry;
    for (size_t k = 0; k < m->params.n; k++)
        if (m->params.v[k]->param_kind == PARAM_INPUT)
            x->n_in += shape_leaves(m->params.v[k]->shape);
    x->n_out = shape_leaves(m->root->shape);
    x->in = arena_zarray(&x->arena, const struct shape *, x->n_in + 1);
    x->out = arena_zarray(&x->arena, const struct shape *, x->n_out + 1);
    int n = 0;
    for (size_t k = 0; k < m->params.n; k++) {
        const struct hlo_instr *p = m->params.v[k];
        for (int e = 0; p->param_kind == PARAM_INPUT && e < shape_leaves(p->shape); e++)
            x->in[n++] = shape_leaf(p->shape, e);
    }
    for (int k = 0; k < x->n_out; k++)
        x->out[k] = shape_leaf(m->root->shape, k);
    x->in_names = numbered(&x->arena, 'i', x->n_in);
    x->out_names = numbered(&x->arena, 'o', x->n_out);
}
static struct web_options options_of(const struct web_exe *x) {
    return (struct web_options){.backend = WEB_AUTO,
                                .name = "run",
                                .whole = true, // whoever returns results cuts them
                                .inputs = x->in_names,
                                .outputs = x->out_names,
                                .n_inputs = x->n_in,
                                .n_outputs = x->n_out};
}
// What no kernel computes is refused here, all of it.
static status_t load_into(struct web_exe *x) {
    const struct executable *e = x->base.exe;
    if (strcmp(e->target_id, web_target()->id) != 0)
        return st_new(ST_FAILED_PRECONDITION, "the executable is for target %s, pages run %s",
                      e->target_id, web_target()->id);
    RETURN_IF_ERR(alive(device_of(&x->base)));
    list_leaves(x);
    RETURN_IF_ERR(plan_make(&x->arena, e->main->entry, &x->plan));
    struct arena scratch = {0};
    struct web_options o = options_of(x);
    int64_t bytes = 0;
    status_t st = web_memory(&scratch, e, &o, &bytes);
    arena_done(&scratch);
    x->stats.arena_bytes = bytes;
    return st;
}
static status_t web_load(struct device *d, struct executable *exe,
                         UNUSED const _Atomic bool *cancel, struct dev_exe **out) {
    struct web_exe *x = calloc(1, sizeof *x);
    if (!x) {
        executable_free(exe);
        return st_oom();
    }
    x->base = (struct dev_exe){.dev = d, .exe = exe};
    status_t st = load_into(x);
    if (st)
        web_unload(&x->base);
    else
        *out = &x->base;
    return st;
}

// ---- weights

static status_t send_file(struct web_device *d, const struct web_weights *w,
                          const struct web_file *f, const struct web_wait *wait) {
    const char *name = f->path + strlen(FOLDER);
    uint8_t head[WEB_HEAD_BYTES + 4];
    web_head(head, WEB_FILE, w->model);
    web_put32(head + WEB_HEAD_BYTES, (uint32_t)strlen(name));
    const struct span v[] = {
        {head, sizeof head}, {(const uint8_t *)name, strlen(name)}, {f->bytes.p, f->bytes.n}};
    return web_send(&d->page, v, 3, wait);
}
// Sends the package, and waits until the page has loaded it; a page that has it needs nothing.
static status_t give(struct web_device *d, struct web_weights *w, const _Atomic bool *cancel) {
    struct web_wait wait = {.cancel = cancel};
    struct span m;
    RETURN_IF_ERR(alive(d));
    if (w->turn == d->turn) return ST_OK;
    w->model = ++d->next;
    d->most_bytes = WEB_HEAD_BYTES + WEB_TEXT_BYTES;
    status_t st = ST_OK;
    for (size_t k = 0; k < w->files.n && !st; k++) {
        const struct web_file *f = &w->files.v[k];
        if (strncmp(f->path, FOLDER, strlen(FOLDER)) != 0) continue;
        st = cancel && *cancel ? st_new(ST_CANCELLED, "the call was cancelled")
                               : send_file(d, w, f, &wait);
    }
    if (!st) st = send_number(d, WEB_LOAD, w->model, &wait);
    if (!st) st = answer(d, WEB_LOADED, w->model, 0, &wait, &m);
    if (!st) w->turn = d->turn;
    return reset(d, st);
}
static void web_release(struct dev_weights *base) {
    struct web_weights *w = (struct web_weights *)base;
    struct web_device *d = device_of(base->exe);
    struct web_wait wait = {.until_ns = clock_ns() + FREE_MS * CLOCK_MS};
    if (w->turn == d->turn && !d->page.lost) st_drop(send_number(d, WEB_FREE, w->model, &wait));
    arena_done(&w->arena);
    free(w);
}
static status_t pack(struct web_exe *x, const struct span *weights, int n,
                     const _Atomic bool *cancel, struct web_weights *w) {
    const struct hlo_computation *p = x->base.exe->prepare->entry;
    struct web_options o = options_of(x);
    for (size_t k = 0; k < p->params.n; k++) {
        const void *bytes;
        RETURN_IF_ERR(dev_find_weight(p->params.v[k], weights, n, &bytes));
    }
    RETURN_IF_ERR(web_package(&w->arena, x->base.exe, weights, n, &o, cancel, &w->files));
    w->base.bytes = w->files.weight_bytes;
    return ST_OK;
}
static status_t web_prepare_set(struct dev_exe *base, const struct span *weights, int n,
                                const _Atomic bool *cancel, struct dev_weights **out) {
    struct web_device *d = device_of(base);
    RETURN_IF_ERR(alive(d));
    struct web_weights *w = calloc(1, sizeof *w);
    if (!w) return st_oom();
    w->base.exe = base;
    w->turn = -1;
    status_t st = pack((struct web_exe *)base, weights, n, cancel, w);
    if (!st) st = give(d, w, cancel);
    if (st)
        web_release(&w->base);
    else
        *out = &w->base;
    return st;
}

// ---- run

static status_t ask(struct web_exe *x, const struct web_weights *w, const struct dev_run *r,
                    uint32_t run, struct arena *a, const struct web_wait *wait) {
    static const uint8_t zeros[WEB_PAD];
    uint8_t head[2 * WEB_HEAD_BYTES] = {0};
    struct span *v = arena_zarray(a, struct span, 2 * x->n_in + 1);
    web_head(head, WEB_RUN, run);
    web_put32(head + WEB_HEAD_BYTES, w->model);
    int n = 0;
    v[n++] = (struct span){head, sizeof head};
    for (int k = 0; k < x->n_in; k++) {
        int64_t bytes = shape_bytes(x->in[k]);
        v[n++] = (struct span){host_input(r, k), (size_t)bytes};
        v[n++] = (struct span){zeros, (size_t)(round_up(bytes, WEB_PAD) - bytes)};
    }
    return web_send(&device_of(&x->base)->page, v, n, wait);
}
static status_t deliver(struct web_exe *x, const struct dev_run *r, const struct web_result *want,
                        struct span m, struct arena *a) {
    void **src = arena_zarray(a, void *, x->n_out + 1);
    const char *fault = web_result_fault(want, m);
    if (fault) return web_session_lose(&device_of(&x->base)->page, fault);
    for (int k = 0; k < x->n_out; k++)
        src[k] = (void *)(uintptr_t)(m.p + want->at[k]);
    return host_deliver(x->base.dev, r, x->n_in, src, x->out, x->n_out, NULL, NULL);
}
static status_t run_in_page(struct web_exe *x, const struct web_weights *w, const struct dev_run *r,
                            struct arena *a) {
    struct web_device *d = device_of(&x->base);
    struct web_wait wait = {.cancel = r->cancel};
    struct web_result want;
    struct span m;
    uint32_t run = ++d->next;
    RETURN_IF_ERR(web_result_make(a, x->out, x->n_out, run, &want));
    d->most_bytes = want.bytes;
    status_t st = ask(x, w, r, run, a, &wait);
    if (!st) st = answer(d, WEB_RESULT, run, want.bytes, &wait, &m);
    if (!st) st = deliver(x, r, &want, m, a);
    return reset(d, st);
}
static status_t web_run(struct dev_exe *base, struct dev_weights *weights,
                        const struct dev_run *r) {
    struct web_exe *x = (struct web_exe *)base;
    struct web_weights *w = (struct web_weights *)weights;
    if (r->cancel && *r->cancel) return st_new(ST_CANCELLED, "the call was cancelled");
    RETURN_IF_ERR(give(device_of(base), w, r->cancel));
    struct arena a = {0};
    int64_t start = clock_ns();
    status_t st = run_in_page(x, w, r, &a);
    arena_done(&a);
    if (st) return st;
    int64_t ns = clock_ns() - start;
    x->stats.runs++;
    x->stats.busy_ns += ns;
    if (r->profile && r->profile->n < r->profile->cap)
        r->profile->rows[r->profile->n++] = (struct profile_row){
            .name = base->exe->main->entry->name, .op = "module", .impl = "page", .ns = ns};
    return ST_OK;
}

static status_t web_put(struct device *d, const struct shape *s, const void *data,
                        struct dev_buffer **out) {
    RETURN_IF_ERR(alive((struct web_device *)d));
    return host_buffer_new(d, s, data, out);
}
// Asked again soon for as long as there is a page: nobody else reads what it says meanwhile.
static status_t web_idle(struct device *base, bool *busy) {
    struct web_device *d = (struct web_device *)base;
    *busy = d->has_page;
    return d->has_page ? web_session_idle(&d->page) : ST_OK;
}
static struct dev_stats web_stats(const struct dev_exe *x) {
    return ((const struct web_exe *)x)->stats;
}
static void web_explain(const struct dev_exe *base, struct strbuf *out) {
    plan_print(out, ((const struct web_exe *)base)->plan);
    strbuf_puts(out,
                "\nimplementations:\n  every step: the page, by WebGPU, WebGL2 or WebAssembly\n");
}
static struct dev_peak web_peak(UNUSED struct device *d) {
    return (struct dev_peak){.source = "not known: the device is a page"};
}

extern const struct dev_vtable web_vtable;
const struct dev_vtable web_vtable = {.kind = "web",
                                      .open = web_open,
                                      .close = web_close,
                                      .open_compiler = web_open_compiler,
                                      .target = web_device_target,
                                      .attributes = web_attributes,
                                      .load = web_load,
                                      .unload = web_unload,
                                      .prepare = web_prepare_set,
                                      .release = web_release,
                                      .put = web_put,
                                      .get = host_buffer_get,
                                      .drop = host_buffer_free,
                                      .run = web_run,
                                      .stats = web_stats,
                                      .idle = web_idle,
                                      .explain = web_explain,
                                      .peak = web_peak};
