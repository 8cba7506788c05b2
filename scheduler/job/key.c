// SPDX-License-Identifier: Apache-2.0
#include "scheduler/job/key.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "base/vec.h"
#include "proto/message.h"

struct digest key_of(const struct key_parts *p) {
    struct sha256_text t = {0};
    sha256_text_str(&t, STR("hlod executable 1"));
    sha256_text_add(&t, p->program.b, sizeof p->program.b);
    sha256_text_str(&t, str_of(p->bindings));
    sha256_text_str(&t, str_of(p->options));
    sha256_text_str(&t, str_of(p->target_id));
    sha256_text_str(&t, str_of(p->build_id));
    sha256_text_u64(&t, p->kernel_abi);
    return sha256_text_end(&t);
}

struct key_parts key_parts_of(struct arena *a, const Hlod__V1__ExecutableInfo *x) {
    struct key_parts p = {.options = x->options,
                          .target_id = x->target_id,
                          .build_id = x->build_id,
                          .kernel_abi = x->kernel_abi};
    (void)digest_parse(str_of(x->program_digest), &p.program);
    struct strbuf b = {0};
    for (size_t i = 0; i < x->n_bindings; i++)
        strbuf_printf(&b, "%s%s", i ? ";" : "", x->bindings[i]);
    p.bindings = arena_strdup(a, strbuf_cstr(&b));
    strbuf_done(&b);
    return p;
}
const char *key_explain(struct arena *a, const struct key_parts *x, const struct key_parts *y,
                        const char **out_x, const char **out_y) {
    char hex[2][65];
    digest_hex(x->program, hex[0]);
    digest_hex(y->program, hex[1]);
    const struct {
        const char *name, *x, *y;
    } rows[] = {{"program", hex[0], hex[1]},
                {"bindings", x->bindings, y->bindings},
                {"options", x->options, y->options},
                {"target", x->target_id, y->target_id},
                {"abi", arena_printf(a, "%u", x->kernel_abi), arena_printf(a, "%u", y->kernel_abi)},
                {"build", x->build_id, y->build_id}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!strcmp(rows[i].x, rows[i].y)) continue;
        *out_x = arena_strdup(a, rows[i].x);
        *out_y = arena_strdup(a, rows[i].y);
        return rows[i].name;
    }
    return NULL;
}

// ---- options

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static status_t add_list(struct arena *a, struct strbuf *b, const char *name, char **v, size_t n) {
    char **sorted = arena_array(a, char *, n + 1);
    for (size_t i = 0; i < n; i++) {
        for (const char *p = v[i]; *p; p++)
            if (!isalnum((unsigned char)*p) && !strchr("-_./", *p))
                return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "option %s: '%s' is not a name",
                                  name, v[i]);
        sorted[i] = v[i];
    }
    qsort(sorted, n, sizeof *sorted, by_text);
    for (size_t i = 0; i < n; i++) {
        if (i && !strcmp(sorted[i], sorted[i - 1])) continue;
        strbuf_printf(b, "%s%s", i ? "," : b->n ? ";" : "", i ? "" : name);
        strbuf_printf(b, "%s%s", i ? "" : "=", sorted[i]);
    }
    return ST_OK;
}

status_t key_options(struct arena *a, const Hlod__V1__CompileOptions *o, const char **out) {
    *out = "";
    if (!o) return ST_OK;
    struct strbuf b = {0};
    status_t st = ST_OK;
    GOTO_IF_ERR(end, add_list(a, &b, "disable_passes", o->disable_passes, o->n_disable_passes));
    GOTO_IF_ERR(end, add_list(a, &b, "disable_rules", o->disable_rules, o->n_disable_rules));
    if (!strcmp(o->precision, "strict") || !strcmp(o->precision, "fast"))
        strbuf_printf(&b, "%sprecision=%s", b.n ? ";" : "", o->precision);
    else if (*o->precision && strcmp(o->precision, "default")) {
        st = st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                        "precision '%s': expected 'default', 'strict' or 'fast'", o->precision);
        goto end;
    }
    if (o->replicas < 0 || o->replicas > 1024) {
        st = st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "replicas %d: expected 1 to 1024",
                        o->replicas);
        goto end;
    }
    if (o->replicas > 1) strbuf_printf(&b, "%sreplicas=%d", b.n ? ";" : "", o->replicas);
    if (o->verify_each) strbuf_printf(&b, "%sverify_each=1", b.n ? ";" : "");
    *out = arena_strdup(a, strbuf_cstr(&b));
