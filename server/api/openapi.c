// SPDX-License-Identifier: Apache-2.0
// /v1/openapi.json from the tables and descriptors: each alias and each /service/Method path of
// both dialects, with its parameters, body, replies, scope. A test validates it and plays requests
// made from it (tests/api/fuzz_openapi.py).
#include <string.h>

#include "base/vec.h"
#include "proto/formats/inference.pb-c.h"
#include "proto/json.h"
#include "server/api/api.h"

// ---- schemas

static void put_name(struct strbuf *b, const ProtobufCMessageDescriptor *d) {
    strbuf_puts(b, !strncmp(d->name, "hlod.v1.", 8) ? d->name + 8 : d->name);
}
static void put_ref(struct strbuf *b, const ProtobufCMessageDescriptor *d) {
    strbuf_puts(b, "{\"$ref\":\"#/components/schemas/");
    put_name(b, d);
    strbuf_puts(b, "\"}");
}
static void put_enum(struct strbuf *b, const ProtobufCEnumDescriptor *e) {
    strbuf_puts(b, "{\"type\":\"string\",\"enum\":[");
    for (unsigned i = 0; i < e->n_values; i++)
        strbuf_printf(b, "%s\"%s\"", i ? "," : "", e->values[i].name);
    strbuf_puts(b, "]}");
}
static void put_type(struct strbuf *b, const ProtobufCFieldDescriptor *f) {
#define UNSIGNED_32 "\"integer\",\"minimum\":0,\"maximum\":4294967295"
#define UNSIGNED_64 "\"integer\",\"format\":\"int64\",\"minimum\":0"
#define SIGNED_32   "\"integer\",\"format\":\"int32\""
#define SIGNED_64   "\"integer\",\"format\":\"int64\""
    static const char *const texts[] = {[PROTOBUF_C_TYPE_BOOL] = "\"boolean\"",
                                        [PROTOBUF_C_TYPE_STRING] = "\"string\"",
                                        [PROTOBUF_C_TYPE_FLOAT] = "\"number\"",
                                        [PROTOBUF_C_TYPE_DOUBLE] = "\"number\"",
                                        [PROTOBUF_C_TYPE_UINT32] = UNSIGNED_32,
                                        [PROTOBUF_C_TYPE_FIXED32] = UNSIGNED_32,
                                        [PROTOBUF_C_TYPE_UINT64] = UNSIGNED_64,
                                        [PROTOBUF_C_TYPE_FIXED64] = UNSIGNED_64,
                                        [PROTOBUF_C_TYPE_INT64] = SIGNED_64,
                                        [PROTOBUF_C_TYPE_SINT64] = SIGNED_64,
                                        [PROTOBUF_C_TYPE_SFIXED64] = SIGNED_64,
                                        [PROTOBUF_C_TYPE_INT32] = SIGNED_32,
                                        [PROTOBUF_C_TYPE_SINT32] = SIGNED_32,
                                        [PROTOBUF_C_TYPE_SFIXED32] = SIGNED_32,
                                        [PROTOBUF_C_TYPE_BYTES] = "\"string\",\"format\":\"byte\""};

    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        put_ref(b, f->descriptor);
    else if (f->type == PROTOBUF_C_TYPE_ENUM)
        put_enum(b, f->descriptor);
    else
        strbuf_printf(b, "{\"type\":%s%s}", texts[f->type],
                      f->type == PROTOBUF_C_TYPE_STRING && !strcmp(f->name, "digest")
                          ? ",\"pattern\":\"^[0-9a-f]{64}$\""
                          : "");
}
static void put_field_name(struct strbuf *b, const ProtobufCFieldDescriptor *f, bool oip) {
    if (oip)
        strbuf_puts(b, f->name);
    else
        json_field_name(f, b);
}

