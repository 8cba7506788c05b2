// SPDX-License-Identifier: Apache-2.0
#include "server/body/tensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/vec.h"
#include "proto/frame.h"
#include "proto/json.h"
#include "scheduler/workers/memfds.h"
#include "server/api/api.h"

enum { MAX_INPUTS = 1 << 16 }; // of one request: each costs more than its bytes
#define bad(reason, i, name, why)                                                                  \
    st_because(ST_INVALID_ARGUMENT, reason, "inputs[%zu] '%.80s': %s", (i), (name), (why))

// "f32" for "float32": the name here of a type as NumPy and others call it; NULL: none is known.
static const char *type_here(struct arena *a, const char *type) {
    static const struct {
        const char *there, *here;
    } begins[] = {{"float", "f"}, {"int", "s"}, {"uint", "u"}, {"bool", "pred"}, {"complex", "c"}};
    if (!strcmp(type, "float") || !strcmp(type, "double")) return *type == 'f' ? "f32" : "f64";
    for (size_t k = 0; k < sizeof begins / sizeof *begins; k++) {
        size_t n = strlen(begins[k].there);
        if (strncmp(type, begins[k].there, n) != 0) continue;
        const char *here = arena_printf(a, "%s%s", begins[k].here, type + n);
        if (numbers_dtype(str_of(here))) return here;
    }
    return NULL;
}
static status_t bad_type(struct call *c, size_t i, const struct tensor_desc *t) {
    if (!*t->type)
        return bad(DTYPE_MISMATCH, i, t->name,
                   "no dtype: say \"dtype\": \"f32\" (or \"datatype\": \"FP32\") and "
                   "\"shape\"");
    const char *like = type_here(&c->arena, t->type);
    return bad(DTYPE_MISMATCH, i, t->name,
               arena_printf(&c->arena,
                            "unknown element type '%.40s'%s%s%s: \"dtype\" is f32, s64, pred, "
                            "bf16, ..., \"datatype\" FP32, INT64, BOOL, BF16, ...",
                            t->type, like ? " (did you mean '" : "", like ? like : "",
                            like ? "'?)" : ""));
}

static status_t layout_one(struct call *c, const struct tensor_desc *t, size_t i, int from,
                           int64_t *total) {
    struct job_input *in = &c->inputs[i];
    in->name = t->name;
    in->offset = *total;
    if (t->handle && *t->handle) {
        in->handle = t->handle;
        in->donate = t->donate;
        if (*t->type || t->rank || t->given > 0)
            return bad(BAD_TENSOR_DATA, i, t->name,
                       "a handle together with a type, a shape or data");
        return ST_OK;
    }
    if (t->donate) return bad(BAD_TENSOR_DATA, i, t->name, "only a resident buffer can be donated");

    in->dtype = numbers_dtype(str_of(t->type));
    if (!in->dtype) return bad_type(c, i, t);
    if (t->rank > 64) return bad(SHAPE_MISMATCH, i, t->name, "rank beyond 64");
    in->rank = (int32_t)t->rank;
    in->dims = t->dims;
    int64_t n = 1, size;
    for (size_t d = 0; d < t->rank; d++)
        if (t->dims[d] < 0 || !sz_mul(n, t->dims[d], &n))
            return bad(SHAPE_MISMATCH, i, t->name, "negative or overflowing shape");
    if (in->dtype->cls == NUM_STRING) { // the worker looks inside
        size = t->given < 0 && n == 0 ? 0 : t->given;
        if (size < 0 || n > size / 4)
            return bad(BAD_TENSOR_DATA, i, t->name,
                       size < 0 ? "no data, or its size is not given"
                                : "its data has fewer bytes than the lengths of its strings take");
    } else if (!sz_mul(n, in->dtype->bytes, &size)) {
        return bad(SHAPE_MISMATCH, i, t->name, "overflowing shape");
    }

    in->size = size;
    in->elements = n;
    bool said = from == TENSORS_RAW || (from == TENSORS_BINARY && t->given >= 0);
    if ((said && t->given != size) || (from == TENSORS_BINARY && !said && !t->in_json))
        return st_because(
            ST_INVALID_ARGUMENT, BAD_TENSOR_DATA,
            "inputs[%zu] '%.80s': its shape has %lld bytes, %s %lld", i, t->name, (long long)size,
            from == TENSORS_BINARY ? "binary_data_size says" : "its data has", (long long)t->given);
    if (!sz_add(*total, size, total) || !sz_add(*total, 63, total))
        return bad(SHAPE_MISMATCH, i, t->name, "too large");
    *total &= ~63ll;
    return ST_OK;
}

