// SPDX-License-Identifier: Apache-2.0
// The graph: making, linking, cloning and removing. Every edit of operand slots goes through
// link_operand and unlink_operand, so `users` is always exact.
#include "compiler/ir/module.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/ir/op.h"

struct hlo_module *hlo_module_new(const char *name) {
    struct arena *a = arena_new();
    struct hlo_module *m = arena_new_of(a, struct hlo_module);
    m->arena = a;
    m->name = arena_strdup(a, name);
    m->names.borrows = true;
    m->effects = 1;
    return m;
}
void hlo_module_free(struct hlo_module *m) {
    if (!m) return;
    struct arena *a = m->arena;
    smap_done(&m->names);
    arena_free(a);
}

// Element types, those too that have no row here: XLA's parser refuses them as names.
static bool is_type(struct str name) {
    static const char *const more[] = {"s1", "s2", "u1", "u2", "f4e2m1fn", "f8e8m0fnu"};
    bool known = dtype_from_name(name) != DT_INVALID && !str_is(name, "tuple");
    for (size_t k = 0; k < sizeof more / sizeof more[0]; k++)
        known |= str_is(name, more[k]);
    return known;
}
// Source names may hold anything ("onnx::MatMul_7", "/layer/Add", "495"): HLO's may not. Letters,
// digits, '_', '.' and '-', a letter or '_' first, and no type.
static char *legal_name(struct arena *a, const char *given) {
    bool letter = (*given >= 'a' && *given <= 'z') || (*given >= 'A' && *given <= 'Z');
    const char *front = letter || *given == '_' ? "" : "_";
    size_t n = strlen(given), before = strlen(front);
    char *want = arena_alloc(a, n + 3);
    memcpy(want, front, before);
    memcpy(want + before, given, n + 1);
    if (is_type(str_of(given))) memcpy(want + before + n, "_", 2);
    for (char *p = want; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
              *p == '_' || *p == '.' || *p == '-'))
            *p = '_';
    return want;
}

// stem.k
static char *numbered(struct arena *a, struct str stem, uintptr_t k) {
    char digits[24], *at = digits + sizeof digits, *name;
    *--at = 0;
    for (; k; k /= 10)
        *--at = (char)('0' + k % 10);
    size_t n = (size_t)(digits + sizeof digits - at);
    name = arena_alloc(a, stem.n + 1 + n);
    memcpy(name, stem.p, stem.n);
    name[stem.n] = '.';
    memcpy(name + stem.n + 1, at, n);
    return name;
}
// Is `name`, in m's arena, free? Then it is taken; else *out_count, if it is a stem, says how far
// its numbers came.
static bool take_name(struct hlo_module *m, struct str name, uintptr_t *out_count) {
    size_t names = m->names.n;
    void *was = smap_put(&m->names, name, NULL); // one look-up where it is free, as it mostly is
    if (was) smap_put(&m->names, name, was);
    *out_count = (uintptr_t)was;
    return m->names.n > names;
}
// A name no instruction or computation of the module has yet: `want`, or its stem with the first
// free number. Trailing ".N" is part of the stem only if needed.
static const char *unique_name(struct hlo_module *m, const char *given) {
    // The map's value for a stem counts upwards, so that many equal names stay linear. What has
    // one is legal.
    struct str stem = str_of(given);
    const char *want = given;
    uintptr_t k = (uintptr_t)smap_get(&m->names, stem), of_name;
    if (!k) {
        want = legal_name(m->arena, given);
        stem = str_of(want);
        if (take_name(m, stem, &k)) return want;
    }
    size_t n = stem.n;
    while (n && want[n - 1] >= '0' && want[n - 1] <= '9')
        n--;
    if (n > 1 && n < stem.n && want[n - 1] == '.') {
        stem.n = n - 1;
        k = (uintptr_t)smap_get(&m->names, stem);
        if (!k) stem.p = arena_strndup(m->arena, stem.p, stem.n);
    }
    for (;;) {
        char *name = numbered(m->arena, stem, ++k);
        if (!take_name(m, str_of(name), &of_name)) continue;
        smap_put(&m->names, stem, (void *)k);
        return name;
    }
}

// ---- computations

