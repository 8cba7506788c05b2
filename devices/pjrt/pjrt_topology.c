// SPDX-License-Identifier: Apache-2.0
// See pjrt_topology.h.
#include "devices/pjrt/pjrt_topology.h"

#include <ctype.h>
#include <string.h>

#include "base/str.h"
#include "devices/pjrt/pjrt_options.h"
#include "proto/hlod.pb-c.h"

enum { MAX_SIDE = 256, MAX_DEVICES = 65536 };
#define MALFORMED HLOD__V1__REASON__REASON_BAD_TARGET

// ---- names

static status_t malformed(const char *name) {
    return st_reason(
        st_invalid("'%.80s' is not a topology: expected FAMILY:AxB or FAMILY:AxBxC, as in "
                   "v5e:2x2 or v4:2x2x1",
                   name),
        MALFORMED);
}

// FAMILY of letters, digits, '_' and spaces; two or three sides.
static status_t check_tpu_name(const char *name) {
    struct str rest = str_of(name), family = {0}, side = {0};
    int64_t n, all = 1;
    int sides = 0;
    if (strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ ") !=
        strcspn(name, ":"))
        return malformed(name);
    str_cut(&rest, ':', &family);
    if (!family.n || family.n > 32 || family.p[0] == ' ' || !rest.n || rest.p[rest.n - 1] == 'x')
        return malformed(name);
    for (; str_cut(&rest, 'x', &side); sides++) {
        if (side.n > 4 || !str_to_i64(side, &n) || !isdigit((unsigned char)side.p[0]) || n < 1 ||
            n > MAX_SIDE)
            return malformed(name);
        all *= n;
    }
    if (sides < 2 || sides > 3 || all > MAX_DEVICES) return malformed(name);
    return ST_OK;
}

struct gpu {
    const char *name, *description;
    int major, minor, cores, fpus, shared_core, shared_block;
    int64_t l2;
    const char *clock;
    int64_t memory, bandwidth;
};
static const struct gpu gpus[] = {
#define GPU(name, description, major, minor, cores, fpus, shared_core, shared_block, l2, clock,    \
            memory, bandwidth)                                                                     \
    {name,        description,  major, minor, cores,  fpus,                                        \
     shared_core, shared_block, l2,    clock, memory, bandwidth},
#include "devices/pjrt/pjrt_gpus.def"
#undef GPU
};

static status_t find_gpu(struct arena *a, const char *name, const struct gpu **out, int64_t *n) {
    struct str rest = str_of(name), word = {0};
    struct strbuf known = {0};
    str_cut(&rest, ':', &word);
    *n = 1;
    bool counted = !rest.n || (str_to_i64(rest, n) && *n >= 1 && *n <= 64);
    for (size_t k = 0; k < sizeof gpus / sizeof *gpus; k++) {
        strbuf_printf(&known, " %s", gpus[k].name);
        if (!counted || !str_is(word, gpus[k].name)) continue;
        strbuf_done(&known);
        *out = &gpus[k];
        return ST_OK;
    }
    const char *list = arena_strdup(a, strbuf_cstr(&known));
    strbuf_done(&known);
    return st_reason(st_invalid("'%.80s' is not a GPU that can be compiled for: expected NAME or "
                                "NAME:DEVICES, with NAME one of%s",
                                name, list),
                     MALFORMED);
}

// The text of a GpuTargetConfigProto.
static const char *gpu_config(struct arena *a, const struct gpu *g) {
    return arena_printf(
        a,
        "gpu_device_info { threads_per_block_limit: 1024 threads_per_warp: 32 "
        "shared_memory_per_block: 49152 shared_memory_per_core: %d threads_per_core_limit: 2048 "
        "core_count: %d fpus_per_core: %d block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 "
        "block_dim_limit_z: 65535 memory_bandwidth: %lld l2_cache_size: %lld clock_rate_ghz: %s "
        "device_memory_size: %lld shared_memory_per_block_optin: %d "
        "cuda_compute_capability { major: %d minor: %d } registers_per_core_limit: 65536 "
        "registers_per_block_limit: 65536 } platform_name: \"CUDA\" "
        "dnn_version_info { major: 9 minor: 10 patch: 0 } device_description_str: \"%s\"",
        g->shared_core, g->cores, g->fpus, (long long)g->bandwidth, (long long)g->l2, g->clock,
        (long long)g->memory, g->shared_block, g->major, g->minor, g->description);
}

// ---- descriptions

