// SPDX-License-Identifier: Apache-2.0
// The IR section of bytecode: the module, its functions, regions and operations.
#include <string.h>

#include "compiler/frontend/mlir/mlir_bytecode_reader.h"

enum { // what stands in an operation
    HAS_ATTRS = 1,
    HAS_RESULTS = 2,
    HAS_OPERANDS = 4,
    HAS_SUCCESSORS = 8,
    HAS_REGIONS = 16,
    HAS_ORDERS = 32,
    HAS_PROPERTIES = 64,
    LATEST_MASK = 127
};
enum { UNDEFINED = UINT32_MAX };

struct ids { // numbers that bytecode gives to values, to those of the tree
    uint32_t *v;
    size_t n, cap, next;
};
struct scope {                  // where an operation stands
    struct mlir_func *f;        // NULL: beside functions
    struct mlir_region *region; // operations go there
    struct ids *ids;
    bool body; // of a function, not of an operation in it
};
struct head { // of an operation, as it is written
    const struct mb_op_name *name;
    struct mlir_op *op;
    const struct mlir_type **types; // of results
    bool properties;
    size_t property;
    int64_t at;
};
typedef VEC(struct mlir_named) named_vec;

static status_t read_op(struct mb *b, struct mb_cursor *c, struct scope *s);

// ---- parts of an operation

static status_t skip_orders(struct mb *b, struct mb_cursor *c, int32_t n) {
    uint64_t count = 1, skipped;
    if (n > 1) RETURN_IF_ERR(mb_int(b, c, &count));
    for (uint64_t k = 0; k < count; k++) {
        uint64_t uses;
        bool pairs;
        if (n > 1) RETURN_IF_ERR(mb_int(b, c, &skipped));
        RETURN_IF_ERR(mb_flagged(b, c, &uses, &pairs));
        for (uint64_t i = 0; i < uses; i++)
            RETURN_IF_ERR(mb_int(b, c, &skipped));
    }
    return ST_OK;
}
static status_t dictionary_at(struct mb *b, struct mb_cursor *c, named_vec *out) {
    const struct mlir_attr *dict;
    RETURN_IF_ERR(mb_attr(b, c, &dict));
    if (dict->kind != MLIR_A_DICT) return mb_error(b, c, "attributes are no dictionary");
    RETURN_IF_ERR(mb_spend(b, (int64_t)sizeof(struct mlir_named) * dict->n));
    for (int32_t k = 0; k < dict->n; k++)
        avec_push(b->a, out, dict->dict[k]);
    return ST_OK;
}
static const struct mlir_attr *as_symbol(struct mb *b, const struct mlir_attr *t) {
    if (t->kind != MLIR_A_STRING) return t;
    struct mlir_attr *x = arena_dup(b->a, t, sizeof *x);
    x->kind = MLIR_A_SYMBOL;
    return x;
}
// VHLO names functions by strings.
static const struct mlir_attr *named_as(struct mb *b, struct str name, const struct mlir_attr *t) {
    if (str_is(name, "callee") || str_is(name, "decomposition")) return as_symbol(b, t);
    if (!str_is(name, "called_computations") || t->kind != MLIR_A_ARRAY || !t->n) return t;
    struct mlir_attr *x = arena_dup(b->a, t, sizeof *x);
    x->list = arena_array(b->a, const struct mlir_attr *, t->n);
    for (int32_t k = 0; k < t->n; k++)
        x->list[k] = as_symbol(b, t->list[k]);
    return x;
}
static status_t read_properties(struct mb *b, const struct head *h, named_vec *out) {
    struct mb_cursor c = mb_open(b->props[h->property]);
    struct str names = str_of(h->name->row->attrs), name;
    while (str_cut(&names, ' ', &name)) {
        struct mlir_named x = {name, NULL};
        RETURN_IF_ERR(mb_attr(b, &c, &x.attr));
        avec_push(b->a, out, x);
    }
    return c.p == c.end ? ST_OK : mb_error(b, &c, "the operation's properties have bytes too many");
}
static status_t read_results(struct mb *b, struct mb_cursor *c, struct head *h) {
    int32_t n;
    RETURN_IF_ERR(mb_count(b, c, sizeof *h->types, &n));
    b->values += n;
    if (b->values > b->limits.max_values)
        return st_exhausted("more than %lld values", (long long)b->limits.max_values);
    h->types = arena_array(b->a, const struct mlir_type *, n + 1);
    for (int32_t k = 0; k < n; k++)
        RETURN_IF_ERR(mb_type(b, c, &h->types[k]));
    h->op->n_results = n;
    return ST_OK;
}
static status_t read_operands(struct mb *b, struct mb_cursor *c, struct scope *s,
                              struct mlir_op *op) {
    RETURN_IF_ERR(mb_count(b, c, sizeof *op->operands, &op->n_operands));
    op->operands = arena_array(b->a, uint32_t, op->n_operands + 1);
    for (int32_t k = 0; k < op->n_operands; k++) {
        size_t id;
        RETURN_IF_ERR(mb_index(b, c, s->ids->n, "value", &id));
        op->operands[k] = s->ids->v[id];
        if (op->operands[k] == UNDEFINED)
            return mb_error(b, c, "value %zu is not defined before it is used", id);
    }
    return ST_OK;
}
static status_t read_head(struct mb *b, struct mb_cursor *c, struct scope *s, struct head *h,
                          uint8_t *mask) {
    size_t k;
    if (++b->ops > b->limits.max_ops)
        return st_exhausted("more than %lld operations", (long long)b->limits.max_ops);
    *h = (struct head){.op = arena_new_of(b->a, struct mlir_op), .at = b->ops};
    h->op->at = b->ops;
    RETURN_IF_ERR(mb_index(b, c, b->n_op_names, "operation name", &k));
    h->name = &b->op_names[k];
    RETURN_IF_ERR(mb_byte(b, c, mask));
    if (*mask > LATEST_MASK) return mb_error(b, c, "an operation's mask is not valid");
    RETURN_IF_ERR(mb_index(b, c, b->attrs.n, "location", &k));

    named_vec attrs = {0};
    if (*mask & HAS_ATTRS) RETURN_IF_ERR(dictionary_at(b, c, &attrs));
    h->properties = *mask & HAS_PROPERTIES;
    if (h->properties) RETURN_IF_ERR(mb_index(b, c, b->n_props, "properties", &h->property));
    if (h->properties && h->name->row) RETURN_IF_ERR(read_properties(b, h, &attrs));
    if (*mask & HAS_RESULTS) RETURN_IF_ERR(read_results(b, c, h));
    if (*mask & HAS_OPERANDS) RETURN_IF_ERR(read_operands(b, c, s, h->op));
    if (*mask & HAS_SUCCESSORS) return mb_error(b, c, "successors are not taken");
    if (*mask & HAS_ORDERS) RETURN_IF_ERR(skip_orders(b, c, h->op->n_results));

    for (size_t i = 0; i < attrs.n; i++)
        attrs.v[i].attr = named_as(b, attrs.v[i].name, attrs.v[i].attr);
    h->op->attrs.v = attrs.v;
    h->op->attrs.n = attrs.n;
    h->op->attrs.cap = attrs.cap;
    return ST_OK;
}

