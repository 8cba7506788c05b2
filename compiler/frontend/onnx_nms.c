// SPDX-License-Identifier: Apache-2.0
// NonMaxSuppression: for every batch and class the best boxes that do not overlap a better one. All
// batches and classes (R rows) go through one while together, which picks the best box left of each
// row, and ends when no row has one. How many are picked only the run knows (onnx_dynamic.c).
//   state = (k, go, scores left [R,N], picked [R,K], valid [R,K], y1 x1 y2 x2 area [R,N],
//   thresholds)
#include "compiler/frontend/onnx_dynamic.h"

enum { K, GO, LEFT, PICKED, VALID, Y1, X1, Y2, X2, AREA, IOU, SCORE, N_STATE };

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
static void pick(struct hb *b, hv *s, struct arena *a) {
    const struct shape *rn = s[LEFT]->shape;
    hv none = hb_splat(b, rn, -(double)__builtin_inf()), zero = hb_splat(b, rn, 0);
    hv best = fold_rows(b, s[LEFT], -(double)__builtin_inf(), HLO_MAXIMUM);
    hv place = hb_iota(b, shape_with_dtype(a, rn, DT_S64), 1);
    hv at = fold_rows(b,
                      hb_select(b, hb_compare(b, s[LEFT], across(b, best, rn), CMP_EQ), place,
                                hb_splat(b, place->shape, (double)rn->dims[1])),
                      9e18, HLO_MINIMUM);
    hv which = hb_compare(b, place, across(b, at, place->shape), CMP_EQ);
    hv good = hb_compare(b, best, hb_broadcast(b, s[SCORE], rn->dims, 1, NULL), CMP_GT);
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
    s[PICKED] = put_column(b, s[PICKED], at, s[K]);
    s[VALID] = put_column(b, s[VALID], good, s[K]);
    int64_t rows = 0;
    s[GO] = hb_reduce(b, good, hb_const_i64(b, DT_PRED, 0), &rows, 1, HLO_OR);
    s[K] = hb_add(b, s[K], hb_const_i64(b, DT_S64, 1));
}

static struct hlo_computation *opened(struct onnx_ctx *c, const char *name, hv init, struct hb *b,
                                      hv *s) {
    struct hlo_computation *comp = onnx_computation(c, name);
    *b = hb_begin(comp);
    hv p = hlo_add_param(comp, 0, init->shape, "state");
    for (int k = 0; k < N_STATE; k++)
        s[k] = hb_gte(b, p, k);
    return comp;
}

static hv run(struct onnx_ctx *c, hv const *start, int64_t most) {
    struct hb b;
    hv init = hb_tuple(&c->b, start, N_STATE), s[N_STATE];
    struct hlo_computation *called[2];
    called[1] = opened(c, "nms_pick", init, &b, s);
    pick(&b, s, c->a);
    hlo_set_root(called[1], hb_tuple(&b, s, N_STATE));
    status_t st = hb_end(&b);
    if (st) hb_fail(&c->b, st);
    hlo_remove_dead(called[1]);
    called[0] = opened(c, "nms_more", init, &b, s);
    hv more = hb_compare(&b, s[K], hb_const_i64(&b, DT_S64, most), CMP_LT);
    hlo_set_root(called[0], hb_binary(&b, HLO_AND, more, s[GO]));
    st = hb_end(&b);
    if (st) hb_fail(&c->b, st);
    hlo_remove_dead(called[0]);
    return hb_call(&c->b, HLO_WHILE, init->shape, &init, 1, NULL, called, 2);
}

// Corner k of the boxes [B,N,4] for each class: [B * C, N].
static hv corner(struct onnx_ctx *c, hv boxes, int64_t k, int64_t classes) {
    const int64_t *d = boxes->shape->dims;
    hv x = row(c, boxes, 2, k); // [B,N]
    int64_t wide[] = {d[0], classes, d[1]}, map[] = {0, 2}, flat[] = {d[0] * classes, d[1]};
    return hb_reshape(&c->b, hb_broadcast(&c->b, x, wide, 3, map), flat, 2);
}

