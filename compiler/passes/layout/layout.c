// SPDX-License-Identifier: Apache-2.0
// Layout assignment for the CPU: convolutions that the library runs give and take values in the
// form that it likes: blocks of channels (T(16,1,1) over NCHW, shape.h) or channels last for f32,
// channels last for 8-bit integers. Pooling keeps blocks, and so do elementwise kernels and
// concatenations of whole blocks. Channels last, which any kernel of ours reads and walks as well
// as rows, goes on through what keeps each dimension's meaning (elementwise operations, windows,
// padding; alone or in a fusion), and into reductions. Everything else is row-major; `copy` stands
// at each border, one for all users of a value.
#include "compiler/passes/fusion/dim_maps.h"
#include "compiler/passes/layout/channels.h"
#include "compiler/passes/pass.h"

static enum conv_form form_of(const struct hlo_instr *i) {
    int block;
    return lib_form_of(i->shape->layout, i->shape->rank, &block);
}
static const struct shape *in_form(struct arena *a, const struct shape *s, enum conv_form form,
                                   int block) {
    return shape_with_layout(a, s, lib_layout(form, s->rank, block));
}
// Batch, channels, and one to three dimensions of space.
static bool image(const struct hlo_instr *i) {
    return !shape_is_tuple(i->shape) && i->shape->rank >= 3 && i->shape->rank <= 5;
}
struct assignment {
    const struct target *t;
    struct pmap library; // has what the library runs, judged while everything was row-major
    struct pmap copies;  // value -> its copy in another form
};
static void set_form(struct hlo_instr *i, enum conv_form form, int block) {
    const struct shape *s = in_form(i->parent->module->arena, i->shape, form, block);
    hlo_set_shape(i, s);
    if (i->op == HLO_FUSION) hlo_set_shape(i->called[0]->root, s);
}

// ---- what runs as a kernel of ours

static bool keeps_meaning(const struct hlo_instr *i) {
    switch (i->op) {
    case HLO_PARAMETER:
    case HLO_CONSTANT:
    case HLO_BROADCAST:
    case HLO_IOTA:
    case HLO_PAD:
    case HLO_SLICE:
    case HLO_CONCATENATE:
    case HLO_REDUCE_WINDOW:
        return true;
    default:
        return hlo_is_elementwise(i);
    }
}
static bool is_kernel(const struct assignment *as, const struct hlo_instr *i) {
    return i->op != HLO_COPY && i->op != HLO_PARAMETER && i->op != HLO_CONSTANT &&
           !pmap_has_ptr(&as->library, i);
}
// Its result may lie with channels last as well as in rows.
static bool may_turn(const struct assignment *as, const struct hlo_instr *i) {
    if (!image(i) || !is_kernel(as, i)) return false;
    if (i->op != HLO_FUSION) return keeps_meaning(i);
    if (dim_maps_keeps(i, 1)) return true;
    if (HLO_ATTR(i, fusion)->kind != FUSION_LOOP) return false;
    HLO_EACH_INSTR(k, i->called[0])
    if (!keeps_meaning(k)) return false;
    return true;
}
// Its kernel reads operands wherever their elements lie.
static bool reads_any(const struct assignment *as, const struct hlo_instr *i) {
    return (i->op == HLO_FUSION || i->op == HLO_REDUCE) && is_kernel(as, i);
}