// ---- values and regions

static status_t define(struct mb *b, struct mb_cursor *c, struct scope *s, uint32_t value) {
    if (s->ids->next >= s->ids->n) return mb_error(b, c, "more values than the region says");
    s->ids->v[s->ids->next++] = value;
    return ST_OK;
}
static status_t read_args(struct mb *b, struct mb_cursor *c, struct scope *s) {
    int32_t n;
    RETURN_IF_ERR(mb_count(b, c, 0, &n));
    b->values += n;
    if (b->values > b->limits.max_values)
        return st_exhausted("more than %lld values", (long long)b->limits.max_values);
    if (n && !s->f) return mb_error(b, c, "arguments outside a function");
    s->region->n_args = n;
    for (int32_t k = 0; k < n; k++) {
        const struct mlir_type *t;
        bool located = true;
        size_t at;
        if (b->version >= 4) {
            uint64_t index;
            struct mb_cursor type = *c;
            RETURN_IF_ERR(mb_flagged(b, &type, &index, &located));
            if (index >= b->types.n) return mb_error(b, c, "an argument's type is not there");
            RETURN_IF_ERR(mb_type_at(b, (size_t)index, &t));
            *c = type;
        } else {
            RETURN_IF_ERR(mb_type(b, c, &t));
        }
        if (located) RETURN_IF_ERR(mb_index(b, c, b->attrs.n, "location", &at));
        uint32_t v = mlir_new_value(b->m, s->f, t);
        if (k == 0) s->region->args = v;
        RETURN_IF_ERR(define(b, c, s, v));
    }

    uint8_t orders = 0;
    if (b->version >= 3) RETURN_IF_ERR(mb_byte(b, c, &orders));
    return orders ? skip_orders(b, c, n) : ST_OK;
}
static status_t read_block(struct mb *b, struct mb_cursor *c, struct scope *s) {
    uint64_t n;
    bool args;
    RETURN_IF_ERR(mb_flagged(b, c, &n, &args));
    if (args) RETURN_IF_ERR(read_args(b, c, s));
    for (uint64_t k = 0; k < n; k++)
        RETURN_IF_ERR(read_op(b, c, s));
    return ST_OK;
}
// Numbers of the region's values follow those of the regions around it, and end with it.
static status_t grow_ids(struct mb *b, struct mb_cursor *c, struct ids *ids) {
    uint64_t n;
    RETURN_IF_ERR(mb_int(b, c, &n));
    if (n > (uint64_t)(c->end - c->p)) return mb_error(b, c, "more values than bytes");
    RETURN_IF_ERR(mb_spend(b, (int64_t)n * 4));
    ids->next = ids->n;
    for (uint64_t k = 0; k < n; k++)
        avec_push(b->a, ids, UNDEFINED);
    return ST_OK;
}
static status_t read_region(struct mb *b, struct mb_cursor *c, struct scope *s) {
    size_t was = s->ids->n, next = s->ids->next;
    uint64_t blocks;
    if (s->f) s->region->first = s->region->end = (uint32_t)s->f->values.n;
    RETURN_IF_ERR(mb_int(b, c, &blocks));
    if (blocks == 0) return ST_OK;
    if (blocks > 1) return mb_error(b, c, "a region of several blocks is not taken");
    if (++b->depth > b->limits.max_depth)
        return st_exhausted("regions nest deeper than %d", b->limits.max_depth);
    RETURN_IF_ERR(grow_ids(b, c, s->ids));
    RETURN_IF_ERR(read_block(b, c, s));
    if (s->f) s->region->end = (uint32_t)s->f->values.n;
    s->ids->n = was;
    s->ids->next = next;
    b->depth--;
    return ST_OK;
}
// Regions of an isolated operation lie in a section of their own, and number values from 0.
struct regions {
    struct mb_cursor c;
    struct ids fresh, *ids;
    int32_t n;
};
static status_t open_regions(struct mb *b, struct mb_cursor *c, struct scope *s,
                             struct regions *out) {
    struct span part;
    bool isolated;
    uint64_t n;
    uint8_t id;
    RETURN_IF_ERR(mb_flagged(b, c, &n, &isolated));
    if (n > (uint64_t)(c->end - c->p)) return mb_error(b, c, "more regions than bytes");
    RETURN_IF_ERR(mb_spend(b, (int64_t)(n * sizeof(struct mlir_region))));
    *out = (struct regions){.c = *c, .n = (int32_t)n};
    out->ids = isolated ? &out->fresh : s->ids;
    if (!isolated || b->version < 2) return ST_OK;
    RETURN_IF_ERR(mb_section(b, c, &id, &part));
    out->c = mb_open(part);
    return ST_OK;
}
static status_t close_regions(struct mb *b, struct mb_cursor *c, const struct regions *r) {
    bool inside = r->c.end == c->end && r->c.p >= c->p;
    if (inside)
        c->p = r->c.p;
    else if (r->c.p != r->c.end)
        return mb_error(b, &r->c, "a section of regions has bytes too many");
    return ST_OK;
}

