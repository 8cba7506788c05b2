// SPDX-License-Identifier: Apache-2.0
// worker_room: which executable goes when what is resident is too much (docs/decisions/0071). The
// executables of one program, one for each shape of its inputs, count together: what a model keeps
// beside the shape that it used last is *spare*, and of that, whoever keeps most lets go first. So
// a model whose inputs grow pushes out its own shapes, not other models. Pure. Thread: one.
#pragma once
#include "base/hash.h"
#include "base/map.h"
#include "base/vec.h"

struct room_model;
struct room_item { // the first member of what is kept
    struct digest key;
    struct room_model *model;
    size_t at;     // its place among all
    int64_t bytes; // that are free once it goes, or another of its model counts them from then on
    int64_t needs; // of them, and of what others of its model count: all that it reads
    uint64_t used; // tick of the last call
    bool pinned;   // in use by the present call
};
struct room_model {
    struct digest program;
    int64_t bytes, n;         // of its items; how many they are
    struct room_item *newest; // used last
};
struct room { // zero-initialise
    struct smap by_key;
    VEC(struct room_item *) items;
    VEC(struct room_model *) models;
    uint64_t tick;
};
void room_done(struct room *r); // of an empty one
// i: key set. program zero: not known, it is a model of its own.
void room_add(struct room *r, struct room_item *i, struct digest program);
void room_del(struct room *r, struct room_item *i);
struct room_item *room_find(const struct room *r, struct digest key); // or NULL
void room_use(struct room *r, struct room_item *i);
void room_weigh(struct room_item *i, int64_t bytes, int64_t needs);
int64_t room_spare(const struct room *r); // of all models together
// The next to go, or NULL: of what is spare; of the model used longest ago; or of all, whatever was
// used longest ago. Never one that is pinned.
struct room_item *room_oldest_spare(const struct room *r);
struct room_item *room_of_oldest_model(const struct room *r);
struct room_item *room_oldest(const struct room *r);
