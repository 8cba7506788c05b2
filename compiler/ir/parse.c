// SPDX-License-Identifier: Apache-2.0
// Modules, computations and instructions from HLO text, old and new forms:
//     HloModule m, attr=value, ...
//     %add (x: f32[], y: f32[]) -> f32[] { ... ROOT %r = f32[] add(f32[] %x, %y) }      header and
//     operand types optional, '%' optional ENTRY %main { ... }
// An instruction is read in two steps: its operands and attributes are cut out as text, then
// understood by the op's row. What no row knows is kept verbatim.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/ir/parser.h"

enum { MAX_ATTRS = 64 };

status_t p_error(const struct parser *p, const char *at, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    int line = 1, column = 1;
    for (const char *q = p->start; q < at && q < p->c.end; q++)
        column = *q == '\n' ? (line++, 1) : column + 1;
    return st_new(ST_INVALID_ARGUMENT, "%d:%d: %s", line, column, text);
}

// A copy of the text with comments turned into spaces; line breaks stay.
static char *blank_comments(struct arena *a, struct str text) {
    char *t = arena_strndup(a, text.p, text.n);
    for (size_t i = 0; i < text.n; i++) {
        if (t[i] == '"') {
            for (i++; i < text.n && t[i] != '"' && t[i] != '\n'; i++)
                if (t[i] == '\\') i++;
        } else if (t[i] == '/' && i + 1 < text.n && t[i + 1] == '/') {
            while (i < text.n && t[i] != '\n')
                t[i++] = ' ';
        } else if (t[i] == '/' && i + 1 < text.n && t[i + 1] == '*') {
            while (i < text.n && !(t[i] == '*' && i + 1 < text.n && t[i + 1] == '/')) {
                if (t[i] != '\n') t[i] = ' ';
                i++;
            }
            if (i < text.n) t[i++] = ' ';
            if (i < text.n) t[i] = ' ';
        }
    }
    return t;
}

// Brackets and quotes of a value close: what is kept verbatim must be readable again.
static bool balanced(struct str v) {
    char open[64];
    int depth = 0;
    bool quoted = false;
    for (size_t k = 0; k < v.n; k++) {
        char c = v.p[k];
        if (c == '"') quoted = !quoted;
        if (quoted) {
            k += c == '\\';
        } else if (strchr("{([", c)) {
            if (depth == 64) return false;
            open[depth++] = c == '{' ? '}' : c == '(' ? ')' : ']';
        } else if (strchr("})]", c)) {
            if (depth == 0 || open[--depth] != c) return false;
        }
    }
    return depth == 0 && !quoted;
}

// ", name=value, name=value": cut into pairs. Stops where no comma follows.
static status_t p_attrs(struct parser *p, struct attr_text *out, int *n) {
    *n = 0;
    while (p_take(&p->c, ",")) {
        const char *at = p->c.p;
        struct attr_text t = {.name = p_word(&p->c)};
        if (!t.name.n || !p_take(&p->c, "=")) return p_error(p, at, "expected name=value");
        if (*n == MAX_ATTRS) return p_error(p, at, "more than %d attributes", MAX_ATTRS);
        // A value ends at a comma or at the end of the instruction: a line break outside brackets,
        // or the closing brace of the computation.
        t.value = p_cut(&p->c, ",\n");
        if (!balanced(t.value))
            return p_error(p, at, "attribute " STR_FMT " has brackets that do not close",
                           STR_ARG(t.name));
        if (!t.value.n)
            return p_error(p, at, "attribute " STR_FMT " has no value", STR_ARG(t.name));
        out[(*n)++] = t;
    }
    return ST_OK;
}

static struct attr_text *attr_find(struct attr_text *attrs, int n, const char *name) {
    for (int k = 0; k < n; k++)
        if (str_is(attrs[k].name, name)) {
            attrs[k].used = true;
            return &attrs[k];
        }
    return NULL;
}

