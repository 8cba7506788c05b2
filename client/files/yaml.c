// SPDX-License-Identifier: Apache-2.0
// libyaml's events, by recursion over the document.
#include "client/files/yaml.h"

#include <yaml.h>

#include "base/str.h"

enum { MAX_DEPTH = 32, MAX_NODES = 1 << 20 };
struct reader {
    yaml_parser_t p;
    const char *what;
    int nodes;
};

static status_t bad(const struct reader *r, const yaml_mark_t *at, const char *why) MUST_CHECK;
static status_t bad(const struct reader *r, const yaml_mark_t *at, const char *why) {
    return st_new(ST_INVALID_ARGUMENT, "%s:%zu:%zu: %s", r->what, at->line + 1, at->column + 1,
                  why);
}

static status_t next(struct reader *r, yaml_event_t *e) {
    if (yaml_parser_parse(&r->p, e)) return ST_OK;
    return bad(r, &r->p.problem_mark, r->p.problem ? r->p.problem : "this is not YAML");
}

static bool one_of(struct str s, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (str_is(s, words[i])) return true;
    return false;
}

static json_t *scalar(const yaml_event_t *e) {
    struct str s = {(const char *)e->data.scalar.value, e->data.scalar.length};
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"},
                             *const yes[] = {"true", "True", "TRUE"},
                             *const no[] = {"false", "False", "FALSE"};
    int64_t i;
    double d;
    if (e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        if (one_of(s, nulls, 5)) return json_null();
        if (one_of(s, yes, 3)) return json_true();
        if (one_of(s, no, 3)) return json_false();
        if (str_to_i64(s, &i)) return json_integer(i);
        bool number = s.n && strchr("+-.0123456789", s.p[0]) && !memchr(s.p, 'x', s.n); // 0x4: dims
        if (number && str_to_f64(s, &d) && d - d == 0) return json_real(d);
    }
    return json_stringn(s.p, s.n);
}

static status_t value(struct reader *r, yaml_event_t *e, int depth, json_t **out);

static status_t sequence(struct reader *r, int depth, json_t *list) {
    for (;;) {
        yaml_event_t e;
        json_t *v = NULL;
        RETURN_IF_ERR(next(r, &e));
        bool end = e.type == YAML_SEQUENCE_END_EVENT;
        status_t st = end ? ST_OK : value(r, &e, depth, &v);
        yaml_event_delete(&e);
        if (end || st) return st;
        if (json_array_append_new(list, v)) return st_oom();
    }
}

static status_t mapping(struct reader *r, int depth, json_t *object) {
    for (;;) {
        yaml_event_t k, e;
        json_t *v = NULL;
        RETURN_IF_ERR(next(r, &k));
        if (k.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&k);
            return ST_OK;
        }
        const char *key = k.type == YAML_SCALAR_EVENT ? (char *)k.data.scalar.value : NULL;
        status_t st = !key || *key == '$' || strlen(key) != k.data.scalar.length
                          ? bad(r, &k.start_mark, "a key must be a word")
                      : json_object_get(object, key)
                          ? bad(r, &k.start_mark, "this key stands here twice")
                          : next(r, &e);
        if (!st) {
            st = value(r, &e, depth, &v);
            yaml_event_delete(&e);
        }
        if (!st && json_object_set_new(object, key, v))
            st = bad(r, &k.start_mark, "a key that is not UTF-8");
        yaml_event_delete(&k);
        if (st) return st;
    }
}

static status_t value(struct reader *r, yaml_event_t *e, int depth, json_t **out) {
    if (depth > MAX_DEPTH || ++r->nodes > MAX_NODES)
        return bad(r, &e->start_mark, "nested too deeply, or too long");
    json_t *v = NULL;
    status_t st = ST_OK;

    switch (e->type) {
    case YAML_SCALAR_EVENT:
        if (e->data.scalar.anchor) return bad(r, &e->start_mark, "anchors are not supported");
        if (!(v = scalar(e))) st = bad(r, &e->start_mark, "not UTF-8");
        break;
    case YAML_SEQUENCE_START_EVENT:
        if (e->data.sequence_start.anchor)
            return bad(r, &e->start_mark, "anchors are not supported");
        v = json_array();
        st = sequence(r, depth + 1, v);
        break;
    case YAML_MAPPING_START_EVENT:
        if (e->data.mapping_start.anchor)
            return bad(r, &e->start_mark, "anchors are not supported");
        v = json_pack("{s:I}", YAML_LINE, (json_int_t)e->start_mark.line + 1);
        st = mapping(r, depth + 1, v);
        break;
    case YAML_ALIAS_EVENT:
        return bad(r, &e->start_mark, "aliases are not supported");
    default:
        return bad(r, &e->start_mark, "there is nothing here");
    }

    if (st)
        json_decref(v);
    else
        *out = v;
    return st;
}

static status_t document(struct reader *r, json_t **out) {
    yaml_event_t e;
    for (;;) { // stream start, document start
        RETURN_IF_ERR(next(r, &e));
        bool skip = e.type == YAML_STREAM_START_EVENT || e.type == YAML_DOCUMENT_START_EVENT;
        if (!skip) break;
        yaml_event_delete(&e);
    }
    json_t *v = NULL;
    status_t st = value(r, &e, 0, &v);
    yaml_event_delete(&e);
    for (bool more = true; more && !st;) {
        st = next(r, &e);
        if (st) break;
        more = e.type != YAML_STREAM_END_EVENT;
        if (more && e.type != YAML_DOCUMENT_END_EVENT)
            st = bad(r, &e.start_mark, "a second document");
        yaml_event_delete(&e);
    }
    if (st)
        json_decref(v);
    else
        *out = v;
    return st;
}

status_t yaml_read(struct span text, const char *what, json_t **out) {
    struct reader r = {.what = what};
    if (!yaml_parser_initialize(&r.p)) return st_oom();
    yaml_parser_set_input_string(&r.p, text.p, text.n);
    status_t st = document(&r, out);
    yaml_parser_delete(&r.p);
    return st;
}
