// SPDX-License-Identifier: Apache-2.0
// Ingest (D13): decides which initializers are weights, hashes them, writes the program with their
// bytes cut out, and the digest of the canonical graph.
//   source bytes -> model -> {signature, weights} -> program bytes (weights replaced by references)
//   -> digests
#include "compiler/frontend/onnx.h"

#include <stdio.h>

#include "base/map.h"
#include "compiler/frontend/onnx_lower.h"
#include "compiler/frontend/onnx_wire.h"
#include "proto/hlod.pb-c.h"

enum { BAKE_BYTES = 1024 };

bool onnx_sniff(struct span head) {
    // ModelProto begins with ir_version (field 1, varint) in every writer we know; otherwise with
    // producer_name or graph.
    if (head.n < 2) return false;
    if (head.p[0] == 0x08 && head.p[1] < 32) return true;
    return (head.p[0] == 0x12 || head.p[0] == 0x3a) && head.n > 4;
}

struct str onnx_dim_symbol(struct arena *a, const struct onnx_value *v, int d) {
    if (v->dims[d].symbol.n) return v->dims[d].symbol;
    return str_of(arena_printf(a, "_" STR_FMT "_%d", STR_ARG(v->name), d));
}

status_t onnx_check_supported(const struct onnx_model *m) {
    struct strbuf b = {0};
    int n = 0;
    strbuf_limit(&b, 64 * 1024);
    for (size_t k = 0; k < m->nodes.n; k++) {
        const struct onnx_node *node = &m->nodes.v[k];
        const char *why = NULL;
        if (node->domain.n)
            why = "operators of this domain are not supported";
        else if (!onnx_op_find(node->op, m->opset))
            why = "the operator is not supported";
        if (!why) continue;
        n++;
        strbuf_printf(&b, "\n  node %s, domain '" STR_FMT "', opset %lld: %s",
                      onnx_node_name(m->arena, node), STR_ARG(node->domain), (long long)m->opset,
                      why);
    }
    status_t st = n ? st_new(ST_INVALID_ARGUMENT, "%d unsupported node%s:%s", n, n > 1 ? "s" : "",
                             strbuf_cstr(&b))
                    : ST_OK;
    strbuf_done(&b);
    return st_reason(st, HLOD__V1__REASON__REASON_UNSUPPORTED_OP);
}

// ---- signature

static status_t sig_of(struct arena *a, const struct onnx_value *v, bool input,
                       struct sig_tensor *out) {
    struct sig_tensor t = {.name = arena_strndup(a, v->name.p, v->name.n),
                           .dtype = dtype_from_onnx(v->elem_type),
                           .rank = v->has_shape ? v->rank : -1};
    if (input && (!v->is_tensor || t.dtype == DT_INVALID || !v->has_shape))
        return st_new(ST_INVALID_ARGUMENT, "input '%s': %s", t.name,
                      !v->is_tensor           ? "only tensors are supported"
                      : t.dtype == DT_INVALID ? "the element type is not supported"
                                              : "it must declare a shape");
    t.dims = arena_zarray(a, struct sig_dim, v->rank + 1);
    for (int d = 0; d < v->rank; d++) {
        t.dims[d].size = v->dims[d].size;
        struct str symbol = onnx_dim_symbol(a, v, d);
        if (v->dims[d].size < 0) t.dims[d].symbol = arena_strndup(a, symbol.p, symbol.n);
    }
    *out = t;
    return ST_OK;
}

static status_t signature_of(struct arena *a, const struct onnx_model *m, struct signature *out) {
    *out = (struct signature){.n_in = (int32_t)m->inputs.n, .n_out = (int32_t)m->outputs.n};
    out->in = arena_zarray(a, struct sig_tensor, m->inputs.n + 1);
    out->out = arena_zarray(a, struct sig_tensor, m->outputs.n + 1);
    for (size_t k = 0; k < m->inputs.n; k++)
        RETURN_IF_ERR(sig_of(a, &m->inputs.v[k], true, &out->in[k]));
    for (size_t k = 0; k < m->outputs.n; k++)
        RETURN_IF_ERR(sig_of(a, &m->outputs.v[k], false, &out->out[k]));
    return ST_OK;
}

