// SPDX-License-Identifier: Apache-2.0
// module: the HLO graph. A module owns computations; a computation owns instructions in a list
// whose order is a valid execution order (operands before users; the verifier checks). Everything
// lives in the module's arena: instructions are unlinked, never freed. `users` has one entry per
// operand slot that uses the value (add(x, x) appears twice in x's users) and is kept by the
// functions here: never edit operand slots by hand.
#pragma once
#include "base/map.h"
#include "base/vec.h"
#include "compiler/ir/attrs.h"
#include "compiler/ir/literal.h"

enum hlo_op {
#define OP(e, ...) HLO_##e,
#include "compiler/ir/ops.def"
#undef OP
    HLO_OP_COUNT
};

// What an entry parameter is (D5, D14). Printed as frontend_attributes={hlod_param="weight:3"} and
// parsed back.
enum hlo_param_kind {
    PARAM_INPUT,  // given with each run
    PARAM_WEIGHT, // an initializer: given once, index into the weight manifest
    PARAM_BOUND,  // in main: result k of prepare
};

struct hlo_text_attr {
    struct str name, value;
}; // an attribute kept verbatim: sharding, backend_config, frontend_attributes, operand_precision,
   // ...

struct hlo_instr {
    enum hlo_op op;
    uint32_t id;      // unique in the module, never reused
    const char *name; // unique in the module, without '%'
    const struct shape *shape;
    struct hlo_instr **operands;
    int32_t n_operands, n_called;
    struct hlo_computation **called; // meaning per op: see ops.def
    const void *attr; // record of ops.def's attrs column, immutable, may be shared: HLO_ATTR(i,
                      // dot)->...; NULL only for record none
    struct literal *literal; // constants
    int64_t param_number;    // parameters
    enum hlo_param_kind param_kind;
    int64_t param_index;             // weights: manifest index; bound: result of prepare
    const char *op_type, *op_name;   // metadata: the source op ("Conv") and node name, or NULL
    VEC(struct hlo_text_attr) extra; // in the order of the text
    VEC(struct hlo_instr *) users;
    VEC(struct hlo_instr *) control_preds;
    int32_t n_awaiting; // places in control_preds of others that name it
    struct hlo_computation *parent;
    struct hlo_instr *prev, *next; // list order = execution order
    uint32_t mark;                 // scratch for the running pass; undefined at its start
    uint32_t place;                // the same: by hlo_number_list
    void *tmp;                     // the same
    uint32_t near;                 // where among `users` the last one was that went
};
#define HLO_ATTR(i, record) ((const struct hlo_attr_##record *)(i)->attr)

struct hlo_computation {
    const char *name;
    struct hlo_module *module;
    struct hlo_instr *first, *last;
    struct hlo_instr *root;
    VEC(struct hlo_instr *) params; // by number
    struct hlo_instr *fusion;       // the fusion instruction that owns this body, or NULL
    int32_t n_instrs;
    uint32_t mark;
    int64_t edits, swept; // of lists, operands and root; of these, before hlo_remove_dead came last
    int32_t n_callers;    // places in instructions that call it
    bool effect;          // hlo_has_effect of one of its instructions,
    int64_t effect_known; // if this is the module's `effects`
    struct hlo_computation *prev, *next; // callees before callers
};

// Where instructions come from: metadata's stack_frame_id indexes frames, from 1. Fields in the
// order of hlo_location_fields and hlo_frame_fields; ids index the other tables from 1.
struct hlo_place {
    int32_t v[6];
};
struct hlo_strings {
    struct str *v;
    size_t n, cap;
};
struct hlo_places {
    struct hlo_place *v;
    size_t n, cap;
};
struct hlo_source_map {
    struct hlo_strings files, functions;
    struct hlo_places locations, frames;
};
extern const char *const hlo_location_fields[6], *const hlo_frame_fields[2];

