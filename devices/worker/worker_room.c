// SPDX-License-Identifier: Apache-2.0
#include "devices/worker/worker_room.h"

#include <stdlib.h>

#include "base/arena.h"

static struct str name_of(const struct digest *d) {
    return (struct str){(const char *)d, sizeof *d};
}

void room_done(struct room *r) {
    smap_done(&r->by_key);
    vec_done(&r->items);
    vec_done(&r->models);
    *r = (struct room){0};
}

static struct room_model *model_of(struct room *r, struct digest program) {
    for (size_t k = 0; k < r->models.n; k++)
        if (digest_eq(r->models.v[k]->program, program)) return r->models.v[k];
    struct room_model *m = arena_must_calloc(1, sizeof *m);
    m->program = program;
    vec_push(&r->models, m);
    return m;
}
void room_add(struct room *r, struct room_item *i, struct digest program) {
    i->model = model_of(r, digest_is_zero(program) ? i->key : program);
    i->model->n++;
    i->bytes = i->needs = 0;
    i->at = r->items.n;
    vec_push(&r->items, i);
    smap_put(&r->by_key, name_of(&i->key), i);
    room_use(r, i);
}

static void forget_model(struct room *r, struct room_model *m) {
    for (size_t k = 0; k < r->models.n; k++)
        if (r->models.v[k] == m) {
            r->models.v[k] = vec_pop(&r->models);
            break;
        }
    free(m);
}
void room_del(struct room *r, struct room_item *i) {
    struct room_model *m = i->model;
    smap_del(&r->by_key, name_of(&i->key));
    struct room_item *last = vec_pop(&r->items);
    if (last != i) {
        r->items.v[i->at] = last;
        last->at = i->at;
    }
    m->bytes -= i->bytes;
    i->model = NULL;
    if (--m->n == 0) {
        forget_model(r, m);
        return;
    }
    if (m->newest != i) return;
    m->newest = NULL;
    for (size_t k = 0; k < r->items.n; k++) {
        struct room_item *o = r->items.v[k];
        if (o->model == m && (!m->newest || o->used > m->newest->used)) m->newest = o;
    }
}

struct room_item *room_find(const struct room *r, struct digest key) {
    return smap_get(&r->by_key, name_of(&key));
}
void room_use(struct room *r, struct room_item *i) {
    i->used = ++r->tick;
    i->model->newest = i;
}
void room_weigh(struct room_item *i, int64_t bytes, int64_t needs) {
    i->model->bytes += bytes - i->bytes;
    i->bytes = bytes;
    i->needs = needs;
}

static int64_t spare(const struct room_model *m) {
    return m->n > 1 && m->bytes > m->newest->needs ? m->bytes - m->newest->needs : 0;
}
int64_t room_spare(const struct room *r) {
    int64_t all = 0;
    for (size_t k = 0; k < r->models.n; k++)
        all += spare(r->models.v[k]);
    return all;
}

// Of one model, or of all; spare: not what it used last.
static struct room_item *oldest(const struct room *r, const struct room_model *of, bool spare) {
    struct room_item *found = NULL;
    for (size_t k = 0; k < r->items.n; k++) {
        struct room_item *i = r->items.v[k];
        if (i->pinned || (of && i->model != of) || (spare && i == i->model->newest)) continue;
        if (!found || i->used < found->used) found = i;
    }
    return found;
}
struct room_item *room_oldest_spare(const struct room *r) {
    const struct room_model *most = NULL;
    for (size_t k = 0; k < r->models.n; k++) {
        const struct room_model *m = r->models.v[k];
        if (m->n > 1 && (!most || spare(m) > spare(most))) most = m;
    }
    return most ? oldest(r, most, true) : NULL;
}
struct room_item *room_of_oldest_model(const struct room *r) {
    const struct room_model *of = NULL;
    for (size_t k = 0; k < r->models.n; k++) {
        const struct room_model *m = r->models.v[k];
        if (!of || m->newest->used < of->newest->used) of = m;
    }
    return of ? oldest(r, of, false) : NULL;
}
struct room_item *room_oldest(const struct room *r) {
    return oldest(r, NULL, false);
}