end:
    strbuf_done(&b);
    return st;
}

// ---- bindings

status_t key_wrong_size(const char *input, size_t dim, int64_t expected, int64_t found) {
    return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH,
                      "input '%s', dimension %zu: expected %" PRId64 ", found %" PRId64, input, dim,
                      expected, found);
}

static Hlod__Wire__Binding *lookup(const struct key_binder *b, const char *symbol) {
    return smap_get(&b->index, str_of(symbol));
}

Hlod__Wire__Binding *key_binding(struct arena *a, const char *symbol, int64_t size) {
    Hlod__Wire__Binding *b = message_new(a, &hlod__wire__binding__descriptor);
    b->symbol = (char *)(uintptr_t)symbol;
    b->size = size;
    return b;
}
static void begin_index(struct smap *m) {
    smap_seed_random(m); // clients choose the names
    m->borrows = true;
}
static void put_binding(struct key_binder *b, Hlod__Wire__Binding *x) {
    if (!b->index.n) begin_index(&b->index);
    avec_push(b->a, &b->bound, x);
    smap_put(&b->index, str_of(x->symbol), x);
}
void key_add(struct key_binder *b, const char *symbol, int64_t size) {
    put_binding(b, key_binding(b->a, symbol, size));
}

// ---- words about tensors

// "_x_0" stands for a dimension of x that the model gives no name.
static bool unnamed(const Hlod__V1__TensorSpec *t, const char *symbol) {
    size_t n = strlen(t->name);
    return !*symbol || (*symbol == '_' && !strncmp(symbol + 1, t->name, n) && symbol[n + 1] == '_');
}

void key_spec_text(struct strbuf *b, const Hlod__V1__TensorSpec *t) {
    strbuf_printf(b, "%s %s[", t->name, t->dtype);
    for (size_t d = 0; d < t->n_dims; d++) {
        const Hlod__V1__Dim *x = t->dims[d];
        if (x->size < 0)
            strbuf_printf(b, "%s%s", d ? "," : "", unnamed(t, x->symbol) ? "?" : x->symbol);
        else
            strbuf_printf(b, "%s%" PRId64, d ? "," : "", x->size);
    }
    strbuf_puts(b, t->unknown_rank ? "...]" : "]");
}

status_t key_wrong_rank(const Hlod__V1__TensorSpec *t, const char *name, int32_t rank) {
    struct strbuf b = {0};
    key_spec_text(&b, t);
    status_t st = st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH,
                             "input '%s': expected rank %zu, found %d (it is %s)", name, t->n_dims,
                             rank, strbuf_cstr(&b) + strlen(t->name) + 1);
    strbuf_done(&b);
    return st;
}

status_t key_no_such(const char *what, const char *name, Hlod__V1__TensorSpec *const *v, size_t n) {
    enum { TOLD = 6 };
    struct strbuf b = {0};
    strbuf_limit(&b, 4096);
    strbuf_printf(&b, "the model has no %s '%s'; it has", what, name);
    for (size_t i = 0; i < n && i < TOLD; i++) {
        strbuf_puts(&b, i ? ", " : " ");
        key_spec_text(&b, v[i]);
    }
    if (!n) strbuf_puts(&b, " none");
    if (n > TOLD) strbuf_printf(&b, " and %zu more", n - TOLD);
    status_t st = st_reason(st_invalid("%s", strbuf_cstr(&b)),
                            *what == 'i' ? HLOD__V1__REASON__REASON_UNKNOWN_INPUT
                                         : HLOD__V1__REASON__REASON_UNKNOWN_OUTPUT);
    strbuf_done(&b);
    return st;
}