struct hlo_computation *hlo_computation_add(struct hlo_module *m, const char *name) {
    struct hlo_computation *c = arena_new_of(m->arena, struct hlo_computation);
    c->module = m;
    c->name = unique_name(m, name);
    c->prev = m->last;
    if (m->last)
        m->last->next = c;
    else
        m->first = c;
    m->last = c;
    return c;
}
static void computation_unlink(struct hlo_computation *c) {
    struct hlo_module *m = c->module;
    *(c->prev ? &c->prev->next : &m->first) = c->next;
    *(c->next ? &c->next->prev : &m->last) = c->prev;
}
void hlo_computation_move_before(struct hlo_computation *c, struct hlo_computation *pos) {
    if (c == pos) return;
    computation_unlink(c);
    c->prev = pos->prev;
    c->next = pos;
    *(pos->prev ? &pos->prev->next : &c->module->first) = c;
    pos->prev = c;
}
void hlo_computation_remove(struct hlo_computation *c) {
    struct hlo_module *m = c->module;
    computation_unlink(c);
    for (const struct hlo_instr *i = c->first; i; i = i->next)
        for (int k = 0; k < i->n_called; k++)
            i->called[k]->n_callers--;
    if (m->entry == c) m->entry = NULL;
}
struct hlo_instr *hlo_root(const struct hlo_computation *c) {
    return c->root;
}
bool hlo_reducer_op(const struct hlo_computation *c, enum hlo_op *out) {
    const struct hlo_instr *r = c->root;
    if (c->params.n != 2 || r->n_operands != 2 || r->operands[0] == r->operands[1] ||
        r->operands[0]->op != HLO_PARAMETER || r->operands[1]->op != HLO_PARAMETER)
        return false;
    *out = r->op;
    return true;
}
void hlo_set_root(struct hlo_computation *c, struct hlo_instr *i) {
    c->root = i;
    c->edits++;
}

// ---- lists and links

static void list_append(struct hlo_computation *c, struct hlo_instr *i) {
    i->parent = c;
    i->next = NULL;
    i->prev = c->last;
    *(c->last ? &c->last->next : &c->first) = i;
    c->last = i;
    c->n_instrs++;
    c->edits++;
}
static void list_unlink(struct hlo_instr *i) {
    struct hlo_computation *c = i->parent;
    *(i->prev ? &i->prev->next : &c->first) = i->next;
    *(i->next ? &i->next->prev : &c->last) = i->prev;
    c->n_instrs--;
}
static void link_operand(struct hlo_instr *user, struct hlo_instr *x) {
    avec_push(user->parent->module->arena, &x->users, user);
    user->parent->edits++;
}
// A slot of `user` among x's users, which are alike: from both ends and from where the last one
// was, since passes take values apart from either, or one user after the other.
static size_t user_slot(struct hlo_instr *x, const struct hlo_instr *user) {
    size_t n = x->users.n, near = x->near < n ? x->near : 0;
    struct hlo_instr **v = x->users.v;
    for (size_t k = 0; k < n; k++) {
        size_t at = v[n - 1 - k] == user                  ? n - 1 - k
                    : v[k] == user                        ? k
                    : near + k < n && v[near + k] == user ? near + k
                    : k <= near && v[near - k] == user    ? near - k
                                                          : n;
        if (at == n) continue;
        x->near = (uint32_t)at;
        return at;
    }
    assert(!"operand without its user");
    return n;
}
static void unlink_operand(struct hlo_instr *user, struct hlo_instr *x) {
    size_t k = user_slot(x, user);
    if (k == x->users.n) return;
    memmove(&x->users.v[k], &x->users.v[k + 1], sizeof *x->users.v * (x->users.n - k - 1));
    x->users.n--;
    user->parent->edits++;
}

// ---- instructions

static struct hlo_instr *new_instr(struct hlo_computation *c, enum hlo_op op) {
    struct hlo_instr *i = arena_new_of(c->module->arena, struct hlo_instr);
    i->op = op;
    i->parent = c;
    i->id = c->module->next_id++;
    return i;
}
// Where c was known to have an effect, or to have none, i may change that: what calls c too.
static void effect_changes(struct hlo_computation *c, const struct hlo_instr *i, bool comes) {
    struct hlo_module *m = c->module;
    if (c->effect_known == m->effects && c->effect != comes && hlo_has_effect(i)) m->effects++;
}
static void append_with_operands(struct hlo_computation *c, struct hlo_instr *i) {
    list_append(c, i);
    for (int k = 0; k < i->n_operands; k++)
        link_operand(i, i->operands[k]);
    for (int k = 0; k < i->n_called; k++)
        i->called[k]->n_callers++;
    effect_changes(c, i, true);
}

