// SPDX-License-Identifier: Apache-2.0
// Helpers of the commands: options, errors, JSON.
#include "client/cli/hlo.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/text.h"

const char *option_value(struct hlo *h, int *k, const char *name) {
    size_t n = strlen(name);
    const char *word = h->argv[*k];
    if (strncmp(word, name, n) != 0) return NULL;
    if (word[n] == '=') return word + n + 1;
    if (word[n]) return NULL;
    if (*k + 1 < h->argc) return h->argv[++*k];
    h->lacks = word;
    return NULL;
}
int option_count(struct hlo *h, int *k, const char *name, int low, int high, int *out) {
    int64_t n;
    const char *v = option_value(h, k, name);
    if (!v) return 0;
    if (!str_to_i64(str_of(v), &n) || n < low || n > high) {
        usage_error("%s: expected a number from %d to %d, found '%s'", name, low, high, v);
        return -1;
    }
    *out = (int)n;
    return 1;
}
// The option of a usage text that is most like a word; empty if none is.
static struct str option_like(const char *usage, const char *word) {
    struct str given = {word, strcspn(word, "=")};
    for (const char *p = strstr(usage, "--"); p; p = strstr(p, "--")) {
        struct str known = {p, strcspn(p, " =]|")};
        if (str_is_like(given, known)) return known;
        p += known.n;
    }
    return (struct str){0};
}
int unknown_word(struct hlo *h, const char *command, int k) {
    if (h->lacks == h->argv[k]) return usage_error("%s needs a value", h->lacks);
    if (h->argv[k][0] == '-') {
        struct str like = option_like(h->command ? h->command->usage : "", h->argv[k]);
        return usage_error("%s has no option %s%s" STR_FMT "%s", command, h->argv[k],
                           like.n ? " (did you mean " : "", STR_ARG(like), like.n ? "?)" : "");
    }
    return usage_error("%s: '%s' is one word too many", command, h->argv[k]);
}
// The command that runs, whose help an error about its words points to; "" before one is known.
static const char *command_name = "";