// ---- weights

// Names of initializers that feed a shape operand: their values must be in the program.
static void mark_shape_operands(const struct onnx_model *m, struct smap *out) {
    for (size_t k = 0; k < m->nodes.n; k++) {
        const struct onnx_node *n = &m->nodes.v[k];
        const struct onnx_op *op = onnx_op_find(n->op, m->opset);
        for (size_t i = 0; i < n->in.n && i < 32; i++)
            if (op && op->shape_inputs >> i & 1) smap_put(out, n->in.v[i], NULL);
    }
}

static status_t add_weight(struct arena *a, const struct onnx_model *m, const struct onnx_tensor *t,
                           const struct shape *s, struct strbuf *sidecar, struct weight *w) {
    *w = (struct weight){.name = arena_strndup(a, t->name.p, t->name.n),
                         .dtype = s->dtype,
                         .rank = s->rank,
                         .dims = s->dims,
                         .size_bytes = shape_bytes(s)};
    if (t->typed_field == 0 && s->dtype != DT_S4 && s->dtype != DT_U4) {
        if ((int64_t)t->raw.n != w->size_bytes)
            return st_new(ST_INVALID_ARGUMENT,
                          "initializer '%s': %zu bytes of data, its shape needs %lld", w->name,
                          t->raw.n, (long long)w->size_bytes);
        w->offset = t->raw.p - m->file;
        w->digest = sha256_of(t->raw.p, t->raw.n);
        return ST_OK;
    }
    struct arena tmp = {0};
    struct literal *l;
    status_t st = onnx_tensor_literal(&tmp, t, &l);
    if (!st) {
        w->sidecar = true;
        w->offset = (int64_t)sidecar->n;
        w->digest = sha256_of(l->data, l->size_bytes);
        strbuf_add(sidecar, l->data, l->size_bytes);
    }
    arena_done(&tmp);
    return st;
}

// index[k] = manifest index of initializer k, or -1 when it stays in the program.
static status_t collect_weights(struct arena *a, const struct onnx_model *m, int *index,
                                struct strbuf *sidecar, struct ingest_result *out) {
    struct smap shape_operands = {0};
    status_t st = ST_OK;
    mark_shape_operands(m, &shape_operands);
    out->weights = arena_zarray(a, struct weight, m->inits.n + 1);
    for (size_t k = 0; k < m->inits.n && !st; k++) {
        const struct onnx_tensor *t = &m->inits.v[k];
        const struct shape *s;
        index[k] = -1;
        st = onnx_tensor_shape(a, t, &s);
        if (!st && t->external)
            st = st_new(ST_INVALID_ARGUMENT,
                        "initializer '" STR_FMT "' keeps its data in another file ('" STR_FMT
                        "'): send a model with its weights inside",
                        STR_ARG(t->name), STR_ARG(t->location));
        if (st || shape_bytes(s) <= BAKE_BYTES || smap_has(&shape_operands, t->name)) continue;
        index[k] = out->n_weights;
        st = add_weight(a, m, t, s, sidecar, &out->weights[out->n_weights]);
        if (!st) out->n_weights++;
    }
    smap_done(&shape_operands);
    return st;
}

// ---- the program with the weights cut out: the same messages, but such an initializer has no data
// and refers to "weight:N"

static void put_varint(struct strbuf *b, uint64_t v) {
    for (; v >= 0x80; v >>= 7)
        strbuf_putc(b, (char)(v | 0x80));
    strbuf_putc(b, (char)v);
}
static void put_len(struct strbuf *b, uint32_t field, const void *p, size_t n) {
    put_varint(b, field << 3 | WIRE_LEN);
    put_varint(b, n);
    strbuf_add(b, p, n);
}
static void put_int(struct strbuf *b, uint32_t field, uint64_t v) {
    put_varint(b, field << 3 | WIRE_VARINT);
    put_varint(b, v);
}

