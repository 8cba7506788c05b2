// SPDX-License-Identifier: Apache-2.0
// op_target: what a target's name stands for, asked of a compile worker of its kind once for each
// life of that worker. The worker is started for it where it is not up: plugins of devices that are
// not here cost nothing until somebody compiles for them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/weigh.h"
#include "scheduler/job/job_inside.h"
#include "scheduler/loop.h"
#include "scheduler/workers/plugins.h"

static void keep(struct op *op, struct worker *w, const Hlod__Wire__TargetReply *r) {
    struct sched *s = op->s;
    const char *name = op->name + strlen("target/");
    struct target_rec *old = smap_del(&s->targets, str_of(name)), *t = calloc(1, sizeof *t);
    if (!t) abort();
    free(old);
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->kind, sizeof t->kind, "%s", op->device_kind);
    snprintf(t->id, sizeof t->id, "%s", r->target_id);
    t->worker = w;
    t->epoch = worker_epoch(w);
    t->memory_bytes = r->memory_bytes;
    smap_put(&s->targets, str_of(t->name), t);
}

static void on_reply(void *ctx, struct frame *f, status_t lost) {
    struct op *op = ctx;
    struct worker *w = op->slot.w;
    if (!op_answered(op, f, lost)) return;
    status_t st = ST_OK;
    Hlod__Wire__TargetReply *r = wire_reply(&hlod__wire__target_reply__descriptor, f, &st);
    if (!st) keep(op, w, r);
    if (r) hlod__wire__target_reply__free_unpacked(r, NULL);
    op_end(op, st);
}

static void placed(struct op *op) {
    Hlod__Wire__Target m = HLOD__WIRE__TARGET__INIT;
    m.name = (char *)(uintptr_t)op->format;
    op->call = pool_call(op->slot.w, HLOD__WIRE__TYPE__TYPE_TARGET, &m.base, NULL, 0, on_reply, op);
}

struct target_rec *sched_target(struct sched *s, const char *name) {
    struct target_rec *t = smap_get(&s->targets, str_of(name));
    return t && worker_epoch(t->worker) == t->epoch && worker_hello(t->worker) ? t : NULL;
}

status_t op_target_start(struct job *j) {
    const char *kind, *name, *target = j->spec->compile.target;
    char key[TARGET_NAME_MAX + 8];
    RETURN_IF_ERR(plugins_target(j->s->cfg.pool.plugins, &j->arena, target, &kind, &name));
    if (strlen(target) >= TARGET_NAME_MAX)
        return st_because(ST_INVALID_ARGUMENT, BAD_TARGET,
                          "a target's name is longer than %d bytes", TARGET_NAME_MAX - 1);
    snprintf(key, sizeof key, "target/%s", target);
    struct op *op;
    if (!op_wait(j, OP_TARGET, key, &op)) return ST_OK;
    op->format = arena_strdup(&op->arena, name);
    op->device_kind = arena_strdup(&op->arena, kind);
    op->placed = placed;
    op_queue(op, op->device_kind, j->tenant, j->spec->priority);
    return ST_OK;
}
