// SPDX-License-Identifier: Apache-2.0
// Instructions from HLO text. An instruction is read in two steps: its operands and attributes are
// cut out as text, then understood by the op's row; what no row knows is kept in normal form.
// Short forms are spelled out while reading, so that the graph has one form of each:
//     sqrt(f32[4] parameter(0))            an operand that is an instruction itself
//     to_apply={ ... }                     a computation written in place
//     s = ((f32[4]), f32[4], u32[]) negate-start(x)     an operation made asynchronous
#include "compiler/ir/text/parser.h"

// ---- called computations

static status_t find_computation(struct parser *p, struct str name, const char *at,
                                 struct hlo_computation **out) {
    *out = smap_get(&p->computations, name);
    return *out ? ST_OK
                : p_error(p, at, "computation '" STR_FMT "' is not defined above", STR_ARG(name));
}

static status_t deeper(struct parser *p, const char *at) {
    return p->depth++ < p->limits.max_depth
               ? ST_OK
               : p_error(p, at, "nested deeper than %d", p->limits.max_depth);
}

// A computation written in place of its name; it comes before the one being read.
static status_t p_inline(struct parser *p, struct hlo_computation *user, struct str body,
                         struct hlo_computation **out) {
    struct parser outer = *p;
    RETURN_IF_ERR(deeper(p, body.p));
    struct hlo_computation *c = hlo_computation_add(p->m, "region");
    hlo_computation_move_before(c, user);
    p->instrs = (struct smap){0};
    p->c.p = body.p + 1;
    status_t st = p_body(p, c);
    if (!st && p->c.p != body.p + body.n)
        st = p_error(p, p->c.p, "text behind the '}' of a computation");
    smap_done(&p->instrs);
    p->instrs = outer.instrs;
    p->c = outer.c;
    p->depth--;
    *out = c;
    return st;
}

// The computations an instruction calls, in the order that ops.def gives them.
static status_t p_called(struct parser *p, struct hlo_computation *user, enum hlo_op op,
                         struct attr_text *attrs, int n, struct hlo_computation **called,
                         int *n_called) {
    static const char *const singles[] = {
        "to_apply",          "calls", "condition", "body", "select", "scatter", "true_computation",
        "false_computation", NULL};
    static const char *const lists[] = {"branch_computations", "called_computations", NULL};
    *n_called = 0;
    if (!(hlo_op_info(op)->traits & HLO_T_REGION)) return ST_OK;

    for (int k = 0; singles[k]; k++) {
        struct attr_text *t = p_attr_find(attrs, n, singles[k]);
        if (!t) continue;
        struct cursor c = {t->value.p, t->value.p + t->value.n};
        struct hlo_computation **to = &called[(*n_called)++];
        if (p_peek(&c, '{'))
            RETURN_IF_ERR(p_inline(p, user, t->value, to));
        else
            RETURN_IF_ERR(find_computation(p, p_word(&c), t->value.p, to));
    }

    for (int k = 0; lists[k]; k++) {
        struct attr_text *t = p_attr_find(attrs, n, lists[k]);
        if (!t) continue;
        struct cursor c = {t->value.p, t->value.p + t->value.n};
        p_take(&c, "{");
        do {
            struct str name = p_word(&c);
            if (!name.n) break;
            if (*n_called == P_MAX_CALLED)
                return p_error(p, t->value.p, "more than %d called computations", P_MAX_CALLED);
            RETURN_IF_ERR(find_computation(p, name, t->value.p, &called[(*n_called)++]));
        } while (p_take(&c, ","));
    }
    return ST_OK;
}

// ---- kept attributes