static status_t find_computation(struct parser *p, struct str name, const char *at,
                                 struct hlo_computation **out) {
    *out = smap_get(&p->computations, name);
    return *out ? ST_OK
                : p_error(p, at, "computation '" STR_FMT "' is not defined above", STR_ARG(name));
}

// The computations an instruction calls, in the order that ops.def gives them.
static status_t p_called(struct parser *p, enum hlo_op op, struct attr_text *attrs, int n,
                         struct hlo_computation **called, int *n_called, int max) {
    static const char *const singles[] = {
        "to_apply",          "calls", "condition", "body", "select", "scatter", "true_computation",
        "false_computation", NULL};
    static const char *const lists[] = {"branch_computations", "called_computations", NULL};
    *n_called = 0;
    if (!(hlo_op_info(op)->traits & HLO_T_REGION)) return ST_OK;
    for (int k = 0; singles[k]; k++) {
        struct attr_text *t = attr_find(attrs, n, singles[k]);
        if (!t) continue;
        struct cursor c = {t->value.p, t->value.p + t->value.n};
        RETURN_IF_ERR(find_computation(p, p_word(&c), t->value.p, &called[(*n_called)++]));
    }
    for (int k = 0; lists[k]; k++) {
        struct attr_text *t = attr_find(attrs, n, lists[k]);
        if (!t) continue;
        struct cursor c = {t->value.p, t->value.p + t->value.n};
        p_take(&c, "{");
        do {
            struct str name = p_word(&c);
            if (!name.n) break;
            if (*n_called == max)
                return p_error(p, t->value.p, "more than %d called computations", max);
            RETURN_IF_ERR(find_computation(p, name, t->value.p, &called[(*n_called)++]));
        } while (p_take(&c, ","));
    }
    return ST_OK;
}

// "f32[2] %x, y, (f32[], s32[]) %t": the name is the last word of each item.
static status_t p_operands(struct parser *p, struct str text, struct hlo_instr ***out, int *n_out) {
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
            if (!i)
                return p_error(p, from, "operand '" STR_FMT "' is not defined above",
                               STR_ARG(name));
            avec_push(p->m->arena, &v, i);
        }
        if (!p_take(&c, ",")) break;
        if (!item.n) return p_error(p, c.p, "expected an operand");
    }
    *out = v.v;
    *n_out = (int)v.n;
    return ST_OK;
}

static struct str keep(struct parser *p, struct str s) {
    return (struct str){arena_strndup(p->m->arena, s.p, s.n), s.n};
}

// op_type and op_name become fields; the rest stays text under "metadata".
static void p_metadata(struct parser *p, struct str v, struct hlo_instr *i) {
    struct strbuf rest = {0};
    struct cursor c = {v.p + 1, v.p + v.n - 1};
    while (c.p < c.end) {
        struct str item = p_cut(&c, " \n\t,");
        if (!item.n && c.p < c.end) {
            c.p++;
            continue;
        }
        bool type = str_starts(item, "op_type=\""), name = str_starts(item, "op_name=\"");
        if (type || name) {
            char *text = arena_alloc(p->m->arena, item.n);
            size_t n = 0;
            for (size_t k = 9; k + 1 < item.n; k++)
                text[n++] = item.p[k] == '\\' && k + 2 < item.n ? item.p[++k] : item.p[k];
            text[n] = 0;
            *(type ? &i->op_type : &i->op_name) = text;
        } else if (item.n) {
            strbuf_printf(&rest, "%s" STR_FMT, rest.n ? " " : "", STR_ARG(item));
        }
    }
    if (rest.n)
        avec_push(p->m->arena, &i->extra,
                  ((struct hlo_text_attr){STR("metadata"), keep(p, (struct str){rest.p, rest.n})}));
    strbuf_done(&rest);
}