status_t hlo_add_instr(struct hlo_computation *c, enum hlo_op op, const struct shape *shape,
                       struct hlo_instr *const *operands, int n_operands, const void *attr,
                       struct hlo_computation *const *called, int n_called,
                       struct hlo_instr **out) {
    struct arena *a = c->module->arena;
    const struct hlo_op_info *info = hlo_op_info(op);
    if (info->arity >= 0 && info->arity != n_operands)
        return st_invalid("%s takes %d operands, %d given", info->name, info->arity, n_operands);
    struct hlo_instr *i = new_instr(c, op);
    i->operands = n_operands ? arena_dup_array(a, operands, n_operands) : NULL;
    i->n_operands = n_operands;
    i->called = n_called ? arena_dup_array(a, called, n_called) : NULL;
    i->n_called = n_called;
    i->attr = attr_clone(a, info->attrs, attr);
    i->shape = shape;
    const struct shape *inferred = NULL;
    RETURN_IF_ERR(st_note(info->infer(a, i, &inferred), "%s", info->name));
    if (shape && !shape_compatible(shape, inferred))
        return st_invalid("%s: shape %s given, %s inferred", info->name, shape_text(a, shape),
                          shape_text(a, inferred));
    if (!shape) i->shape = inferred;
    RETURN_IF_ERR(st_note(shape_check(i->shape, c->module->max_bytes), "%s", info->name));
    i->name = unique_name(c->module, info->name);
    append_with_operands(c, i);
    *out = i;
    return ST_OK;
}

struct hlo_instr *hlo_add_param(struct hlo_computation *c, int64_t number,
                                const struct shape *shape, const char *name) {
    struct hlo_instr *i = new_instr(c, HLO_PARAMETER);
    i->shape = shape;
    i->param_number = number;
    i->attr = attr_clone(c->module->arena, ATTR_none, NULL);
    i->name = unique_name(c->module, name ? name : "param");
    list_append(c, i);
    while (c->params.n <= (size_t)number)
        avec_push(c->module->arena, &c->params, NULL);
    c->params.v[number] = i;
    return i;
}

struct hlo_instr *hlo_add_constant(struct hlo_computation *c, struct literal *lit) {
    struct hlo_instr *i = new_instr(c, HLO_CONSTANT);
    i->shape = lit->shape;
    i->literal = lit;
    i->attr = attr_clone(c->module->arena, ATTR_none, NULL);
    i->name = unique_name(c->module, "constant");
    list_append(c, i);
    return i;
}

static const char *dup_or_null(struct arena *a, const char *s) {
    return s ? arena_strdup(a, s) : NULL;
}
static struct str dup_str(struct arena *a, struct str s) {
    return (struct str){arena_strndup(a, s.p, s.n), s.n};
}

static const struct shape *shape_dup(struct arena *a, const struct shape *s) {
    struct shape *r = arena_dup(a, s, sizeof *s);
    if (shape_is_tuple(s)) {
        r->elems = arena_array(a, const struct shape *, s->n_elems ? s->n_elems : 1);
        for (int k = 0; k < s->n_elems; k++)
            r->elems[k] = shape_dup(a, s->elems[k]);
        if (s->first_leaf) r->first_leaf = arena_dup_array(a, s->first_leaf, s->n_elems);
        return r;
    }
    if (s->rank) r->dims = arena_dup_array(a, s->dims, s->rank);
    if (s->dynamic) r->dynamic = arena_dup_array(a, s->dynamic, s->rank);
    if (s->layout) {
        struct layout *l = arena_dup(a, s->layout, sizeof *l);
        l->rest = dup_or_null(a, l->rest);
        r->layout = l;
    }
    return r;
}

