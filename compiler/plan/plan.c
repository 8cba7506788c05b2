// SPDX-License-Identifier: Apache-2.0
// Planning in three walks: (1) every instruction gets slices, by aliasing where it needs no step,
// and every buffer its first and last step; (2) a result takes over the buffer of an operand that
// ends there, where in_place.c allows it; (3) offsets: largest first, at the lowest offset that is
// free during the buffer's life.
#include "compiler/plan/plan.h"

#include <stdlib.h>

#include "compiler/ir/op.h"
#include "compiler/ir/work.h"
#include "compiler/plan/in_place.h"
#include "compiler/plan/loops.h"
#include "compiler/plan/room.h"

enum { ALIGN = 64 };

struct buffer {
    int64_t size, offset;
    int birth, death;
    struct buffer *into; // lies in this one, or NULL
    int param;           // lies in this parameter leaf; -1 = in the arena
    int out;             // the result of step `birth` that it was made for; -1 = scratch
    int read_by, reads;  // a step, and how many of its operands lie in it (count_reads)
    int result;          // 1 + the root leaf that lies in it; 0 = none
};
struct planner {
    struct arena *a;
    struct plan *p;
    struct pmap values; // instruction -> struct plan_value *
    int *param_leaf;    // [parameters] leaves before each
    VEC(struct buffer *) buffers;
    VEC(struct plan_step) steps;
    VEC(const struct literal *) consts;
    int32_t *over; // parameter leaf that root leaf k may be written over, -1 = none; of a loop's
                   // body its own, for its parameters are the state; NULL = none for all
    bool entry;
};
enum plan_role { ROLE_ENTRY, ROLE_CALLED, ROLE_LOOP_BODY };
static status_t plan_computation(struct arena *a, const struct hlo_computation *c,
                                 enum plan_role role, struct plan **out);

// Slices in the arena refer to their buffer by index until offsets are known.
static struct slice new_buffer(struct planner *pl, int64_t size) {
    struct buffer *b = arena_new_of(pl->a, struct buffer);
    b->size = (size + ALIGN - 1) / ALIGN * ALIGN;
    b->birth = (int)pl->steps.n;
    b->death = b->birth;
    b->param = b->out = b->read_by = -1;
    avec_push(pl->a, &pl->buffers, b);
    return (struct slice){SLICE_ARENA, (int32_t)pl->buffers.n - 1, 0, size, 0};
}
static void use(struct planner *pl, struct slice s) {
    if (s.where == SLICE_ARENA) pl->buffers.v[s.index]->death = (int)pl->steps.n;
}
static struct plan_value *value_of(struct planner *pl, const struct hlo_instr *i) {
    return pmap_get_ptr(&pl->values, i);
}

static struct plan_value *set_value(struct planner *pl, const struct hlo_instr *i,
                                    struct slice *leaves) {
    struct plan_value *v = arena_new_of(pl->a, struct plan_value);
    *v = (struct plan_value){i, leaves, shape_leaves(i->shape)};
    pmap_put_ptr(&pl->values, i, v);
    return v;
}

// Operations whose result is their first operand's bytes: some always, a bitcast-convert in the
// operand's layout, a reshape or copy between default layouts.
static bool same_bytes(const struct hlo_instr *i) {
    const struct shape *s = i->operands[0]->shape;
    switch (i->op) {
    case HLO_BITCAST:
    case HLO_OPT_BARRIER:
    case HLO_ADD_DEPENDENCY:
    case HLO_DOMAIN:
        return true;
    case HLO_COPY:
        if (shape_is_tuple(i->shape)) return true;
        break;
    case HLO_BITCAST_CONVERT:
        if (i->shape->dtype != s->dtype && !dtype_same_codes(i->shape->dtype, s->dtype))
            return false;
        if (shape_same_dims(i->shape, s) && layout_equal(i->shape->layout, s->layout, s->rank))
            return true;
        break;
    case HLO_RESHAPE:
        break;
    default:
        return false;
    }
    return layout_is_default(i->shape->layout, i->shape->rank) &&
           layout_is_default(s->layout, s->rank);
}

