// SPDX-License-Identifier: Apache-2.0
// INGEST, COMPILE and INSPECT: bytes to program, program to artefact, artefact to text.
#include "base/clock.h"
#include "compiler/artifact.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compiler/codegen/abi.h"
#include "compiler/codegen/backend.h"
#include "compiler/frontend/hlo/hlo_proto.h"
#include "compiler/frontend/stablehlo/stablehlo_out.h"
#include "compiler/ir/text/text.h"
#include "compiler/parts.h"
#include "compiler/results.h"
#include "compiler/strings.h"
#include "devices/worker/worker_calls.h"

static Hlod__V1__TensorSpec *spec_of(struct arena *a, const struct sig_tensor *t) {
    Hlod__V1__TensorSpec *s = message_new(a, &hlod__v1__tensor_spec__descriptor);
    s->name = arena_strdup(a, t->name);
    if (t->alias) s->alias = arena_strdup(a, t->alias);
    s->dtype = (char *)(uintptr_t)(t->text ? "string" : dtype_name(t->dtype));
    s->unknown_rank = t->rank < 0;
    s->by_value = t->by_value;
    s->sequence = t->sequence;
    s->optional = t->optional;
    s->n_dims = t->rank > 0 ? (size_t)t->rank : 0;
    s->dims = arena_array(a, Hlod__V1__Dim *, s->n_dims + 1);
    for (size_t d = 0; d < s->n_dims; d++) {
        s->dims[d] = message_new(a, &hlod__v1__dim__descriptor);
        s->dims[d]->size = t->dims[d].size;
        if (t->dims[d].symbol) s->dims[d]->symbol = arena_strdup(a, t->dims[d].symbol);
        s->dims[d]->usual = t->dims[d].usual;
        s->dims[d]->expression = t->dims[d].expression;
    }
    return s;
}
Hlod__V1__Signature *worker_signature(struct arena *a, const struct signature *s) {
    Hlod__V1__Signature *w = message_new(a, &hlod__v1__signature__descriptor);
    w->n_inputs = (size_t)s->n_in;
    w->n_outputs = (size_t)s->n_out;
    w->inputs = arena_array(a, Hlod__V1__TensorSpec *, s->n_in + 1);
    w->outputs = arena_array(a, Hlod__V1__TensorSpec *, s->n_out + 1);
    w->n_defaults = (size_t)s->n_defaults;
    w->defaults = arena_array(a, Hlod__V1__TensorSpec *, s->n_defaults + 1);
    for (int k = 0; k < s->n_defaults; k++)
        w->defaults[k] = spec_of(a, &s->defaults[k]);
    for (int k = 0; k < s->n_in; k++)
        w->inputs[k] = spec_of(a, &s->in[k]);
    for (int k = 0; k < s->n_out; k++)
        w->outputs[k] = spec_of(a, &s->out[k]);
    return w;
}

struct frontend_limits worker_limits(const Hlod__Wire__Limits *l) {
    return l ? (struct frontend_limits){.max_program_bytes = l->max_program_bytes,
                                        .max_depth = l->max_depth,
                                        .max_nodes = l->max_nodes,
                                        .max_tensor_bytes = l->max_tensor_bytes}
             : (struct frontend_limits){0};
}

// ---- ingest

