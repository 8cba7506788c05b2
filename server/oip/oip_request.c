// SPDX-License-Identifier: Apache-2.0
// What an inference request says: its parameters, and its inputs as the tensors to come. Calls
// nothing of the protocol's other files. Thread: any.
#include <math.h>
#include <string.h>

#include "server/body/tensors.h"
#include "server/oip/oip.h"

// The entries of the parameters' maps are types of their own, all of one shape: hence by
// descriptor.
const Inference__InferParameter *oip_parameter(const ProtobufCMessage *m, const char *key) {
    const uint8_t *base = (const uint8_t *)m;
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(m->descriptor, "parameters");
    const ProtobufCMessageDescriptor *entry = f->descriptor;
    const uint8_t *const *v = *(const uint8_t *const *const *)(const void *)(base + f->offset);
    size_t n = *(const size_t *)(const void *)(base + f->quantifier_offset);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(*(char *const *)(const void *)(v[i] + entry->fields[0].offset), key))
            return *(Inference__InferParameter *const *)(const void *)(v[i] +
                                                                       entry->fields[1].offset);
    return NULL;
}
bool oip_integer(const Inference__InferParameter *p, int64_t *out) {
    if (!p) return false;
    if (p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM)
        *out = p->int64_param;
    else if (p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM)
        *out = p->uint64_param > INT64_MAX ? INT64_MAX : (int64_t)p->uint64_param;
    else if (p->parameter_choice_case == // a number of JSON with a point or an exponent
                 INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM &&
             fabs(p->double_param) < 0x1p63 && p->double_param == trunc(p->double_param))
        *out = (int64_t)p->double_param;
    else
        return false;
    return true;
}
int oip_flag(const Inference__InferParameter *p) { // -1: not given
    if (!p || p->parameter_choice_case != INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM)
        return -1;
    return p->bool_param;
}

bool oip_in_region(const ProtobufCMessage *tensor) {
    return oip_parameter(tensor, "shared_memory_region") != NULL;
}

// The parameters that mean something here, and of what type each is; others are passed over.
enum kind { COUNT, SIGNED, FLAG, TEXT, ID };
static const char *const kind_names[] = {[COUNT] = "a whole number, 0 or more",
                                         [SIGNED] = "a whole number",
                                         [FLAG] = "true or false",
                                         [TEXT] = "a string",
                                         [ID] = "a whole number or a string"};
static const struct known {
    const char *key;
    enum kind kind;
} known[] = {{"binary_data", FLAG},
             {"binary_data_output", FLAG},
             {"binary_data_size", SIGNED}, // compared with the size that the shape has
             {"classification", SIGNED},   // says itself which there are
             {"hlod_timing", FLAG},
             {"priority", SIGNED},
             {"sequence_end", FLAG},
             {"sequence_id", ID},
             {"sequence_start", FLAG},
             {"shared_memory_byte_size", COUNT},
             {"shared_memory_offset", COUNT},
             {"shared_memory_region", TEXT},
             {"timeout", COUNT}};

static bool is_of_kind(const Inference__InferParameter *p, enum kind kind) {
    int64_t v;
    bool text =
        p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    if (kind == FLAG) return oip_flag(p) >= 0;
    if (kind == TEXT || (kind == ID && text)) return text;
    return oip_integer(p, &v) && (kind != COUNT || v >= 0);
}
status_t oip_check_parameters(const ProtobufCMessage *m, const char *of, const char *name) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const Inference__InferParameter *p = oip_parameter(m, known[i].key);
        if (p && p->parameter_choice_case && !is_of_kind(p, known[i].kind))
            return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "%s%s%.80s%s%s: expected %s", of,
                              *of ? " '" : "", name, *of ? "', " : "", known[i].key,
                              kind_names[known[i].kind]);
    }
    return ST_OK;
}

status_t tensors_of_infer(struct call *c, int from, struct tensor_desc **out) {
    const Inference__ModelInferRequest *q = call_request(c);
    struct tensor_desc *t = arena_array(&c->arena, struct tensor_desc, q->n_inputs + 1);
    for (size_t i = 0; i < q->n_inputs; i++) {
        const Inference__ModelInferRequest__InferInputTensor *x = q->inputs[i];
        RETURN_IF_ERR(oip_check_parameters(&x->base, "input", x->name));
        t[i] = (struct tensor_desc){.name = x->name,
                                    .type = x->datatype,
                                    .dims = x->shape,
                                    .rank = x->n_shape,
                                    .given = -1};
        t[i].elsewhere = oip_in_region(&x->base);
        if (t[i].elsewhere) // its size is checked when it is read
            oip_integer(oip_parameter(&x->base, "shared_memory_byte_size"), &t[i].given);
        else if (from == TENSORS_RAW)
            t[i].given = c->given[i];
        else if (!oip_integer(oip_parameter(&x->base, "binary_data_size"), &t[i].given))
            t[i].in_json = true;
        if (from == TENSORS_JSON && x->contents && x->contents->n_bytes_contents) {
            t[i].given = 0;
            for (size_t k = 0; k < x->contents->n_bytes_contents; k++)
                t[i].given += 4 + (int64_t)x->contents->bytes_contents[k].len;
        }
    }
    c->n_inputs = q->n_inputs;
    *out = t;
    return ST_OK;
}
