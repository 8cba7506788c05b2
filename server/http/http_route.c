// SPDX-License-Identifier: Apache-2.0
#include "server/http/http_route.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/vec.h"
#include "proto/json.h"
#include "proto/message.h"
#include "scheduler/error.h"

static bool accepts(const char *accept, const char *type) {
    return strstr(accept, type) != NULL;
}

// Matches a path against an alias with {fields}. `out` gets the values.
static bool match_one(const char *alias, const char *end, struct str path, struct route *out) {
    out->n_params = 0;
    size_t i = 0;
    while (alias < end) {
        if (*alias != '{') {
            if (i >= path.n || path.p[i++] != *alias++) return false;
            continue;
        }
        const char *close = strchr(alias, '}');
        bool rest = close[-1] == '*';
        size_t start = i;
        while (i < path.n && (rest || path.p[i] != '/'))
            i++;
        if (i == start) return false;
        out->params[out->n_params].field =
            (struct str){alias + 1, (size_t)(close - alias - 1 - rest)};
        out->params[out->n_params++].value = (struct str){path.p + start, i - start};
        alias = close + 1;
    }
    return i == path.n;
}
// The rows' aliases, row by row, each with what stands in front of its first field.
static struct {
    struct str all, plain;
} aliases[8 * ALL_ROWS];
static int first_alias[ALL_ROWS + 1];
static void list_aliases(void) {
    int n = 0;
    for (int i = 0; i < ALL_ROWS; i++) {
        struct str rest = str_of(api_rows[i].alias), one;
        for (first_alias[i] = n; n < 8 * ALL_ROWS && str_cut(&rest, ' ', &one); n++) {
            const char *field = memchr(one.p, '{', one.n);
            aliases[n].all = one;
            aliases[n].plain = (struct str){one.p, field ? (size_t)(field - one.p) : one.n};
        }
    }
    first_alias[ALL_ROWS] = n;
}
// Any of the row's aliases; the one with the fewest fields is meant.
static bool match(int row, struct str path, struct route *out) {
    struct route r;
    bool found = false;
    for (int i = first_alias[row]; i < first_alias[row + 1]; i++) {
        struct str all = aliases[i].all, plain = aliases[i].plain;
        bool ends = plain.n && path.n >= plain.n; // most end otherwise
        if (path.n < plain.n || (ends && path.p[plain.n - 1] != plain.p[plain.n - 1]) ||
            memcmp(path.p, plain.p, plain.n) != 0)
            continue;
        r = (struct route){0};
        if (!match_one(all.p, all.p + all.n, path, &r) || (found && r.n_params >= out->n_params))
            continue;
        *out = r;
        out->alias = all;
        found = true;
    }
    return found;
}

static enum reply_form form_of(const struct api_row *row, bool rpc, const char *accept) {
    if (row->dialect == DIALECT_OIP) return FORM_OIP;
    if (row->stream)
        return accepts(accept, "application/x-protobuf-stream") ? FORM_FRAMES : FORM_NDJSON;
    if (accepts(accept, "application/x-protobuf")) return FORM_PROTO;
    if (row->reply == REPLY_BYTES && !rpc && accepts(accept, "application/octet-stream"))
        return FORM_BYTES;
    if (call_has_outputs(row->output) && accepts(accept, "application/octet-stream"))
        return FORM_BINARY;
    if (row->reply == REPLY_TEXT && !rpc && !accepts(accept, "application/json")) return FORM_TEXT;
    if (row->reply == REPLY_FILE && !rpc && !accepts(accept, "application/json")) return FORM_FILE;
    return FORM_JSON;
}

MUST_CHECK static status_t no_route(const char *path) {
    return st_because(ST_NOT_FOUND, NO_ROUTE, "nothing at '%.200s'; see /v1/openapi.json", path);
}