static Hlod__V1__ProgramInfo *program_info_message(struct arena *a, const struct program_info *p) {
    Hlod__V1__ProgramInfo *m = message_new(a, &hlod__v1__program_info__descriptor);
    m->nodes = p->nodes;
    m->parameters = p->parameters;
    m->parameter_bytes = p->parameter_bytes;
    if (p->producer) m->producer = (char *)(uintptr_t)p->producer;
    m->operators = arena_array(a, Hlod__V1__OperatorCount *, p->ops.n + 1);
    m->opsets = arena_array(a, Hlod__V1__Opset *, p->opsets.n + 1);
    for (; m->n_operators < p->ops.n; m->n_operators++) {
        Hlod__V1__OperatorCount *o = m->operators[m->n_operators] =
            message_new(a, &hlod__v1__operator_count__descriptor);
        o->name = (char *)(uintptr_t)p->ops.v[m->n_operators].name;
        o->count = p->ops.v[m->n_operators].count;
    }
    for (; m->n_opsets < p->opsets.n; m->n_opsets++) {
        Hlod__V1__Opset *o = m->opsets[m->n_opsets] = message_new(a, &hlod__v1__opset__descriptor);
        o->domain = (char *)(uintptr_t)p->opsets.v[m->n_opsets].domain;
        o->version = p->opsets.v[m->n_opsets].version;
    }
    return m;
}

// What a compile keeps of names (of nodes, values, lines of source) is shown to all who have its
// executable: the digest of a program covers them too.
static struct digest with_names(const struct ingest_result *r) {
    struct sha256 h;
    sha256_init(&h);
    sha256_str(&h, STR("hlod.names.1"));
    sha256_add(&h, r->program_digest.b, sizeof r->program_digest.b);
    sha256_add(&h, r->program.p, r->program.n);
    return sha256_end(&h);
}

WORKER_ANSWER(ingest) {
    Hlod__Wire__IngestReply *out = reply;
    const Hlod__Wire__Ingest *q = (const Hlod__Wire__Ingest *)c->request;
    struct frontend_limits limits = worker_limits(q->limits);
    struct ingest_result r;
    struct span source;
    const char *format = q->format && strchr(q->format, '/')
                             ? frontend_from_media_type(str_of(q->format))
                             : q->format;

    RETURN_IF_ERR(worker_call_blob(c, q->source, &source));
    RETURN_IF_ERR(
        frontend_ingest(&c->arena, format && format[0] ? format : NULL, source, &limits, &r));
    if (q->limits && q->limits->own_names) r.program_digest = with_names(&r);

    out->format = (char *)(uintptr_t)r.format;
    out->program_digest = (ProtobufCBinaryData){32, arena_dup(&c->arena, r.program_digest.b, 32)};
    out->weights_digest = (ProtobufCBinaryData){32, arena_dup(&c->arena, r.weights_digest.b, 32)};
    RETURN_IF_ERR(worker_call_put_blob(c, r.program.p, r.program.n, &out->program));
    RETURN_IF_ERR(worker_call_put_blob(c, r.sidecar.p, r.sidecar.n, &out->sidecar));
    worker_expect_compile(c, &r, &limits);
    out->signature = worker_signature(&c->arena, &r.sig);
    out->info = program_info_message(&c->arena, &r.info);

    out->n_weights = (size_t)r.n_weights;
    out->weights = arena_array(&c->arena, Hlod__Wire__Weight *, r.n_weights + 1);
    for (int k = 0; k < r.n_weights; k++) {
        const struct weight *w = &r.weights[k];
        Hlod__Wire__Weight *m = out->weights[k] =
            message_new(&c->arena, &hlod__wire__weight__descriptor);
        m->name = (char *)(uintptr_t)w->name;
        m->dtype = (char *)(uintptr_t)dtype_name(w->dtype);
        m->n_dims = (size_t)w->rank;
        m->dims = w->dims;
        m->digest = (ProtobufCBinaryData){32, arena_dup(&c->arena, w->digest.b, 32)};
        m->sidecar = w->sidecar;
        m->offset = w->offset;
        m->size = w->size_bytes;
    }
    return ST_OK;
}

// ---- compile

// The compile role runs nothing; it has a device of its kind to know the target and, where a plugin
// is the compiler, to use it.
static struct device *compiles_for;

void worker_compile_for(struct device *d) {
    compiles_for = d;
}
struct device *worker_compiles_for(void) {
    return compiles_for;
}
const struct target *worker_compile_target(void) {
    return dev_target(compiles_for);
}

