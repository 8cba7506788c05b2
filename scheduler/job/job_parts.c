// SPDX-License-Identifier: Apache-2.0
#include "scheduler/job/job_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/message.h"
#include "scheduler/job/job_call.h"
#include "scheduler/job/job_run.h"
#include "scheduler/workers/memfds.h"

struct job_parts {
    Hlod__Wire__RunReply **replies; // of parts that are over; the last one's outputs are carried
    struct exe **exes;              // of those
    struct job_step_result *steps;
    size_t n;
    uint32_t sizes;       // of the last one's outputs: what is not carried
    int fd;               // where they lie, or -1
    struct memfd *memory; // whose fd it is; NULL: ours
};
enum { MAX_PARTS = 64, MAX_ELEMENTS = 4096 }; // the compiler's limits are lower

static struct job_parts *parts_of(const struct job *j) {
    return j->spec->kind == JOB_RUN ? j->run->parts : NULL;
}
static void let_go(struct job_parts *p) {
    if (p->fd >= 0 && !p->memory) close(p->fd);
    memfd_unref(p->memory);
    p->memory = NULL;
    p->fd = -1;
}
void job_drop_parts(struct job *j) {
    struct job_parts *p = parts_of(j);
    if (!p) return;
    let_go(p);
    for (size_t k = 0; k < p->n; k++) {
        hlod__wire__run_reply__free_unpacked(p->replies[k], NULL);
        exe_unref(p->exes[k]);
    }
    j->run->parts = NULL;
}

status_t job_check_part(struct job *j, UNUSED struct delivery *d) {
    const Hlod__V1__Part *p = j->exe->info->part;
    const char *with = job_leads(j)                ? "batching"
                       : job_replicas(j) > 1       ? "replicas"
                       : j->spec->kind == JOB_STEP ? "plans and resident buffers"
                                                   : NULL;
    if (!p) return ST_OK;
    if (with)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                          "sizes in this model come from values that only a run has, so it "
                          "runs in parts: that does not go with %s",
                          with);
    size_t over = parts_of(j) ? parts_of(j)->n : 0;
    if (p->index == over && p->carried == job_carried(j)) return ST_OK;
    return st_because(ST_FAILED_PRECONDITION, BAD_OPTION,
                      "executable %s goes on with what an earlier part of a run found: run "
                      "the model",
                      j->exe->info->digest);
}

// ---- sizes found

static status_t bytes_of(struct job *j, const Hlod__Wire__Blob *b, uint8_t *to, size_t n) {
    if (!b || b->size != n) return st_internal("a size of the run is incomplete");
    if (b->fd == 0) {
        if (b->inline_bytes.len != n) return st_internal("a size of the run is incomplete");
        if (n) memcpy(to, b->inline_bytes.data, n);
        return ST_OK;
    }
    if (b->fd > (uint32_t)j->r.n_fds || b->offset > INT64_MAX)
        return st_internal("a size of the run lies outside its memory");
    if (n && pread(j->r.fds[b->fd - 1], to, n, (off_t)b->offset) != (ssize_t)n)
        return st_errno(errno, "tensor memory");
    return ST_OK;
}

struct found {
    Hlod__Wire__Binding **v;
    size_t n, cap;
};
// The elements of one result as bindings "@<part>[<element>]"; *at counts through all of them.
static status_t bind_found(struct job *j, const Hlod__Wire__WireTensor *t, size_t *at,
                           struct found *all) {
    const struct dtype_row *type = numbers_dtype(str_of(t->dtype));
    int64_t n = 1;
    uint8_t bytes[KEY_MAX_VALUES * 8];
    for (size_t d = 0; d < t->n_dims; d++)
        if (!sz_mul(n, t->dims[d], &n)) n = -1;
    if (!type || type->bytes < 1 || type->bytes > 8 || n < 0 || n > KEY_MAX_VALUES ||
        *at + (size_t)n > MAX_ELEMENTS)
        return st_internal("a result that is to be a size has another type than expected");
    RETURN_IF_ERR(bytes_of(j, t->data, bytes, (size_t)(n * type->bytes)));
    for (int64_t k = 0; k < n; k++, ++*at) {
        const char *symbol = arena_printf(&j->arena, "@%zu[%04zu]", j->run->parts->n, *at);
        int64_t size = numbers_bits(type, bytes + k * type->bytes);
        avec_push(&j->arena, all, key_binding(&j->arena, symbol, size));
    }
    return ST_OK;
}

// ---- from one part to the next