// Tensors in JSON have their numbers under `data`, which no message has.
static bool has_data(const ProtobufCMessageDescriptor *d) {
    return d == &hlod__v1__tensor__descriptor ||
           d == &inference__model_infer_request__infer_input_tensor__descriptor ||
           d == &inference__model_infer_response__infer_output_tensor__descriptor;
}
static void put_schema(struct strbuf *b, const ProtobufCMessageDescriptor *d) {
    bool oip = !strncmp(d->name, "inference.", 10);
    strbuf_putc(b, '"');
    put_name(b, d);
    if (json_is_choice(d)) {
        strbuf_puts(b, "\":{\"description\":\"a scalar\"}");
        return;
    }

    strbuf_puts(b, "\":{\"type\":\"object\",\"properties\":{");
    const char *sep = "";
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        if (has_data(d) && !strcmp(f->name, "contents")) continue; // gRPC's
        strbuf_printf(b, "%s\"", sep);
        sep = ",";
        put_field_name(b, f, oip);
        strbuf_puts(b, "\":");
        if (json_is_map(f)) {
            const ProtobufCMessageDescriptor *entry = f->descriptor;
            strbuf_puts(b, "{\"type\":\"object\",\"additionalProperties\":");
            put_type(b, &entry->fields[1]);
            strbuf_putc(b, '}');
            continue;
        }
        bool repeated = f->label == PROTOBUF_C_LABEL_REPEATED;
        if (repeated) strbuf_puts(b, "{\"type\":\"array\",\"items\":");
        put_type(b, f);
        if (repeated) strbuf_putc(b, '}');
    }

    if (has_data(d))
        strbuf_printf(b,
                      "%s\"data\":{\"type\":\"array\",\"items\":{},\"description\":"
                      "\"elements in row-major order, nested or flat\"}",
                      sep);
    strbuf_puts(b, "}}");
}

// ---- parameters

static bool scalar(const ProtobufCFieldDescriptor *f) {
    return f->type != PROTOBUF_C_TYPE_MESSAGE && f->type != PROTOBUF_C_TYPE_BYTES;
}
static void put_parameter(struct strbuf *b, const char **sep, const ProtobufCFieldDescriptor *f,
                          bool in_path, bool oip) {
    strbuf_printf(b, "%s{\"name\":\"", *sep);
    put_field_name(b, f, oip || in_path);
    strbuf_printf(b, "\",\"in\":\"%s\",\"required\":%s,\"schema\":", in_path ? "path" : "query",
                  in_path ? "true" : "false");
    bool repeated = f->label == PROTOBUF_C_LABEL_REPEATED;
    if (repeated) strbuf_puts(b, "{\"type\":\"array\",\"items\":");
    put_type(b, f);
    strbuf_puts(b, repeated ? "}}" : "}");
    *sep = ",";
}
static bool in_path(struct str path, const char *name) {
    struct strbuf braced = {0};
    strbuf_printf(&braced, "{%s", name);
    const char *hit = memmem(path.p, path.n, braced.p, braced.n);
    bool yes = hit && (hit[braced.n] == '}' || hit[braced.n] == '*');
    strbuf_done(&braced);
    return yes;
}
static void put_scalars(struct strbuf *b, const char **sep, const ProtobufCMessageDescriptor *d,
                        struct str path) {
    for (unsigned i = 0; i < d->n_fields; i++)
        if (scalar(&d->fields[i]) && !in_path(path, d->fields[i].name))
            put_parameter(b, sep, &d->fields[i], false, false);
}
static void put_parameters(struct strbuf *b, const struct api_row *row, struct str path) {
    const ProtobufCMessageDescriptor *d = row->input;
    const char *sep = "";
    bool oip = row->dialect == DIALECT_OIP;
    strbuf_puts(b, "\"parameters\":[");
    for (unsigned i = 0; i < d->n_fields; i++)
        if (in_path(path, d->fields[i].name)) put_parameter(b, &sep, &d->fields[i], true, oip);
    if (!oip && (row->body == BODY_NONE || row->body == BODY_MODEL || row->body == BODY_BYTES))
        put_scalars(b, &sep, d, path);
    if (!oip && row->body == BODY_MODEL) {
        put_scalars(b, &sep, &hlod__v1__compile_options__descriptor, path);
        strbuf_printf(b,
                      "%s{\"name\":\"shape\",\"in\":\"query\",\"description\":\"NAME=1x3x224x224, "
                      "repeatable\",\"schema\":{\"type\":\"string\"}}",
                      sep);
        sep = ",";
    }

    if (!oip && (row->body == BODY_MODEL || row->body == BODY_TENSORS))
        strbuf_printf(b,
                      "%s{\"name\":\"stream\",\"in\":\"query\",\"description\":\"true: one event a "
                      "line; false: one reply. Without it Accept says which; where that does not, "
                      "it is %s\",\"schema\":{\"type\":\"boolean\"}}",
                      sep, row->stream ? "one event a line" : "one reply");
    strbuf_puts(b, "],");
}

// ---- operations

static const char binary[] = "{\"type\":\"string\",\"format\":\"binary\"}";