static bool alias(struct planner *pl, const struct hlo_instr *i) {
    struct slice *s;
    switch (i->op) {
    case HLO_PARAMETER:
        set_value(pl, i, pl->p->params + pl->param_leaf[i->param_number]);
        return true;
    case HLO_CONSTANT:
        if (shape_is_tuple(i->shape)) return false;
        s = arena_new_of(pl->a, struct slice);
        *s = (struct slice){SLICE_CONST, (int32_t)pl->consts.n, 0, shape_bytes(i->shape), 0};
        avec_push(pl->a, &pl->consts, i->literal);
        set_value(pl, i, s);
        return true;
    case HLO_TUPLE: {
        int n = 0;
        s = arena_zarray(pl->a, struct slice, shape_leaves(i->shape) + 1);
        for (int k = 0; k < i->n_operands; k++) {
            struct plan_value *v = value_of(pl, i->operands[k]);
            for (int e = 0; e < v->n_leaves; e++)
                s[n++] = v->leaves[e];
        }
        set_value(pl, i, s);
        return true;
    }
    case HLO_GET_TUPLE_ELEMENT:
        set_value(pl, i,
                  value_of(pl, i->operands[0])->leaves +
                      shape_first_leaf(i->operands[0]->shape, (int)HLO_ATTR(i, gte)->index));
        return true;
    case HLO_AFTER_ALL:
        set_value(pl, i, arena_zarray(pl->a, struct slice, 1));
        return true;
    default:
        break;
    }

    if (i->n_operands >= 1 && same_bytes(i)) {
        set_value(pl, i, value_of(pl, i->operands[0])->leaves);
        return true;
    }
    return false;
}

static bool runs_as_steps(enum hlo_op op) {
    return op == HLO_WHILE || op == HLO_CONDITIONAL || op == HLO_CALL;
}

static status_t plan_called(struct planner *pl, struct plan_step *s) {
    const struct hlo_instr *i = s->instr;
    s->called = arena_array(pl->a, struct plan *, i->n_called + 1);
    for (int k = 0; k < i->n_called; k++) {
        enum plan_role role = i->op == HLO_WHILE && k == 1 ? ROLE_LOOP_BODY : ROLE_CALLED;
        RETURN_IF_ERR(plan_computation(pl->a, i->called[k], role, &s->called[k]));
        pl->p->values_bytes += s->called[k]->values_bytes;
        pl->p->n_in_place += s->called[k]->n_in_place;
        if (s->called[k]->arena_bytes > s->scratch_bytes)
            s->scratch_bytes = s->called[k]->arena_bytes;
    }
    if (s->scratch_bytes) {
        struct slice scratch = new_buffer(pl, s->scratch_bytes);
        s->scratch_offset = scratch.index; // until offsets are known
    }
    return ST_OK;
}

static status_t add_step(struct planner *pl, const struct hlo_instr *i) {
    struct plan_step s = {.instr = i, .kernel = -1, .n_out = shape_leaves(i->shape)};
    for (int k = 0; k < i->n_operands; k++)
        s.n_in += value_of(pl, i->operands[k])->n_leaves;
    s.in = arena_zarray(pl->a, struct slice, s.n_in + 1);
    s.out = arena_zarray(pl->a, struct slice, s.n_out + 1);
    int n = 0;
    for (int k = 0; k < i->n_operands; k++) {
        struct plan_value *v = value_of(pl, i->operands[k]);
        for (int e = 0; e < v->n_leaves; e++)
            s.in[n++] = v->leaves[e];
    }
    if (runs_as_steps(i->op)) RETURN_IF_ERR(plan_called(pl, &s));

    for (int k = 0; k < s.n_out; k++) {
        int64_t bytes = shape_bytes(shape_leaf(i->shape, k));
        if (i->op == HLO_WHILE && plan_unchanged(s.called[1], k)) {
            s.out[k] = s.in[k]; // no copy, and weights that a loop carries are known as weights
            continue;
        }
        s.out[k] = new_buffer(pl, bytes);
        pl->buffers.v[pl->buffers.n - 1]->out = k;
        pl->p->values_bytes += bytes;
    }
    for (int k = 0; k < s.n_in; k++)
        use(pl, s.in[k]);
    for (int k = 0; k < s.n_out; k++)
        use(pl, s.out[k]);
    avec_push(pl->a, &pl->steps, s);
    set_value(pl, i, s.out);
    return ST_OK;
}

