// SPDX-License-Identifier: Apache-2.0
// Rematerialisation by segments (Chen et al., "Training Deep Nets with Sublinear Memory Cost",
// 2016): the forward pass is cut where little crosses the cut; what the backward pass reads inside
// a segment is computed again when it gets there. Inputs of a segment come through one opt-barrier,
// together with a derivative that arrives there, so that no pass finds the copies equal to the
// originals, and no scheduler moves them ahead of the derivative.
#include <math.h>

#include "compiler/train/parts.h"

struct remat {
    struct hb *b;
    struct arena *a;
    hv *at;       // the computation's list
    uint32_t n;   // at[0..n): the forward pass
    int64_t most; // bytes of a value that is too small to be computed again
    int *segment; // of at[k]
    bool *again;  // at[k] of the segment in work is computed again
};

static bool is_forward(const struct remat *r, const struct hlo_instr *i) {
    return i->mark < r->n;
}
static bool is_backward(const struct remat *r, const struct hlo_instr *i) {
    return i->mark >= r->n && i->mark != UINT32_MAX;
}
static int64_t bytes_of(const struct hlo_instr *i) {
    return shape_is_tuple(i->shape) ? 0 : shape_bytes(i->shape);
}
// A copy of a constant, whatever is done: costs no memory that could be saved.
static bool is_free(const struct hlo_instr *i) {
    while (i->op == HLO_BROADCAST || i->op == HLO_RESHAPE || i->op == HLO_CONVERT)
        i = i->operands[0];
    return i->op == HLO_CONSTANT || i->op == HLO_IOTA;
}
// What stays where it is: state, loops and branches, effects.
static bool is_fixed(const struct hlo_instr *i) {
    const enum hlo_op op = i->op;
    if (op == HLO_GET_TUPLE_ELEMENT) return is_fixed(i->operands[0]);
    return op == HLO_PARAMETER || op == HLO_WHILE || op == HLO_CONDITIONAL || op == HLO_CALL ||
           op == HLO_CUSTOM_CALL || op == HLO_FUSION || i->control_preds.n ||
           hlo_op_info(op)->traits & (HLO_T_EFFECT | HLO_T_COLL);
}
static bool read_behind(const struct remat *r, const struct hlo_instr *i) {
    for (size_t u = 0; u < i->users.n; u++)
        if (is_backward(r, i->users.v[u])) return true;
    return false;
}
static bool is_small(const struct remat *r, const struct hlo_instr *i) {
    return !shape_is_tuple(i->shape) && bytes_of(i) <= r->most;
}
// The place of the last instruction of the forward pass that reads i, or a large element of it.
static uint32_t last_read(const struct remat *r, const struct hlo_instr *i) {
    uint32_t last = i->mark;
    for (size_t u = 0; u < i->users.n; u++) {
        const struct hlo_instr *j = i->users.v[u];
        bool part = j->op == HLO_GET_TUPLE_ELEMENT;
        if (!is_forward(r, j) || (part && is_small(r, j))) continue;
        uint32_t at = part ? last_read(r, j) : j->mark;
        if (at > last) last = at;
    }
    return last;
}
// Bytes of the forward pass that the backward pass reads and that could be computed again.
static int64_t saved_bytes(const struct remat *r, uint32_t k) {
    const struct hlo_instr *i = r->at[k];
    return is_fixed(i) || is_free(i) || !read_behind(r, i) ? 0 : bytes_of(i);
}

// ---- segments

// How many bytes cross the cut behind each place, of values that are not there anyway.
static int64_t *crossings(const struct remat *r) {
    int64_t *c = arena_zarray(r->a, int64_t, (int64_t)r->n + 1), sum = 0;
    for (uint32_t k = 0; k < r->n; k++) {
        const struct hlo_instr *i = r->at[k];
        if (is_fixed(i) || is_free(i)) continue;
        c[k] += bytes_of(i), c[last_read(r, i)] -= bytes_of(i);
    }
    for (uint32_t k = 0; k < r->n; k++)
        c[k] = sum += c[k];
    return c;
}
// Cuts the forward pass into sqrt(values) segments of about as many saved bytes each, at the
// places near where the least crosses. Returns how many.
static int cut(struct remat *r) {
    int64_t total = 0, so_far = 0, count = 0;
    for (uint32_t k = 0; k < r->n; k++)
        total += saved_bytes(r, k);
    for (uint32_t k = 0; k < r->n; k++)
        count += saved_bytes(r, k) > total / 1024;
    int n = (int)lround(sqrt((double)count)), s = 0;
    r->most = count ? total / count / 64 : 0;
    if (r->most > 64 << 10) r->most = 64 << 10;

    int64_t best = -1, width = total / (n > 0 ? n : 1), *cross = crossings(r);
    uint32_t place = 0, from = 0;
    for (uint32_t k = 0; k < r->n && n > 1 && s < n - 1; k++) {
        so_far += saved_bytes(r, k);
        int64_t middle = width * (s + 1);
        if (so_far < middle - width / 3) continue;
        if (best < 0 || cross[k] <= best) best = cross[k], place = k;
        if (so_far < middle + width / 3 && k + 1 < r->n) continue;
        while (from <= place)
            r->segment[from++] = s;
        s++, best = -1;
    }
    while (from < r->n)
        r->segment[from++] = s;
    return s + 1;
}

// ---- a segment