status_t key_no_such_input(struct arena *a, const char *name, const Hlod__V1__Signature *names,
                           const Hlod__V1__Signature *sig) {
    const Hlod__V1__TensorSpec *whole = key_input(sig, name);
    if (whole && whole->sequence)
        return st_because(ST_INVALID_ARGUMENT, UNKNOWN_INPUT,
                          "input '%s' is a sequence: its tensors are given as '%s[0]', '%s[1]', "
                          "...",
                          name, name, name);
    VEC(Hlod__V1__TensorSpec *) all = {0};
    for (size_t i = 0; i < names->n_inputs; i++)
        avec_push(a, &all, names->inputs[i]);
    for (size_t i = 0; i < sig->n_defaults; i++)
        if (!key_input(names, sig->defaults[i]->name)) avec_push(a, &all, sig->defaults[i]);
    return key_no_such("input", name, all.v, all.n);
}

// The size that dimension d of input `index` has of its own, though others have its name.
static const char *own_symbol(struct arena *a, size_t index, size_t d) {
    return arena_printf(a, "*%zu.%zu", index, d);
}
static const Hlod__Wire__Binding *lookup_dim(const struct key_binder *b, size_t index,
                                             const Hlod__V1__TensorSpec *in, size_t d) {
    if (in->dims[d]->size >= 0) return NULL;
    const Hlod__Wire__Binding *own = b->own ? lookup(b, own_symbol(b->a, index, d)) : NULL;
    return own ? own : lookup(b, in->dims[d]->symbol);
}

static status_t bind_input(struct key_binder *b, const Hlod__V1__TensorSpec *in, size_t index,
                           const struct key_shape *s) {
    if ((size_t)s->rank != in->n_dims) return key_wrong_rank(in, in->name, s->rank);
    for (size_t d = 0; d < in->n_dims; d++) {
        const Hlod__V1__Dim *dim = in->dims[d];
        int64_t found = s->dims[d];
        if (dim->size >= 0 && dim->size != found)
            return key_wrong_size(in->name, d, dim->size, found);
        if (dim->size >= 0) continue;
        if (found < 0)
            return st_because(ST_INVALID_ARGUMENT, UNBOUND_DIM,
                              "input '%s', dimension %zu ('%s'): needs a size", in->name, d,
                              dim->symbol);
        const Hlod__Wire__Binding *old = lookup_dim(b, index, in, d);
        bool may = b->how & KEY_OWN_SIZES && !(d == 0 && b->how & KEY_ROWS_AGREE);
        if (old && old->size != found && may && *old->symbol != '*') {
            key_add(b, own_symbol(b->a, index, d), found);
            b->own = true;
            continue;
        }
        if (old && old->size != found)
            return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH,
                              "input '%s', dimension %zu ('%s'): expected %" PRId64
                              ", as elsewhere in the request, found %" PRId64,
                              in->name, d, dim->symbol, old->size, found);
        if (old) continue;
        key_add(b, arena_strdup(b->a, dim->symbol), found);
    }
    return ST_OK;
}

static status_t bind_values(struct key_binder *b, const Hlod__V1__TensorSpec *in, size_t index,
                            const struct key_shape *s) {
    int64_t want = 1;
    for (int32_t d = 0; s && d < s->rank; d++)
        if (!sz_mul(want, s->dims[d], &want)) want = INT64_MAX;
    if (!s || (!s->values && want > 0))
        return st_because(ST_INVALID_ARGUMENT, UNBOUND_VALUE,
                          "input '%s' decides shapes by its values: give them, or run the "
                          "model, which compiles for the values it gets",
                          in->name);
    if (want > KEY_MAX_VALUES || s->n_values != want)
        return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH,
                          "input '%s' decides shapes by its values: %" PRId64 " elements, %" PRId64
                          " values given, at most %d",
                          in->name, want, s->n_values, KEY_MAX_VALUES);
    for (int64_t k = 0; k < want; k++)
        key_add(b, arena_printf(b->a, "=%zu[%03d]", index, (int)k), s->values[k]);
    return ST_OK;
}