// op_type and op_name become fields; the rest stays text under "metadata".
static status_t p_metadata(struct parser *p, struct str v, struct hlo_instr *i) {
    struct strbuf rest = {0};
    status_t st = ST_OK;
    struct cursor c = {v.p + 1, v.p + v.n - 1};
    while (!st && !p_at_end(&c)) {
        const char *at = c.p;
        struct str name = p_word(&c), value = {0};
        if (name.n && p_take(&c, "=")) value = p_cut(&c, " \n\t\r,");
        bool type = str_is(name, "op_type"), op = str_is(name, "op_name");
        if (!value.n || ((type || op) && !p_is_string(value)))
            st = p_error(p, at, "metadata: expected name=value or name=\"text\"");
        else if (type || op)
            *(type ? &i->op_type : &i->op_name) = p_unescape(p->m->arena, value).p;
        else
            strbuf_printf(&rest, "%s" STR_FMT "=" STR_FMT, rest.n ? " " : "", STR_ARG(name),
                          STR_ARG(value));
        p_take(&c, ",");
    }
    struct str kept;
    if (!st && rest.n) st = p_keep(p, STR("metadata"), (struct str){rest.p, rest.n}, &kept);
    if (!st && rest.n)
        avec_push(p->m->arena, &i->extra, ((struct hlo_text_attr){STR("metadata"), kept}));
    strbuf_done(&rest);
    return st;
}

// hlod_param="weight:3" says what an entry parameter is.
status_t p_param_kind(struct parser *p, struct str text, struct hlo_instr *i) {
    const char *at = text.p;
    struct str kind;
    bool ok = str_cut(&text, ':', &kind) && str_to_i64(text, &i->param_index) &&
              i->param_index >= 0 && (str_is(kind, "weight") || str_is(kind, "bound"));
    if (!ok) return p_error(p, at, "hlod_param is \"weight:N\" or \"bound:N\"");
    i->param_kind = str_is(kind, "weight") ? PARAM_WEIGHT : PARAM_BOUND;
    return ST_OK;
}

// A value in braces stands without quotes, whichever way it came.
static void put_frontend_value(struct parser *p, struct strbuf *b, struct str name,
                               struct str value) {
    struct str text = p_is_string(value) ? p_unescape(p->m->arena, value) : value;
    strbuf_printf(b, "%s" STR_FMT "=", b->n ? "," : "{", STR_ARG(name));
    if (p_is_braced(text))
        strbuf_add(b, text.p, text.n);
    else
        strbuf_add(b, value.p, value.n);
}

// name="value" or name={...}, joined by commas. Our hlod_param is taken out.
static status_t p_frontend(struct parser *p, struct str v, struct hlo_instr *i) {
    struct strbuf rest = {0};
    status_t st = ST_OK;
    struct cursor c = {v.p + 1, v.p + v.n - 1};
    while (!st && !p_at_end(&c)) {
        const char *at = c.p;
        struct str name = p_word(&c), value = {0};
        if (name.n && p_take(&c, "=")) value = p_cut(&c, ",");
        bool string = p_is_string(value), comma = p_take(&c, ",");
        if (!string && !(value.n >= 2 && value.p[0] == '{'))
            st = p_error(p, at, "frontend_attributes: expected name=\"value\"");
        else if (!comma && !p_at_end(&c))
            st = p_error(p, c.p, "frontend_attributes: expected ','");
        else if (string && str_is(name, "hlod_param") && i->op == HLO_PARAMETER)
            st = p_param_kind(p, p_unescape(p->m->arena, value), i);
        else
            put_frontend_value(p, &rest, name, value);
    }
    struct str kept;
    if (!st && rest.n) {
        strbuf_putc(&rest, '}');
        st = p_keep(p, STR("frontend_attributes"), (struct str){rest.p, rest.n}, &kept);
        if (!st)
            avec_push(p->m->arena, &i->extra,
                      ((struct hlo_text_attr){STR("frontend_attributes"), kept}));
    }
    strbuf_done(&rest);
    return st;
}

static status_t p_control(struct parser *p, struct str v, struct hlo_instr *i) {
    struct cursor c = {v.p, v.p + v.n};
    p_take(&c, "{");
    for (struct str w = p_word(&c); w.n; p_take(&c, ","), w = p_word(&c)) {
        struct hlo_instr *pred = smap_get(&p->instrs, w);
        if (!pred || pred == i)
            return p_error(p, w.p, "control predecessor '" STR_FMT "' is not defined above",
                           STR_ARG(w));
        hlo_add_control_pred(i, pred);
    }
    return ST_OK;
}