// Is it, alone or in a fusion, elementwise over values of its shape, scalars and vectors? Then it
// works in any order of the elements, in blocks too.
static bool any_order(const struct hlo_instr *i, const struct hlo_instr *k) {
    if (k->op == HLO_PARAMETER || k->op == HLO_CONSTANT)
        return shape_is_tuple(k->shape) ? false
                                        : k->shape->rank < 3 || shape_same_dims(k->shape, i->shape);
    return (k->op == HLO_BROADCAST || hlo_is_elementwise(k)) &&
           (k->shape->rank < 3 || shape_same_dims(k->shape, i->shape));
}
// May its result lie in blocks, as most of its operands do? So do concatenations of whole blocks.
// Not 8-bit integers of which one lies with channels last: convolutions want them so.
static bool may_block(const struct assignment *as, const struct hlo_instr *i) {
    int block = as->t->conv_block, blocked = 0, rows = 0;
    if (!block || !image(i) || !is_kernel(as, i) || i->shape->dims[1] % block) return false;
    bool concat = i->op == HLO_CONCATENATE && HLO_ATTR(i, dims)->dimensions.v[0] == 1;
    bool maps = dim_maps_keeps(i, 1);
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *x = i->operands[k];
        if (shape_is_tuple(x->shape)) return false;
        if (!image(x)) continue;
        if (concat ? x->shape->dims[1] % block != 0 : !maps && !shape_same_dims(x->shape, i->shape))
            return false;
        if (form_of(x) == FORM_LAST && dtype_bits(i->shape->dtype) == 8) return false;
        bool in_blocks = form_of(x) == FORM_BLOCKED ||
                         (x->op == HLO_COPY && form_of(x->operands[0]) == FORM_BLOCKED);
        *(in_blocks ? &blocked : &rows) += 1;
    }
    if (!blocked || rows > blocked) return false;
    if (concat) return true;
    if (i->op != HLO_FUSION) return hlo_is_elementwise(i);
    if (maps) return true;
    if (HLO_ATTR(i, fusion)->kind != FUSION_LOOP) return false;
    HLO_EACH_INSTR(k, i->called[0])
    if (!any_order(i, k)) return false;
    return true;
}

// Whole channels, from values in one form to a result in any.
static bool moves_channels(const struct assignment *as, const struct hlo_instr *i) {
    return as->t->library_channels && i->op == HLO_FUSION && dtype_bits(i->shape->dtype) == 32 &&
           channels_match(i);
}

// ---- borders

static void set_operand(struct hlo_instr *i, int k, struct hlo_instr *x) {
    hlo_set_operand(i, k, x);
    if (i->op == HLO_FUSION) hlo_set_shape(i->called[0]->params.v[k], x->shape);
}
// x, in rows until now, is to lie with channels last: so do copies of blocks that it alone reads,
// since a copy turns whole channels and a kernel would read them an element at a time.
static void turn_copies(struct hlo_instr *x) {
    for (int k = 0; k < x->n_operands; k++) {
        struct hlo_instr *y = x->operands[k];
        if (y->op != HLO_COPY || y->users.n != 1 || !image(y) || form_of(y) != FORM_ROWS ||
            form_of(y->operands[0]) != FORM_BLOCKED)
            continue;
        set_form(y, FORM_LAST, 0);
        set_operand(x, k, y);
    }
}
// x in the wanted form: itself, what it was copied from, or a new copy behind it. A kernel for this
// one user writes it so.
static struct hlo_instr *wanted(struct assignment *as, struct hlo_instr *x, enum conv_form form) {
    int block = as->t->conv_block;
    if (form_of(x) == form) return x;
    if (x->op == HLO_COPY && form_of(x->operands[0]) == form) return x->operands[0];
    bool single = x->users.n == 1 && x->parent->root != x;
    if (single && ((form == FORM_LAST && may_turn(as, x)) || moves_channels(as, x))) {
        if (form == FORM_LAST && form_of(x) == FORM_ROWS) turn_copies(x);
        set_form(x, form, block);
        return x;
    }
    struct hlo_instr *k = pmap_get_ptr(&as->copies, x);
    if (k && form_of(k) == form) return k;
    struct hlo_computation *c = x->parent;
    const struct shape *s = in_form(c->module->arena, x->shape, form, block);
    status_t st = hlo_add_instr(c, HLO_COPY, s, &x, 1, NULL, NULL, 0, &k);
    if (st) { // a copy of an array cannot fail its rule
        st_drop(st);
        return x;
    }
    k->op_type = x->op_type;
    k->op_name = x->op_name;
    if (x->next) hlo_move_before(k, x->next);
    pmap_put_ptr(&as->copies, x, k);
    return k;
}

// A library call: its image in one form, its result and what is added to that in the other.
static void assign_conv(struct assignment *as, struct hlo_instr *i, const struct lib_call *call,
                        enum conv_form in, enum conv_form out) {
    for (int k = 0; k < i->n_operands; k++) {
        enum conv_form form = FORM_ROWS;
        if (!image(i->operands[k])) continue;
        if (k == lib_operand(i, call->lhs)) form = in;
        for (int p = 0; p < call->n_post; p++)
            if (call->post[p].kind == LIB_POST_SUM && k == lib_operand(i, call->post[p].operand))
                form = out;
        set_operand(i, k, wanted(as, i->operands[k], form));
    }
    if (out != FORM_ROWS) set_form(i, out, as->t->conv_block);
}

