// SPDX-License-Identifier: Apache-2.0
// The tree that yaml.c gives, key by key. Every reader of an object takes its known keys; what is
// left over is an error with its line.
#include "client/files/suite.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/str.h"
#include "base/vec.h"
#include "client/files/input.h"
#include "client/files/onnx_tensor.h"
#include "client/files/yaml.h"
#include "proto/message.h"

enum { INLINE_BYTES = 1024, MAX_TENSORS = 256 };
struct reader {
    struct arena *a;
    const char *path, *folder;
    const struct suite_io *io;
};

static int line_of(const json_t *o) {
    return (int)json_integer_value(json_object_get(o, YAML_LINE));
}
static status_t bad(const struct reader *r, const json_t *o, const char *fmt,
                    const char *what) MUST_CHECK;
static status_t bad(const struct reader *r, const json_t *o, const char *fmt, const char *what) {
    struct strbuf b = {0};
    const char *hole = strchr(fmt, '@');
    strbuf_add(&b, fmt, hole ? (size_t)(hole - fmt) : strlen(fmt));
    if (hole) strbuf_printf(&b, "%s%s", what, hole + 1);
    status_t st =
        st_new(ST_INVALID_ARGUMENT, "%s:%d: %s", r->path, o ? line_of(o) : 1, strbuf_cstr(&b));
    strbuf_done(&b);
    return st;
}

static status_t known_keys(const struct reader *r, const json_t *o, const char *what,
                           const char *keys) {
    const char *key;
    json_t *v;
    char word[80];
    if (!json_is_object(o)) return bad(r, NULL, "@: expected `key: value` lines", what);
    json_object_foreach((json_t *)(uintptr_t)o, key, v) {
        if (*key == '$') continue;
        snprintf(word, sizeof word, " %.70s ", key);
        if (!strstr(keys, word) || strlen(key) > 70)
            return st_note(bad(r, o, "no key '@' here", key), "%s (it has:%s)", what, keys);
    }
    return ST_OK;
}

// ---- scalars

static status_t text_at(const struct reader *r, const json_t *o, const char *key, char **out) {
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v)) return ST_OK;
    if (json_is_string(v))
        *out = arena_strdup(r->a, json_string_value(v));
    else if (json_is_integer(v))
        *out = arena_printf(r->a, "%lld", (long long)json_integer_value(v));
    else
        return bad(r, o, "@: expected a word", key);
    return ST_OK;
}
static status_t number_at(const struct reader *r, const json_t *o, const char *key, double *out) {
    const json_t *v = json_object_get(o, key);
    if (!v) return ST_OK;
    if (!json_is_number(v) || json_number_value(v) < 0)
        return bad(r, o, "@: expected a number from 0", key);
    *out = json_number_value(v);
    return ST_OK;
}
// Also "64M".
static status_t count_at(const struct reader *r, const json_t *o, const char *key, int64_t low,
                         int64_t high, int64_t *out) {
    const json_t *v = json_object_get(o, key);
    if (!v) return ST_OK;
    int64_t n = json_is_integer(v) ? json_integer_value(v) : -1, unit = 1;
    bool is = json_is_integer(v);
    if (json_is_string(v)) {
        struct str s = str_of(json_string_value(v));
        static const char units[] = "KMGT";
        const char *u = s.n ? strchr(units, s.p[s.n - 1]) : NULL;
        for (const char *p = units; u && p <= u; p++)
            unit *= 1024;
        is = u && str_to_i64((struct str){s.p, s.n - 1}, &n) && sz_mul(n, unit, &n);
    }
    if (!is || n < low || n > high) return bad(r, o, "@: expected a whole number in range", key);
    *out = n;
    return ST_OK;
}
static status_t u32_at(const struct reader *r, const json_t *o, const char *key, uint32_t *out) {
    int64_t n = *out;
    RETURN_IF_ERR(count_at(r, o, key, 0, UINT32_MAX, &n));
    *out = (uint32_t)n;
    return ST_OK;
}
// A word or a list of words.
static status_t words_at(const struct reader *r, const json_t *o, const char *key, char ***out,
                         size_t *out_n) {
    json_t *v = json_object_get(o, key);
    size_t n = json_is_array(v) ? json_array_size(v) : v ? 1 : 0;
    char **words = arena_array(r->a, char *, n + 1);
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(x)) return bad(r, o, "@: expected words", key);
        words[i] = arena_strdup(r->a, json_string_value(x));
    }
    *out = words;
    *out_n = n;
    return ST_OK;
}

