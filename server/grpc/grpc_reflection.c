// SPDX-License-Identifier: Apache-2.0
// Server reflection, v1 and v1alpha by one handler (their messages are the same). The descriptors
// are protoc's own output for our .proto files, embedded at build (api_descriptors).
#include <string.h>

#include "base/vec.h"
#include "proto/formats/descriptor.pb-c.h"
#include "proto/formats/reflection_v1.pb-c.h"
#include "proto/message.h"
#include "proto/weigh.h"
#include "server/grpc/grpc_call.h"

extern const unsigned char api_descriptors[];
extern const unsigned api_descriptors_bytes;

typedef Grpc__Reflection__V1__ServerReflectionRequest request;
typedef Grpc__Reflection__V1__ServerReflectionResponse response;
struct file {
    struct span bytes;
    Hlod__Descriptor__File *f;
};
// The cases of the oneofs are their fields' numbers; the generated names are longer than a line.
enum { ASK_FILE = 3, ASK_SYMBOL, ASK_EXTENSION, ASK_EXTENSIONS, ASK_SERVICES };
enum { GIVE_FILES = 4, GIVE_SERVICES = 6, GIVE_ERROR = 7 };
static void set_case(response *m, int number) {
    m->message_response_case = (__typeof__(m->message_response_case))number;
}

enum { MAX_FILES = 32 };
static struct file files[MAX_FILES]; // made at the first question, kept
static size_t n_files;

// A FileDescriptorSet is fields 1, each a file.
static void read_files(void) {
    const uint8_t *p = api_descriptors, *end = p + api_descriptors_bytes;
    while (n_files < MAX_FILES && p < end && *p++ == (1 << 3 | 2)) {
        size_t n = 0;
        unsigned shift = 0;
        do
            n |= (size_t)(*p & 0x7f) << shift, shift += 7;
        while (*p++ & 0x80);
        struct file f = {{p, n}, hlod__descriptor__file__unpack(NULL, n, p)};
        if (f.f) files[n_files++] = f;
        p += n;
    }
}

static bool message_has(const char *name, const Hlod__Descriptor__Message *m) {
    size_t n = strlen(m->name);
    if (strncmp(name, m->name, n)) return false;
    if (!name[n]) return true;
    if (name[n] != '.') return false;
    for (size_t i = 0; i < m->n_nested_type; i++)
        if (message_has(name + n + 1, m->nested_type[i])) return true;
    for (size_t i = 0; i < m->n_enum_type; i++)
        if (!strcmp(name + n + 1, m->enum_type[i]->name)) return true;
    return false;
}
static bool file_has(const char *symbol, const Hlod__Descriptor__File *f) {
    size_t n = strlen(f->package);
    if (strncmp(symbol, f->package, n) || symbol[n] != '.') return false;
    symbol += n + 1;
    for (size_t i = 0; i < f->n_message_type; i++)
        if (message_has(symbol, f->message_type[i])) return true;
    for (size_t i = 0; i < f->n_enum_type; i++)
        if (!strcmp(symbol, f->enum_type[i]->name)) return true;
    for (size_t i = 0; i < f->n_service; i++) {
        const Hlod__Descriptor__Service *s = f->service[i];
        size_t k = strlen(s->name);
        if (strncmp(symbol, s->name, k)) continue;
        if (!symbol[k]) return true;
        for (size_t j = 0; symbol[k] == '.' && j < s->n_method; j++)
            if (!strcmp(symbol + k + 1, s->method[j]->name)) return true;
    }
    return false;
}

struct closure { // a file and what it imports
    struct arena *a;
    VEC(ProtobufCBinaryData) bytes;
    bool seen[MAX_FILES];
};
static void add_file(struct closure *c, size_t i) {
    if (c->seen[i]) return;
    c->seen[i] = true;
    ProtobufCBinaryData b = {files[i].bytes.n, (uint8_t *)files[i].bytes.p};
    avec_push(c->a, &c->bytes, b);
    for (size_t d = 0; d < files[i].f->n_dependency; d++)
        for (size_t k = 0; k < n_files; k++)
            if (!strcmp(files[k].f->name, files[i].f->dependency[d])) add_file(c, k);
}

