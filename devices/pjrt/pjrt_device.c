// SPDX-License-Identifier: Apache-2.0
// One driver for any PJRT plugin: TPU, GPU or CPU. The compiler stops after the passes that no
// target depends on; the plugin compiles the rest (pjrt_program.c). Opened as a device it has the
// plugin's client; opened to compile it has none until something is compiled for the plugin's own
// devices: a TPU belongs to one process, and elsewhere there may be no device at all.
#include "devices/pjrt/pjrt_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "devices/pjrt/pjrt_topology.h"

static void pjrt_close(struct device *base) {
    struct pj_device *d = (struct pj_device *)base;
    for (struct pj_target *t = d->targets; t; t = t->next)
        pj_destroy(d->plugin, PJ_TopologyDescription_Destroy, t->topology);
    status_t st = pj_settle(d, NULL); // a client at work may wait for ever on its way out
    if (d->plugin && !st) pj_destroy(d->plugin, PJ_Client_Destroy, d->client);
    st_drop(st);
    vec_done(&d->given_up.events);
    arena_done(&d->arena);
    free(d);
}

// ---- what goes on after a run was cancelled

void pj_give_up(struct pj_device *d, struct pj_pending *w) {
    if (!d->given_up.events.n) d->given_up_ns = clock_ns();
    pj_pending_move(&d->given_up, w);
}
status_t pj_idle(struct device *base, bool *busy) {
    struct pj_device *d = (struct pj_device *)base;
    *busy = d->given_up.events.n && !pj_pending_over(d->plugin, &d->given_up);
    if (!*busy || clock_ns() - d->given_up_ns < clock_of_ms(d->options.drain_ms)) return ST_OK;
    return st_new(ST_UNAVAILABLE,
                  "an execution of a cancelled run has not ended after %lld ms more",
                  (long long)d->options.drain_ms);
}
status_t pj_settle(struct pj_device *d, const _Atomic bool *cancel) {
    for (bool busy;;) {
        RETURN_IF_ERR(pj_idle(&d->base, &busy));
        if (!busy) return ST_OK;
        if (cancel && *cancel) return st_new(ST_CANCELLED, "the run was cancelled");
        usleep(500);
    }
}

// ---- targets

static status_t emit(const struct target *t, struct arena *a, const struct hlo_module *m,
                     int replicas, enum precision precision, struct emitted *out) {
    const struct pj_target *x = (const struct pj_target *)t;
    struct pj_place at = pj_place_of(x->device, x->topology);
    return pj_program_compile(&at, a, m, replicas, precision == PRECISION_STRICT, out);
}

// Everything that changes the code is in the id: plugin, and devices. A machine with these devices
// and this plugin has the same id as its topology by name, so it runs what was compiled elsewhere.
static void set_target(struct pj_device *d, struct pj_target *t, const char *devices, int n) {
    t->device = d;
    t->base = (struct target){
        .id = arena_printf(&d->arena, "pjrt:%s:%s:%s", d->platform, devices, d->plugin->digest),
        .kind = d->options.kind,
        .llvm_triple = "",
        .llvm_cpu = "",
        .llvm_features = "",
        .threads = 1,
        .min_kernel_elements = INT64_MAX,
        .max_replicas = n,
        .emit = emit};
}

// ---- the client

static status_t describe(struct pj_device *d) {
    struct arena *a = &d->arena;
    void **descriptions = arena_zarray(a, void *, d->n_devices + 1);
    const char *kind = "";
    for (size_t k = 0; k < d->n_devices; k++) {
        struct pj_get_args get = {.object = d->devices[k]};
        RETURN_IF_ERR(PJ_CALL(d->plugin, Device_GetDescription, &get));
        descriptions[k] = get.out;
        if (d->devices[k] == d->device)
            kind = pj_text(d->plugin, PJ_DeviceDescription_Kind, get.out, a);
    }
    struct pj_device_memory m = {.device = d->device};
    status_t st = PJ_CALL(d->plugin, Device_MemoryStats, &m);
    d->memory_bytes = !st && m.limit.set && m.limit.value > 0 ? m.limit.value : INT64_C(16) << 30;
    st_drop(st); // not every plugin knows its memory
    d->description = arena_printf(a, "%s (%s), %zu device%s, PJRT %d.%d", kind, d->platform,
                                  d->n_devices, d->n_devices == 1 ? "" : "s",
                                  d->plugin->api->version.major, d->plugin->api->version.minor);
    set_target(d, &d->own, pj_topology_name(d->plugin, a, descriptions, d->n_devices),
               (int)d->n_devices);
    return ST_OK;
}

