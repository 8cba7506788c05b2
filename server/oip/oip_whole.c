// SPDX-License-Identifier: Apache-2.0
// Bodies that leave to the model's signature what a request usually says: a raw request is the one
// input's bytes; the keys of a generate request name inputs (the others are parameters), a value's
// shape is the signature's as far as its elements fill it.
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "proto/json.h"
#include "proto/message.h"
#include "server/body/tensors.h"
#include "server/oip/oip.h"

typedef Inference__ModelInferRequest__InferInputTensor input;
typedef Hlod__V1__TensorSpec spec;

#define refuse(reason, name, why)                                                                  \
    st_because(ST_INVALID_ARGUMENT, reason, "input '%.80s': %s", (name), (why))

static void add_input(struct call *c, const spec *s, int64_t *dims, size_t rank) {
    Inference__ModelInferRequest *q = call_request(c);
    input *x = q->inputs[q->n_inputs++] =
        message_new(&c->arena, &inference__model_infer_request__infer_input_tensor__descriptor);
    x->name = s->name;
    x->datatype = s->dtype;
    x->shape = dims;
    x->n_shape = rank;
}

// The signature's dims for n elements: of its unknown ones the last takes what the others, taken as
// 1, leave.
static bool fit(struct arena *a, const spec *s, int64_t n, int64_t **out) {
    int64_t known = 1, *d = arena_array(a, int64_t, s->n_dims + 1);
    size_t unknown = s->n_dims;
    for (size_t i = 0; i < s->n_dims; i++) {
        d[i] = s->dims[i]->size;
        if (d[i] < 0) {
            d[i] = 1;
            unknown = i;
        }
        if (!sz_mul(known, d[i], &known)) return false;
    }
    *out = d;
    if (unknown == s->n_dims) return known == n;
    if (known == 0 || n % known) return false;
    d[unknown] = n / known;
    return true;
}

// ---- raw

static status_t raw(struct call *c, const Hlod__V1__Signature *sig,
                    const struct tensors_limits *l) {
    if (sig->n_inputs != 1)
        return st_because(ST_INVALID_ARGUMENT, BAD_TENSOR_DATA,
                          "a raw request is for models of one input; this one has %zu",
                          sig->n_inputs);
    const spec *s = sig->inputs[0];
    const struct dtype_row *t = numbers_dtype(str_of(s->dtype));
    bool text = t && t->cls == NUM_STRING;
    size_t unknown = 0;
    for (size_t i = 0; i < s->n_dims; i++)
        unknown += s->dims[i]->size < 0;
    int64_t *dims, bytes = (int64_t)c->whole_body.n,
                   n = text            ? 1
                       : t && t->bytes ? bytes / t->bytes
                                       : -1;
    if (!t || s->unknown_rank || s->sequence || (!text && unknown > 1))
        return refuse(BAD_TENSOR_DATA, s->name,
                      "a raw request is for a shape with at most one variable dimension");
    if ((!text && bytes % t->bytes) || !fit(&c->arena, s, n, &dims))
        return refuse(BAD_TENSOR_DATA, s->name, "the body's bytes do not fill its shape");

    uint32_t head = (uint32_t)bytes; // one string is the whole body
    int64_t *given = arena_new_of(&c->arena, int64_t);
    *given = bytes + (text ? 4 : 0);
    c->given = given;
    add_input(c, s, dims, s->n_dims);
    RETURN_IF_ERR(tensors_layout(c, l, TENSORS_RAW, NULL));
    int64_t at = c->inputs[0].offset;
    if (text) RETURN_IF_ERR(tensors_put(c, at, &head, 4));
    return tensors_put(c, at + (text ? 4 : 0), c->whole_body.p, c->whole_body.n);
}

// ---- generate

enum { MAX_NEST = 16 };
struct nest { // of a JSON value
    int64_t dims[MAX_NEST], leaves;
    int rank; // -1: not yet known
};
static void skip_space(const char **p, const char *end) {
    while (*p < end && **p && strchr(" \t\r\n", **p))
        ++*p;
}
// Measures the value at *p; false where it is ragged or no JSON of scalars and arrays.
static bool measure(const char **p, const char *end, int depth, struct nest *n) {
    skip_space(p, end);
    if (*p >= end || depth >= MAX_NEST) return false;
    if (**p != '[') {
        const char *start = *p;
        if (n->rank < 0) n->rank = depth;
        if (n->rank != depth) return false;
        if (**p == '"') {
            for (++*p; *p < end && **p != '"'; ++*p)
                if (**p == '\\') ++*p;
            if (*p >= end) return false;
            ++*p;
        } else
            while (*p < end && **p && !strchr(",]} \t\r\n", **p))
                ++*p;
        n->leaves++;
        return *p > start;
    }

    int64_t count = 0;
    for (char closer = ','; closer == ','; count++) {
        ++*p;
        const char *q = *p;
        skip_space(&q, end);
        if (count == 0 && q < end && *q == ']') { // empty
            *p = q + 1;
            return false;
        }
        if (!measure(p, end, depth + 1, n)) return false;
        skip_space(p, end);
        if (*p >= end || (**p != ',' && **p != ']')) return false;
        closer = **p;
    }
    ++*p;
    if (n->dims[depth] == 0) n->dims[depth] = count;
    return n->dims[depth] == count;
}