// Everything but name, list position and operands. deep: from another module, which the copy
// shares nothing with.
static struct hlo_instr *copy_body(struct hlo_computation *c, const struct hlo_instr *from,
                                   bool deep) {
    struct arena *a = c->module->arena;
    struct hlo_instr *i = new_instr(c, from->op);
    i->shape = deep ? shape_dup(a, from->shape) : from->shape;
    i->n_operands = from->n_operands;
    i->n_called = from->n_called;
    i->called = from->n_called ? arena_dup_array(a, from->called, from->n_called) : NULL;
    i->attr = deep ? attr_clone(a, hlo_op_info(from->op)->attrs, from->attr) : from->attr;
    i->literal = deep && from->literal ? lit_clone(a, from->literal) : from->literal;
    if (deep && i->literal)
        i->literal->shape =
            layout_is_default(i->shape->layout, i->shape->rank) || shape_is_tuple(i->shape)
                ? i->shape
                : i->literal->shape;
    i->param_number = from->param_number;
    i->param_kind = from->param_kind;
    i->param_index = from->param_index;
    i->op_type = deep ? dup_or_null(a, from->op_type) : from->op_type;
    i->op_name = deep ? dup_or_null(a, from->op_name) : from->op_name;
    for (size_t k = 0; k < from->extra.n; k++) {
        struct hlo_text_attr x = from->extra.v[k];
        if (deep) x = (struct hlo_text_attr){dup_str(a, x.name), dup_str(a, x.value)};
        avec_push(a, &i->extra, x);
    }
    return i;
}

struct hlo_instr *hlo_clone_instr(struct hlo_computation *c, const struct hlo_instr *from,
                                  struct hlo_instr *const *operands) {
    struct hlo_instr *i = copy_body(c, from, from->parent->module != c->module);
    i->name = unique_name(c->module, from->name);
    i->operands = i->n_operands ? arena_dup(c->module->arena, operands ? operands : from->operands,
                                            sizeof *operands * (size_t)i->n_operands)
                                : NULL;
    append_with_operands(c, i);
    if (i->op == HLO_PARAMETER) {
        while (c->params.n <= (size_t)i->param_number)
            avec_push(c->module->arena, &c->params, NULL);
        c->params.v[i->param_number] = i;
    }
    return i;
}

// The name of an instruction of another module: legal, and nearly always free here.
static const char *name_as(struct hlo_module *m, const char *name) {
    uintptr_t count;
    const char *own = arena_strdup(m->arena, name);
    return take_name(m, str_of(own), &count) ? own : unique_name(m, name);
}
static bool kept(const uint64_t *keep, const struct hlo_instr *i) {
    return !keep || hlo_set_has(keep, i);
}
// keep: a bit an id; NULL = all. What it calls is cloned whole.
static struct hlo_computation *clone_computation(struct hlo_module *m,
                                                 const struct hlo_computation *c, const char *name,
                                                 struct pmap *done, const uint64_t *keep) {
    struct hlo_computation *seen = pmap_get_ptr(done, c);
    if (seen) return seen;

    for (const struct hlo_instr *i = c->first; i; i = i->next) // callees first: module order
        for (int k = 0; k < i->n_called && kept(keep, i); k++)
            clone_computation(m, i->called[k], i->called[k]->name, done, NULL);

    struct hlo_computation *r = hlo_computation_add(m, name);
    struct pmap map = {0};
    for (const struct hlo_instr *i = c->first; i; i = i->next) {
        if (!kept(keep, i)) continue;
        struct hlo_instr *j = copy_body(r, i, m != c->module);
        j->name = name_as(m, i->name);
        j->operands =
            i->n_operands ? arena_array(m->arena, struct hlo_instr *, i->n_operands) : NULL;
        for (int k = 0; k < i->n_operands; k++)
            j->operands[k] = pmap_get_ptr(&map, i->operands[k]);
        for (int k = 0; k < i->n_called; k++) {
            j->called[k] = pmap_get_ptr(done, i->called[k]);
        }
        if (i->op == HLO_FUSION) hlo_mark_fused(j);
        append_with_operands(r, j);
        for (size_t k = 0; k < i->control_preds.n; k++)
            if (kept(keep, i->control_preds.v[k]))
                hlo_add_control_pred(j, pmap_get_ptr(&map, i->control_preds.v[k]));
        pmap_put_ptr(&map, i, j);
    }

    for (size_t k = 0; k < c->params.n; k++)
        avec_push(m->arena, &r->params, pmap_get_ptr(&map, c->params.v[k]));
    r->root = pmap_get_ptr(&map, c->root);
    pmap_done(&map);
    pmap_put_ptr(done, c, r);
    return r;
}

