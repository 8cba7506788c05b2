// SPDX-License-Identifier: Apache-2.0
// Executable to bytes and back (proto/artifact.proto). What comes in was written by us and its
// digest was checked, but it is parsed as foreign input all the same.
#include "compiler/artifact.h"

#include <stdlib.h>

#include "base/clock.h"
#include "compiler/codegen/abi.h"
#include "compiler/ir/text/text.h"
#include "proto/artifact.pb-c.h"
#include "proto/message.h"

enum { VERSION = 3 };

Hlod__V1__Counts *executable_counts(struct arena *a, struct hlo_counts n) {
    Hlod__V1__Counts *c = message_new(a, &hlod__v1__counts__descriptor);
    c->entry = n.entry;
    c->total = n.total;
    c->fusions = n.fusions;
    c->computations = n.computations;
    return c;
}
void pass_stat_message(Hlod__V1__PassStat *m, const struct pass_stat *s) {
    hlod__v1__pass_stat__init(m);
    m->name = (char *)(uintptr_t)s->name;
    m->ms = clock_ms(s->ns);
    m->before = s->instrs_before;
    m->after = s->instrs_after;
    m->changed = s->changed;
    m->begins = s->begins;
}
Hlod__V1__PassStat **pass_stat_messages(struct arena *a, const struct executable *e) {
    Hlod__V1__PassStat **m = arena_array(a, Hlod__V1__PassStat *, e->n_passes + 1);
    for (int k = 0; k < e->n_passes; k++)
        pass_stat_message(m[k] = arena_new_of(a, Hlod__V1__PassStat), &e->passes[k]);
    return m;
}
static struct hlo_counts counts_in(const Hlod__V1__Counts *c) {
    return c ? (struct hlo_counts){c->entry, c->total, c->fusions, c->computations}
             : (struct hlo_counts){0};
}

static Hlod__Artifact__KernelSet *kernels_out(struct arena *a, const struct kernel_set *k) {
    Hlod__Artifact__KernelSet *s = message_new(a, &hlod__artifact__kernel_set__descriptor);
    s->n_kernels = (size_t)k->n;
    s->kernels = arena_array(a, Hlod__Artifact__Kernel *, k->n + 1);
    for (int i = 0; i < k->n; i++) {
        Hlod__Artifact__Kernel *x = s->kernels[i] =
            message_new(a, &hlod__artifact__kernel__descriptor);
        x->symbol = (char *)(uintptr_t)k->k[i].symbol;
        x->instr = (char *)(uintptr_t)k->k[i].instr;
        x->extent = k->k[i].extent;
        x->scratch_bytes = k->k[i].scratch_bytes;
        x->tiles = k->k[i].tiles;
        x->flops = k->k[i].flops;
        x->bytes = k->k[i].bytes;
        x->buffers = k->k[i].n_bufs;
        x->n_sizes = (size_t)k->k[i].n_sizes;
        x->sizes = (int64_t *)(uintptr_t)k->k[i].sizes;
    }
    s->object = (ProtobufCBinaryData){k->object.n, (uint8_t *)(uintptr_t)k->object.p};
    return s;
}
static struct span bytes_in(struct arena *a, ProtobufCBinaryData b) {
    return (struct span){b.len ? arena_dup(a, b.data, b.len) : NULL, b.len};
}
static void kernels_in(struct arena *a, const Hlod__Artifact__KernelSet *s,
                       struct kernel_set *out) {
    if (!s) return;
    out->n = (int32_t)s->n_kernels;
    out->k = arena_zarray(a, struct kernel_info, s->n_kernels + 1);
    for (size_t i = 0; i < s->n_kernels; i++) {
        const Hlod__Artifact__Kernel *x = s->kernels[i];
        out->k[i] = (struct kernel_info){.symbol = arena_strdup(a, x->symbol),
                                         .instr = arena_strdup(a, x->instr),
                                         .n_bufs = x->buffers,
                                         .n_sizes = (int32_t)x->n_sizes,
                                         .extent = x->extent,
                                         .scratch_bytes = x->scratch_bytes,
                                         .tiles = x->tiles,
                                         .flops = x->flops,
                                         .bytes = x->bytes};
        if (x->n_sizes) out->k[i].sizes = arena_dup(a, x->sizes, x->n_sizes * sizeof *x->sizes);
    }
    out->object = bytes_in(a, s->object);
}