// ---- in place

static struct buffer *buffer_of(const struct planner *pl, const struct slice *s) {
    struct buffer *b = pl->buffers.v[s->index];
    while (b->into)
        b = b->into;
    return b;
}
// May result o of step k lie in what its operands e with same[e] hold? All of them must allow it.
static bool all_may_share(const struct plan_step *s, const bool *same, int o) {
    for (int e = 0; e < s->n_in; e++)
        if (same[e] && !plan_may_share(s->instr, e, o)) return false;
    return true;
}
// The first of the steps that may run at the same time as step k.
static int first_beside(const struct planner *pl, int k) {
    while (k > 0 && pl->steps.v[k - 1].beside)
        k--;
    return k;
}
// Does another of them read b too?
static bool read_beside(const struct planner *pl, int k, const struct buffer *b) {
    for (int j = first_beside(pl, k); j <= k + pl->steps.v[k].beside; j++)
        for (int e = 0; j != k && e < pl->steps.v[j].n_in; e++) {
            const struct slice *in = &pl->steps.v[j].in[e];
            if (in->where == SLICE_ARENA && buffer_of(pl, in) == b) return true;
        }
    return false;
}
static void count_reads(struct planner *pl, int k) {
    const struct plan_step *s = &pl->steps.v[k];
    for (int e = 0; e < s->n_in; e++) {
        if (s->in[e].where != SLICE_ARENA) continue;
        struct buffer *b = buffer_of(pl, &s->in[e]);
        if (b->read_by != k) b->read_by = k, b->reads = 0;
        b->reads++;
    }
}
static void take_over(struct planner *pl, int k, int o, bool *same) {
    struct plan_step *s = &pl->steps.v[k];
    struct buffer *mine = pl->buffers.v[s->out[o].index];
    bool loop = s->instr->op == HLO_WHILE;            // result o lies in operand o, or in none
    if (mine->birth != k || mine->param >= 0) return; // what a loop leaves as it is
    for (int e = loop ? o : 0; e < (loop ? o + 1 : s->n_in); e++) {
        if (s->in[e].where != SLICE_ARENA) continue;
        struct buffer *b = buffer_of(pl, &s->in[e]);
        if (b->death != k || b->birth == k || b->size != mine->size || read_beside(pl, k, b))
            continue;
        for (int j = 0; j < s->n_in && !loop; j++)
            same[j] = s->in[j].where == SLICE_ARENA && buffer_of(pl, &s->in[j]) == b;
        if (loop ? b->reads != 1 : !all_may_share(s, same, o)) continue;
        b->death = mine->death;
        mine->into = b;
        pl->p->n_in_place++;
        return;
    }
}

