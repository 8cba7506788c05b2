// SPDX-License-Identifier: Apache-2.0
// The protocol's log settings, as far as they are ours: the level. And its trace settings, which
// are answered (off) and cannot be changed: a run's profile has more (hlod.v1).
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "proto/json.h"
#include "proto/message.h"
#include "server/body/tensors.h"
#include "server/oip/oip.h"

// ---- over HTTP the settings are the body's own keys

MUST_CHECK static status_t not_settings(void) {
    return st_because(ST_INVALID_ARGUMENT, BAD_JSON, "the body is not a JSON object of settings");
}
status_t oip_parse_settings(struct call *c, struct str text) {
    text = str_trim(text);
    if (text.n && text.p[0] != '{') return not_settings();
    struct strbuf b = {0};
    struct str key, value;
    strbuf_puts(&b, "{\"settings\":{");
    if (text.n) {
        struct str rest = {text.p + 1, text.n - 1};
        const char *sep = "";
        while (tensors_member(&rest, &key, &value)) {
            bool list = value.p[0] == '[', null = str_is(value, "null");
            strbuf_printf(&b, "%s\"" STR_FMT "\":", sep, STR_ARG(key));
            if (c->row->input == &inference__log_settings_request__descriptor)
                strbuf_add(&b, value.p, value.n);
            else
                strbuf_printf(&b, "{\"value\":%s" STR_FMT "%s}", list ? "" : "[",
                              null ? 0 : (int)value.n, value.p, list ? "" : "]");
            sep = ",";
        }
        if (rest.n) {
            strbuf_done(&b);
            return not_settings();
        }
    }
    strbuf_puts(&b, "}}");
    status_t st = json_parse_oip(&c->arena, c->row->input, (struct str){b.p, b.n}, &c->request);
    strbuf_done(&b);
    return st;
}
void oip_print_settings(struct strbuf *b, const ProtobufCMessage *m) {
    const char *sep = "{";
    if (m->descriptor == &inference__log_settings_response__descriptor) {
        const Inference__LogSettingsResponse *x = (const Inference__LogSettingsResponse *)m;
        for (size_t i = 0; i < x->n_settings; i++, sep = ",") {
            strbuf_printf(b, "%s\"%s\":", sep, x->settings[i]->key);
            json_print_oip(b, &x->settings[i]->value->base);
        }
    } else {
        const Inference__TraceSettingResponse *x = (const Inference__TraceSettingResponse *)m;
        for (size_t i = 0; i < x->n_settings; i++, sep = ",") { // trace_level alone is a list
            bool list = !strcmp(x->settings[i]->key, "trace_level");
            strbuf_printf(b, "%s\"%s\":%s\"%s\"%s", sep, x->settings[i]->key, list ? "[" : "",
                          x->settings[i]->value->value[0], list ? "]" : "");
        }
    }
    strbuf_putc(b, '}');
}

// ---- logging

typedef Inference__LogSettingsRequest__SettingValue log_value;
struct levels {
    bool info, warning, error;
    uint32_t verbose;
};
static struct levels levels_now(void) {
    return (struct levels){.info = log_on(LOG_INFO, "server"),
                           .warning = log_on(LOG_WARN, "server"),
                           .error = true,
                           .verbose = log_on(LOG_DEBUG, "server")};
}
MUST_CHECK static status_t refuse(const char *key, const char *why) {
    return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "setting '%.80s': %s", key, why);
}
static status_t set_one(struct levels *l, const char *key, const log_value *v) {
    bool *flag = !strcmp(key, "log_info")                                      ? &l->info
                 : !strcmp(key, "log_warning") || !strcmp(key, "log_warnings") ? &l->warning
                 : !strcmp(key, "log_error") || !strcmp(key, "log_errors")     ? &l->error
                                                                               : NULL;
    bool is_text = v->parameter_choice_case ==
                   INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM;
    if (flag) {
        if (v->parameter_choice_case !=
            INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM)
            return refuse(key, "expected true or false");
        *flag = v->bool_param;
        return l->error ? ST_OK : refuse(key, "errors are always logged");
    }
    if (!strcmp(key, "log_verbose_level")) {
        if (v->parameter_choice_case !=
            INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM)
            return refuse(key, "expected a number");
        l->verbose = v->uint32_param;
        return ST_OK;
    }
    if (!strcmp(key, "log_file"))
        return is_text && !*v->string_param ? ST_OK
                                            : refuse(key, "the log goes to standard error alone");
    if (!strcmp(key, "log_format"))
        return is_text && !strcmp(v->string_param, "default")
                   ? ST_OK
                   : refuse(key, "the format is logfmt (\"default\")");
    return refuse(key, "unknown");
}