static Hlod__Artifact__Emitted *emitted_out(struct arena *a, const struct emitted *e) {
    Hlod__Artifact__Emitted *m = message_new(a, &hlod__artifact__emitted__descriptor);
    m->code = (ProtobufCBinaryData){e->code.n, (uint8_t *)(uintptr_t)e->code.p};
    m->optimized = (ProtobufCBinaryData){e->optimized.n, (uint8_t *)(uintptr_t)e->optimized.p};
    m->code_bytes = e->code_bytes;
    m->argument_bytes = e->argument_bytes;
    m->output_bytes = e->output_bytes;
    m->alias_bytes = e->alias_bytes;
    m->temp_bytes = e->temp_bytes;
    m->peak_bytes = e->peak_bytes;
    return m;
}
static struct emitted emitted_in(struct arena *a, const Hlod__Artifact__Emitted *m) {
    if (!m) return (struct emitted){0};
    return (struct emitted){bytes_in(a, m->code), bytes_in(a, m->optimized),
                            m->code_bytes,        m->argument_bytes,
                            m->output_bytes,      m->alias_bytes,
                            m->temp_bytes,        m->peak_bytes};
}

static char *module_text(struct arena *a, const struct hlo_module *m, struct hlo_constants *k) {
    struct strbuf b = {0};
    hlo_print_module_beside(&b, m, HLO_PRINT_DEFAULT, k);
    char *t = arena_strndup(a, strbuf_cstr(&b), b.n);
    strbuf_done(&b);
    return t;
}
static void add_bytes(struct sha256 *s, struct span bytes) {
    sha256_u64(s, bytes.n);
    sha256_add(s, bytes.p, bytes.n);
}
static struct digest content_digest(const struct executable *e,
                                    const Hlod__Artifact__Artifact *m) {
    struct sha256 s;
    sha256_init(&s);
    sha256_str(&s, STR("hlod content 2"));
    sha256_str(&s, str_of(e->target_id));
    sha256_str(&s, str_of(e->options_text));
    sha256_str(&s, str_of(m->main));
    sha256_str(&s, str_of(m->prepare));
    add_bytes(&s, (struct span){m->constants.data, m->constants.len});
    add_bytes(&s, e->kernels.object);
    add_bytes(&s, e->prepare_kernels.object);
    add_bytes(&s, e->emitted.code);
    add_bytes(&s, e->emitted_prepare.code);
    return sha256_end(&s);
}

static Hlod__Artifact__Artifact message_of(const struct executable *e) {
    Hlod__Artifact__Artifact m = HLOD__ARTIFACT__ARTIFACT__INIT;
    m.version = VERSION;
    m.kernel_abi = HLOD_KERNEL_ABI;
    m.build_id = (char *)(uintptr_t)e->build_id;
    m.target_id = (char *)(uintptr_t)e->target_id;
    m.options = (char *)(uintptr_t)e->options_text;
    return m;
}
static status_t pack_message(const Hlod__Artifact__Artifact *m, struct strbuf *out) {
    size_t n = hlod__artifact__artifact__get_packed_size(m);
    uint8_t *bytes = malloc(n ? n : 1);
    if (!bytes) return st_oom();
    hlod__artifact__artifact__pack(m, bytes);
    strbuf_add(out, bytes, n);
    free(bytes);
    return ST_OK;
}

static ProtobufCBinaryData beside_of(const struct hlo_constants *k) {
    return (ProtobufCBinaryData){k->bytes.n, (uint8_t *)k->bytes.p};
}

status_t executable_pack_main(struct executable *e, struct strbuf *out) {
    Hlod__Artifact__Artifact m = message_of(e);
    e->beside = arena_zarray(e->arena, struct hlo_constants, 1);
    e->main_text = module_text(e->arena, e->main, e->beside);
    m.main = (char *)(uintptr_t)e->main_text;
    m.constants = beside_of(e->beside);
    return pack_message(&m, out);
}