// Which steps read each parameter leaf last.
struct readers {
    int *last, *other; // [leaves] the last step; the last one that is another. -1: none
    bool *given;       // [leaves] a result is the leaf itself
};
static struct readers find_readers(struct planner *pl, const struct plan_value *root) {
    size_t n = (size_t)pl->p->n_params;
    struct readers r = {arena_array(pl->a, int, n + 1), arena_array(pl->a, int, n + 1),
                        arena_zarray(pl->a, bool, n + 1)};
    for (size_t k = 0; k < n; k++)
        r.last[k] = r.other[k] = -1;
    for (int j = 0; j < (int)pl->steps.n; j++)
        for (int e = 0; e < pl->steps.v[j].n_in; e++) {
            const struct slice *in = &pl->steps.v[j].in[e];
            if (in->where != SLICE_PARAM || r.last[in->index] == j) continue;
            r.other[in->index] = r.last[in->index];
            r.last[in->index] = j;
        }
    for (int e = 0; e < root->n_leaves; e++)
        if (root->leaves[e].where == SLICE_PARAM) r.given[root->leaves[e].index] = true;
    return r;
}
// A result that starts at step k: may it be written into parameter `leaf`? Nothing may need the old
// value after that step.
static bool param_ends_at(const struct planner *pl, const struct readers *r, int leaf, int k) {
    int last = r->last[leaf] == k ? r->other[leaf] : r->last[leaf];
    return !r->given[leaf] && last < first_beside(pl, k);
}
// Result leaf k into the parameter that it may lie in, from the first step of those that hand its
// buffer on.
static bool write_param(struct planner *pl, const struct plan_value *root, const struct readers *r,
                        int k, bool *same) {
    int leaf = pl->over[k];
    if (leaf < 0 || root->leaves[k].where != SLICE_ARENA ||
        root->leaves[k].size_bytes != pl->p->params[leaf].size_bytes)
        return false;
    struct buffer *b = buffer_of(pl, &root->leaves[k]);
    if (b->param >= 0) return b->param == leaf;
    if (b->birth >= (int)pl->steps.n || b->out < 0) return false;
    struct plan_step *s = &pl->steps.v[b->birth];
    bool any = false;
    if (!param_ends_at(pl, r, leaf, b->birth)) return false;
    for (int e = 0; e < s->n_in; e++) {
        same[e] = s->in[e].where == SLICE_PARAM && s->in[e].index == leaf;
        any |= same[e];
    }
    if (!any || !all_may_share(s, same, b->out)) return false;
    b->param = leaf;
    pl->p->n_in_place++;
    return true;
}
static void share_buffers(struct planner *pl, const struct plan_value *root) {
    int most = 1;
    for (size_t k = 0; k < pl->steps.n; k++)
        if (pl->steps.v[k].n_in > most) most = pl->steps.v[k].n_in;
    bool *same = arena_zarray(pl->a, bool, most);
    struct readers r = {NULL, NULL, NULL};
    if (pl->over) r = find_readers(pl, root);
    // A step that makes a new value of a parameter writes it there, rather than over what it adds.
    for (int k = 0; pl->over && k < root->n_leaves; k++)
        write_param(pl, root, &r, k, same);
    for (size_t k = 0; k < pl->steps.n; k++) {
        const struct hlo_instr *i = pl->steps.v[k].instr;
        if (shape_is_tuple(i->shape) && i->op != HLO_WHILE && i->op != HLO_FUSION)
            continue; // plan_may_share nothing: a call's or a sort's many leaves are not compared
        if (i->op == HLO_WHILE) count_reads(pl, (int)k);
        for (int o = 0; o < pl->steps.v[k].n_out; o++)
            if (pl->steps.v[k].out[o].where == SLICE_ARENA && pl->steps.v[k].out[o].size_bytes)
                take_over(pl, (int)k, o, same);
    }
    for (int k = 0; pl->over && k < root->n_leaves; k++)
        if (!write_param(pl, root, &r, k, same)) pl->over[k] = -1;
    if (pl->entry) pl->p->over = pl->over;
}

// What lives during one of the steps that may run at the same time lives during all of them.
static void widen(struct planner *pl) {
    for (size_t k = 0; k < pl->buffers.n; k++) {
        struct buffer *b = pl->buffers.v[k];
        int n = (int)pl->steps.n;
        if (b->birth < n) b->birth = first_beside(pl, b->birth);
        if (b->death < n) b->death += pl->steps.v[b->death].beside;
    }
}

static int by_size(const void *a, const void *b) {
    const struct buffer *x = *(struct buffer *const *)a, *y = *(struct buffer *const *)b;
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return x->birth != y->birth ? x->birth - y->birth : 0;
}

