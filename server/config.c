// SPDX-License-Identifier: Apache-2.0
#include "server/config.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/store/file.h"

enum type { T_TEXT, T_INT, T_BYTES, T_BOOL, T_LIST };
struct option {
    const char *name;
    enum type type;
    const char *def;
    int64_t low, high;
    enum when { W_START, W_LIVE } when;
    const char *value, *help;
    size_t offset;
};
static const struct option options[] = {
#define OPTION(name, type, def, low, high, when, value, help)                                      \
    {#name, T_##type, def, low, high, W_##when, value, help, offsetof(struct config, name)},
#include "server/config.def"
#undef OPTION
};
enum { N_OPTIONS = sizeof options / sizeof *options, MAX_FILE = 1 << 20 };

// Does `text` (with dashes or underscores, any case when `fold`) name the option?
static bool names(const struct option *o, struct str text, bool fold) {
    if (strlen(o->name) != text.n) return false;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i] == '-' ? '_' : text.p[i];
        if (c != (fold ? toupper((unsigned char)o->name[i]) : o->name[i])) return false;
    }
    return true;
}
static const struct option *find(struct str text, bool fold) {
    for (int i = 0; i < N_OPTIONS; i++)
        if (names(&options[i], text, fold)) return &options[i];
    return NULL;
}

static status_t set(struct config *c, const struct option *o, struct str v, const char *where) {
    char *field = (char *)c + o->offset;
    int64_t n = 0;
    switch (o->type) {
    case T_TEXT:
    case T_LIST:
        *(const char **)(void *)field = arena_strndup(&c->arena, v.p, v.n);
        return ST_OK;
    case T_BOOL:
        if (!str_is(v, "true") && !str_is(v, "1") && !str_is(v, "false") && !str_is(v, "0"))
            return st_invalid("%s: %s: expected true or false, found '" STR_FMT "'", where, o->name,
                              STR_ARG(v));
        *(bool *)field = str_is(v, "true") || str_is(v, "1");
        return ST_OK;
    case T_INT:
    case T_BYTES:
        if (!(o->type == T_INT ? str_to_i64(v, &n) : str_to_bytes(v, &n)))
            return st_invalid("%s: %s: expected a number, found '" STR_FMT "'", where, o->name,
                              STR_ARG(v));
        if (n < o->low || n > o->high)
            return st_invalid("%s: %s: %lld is not within %lld to %lld", where, o->name,
                              (long long)n, (long long)o->low, (long long)o->high);
        *(int64_t *)(void *)field = n;
        return ST_OK;
    }
    return ST_OK;
}

// ---- file

// One TOML value at the start of *s: a basic string without escapes beyond \\ and \", a bare word,
// or a list of strings (joined by commas).
static bool toml_value(struct arena *a, struct str s, struct str *out) {
    struct strbuf b = {0};
    bool list = s.n && s.p[0] == '[', ok = true, closed = !list, expect = true;
    size_t i = list;
    while (ok && i < s.n && !(list && closed)) {
        char c = s.p[i];
        if (c == ' ' || c == '\t')
            i++;
        else if (list && c == ']')
            closed = true, i++;
        else if (list && c == ',' && !expect)
            expect = true, i++;
        else if (!expect)
            break;
        else if (c == '"') {
            if (b.n) strbuf_putc(&b, ',');
            for (i++; i < s.n && s.p[i] != '"'; i++) {
                if (s.p[i] == '\\' && (++i >= s.n || !strchr("\\\"", s.p[i]))) {
                    ok = false;
                    break;
                }
                strbuf_putc(&b, s.p[i]);
            }
            ok = ok && i < s.n;
            i++;
            expect = false;
        } else if (!list) {
            while (i < s.n && (isalnum((unsigned char)s.p[i]) || strchr("_-", s.p[i])))
                strbuf_putc(&b, s.p[i++]);
            ok = b.n > 0;
            expect = false;
        } else
            ok = false;
    }

    struct str rest = str_trim((struct str){s.p + i, s.n - i});
    ok = ok && closed && (list || !expect) && (rest.n == 0 || rest.p[0] == '#');
    *out = str_of(arena_strdup(a, strbuf_cstr(&b)));
    strbuf_done(&b);
    return ok;
}

