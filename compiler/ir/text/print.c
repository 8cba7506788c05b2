// SPDX-License-Identifier: Apache-2.0
// HLO text out, in the form that XLA's own printer uses. Canonical text replaces every name by op.N
// in order of printing and leaves out metadata.
#include "compiler/ir/text/text.h"

#include <stdio.h>

#include "base/hash.h"
#include "compiler/ir/op.h"

struct printer {
    struct strbuf *b;
    unsigned flags;
    struct pmap numbers; // canonical: instruction or computation -> number
    uintptr_t next;
    struct hlo_constants *beside;
};
enum { BESIDE_BYTES = 256, BESIDE_ALIGN = 64 };

static uintptr_t number_of(struct printer *p, const void *x) {
    uintptr_t n = (uintptr_t)pmap_get_ptr(&p->numbers, x);
    if (!n) pmap_put_ptr(&p->numbers, x, (void *)(n = ++p->next));
    return n;
}
static void put_name(struct printer *p, const struct hlo_instr *i) {
    if (p->flags & HLO_PRINT_CANONICAL) {
        strbuf_puts(p->b, hlo_op_name(i->op));
        strbuf_putc(p->b, '.');
        strbuf_u64(p->b, number_of(p, i));
    } else {
        strbuf_putc(p->b, '%');
        strbuf_puts(p->b, i->name);
    }
}
static void put_computation_name(struct printer *p, const struct hlo_computation *c) {
    if (p->flags & HLO_PRINT_CANONICAL)
        strbuf_printf(p->b, "%%c.%zu", (size_t)number_of(p, c));
    else
        strbuf_putc(p->b, '%'), strbuf_puts(p->b, c->name);
}
static void put_shape(struct printer *p, const struct shape *s) {
    shape_print(p->b, s, (p->flags & HLO_PRINT_LAYOUTS) != 0);
}

static void put_called(struct printer *p, const struct hlo_instr *i) {
    static const char *const pairs[][2] = {
        {"condition", "body"}, {"select", "scatter"}, {"true_computation", "false_computation"}};
    const char *const *pair = i->op == HLO_WHILE                ? pairs[0]
                              : i->op == HLO_SELECT_AND_SCATTER ? pairs[1]
                                                                : NULL;
    if (i->op == HLO_CONDITIONAL && i->n_called == 2 && i->operands[0]->shape->dtype == DT_PRED)
        pair = pairs[2];
    if (pair && i->n_called == 2) {
        for (int k = 0; k < 2; k++) {
            strbuf_printf(p->b, ", %s=", pair[k]);
            put_computation_name(p, i->called[k]);
        }
        return;
    }
    if (i->op == HLO_CONDITIONAL || i->op == HLO_CUSTOM_CALL) {
        strbuf_printf(p->b, ", %s={",
                      i->op == HLO_CONDITIONAL ? "branch_computations" : "called_computations");
        for (int k = 0; k < i->n_called; k++) {
            if (k) strbuf_puts(p->b, ", ");
            put_computation_name(p, i->called[k]);
        }
        strbuf_putc(p->b, '}');
        return;
    }
    bool calls = i->op == HLO_FUSION || i->op == HLO_ASYNC_START;
    strbuf_puts(p->b, calls ? ", calls=" : ", to_apply=");
    put_computation_name(p, i->called[0]);
}

static void put_metadata(struct printer *p, const struct hlo_instr *i) {
    bool more = false;
    for (size_t k = 0; k < i->extra.n; k++)
        more |= str_is(i->extra.v[k].name, "metadata");
    if (!i->op_type && !i->op_name && !more) return;
    strbuf_puts(p->b, ", metadata={");
    const char *sep = "";
    if (i->op_type) {
        strbuf_puts(p->b, "op_type=");
        hlo_quote(p->b, str_of(i->op_type));
        sep = " ";
    }
    if (i->op_name) {
        strbuf_puts(p->b, sep);
        strbuf_puts(p->b, "op_name=");
        hlo_quote(p->b, str_of(i->op_name));
        sep = " ";
    }
    for (size_t k = 0; k < i->extra.n; k++) // the rest of the source's metadata, kept verbatim
        if (str_is(i->extra.v[k].name, "metadata"))
            strbuf_printf(p->b, "%s" STR_FMT, sep, STR_ARG(i->extra.v[k].value));
    strbuf_putc(p->b, '}');
}