static const struct pj_named_value *attribute(const struct pj_plugin *p, void *description,
                                              const char *name, struct pj_attributes *at) {
    *at = (struct pj_attributes){.object = description};
    status_t st = PJ_CALL(p, DeviceDescription_Attributes, at);
    const struct pj_named_value *found = NULL;
    for (size_t k = 0; !st && k < at->n && !found; k++)
        if (str_is((struct str){at->list[k].name, at->list[k].name_size}, name))
            found = &at->list[k];
    st_drop(st);
    return found;
}

const char *pj_topology_name(const struct pj_plugin *p, struct arena *a, void *const *descriptions,
                             size_t n) {
    int64_t box[3] = {0};
    bool everywhere = n > 0;
    for (size_t k = 0; k < n; k++) {
        struct pj_attributes at;
        const struct pj_named_value *c = attribute(p, descriptions[k], "coords", &at);
        everywhere &= c && c->type == PJ_INT64_LIST && c->value_size == 3;
        for (int d = 0; d < 3 && everywhere; d++)
            if (c->i64s[d] + 1 > box[d]) box[d] = c->i64s[d] + 1;
    }
    const char *kind = n ? pj_text(p, PJ_DeviceDescription_Kind, descriptions[0], a) : "";
    char *name = everywhere ? arena_printf(a, "%s:%lldx%lldx%lld", kind, (long long)box[0],
                                           (long long)box[1], (long long)box[2])
                            : arena_strdup(a, kind);
    for (char *c = name; *c; c++) // it stands in keys and options, between ':' and ';'
        if (*c == ' ' || *c == ';') *c = '_';
    return name;
}

// ---- creation

static int64_t memory_limit(const struct pj_plugin *p, void *const *descriptions, size_t n) {
    struct pj_attributes at;
    const struct pj_named_value *v =
        n ? attribute(p, descriptions[0], "device_memory_bytes_limit", &at) : NULL;
    return v && v->type == PJ_INT64 ? v->i64 : 0;
}

static status_t create(const struct pj_plugin *p, const char *name,
                       const struct pj_named_value *options, size_t n, void **out) {
    struct pj_topology_create c = {
        .name = name, .name_size = strlen(name), .options = options, .n_options = n};
    RETURN_IF_ERR(PJ_CALL(p, TopologyDescription_Create, &c));
    *out = c.topology;
    return ST_OK;
}

static status_t create_gpu(const struct pj_plugin *p, struct arena *a, const char *name,
                           struct pj_topology *out) {
    const struct gpu *g = NULL;
    int64_t n;
    RETURN_IF_ERR(find_gpu(a, name, &g, &n));
    struct pj_named_value options[2] = {
        pj_text_option("target_config", gpu_config(a, g)),
        pj_text_option("topology", arena_printf(a, "1x1x%lld", (long long)n))}; // slices, hosts
    RETURN_IF_ERR(create(p, "", options, 2, &out->handle));
    out->memory_bytes = g->memory;
    out->n_devices = (int)n;
    out->name = n == 1 ? g->name : arena_printf(a, "%s:%lld", g->name, (long long)n);
    return ST_OK;
}

// Canonical names have '_' for the spaces of a device's kind ("TPU_v5_lite"); short ones: "v5e".
static status_t create_tpu(const struct pj_plugin *p, struct arena *a, const char *name,
                           struct pj_topology *out) {
    RETURN_IF_ERR(check_tpu_name(name));
    char *given = arena_strdup(a, name);
    for (char *c = given; *c; c++)
        if (*c == '_') *c = ' ';
    RETURN_IF_ERR(create(p, given, NULL, 0, &out->handle));
    struct pj_list_args l = {.object = out->handle};
    status_t st = PJ_CALL(p, TopologyDescription_GetDeviceDescriptions, &l);
    if (st) {
        pj_destroy(p, PJ_TopologyDescription_Destroy, out->handle);
        return st;
    }
    out->n_devices = (int)l.n;
    out->name = pj_topology_name(p, a, l.list, l.n);
    out->memory_bytes = memory_limit(p, l.list, l.n);
    return ST_OK;
}

status_t pj_topology_create(const struct pj_plugin *p, struct arena *a, const char *name,
                            struct pj_topology *out) {
    *out = (struct pj_topology){0};
    bool tpu = p->family == PJ_FAMILY_TPU;
    if (!tpu && p->family != PJ_FAMILY_GPU)
        return st_reason(
            st_invalid("the plugin %s compiles for its own devices only, not for '%.80s'", p->path,
                       name),
            MALFORMED);
    return tpu ? create_tpu(p, a, name, out) : create_gpu(p, a, name, out);
}