static status_t read_text(struct config *c, struct str text, const char *path) {
    struct str line;
    bool plugins = false; // below [plugins]
    for (int n = 1; str_cut(&text, '\n', &line); n++) {
        line = str_trim(line);
        if (line.n == 0 || line.p[0] == '#') continue;
        char where[300];
        snprintf(where, sizeof where, "%.200s:%d", path, n);
        struct str key, value;
        if (str_is(line, "[plugins]")) {
            plugins = true;
            continue;
        }
        if (!memchr(line.p, '=', line.n)) return st_invalid("%s: expected `key = value`", where);

        str_cut(&line, '=', &key);
        key = str_trim(key);
        const struct option *o = plugins ? NULL : find(key, false);
        if (!o && !plugins) return st_invalid("%s: no option '" STR_FMT "'", where, STR_ARG(key));
        if (!toml_value(&c->arena, str_trim(line), &value))
            return st_invalid("%s: cannot read the value of '" STR_FMT "'", where, STR_ARG(key));
        if (plugins) // NAME = "FILE": one more of the option's list
            c->plugins = arena_printf(&c->arena, "%s%s" STR_FMT "=" STR_FMT, c->plugins,
                                      *c->plugins ? "," : "", STR_ARG(key), STR_ARG(value));
        else
            RETURN_IF_ERR(set(c, o, value, where));
    }
    return ST_OK;
}

static status_t read_file(struct config *c, const char *path) {
    struct str text;
    RETURN_IF_ERR(file_read(&c->arena, path, MAX_FILE, NULL, &text));
    return read_text(c, text, path);
}

// ---- all sources

// The value of `--name value` or `--name=value`; NULL when this argument is not that flag. Moves *i
// over a separate value.
static const char *flag_value(int argc, char *const *argv, int *i, const char *name) {
    size_t n = strlen(name);
    if (strncmp(argv[*i], name, n)) return NULL;
    if (argv[*i][n] == '=') return argv[*i] + n + 1;
    if (argv[*i][n] || *i + 1 >= argc) return NULL;
    return argv[++*i];
}

static status_t read_flag(struct config *c, int argc, char *const *argv, int *i) {
    const char *arg = argv[*i];
    if (strncmp(arg, "--", 2)) return st_invalid("unexpected argument '%s'", arg);
    struct str text = str_of(arg + 2), name;
    bool has_value = strchr(arg, '=') != NULL;
    str_cut(&text, '=', &name);
    const struct option *o = find(name, false);
    if (!o) {
        char *like = NULL;
        for (int k = 0; k < N_OPTIONS && !like; k++) {
            like = arena_strdup(&c->arena, options[k].name);
            for (char *u = strchr(like, '_'); u; u = strchr(u, '_'))
                *u = '-';
            if (!str_is_like(name, str_of(like))) like = NULL;
        }
        return st_invalid("no option '--" STR_FMT "'%s%s%s (see --help)", STR_ARG(name),
                          like ? ", did you mean --" : "", like ? like : "", like ? "?" : "");
    }
    struct str value = text;
    if (!has_value && o->type == T_BOOL)
        value = STR("true");
    else if (!has_value) {
        if (*i + 1 >= argc) return st_invalid("option '%s' needs a value", arg);
        value = str_of(argv[++*i]);
    }
    return set(c, o, value, "command line");
}

// Variables that begin like ours and are read elsewhere: by this function, hlo, libhlod, tests.
static bool of_others(struct str key) {
    static const char *const names[] = {"HLOD_CONFIG", "HLOD_ADDR", "HLOD_TOKEN", "HLOD_TOKEN_FILE",
                                        "HLOD_CACERT", "HLOD_CERT", "HLOD_KEY",   "HLOD_FAULT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_is(key, names[i])) return true;
    return false;
}

status_t config_read(int argc, char *const *argv, char *const *env, struct config *out) {
    for (int i = 0; i < N_OPTIONS; i++)
        RETURN_IF_ERR(set(out, &options[i], str_of(options[i].def), "default"));
    const char *file = NULL, *v;
    for (int i = 0; env && env[i]; i++)
        if (!strncmp(env[i], "HLOD_CONFIG=", 12)) file = env[i] + 12;
    for (int i = 1; i < argc; i++)
        if ((v = flag_value(argc, argv, &i, "--config"))) file = v;
    if (file && *file) RETURN_IF_ERR(read_file(out, file));

    for (int i = 0; env && env[i]; i++) {
        struct str text = str_of(env[i]), key;
        if (!str_starts(text, "HLOD_")) continue;
        str_cut(&text, '=', &key);
        if (of_others(key)) continue;
        const struct option *o = find((struct str){key.p + 5, key.n - 5}, true);
        if (!o) return st_invalid("environment: no option '" STR_FMT "'", STR_ARG(key));
        RETURN_IF_ERR(set(out, o, text, "environment"));
    }

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            out->help = true;
        else if (!strcmp(argv[i], "--version"))
            out->version = true;
        else if (!strcmp(argv[i], "--check-config"))
            out->check = true;
        else if (flag_value(argc, argv, &i, "--config"))
            continue;
        else
            RETURN_IF_ERR(read_flag(out, argc, argv, &i));
    }
    return ST_OK;
}

void config_done(struct config *c) {
    arena_done(&c->arena);
}

// ---- again, while the daemon runs

