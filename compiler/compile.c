// SPDX-License-Identifier: Apache-2.0
// The driver of one compile, and the canonical text of its options.
//     program -> module -> whole-module passes -> prepare | main -> passes of each -> kernels ->
//     plan -> executable
#include "compiler/compile.h"

#include "base/clock.h"
#include "compiler/frontend/hlo/hlo_proto.h"
#include "compiler/ir/text/text.h"
#include "compiler/kernel/lower.h"
#include "compiler/passes/control/hoist.h"
#include "compiler/passes/rules/rules.h"
#include "compiler/pipeline.h"
#include "compiler/plan/plan.h"
#include "compiler/results.h"
#include "proto/hlod.pb-c.h"

enum { MAX_REPLICAS = 1024, ONCE_WORK = 8000000 };

void executable_free(struct executable *e) {
    if (!e) return;
    hlo_module_free(e->main);
    hlo_module_free(e->prepare);
    if (e->beside) hlo_constants_done(e->beside);
    arena_free(e->arena); // e itself lies in it
}

static void add_stat(struct pass_ctx *p, const char *name, int64_t ns, int64_t before,
                     int64_t after) {
    struct pass_stat s = {.name = name, .ns = ns, .instrs_before = before, .instrs_after = after};
    avec_push(p->keep, &p->stats, s);
    if (p->obs && p->obs->on_pass) p->obs->on_pass(p->obs->ctx, &s);
}

// Strict executables say so on each contraction, where the device reads it.
static void mark_strict(struct hlo_module *m) {
    HLO_EACH_COMPUTATION(c, m)
    for (struct hlo_instr *i = c->first; i; i = i->next)
        if (i->op == HLO_CONVOLUTION || i->op == HLO_DOT)
            hlo_set_extra(i, "backend_config", "{\"precision\":\"strict\"}");
}

// A compiler of its own may multiply f32 in less (TF32 on a GPU, bf16 on a TPU) unless each
// contraction says not to; docs/precision.md promises f32's bound to all but `fast`.
static void mark_full(struct hlo_module *m) {
    HLO_EACH_COMPUTATION(c, m)
    for (struct hlo_instr *i = c->first; i; i = i->next) {
        if (i->op != HLO_CONVOLUTION && i->op != HLO_DOT) continue;
        enum dtype t = i->operands[0]->shape->dtype;
        if ((t == DT_F32 || t == DT_C64) && !hlo_extra(i, "operand_precision", NULL))
            hlo_set_extra(i, "operand_precision", "{highest,highest}");
    }
}

// The figures of the module that really runs: counts always, the cost where we can read what the
// other compiler made of it.
static status_t measure_emitted(struct executable *e) {
    struct hlo_module *m;
    struct span bytes = e->emitted.optimized;
    if (!bytes.n) return ST_OK;
    RETURN_IF_ERR(st_note(hlo_proto_count(bytes, &e->optimized), "the optimised module"));
    status_t st = hlo_proto_read(bytes, NULL, true, &m);
    if (st) {
        st_drop(st);
        return ST_OK;
    }
    int64_t flops = e->cost.flops; // fusion hides nothing from a count of before
    e->cost = plan_cost(m);
    e->cost.flops = flops;
    hlo_module_free(m);
    return ST_OK;
}

// Both modules by the target's own compiler; what it plans is its own too.
static status_t emit_code(struct executable *e, const struct target *t, enum precision precision,
                          struct pass_ctx *p) {
    int64_t start = clock_ns(), before = hlo_total(e->main);
    struct pass_stat s = {.name = "plugin", .begins = true, .instrs_before = before};
    int n = e->replicas;
    if (p->obs && p->obs->on_pass) p->obs->on_pass(p->obs->ctx, &s);
    RETURN_IF_ERR(st_note(t->emit(t, e->arena, e->main, n, precision, &e->emitted), "main"));
    if (e->prepare->entry->root->shape->n_elems)
        RETURN_IF_ERR(st_note(
            t->emit(t, e->arena, e->prepare, n, precision, &e->emitted_prepare), "prepare"));
    e->peak_bytes = e->emitted.temp_bytes;
    e->prepare_bytes = e->emitted_prepare.temp_bytes;
    RETURN_IF_ERR(measure_emitted(e));
    add_stat(p, s.name, clock_ns() - start, before,
             e->optimized.total ? e->optimized.total : before);
    return ST_OK;
}