// ---- functions

static const struct mlir_attr *attr_of(const struct mlir_op *op, const char *name,
                                       enum mlir_attr_kind kind) {
    const struct mlir_attr *t = mlir_op_attr(op, name);
    return t && t->kind == kind ? t : NULL;
}
static status_t dictionaries(struct mb *b, const struct mlir_func *f, const struct mlir_attr *list,
                             int32_t n, const struct mlir_attr ***out) {
    if (!list || !list->n) return ST_OK;
    if (list->n != n)
        return st_invalid("function '%.*s': attributes of %d values, it has %d", STR_ARG(f->name),
                          list->n, n);
    *out = arena_array(b->a, const struct mlir_attr *, n);
    for (int32_t k = 0; k < n; k++) {
        if (list->list[k]->kind != MLIR_A_DICT)
            return st_invalid("function '%.*s': its attributes are no dictionary",
                              STR_ARG(f->name));
        (*out)[k] = list->list[k];
    }
    return ST_OK;
}
static status_t declaration(struct mb *b, struct mlir_func *f, const struct mlir_type *t) {
    b->values += t->n_in;
    if (b->values > b->limits.max_values)
        return st_exhausted("more than %lld values", (long long)b->limits.max_values);
    f->body.n_args = t->n_in;
    for (int32_t k = 0; k < t->n_in; k++)
        mlir_new_value(b->m, f, t->elems[k]);
    f->body.end = (uint32_t)f->values.n;
    return ST_OK;
}
static status_t check_args(const struct mlir_func *f, const struct mlir_type *t) {
    bool same = f->body.n_args == t->n_in;
    for (int32_t k = 0; same && k < t->n_in; k++)
        same = mlir_type_equal(f->values.v[k], t->elems[k]);
    if (same) return ST_OK;
    return st_invalid("function '%.*s': its arguments are not those of its type", STR_ARG(f->name));
}
static status_t read_func(struct mb *b, struct mb_cursor *c, struct scope *s, const struct head *h,
                          bool has_regions) {
    const struct mlir_op *op = h->op;
    const struct mlir_attr *type = attr_of(op, "function_type", MLIR_A_TYPE),
                           *name = attr_of(op, "sym_name", MLIR_A_STRING),
                           *visibility = attr_of(op, "sym_visibility", MLIR_A_STRING);
    if (!type || type->type->kind != MLIR_FUNCTION || !name)
        return mb_error(b, c, "a function without a name or type");
    const struct mlir_type *t = type->type;
    struct mlir_func *f = arena_new_of(b->a, struct mlir_func);
    f->at = h->at;
    f->name = name->s;
    f->is_public = !visibility || !str_is(visibility->s, "private");
    f->n_results = t->n_elems - t->n_in;
    f->results = t->elems + t->n_in;

    struct regions r = {0};
    if (has_regions) {
        RETURN_IF_ERR(open_regions(b, c, s, &r));
        if (r.n > 1) return mb_error(b, c, "a function of %d regions", r.n);
        struct scope in = {f, &f->body, r.ids, true};
        if (r.n) RETURN_IF_ERR(read_region(b, &r.c, &in));
        RETURN_IF_ERR(close_regions(b, c, &r));
    }
    if (!f->body.ops.n && !f->body.n_args) RETURN_IF_ERR(declaration(b, f, t));
    RETURN_IF_ERR(check_args(f, t));
    RETURN_IF_ERR(
        dictionaries(b, f, attr_of(op, "arg_attrs", MLIR_A_ARRAY), t->n_in, &f->arg_attrs));
    RETURN_IF_ERR(
        dictionaries(b, f, attr_of(op, "res_attrs", MLIR_A_ARRAY), f->n_results, &f->result_attrs));
    avec_push(b->a, &b->m->funcs, f);
    return ST_OK;
}

