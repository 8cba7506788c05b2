// SPDX-License-Identifier: Apache-2.0
// One driver for any PJRT plugin: TPU, GPU or CPU. The compiler stops after the passes that no
// target depends on; the plugin compiles the rest (pjrt_program.c). Weights are sent once, prepared
// on the device, and stay there.
//
//     pjrt:plugin=/path/to/plugin.so            first device of the plugin's client
//     pjrt:plugin=...:device=1:set.NAME=VALUE   another one; NAME is an option of the plugin's
//     client
//
// Without plugin= the path is the environment's HLOD_PJRT_PLUGIN, which a compile worker and a
// device worker share.
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "devices/device.h"
#include "devices/pjrt/pjrt_program.h"
#include "proto/hlod.pb-c.h"

enum { MAX_OPTIONS = 16 };

struct pj_device {
    struct device base;
    struct target target;
    const struct pj_plugin *plugin;
    struct arena arena;
    void *client, *device;
    int64_t memory_bytes;
    const char *description;
};
struct pj_exe {
    struct dev_exe base;
    struct executable *exe;   // owned
    void *main, *prepare;     // loaded executables; prepare NULL when it has no results
    size_t n_in;              // parameters of main
    const struct shape **out; // [n_out] results of main
    size_t n_out;
    struct arena arena;
    struct dev_stats stats;
};
struct pj_weights {
    struct dev_weights base;
    void **bound; // [n] results of prepare, device buffers
    size_t n;
};

struct pj_buffer {
    struct dev_buffer base;
    void *pj;
};

static struct pj_device *device_of(const struct dev_exe *x) {
    return (struct pj_device *)x->dev;
}

// ---- element types

static int type_of(enum dtype t) {
    static const int types[DT_COUNT] = {
        [DT_PRED] = 1,        [DT_S8] = 2,          [DT_S16] = 3,
        [DT_S32] = 4,         [DT_S64] = 5,         [DT_U8] = 6,
        [DT_U16] = 7,         [DT_U32] = 8,         [DT_U64] = 9,
        [DT_F16] = 10,        [DT_F32] = 11,        [DT_F64] = 12,
        [DT_BF16] = 13,       [DT_C64] = 14,        [DT_C128] = 15,
        [DT_F8E5M2] = 16,     [DT_F8E4M3FN] = 17,   [DT_F8E4M3B11FNUZ] = 18,
        [DT_F8E5M2FNUZ] = 19, [DT_F8E4M3FNUZ] = 20, [DT_S4] = 21,
        [DT_U4] = 22,         [DT_F8E4M3] = 26,     [DT_F8E3M4] = 27};
    return types[t];
}

// ---- open and describe

static void pjrt_close(struct device *base) {
    struct pj_device *d = (struct pj_device *)base;
    if (d->plugin) pj_destroy(d->plugin, PJ_Client_Destroy, d->client);
    arena_done(&d->arena);
    free(d);
}

struct open_options {
    const char *plugin;
    int64_t device;
    struct pj_named_value set[MAX_OPTIONS];
    size_t n_set;
};

static status_t set_client_option(struct arena *a, struct open_options *o, struct str name,
                                  struct str value) {
    if (o->n_set == MAX_OPTIONS)
        return st_new(ST_INVALID_ARGUMENT, "more than %d options for the plugin", MAX_OPTIONS);
    struct pj_named_value *v = &o->set[o->n_set++];
    *v = (struct pj_named_value){.struct_size = sizeof *v,
                                 .name = arena_strndup(a, name.p, name.n),
                                 .name_size = name.n,
                                 .value_size = 1};
    if (str_to_i64(value, &v->i64)) {
        v->type = PJ_INT64;
    } else if (str_is(value, "true") || str_is(value, "false")) {
        v->type = PJ_BOOL;
        v->boolean = str_is(value, "true");
    } else {
        v->type = PJ_STRING;
        v->string = arena_strndup(a, value.p, value.n);
        v->value_size = value.n;
    }
    return ST_OK;
}

