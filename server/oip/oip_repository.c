// SPDX-License-Identifier: Apache-2.0
// Load and unload. A load with `file:VERSION/NAME` parameters brings the model's bytes (base64 over
// HTTP, raw over gRPC): they are stored, read, and compiled where shapes are fixed, then the name
// is set; only for a caller with the scope `load`, or with --allow-model-load where no token is
// needed. Without files, it takes a name that was set before.
#include <stdlib.h>
#include <string.h>

#include "proto/json.h"
#include "scheduler/records/blobs.h"
#include "server/api/api_models.h"
#include "server/oip/oip.h"

struct content {      // of a file
    const char *text; // base64, or NULL: bytes
    struct span bytes;
};
struct load {
    struct call *c;
    struct content model;
    struct content *labels; // [n_labels]
    struct model_labels *names;
    size_t n_labels;
    struct batching batching;
    int64_t version;
    const char *version_text; // of a load without files
};
enum { MAX_LABELS = 1 << 20 }; // bytes, of all outputs together

static status_t decode(struct arena *a, struct content *f) {
    if (f->text && !json_base64(a, str_of(f->text), &f->bytes))
        return st_because(ST_INVALID_ARGUMENT, BAD_JSON, "the file's content is not base64");
    return ST_OK;
}
static status_t take_labels(struct load *l) {
    size_t all = 0;
    for (size_t i = 0; i < l->n_labels; i++) {
        RETURN_IF_ERR(decode(&l->c->arena, &l->labels[i]));
        const struct span *b = &l->labels[i].bytes;
        all += b->n;
        if (all > MAX_LABELS || memchr(b->p, 0, b->n))
            return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                              "labels: expected text of at most %d bytes in all", MAX_LABELS);
        l->names[i].text = arena_strndup(&l->c->arena, (const char *)b->p, b->n);
    }
    return ST_OK;
}
static status_t store_work(void *arg) {
    struct load *l = arg;
    struct call *c = l->c;
    RETURN_IF_ERR(decode(&c->arena, &l->model));
    RETURN_IF_ERR(take_labels(l));
    return blob_store(sched_store(c->api->sched), l->model.bytes, &c->source, &c->source_fresh);
}

static const Inference__RepositoryModelLoadResponse load_done =
    INFERENCE__REPOSITORY_MODEL_LOAD_RESPONSE__INIT;
static status_t loaded(struct call *c, const struct job_result *r, const ProtobufCMessage **out) {
    const Inference__RepositoryModelLoadRequest *q = call_request(c);
    const struct load *l = c->state;
    const char *space = c->api->auth ? c->principal.tenant : MODELS_DEFAULT;
    struct named_model *x;
    RETURN_IF_ERR(models_set(sched_models(c->api->sched), space, q->model_name, l->version,
                             r->source, l->batching, &x));
    if (l->n_labels) models_set_labels(sched_models(c->api->sched), x, l->names, l->n_labels);
    *out = NULL;
    return api_models_answer(c, &load_done.base);
}

static status_t stored(void *arg) {
    struct load *l = arg;
    struct call *c = l->c;
    c->has_source = true;
    struct job_spec spec = {.kind = JOB_WARM, .model = c->source, .warm.batching = l->batching};
    return api_start_job(c, &spec, loaded);
}

// ---- what a load asks for

typedef const Inference__RepositoryModelLoadRequest request;

MUST_CHECK static status_t bad_load(const char *what, const char *why) {
    return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "%.200s: %s", what, why);
}
static struct content content_of(const Inference__ModelRepositoryParameter *p) {
    struct content f = {0};
    if (p && p->parameter_choice_case ==
                 INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_BYTES_PARAM)
        f.bytes = (struct span){p->bytes_param.data, p->bytes_param.len};
    else if (p && p->parameter_choice_case ==
                      INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_STRING_PARAM)
        f.text = p->string_param;
    return f;
}
// The `config` parameter: a ModelConfig in JSON. *out NULL: not given.
static status_t config_of(struct call *c, request *q, const Inference__ModelConfig **out) {
    *out = NULL;
    for (size_t i = 0; i < q->n_parameters; i++) {
        if (strcmp(q->parameters[i]->key, "config")) continue;
        ProtobufCMessage *m;
        struct content f = content_of(q->parameters[i]->value);
        if (!f.text) return bad_load("config", "expected a string");
        RETURN_IF_ERR(st_note(
            json_parse_oip(&c->arena, &inference__model_config__descriptor, str_of(f.text), &m),
            "config"));
        *out = (const Inference__ModelConfig *)m;
    }
    if (*out && *(*out)->name && strcmp((*out)->name, q->model_name))
        return bad_load("config", "it names another model");
    return ST_OK;
}
static const char *labels_for(const Inference__ModelConfig *k, const char *path) {
    for (size_t i = 0; k && i < k->n_output; i++)
        if (*k->output[i]->label_filename && !strcmp(k->output[i]->label_filename, path))
            return k->output[i]->name;
    return NULL;
}
// Each file is the model, VERSION/NAME, or labels of an output that the config names.
static status_t take_file(struct load *l, const Inference__ModelConfig *k, const char *key,
                          struct content f) {
    const char *path = key + strlen("file:"), *output = labels_for(k, path);
    if (!f.text && !f.bytes.n) return bad_load(key, "has no content");
    if (output) {
        l->labels[l->n_labels] = f;
        l->names[l->n_labels++].output = (char *)output;
        return ST_OK;
    }
    if (l->model.text || l->model.bytes.n)
        return bad_load(key, "a model is one file here, beside labels that the config names");
    struct str rest = str_of(path), version;
    int64_t v;
    if (str_cut(&rest, '/', &version) && str_to_i64(version, &v) && v > 0) l->version = v;
    l->model = f;
    return ST_OK;
}
static void take_config(struct load *l, const Inference__ModelConfig *k) {
    if (!k || !k->dynamic_batching || k->max_batch_size < 2) return;
    uint64_t delay = k->dynamic_batching->max_queue_delay_microseconds;
    l->batching = (struct batching){.max = k->max_batch_size,
                                    .delay_us = delay < INT32_MAX ? (int32_t)delay : INT32_MAX};
}

