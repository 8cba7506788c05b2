// SPDX-License-Identifier: Apache-2.0
// The steps behind a convolution or dot of f32 without the library: for results that hold NaN,
// which its maxima and minima lose (cpu_nan.c). One element after another, in any of the library's
// forms; not made for speed.
#include <math.h>

#include "devices/cpu/onednn/cpu_onednn.h"

// Which channel lies at an offset of the result, in elements.
struct places {
    enum conv_form form;
    int64_t channels, inner, blocks; // inner: places of one channel of one image
    int block;
};
static struct places places_of(const struct lib_call *c, const struct hlo_instr *i) {
    const struct shape *s = i->shape;
    struct places p = {.form = FORM_LAST, .channels = s->dims[s->rank - 1], .inner = 1};
    if (c->hero->op != HLO_CONVOLUTION) return p;
    p.form = lib_form_of(s->layout, s->rank, &p.block);
    p.channels = s->dims[1];
    for (int d = 2; d < s->rank; d++)
        p.inner *= s->dims[d];
    if (p.form == FORM_BLOCKED) p.blocks = (p.channels + p.block - 1) / p.block;
    return p;
}
static int64_t channel_at(const struct places *p, int64_t k) {
    switch (p->form) {
    case FORM_LAST:
        return k % p->channels;
    case FORM_BLOCKED:
        return k / p->block / p->inner % p->blocks * p->block + k % p->block;
    default:
        return k / p->inner % p->channels;
    }
}
// f32, or bf16 as its upper half.
static float value(const void *at, enum dtype t, int64_t k) {
    union {
        uint32_t bits;
        float value;
    } u;
    if (t == DT_F32) return ((const float *)at)[k];
    u.bits = (uint32_t)((const uint16_t *)at)[k] << 16;
    return u.value;
}
static float step(const struct lib_post *p, const void *operand, int64_t k, int64_t channel,
                  float x) {
    switch (p->kind) {
    case LIB_POST_BIAS:
        return x + value(operand, p->operand->shape->dtype, channel);
    case LIB_POST_SUM:
        return x + value(operand, p->operand->shape->dtype, k);
    case LIB_POST_RELU:
        return x < 0 ? 0 : x;
    case LIB_POST_CLIP:
        return x < p->alpha ? p->alpha : x > p->beta ? p->beta : x;
    case LIB_POST_LOGISTIC:
        return 1 / (1 + expf(-x));
    case LIB_POST_TANH:
        return tanhf(x);
    case LIB_POST_SCALE:
        return x * p->alpha;
    case LIB_POST_GELU_ERF:
        return 0.5f * x * (1 + erff(x * 0.70710678118654752f));
    case LIB_POST_SWISH:
        return x / (1 + expf(-p->alpha * x));
    default: // BF16: as it is stored; of 8-bit integers: never here
        return x;
    }
}
void onednn_steps(const struct lib_call *c, int from, const struct hlo_instr *i, void **bufs) {
    const struct places p = places_of(c, i);
    const void *operand[LIB_MAX_POST] = {0};
    void *out = bufs[i->n_operands];
    enum dtype t = i->shape->dtype;
    int64_t n = shape_bytes(i->shape) / dtype_size(t);
    for (int s = from; s < c->n_post; s++)
        if (c->post[s].operand) operand[s] = bufs[lib_operand(i, c->post[s].operand)];
    for (int64_t k = 0; k < n; k++) {
        int64_t channel = channel_at(&p, k);
        if (channel >= p.channels) continue; // filling of the last block stays zero
        float x = value(out, t, k);
        for (int s = from; s < c->n_post; s++)
            x = step(&c->post[s], operand[s], k, channel, x);
        if (t == DT_F32)
            ((float *)out)[k] = x;
        else
            ((uint16_t *)out)[k] = f32_to_bf16(x);
    }
}