// Everything that is neither a field of the record nor a called computation.
static status_t p_rest(struct parser *p, struct attr_text *attrs, int n, struct hlo_instr *i) {
    for (int k = 0; k < n; k++) {
        struct attr_text *t = &attrs[k];
        struct str v;
        if (t->used) continue;
        RETURN_IF_ERR(p_keep(p, t->name, t->value, &v));
        bool braced = v.n >= 2 && v.p[0] == '{' && v.p[v.n - 1] == '}';
        if (str_is(t->name, "metadata") || str_is(t->name, "frontend_attributes")) {
            if (!braced)
                return p_error(p, t->value.p, STR_FMT ": expected {...}", STR_ARG(t->name));
            RETURN_IF_ERR((str_is(t->name, "metadata") ? p_metadata : p_frontend)(p, t->value, i));
        } else if (str_is(t->name, "control-predecessors")) {
            RETURN_IF_ERR(p_control(p, t->value, i));
        } else {
            struct str name = {arena_strndup(p->m->arena, t->name.p, t->name.n), t->name.n};
            avec_push(p->m->arena, &i->extra, ((struct hlo_text_attr){name, v}));
        }
    }
    hlo_sort_extra(i->extra.v, i->extra.n);
    return ST_OK;
}

// ---- instructions

// What stands right of '=': read, not yet made.
struct expr {
    const char *at; // of the opcode
    struct str name, opcode, args;
    const struct shape *shape; // or NULL
    struct attr_text *attrs;
    int n_attrs;
};

static status_t p_expr_head(struct parser *p, struct cursor *c, struct expr *e) {
    struct cursor ahead = *c;
    struct str word = p_word(&ahead);
    e->shape = NULL;
    if (!p_take(&ahead, "(") || word.n == 0) RETURN_IF_ERR(p_shape(p, c, 0, &e->shape));
    p_space(c);
    e->at = c->p;
    e->opcode = p_word(c);
    if (!p_take(c, "(")) return p_error(p, c->p, "expected '(' behind the opcode");
    e->args = p_cut(c, ")");
    if (!p_take(c, ")")) return p_error(p, e->at, "no ')' closes the operands");
    return ST_OK;
}

static status_t make(struct parser *p, struct hlo_computation *c, struct expr *e,
                     struct hlo_instr **out) MUST_CHECK;

static status_t count_instr(struct parser *p, const char *at) {
    return ++p->n_instrs <= p->limits.max_instrs
               ? ST_OK
               : p_error(p, at, "more than %lld instructions", (long long)p->limits.max_instrs);
}

// An operand that is an instruction without name and attributes.
static status_t p_nested(struct parser *p, struct hlo_computation *c, struct str text,
                         struct hlo_instr **out) {
    struct expr e = {0};
    struct cursor cur = {text.p, text.p + text.n};
    RETURN_IF_ERR(deeper(p, text.p));
    RETURN_IF_ERR(count_instr(p, text.p));
    RETURN_IF_ERR(p_expr_head(p, &cur, &e));
    if (!p_at_end(&cur)) return p_error(p, cur.p, "text behind an operand");
    RETURN_IF_ERR(make(p, c, &e, out));
    p->depth--;
    return ST_OK;
}