static status_t make_code(struct executable *e, const struct target *t,
                          const struct compile_options *opt, struct pass_ctx *p) {
    int64_t start = clock_ns();
    struct plan *plan;
    RETURN_IF_ERR(codegen_module(e->arena, e->main, t, opt->precision, NULL, NULL, &e->kernels));
    // Prepare runs once a weight set: small values are cheaper to evaluate than to compile.
    struct target once = *t;
    once.runs_once = true;
    if (once.min_kernel_elements < 16384) once.min_kernel_elements = 16384;
    if (t->evaluates_prepare) once.min_kernel_elements = INT64_MAX;
    if (once.little_work) once.little_work = once.less_work = ONCE_WORK;
    RETURN_IF_ERR(codegen_module(e->arena, e->prepare, &once, opt->precision, NULL, NULL,
                                 &e->prepare_kernels));
    int64_t n = hlo_total(e->main);
    add_stat(p, "codegen", clock_ns() - start, n, n);
    RETURN_IF_ERR(plan_make(e->arena, e->main->entry, &plan));
    e->peak_bytes = plan->arena_bytes;
    e->values_bytes = plan->values_bytes;
    e->in_place = plan->n_in_place;
    RETURN_IF_ERR(plan_make(e->arena, e->prepare->entry, &plan));
    e->prepare_bytes = plan->arena_bytes;
    return ST_OK;
}

// Layouts inside a module are the compiler's to choose. Those of the source are dropped, as XLA
// does before it assigns its own, unless a bitcast between layouts gives them a meaning.
static const struct shape *without_layouts(struct arena *a, const struct shape *s) {
    if (!shape_is_tuple(s)) return s->layout ? shape_with_layout(a, s, NULL) : s;
    const struct shape **e = arena_array(a, const struct shape *, s->n_elems + 1);
    bool same = true;
    for (int k = 0; k < s->n_elems; k++) {
        e[k] = without_layouts(a, s->elems[k]);
        same &= e[k] == s->elems[k];
    }
    return same ? s : shape_tuple(a, e, s->n_elems);
}
static void drop_layouts(struct hlo_module *m) {
    HLO_EACH_COMPUTATION(c, m)
    HLO_EACH_INSTR(i, c) {
        if (i->op != HLO_BITCAST) continue;
        const struct shape *from = i->operands[0]->shape, *to = i->shape;
        if (!layout_is_default(from->layout, from->rank) ||
            !layout_is_default(to->layout, to->rank))
            return;
    }
    HLO_EACH_COMPUTATION(c, m)
    HLO_EACH_INSTR(i, c) hlo_set_shape(i, without_layouts(m->arena, i->shape));
}

