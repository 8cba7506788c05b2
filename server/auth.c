// SPDX-License-Identifier: Apache-2.0
#include "server/auth.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "proto/reason.h"

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
status_t auth_reload(struct auth *a) {
    struct tokens fresh;
    status_t st = tokens_read(a->path, &fresh);
    if (st) {
        tokens_done(&fresh);
        return st;
    }
    tokens_done(&a->all);
    a->all = fresh;
    return ST_OK;
}
size_t auth_entries(const struct auth *a) {
    return a->all.n;
}

size_t auth_expired(const struct auth *a) {
    size_t n = 0;
    for (size_t i = 0; i < a->all.n; i++)
        n += tokens_expired(&a->all.v[i], clock_wall_ns());
    return n;
}

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
