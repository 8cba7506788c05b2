// SPDX-License-Identifier: Apache-2.0
#include "devices/pjrt/pjrt_program.h"

#include "compiler/frontend/hlo_proto.h"

// CompileOptionsProto { executable_build_options 3 { num_replicas 4: 1, num_partitions 5: 1 } }
#define ONE_DEVICE "\x1a\x04\x20\x01\x28\x01"
// ... env_option_overrides 7 { key 1: NAME, value 2 { bool_field 2: false } }: XLA:CPU loses NaN in
// maximum and minimum unless told not to.
#define FAST_MIN_MAX "xla_cpu_enable_fast_min_max"
static const char one_device[] = ONE_DEVICE;
static const char with_nan[] = ONE_DEVICE "\x3a\x21\x0a\x1b" FAST_MIN_MAX "\x12\x02\x10\x00";
_Static_assert(sizeof FAST_MIN_MAX - 1 == 0x1b, "length of the key");

// Serialize may be missing: then the program itself is kept and compiled anew by each process.
enum { KEPT_EXECUTABLE = 'E', KEPT_PROGRAM = 'P' };

static status_t compile(const struct pj_plugin *p, void *client, struct span module, void **out) {
    struct pj_program program = {.struct_size = sizeof program,
                                 .code = (char *)(uintptr_t)module.p,
                                 .code_size = module.n,
                                 .format = "hlo",
                                 .format_size = 3};
    struct pj_client_compile c = {.client = client, .program = &program};
    struct arena a = {0};
    bool cpu = strcmp(pj_text(p, PJ_Client_PlatformName, client, &a), "cpu") == 0;
    arena_done(&a);
    c.options = cpu ? with_nan : one_device;
    c.options_size = (cpu ? sizeof with_nan : sizeof one_device) - 1;
    status_t st = PJ_CALL(p, Client_Compile, &c);
    if (cpu && st_code(st) == ST_INVALID_ARGUMENT && strstr(st_message(st), FAST_MIN_MAX)) {
        st_drop(st); // a plugin without that option
        c.options = one_device;
        c.options_size = sizeof one_device - 1;
        st = PJ_CALL(p, Client_Compile, &c);
    }
    // To the caller UNAVAILABLE is a lost device; here it is a missing part of the plugin.
    if (st_code(st) == ST_UNAVAILABLE) {
        status_t other = st_new(ST_FAILED_PRECONDITION, "%s", st_message(st));
        st_drop(st);
        st = other;
    }
    *out = c.loaded;
    return st;
}

// 0 when the plugin does not serialise.
static status_t serialize(const struct pj_plugin *p, void *loaded, struct arena *a,
                          struct span *out) {
    struct pj_get_args get = {.object = loaded};
    *out = (struct span){0};
    if (!pj_has(p, PJ_Executable_Serialize)) return ST_OK;
    RETURN_IF_ERR(PJ_CALL(p, LoadedExecutable_GetExecutable, &get));
    struct pj_serialize s = {.executable = get.out};
    status_t st = PJ_CALL(p, Executable_Serialize, &s);
    if (!st) {
        uint8_t *bytes = arena_array(a, uint8_t, s.bytes_size + 1);
        bytes[0] = KEPT_EXECUTABLE;
        memcpy(bytes + 1, s.bytes, s.bytes_size);
        *out = (struct span){bytes, s.bytes_size + 1};
        if (s.free_backing) s.free_backing(s.backing);
    }
    pj_destroy(p, PJ_Executable_Destroy, get.out);
    if (st_code(st) == ST_UNIMPLEMENTED) {
        st_drop(st);
        st = ST_OK;
    }
    return st;
}

// Tuples cross the border of an executable only as its whole result.
static status_t check_border(const struct hlo_module *m) {
    const struct hlo_computation *e = m->entry;
    for (size_t k = 0; k < e->params.n; k++)
        if (shape_is_tuple(e->params.v[k]->shape))
            return st_new(ST_INVALID_ARGUMENT,
                          "parameter '%s' is a tuple, which this device does not take",
                          e->params.v[k]->name);
    const struct shape *r = e->root->shape;
    for (int k = 0; shape_is_tuple(r) && k < r->n_elems; k++)
        if (shape_is_tuple(r->elems[k]))
            return st_new(ST_INVALID_ARGUMENT,
                          "result %d is a nested tuple, which this device does not give", k);
    return ST_OK;
}

status_t pj_program_compile(const struct pj_plugin *p, void *client, struct arena *a,
                            const struct hlo_module *m, struct span *out) {
    struct strbuf b = {0};
    void *loaded = NULL;
    char tag = KEPT_PROGRAM;
    RETURN_IF_ERR(check_border(m));
    strbuf_add(&b, &tag, 1);
    status_t st = hlo_proto_write(m, &b);
    struct span program = {(const uint8_t *)strbuf_cstr(&b), b.n};
    if (!st) st = compile(p, client, (struct span){program.p + 1, program.n - 1}, &loaded);
    if (!st) st = serialize(p, loaded, a, out);
    if (!st && !out->n) *out = (struct span){arena_dup(a, program.p, program.n), program.n};
    pj_destroy(p, PJ_LoadedExecutable_Destroy, loaded);
    strbuf_done(&b);
    return st;
}

status_t pj_program_load(const struct pj_plugin *p, void *client, struct span bytes, void **out) {
    if (bytes.n < 2) return st_new(ST_DATA_LOSS, "the executable holds no program of the plugin");
    if (bytes.p[0] == KEPT_PROGRAM)
        return compile(p, client, (struct span){bytes.p + 1, bytes.n - 1}, out);
    struct pj_deserialize d = {
        .client = client, .bytes = (const char *)bytes.p + 1, .bytes_size = bytes.n - 1};
    RETURN_IF_ERR(PJ_CALL(p, Executable_DeserializeAndLoad, &d));
    *out = d.loaded;
    return ST_OK;
}