// Where a parameter comes from is a frontend attribute of ours among those of the text.
static void put_frontend(struct printer *p, const struct hlo_instr *i) {
    static const char *const kinds[] = {[PARAM_WEIGHT] = "weight", [PARAM_BOUND] = "bound"};
    size_t n = 0;
    const char *given = hlo_extra(i, "frontend_attributes", &n);
    bool ours = i->op == HLO_PARAMETER && i->param_kind != PARAM_INPUT;
    if (!given && !ours) return;
    strbuf_puts(p->b, ", frontend_attributes={");
    if (ours)
        strbuf_printf(p->b, "hlod_param=\"%s:%lld\"", kinds[i->param_kind],
                      (long long)i->param_index);
    if (given && n > 2) strbuf_printf(p->b, "%s%.*s", ours ? "," : "", (int)n - 2, given + 1);
    strbuf_putc(p->b, '}');
}

// ---- literals beside the text

void hlo_constants_done(struct hlo_constants *k) {
    strbuf_done(&k->bytes);
    pmap_done(&k->at);
}
static size_t place_beside(struct hlo_constants *k, const struct literal *l) {
    uint64_t hash = hash64(l->data, l->size_bytes, 1);
    size_t at = (size_t)(uintptr_t)pmap_get(&k->at, hash), n = l->size_bytes;
    if (at && k->bytes.n - (at - 1) >= n && memcmp(k->bytes.p + at - 1, l->data, n) == 0)
        return at - 1;
    static const char zeros[BESIDE_ALIGN];
    strbuf_add(&k->bytes, zeros, -k->bytes.n % BESIDE_ALIGN);
    at = k->bytes.n;
    strbuf_add(&k->bytes, l->data, n);
    pmap_put(&k->at, hash, (void *)(at + 1));
    return at;
}
static void put_literal(struct printer *p, const struct literal *l) {
    if (p->beside && !shape_is_tuple(l->shape) && !l->elided && l->size_bytes >= BESIDE_BYTES)
        strbuf_printf(p->b, "{@%zu}", place_beside(p->beside, l));
    else
        lit_print(p->b, l);
}

static void put_instr(struct printer *p, const struct hlo_instr *i) {
    struct strbuf *b = p->b;

    put_name(p, i);
    strbuf_puts(b, " = ");
    put_shape(p, i->shape);
    strbuf_putc(b, ' ');
    strbuf_puts(b, hlo_op_name(i->op));
    strbuf_putc(b, '(');

    if (i->op == HLO_PARAMETER) {
        strbuf_i64(b, i->param_number);
    } else if (i->op == HLO_CONSTANT) {
        if ((p->flags & HLO_PRINT_ELIDE) && shape_elements(i->shape) > 16)
            strbuf_puts(b, "{...}");
        else
            put_literal(p, i->literal);
    }

    for (int k = 0; k < i->n_operands; k++) {
        if (k) strbuf_puts(b, ", ");
        put_name(p, i->operands[k]);
    }
    strbuf_putc(b, ')');

    attr_print(b, hlo_op_info(i->op)->attrs, i->attr);
    if (i->n_called) put_called(p, i);
    if (i->control_preds.n) {
        strbuf_puts(b, ", control-predecessors={");
        for (size_t k = 0; k < i->control_preds.n; k++) {
            if (k) strbuf_puts(b, ", ");
            put_name(p, i->control_preds.v[k]);
        }
        strbuf_putc(b, '}');
    }

    put_frontend(p, i);
    for (size_t k = 0; k < i->extra.n; k++) {
        struct hlo_text_attr x = i->extra.v[k];
        if (str_is(x.name, "metadata") || str_is(x.name, "frontend_attributes")) continue;
        strbuf_printf(b, ", " STR_FMT "=" STR_FMT, STR_ARG(x.name), STR_ARG(x.value));
    }
    if ((p->flags & HLO_PRINT_METADATA) && !(p->flags & HLO_PRINT_CANONICAL)) put_metadata(p, i);
}

