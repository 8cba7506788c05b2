// SPDX-License-Identifier: Apache-2.0
// NonMaxSuppression: for every batch and class the best boxes that do not overlap a better one. All
// batches and classes are rows of one call (compiler/calls/nms.h). How many boxes are picked only
// the run knows (onnx_dynamic.c).
#include "compiler/calls/nms.h"
#include "compiler/frontend/onnx/onnx_dynamic.h"

ONNX(nonmaxsuppression) {
    hv boxes = onnx_in_val(c, 0), scores = onnx_in_val(c, 1), s[NMS_OPERANDS];
    const struct shape *bs = boxes->shape, *ss = scores->shape;
    int64_t most = 0;
    int n;

    if (onnx_in_has(c, 2) && (!onnx_in_ints(c, 2, &most, 1, &n) || n != 1))
        return onnx_fail(c, "no limit");
    if (!hb_ok(b)) return;
    if (bs->rank != 3 || bs->dims[2] != 4 || ss->rank != 3 || ss->dims[0] != bs->dims[0] ||
        ss->dims[2] != bs->dims[1])
        return onnx_fail(c, "boxes %s, scores %s", shape_text(c->a, bs), shape_text(c->a, ss));

    int64_t classes = ss->dims[1], rows[] = {ss->dims[0] * classes, ss->dims[2]};
    if (most > rows[1]) most = rows[1];
    int64_t flat = rows[0] * most, column[] = {flat, 1};
    if (most <= 0 || rows[0] == 0)
        return onnx_out_val(
            c, 0, hb_constant(b, lit_new(c->a, shape_make(c->a, DT_S64, (int64_t[]){0, 3}, 2))));

    hv k[4];
    for (int i = 0; i < 4; i++)
        k[i] = onnx_row(c, boxes, 2, i); // [B,N]
    if (onnx_at_int(c, "center_point_box", 0)) {
        // x, y, width, height; none overlaps a negative width
        hv w = onnx_mul_k(c, k[2], 0.5), h = onnx_mul_k(c, k[3], 0.5);
        s[NMS_Y1] = hb_sub(b, k[1], h);
        s[NMS_X1] = hb_sub(b, k[0], w);
        s[NMS_Y2] = hb_add(b, k[1], h);
        s[NMS_X2] = hb_add(b, k[0], w);
    } else { // any two corners
        s[NMS_Y1] = hb_min(b, k[0], k[2]);
        s[NMS_X1] = hb_min(b, k[1], k[3]);
        s[NMS_Y2] = hb_max(b, k[0], k[2]);
        s[NMS_X2] = hb_max(b, k[1], k[3]);
    }

    s[NMS_SCORES] = hb_reshape(b, scores, rows, 2);
    s[NMS_IOU] = onnx_in_has(c, 3) ? onnx_scalar_in(c, 3) : hb_const_f64(b, bs->dtype, 0);
    s[NMS_LEAST] = onnx_in_has(c, 4) ? onnx_scalar_in(c, 4)
                                     : hb_const_f64(b, ss->dtype, -(double)__builtin_inf());

    if (!hb_ok(b)) return;
    bool f32 = true;
    for (int i = 0; i < NMS_OPERANDS; i++)
        f32 &= s[i]->shape->dtype == DT_F32;

    hv end = f32 ? nms_call(b, s, most) : nms_as_while(b, s, most), count;
    hv at = onnx_true_positions(c, hb_reshape(b, hb_gte(b, end, 1), &flat, 1), &count);
    hv place = onnx_take(c, hb_reshape(b, hb_gte(b, end, 0), &flat, 1), at, 0);
    hv r = hb_div(b, at, hb_splat(b, at->shape, (double)most)); // row = batch * classes + class
    hv div = hb_splat(b, at->shape, (double)classes);
    hv parts[] = {hb_reshape(b, hb_div(b, r, div), column, 2),
                  hb_reshape(b, hb_binary(b, HLO_REMAINDER, r, div), column, 2),
                  hb_reshape(b, place, column, 2)};
    onnx_out_any(c, 0, onnx_dynamic_val(c, hb_concat(b, parts, 3, 1), count, 0));
}
