// SPDX-License-Identifier: Apache-2.0
// One row for each kept attribute that HloInstructionProto has fields for; those about devices are
// in hlo_pb_devices.c. The text that a get function writes is in the text parser's normal form,
// with XLA's commas.
#include <math.h>

#include "compiler/frontend/hlo/hlo_pb_kept.h"

// ---- attributes of other operations on a custom-call

static struct parser text_parser(struct hlo_module *m, struct str text) {
    return (struct parser){.m = m,
                           .start = text.p,
                           .c = over(text),
                           .limits = {.max_depth = 64, .max_literal_bytes = INT64_C(256) << 20}};
}
// The record of kind k from one attribute, or NULL.
static void *record_of(struct arena *a, enum hlo_attr_kind k, const char *name, struct str text) {
    struct hlo_module m = {.arena = a};
    struct parser p = text_parser(&m, text);
    struct attr_text t = {str_of(name), text, false};
    void *r;
    status_t st = p_attr_record(&p, k, &t, 1, text.p, &r);
    bool ok = st == ST_OK;
    st_drop(st);
    return ok ? r : NULL;
}
static PUT(window) {
    struct hlo_attr_window *r = record_of(a, ATTR_window, "window", text);
    if (r) p->window = pb_put_window(a, &r->window);
    return r != NULL;
}
static GET(window) {
    struct arena a = {0};
    struct hlo_attr_window r = {0};
    if (op != HLO_CUSTOM_CALL || !p->window) return;
    status_t st = pb_get_window(&a, p->window, &r.window);
    if (!st && r.window.n) {
        struct strbuf t = {0};
        attr_print(&t, ATTR_window, &r);
        strbuf_puts(b, t.p + strlen(", window="));
        strbuf_done(&t);
    }
    st_drop(st);
    arena_done(&a);
}
static PUT(dim_labels) {
    struct hlo_attr_conv *r = record_of(a, ATTR_conv, "dim_labels", text);
    if (r) p->convolution_dimension_numbers = pb_put_labels(a, &r->dim_labels);
    return r != NULL;
}
static GET(dim_labels) {
    struct hlo_attr_conv r = {.feature_group_count = 1, .batch_group_count = 1};
    if (op != HLO_CUSTOM_CALL || !p->convolution_dimension_numbers) return;
    status_t st = pb_get_labels(p->convolution_dimension_numbers, &r.dim_labels);
    if (!st) {
        struct strbuf t = {0};
        attr_print(&t, ATTR_conv, &r);
        strbuf_puts(b, t.p + strlen(", dim_labels="));
        strbuf_done(&t);
    }
    st_drop(st);
}
static PUT(feature_group_count) {
    return str_to_i64(text, &p->feature_group_count);
}
static GET(feature_group_count) {
    if (op == HLO_CUSTOM_CALL && p->feature_group_count > 1)
        strbuf_printf(b, "%lld", (long long)p->feature_group_count);
}
static PUT(batch_group_count) {
    return str_to_i64(text, &p->batch_group_count);
}
static GET(batch_group_count) {
    if (op == HLO_CUSTOM_CALL && p->batch_group_count > 1)
        strbuf_printf(b, "%lld", (long long)p->batch_group_count);
}
// A value with its shape: "f32[2]{0} {1, 2}", "( s32[] 1, pred[] 1 )", "( )".
static status_t take_value(struct parser *p, struct cursor *c, int depth,
                           struct literal **out) MUST_CHECK;
