// SPDX-License-Identifier: Apache-2.0
// Rows of kept attributes about devices: shardings, groups of participants, permutations. hlod runs
// on one participant and only keeps them.
#include "compiler/frontend/hlo/hlo_pb_kept.h"

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
    Xla__OpSharding *s = *out = message_new(a, &xla__op_sharding__descriptor);
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
        message_new(a, &xla__iota_replica_group_list_proto__descriptor);
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
// 'name'
static char *take_axis(struct arena *a, struct cursor *c) {
    if (!p_take(c, "'")) return NULL;
    struct str w = p_word(c);
    return w.n && p_take(c, "'") ? arena_strndup(a, w.p, w.n) : NULL;
}
// mesh['a'=2,'b'=2] {'b'}; other forms (orders of devices, parts of axes) stay text
static bool put_mesh(struct arena *a, struct cursor *c, Xla__HloInstructionProto *p) {
    Xla__MeshAxesReplicaGroupListProto *l =
        message_new(a, &xla__mesh_axes_replica_group_list_proto__descriptor);
    l->mesh = message_new(a, &xla__mesh_proto__descriptor);
    do {
        Xla__MeshProto__MeshAxis *x = message_new(a, &xla__mesh_proto__mesh_axis__descriptor);
        x->name = take_axis(a, c);
        if (!x->name || !p_take(c, "=") || !p_i64(c, &x->size)) return false;
        PB_PUSH(a, l->mesh, axes, x);
    } while (p_take(c, ","));
    if (!p_take(c, "]") || !p_take(c, "{")) return false;
    do {
        Xla__AxisRefProto *r = message_new(a, &xla__axis_ref_proto__descriptor);
        char *name = take_axis(a, c);
        size_t k = 0;
        while (name && k < l->mesh->n_axes && strcmp(name, l->mesh->axes[k]->name) != 0)
            k++;
        if (!name || k == l->mesh->n_axes) return false;
        r->mesh_axis_index = (int64_t)k;
        PB_PUSH(a, l, axes, r);
    } while (p_take(c, ","));
    if (p_take(c, "}") && p_at_end(c)) p->mesh_axes_device_list = l;
    return p->mesh_axes_device_list != NULL;
}
static void mesh_text(struct strbuf *b, const Xla__MeshAxesReplicaGroupListProto *l) {
    const Xla__MeshProto *m = l->mesh;
    for (size_t k = 0; m && k < m->n_axes; k++) { // names are words, or it has no text
        struct cursor c = {m->axes[k]->name, m->axes[k]->name + strlen(m->axes[k]->name)};
        if (!p_word(&c).n || !p_at_end(&c)) return;
    }
    for (size_t k = 0; k < l->n_axes; k++)
        if (!m || l->axes[k]->sub_axis_info || l->axes[k]->mesh_axis_index < 0 ||
            l->axes[k]->mesh_axis_index >= (int64_t)m->n_axes)
            return;
    if (!m || m->n_device_ids || !m->n_axes) return;
    for (size_t k = 0; k < m->n_axes; k++)
        strbuf_printf(b, "%s'%s'=%lld", k ? "," : "mesh[", m->axes[k]->name,
                      (long long)m->axes[k]->size);
    strbuf_puts(b, "] {");
    for (size_t k = 0; k < l->n_axes; k++)
        strbuf_printf(b, "%s'%s'", k ? "," : "", m->axes[l->axes[k]->mesh_axis_index]->name);
    strbuf_putc(b, '}');
}
PUT(replica_groups) {
    struct cursor c = over(text);
    if (p_peek(&c, '[')) return put_iota_groups(a, &c, p);
    Xla__CollectiveDeviceListProto *l =
        message_new(a, &xla__collective_device_list_proto__descriptor);
    if (p_take(&c, "mesh[")) return put_mesh(a, &c, p);
    if (!p_take(&c, "{")) return false;
    while (!p_take(&c, "}")) {
        Xla__ReplicaGroup *g = message_new(a, &xla__replica_group__descriptor);
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
    const Xla__CollectiveDeviceListProto *l = p->collective_device_list;
    if (p->mesh_axes_device_list)
        mesh_text(b, p->mesh_axes_device_list);
    else if (p->iota_collective_device_list)
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
        Xla__SourceTarget *s = message_new(a, &xla__source_target__descriptor);
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
        else if (!p_at_end(&c)) // p_i64 may have passed digits that are no number
            c.p++;
    return true;
}
// They are as long as the rank of what is permuted.
static size_t rank_of(const Xla__ShapeProto *s) {
    while (s && s->n_tuple_shapes)
        s = s->tuple_shapes[0];
    return s ? s->n_dimensions : 0;
}
GET(slice_sizes) {
    size_t rank = rank_of(p->shape), n = p->n_dynamic_slice_sizes;
    if ((op != HLO_COLLECTIVE_PERMUTE && op != HLO_COLLECTIVE_PERMUTE_START) || !rank || !n) return;
    strbuf_putc(b, '{');
    for (size_t k = 0; k < n; k++)
        strbuf_printf(b, "%s%lld",
                      k % rank ? ","
                      : k      ? "},{"
                               : "{",
                      (long long)p->dynamic_slice_sizes[k]);
    strbuf_puts(b, "}}");
}