struct hlo_module {
    struct arena *arena; // owned
    const char *name;
    struct hlo_computation *first, *last, *entry;
    uint32_t next_id;
    struct smap names; // instruction and computation names in use
    VEC(struct hlo_text_attr)
    extra; // input_output_alias, is_scheduled, frontend_attributes, ... verbatim
    struct hlo_source_map source_map;
    // entry_computation_layout where it says something else than the entry's own shapes: a tuple of
    // the parameters' shapes and the result's, else NULL.
    const struct shape *entry_layout;
    int64_t max_bytes;     // budget for any single value, 0 = none
    int64_t effects;       // grows where `effect` of a computation may have changed, from 1
    int64_t effects_swept; // of these, when all computations were looked at last
};

// The shape and layout that the module has at its border for entry parameter k, or for the result
// (k = number of parameters).
const struct shape *hlo_entry_shape(const struct hlo_module *m, int k);

// Sets of a module's instructions: a bit an id, next_id of them.
static inline bool hlo_set_has(const uint64_t *set, const struct hlo_instr *i) {
    return set[i->id / 64] >> i->id % 64 & 1;
}
static inline void hlo_set_put(uint64_t *set, const struct hlo_instr *i) {
    set[i->id / 64] |= UINT64_C(1) << i->id % 64;
}

struct hlo_module *hlo_module_new(const char *name);
void hlo_module_free(struct hlo_module *m); // NULL is fine
struct hlo_module *hlo_module_clone(const struct hlo_module *m);
// Of m's entry, the instructions of the set `keep` (with each its operands), and what they
// call. The clone shares nothing with m; its entry has no root, and NULL for each parameter that is
// not kept.
struct hlo_module *hlo_module_clone_part(const struct hlo_module *m, const uint64_t *keep);

struct hlo_computation *hlo_computation_add(
    struct hlo_module *m,
    const char *name); // name made unique; appended (callees must be added before callers)
void hlo_computation_move_before(struct hlo_computation *c,
                                 struct hlo_computation *pos); // module order only
void hlo_computation_remove(struct hlo_computation *c);        // nothing may call it
// A deep copy in module m, which may be another module (called computations are cloned too, once
// each).
struct hlo_computation *hlo_computation_clone(struct hlo_module *m, const struct hlo_computation *c,
                                              const char *name);
struct hlo_instr *hlo_root(const struct hlo_computation *c);
// Of a reducer that is one operation on its two parameters: gives it.
bool hlo_reducer_op(const struct hlo_computation *c, enum hlo_op *out);
void hlo_set_root(struct hlo_computation *c, struct hlo_instr *i);

// Appends an instruction. `shape` may be NULL when the op's rule infers it without (it must be
// given for constant, parameter, reshape, broadcast, iota, convert, bitcast, bitcast-convert, rng*,
// custom-call, get-dimension-size and host ops). `attr` is copied (deeply) into the module. Runs
// the infer rule: INVALID_ARGUMENT when the operands, attributes or given shape do not fit.
status_t hlo_add_instr(struct hlo_computation *c, enum hlo_op op, const struct shape *shape,
                       struct hlo_instr *const *operands, int n_operands, const void *attr,
                       struct hlo_computation *const *called, int n_called,
                       struct hlo_instr **out) MUST_CHECK;
struct hlo_instr *hlo_add_param(struct hlo_computation *c, int64_t number,
                                const struct shape *shape, const char *name);
struct hlo_instr *
hlo_add_constant(struct hlo_computation *c,
                 struct literal *lit); // literal borrowed: must live as long as the module's arena
// A copy of i in computation c (operands as given; NULL = the same), name derived and unique,
// metadata and extra kept, appended at the end.
struct hlo_instr *hlo_clone_instr(struct hlo_computation *c, const struct hlo_instr *i,
                                  struct hlo_instr *const *operands);
void hlo_move_before(struct hlo_instr *i, struct hlo_instr *pos); // list position only
void hlo_set_name(struct hlo_instr *i, const char *name);         // made unique with a suffix
void hlo_set_shape(struct hlo_instr *i, const struct shape *s);
void hlo_set_operand(struct hlo_instr *i, int k, struct hlo_instr *x);
void hlo_set_called(struct hlo_instr *i, int k, struct hlo_computation *c);
void hlo_replace_uses(struct hlo_instr *old,
                      struct hlo_instr *with); // all users (not control), and the root if it is old
