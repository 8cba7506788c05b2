// SPDX-License-Identifier: Apache-2.0
// nms: non-maximum suppression of boxes as one instruction, which a device may do as it likes:
//     (picked s64[rows, most], found pred[rows, most]) =
//         custom-call(scores f32[rows, n], y1, x1, y2, x2 f32[batches, n], iou f32[], least f32[])
//     custom_call_target = hlod.nms
// Row r picks among the boxes of batch r / (rows / batches); one with y1 > y2 or x1 > x2 overlaps
// none. Boxes come by falling score, of equal ones the first; one whose score is not above `least`
// (or is NaN) never comes, nor does one whose intersection with a picked one, divided by their
// union, is above iou. Column k of `picked` is the k-th box, where `found` says so; else 0.
// Thread: any.
#pragma once
#include "compiler/ir/build.h"

enum { NMS_SCORES, NMS_Y1, NMS_X1, NMS_Y2, NMS_X2, NMS_IOU, NMS_LEAST, NMS_OPERANDS };
struct nms {
    int64_t rows, batches, n, most;
};
bool nms_is(const struct hlo_instr *i);
// Checks the call's shapes. INVALID_ARGUMENT says what does not fit.
status_t nms_read(const struct hlo_instr *i, struct nms *out) MUST_CHECK;
// The call. Operands as above, most > 0; errors stick to b.
hv nms_call(struct hb *b, hv const *operands, int64_t most);
// The same tuple by a loop that picks a box of each row a turn, of any type of floats, for
// compilers that know no such call. Its computations stand in front of b's.
hv nms_as_while(struct hb *b, hv const *operands, int64_t most);

// ---- one row, for evaluators

struct nms_boxes {
    const float *scores, *y1, *x1, *y2, *x2; // [n]
    float iou, least;
};
// Fills picked and found [most]. heap is scratch [n], kept is scratch [5 * most rounded up to 16].
void nms_row(const struct nms_boxes *b, int64_t n, int64_t most, int32_t *heap, float *kept,
             int64_t *picked, uint8_t *found,
             bool (*overlaps)(const float *kept, int64_t stride, int64_t n, const float *box,
                              float iou));
// The plain form of `overlaps`: does the box (y1, x1, y2, x2, area) overlap one of n kept ones,
// whose five numbers lie `stride` apart?
bool nms_overlaps(const float *kept, int64_t stride, int64_t n, const float *box, float iou);
static inline int64_t nms_stride(int64_t most) {
    return (most + 15) / 16 * 16;
}