typedef Inference__LogSettingsResponse__SettingsEntry log_entry;
typedef Inference__LogSettingsResponse__SettingValue log_shown;
static log_shown *add_log(struct arena *a, Inference__LogSettingsResponse *m, const char *key) {
    log_entry *e = m->settings[m->n_settings++] =
        message_new(a, &inference__log_settings_response__settings_entry__descriptor);
    e->key = (char *)key;
    e->value = message_new(a, &inference__log_settings_response__setting_value__descriptor);
    return e->value;
}
static void add_flag(struct arena *a, Inference__LogSettingsResponse *m, const char *key, bool v) {
    log_shown *x = add_log(a, m, key);
    x->parameter_choice_case =
        INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM;
    x->bool_param = v;
}
static void add_text(struct arena *a, Inference__LogSettingsResponse *m, const char *key,
                     const char *v) {
    log_shown *x = add_log(a, m, key);
    x->parameter_choice_case =
        INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM;
    x->string_param = (char *)v;
}
status_t oip_log(struct call *c) {
    const Inference__LogSettingsRequest *q = call_request(c);
    struct levels l = levels_now();
    for (size_t i = 0; i < q->n_settings; i++)
        if (q->settings[i]->value)
            RETURN_IF_ERR(set_one(&l, q->settings[i]->key, q->settings[i]->value));
    if (q->n_settings)
        log_set(l.verbose ? "debug" : l.info ? "info" : l.warning ? "warn" : "error");
    l = levels_now();
    Inference__LogSettingsResponse *m =
        message_new(&c->arena, &inference__log_settings_response__descriptor);
    m->settings = arena_array(&c->arena, log_entry *, 8);
    add_text(&c->arena, m, "log_file", "");
    add_flag(&c->arena, m, "log_info", l.info);
    add_flag(&c->arena, m, "log_warning", l.warning);
    add_flag(&c->arena, m, "log_error", l.error);
    log_shown *v = add_log(&c->arena, m, "log_verbose_level");
    v->parameter_choice_case =
        INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM;
    v->uint32_param = l.verbose;
    add_text(&c->arena, m, "log_format", "default");
    return call_reply(c, &m->base);
}

// ---- tracing

static const char *const trace[][2] = {{"trace_level", "OFF"},
                                       {"trace_rate", "1000"},
                                       {"trace_count", "-1"},
                                       {"log_frequency", "0"},
                                       {"trace_file", ""}};
enum { N_TRACE = sizeof trace / sizeof *trace };

status_t oip_trace(struct call *c) {
    typedef Inference__TraceSettingResponse__SettingsEntry entry;
    const Inference__TraceSettingRequest *q = call_request(c);
    struct oip_model of;
    if (*q->model_name) RETURN_IF_ERR(oip_find(c, q->model_name, "", &of));
    for (size_t i = 0; i < q->n_settings; i++) {
        const Inference__TraceSettingRequest__SettingValue *v = q->settings[i]->value;
        bool clears = !v || !v->n_value, off = !clears && !strcmp(v->value[0], "OFF");
        if (clears || off) continue;
        return st_because(
            ST_INVALID_ARGUMENT, BAD_OPTION,
            "setting '%.80s': traces are not written to files here; ask a run for its "
            "profile (POST /v1/run, options.profile)",
            q->settings[i]->key);
    }
    Inference__TraceSettingResponse *m =
        message_new(&c->arena, &inference__trace_setting_response__descriptor);
    m->settings = arena_array(&c->arena, entry *, N_TRACE);
    for (; m->n_settings < N_TRACE; m->n_settings++) {
        entry *e = m->settings[m->n_settings] =
            message_new(&c->arena, &inference__trace_setting_response__settings_entry__descriptor);
        e->key = (char *)trace[m->n_settings][0];
        e->value =
            message_new(&c->arena, &inference__trace_setting_response__setting_value__descriptor);
        e->value->value = arena_array(&c->arena, char *, 1);
        e->value->value[0] = (char *)trace[m->n_settings][1];
        e->value->n_value = 1;
    }
    return call_reply(c, &m->base);
}
