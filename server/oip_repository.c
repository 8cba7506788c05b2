// SPDX-License-Identifier: Apache-2.0
// Load and unload. A load with `file:VERSION/NAME` parameters brings the model's bytes (base64 over
// HTTP, raw over gRPC): they are stored, read, and compiled where shapes are fixed, then the name
// is set; only for
// a caller with the scope `load`, or with --allow-model-load where nobody is asked. Without files,
// it takes a name that was set before.
#include <stdlib.h>
#include <string.h>

#include "base/store.h"
#include "proto/json.h"
#include "scheduler/loop.h"
#include "server/oip.h"

struct load {
    struct call *c;
    struct store *store;
    const char *text; // base64, or NULL: bytes
    struct span bytes;
    int64_t version;
    struct digest digest;
    status_t st;
};

static void store_work(void *arg) {
    struct load *l = arg;
    struct store_writer *w;
    if (l->text && !json_base64(&l->c->arena, str_of(l->text), &l->bytes))
        l->st = st_reason(st_new(ST_INVALID_ARGUMENT, "the file's content is not base64"),
                          HLOD__V1__REASON__REASON_BAD_JSON);
    if (!l->st) l->st = store_write_begin(l->store, STORE_BLOB, &w);
    if (l->st) return;
    l->st = store_write(w, l->bytes.p, l->bytes.n);
    if (l->st)
        store_write_abort(w);
    else
        l->st = store_write_end(w, &l->digest);
}

static status_t loaded(struct call *c, const struct job_result *r, Hlod__V1__Event *result,
                       const ProtobufCMessage **out) {
    (void)result;
    const Inference__RepositoryModelLoadRequest *q =
        (const Inference__RepositoryModelLoadRequest *)c->request;
    const struct load *l = c->state;
    struct named_model *x;
    RETURN_IF_ERR(models_set(sched_models(c->api->sched), q->model_name, l->version, r->source,
                             (struct batching){0}, &x));
    static const Inference__RepositoryModelLoadResponse done =
        INFERENCE__REPOSITORY_MODEL_LOAD_RESPONSE__INIT;
    *out = &done.base;
    return ST_OK;
}

static void stored(void *arg) {
    struct load *l = arg;
    struct call *c = l->c;
    c->busy = false;
    if (c->finished) {
        st_drop(l->st);
        call_released(c);
        return;
    }
    if (l->st) {
        call_finish(c, NULL, l->st);
        return;
    }
    struct job_spec spec = {.kind = JOB_WARM, .model = l->digest, .payload_fd = -1};
    api_start_job(c, &spec, loaded);
}

static void load_file(struct call *c, const char *key,
                      const Inference__ModelRepositoryParameter *p) {
    struct load *l = arena_new_of(&c->arena, struct load);
    *l = (struct load){.c = c, .store = sched_store(c->api->sched), .version = 1};
    struct str path = str_of(key + strlen("file:")), version;
    int64_t v;
    if (str_cut(&path, '/', &version) && str_to_i64(version, &v) && v > 0) l->version = v;
    if (p && p->parameter_choice_case ==
                 INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_BYTES_PARAM)
        l->bytes = (struct span){p->bytes_param.data, p->bytes_param.len};
    else if (p && p->parameter_choice_case ==
                      INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_STRING_PARAM)
        l->text = p->string_param;
    status_t st = ST_OK;
    if (c->principal.anonymous && !c->api->allow_model_load)
        st = st_reason(st_new(ST_PERMISSION_DENIED,
                              "loading models with their files is off: start hlod with "
                              "--allow-model-load, or upload with POST /v1/executables and name "
                              "with POST /v1/models"),
                       HLOD__V1__REASON__REASON_BAD_OPTION);
    else if (!l->text && !l->bytes.n)
        st = st_reason(st_new(ST_INVALID_ARGUMENT, "%.100s has no content", key),
                       HLOD__V1__REASON__REASON_MALFORMED_MODEL);
    if (st) {
        call_finish(c, NULL, st);
        return;
    }
    c->state = l;
    c->busy = true;
    loop_work(sched_loop(c->api->sched), store_work, stored, l);
}

static size_t set_loaded(struct call *c, const char *name, bool on) {
    struct models *all = sched_models(c->api->sched);
    size_t n = 0;
    for (struct named_model *x = models_first(all); x; x = x->next)
        if (!strcmp(x->name, name)) {
            models_load(all, x, on);
            n++;
        }
    return n;
}
static status_t no_model(const char *name) MUST_CHECK;
static status_t no_model(const char *name) {
    return st_reason(st_new(ST_INVALID_ARGUMENT,
                            "failed to load '%.200s': no such model in the repository", name),
                     HLOD__V1__REASON__REASON_MODEL_NOT_FOUND);
}

void oip_load(struct call *c) {
    const Inference__RepositoryModelLoadRequest *q =
        (const Inference__RepositoryModelLoadRequest *)c->request;
    const char *file = NULL;
    const Inference__ModelRepositoryParameter *content = NULL;
    size_t n_files = 0;
    for (size_t i = 0; i < q->n_parameters; i++)
        if (!strncmp(q->parameters[i]->key, "file:", 5)) {
            file = q->parameters[i]->key;
            content = q->parameters[i]->value;
            n_files++;
        }
    if (n_files > 1)
        call_finish(
            c, NULL,
            st_reason(st_new(ST_INVALID_ARGUMENT, "%zu files: a model is one file here", n_files),
                      HLOD__V1__REASON__REASON_MALFORMED_MODEL));
    else if (file)
        load_file(c, file, content);
    else if (set_loaded(c, q->model_name, true)) {
        Inference__RepositoryModelLoadResponse m = INFERENCE__REPOSITORY_MODEL_LOAD_RESPONSE__INIT;
        call_finish(c, &m.base, ST_OK);
    } else
        call_finish(c, NULL, no_model(q->model_name));
}

void oip_unload(struct call *c) {
    const Inference__RepositoryModelUnloadRequest *q =
        (const Inference__RepositoryModelUnloadRequest *)c->request;
    Inference__RepositoryModelUnloadResponse m = INFERENCE__REPOSITORY_MODEL_UNLOAD_RESPONSE__INIT;
    if (set_loaded(c, q->model_name, false))
        call_finish(c, &m.base, ST_OK);
    else
        call_finish(c, NULL, no_model(q->model_name));
}