struct hlo_computation *hlo_computation_clone(struct hlo_module *m, const struct hlo_computation *c,
                                              const char *name) {
    struct pmap done = {0};
    struct hlo_computation *r = clone_computation(m, c, name, &done, NULL);
    pmap_done(&done);
    return r;
}

static void copy_source_map(struct hlo_module *r, const struct hlo_source_map *from) {
    struct hlo_source_map *to = &r->source_map;
    for (size_t k = 0; k < from->files.n; k++)
        avec_push(r->arena, &to->files, dup_str(r->arena, from->files.v[k]));
    for (size_t k = 0; k < from->functions.n; k++)
        avec_push(r->arena, &to->functions, dup_str(r->arena, from->functions.v[k]));
    for (size_t k = 0; k < from->locations.n; k++)
        avec_push(r->arena, &to->locations, from->locations.v[k]);
    for (size_t k = 0; k < from->frames.n; k++)
        avec_push(r->arena, &to->frames, from->frames.v[k]);
}

const struct shape *hlo_entry_shape(const struct hlo_module *m, int k) {
    int n = (int)m->entry->params.n;
    const struct shape *own = k < n ? m->entry->params.v[k]->shape : m->entry->root->shape,
                       *all = m->entry_layout;
    return all && all->n_elems == n + 1 && shape_compatible(all->elems[k], own) ? all->elems[k]
                                                                                : own;
}

static struct hlo_module *clone_module(const struct hlo_module *m, const uint64_t *keep) {
    struct hlo_module *r = hlo_module_new(m->name);
    struct pmap done = {0};
    r->max_bytes = m->max_bytes;
    copy_source_map(r, &m->source_map);
    if (m->entry_layout) r->entry_layout = shape_dup(r->arena, m->entry_layout);
    HLO_EACH_COMPUTATION(c, m)
    if (!keep || c == m->entry) clone_computation(r, c, c->name, &done, keep);
    r->entry = pmap_get_ptr(&done, m->entry);
    pmap_done(&done);
    for (size_t k = 0; k < m->extra.n; k++)
        avec_push(r->arena, &r->extra,
                  ((struct hlo_text_attr){dup_str(r->arena, m->extra.v[k].name),
                                          dup_str(r->arena, m->extra.v[k].value)}));
    return r;
}

struct hlo_module *hlo_module_clone(const struct hlo_module *m) {
    return clone_module(m, NULL);
}
struct hlo_module *hlo_module_clone_part(const struct hlo_module *m, const uint64_t *keep) {
    return clone_module(m, keep);
}

// ---- edits

void hlo_move_before(struct hlo_instr *i, struct hlo_instr *pos) {
    if (i == pos) return;
    list_unlink(i);
    struct hlo_computation *c = i->parent;
    i->next = pos;
    i->prev = pos->prev;
    *(pos->prev ? &pos->prev->next : &c->first) = i;
    pos->prev = i;
    c->n_instrs++;
}
void hlo_set_name(struct hlo_instr *i, const char *name) {
    smap_del(&i->parent->module->names, str_of(i->name)); // its own name is free again
    i->name = unique_name(i->parent->module, name);
}
void hlo_set_shape(struct hlo_instr *i, const struct shape *s) {
    i->shape = s;
}

void hlo_set_operand(struct hlo_instr *i, int k, struct hlo_instr *x) {
    if (i->operands[k] == x) return;
    unlink_operand(i, i->operands[k]);
    i->operands[k] = x;
    link_operand(i, x);
}

void hlo_set_called(struct hlo_instr *i, int k, struct hlo_computation *c) {
    i->called[k]->n_callers--;
    i->called[k] = c;
    c->n_callers++;
    if (i->parent->effect_known == c->module->effects &&
        i->parent->effect != hlo_computation_has_effect(c))
        c->module->effects++;
}