static void on_pass(void *ctx, const struct pass_stat *s) {
    Hlod__V1__PassStat m;
    pass_stat_message(&m, s);
    worker_call_event(ctx, HLOD__WIRE__TYPE__TYPE_PASS, &m.base);
}

static status_t lower_request_of(struct worker_call *c, const Hlod__Wire__Compile *q,
                                 struct lower_request *out) {
    struct dim_binding *b = arena_zarray(&c->arena, struct dim_binding, q->n_bindings + 1);
    for (size_t k = 0; k < q->n_bindings; k++)
        b[k] = (struct dim_binding){q->bindings[k]->symbol, q->bindings[k]->size};
    *out = (struct lower_request){.entry_name =
                                      q->entry_name && q->entry_name[0] ? q->entry_name : "main",
                                  .limits = worker_limits(q->limits),
                                  .bindings = b,
                                  .n_bindings = (int32_t)q->n_bindings,
                                  .cancel = &c->cancel};
    return worker_call_blob(c, q->program, &out->program);
}
static status_t compile_request(struct worker_call *c, const Hlod__Wire__Compile *q,
                                const struct compile_observer *obs, struct executable **out) {
    struct lower_request req;
    struct compile_options opt;
    RETURN_IF_ERR(lower_request_of(c, q, &req));
    RETURN_IF_ERR(compile_options_parse(&c->arena, str_of(q->options), &opt));
    const struct target *t;
    RETURN_IF_ERR(dev_find_target(compiles_for, q->target_id, &t));
    req.limits.channel_block = t->conv_block;
    if (c->type != HLOD__WIRE__TYPE__TYPE_COMPILE)
        return hlo_compile(q->format, &req, &opt, t, obs, out);
    struct made_ahead made = worker_take_ahead(q->format, &req, &opt, t);
    req.lowered = made.module;
    *out = made.exe;
    if (!made.exe) RETURN_IF_ERR(hlo_compile(q->format, &req, &opt, t, obs, out));
    struct executable *e = *out;
    if ((made.exe || made.module) && e->n_passes) { // the first is "lower"
        e->passes[0].ns += made.lower_ns;
        e->compile_ns += made.lower_ns;
    }
    for (int k = 0; made.exe && obs->on_pass && k < e->n_passes; k++)
        obs->on_pass(obs->ctx, &e->passes[k]);
    if (made.exe && obs->on_main) obs->on_main(obs->ctx, e); // loads while this is packed and kept
    return ST_OK;
}

static void concrete(struct arena *a, const struct shape *s, int replicas, const char *name,
                     struct sig_tensor *out) {
    int lead = replicas > 1; // all replicas' values travel together
    *out = (struct sig_tensor){.name = name,
                               .dtype = s->dtype,
                               .rank = s->rank + lead,
                               .dims = arena_zarray(a, struct sig_dim, s->rank + lead + 1)};
    out->dims[0].size = replicas;
    for (int d = 0; d < s->rank; d++)
        out->dims[d + lead].size = s->dims[d];
}

static Hlod__V1__DeviceMemory *memory_of(struct arena *a, const struct executable *e) {
    const struct emitted *x = &e->emitted;
    Hlod__V1__DeviceMemory *m = message_new(a, &hlod__v1__device_memory__descriptor);
    m->arguments = x->argument_bytes;
    m->results = x->output_bytes;
    m->aliased = x->alias_bytes;
    m->temporaries = x->temp_bytes;
    m->code = x->code_bytes;
    m->peak = x->peak_bytes;
    m->needed = x->argument_bytes + x->output_bytes - x->alias_bytes + x->temp_bytes;
    if (m->peak > m->needed) m->needed = m->peak;
    m->needed += m->code;
    m->limit = e->memory_bytes;
    m->fits = m->limit > 0 && m->needed <= m->limit;
    return m;
}