// Largest first, each at the lowest offset where no buffer alive at the same time lies.
static void place(struct planner *pl) {
    size_t n = pl->buffers.n;
    struct buffer **order = arena_dup(pl->a, pl->buffers.v, sizeof *order * n);
    int64_t end = 0;
    struct arena *scratch = arena_new();
    struct room *r = room_new(scratch, (int)pl->steps.n + 1); // results live to the end
    if (n) qsort(order, n, sizeof *order, by_size);
    for (size_t k = 0; k < n; k++) {
        struct buffer *b = order[k];
        if (b->into || b->param >= 0) continue;
        b->offset = room_take(r, b->birth, b->death, b->size);
        if (b->offset + b->size > end) end = b->offset + b->size;
    }
    pl->p->arena_bytes = end;
    arena_free(scratch);
}

static void resolve(struct planner *pl, struct slice *s) {
    if (s->where != SLICE_ARENA) return;
    const struct buffer *b = buffer_of(pl, s);
    if (b->param >= 0)
        *s = (struct slice){SLICE_PARAM, b->param, 0, s->size_bytes, 0};
    else
        s->offset = b->offset, s->result = b->result;
}

static status_t plan_body(struct planner *pl) {
    struct plan *p = pl->p;
    struct plan_order order = plan_order(pl->a, p->comp, pl->over);
    for (int k = 0; k < order.n; k++) {
        if (alias(pl, order.v[k])) continue;
        RETURN_IF_ERR(add_step(pl, order.v[k]));
        pl->steps.v[pl->steps.n - 1].beside = order.beside[k];
    }
    struct plan_value *root = value_of(pl, p->comp->root);
    for (int k = 0; k < root->n_leaves; k++)
        use(pl, root->leaves[k]); // results live to the end
    p->kept = arena_zarray(pl->a, bool, root->n_leaves + 1);
    for (int k = 0; k < root->n_leaves; k++)
        p->kept[k] = root->leaves[k].where == SLICE_PARAM && root->leaves[k].index == k;

    share_buffers(pl, root);
    for (int k = 0; k < root->n_leaves && pl->entry; k++) {
        struct slice *s = &root->leaves[k];
        if (s->where != SLICE_ARENA || !s->size_bytes) continue;
        struct buffer *b = buffer_of(pl, s);
        if (!b->result) b->result = k + 1;
    }

    widen(pl);
    place(pl);

    for (size_t k = 0; k < pl->steps.n; k++) {
        struct plan_step *s = &pl->steps.v[k];
        for (int e = 0; e < s->n_in; e++)
            resolve(pl, &s->in[e]);
        for (int e = 0; e < s->n_out; e++)
            resolve(pl, &s->out[e]);
        if (s->scratch_bytes) s->scratch_offset = pl->buffers.v[s->scratch_offset]->offset;
    }

    p->n_root = root->n_leaves;
    p->root = arena_dup(pl->a, root->leaves, sizeof *root->leaves * (size_t)root->n_leaves);
    for (int k = 0; k < p->n_root; k++)
        resolve(pl, &p->root[k]);
    p->steps = pl->steps.v;
    p->n_steps = (int32_t)pl->steps.n;
    p->consts = pl->consts.v;
    p->n_consts = (int32_t)pl->consts.n;
    return ST_OK;
}

static status_t plan_computation(struct arena *a, const struct hlo_computation *entry,
                                 enum plan_role role, struct plan **out) {
    struct plan *p = arena_new_of(a, struct plan);
    struct planner pl = {.a = a, .p = p, .entry = role == ROLE_ENTRY};
    p->comp = entry;
    pl.param_leaf = arena_array(a, int, entry->params.n + 1);
    for (size_t k = 0; k < entry->params.n; k++) {
        pl.param_leaf[k] = p->n_params;
        p->n_params += shape_leaves(entry->params.v[k]->shape);
    }
    p->params = arena_zarray(a, struct slice, p->n_params + 1);
    for (size_t k = 0, n = 0; k < entry->params.n; k++)
        for (int e = 0; e < shape_leaves(entry->params.v[k]->shape); e++, n++)
            p->params[n] = (struct slice){SLICE_PARAM, (int32_t)n, 0,
                                          shape_bytes(shape_leaf(entry->params.v[k]->shape, e)), 0};
    if (role == ROLE_ENTRY) pl.over = plan_donated(a, entry);
    if (role == ROLE_LOOP_BODY) {
        pl.over = arena_array(a, int32_t, p->n_params + 1);
        for (int32_t k = 0; k < p->n_params; k++)
            pl.over[k] = k;
    }
    status_t st = plan_body(&pl);
    pmap_done(&pl.values);
    if (!st) *out = p;
    return st;
}