// ---- inputs without a rank of their own

bool key_is_loose(const Hlod__V1__TensorSpec *in) {
    return in->sequence || in->optional || in->unknown_rank;
}
const char *key_element_name(struct arena *a, const Hlod__V1__TensorSpec *in, size_t e) {
    return in->sequence ? arena_printf(a, "%s[%zu]", in->name, e) : in->name;
}
// The shapes of a request by the names of their inputs; of those given twice the first.
static struct smap by_name(const struct key_shape *s, size_t n) {
    struct smap m = {0};
    begin_index(&m);
    for (size_t k = n; k-- > 0;)
        smap_put(&m, str_of(s[k].input), (void *)(uintptr_t)&s[k]);
    return m;
}
static const struct key_shape *shape_named(const struct smap *shapes, const char *name) {
    return smap_get(shapes, str_of(name));
}

// *used counts the shapes that belong to the input.
static status_t bind_loose(struct key_binder *b, const Hlod__V1__TensorSpec *in, size_t index,
                           const struct smap *shapes, size_t *used) {
    bool complete = b->how & KEY_COMPLETE;
    size_t count = 0, most = in->sequence ? KEY_MAX_ELEMENTS : 1;
    for (; count < most; count++) {
        const struct key_shape *s = shape_named(shapes, key_element_name(b->a, in, count));
        if (!s) break;
        key_add(b, arena_printf(b->a, "#%zu[%04zu]", index, count), s->rank);
        for (int32_t d = 0; d < s->rank; d++) {
            if (s->dims[d] < 0)
                return st_because(ST_INVALID_ARGUMENT, UNBOUND_DIM,
                                  "input '%s': dimension %d needs a size", s->input, d);
            key_add(b, arena_printf(b->a, "#%zu[%04zu].%d", index, count, d), s->dims[d]);
        }
    }
    *used += count;
    if (!complete && !count)
        return st_because(
            ST_INVALID_ARGUMENT, UNBOUND_DIM,
            "input '%s' has no shape of its own: give it (of a sequence, one for each "
            "element: '%s'), or run the model",
            in->name, key_element_name(b->a, in, 0));
    if (!count && !in->sequence && !in->optional)
        return st_because(ST_INVALID_ARGUMENT, MISSING_INPUT, "input '%s' is missing", in->name);
    key_add(b, arena_printf(b->a, "#%zu", index), (int64_t)count);
    return ST_OK;
}

static int by_symbol(const void *x, const void *y) {
    return strcmp((*(Hlod__Wire__Binding *const *)x)->symbol,
                  (*(Hlod__Wire__Binding *const *)y)->symbol);
}

void key_sort_bindings(Hlod__Wire__Binding **b, size_t n) {
    if (n) qsort(b, n, sizeof *b, by_symbol);
}
size_t key_index(Hlod__V1__TensorSpec *const *v, size_t n, const char *name) {
    size_t i = 0;
    while (i < n && strcmp(v[i]->name, name))
        i++;
    return i;
}
const Hlod__V1__TensorSpec *key_input(const Hlod__V1__Signature *sig, const char *name) {
    size_t i = key_index(sig->inputs, sig->n_inputs, name);
    return i < sig->n_inputs ? sig->inputs[i] : NULL;
}

const Hlod__V1__TensorSpec *key_default(const Hlod__V1__Signature *sig, const char *name) {
    size_t i = key_index(sig->defaults, sig->n_defaults, name);
    return i < sig->n_defaults ? sig->defaults[i] : NULL;
}

