// SPDX-License-Identifier: Apache-2.0
#include "scheduler/workers/plugins.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "base/store/store.h"
#include "base/vec.h"
#include "proto/kinds.h"
#include "proto/reason.h"

// "cpu, sim, pjrt"
#define KIND(kind, traits) #kind ", "
static const char kind_names[] =
#include "proto/kinds.def"
    ;
#undef KIND

static const char *str_text(struct arena *a, struct str s) {
    return s.n ? arena_strndup(a, s.p, s.n) : "";
}

// ---- the table

static const struct plugin *find(const struct plugins *p, struct str name) {
    for (size_t i = 0; i < p->n; i++)
        if (str_is(name, p->v[i].name)) return &p->v[i];
    return NULL;
}
const struct plugin *plugins_of_kind(const struct plugins *p, const char *kind) {
    for (size_t i = 0; i < p->n; i++)
        if (!strcmp(p->v[i].kind, kind)) return &p->v[i];
    return NULL;
}

static bool is_name(struct str s) {
    for (size_t i = 0; i < s.n; i++)
        if (!isalnum((unsigned char)s.p[i]) && s.p[i] != '_' && s.p[i] != '-') return false;
    return s.n > 0 && s.n < 32;
}

// "NAME=FILE[:OPTIONS]"
static status_t add(struct arena *a, struct plugins *p, struct str item) {
    struct str rest = item, name = {0}, file = {0};
    str_cut(&rest, '=', &name);
    name = str_trim(name);
    str_cut(&rest, ':', &file);
    if (!is_name(name) || !file.n)
        return st_invalid("plugins: '" STR_FMT "': expected NAME=FILE[:OPTIONS]", STR_ARG(item));
    struct plugin *old = (struct plugin *)(uintptr_t)find(p, name), x = {0};
    if (!old && (str_is(name, "sim") || str_is(name, "opencl") || str_is(name, "gl") ||
                 str_is(name, "gpu") || str_is(name, "xla_cpu")))
        return st_invalid("plugins: '" STR_FMT "' is the name of a kind of device", STR_ARG(name));
    if (!old) {
        x.name = x.kind = str_text(a, name);
        x.examples = x.name;
        avec_push(a, p, x);
        old = &p->v[p->n - 1];
    }
    old->path = str_text(a, file);
    old->options = str_text(a, rest);
    old->installs = false;
    return ST_OK;
}

status_t plugins_init(struct arena *a, const char *dir, const char *list, struct plugins *out) {
#define PLUGIN(name_, kind_, file_, examples_, about_, wheels_)                                    \
    {.name = name_, .kind = kind_, .path = file_, .examples = examples_, .installs = true},
    static const struct plugin known[] = {
#include "proto/plugins.def"
    };
#undef PLUGIN
    struct str rest = str_of(list), item;
    bool usual = strcmp(dir, store_default_dir(a)) == 0;
    const char *data = usual ? "" : arena_printf(a, " --data %s", dir);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct plugin x = known[i];
        x.data = data;
        x.path = arena_printf(a, "%s/plugins/%s/%s", dir, x.name, known[i].path);
        x.options = "";
        avec_push(a, out, x);
    }
    while (rest.n && str_cut(&rest, ',', &item))
        RETURN_IF_ERR(add(a, out, str_trim(item)));
    return ST_OK;
}

status_t plugin_present(const struct plugin *p) {
    if (!access(p->path, R_OK)) return ST_OK;
    return st_reason(p->installs ? st_new(ST_FAILED_PRECONDITION,
                                          "the plugin '%s' is not installed (no file %s): "
                                          "`hlo plugins install %s%s`",
                                          p->name, p->path, p->name, p->data)
                                 : st_new(ST_FAILED_PRECONDITION,
                                          "the plugin '%s' cannot be read: %s", p->name, p->path),
                     HLOD__V1__REASON__REASON_BAD_TARGET);
}

// ---- names

// "cpu:plugin=NAME[:REST]"
static status_t of_plugin(const struct plugins *p, struct str spec, const struct plugin **out,
                          struct str *out_rest) {
    struct str name = {0}; // str_cut leaves it alone when nothing is left
    *out = NULL;
    if (!str_starts(spec, "cpu:plugin=")) return ST_OK;
    *out_rest = (struct str){spec.p + 11, spec.n - 11};
    str_cut(out_rest, ':', &name);
    *out = find(p, name);
    if (*out) return ST_OK;
    return st_because(ST_INVALID_ARGUMENT, BAD_TARGET, "no plugin is called '" STR_FMT "'",
                      STR_ARG(name));
}

status_t plugins_device(const struct plugins *p, struct arena *a, const char *spec,
                        const char **out) {
    const struct plugin *x;
    struct str rest = {0};
    *out = spec;
    RETURN_IF_ERR(of_plugin(p, str_of(spec), &x, &rest));
    if (x) {
        *out = arena_printf(a, "%s%s" STR_FMT, x->kind, rest.n ? ":" : "", STR_ARG(rest));
        return ST_OK;
    }
    struct str kind = {0};
    rest = str_of(spec);
    str_cut(&rest, ':', &kind);
    if (plugins_of_kind(p, str_text(a, kind)) || kind_of(spec)) return ST_OK;
    return st_invalid("device: no kind is called '" STR_FMT
                      "': %.*s and the plugins of `hlo plugins` and --plugins are known",
                      STR_ARG(kind), (int)sizeof kind_names - 3, kind_names);
}

const char *plugins_worker_spec(const struct plugins *p, struct arena *a, const char *spec) {
    struct str rest = str_of(spec), kind = {0};
    str_cut(&rest, ':', &kind);
    const struct plugin *x = plugins_of_kind(p, str_text(a, kind));
    if (!x || kind_has(spec, KIND_PLUGIN)) return spec; // names its plugin itself
    return arena_printf(a, "pjrt:plugin=%s:kind=%s%s%s%s" STR_FMT, x->path, x->kind,
                        *x->options ? ":" : "", x->options, rest.n ? ":" : "", STR_ARG(rest));
}

status_t plugins_target(const struct plugins *p, struct arena *a, const char *target,
                        const char **out_kind, const char **out_name) {
    const struct plugin *x;
    struct str rest = {0}, kind = {0};
    RETURN_IF_ERR(of_plugin(p, str_of(target), &x, &rest));
    if (!x) {
        rest = str_of(target);
        str_cut(&rest, ':', &kind);
        x = plugins_of_kind(p, str_text(a, kind));
        if (!x && rest.n == 0 && kind_has(str_text(a, kind), KIND_OWN)) {
            *out_kind = str_text(a, kind);
            *out_name = "";
            return ST_OK;
        }
    }
    if (!x)
        return st_because(ST_INVALID_ARGUMENT, BAD_TARGET,
                          "'%.80s' is not a target: expected cpu, cpu:plugin=NAME, "
                          "tpu:FAMILY:AxB or gpu:NAME (`hlo targets`)",
                          target);
    RETURN_IF_ERR(plugin_present(x));
    *out_kind = x->kind;
    *out_name = str_text(a, rest);
    return ST_OK;
}