static void refuse(struct arena *a, response *m, enum status_code code, const char *what,
                   const char *name) {
    Grpc__Reflection__V1__ErrorResponse *e =
        message_new(a, &grpc__reflection__v1__error_response__descriptor);
    e->error_code = (int32_t)code;
    e->error_message = arena_printf(a, "%s '%.200s'", what, name);
    set_case(m, GIVE_ERROR);
    m->error_response = e;
}

static void give_file(struct arena *a, response *m, const char *name, bool by_symbol) {
    for (size_t i = 0; i < n_files; i++) {
        if (by_symbol ? !file_has(name, files[i].f) : strcmp(name, files[i].f->name) != 0) continue;
        struct closure c = {.a = a};
        add_file(&c, i);
        Grpc__Reflection__V1__FileDescriptorResponse *r =
            message_new(a, &grpc__reflection__v1__file_descriptor_response__descriptor);
        r->file_descriptor_proto = c.bytes.v;
        r->n_file_descriptor_proto = c.bytes.n;
        set_case(m, GIVE_FILES);
        m->file_descriptor_response = r;
        return;
    }
    refuse(a, m, ST_NOT_FOUND, by_symbol ? "no symbol" : "no file", name);
}

static void give_services(struct arena *a, response *m) {
    Grpc__Reflection__V1__ListServiceResponse *r =
        message_new(a, &grpc__reflection__v1__list_service_response__descriptor);
    VEC(Grpc__Reflection__V1__ServiceResponse *) list = {0};
    for (size_t i = 0; i < n_files; i++)
        for (size_t k = 0; k < files[i].f->n_service; k++) {
            Grpc__Reflection__V1__ServiceResponse *s =
                message_new(a, &grpc__reflection__v1__service_response__descriptor);
            s->name = arena_printf(a, "%s.%s", files[i].f->package, files[i].f->service[k]->name);
            avec_push(a, &list, s);
        }
    r->service = list.v;
    r->n_service = list.n;
    set_case(m, GIVE_SERVICES);
    m->list_services_response = r;
}

static void answer(struct arena *a, const request *q, response *m) {
    switch ((int)q->message_request_case) {
    case ASK_FILE:
        give_file(a, m, q->file_by_filename, false);
        break;
    case ASK_SYMBOL:
        give_file(a, m, q->file_containing_symbol, true);
        break;
    case ASK_EXTENSION:
        refuse(a, m, ST_NOT_FOUND, "no extension of",
               q->file_containing_extension->containing_type);
        break;
    case ASK_EXTENSIONS:
        refuse(a, m, ST_NOT_FOUND, "no extensions of", q->all_extension_numbers_of_type);
        break;
    case ASK_SERVICES:
        give_services(a, m);
        break;
    default:
        refuse(a, m, ST_INVALID_ARGUMENT, "no question", "");
    }
}

static void message(struct rpc_call *c, const struct rpc_bytes *m) {
    if (rpc_over(c)) return;
    if (!m) {
        rpc_finish(c, ST_OK);
        return;
    }
    if (!n_files) read_files();
    struct arena a = {0};
    struct span s;
    status_t st = rpc_small(&a, m, &s);
    request *q =
        st ? NULL
           : weigh_unpack_or_null(&grpc__reflection__v1__server_reflection_request__descriptor, s);
    if (q) {
        response r = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
        r.valid_host = q->host;
        r.original_request = q;
        answer(&a, q, &r);
        rpc_send(c, &r.base);
        grpc__reflection__v1__server_reflection_request__free_unpacked(q, NULL);
        if (rpc_unsent(c) < 1 << 20) rpc_receive(c); // else when that has gone out
    } else
        rpc_finish(c, st ? st : st_invalid("not a reflection request"));
    arena_done(&a);
}

static const struct rpc_service service = {rpc_receive, message, rpc_receive,
                                           NULL,        NULL,    .idle = true};
const struct rpc_method *rpc_reflection_method(const char *path) {
    static const struct rpc_method methods[] = {
        {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", &service, NULL},
        {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &service, NULL}};
    for (size_t i = 0; i < 2; i++)
        if (!strcmp(path, methods[i].path)) return &methods[i];
    return NULL;
}