// Operands in the form that one of them has already; the result as the first convolution behind
// wants it, else likewise.
static void assign_channels(struct assignment *as, struct hlo_instr *i) {
    enum conv_form from = FORM_ROWS, to, in, out;
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *x = i->operands[k];
        enum conv_form form = form_of(x->op == HLO_COPY ? x->operands[0] : x);
        if (form == FORM_BLOCKED || (form == FORM_LAST && from == FORM_ROWS)) from = form;
    }
    to = from;
    for (size_t k = i->users.n; k-- > 0;)
        if (as->t->wants_form(as->t, i->users.v[k], &in, &out)) to = in;
    for (int k = 0; k < i->n_operands; k++)
        set_operand(i, k, wanted(as, i->operands[k], from));
    if (to != FORM_ROWS) set_form(i, to, as->t->conv_block);
}

static void assign_other(struct assignment *as, struct hlo_instr *i) {
    bool pool = lib_pool(i) && form_of(i->operands[0]) == FORM_BLOCKED;
    bool blocked = pool || may_block(as, i);
    bool last = false;
    for (int k = 0; k < i->n_operands; k++)
        last |= image(i->operands[k]) && form_of(i->operands[k]) == FORM_LAST;
    bool alike = blocked && i->op == HLO_CONCATENATE; // by runs, where all lie the same way
    bool table = image(i) && lib_table(i);
    bool turn = last && (may_turn(as, i) || lib_pool(i) || table), any = last && reads_any(as, i);
    for (int k = 0; k < i->n_operands; k++) {
        struct hlo_instr *x = i->operands[k];
        if (!image(x)) continue;
        struct hlo_instr *other = pmap_get_ptr(&as->copies, x);
        if ((turn || any) && !alike && form_of(x) == FORM_LAST) {
            set_operand(i, k, x);
        } else if (turn && !blocked && form_of(x) == FORM_ROWS && other &&
                   form_of(other) == FORM_LAST) {
            set_operand(i, k, other); // a convolution has asked for it
        } else {
            bool join = turn && i->op == HLO_CONCATENATE; // by runs, where all lie the same way
            enum conv_form form = blocked ? FORM_BLOCKED : join ? FORM_LAST : FORM_ROWS;
            set_operand(i, k, wanted(as, x, form));
        }
    }
    if (blocked)
        set_form(i, FORM_BLOCKED, as->t->conv_block);
    else if (turn)
        set_form(i, FORM_LAST, as->t->conv_block);
}

static void assign(struct hlo_computation *c, struct assignment *as) {
    const struct target *t = as->t;
    enum conv_form in, out;
    HLO_EACH_INSTR(i, c)
    if (t->wants_form(t, i, &in, &out) || t->library_accepts(t, i))
        pmap_put_ptr(&as->library, i, i);
    for (struct hlo_instr *i = c->first, *next; i; i = next) {
        struct lib_call call;
        next = i->next;
        if (i->op == HLO_COPY && pmap_has_ptr(&as->copies, i->operands[0])) continue;
        if (pmap_has_ptr(&as->library, i) && t->wants_form(t, i, &in, &out) && lib_match(i, &call))
            assign_conv(as, i, &call, in, out);
        else if (moves_channels(as, i))
            assign_channels(as, i);
        else
            assign_other(as, i);
    }
    if (c->root && image(c->root)) hlo_set_root(c, wanted(as, c->root, FORM_ROWS));
}

status_t pass_layout(struct hlo_module *m, struct pass_ctx *p) {
    const struct target *t = p->target;
    if (!t || !t->wants_form) return ST_OK;
    HLO_EACH_COMPUTATION(c, m) {
        struct assignment as = {.t = t};
        if (c->fusion) continue;
        assign(c, &as);
        p->changed |= as.copies.n > 0;
        pmap_done(&as.copies);
        pmap_done(&as.library);
    }
    return ST_OK;
}