// ---- operations

static struct str name_of(struct mb *b, const struct scope *s, const struct mb_op_name *name) {
    size_t n = name->name.n;
    while (n && name->name.p[n - 1] != '_') // the version
        n--;
    struct str base = {name->name.p, n ? n - 1 : 0};
    if (!name->row)
        return str_of(arena_printf(b->a, "%.*s.%.*s", STR_ARG(name->dialect), STR_ARG(name->name)));
    const char *dialect =
        str_is(base, "call") || (s->body && str_is(base, "return")) ? "func" : "stablehlo";
    return str_of(arena_printf(b->a, "%s.%.*s", dialect, STR_ARG(base)));
}
static status_t read_regions(struct mb *b, struct mb_cursor *c, struct scope *s,
                             struct mlir_op *op) {
    struct regions r;
    RETURN_IF_ERR(open_regions(b, c, s, &r));
    op->n_regions = r.n;
    op->regions = arena_zarray(b->a, struct mlir_region, r.n + 1);
    for (int32_t k = 0; k < r.n; k++) {
        struct scope in = {s->f, &op->regions[k], r.ids, false};
        RETURN_IF_ERR(read_region(b, &r.c, &in));
    }
    return close_regions(b, c, &r);
}
static status_t define_results(struct mb *b, struct mb_cursor *c, struct scope *s,
                               const struct head *h) {
    for (int32_t k = 0; k < h->op->n_results; k++) {
        uint32_t v = mlir_new_value(b->m, s->f, h->types[k]);
        if (k == 0) h->op->result = v;
        RETURN_IF_ERR(define(b, c, s, v));
    }
    return ST_OK;
}
static bool is_op(const struct head *h, const char *dialect, const char *name) {
    return str_is(h->name->dialect, dialect) && str_is(h->name->name, name);
}
// Its results are its operands: a cast between VHLO's types and others, or what tells how a value
// is spread over devices.
static bool is_same_value(const struct head *h) {
    return is_op(h, "builtin", "unrealized_conversion_cast") ||
           is_op(h, "sdy", "sharding_constraint") || is_op(h, "sdy", "reshard") ||
           is_op(h, "sdy", "propagation_barrier");
}
// Says that two values are spread alike.
static bool is_nothing(const struct head *h, uint8_t mask) {
    return is_op(h, "sdy", "sharding_group") && !(mask & HAS_REGIONS) && !h->op->n_results;
}
static status_t read_same_value(struct mb *b, struct mb_cursor *c, struct scope *s,
                                const struct head *h) {
    if (h->op->n_results != h->op->n_operands)
        return mb_error(b, c, "%.*s makes %d values of %d", STR_ARG(h->name->name),
                        h->op->n_results, h->op->n_operands);
    for (int32_t k = 0; k < h->op->n_results; k++)
        RETURN_IF_ERR(define(b, c, s, h->op->operands[k]));
    return ST_OK;
}
// Beside functions: those that mean nothing on one device (sdy.mesh) are left out.
static status_t read_beside(struct mb *b, struct mb_cursor *c, const struct head *h, uint8_t mask) {
    if (str_is(h->name->dialect, "sdy") && !(mask & HAS_REGIONS) && !h->op->n_results) return ST_OK;
    return mb_error(b, c, "%.*s.%.*s stands outside a function", STR_ARG(h->name->dialect),
                    STR_ARG(h->name->name));
}
static status_t read_op(struct mb *b, struct mb_cursor *c, struct scope *s) {
    struct head h;
    uint8_t mask;
    RETURN_IF_ERR(read_head(b, c, s, &h, &mask));
    if (is_op(&h, "vhlo", "func_v1")) {
        if (s->f) return mb_error(b, c, "a function within a function");
        return read_func(b, c, s, &h, mask & HAS_REGIONS);
    }
    if (!s->f) return read_beside(b, c, &h, mask);
    if (is_nothing(&h, mask)) return ST_OK;
    if (is_same_value(&h) && !(mask & HAS_REGIONS)) return read_same_value(b, c, s, &h);

    h.op->name = name_of(b, s, h.name);
    h.op->result = (uint32_t)s->f->values.n;
    if (mask & HAS_REGIONS) RETURN_IF_ERR(read_regions(b, c, s, h.op));
    RETURN_IF_ERR(define_results(b, c, s, &h));
    avec_push(b->a, &s->region->ops, h.op);
    return ST_OK;
}