static status_t take_value(struct parser *p, struct cursor *c, int depth, struct literal **out) {
    const struct shape *s, **shapes;
    VEC(struct literal *) v = {0};
    if (depth > 16) return p_error(p, c->p, "nested deeper than 16");
    if (!p_take(c, "(")) {
        RETURN_IF_ERR(p_shape(p, c, 0, &s));
        return p_literal(p, c, s, out);
    }
    bool closed = p_take(c, ")"); // an empty one
    while (!closed) {
        struct literal *e;
        RETURN_IF_ERR(take_value(p, c, depth + 1, &e));
        avec_push(p->m->arena, &v, e);
        closed = p_take(c, ")");
        if (!closed && !p_take(c, ",")) return p_error(p, c->p, "expected ')'");
    }
    shapes = arena_array(p->m->arena, const struct shape *, v.n);
    for (size_t k = 0; k < v.n; k++)
        shapes[k] = v.v[k]->shape;
    *out = lit_tuple(p->m->arena, shape_tuple(p->m->arena, shapes, (int)v.n), v.v);
    return ST_OK;
}
static void value_text(struct strbuf *b, const struct literal *l) {
    if (shape_is_tuple(l->shape)) {
        strbuf_putc(b, '(');
        for (int k = 0; k < l->shape->n_elems; k++) {
            strbuf_puts(b, k ? ", " : " ");
            value_text(b, l->elems[k]);
        }
        strbuf_puts(b, " )");
        return;
    }
    shape_print(b, l->shape, true);
    strbuf_putc(b, ' ');
    lit_print(b, l);
}
static PUT(literal) {
    struct hlo_module m = {.arena = a};
    struct parser t = text_parser(&m, text);
    struct cursor c = t.c;
    struct literal *l;
    status_t st = take_value(&t, &c, 0, &l);
    if (!st && p_at_end(&c)) st = pb_put_literal(a, l, l->shape, &p->literal);
    st_drop(st);
    return p->literal != NULL;
}
static GET(literal) {
    struct arena a = {0};
    struct hlo_module m = {.arena = &a};
    struct parser t = text_parser(&m, STR(""));
    struct literal *l;
    if (op != HLO_CUSTOM_CALL || !p->literal) return;
    status_t st = pb_get_literal(&t, p->literal, &l);
    if (!st) value_text(b, l);
    st_drop(st);
    arena_done(&a);
}

// ---- precision

static const char *const precisions[] = {"default", "high", "highest", NULL};
// PrecisionConfig.Algorithm from 1
static const char *const algorithms[] = {"",
                                         "dot_any_f8_any_f8_f32",
                                         "dot_any_f8_any_f8_f32_fast_accum",
                                         "dot_f16_f16_f16",
                                         "dot_f16_f16_f32",
                                         "dot_bf16_bf16_bf16",
                                         "dot_bf16_bf16_f32",
                                         "dot_bf16_bf16_f32_x3",
                                         "dot_bf16_bf16_f32_x6",
                                         "dot_tf32_tf32_f32",
                                         "dot_tf32_tf32_f32_x3",
                                         "dot_f32_f32_f32",
                                         "dot_f64_f64_f64",
                                         "dot_bf16_bf16_f32_x9",
                                         NULL};
static int index_of(const char *const *names, struct str word) {
    for (int k = 0; names[k]; k++)
        if (str_is(word, names[k])) return k;
    return -1;
}
static int count_of(const char *const *names) {
    int n = 0;
    while (names[n])
        n++;
    return n;
}
static void need_precision(struct arena *a, Xla__HloInstructionProto *p) {
    if (!p->precision_config)
        p->precision_config = message_new(a, &xla__precision_config__descriptor);
}
static PUT(operand_precision) {
    struct cursor c = over(text);
    need_precision(a, p);
    if (!p_take(&c, "{")) return false;
    while (!p_take(&c, "}")) {
        if (p->precision_config->n_operand_precision && !p_take(&c, ",")) return false;
        int v = index_of(precisions, p_word(&c));
        if (v < 0) return false;
        PB_PUSH(a, p->precision_config, operand_precision, v);
    }
    return true;
}
static GET(operand_precision) {
    const Xla__PrecisionConfig *c = p->precision_config;
    bool any = false;
    for (size_t k = 0; c && k < c->n_operand_precision; k++)
        any |= c->operand_precision[k] > 0 && c->operand_precision[k] < 3;
    if (!any) return;
    for (size_t k = 0; k < c->n_operand_precision; k++) {
        int v = c->operand_precision[k];
        strbuf_printf(b, "%s%s", k ? "," : "{", precisions[v >= 0 && v < 3 ? v : 0]);
    }
    strbuf_putc(b, '}');
}
static PUT(algorithm) {
    int v = index_of(algorithms, text);
    need_precision(a, p);
    p->precision_config->algorithm = v > 0 ? v : 0;
    return v > 0;
}
static GET(algorithm) {
    int v = p->precision_config ? p->precision_config->algorithm : 0;
    if (v > 0 && v < count_of(algorithms)) strbuf_puts(b, algorithms[v]);
}

// ---- strings, flags and single values