bool tensors_in(const ProtobufCMessageDescriptor *d) {
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(d, "inputs");
    return f && f->label == PROTOBUF_C_LABEL_REPEATED &&
           f->descriptor == &hlod__v1__tensor__descriptor;
}
Hlod__V1__Tensor **tensors_of(const ProtobufCMessage *m, size_t *out_n) {
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(m->descriptor, "inputs");
    const char *base = (const char *)m;
    memcpy(out_n, base + f->quantifier_offset, sizeof *out_n);
    Hlod__V1__Tensor **v;
    memcpy(&v, base + f->offset, sizeof v);
    return v;
}

struct tensor_desc *tensors_of_run(struct call *c, int from) {
    size_t n;
    Hlod__V1__Tensor **v = tensors_of(c->request, &n);
    struct tensor_desc *t = arena_array(&c->arena, struct tensor_desc, n + 1);
    for (size_t i = 0; i < n; i++) {
        const Hlod__V1__Tensor *x = v[i];
        t[i] = (struct tensor_desc){.name = x->name,
                                    .type = *x->dtype ? x->dtype : x->datatype,
                                    .dims = x->shape,
                                    .rank = x->n_shape,
                                    .handle = x->handle,
                                    .donate = x->donate};
        t[i].given = from == TENSORS_RAW ? (int64_t)x->raw.len
                     : x->parameters     ? x->parameters->binary_data_size
                                         : -1;
    }
    c->n_inputs = n;
    return t;
}

// Strings in JSON take as much as they say.
static status_t size_strings(const struct call *c, struct tensor_desc *t,
                             const struct tensors_spans *json, int from) {
    for (size_t i = 0; i < c->n_inputs; i++) {
        const struct dtype_row *type = numbers_dtype(str_of(t[i].type));
        int64_t n = 1;
        if (!type || type->cls != NUM_STRING || !json->v[i].p ||
            (from == TENSORS_BINARY && !t[i].in_json))
            continue;
        for (size_t d = 0; d < t[i].rank; d++)
            if (t[i].dims[d] < 0 || !sz_mul(n, t[i].dims[d], &n))
                n = 0; // refused with a word below
        RETURN_IF_ERR(st_note(numbers_scan_strings(json->v[i], n, NULL, &t[i].given),
                              "inputs[%zu] '%.80s'", i, t[i].name));
    }
    return ST_OK;
}

