// SPDX-License-Identifier: Apache-2.0
// What is told of a job that has ended: to its owner, to GET /v1/runs, to the log. It reads the job
// only.
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "proto/message.h"
#include "scheduler/job/job_inside.h"
#include "scheduler/records/recent.h"
#include "scheduler/trace.h"

// A compile that was refused at sizes that the request did not say.
status_t job_at_assumed_sizes(const struct job *j, status_t st) {
    if (st_code(st) != ST_INVALID_ARGUMENT || !j->key.n_assumed || j->r.exe ||
        st_get_reason(st) == HLOD__V1__REASON__REASON_BAD_OPTION)
        return st;

    struct strbuf t = {0};
    strbuf_limit(&t, 2000);
    for (size_t i = 0; i < j->key.n_assumed; i++) {
        const Hlod__V1__ShapeBinding *s = j->key.assumed[i];
        strbuf_printf(&t, " %s=", s->input);
        for (size_t d = 0; d < s->n_dims; d++)
            strbuf_printf(&t, "%s%" PRId64, d ? "x" : "", s->dims[d]);
    }
    st = st_note(st, "with shapes that were not given, taken as%s", strbuf_cstr(&t));
    strbuf_done(&t);
    return st;
}

// The beginning of why it failed, in the job's arena: messages name what the client sent.
static char *failure_text(struct job *j, status_t st) {
    enum { MOST = 500 };
    struct str all = str_of(st_message(st)), rest = all;
    struct strbuf shown = {0};
    uint32_t code;
    while (rest.n) {
        size_t n = text_first(rest, &code);
        if ((size_t)(rest.p - all.p) + n > MOST) break;
        rest = (struct str){rest.p + n, rest.n - n};
    }
    text_show(&shown, (struct str){all.p, all.n - rest.n}, "");
    if (rest.n) strbuf_puts(&shown, " ...");
    char *text = arena_strdup(&j->arena, strbuf_cstr(&shown));
    strbuf_done(&shown);
    return text;
}

// What is told of the job, in its arena.
static const Hlod__V1__RunRecord *record_of(struct job *j, const char *kind, const char *key,
                                            status_t st) {
    struct arena *a = &j->arena;
    Hlod__V1__RunRecord *m = message_new(a, &hlod__v1__run_record__descriptor);
    char *started = arena_alloc(a, 32);
    clock_wall_text(clock_wall_ns() - (clock_ns() - j->start_ns), started);
    m->job = j->r.id;
    m->kind = (char *)(uintptr_t)kind;
    m->code = (char *)(uintptr_t)(st ? st_code_name(st_code(st)) : "OK");
    if (st) m->message = failure_text(j, st);
    m->started = started;
    m->model = arena_dup(a, digest_to_hex(j->r.source).z, sizeof(struct hex_digest));
    m->executable = arena_strdup(a, key);
    if (j->r.device) m->device = (char *)(uintptr_t)j->r.device;
    m->tenant = (char *)(uintptr_t)(j->spec->tenant ? j->spec->tenant : "default");
    if (j->spec->trace) {
        m->trace_id = arena_alloc(a, TRACE_ID_TEXT);
        trace_write_id(j->spec->trace, m->trace_id);
    }

    m->cache_hit = j->r.cache_hit;
    m->timings = (Hlod__V1__Timing **)(uintptr_t)j->r.timings;
    m->n_timings = j->r.n_timings;
    for (size_t i = 0; i < j->r.n_timings; i++)
        m->compiled |= !strcmp(j->r.timings[i]->name, "compile");
    if (m->compiled && j->exe) {
        m->passes = j->exe->info->passes;
        m->n_passes = j->exe->info->n_passes;
    }
    if (j->r.reply) m->profile = j->r.reply->profile;
    m->profiled = m->profile != NULL;
    return m;
}

static void log_end(const struct job *j, const char *kind, const char *key, status_t st) {
    const struct trace *trace = j->spec->trace && j->spec->trace->remote ? j->spec->trace : NULL;
    struct strbuf times = {0};
    char id[TRACE_ID_TEXT] = "";
    // Runs that went well, and looks at models that are known, are too many for a log: they are in
    // /metrics and /v1/runs.
    bool usual = !st && !trace &&
                 (j->spec->kind == JOB_RUN || (j->spec->kind == JOB_INGEST && j->r.ingest_hit));
    enum log_level level = usual ? LOG_DEBUG : LOG_INFO;
    if (!log_on(level, "job.done")) return;

    for (size_t i = 0; i < j->r.n_timings; i++)
        strbuf_printf(&times, " %s_ms=%.2f", j->r.timings[i]->name, j->r.timings[i]->ms);
    if (trace) trace_write_id(trace, id);
    log_event(level, "job.done", "job=%llu tenant=%s kind=%s key=%s dev=%s%s code=%s%s%s",
              (unsigned long long)j->r.id, j->tenant->name, kind, *key ? key : "-",
              j->r.device ? j->r.device : "-", strbuf_cstr(&times),
              st ? st_code_name(st_code(st)) : "OK", trace ? " trace=" : "", id);
    strbuf_done(&times);
}

const Hlod__V1__RunRecord *job_report(struct job *j, const char *kind, status_t st) {
    char key[65] = "";
    if (!digest_is_zero(j->key.digest)) digest_hex(j->key.digest, key);
    // Looking at an executable or a model is no work of GET /v1/runs.
    bool look = j->spec->kind == JOB_INSPECT || (j->spec->kind == JOB_INGEST && j->r.ingest_hit);
    const Hlod__V1__RunRecord *m =
        !look || trace_sampled(j->spec->trace) ? record_of(j, kind, key, st) : NULL;
    if (!look) recent_add(j->s->recent, m, m->compiled || m->profiled);
    log_end(j, kind, key, st);
    return m;
}