// /package.Service/Method. NULL: the path is not of that form, or of a service not here.
static const char *rpc_method(const char *path, const char **out_service) {
    static const char *const services[] = {"hlod.v1.Hlod", "inference.GRPCInferenceService"};
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(services[i]);
        if (path[0] != '/' || strncmp(path + 1, services[i], n) || path[n + 1] != '/') continue;
        *out_service = services[i];
        return path + n + 2;
    }
    return NULL;
}
static status_t rpc_route(struct arena *a, const char *verb, const char *service,
                          const char *method, const char *accept, struct route *out,
                          const char **out_allow) {
    for (int i = 0; i < ALL_ROWS; i++) {
        const struct api_row *row = &api_rows[i];
        if (strcmp(row->method, method) || strcmp(row->service, service)) continue;
        if (strcmp(verb, "POST")) {
            *out_allow = arena_strdup(a, "POST");
            return st_because(ST_INVALID_ARGUMENT, METHOD_NOT_ALLOWED,
                              "%s is not allowed here; use POST", verb);
        }
        if (row->stream && row->dialect == DIALECT_OIP) break; // takes a stream: gRPC only
        *out = (struct route){.row = row, .rpc = true, .form = form_of(row, true, accept)};
        return ST_OK;
    }
    return st_because(ST_UNIMPLEMENTED, NO_ROUTE, "%s has no method '%.80s' here", service, method);
}

static void allow_also(struct strbuf *allow, enum api_verb verb) {
    const char *name = verb == VERB_BOTH  ? "GET, HEAD, POST"
                       : verb == VERB_GET ? "GET, HEAD"
                                          : api_verb_name(verb);
    if (!strstr(strbuf_cstr(allow), name)) strbuf_printf(allow, "%s%s", allow->n ? ", " : "", name);
}
static status_t look_up(struct arena *a, const char *verb, const char *path, const char *accept,
                        int stream, struct route *out, const char **out_allow) {
    if (!strcmp(verb, "HEAD")) verb = "GET"; // the library leaves the body out
    const char *service, *method = rpc_method(path, &service);
    if (method) return rpc_route(a, verb, service, method, accept, out, out_allow);

    bool want_stream = stream >= 0 ? stream
                                   : accepts(accept, "application/x-ndjson") ||
                                         accepts(accept, "application/x-protobuf-stream");
    bool want_unary = stream >= 0 ? !stream
                                  : !want_stream && (accepts(accept, "application/json") ||
                                                     accepts(accept, "application/octet-stream") ||
                                                     accepts(accept, "application/x-protobuf"));

    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, list_aliases);
    struct strbuf allow = {0};
    const struct api_row *found = NULL;
    struct route r = {0}, best = {0};
    struct str whole = str_of(path);
    // Clients of the Open Inference Protocol write paths with a slash behind; in /v1 it is a name
    // that is empty.
    if (str_starts(whole, "/v2/") && path[whole.n - 1] == '/') whole.n--;
    for (int i = 0; i < ALL_ROWS; i++) {
        const struct api_row *row = &api_rows[i];
        if (!match(i, whole, &r)) continue;
        if (row->verb == VERB_BOTH ? strcmp(verb, "GET") && strcmp(verb, "POST")
                                   : strcmp(api_verb_name(row->verb), verb)) {
            allow_also(&allow, row->verb);
            continue;
        }
        // Fewer fields is the closer match. Among equals the first row is the default; the other
        // one is taken when asked for.
        bool closer = found && r.n_params < best.n_params;
        if (found && !closer &&
            !((want_stream && row->stream) || (want_unary && !row->stream && found->stream)))
            continue;
        found = row;
        best = r;
    }

    status_t st = ST_OK;
    if (found) {
        best.row = found;
        best.rpc = false;
        best.form = form_of(found, false, accept);
        enum api_generate generate = api_generate(found, whole);
        if (generate)
            best.form = generate == GENERATE_STREAM ? FORM_GENERATE_STREAM : FORM_GENERATE;
        *out = best;
    } else if (allow.n) {
        *out_allow = arena_strdup(a, strbuf_cstr(&allow));
        st = st_because(ST_INVALID_ARGUMENT, METHOD_NOT_ALLOWED,
                        "%.20s is not allowed here; use %s", verb, *out_allow);
    } else
        st = no_route(path);
    strbuf_done(&allow);
    return st;
}