void hlo_mark_fused(struct hlo_instr *fusion) {
    struct hlo_computation *c = fusion->called[0];
    c->fusion = fusion;
    for (struct hlo_instr *i = c->first; i; i = i->next)
        for (int k = 0; k < i->n_called && i->op == HLO_WHILE; k++)
            i->called[k]->fusion = fusion;
}

// In the first slot of u that holds it.
static void replace_first(struct hlo_instr *u, const struct hlo_instr *old,
                          struct hlo_instr *with) {
    for (int j = 0; j < u->n_operands; j++)
        if (u->operands[j] == old) {
            u->operands[j] = with;
            return;
        }
}
void hlo_replace_uses(struct hlo_instr *old, struct hlo_instr *with) {
    if (old == with) return;
    struct hlo_module *m = old->parent->module;
    for (size_t k = 0; k < old->users.n; k++) {
        struct hlo_instr *u = old->users.v[k];
        replace_first(u, old, with); // one slot for each entry of users
        avec_push(m->arena, &with->users, u);
    }
    old->users.n = 0;
    old->parent->edits++;
    if (old->parent->root == old) old->parent->root = with;
}

bool hlo_awaits(const struct hlo_instr *i, const struct hlo_instr *pred) {
    for (size_t k = 0; k < i->control_preds.n; k++)
        if (i->control_preds.v[k] == pred) return true;
    return false;
}
void hlo_add_control_pred(struct hlo_instr *i, struct hlo_instr *pred) {
    avec_push(i->parent->module->arena, &i->control_preds, pred);
    pred->n_awaiting++;
}
void hlo_remove_control_pred(struct hlo_instr *i, size_t k) {
    i->control_preds.v[k]->n_awaiting--;
    size_t rest = --i->control_preds.n - k;
    memmove(&i->control_preds.v[k], &i->control_preds.v[k + 1], sizeof *i->control_preds.v * rest);
}
void hlo_replace_control_preds(struct hlo_computation *c, const struct pmap *with) {
    for (struct hlo_instr *i = c->first; i; i = i->next) {
        size_t n = 0;
        for (size_t k = 0; k < i->control_preds.n; k++) {
            struct hlo_instr *p = i->control_preds.v[k], *to = p;
            if (pmap_has_ptr(with, p)) to = pmap_get_ptr(with, p);
            p->n_awaiting--;
            if (to) to->n_awaiting++, i->control_preds.v[n++] = to;
        }
        i->control_preds.n = n;
    }
}
static void await(struct hlo_instr *i, struct hlo_instr *pred) {
    if (pred->op != HLO_PARAMETER && pred->op != HLO_CONSTANT && !hlo_awaits(i, pred))
        hlo_add_control_pred(i, pred);
}
// Whatever waits for `gone` waits for what that waited for.
static void pass_on(struct hlo_instr *gone) {
    for (struct hlo_instr *i = gone->next; i && gone->n_awaiting; i = i->next)
        for (size_t k = i->control_preds.n; k-- > 0;) {
            if (i->control_preds.v[k] != gone) continue;
            hlo_remove_control_pred(i, k);
            for (size_t j = 0; j < gone->control_preds.n; j++)
                await(i, gone->control_preds.v[j]);
            for (int j = 0; j < gone->n_operands; j++)
                await(i, gone->operands[j]);
        }
}

void hlo_remove_instr(struct hlo_instr *i) {
    assert(i->users.n == 0 && i->parent->root != i);
    effect_changes(i->parent, i, false);
    if (i->n_awaiting) pass_on(i);
    while (i->control_preds.n)
        hlo_remove_control_pred(i, i->control_preds.n - 1);
    for (int k = 0; k < i->n_operands; k++)
        unlink_operand(i, i->operands[k]);
    for (int k = 0; k < i->n_called; k++)
        i->called[k]->n_callers--;
    if (i->op == HLO_FUSION && i->n_called && i->called[0]->fusion == i)
        hlo_computation_remove(i->called[0]);
    list_unlink(i);
    i->parent = NULL;
}

int hlo_remove_dead(struct hlo_computation *c) {
    int n = 0;
    if (c->edits == c->swept) return 0; // each instruction adds to it: a new one was not swept
    for (struct hlo_instr *i = c->last, *prev; i; i = prev) {
        prev = i->prev;
        bool keep = i->users.n || i == c->root || i->op == HLO_PARAMETER || hlo_has_effect(i);
        if (keep || i->n_awaiting) continue;
        hlo_remove_instr(i);
        n++;
    }
    c->swept = c->edits;
    return n;
}

