// SPDX-License-Identifier: Apache-2.0
#include "devices/pjrt/pjrt_program.h"

#include "compiler/eval.h"
#include "compiler/frontend/hlo/hlo_proto.h"
#include "compiler/frontend/wire.h"
#include "proto/hlod.pb-c.h"

// XLA's options that are on unless told otherwise. XLA:CPU loses NaN in maximum and minimum;
// all keep f32 between fused operations of f16 and bf16, which `strict` is not to do.
#define FAST_MIN_MAX "xla_cpu_enable_fast_min_max"
#define EXCESS       "xla_allow_excess_precision"
enum { MAX_OFF = 2 };
struct off {
    const char *names[MAX_OFF];
    int n;
};

// Serialize may be missing: then the program itself is kept and compiled anew by each process.
enum { KEPT_EXECUTABLE = 'E', KEPT_PROGRAM = 'P', KEPT_STRICT = 'S' };

// ---- options

// CompileOptionsProto { executable_build_options 3 { num_replicas 4, num_partitions 5 },
// env_option_overrides 7 { key 1, value 2 { bool_field 2 } } }
static void put_options(struct strbuf *out, int replicas, const struct off *off) {
    struct strbuf build = {0}, entry = {0}, value = {0};
    strbuf_clear(out);
    wire_put_int(&build, 4, (uint64_t)replicas);
    wire_put_int(&build, 5, 1);
    wire_put_bytes(out, 3, strbuf_cstr(&build), build.n);
    wire_put_int(&value, 2, 0);
    for (int k = 0; k < off->n; k++) {
        strbuf_clear(&entry);
        wire_put_bytes(&entry, 1, off->names[k], strlen(off->names[k]));
        wire_put_bytes(&entry, 2, strbuf_cstr(&value), value.n);
        wire_put_bytes(out, 7, strbuf_cstr(&entry), entry.n);
    }
    strbuf_done(&build);
    strbuf_done(&entry);
    strbuf_done(&value);
}

// ---- compile

// *loaded: of a client, else NULL; *executable: always.
static status_t compile_with(const struct pj_place *at, struct span module,
                             const struct strbuf *options, void **loaded, void **executable) {
    struct pj_program program = {.struct_size = sizeof program,
                                 .code = (char *)(uintptr_t)module.p,
                                 .code_size = module.n,
                                 .format = "hlo",
                                 .format_size = 3};
    if (at->topology) {
        struct pj_compile c = {.topology = at->topology,
                               .program = &program,
                               .options = strbuf_cstr(options),
                               .options_size = options->n};
        RETURN_IF_ERR(PJ_CALL(at->plugin, Compile, &c));
        *executable = c.executable;
        return ST_OK;
    }
    struct pj_client_compile c = {.client = at->client,
                                  .program = &program,
                                  .options = strbuf_cstr(options),
                                  .options_size = options->n};
    RETURN_IF_ERR(PJ_CALL(at->plugin, Client_Compile, &c));
    struct pj_get_args get = {.object = c.loaded};
    status_t st = PJ_CALL(at->plugin, LoadedExecutable_GetExecutable, &get);
    if (st)
        pj_destroy(at->plugin, PJ_LoadedExecutable_Destroy, c.loaded);
    else
        *loaded = c.loaded;
    *executable = get.out;
    return st;
}

// Takes the first option that the message is about out of *off. False: it is about none.
static bool drop_unknown(struct off *off, const char *message) {
    for (int k = 0; k < off->n; k++) {
        if (!strstr(message, off->names[k])) continue;
        off->names[k] = off->names[--off->n];
        return true;
    }
    return false;
}

static status_t compile(const struct pj_place *at, struct span module, int replicas, bool strict,
                        void **loaded, void **executable) {
    struct strbuf options = {0};
    struct off off = {0};
    if (strcmp(at->platform, "cpu") == 0) off.names[off.n++] = FAST_MIN_MAX;
    if (strict) off.names[off.n++] = EXCESS;
    put_options(&options, replicas, &off);
    status_t st = compile_with(at, module, &options, loaded, executable);
    while (st_code(st) == ST_INVALID_ARGUMENT && drop_unknown(&off, st_message(st))) {
        st_drop(st); // a plugin without that option
        put_options(&options, replicas, &off);
        st = compile_with(at, module, &options, loaded, executable);
    }
    strbuf_done(&options);
    // To the caller UNAVAILABLE is a lost device; here it is a missing part of the plugin.
    if (st_code(st) == ST_UNAVAILABLE) {
        status_t other = st_new(ST_FAILED_PRECONDITION, "%s", st_message(st));
        st_drop(st);
        st = other;
    }
    if (st_code(st) == ST_RESOURCE_EXHAUSTED) // does not fit the device that it is compiled for
        st = st_reason(st, HLOD__V1__REASON__REASON_DEVICE_MEMORY);
    return st;
}

// What a plugin need not have: its absence is no failure.
static status_t optional(status_t st) {
    if (st_code(st) != ST_UNIMPLEMENTED) return st;
    st_drop(st);
    return ST_OK;
}

