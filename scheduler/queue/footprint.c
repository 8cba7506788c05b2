// SPDX-License-Identifier: Apache-2.0
#include "scheduler/queue/footprint.h"

static struct footprint_use *find(const struct footprint *f, struct digest key) {
    for (size_t i = 0; i < f->uses.n; i++)
        if (digest_eq(f->uses.v[i].key, key)) return &f->uses.v[i];
    return NULL;
}

int64_t footprint_needs(const struct footprint *f, const struct footprint_want *w) {
    return w->tensor_bytes + (find(f, w->key) ? 0 : w->resident_bytes);
}

void footprint_add(struct footprint *f, const struct footprint_want *w) {
    f->bytes += footprint_needs(f, w);
    struct footprint_use *u = find(f, w->key);
    if (u)
        u->runs++;
    else
        vec_push(&f->uses, ((struct footprint_use){w->key, w->resident_bytes, 1}));
}

void footprint_drop(struct footprint *f, const struct footprint_want *w) {
    struct footprint_use *u = find(f, w->key);
    f->bytes -= w->tensor_bytes;
    if (!u || --u->runs) return;
    f->bytes -= u->resident_bytes;
    *u = f->uses.v[--f->uses.n];
}

void footprint_done(struct footprint *f) {
    vec_done(&f->uses);
    *f = (struct footprint){0};
}