static status_t parse_options(struct arena *a, const char *text, struct open_options *o) {
    struct str rest = str_of(text), item, key;
    o->plugin = getenv("HLOD_PJRT_PLUGIN");
    while (str_cut(&rest, ':', &item)) {
        str_cut(&item, '=', &key);
        if (str_is(key, "plugin"))
            o->plugin = arena_strndup(a, item.p, item.n);
        else if (str_is(key, "device") && str_to_i64(item, &o->device) && o->device >= 0)
            continue;
        else if (key.n > 4 && memcmp(key.p, "set.", 4) == 0)
            RETURN_IF_ERR(set_client_option(a, o, (struct str){key.p + 4, key.n - 4}, item));
        else
            return st_new(ST_INVALID_ARGUMENT,
                          "no option " STR_FMT "=" STR_FMT
                          "; there are plugin=FILE, device=N, set.NAME=VALUE",
                          STR_ARG(key), STR_ARG(item));
    }
    if (o->plugin && *o->plugin) return ST_OK;
    return st_new(ST_FAILED_PRECONDITION,
                  "no plugin is named: pjrt:plugin=FILE, or HLOD_PJRT_PLUGIN in the environment");
}

static status_t describe(struct pj_device *d) {
    struct arena *a = &d->arena;
    struct pj_get_args get = {.object = d->device};
    const char *platform = pj_text(d->plugin, PJ_Client_PlatformName, d->client, a), *kind = "";
    RETURN_IF_ERR(PJ_CALL(d->plugin, Device_GetDescription, &get));
    kind = pj_text(d->plugin, PJ_DeviceDescription_Kind, get.out, a);
    struct pj_device_memory m = {.device = d->device};
    status_t st = PJ_CALL(d->plugin, Device_MemoryStats, &m);
    d->memory_bytes = !st && m.limit.set && m.limit.value > 0 ? m.limit.value : INT64_C(16) << 30;
    st_drop(st); // not every plugin knows its memory
    d->description = arena_printf(a, "%s (%s), PJRT %d.%d", kind, platform,
                                  d->plugin->api->version.major, d->plugin->api->version.minor);
    char *id = arena_printf(a, "pjrt:%s:%s:%s", platform, kind, d->plugin->digest);
    for (char *c = id; *c; c++)
        if (*c == ' ' || *c == ';') *c = '_';
    d->target.id = id;
    return ST_OK;
}

static status_t emit(const struct target *t, struct arena *a, const struct hlo_module *m,
                     struct span *out) {
    const struct pj_device *d =
        (const struct pj_device *)((const char *)t - offsetof(struct pj_device, target));
    return pj_program_compile(d->plugin, d->client, a, m, out);
}

static status_t open_into(struct pj_device *d, const char *text) {
    struct open_options o = {0};
    RETURN_IF_ERR(parse_options(&d->arena, text, &o));
    RETURN_IF_ERR(pj_open(o.plugin, &d->plugin));
    struct pj_client_create c = {.options = o.set, .n_options = o.n_set};
    RETURN_IF_ERR(PJ_CALL(d->plugin, Client_Create, &c));
    d->client = c.client;
    struct pj_list_args l = {.object = d->client};
    RETURN_IF_ERR(PJ_CALL(d->plugin, Client_AddressableDevices, &l));
    if (o.device >= (int64_t)l.n)
        return st_new(ST_INVALID_ARGUMENT, "device %lld of a client with %zu", (long long)o.device,
                      l.n);
    d->device = l.list[o.device];
    d->target = (struct target){.kind = "pjrt",
                                .llvm_triple = "",
                                .llvm_cpu = "",
                                .llvm_features = "",
                                .threads = 1,
                                .min_kernel_elements = INT64_MAX,
                                .emit = emit};
    return describe(d);
}

static status_t pjrt_open(const char *options, struct device **out) {
    extern const struct dev_vtable pjrt_vtable;
    struct pj_device *d = calloc(1, sizeof *d);
    if (!d) return st_oom();
    d->base.vt = &pjrt_vtable;
    status_t st = open_into(d, options);
    if (st)
        pjrt_close(&d->base);
    else
        *out = &d->base;
    return st;
}
static const struct target *pjrt_target(struct device *d) {
    return &((struct pj_device *)d)->target;
}
static struct dev_attributes pjrt_attributes(struct device *base) {
    struct pj_device *d = (struct pj_device *)base;
    return (struct dev_attributes){
        .memory_bytes = d->memory_bytes, .description = d->description, .foreign = true};
}

// ---- buffers

static status_t to_device(struct pj_device *d, const struct shape *s, const void *data,
                          void **out) {
    struct pj_from_host h = {.client = d->client,
                             .data = data,
                             .type = type_of(s->dtype),
                             .dims = s->dims,
                             .n_dims = (size_t)s->rank,
                             .semantics = PJ_COPY_DURING_CALL,
                             .device = d->device};
    if (!h.type)
        return st_new(ST_INVALID_ARGUMENT, "this device has no values of type %s",
                      dtype_name(s->dtype));
    RETURN_IF_ERR(PJ_CALL(d->plugin, Client_BufferFromHostBuffer, &h));
    *out = h.buffer;
    return pj_await(d->plugin, h.done);
}

