// SPDX-License-Identifier: Apache-2.0
// Ingest: a tree's signature, its large constants as weights, and the program that is left as text.
#include "compiler/frontend/stablehlo/stablehlo.h"

#include <string.h>

#include "compiler/frontend/mlir/mlir_text.h"
#include "compiler/frontend/stablehlo/stablehlo_lower.h"
#include "compiler/frontend/weight_digests.h"
#include "proto/hlod.pb-c.h"
#include "proto/size_expr.h"

enum { WEIGHT_BYTES = 1024 }; // a constant above it is a weight

struct mlir_limits stablehlo_limits(const struct frontend_limits *l) {
    struct mlir_limits m = mlir_default_limits;
    if (l && l->max_depth) m.max_depth = l->max_depth;
    if (l && l->max_nodes) m.max_ops = l->max_nodes;
    return m;
}

// ---- the entry

status_t stablehlo_entry(const struct mlir_module *m, const struct mlir_func **out) {
    const struct mlir_func *only = NULL;
    int n = 0;
    *out = mlir_find_func(m, STR("main"));
    if (*out && (*out)->body.ops.n) return ST_OK;
    for (size_t k = 0; k < m->funcs.n; k++)
        if (m->funcs.v[k]->is_public && m->funcs.v[k]->body.ops.n) {
            only = m->funcs.v[k];
            n++;
        }
    if (n != 1)
        return st_invalid("the module has no function @main and %d other public ones: it must be "
                          "clear which one is meant",
                          n);
    *out = only;
    return ST_OK;
}

// ---- signature

static const char *text_of(struct arena *a, struct str s) {
    return arena_strndup(a, s.p, s.n);
}
static struct str string_attr(const struct mlir_attr *dict, const char *name) {
    const struct mlir_attr *t = mlir_dict_attr(dict, name);
    return t && t->kind == MLIR_A_STRING ? t->s : (struct str){"", 0};
}
static bool one(void *ctx, struct str symbol, int64_t *out) {
    (void)ctx, (void)symbol;
    *out = 1;
    return true;
}
// A dimension by the name that jax.export gives it, which may be an expression (its usual size is
// that of symbols that are 1), else after its place.
static struct sig_dim open_dim(struct arena *a, const struct mlir_attr *attrs, const char *tensor,
                               int d) {
    const struct mlir_attr *names = mlir_dict_attr(attrs, STABLEHLO_DIMS);
    struct sig_dim dim = {.size = -1};
    struct size_expr x = {0};
    if (!names || names->kind != MLIR_A_ARRAY || d >= names->n ||
        names->list[d]->kind != MLIR_A_STRING || !names->list[d]->s.n) {
        dim.symbol = arena_printf(a, "_%s_%d", tensor, d);
        return dim;
    }
    dim.symbol = text_of(a, names->list[d]->s);
    dim.expression = size_expr_is(names->list[d]->s);
    status_t st = dim.expression ? size_expr_read(names->list[d]->s, one, NULL, &x) : ST_OK;
    dim.usual = !st && x.value > 0 ? x.value : 0;
    st_drop(st);
    return dim;
}
static status_t tensor_of(struct arena *a, const struct mlir_type *t, const struct mlir_attr *attrs,
                          const char *name, const char *what, struct sig_tensor *out) {
    if (t->kind != MLIR_TENSOR || t->dtype == DT_INVALID)
        return st_invalid("%s '%s' is no tensor of a type that can be sent", what, name);
    if (t->rank < 0) return st_invalid("%s '%s' has no rank", what, name);
    if (t->rank > HLO_MAX_RANK)
        return st_invalid("%s '%s' has %d dimensions, the limit is %d", what, name, t->rank,
                          HLO_MAX_RANK);
    *out = (struct sig_tensor){.name = name, .dtype = t->dtype, .rank = t->rank};
    out->dims = arena_zarray(a, struct sig_dim, t->rank + 1);
    for (int d = 0; d < t->rank; d++) {
        out->dims[d].size = t->dims[d];
        if (t->dims[d] < 0) out->dims[d] = open_dim(a, attrs, name, d);
    }
    return ST_OK;
}
// A name that no tensor before it has: "x", else "x_1", ...
static const char *unique(struct arena *a, struct smap *taken, const char *name) {
    const char *x = name;
    for (int k = 1; smap_has(taken, str_of(x)); k++)
        x = arena_printf(a, "%s_%d", name, k);
    smap_put(taken, str_of(x), taken);
    return x;
}
// Names of arguments end up on command lines and in URLs.
static bool good_name(struct str s) {
    for (size_t k = 0; k < s.n; k++)
        if (s.p[k] <= ' ' || s.p[k] > '~' || s.p[k] == '=') return false;
    return s.n > 0 && s.n <= 512;
}
const char *stablehlo_input_name(struct arena *a, const struct mlir_func *f, int k) {
    const struct mlir_attr *attrs = f->arg_attrs ? f->arg_attrs[k] : NULL;
    struct str name = string_attr(attrs, STABLEHLO_NAME);
    if (!name.n) name = string_attr(attrs, "jax.global_constant"); // _platform_index
    return good_name(name) ? text_of(a, name) : arena_printf(a, "arg%d", k);
}
static const char *output_name(struct arena *a, const struct mlir_func *f, int k) {
    const struct mlir_attr *attrs = f->result_attrs ? f->result_attrs[k] : NULL;
    struct str name = string_attr(attrs, STABLEHLO_NAME);
    if (!good_name(name)) name = string_attr(attrs, "jax.result_info");
    if (good_name(name)) return text_of(a, name);
    return f->n_results == 1 ? "result" : arena_printf(a, "result%d", k);
}
status_t stablehlo_signature(struct arena *a, const struct mlir_module *m,
                             const struct mlir_func *f, struct signature *out) {
    struct smap in = {0}, results = {0};
    status_t st = ST_OK;
    *out = (struct signature){.n_in = f->body.n_args, .n_out = f->n_results};
    out->in = arena_zarray(a, struct sig_tensor, f->body.n_args + 1);
    out->out = arena_zarray(a, struct sig_tensor, f->n_results + 1);
    for (int k = 0; !st && k < f->body.n_args; k++)
        st = tensor_of(a, f->values.v[f->body.args + (uint32_t)k],
                       f->arg_attrs ? f->arg_attrs[k] : NULL,
                       unique(a, &in, stablehlo_input_name(a, f, k)), "input", &out->in[k]);
    for (int k = 0; !st && k < f->n_results; k++)
        st = tensor_of(a, f->results[k], f->result_attrs ? f->result_attrs[k] : NULL,
                       unique(a, &results, output_name(a, f, k)), "output", &out->out[k]);
    if (!st) stablehlo_by_value(m, f, out);
    smap_done(&in);
    smap_done(&results);
    return st;
}