// What a run takes and gives, with the sizes that were compiled for.
static Hlod__V1__Signature *signature_of(struct arena *a, const struct executable *e) {
    const struct hlo_computation *m = e->main->entry;
    struct signature sig = {.in = arena_zarray(a, struct sig_tensor, m->params.n + 1),
                            .n_out = results_sent(e->main)};
    sig.out = arena_zarray(a, struct sig_tensor, sig.n_out + 1);
    for (size_t k = 0; k < m->params.n; k++)
        if (m->params.v[k]->param_kind == PARAM_INPUT)
            concrete(a, m->params.v[k]->shape, e->replicas, m->params.v[k]->name,
                     &sig.in[sig.n_in++]);

    const struct shape *root = e->results; // a tuple inside it is a sequence
    for (int k = 0, leaf = 0; leaf < sig.n_out; k++) {
        const struct shape *s = shape_is_tuple(root) ? root->elems[k] : root;
        int n = shape_is_tuple(s) ? shape_leaves(s) : 1;
        for (int t = 0; t < n; t++, leaf++)
            concrete(a, shape_leaf(root, leaf), e->replicas,
                     shape_is_tuple(s) ? arena_printf(a, "result%d[%d]", k, t)
                                       : arena_printf(a, "result%d", k),
                     &sig.out[leaf]);
    }

    struct string_layout text;
    bool texts = strings_of_module(a, e->main, &text);
    for (int k = 0; texts && k < sig.n_in; k++)
        sig.in[k].text = text.in[k];
    for (int k = 0; texts && k < sig.n_out; k++)
        sig.out[k].text = text.out[k];
    strings_free(text.table);
    return worker_signature(a, &sig);
}

// NULL: the program has one part.
static Hlod__V1__Part *part_of(struct arena *a, const struct executable *e) {
    struct part part;
    if (!parts_of(e->main, &part)) return NULL;
    Hlod__V1__Part *m = message_new(a, &hlod__v1__part__descriptor);
    m->index = (uint32_t)part.index;
    m->sizes = (uint32_t)part.sizes;
    m->carried = (uint32_t)part.carried;
    return m;
}

static int more_first(const void *a, const void *b) {
    const Hlod__V1__TypeCount *const *x = a, *const *y = b;
    if ((*x)->count != (*y)->count) return (*x)->count < (*y)->count ? 1 : -1;
    return strcmp((*x)->type, (*y)->type);
}
static void count_contractions(struct arena *a, const struct hlo_module *m,
                               Hlod__V1__ExecutableInfo *to) {
    Hlod__V1__TypeCount *of[DT_COUNT] = {0};
    to->computed_in = arena_array(a, Hlod__V1__TypeCount *, DT_COUNT);
    HLO_EACH_COMPUTATION(c, m)
    for (const struct hlo_instr *i = c->first; i; i = i->next) {
        if (i->op != HLO_CONVOLUTION && i->op != HLO_DOT) continue;
        enum dtype t = i->operands[0]->shape->dtype;
        if (!of[t]) {
            of[t] = message_new(a, &hlod__v1__type_count__descriptor);
            of[t]->type = (char *)(uintptr_t)dtype_name(t);
            to->computed_in[to->n_computed_in++] = of[t];
        }
        of[t]->count++;
        to->contractions++;
        to->bf16_contractions += t == DT_BF16;
    }
    qsort(to->computed_in, to->n_computed_in, sizeof *to->computed_in, more_first);
}

static char *digest_text(struct arena *a, struct digest d) {
    char hex[65];
    digest_hex(d, hex);
    return arena_strdup(a, hex);
}