// A GPU is shared by the processes that compile for it and the one that runs: none takes three
// quarters of its memory in advance, as the plugin would. What the user set stays.
static void share_memory(struct pj_device *d) {
    for (size_t k = 0; k < d->options.n_set; k++)
        if (strcmp(d->options.set[k].name, "preallocate") == 0) return;
    if (d->plugin->family == PJ_FAMILY_GPU && d->options.n_set < PJ_MAX_OPTIONS)
        d->options.set[d->options.n_set++] = pj_bool_option("preallocate", false);
}

static status_t open_client(struct pj_device *d) {
    share_memory(d);
    struct pj_client_create c = {.options = d->options.set, .n_options = d->options.n_set};
    RETURN_IF_ERR(PJ_CALL(d->plugin, Client_Create, &c));
    d->client = c.client;
    d->platform = pj_text(d->plugin, PJ_Client_PlatformName, d->client, &d->arena);
    struct pj_list_args l = {.object = d->client};
    RETURN_IF_ERR(PJ_CALL(d->plugin, Client_AddressableDevices, &l));
    if (d->options.device >= (int64_t)l.n)
        return st_invalid("device %lld of a client with %zu", (long long)d->options.device, l.n);
    d->devices = l.list;
    d->n_devices = l.n;
    d->device = l.list[d->options.device];
    return describe(d);
}

// ---- open

static status_t open_plugin(const char *text, struct pj_device **out) {
    extern const struct dev_vtable pjrt_vtable;
    struct pj_device *d = calloc(1, sizeof *d);
    if (!d) return st_oom();
    d->base.vt = &pjrt_vtable;
    status_t st = pj_options_parse(&d->arena, text, &d->options);
    if (!st) st = pj_open(d->options.plugin, &d->plugin);
    if (st)
        pjrt_close(&d->base);
    else
        *out = d;
    return st;
}

static status_t pjrt_open(const char *options, struct device **out) {
    struct pj_device *d;
    RETURN_IF_ERR(open_plugin(options, &d));
    status_t st = open_client(d);
    if (st)
        pjrt_close(&d->base);
    else
        *out = &d->base;
    return st;
}

// libtpu asks the machine's metadata server and claims a lock unless told that nothing will run.
static void compile_only_environment(void) {
    static const char *const v[][2] = {{"TPU_SKIP_MDS_QUERY", "1"},
                                       {"TPU_WORKER_HOSTNAMES", "localhost"},
                                       {"TPU_ACCELERATOR_TYPE", "v5litepod-4"},
                                       {"ALLOW_MULTIPLE_LIBTPU_LOAD", "1"}};
    for (size_t k = 0; k < sizeof v / sizeof *v; k++)
        setenv(v[k][0], v[k][1], 0); // what the user set stays
}

static status_t pjrt_open_compiler(const char *options, struct device **out) {
    struct pj_device *d;
    compile_only_environment();
    RETURN_IF_ERR(open_plugin(options, &d));
    static const char *const platforms[] = {
        [PJ_FAMILY_OTHER] = "cpu", [PJ_FAMILY_TPU] = "tpu", [PJ_FAMILY_GPU] = "cuda"};
    d->platform = platforms[d->plugin->family]; // until there is a client
    set_target(d, &d->own, "none", 1);          // what is asked for by name or id comes with it
    d->description = arena_printf(&d->arena, "compiles with PJRT %d.%d",
                                  d->plugin->api->version.major, d->plugin->api->version.minor);
    d->memory_bytes = 1;
    *out = &d->base;
    return ST_OK;
}

// ---- targets by name