static ProtobufCBinaryData bytes_of(struct str s) {
    return (ProtobufCBinaryData){s.n, (uint8_t *)(uintptr_t)s.p};
}
// Opaque bytes; text in braces stands without quotes.
static PUT(backend_config) {
    p->backend_config = bytes_of(p_is_string(text) ? p_unescape(a, text) : text);
    return true;
}
static GET(backend_config) {
    struct str s = {(const char *)p->backend_config.data, p->backend_config.len};
    if (p_is_braced(s))
        strbuf_add(b, s.p, s.n);
    else if (s.n)
        hlo_quote(b, s);
}
static PUT(async_execution_thread) {
    p->async_execution_thread = (char *)(uintptr_t)(p_is_string(text) ? p_unescape(a, text).p : "");
    return true;
}
static GET(async_execution_thread) {
    if (p->async_execution_thread[0]) hlo_quote(b, str_of(p->async_execution_thread));
}
static PUT(is_composite) {
    p->is_composite = str_is(text, "true");
    return true;
}
static GET(is_composite) {
    if (p->is_composite) strbuf_puts(b, "true");
}
// The case of the oneof: its field number.
enum { PREFETCH_GIVEN = 80 };
static PUT(cross_program_prefetch_index) {
    int64_t v;
    if (!str_to_i64(text, &v) || v != (int32_t)v) return false;
    p->cross_program_prefetch_index = (int32_t)v;
    p->optional_cross_program_prefetch_index_case = (int)PREFETCH_GIVEN;
    return true;
}
static GET(cross_program_prefetch_index) {
    if ((int)p->optional_cross_program_prefetch_index_case == PREFETCH_GIVEN)
        strbuf_printf(b, "%d", p->cross_program_prefetch_index);
}
static const char *const schedules[] = {"SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST",
                                        NULL};
static PUT(schedule) {
    int v = index_of(schedules, text);
    p->custom_call_schedule = v > 0 ? v : 0;
    return v > 0;
}
static GET(schedule) {
    int v = p->custom_call_schedule;
    if (v > 0 && v < 3) strbuf_puts(b, schedules[v]);
}
static const char *const paddings[] = {"PADDING_INVALID", "PADDING_VALID", "PADDING_SAME", NULL};
static PUT(padding_type) {
    int v = index_of(paddings, text);
    p->padding_type = v > 0 ? v : 0;
    return v > 0;
}
static GET(padding_type) {
    if (p->padding_type > 0 && p->padding_type < 3) strbuf_puts(b, paddings[p->padding_type]);
}
static PUT(parameter_replication) {
    struct cursor c = over(text);
    p->parameter_replication = message_new(a, &xla__parameter_replication__descriptor);
    if (!p_take(&c, "{")) return false;
    do {
        bool yes = p_take(&c, "true");
        if (!yes && !p_take(&c, "false")) return false;
        PB_PUSH(a, p->parameter_replication, replicated_at_leaf_buffers, yes);
    } while (p_take(&c, ","));
    return p_take(&c, "}");
}
static GET(parameter_replication) {
    const Xla__ParameterReplication *r = p->parameter_replication;
    for (size_t k = 0; r && k < r->n_replicated_at_leaf_buffers; k++)
        strbuf_printf(b, "%s%s", k ? "," : "{",
                      r->replicated_at_leaf_buffers[k] ? "true" : "false");
    if (r && r->n_replicated_at_leaf_buffers) strbuf_putc(b, '}');
}
// {visualizing_index=1,name=33,...}
static PUT(statistics) {
    struct cursor c = over(text);
    Xla__StatisticsViz *v = message_new(a, &xla__statistics_viz__descriptor);
    if (!p_take(&c, "{visualizing_index=") || !p_i64(&c, &v->stat_index_to_visualize)) return false;
    while (p_take(&c, ",")) {
        Xla__Statistic *s = message_new(a, &xla__statistic__descriptor);
        struct str name = p_word(&c);
        if (!p_take(&c, "=") || !str_to_f64(p_cut(&c, ","), &s->stat_val)) return false;
        s->stat_name = arena_strndup(a, name.p, name.n);
        PB_PUSH(a, v, statistics, s);
    }
    p->statistics_viz = v;
    return p_take(&c, "}");
}
static GET(statistics) {
    const Xla__StatisticsViz *v = p->statistics_viz;
    if (!v || !v->n_statistics) return;
    for (size_t k = 0; k < v->n_statistics; k++) { // names are words, values numbers, or nothing
        struct cursor c = {v->statistics[k]->stat_name,
                           v->statistics[k]->stat_name + strlen(v->statistics[k]->stat_name)};
        if (!p_word(&c).n || !p_at_end(&c) || !isfinite(v->statistics[k]->stat_val)) return;
    }
    strbuf_printf(b, "{visualizing_index=%lld", (long long)v->stat_index_to_visualize);
    for (size_t k = 0; k < v->n_statistics; k++)
        strbuf_printf(b, ",%s=%.17g", v->statistics[k]->stat_name, v->statistics[k]->stat_val);
    strbuf_putc(b, '}');
}