static void put_computation(struct printer *p, const struct hlo_computation *c) {
    struct strbuf *b = p->b;
    if (c == c->module->entry) strbuf_puts(b, "ENTRY ");
    put_computation_name(p, c);
    strbuf_puts(b, " (");
    for (size_t k = 0; k < c->params.n; k++) {
        if (k) strbuf_puts(b, ", ");
        if (p->flags & HLO_PRINT_CANONICAL)
            strbuf_printf(b, "p%zu", k);
        else
            strbuf_puts(b, c->params.v[k]->name);
        strbuf_puts(b, ": ");
        shape_print(b, c->params.v[k]->shape, false);
    }
    strbuf_puts(b, ") -> ");
    shape_print(b, c->root->shape, false);
    strbuf_puts(b, " {\n");
    for (const struct hlo_instr *i = c->first; i; i = i->next) {
        strbuf_puts(b, i == c->root ? "  ROOT " : "  ");
        put_instr(p, i);
        strbuf_putc(b, '\n');
    }
    strbuf_puts(b, "}\n");
}

void hlo_print_instr(struct strbuf *b, const struct hlo_instr *i, unsigned flags) {
    struct printer p = {.b = b, .flags = flags};
    put_instr(&p, i);
    pmap_done(&p.numbers);
}

const char *const hlo_location_fields[6] = {"file_name_id", "function_name_id", "line",
                                            "end_line",     "column",           "end_column"};
const char *const hlo_frame_fields[2] = {"file_location_id", "parent_frame_id"};

static void put_strings(struct strbuf *b, const char *title, const struct hlo_strings *t) {
    if (t->n) strbuf_printf(b, "\n%s\n", title);
    for (size_t k = 0; k < t->n; k++) {
        strbuf_printf(b, "%zu ", k + 1);
        hlo_quote(b, t->v[k]);
        strbuf_putc(b, '\n');
    }
}
static void put_places(struct strbuf *b, const char *title, const char *const *names, int n,
                       const struct hlo_places *t) {
    if (t->n) strbuf_printf(b, "\n%s\n", title);
    for (size_t k = 0; k < t->n; k++) {
        strbuf_printf(b, "%zu {", k + 1);
        for (int f = 0; f < n; f++)
            strbuf_printf(b, "%s%s=%d", f ? " " : "", names[f], t->v[k].v[f]);
        strbuf_puts(b, "}\n");
    }
}
static void put_source_map(struct strbuf *b, const struct hlo_source_map *t) {
    put_strings(b, "FileNames", &t->files);
    put_strings(b, "FunctionNames", &t->functions);
    put_places(b, "FileLocations", hlo_location_fields, 6, &t->locations);
    put_places(b, "StackFrames", hlo_frame_fields, 2, &t->frames);
}

void hlo_print_module_beside(struct strbuf *b, const struct hlo_module *m, unsigned flags,
                             struct hlo_constants *beside) {
    struct printer p = {.b = b, .flags = flags, .beside = beside};
    strbuf_printf(b, "HloModule %s", flags & HLO_PRINT_CANONICAL ? "m" : m->name);
    for (size_t k = 0; k < m->extra.n; k++)
        strbuf_printf(b, ", " STR_FMT "=" STR_FMT, STR_ARG(m->extra.v[k].name),
                      STR_ARG(m->extra.v[k].value));
    strbuf_puts(b, ", entry_computation_layout={(");
    const struct hlo_computation *e = m->entry;
    for (size_t k = 0; k < e->params.n; k++) {
        if (k) strbuf_puts(b, ", ");
        shape_print(b, hlo_entry_shape(m, (int)k), true);
    }
    strbuf_puts(b, ")->");
    shape_print(b, hlo_entry_shape(m, (int)e->params.n), true);
    strbuf_puts(b, "}\n");
    if ((flags & HLO_PRINT_METADATA) && !(flags & HLO_PRINT_CANONICAL))
        put_source_map(b, &m->source_map);
    HLO_EACH_COMPUTATION(c, m) {
        strbuf_putc(b, '\n');
        put_computation(&p, c);
    }
    pmap_done(&p.numbers);
}
void hlo_print_module(struct strbuf *b, const struct hlo_module *m, unsigned flags) {
    hlo_print_module_beside(b, m, flags, NULL);
}

const char *hlo_dump(const struct hlo_instr *i) {
    static char text[4096];
    struct strbuf b = {0};
    hlo_print_instr(&b, i, HLO_PRINT_METADATA | HLO_PRINT_ELIDE);
    snprintf(text, sizeof text, "%s", strbuf_cstr(&b));
    strbuf_done(&b);
    return text;
}