// Values cross the border of an executable dense and row-major, whatever layouts the module gives
// its parameters and results: copies stand between.
static bool plain_layout(const struct shape *s) {
    return shape_is_tuple(s) || layout_is_default(s->layout, s->rank);
}
static status_t dense_result(struct hlo_computation *c, struct hlo_instr **x) {
    const struct shape *s = (*x)->shape;
    if (plain_layout(s)) return ST_OK;
    return hlo_add_instr(c, HLO_COPY, shape_with_layout(c->module->arena, s, NULL), x, 1, NULL,
                         NULL, 0, x);
}
static status_t dense_entry(struct hlo_computation *c) {
    struct arena *a = c->module->arena;
    for (size_t k = 0; k < c->params.n; k++) {
        struct hlo_instr *p = c->params.v[k], *own;
        const struct shape *s = p->shape;
        if (plain_layout(s)) continue;
        hlo_set_shape(p, shape_with_layout(a, s, NULL));
        RETURN_IF_ERR(hlo_add_instr(c, HLO_COPY, s, &p, 1, NULL, NULL, 0, &own));
        if (p->next) hlo_move_before(own, p->next);
        hlo_replace_uses(p, own);
        hlo_set_operand(own, 0, p);
    }

    struct hlo_instr *root = c->root, **parts;
    if (!shape_is_tuple(root->shape)) {
        RETURN_IF_ERR(dense_result(c, &root));
        hlo_set_root(c, root);
        return ST_OK;
    }

    int n = root->shape->n_elems, odd = 0;
    parts = arena_array(a, struct hlo_instr *, n + 1);
    for (int k = 0; k < n; k++)
        odd += !plain_layout(root->shape->elems[k]);
    for (int k = 0; k < n && odd; k++) {
        struct hlo_attr_gte at = {.index = k};
        if (root->op == HLO_TUPLE)
            parts[k] = root->operands[k];
        else
            RETURN_IF_ERR(
                hlo_add_instr(c, HLO_GET_TUPLE_ELEMENT, NULL, &root, 1, &at, NULL, 0, &parts[k]));
        RETURN_IF_ERR(dense_result(c, &parts[k]));
    }
    if (odd) RETURN_IF_ERR(hlo_add_instr(c, HLO_TUPLE, NULL, parts, n, NULL, NULL, 0, &root));

    hlo_set_root(c, root);
    return ST_OK;
}

static int64_t bytes_of_leaves(const struct shape *s) {
    int64_t n = 0;
    for (int k = 0; k < shape_leaves(s); k++)
        if (!sz_add(n, shape_bytes(shape_leaf(s, k)), &n)) return INT64_MAX / 4;
    return n;
}

static const char *precision_note(const struct target *t, enum precision p) {
    if (p != PRECISION_FAST || t->library_bf16) return NULL;
    return t->emit ? "precision fast: f32 is multiplied in the type that the plugin's compiler "
                     "chooses (TF32 on NVIDIA GPUs, bf16 on TPUs)"
           : t->bf16_emulated
               ? "precision fast: this CPU shows the values of one with instructions for bf16, in "
                 "f32"
           : strcmp(t->kind, "web") == 0
               ? "precision fast: browsers have no instructions for bf16, all is computed in f32"
           : strcmp(t->kind, "opencl") == 0
               ? "precision fast: OpenCL has no arithmetic of bf16, all is computed in f32"
           : strcmp(t->kind, "gl") == 0
               ? "precision fast: OpenGL has no arithmetic of bf16, all is computed in f32"
               : "precision fast: this CPU has no instructions for bf16, all is computed in f32";
}

// e->main is the whole module still.
static status_t compile_into(struct executable *e, const struct compile_options *opt,
                             const struct target *t, struct pass_ctx *p) {
    struct hlo_module *m = e->main;

    int most = t->max_replicas ? t->max_replicas : 1;
    if (opt->replicas > most)
        return st_reason(st_invalid("%d replicas: %s runs at most %d", opt->replicas, t->id, most),
                         HLOD__V1__REASON__REASON_BAD_OPTION);
    e->replicas = opt->replicas ? opt->replicas : 1;

    struct dynamic_result dynamic[1];
    if (e->replicas > 1 && results_dynamic(m, dynamic, 1))
        return st_unimplemented("results whose size only a run knows do not go with replicas");
    e->memory_bytes = t->memory_bytes;

    e->precision_note = precision_note(t, opt->precision);
    e->before = hlo_count(m);
    drop_layouts(m);
    RETURN_IF_ERR(dense_entry(m->entry));
    RETURN_IF_ERR(pipeline_whole(m, p));
    e->batchable = batchable_check(e->arena, m);

    int64_t start = clock_ns();
    RETURN_IF_ERR(hoist_split(m, &e->prepare));
    int64_t n = hlo_total(e->main);
    add_stat(p, "hoist", clock_ns() - start, n, n);

    e->results = e->main->entry->root->shape; // in the arena of main
    RETURN_IF_ERR((t->emit ? pipeline_portable : pipeline_prepare)(e->prepare, p));
    RETURN_IF_ERR((t->emit ? pipeline_portable : pipeline_main)(e->main, p));
    if (t->emit && opt->precision != PRECISION_FAST) {
        mark_full(e->prepare);
        mark_full(e->main);
    } else if (!t->emit && opt->precision == PRECISION_STRICT) {
        mark_strict(e->main);
    }
    RETURN_IF_ERR(st_note(hlo_verify(e->main), "main module"));
    RETURN_IF_ERR(st_note(hlo_verify(e->prepare), "prepare module"));

    e->after = hlo_count(e->main);
    e->cost = plan_cost(e->main);
    e->prepare_counts = hlo_count(e->prepare);
    e->bound_bytes = bytes_of_leaves(e->prepare->entry->root->shape);

    if (t->emit) return emit_code(e, t, opt->precision, p);
    if (p->obs && p->obs->on_main) p->obs->on_main(p->obs->ctx, e);
    return make_code(e, t, opt, p);
}