status_t plan_make(struct arena *a, const struct hlo_computation *entry, struct plan **out) {
    int64_t most = hlo_total(entry->module) + PLAN_MAX_REPEATED;
    if (hlo_expanded(entry->module, true) > most)
        return st_exhausted("module '%s': its computations, each again wherever it is called, have "
                            "more than %lld instructions",
                            entry->module->name, (long long)most);
    if (hlo_nesting(entry->module, true) > HLO_MOST_NESTED)
        return st_exhausted("module '%s': calls nest deeper than %d", entry->module->name,
                            HLO_MOST_NESTED);
    return plan_computation(a, entry, ROLE_ENTRY, out);
}

int64_t plan_step_bytes(const struct plan_step *s) {
    int64_t n = 0;
    for (int k = 0; k < s->n_in; k++)
        n += s->in[k].size_bytes;
    for (int k = 0; k < s->n_out; k++)
        n += s->out[k].size_bytes;
    return n;
}
int plan_branch_leaf(const struct plan_step *s, int b) {
    int n = 1;
    for (int k = 0; k < b; k++)
        n += shape_leaves(s->instr->operands[k + 1]->shape);
    return n;
}
bool plan_moves(const struct plan *body, int leaf) {
    return body->root[leaf].where == SLICE_PARAM && body->root[leaf].index != leaf;
}
bool plan_unchanged(const struct plan *body, int leaf) {
    return body->kept[leaf];
}

static void print_slice(struct strbuf *b, const struct slice *s) {
    static const char *const where[] = {"none", "param", "const", "arena", "output"};
    if (s->where == SLICE_ARENA)
        strbuf_printf(b, "arena[%lld+%lld]", (long long)s->offset, (long long)s->size_bytes);
    else
        strbuf_printf(b, "%s %d", where[s->where], s->index);
}
// alone: without names and without the plans that it calls.
static void print_plan(struct strbuf *b, const struct plan *p, int depth, bool alone) {
    strbuf_printf(b, "%*splan %s: %d steps, %d in place, arena %lld bytes, values %lld bytes\n",
                  depth * 2, "", alone ? "" : p->comp->name, p->n_steps, p->n_in_place,
                  (long long)p->arena_bytes, (long long)p->values_bytes);
    for (int k = 0; k < p->n_steps; k++) {
        const struct plan_step *s = &p->steps[k];
        strbuf_printf(b, "%*s%4d  %s %s (", depth * 2, "", k, hlo_op_name(s->instr->op),
                      alone ? "" : s->instr->name);
        for (int e = 0; e < s->n_in; e++)
            strbuf_puts(b, e ? ", " : ""), print_slice(b, &s->in[e]);
        strbuf_puts(b, ") -> ");
        for (int e = 0; e < s->n_out; e++)
            strbuf_puts(b, e ? ", " : ""), print_slice(b, &s->out[e]);
        if (s->beside) strbuf_printf(b, " beside the next %d", s->beside);
        strbuf_putc(b, '\n');
        for (int e = 0; !alone && s->called && e < s->instr->n_called; e++)
            print_plan(b, s->called[e], depth + 1, false);
    }
    strbuf_printf(b, "%*sroot ", depth * 2, "");
    for (int e = 0; e < p->n_root; e++)
        strbuf_puts(b, e ? ", " : ""), print_slice(b, &p->root[e]),
            strbuf_puts(b, p->root[e].result == e + 1 ? " or apart" : "");
    strbuf_putc(b, '\n');
}
void plan_print(struct strbuf *b, const struct plan *p) {
    print_plan(b, p, 0, false);
}
void plan_print_alone(struct strbuf *b, const struct plan *p) {
    print_plan(b, p, 0, true);
}