static bool reaches(const struct hlo_instr *i, const struct hlo_instr *on, uint32_t first) {
    if (i == on) return true;
    if (!hlo_needs(i)) return false;
    VEC(const struct hlo_instr *) work = {0};
    uint64_t small[64] = {0}, *seen = small; // a bit an id
    size_t words = i->parent->module->next_id / 64 + 1;
    bool found = false;
    if (words > sizeof small / sizeof small[0] && !(seen = calloc(words, sizeof *seen))) abort();
    vec_push(&work, i);
    while (work.n && !found) {
        const struct hlo_instr *x = vec_pop(&work);
        for (size_t k = 0; k < hlo_needs(x) && !found; k++) {
            const struct hlo_instr *y = hlo_need(x, k);
            uint64_t bit = UINT64_C(1) << y->id % 64, *word = &seen[y->id / 64];
            found = y == on;
            if (*word & bit || (first && y->place < first)) continue;
            *word |= bit;
            if (hlo_needs(y)) vec_push(&work, y);
        }
    }
    vec_done(&work);
    if (seen != small) free(seen);
    return found;
}
bool hlo_depends_on(const struct hlo_instr *i, const struct hlo_instr *on) {
    return reaches(i, on, 0);
}
bool hlo_depends_on_by_place(const struct hlo_instr *i, const struct hlo_instr *on) {
    return i == on || (i->place > on->place && reaches(i, on, on->place));
}
void hlo_number_list(struct hlo_computation *c) {
    uint32_t n = 0;
    for (struct hlo_instr *i = c->first; i; i = i->next)
        i->place = n++;
}

status_t hlo_sort_instrs(struct hlo_computation *c) {
    // Depth first from each instruction in list order with an explicit stack; colours in a map, so
    // that marks stay the caller's.
    struct pmap colour = {0}; // 1 = on the stack, 2 = placed
    VEC(struct hlo_instr *) order = {0};
    VEC(struct hlo_instr *) stack = {0};
    bool cycle = false;

    for (struct hlo_instr *i = c->first; i && !cycle; i = i->next) {
        if (!pmap_has_ptr(&colour, i)) vec_push(&stack, i);
        while (stack.n && !cycle) {
            struct hlo_instr *x = stack.v[stack.n - 1];
            if (pmap_has_ptr(&colour, x)) { // second visit: operands are placed
                (void)vec_pop(&stack);
                if (pmap_get_ptr(&colour, x) == (void *)2) continue;
                pmap_put_ptr(&colour, x, (void *)2);
                vec_push(&order, x);
                continue;
            }
            pmap_put_ptr(&colour, x, (void *)1);
            for (size_t k = hlo_needs(x); k-- > 0;) {
                struct hlo_instr *p = hlo_need(x, k);
                void *state = pmap_get_ptr(&colour, p);
                if (state == (void *)1)
                    cycle = true;
                else if (!state)
                    vec_push(&stack, p);
            }
        }
    }

    status_t st = ST_OK;
    if (cycle) st = st_internal("computation %s: instructions form a cycle", c->name);
    for (size_t k = 0; !cycle && k < order.n; k++) {
        list_unlink(order.v[k]);
        list_append(c, order.v[k]);
    }

    pmap_done(&colour);
    vec_done(&order);
    vec_done(&stack);
    return st;
}