static Hlod__V1__ExecutableInfo *info_of(struct worker_call *c, const struct executable *e,
                                         struct digest content) {
    struct arena *a = &c->arena;
    Hlod__V1__ExecutableInfo *i = message_new(a, &hlod__v1__executable_info__descriptor);
    i->signature = signature_of(a, e);
    i->part = part_of(a, e);
    i->rows_independent = e->batchable.independent;
    if (e->batchable.why) i->rows_why = arena_strdup(a, e->batchable.why);
    count_contractions(a, e->main, i);
    if (e->precision_note) i->precision_note = arena_strdup(a, e->precision_note);
    i->replicas = e->replicas;

    i->constants_digest = digest_text(a, e->batchable.constants);
    i->content_digest = digest_text(a, content);
    i->options = arena_strdup(a, e->options_text);
    i->build_id = arena_strdup(a, e->build_id);
    i->target_id = arena_strdup(a, e->target_id);
    i->kernel_abi = HLOD_KERNEL_ABI;

    i->before = executable_counts(a, e->before);
    i->after = executable_counts(a, e->after);
    i->prepare = executable_counts(a, e->prepare_counts);
    i->n_passes = (size_t)e->n_passes;
    i->passes = pass_stat_messages(a, e);
    i->kernels = e->kernels.n;
    i->compile_ms = clock_ms(e->compile_ns);
    i->compile_peak_rss = worker_peak_bytes();

    i->peak_bytes = e->peak_bytes;
    i->values_bytes = e->values_bytes;
    i->prepare_bytes = e->prepare_bytes;
    i->bound_bytes = e->bound_bytes;
    i->in_place = e->in_place;
    i->flops = e->cost.flops;
    i->bytes_accessed = e->cost.bytes;
    if (e->emitted.code.n) {
        i->optimized = executable_counts(a, e->optimized);
        i->memory = memory_of(a, e);
    }
    return i;
}

status_t worker_lacking(status_t st) {
    if (st_code(st) != ST_UNIMPLEMENTED) return st;
    status_t other =
        st_reason(st_new(ST_FAILED_PRECONDITION, "%s", st_message(st)),
                  st_get_reason(st) ? st_get_reason(st) : HLOD__V1__REASON__REASON_COMPILE_FAILED);
    st_drop(st);
    return other;
}

static void free_executable(void *e) {
    executable_free(e);
}

// Whoever will load it may begin.
static void on_main(void *ctx, struct executable *e) {
    struct worker_call *c = ctx;
    struct strbuf bytes = {0};
    Hlod__Wire__Draft m = HLOD__WIRE__DRAFT__INIT;
    int before = c->n_reply_fds;
    status_t st = executable_pack_main(e, &bytes);
    if (!st) st = worker_call_put_blob(c, strbuf_cstr(&bytes), bytes.n, &m.artifact);
    if (!st && c->n_reply_fds > before) { // it goes with the event
        c->event_fds[c->n_event_fds++] = c->reply_fds[--c->n_reply_fds];
        m.artifact->fd = 1;
    }
    if (!st) worker_call_event(c, HLOD__WIRE__TYPE__TYPE_DRAFT, &m.base);
    while (c->n_event_fds)
        close(c->event_fds[--c->n_event_fds]);
    strbuf_done(&bytes);
    st_drop(st); // the reply brings it again
}

static status_t compile(struct worker_call *c, Hlod__Wire__CompileReply *out) {
    const Hlod__Wire__Compile *q = (const Hlod__Wire__Compile *)c->request;
    struct compile_observer obs = {
        .ctx = c, .on_pass = q->quiet ? NULL : on_pass, .cancel = &c->cancel};
    if (q->draft && compiles_for->vt->begin) obs.on_main = on_main;
    struct executable *e;
    struct strbuf bytes = {0};
    worker_peak_begin();
    RETURN_IF_ERR(compile_request(c, q, &obs, &e));
    arena_link(&c->arena, free_executable, e); // when the reply is on its way
    struct digest content;
    status_t st = executable_pack(e, &bytes, &content);
    if (!st) st = worker_call_put_blob(c, strbuf_cstr(&bytes), bytes.n, &out->artifact);
    if (!st) out->info = info_of(c, e, content);
    strbuf_done(&bytes);
    return st;
}
WORKER_ANSWER(compile) {
    return worker_lacking(compile(c, reply));
}

