// SPDX-License-Identifier: Apache-2.0
#include "devices/pjrt/pjrt_options.h"

#include <stdlib.h>
#include <string.h>

struct pj_named_value pj_text_option(const char *name, const char *value) {
    return (struct pj_named_value){.struct_size = sizeof(struct pj_named_value),
                                   .name = name,
                                   .name_size = strlen(name),
                                   .type = PJ_STRING,
                                   .string = value,
                                   .value_size = strlen(value)};
}

struct pj_named_value pj_bool_option(const char *name, bool value) {
    return (struct pj_named_value){.struct_size = sizeof(struct pj_named_value),
                                   .name = name,
                                   .name_size = strlen(name),
                                   .type = PJ_BOOL,
                                   .boolean = value,
                                   .value_size = 1};
}

// "0.5", "1e-3": what has a point or an exponent and is a number in whole.
static bool is_float(const char *s, float *out) {
    char *end;
    *out = strtof(s, &end);
    return strpbrk(s, ".eE") && strspn(s, "+-.eE0123456789") == strlen(s) && end != s && !*end;
}

static status_t set_option(struct arena *a, struct pj_options *o, struct str name,
                           struct str value) {
    if (o->n_set == PJ_MAX_OPTIONS)
        return st_invalid("more than %d options for the plugin", PJ_MAX_OPTIONS);
    struct pj_named_value *v = &o->set[o->n_set++];
    int64_t number;
    float real;
    *v = pj_text_option(arena_strndup(a, name.p, name.n), arena_strndup(a, value.p, value.n));
    if (str_to_i64(value, &number)) {
        v->type = PJ_INT64;
        v->i64 = number;
        v->value_size = 1;
    } else if (str_is(value, "true") || str_is(value, "false")) {
        *v = pj_bool_option(v->name, str_is(value, "true"));
    } else if (is_float(v->string, &real)) {
        v->type = PJ_FLOAT;
        v->f32 = real;
        v->value_size = 1;
    }
    return ST_OK;
}

status_t pj_options_parse(struct arena *a, const char *text, struct pj_options *o) {
    struct str rest = str_of(text), item, key = {0};
    *o = (struct pj_options){
        .plugin = getenv("HLOD_PJRT_PLUGIN"), .kind = "pjrt", .drain_ms = 10000};
    while (str_cut(&rest, ':', &item)) {
        str_cut(&item, '=', &key);
        if (str_is(key, "plugin"))
            o->plugin = arena_strndup(a, item.p, item.n);
        else if (str_is(key, "kind") && item.n)
            o->kind = arena_strndup(a, item.p, item.n);
        else if (str_is(key, "device") && str_to_i64(item, &o->device) && o->device >= 0)
            continue;
        else if (str_is(key, "drain_ms") && str_to_i64(item, &o->drain_ms) && o->drain_ms >= 0 &&
                 o->drain_ms <= 3600000)
            continue;
        else if (key.n > 4 && memcmp(key.p, "set.", 4) == 0)
            RETURN_IF_ERR(set_option(a, o, (struct str){key.p + 4, key.n - 4}, item));
        else
            return st_invalid("no option " STR_FMT "=" STR_FMT
                              "; there are plugin=FILE, device=N, drain_ms=N, kind=NAME, "
                              "set.NAME=VALUE",
                              STR_ARG(key), STR_ARG(item));
    }
    if (o->plugin && *o->plugin) return ST_OK;
    return st_new(ST_FAILED_PRECONDITION,
                  "no plugin is named: pjrt:plugin=FILE, or HLOD_PJRT_PLUGIN in the environment");
}