static const char *beside(const struct reader *r, const char *path) {
    return *path == '/' ? path : arena_printf(r->a, "%s/%s", r->folder, path);
}

// A suite may be another's: devices and pipes that it names would be read without an end, and so
// would some of what the kernel shows as files (/proc/kmsg, tracing).
static bool endless(const char *file) {
    static const unsigned long kernels[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC, DEBUGFS_MAGIC,
                                            TRACEFS_MAGIC, SECURITYFS_MAGIC};
    struct statfs fs;
    struct stat sb;
    if (stat(file, &sb) != 0 || S_ISDIR(sb.st_mode)) return false;
    if (!S_ISREG(sb.st_mode)) return true;
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
        if (statfs(file, &fs) == 0 && (unsigned long)fs.f_type == kernels[k]) return true;
    return false;
}

// ---- budget, retry

static status_t budget_at(const struct reader *r, const json_t *o, Hlod__V1__JobBudget **out) {
    const json_t *v = json_object_get(o, "budget");
    if (!v) return ST_OK;
    RETURN_IF_ERR(known_keys(r, v, "budget", " run_ms compile_ms instructions peak_bytes "));
    Hlod__V1__JobBudget *b = message_new(r->a, &hlod__v1__job_budget__descriptor);
    RETURN_IF_ERR(number_at(r, v, "run_ms", &b->run_ms));
    RETURN_IF_ERR(number_at(r, v, "compile_ms", &b->compile_ms));
    RETURN_IF_ERR(count_at(r, v, "instructions", 0, INT64_MAX, &b->instructions));
    RETURN_IF_ERR(count_at(r, v, "peak_bytes", 0, INT64_MAX, &b->peak_bytes));
    *out = b;
    return ST_OK;
}
static status_t retry_at(const struct reader *r, const json_t *o, Hlod__V1__RetryPolicy **out) {
    const json_t *v = json_object_get(o, "retry");
    if (!v) return ST_OK;
    RETURN_IF_ERR(known_keys(r, v, "retry", " max_attempts backoff_ms max_backoff_ms "));
    Hlod__V1__RetryPolicy *p = message_new(r->a, &hlod__v1__retry_policy__descriptor);
    RETURN_IF_ERR(u32_at(r, v, "max_attempts", &p->max_attempts));
    RETURN_IF_ERR(u32_at(r, v, "backoff_ms", &p->backoff_ms));
    RETURN_IF_ERR(u32_at(r, v, "max_backoff_ms", &p->max_backoff_ms));
    *out = p;
    return ST_OK;
}

// ---- models, targets

static const char *stem(struct arena *a, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path,
               *dot = strrchr(name, '.');
    return dot && dot > name ? arena_strndup(a, name, (size_t)(dot - name)) : arena_strdup(a, name);
}

static status_t shapes_at(const struct reader *r, const json_t *o, Hlod__V1__JobModel *m) {
    json_t *shapes = json_object_get(o, "shapes"), *v;
    const char *input;
    if (!shapes) return ST_OK;
    if (!json_is_object(shapes)) return bad(r, o, "@: expected `input: 1x3x224x224`", "shapes");
    m->shapes = arena_array(r->a, Hlod__V1__ShapeBinding *, json_object_size(shapes) + 1);
    json_object_foreach(shapes, input, v) {
        if (*input == '$') continue;
        Hlod__V1__ShapeBinding *s = message_new(r->a, &hlod__v1__shape_binding__descriptor);
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
        struct str text = str_of(json_is_string(v) ? json_string_value(v) : number), part;
        s->input = arena_strdup(r->a, input);
        s->dims = arena_array(r->a, int64_t, NPY_MAX_RANK);
        while (text.n && str_cut(&text, 'x', &part))
            if (s->n_dims == NPY_MAX_RANK || !str_to_i64(part, &s->dims[s->n_dims++]))
                return bad(r, shapes, "@: expected dims as in 1x3x224x224", input);
        m->shapes[m->n_shapes++] = s;
    }
    return ST_OK;
}