// "f32[2] %x, y, (f32[], s32[]) %t": the name is the last word of each item.
static status_t p_operands(struct parser *p, struct hlo_computation *comp, struct str text,
                           struct hlo_instr ***out, int *n_out) {
    struct cursor c = {text.p, text.p + text.n};
    VEC(struct hlo_instr *) v = {0};
    for (;;) {
        struct str item = p_cut(&c, ",");
        if (item.n) {
            const char *from = item.p + item.n;
            while (from > item.p && !strchr(" \t\n\r)}]", from[-1]))
                from--;
            struct str name = {from, (size_t)(item.p + item.n - from)};
            if (name.n && name.p[0] == '%') name.p++, name.n--;
            struct hlo_instr *i = smap_get(&p->instrs, name);
            if (!name.n && item.p[item.n - 1] == ')')
                RETURN_IF_ERR(p_nested(p, comp, item, &i));
            else if (!i)
                return p_error(p, from, "operand '" STR_FMT "' is not defined above",
                               STR_ARG(name));
            avec_push(p->m->arena, &v, i);
        }
        if (!p_take(&c, ",")) break;
        if (!item.n) return p_error(p, c.p, "expected an operand");
    }
    if (!p_at_end(&c)) return p_error(p, c.p, "expected ',' or ')' behind an operand");
    *out = v.v;
    *n_out = (int)v.n;
    return ST_OK;
}

status_t p_check_param(struct parser *p, const struct hlo_computation *c, int64_t number) {
    if (number < 0 || number >= p->limits.max_instrs)
        return st_invalid("parameter number %lld", (long long)number);
    return (size_t)number >= c->params.n || !c->params.v[number]
               ? ST_OK
               : st_invalid("parameter %lld is there twice", (long long)number);
}

// The error with its place in the text.
static status_t place(struct parser *p, const struct expr *e, status_t st) {
    status_t placed = e->name.n ? p_error(p, e->at, "instruction '" STR_FMT "': %s",
                                          STR_ARG(e->name), st_message(st))
                                : p_error(p, e->at, "%s", st_message(st));
    st_drop(st);
    return placed;
}

static status_t make_leaf(struct parser *p, struct hlo_computation *c, enum hlo_op op,
                          const struct expr *e, struct hlo_instr **out) {
    struct cursor cur = {e->args.p, e->args.p + e->args.n};
    if (!e->shape) return p_error(p, e->at, "%s needs a shape", hlo_op_name(op));
    if (op == HLO_CONSTANT) {
        struct literal *l;
        RETURN_IF_ERR(p_literal(p, &cur, e->shape, &l));
        if (!p_at_end(&cur)) return p_error(p, cur.p, "more text behind the literal");
        *out = hlo_add_constant(c, l);
        (*out)->shape = e->shape;
        return ST_OK;
    }
    int64_t number;
    if (!str_to_i64(e->args, &number)) return p_error(p, e->at, "expected a parameter number");
    status_t st = p_check_param(p, c, number);
    if (st) return place(p, e, st);
    *out = hlo_add_param(c, number, e->shape, "param");
    return ST_OK;
}

// A copy or reduction whose declared float type is not the one its operands give, which XLA takes
// as rounding at the end, becomes the instruction and a convert.
static bool rounds_at_end(enum hlo_op op, const struct shape *given,
                          struct hlo_instr *const *operands, int n,
                          struct hlo_computation *const *called, int n_called) {
    enum dtype t = op == HLO_COPY && n == 1                      ? operands[0]->shape->dtype
                   : op == HLO_REDUCE && n == 2 && n_called == 1 ? called[0]->root->shape->dtype
                                                                 : DT_INVALID;
    return given && t != given->dtype && dtype_is_float(t) && dtype_is_float(given->dtype);
}

// A comparison of the kind that the operands' type has anyway does not say so.
static void plain_comparison(struct hlo_attr_compare *c, enum dtype t) {
    enum cmp_type own = dtype_is_float(t) || dtype_is_complex(t) ? CMPT_FLOAT
                        : dtype_class(t) == DC_SIGNED            ? CMPT_SIGNED
                                                                 : CMPT_UNSIGNED;
    if (c->type == own) c->type = CMPT_DEFAULT;
}

// Nor does a custom call of the first version.
static void plain_version(struct hlo_attr_custom *c) {
    if (c->api_version == CUSTOM_ORIGINAL) c->api_version = CUSTOM_UNSPECIFIED;
}

// A map that names no dimensions goes over all.
static void plain_map(struct arena *a, struct hlo_attr_dims *d, int rank) {
    if (d->dimensions.n) return;
    d->dimensions = (struct i64s){arena_array(a, int64_t, rank + 1), rank};
    for (int k = 0; k < rank; k++)
        d->dimensions.v[k] = k;
}