// Where requests went lately, by verb, path and what is accepted: most are like one before.
struct known_route {
    char verb[8], path[160], accept[88]; // "" verb: free
    int stream;
    struct route route; // its values lie in `path`
};
static bool keep(char *to, size_t room, const char *s) {
    size_t n = strlen(s);
    if (n < room) memcpy(to, s, n + 1);
    return n < room;
}
static void rebase(struct route *r, const char *from, const char *to) {
    for (int i = 0; i < r->n_params; i++)
        r->params[i].value.p = to + (r->params[i].value.p - from);
}
status_t http_route(struct arena *a, const char *verb, const char *path, const char *accept,
                    int stream, struct route *out, const char **out_allow) {
    enum { KNOWN = 16 };
    static _Thread_local struct known_route known[KNOWN];
    struct known_route *k = &known[hash64(path, strlen(path), 0) % KNOWN];
    *out_allow = NULL;
    if (*k->verb && !strcmp(k->path, path) && !strcmp(k->verb, verb) &&
        !strcmp(k->accept, accept) && k->stream == stream) {
        *out = k->route;
        rebase(out, k->path, path);
        return ST_OK;
    }

    RETURN_IF_ERR(look_up(a, verb, path, accept, stream, out, out_allow));
    *k->verb = 0;
    char kept[sizeof k->verb];
    if (!keep(kept, sizeof kept, verb) || !keep(k->path, sizeof k->path, path) ||
        !keep(k->accept, sizeof k->accept, accept))
        return ST_OK;
    memcpy(k->verb, kept, sizeof kept);
    k->stream = stream;
    k->route = *out;
    rebase(&k->route, path, k->path);
    return ST_OK;
}

status_t http_route_params(struct arena *a, const struct route *r, ProtobufCMessage *m) {
    for (int i = 0; i < r->n_params; i++)
        RETURN_IF_ERR(json_set_text(a, m, r->params[i].field, r->params[i].value));
    return ST_OK;
}

const char *http_path_of(const char *target, char authority[HTTP_AUTHORITY]) {
    const char *from = strncasecmp(target, "http://", 7) == 0    ? target + 7
                       : strncasecmp(target, "https://", 8) == 0 ? target + 8
                                                                 : target;
    size_t n = strcspn(from, "/");
    *authority = 0;
    if (from == target || !n || n >= HTTP_AUTHORITY || memchr(from, '@', n)) return target;
    memcpy(authority, from, n);
    authority[n] = 0;
    return from[n] ? from + n : "/";
}

// ---- web pages

static bool local_name(const char *host) {
    size_t n = strcspn(host, ":");
    if (*host == '[') return true; // a numeric address
    if (n >= 9 && !strncasecmp(host + n - 9, "localhost", 9) && (n == 9 || host[n - 10] == '.'))
        return true;
    return n && strspn(host, "0123456789.") == n;
}
bool http_same_site(const char *host, const char *origin, bool local) {
    if (local && host && !local_name(host)) return false;
    if (!origin) return true;
    const char *authority = strstr(origin, "://");
    return authority && host && !strcasecmp(authority + 3, host);
}

// ---- errors

void http_error_oip(struct strbuf *b, status_t st) {
    strbuf_puts(b, "{\"error\":");
    strbuf_json_str(b, str_of(st_message(st)));
    strbuf_puts(b, "}");
}

void http_error_json(struct strbuf *b, status_t st) {
    struct arena a = {0};
    json_print(b, &error_of(&a, st)->base);
    arena_done(&a);
}