// Takes our hlod_param out of the frontend attributes.
static status_t p_frontend(struct parser *p, struct str v, struct hlo_instr *i) {
    struct cursor c = {v.p + 1, v.p + v.n - 1};
    struct strbuf rest = {0};
    while (c.p < c.end) {
        struct str item = p_cut(&c, ",");
        struct str name, value = item;
        if (str_cut(&value, '=', &name) && str_is(name, "hlod_param") && i->op == HLO_PARAMETER) {
            struct str kind;
            bool ok = value.n > 2 && (value.p++, value.n -= 2, str_cut(&value, ':', &kind)) &&
                      str_to_i64(value, &i->param_index) && i->param_index >= 0;
            i->param_kind = ok && str_is(kind, "weight") ? PARAM_WEIGHT : PARAM_BOUND;
            if (!ok || (i->param_kind == PARAM_BOUND && !str_is(kind, "bound"))) {
                strbuf_done(&rest);
                return p_error(p, item.p, "hlod_param is \"weight:N\" or \"bound:N\"");
            }
        } else if (item.n) {
            strbuf_printf(&rest, "%s" STR_FMT, rest.n ? "," : "{", STR_ARG(item));
        }
        if (!p_take(&c, ",")) break;
    }
    if (rest.n) {
        strbuf_putc(&rest, '}');
        avec_push(p->m->arena, &i->extra,
                  ((struct hlo_text_attr){STR("frontend_attributes"),
                                          keep(p, (struct str){rest.p, rest.n})}));
    }
    strbuf_done(&rest);
    return ST_OK;
}

// Everything that is neither a field of the record nor a called computation.
static status_t p_rest(struct parser *p, struct attr_text *attrs, int n, struct hlo_instr *i) {
    for (int k = 0; k < n; k++) {
        struct attr_text *t = &attrs[k];
        bool braced = t->value.n >= 2 && t->value.p[0] == '{' && t->value.p[t->value.n - 1] == '}';
        if (str_is(t->name, "metadata") && braced) {
            p_metadata(p, t->value, i);
        } else if (str_is(t->name, "frontend_attributes") && braced) {
            RETURN_IF_ERR(p_frontend(p, t->value, i));
        } else if (str_is(t->name, "control-predecessors")) {
            struct cursor c = {t->value.p, t->value.p + t->value.n};
            p_take(&c, "{");
            for (struct str w = p_word(&c); w.n; p_take(&c, ","), w = p_word(&c)) {
                struct hlo_instr *pred = smap_get(&p->instrs, w);
                if (!pred)
                    return p_error(p, w.p, "control predecessor '" STR_FMT "' is not defined above",
                                   STR_ARG(w));
                avec_push(p->m->arena, &i->control_preds, pred);
            }
        } else if (!t->used) {
            avec_push(p->m->arena, &i->extra,
                      ((struct hlo_text_attr){keep(p, t->name), keep(p, t->value)}));
        }
    }
    return ST_OK;
}

static status_t p_leaf(struct parser *p, struct hlo_computation *c, enum hlo_op op,
                       const struct shape *shape, struct str args, const char *at,
                       struct hlo_instr **out) {
    struct cursor cur = {args.p, args.p + args.n};
    if (!shape) return p_error(p, at, "%s needs a shape", hlo_op_name(op));
    if (op == HLO_CONSTANT) {
        struct literal *l;
        RETURN_IF_ERR(p_literal(p, &cur, shape, &l));
        p_space(&cur);
        if (cur.p != cur.end) return p_error(p, cur.p, "more text behind the literal");
        *out = hlo_add_constant(c, l);
        (*out)->shape = shape;
        return ST_OK;
    }
    int64_t number;
    if (!str_to_i64(args, &number) || number < 0 || number > p->limits.max_instrs)
        return p_error(p, at, "expected a parameter number");
    if ((size_t)number < c->params.n && c->params.v[number])
        return p_error(p, at, "parameter %lld is there twice", (long long)number);
    *out = hlo_add_param(c, number, shape, "param");
    return ST_OK;
}