// "NAME[3]" of a sequence NAME
static bool is_element(struct arena *a, const Hlod__V1__Signature *sig, const char *name) {
    const char *open = strrchr(name, '[');
    if (!open) return false;
    const Hlod__V1__TensorSpec *in = key_input(sig, arena_strndup(a, name, (size_t)(open - name)));
    return in && in->sequence;
}

// ---- sizes that the request does not say

// Of a symbol that no shape binds: as the frontend found, or 1 for a leading dimension; 0 = it has
// to be said.
static int64_t usual_size(const struct smap *leading, const Hlod__V1__Dim *dim) {
    if (dim->usual > 0 && !dim->expression) return dim->usual;
    return !smap_has(leading, str_of(dim->symbol)) ? 0 : dim->expression ? dim->usual : 1;
}

// " x=1x3x224x224" for each input with a size that is not known, behind `before`. Sizes that nobody
// knows are examples.
static void put_shapes(struct strbuf *t, const struct key_binder *b, const Hlod__V1__Signature *sig,
                       const char *before) {
    for (size_t i = 0; i < sig->n_inputs; i++) {
        const Hlod__V1__TensorSpec *in = sig->inputs[i];
        bool open = false;
        for (size_t d = 0; d < in->n_dims; d++)
            open |= in->dims[d]->size < 0 && !lookup(b, in->dims[d]->symbol);
        if (!open) continue;
        strbuf_printf(t, "%s%s=", before, in->name);
        for (size_t d = 0; d < in->n_dims; d++) {
            const Hlod__Wire__Binding *have = lookup_dim(b, i, in, d);
            int64_t size = in->dims[d]->size >= 0 ? in->dims[d]->size
                           : have                 ? have->size
                           : in->n_dims == 4      ? 224
                                                  : 128;
            strbuf_printf(t, "%s%" PRId64, d ? "x" : "", size);
        }
    }
}

static status_t open_dims(struct key_binder *b, const Hlod__V1__Signature *sig) {
    struct strbuf t = {0};
    size_t n = 0;
    strbuf_limit(&t, 32 * 1024);
    for (size_t i = 0; i < sig->n_inputs; i++)
        for (size_t d = 0; d < sig->inputs[i]->n_dims; d++) {
            const Hlod__V1__Dim *dim = sig->inputs[i]->dims[d];
            if (dim->size >= 0 || lookup(b, dim->symbol)) continue;
            n++;
            strbuf_printf(&t, "\n  input '%s', dimension %zu ('%s')", sig->inputs[i]->name, d,
                          dim->symbol);
        }
    strbuf_puts(&t, "\n  for example: hlo compile MODEL");
    put_shapes(&t, b, sig, " --shape ");
    strbuf_puts(&t, "\n  or by HTTP: POST /v1/executables?");
    size_t at = t.n;
    put_shapes(&t, b, sig, "&shape=");
    if (t.n > at && t.p[at] == '&') memmove(t.p + at, t.p + at + 1, t.n-- - at);
    status_t st =
        st_because(ST_INVALID_ARGUMENT, UNBOUND_DIM, "%zu symbolic dimension%s without a size:%s",
                   n, n == 1 ? "" : "s", strbuf_cstr(&t));
    strbuf_done(&t);
    return st;
}

// Usual sizes for symbols, or for expressions.
static void assume(struct key_binder *b, const Hlod__V1__Signature *sig, bool expressions) {
    struct smap leading = {0};
    begin_index(&leading);
    for (size_t i = 0; i < sig->n_inputs; i++)
        if (sig->inputs[i]->n_dims && sig->inputs[i]->dims[0]->size < 0)
            smap_put(&leading, str_of(sig->inputs[i]->dims[0]->symbol), b);
    for (size_t i = 0; i < sig->n_inputs; i++)
        for (size_t d = 0; d < sig->inputs[i]->n_dims; d++) {
            const Hlod__V1__Dim *dim = sig->inputs[i]->dims[d];
            if (dim->size >= 0 || dim->expression != expressions || lookup(b, dim->symbol))
                continue;
            int64_t size = usual_size(&leading, dim);
            if (size > 0) key_add(b, arena_strdup(b->a, dim->symbol), size);
        }
    smap_done(&leading);
}
static status_t bind_rest(struct key_binder *b, const Hlod__V1__Signature *sig) {
    bool complete = b->how & KEY_COMPLETE;
    RETURN_IF_ERR(key_settle(b, sig));
    for (int expressions = 0; !complete && expressions < 2; expressions++) {
        assume(b, sig, expressions);
        RETURN_IF_ERR(key_settle(b, sig));
    }
    for (size_t i = 0; i < sig->n_inputs; i++)
        for (size_t d = 0; d < sig->inputs[i]->n_dims; d++)
            if (sig->inputs[i]->dims[d]->size < 0 && !lookup(b, sig->inputs[i]->dims[d]->symbol))
                return open_dims(b, sig);
    return ST_OK;
}

