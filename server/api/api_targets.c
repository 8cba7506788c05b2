// SPDX-License-Identifier: Apache-2.0
// Targets: what this daemon compiles for and what it executes, from the tables that it has. Nothing
// is started to find out: that a plugin's file is there is as much as can be said before somebody
// compiles with it.
#include <string.h>

#include "base/vec.h"
#include "proto/kinds.h"
#include "proto/message.h"
#include "scheduler/workers/plugins.h"
#include "server/api/api.h"

struct list {
    struct call *c;
    struct pool *pool;
    VEC(Hlod__V1__Target *) rows;
};

// Does the daemon serve a device of the kind, up or not?
static bool serves(const struct list *l, const char *kind) {
    struct place_want want = {.role = ROLE_DEVICE, .device = kind};
    for (int i = 0; i < pool_size(l->pool); i++) {
        struct place_worker v = pool_place(pool_worker(l->pool, i));
        if (place_matches(&want, &v)) return true;
    }
    return false;
}

// Is a device of the kind up? *why: the reason if not, of the arena or static.
static bool executes(struct list *l, const char *kind, const char **why) {
    struct place_want want = {.role = ROLE_DEVICE, .device = kind};
    *why = arena_printf(&l->c->arena, "no device of kind %s is served (hlod --device)", kind);
    for (int i = 0; i < pool_size(l->pool); i++) {
        struct worker *w = pool_worker(l->pool, i);
        struct place_worker v = pool_place(w);
        if (!place_matches(&want, &v)) continue;
        if (v.ready) return true;
        *why = *worker_why(w) ? arena_strdup(&l->c->arena, worker_why(w)) : "its worker is not up";
    }
    return false;
}

static void add(struct list *l, const char *name, const char *kind, const struct plugin *p) {
    struct arena *a = &l->c->arena;
    Hlod__V1__Target *t = message_new(a, &hlod__v1__target__descriptor);
    const char *why;
    t->name = (char *)(uintptr_t)name;
    t->kind = (char *)(uintptr_t)kind;
    status_t st = p ? plugin_present(p) : ST_OK;
    const char *failed = pool_why(l->pool, ROLE_COMPILE, kind);
    t->compiles = !st && !*failed;
    if (!t->compiles) t->compiles_why = arena_strdup(a, st ? st_message(st) : failed);
    st_drop(st);
    t->executes = executes(l, kind, &why);
    if (!t->executes) t->executes_why = (char *)(uintptr_t)why;
    if (p) {
        t->plugin = (char *)(uintptr_t)p->name;
        t->plugin_file = (char *)(uintptr_t)p->path;
        t->installs = p->installs;
    }
    avec_push(a, &l->rows, t);
}

status_t api_targets(struct call *c) {
    struct list l = {.c = c, .pool = sched_pool(c->api->sched)};
    const struct plugins *all = sched_cfg(c->api->sched)->pool.plugins;
    Hlod__V1__ListTargetsReply m = HLOD__V1__LIST_TARGETS_REPLY__INIT;
    add(&l, "cpu", "cpu", NULL);
#define KIND(kind, traits)                                                                         \
    if ((KIND_##traits & KIND_OWN) && strcmp(#kind, "cpu") && serves(&l, #kind))                   \
        add(&l, #kind, #kind, NULL);
#include "proto/kinds.def"
#undef KIND
    for (size_t i = 0; all && i < all->n; i++) {
        struct str rest = str_of(all->v[i].examples), name;
        while (rest.n && str_cut(&rest, ' ', &name))
            add(&l, arena_strndup(&c->arena, name.p, name.n), all->v[i].kind, &all->v[i]);
    }
    m.targets = l.rows.v;
    m.n_targets = l.rows.n;
    return call_reply(c, &m.base);
}
