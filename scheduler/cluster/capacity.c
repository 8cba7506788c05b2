// SPDX-License-Identifier: Apache-2.0
#include "scheduler/cluster/capacity.h"

#include <string.h>

#include "base/metrics.h"
#include "proto/message.h"
#include "scheduler/cluster/beat.h"
#include "scheduler/sched.h"

Hlod__V1__PeerTarget **capacity_targets(struct pool *p, struct arena *a, size_t *out_n) {
    Hlod__V1__PeerTarget **v = arena_zarray(a, Hlod__V1__PeerTarget *, pool_size(p) + 1);
    *out_n = 0;
    for (int i = 0; i < pool_size(p); i++) {
        const Hlod__Wire__Hello *h = worker_hello(pool_worker(p, i));
        struct place_worker w = pool_place(pool_worker(p, i));
        if (!h || w.role != ROLE_DEVICE || w.asked_only) continue;
        Hlod__V1__PeerTarget *t = message_new(a, &hlod__v1__peer_target__descriptor);
        t->target_id = h->target_id;
        t->build_id = h->build_id;
        t->kernel_abi = h->kernel_abi;
        v[(*out_n)++] = t;
    }
    return v;
}
static bool same(const Hlod__V1__PeerTarget *a, const Hlod__V1__PeerTarget *b) {
    return a->kernel_abi == b->kernel_abi && !strcmp(a->target_id, b->target_id) &&
           !strcmp(a->build_id, b->build_id);
}
static void once_each(Hlod__V1__PeerTarget **v, size_t *n) {
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++) {
        bool there = false;
        for (size_t k = 0; k < kept; k++)
            there = there || same(v[k], v[i]);
        if (!there) v[kept++] = v[i];
    }
    *n = kept;
}
// Reliefs, and processes that a tenant may be given, are no devices of their own.
static void add_kind(Hlod__V1__Node *out, const char *kind) {
    for (size_t k = 0; k < out->n_device_kinds; k++)
        if (!strcmp(out->device_kinds[k], kind)) return;
    out->device_kinds[out->n_device_kinds++] = (char *)(uintptr_t)kind;
}
static void count_devices(struct pool *p, struct arena *a, Hlod__V1__Node *out) {
    out->device_kinds = arena_zarray(a, char *, pool_size(p) + 1);
    for (int i = 0; i < pool_size(p); i++) {
        struct place_worker w = pool_place(pool_worker(p, i));
        if (w.role != ROLE_DEVICE || w.spare || w.relief || w.asked_only) continue;
        out->devices++;
        if (!w.up || w.hopeless || w.drained) continue; // if not ready, it will be
        out->devices_up++;
        if (*w.kind && out->n_device_kinds < BEAT_MAX_TARGETS) add_kind(out, w.kind);
        if (w.ready && w.calls < w.max_calls) out->places += w.max_calls - w.calls;
    }
}
void capacity_describe(struct sched *s, struct arena *a, Hlod__V1__Node *out) {
    out->targets = capacity_targets(sched_pool(s), a, &out->n_targets);
    once_each(out->targets, &out->n_targets);
    count_devices(sched_pool(s), a, out);
    out->jobs = sched_active(s);
    out->queued = (int32_t)metric_get(M_JOBS_QUEUED);
    out->max_queue = sched_cfg(s)->max_queue;
}