status_t executable_pack(const struct executable *e, struct strbuf *out, struct digest *content) {
    struct arena a = {0};
    Hlod__Artifact__Artifact m = message_of(e);
    struct hlo_constants own = {0}, *beside = e->main_text ? e->beside : &own;

    m.main = e->main_text ? (char *)(uintptr_t)e->main_text : module_text(&a, e->main, beside);
    m.prepare = module_text(&a, e->prepare, beside);
    m.constants = beside_of(beside);

    if (content) *content = content_digest(e, &m);

    m.counts_before = executable_counts(&a, e->before);
    m.counts_after = executable_counts(&a, e->after);
    m.counts_prepare = executable_counts(&a, e->prepare_counts);
    m.n_passes = (size_t)e->n_passes;
    m.passes = pass_stat_messages(&a, e);
    m.kernels = kernels_out(&a, &e->kernels);
    m.prepare_kernels = kernels_out(&a, &e->prepare_kernels);

    m.compile_ns = e->compile_ns;
    m.peak_bytes = e->peak_bytes;
    m.values_bytes = e->values_bytes;
    m.in_place = e->in_place;
    m.emitted = emitted_out(&a, &e->emitted);
    m.emitted_prepare = emitted_out(&a, &e->emitted_prepare);
    m.counts_optimized = executable_counts(&a, e->optimized);

    m.flops = e->cost.flops;
    m.bytes = e->cost.bytes;
    m.replicas = e->replicas;
    m.memory_bytes = e->memory_bytes;

    status_t st = pack_message(&m, out);
    hlo_constants_done(&own);
    arena_done(&a);
    return st;
}

// ---- choices

static int by_instr(const void *a, const void *b) {
    return strcmp(((const struct exe_choice *)a)->instr, ((const struct exe_choice *)b)->instr);
}
void executable_choose(struct executable *e, const char *list, const struct exe_choice *v, int n) {
    struct exe_choice *own = arena_array(e->arena, struct exe_choice, n + 1);
    for (int k = 0; k < n; k++)
        own[k] = (struct exe_choice){arena_strdup(e->arena, v[k].instr),
                                     arena_strdup(e->arena, v[k].impl),
                                     arena_strdup(e->arena, v[k].usual), v[k].ns, v[k].usual_ns};
    if (n) qsort(own, (size_t)n, sizeof *own, by_instr);
    e->choices = own;
    e->n_choices = n;
    e->choices_list = arena_strdup(e->arena, list);
}
const struct exe_choice *executable_choice(const struct executable *e, const char *instr) {
    if (!e->n_choices) return NULL;
    return bsearch(&(struct exe_choice){.instr = instr}, e->choices, (size_t)e->n_choices,
                   sizeof *e->choices, by_instr);
}