static status_t find_target(struct worker_call *c, Hlod__Wire__TargetReply *out) {
    const Hlod__Wire__Target *q = (const Hlod__Wire__Target *)c->request;
    const struct target *t;
    RETURN_IF_ERR(dev_find_target(compiles_for, q->name, &t));
    out->target_id = arena_strdup(&c->arena, t->id);
    out->memory_bytes = t->memory_bytes;
    out->devices = t->max_replicas ? t->max_replicas : 1;
    return ST_OK;
}
WORKER_ANSWER(target) {
    return worker_lacking(find_target(c, reply));
}

// ---- inspect

struct dump {
    const char *want;
    struct strbuf *out;
    bool found;
};
static void on_dump(void *ctx, const char *pass, const struct hlo_module *m) {
    struct dump *d = ctx;
    if (strcmp(pass, d->want) != 0) return;
    strbuf_clear(d->out); // the last run of the pass counts
    hlo_print_module(d->out, m, HLO_PRINT_DEFAULT);
    d->found = true;
}
static void no_event(UNUSED void *ctx, UNUSED const struct pass_stat *s) {}

static status_t plan_text(struct executable *e, bool costs, struct strbuf *b) {
    struct dev_exe *x;
    if (costs && !compiles_for->vt->explain_costs) {
        executable_free(e);
        return st_reason(st_invalid("no stage explain: devices of this kind do not say what their "
                                    "steps should take"),
                         HLOD__V1__REASON__REASON_NO_SUCH_STAGE);
    }
    RETURN_IF_ERR(dev_load(compiles_for, e, NULL, &x)); // refuses another target
    if (costs)
        compiles_for->vt->explain_costs(x, b);
    else
        compiles_for->vt->explain(x, b);
    dev_unload(x);
    return ST_OK;
}

// What a plugin's compiler left of main.
static status_t optimized_text(const struct executable *e, struct strbuf *b) {
    struct hlo_module *m;
    if (!e->emitted.optimized.n)
        return st_reason(
            st_invalid("no stage optimized: %s gives no module back; hlo-after is the last",
                       e->target_id),
            HLOD__V1__REASON__REASON_NO_SUCH_STAGE);
    status_t st = hlo_proto_read(e->emitted.optimized, NULL, true, &m);
    if (st) { // a plugin's compiler has rules of its own
        strbuf_printf(b, "// as %s gives it; this reader refuses it: %s\n", e->target_id,
                      st_message(st));
        st_drop(st);
        return st_note(hlo_proto_raw(e->emitted.optimized, b), "the optimised module");
    }
    hlo_print_module(b, m, HLO_PRINT_DEFAULT);
    hlo_module_free(m);
    return ST_OK;
}

// The program as it is lowered, before any pass.
static status_t before_text(struct worker_call *c, const Hlod__Wire__Compile *q, bool stablehlo,
                            struct strbuf *b) {
    struct lower_request req;
    struct hlo_module *m;
    const struct target *t;
    RETURN_IF_ERR(lower_request_of(c, q, &req));
    RETURN_IF_ERR(dev_find_target(compiles_for, q->target_id, &t));
    req.limits.channel_block = t->conv_block;
    RETURN_IF_ERR(frontend_lower(q->format, &req, &m));
    status_t st = ST_OK;
    if (stablehlo)
        st = stablehlo_print(b, m);
    else
        hlo_print_module(b, m, HLO_PRINT_DEFAULT);
    hlo_module_free(m);
    return st;
}
static status_t inspect_artifact(struct span bytes, const char *stage, const Hlod__V1__Tuning *t,
                                 struct strbuf *b) {
    struct executable *e;
    RETURN_IF_ERR(executable_unpack(bytes, &e));
    worker_choose(e, t);
    bool costs = strcmp(stage, "explain") == 0;
    if (costs || strcmp(stage, "plan") == 0) return plan_text(e, costs, b); // takes e
    status_t st = ST_OK;
    if (strcmp(stage, "optimized") == 0)
        st = optimized_text(e, b);
    else
        hlo_print_module(b, strcmp(stage, "prepare") == 0 ? e->prepare : e->main,
                         HLO_PRINT_DEFAULT);
    executable_free(e);
    return st;
}

