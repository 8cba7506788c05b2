// SPDX-License-Identifier: Apache-2.0
// Reading the call; its form as a loop, in which each turn picks the best box left of every row;
// and a row by a heap of boxes, where each that comes is compared with those picked: as many
// comparisons as boxes come, not as there are.
#include "compiler/calls/nms.h"

#include <math.h>

bool nms_is(const struct hlo_instr *i) {
    return i->op == HLO_CUSTOM_CALL && str_is(HLO_ATTR(i, custom)->custom_call_target, "hlod.nms");
}
static bool plain(const struct shape *s, enum dtype t, int rank) {
    return !shape_is_tuple(s) && !s->dynamic && s->dtype == t && s->rank == rank &&
           layout_is_default(s->layout, s->rank);
}
static bool fit(const struct hlo_instr *i, struct nms *o) {
    const struct shape *r = i->shape, *s;
    if (!nms_is(i) || i->n_operands != NMS_OPERANDS || !shape_is_tuple(r) || r->n_elems != 2 ||
        !plain(r->elems[0], DT_S64, 2) || !plain(r->elems[1], DT_PRED, 2) ||
        !shape_same_dims(r->elems[0], r->elems[1]))
        return false;
    for (int k = 0; k < NMS_OPERANDS; k++)
        if (!plain(i->operands[k]->shape, DT_F32, k < NMS_IOU ? 2 : 0)) return false;
    s = i->operands[NMS_SCORES]->shape;
    *o = (struct nms){s->dims[0], i->operands[NMS_Y1]->shape->dims[0], s->dims[1],
                      r->elems[0]->dims[1]};
    for (int k = NMS_Y1; k <= NMS_X2; k++)
        if (i->operands[k]->shape->dims[0] != o->batches ||
            i->operands[k]->shape->dims[1] != o->n)
            return false;
    return o->rows > 0 && o->batches > 0 && o->rows % o->batches == 0 && o->n > 0 && o->most > 0 &&
           o->most <= o->n && o->n <= INT32_MAX && r->elems[0]->dims[0] == o->rows;
}
status_t nms_read(const struct hlo_instr *i, struct nms *out) {
    if (fit(i, out)) return ST_OK;
    return st_invalid("instruction '%s': operands of hlod.nms do not fit", i->name);
}
hv nms_call(struct hb *b, hv const *operands, int64_t most) {
    struct arena *a = b->c->module->arena;
    int64_t dims[2] = {operands[NMS_SCORES]->shape->dims[0], most};
    const struct shape *both[] = {shape_make(a, DT_S64, dims, 2), shape_make(a, DT_PRED, dims, 2)};
    struct hlo_attr_custom call = {.custom_call_target = str_of("hlod.nms")};
    return hb_op(b, HLO_CUSTOM_CALL, shape_tuple(a, both, 2), operands, NMS_OPERANDS, &call);
}

// ---- as a loop: state = (k, go, scores left [R,N], picked, found [R,K], corners and area [R,N],
// thresholds)

enum { K, GO, LEFT, PICKED, FOUND, Y1, X1, Y2, X2, AREA, IOU, LEAST, N_STATE };

static hv across(struct hb *b, hv column, const struct shape *like) { // [R] over [R,N]
    int64_t row = 0;
    return hb_broadcast(b, column, like->dims, like->rank, &row);
}
static hv fold_rows(struct hb *b, hv x, double init, enum hlo_op op) { // [R,N] -> [R]
    int64_t last = 1;
    return hb_reduce(b, x, hb_const_f64(b, x->shape->dtype, init), &last, 1, op);
}
static hv chosen(struct hb *b, hv which, hv x) { // the element of each row that `which` marks
    return fold_rows(b, hb_select(b, which, x, hb_splat(b, x->shape, 0)), 0, HLO_ADD);
}
static hv put_column(struct hb *b, hv into, hv column, hv k) {
    int64_t dims[] = {into->shape->dims[0], 1};
    hv operands[] = {into, hb_reshape(b, column, dims, 2), hb_const_i64(b, DT_S64, 0), k};
    return hb_op(b, HLO_DYNAMIC_UPDATE_SLICE, into->shape, operands, 4, NULL);
}

