// SPDX-License-Identifier: Apache-2.0
#include "proto/query.h"

#include <string.h>

#include "base/vec.h"
#include "proto/hlod.pb-c.h"
#include "proto/json.h"
#include "proto/message.h"
#include "proto/reason.h"

MUST_CHECK static status_t bad_shape(const char *value) {
    return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "shape '%.100s': expected NAME=1x3x224x224",
                      value);
}

static status_t add_shape(struct arena *a, Hlod__V1__ShapeBinding ***shapes, size_t *n,
                          const char *value) {
    const char *eq = strrchr(value, '='); // names may contain '='
    if (!eq || eq == value) return bad_shape(value);
    Hlod__V1__ShapeBinding *s = message_new(a, &hlod__v1__shape_binding__descriptor);
    s->input = arena_strndup(a, value, (size_t)(eq - value));
    VEC(int64_t) dims = {0};
    struct str text = str_of(eq + 1), part;
    while (text.n && str_cut(&text, 'x', &part)) {
        int64_t d;
        if (!str_to_i64(part, &d) || d < 0 || dims.n >= 64) return bad_shape(value);
        avec_push(a, &dims, d);
    }
    if (eq[1] && eq[strlen(eq) - 1] == 'x') return bad_shape(value);
    s->dims = dims.v;
    s->n_dims = dims.n;
    VEC(Hlod__V1__ShapeBinding *) all = {*shapes, *n, *n};
    avec_push(a, &all, s);
    *shapes = all.v;
    *n = all.n;
    return ST_OK;
}

static Hlod__V1__CompileOptions *compile_options(struct arena *a, Hlod__V1__CompileOptions **at) {
    if (!*at) {
        *at = arena_new_of(a, Hlod__V1__CompileOptions);
        hlod__v1__compile_options__init(*at);
    }
    return *at;
}

// "instructions=N,bytes=SIZE,hbm=SIZE", any of them.
static status_t set_budget(struct arena *a, Hlod__V1__CompileRequest *q, const char *value) {
    struct str rest = str_of(value), item, key = {0};
    q->budget = message_new(a, &hlod__v1__budget__descriptor);
    while (rest.n && str_cut(&rest, ',', &item)) {
        key = (struct str){0};
        str_cut(&item, '=', &key);
        int64_t *field = str_is(key, "instructions") ? &q->budget->instructions
                         : str_is(key, "bytes")      ? &q->budget->bytes
                         : str_is(key, "hbm")        ? &q->budget->hbm
                                                     : NULL;
        if (!field || !str_to_bytes(item, field) || *field < 0)
            return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                              "budget '%.100s': expected instructions=N,bytes=SIZE,hbm=SIZE",
                              value);
    }
    return ST_OK;
}

static Hlod__V1__RunOptions *run_options(struct arena *a, Hlod__V1__RunOptions **at) {
    if (!*at) {
        *at = arena_new_of(a, Hlod__V1__RunOptions);
        hlod__v1__run_options__init(*at);
    }
    return *at;
}

status_t query_set(struct arena *a, ProtobufCMessage *m, const char *key, const char *value) {
    if (!strcmp(key, "stream")) return ST_OK; // of the route
    ProtobufCMessage *levels[3] = {m, NULL, NULL};
    if (m->descriptor == &hlod__v1__compile_request__descriptor) {
        Hlod__V1__CompileRequest *q = (Hlod__V1__CompileRequest *)m;
        if (!strcmp(key, "shape")) return add_shape(a, &q->shapes, &q->n_shapes, value);
        if (!strcmp(key, "budget")) return set_budget(a, q, value);
        levels[1] = &compile_options(a, &q->options)->base;
    } else if (m->descriptor == &hlod__v1__run_request__descriptor) {
        Hlod__V1__RunRequest *q = (Hlod__V1__RunRequest *)m;
        levels[1] = &run_options(a, &q->options)->base;
        levels[2] = &compile_options(a, &q->options->compile)->base;
    } else if (m->descriptor == &hlod__v1__run_plan_request__descriptor) {
        Hlod__V1__RunPlanRequest *q = (Hlod__V1__RunPlanRequest *)m;
        levels[1] = &run_options(a, &q->options)->base;
        levels[2] = &compile_options(a, &q->options->compile)->base;
    } else if (m->descriptor == &hlod__v1__export_web_request__descriptor) {
        Hlod__V1__ExportWebRequest *q = (Hlod__V1__ExportWebRequest *)m;
        if (!strcmp(key, "shape")) return add_shape(a, &q->shapes, &q->n_shapes, value);
        if (json_field(&hlod__v1__web_image__descriptor, str_of(key))) {
            if (!q->image) q->image = message_new(a, &hlod__v1__web_image__descriptor);
            levels[1] = &q->image->base;
        }
    }

    for (int i = 0; i < 3 && levels[i]; i++) {
        const ProtobufCFieldDescriptor *f = json_field(levels[i]->descriptor, str_of(key));
        if (f && f->type != PROTOBUF_C_TYPE_MESSAGE && f->type != PROTOBUF_C_TYPE_BYTES)
            return json_set_text(a, levels[i], str_of(key), str_of(value));
    }
    return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "no query parameter '%.80s' here", key);
}