// ---- what the operations are

struct walk {
    struct arena *a;
    struct span source;
    struct ingest_result *r;
    VEC(struct weight) weights;
    struct strbuf *sidecar;
    struct strbuf unknown; // one line each
    int n_unknown;
    struct smap seen, counted;
};
static void refuse(struct walk *w, struct str name, const char *why) {
    if (smap_has(&w->seen, name)) return;
    smap_put(&w->seen, name, w);
    w->n_unknown++;
    strbuf_printf(&w->unknown, "\n%.*s: %s", (int)name.n, name.p, why);
}
static status_t take_weight(struct walk *w, struct mlir_named *x) {
    const struct mlir_attr *t = x->attr;
    if (t->kind != MLIR_A_DENSE || t->splat || t->bytes.n <= WEIGHT_BYTES) return ST_OK;
    int64_t n = mlir_type_elements(t->type), size = dtype_size(t->type->dtype);
    if (n < 0 || n != (int64_t)t->bytes.n / size || (int64_t)t->bytes.n % size)
        return st_invalid("a constant has %zu bytes, its type says otherwise", t->bytes.n);
    struct weight one = {.name = arena_printf(w->a, "w%zu", w->weights.n),
                         .dtype = t->type->dtype,
                         .rank = t->type->rank,
                         .dims = t->type->dims,
                         .size_bytes = (int64_t)t->bytes.n};
    bool inside = t->bytes.p >= w->source.p && t->bytes.p + t->bytes.n <= w->source.p + w->source.n;
    one.sidecar = !inside;
    one.offset = inside ? t->bytes.p - w->source.p : (int64_t)w->sidecar->n;
    if (!inside) strbuf_add(w->sidecar, t->bytes.p, t->bytes.n);

    struct mlir_attr *cut = arena_dup(w->a, t, sizeof *t);
    cut->weight = (int32_t)w->weights.n;
    cut->bytes.n = 0;
    x->attr = cut;
    avec_push(w->a, &w->weights, one);
    return ST_OK;
}
static status_t walk_region(struct walk *w, const struct mlir_region *r) {
    for (size_t k = 0; k < r->ops.n; k++) {
        const struct mlir_op *op = r->ops.v[k];
        bool last = k + 1 == r->ops.n;
        if (!last) frontend_program_info_count(w->a, &w->r->info, &w->counted, op->name);
        if (!last && !shl_row_of(op->name))
            refuse(w, op->name, "an operation that is not known here");
        for (size_t i = 0; i < op->attrs.n; i++)
            if (str_is(op->attrs.v[i].name, "value"))
                RETURN_IF_ERR(take_weight(w, &op->attrs.v[i]));
        for (int32_t i = 0; i < op->n_regions; i++)
            RETURN_IF_ERR(walk_region(w, &op->regions[i]));
    }
    return ST_OK;
}

// ---- ingest