status_t tensors_layout(struct call *c, const struct tensors_limits *l, int from,
                        const struct tensors_spans *json) {
    struct tensor_desc *t;
    if (c->row->dialect == DIALECT_OIP)
        RETURN_IF_ERR(tensors_of_infer(c, from, &t));
    else
        t = tensors_of_run(c, from);
    if (c->n_inputs > MAX_INPUTS)
        return st_because(ST_INVALID_ARGUMENT, BODY_TOO_LARGE, "%zu inputs, at most %d",
                          c->n_inputs, MAX_INPUTS);
    c->inputs = arena_zarray(&c->arena, struct job_input, c->n_inputs + 1);
    int64_t total = 0;
    if (json && json->n == c->n_inputs) RETURN_IF_ERR(size_strings(c, t, json, from));
    for (size_t i = 0; i < c->n_inputs; i++)
        RETURN_IF_ERR(layout_one(c, &t[i], i, from, &total));
    c->descs = t;
    if (total > l->max_bytes)
        return st_because(ST_INVALID_ARGUMENT, BODY_TOO_LARGE, "inputs of %lld bytes, at most %lld",
                          (long long)total, (long long)l->max_bytes);
    if (total <= FRAME_INLINE_BYTES) {
        c->payload_bytes = (struct span){arena_zalloc(&c->arena, (size_t)total + 1), (size_t)total};
        return ST_OK;
    }
    struct pool *pool = sched_pool(c->api->sched);
    const char *tenant = c->principal.tenant;
    RETURN_IF_ERR(memfds_take(pool_memfds(pool), pool_input_owner(pool),
                              hash64(tenant, strlen(tenant), 0), total, &c->payload));
    c->payload_fd = memfd_fd(c->payload);
    return ST_OK;
}

int64_t tensors_bytes(const struct call *c) {
    if (c->payload_fd < 0 || !c->n_inputs) return (int64_t)c->payload_bytes.n;
    return c->inputs[c->n_inputs - 1].offset + c->inputs[c->n_inputs - 1].size;
}

status_t tensors_put(struct call *c, int64_t offset, const void *p, size_t n) {
    if (c->payload_fd < 0) {
        if (n) memcpy((uint8_t *)c->payload_bytes.p + offset, p, n);
        return ST_OK;
    }
    uint8_t *memory;
    RETURN_IF_ERR(memfd_memory(c->payload, &memory));
    if (n) memcpy(memory + offset, p, n);
    return ST_OK;
}

// ---- binary

status_t tensors_binary_add(struct call *c, struct tensors_binary *b, const void *p, size_t n) {
    while (n) {
        while (b->input < c->n_inputs &&
               (c->descs[b->input].in_json || c->descs[b->input].elsewhere ||
                b->done == c->inputs[b->input].size)) {
            b->input++;
            b->done = 0;
        }
        if (b->input >= c->n_inputs)
            return st_because(ST_INVALID_ARGUMENT, BAD_FRAMING,
                              "more bytes than the inputs' binary_data_size say");
        const struct job_input *in = &c->inputs[b->input];
        size_t k = (int64_t)n < in->size - b->done ? n : (size_t)(in->size - b->done);
        RETURN_IF_ERR(tensors_put(c, in->offset + b->done, p, k));
        b->done += (int64_t)k;
        p = (const uint8_t *)p + k;
        n -= k;
    }
    return ST_OK;
}

int64_t tensors_binary_left(const struct call *c, const struct tensors_binary *b) {
    int64_t left = -b->done;
    for (size_t i = b->input; i < c->n_inputs; i++)
        if (!c->descs[i].in_json && !c->descs[i].elsewhere) left += c->inputs[i].size;
    return left;
}

status_t tensors_raw(struct call *c, const struct tensors_limits *l) {
    size_t n;
    Hlod__V1__Tensor **v = tensors_of(c->request, &n);
    RETURN_IF_ERR(tensors_layout(c, l, TENSORS_RAW, NULL));
    for (size_t i = 0; i < n; i++)
        RETURN_IF_ERR(tensors_put(c, c->inputs[i].offset, v[i]->raw.data, v[i]->raw.len));
    return ST_OK;
}

// ---- JSON: cut the data values out. Only as much syntax is known here as finding them needs; the
// rest is the document parser's.

