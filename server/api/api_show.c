// SPDX-License-Identifier: Apache-2.0
// ShowModel: what a model is. Its record says it; a source that nobody read yet is read first.
#include <string.h>
#include <unistd.h>

#include "base/store/store.h"
#include "proto/message.h"
#include "server/api/api_job.h"

static int64_t elements(const Hlod__Wire__Weight *w) {
    int64_t n = 1;
    for (size_t d = 0; d < w->n_dims; d++)
        if (!sz_mul(n, w->dims[d], &n)) return 0;
    return n;
}

struct sized {
    struct call *c;
    struct digest digest;
    Hlod__V1__ModelInfo *m;
};
static status_t size_work(void *arg) {
    struct sized *s = arg;
    int fd;
    int64_t offset;
    status_t st = store_open_fd(sched_store(s->c->api->sched), STORE_BLOB, s->digest, STORE_TRUST,
                                &fd, &offset, &s->m->bytes);
    if (st)
        st_drop(st); // the source may be gone, its record stays
    else
        close(fd);
    return ST_OK;
}
static status_t size_done(void *arg) {
    const struct sized *s = arg;
    return call_reply(s->c, &s->m->base);
}

static status_t shown(struct call *c, const struct job_result *r, const ProtobufCMessage **out) {
    const Hlod__Wire__IngestReply *rec = r->model;
    Hlod__V1__ModelInfo *m = message_new(&c->arena, &hlod__v1__model_info__descriptor);
    m->source_digest = api_hex(&c->arena, r->source);
    m->format = rec->format;
    m->signature = rec->signature;
    if (rec->info) {
        m->opsets = rec->info->opsets;
        m->n_opsets = rec->info->n_opsets;
        m->operators = rec->info->operators;
        m->n_operators = rec->info->n_operators;
        m->nodes = rec->info->nodes;
        m->producer = rec->info->producer;
    }
    for (size_t k = 0; k < rec->n_weights; k++) {
        if (!sz_add(m->parameters, elements(rec->weights[k]), &m->parameters)) m->parameters = 0;
        m->weights_bytes += rec->weights[k]->size;
    }
    if (rec->info && rec->info->parameters > m->parameters) { // small ones are not bound
        m->parameters = rec->info->parameters;
        m->weights_bytes = rec->info->parameter_bytes;
    }

    struct digest d;
    memcpy(d.b, rec->program_digest.data, sizeof d.b);
    m->program_digest = api_hex(&c->arena, d);
    memcpy(d.b, rec->weights_digest.data, sizeof d.b);
    m->weights_digest = api_hex(&c->arena, d);
    *out = NULL;
    struct sized *s = arena_new_of(&c->arena, struct sized);
    *s = (struct sized){.c = c, .digest = r->source, .m = m};
    return call_work(c, size_work, size_done, s);
}

status_t api_show_model(struct call *c) {
    const Hlod__V1__ShowModelRequest *q = call_request(c);
    struct job_spec spec = {.kind = JOB_INGEST};
    RETURN_IF_ERR(api_model(c, q->model, &spec.model));
    return api_start_job(c, &spec, shown);
}
