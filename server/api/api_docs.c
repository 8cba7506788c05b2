// SPDX-License-Identifier: Apache-2.0
// What the tables say about themselves, for people: docs/api.md (for programs: openapi.c). Nothing
// here is written by hand twice: shapes come from the descriptors, words from the comments of
// proto/hlod.proto.
#include <ctype.h>
#include <string.h>

#include "base/vec.h"
#include "proto/json.h"
#include "server/api/api.h"

const char *api_media_type(const char *format) {
    return !strcmp(format, "onnx") ? "application/onnx" : "application/octet-stream";
}

void api_messages_add(struct api_messages *s, const ProtobufCMessageDescriptor *d) {
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i] == d) return;
    vec_push(s, d);
    for (unsigned i = 0; i < d->n_fields; i++)
        if (d->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            api_messages_add(s, d->fields[i].descriptor);
}
struct api_messages api_messages_of(int n_rows) {
    struct api_messages s = {0};
    for (int i = 0; i < n_rows; i++) {
        api_messages_add(&s, api_rows[i].input);
        api_messages_add(&s, api_rows[i].output);
    }
    return s;
}

static const char *json_type(ProtobufCType t) {
    switch (t) {
    case PROTOBUF_C_TYPE_BOOL:
        return "boolean";
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_ENUM:
        return "string";
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        return "number";
    case PROTOBUF_C_TYPE_MESSAGE:
        return "object";
    default:
        return "integer";
    }
}

// The comment lines right above, or the comment behind, the line of the .proto that starts with
// `what` (after blanks) inside `where` ("message X {").
static void put_comment(struct strbuf *b, struct str proto, const char *where, const char *what) {
    struct str line;
    struct strbuf above = {0};
    bool inside = !*where;
    while (str_cut(&proto, '\n', &line)) {
        line = str_trim(line);
        if (!inside && str_starts(line, where)) {
            inside = true;
            const char *brace = memchr(line.p, '{', line.n); // a message in one line
            if (brace && line.p[line.n - 1] == '}') break;
            continue;
        }

        if (!inside) continue;
        if (*where && str_starts(line, "}")) break;
        if (str_starts(line, "// ")) {
            strbuf_printf(&above, "%s%.*s", above.n ? " " : "", (int)line.n - 3, line.p + 3);
            continue;
        }

        if (str_starts(line, what)) {
            const char *c = NULL;
            for (size_t i = 0; i + 2 < line.n && !c; i++)
                if (line.p[i] == '/' && line.p[i + 1] == '/') c = line.p + i + 3;
            if (c && c < line.p + line.n)
                strbuf_printf(b, "%.*s", (int)(line.p + line.n - c), c);
            else
                strbuf_puts(b, strbuf_cstr(&above));
            break;
        }
        strbuf_clear(&above);
    }
    strbuf_done(&above);
}

static void put_type(struct strbuf *b, const ProtobufCFieldDescriptor *f) {
    const char *end = f->label == PROTOBUF_C_LABEL_REPEATED ? "[]" : "";
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        const char *n = ((const ProtobufCMessageDescriptor *)f->descriptor)->short_name;
        strbuf_printf(b, "[%s%s](#", n, end);
        for (; *n; n++)
            strbuf_putc(b, (char)tolower((unsigned char)*n));
        strbuf_putc(b, ')');
    } else
        strbuf_printf(b, "%s%s", f->type == PROTOBUF_C_TYPE_BYTES ? "base64" : json_type(f->type),
                      end);
}

static const char introduction[] =
    "# The API\n\n<!-- generated from proto/hlod.proto and server/api/api.def by `make docs`; "
    "do not edit -->\n\n"
    "A method is `POST /hlod.v1.Hlod/<Method>` with JSON (proto3 rules; 64-bit integers "
    "below 2^53 as numbers) or `application/x-protobuf`; the alias is the same method.\n"
    "Errors: `{\"code\", \"reason\", \"message\", \"details\": [lines]}` with the code's "
    "HTTP status (docs/errors.md). Other routes: `/healthz`, `/readyz`, `/metrics`,\n"
    "`/v1/openapi.json`.\n\n"
    "## Binary tensors\n\nA run request may carry `Inference-Header-Content-Length: N`: the "
    "body is N bytes of JSON, whose inputs have `\"parameters\":{\"binary_data_size\":B}` "
    "instead of `data`,\n"
    "then the inputs' bytes in that order, little-endian, packed. With `Accept: "
    "application/octet-stream` (or `binary_data_output`) the reply has the same form.\n\n"
    "## Streams\n\n`Accept: application/json` (or `?stream=0`) gives one reply, "
    "`Accept: application/x-ndjson` (or `?stream=1`; the default of `/v1/run`) "
    "one [Event](#event) a line, exactly one kind each; blank lines may come between "
    "and mean\n"
    "nothing. An error before the first event is an ordinary error reply; after it, an "
    "`error` line. The last line is always `done`.\n"
    "`Accept: application/x-protobuf-stream` gives the same events as protobuf, each behind "
    "its length in 32 bits, little-endian; an empty one means nothing.\n\n"
    "## Timings and traces\n\nEvery reply of work says where the time went: `timings`, the "
    "header `Server-Timing` (a trailer of streams, `server-timing` in gRPC's trailing "
    "metadata), the parameter `hlod_timing` of the\nOpen Inference Protocol. `transfer` is "
    "the part of `run` that went into carrying tensors to the worker and back. With "
    "`options.profile` the steps of the run come too, each with the\ninstructions it was "
    "fused from, the model's nodes, and how near it came to the machine's peak. "
    "`GET /v1/runs` lists what was done last, `GET /v1/runs/{job}/trace` is one of it for "
    "Perfetto.\nA W3C `traceparent` is in the log and the run's record and comes back "
    "unchanged; `traceresponse` names a span of ours in the same trace.\n\n"
    "## gRPC\n\nThe same service on `--grpc` (127.0.0.1:8001): a stream ends with `done` and "
    "the "
    "status, an error is the status alone, its details behind the first line of the message; "
    "trailers say `hlod-reason`\n"
    "and `hlod-retry-after-ms`. Also `grpc.health.v1.Health` and server reflection (v1, "
    "v1alpha). Messages up to `--max-message-bytes`; larger models go over HTTP.\n\n"
    "## Open Inference Protocol\n\n`/v2` on the HTTP port and `inference.GRPCInferenceService` "
    "on the gRPC port (server/oip/oip.def); what is there and what is not: docs/oip.md. A model is "
    "a name given with SetModel or a load,\nor the digest of an uploaded model. The request "
    "parameter `hlod_timing: true` brings one back: milliseconds by step.\n\n"
    "## Who may call\n\nWith `--tokens` a caller shows `Authorization: Bearer TOKEN` (gRPC: "
    "`authorization` in the metadata) or a client certificate, and needs the scope of the "
    "method's row: 401 UNAUTHENTICATED\nwithout, 403 PERMISSION_DENIED with too few "
    "(docs/security.md).\n\n"
    "## Methods\n\n| method | alias | scope | request | reply | "
    "|\n|---|---|---|---|---|---|\n";