// One box for every row.
static void pick(struct hb *b, hv *s) {
    const struct shape *rn = s[LEFT]->shape;
    hv none = hb_splat(b, rn, -INFINITY), zero = hb_splat(b, rn, 0);
    hv best = fold_rows(b, s[LEFT], -INFINITY, HLO_MAXIMUM);
    hv place = hb_iota(b, shape_with_dtype(b->c->module->arena, rn, DT_S64), 1);
    hv at = fold_rows(b,
                      hb_select(b, hb_compare(b, s[LEFT], across(b, best, rn), CMP_EQ), place,
                                hb_splat(b, place->shape, (double)rn->dims[1])),
                      9e18, HLO_MINIMUM);
    hv which = hb_compare(b, place, across(b, at, place->shape), CMP_EQ);
    hv good = hb_compare(b, best, hb_broadcast(b, s[LEAST], rn->dims, 1, NULL), CMP_GT);
    hv y1 = across(b, chosen(b, which, s[Y1]), rn), x1 = across(b, chosen(b, which, s[X1]), rn),
       y2 = across(b, chosen(b, which, s[Y2]), rn), x2 = across(b, chosen(b, which, s[X2]), rn),
       area = across(b, chosen(b, which, s[AREA]), rn);
    hv high = hb_max(b, zero, hb_sub(b, hb_min(b, y2, s[Y2]), hb_max(b, y1, s[Y1])));
    hv wide = hb_max(b, zero, hb_sub(b, hb_min(b, x2, s[X2]), hb_max(b, x1, s[X1])));
    hv common = hb_mul(b, high, wide), all = hb_sub(b, hb_add(b, area, s[AREA]), common);
    hv over = hb_compare(b, hb_div(b, common, all),
                         hb_broadcast(b, s[IOU], rn->dims, rn->rank, NULL), CMP_GT);
    over = hb_binary(b, HLO_AND, over, hb_compare(b, all, zero, CMP_GT));
    over = hb_binary(b, HLO_OR, over, which);
    s[LEFT] = hb_select(b, hb_binary(b, HLO_AND, over, across(b, good, rn)), none, s[LEFT]);
    at = hb_select(b, good, at, hb_splat(b, at->shape, 0));
    s[PICKED] = put_column(b, s[PICKED], at, s[K]);
    s[FOUND] = put_column(b, s[FOUND], good, s[K]);
    int64_t rows = 0;
    s[GO] = hb_reduce(b, good, hb_const_i64(b, DT_PRED, 0), &rows, 1, HLO_OR);
    s[K] = hb_add(b, s[K], hb_const_i64(b, DT_S64, 1));
}