static const char *value_text(const struct config *c, const struct option *o, char buf[32]) {
    const char *field = (const char *)c + o->offset;
    switch (o->type) {
    case T_TEXT:
    case T_LIST:
        return *(const char *const *)(const void *)field;
    case T_BOOL:
        return *(const bool *)field ? "true" : "false";
    case T_INT:
    case T_BYTES:
        snprintf(buf, 32, "%lld", (long long)*(const int64_t *)(const void *)field);
        return buf;
    }
    return "";
}

void config_update(struct config *c, const struct config *next,
                   void (*changed)(void *ctx, const char *name, bool live, const char *from,
                                   const char *to),
                   void *ctx) {
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct option *o = &options[i];
        char a[32], b[32];
        const char *from = value_text(c, o, a), *to = value_text(next, o, b);
        if (!strcmp(from, to)) continue;
        changed(ctx, o->name, o->when == W_LIVE, from, to);
        // The text is one that `set` took before.
        if (o->when == W_LIVE && o->type != T_BYTES)
            st_drop(set(c, o, str_of(to), "reload"));
        else if (o->when == W_LIVE)
            memcpy((char *)c + o->offset, (const char *)next + o->offset, sizeof(int64_t));
    }
}

// ---- text

static void put_flag(struct strbuf *b, const struct option *o) {
    strbuf_puts(b, "--");
    for (const char *p = o->name; *p; p++)
        strbuf_putc(b, *p == '_' ? '-' : *p);
}

void config_help(struct strbuf *b) {
    strbuf_puts(b, "hlod: compiles model graphs into whole-program executables and runs "
                   "them\n\nusage: hlod [options]\n\n");
    for (int i = 0; i < N_OPTIONS; i++) {
        size_t at = b->n;
        strbuf_puts(b, "  ");
        put_flag(b, &options[i]);
        strbuf_printf(b, " %s", options[i].value);
        enum { INDENT = 30, WIDTH = 100 };
        if (b->n - at >= INDENT) { // too long for what follows on its line
            strbuf_putc(b, '\n');
            at = b->n;
        }
        while (b->n - at < INDENT)
            strbuf_putc(b, ' ');
        struct strbuf text = {0};
        strbuf_puts(&text, options[i].help);
        if (*options[i].def && options[i].type != T_BOOL)
            strbuf_printf(&text, " [%s]", options[i].def);
        strbuf_wrapped(b, (struct str){strbuf_cstr(&text), text.n}, INDENT, INDENT, WIDTH);
        strbuf_done(&text);
    }
    strbuf_puts(
        b, "  --config FILE               a file with `option = value` lines (docs/config.md)\n"
           "  --check-config              read everything, say what is wrong, start nothing\n"
           "  --version, --help\n\nDefaults are in brackets. Each option is also an environment "
           "variable: --max-queue is HLOD_MAX_QUEUE.\n");
}

void config_markdown(struct strbuf *b) {
    strbuf_puts(
        b, "# Options of hlod\n\n<!-- generated from server/config.def by `make docs`; do "
           "not edit -->\n\n"
           "Flags win over the environment, that over the file (`--config FILE` or "
           "`HLOD_CONFIG`), that over the default. The file is a subset of TOML:\n"
           "`key = \"text\"`, `key = 123`, `key = true`, `key = [\"a\", \"b\"]`, `# "
           "comment`; one level, but for a last section `[plugins]` with lines `NAME = \"FILE\"` "
           "(the option of that name). Sizes may be written as `\"256M\"`.\n"
           "On SIGHUP the daemon reads them again: `live` options take their new value, the "
           "others at the next start; the log says which changed.\n\n"
           "| flag | environment | file | default | | meaning |\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct option *o = &options[i];
        strbuf_puts(b, "| `");
        put_flag(b, o);
        strbuf_printf(b, "%s%s` | `HLOD_", *o->value ? " " : "", o->value);
        for (const char *p = o->name; *p; p++)
            strbuf_putc(b, (char)toupper((unsigned char)*p));
        strbuf_printf(b, "` | `%s` | %s%s%s | %s | %s |\n", o->name, *o->def ? "`" : "", o->def,
                      *o->def ? "`" : "", o->when == W_LIVE ? "live" : "", o->help);
    }
}

status_t config_address(struct arena *a, const char *text, const char **out_host,
                        uint16_t *out_port) {
    const char *colon = strrchr(text, ':');
    int64_t port;
    if (!colon || !str_to_i64(str_of(colon + 1), &port) || port < 0 || port > 65535)
        return st_invalid("address '%s': expected ADDR:PORT", text);
    struct str host = {text, (size_t)(colon - text)};
    if (host.n > 1 && host.p[0] == '[' && host.p[host.n - 1] == ']')
        host = (struct str){host.p + 1, host.n - 2};
    if (host.n == 0)
        return st_invalid("address '%s': no host; say 127.0.0.1, or 0.0.0.0 with --tokens", text);
    *out_host = arena_strndup(a, host.p, host.n);
    *out_port = (uint16_t)port;
    return ST_OK;
}
