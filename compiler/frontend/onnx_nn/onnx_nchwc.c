// SPDX-License-Identifier: Apache-2.0
// com.microsoft.nchwc: what ONNX Runtime's optimizer makes of convolutions and pools when it writes
// a model at its highest level. Images are in blocks of as many channels as a vector of the machine
// holds, which no shape tells; here they stay [N, C, H, W], with the channels that fill the last
// block, and only weights are put in order:
//   [O/block, I/block, H, W, block of I, block of O], or [O/block, I, H, W, block of O] where the
//   input of a group has fewer channels than a block
// How long a block is the model does not say: it is for machines like the one that wrote it, and
// ONNX Runtime too takes the block of its own machine.
#include "compiler/frontend/onnx/onnx_tools.h"

static hv in_order(struct onnx_ctx *c, hv w, int64_t block) {
    struct hb *b = &c->b;
    const int64_t *d = w->shape->dims;
    int64_t dims[4] = {d[0], d[1], d[2], d[3]};
    if (d[1] >= block) {
        w = hb_reshape(b, w, (int64_t[]){d[0] / block, d[1] / block, d[2], d[3], block, block}, 6);
        w = hb_transpose(b, w, (int64_t[]){0, 5, 1, 4, 2, 3});
    } else {
        w = hb_reshape(b, w, (int64_t[]){d[0] / block, d[1], d[2], d[3], block}, 5);
        w = hb_transpose(b, w, (int64_t[]){0, 4, 1, 2, 3});
    }
    return hb_reshape(b, w, dims, 4);
}
// More channels, of zeros.
static hv filled(struct onnx_ctx *c, hv x, int64_t channels) {
    struct pad_dim p[4] = {[1] = {.high = channels - x->shape->dims[1]}};
    return hb_pad(&c->b, x, hb_const_f64(&c->b, x->shape->dtype, 0), p);
}

ONNX_X(nchwcconv) { // x, w, bias, and a sum before the activation
    hv w = onnx_in_val(c, 1);
    int64_t block = c->m->limits.channel_block, group = onnx_at_int(c, "group", 1), channels;
    if (x->shape->rank != 4 || w->shape->rank != 4 || group < 1 ||
        !sz_mul(w->shape->dims[1], group, &channels) || x->shape->dims[1] > channels)
        return onnx_fail(c, "input %s with weights %s in %lld groups", onnx_show(c, x),
                         onnx_show(c, w), (long long)group);
    if (block < 1 || w->shape->dims[0] % block ||
        (w->shape->dims[1] >= block && w->shape->dims[1] % block))
        return onnx_fail(c,
                         "weights %s are in the order of another kind of processor: let ONNX "
                         "Runtime write the model at ORT_ENABLE_EXTENDED",
                         onnx_show(c, w));
    if (x->shape->dims[1] < channels) x = filled(c, x, channels);
    hv y = onnx_convolve(c, x, in_order(c, w, block));
    if (!hb_ok(b)) return;
    if (onnx_in_has(c, 2)) y = hb_add(b, y, onnx_along(c, onnx_in_val(c, 2), y->shape, 1));
    if (onnx_in_has(c, 3)) y = hb_add(b, y, onnx_in_val(c, 3));
    onnx_out_val(c, 0, onnx_fused(c, y));
}

ONNX_X(reorderinput) {
    if (x->shape->rank != 4) return onnx_fail(c, "input %s", onnx_show(c, x));
    if (onnx_at_int(c, "channels_last", 0)) x = hb_transpose(b, x, (int64_t[]){0, 3, 1, 2});
    onnx_out_val(c, 0, x);
}
ONNX_X(reorderoutput) {
    int64_t channels = onnx_at_int(c, "channels", 0);
    if (x->shape->rank != 4 || channels < 1 || channels > x->shape->dims[1])
        return onnx_fail(c, "%lld channels of %s", (long long)channels, onnx_show(c, x));
    x = onnx_part(c, x, 1, 0, channels);
    if (onnx_at_int(c, "channels_last", 0)) x = hb_transpose(b, x, (int64_t[]){0, 2, 3, 1});
    onnx_out_val(c, 0, x);
}