const char *hlo_extra(const struct hlo_instr *i, const char *name, size_t *out_n) {
    for (size_t k = 0; k < i->extra.n; k++)
        if (str_is(i->extra.v[k].name, name)) {
            if (out_n) *out_n = i->extra.v[k].value.n;
            return i->extra.v[k].value.p;
        }
    return NULL;
}
static int str_order(struct str a, struct str b) {
    int c = memcmp(a.p, b.p, a.n < b.n ? a.n : b.n);
    return c ? c : (a.n > b.n) - (a.n < b.n);
}
void hlo_sort_extra(struct hlo_text_attr *v, size_t n) {
    for (size_t k = 1; k < n; k++) { // few, mostly sorted
        struct hlo_text_attr x = v[k];
        size_t j = k;
        for (; j && str_order(x.name, v[j - 1].name) < 0; j--)
            v[j] = v[j - 1];
        v[j] = x;
    }
}
void hlo_set_extra(struct hlo_instr *i, const char *name, const char *value) {
    struct arena *a = i->parent->module->arena;
    struct str v = dup_str(a, str_of(value));
    for (size_t k = 0; k < i->extra.n; k++)
        if (str_is(i->extra.v[k].name, name)) {
            i->extra.v[k].value = v;
            return;
        }
    avec_push(a, &i->extra, ((struct hlo_text_attr){dup_str(a, str_of(name)), v}));
    hlo_sort_extra(i->extra.v, i->extra.n);
}

struct str hlo_module_extra(const struct hlo_module *m, const char *name) {
    for (size_t k = 0; k < m->extra.n; k++)
        if (str_is(m->extra.v[k].name, name)) return m->extra.v[k].value;
    return (struct str){NULL, 0};
}
void hlo_set_module_extra(struct hlo_module *m, const char *name, struct str value) {
    size_t n = 0;
    for (size_t k = 0; k < m->extra.n; k++)
        if (!str_is(m->extra.v[k].name, name)) m->extra.v[n++] = m->extra.v[k];
    m->extra.n = n;
    if (!value.p) return;
    avec_push(m->arena, &m->extra,
              ((struct hlo_text_attr){dup_str(m->arena, str_of(name)), dup_str(m->arena, value)}));
    hlo_sort_extra(m->extra.v, m->extra.n);
}

// The value of key in {key="value",...}.
static bool frontend_value(struct str v, const char *key, struct str *out) {
    size_t n = strlen(key);
    if (!v.n) return false;
    for (const char *p = v.p, *end = v.p + v.n; (p = memmem(p, (size_t)(end - p), key, n)); p++) {
        const char *text = p + n + 2;
        bool begins = p > v.p && (p[-1] == '{' || p[-1] == ',' || p[-1] == ' ');
        if (!begins || text > end || p[n] != '=' || p[n + 1] != '"') continue;
        const char *close = memchr(text, '"', (size_t)(end - text));
        if (!close) return false;
        *out = (struct str){text, (size_t)(close - text)};
        return true;
    }
    return false;
}
bool hlo_frontend(const struct hlo_module *m, const char *key, struct str *out) {
    for (size_t k = 0; k < m->extra.n; k++)
        if (str_is(m->extra.v[k].name, "frontend_attributes") &&
            frontend_value(m->extra.v[k].value, key, out))
            return true;
    return false;
}
bool hlo_frontend_of(const struct hlo_instr *i, const char *key, struct str *out) {
    size_t n = 0;
    const char *text = hlo_extra(i, "frontend_attributes", &n);
    return frontend_value((struct str){text, n}, key, out);
}
void hlo_set_frontend(struct hlo_module *m, const char *key, struct str value) {
    struct str old = hlo_module_extra(m, "frontend_attributes");
    struct strbuf b = {0};
    size_t keep = old.n > 2 ? old.n - 1 : 0; // without the closing brace
    if (keep)
        strbuf_add(&b, old.p, keep);
    else
        strbuf_putc(&b, '{');
    strbuf_printf(&b, "%s%s=\"", keep ? "," : "", key);
    strbuf_add(&b, value.p, value.n);
    strbuf_puts(&b, "\"}");
    hlo_set_module_extra(m, "frontend_attributes", (struct str){b.p, b.n});
    strbuf_done(&b);
}

int64_t hlo_total(const struct hlo_module *m) {
    int64_t n = 0;
    HLO_EACH_COMPUTATION(c, m) n += c->n_instrs;
    return n;
}
struct hlo_counts hlo_count(const struct hlo_module *m) {
    struct hlo_counts n = {0};
    HLO_EACH_COMPUTATION(c, m) {
        n.computations++;
        n.total += c->n_instrs;
        for (const struct hlo_instr *i = c->first; i; i = i->next)
            n.fusions += i->op == HLO_FUSION;
    }
    n.entry = m->entry ? m->entry->n_instrs : 0;
    return n;
}
