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

// by_index: a weight is the one that the manifest has there, whatever the parameter's number.
static struct digest hash_instr(const struct hlo_instr *i, const struct pmap *instrs,
                                const struct pmap *computations, bool by_index) {
    struct sha256 h;
    struct strbuf b = {0};
    sha256_init(&h);
    sha256_str(&h, str_of(hlo_op_name(i->op)));
    add_shape(&h, i->shape);
    attr_print(&b, hlo_op_info(i->op)->attrs, i->attr);
    sha256_str(&h, (struct str){strbuf_cstr(&b), b.n});
    strbuf_done(&b);
    if (i->op == HLO_PARAMETER) {
        if (!by_index || i->param_kind != PARAM_WEIGHT) sha256_u64(&h, (uint64_t)i->param_number);
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

// Digests of all instructions and computations, in a.
struct merkle {
    struct pmap computations, instrs;
    struct arena a;
};
static void hash_all(struct merkle *t, const struct hlo_module *m, bool by_index) {
    HLO_EACH_COMPUTATION(c, m) {
        struct sha256 h;
        sha256_init(&h);
        for (const struct hlo_instr *i = c->first; i; i = i->next) {
            struct digest d = hash_instr(i, &t->instrs, &t->computations, by_index);
            pmap_put_ptr(&t->instrs, i, arena_dup(&t->a, &d, sizeof d));
            if (hlo_has_effect(i)) sha256_add(&h, &d, sizeof d);
        }
        for (size_t k = 0; k < c->params.n; k++)
            add_shape(&h, c->params.v[k]->shape);
        sha256_add(&h, pmap_get_ptr(&t->instrs, c->root), sizeof(struct digest));
        struct digest d = sha256_end(&h);
        pmap_put_ptr(&t->computations, c, arena_dup(&t->a, &d, sizeof d));
    }
}
static void merkle_done(struct merkle *t) {
    pmap_done(&t->computations);
    pmap_done(&t->instrs);
    arena_done(&t->a);
}

void hlo_canonical_results(const struct hlo_module *m, struct digest *out) {
    struct merkle t = {0};
    const struct hlo_instr *root = m->entry->root;
    hash_all(&t, m, true);
    for (int k = 0; k < root->n_operands; k++)
        out[k] = *(const struct digest *)pmap_get_ptr(&t.instrs, root->operands[k]);
    merkle_done(&t);
}
void hlo_canonical_hash(const struct hlo_module *m, struct digest *out) {
    struct merkle t = {0};
    hash_all(&t, m, false);
    *out = *(const struct digest *)pmap_get_ptr(&t.computations, m->entry);
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
    merkle_done(&t);
}