static bool inside(const struct remat *r, const struct hlo_instr *i, int s) {
    return is_forward(r, i) && r->segment[i->mark] == s && !is_fixed(i) && !is_free(i) &&
           r->segment[last_read(r, i)] == s && !is_small(r, i) &&
           (i->op != HLO_GET_TUPLE_ELEMENT || inside(r, i->operands[0], s));
}
// Marks what of segment s is computed again; gives the first instruction of the backward pass that
// reads it, NULL: nothing is.
static hv choose(struct remat *r, int s) {
    hv first = NULL;
    for (uint32_t k = r->n; k-- > 0;) {
        hv i = r->at[k];
        bool needed = false;
        if (!inside(r, i, s)) continue;
        for (size_t u = 0; u < i->users.n; u++) {
            hv j = i->users.v[u];
            if (is_forward(r, j) && r->again[j->mark]) needed = true;
            if (!is_backward(r, j)) continue;
            needed = true;
            if (!first || j->mark < first->mark) first = j;
        }
        r->again[k] = needed;
    }
    return first;
}
// The last derivative that is computed ahead of `first` and still read there: what the segment
// waits for. NULL: there is none.
static hv arrival(const struct remat *r, hv first) {
    for (hv i = first->prev; i && is_backward(r, i); i = i->prev)
        for (size_t u = 0; u < i->users.n && i->shape->rank && !is_free(i); u++)
            if (is_backward(r, i->users.v[u]) && i->users.v[u]->mark >= first->mark) return i;
    return NULL;
}
static bool add(hv *v, int *n, hv x, struct pmap *places) {
    if (pmap_has_ptr(places, x)) return false;
    pmap_put_ptr(places, x, (void *)(intptr_t)*n);
    v[(*n)++] = x;
    return true;
}
static hv new_before(hv x, hv pos) {
    hlo_move_before(x, pos);
    x->mark = UINT32_MAX;
    return x;
}
static void read_from(const struct remat *r, hv old, hv now, uint32_t from) {
    int n = (int)old->users.n;
    hv *users = arena_dup_array(r->a, old->users.v, n);
    for (int u = 0; u < n; u++)
        for (int k = 0;
             is_backward(r, users[u]) && users[u]->mark >= from && k < users[u]->n_operands; k++)
            if (users[u]->operands[k] == old) hlo_set_operand(users[u], k, now);
}
// Puts the inputs of what is computed again, and what it waits for, behind a barrier; made[] gets
// what stands for them.
static void barrier(struct remat *r, hv first, struct pmap *made) {
    struct hb *b = r->b;
    struct pmap places = {0};
    int n = 0, most = 1;
    for (uint32_t k = 0; k < r->n; k++)
        most += r->again[k] ? r->at[k]->n_operands : 0;
    hv *in = arena_zarray(r->a, hv, most + 1), waits = arrival(r, first);
    for (uint32_t k = 0; k < r->n; k++)
        for (int j = 0; r->again[k] && j < r->at[k]->n_operands; j++) {
            hv x = r->at[k]->operands[j];
            if (!is_free(x) && !r->again[x->mark]) add(in, &n, x, &places);
        }
    if (waits) add(in, &n, waits, &places);
    pmap_done(&places);
    if (!n) return;

    hv all = new_before(hb_tuple(b, in, n), first);
    all = new_before(hb_unary(b, HLO_OPT_BARRIER, all), first);
    for (int k = 0; k < n && hb_ok(b); k++) {
        hv x = new_before(hb_gte(b, all, k), first);
        pmap_put_ptr(made, in[k], x);
        if (in[k] == waits) read_from(r, waits, x, first->mark);
    }
}
static void recompute(struct remat *r, int s) {
    struct pmap made = {0};
    hv first = choose(r, s);
    if (first) barrier(r, first, &made);
    for (uint32_t k = 0; first && k < r->n && hb_ok(r->b); k++) {
        hv i = r->at[k];
        if (!r->again[k]) continue;
        hv *in = arena_zarray(r->a, hv, i->n_operands + 1);
        for (int j = 0; j < i->n_operands; j++)
            in[j] = is_free(i->operands[j]) ? i->operands[j] : pmap_get_ptr(&made, i->operands[j]);
        hv copy = new_before(hlo_clone_instr(r->b->c, i, in), first);
        pmap_put_ptr(&made, i, copy);
        read_from(r, i, copy, 0);
    }
    for (uint32_t k = 0; k < r->n; k++)
        r->again[k] = false;
    pmap_done(&made);
}

int32_t remat_segments(struct hb *b, hv last, int32_t most) {
    struct remat r = {.b = b, .a = b->c->module->arena};
    uint32_t n = 0;
    if (!hb_ok(b)) return 0;
    for (hv i = b->c->first; i; i = i->next) {
        i->mark = n++;
        if (i == last) r.n = n;
    }
    r.at = arena_zarray(r.a, hv, (int64_t)n + 1);
    r.segment = arena_zarray(r.a, int, (int64_t)r.n + 1);
    r.again = arena_zarray(r.a, bool, (int64_t)r.n + 1);
    for (hv i = b->c->first; i; i = i->next)
        r.at[i->mark] = i;
    const int32_t segments = cut(&r) - 1;
    for (int s = (most < segments ? most : segments) - 1; s >= 0 && hb_ok(b); s--)
        recompute(&r, s);
    return segments;
}