static void put_cut_initializer(struct strbuf *b, const struct onnx_tensor *t, int weight) {
    struct strbuf tensor = {0}, pair = {0};
    char where[32];
    int n = snprintf(where, sizeof where, "weight:%d", weight);
    for (int d = 0; d < t->rank; d++)
        put_int(&tensor, 1, (uint64_t)t->dims[d]);
    put_int(&tensor, 2, (uint64_t)t->data_type);
    put_len(&tensor, 8, t->name.p, t->name.n);
    put_len(&pair, 1, "location", 8);
    put_len(&pair, 2, where, (size_t)n);
    put_len(&tensor, 13, pair.p, pair.n);
    put_int(&tensor, 14, 1);
    put_len(b, 5, tensor.p, tensor.n);
    strbuf_done(&tensor);
    strbuf_done(&pair);
}

static status_t cut_graph(const struct onnx_model *m, const int *index, struct strbuf *b) {
    struct wire w = wire_open(m->file, m->graph);
    struct wire_field f;
    bool got;
    size_t k = 0;
    for (;;) {
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) return ST_OK;
        bool init = f.number == 5 && f.type == WIRE_LEN;
        if (init && index[k] >= 0)
            put_cut_initializer(b, &m->inits.v[k], index[k]);
        else if (f.number != 10 && f.number != 13 && f.number != 14)
            strbuf_add(b, f.at, (size_t)(f.after - f.at)); // without doc, value_info, annotations
        k += init;
    }
}
static status_t cut_model(const struct onnx_model *m, struct span source, const int *index,
                          struct strbuf *b) {
    struct wire w = wire_open(m->file, source);
    struct wire_field f;
    bool got;
    for (;;) {
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) break;
        if (f.number == 1 || f.number == 8 || f.number == 25)
            strbuf_add(b, f.at, (size_t)(f.after - f.at));
    }
    struct strbuf g = {0};
    status_t st = cut_graph(m, index, &g);
    if (!st) put_len(b, 7, g.p, g.n);
    strbuf_done(&g);
    return st;
}

// ---- digests

static void digest_attr(struct sha256 *h, const struct onnx_attr *at) {
    sha256_str(h, at->name);
    sha256_u64(h, (uint64_t)at->type);
    sha256_add(h, &at->f, sizeof at->f);
    sha256_u64(h, (uint64_t)at->i);
    sha256_str(h, at->s);
    sha256_u64(h, at->floats.n);
    sha256_add(h, at->floats.v, at->floats.n * sizeof(float));
    sha256_u64(h, at->ints.n);
    sha256_add(h, at->ints.v, at->ints.n * sizeof(int64_t));
    if (at->t) {
        sha256_u64(h, (uint64_t)at->t->data_type);
        sha256_add(h, at->t->dims, sizeof(int64_t) * (size_t)at->t->rank);
        sha256_str(h, (struct str){(const char *)at->t->raw.p, at->t->raw.n});
        sha256_str(h, (struct str){(const char *)at->t->varints.p, at->t->varints.n});
        sha256_add(h, at->t->loose.v, at->t->loose.n * sizeof(uint64_t));
    }
    sha256_str(h, (struct str){(const char *)at->graph.p, at->graph.n});
}

