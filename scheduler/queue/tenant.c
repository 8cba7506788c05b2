// SPDX-License-Identifier: Apache-2.0
// The rules are kept as text and read again for each new tenant: there are few of both.
#include "scheduler/queue/tenant.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "proto/hlod.pb-c.h"

enum { MAX_NAME = 64, MAX_TENANTS = 1000 };
static const struct tenant_limits no_limits = {.weight = 1};

bool tenant_name_fits(const char *name) {
    size_t n = strlen(name);
    return n > 0 && n <= MAX_NAME &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

// ---- rules

static status_t set_limit(struct tenant_limits *l, struct str name, struct str text) {
    struct str value = text, key;
    int64_t n;
    str_cut(&value, '=', &key);
    bool good = str_is(key, "bytes") ? str_to_bytes(value, &n)
                                     : str_to_i64(value, &n) && n >= 0 && n < INT32_MAX;
    if (good && str_is(key, "weight") && n >= 1 && n <= 1000)
        l->weight = (int32_t)n;
    else if (good && str_is(key, "runs"))
        l->runs = n;
    else if (good && str_is(key, "bytes"))
        l->bytes = n;
    else if (good && str_is(key, "places"))
        l->places = n;
    else
        return st_invalid("tenants: '" STR_FMT "' of tenant '" STR_FMT
                          "': expected weight=1..1000, runs=N, bytes=SIZE or places=N",
                          STR_ARG(text), STR_ARG(name));
    return ST_OK;
}

// The limits of `name`: of its own rule, else of '*'. Reads all rules, so that NULL checks them.
static status_t read_rules(const char *rules, const char *name, struct tenant_limits *out) {
    struct str all = str_of(rules), rule;
    bool own = false;
    *out = no_limits;
    while (all.n && str_cut(&all, ',', &rule)) {
        struct str part, who, rest = str_trim(rule);
        struct tenant_limits l = no_limits;
        str_cut(&rest, ':', &who);
        char text[MAX_NAME + 2] = "";
        if (who.n <= MAX_NAME) memcpy(text, who.p, who.n);
        if (!str_is(who, "*") && !tenant_name_fits(text))
            return st_invalid("tenants: '" STR_FMT "' is no name of a tenant", STR_ARG(who));
        while (rest.n) {
            str_cut(&rest, ':', &part);
            RETURN_IF_ERR(set_limit(&l, who, part));
        }
        bool mine = name && !strcmp(text, name);
        if (mine || (!own && str_is(who, "*"))) *out = l;
        own = own || mine;
    }
    return ST_OK;
}

static void apply(const struct tenants *ts, struct tenant *t) {
    st_drop(read_rules(ts->rules ? ts->rules : "", t->name, &t->limits)); // read before
    t->lanes[0].weight = t->lanes[1].weight = t->limits.weight;
    quota_set(&t->runs, t->limits.runs);
    quota_set(&t->bytes, t->limits.bytes);
    if (ts->ruled) ts->ruled(ts->ctx, t);
}

status_t tenants_check(const char *rules) {
    struct tenant_limits l;
    return read_rules(rules, NULL, &l);
}
status_t tenants_set(struct tenants *ts, const char *rules) {
    RETURN_IF_ERR(tenants_check(rules));
    free(ts->rules);
    ts->rules = strdup(rules);
    if (!ts->rules) abort();
    for (struct tenant *t = ts->first; t; t = t->next)
        apply(ts, t);
    return ST_OK;
}

// ---- tenants

static void free_tenant(struct tenant *t) {
    free(t->name);
    free(t);
}
void tenants_done(struct tenants *ts) {
    while (ts->first) {
        struct tenant *t = ts->first;
        ts->first = t->next;
        free_tenant(t);
    }
    free(ts->rules);
    *ts = (struct tenants){0};
}

// Names may come from outside: forgets one that does nothing, the one that did least.
static void forget_one(struct tenants *ts) {
    struct tenant **least = NULL;
    for (struct tenant **at = &ts->first; *at; at = &(*at)->next)
        if (!(*at)->jobs && !(*at)->places && !(*at)->lanes[0].n && !(*at)->lanes[1].n &&
            (!least || (*at)->total_jobs < (*least)->total_jobs))
            least = at;
    if (!least) return;
    struct tenant *t = *least;
    *least = t->next;
    free_tenant(t);
    ts->n--;
}

// Where the tenant is, or would be.
static struct tenant **find(struct tenants *ts, const char *name) {
    struct tenant **at = &ts->first;
    while (*at && strcmp((*at)->name, name) < 0)
        at = &(*at)->next;
    return at;
}
struct tenant *tenants_find(const struct tenants *ts, const char *name) {
    struct tenant *t = ts->first;
    while (t && strcmp(t->name, name) < 0)
        t = t->next;
    return t && !strcmp(t->name, name) ? t : NULL;
}
struct tenant *tenants_get(struct tenants *ts, const char *name, int64_t now_ns) {
    if (!name || !*name) name = "default";
    struct tenant **at = find(ts, name);
    if (*at && !strcmp((*at)->name, name)) return *at;
    if (ts->n >= MAX_TENANTS) {
        forget_one(ts);
        at = find(ts, name);
    }
    struct tenant *t = calloc(1, sizeof *t);
    if (!t || !(t->name = strdup(name))) abort();
    quota_init(&t->runs, 0, now_ns);
    quota_init(&t->bytes, 0, now_ns);
    quota_init(&t->compiles, 0, now_ns);
    apply(ts, t);
    t->next = *at;
    *at = t;
    ts->n++;
    return t;
}

status_t tenant_admit(struct tenant *t, int64_t now_ns, int64_t bytes) {
    int64_t wait_ms = 0;
    const char *what = NULL;
    if (!quota_take(&t->runs, now_ns, 1, &wait_ms))
        what = "runs";
    else if (!quota_take(&t->bytes, now_ns, bytes, &wait_ms)) {
        what = "bytes";
        quota_give(&t->runs, 1);
    }
    if (!what) return ST_OK;
    t->refused++;
    status_t st =
        st_exhausted("tenant '%s' has used its %lld %s a minute; the next may begin in %.1f s",
                     t->name, (long long)(what[0] == 'r' ? t->limits.runs : t->limits.bytes), what,
                     (double)wait_ms / 1e3);
    return st_retry_after(st_reason(st, HLOD__V1__REASON__REASON_TENANT_QUOTA), wait_ms);
}

void tenant_return(struct tenant *t, int64_t bytes) {
    quota_give(&t->runs, 1);
    quota_give(&t->bytes, bytes);
}

bool tenant_may_place(const struct tenant *t) {
    const struct tenant_elsewhere *e = &t->elsewhere;
    int64_t most = t->limits.places;
    if (!most || !t->places) return true;
    if (!e->counts) return t->places < most;
    return t->places < e->may_places && (int64_t)t->places + e->places < most;
}