// {mode=highest}, {tolerance={atol=1,rtol=0.5,ulps=2}}
static bool put_tolerance(struct cursor *c, Xla__ResultAccuracy__Tolerance *t) {
    do {
        struct str name = p_word(c), value;
        if (!p_take(c, "=")) return false;
        value = p_cut(c, ",");
        bool ok = str_is(name, "atol")   ? str_to_f64(value, &t->atol)
                  : str_is(name, "rtol") ? str_to_f64(value, &t->rtol)
                  : str_is(name, "ulps") ? str_to_i64(value, &t->ulps)
                                         : false;
        if (!ok) return false;
    } while (p_take(c, ","));
    return p_take(c, "}");
}
static PUT(result_accuracy) {
    struct cursor c = over(text);
    Xla__ResultAccuracy *r = message_new(a, &xla__result_accuracy__descriptor);
    if (p_take(&c, "{mode=")) {
        r->mode = p_take(&c, "highest");
        r->specs_case = XLA__RESULT_ACCURACY__SPECS_MODE;
    } else {
        if (!p_take(&c, "{tolerance={")) return false;
        r->tolerance = message_new(a, &xla__result_accuracy__tolerance__descriptor);
        r->specs_case = XLA__RESULT_ACCURACY__SPECS_TOLERANCE;
        if (!put_tolerance(&c, r->tolerance)) return false;
    }
    p->result_accuracy = r;
    return true;
}
static GET(result_accuracy) {
    const Xla__ResultAccuracy *r = p->result_accuracy;
    if (r && r->specs_case == XLA__RESULT_ACCURACY__SPECS_MODE && r->mode == 1)
        strbuf_puts(b, "{mode=highest}");
    if (r && r->specs_case == XLA__RESULT_ACCURACY__SPECS_TOLERANCE && r->tolerance &&
        isfinite(r->tolerance->atol) && isfinite(r->tolerance->rtol))
        strbuf_printf(b, "{tolerance={atol=%.17g,rtol=%.17g,ulps=%lld}}", r->tolerance->atol,
                      r->tolerance->rtol, (long long)r->tolerance->ulps);
}
// {lhs={sparsity=1x4 dimension=1 stride=1} rhs={...}}
static PUT(sparsity_config) {
    struct cursor c = over(text);
    Xla__SparsityConfig *s = message_new(a, &xla__sparsity_config__descriptor);
    if (!p_take(&c, "{")) return false;
    while (!p_take(&c, "}")) {
        bool left = p_take(&c, "lhs={"), n = left || p_take(&c, "rhs={");
        Xla__SparsityConfig__Side *d = message_new(a, &xla__sparsity_config__side__descriptor);
        if (!n || !p_take(&c, "sparsity=") || !p_i64(&c, &d->n) || !p_take(&c, "x") ||
            !p_i64(&c, &d->m) || !p_take(&c, "dimension=") || !p_i64(&c, &d->dimension) ||
            !p_take(&c, "stride=") || !p_i64(&c, &d->stride) || !p_take(&c, "}"))
            return false;
        *(left ? &s->lhs : &s->rhs) = d;
    }
    p->sparsity_config = s;
    return true;
}
static void side_text(struct strbuf *b, const char *sep, const char *name,
                      const Xla__SparsityConfig__Side *d) {
    if (d)
        strbuf_printf(b, "%s%s={sparsity=%lldx%lld dimension=%lld stride=%lld}", sep, name,
                      (long long)d->n, (long long)d->m, (long long)d->dimension,
                      (long long)d->stride);
}
static GET(sparsity_config) {
    const Xla__SparsityConfig *s = p->sparsity_config;
    if (!s || (!s->lhs && !s->rhs)) return;
    strbuf_putc(b, '{');
    side_text(b, "", "lhs", s->lhs);
    side_text(b, s->lhs ? " " : "", "rhs", s->rhs);
    strbuf_putc(b, '}');
}

// ---- aliasing and shapes