void key_assumed(struct arena *a, const Hlod__V1__Signature *sig, const struct key_shape *shapes,
                 size_t n, Hlod__Wire__Binding *const *b, size_t n_b, Hlod__V1__ShapeBinding ***out,
                 size_t *out_n) {
    struct key_binder given = {.a = a}, all = {.a = a};
    struct smap named = by_name(shapes, n);
    for (size_t i = 0; i < n_b; i++)
        put_binding(&all, b[i]);
    all.own = true; // there may be such
    for (size_t i = 0; i < sig->n_inputs; i++)
        for (size_t d = 0; shape_named(&named, sig->inputs[i]->name) && d < sig->inputs[i]->n_dims;
             d++)
            if (sig->inputs[i]->dims[d]->size < 0)
                key_add(&given, sig->inputs[i]->dims[d]->symbol, 0);

    *out = arena_array(a, Hlod__V1__ShapeBinding *, sig->n_inputs + 1);
    *out_n = 0;
    for (size_t i = 0; i < sig->n_inputs; i++) {
        const Hlod__V1__TensorSpec *in = sig->inputs[i];
        Hlod__V1__ShapeBinding *s = message_new(a, &hlod__v1__shape_binding__descriptor);
        s->input = in->name;
        s->dims = arena_array(a, int64_t, in->n_dims + 1);
        bool assumed = false;
        for (size_t d = 0; d < in->n_dims; d++) {
            const Hlod__Wire__Binding *x = lookup_dim(&all, i, in, d);
            assumed |= x && !lookup(&given, in->dims[d]->symbol);
            s->dims[s->n_dims++] = x ? x->size : in->dims[d]->size;
        }
        if (assumed) (*out)[(*out_n)++] = s;
    }
    smap_done(&named);
    smap_done(&given.index);
    smap_done(&all.index);
}

// Values of the model that the request replaces: inputs behind the others.
static status_t bind_defaults(struct key_binder *b, const Hlod__V1__Signature *sig,
                              const struct smap *shapes) {
    size_t index = sig->n_inputs;
    for (size_t i = 0; i < sig->n_defaults; i++) {
        const Hlod__V1__TensorSpec *t = sig->defaults[i];
        const struct key_shape *given = shape_named(shapes, t->name);
        if (!given) continue;
        RETURN_IF_ERR(bind_input(b, t, index, given));
        key_add(b, arena_printf(b->a, "~%zu", i), 1);
        if (t->by_value) RETURN_IF_ERR(bind_values(b, t, index, given));
        index++;
    }
    return ST_OK;
}