static status_t read_model(const struct reader *r, const json_t *o, Hlod__V1__JobModel **out) {
    Hlod__V1__JobModel *m = message_new(r->a, &hlod__v1__job_model__descriptor);
    char *model = NULL, *precision = NULL;

    if (json_is_string(o))
        model = arena_strdup(r->a, json_string_value(o));
    else {
        RETURN_IF_ERR(
            known_keys(r, o, "a model", " name model shapes precision disable_passes budget "));
        RETURN_IF_ERR(text_at(r, o, "model", &model));
        RETURN_IF_ERR(text_at(r, o, "name", &m->name));
        RETURN_IF_ERR(text_at(r, o, "precision", &precision));
        RETURN_IF_ERR(shapes_at(r, o, m));
        RETURN_IF_ERR(budget_at(r, o, &m->budget));
        char **passes;
        size_t n;
        RETURN_IF_ERR(words_at(r, o, "disable_passes", &passes, &n));
        if (precision || n) {
            m->options = message_new(r->a, &hlod__v1__compile_options__descriptor);
            if (precision) m->options->precision = precision;
            m->options->disable_passes = passes;
            m->options->n_disable_passes = n;
        }
    }

    if (!model || !*model)
        return bad(r, json_is_object(o) ? o : NULL, "a model without @", "model");

    struct stat sb;
    const char *file = beside(r, model);
    if (stat(file, &sb) == 0) {
        char hex[65];
        if (endless(file))
            return bad(r, json_is_object(o) ? o : NULL, "'@' is no file with an end", file);
        RETURN_IF_ERR(r->io->model(r->io->ctx, file, hex));
        if (!*m->name) m->name = (char *)(uintptr_t)stem(r->a, model);
        model = arena_strdup(r->a, hex);
    } else if (strchr(model, '/') || strchr(model, '.'))
        return bad(r, json_is_object(o) ? o : NULL, "no file '@'", file);
    m->model = model;
    *out = m;
    return ST_OK;
}

static status_t read_target(const struct reader *r, const json_t *o, Hlod__V1__JobTarget **out) {
    Hlod__V1__JobTarget *t = message_new(r->a, &hlod__v1__job_target__descriptor);
    if (json_is_string(o))
        t->device = arena_strdup(r->a, json_string_value(o));
    else {
        RETURN_IF_ERR(known_keys(r, o, "a target", " name device target "));
        RETURN_IF_ERR(text_at(r, o, "name", &t->name));
        RETURN_IF_ERR(text_at(r, o, "device", &t->device));
        RETURN_IF_ERR(text_at(r, o, "target", &t->target));
    }
    *out = t;
    return ST_OK;
}

// ---- inputs

static status_t tensor_of(const struct reader *r, const struct npy *x, Hlod__V1__JobTensor **out) {
    Hlod__V1__JobTensor *t = message_new(r->a, &hlod__v1__job_tensor__descriptor);
    const char *type = input_datatype(x->descr);
    if (!type)
        return st_new(ST_INVALID_ARGUMENT, "'%s' has dtype %s, which cannot be sent", x->name,
                      x->descr);
    t->name = arena_strdup(r->a, x->name ? x->name : "");
    t->dtype = arena_strdup(r->a, type);
    t->shape = arena_dup_array(r->a, x->dims, x->rank);
    t->n_shape = (size_t)x->rank;
    if (x->size_bytes <= INLINE_BYTES)
        t->raw = (ProtobufCBinaryData){x->size_bytes, x->data};
    else {
        char hex[65];
        RETURN_IF_ERR(r->io->blob(r->io->ctx, (struct span){x->data, x->size_bytes}, hex));
        t->blob = arena_strdup(r->a, hex);
    }
    *out = t;
    return ST_OK;
}