// {{0}: (1, {}), {1}: (0, {0})}
static PUT(output_to_operand_aliasing) {
    struct cursor c = over(text);
    if (!p_take(&c, "{")) return false;
    do {
        Xla__OutputOperandAliasing *e = message_new(a, &xla__output_operand_aliasing__descriptor);
        if (!TAKE_LIST(a, &c, "{", "}", e, output_shape_index) || !p_take(&c, ":") ||
            !p_take(&c, "(") || !p_i64(&c, &e->operand_index) || !p_take(&c, ",") ||
            !TAKE_LIST(a, &c, "{", "}", e, operand_shape_index) || !p_take(&c, ")"))
            return false;
        PB_PUSH(a, p, output_operand_aliasing, e);
    } while (p_take(&c, ","));
    return p_take(&c, "}");
}
static GET(output_to_operand_aliasing) {
    for (size_t k = 0; k < p->n_output_operand_aliasing; k++) {
        const Xla__OutputOperandAliasing *e = p->output_operand_aliasing[k];
        strbuf_puts(b, k ? ", " : "{");
        PUT_LIST(b, "{", "}: (", e, output_shape_index);
        strbuf_printf(b, "%lld, ", (long long)e->operand_index);
        PUT_LIST(b, "{", "})", e, operand_shape_index);
    }
    if (p->n_output_operand_aliasing) strbuf_putc(b, '}');
}
// Shapes from kept text; false on anything wrong.
static bool take_shape(struct arena *a, struct cursor *c, Xla__ShapeProto **out) {
    struct hlo_module m = {.arena = a};
    struct parser p = {.m = &m, .start = c->p, .c = *c, .limits = {.max_depth = 64}};
    const struct shape *s;
    status_t st = p_shape(&p, c, 0, &s);
    if (!st) st = pb_put_shape(a, s, out);
    bool ok = st == ST_OK;
    st_drop(st);
    return ok;
}
static PUT(operand_layout_constraints) {
    struct cursor c = over(text);
    p->constrain_layout = true;
    if (!p_take(&c, "{")) return false;
    while (!p_take(&c, "}")) {
        Xla__ShapeProto *s;
        if (p->n_operand_shapes_with_layout && !p_take(&c, ",")) return false;
        if (!take_shape(a, &c, &s)) return false;
        PB_PUSH(a, p, operand_shapes_with_layout, s);
    }
    return true;
}
static GET(operand_layout_constraints) {
    if (op != HLO_CUSTOM_CALL || !p->constrain_layout) return;
    strbuf_putc(b, '{');
    for (size_t k = 0; k < p->n_operand_shapes_with_layout; k++) {
        if (k) strbuf_puts(b, ", ");
        pb_shape_text(b, p->operand_shapes_with_layout[k]);
    }
    strbuf_putc(b, '}');
}
static PUT(outfeed_shape) {
    struct cursor c = over(text);
    return take_shape(a, &c, &p->outfeed_shape) && p_at_end(&c);
}
static GET(outfeed_shape) {
    if (p->outfeed_shape) pb_shape_text(b, p->outfeed_shape);
}

#define ROW(name) {#name, pb_row_put_##name, pb_row_get_##name}
const struct pb_kept pb_kept_rows[] = {ROW(sharding),
                                       ROW(domain),
                                       ROW(replica_groups),
                                       ROW(source_target_pairs),
                                       ROW(slice_sizes),
                                       ROW(window),
                                       ROW(dim_labels),
                                       ROW(feature_group_count),
                                       ROW(batch_group_count),
                                       ROW(literal),
                                       ROW(operand_precision),
                                       ROW(algorithm),
                                       ROW(backend_config),
                                       ROW(async_execution_thread),
                                       ROW(is_composite),
                                       ROW(cross_program_prefetch_index),
                                       ROW(schedule),
                                       ROW(padding_type),
                                       ROW(parameter_replication),
                                       ROW(statistics),
                                       ROW(result_accuracy),
                                       ROW(sparsity_config),
                                       ROW(output_to_operand_aliasing),
                                       ROW(operand_layout_constraints),
                                       ROW(outfeed_shape),
                                       {0}};
const struct pb_kept *pb_kept_find(struct str name) {
    for (const struct pb_kept *row = pb_kept_rows; row->name; row++)
        if (str_is(name, row->name)) return row;
    return NULL;
}

// ---- of the module