// What a request gives, by the signature's inputs.
struct given {
    const struct key_shape *v;
    size_t n, *first, *next; // of input k the shapes first[k] - 1, next[that] - 1, ...; 0 = no more
    struct smap inputs, by_name;
};
static void begin_given(struct arena *a, const Hlod__V1__Signature *sig, struct given *g) {
    begin_index(&g->inputs);
    g->by_name = by_name(g->v, g->n);
    g->first = arena_zarray(a, size_t, sig->n_inputs + 1);
    g->next = arena_zarray(a, size_t, g->n + 1);
    for (size_t k = sig->n_inputs; k-- > 0;)
        smap_put(&g->inputs, str_of(sig->inputs[k]->name), &g->first[k]);
    for (size_t i = g->n; i-- > 0;) {
        size_t *first = smap_get(&g->inputs, str_of(g->v[i].input));
        if (!first) continue;
        g->next[i] = *first;
        *first = i + 1;
    }
}
// *plain: shapes of inputs that have a rank, and of values of the model.
static status_t check_names(struct key_binder *b, const Hlod__V1__Signature *sig,
                            const struct given *g, size_t *plain) {
    for (size_t i = 0; i < g->n; i++) {
        const size_t *first = smap_get(&g->inputs, str_of(g->v[i].input));
        const Hlod__V1__TensorSpec *in = first ? sig->inputs[first - g->first] : NULL;
        if (in ? key_is_loose(in) && !in->sequence : is_element(b->a, sig, g->v[i].input)) continue;
        if (in && in->sequence) in = NULL; // its elements have names of their own
        ++*plain;
        if (!in && key_default(sig, g->v[i].input)) continue;
        if (!in) return key_no_such_input(b->a, g->v[i].input, sig, sig);
    }
    return ST_OK;
}
static status_t bind_all(struct key_binder *b, const Hlod__V1__Signature *sig,
                         const struct given *g) {
    size_t used = 0, plain = 0;
    for (size_t k = 0; k < sig->n_inputs; k++)
        if (key_is_loose(sig->inputs[k]))
            RETURN_IF_ERR(bind_loose(b, sig->inputs[k], k, &g->by_name, &used));
    RETURN_IF_ERR(check_names(b, sig, g, &plain));
    for (size_t k = 0; k < sig->n_inputs; k++) // in the model's order, whatever the request's is
        for (size_t i = g->first[k]; i && !key_is_loose(sig->inputs[k]); i = g->next[i - 1])
            RETURN_IF_ERR(bind_input(b, sig->inputs[k], k, &g->v[i - 1]));

    if (used + plain != g->n)
        return st_because(ST_INVALID_ARGUMENT, UNKNOWN_INPUT,
                          "the elements of a sequence are not numbered from 0 without gaps");
    for (size_t k = 0; k < sig->n_inputs; k++) {
        if (!sig->inputs[k]->by_value) continue;
        const struct key_shape *last = NULL;
        for (size_t i = g->first[k]; i; i = g->next[i - 1])
            last = &g->v[i - 1];
        RETURN_IF_ERR(bind_values(b, sig->inputs[k], k, last));
    }
    RETURN_IF_ERR(bind_defaults(b, sig, &g->by_name));
    return bind_rest(b, sig);
}

status_t key_bind(struct arena *a, const Hlod__V1__Signature *sig, const struct key_shape *shapes,
                  size_t n, unsigned how, Hlod__Wire__Binding ***out, size_t *out_n) {
    struct key_binder b = {.a = a, .how = how};
    struct given g = {.v = shapes, .n = n};
    begin_given(a, sig, &g);
    status_t st = bind_all(&b, sig, &g);
    smap_done(&g.inputs);
    smap_done(&g.by_name);
    smap_done(&b.index);
    if (st) return st;
    key_sort_bindings(b.bound.v, b.bound.n);
    *out = b.bound.v;
    *out_n = b.bound.n;
    return ST_OK;
}

// The first n_names of n with other names.
static Hlod__V1__TensorSpec **renamed(struct arena *a, Hlod__V1__TensorSpec **bound,
                                      const char *const *names, size_t n_names, size_t n) {
    Hlod__V1__TensorSpec **out = arena_array(a, Hlod__V1__TensorSpec *, n + 1);
    for (size_t i = 0; i < n; i++) {
        out[i] = i < n_names ? arena_dup(a, bound[i], sizeof *bound[i]) : bound[i];
        if (i < n_names) out[i]->name = (char *)(uintptr_t)names[i];
    }
    return out;
}