// Values are numbered as they appear (inputs, initializers, node outputs), so names do not count;
// symbols are numbered by first use.
static status_t digest_program(struct arena *a, const struct onnx_model *m, const int *index,
                               struct digest *out) {
    struct smap ids = {0}, symbols = {0};
    struct sha256 h;
    uintptr_t next = 0;
    status_t st = ST_OK;
    sha256_init(&h);
    sha256_str(&h, STR("hlod.onnx.1"));
    sha256_u64(&h, (uint64_t)m->opset);
    for (size_t k = 0; k < m->inputs.n; k++) {
        const struct onnx_value *v = &m->inputs.v[k];
        smap_put(&ids, v->name, (void *)++next);
        sha256_u64(&h, (uint64_t)v->elem_type);
        sha256_u64(&h, (uint64_t)v->rank);
        for (int d = 0; d < v->rank; d++) {
            struct str s = onnx_dim_symbol(a, v, d);
            if (v->dims[d].size < 0 && !smap_has(&symbols, s))
                smap_put(&symbols, s, (void *)(symbols.n + 1));
            sha256_u64(&h, v->dims[d].size >= 0 ? (uint64_t)v->dims[d].size
                                                : ~(uint64_t)(uintptr_t)smap_get(&symbols, s));
        }
    }
    for (size_t k = 0; k < m->inits.n && !st; k++) {
        const struct onnx_tensor *t = &m->inits.v[k];
        struct literal *l;
        smap_put(&ids, t->name, (void *)++next);
        sha256_u64(&h, (uint64_t)t->data_type);
        sha256_u64(&h, (uint64_t)t->rank);
        sha256_add(&h, t->dims, sizeof(int64_t) * (size_t)t->rank);
        sha256_u64(&h, (uint64_t)(int64_t)index[k]);
        if (index[k] >= 0) continue;
        st = onnx_tensor_literal(a, t, &l);
        if (!st) sha256_str(&h, (struct str){l->data, l->size_bytes});
    }
    for (size_t k = 0; k < m->nodes.n; k++) {
        const struct onnx_node *n = &m->nodes.v[k];
        sha256_str(&h, n->op);
        sha256_str(&h, n->domain);
        sha256_u64(&h, n->in.n);
        for (size_t i = 0; i < n->in.n; i++)
            sha256_u64(&h, (uint64_t)(uintptr_t)smap_get(&ids, n->in.v[i]));
        sha256_u64(&h, n->out.n);
        for (size_t i = 0; i < n->out.n; i++)
            if (n->out.v[i].n)
                smap_put(&ids, n->out.v[i], (void *)++next);
            else
                ++next;
        sha256_u64(&h, n->attrs.n);
        for (size_t i = 0; i < n->attrs.n; i++)
            digest_attr(&h, &n->attrs.v[i]);
    }
    for (size_t k = 0; k < m->outputs.n; k++)
        sha256_u64(&h, (uint64_t)(uintptr_t)smap_get(&ids, m->outputs.v[k].name));
    *out = sha256_end(&h);
    smap_done(&ids);
    smap_done(&symbols);
    return st;
}

static struct digest digest_weights(const struct ingest_result *r) {
    struct sha256 h;
    sha256_init(&h);
    for (int k = 0; k < r->n_weights; k++) {
        sha256_u64(&h, (uint64_t)r->weights[k].dtype);
        sha256_u64(&h, (uint64_t)r->weights[k].rank);
        sha256_add(&h, r->weights[k].dims, sizeof(int64_t) * (size_t)r->weights[k].rank);
        sha256_add(&h, r->weights[k].digest.b, 32);
    }
    return sha256_end(&h);
}

static struct span to_arena(struct arena *a, struct strbuf *b) {
    struct span s = {b->n ? arena_dup(a, b->p, b->n) : NULL, b->n};
    strbuf_done(b);
    return s;
}

status_t onnx_ingest(struct arena *a, struct span source, const struct frontend_limits *limits,
                     struct ingest_result *out) {
    struct onnx_model m;
    struct ingest_result r = {.format = "onnx"};
    struct strbuf program = {0}, sidecar = {0};
    RETURN_IF_ERR(onnx_parse(a, source, limits, &m));
    RETURN_IF_ERR(onnx_check_supported(&m));
    RETURN_IF_ERR(signature_of(a, &m, &r.sig));
    int *index = arena_zarray(a, int, m.inits.n + 1);
    status_t st = collect_weights(a, &m, index, &sidecar, &r);
    if (!st) st = cut_model(&m, source, index, &program);
    if (!st) st = digest_program(a, &m, index, &r.program_digest);
    if (!st && limits && limits->max_program_bytes &&
        (int64_t)program.n > limits->max_program_bytes)
        st = st_new(ST_RESOURCE_EXHAUSTED,
                    "the program without weights has %zu bytes, the limit is %lld", program.n,
                    (long long)limits->max_program_bytes);
    r.weights_digest = digest_weights(&r);
    r.program = to_arena(a, &program);
    r.sidecar = to_arena(a, &sidecar);
    if (!st) *out = r;
    return st;
}