static status_t p_instr(struct parser *p, struct hlo_computation *c, bool *out_root) {
    const char *at = p->c.p;
    struct cursor back = p->c;
    struct str name = p_word(&p->c);
    *out_root = str_is(name, "ROOT");
    if (*out_root) name = p_word(&p->c);
    if (!name.n || !p_take(&p->c, "="))
        return p_error(p, back.p, "expected 'name = shape opcode(...)'");
    if (smap_has(&p->instrs, name))
        return p_error(p, at, "instruction '" STR_FMT "' is there twice", STR_ARG(name));
    if (++p->n_instrs > p->limits.max_instrs)
        return p_error(p, at, "more than %lld instructions", (long long)p->limits.max_instrs);
    const struct shape *shape = NULL;
    struct cursor ahead = p->c;
    struct str word = p_word(&ahead);
    if (!p_take(&ahead, "(") || word.n == 0) RETURN_IF_ERR(p_shape(p, &p->c, 0, &shape));
    at = p->c.p;
    struct str opcode = p_word(&p->c);
    enum hlo_op op;
    if (!hlo_op_from_name(opcode, &op))
        return p_error(p, at, "unknown opcode '" STR_FMT "'", STR_ARG(opcode));
    if (!p_take(&p->c, "(")) return p_error(p, p->c.p, "expected '(' behind the opcode");
    struct str args = p_cut(&p->c, ")");
    if (!p_take(&p->c, ")")) return p_error(p, at, "no ')' closes the operands");
    struct attr_text attrs[MAX_ATTRS];
    struct hlo_computation *called[256];
    int n = 0, n_called = 0;
    RETURN_IF_ERR(p_attrs(p, attrs, &n));
    struct hlo_instr *i = NULL;
    if (op == HLO_PARAMETER || op == HLO_CONSTANT) {
        RETURN_IF_ERR(p_leaf(p, c, op, shape, args, at, &i));
    } else {
        struct hlo_instr **operands = NULL;
        int n_operands = 0;
        void *attr;
        RETURN_IF_ERR(p_operands(p, args, &operands, &n_operands));
        RETURN_IF_ERR(p_called(p, op, attrs, n, called, &n_called, 256));
        RETURN_IF_ERR(p_attr_record(p, hlo_op_info(op)->attrs, attrs, n, at, &attr));
        status_t st = hlo_add_instr(c, op, shape, operands, n_operands, attr, called, n_called, &i);
        if (st) {
            status_t with_place =
                p_error(p, at, "instruction '" STR_FMT "': %s", STR_ARG(name), st_message(st));
            st_drop(st);
            return with_place;
        }
    }
    hlo_set_name(i, arena_strndup(p->m->arena, name.p, name.n));
    smap_put(&p->instrs, name, i);
    if (i->op == HLO_FUSION && n_called) called[0]->fusion = i;
    if (*out_root) hlo_set_root(c, i);
    return p_rest(p, attrs, n, i);
}

static status_t p_body(struct parser *p, struct hlo_computation *c) {
    struct hlo_instr *last_root = NULL;
    while (!p_take(&p->c, "}")) {
        bool root;
        p_space(&p->c);
        if (p->c.p == p->c.end)
            return p_error(p, p->c.p, "no '}' closes computation '%s'", c->name);
        RETURN_IF_ERR(p_instr(p, c, &root));
        if (root && last_root)
            return p_error(p, p->c.p, "computation '%s' has two ROOT instructions", c->name);
        if (root) last_root = c->root;
    }
    if (!c->last) return p_error(p, p->c.p, "computation '%s' is empty", c->name);
    if (!c->root) hlo_set_root(c, c->last);
    for (size_t k = 0; k < c->params.n; k++)
        if (!c->params.v[k])
            return p_error(p, p->c.p, "computation '%s' has no parameter %zu", c->name, k);
    return ST_OK;
}

