// SPDX-License-Identifier: Apache-2.0
// models: names for uploaded models: (tenant, name, version) -> source digest, whether it is
// loaded, and what was asked of it. Kept in the journal, so that a restart knows them; in memory
// while the daemon runs. A version never changes what it names: another model is another version,
// or replaces it whole. Thread: loop.
#pragma once
#include "base/arena.h"
#include "base/hash.h"
#include "base/status.h"
#include "proto/journal.pb-c.h"
#include "scheduler/job/batching.h"

struct sched;
struct models;
struct model_times { // nanoseconds, and how often
    uint64_t n, ns;
};
struct model_labels {    // names of an output's classes
    char *output, *text; // text: a line each
};
struct named_model {
    struct named_model *next;  // by name, then newest version first
    struct named_model *older; // of the same tenant's name
    char *tenant, *name;
    int64_t version;
    struct digest source;
    int64_t revision; // as a cluster's nodes compare them (journal.proto)
    char writer[64];
    uint64_t mark; // in the sum over all
    bool loaded;
    const char *reason; // why not; a literal
    struct batching batching;
    struct model_labels *labels;
    size_t n_labels;
    struct model_times success, fail, queue, infer;
    uint64_t inferences, executions, last_ms; // rows; runs on a device; wall clock of the last
    struct {
        struct model_batches { // by size
            int64_t rows;
            struct model_times infer;
        } *v;
        size_t n, cap;
    } batches;
    int64_t prepared_bytes; // its weights on a device, when it last ran
    char device[16];        // kind of that device: "cpu"
};
status_t models_new(struct sched *s, struct models **out) MUST_CHECK; // reads the journal: blocks
bool models_saving(const struct models *m); // changes are on their way to the journal
// Right after changes, in the same turn of the loop: fn(ctx, st) once they are in the journal, or
// st (taken) says why one of them is not: then it holds until the daemon ends, and no longer.
// False: nothing was changed, fn is not called.
typedef void (*models_saved_fn)(void *ctx, status_t st);
bool models_when_saved(struct models *m, models_saved_fn fn, void *ctx) MUST_CHECK;
void models_free(struct models *m); // NULL is fine; when none are, or they are lost
struct named_model *models_first(struct models *m);
// version "" = the newest that is loaded, or the newest. NULL if there is none.
// tenant NULL = of any.
#define MODELS_DEFAULT "default" // whose names are where callers have no tenant
bool models_of(const struct named_model *x, const char *tenant);
struct named_model *models_find(struct models *m, const char *tenant, const char *name,
                                const char *version);
// Adds or replaces; version 0 = one after the newest, or 1. INVALID_ARGUMENT for a bad name;
// RESOURCE_EXHAUSTED where the tenant has as many as are left for all.
status_t models_set(struct models *m, const char *tenant, const char *name, int64_t version,
                    struct digest source, struct batching batching,
                    struct named_model **out) MUST_CHECK;
// What the classes of its outputs are called; copied. models_set forgets them.
void models_set_labels(struct models *m, struct named_model *x, const struct model_labels *v,
                       size_t n);
// A batch of so many rows was run in so long; no such model is fine.
void models_count_batch(struct models *m, const char *tenant, const char *name, int64_t version,
                        int64_t rows, uint64_t ns);
void models_load(struct models *m, struct named_model *x, bool loaded);
void models_join(struct models *m, struct named_model *x, struct batching b); // its runs
void models_remove(struct models *m, struct named_model *x);

// ---- names that the other nodes of a cluster have too (scheduler/cluster/names.h)
//
// What is kept under a tenant's name and version has a revision and a writer; of two the one with
// the higher revision holds, of equal ones that of the later writer's name. So the same records,
// in whatever order they come and however often, leave the same on all nodes. What was removed is
// remembered for MODELS_GONE_DAYS: a node that was away for longer brings it back.
enum { MODELS_GONE_DAYS = 7, MODELS_GONE_MAX = 16384 };
bool models_name_fits(const char *name);
// From now on changes are made as `writer`, and told: the record, borrowed. What is here without a
// writer becomes this one's. Texts outlive the models.
typedef void (*models_told_fn)(void *ctx, const Hlod__Journal__NamedModel *record);
void models_share(struct models *m, const char *writer, models_told_fn told, void *ctx);
enum models_merged {
    MODELS_OLD, // what is here holds
    MODELS_TAKEN,
    MODELS_FULL, // no room (max_names)
};
// One that another node wrote; its fields are checked (names_fault).
enum models_merged models_merge(struct models *m, const Hlod__Journal__NamedModel *record);
uint64_t models_sum(const struct models *m, size_t *out_n); // over what is named, not what was
// All that is known, removed ones too: from the start; then so many more at a time, until false.
void models_walk(struct models *m);
bool models_walk_on(struct models *m, int most, models_told_fn fn, void *ctx);
// A name of the tenant's (NULL: of any) that stands for this model; NULL: there is none.
const struct named_model *models_naming(const struct models *m, const char *tenant,
                                        struct digest source);