// Dense, row-major, whatever the layout on the device is.
static status_t to_host(struct pj_device *d, const struct shape *s, void *buffer, void *dst) {
    int64_t order[HLO_MAX_RANK + 1];
    for (int k = 0; k < s->rank; k++)
        order[k] = s->rank - 1 - k;
    struct pj_layout layout = {.struct_size = sizeof layout, .type = PJ_LAYOUT_TILED};
    layout.tiled.struct_size = sizeof layout.tiled;
    layout.tiled.minor_to_major = order;
    layout.tiled.n_minor_to_major = (size_t)s->rank;
    struct pj_to_host h = {
        .buffer = buffer, .layout = &layout, .dst = dst, .dst_size = (size_t)shape_bytes(s)};
    if (!h.dst_size) return ST_OK;
    RETURN_IF_ERR(PJ_CALL(d->plugin, Buffer_ToHostBuffer, &h));
    RETURN_IF_ERR(pj_await(d->plugin, h.event));
    if (s->dtype == DT_S4) // a byte each, whose upper half a plugin may leave as it was
        for (int8_t *v = dst, *end = v + h.dst_size; v < end; v++)
            *v = (int8_t)((*v & 7) - (*v & 8));
    return ST_OK;
}

// Takes pj, also on failure.
static status_t wrap(struct pj_device *d, const struct shape *s, void *pj,
                     struct dev_buffer **out) {
    struct pj_buffer *b = calloc(1, sizeof *b);
    if (!b) {
        pj_destroy(d->plugin, PJ_Buffer_Destroy, pj);
        return st_oom();
    }
    *b =
        (struct pj_buffer){.base = {.dev = &d->base, .refs = 1, .bytes = shape_bytes(s)}, .pj = pj};
    b->base.shape = shape_make(&b->base.arena, s->dtype, s->dims, s->rank);
    *out = &b->base;
    return ST_OK;
}
static status_t pjrt_put(struct device *base, const struct shape *s, const void *data,
                         struct dev_buffer **out) {
    struct pj_device *d = (struct pj_device *)base;
    void *pj;
    RETURN_IF_ERR(to_device(d, s, data, &pj));
    return wrap(d, s, pj, out);
}
static void pjrt_drop(struct dev_buffer *base) {
    struct pj_buffer *b = (struct pj_buffer *)base;
    pj_destroy(((struct pj_device *)base->dev)->plugin, PJ_Buffer_Destroy, b->pj);
    arena_done(&base->arena);
    free(b);
}
// Through a copy of the whole where a part is asked for: a plugin's layout is its own affair.
static status_t pjrt_get(struct dev_buffer *base, int64_t offset, int64_t n, void *dst) {
    struct pj_buffer *b = (struct pj_buffer *)base;
    struct pj_device *d = (struct pj_device *)base->dev;
    if (offset == 0 && n == base->bytes) return to_host(d, base->shape, b->pj, dst);
    uint8_t *all = malloc((size_t)base->bytes + 1);
    if (!all) return st_oom();
    status_t st = to_host(d, base->shape, b->pj, all);
    if (!st && n) memcpy(dst, all + offset, (size_t)n);
    free(all);
    return st;
}

static void destroy_buffers(const struct pj_plugin *p, void **b, size_t n) {
    for (size_t k = 0; k < n; k++)
        pj_destroy(p, PJ_Buffer_Destroy, b[k]);
}

// Waits until the results are there. out[n_out]: buffers, the caller's.
static status_t execute(struct pj_device *d, void *loaded, void *const *in, size_t n_in,
                        void **out) {
    void *event = NULL;
    int64_t *keep = calloc(n_in + 1, sizeof *keep);
    if (!keep) return st_oom();
    for (size_t k = 0; k < n_in; k++)
        keep[k] = (int64_t)k;
    struct pj_execute_options o = {
        .struct_size = sizeof o, .keep_inputs = keep, .n_keep_inputs = n_in};
    struct pj_execute e = {.loaded = loaded,
                           .options = &o,
                           .arguments = &in,
                           .n_devices = 1,
                           .n_arguments = n_in,
                           .outputs = &out,
                           .events = &event,
                           .device = d->device};
    status_t st = PJ_CALL(d->plugin, LoadedExecutable_Execute, &e);
    if (!st) st = pj_await(d->plugin, event);
    free(keep);
    return st;
}