static void put_alias(struct arena *a, struct cursor *c, Xla__HloModuleProto *p) {
    p->input_output_alias = message_new(a, &xla__hlo_input_output_alias_proto__descriptor);
    if (!p_take(c, "{")) return;
    while (p_peek(c, '{')) {
        Xla__HloInputOutputAliasProto__AliasEntryProto *e =
            message_new(a, &xla__hlo_input_output_alias_proto__alias_entry_proto__descriptor);
        if (!TAKE_LIST(a, c, "{", "}", e, output_shape_index) || !p_take(c, ":") ||
            !p_take(c, "(") || !p_i64(c, &e->parameter_number) || !p_take(c, ",") ||
            !TAKE_LIST(a, c, "{", "}", e, parameter_shape_index))
            return;
        e->kind = 1;
        if (p_take(c, ",")) e->kind = p_take(c, "must-alias") ? 2 : (p_take(c, "may-alias"), 1);
        if (!p_take(c, ")")) return;
        PB_PUSH(a, p->input_output_alias, entries, e);
        p_take(c, ",");
    }
}
static void alias_text(struct strbuf *b, const Xla__HloInputOutputAliasProto *v) {
    for (size_t k = 0; v && k < v->n_entries; k++) {
        strbuf_puts(b, k ? ", " : "{ ");
        PUT_LIST(b, "{", "}: (", v->entries[k], output_shape_index);
        strbuf_printf(b, "%lld, ", (long long)v->entries[k]->parameter_number);
        PUT_LIST(b, "{", "}", v->entries[k], parameter_shape_index);
        strbuf_puts(b, v->entries[k]->kind == 2 ? ", must-alias)" : ", may-alias)");
    }
    if (v && v->n_entries) strbuf_puts(b, " }");
}
static void put_donor(struct arena *a, struct cursor *c, Xla__HloModuleProto *p) {
    p->buffer_donor = message_new(a, &xla__hlo_buffer_donor_proto__descriptor);
    if (!p_take(c, "{")) return;
    while (p_take(c, "(")) {
        Xla__HloBufferDonorProto__BufferDonorEntryProto *e =
            message_new(a, &xla__hlo_buffer_donor_proto__buffer_donor_entry_proto__descriptor);
        if (!p_i64(c, &e->parameter_number) || !p_take(c, ",") ||
            !TAKE_LIST(a, c, "{", "}", e, parameter_shape_index) || !p_take(c, ")"))
            return;
        PB_PUSH(a, p->buffer_donor, entries, e);
        p_take(c, ",");
    }
}
static void donor_text(struct strbuf *b, const Xla__HloBufferDonorProto *v) {
    for (size_t k = 0; v && k < v->n_entries; k++) {
        strbuf_puts(b, k ? ", " : "{ ");
        strbuf_printf(b, "(%lld, ", (long long)v->entries[k]->parameter_number);
        PUT_LIST(b, "{", "})", v->entries[k], parameter_shape_index);
    }
    if (v && v->n_entries) strbuf_puts(b, " }");
}
// The order of instructions is the schedule.
static void put_schedule_of(struct arena *a, Xla__HloModuleProto *p) {
    p->schedule = message_new(a, &xla__hlo_schedule_proto__descriptor);
    for (size_t k = 0; k < p->n_computations; k++) {
        const Xla__HloComputationProto *c = p->computations[k];
        if (c->is_fusion_computation) continue;
        Xla__HloScheduleProto__Entry *e =
            message_new(a, &xla__hlo_schedule_proto__entry__descriptor);
        e->key = c->id;
        e->value = message_new(a, &xla__hlo_schedule_proto__instruction_sequence__descriptor);
        for (size_t j = 0; j < c->n_instructions; j++)
            PB_PUSH(a, e->value, instruction_ids, c->instructions[j]->id);
        PB_PUSH(a, p->schedule, sequences, e);
    }
}
void pb_put_module_attr(struct arena *a, struct str name, struct str text, Xla__HloModuleProto *p) {
    struct cursor c = over(text);
    if (str_is(name, "is_scheduled") && str_is(text, "true")) put_schedule_of(a, p);
    if (str_is(name, "input_output_alias")) put_alias(a, &c, p);
    if (str_is(name, "buffer_donor")) put_donor(a, &c, p);
}
void pb_get_module_attr(struct strbuf *b, struct str name, const Xla__HloModuleProto *p) {
    if (str_is(name, "is_scheduled") && p->schedule && p->schedule->n_sequences)
        strbuf_puts(b, "true");
    if (str_is(name, "input_output_alias")) alias_text(b, p->input_output_alias);
    if (str_is(name, "buffer_donor")) donor_text(b, p->buffer_donor);
}