static status_t p_computation(struct parser *p) {
    const char *at = p->c.p;
    struct str name = p_word(&p->c);
    bool entry = str_is(name, "ENTRY");
    if (entry) {
        p_space(&p->c);
        name = p->c.p < p->c.end && *p->c.p == '{' ? STR("entry") : p_word(&p->c);
    }
    if (!name.n) return p_error(p, at, "expected a computation");
    if (p_take(&p->c, "(")) { // the signature repeats what the parameters say
        (void)p_cut(&p->c, ")");
        const struct shape *result;
        if (!p_take(&p->c, ")") || !p_take(&p->c, "->"))
            return p_error(p, at, "expected (parameters) -> shape");
        RETURN_IF_ERR(p_shape(p, &p->c, 0, &result));
    }
    if (!p_take(&p->c, "{"))
        return p_error(p, p->c.p, "expected '{' of computation '" STR_FMT "'", STR_ARG(name));
    if (smap_has(&p->computations, name))
        return p_error(p, at, "computation '" STR_FMT "' is there twice", STR_ARG(name));
    struct hlo_computation *c =
        hlo_computation_add(p->m, arena_strndup(p->m->arena, name.p, name.n));
    smap_done(&p->instrs);
    RETURN_IF_ERR(p_body(p, c));
    struct attr_text attrs[MAX_ATTRS];
    int n;
    RETURN_IF_ERR(p_attrs(p, attrs, &n)); // execution_thread and the like: nothing we keep
    smap_put(&p->computations, name, c);
    if (entry && p->m->entry) return p_error(p, at, "two ENTRY computations");
    if (entry) p->m->entry = c;
    return ST_OK;
}

static status_t p_module(struct parser *p) {
    if (p_take(&p->c, "HloModule")) {
        struct str name = p_word(&p->c);
        struct attr_text attrs[MAX_ATTRS];
        int n;
        p->m->name = arena_strndup(p->m->arena, name.p, name.n);
        RETURN_IF_ERR(p_attrs(p, attrs, &n));
        for (int k = 0; k < n; k++)
            if (!str_is(attrs[k].name, "entry_computation_layout"))
                avec_push(
                    p->m->arena, &p->m->extra,
                    ((struct hlo_text_attr){keep(p, attrs[k].name), keep(p, attrs[k].value)}));
    }
    for (p_space(&p->c); p->c.p < p->c.end; p_space(&p->c))
        RETURN_IF_ERR(p_computation(p));
    if (!p->m->last) return p_error(p, p->c.p, "the module has no computation");
    if (!p->m->entry) p->m->entry = p->m->last; // as XLA takes it
    return st_note(hlo_verify(p->m), "the module does not verify");
}

status_t hlo_parse(struct str text, const struct hlo_parse_limits *limits,
                   struct hlo_module **out) {
    struct hlo_parse_limits l = limits ? *limits : (struct hlo_parse_limits){0};
    if (!l.max_text_bytes) l.max_text_bytes = INT64_C(256) << 20;
    if (!l.max_literal_bytes) l.max_literal_bytes = INT64_C(256) << 20;
    if (!l.max_depth) l.max_depth = 64;
    if (!l.max_instrs) l.max_instrs = 1000000;
    if ((int64_t)text.n > l.max_text_bytes)
        return st_new(ST_RESOURCE_EXHAUSTED, "HLO text of %zu bytes is above the limit of %lld",
                      text.n, (long long)l.max_text_bytes);
    struct hlo_module *m = hlo_module_new("module");
    char *t = blank_comments(m->arena, text);
    struct parser p = {.start = t, .c = {t, t + text.n}, .m = m, .limits = l};
    status_t st = p_module(&p);
    smap_done(&p.instrs);
    smap_done(&p.computations);
    if (st)
        hlo_module_free(m);
    else
        *out = m;
    return st;
}