// ---- the module

// builtin.module's own attributes: its name and visibility, each there or not.
static status_t module_properties(struct mb *b, const struct head *h) {
    struct mb_cursor c = mb_open(b->props[h->property]);
    const struct mlir_attr *name;
    uint64_t k;
    bool there;
    RETURN_IF_ERR(mb_flagged(b, &c, &k, &there));
    if (!there) return ST_OK;
    if (k >= b->attrs.n) return mb_error(b, &c, "the module's name is not there");
    RETURN_IF_ERR(mb_attr_at(b, (size_t)k, &name));
    if (name->kind == MLIR_A_STRING) b->m->name = name->s;
    return ST_OK;
}
static void module_attrs(struct mb *b, const struct head *h) {
    for (size_t k = 0; k < h->op->attrs.n; k++) {
        struct mlir_named x = h->op->attrs.v[k];
        if (str_is(x.name, "sym_name") && x.attr->kind == MLIR_A_STRING)
            b->m->name = x.attr->s;
        else if (!str_is(x.name, "sym_visibility"))
            avec_push(b->a, &b->m->attrs, x);
    }
}
status_t mb_module(struct mb *b) {
    struct mb_cursor c = mb_open(b->ir);
    struct ids ids = {0};
    struct mlir_region region = {0};
    struct scope s = {NULL, &region, &ids, false};
    struct regions r = {0};
    struct head h;
    uint64_t n;
    uint8_t mask;
    bool args;
    RETURN_IF_ERR(mb_flagged(b, &c, &n, &args));
    if (n != 1 || args) return mb_error(b, &c, "one module was expected");
    RETURN_IF_ERR(read_head(b, &c, &s, &h, &mask));
    if (!is_op(&h, "builtin", "module") || !(mask & HAS_REGIONS) || h.op->n_results)
        return mb_error(b, &c, "a module was expected");
    if (h.properties) RETURN_IF_ERR(module_properties(b, &h));
    module_attrs(b, &h);
    RETURN_IF_ERR(open_regions(b, &c, &s, &r));
    if (r.n != 1) return mb_error(b, &c, "a module of %d regions", r.n);
    s.ids = r.ids;
    RETURN_IF_ERR(read_region(b, &r.c, &s));
    RETURN_IF_ERR(close_regions(b, &c, &r));
    return c.p == c.end ? ST_OK : mb_error(b, &c, "the program has bytes too many");
}