// ---- executables

static void pjrt_unload(struct dev_exe *base) {
    struct pj_exe *x = (struct pj_exe *)base;
    const struct pj_plugin *p = device_of(base)->plugin;
    pj_destroy(p, PJ_LoadedExecutable_Destroy, x->main);
    pj_destroy(p, PJ_LoadedExecutable_Destroy, x->prepare);
    executable_free(x->exe);
    arena_done(&x->arena);
    free(x);
}

static status_t load_into(struct pj_device *d, struct pj_exe *x) {
    const struct hlo_computation *m = x->exe->main->entry;
    if (strcmp(x->exe->target_id, d->target.id) != 0)
        return st_new(ST_FAILED_PRECONDITION, "the executable is for target %s, this device is %s",
                      x->exe->target_id, d->target.id);
    x->n_in = m->params.n;
    x->n_out = (size_t)shape_leaves(m->root->shape);
    x->out = arena_array(&x->arena, const struct shape *, x->n_out + 1);
    for (size_t k = 0; k < x->n_out; k++)
        x->out[k] = shape_leaf(m->root->shape, (int)k);
    RETURN_IF_ERR(pj_program_load(d->plugin, d->client, x->exe->kernels.object, &x->main));
    if (x->exe->prepare->entry->root->shape->n_elems)
        RETURN_IF_ERR(
            pj_program_load(d->plugin, d->client, x->exe->prepare_kernels.object, &x->prepare));
    x->stats.resident_bytes = (int64_t)x->exe->kernels.object.n;
    return ST_OK;
}

static status_t pjrt_load(struct device *base, struct executable *exe, struct dev_exe **out) {
    struct pj_exe *x = calloc(1, sizeof *x);
    if (!x) {
        executable_free(exe);
        return st_oom();
    }
    x->base = (struct dev_exe){base, exe};
    x->exe = exe;
    status_t st = load_into((struct pj_device *)base, x);
    if (st)
        pjrt_unload(&x->base);
    else
        *out = &x->base;
    return st;
}

// ---- weights

static void pjrt_release(struct dev_weights *base) {
    struct pj_weights *w = (struct pj_weights *)base;
    destroy_buffers(device_of(base->exe)->plugin, w->bound, w->n);
    free(w->bound);
    free(w);
}

static status_t bind_weights(struct pj_exe *x, const struct span *weights, int n,
                             struct pj_weights *w) {
    struct pj_device *d = device_of(&x->base);
    const struct hlo_computation *p = x->exe->prepare->entry;
    size_t sent = 0;
    status_t st = ST_OK;
    void **in = calloc(p->params.n + 1, sizeof *in);
    w->bound = calloc((size_t)p->root->shape->n_elems + 1, sizeof *w->bound);
    if (!in || !w->bound) st = st_oom();
    for (; sent < p->params.n && !st; sent++) {
        const struct hlo_instr *q = p->params.v[sent];
        const void *bytes;
        st = dev_find_weight(q, weights, n, &bytes);
        if (!st) st = to_device(d, q->shape, bytes, &in[sent]);
    }
    if (!st && x->prepare) st = execute(d, x->prepare, in, p->params.n, w->bound);
    if (!st) w->n = (size_t)p->root->shape->n_elems;
    for (size_t k = 0; k < w->n; k++)
        w->base.bytes += shape_bytes(p->root->shape->elems[k]);
    if (in) destroy_buffers(d->plugin, in, sent);
    free(in);
    return st;
}

static status_t pjrt_prepare(struct dev_exe *base, const struct span *weights, int n,
                             struct dev_weights **out) {
    struct pj_weights *w = calloc(1, sizeof *w);
    if (!w) return st_oom();
    w->base.exe = base;
    status_t st = bind_weights((struct pj_exe *)base, weights, n, w);
    if (st)
        pjrt_release(&w->base);
    else
        *out = &w->base;
    return st;
}

// ---- run

static void note(struct profile *p, const char *name, const char *impl, int64_t start_ns) {
    if (p && p->n < p->cap)
        p->rows[p->n++] = (struct profile_row){.name = name,
                                               .op = "module",
                                               .impl = impl,
                                               .start_ns = start_ns - p->zero_ns,
                                               .ns = clock_ns() - start_ns};
}