static void hash_and_finish(struct arena *a, struct span source, struct ingest_result *r) {
    struct span *spans = arena_array(a, struct span, r->n_weights + 1);
    struct digest *of = arena_array(a, struct digest, r->n_weights + 1);
    struct weight_digests hashing;
    for (int k = 0; k < r->n_weights; k++)
        spans[k] =
            (struct span){(r->weights[k].sidecar ? r->sidecar.p : source.p) + r->weights[k].offset,
                          (size_t)r->weights[k].size_bytes};
    weight_digests_begin(&hashing, spans, (size_t)r->n_weights, of);
    r->program_digest = sha256_of(r->program.p, r->program.n);
    frontend_program_info_sort(&r->info);
    weight_digests_end(&hashing);
    for (int k = 0; k < r->n_weights; k++) {
        r->weights[k].digest = of[k];
        r->info.parameters += r->weights[k].size_bytes / dtype_size(r->weights[k].dtype);
        r->info.parameter_bytes += r->weights[k].size_bytes;
    }
    r->weights_digest = weight_digests_of(r->weights, r->n_weights);
}
static status_t ingest_tree(struct arena *a, struct mlir_module *m,
                            const struct frontend_limits *limits, struct walk *w,
                            struct ingest_result *r) {
    const struct mlir_func *entry;
    RETURN_IF_ERR(mlir_normal(m));
    RETURN_IF_ERR(stablehlo_entry(m, &entry));
    RETURN_IF_ERR(stablehlo_signature(a, m, entry, &r->sig));
    for (size_t k = 0; k < m->funcs.n; k++)
        RETURN_IF_ERR(walk_region(w, &m->funcs.v[k]->body));
    if (w->n_unknown)
        return st_reason(st_invalid("%d operation%s cannot run:%s", w->n_unknown,
                                    w->n_unknown == 1 ? "" : "s", strbuf_cstr(&w->unknown)),
                         HLOD__V1__REASON__REASON_UNSUPPORTED_OP);

    struct strbuf text = {0};
    int64_t max = limits && limits->max_program_bytes ? limits->max_program_bytes : 256 << 20;
    m->name.n = 0;
    strbuf_limit(&text, (size_t)max);
    mlir_print(&text, m);
    status_t st = text.truncated ? st_exhausted("the program without weights has more than %lld "
                                                "bytes",
                                                (long long)max)
                                 : ST_OK;
    r->program = (struct span){arena_dup(a, strbuf_cstr(&text), text.n), text.n};
    strbuf_done(&text);
    return st;
}
// Where the shapes are known the program is lowered once, which finds all that is wrong with it.
static status_t check_static(const struct mlir_module *m, const struct frontend_limits *limits,
                             const struct ingest_result *r) {
    struct lower_request req = {0};
    struct hlo_module *hlo;
    for (int k = 0; k < r->sig.n_in; k++) {
        if (r->sig.in[k].by_value) return ST_OK;
        for (int d = 0; d < r->sig.in[k].rank; d++)
            if (r->sig.in[k].dims[d].symbol) return ST_OK;
    }
    if (limits) req.limits = *limits;
    RETURN_IF_ERR(stablehlo_lower_tree(m, &req, &hlo));
    hlo_module_free(hlo);
    return ST_OK;
}
status_t stablehlo_ingest_tree(struct arena *a, struct mlir_module *m, struct span source,
                               const char *format, const struct frontend_limits *limits,
                               struct ingest_result *out) {
    struct ingest_result r = {.format = format};
    struct strbuf sidecar = {0};
    struct walk w = {.a = a, .source = source, .r = &r, .sidecar = &sidecar};
    strbuf_limit(&w.unknown, 64 * 1024);
    status_t st = ingest_tree(a, m, limits, &w, &r);
    strbuf_done(&w.unknown);
    smap_done(&w.seen);
    smap_done(&w.counted);
    r.weights = w.weights.v;
    r.n_weights = (int32_t)w.weights.n;
    if (sidecar.n) r.sidecar = (struct span){arena_dup(a, sidecar.p, sidecar.n), sidecar.n};
    strbuf_done(&sidecar);
    if (!st) st = check_static(m, limits, &r);
    if (st) return st;
    if (m->producer.n) r.info.producer = text_of(a, m->producer);
    hash_and_finish(a, source, &r);
    *out = r;
    return ST_OK;
}

// ---- text

static struct str behind_blanks(struct str s) { // what ends the source is not looked at
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t' || s.p[0] == '\r' || s.p[0] == '\n'))
        s.p++, s.n--;
    return s;
}
bool stablehlo_text_sniff(struct span head) {
    struct str s = behind_blanks((struct str){(const char *)head.p, head.n});
    struct str line;
    // Comments and aliases, however many: JAX writes one in front for each argument's name.
    while (str_starts(s, "//") || str_starts(s, "#") || str_starts(s, "!")) {
        if (!str_cut(&s, '\n', &line)) return false;
        s = behind_blanks(s);
    }
    return str_starts(s, "module") || str_starts(s, "func.func") ||
           str_starts(s, "\"builtin.module\"") || str_starts(s, "\"func.func\"");
}
status_t stablehlo_text_ingest(struct arena *a, struct span source,
                               const struct frontend_limits *limits, struct ingest_result *out) {
    struct mlir_module m;
    struct mlir_limits l = stablehlo_limits(limits);
    if (stablehlo_bytecode_sniff(source)) // a .mlir file may hold either
        return stablehlo_bytecode_ingest(a, source, limits, out);
    RETURN_IF_ERR(mlir_read_text(a, source, &l, &m));
    return stablehlo_ingest_tree(a, &m, source, "stablehlo", limits, out);
}