status_t hlo_add_read_instr(struct hlo_computation *c, enum hlo_op op, const struct shape *shape,
                            struct hlo_instr *const *operands, int n, void *attr,
                            struct hlo_computation *const *called, int n_called,
                            struct hlo_instr **out) {
    bool rounds = rounds_at_end(op, shape, operands, n, called, n_called);
    // Old modules repeat the computation at each step; async-start has it.
    if (op == HLO_ASYNC_UPDATE || op == HLO_ASYNC_DONE) n_called = 0;
    if (op == HLO_CUSTOM_CALL) plain_version(attr);
    if (op == HLO_MAP && n) plain_map(c->module->arena, attr, operands[0]->shape->rank);
    if (op == HLO_COMPARE && n) plain_comparison(attr, operands[0]->shape->dtype);
    RETURN_IF_ERR(
        hlo_add_instr(c, op, rounds ? NULL : shape, operands, n, attr, called, n_called, out));
    if (op == HLO_FUSION) hlo_mark_fused(*out);
    return rounds ? hlo_add_instr(c, HLO_CONVERT, shape, out, 1, NULL, NULL, 0, out) : ST_OK;
}

static status_t add(struct parser *p, struct hlo_computation *c, enum hlo_op op,
                    const struct expr *e, struct hlo_instr *const *operands, int n, void *attr,
                    struct hlo_computation *const *called, int n_called, struct hlo_instr **out) {
    status_t st = hlo_add_read_instr(c, op, e->shape, operands, n, attr, called, n_called, out);
    return st ? place(p, e, st) : ST_OK;
}

// ---- operations made asynchronous: "X-start", "X-update", "X-done"

static bool cut_suffix(struct str *s, const char *suffix) {
    size_t n = strlen(suffix);
    if (s->n <= n || memcmp(s->p + s->n - n, suffix, n) != 0) return false;
    s->n -= n;
    return true;
}

// What a step of an asynchronous operation says of itself, as its operation does.
static bool is_about_any(struct str name) {
    return str_is(name, "metadata") || str_is(name, "frontend_attributes") ||
           str_is(name, "statistics") || str_is(name, "backend_config");
}
static bool is_about_start(struct str name) {
    return str_is(name, "async_execution_thread") || str_is(name, "control-predecessors");
}

// X-start(a, b) is async-start(a, b) of a computation that applies X to its parameters. Attributes
// are X's, except for those that say where the start runs; some are of both, as XLA has it.
static status_t make_async_start(struct parser *p, struct hlo_computation *user, enum hlo_op op,
                                 struct expr *e, struct hlo_instr **operands, int n,
                                 struct hlo_instr **out) {
    const struct shape *s = e->shape;
    if (!s || !shape_is_tuple(s) || s->n_elems < 2 || !shape_is_tuple(s->elems[0]))
        return p_error(p, e->at, STR_FMT " needs a shape ((operands), result, ...)",
                       STR_ARG(e->opcode));
    struct hlo_computation *c = hlo_computation_add(p->m, "async_wrapped"), *called[P_MAX_CALLED];
    hlo_computation_move_before(c, user);
    struct hlo_instr **params = arena_array(p->m->arena, struct hlo_instr *, n ? n : 1);
    for (int k = 0; k < n; k++)
        params[k] = hlo_add_param(c, k, operands[k]->shape, "async_param");
    struct expr inner = *e;
    struct attr_text own[P_MAX_ATTRS];
    int n_called, n_own = 0;
    void *attr;
    inner.shape = s->elems[1];
    RETURN_IF_ERR(p_called(p, c, op, e->attrs, e->n_attrs, called, &n_called));
    RETURN_IF_ERR(p_attr_record(p, hlo_op_info(op)->attrs, e->attrs, e->n_attrs, e->at, &attr));
    RETURN_IF_ERR(count_instr(p, e->at));
    RETURN_IF_ERR(add(p, c, op, &inner, params, n, attr, called, n_called, out));
    hlo_set_root(c, *out);
    for (int k = 0; k < e->n_attrs; k++) {
        bool here = is_about_start(e->attrs[k].name);
        if (!here) own[n_own++] = e->attrs[k];
        e->attrs[k].used |= !here && !is_about_any(e->attrs[k].name);
    }
    RETURN_IF_ERR(p_rest(p, own, n_own, *out));
    return add(p, user, HLO_ASYNC_START, e, operands, n, NULL, &c, 1, out);
}