static status_t add_value(struct call *c, const spec *s, struct str value, int64_t *given) {
    struct nest n = {.rank = -1};
    const char *p = value.p;
    const struct dtype_row *t = numbers_dtype(str_of(s->dtype));
    if (!t || s->sequence) return refuse(BAD_TENSOR_DATA, s->name, "cannot be given so");
    if (!measure(&p, value.p + value.n, 0, &n) || p != value.p + value.n)
        return refuse(BAD_TENSOR_DATA, s->name, "expected a value, or an array of even rows");
    int64_t *dims = arena_dup(&c->arena, n.dims, sizeof n.dims);
    bool as_given = s->unknown_rank || (size_t)n.rank == s->n_dims;
    for (size_t i = 0; as_given && !s->unknown_rank && i < s->n_dims; i++)
        as_given = s->dims[i]->size < 0 || s->dims[i]->size == dims[i];
    size_t rank = as_given ? (size_t)n.rank : s->n_dims;
    if (!as_given && !fit(&c->arena, s, n.leaves, &dims))
        return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH,
                          "input '%.80s': %lld values do not fill its shape", s->name,
                          (long long)n.leaves);
    add_input(c, s, dims, rank);
    *given = n.leaves * t->bytes;
    return t->cls == NUM_STRING
               ? st_note(numbers_scan_strings(value, n.leaves, NULL, given), "'%.80s'", s->name)
               : ST_OK;
}

static const spec *find_spec(const Hlod__V1__Signature *sig, struct str key) {
    for (size_t i = 0; i < sig->n_inputs; i++)
        if (str_is(key, sig->inputs[i]->name)) return sig->inputs[i];
    return NULL;
}

// `rest`: the members that are no inputs, as a request of their own.
static status_t parameters(struct call *c, const struct strbuf *rest, struct str id) {
    struct strbuf text = {0};
    ProtobufCMessage *m;
    strbuf_printf(&text, "{%s" STR_FMT "%s\"parameters\":{%s}}", id.n ? "\"id\":" : "", STR_ARG(id),
                  id.n ? "," : "", strbuf_cstr(rest));
    status_t st = json_parse_oip(&c->arena, &inference__model_infer_request__descriptor,
                                 (struct str){text.p, text.n}, &m);
    strbuf_done(&text);
    if (st) return st;
    Inference__ModelInferRequest *q = call_request(c);
    const Inference__ModelInferRequest *x = (const Inference__ModelInferRequest *)m;
    q->id = x->id;
    q->parameters = x->parameters;
    q->n_parameters = x->n_parameters;
    return ST_OK;
}

static status_t fill(struct call *c, const struct str *values) {
    for (size_t i = 0; i < c->n_inputs; i++) {
        const struct job_input *in = &c->inputs[i];
        int64_t n;
        void *data = malloc((size_t)in->size + 1); // bounded by the layout
        if (!data) return st_oom();
        status_t st = in->dtype->cls == NUM_STRING
                          ? numbers_scan_strings(values[i], in->elements, data, &n)
                          : numbers_scan(values[i], in->dtype, in->elements, data);
        if (!st) st = tensors_put(c, in->offset, data, (size_t)in->size);
        free(data);
        if (st) return st_note(st, "input '%.80s'", in->name);
    }
    return ST_OK;
}

static status_t generate(struct call *c, const Hlod__V1__Signature *sig,
                         const struct tensors_limits *l) {
    Inference__ModelInferRequest *q = call_request(c);
    struct str body = str_trim(c->whole_body), key, value, id = {0};
    struct str *values = arena_array(&c->arena, struct str, sig->n_inputs + 1);
    int64_t *given = arena_array(&c->arena, int64_t, sig->n_inputs + 1);
    struct strbuf rest = {0};
    bool object = body.n && body.p[0] == '{';
    status_t st = ST_OK;
    body = object ? (struct str){body.p + 1, body.n - 1} : body;

    while (!st && object && tensors_member(&body, &key, &value)) {
        const spec *s = find_spec(sig, key);
        if (s && q->n_inputs == sig->n_inputs)
            st = refuse(BAD_JSON, s->name, "given twice");
        else if (s) {
            values[q->n_inputs] = value;
            st = add_value(c, s, value, &given[q->n_inputs]);
        } else if (str_is(key, "id") && value.p[0] == '"')
            id = value;
        else if (!strchr("[{n", value.p[0])) // a parameter is a scalar
            strbuf_printf(&rest, "%s\"" STR_FMT "\":" STR_FMT, rest.n ? "," : "", STR_ARG(key),
                          STR_ARG(value));
    }

    if (!st && (!object || body.n))
        st = st_because(ST_INVALID_ARGUMENT, BAD_JSON, "the body is not a JSON object");
    if (!st) st = parameters(c, &rest, id);
    strbuf_done(&rest);
    c->given = given;
    if (!st) st = tensors_layout(c, l, TENSORS_RAW, NULL);
    return st ? st : fill(c, values);
}

status_t oip_whole(struct call *c, const Hlod__V1__Signature *sig) {
    Inference__ModelInferRequest *q = call_request(c);
    struct tensors_limits l = {(int64_t)c->whole_body.n * 8 + 4096}; // "0," may become 8 bytes
    q->inputs = arena_array(&c->arena, input *, sig->n_inputs + 1);
    q->n_inputs = 0;
    return c->whole == WHOLE_RAW ? raw(c, sig, &l) : generate(c, sig, &l);
}
