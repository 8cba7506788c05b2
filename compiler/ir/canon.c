// SPDX-License-Identifier: Apache-2.0
// The canonical hash: each instruction is hashed over its opcode, shape, attributes, literal, and
// the hashes of its operands and callees (a Merkle graph), so names, ids, metadata and the order of
// independent instructions do not matter. A computation hashes as its root, its parameters' shapes,
// and its side effects in order.
#include "base/hash.h"
#include "compiler/ir/op.h"
#include "compiler/ir/text/text.h"

static void add_shape(struct sha256 *h, const struct shape *s) {
    struct strbuf b = {0};
    shape_print(&b, s, true);
    sha256_str(h, (struct str){strbuf_cstr(&b), b.n});
    strbuf_done(&b);
}

static void add_literal(struct sha256 *h, const struct literal *l) {
    if (l->elided) sha256_str(h, STR("{...}"));
    if (shape_is_tuple(l->shape))
        for (int k = 0; k < l->shape->n_elems; k++)
            add_literal(h, l->elems[k]);
    else
        sha256_str(h, (struct str){l->data, l->size_bytes});
}

static bool is_semantic(struct str name) {
    return !str_is(name, "metadata") && !str_is(name, "frontend_attributes") &&
           !str_is(name, "origin");
}

static struct digest hash_instr(const struct hlo_instr *i, const struct pmap *instrs,
                                const struct pmap *computations) {
    struct sha256 h;
    struct strbuf b = {0};
    sha256_init(&h);
    sha256_str(&h, str_of(hlo_op_name(i->op)));
    add_shape(&h, i->shape);
    attr_print(&b, hlo_op_info(i->op)->attrs, i->attr);
    sha256_str(&h, (struct str){strbuf_cstr(&b), b.n});
    strbuf_done(&b);
    if (i->op == HLO_PARAMETER) {
        sha256_u64(&h, (uint64_t)i->param_number);
        sha256_u64(&h, (uint64_t)i->param_kind);
        sha256_u64(&h, (uint64_t)i->param_index);
    }
    if (i->literal) add_literal(&h, i->literal);
    sha256_u64(&h, (uint64_t)i->n_operands);
    for (int k = 0; k < i->n_operands; k++)
        sha256_add(&h, pmap_get_ptr(instrs, i->operands[k]), sizeof(struct digest));
    for (size_t k = 0; k < i->control_preds.n; k++)
        sha256_add(&h, pmap_get_ptr(instrs, i->control_preds.v[k]), sizeof(struct digest));
    for (int k = 0; k < i->n_called; k++)
        sha256_add(&h, pmap_get_ptr(computations, i->called[k]), sizeof(struct digest));
    for (size_t k = 0; k < i->extra.n; k++)
        if (is_semantic(i->extra.v[k].name)) {
            sha256_str(&h, i->extra.v[k].name);
            sha256_str(&h, i->extra.v[k].value);
        }
    return sha256_end(&h);
}

void hlo_canonical_hash(const struct hlo_module *m, struct digest *out) {
    struct pmap computations = {0}, instrs = {0};
    struct arena a = {0};

    HLO_EACH_COMPUTATION(c, m) {
        struct sha256 h;
        sha256_init(&h);
        for (const struct hlo_instr *i = c->first; i; i = i->next) {
            struct digest d = hash_instr(i, &instrs, &computations);
            pmap_put_ptr(&instrs, i, arena_dup(&a, &d, sizeof d));
            if (hlo_has_effect(i)) sha256_add(&h, &d, sizeof d);
        }
        for (size_t k = 0; k < c->params.n; k++)
            add_shape(&h, c->params.v[k]->shape);
        sha256_add(&h, pmap_get_ptr(&instrs, c->root), sizeof(struct digest));
        struct digest d = sha256_end(&h);
        pmap_put_ptr(&computations, c, arena_dup(&a, &d, sizeof d));
    }

    *out = *(const struct digest *)pmap_get_ptr(&computations, m->entry);
    for (int k = 0; k < 2; k++) { // whose memory results may take
        struct str donors = hlo_module_extra(m, hlo_donor_attrs[k]);
        struct sha256 h;
        if (!donors.n) continue;
        sha256_init(&h);
        sha256_add(&h, out, sizeof *out);
        sha256_str(&h, str_of(hlo_donor_attrs[k]));
        sha256_str(&h, donors);
        *out = sha256_end(&h);
    }

    pmap_done(&computations);
    pmap_done(&instrs);
    arena_done(&a);
}