// Is pred one of i's control predecessors?
bool hlo_awaits(const struct hlo_instr *i, const struct hlo_instr *pred);
void hlo_add_control_pred(struct hlo_instr *i, struct hlo_instr *pred);
void hlo_remove_control_pred(struct hlo_instr *i, size_t k);
// In control predecessors of c's instructions: `with` those that it has, an instruction of c or
// NULL (left out). Before they are removed, which has others wait for what they waited for.
void hlo_replace_control_preds(struct hlo_computation *c, const struct pmap *with);
// No users, not the root. What waits for it waits for its operands and control predecessors then.
void hlo_remove_instr(struct hlo_instr *i);
// The computation that a fusion calls, and those of loops in it, are the fusion's: passes over
// computations leave them alone.
void hlo_mark_fused(struct hlo_instr *fusion);
int hlo_remove_dead(struct hlo_computation *c); // pure instructions without users; returns how many
// What i needs before it runs: operands, then control predecessors.
static inline size_t hlo_needs(const struct hlo_instr *i) {
    return (size_t)i->n_operands + i->control_preds.n;
}
static inline struct hlo_instr *hlo_need(const struct hlo_instr *i, size_t k) {
    size_t n = (size_t)i->n_operands;
    return k < n ? i->operands[k] : i->control_preds.v[k - n];
}
// Is `on` i, or reachable through what instructions need?
bool hlo_depends_on(const struct hlo_instr *i, const struct hlo_instr *on);
void hlo_number_list(struct hlo_computation *c); // `place` of each: how many stand before it
// The same answer where the places of all that stands between the two are right: a walk over these
// alone.
bool hlo_depends_on_by_place(const struct hlo_instr *i, const struct hlo_instr *on);
// Restores list order (operands first) after edits; stable for what was in order. INTERNAL on a
// cycle.
status_t hlo_sort_instrs(struct hlo_computation *c) MUST_CHECK;
void hlo_sort_extra(struct hlo_text_attr *v, size_t n); // by name: the order of `extra`
const char *hlo_extra(const struct hlo_instr *i, const char *name, size_t *out_n); // NULL if none
void hlo_set_extra(struct hlo_instr *i, const char *name, const char *value);      // copies
// Text of a module's own attribute, {NULL, 0} if it has none; value {NULL, 0} takes it away.
// Copied.
struct str hlo_module_extra(const struct hlo_module *m, const char *name);
void hlo_set_module_extra(struct hlo_module *m, const char *name, struct str value);
// Which parameters of the entry lend their memory to results: attributes that name them by number.
extern const char *const hlo_donor_attrs[2];
void hlo_drop_donors(struct hlo_module *m);
// Renumbers them: `now` gives the parameter that has the array at *path ("1,0") of what was
// parameter `old`, and may change *path; -1 leaves the entry away, as what is no such list is: to
// lend memory is never a must.
typedef int64_t (*hlo_renumber_fn)(void *ctx, int64_t old, struct str *path);
void hlo_renumber_donors(struct hlo_module *m, hlo_renumber_fn now, void *ctx);
// One entry of the module's frontend_attributes={key="value",...}. The value must hold no quote and
// no backslash; copied. hlo_frontend: false when there is none.
void hlo_set_frontend(struct hlo_module *m, const char *key, struct str value);
bool hlo_frontend(const struct hlo_module *m, const char *key, struct str *out);
// The same of an instruction's frontend_attributes.
bool hlo_frontend_of(const struct hlo_instr *i, const char *key, struct str *out);

#define HLO_EACH_INSTR(i, c)                                                                       \
    for (struct hlo_instr *i = (c)->first, *i##_next = i ? i->next : NULL; i;                      \
         i = i##_next, i##_next = i ? i->next : NULL) /* i may be removed */
#define HLO_EACH_COMPUTATION(c, m) for (struct hlo_computation *c = (m)->first; c; c = c->next)

// Counts as Fischer & Saba's figure 3: entry = instructions of the entry computation; total = over
// all computations. Parameters, constants and tuples count.
struct hlo_counts {
    int64_t entry, total, fusions, computations;
};
struct hlo_counts hlo_count(const struct hlo_module *m);
int64_t hlo_total(const struct hlo_module *m); // its instructions, without looking at them