struct cut {
    const char *p, *end;
    struct strbuf *out;
};
static void copy_space(struct cut *k) {
    while (k->p < k->end && strchr(" \t\r\n", *k->p) && *k->p)
        strbuf_putc(k->out, *k->p++);
}
static bool copy_char(struct cut *k, char c) {
    copy_space(k);
    if (k->p >= k->end || *k->p != c) return false;
    strbuf_putc(k->out, *k->p++);
    return true;
}
// The end of the string at p, or NULL.
static const char *string_end(const char *p, const char *end) {
    for (p++; p < end && *p != '"'; p++)
        if (*p == '\\') p++;
    return p < end ? p + 1 : NULL;
}
// p at '[': the ']' of an array with neither strings nor values within values, or NULL. What is
// searched lies before the next '[', so that no byte is searched twice from different brackets.
static const char *flat_end(const char *p, const char *end) {
    const char *next = memchr(p + 1, '[', (size_t)(end - p - 1));
    if (!next) next = end;
    const char *e = memchr(p, ']', (size_t)(next - p));
    if (!e || memchr(p, '"', (size_t)(e - p)) || memchr(p, '{', (size_t)(e - p))) return NULL;
    return e;
}
// The end of the value at p: brackets counted, strings skipped.
static const char *value_end(const char *p, const char *end) {
    int depth = 0;
    while (p < end) {
        if (*p == '[') {
            const char *e = flat_end(p, end);
            if (e) { // most of a body is such an array
                p = e + 1;
                if (depth == 0) return p;
                continue;
            }
        }
        if (*p == '"') {
            p = string_end(p, end);
            if (!p) return NULL;
            if (depth == 0) return p;
            continue;
        }
        if (*p == '[' || *p == '{')
            depth++;
        else if (*p == ']' || *p == '}') {
            if (depth == 0) return p;
            if (--depth == 0) return p + 1;
        } else if (depth == 0 && (*p == ',' || strchr(" \t\r\n", *p)))
            return p;
        p++;
    }
    return depth ? NULL : p;
}
static bool copy_value(struct cut *k) {
    copy_space(k);
    const char *e = value_end(k->p, k->end);
    if (!e || e == k->p) return false;
    strbuf_add(k->out, k->p, (size_t)(e - k->p));
    k->p = e;
    return true;
}
// Reads a key and its colon without copying the key.
static bool take_key(struct cut *k, struct str *key) {
    copy_space(k);
    if (k->p >= k->end || *k->p != '"') return false;
    const char *e = string_end(k->p, k->end);
    if (!e) return false;
    *key = (struct str){k->p + 1, (size_t)(e - k->p - 2)};
    k->p = e;
    return true;
}

static bool cut_input(struct cut *k, struct str *data) {
    *data = (struct str){0};
    if (!copy_char(k, '{')) return false;
    if (copy_char(k, '}')) return true;
    do {
        struct str key;
        if (!take_key(k, &key)) return false;
        if (!str_is(key, "data")) {
            strbuf_printf(k->out, "\"" STR_FMT "\"", STR_ARG(key));
            if (!copy_char(k, ':') || !copy_value(k)) return false;
            continue;
        }
        if (data->p) return false; // twice: let the document parser refuse it
        strbuf_puts(k->out, "\"raw\"");
        if (!copy_char(k, ':')) return false;
        copy_space(k);
        const char *e = value_end(k->p, k->end);
        if (!e || e == k->p) return false;
        *data = (struct str){k->p, (size_t)(e - k->p)};
        k->p = e;
        strbuf_puts(k->out, "null");
    } while (copy_char(k, ','));
    return copy_char(k, '}');
}

bool tensors_split(struct str text, struct strbuf *reduced, struct tensors_spans *out) {
    struct cut k = {text.p, text.p + text.n, reduced};
    if (!copy_char(&k, '{')) return false;
    if (copy_char(&k, '}')) return true;
    do {
        struct str key;
        if (!take_key(&k, &key)) return false;
        strbuf_printf(k.out, "\"" STR_FMT "\"", STR_ARG(key));
        if (!copy_char(&k, ':')) return false;
        copy_space(&k);
        if (!str_is(key, "inputs") || k.p >= k.end || *k.p != '[') {
            if (!copy_value(&k)) return false;
            continue;
        }
        if (out->n) return false;
        copy_char(&k, '[');
        if (copy_char(&k, ']')) continue;
        do {
            struct str data;
            if (out->n == MAX_INPUTS || !cut_input(&k, &data)) return false;
            vec_push(out, data);
        } while (copy_char(&k, ','));
        if (!copy_char(&k, ']')) return false;
    } while (copy_char(&k, ','));
    if (!copy_char(&k, '}')) return false;
    copy_space(&k);
    return k.p == k.end;
}