static bool has_kernel(const struct pass_ctx *p, const struct hlo_instr *fusion) {
    struct arena a = {0};
    struct kir_fn *fn;
    status_t st = lower_kernel(&a, fusion, p->target, p->opt->precision, &fn, NULL);
    bool ok = !st;
    st_drop(st);
    arena_done(&a);
    return ok;
}
// Takes m, which was verified.
static status_t compile_verified(struct hlo_module *m, const struct compile_options *opt,
                                 const struct target *t, const struct compile_observer *obs,
                                 struct executable **out) {
    struct arena *a = arena_new();
    struct executable *e = arena_new_of(a, struct executable);
    struct strbuf options = {0};
    int64_t start = clock_ns();
    e->arena = a;
    e->main = m;
    e->target_id = arena_strdup(a, t->id);
    e->build_id = compile_build_id();
    compile_options_print(&options, opt);
    e->options_text = arena_strndup(a, strbuf_cstr(&options), options.n);
    strbuf_done(&options);
    struct pass_ctx p = {.opt = opt, .target = t, .obs = obs, .keep = a, .has_kernel = has_kernel};
    status_t st = compile_into(e, opt, t, &p);
    arena_done(&p.scratch);
    e->passes = p.stats.v;
    e->n_passes = (int32_t)p.stats.n;
    e->compile_ns = clock_ns() - start;
    if (st)
        executable_free(e);
    else
        *out = e;
    return st;
}

status_t hlo_compile_module(struct hlo_module *m, const struct compile_options *opt,
                            const struct target *t, const struct compile_observer *obs,
                            struct executable **out) {
    status_t st = st_note(hlo_verify(m), "input module");
    if (!st) return compile_verified(m, opt, t, obs, out);
    hlo_module_free(m);
    return st;
}

status_t hlo_compile(const char *format, const struct lower_request *req,
                     const struct compile_options *opt, const struct target *t,
                     const struct compile_observer *obs, struct executable **out) {
    struct hlo_module *m;
    int64_t start = clock_ns();
    struct lower_request with = *req;
    with.cancel = obs ? obs->cancel : NULL;
    if (t) with.limits.channel_block = t->conv_block;
    if (req->lowered)
        m = req->lowered;
    else
        RETURN_IF_ERR(frontend_lower(format, &with, &m));
    struct pass_stat s = {
        .name = "lower", .ns = clock_ns() - start, .instrs_after = hlo_total(m), .changed = true};
    if (obs && obs->on_pass) obs->on_pass(obs->ctx, &s);
    RETURN_IF_ERR(compile_verified(m, opt, t, obs, out));
    struct executable *e = *out;
    struct pass_stat *all = arena_array(e->arena, struct pass_stat, e->n_passes + 1);
    all[0] = s;
    if (e->n_passes) memcpy(all + 1, e->passes, sizeof *all * (size_t)e->n_passes);
    e->passes = all;
    e->n_passes++;
    e->compile_ns += s.ns;
    return ST_OK;
}