static bool ends_in(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n > k && !strcmp(s + n - k, end);
}

static status_t pb_tensor(const struct reader *r, const char *path, struct npy *out) {
    struct span b;
    if (endless(path)) return st_new(ST_INVALID_ARGUMENT, "'%s' is no file with an end", path);
    RETURN_IF_ERR(input_file(r->a, path, &b));
    return onnx_tensor_parse(r->a, b, path, out);
}

// NAME: VALUE as behind `hlo run -i`, files beside the suite; also @file.pb.
static status_t read_value(const struct reader *r, const char *name, const json_t *v,
                           struct npy *out) {
    const char *text = json_is_string(v) ? json_string_value(v) : NULL;
    if (json_is_number(v)) text = arena_printf(r->a, "%.17g", json_number_value(v));
    if (!text) return st_new(ST_INVALID_ARGUMENT, "%s: expected @file or numbers", name);
    const char *at = *text == '@' ? text : strstr(text, "=@");
    if (at) {
        const char *file = beside(r, strchr(at, '@') + 1);
        if (ends_in(file, ".pb") && at == text) {
            RETURN_IF_ERR(pb_tensor(r, file, out));
            out->name = arena_strdup(r->a, name);
            return ST_OK;
        }
        if (endless(file)) return st_new(ST_INVALID_ARGUMENT, "'%s' is no file with an end", file);
        size_t head = (size_t)(strchr(at, '@') + 1 - text);
        text = arena_printf(r->a, "%.*s%s", (int)head, text, file);
    }
    struct image_options o = {.std = {1, 1, 1}};
    return input_parse(r->a, arena_printf(r->a, "%s=%s", name, text), &o, out);
}

static status_t tensors_at(const struct reader *r, const json_t *o, const char *key,
                           Hlod__V1__JobTensor ***out, size_t *out_n) {
    json_t *values = json_object_get(o, key), *v;
    const char *name;
    if (!values) return ST_OK;
    if (!json_is_object(values)) return bad(r, o, "@: expected `name: value` lines", key);
    *out = arena_array(r->a, Hlod__V1__JobTensor *, json_object_size(values) + 1);
    json_object_foreach(values, name, v) {
        if (*name == '$') continue;
        struct npy x;
        status_t st = read_value(r, name, v, &x);
        if (!st) st = tensor_of(r, &x, &(*out)[*out_n]);
        if (st) return st_note(st, "%s:%d", r->path, line_of(values));
        ++*out_n;
    }
    return ST_OK;
}

// A folder of ONNX's backend tests: input_0.pb, ... and output_0.pb, ..., by position where the
// tensors have no names.
static status_t data_folder(const struct reader *r, const char *folder, Hlod__V1__JobInput *in) {
    static const char *const kinds[2] = {"input", "output"};
    for (int k = 0; k < 2; k++) {
        Hlod__V1__JobTensor **v = arena_array(r->a, Hlod__V1__JobTensor *, MAX_TENSORS);
        size_t n = 0;
        struct stat sb;
        for (; n < MAX_TENSORS; n++) {
            const char *path = arena_printf(r->a, "%s/%s_%zu.pb", folder, kinds[k], n);
            struct npy x;
            if (stat(path, &sb)) break;
            RETURN_IF_ERR(pb_tensor(r, path, &x));
            RETURN_IF_ERR(tensor_of(r, &x, &v[n]));
        }
        *(k ? &in->expect : &in->inputs) = v;
        *(k ? &in->n_expect : &in->n_inputs) = n;
    }
    return in->n_inputs ? ST_OK : st_new(ST_INVALID_ARGUMENT, "%s has no input_0.pb", folder);
}