static void put_content(struct strbuf *b, const char *type, const ProtobufCMessageDescriptor *d) {
    strbuf_printf(b, "\"%s\":{\"schema\":", type);
    if (d)
        put_ref(b, d);
    else
        strbuf_puts(b, binary);
    strbuf_putc(b, '}');
}

static void put_request(struct strbuf *b, const struct api_row *row, struct str path, bool rpc) {
    if (!rpc && row->body == BODY_NONE) return;
    strbuf_puts(b, "\"requestBody\":{\"content\":{");
    if (!rpc && (row->body == BODY_BLOB || row->body == BODY_BYTES))
        put_content(b, "application/octet-stream", NULL);
    else if (!rpc && row->body == BODY_MODEL) {
        put_content(b, "application/octet-stream", NULL);
        strbuf_putc(b, ',');
        put_content(b, "application/x-protobuf", NULL);
    } else if (!rpc && (row->body == BODY_SETTINGS || api_generate(row, path)))
        strbuf_puts(b, "\"application/json\":{\"schema\":{\"type\":\"object\"}}");
    else
        put_content(b, "application/json", row->input);
    strbuf_puts(b, "}},");
}

// What a GET or POST of the OIP answers that is not the message itself.
static bool put_oip_reply(struct strbuf *b, const struct api_row *row, struct str path) {
    const ProtobufCFieldDescriptor *first = row->output->fields;
    enum api_generate generate = api_generate(row, path);
    if (generate == GENERATE_STREAM) {
        strbuf_puts(b, ",\"content\":{\"text/event-stream\":{}}");
        return true;
    }
    if (generate || row->reply == REPLY_SETTINGS) {
        strbuf_puts(b, ",\"content\":{\"application/json\":{\"schema\":{\"type\":\"object\"}}}");
        return true;
    }
    if (row->reply == REPLY_LIST) {
        strbuf_puts(
            b, ",\"content\":{\"application/json\":{\"schema\":{\"type\":\"array\",\"items\":");
        const ProtobufCMessageDescriptor *d = first->descriptor;
        put_ref(b, json_is_map(first) ? d->fields[1].descriptor : d);
        strbuf_puts(b, "}}}");
        return true;
    }
    if (row->reply == REPLY_MEMBER) {
        strbuf_puts(b, ",\"content\":{");
        put_content(b, "application/json", first->descriptor);
        strbuf_putc(b, '}');
        return true;
    }
    return row->output->n_fields == 0; // no body
}
static const char *reply_type(const struct api_row *row) {
    return row->stream ? "application/x-ndjson" : "application/json";
}
// twin: the row on the same alias whose reply is of the other kind, or NULL.
static void put_replies(struct strbuf *b, const struct api_row *row, const struct api_row *twin,
                        struct str path, bool rpc) {
    bool oip = row->dialect == DIALECT_OIP;
    strbuf_printf(b, "\"responses\":{\"200\":{\"description\":\"%s\"",
                  row->stream ? "one event a line" : "done");
    if (!oip || !put_oip_reply(b, row, path)) {
        strbuf_puts(b, ",\"content\":{");
        put_content(b, reply_type(row), row->output);
        if (twin) {
            strbuf_putc(b, ',');
            put_content(b, reply_type(twin), twin->output);
        }

        bool file = row->reply == REPLY_FILE && !rpc;
        bool package = file && row->output == &hlod__v1__web_package__descriptor;
        if (package) {
            strbuf_putc(b, ',');
            put_content(b, "application/x-tar", NULL);
            strbuf_putc(b, ',');
            put_content(b, "text/html", NULL);
        } else if (row->body == BODY_TENSORS || row->body == BODY_INFER || file) {
            strbuf_putc(b, ',');
            put_content(b, "application/octet-stream", NULL);
        }
        if (row->reply == REPLY_TEXT && !rpc)
            strbuf_puts(b, ",\"text/plain\":{\"schema\":{\"type\":\"string\"}}");
        strbuf_putc(b, '}');
    }
    strbuf_printf(b,
                  "},\"default\":{\"description\":\"error\",\"content\":{\"application/json\":{"
                  "\"schema\":{\"$ref\":\"#/components/schemas/%s\"}}}}}",
                  oip ? "OipError" : "Error");
}