static struct hlo_computation *opened(struct hb *outer, const char *name, hv init, struct hb *b,
                                      hv *s) {
    struct hlo_computation *comp = hlo_computation_add(outer->c->module, name);
    hlo_computation_move_before(comp, outer->c);
    *b = hb_begin(comp);
    hv p = hlo_add_param(comp, 0, init->shape, "state");
    for (int k = 0; k < N_STATE; k++)
        s[k] = hb_gte(b, p, k);
    return comp;
}
static hv run(struct hb *outer, hv const *start, int64_t most) {
    struct hb b;
    hv init = hb_tuple(outer, start, N_STATE), s[N_STATE];
    struct hlo_computation *called[2];
    called[1] = opened(outer, "nms_pick", init, &b, s);
    pick(&b, s);
    hlo_set_root(called[1], hb_tuple(&b, s, N_STATE));
    status_t st = hb_end(&b);
    if (st) hb_fail(outer, st);
    hlo_remove_dead(called[1]);
    called[0] = opened(outer, "nms_more", init, &b, s);
    hv more = hb_compare(&b, s[K], hb_const_i64(&b, DT_S64, most), CMP_LT);
    hlo_set_root(called[0], hb_binary(&b, HLO_AND, more, s[GO]));
    st = hb_end(&b);
    if (st) hb_fail(outer, st);
    hlo_remove_dead(called[0]);
    return hb_call(outer, HLO_WHILE, init->shape, &init, 1, NULL, called, 2);
}
hv nms_as_while(struct hb *b, hv const *in, int64_t most) {
    struct arena *a = b->c->module->arena;
    const struct shape *rn = in[NMS_SCORES]->shape, *bn = in[NMS_Y1]->shape;
    int64_t wide[] = {rn->dims[0], most}, map[] = {0, 2};
    int64_t each[] = {bn->dims[0], rn->dims[0] / bn->dims[0], bn->dims[1]};
    hv s[N_STATE], ends[2];
    for (int k = 0; k < 4; k++)
        s[Y1 + k] =
            hb_reshape(b, hb_broadcast(b, in[NMS_Y1 + k], each, 3, map), rn->dims, rn->rank);
    s[AREA] = hb_mul(b, hb_sub(b, s[Y2], s[Y1]), hb_sub(b, s[X2], s[X1]));
    s[K] = hb_const_i64(b, DT_S64, 0);
    s[GO] = hb_const_i64(b, DT_PRED, 1);
    s[IOU] = in[NMS_IOU];
    s[LEAST] = in[NMS_LEAST];
    s[LEFT] = hb_select(
        b, hb_compare(b, in[NMS_SCORES], hb_broadcast(b, s[LEAST], rn->dims, 2, NULL), CMP_GT),
        in[NMS_SCORES], hb_splat(b, rn, -INFINITY)); // NaN is never the best
    s[PICKED] = hb_splat(b, shape_make(a, DT_S64, wide, 2), 0);
    s[FOUND] = hb_splat(b, shape_make(a, DT_PRED, wide, 2), 0);
    hv end = run(b, s, most);
    ends[0] = hb_gte(b, end, PICKED);
    ends[1] = hb_gte(b, end, FOUND);
    return hb_tuple(b, ends, 2);
}

// ---- a row

static inline bool before(const float *scores, int32_t a, int32_t b) {
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
}
// Moves what is at `at` down to its place: the heap's first is the one that comes first.
static void sink(const float *scores, int32_t *heap, int64_t n, int64_t at) {
    int32_t x = heap[at];
    for (int64_t k; (k = 2 * at + 1) < n; at = k) {
        if (k + 1 < n && before(scores, heap[k + 1], heap[k])) k++;
        if (!before(scores, heap[k], x)) break;
        heap[at] = heap[k];
    }
    heap[at] = x;
}
static inline float larger(float a, float b) { // b where one is NaN
    return a > b ? a : b;
}
static inline float smaller(float a, float b) {
    return a < b ? a : b;
}
bool nms_overlaps(const float *kept, int64_t stride, int64_t n, const float *box, float iou) {
    for (int64_t k = 0; k < n; k++) {
        float high = smaller(box[2], kept[2 * stride + k]) - larger(box[0], kept[k]);
        float wide = smaller(box[3], kept[3 * stride + k]) - larger(box[1], kept[stride + k]);
        float common = larger(high, 0) * larger(wide, 0);
        float all = kept[4 * stride + k] + box[4] - common;
        if (all > 0 && common / all > iou) return true;
    }
    return false;
}
void nms_row(const struct nms_boxes *b, int64_t n, int64_t most, int32_t *heap, float *kept,
             int64_t *picked, uint8_t *found,
             bool (*overlaps)(const float *kept, int64_t stride, int64_t n, const float *box,
                              float iou)) {
    int64_t left = 0, at = 0, stride = nms_stride(most);
    for (int64_t k = 0; k < n; k++)
        if (b->scores[k] > b->least) heap[left++] = (int32_t)k;
    for (int64_t k = left / 2; k-- > 0;)
        sink(b->scores, heap, left, k);
    while (left && at < most) {
        int32_t x = heap[0];
        heap[0] = heap[--left];
        if (left) sink(b->scores, heap, left, 0);
        float box[5] = {b->y1[x], b->x1[x], b->y2[x], b->x2[x]};
        box[4] = (box[2] - box[0]) * (box[3] - box[1]);
        if (overlaps(kept, stride, at, box, b->iou)) continue;
        for (int k = 0; k < 5; k++)
            kept[k * stride + at] = box[k];
        picked[at] = x;
        found[at++] = 1;
    }
    for (; at < most; at++)
        picked[at] = 0, found[at] = 0;
}