static status_t add_topology(struct pj_device *d, const char *name, const struct target **out) {
    struct pj_topology top;
    RETURN_IF_ERR(pj_topology_create(d->plugin, &d->arena, name, &top));
    struct pj_target *t = arena_new_of(&d->arena, struct pj_target);
    *t = (struct pj_target){.topology = top.handle, .next = d->targets};
    set_target(d, t, top.name, top.n_devices);
    t->base.memory_bytes = top.memory_bytes;
    d->targets = t;
    *out = &t->base;
    return ST_OK;
}

static const struct target *known(const struct pj_device *d, const char *id) {
    if (d->client && strcmp(d->own.base.id, id) == 0) return &d->own.base;
    for (const struct pj_target *t = d->targets; t; t = t->next)
        if (strcmp(t->base.id, id) == 0) return &t->base;
    return NULL;
}

// The devices' part of an id of ours, "pjrt:PLATFORM:DEVICES:DIGEST"; NULL for another plugin's.
static const char *devices_of(struct pj_device *d, const char *id) {
    char *head = arena_printf(&d->arena, "pjrt:%s:", d->platform);
    size_t n = strlen(id), from = strlen(head), digest = strlen(d->plugin->digest);
    if (strncmp(id, head, from) || n < from + digest + 2 || id[n - digest - 1] != ':' ||
        strcmp(id + n - digest, d->plugin->digest) != 0)
        return NULL;
    return arena_strndup(&d->arena, id + from, n - digest - 1 - from);
}

static status_t pjrt_find_target(struct device *base, const char *name, const struct target **out) {
    struct pj_device *d = (struct pj_device *)base;
    bool by_id = strncmp(name, "pjrt:", 5) == 0;
    const char *devices = by_id ? devices_of(d, name) : name;
    if (by_id && (*out = known(d, name))) return ST_OK;
    if (!devices)
        return st_new(ST_FAILED_PRECONDITION,
                      "target %s is not of this plugin (%s, sha256 %s...), compile it again", name,
                      d->plugin->path, d->plugin->digest);
    if (d->plugin->family == PJ_FAMILY_TPU || (*devices && !by_id)) {
        RETURN_IF_ERR(add_topology(d, devices, out)); // names of topologies are also their ids'
    } else {
        const struct target *t = NULL;
        status_t st =
            d->plugin->family == PJ_FAMILY_GPU && by_id ? add_topology(d, devices, &t) : ST_OK;
        st_drop(st); // not a GPU by name: this machine's
        if (!t && !d->client) RETURN_IF_ERR(open_client(d));
        *out = t ? t : &d->own.base;
    }
    if (by_id && strcmp((*out)->id, name) != 0)
        return st_new(ST_FAILED_PRECONDITION, "target %s cannot be compiled for here: this is %s",
                      name, (*out)->id);
    return ST_OK;
}

static const struct target *pjrt_target(struct device *d) {
    return &((struct pj_device *)d)->own.base;
}
static struct dev_attributes pjrt_attributes(struct device *base) {
    struct pj_device *d = (struct pj_device *)base;
    // libtpu and XLA:CPU count the modules of a process, and the count is in their code.
    return (struct dev_attributes){.memory_bytes = d->memory_bytes,
                                   .description = d->description,
                                   .foreign = true,
                                   .single_use = d->plugin->family != PJ_FAMILY_GPU};
}

static struct dev_peak pjrt_peak(UNUSED struct device *d) {
    return (struct dev_peak){.source = "not known: plugins do not tell"};
}

extern const struct dev_vtable pjrt_vtable;
const struct dev_vtable pjrt_vtable = {.kind = "pjrt",
                                       .open = pjrt_open,
                                       .open_compiler = pjrt_open_compiler,
                                       .find_target = pjrt_find_target,
                                       .close = pjrt_close,
                                       .target = pjrt_target,
                                       .attributes = pjrt_attributes,
                                       .load = pj_exe_load,
                                       .unload = pj_exe_unload,
                                       .prepare = pj_exe_prepare,
                                       .release = pj_exe_release,
                                       .put = pj_buffer_put,
                                       .get = pj_buffer_get,
                                       .drop = pj_buffer_drop,
                                       .run = pj_exe_run,
                                       .stats = pj_exe_stats,
                                       .idle = pj_idle,
                                       .explain = pj_exe_explain,
                                       .peak = pjrt_peak};
