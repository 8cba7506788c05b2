// SPDX-License-Identifier: Apache-2.0
// One row for each kept attribute that HloInstructionProto has fields for. The text that a get
// function writes is in the text parser's normal form, with XLA's commas.
#include <math.h>

#include "compiler/frontend/hlo_pb_kept.h"

#define PUT(name)                                                                                  \
    static bool put_##name(struct arena *a, struct str text, Xla__HloInstructionProto *p)
#define GET(name)                                                                                  \
    static void get_##name(struct strbuf *b, enum hlo_op op, const Xla__HloInstructionProto *p)

static struct cursor over(struct str s) {
    return (struct cursor){s.p, s.p + s.n};
}

// ---- lists of numbers

// "{1,2}" or "[1,2]" into a repeated field; false when it is something else.
#define TAKE_LIST(a, c, open, close, p, field)                                                     \
    ({                                                                                             \
        int64_t v_;                                                                                \
        bool ok_ = p_take(c, open);                                                                \
        while (ok_ && !p_take(c, close)) {                                                         \
            ok_ = ((p)->n_##field == 0 || p_take(c, ",")) && p_i64(c, &v_);                        \
            if (ok_) PB_PUSH(a, p, field, v_);                                                     \
        }                                                                                          \
        ok_;                                                                                       \
    })
#define PUT_LIST(b, open, close, p, field)                                                         \
    do {                                                                                           \
        strbuf_puts(b, open);                                                                      \
        for (size_t k_ = 0; k_ < (p)->n_##field; k_++)                                             \
            strbuf_printf(b, "%s%lld", k_ ? "," : "", (long long)(p)->field[k_]);                  \
        strbuf_puts(b, close);                                                                     \
    } while (0)

// ---- sharding: {replicated}, {maximal device=0}, {devices=[2,2]<=[4]}, {{...},{...}}

static const char *const shard_types[] = {"replicated", "maximal", NULL,        NULL,
                                          "manual",     "unknown", "unreduced", NULL};
enum { SHARD_MAXIMAL = 1, SHARD_TUPLE = 2, SHARD_OTHER = 3, N_SHARD_TYPES = 7 };

static int shard_type(struct str word) {
    for (int k = 0; k < N_SHARD_TYPES; k++)
        if (shard_types[k] && str_is(word, shard_types[k])) return k;
    return -1;
}
// devices=[2,2]0,1,2,3 or devices=[2,2]<=[2,2]T(1,0), then what the last dimensions mean
static bool take_tiles(struct arena *a, struct cursor *c, Xla__OpSharding *s) {
    int64_t v;
    s->type = SHARD_OTHER;
    if (!TAKE_LIST(a, c, "[", "]", s, tile_assignment_dimensions)) return false;
    if (p_take(c, "<=")) {
        if (!TAKE_LIST(a, c, "[", "]", s, iota_reshape_dims)) return false;
        if (p_take(c, "T")) {
            if (!TAKE_LIST(a, c, "(", ")", s, iota_transpose_perm)) return false;
        } else {
            for (size_t k = 0; k < s->n_iota_reshape_dims; k++)
                PB_PUSH(a, s, iota_transpose_perm, (int32_t)k);
        }
    } else {
        do {
            if (!p_i64(c, &v)) return false;
            PB_PUSH(a, s, tile_assignment_devices, v);
        } while (p_take(c, ","));
    }
    if (p_take(c, "last_tile_dim_replicate")) s->replicate_on_last_tile_dim = true;
    if (!p_take(c, "last_tile_dims={")) return true;
    do {
        int t = shard_type(p_word(c));
        if (t < 0) return false;
        PB_PUSH(a, s, last_tile_dims, t);
    } while (p_take(c, ","));
    return p_take(c, "}");
}
static bool take_sharding(struct arena *a, struct cursor *c, int depth, Xla__OpSharding **out) {
    Xla__OpSharding *s = *out = PB_NEW(a, Xla__OpSharding, xla__op_sharding__init);
    if (depth > 8 || !p_take(c, "{")) return false;
    if (p_peek(c, '{')) {
        s->type = SHARD_TUPLE;
        do {
            Xla__OpSharding *e;
            if (!take_sharding(a, c, depth + 1, &e)) return false;
            PB_PUSH(a, s, tuple_shardings, e);
        } while (p_take(c, ","));
        return p_take(c, "}");
    }
    if (p_take(c, "devices=")) return take_tiles(a, c, s) && p_take(c, "}");
    s->type = shard_type(p_word(c));
    if (s->type == SHARD_MAXIMAL) {
        int64_t device;
        if (!p_take(c, "device=") || !p_i64(c, &device)) return false;
        PB_PUSH(a, s, tile_assignment_dimensions, 1);
        PB_PUSH(a, s, tile_assignment_devices, device);
    }
    return s->type >= 0 && p_take(c, "}");
}
static bool identity(const Xla__OpSharding *s) {
    for (size_t k = 0; k < s->n_iota_transpose_perm; k++)
        if (s->iota_transpose_perm[k] != (int32_t)k) return false;
    return true;
}
static void sharding_text(struct strbuf *b, const Xla__OpSharding *s) {
    strbuf_putc(b, '{');
    for (size_t k = 0; k < s->n_tuple_shardings; k++) {
        if (k) strbuf_puts(b, ", ");
        sharding_text(b, s->tuple_shardings[k]);
    }
    if (s->type == SHARD_MAXIMAL) {
        strbuf_printf(b, "maximal device=%lld",
                      s->n_tile_assignment_devices ? (long long)s->tile_assignment_devices[0] : 0);
    } else if (s->type == SHARD_OTHER) {
        strbuf_puts(b, "devices=");
        PUT_LIST(b, "[", "]", s, tile_assignment_dimensions);
        if (s->n_iota_reshape_dims) {
            PUT_LIST(b, "<=[", "]", s, iota_reshape_dims);
            if (!identity(s)) PUT_LIST(b, "T(", ")", s, iota_transpose_perm);
        } else {
            PUT_LIST(b, "", "", s, tile_assignment_devices);
        }
        if (s->replicate_on_last_tile_dim) strbuf_puts(b, " last_tile_dim_replicate");
        for (size_t k = 0; k < s->n_last_tile_dims; k++) {
            int t = s->last_tile_dims[k];
            bool known = t >= 0 && t < N_SHARD_TYPES && shard_types[t];
            strbuf_printf(b, "%s%s", k ? ", " : " last_tile_dims={",
                          known ? shard_types[t] : "unknown");
        }
        if (s->n_last_tile_dims) strbuf_putc(b, '}');
    } else if (s->type >= 0 && s->type < N_SHARD_TYPES && shard_types[s->type]) {
        strbuf_puts(b, shard_types[s->type]);
    }
    strbuf_putc(b, '}');
}
PUT(sharding) {
    struct cursor c = over(text);
    if (take_sharding(a, &c, 0, &p->sharding) && p_at_end(&c)) return true;
    p->sharding = NULL; // metadata and other forms
    return false;
}
GET(sharding) {
    (void)op;
    if (p->sharding) sharding_text(b, p->sharding);
}
PUT(domain) {
    struct cursor c = over(text);
    if (p_take(&c, "{kind=\"sharding\"") && p_take(&c, ",") && p_take(&c, "entry=") &&
        take_sharding(a, &c, 0, &p->domain_entry_sharding) && p_take(&c, ",") &&
        p_take(&c, "exit=") && take_sharding(a, &c, 0, &p->domain_exit_sharding) && p_take(&c, "}"))
        return true;
    p->domain_entry_sharding = p->domain_exit_sharding = NULL;
    return false;
}
GET(domain) {
    (void)op;
    if (!p->domain_entry_sharding || !p->domain_exit_sharding) return;
    strbuf_puts(b, "{kind=\"sharding\", entry=");
    sharding_text(b, p->domain_entry_sharding);
    strbuf_puts(b, ", exit=");
    sharding_text(b, p->domain_exit_sharding);
    strbuf_putc(b, '}');
}

// ---- participants of collectives

static bool put_iota_groups(struct arena *a, struct cursor *c, Xla__HloInstructionProto *p) {
    Xla__IotaReplicaGroupListProto *g =
        PB_NEW(a, Xla__IotaReplicaGroupListProto, xla__iota_replica_group_list_proto__init);
    bool ok = p_take(c, "[") && p_i64(c, &g->num_replica_groups) && p_take(c, ",") &&
              p_i64(c, &g->num_devices_per_group) && p_take(c, "]") && p_take(c, "<=") &&
              TAKE_LIST(a, c, "[", "]", g, iota_reshape_dims);
    if (ok && p_take(c, "T")) {
        ok = TAKE_LIST(a, c, "(", ")", g, iota_transpose_perm);
    } else {
        for (size_t k = 0; k < g->n_iota_reshape_dims; k++)
            PB_PUSH(a, g, iota_transpose_perm, (int32_t)k);
    }
    if (ok && p_at_end(c)) p->iota_collective_device_list = g;
    return p->iota_collective_device_list != NULL;
}
PUT(replica_groups) {
    struct cursor c = over(text);
    if (p_peek(&c, '[')) return put_iota_groups(a, &c, p);
    Xla__CollectiveDeviceListProto *l =
        PB_NEW(a, Xla__CollectiveDeviceListProto, xla__collective_device_list_proto__init);
    if (!p_take(&c, "{")) return false; // a mesh
    while (!p_take(&c, "}")) {
        Xla__ReplicaGroup *g = PB_NEW(a, Xla__ReplicaGroup, xla__replica_group__init);
        if (l->n_replica_groups && !p_take(&c, ",")) return false;
        if (!TAKE_LIST(a, &c, "{", "}", g, replica_ids)) return false;
        PB_PUSH(a, l, replica_groups, g);
    }
    p->collective_device_list = l;
    return true;
}
static void groups_text(struct strbuf *b, Xla__ReplicaGroup *const *v, size_t n) {
    strbuf_putc(b, '{');
    for (size_t k = 0; k < n; k++) {
        if (k) strbuf_putc(b, ',');
        PUT_LIST(b, "{", "}", v[k], replica_ids);
    }
    strbuf_putc(b, '}');
}
static void iota_text(struct strbuf *b, const Xla__IotaReplicaGroupListProto *g) {
    bool plain = true;
    for (size_t k = 0; k < g->n_iota_transpose_perm; k++)
        plain &= g->iota_transpose_perm[k] == (int32_t)k;
    strbuf_printf(b, "[%lld,%lld]<=", (long long)g->num_replica_groups,
                  (long long)g->num_devices_per_group);
    PUT_LIST(b, "[", "]", g, iota_reshape_dims);
    if (!plain) PUT_LIST(b, "T(", ")", g, iota_transpose_perm);
}
GET(replica_groups) {
    (void)op;
    const Xla__CollectiveDeviceListProto *l = p->collective_device_list;
    if (p->iota_collective_device_list)
        iota_text(b, p->iota_collective_device_list);
    else if (l && l->iota_replica_group_list)
        iota_text(b, l->iota_replica_group_list);
    else if (l)
        groups_text(b, l->replica_groups, l->n_replica_groups);
    else if (p->n_replica_groups)
        groups_text(b, p->replica_groups, p->n_replica_groups);
}
PUT(source_target_pairs) {
    struct cursor c = over(text);
    if (!p_take(&c, "{")) return false;
    while (!p_take(&c, "}")) {
        Xla__SourceTarget *s = PB_NEW(a, Xla__SourceTarget, xla__source_target__init);
        if (p->n_source_target_pairs && !p_take(&c, ",")) return false;
        if (!p_take(&c, "{") || !p_i64(&c, &s->source) || !p_take(&c, ",") ||
            !p_i64(&c, &s->target) || !p_take(&c, "}"))
            return false;
        PB_PUSH(a, p, source_target_pairs, s);
    }
    return true;
}
GET(source_target_pairs) {
    bool permute = op == HLO_COLLECTIVE_PERMUTE || op == HLO_COLLECTIVE_PERMUTE_START;
    if (!permute && !p->n_source_target_pairs) return;
    strbuf_putc(b, '{');
    for (size_t k = 0; k < p->n_source_target_pairs; k++)
        strbuf_printf(b, "%s{%lld,%lld}", k ? "," : "",
                      (long long)p->source_target_pairs[k]->source,
                      (long long)p->source_target_pairs[k]->target);
    strbuf_putc(b, '}');
}
// Of an in-place permutation: lists of sizes, one after the other.
PUT(slice_sizes) {
    struct cursor c = over(text);
    int64_t v;
    while (!p_at_end(&c))
        if (p_i64(&c, &v))
            PB_PUSH(a, p, dynamic_slice_sizes, v);
        else
            c.p++;
    return true;
}
GET(nothing) {
    (void)b, (void)op, (void)p;
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
        p->precision_config = PB_NEW(a, Xla__PrecisionConfig, xla__precision_config__init);
}
PUT(operand_precision) {
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
GET(operand_precision) {
    (void)op;
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
PUT(algorithm) {
    int v = index_of(algorithms, text);
    need_precision(a, p);
    p->precision_config->algorithm = v > 0 ? v : 0;
    return v > 0;
}
GET(algorithm) {
    (void)op;
    int v = p->precision_config ? p->precision_config->algorithm : 0;
    if (v > 0 && v < count_of(algorithms)) strbuf_puts(b, algorithms[v]);
}

// ---- strings, flags and single values

static ProtobufCBinaryData bytes_of(struct str s) {
    return (ProtobufCBinaryData){s.n, (uint8_t *)(uintptr_t)s.p};
}
// Opaque bytes; text in braces stands without quotes.
PUT(backend_config) {
    p->backend_config = bytes_of(p_is_string(text) ? p_unescape(a, text) : text);
    return true;
}
GET(backend_config) {
    (void)op;
    struct str s = {(const char *)p->backend_config.data, p->backend_config.len};
    if (p_is_braced(s))
        strbuf_add(b, s.p, s.n);
    else if (s.n)
        hlo_quote(b, s);
}
PUT(async_execution_thread) {
    p->async_execution_thread = (char *)(uintptr_t)(p_is_string(text) ? p_unescape(a, text).p : "");
    return true;
}
GET(async_execution_thread) {
    (void)op;
    if (p->async_execution_thread[0]) hlo_quote(b, str_of(p->async_execution_thread));
}
PUT(is_composite) {
    (void)a;
    p->is_composite = str_is(text, "true");
    return true;
}
GET(is_composite) {
    (void)op;
    if (p->is_composite) strbuf_puts(b, "true");
}
// The case of the oneof: its field number.
enum { PREFETCH_GIVEN = 80 };
PUT(cross_program_prefetch_index) {
    int64_t v;
    (void)a;
    if (!str_to_i64(text, &v) || v != (int32_t)v) return false;
    p->cross_program_prefetch_index = (int32_t)v;
    p->optional_cross_program_prefetch_index_case = (int)PREFETCH_GIVEN;
    return true;
}
GET(cross_program_prefetch_index) {
    (void)op;
    if ((int)p->optional_cross_program_prefetch_index_case == PREFETCH_GIVEN)
        strbuf_printf(b, "%d", p->cross_program_prefetch_index);
}
static const char *const schedules[] = {"SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST",
                                        NULL};
PUT(schedule) {
    int v = index_of(schedules, text);
    (void)a;
    p->custom_call_schedule = v > 0 ? v : 0;
    return v > 0;
}
GET(schedule) {
    (void)op;
    int v = p->custom_call_schedule;
    if (v > 0 && v < 3) strbuf_puts(b, schedules[v]);
}
static const char *const paddings[] = {"PADDING_INVALID", "PADDING_VALID", "PADDING_SAME", NULL};
PUT(padding_type) {
    int v = index_of(paddings, text);
    (void)a;
    p->padding_type = v > 0 ? v : 0;
    return v > 0;
}
GET(padding_type) {
    (void)op;
    if (p->padding_type > 0 && p->padding_type < 3) strbuf_puts(b, paddings[p->padding_type]);
}
PUT(parameter_replication) {
    struct cursor c = over(text);
    p->parameter_replication =
        PB_NEW(a, Xla__ParameterReplication, xla__parameter_replication__init);
    if (!p_take(&c, "{")) return false;
    do {
        bool yes = p_take(&c, "true");
        if (!yes && !p_take(&c, "false")) return false;
        PB_PUSH(a, p->parameter_replication, replicated_at_leaf_buffers, yes);
    } while (p_take(&c, ","));
    return p_take(&c, "}");
}
GET(parameter_replication) {
    (void)op;
    const Xla__ParameterReplication *r = p->parameter_replication;
    for (size_t k = 0; r && k < r->n_replicated_at_leaf_buffers; k++)
        strbuf_printf(b, "%s%s", k ? "," : "{",
                      r->replicated_at_leaf_buffers[k] ? "true" : "false");
    if (r && r->n_replicated_at_leaf_buffers) strbuf_putc(b, '}');
}
// {visualizing_index=1,name=33,...}
PUT(statistics) {
    struct cursor c = over(text);
    Xla__StatisticsViz *v = PB_NEW(a, Xla__StatisticsViz, xla__statistics_viz__init);
    if (!p_take(&c, "{visualizing_index=") || !p_i64(&c, &v->stat_index_to_visualize)) return false;
    while (p_take(&c, ",")) {
        Xla__Statistic *s = PB_NEW(a, Xla__Statistic, xla__statistic__init);
        struct str name = p_word(&c);
        if (!p_take(&c, "=") || !str_to_f64(p_cut(&c, ","), &s->stat_val)) return false;
        s->stat_name = arena_strndup(a, name.p, name.n);
        PB_PUSH(a, v, statistics, s);
    }
    p->statistics_viz = v;
    return p_take(&c, "}");
}
GET(statistics) {
    (void)op;
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

// ---- aliasing and shapes

// {{0}: (1, {}), {1}: (0, {0})}
PUT(output_to_operand_aliasing) {
    struct cursor c = over(text);
    if (!p_take(&c, "{")) return false;
    do {
        Xla__OutputOperandAliasing *e =
            PB_NEW(a, Xla__OutputOperandAliasing, xla__output_operand_aliasing__init);
        if (!TAKE_LIST(a, &c, "{", "}", e, output_shape_index) || !p_take(&c, ":") ||
            !p_take(&c, "(") || !p_i64(&c, &e->operand_index) || !p_take(&c, ",") ||
            !TAKE_LIST(a, &c, "{", "}", e, operand_shape_index) || !p_take(&c, ")"))
            return false;
        PB_PUSH(a, p, output_operand_aliasing, e);
    } while (p_take(&c, ","));
    return p_take(&c, "}");
}
GET(output_to_operand_aliasing) {
    (void)op;
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
PUT(operand_layout_constraints) {
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
GET(operand_layout_constraints) {
    if (op != HLO_CUSTOM_CALL || !p->constrain_layout) return;
    strbuf_putc(b, '{');
    for (size_t k = 0; k < p->n_operand_shapes_with_layout; k++) {
        if (k) strbuf_puts(b, ", ");
        pb_shape_text(b, p->operand_shapes_with_layout[k]);
    }
    strbuf_putc(b, '}');
}
PUT(outfeed_shape) {
    struct cursor c = over(text);
    return take_shape(a, &c, &p->outfeed_shape) && p_at_end(&c);
}
GET(outfeed_shape) {
    (void)op;
    if (p->outfeed_shape) pb_shape_text(b, p->outfeed_shape);
}

#define ROW(name) {#name, put_##name, get_##name}
const struct pb_kept pb_kept_rows[] = {ROW(sharding),
                                       ROW(domain),
                                       ROW(replica_groups),
                                       ROW(source_target_pairs),
                                       {"slice_sizes", put_slice_sizes, get_nothing},
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
    p->input_output_alias =
        PB_NEW(a, Xla__HloInputOutputAliasProto, xla__hlo_input_output_alias_proto__init);
    if (!p_take(c, "{")) return;
    while (p_peek(c, '{')) {
        Xla__HloInputOutputAliasProto__AliasEntryProto *e =
            PB_NEW(a, Xla__HloInputOutputAliasProto__AliasEntryProto,
                   xla__hlo_input_output_alias_proto__alias_entry_proto__init);
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
    p->buffer_donor = PB_NEW(a, Xla__HloBufferDonorProto, xla__hlo_buffer_donor_proto__init);
    if (!p_take(c, "{")) return;
    while (p_take(c, "(")) {
        Xla__HloBufferDonorProto__BufferDonorEntryProto *e =
            PB_NEW(a, Xla__HloBufferDonorProto__BufferDonorEntryProto,
                   xla__hlo_buffer_donor_proto__buffer_donor_entry_proto__init);
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
    p->schedule = PB_NEW(a, Xla__HloScheduleProto, xla__hlo_schedule_proto__init);
    for (size_t k = 0; k < p->n_computations; k++) {
        const Xla__HloComputationProto *c = p->computations[k];
        if (c->is_fusion_computation) continue;
        Xla__HloScheduleProto__Entry *e =
            PB_NEW(a, Xla__HloScheduleProto__Entry, xla__hlo_schedule_proto__entry__init);
        e->key = c->id;
        e->value = PB_NEW(a, Xla__HloScheduleProto__InstructionSequence,
                          xla__hlo_schedule_proto__instruction_sequence__init);
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