// What the executable was made for; 0: nothing of that symbol.
static int64_t bound_to(const Hlod__V1__ExecutableInfo *x, const char *symbol) {
    size_t n = strlen(symbol);
    int64_t v;
    for (size_t i = 0; i < x->n_bindings; i++)
        if (!strncmp(x->bindings[i], symbol, n) && x->bindings[i][n] == '=' &&
            str_to_i64(str_of(x->bindings[i] + n + 1), &v))
            return v;
    return 0;
}
// The executable's inputs by the model's names: tensors of a loose one by its own, and behind all
// the values of the model that are replaced.
static size_t input_names(struct arena *a, const Hlod__V1__ExecutableInfo *x,
                          const Hlod__V1__Signature *names, const char *const **out) {
    VEC(const char *) v = {0};
    for (size_t i = 0; i < names->n_inputs; i++) {
        const Hlod__V1__TensorSpec *in = names->inputs[i];
        int64_t n = key_is_loose(in) ? bound_to(x, arena_printf(a, "#%zu", i)) : 1;
        for (int64_t e = 0; e < n && e < KEY_MAX_ELEMENTS; e++)
            avec_push(a, &v, key_is_loose(in) ? key_element_name(a, in, (size_t)e) : in->name);
    }
    for (size_t i = 0; i < names->n_defaults; i++)
        if (bound_to(x, arena_printf(a, "~%zu", i)) == 1)
            avec_push(a, &v, names->defaults[i]->name);
    *out = v.v;
    return v.n;
}
const char *key_output_name(struct arena *a, const Hlod__V1__Signature *sig, const char *name) {
    struct str rest = str_of(name), number;
    int64_t i;
    if (!str_starts(rest, "result")) return name;
    rest = (struct str){rest.p + 6, rest.n - 6};
    if (!str_cut(&rest, '[', &number) || !str_to_i64(number, &i) || i < 0 ||
        (size_t)i >= sig->n_outputs)
        return name;
    return rest.n ? arena_printf(a, "%s[" STR_FMT, sig->outputs[i]->name, STR_ARG(rest))
                  : sig->outputs[i]->name;
}

const Hlod__V1__Counts *key_counts(const Hlod__V1__ExecutableInfo *info) {
    return info->optimized && info->optimized->entry ? info->optimized : info->after;
}

Hlod__V1__Signature *key_signature(struct arena *a, const Hlod__V1__ExecutableInfo *x,
                                   const Hlod__V1__Signature *names) {
    Hlod__V1__Signature *bound = x->signature;
    size_t carried = x->part ? x->part->carried : 0;
    const char *const *in;
    if (!bound || !names || bound->n_inputs != input_names(a, x, names, &in) + carried)
        return bound;
    Hlod__V1__Signature *s = arena_dup(a, bound, sizeof *bound);
    s->inputs = renamed(a, bound->inputs, in, bound->n_inputs - carried, bound->n_inputs);
    if (x->part && x->part->sizes) return s; // open: it hands on what has no names

    bool loose = bound->n_outputs != names->n_outputs;
    for (size_t i = 0; i < names->n_outputs; i++)
        loose |= names->outputs[i]->sequence || names->outputs[i]->optional;
    const char **out = arena_array(a, const char *, bound->n_outputs + 1);
    for (size_t i = 0; i < bound->n_outputs; i++)
        out[i] =
            loose ? key_output_name(a, names, bound->outputs[i]->name) : names->outputs[i]->name;
    s->outputs = renamed(a, bound->outputs, out, bound->n_outputs, bound->n_outputs);
    return s;
}

const char *key_bindings_text(struct arena *a, Hlod__Wire__Binding *const *b, size_t n) {
    struct strbuf t = {0};
    for (size_t i = 0; i < n; i++)
        strbuf_printf(&t, "%s%s=%" PRId64, i ? ";" : "", b[i]->symbol, b[i]->size);
    const char *text = arena_strdup(a, strbuf_cstr(&t));
    strbuf_done(&t);
    return text;
}