static status_t load_files(struct call *c, request *q, struct load *l) {
    if (c->principal.anonymous && !c->api->allow_model_load)
        return st_because(ST_PERMISSION_DENIED, BAD_OPTION,
                          "loading models with their files is off: start hlod with "
                          "--allow-model-load, or upload with POST /v1/executables and name "
                          "with POST /v1/models");
    const Inference__ModelConfig *k;
    RETURN_IF_ERR(config_of(c, q, &k));
    l->labels = arena_array(&c->arena, struct content, q->n_parameters);
    l->names = arena_zarray(&c->arena, struct model_labels, q->n_parameters);
    for (size_t i = 0; i < q->n_parameters; i++)
        if (!strncmp(q->parameters[i]->key, "file:", 5))
            RETURN_IF_ERR(
                take_file(l, k, q->parameters[i]->key, content_of(q->parameters[i]->value)));
    if (!l->model.text && !l->model.bytes.n)
        return bad_load("files", "no model among them: file:VERSION/NAME");
    take_config(l, k);
    return ST_OK;
}

static size_t set_loaded(struct call *c, const char *name, bool on) {
    struct models *all = sched_models(c->api->sched);
    const char *space = api_space(c, name);
    size_t n = 0;
    for (struct named_model *x = models_first(all); x; x = x->next)
        if (!strcmp(x->name, name) && models_of(x, space)) {
            models_load(all, x, on);
            n++;
        }
    return n;
}
MUST_CHECK static status_t no_model(const char *to, const char *name) {
    return st_because(ST_INVALID_ARGUMENT, MODEL_NOT_FOUND,
                      "failed to %s '%.200s': no such model in the repository", to, name);
}

// A config without files says how runs of the newest version are joined.
static status_t joined(struct call *c, const struct job_result *r, const ProtobufCMessage **out) {
    const Inference__RepositoryModelLoadRequest *q = call_request(c);
    const struct load *l = c->state;
    struct models *all = sched_models(c->api->sched);
    struct named_model *x =
        models_find(all, api_space(c, q->model_name), q->model_name, l->version_text);
    if (!x || !digest_eq(x->source, r->source)) return no_model("load", q->model_name);
    models_join(all, x, l->batching);
    set_loaded(c, q->model_name, true);
    *out = NULL;
    return api_models_answer(c, &load_done.base);
}
static status_t join_newest(struct load *l, const Inference__ModelConfig *k) {
    struct call *c = l->c;
    request *q = call_request(c);
    const struct named_model *x =
        models_find(sched_models(c->api->sched), api_space(c, q->model_name), q->model_name, "");
    if (!x) return no_model("load", q->model_name);
    take_config(l, k);
    l->version_text = arena_printf(&c->arena, "%lld", (long long)x->version);
    c->state = l;
    struct job_spec spec = {.kind = JOB_WARM, .model = x->source, .warm.batching = l->batching};
    return api_start_job(c, &spec, joined);
}

status_t oip_load(struct call *c) {
    request *q = call_request(c);
    bool files = false;
    for (size_t i = 0; i < q->n_parameters; i++)
        files = files || !strncmp(q->parameters[i]->key, "file:", 5);
    struct load *l = arena_new_of(&c->arena, struct load);
    *l = (struct load){.c = c, .version = 1};
    if (files) {
        RETURN_IF_ERR(load_files(c, q, l));
        c->state = l;
        return call_work(c, store_work, stored, l);
    }
    const Inference__ModelConfig *k;
    RETURN_IF_ERR(config_of(c, q, &k));
    if (k && k->dynamic_batching) return join_newest(l, k);
    if (!set_loaded(c, q->model_name, true)) return no_model("load", q->model_name);
    return api_models_answer(c, &load_done.base);
}

status_t oip_unload(struct call *c) {
    const Inference__RepositoryModelUnloadRequest *q = call_request(c);
    static const Inference__RepositoryModelUnloadResponse done =
        INFERENCE__REPOSITORY_MODEL_UNLOAD_RESPONSE__INIT;
    if (!set_loaded(c, q->model_name, false)) return no_model("unload", q->model_name);
    return api_models_answer(c, &done.base);
}