static status_t make_async(struct parser *p, struct hlo_computation *c, struct expr *e,
                           struct hlo_instr **out) {
    struct str base = e->opcode;
    struct hlo_instr **operands;
    int n;
    enum hlo_op op;
    bool start = cut_suffix(&base, "-start"), update = !start && cut_suffix(&base, "-update");
    if ((!start && !update && !cut_suffix(&base, "-done")) || !hlo_op_from_name(base, &op) ||
        op == HLO_PARAMETER || op == HLO_CONSTANT)
        return p_error(p, e->at, "unknown opcode '" STR_FMT "'", STR_ARG(e->opcode));
    RETURN_IF_ERR(p_operands(p, c, e->args, &operands, &n));
    if (start) return make_async_start(p, c, op, e, operands, n, out);
    return add(p, c, update ? HLO_ASYNC_UPDATE : HLO_ASYNC_DONE, e, operands, n, NULL, NULL, 0,
               out);
}

static status_t make(struct parser *p, struct hlo_computation *c, struct expr *e,
                     struct hlo_instr **out) {
    enum hlo_op op;
    if (!hlo_op_from_name(e->opcode, &op)) return make_async(p, c, e, out);
    if (op == HLO_PARAMETER || op == HLO_CONSTANT) return make_leaf(p, c, op, e, out);
    struct hlo_instr **operands = NULL;
    struct hlo_computation *called[P_MAX_CALLED];
    int n = 0, n_called = 0;
    void *attr;
    RETURN_IF_ERR(p_operands(p, c, e->args, &operands, &n));
    RETURN_IF_ERR(p_called(p, c, op, e->attrs, e->n_attrs, called, &n_called));
    RETURN_IF_ERR(p_attr_record(p, hlo_op_info(op)->attrs, e->attrs, e->n_attrs, e->at, &attr));
    return add(p, c, op, e, operands, n, attr, called, n_called, out);
}

status_t p_instr(struct parser *p, struct hlo_computation *c, bool *out_root) {
    const char *at = p->c.p;
    struct attr_text attrs[P_MAX_ATTRS];
    struct expr e = {.attrs = attrs};
    p_space(&p->c);
    bool name = p->c.p < p->c.end && *p->c.p == '%';
    e.name = p_word(&p->c);
    bool took = p_take(&p->c, "=");
    *out_root = !name && !took && str_is(e.name, "ROOT"); // "ROOT = ..." is one of that name
    if (*out_root) e.name = p_word(&p->c);
    if (!e.name.n || !(took || p_take(&p->c, "=")))
        return p_error(p, at, "expected 'name = shape opcode(...)'");
    if (smap_has(&p->instrs, e.name))
        return p_error(p, at, "instruction '" STR_FMT "' is there twice", STR_ARG(e.name));
    RETURN_IF_ERR(count_instr(p, at));
    RETURN_IF_ERR(p_expr_head(p, &p->c, &e));
    RETURN_IF_ERR(p_attrs(p, attrs, &e.n_attrs));
    struct hlo_instr *i = NULL;
    RETURN_IF_ERR(make(p, c, &e, &i));
    const char *wanted = arena_strndup(p->m->arena, e.name.p, e.name.n);
    hlo_set_name(i, wanted);
    if (i->op == HLO_PARAMETER && strcmp(i->name, wanted))
        avec_push(p->m->arena, &p->renamed, ((struct p_renamed){i, wanted}));
    smap_put(&p->instrs, e.name, i);
    if (*out_root) hlo_set_root(c, i);
    return p_rest(p, attrs, e.n_attrs, i);
}
