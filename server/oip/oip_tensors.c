// SPDX-License-Identifier: Apache-2.0
// Tensors of the Open Inference Protocol where they are more than bytes in order: the typed lists
// of a gRPC request, and the forms an output may be asked for in: bytes, a classification, a place
// in shared memory.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "proto/message.h"
#include "server/body/tensors.h"
#include "server/oip/oip.h"

// The typed list that holds elements of a class: where it is in the contents, bytes of an element.
#define LIST(name)                                                                                 \
    {offsetof(Inference__InferTensorContents, name),                                               \
     offsetof(Inference__InferTensorContents, n_##name),                                           \
     sizeof *((Inference__InferTensorContents *)NULL)->name}
static const struct {
    size_t list, count, bytes;
} lists[NUM_CLASSES] = {[NUM_PRED] = LIST(bool_contents),  [NUM_S4] = LIST(int_contents),
                        [NUM_S8] = LIST(int_contents),     [NUM_S16] = LIST(int_contents),
                        [NUM_S32] = LIST(int_contents),    [NUM_S64] = LIST(int64_contents),
                        [NUM_U4] = LIST(uint_contents),    [NUM_U8] = LIST(uint_contents),
                        [NUM_U16] = LIST(uint_contents),   [NUM_U32] = LIST(uint_contents),
                        [NUM_U64] = LIST(uint64_contents), [NUM_F32] = LIST(fp32_contents),
                        [NUM_F64] = LIST(fp64_contents)};

// The elements of a request's contents by the lists of the .proto, in its order.
static const struct {
    size_t count;
    const char *name;
} all_lists[] = {
#define COUNT(name) {offsetof(Inference__InferTensorContents, n_##name), #name}
    COUNT(bool_contents),   COUNT(int_contents),  COUNT(int64_contents), COUNT(uint_contents),
    COUNT(uint64_contents), COUNT(fp32_contents), COUNT(fp64_contents),  COUNT(bytes_contents)};
static size_t count_at(const Inference__InferTensorContents *k, size_t offset) {
    size_t n;
    memcpy(&n, (const char *)k + offset, sizeof n);
    return n;
}
// The first list with elements, other than the one that counts at `but`; NULL: none.
static const char *other_list(const Inference__InferTensorContents *k, size_t but) {
    for (size_t i = 0; i < sizeof all_lists / sizeof *all_lists; i++)
        if (all_lists[i].count != but && count_at(k, all_lists[i].count)) return all_lists[i].name;
    return NULL;
}
static const char *list_name(size_t count) {
    for (size_t i = 0; i < sizeof all_lists / sizeof *all_lists; i++)
        if (all_lists[i].count == count) return all_lists[i].name;
    return "";
}
// Elements in the one list that is the type's, as many as the shape has.
static status_t check_list(const struct job_input *in, const Inference__InferTensorContents *k,
                           size_t count) {
    const char *other = other_list(k, count);
    if (other)
        return st_because(ST_INVALID_ARGUMENT, BAD_TENSOR_DATA,
                          "input '%.80s': values of %s belong into %s, there are some in %s",
                          in->name, oip_datatype(in->dtype->name), list_name(count), other);
    if ((int64_t)count_at(k, count) == in->elements) return ST_OK;
    return st_because(ST_INVALID_ARGUMENT, BAD_TENSOR_DATA,
                      "input '%.80s': %zu values, its shape has %lld", in->name, count_at(k, count),
                      (long long)in->elements);
}
status_t oip_no_contents(const Inference__ModelInferRequest *q) {
    for (size_t i = 0; i < q->n_inputs; i++) {
        const char *list = q->inputs[i]->contents ? other_list(q->inputs[i]->contents, 0) : NULL;
        if (list)
            return st_because(ST_INVALID_ARGUMENT, BAD_TENSOR_DATA,
                              "input '%.80s': %s, and raw_input_contents as well",
                              q->inputs[i]->name, list);
    }
    return ST_OK;
}

// A list's 32 bits as an element of fewer.
static bool narrows(const struct dtype_row *t, const uint8_t *p, uint8_t *out) {
    int32_t s;
    uint32_t u;
    memcpy(&s, p, sizeof s);
    memcpy(&u, p, sizeof u);
    memcpy(out, p, sizeof s); // little-endian: the low bytes
    if (t->cls == NUM_U4) return u < 16;
    if (t->cls == NUM_S4) return s >= -8 && s < 8;
    int bits = 8 * t->bytes;
    bool is_signed = t->cls == NUM_S8 || t->cls == NUM_S16;
    return is_signed ? s >= -(1 << (bits - 1)) && s < 1 << (bits - 1) : u >> bits == 0;
}
// Elements of a typed list to their places; narrow integers travel as 32 bits.
static status_t put_list(struct call *c, const struct job_input *in,
                         const Inference__InferTensorContents *k) {
    size_t from_bytes = lists[in->dtype->cls].bytes, to = (size_t)in->dtype->bytes, n;
    const uint8_t *v;
    if (!from_bytes)
        return st_because(ST_INVALID_ARGUMENT, BAD_TENSOR_DATA,
                          "input '%.80s': %s has no typed form, send raw_input_contents", in->name,
                          in->dtype->name);
    memcpy(&v, (const char *)k + lists[in->dtype->cls].list, sizeof v);
    RETURN_IF_ERR(check_list(in, k, lists[in->dtype->cls].count));
    n = count_at(k, lists[in->dtype->cls].count);
    if (from_bytes == to) return tensors_put(c, in->offset, v, n * to);
    for (size_t i = 0; i < n; i++) {
        uint8_t x[sizeof(int32_t)];
        if (!narrows(in->dtype, v + i * from_bytes, x))
            return st_because(ST_INVALID_ARGUMENT, BAD_TENSOR_DATA,
                              "input '%.80s', element %zu: value does not fit the type", in->name,
                              i);
        RETURN_IF_ERR(tensors_put(c, in->offset + (int64_t)(i * to), x, to));
    }
    return ST_OK;
}

static status_t put_strings(struct call *c, const struct job_input *in,
                            const Inference__InferTensorContents *k) {
    int64_t at = in->offset;
    RETURN_IF_ERR(check_list(in, k, offsetof(Inference__InferTensorContents, n_bytes_contents)));
    for (size_t i = 0; i < k->n_bytes_contents; i++) {
        uint32_t n = (uint32_t)k->bytes_contents[i].len; // little-endian; a message is below 2 GiB
        RETURN_IF_ERR(tensors_put(c, at, &n, sizeof n));
        RETURN_IF_ERR(tensors_put(c, at + 4, k->bytes_contents[i].data, n));
        at += 4 + n;
    }
    return ST_OK;
}

status_t oip_contents(struct call *c) {
    const Inference__ModelInferRequest *q = call_request(c);
    for (size_t i = 0; i < q->n_inputs; i++) {
        const struct job_input *in = &c->inputs[i];
        if (c->descs[i].elsewhere) continue;
        static const Inference__InferTensorContents none = INFERENCE__INFER_TENSOR_CONTENTS__INIT;
        const Inference__InferTensorContents *k =
            q->inputs[i]->contents ? q->inputs[i]->contents : &none;
        RETURN_IF_ERR(in->dtype->cls == NUM_STRING ? put_strings(c, in, k) : put_list(c, in, k));
    }
    return ST_OK;
}

// ---- outputs

// The request's words about output i; NULL: it was not asked for by name.
static const ProtobufCMessage *asked(const struct call *c, size_t i) {
    const Inference__ModelInferRequest *q = call_request(c);
    for (size_t k = 0; k < q->n_outputs; k++)
        if (!strcmp(q->outputs[k]->name, c->outputs[i].name)) return &q->outputs[k]->base;
    return NULL;
}
static bool in_region(const struct call *c, size_t i) {
    const ProtobufCMessage *m = asked(c, i);
    return m && oip_in_region(m);
}

bool oip_output_binary(const struct call *c, size_t i) {
    const Inference__ModelInferRequest *q = call_request(c);
    const ProtobufCMessage *m = asked(c, i);
    if (in_region(c, i)) return false;
    if (c->outputs[i].dtype->cls == NUM_RAW || c->whole == WHOLE_RAW) return true;
    int own = m ? oip_flag(oip_parameter(m, "binary_data")) : -1;
    if (own >= 0) return own;
    return oip_flag(oip_parameter(&q->base, "binary_data_output")) == 1;
}

bool oip_output_parameters(const struct call *c, size_t i, struct strbuf *b) {
    if (!in_region(c, i)) {
        if (!oip_output_binary(c, i)) return b->n > 0;
        strbuf_puts(b, "\"binary_data_size\":");
        strbuf_u64(b, c->outputs[i].data.n);
        return true;
    }
    const ProtobufCMessage *m = asked(c, i);
    int64_t at = 0;
    strbuf_puts(b, "\"shared_memory_region\":");
    strbuf_json_str(b, str_of(oip_parameter(m, "shared_memory_region")->string_param));
    strbuf_printf(b, ",\"shared_memory_byte_size\":%zu", c->outputs[i].data.n);
    if (oip_integer(oip_parameter(m, "shared_memory_offset"), &at) && at)
        strbuf_printf(b, ",\"shared_memory_offset\":%lld", (long long)at);
    return true;
}

// Where it lies, on a gRPC output.
static void put_place(struct call *c, size_t i,
                      Inference__ModelInferResponse__InferOutputTensor *t) {
    typedef Inference__ModelInferResponse__InferOutputTensor__ParametersEntry entry;
    static const char *const keys[] = {"shared_memory_region", "shared_memory_byte_size",
                                       "shared_memory_offset"};
    t->parameters = arena_array(&c->arena, entry *, 3);
    for (size_t k = 0; k < 3; k++) {
        const Inference__InferParameter *p = oip_parameter(asked(c, i), keys[k]);
        if (!p) continue;
        entry *e = t->parameters[t->n_parameters++] = message_new(
            &c->arena,
            &inference__model_infer_response__infer_output_tensor__parameters_entry__descriptor);
        e->key = (char *)keys[k];
        e->value = arena_dup(&c->arena, p, sizeof *p);
        if (k == 1) e->value->int64_param = (int64_t)c->outputs[i].data.n; // what it really has
    }
}

void oip_outputs_into(struct call *c, Inference__ModelInferResponse *m) {
    m->n_raw_output_contents = m->n_outputs;
    m->raw_output_contents = arena_array(&c->arena, ProtobufCBinaryData, m->n_outputs + 1);
    for (size_t i = 0; i < m->n_outputs; i++)
        if (in_region(c, i)) put_place(c, i, m->outputs[i]);
    for (size_t i = 0; i < m->n_outputs; i++) // one for each, so that they pair by order
        m->raw_output_contents[i] =
            in_region(c, i) ? (ProtobufCBinaryData){0, NULL}
                            : (ProtobufCBinaryData){c->outputs[i].data.n,
                                                    (uint8_t *)(uintptr_t)c->outputs[i].data.p};
}

status_t oip_outputs_to_regions(struct call *c) {
    for (size_t i = 0; i < c->n_outputs; i++)
        if (in_region(c, i)) RETURN_IF_ERR(oip_region_write(c, asked(c, i), c->outputs[i].data));
    return ST_OK;
}

// ---- classification

enum { MAX_CLASSES = 10000 };
struct ranked {
    long double value;
    int64_t index;
};
// The n largest of a row, largest first, the lower index first among equals; no number comes last.
static void rank_row(const struct dtype_row *t, const void *p, int64_t first, int64_t count,
                     struct ranked *best, int64_t n) {
    int64_t have = 0;
    for (int64_t i = 0; i < count; i++) {
        long double v = numbers_at(t, p, first + i);
        if (isnan(v)) v = -HUGE_VALL;
        if (have == n && v <= best[n - 1].value) continue;
        int64_t at = have < n ? have++ : n - 1;
        for (; at > 0 && best[at - 1].value < v; at--)
            best[at] = best[at - 1];
        best[at] = (struct ranked){v, i};
    }
}

// The labels of an output by index: lines of its text. NULL: none.
static struct str *labels_of(struct call *c, const struct named_model *x, const char *output,
                             size_t *out_n) {
    for (size_t i = 0; x && i < x->n_labels; i++) {
        if (strcmp(x->labels[i].output, output)) continue;
        VEC(struct str) lines = {0};
        struct str text = str_of(arena_strdup(&c->arena, x->labels[i].text)), line;
        while (str_cut(&text, '\n', &line))
            avec_push(&c->arena, &lines, str_trim(line));
        *out_n = lines.n;
        return lines.v;
    }
    return NULL;
}

// One element of the classification: its length, "value:index" or "value:index:label".
static void put_class(struct strbuf *b, const struct call_output *o, int64_t row, size_t index,
                      struct str label) {
    struct strbuf text = {0};
    const uint8_t *at = o->data.p + ((size_t)row + index) * (size_t)o->dtype->bytes;
    numbers_print(&text, o->dtype, 1, at); // "[0.25]"; a non-finite one as a string
    struct str value = {text.p + 1, text.n - 2};
    if (value.p[0] == '"') value = (struct str){value.p + 1, value.n - 2};
    size_t head = b->n;
    strbuf_add(b, "\0\0\0", 4);
    strbuf_printf(b, STR_FMT ":%zu%s" STR_FMT, STR_ARG(value), index, label.n ? ":" : "",
                  STR_ARG(label));
    uint32_t len = (uint32_t)(b->n - head - 4); // little-endian
    memcpy(b->p + head, &len, sizeof len);
    strbuf_done(&text);
}

static status_t classify(struct call *c, struct call_output *o, const struct named_model *x,
                         int64_t n) {
    int64_t rows = o->rank > 1 ? o->dims[0] : 1, count = rows ? o->elements / rows : 0;
    if (o->dtype->cls == NUM_STRING || o->dtype->cls == NUM_RAW || n < 1 || n > MAX_CLASSES)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                          "output '%.80s': a classification takes 1 to %d of the largest of a "
                          "tensor of numbers",
                          o->name, MAX_CLASSES);
    if (n > count) n = count;
    struct ranked *best = arena_array(&c->arena, struct ranked, n + 1);
    size_t n_labels = 0;
    const struct str *labels = labels_of(c, x, o->name, &n_labels);
    struct strbuf all = {0};
    for (int64_t r = 0; r < rows; r++) {
        rank_row(o->dtype, o->data.p, r * count, count, best, n);
        for (int64_t k = 0; k < n; k++) {
            size_t i = (size_t)best[k].index;
            put_class(&all, o, r * count, i, i < n_labels ? labels[i] : (struct str){0});
        }
    }

    int64_t *dims = arena_array(&c->arena, int64_t, 2);
    dims[0] = rows;
    dims[o->rank > 1] = n;
    o->rank = o->rank > 1 ? 2 : 1;
    o->dims = dims;
    o->dtype = numbers_dtype(STR("string"));
    o->elements = rows * n;
    o->data = (struct span){arena_dup(&c->arena, strbuf_cstr(&all), all.n + 1), all.n};
    strbuf_done(&all);
    return ST_OK;
}

status_t oip_classify(struct call *c, const struct named_model *x) {
    for (size_t i = 0; i < c->n_outputs; i++) {
        int64_t n;
        const ProtobufCMessage *m = asked(c, i);
        if (m && oip_integer(oip_parameter(m, "classification"), &n) && n)
            RETURN_IF_ERR(classify(c, &c->outputs[i], x, n));
    }
    return ST_OK;
}