static status_t scan_one(struct str text, const struct job_input *in, void *out) {
    int64_t bytes; // as counted for the layout
    status_t st = in->dtype->cls == NUM_STRING
                      ? numbers_scan_strings(text, in->elements, out, &bytes)
                      : numbers_scan(text, in->dtype, in->elements, out);
    if (!st || in->rank || !text.n || *text.p != '[') return st;
    st_drop(st);
    return st_because(ST_INVALID_ARGUMENT, BAD_TENSOR_DATA,
                      "a list of data, and no \"shape\" that says its "
                      "sizes, as \"shape\": [1, 4]");
}

static const char *skip_space(const char *p, const char *end) {
    while (p < end && *p && strchr(" \t\r\n", *p))
        p++;
    return p;
}
bool tensors_member(struct str *rest, struct str *key, struct str *value) {
    const char *end = rest->p + rest->n, *p = skip_space(rest->p, end), *e;
    if (p < end && *p == '}') { // the end, if nothing follows
        p = skip_space(p + 1, end);
        *rest = (struct str){p, (size_t)(end - p)};
        return false;
    }
    if (p >= end || *p != '"' || !(e = string_end(p, end))) return false;
    *key = (struct str){p + 1, (size_t)(e - p - 2)};
    p = skip_space(e, end);
    if (p >= end || *p != ':') return false;
    p = skip_space(p + 1, end);
    e = value_end(p, end);
    if (!e || e == p) return false;
    *value = (struct str){p, (size_t)(e - p)};
    p = skip_space(e, end);
    if (p < end && *p == ',')
        p++;
    else if (p >= end || *p != '}')
        return false;
    *rest = (struct str){p, (size_t)(end - p)};
    return true;
}

// No elements need no data.
static bool none_needed(const struct job_input *in) {
    return in->dtype && in->elements == 0;
}
static status_t bad_without(const struct call *c, size_t i, const struct job_input *in, int from) {
    return bad(BAD_TENSOR_DATA, i, in->name,
               from == TENSORS_JSON && c->descs[i].given >= 0
                   ? "no data; of bytes behind the JSON (binary_data_size) the header "
                     "Inference-Header-Content-Length says where they begin"
                   : "no data");
}

// `from`: for TENSORS_BINARY only those that have no bytes of their own.
static status_t scan_all(struct call *c, const struct tensors_spans *spans, int from) {
    uint8_t *base = (uint8_t *)c->payload_bytes.p;
    if (c->payload) RETURN_IF_ERR(memfd_memory(c->payload, &base));
    status_t st = ST_OK;
    for (size_t i = 0; i < c->n_inputs && !st; i++) {
        const struct job_input *in = &c->inputs[i];
        bool behind = from == TENSORS_BINARY && !c->descs[i].in_json, here = spans->v[i].p;
        if (behind && here && !c->descs[i].elsewhere)
            st = bad(BAD_TENSOR_DATA, i, in->name, "data, and binary_data_size as well");
        if (c->descs[i].elsewhere || behind) continue;
        if (!here && (in->handle || none_needed(in))) continue;
        if (in->handle)
            st = bad(BAD_TENSOR_DATA, i, in->name, "a handle together with data");
        else if (!here)
            st = bad_without(c, i, in, from);
        else
            st = st_note(scan_one(spans->v[i], in, base + in->offset), "inputs[%zu] '%.80s'", i,
                         in->name);
    }
    return st;
}