static void put_methods(struct strbuf *b, struct str proto) {
    for (int i = 0; i < API_ROWS; i++) {
        const struct api_row *r = &api_rows[i];
        char what[80] = "rpc ";
        strncat(what, r->method, 60);
        size_t n = strlen(what);
        what[n] = '(';
        what[n + 1] = 0;
        strbuf_printf(b, "| `%s` | `%s %s` | ", r->method, api_verb_name(r->verb), r->alias);
        scopes_print(b, r->scope);
        strbuf_printf(b, " | %s%s | %s%s | ", r->input->short_name,
                      r->body == BODY_MODEL ? "; the alias: model bytes, options in the query" : "",
                      r->stream ? "stream of " : "", r->output->short_name);
        put_comment(b, proto, "service Hlod {", what);
        strbuf_puts(b, " |\n");
    }
}

// What stands behind "//" on the line of a field, inside the message that begins with `where`.
static void put_field_comment(struct strbuf *b, struct str proto, const char *where,
                              const char *field) {
    struct str line;
    bool inside = false;
    char key[100] = " "; // the line starts with the field's type
    strncat(key, field, 80);
    strncat(key, " = ", 4);
    while (str_cut(&proto, '\n', &line)) {
        if (str_starts(line, where))
            inside = true;
        else if (inside && str_starts(line, "}"))
            return;
        const char *hit = inside ? memmem(line.p, line.n, key, strlen(key)) : NULL;
        const char *c = hit ? memmem(hit, (size_t)(line.p + line.n - hit), "// ", 3) : NULL;
        if (c) strbuf_printf(b, "%.*s", (int)(line.p + line.n - c - 3), c + 3);
        if (hit) return;
    }
}

static void put_message(struct strbuf *b, struct str proto, const ProtobufCMessageDescriptor *d) {
    char where[80] = "message ";
    strncat(where, d->short_name, 60);
    strbuf_printf(b, "\n### %s\n\n", d->short_name);
    size_t at = b->n;
    put_comment(b, proto, "", where);
    if (b->n > at) strbuf_puts(b, "\n\n");
    if (d->n_fields) strbuf_puts(b, "| field | type | |\n|---|---|---|\n");

    strncat(where, " {", 3);
    for (unsigned k = 0; k < d->n_fields; k++) {
        strbuf_puts(b, "| `");
        json_field_name(&d->fields[k], b);
        strbuf_puts(b, "` | ");
        put_type(b, &d->fields[k]);
        strbuf_puts(b, " | ");
        put_field_comment(b, proto, where, d->fields[k].name);
        strbuf_puts(b, " |\n");
    }
}

void api_markdown(struct strbuf *b, struct str proto) {
    strbuf_puts(b, introduction);
    put_methods(b, proto);

    strbuf_puts(b, "\n## Messages\n");
    struct api_messages s = api_messages_of(API_ROWS);
    for (size_t i = 0; i < s.n; i++)
        put_message(b, proto, s.v[i]);
    vec_done(&s);

    strbuf_puts(b, "\n## Reasons\n\n| reason | |\n|---|---|\n");
    const ProtobufCEnumDescriptor *e = &hlod__v1__reason__descriptor;
    for (unsigned i = 0; i < e->n_values; i++) {
        strbuf_printf(b, "| `%s` | ", e->values[i].name + strlen("REASON_"));
        char key[100] = "";
        strncat(key, e->values[i].name, 80);
        strncat(key, " = ", 4);
        put_comment(b, proto, "enum Reason {", key);
        strbuf_puts(b, " |\n");
    }
}
