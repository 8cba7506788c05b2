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
static float step(const struct lib_post *p, const float *operand, int64_t k, int64_t channel,
                  float x) {
    switch (p->kind) {
    case LIB_POST_BIAS:
        return x + operand[channel];
    case LIB_POST_SUM:
        return x + operand[k];
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
    default: // of 8-bit integers: never here
        return x;
    }
}
void onednn_steps(const struct lib_call *c, int from, const struct hlo_instr *i, void **bufs) {
    const struct places p = places_of(c, i);
    const float *operand[LIB_MAX_POST] = {0};
    float *out = bufs[i->n_operands];
    int64_t n = shape_bytes(i->shape) / (int64_t)sizeof *out;
    for (int s = from; s < c->n_post; s++)
        if (c->post[s].operand) operand[s] = bufs[lib_operand(i, c->post[s].operand)];
    for (int64_t k = 0; k < n; k++) {
        int64_t channel = channel_at(&p, k);
        if (channel >= p.channels) continue; // filling of the last block stays zero
        for (int s = from; s < c->n_post; s++)
            out[k] = step(&c->post[s], operand[s], k, channel, out[k]);
    }
}
