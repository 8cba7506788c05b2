// SPDX-License-Identifier: Apache-2.0
// Modules and computations from HLO text, old and new forms:
//     HloModule m, attr=value, ...
//     %add (x: f32[], y: f32[]) -> f32[] { ... ROOT %r = f32[] add(f32[] %x, %y) }
//     ENTRY %main { ... }
// Signatures of computations, types of operands and '%' are optional; a name may end in ':'.
#include "compiler/ir/text/parser.h"

status_t p_body(struct parser *p, struct hlo_computation *c) {
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
    p_space(&p->c);
    bool named = p->c.p < p->c.end && *p->c.p == '%';
    struct str name = p_word(&p->c);
    bool entry = !named && str_is(name, "ENTRY");
    if (entry) {
        p_space(&p->c);
        name = p->c.p < p->c.end && *p->c.p == '{' ? STR("entry") : p_word(&p->c);
    }

    if (!name.n) return p_error(p, at, "expected a computation");
    p_take(&p->c, ":");
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
    p->renamed.n = 0;
    RETURN_IF_ERR(p_body(p, c));

    struct attr_text attrs[P_MAX_ATTRS];
    int n;
    RETURN_IF_ERR(p_attrs(p, attrs, &n)); // execution_thread and the like: nothing we keep
    smap_put(&p->computations, name, c);

    if (entry && p->m->entry) return p_error(p, at, "two ENTRY computations");
    if (entry) p->m->entry = c;
    for (size_t k = 0; entry && k < p->renamed.n; k++)
        avec_push(p->m->arena, &p->renamed_entry, p->renamed.v[k]);
    return ST_OK;
}

// The entry's parameters are a program's inputs: each has the name that its text says, and whoever
// had it before takes the other one. (Names are scoped in text, unique in a module.)
static void name_inputs(struct parser *p, const struct p_renamed *v, size_t n) {
    struct smap holder = {0};
    if (!n) return;
    HLO_EACH_COMPUTATION(c, p->m) {
        smap_put(&holder, str_of(c->name), &c->name);
        HLO_EACH_INSTR(i, c) smap_put(&holder, str_of(i->name), &i->name);
    }
    for (size_t k = 0; k < n; k++) {
        const char **has = smap_get(&holder, str_of(v[k].wanted)), *name = v[k].param->name;
        if (!has) continue; // not a name that a module can hold as it is
        smap_put(&holder, str_of(*has), &v[k].param->name);
        smap_put(&holder, str_of(name), has);
        v[k].param->name = *has;
        *has = name;
    }
    smap_done(&holder);
}

// ---- tables of source places: "FileNames", then lines `1 "text"` or `1 {name=number ...}`

static status_t p_row_start(struct parser *p, size_t n, bool *out_more) {
    struct cursor back = p->c;
    int64_t number;
    p_space(&p->c);
    *out_more = p->c.p < p->c.end && *p->c.p >= '0' && *p->c.p <= '9';
    if (!*out_more) return ST_OK;
    bool ok = p_i64(&p->c, &number) && number == (int64_t)n + 1;
    return ok ? ST_OK : p_error(p, back.p, "expected entry %zu of the table", n + 1);
}
static status_t p_strings(struct parser *p, struct hlo_strings *out) {
    for (;;) {
        bool more;
        RETURN_IF_ERR(p_row_start(p, out->n, &more));
        if (!more) return ST_OK;
        struct str s = p_cut(&p->c, "\n");
        if (!p_is_string(s)) return p_error(p, s.p, "expected a string");
        avec_push(p->m->arena, out, p_unescape(p->m->arena, s));
    }
}
// Rows of `n` numbers with the given names, each at most once; those left out are 0.
static status_t p_numbers(struct parser *p, const char *const *names, int n,
                          struct hlo_places *out) {
    for (;;) {
        bool more;
        struct hlo_place row = {{0}};
        RETURN_IF_ERR(p_row_start(p, out->n, &more));
        if (!more) return ST_OK;
        if (!p_take(&p->c, "{")) return p_error(p, p->c.p, "expected '{'");
        while (!p_take(&p->c, "}")) {
            struct str name = p_word(&p->c);
            int k = 0;
            while (k < n && !str_is(name, names[k]))
                k++;
            int64_t v;
            if (k == n || !p_take(&p->c, "=") || !p_i64(&p->c, &v) || v < INT32_MIN ||
                v > INT32_MAX)
                return p_error(p, name.p, "expected name=number of this table");
            row.v[k] = (int32_t)v;
        }
        avec_push(p->m->arena, out, row);
    }
}
static status_t p_source_map(struct parser *p) {
    struct hlo_source_map *t = &p->m->source_map;
    for (;;) {
        if (p_take(&p->c, "FileNames"))
            RETURN_IF_ERR(p_strings(p, &t->files));
        else if (p_take(&p->c, "FunctionNames"))
            RETURN_IF_ERR(p_strings(p, &t->functions));
        else if (p_take(&p->c, "FileLocations"))
            RETURN_IF_ERR(p_numbers(p, hlo_location_fields, 6, &t->locations));
        else if (p_take(&p->c, "StackFrames"))
            RETURN_IF_ERR(p_numbers(p, hlo_frame_fields, 2, &t->frames));
        else
            return ST_OK;
    }
}