ONNX(nonmaxsuppression) {
    struct hb *b = &c->b;
    hv boxes = in_val(c, 0), scores = in_val(c, 1), s[N_STATE];
    const struct shape *bs = boxes->shape, *ss = scores->shape;
    int64_t most = 0;
    int n;
    if (in_has(c, 2) && (!in_ints(c, 2, &most, 1, &n) || n != 1)) return fail(c, "no limit");
    if (!hb_ok(b)) return;
    if (bs->rank != 3 || bs->dims[2] != 4 || ss->rank != 3 || ss->dims[0] != bs->dims[0] ||
        ss->dims[2] != bs->dims[1])
        return fail(c, "boxes %s, scores %s", shape_text(c->a, bs), shape_text(c->a, ss));
    int64_t classes = ss->dims[1], rows[] = {ss->dims[0] * classes, ss->dims[2]};
    if (most > rows[1]) most = rows[1];
    int64_t wide[] = {rows[0], most}, flat = rows[0] * most, column[] = {flat, 1};
    if (most <= 0 || rows[0] == 0)
        return out_val(
            c, 0, hb_constant(b, lit_new(c->a, shape_make(c->a, DT_S64, (int64_t[]){0, 3}, 2))));
    hv k[4];
    for (int i = 0; i < 4; i++)
        k[i] = corner(c, boxes, i, classes);
    if (at_int(c, "center_point_box", 0)) { // x, y, width, height
        hv w = mul_k(c, k[2], 0.5), h = mul_k(c, k[3], 0.5);
        hv from_centre[] = {hb_sub(b, k[1], h), hb_sub(b, k[0], w), hb_add(b, k[1], h),
                            hb_add(b, k[0], w)};
        memcpy(k, from_centre, sizeof k);
    }
    s[Y1] = hb_min(b, k[0], k[2]);
    s[X1] = hb_min(b, k[1], k[3]);
    s[Y2] = hb_max(b, k[0], k[2]);
    s[X2] = hb_max(b, k[1], k[3]);
    s[AREA] = hb_mul(b, hb_sub(b, s[Y2], s[Y1]), hb_sub(b, s[X2], s[X1]));
    s[K] = hb_const_i64(b, DT_S64, 0);
    s[GO] = hb_const_i64(b, DT_PRED, 1);
    s[LEFT] = hb_reshape(b, scores, rows, 2);
    s[PICKED] = hb_splat(b, shape_make(c->a, DT_S64, wide, 2), 0);
    s[VALID] = hb_splat(b, shape_make(c->a, DT_PRED, wide, 2), 0);
    s[IOU] = in_has(c, 3) ? scalar_in(c, 3) : hb_const_f64(b, bs->dtype, 0);
    s[SCORE] =
        in_has(c, 4) ? scalar_in(c, 4) : hb_const_f64(b, ss->dtype, -(double)__builtin_inf());
    if (!hb_ok(b)) return;
    hv end = run(c, s, most), count;
    hv at = true_positions(c, hb_reshape(b, hb_gte(b, end, VALID), &flat, 1), &count);
    hv place = take(c, hb_reshape(b, hb_gte(b, end, PICKED), &flat, 1), at, 0);
    hv r = hb_div(b, at, hb_splat(b, at->shape, (double)most)); // row = batch * classes + class
    hv div = hb_splat(b, at->shape, (double)classes);
    hv parts[] = {hb_reshape(b, hb_div(b, r, div), column, 2),
                  hb_reshape(b, hb_binary(b, HLO_REMAINDER, r, div), column, 2),
                  hb_reshape(b, place, column, 2)};
    out_any(c, 0, onnx_dynamic_val(c, hb_concat(b, parts, 3, 1), count, 0));
}