// In the executable's arena: its modules borrow them.
static struct span constants_in(struct arena *a, ProtobufCBinaryData b) {
    void *p = arena_alloc_aligned(a, b.len + 1, 64);
    if (b.len) memcpy(p, b.data, b.len);
    return (struct span){p, b.len};
}
static status_t fill_main(struct executable *e, const Hlod__Artifact__Artifact *m) {
    struct arena *a = e->arena;
    struct hlo_parse_limits limits = {.constants = e->constants = constants_in(a, m->constants)};
    RETURN_IF_ERR(st_note(hlo_parse(str_of(m->main), &limits, &e->main), "artefact: main"));
    e->build_id = arena_strdup(a, m->build_id);
    e->target_id = arena_strdup(a, m->target_id);
    e->options_text = arena_strdup(a, m->options);
    return ST_OK;
}
// All that stands beside main. A draft's constants are the first of the artefact's.
static status_t fill_rest(struct executable *e, const Hlod__Artifact__Artifact *m) {
    struct arena *a = e->arena;
    if (e->constants.n < m->constants.len) e->constants = constants_in(a, m->constants);
    struct hlo_parse_limits limits = {.constants = e->constants};
    RETURN_IF_ERR(
        st_note(hlo_parse(str_of(m->prepare), &limits, &e->prepare), "artefact: prepare"));
    e->before = counts_in(m->counts_before);
    e->after = counts_in(m->counts_after);
    e->prepare_counts = counts_in(m->counts_prepare);
    e->passes = arena_zarray(a, struct pass_stat, m->n_passes + 1);
    e->n_passes = (int32_t)m->n_passes;
    for (size_t k = 0; k < m->n_passes; k++)
        e->passes[k] = (struct pass_stat){arena_strdup(a, m->passes[k]->name),
                                          (int64_t)(m->passes[k]->ms * 1e6), m->passes[k]->before,
                                          m->passes[k]->after, m->passes[k]->changed, false};
    kernels_in(a, m->kernels, &e->kernels);
    kernels_in(a, m->prepare_kernels, &e->prepare_kernels);
    e->compile_ns = m->compile_ns;
    e->peak_bytes = m->peak_bytes;
    e->values_bytes = m->values_bytes;
    e->in_place = m->in_place;
    e->emitted = emitted_in(a, m->emitted);
    e->emitted_prepare = emitted_in(a, m->emitted_prepare);
    e->optimized = counts_in(m->counts_optimized);
    e->cost = (struct hlo_cost){m->flops, m->bytes};
    e->replicas = m->replicas;
    e->memory_bytes = m->memory_bytes;
    return ST_OK;
}

static status_t check_version(const Hlod__Artifact__Artifact *m) {
    if (m->version == VERSION && m->kernel_abi == HLOD_KERNEL_ABI) return ST_OK;
    return st_new(ST_FAILED_PRECONDITION,
                  "artefact version %u, kernel ABI %u; this build has %d, %d", m->version,
                  m->kernel_abi, VERSION, HLOD_KERNEL_ABI);
}
static status_t unpack(struct span bytes, bool main_alone, struct executable **out) {
    Hlod__Artifact__Artifact *m = hlod__artifact__artifact__unpack(NULL, bytes.n, bytes.p);
    if (!m) return st_new(ST_DATA_LOSS, "the artefact does not parse");
    struct arena *a = arena_new();
    struct executable *e = arena_new_of(a, struct executable);
    e->arena = a;
    status_t st = check_version(m);
    if (!st) st = fill_main(e, m);
    if (!st && !main_alone) st = fill_rest(e, m);
    hlod__artifact__artifact__free_unpacked(m, NULL);
    if (st)
        executable_free(e);
    else
        *out = e;
    return st;
}
status_t executable_unpack(struct span bytes, struct executable **out) {
    return unpack(bytes, false, out);
}
status_t executable_unpack_main(struct span bytes, struct executable **out) {
    return unpack(bytes, true, out);
}

static bool same_bytes(ProtobufCBinaryData a, ProtobufCBinaryData b, size_t n) {
    return a.len >= n && b.len >= n && (!n || memcmp(a.data, b.data, n) == 0);
}
static bool same_main(const Hlod__Artifact__Artifact *draft, const Hlod__Artifact__Artifact *m) {
    return strcmp(m->main, draft->main) == 0 &&
           same_bytes(draft->constants, m->constants, draft->constants.len) &&
           strcmp(m->target_id, draft->target_id) == 0 &&
           strcmp(m->options, draft->options) == 0 && strcmp(m->build_id, draft->build_id) == 0;
}
status_t executable_complete(struct executable *e, struct span draft, struct span bytes,
                             bool *out_same) {
    Hlod__Artifact__Artifact *d = hlod__artifact__artifact__unpack(NULL, draft.n, draft.p),
                             *m = hlod__artifact__artifact__unpack(NULL, bytes.n, bytes.p);
    status_t st = d && m ? check_version(m) : st_new(ST_DATA_LOSS, "the artefact does not parse");
    *out_same = !st && same_main(d, m);
    if (*out_same) st = fill_rest(e, m);
    if (d) hlod__artifact__artifact__free_unpacked(d, NULL);
    if (m) hlod__artifact__artifact__free_unpacked(m, NULL);
    return st;
}