static void put_operation(struct strbuf *b, const struct api_row *row, const struct api_row *twin,
                          struct str path, bool rpc, const char *verb, int number) {
    strbuf_printf(b, "\"%s\":{\"operationId\":\"%s%s%s", verb, row->method, rpc ? "Rpc" : "",
                  strcmp(verb, "get") || row->verb != VERB_BOTH ? "" : "Get");
    if (number) strbuf_printf(b, "%d", number + 1);
    strbuf_printf(b, "\",\"tags\":[\"%s\"],", row->service);
    if (row->scope == SCOPE_NONE)
        strbuf_puts(b, "\"security\":[],");
    else {
        strbuf_puts(b, "\"description\":\"scope: ");
        scopes_print(b, row->scope);
        strbuf_puts(b, "\",");
    }
    put_parameters(b, row, rpc ? STR("") : path);
    if (strcmp(verb, "get")) put_request(b, row, path, rpc);
    put_replies(b, row, twin, path, rpc);
    strbuf_putc(b, '}');
}

// ---- paths

struct place { // an alias of a row
    const struct api_row *row;
    struct str path;
    int number; // among the row's aliases
};
struct places {
    struct place *v;
    size_t n, cap;
};
static bool method_is(const struct api_row *row, enum api_verb v) {
    return row->verb == v || (row->verb == VERB_BOTH && (v == VERB_GET || v == VERB_POST));
}
static void put_path(struct strbuf *b, const struct places *all, size_t first) {
    static const char *const verbs[] = {"get", "post", "put", "delete"};
    struct str path = all->v[first].path;
    strbuf_puts(b, ",\"");
    for (size_t i = 0; i < path.n; i++)
        if (path.p[i] != '*') strbuf_putc(b, path.p[i]);
    strbuf_puts(b, "\":{");
    const char *sep = "";
    for (int v = VERB_GET; v <= VERB_DELETE; v++) {
        const struct place *found[2] = {NULL, NULL}; // of two rows on one alias the first speaks
        int n = 0;
        for (size_t i = first; i < all->n && n < 2; i++)
            if (str_eq(all->v[i].path, path) && method_is(all->v[i].row, (enum api_verb)v))
                found[n++] = &all->v[i];
        if (!n) continue;
        strbuf_puts(b, sep);
        put_operation(b, found[0]->row, n > 1 ? found[1]->row : NULL, path, false, verbs[v],
                      found[0]->number);
        sep = ",";
    }
    strbuf_putc(b, '}');
}
static void put_paths(struct strbuf *b) {
    struct places all = {0};
    for (int i = 0; i < ALL_ROWS; i++) {
        const struct api_row *row = &api_rows[i];
        struct str rest = str_of(row->alias), one;
        for (int k = 0; rest.n && str_cut(&rest, ' ', &one); k++) {
            struct place p = {row, one, k};
            vec_push(&all, p);
        }
        if (row->stream && row->dialect == DIALECT_OIP) continue; // takes a stream: gRPC only
        strbuf_printf(b, "%s\"/%s/%s\":{", i ? "," : "", row->service, row->method);
        put_operation(b, row, NULL, STR(""), true, "post", 0);
        strbuf_putc(b, '}');
    }
    for (size_t i = 0; i < all.n; i++) {
        bool seen = false;
        for (size_t k = 0; k < i; k++)
            seen = seen || str_eq(all.v[k].path, all.v[i].path);
        if (!seen) put_path(b, &all, i);
    }
    vec_done(&all);
}

void api_openapi(struct strbuf *b) {
    strbuf_printf(b,
                  "{\"openapi\":\"3.0.3\",\"info\":{\"title\":\"hlod\",\"version\":\"%s\","
                  "\"license\":{\"name\":\"Apache-2.0\"}},\"security\":[{\"bearer\":[]},{}],"
                  "\"paths\":{",
                  api_version_text());
    put_paths(b);
    strbuf_puts(b, "},\"components\":{\"securitySchemes\":{\"bearer\":{\"type\":\"http\","
                   "\"scheme\":\"bearer\",\"description\":\"a token of `hlo tokens add`, where the "
                   "server asks for one\"}},\"schemas\":{\"OipError\":{\"type\":\"object\","
                   "\"properties\":{\"error\":{\"type\":\"string\"}}}");
    struct api_messages s = api_messages_of(ALL_ROWS);
    api_messages_add(&s, &hlod__v1__error__descriptor);
    for (size_t i = 0; i < s.n; i++) {
        strbuf_putc(b, ',');
        put_schema(b, s.v[i]);
    }
    vec_done(&s);
    strbuf_puts(b, "}}}\n");
}