static status_t read_input(const struct reader *r, const json_t *o, Hlod__V1__JobInput **out) {
    Hlod__V1__JobInput *in = message_new(r->a, &hlod__v1__job_input__descriptor);
    char *data = NULL;
    RETURN_IF_ERR(known_keys(r, o, "an input", " name models values expect data rtol atol "));
    RETURN_IF_ERR(text_at(r, o, "name", &in->name));
    RETURN_IF_ERR(words_at(r, o, "models", &in->models, &in->n_models));
    RETURN_IF_ERR(tensors_at(r, o, "values", &in->inputs, &in->n_inputs));
    RETURN_IF_ERR(tensors_at(r, o, "expect", &in->expect, &in->n_expect));
    RETURN_IF_ERR(number_at(r, o, "rtol", &in->rtol));
    RETURN_IF_ERR(number_at(r, o, "atol", &in->atol));
    RETURN_IF_ERR(text_at(r, o, "data", &data));
    if (data && (in->n_inputs || in->n_expect))
        return bad(r, o, "@ together with values or expect", "data");
    if (data && !*in->name) in->name = (char *)(uintptr_t)stem(r->a, data);
    if (data)
        RETURN_IF_ERR(st_note(data_folder(r, beside(r, data), in), "%s:%d", r->path, line_of(o)));
    if (!in->n_inputs) return bad(r, o, "an input without @", "values or data");
    *out = in;
    return ST_OK;
}

// ---- train

static status_t train_at(const struct reader *r, const json_t *o, Hlod__V1__Training **out) {
    const json_t *v = json_object_get(o, "train"), *order = json_object_get(v, "in_order");
    if (!v) return ST_OK;
    RETURN_IF_ERR(known_keys(r, v, "train",
                             " loss optimizer schedule batch epochs steps seed in_order settings "
                             "validation patience checkpoint_steps checkpoint_s resume window "
                             "whole "));
    Hlod__V1__Training *t = message_new(r->a, &hlod__v1__training__descriptor);
    int64_t steps = 0, seed = 0, every = 0;
    RETURN_IF_ERR(text_at(r, v, "loss", &t->loss));
    RETURN_IF_ERR(text_at(r, v, "optimizer", &t->optimizer));
    RETURN_IF_ERR(text_at(r, v, "schedule", &t->schedule));
    RETURN_IF_ERR(text_at(r, v, "resume", &t->resume));
    RETURN_IF_ERR(words_at(r, v, "settings", &t->settings, &t->n_settings));

    RETURN_IF_ERR(u32_at(r, v, "batch", &t->batch));
    RETURN_IF_ERR(u32_at(r, v, "epochs", &t->epochs));
    RETURN_IF_ERR(u32_at(r, v, "patience", &t->patience));
    RETURN_IF_ERR(u32_at(r, v, "checkpoint_s", &t->checkpoint_s));
    RETURN_IF_ERR(u32_at(r, v, "window", &t->window));
    RETURN_IF_ERR(count_at(r, v, "steps", 0, INT32_MAX, &steps));
    RETURN_IF_ERR(count_at(r, v, "seed", INT32_MIN, INT32_MAX, &seed));
    RETURN_IF_ERR(count_at(r, v, "checkpoint_steps", 0, INT32_MAX, &every));
    t->steps = (uint64_t)steps;
    t->seed = (int32_t)seed;
    t->checkpoint_steps = (uint64_t)every;

    RETURN_IF_ERR(tensors_at(r, v, "validation", &t->validation, &t->n_validation));
    RETURN_IF_ERR(tensors_at(r, v, "whole", &t->whole, &t->n_whole));
    if (order && !json_is_boolean(order)) return bad(r, v, "@: expected true", "in_order");
    t->in_order = json_is_true(order);
    *out = t;
    return ST_OK;
}

// ---- the whole

static status_t list_at(const struct reader *r, const json_t *tree, const char *key,
                        const json_t **out, size_t *out_n, const int **out_lines) {
    const json_t *v = json_object_get(tree, key);
    *out = NULL;
    *out_n = 0;
    if (!v) return ST_OK;
    if (!json_is_array(v)) return bad(r, tree, "@: expected a list", key);
    *out = v;
    *out_n = json_array_size(v);
    int *lines = arena_zarray(r->a, int, *out_n + 1);
    for (size_t i = 0; i < *out_n; i++) {
        const json_t *x = json_array_get(v, i);
        lines[i] = json_is_object(x) ? line_of(x) : line_of(tree);
    }
    *out_lines = lines;
    return ST_OK;
}