static void keep_step(struct job *j) {
    struct job_parts *p = parts_of(j);
    Hlod__Wire__StepReply *r = message_new(&j->arena, &hlod__wire__step_reply__descriptor);
    r->run_ms = arena_array(&j->arena, double, j->reply.run->n_run_ms + 1);
    r->n_run_ms = j->reply.run->n_run_ms;
    for (size_t k = 0; k < r->n_run_ms; k++)
        r->run_ms[k] = j->reply.run->run_ms[k];
    r->profile = j->reply.run->profile;
    r->peak_bytes = j->reply.run->peak_bytes;
    r->prepared_bytes = j->reply.run->prepared_bytes;
    p->steps[p->n] = (struct job_step_result){
        .name = arena_printf(&j->arena, "part %zu", p->n + 1),
        .exe = j->exe->info,
        .cache_hit = j->r.cache_hit,
        .reply = r,
    };
}

status_t job_next_part(struct job *j) {
    const Hlod__V1__Part *is = j->exe->info->part;
    struct found all = {0};
    size_t at = 0;
    if (!j->run->parts) {
        struct job_parts *p = j->run->parts = arena_new_of(&j->arena, struct job_parts);
        p->fd = -1;
        p->replies = arena_zarray(&j->arena, Hlod__Wire__RunReply *, MAX_PARTS + 1);
        p->exes = arena_zarray(&j->arena, struct exe *, MAX_PARTS + 1);
        p->steps = arena_zarray(&j->arena, struct job_step_result, MAX_PARTS + 1);
    }
    struct job_parts *p = parts_of(j);
    if (p->n + 1 >= MAX_PARTS || is->sizes > j->reply.run->n_outputs || j->r.n_fds > 1)
        return st_internal("a part of a program has an unexpected result");
    for (size_t k = 0; k < j->key.n_bindings; k++)
        avec_push(&j->arena, &all, j->key.bindings[k]);
    for (size_t k = 0; k < is->sizes; k++)
        RETURN_IF_ERR(bind_found(j, j->reply.run->outputs[k], &at, &all));
    keep_step(j);
    let_go(p);
    p->sizes = is->sizes;
    p->exes[p->n] = exe_ref(j->exe);
    p->fd = -1;
    p->replies[p->n++] = job_take_reply(j, &p->fd, &p->memory);

    struct job_key k = j->key;
    key_sort_bindings(all.v, all.n);
    k.bindings = all.v;
    k.n_bindings = all.n;
    k.parts.bindings = key_bindings_text(&j->arena, all.v, all.n);
    k.digest = key_of(&k.parts);
    job_own_executable(j);
    job_repeat(j, ROW_KEY);
    job_deliver(j, ROW_KEY, &(struct delivery){.key = &k});
    return ST_OK;
}

// ---- what the next one takes

size_t job_carried(const struct job *j) {
    const struct job_parts *p = parts_of(j);
    return p ? p->replies[p->n - 1]->n_outputs - p->sizes : 0;
}
int64_t job_carried_bytes(const struct job *j) {
    const struct job_parts *p = parts_of(j);
    int64_t bytes = 0;
    for (size_t k = 0, n = job_carried(j); k < n; k++) {
        const Hlod__Wire__Blob *b = p->replies[p->n - 1]->outputs[p->sizes + k]->data;
        if (b && !sz_add(bytes, (int64_t)b->size, &bytes)) return INT64_MAX / 4;
    }
    return bytes;
}
int job_parts_fd(const struct job *j) {
    return parts_of(j) ? parts_of(j)->fd : -1;
}
void job_carry(struct job *j, uint32_t fd, Hlod__Wire__WireTensor **to) {
    const struct job_parts *p = parts_of(j);
    for (size_t k = 0, n = job_carried(j); k < n; k++) {
        const Hlod__Wire__WireTensor *from = p->replies[p->n - 1]->outputs[p->sizes + k];
        to[k] = arena_dup(&j->arena, from, sizeof *from);
        if (!from->data) continue;
        to[k]->data = arena_dup(&j->arena, from->data, sizeof *from->data);
        if (from->data->fd) to[k]->data->fd = fd;
    }
}

// ---- the end

void job_tell_parts(struct job *j, struct job_result *r) {
    struct job_parts *p = parts_of(j);
    if (!p) return;
    keep_step(j);
    r->steps = p->steps;
    r->n_steps = p->n + 1;
    double before = 0;
    for (size_t k = 0; k < p->n; k++)
        for (size_t i = 0; i < p->steps[k].reply->n_run_ms; i++)
            before += p->steps[k].reply->run_ms[i];
    for (size_t i = 0; i < j->reply.run->n_run_ms; i++)
        j->reply.run->run_ms[i] += before;
}

status_t job_note_parts(const struct job *j, status_t st) {
    if (!st || !parts_of(j) || j->exe) return st;
    struct strbuf t = {0};
    size_t shown = 0;
    for (size_t k = 0; k < j->key.n_bindings && shown < 8; k++)
        if (j->key.bindings[k]->symbol[0] == '@')
            strbuf_printf(&t, "%s%" PRId64, shown++ ? ", " : "", j->key.bindings[k]->size);
    st = st_note(st, "compiled for sizes that the run found (%s)", strbuf_cstr(&t));
    strbuf_done(&t);
    return st;
}