static status_t run_with(struct pj_exe *x, struct pj_weights *w, const struct dev_run *r, void **in,
                         void **own, void **out) {
    struct pj_device *d = device_of(&x->base);
    const struct hlo_computation *m = x->exe->main->entry;
    size_t input = 0;
    int64_t start = clock_ns();
    if (r->profile) r->profile->zero_ns = start;
    for (size_t k = 0; k < x->n_in; k++) {
        const struct hlo_instr *p = m->params.v[k];
        if (p->param_kind != PARAM_INPUT) {
            in[k] = w->bound[p->param_index];
            continue;
        }
        if (r->in_buffers && r->in_buffers[input]) {
            in[k] = ((struct pj_buffer *)r->in_buffers[input++])->pj;
            continue;
        }
        RETURN_IF_ERR(to_device(d, p->shape, r->in[input], &own[input]));
        in[k] = own[input++];
    }
    note(r->profile, "inputs", "pjrt:transfer", start);
    if (r->cancel && *r->cancel) return st_new(ST_CANCELLED, "the run was cancelled");
    start = clock_ns();
    RETURN_IF_ERR(execute(d, x->main, in, x->n_in, out)); // cannot be stopped once begun
    if (r->cancel && *r->cancel) return st_new(ST_CANCELLED, "the run was cancelled");
    note(r->profile, m->name, "pjrt:execute", start);
    start = clock_ns();
    for (size_t k = 0; k < x->n_out; k++)
        if (r->out[k]) RETURN_IF_ERR(to_host(d, x->out[k], out[k], r->out[k]));
    note(r->profile, "outputs", "pjrt:transfer", start);
    return ST_OK;
}

// Results that stay: out[k] goes into a buffer. A donated input is given back to the plugin with
// its last reference; whether its memory is used again before is the plugin's affair.
static status_t keep_results(struct pj_exe *x, const struct dev_run *r, void **out) {
    status_t st = ST_OK;
    for (size_t k = 0; k < x->n_out && !st; k++) {
        if (r->out[k]) continue;
        st = wrap(device_of(&x->base), x->out[k], out[k], &r->kept[k]);
        out[k] = NULL;
    }
    for (size_t k = 0; k < x->n_out && st; k++)
        if (!r->out[k] && r->kept[k]) {
            dev_buffer_unref(r->kept[k]);
            r->kept[k] = NULL;
        }
    return st;
}

static status_t pjrt_run(struct dev_exe *base, struct dev_weights *w, const struct dev_run *r) {
    struct pj_exe *x = (struct pj_exe *)base;
    const struct pj_plugin *p = device_of(base)->plugin;
    int64_t start = clock_ns();
    void **b = calloc(2 * x->n_in + x->n_out + 1, sizeof *b);
    if (!b) return st_oom();
    void **own = b + x->n_in, **out = own + x->n_in;
    status_t st = run_with(x, (struct pj_weights *)w, r, b, own, out);
    if (!st) st = keep_results(x, r, out);
    destroy_buffers(p, own, x->n_in + x->n_out);
    free(b);
    if (st) return st;
    x->stats.runs++;
    x->stats.busy_ns += clock_ns() - start;
    return ST_OK;
}

static struct dev_stats pjrt_stats(const struct dev_exe *base) {
    return ((const struct pj_exe *)base)->stats;
}
static void pjrt_explain(const struct dev_exe *base, struct strbuf *out) {
    const struct pj_device *d = device_of(base);
    strbuf_printf(out, "one executable of %s, plugin %s (sha256 %s...), %zu bytes\n",
                  d->description, d->plugin->path, d->plugin->digest, base->exe->kernels.object.n);
}

static struct dev_peak pjrt_peak(struct device *d) {
    (void)d;
    return (struct dev_peak){.source = "not known: plugins do not tell"};
}

extern const struct dev_vtable pjrt_vtable;
const struct dev_vtable pjrt_vtable = {.kind = "pjrt",
                                       .open = pjrt_open,
                                       .close = pjrt_close,
                                       .target = pjrt_target,
                                       .attributes = pjrt_attributes,
                                       .load = pjrt_load,
                                       .unload = pjrt_unload,
                                       .prepare = pjrt_prepare,
                                       .release = pjrt_release,
                                       .put = pjrt_put,
                                       .get = pjrt_get,
                                       .drop = pjrt_drop,
                                       .run = pjrt_run,
                                       .stats = pjrt_stats,
                                       .explain = pjrt_explain,
                                       .peak = pjrt_peak};