// {(shape, ...)->shape}
static status_t p_entry_layout(struct parser *p, struct str v) {
    struct cursor c = {v.p, v.p + v.n};
    const struct shape *in, *out, **e;
    if (!p_take(&c, "{") || !p_peek(&c, '(')) return p_error(p, c.p, "expected {(shapes)->shape}");
    RETURN_IF_ERR(p_shape(p, &c, 0, &in));
    if (!p_take(&c, "->")) return p_error(p, c.p, "expected '->'");
    RETURN_IF_ERR(p_shape(p, &c, 0, &out));
    if (!p_take(&c, "}") || !p_at_end(&c)) return p_error(p, c.p, "expected '}'");
    e = arena_array(p->m->arena, const struct shape *, in->n_elems + 1);
    for (int k = 0; k < in->n_elems; k++)
        e[k] = in->elems[k];
    e[in->n_elems] = out;
    p->m->entry_layout = shape_tuple(p->m->arena, e, in->n_elems + 1);
    return ST_OK;
}

status_t hlo_check_entry_layout(struct hlo_module *m) {
    int n = (int)m->entry->params.n;
    const struct shape *all = m->entry_layout;
    bool same = true;
    if (!all) return ST_OK;
    if (all->n_elems != n + 1)
        return st_invalid("entry_computation_layout has %d parameters, the entry %d",
                          all->n_elems - 1, n);
    for (int k = 0; k <= n; k++) {
        const struct shape *own = k < n ? m->entry->params.v[k]->shape : m->entry->root->shape;
        if (!shape_compatible(all->elems[k], own))
            return st_invalid("entry_computation_layout has %s, the entry %s",
                              shape_text(m->arena, all->elems[k]), shape_text(m->arena, own));
        same &= shape_equal(all->elems[k], own);
    }
    if (same) m->entry_layout = NULL;
    return ST_OK;
}

static status_t p_module(struct parser *p) {
    if (p_take(&p->c, "HloModule")) {
        struct str name = p_word(&p->c);
        p_take(&p->c, ":");
        struct attr_text attrs[P_MAX_ATTRS];
        int n;
        p->m->name = arena_strndup(p->m->arena, name.p, name.n);
        RETURN_IF_ERR(p_attrs(p, attrs, &n));
        for (int k = 0; k < n; k++) {
            struct hlo_text_attr x = {attrs[k].name, {0}};
            if (str_is(x.name, "entry_computation_layout")) {
                RETURN_IF_ERR(p_entry_layout(p, attrs[k].value));
                continue;
            }
            x.name.p = arena_strndup(p->m->arena, x.name.p, x.name.n);
            RETURN_IF_ERR(p_keep(p, x.name, attrs[k].value, &x.value));
            avec_push(p->m->arena, &p->m->extra, x);
        }
        hlo_sort_extra(p->m->extra.v, p->m->extra.n);
    }

    RETURN_IF_ERR(p_source_map(p));
    for (p_space(&p->c); p->c.p < p->c.end; p_space(&p->c))
        RETURN_IF_ERR(p_computation(p));
    if (!p->m->last) return p_error(p, p->c.p, "the module has no computation");

    if (p->m->entry)
        name_inputs(p, p->renamed_entry.v, p->renamed_entry.n);
    else
        name_inputs(p, p->renamed.v, p->renamed.n);
    if (!p->m->entry) p->m->entry = p->m->last; // as XLA takes it

    RETURN_IF_ERR(hlo_check_entry_layout(p->m));
    RETURN_IF_ERR(st_note(hlo_verify(p->m), "the module does not verify"));
    return p->limits.incomplete ? ST_OK : hlo_complete(p->m);
}

status_t hlo_parse(struct str text, const struct hlo_parse_limits *limits,
                   struct hlo_module **out) {
    struct hlo_parse_limits l = limits ? *limits : (struct hlo_parse_limits){0};
    if (!l.max_text_bytes) l.max_text_bytes = INT64_C(256) << 20;
    if (!l.max_literal_bytes) l.max_literal_bytes = INT64_C(256) << 20;
    if (!l.max_depth) l.max_depth = 64;
    if (!l.max_instrs) l.max_instrs = 1000000;
    if ((int64_t)text.n > l.max_text_bytes)
        return st_exhausted("HLO text of %zu bytes is above the limit of %lld", text.n,
                            (long long)l.max_text_bytes);
    if (memchr(text.p, 0, text.n))
        return st_invalid("the text has a NUL byte at offset %zu",
                          (size_t)((const char *)memchr(text.p, 0, text.n) - text.p));
    struct hlo_module *m = hlo_module_new("module");
    char *t = p_blank_comments(m->arena, text);
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
