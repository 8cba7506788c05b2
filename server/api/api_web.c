// SPDX-License-Identifier: Apache-2.0
// ExportWeb: a model as a package for browsers. Over HTTP the package is the body, sent from the
// memory that the worker wrote; elsewhere it travels in the message.
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "proto/frame.h"
#include "proto/message.h"
#include "server/api/api_job.h"

enum { MESSAGE_MAX = 64 << 20, MAX_NAME = 64 };

// A name that no system and no header takes for anything else.
static const char *file_name(struct arena *a, const Hlod__V1__ExportWebRequest *q) {
    char *s = arena_alloc(a, MAX_NAME + 1);
    size_t n = 0;
    for (const char *p = q->name; *p && n < MAX_NAME; p++) {
        bool plain = isalnum((unsigned char)*p) || (n && (*p == '-' || *p == '.'));
        s[n++] = plain ? *p : '_';
    }
    s[n] = 0;
    return arena_printf(a, "%s.%s", n ? s : "model", q->single_file ? "html" : "tar");
}

struct mapping {
    void *base;
    size_t bytes;
};
static void unmap(void *arg) {
    const struct mapping *m = arg;
    frame_unmap(m->base, m->bytes);
}
// Looks whether it is all there, in memory that cannot shrink; the mapping is the call's.
static status_t map_package(struct call *c, const struct job_result *r, uint8_t **out) {
    const Hlod__Wire__Blob *b = r->export.package;
    if (b->fd < 1 || b->fd > (uint32_t)r->n_fds || b->offset > INT64_MAX || b->size > INT64_MAX)
        return st_internal("a worker's package names no descriptor");
    struct mapping *m = arena_new_of(&c->arena, struct mapping);
    RETURN_IF_ERR(st_note(frame_map(r->fds[b->fd - 1], (int64_t)b->offset, (int64_t)b->size, false,
                                    out, &m->base, &m->bytes),
                          "a worker's package"));
    arena_link(&c->arena, unmap, m);
    return ST_OK;
}
static status_t exported(struct call *c, const struct job_result *r, const ProtobufCMessage **out) {
    const Hlod__V1__ExportWebRequest *q = call_request(c);
    const Hlod__Wire__Blob *b = r->export.package;
    uint8_t *bytes;
    RETURN_IF_ERR(map_package(c, r, &bytes));
    Hlod__V1__WebPackage *m = arena_dup(&c->arena, r->export.info, sizeof *m);
    m->file_name = (char *)(uintptr_t)file_name(&c->arena, q);
    m->media_type = (char *)(uintptr_t)(q->single_file ? "text/html" : "application/x-tar");
    m->bytes = (int64_t)b->size;
    m->cache_hit = r->export.hit;
    m->assumed = r->export.assumed;
    m->n_assumed = r->export.n_assumed;
    *out = &m->base;

    if (c->wants_file) {
        c->file = (struct call_file){.fd = fcntl(r->fds[b->fd - 1], F_DUPFD_CLOEXEC, 3),
                                     .type = m->media_type,
                                     .name = m->file_name,
                                     .offset = (int64_t)b->offset,
                                     .bytes = m->bytes,
                                     .total = m->bytes};
        return c->file.fd < 0 ? st_errno(errno, "a descriptor") : ST_OK;
    }

    if (m->bytes > MESSAGE_MAX)
        return st_because(ST_FAILED_PRECONDITION, BODY_TOO_LARGE,
                          "the package has %lld bytes, a message at most %d: "
                          "POST /v1/models/{model}/web gives it as the body",
                          (long long)m->bytes, MESSAGE_MAX);
    c->outputs = arena_zarray(&c->arena, struct call_output, 1); // gRPC sends it from where it lies
    c->outputs->data = (struct span){bytes, b->size};
    c->n_outputs = 1;
    m->data = (ProtobufCBinaryData){b->size, bytes};
    return ST_OK;
}

status_t api_export_web(struct call *c) {
    Hlod__V1__ExportWebRequest *q = call_request(c);
    RETURN_IF_ERR(call_check_priority(q->priority));
    struct job_spec spec = {
        .kind = JOB_EXPORT, .timeout_ms = q->timeout_ms, .priority = q->priority, .export.how = q};
    RETURN_IF_ERR(api_model(c, q->model, &spec.model));
    struct digest none;
    const char *colon = strchr(q->model, ':');
    if (!*q->name && !digest_parse(str_of(q->model), &none)) // of the name, without its version
        q->name = arena_strndup(&c->arena, q->model,
                                colon ? (size_t)(colon - q->model) : strlen(q->model));
    return api_start_job(c, &spec, exported);
}