void usage_of(const char *command) {
    command_name = command;
}
static bool json_errors;
void errors_as_json(void) {
    json_errors = true;
}
// An error as the server would give it, taken; NULL: it cannot be built.
static void put_json_error(json_t *j) {
    char *text = j ? json_dumps(j, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    fprintf(stderr, "%s\n", text ? text : "{}");
    free(text);
    json_decref(j);
}
static json_t *own_error(enum status_code code, const char *message) {
    return json_pack("{s:s, s:s}", "code", st_code_name(code), "message", message);
}
int usage_error(const char *fmt, ...) {
    va_list ap;
    struct strbuf b = {0};
    va_start(ap, fmt);
    strbuf_vprintf(&b, fmt, ap);
    va_end(ap);
    if (json_errors)
        put_json_error(own_error(ST_INVALID_ARGUMENT, strbuf_cstr(&b)));
    else
        fprintf(stderr, "hlo: %s; see `hlo %s%s--help`\n", strbuf_cstr(&b), command_name,
                *command_name ? " " : "");
    strbuf_done(&b);
    return EXIT_USAGE;
}
int fail_status(status_t st) {
    int rc = st_code(st) == ST_UNAVAILABLE ? EXIT_UNREACHABLE : EXIT_USAGE;
    if (json_errors)
        put_json_error(own_error(st_code(st), st_message(st)));
    else
        fprintf(stderr, "hlo: %s\n", st_message(st));
    st_drop(st);
    return rc;
}
void print_error(const json_t *j, const char *otherwise) {
    if (json_errors) {
        put_json_error(json_is_object(j) ? json_incref((json_t *)(uintptr_t)j)
                                         : own_error(ST_UNKNOWN, otherwise));
        return;
    }
    const char *name = text_at(j, "code");
    fprintf(stderr, "hlo: %s%s%s: %s\n", name[0] ? name : "error",
            text_at(j, "reason")[0] ? " " : "", text_at(j, "reason"),
            j ? text_at(j, "message") : otherwise);
    size_t k;
    json_t *d;
    json_array_foreach(json_object_get(j, "details"), k, d)
        fprintf(stderr, "  %s\n", json_string_value(d) ? json_string_value(d) : "");
    if (!strcmp(text_at(j, "reason"), "MISSING_INPUT"))
        fputs("  -i NAME=random makes an input up; without any -i all are made up\n", stderr);
    if (!strcmp(text_at(j, "reason"), "NO_CREDENTIALS"))
        fputs("  hlo takes the token from HLOD_TOKEN, or HLOD_TOKEN_FILE=FILE\n", stderr);
}
static void show_text(json_t *j, bool lines) {
    struct strbuf b = {0};
    struct str rest = str_of(json_string_value(j)), line;
    for (bool first = true; str_cut(&rest, lines ? '\n' : 0, &line); first = false) {
        if (!first) strbuf_putc(&b, '\n');
        text_show(&b, line, "");
    }
    const char *was = json_string_value(j);
    if (lines && *was && was[strlen(was) - 1] == '\n') strbuf_putc(&b, '\n');
    if (strcmp(strbuf_cstr(&b), was)) json_string_set(j, strbuf_cstr(&b));
    strbuf_done(&b);
}
static void show_json(json_t *j, const char *key) {
    const char *k;
    size_t i;
    json_t *x;
    if (json_is_string(j)) show_text(j, !strcmp(key, "text"));
    json_array_foreach(j, i, x) show_json(x, "");
    json_object_foreach(j, k, x) show_json(x, k);
}
json_t *shown_json(const struct hlo *h, json_t *j) {
    if (j && !h->json) show_json(j, "");
    return j;
}
// ---- calls

status_t hlo_open(struct hlo *h) {
    struct hlod_security s = HLOD_SECURITY;
    if (h->hlod) return ST_OK;
    struct http_client *http; // says what is wrong with an address; gRPC's are refused
    RETURN_IF_ERR(http_client_new(h->addr, &h->security, &http));
    http_client_free(http);
    s.token = h->security.token;
    s.cacert = h->security.cacert;
    s.cert = h->security.cert;
    s.key = h->security.key;
    if (hlod_open_secure(h->addr, &s, &h->hlod) == HLOD_OK) return ST_OK;
    return st_new(ST_INVALID_ARGUMENT, "address '%.100s' cannot be used", h->addr);
}

static int exit_of(enum hlod_code code, int otherwise) {
    switch (code) {
    case HLOD_UNAVAILABLE:
    case HLOD_RESOURCE_EXHAUSTED:
        return EXIT_BUSY;
    case HLOD_DEADLINE_EXCEEDED:
        return EXIT_DEADLINE;
    case HLOD_UNAUTHENTICATED:
    case HLOD_PERMISSION_DENIED:
        return EXIT_PERMISSION;
    default:
        return otherwise;
    }
}
int hlo_fail(struct hlo *h, int code) {
    status_t st = hlo_open(h);
    if (st) return fail_status(st);
    const struct hlod_error *e = hlod_error(h->hlod);
    if (!e->answered) return fail_status(st_new((enum status_code)e->code, "%s", e->message));

    json_t *j = json_pack("{s:s}", "code", hlod_code_name(e->code)), *details = json_array();
    if (*e->reason) json_object_set_new(j, "reason", json_string(e->reason));
    json_object_set_new(j, "message", json_string(e->message));
    for (size_t k = 0; k < e->n_details; k++)
        json_array_append_new(details, json_string(e->details[k]));
    if (e->n_details) json_object_set(j, "details", details);
    if (e->retry_after_ms) json_object_set_new(j, "retryAfterMs", json_integer(e->retry_after_ms));

    show_json(j, "");
    print_error(j, e->message);
    json_decref(details);
    json_decref(j);
    return exit_of(e->code, code);
}

// As hlod_call_json; the request is taken. An error of ours is *out_st.
static enum hlod_code call(struct hlo *h, const char *method, json_t *request,
                           hlod_json_fn on_event, void *ctx, json_t **out, status_t *out_st) {
    char *text = request ? json_dumps(request, JSON_COMPACT) : NULL, *reply = NULL;
    json_error_t e;
    enum hlod_code code = HLOD_UNKNOWN;
    bool packed = !request || text;
    json_decref(request);
    *out_st = packed ? hlo_open(h) : st_oom();
    if (!*out_st) code = hlod_call_json(h->hlod, method, text, on_event, ctx, out ? &reply : NULL);
    if (!code && out && !(*out = json_loads(reply, 0, &e)))
        *out_st = st_new(ST_INTERNAL, "the server's reply is not JSON: %s", e.text);
    hlod_text_free(reply);
    free(text);
    return code;
}
static int finish(struct hlo *h, enum hlod_code code, status_t st) {
    return st ? fail_status(st) : code ? hlo_fail(h, EXIT_REFUSED) : 0;
}
int hlo_call(struct hlo *h, const char *method, json_t *request, json_t **out) {
    status_t st;
    enum hlod_code code = call(h, method, request, NULL, NULL, out, &st);
    int rc = finish(h, code, st);
    if (!rc) shown_json(h, *out);
    return rc;
}
int hlo_stream(struct hlo *h, const char *method, json_t *request, hlod_json_fn on_event,
               void *ctx) {
    status_t st;
    enum hlod_code code = call(h, method, request, on_event, ctx, NULL, &st);
    return finish(h, code, st);
}
json_t *hlo_try(struct hlo *h, const char *method, json_t *request) {
    status_t st;
    json_t *reply = NULL;
    call(h, method, request, NULL, NULL, &reply, &st);
    st_drop(st);
    return reply;
}
int hlo_print(struct hlo *h, const char *method, json_t *request, json_t **out) {
    int rc = hlo_call(h, method, request, out);
    if (rc || !h->json) return rc;
    print_json(*out);
    json_decref(*out);
    *out = NULL;
    return 0;
}

int full_digest(struct hlo *h, const char **digest) {
    const char *begin = *digest, *found = NULL;
    size_t n = strlen(begin), k;
    if (n < 6 || n >= 64 || strspn(begin, "0123456789abcdef") != n) return 0;
    json_t *j, *e;
    int rc = hlo_call(h, "ListExecutables", json_pack("{s:i}", "limit", 1000000), &j);
    if (rc) return rc;
    size_t matches = 0;
    json_array_foreach(json_object_get(j, "executables"), k, e) {
        if (strncmp(text_at(e, "digest"), begin, n) != 0) continue;
        matches++;
        found = text_at(e, "digest");
    }
    if (matches == 1)
        *digest = arena_strdup(&h->arena, found);
    else
        fprintf(stderr, "hlo: the digests of %zu executables begin with '%s'\n", matches, begin);
    json_decref(j);
    return matches == 1 ? 0 : EXIT_REFUSED;
}
static bool ends_in(const char *word, const char *end) {
    size_t n = strlen(word), m = strlen(end);
    return n > m && strcmp(word + n - m, end) == 0;
}
int model_is_file(const char *word, bool *out) {
    static const char *const ends[] = {".onnx", ".hlo",  ".hlox",   ".pb", ".txt",
                                       ".ort",  ".mlir", ".mlirbc", ".jax"};
    struct stat sb;
    *out = stat(word, &sb) == 0;
    if (*out) return 0;
    bool path = strchr(word, '/') != NULL;
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++)
        path |= ends_in(word, ends[k]);
    return path ? fail_status(st_errno(errno, word)) : 0;
}
bool list_begin(const struct hlo *h, const json_t *reply, const char *key, const char *none,
                const char *headings) {
    if (h->json) {
        print_json(reply);
        return false;
    }
    if (!json_array_size(json_object_get(reply, key))) {
        if (!h->quiet) fprintf(stderr, "hlo: %s\n", none);
    } else if (isatty(STDOUT_FILENO))
        puts(headings);
    return true;
}
void print_shape(const json_t *dims, FILE *f) {
    const json_t *d;
    size_t k;
    json_array_foreach(dims, k, d) {
        const char *text = json_string_value(d); // 64-bit numbers may be texts
        if (k) putc('x', f);
        if (text)
            fputs(text, f);
        else
            fprintf(f, "%lld", (long long)json_integer_value(d));
    }
}
static void add_escaped(struct strbuf *b, const char *word, const char *special) {
    for (const unsigned char *p = (const unsigned char *)word; *p; p++)
        strbuf_printf(b, *p > ' ' && *p < 127 && !strchr(special, *p) ? "%c" : "%%%02X", *p);
}
void query_add(struct strbuf *b, const char *key, const char *value) {
    strbuf_printf(b, "%s%s=", b->n ? "&" : "", key);
    add_escaped(b, value, "&%+#?");
}
const char *path_part(struct arena *a, const char *word) {
    struct strbuf b = {0};
    add_escaped(&b, word, "/?#%");
    const char *out = arena_strdup(a, strbuf_cstr(&b));
    strbuf_done(&b);
    return out;
}
// Jansson writes 17 digits of every real number; the shortest that read back as it are meant.
static void put_number(struct strbuf *b, const char *token, size_t n) {
    double v;
    size_t before = b->n;
    bool real = memchr(token, '.', n) || memchr(token, 'e', n);
    if (!real || !str_to_f64((struct str){token, n}, &v)) {
        strbuf_add(b, token, n);
        return;
    }
    strbuf_f64(b, v);
    if (!memchr(b->p + before, '.', b->n - before) && !memchr(b->p + before, 'e', b->n - before))
        strbuf_puts(b, ".0"); // still no integer
}
static void print_short(const json_t *j, size_t flags) {
    char *text = json_dumps(j, flags | JSON_PRESERVE_ORDER);
    struct strbuf b = {0};
    bool quoted = false;

    for (const char *p = text ? text : ""; *p;) {
        size_t n = quoted ? 0 : strspn(p, "+-.0123456789eE");
        if (n && (*p == '-' || (*p >= '0' && *p <= '9'))) {
            put_number(&b, p, n);
            p += n;
            continue;
        }
        if (*p == '"') quoted = !quoted;
        if (quoted && *p == '\\') strbuf_putc(&b, *p++);
        strbuf_putc(&b, *p++);
    }

    puts(strbuf_cstr(&b));
    strbuf_done(&b);
    free(text);
}
void print_json(const json_t *j) {
    print_short(j, JSON_INDENT(2));
}
void print_json_line(const json_t *j) {
    print_short(j, JSON_COMPACT);
}
const char *text_at(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}
double number_at(const json_t *j, const char *key) {
    const json_t *v = json_object_get(j, key);
    double d = 0;
    if (json_is_string(v)) str_to_f64(str_of(json_string_value(v)), &d);
    return json_is_number(v) ? json_number_value(v) : d;
}
struct size_text size_text(double bytes) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    size_t k = 0;
    for (; bytes >= 999.95 && k + 1 < sizeof units / sizeof *units; k++)
        bytes /= 1000;
    struct size_text t;
    snprintf(t.s, sizeof t.s, "%.*f %s", k ? 1 : 0, bytes < 1e9 ? bytes : 1e9, units[k]);
    return t;
}
struct size_text time_text(double ms) {
    struct size_text t;
    bool us = ms < 0.1, s = ms >= 10000;
    snprintf(t.s, sizeof t.s, "%.*f %s", us || s || ms >= 10 ? 1 : 3,
             us  ? ms * 1000
             : s ? (ms < 1e12 ? ms : 1e12) / 1000
                 : ms,
             us  ? "us"
             : s ? "s"
                 : "ms");
    return t;
}
status_t file_digest(const char *path, const struct span *parts, size_t n_parts, char out_hex[65]) {
    struct sha256 s;
    static char buf[1 << 16];
    size_t n;
    FILE *f = n_parts ? NULL : fopen(path, "rbe");
    if (!n_parts && !f) return st_errno(errno, path);
    sha256_init(&s);
    for (size_t k = 0; k < n_parts; k++)
        sha256_add(&s, parts[k].p, parts[k].n);
    while (f && (n = fread(buf, 1, sizeof buf, f)) > 0)
        sha256_add(&s, buf, n);
    bool ok = !f || !ferror(f);
    if (f) fclose(f);
    digest_hex(sha256_end(&s), out_hex);
    return ok ? ST_OK : st_new(ST_UNAVAILABLE, "%s cannot be read", path);
}