// ---- options: "disable_passes=a,b;disable_rules=c;precision=strict;verify_each=1", defaults left
// out

static const char *const precisions[] = {
    [PRECISION_DEFAULT] = "default", [PRECISION_STRICT] = "strict", [PRECISION_FAST] = "fast"};
bool precision_named(struct str name, enum precision *out) {
    for (size_t k = 0; k < sizeof precisions / sizeof *precisions; k++)
        if (str_is(name, precisions[k])) {
            *out = (enum precision)k;
            return true;
        }
    return false;
}

void compile_options_print(struct strbuf *b, const struct compile_options *o) {
    const char *sep = "";
    if (o->disable_passes && o->disable_passes[0])
        strbuf_printf(b, "disable_passes=%s", o->disable_passes), sep = ";";
    if (o->disable_rules && o->disable_rules[0])
        strbuf_printf(b, "%sdisable_rules=%s", sep, o->disable_rules), sep = ";";
    if (o->precision != PRECISION_DEFAULT)
        strbuf_printf(b, "%sprecision=%s", sep, precisions[o->precision]), sep = ";";
    if (o->replicas > 1) strbuf_printf(b, "%sreplicas=%d", sep, o->replicas), sep = ";";
    if (o->verify_each) strbuf_printf(b, "%sverify_each=1", sep);
}

static status_t check_passes(const char *list) {
    struct str all = str_of(list), item;
    while (str_cut(&all, ',', &item))
        if (!pass_find(str_trim(item)))
            return st_invalid("no pass is called '" STR_FMT "'", STR_ARG(item));
    return ST_OK;
}

static status_t check_rules(const char *list) {
    struct str all = str_of(list), item;
    int n;
    const struct rule *t = rule_table(&n);
    while (str_cut(&all, ',', &item)) {
        bool found = false;
        for (int k = 0; k < n; k++)
            found |= str_is(str_trim(item), t[k].name);
        if (!found) return st_invalid("no rule is called '" STR_FMT "'", STR_ARG(item));
    }
    return ST_OK;
}

static status_t set_option(struct arena *a, struct str key, struct str value,
                           struct compile_options *o) {
    if (str_is(key, "precision")) {
        if (!precision_named(value, &o->precision))
            return st_invalid("precision is 'default', 'strict' or 'fast', not '" STR_FMT "'",
                              STR_ARG(value));
    } else if (str_is(key, "disable_passes")) {
        o->disable_passes = arena_strndup(a, value.p, value.n);
        RETURN_IF_ERR(check_passes(o->disable_passes));
    } else if (str_is(key, "disable_rules")) {
        o->disable_rules = arena_strndup(a, value.p, value.n);
        RETURN_IF_ERR(check_rules(o->disable_rules));
    } else if (str_is(key, "replicas")) {
        int64_t n;
        if (!str_to_i64(value, &n) || n < 1 || n > MAX_REPLICAS)
            return st_invalid("replicas is 1 to %d, not '" STR_FMT "'", MAX_REPLICAS,
                              STR_ARG(value));
        o->replicas = (int)n;
    } else if (str_is(key, "verify_each")) {
        o->verify_each = str_is(value, "1") || str_is(value, "true");
    } else {
        return st_invalid("no compile option is called '" STR_FMT "'", STR_ARG(key));
    }
    return ST_OK;
}

status_t compile_options_parse(struct arena *a, struct str text, struct compile_options *out) {
    struct compile_options o = {.disable_passes = "", .disable_rules = ""};
    struct str item, key;
    while (str_cut(&text, ';', &item)) {
        if (!item.n) continue;
        str_cut(&item, '=', &key);
        RETURN_IF_ERR(st_reason(set_option(a, str_trim(key), str_trim(item), &o),
                                HLOD__V1__REASON__REASON_BAD_OPTION));
    }
    *out = o;
    return ST_OK;
}