// The kernels of main for the target and by the options that it was compiled for.
static status_t code_text(struct worker_call *c, const struct executable *e, const char *stage,
                          struct strbuf *b) {
    struct kernel_set k;
    struct strbuf kir = {0}, llvm = {0};
    const struct target *t;
    struct compile_options own;
    RETURN_IF_ERR(compile_options_parse(&c->arena, str_of(e->options_text), &own));
    RETURN_IF_ERR(dev_find_target(compiles_for, e->target_id, &t));
    if (t->emit)
        return st_reason(st_invalid("no stage %s: the plugin of %s compiles the program whole",
                                    stage, e->target_id),
                         HLOD__V1__REASON__REASON_NO_SUCH_STAGE);
    if (strcmp(stage, "kir") != 0 && strcmp(stage, backend_of(t)->name) != 0)
        return st_reason(st_invalid("no stage %s: kernels of %s are made by '%s'", stage,
                                    e->target_id, backend_of(t)->name),
                         HLOD__V1__REASON__REASON_NO_SUCH_STAGE);
    status_t st = codegen_module(&c->arena, e->main, t, own.precision, &kir, &llvm, &k);
    const struct strbuf *text = strcmp(stage, "kir") == 0 ? &kir : &llvm;
    strbuf_add(b, strbuf_cstr(text), text->n);
    strbuf_done(&kir);
    strbuf_done(&llvm);
    return st;
}

static status_t inspect_text(struct worker_call *c, const Hlod__Wire__Inspect *q,
                             struct strbuf *b) {
    static const char *const stored[] = {"hlo-after", "prepare", "plan", "explain", "optimized"};
    struct span bytes;
    RETURN_IF_ERR(worker_call_blob(c, q->artifact, &bytes));
    for (size_t k = 0; k < sizeof stored / sizeof stored[0]; k++)
        if (strcmp(q->stage, stored[k]) == 0)
            return inspect_artifact(bytes, q->stage, q->tuning, b);
    bool stablehlo = strcmp(q->stage, "stablehlo") == 0;
    if ((stablehlo || strcmp(q->stage, "hlo-before") == 0) && q->compile)
        return before_text(c, q->compile, stablehlo, b);
    struct executable *e;
    struct dump d = {.want = strncmp(q->stage, "pass/", 5) == 0 ? q->stage + 5 : "", .out = b};
    struct compile_observer obs = {
        .ctx = &d, .on_dump = on_dump, .on_pass = no_event, .cancel = &c->cancel};
    bool code = strcmp(q->stage, "kir") == 0 || backend_find(q->stage);
    if (!q->compile || (!code && !d.want[0]))
        return st_reason(st_invalid("no stage is called '%s'", q->stage),
                         HLOD__V1__REASON__REASON_NO_SUCH_STAGE);

    RETURN_IF_ERR(compile_request(c, q->compile, &obs, &e));
    status_t st = ST_OK;
    if (code) {
        st = code_text(c, e, q->stage, b);
    } else if (!d.found) {
        st = st_reason(st_invalid("no pass of this compile is called '%s'", d.want),
                       HLOD__V1__REASON__REASON_NO_SUCH_STAGE);
    }
    executable_free(e);
    return st;
}
WORKER_ANSWER(inspect) {
    Hlod__Wire__InspectReply *r = reply;
    struct strbuf b = {0};
    status_t st = inspect_text(c, (const Hlod__Wire__Inspect *)c->request, &b);
    if (!st) st = worker_call_put_blob(c, strbuf_cstr(&b), b.n, &r->text);
    strbuf_done(&b);
    return st;
}