static status_t read_tree(const struct reader *r, const json_t *tree, struct suite *s) {
    Hlod__V1__SubmitJobsRequest *q = s->request;
    RETURN_IF_ERR(known_keys(r, tree, "a suite",
                             " suite models targets inputs budget retry rtol atol timeout_ms "
                             "priority repeat keep_outputs train "));
    const json_t *list, *keep = json_object_get(tree, "keep_outputs");
    size_t n;
    const int *lines = NULL;

    q->name = (char *)(uintptr_t)stem(r->a, r->path);
    RETURN_IF_ERR(text_at(r, tree, "suite", &q->name));
    RETURN_IF_ERR(list_at(r, tree, "models", &list, &n, &s->model_lines));

    if (!n) return bad(r, tree, "a suite without @", "models");
    q->models = arena_array(r->a, Hlod__V1__JobModel *, n);
    for (; q->n_models < n; q->n_models++)
        RETURN_IF_ERR(read_model(r, json_array_get(list, q->n_models), &q->models[q->n_models]));

    RETURN_IF_ERR(list_at(r, tree, "targets", &list, &n, &lines));
    q->targets = arena_array(r->a, Hlod__V1__JobTarget *, n + 1);
    for (; q->n_targets < n; q->n_targets++)
        RETURN_IF_ERR(
            read_target(r, json_array_get(list, q->n_targets), &q->targets[q->n_targets]));

    RETURN_IF_ERR(list_at(r, tree, "inputs", &list, &n, &s->input_lines));
    q->inputs = arena_array(r->a, Hlod__V1__JobInput *, n + 1);
    for (; q->n_inputs < n; q->n_inputs++)
        RETURN_IF_ERR(read_input(r, json_array_get(list, q->n_inputs), &q->inputs[q->n_inputs]));

    RETURN_IF_ERR(budget_at(r, tree, &q->budget));
    RETURN_IF_ERR(retry_at(r, tree, &q->retry));
    RETURN_IF_ERR(train_at(r, tree, &q->train));
    RETURN_IF_ERR(number_at(r, tree, "rtol", &q->rtol));
    RETURN_IF_ERR(number_at(r, tree, "atol", &q->atol));
    RETURN_IF_ERR(u32_at(r, tree, "timeout_ms", &q->timeout_ms));
    RETURN_IF_ERR(u32_at(r, tree, "repeat", &q->repeat));
    int64_t priority = 0;
    RETURN_IF_ERR(count_at(r, tree, "priority", INT32_MIN, INT32_MAX, &priority));
    q->priority = (int32_t)priority;
    if (keep && !json_is_boolean(keep)) return bad(r, tree, "@: expected true", "keep_outputs");
    q->keep_outputs = json_is_true(keep);
    return ST_OK;
}

status_t suite_read(struct arena *a, const char *path, const struct suite_io *io,
                    struct suite *out) {
    struct span text;
    json_t *tree;
    const char *slash = strrchr(path, '/');
    struct reader r = {.a = a,
                       .path = path,
                       .folder = slash ? arena_strndup(a, path, (size_t)(slash - path)) : ".",
                       .io = io};
    RETURN_IF_ERR(input_file(a, path, &text));
    RETURN_IF_ERR(yaml_read(text, path, &tree));
    struct suite s = {.path = path, .request = arena_new_of(a, Hlod__V1__SubmitJobsRequest)};
    hlod__v1__submit_jobs_request__init(s.request);
    status_t st = read_tree(&r, tree, &s);
    json_decref(tree);
    if (!st) *out = s;
    return st;
}

int suite_line(const struct suite *s, const char *model, const char *input) {
    const Hlod__V1__SubmitJobsRequest *q = s->request;
    for (size_t i = 0; i < q->n_inputs; i++)
        if (*input && !strcmp(q->inputs[i]->name, input)) return s->input_lines[i];
    for (size_t i = 0; i < q->n_models; i++)
        if (!strcmp(q->models[i]->name, model)) return s->model_lines[i];
    return 1;
}