static status_t serialize(const struct pj_plugin *p, void *executable, struct arena *a,
                          struct span *out) {
    if (!pj_has(p, PJ_Executable_Serialize)) return ST_OK;
    struct pj_serialize s = {.executable = executable};
    status_t st = PJ_CALL(p, Executable_Serialize, &s);
    if (st) return optional(st);
    uint8_t *bytes = arena_array(a, uint8_t, s.bytes_size + 1);
    bytes[0] = KEPT_EXECUTABLE;
    memcpy(bytes + 1, s.bytes, s.bytes_size);
    *out = (struct span){bytes, s.bytes_size + 1};
    if (s.free_backing) s.free_backing(s.backing);
    return ST_OK;
}

static status_t optimized(const struct pj_plugin *p, void *executable, struct arena *a,
                          struct span *out) {
    struct pj_program program = {.struct_size = sizeof program};
    struct pj_optimized_program o = {.executable = executable, .program = &program};
    if (!pj_has(p, PJ_Executable_OptimizedProgram)) return ST_OK;
    status_t st = PJ_CALL(p, Executable_OptimizedProgram, &o);
    if (st) return optional(st);
    struct str format = {program.format, program.format_size};
    if (!program.code_size || !(str_is(format, "hlo_with_config") || str_is(format, "hlo")))
        return ST_OK;
    program.code = arena_array(a, char, program.code_size + 1);
    RETURN_IF_ERR(PJ_CALL(p, Executable_OptimizedProgram, &o));
    *out = (struct span){(const uint8_t *)program.code, program.code_size};
    return ST_OK;
}

static status_t measure(const struct pj_plugin *p, void *executable, struct emitted *out) {
    struct pj_memory_stats m = {.executable = executable};
    if (!pj_has(p, PJ_Executable_GetCompiledMemoryStats)) return ST_OK;
    status_t st = PJ_CALL(p, Executable_GetCompiledMemoryStats, &m);
    if (st) return optional(st);
    out->code_bytes = m.code;
    out->argument_bytes = m.argument;
    out->output_bytes = m.output;
    out->alias_bytes = m.alias;
    out->temp_bytes = m.temp;
    out->peak_bytes = m.peak;
    return ST_OK;
}

// Tuples cross the border of an executable only as its whole result.
static status_t check_border(const struct hlo_module *m) {
    const struct hlo_computation *e = m->entry;
    for (size_t k = 0; k < e->params.n; k++)
        if (shape_is_tuple(e->params.v[k]->shape))
            return st_invalid("parameter '%s' is a tuple, which this device does not take",
                              e->params.v[k]->name);
    const struct shape *r = e->root->shape;
    for (int k = 0; shape_is_tuple(r) && k < r->n_elems; k++)
        if (shape_is_tuple(r->elems[k]))
            return st_invalid("result %d is a nested tuple, which this device does not give", k);
    return ST_OK;
}

// A plugin has no call that ends a run with a reason.
static status_t check_ends(const struct hlo_module *m) {
    HLO_EACH_COMPUTATION(c, m)
    for (const struct hlo_instr *i = c->first; i; i = i->next) {
        status_t st = hlo_eval_ends_run(i);
        if (st)
            return st_reason(st_note(st, "this device does not run programs with branches that "
                                         "end a run"),
                             HLOD__V1__REASON__REASON_UNSUPPORTED_OP);
    }
    return ST_OK;
}

status_t pj_program_compile(const struct pj_place *at, struct arena *a, const struct hlo_module *m,
                            int replicas, bool strict, struct emitted *out) {
    const struct pj_plugin *p = at->plugin;
    struct strbuf b = {0};
    void *loaded = NULL, *executable = NULL;
    char tag = strict ? KEPT_STRICT : KEPT_PROGRAM;
    *out = (struct emitted){0};
    RETURN_IF_ERR(check_border(m));
    RETURN_IF_ERR(check_ends(m));
    strbuf_add(&b, &tag, 1);
    status_t st = hlo_proto_write(m, &b);
    struct span program = {(const uint8_t *)strbuf_cstr(&b), b.n};
    if (!st)
        st = compile(at, (struct span){program.p + 1, program.n - 1}, replicas, strict, &loaded,
                     &executable);
    if (!st) st = serialize(p, executable, a, &out->code);
    if (!st) st = optimized(p, executable, a, &out->optimized);
    if (!st) st = measure(p, executable, out);
    if (!st && !out->code.n)
        out->code = (struct span){arena_dup(a, program.p, program.n), program.n};
    pj_destroy(p, PJ_Executable_Destroy, executable);
    pj_destroy(p, PJ_LoadedExecutable_Destroy, loaded);
    strbuf_done(&b);
    return st;
}

// ---- load

status_t pj_program_load(const struct pj_place *at, struct span bytes, int replicas, void **out) {
    const struct pj_plugin *p = at->plugin;
    if (bytes.n < 2) return st_new(ST_DATA_LOSS, "the executable holds no program of the plugin");
    if (bytes.p[0] != KEPT_EXECUTABLE) {
        void *executable;
        RETURN_IF_ERR(compile(at, (struct span){bytes.p + 1, bytes.n - 1}, replicas,
                              bytes.p[0] == KEPT_STRICT, out, &executable));
        pj_destroy(p, PJ_Executable_Destroy, executable);
        return ST_OK;
    }
    struct pj_deserialize d = {
        .client = at->client, .bytes = (const char *)bytes.p + 1, .bytes_size = bytes.n - 1};
    RETURN_IF_ERR(PJ_CALL(p, Executable_DeserializeAndLoad, &d));
    *out = d.loaded;
    return ST_OK;
}