// What was cut out of a request's JSON, and what is left of it; not the arena's.
struct pieces {
    struct strbuf reduced;
    struct tensors_spans spans;
    bool split;
    struct str rest;
};
static void cut_apart(struct str text, struct pieces *p) {
    *p = (struct pieces){0};
    text = json_after_mark(text);
    p->split = tensors_split(text, &p->reduced, &p->spans);
    p->rest = p->split ? (struct str){p->reduced.p, p->reduced.n} : text;
}
// Guards what is built from them, then lets them go.
static status_t build_from(struct call *c, const struct tensors_limits *l, struct str text,
                           status_t (*build)(struct call *, const struct tensors_limits *,
                                             const struct pieces *)) {
    struct pieces p;
    struct arena_guard g;
    cut_apart(text, &p);
    status_t st = ARENA_GUARD(&c->arena, &g) ? build(c, l, &p) : st_oom();
    arena_unguard(&c->arena, &g);
    strbuf_done(&p.reduced);
    vec_done(&p.spans);
    return st;
}

static status_t build_head(struct call *c, const struct tensors_limits *l, const struct pieces *p) {
    RETURN_IF_ERR(json_parse_oip(&c->arena, c->row->input, p->rest, &c->request));
    RETURN_IF_ERR(tensors_layout(c, l, TENSORS_BINARY, p->split ? &p->spans : NULL));
    if (p->split && p->spans.n == c->n_inputs) return scan_all(c, &p->spans, TENSORS_BINARY);
    for (size_t i = 0; i < c->n_inputs; i++)
        if (c->descs[i].in_json && !c->descs[i].elsewhere && !none_needed(&c->inputs[i]))
            return bad(BAD_TENSOR_DATA, i, c->inputs[i].name, "no data");
    return ST_OK;
}
static status_t build_bare_head(struct call *c, const struct tensors_limits *l,
                                const struct pieces *p) {
    RETURN_IF_ERR(json_parse(&c->arena, c->row->input, p->rest, &c->request));
    return tensors_layout(c, l, TENSORS_BINARY, NULL);
}
status_t tensors_head(struct call *c, const struct tensors_limits *l, struct str text) {
    bool oip = c->row->dialect == DIALECT_OIP;
    if (oip && memmem(text.p, text.n, "\"data\"", 6)) return build_from(c, l, text, build_head);
    struct pieces p = {.rest = text}; // nothing to cut
    struct arena_guard g;
    status_t st = !ARENA_GUARD(&c->arena, &g) ? st_oom()
                  : oip                       ? build_head(c, l, &p)
                                              : build_bare_head(c, l, &p);
    arena_unguard(&c->arena, &g);
    return st;
}

static status_t build_json(struct call *c, const struct tensors_limits *l, const struct pieces *p) {
    bool oip = c->row->dialect == DIALECT_OIP, raw = false;
    if (oip)
        RETURN_IF_ERR(json_parse_oip(&c->arena, c->row->input, p->rest, &c->request));
    else
        RETURN_IF_ERR(json_parse(&c->arena, c->row->input, p->rest, &c->request));
    if (!p->split)
        return st_because(ST_INVALID_ARGUMENT, BAD_JSON,
                          "request body is not JSON of a run request");
    size_t n = 0;
    Hlod__V1__Tensor **v = oip ? NULL : tensors_of(c->request, &n);
    for (size_t i = 0; i < n; i++)
        raw = raw || v[i]->raw.len;
    if (raw) return tensors_raw(c, l); // base64
    RETURN_IF_ERR(tensors_layout(c, l, TENSORS_JSON, &p->spans));
    return p->spans.n == c->n_inputs ? scan_all(c, &p->spans, TENSORS_JSON) : ST_OK;
}
status_t tensors_json(struct call *c, const struct tensors_limits *l, struct str text) {
    return build_from(c, l, text, build_json);
}
