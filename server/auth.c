// SPDX-License-Identifier: Apache-2.0
#include "server/auth.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "proto/reason.h"
#include "server/secrets.h"

struct auth {
    char *path;
    struct tokens all;
};

status_t auth_open(const char *tokens_path, struct auth **out) {
    struct auth *a = calloc(1, sizeof *a);
    if (!a || !(a->path = strdup(tokens_path))) abort();
    status_t st = tokens_read(a->path, &a->all);
    if (st)
        auth_close(a);
    else
        *out = a;
    return st;
}
void auth_close(struct auth *a) {
    if (!a) return;
    tokens_done(&a->all);
    free(a->path);
    free(a);
}

static size_t expired(const struct auth *a) {
    size_t n = 0;
    for (size_t i = 0; i < a->all.n; i++)
        n += tokens_expired(&a->all.v[i], clock_wall_ns());
    return n;
}
// Those that have expired may be forgotten ones: `hlo tokens ls` names them.
void auth_say(const struct auth *a) {
    size_t over = expired(a);
    log_event(a->all.n > over ? LOG_INFO : LOG_WARN, "server.tokens", "entries=%zu expired=%zu%s",
              a->all.n, over,
              a->all.n > over ? ""
                              : " why=\"no entry of the file holds: every caller is refused\"");
}

// ---- read again

static void drop(void *loaded) {
    tokens_done(loaded);
    free(loaded);
}
static status_t load(void *ctx, void **out) {
    struct auth **a = ctx;
    struct tokens *fresh = calloc(1, sizeof *fresh);
    if (!fresh) return st_oom();
    status_t st = tokens_read((*a)->path, fresh);
    if (st)
        drop(fresh);
    else
        *out = fresh;
    return st;
}
static void take(void *ctx, void *loaded) {
    struct auth **a = ctx;
    tokens_done(&(*a)->all);
    (*a)->all = *(struct tokens *)loaded;
    free(loaded);
}
static void say(void *ctx) {
    auth_say(*(struct auth **)ctx);
}
void auth_watch(struct auth **a, const char *tokens_path, struct secrets *s) {
    secrets_add(s, &(struct secret_group){.what = "tokens",
                                          .files = {tokens_path},
                                          .n = 1,
                                          .load = load,
                                          .take = take,
                                          .drop = drop,
                                          .read = say,
                                          .ctx = a});
}

// ---- who

MUST_CHECK static status_t is(struct arena *arena, const struct token *x, struct principal *out) {
    if (x->expires && tokens_expired(x, clock_wall_ns()))
        return st_because(ST_UNAUTHENTICATED, EXPIRED_CREDENTIALS, "the %s '%s' expired at %s",
                          x->subject ? "entry of the certificate" : "token", x->name, x->expires);
    *out = (struct principal){.name = arena_strdup(arena, x->name),
                              .tenant = arena_strdup(arena, x->tenant),
                              .scopes = x->scopes};
    return ST_OK;
}

status_t auth_who(const struct auth *a, struct arena *arena, const struct credentials *with,
                  unsigned scope, struct principal *out) {
    *out = (struct principal){.name = "anonymous", .tenant = "default", .anonymous = true};
    if (!a) {
        out->scopes = SCOPE_ALL;
        return ST_OK;
    }
    if (with->authorization) { // what is presented must be right, even where nothing is asked for
        struct str text = str_trim(str_of(with->authorization));
        static const char scheme[] = "bearer ";
        size_t n = strlen(scheme);
        if (text.n < n || strncasecmp(text.p, scheme, n) != 0)
            return st_because(ST_UNAUTHENTICATED, BAD_CREDENTIALS,
                              "Authorization: expected `Bearer TOKEN`");
        const struct token *x =
            tokens_find(&a->all, str_trim((struct str){text.p + n, text.n - n}));
        if (!x) return st_because(ST_UNAUTHENTICATED, BAD_CREDENTIALS, "unknown token");
        return is(arena, x, out);
    }

    for (size_t i = 0; i < with->n_names; i++) {
        const struct token *x = tokens_find_subject(&a->all, with->names[i]);
        if (x) return is(arena, x, out);
    }
    if (scope == SCOPE_NONE) return ST_OK;
    if (with->n_names)
        return st_because(ST_UNAUTHENTICATED, BAD_CREDENTIALS,
                          "no entry for the certificate of '%.100s' in the tokens file",
                          with->names[0]);
    return st_because(ST_UNAUTHENTICATED, NO_CREDENTIALS,
                      "no credentials: this server asks for `Authorization: Bearer TOKEN`");
}

status_t auth_may(const struct principal *p, unsigned scope, const char *what) {
    if ((p->scopes & scope) == scope) return ST_OK;
    struct strbuf need = {0};
    scopes_print(&need, scope & ~p->scopes);
    status_t st =
        st_because(ST_PERMISSION_DENIED, MISSING_SCOPE, "%s needs the scope '%s', which '%s' lacks",
                   what, strbuf_cstr(&need), p->name);
    strbuf_done(&need);
    return st;
}
