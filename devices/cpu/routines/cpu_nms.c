// SPDX-License-Identifier: Apache-2.0
// nms: the call of compiler/calls/nms.h, rows beside each other on threads; a box is compared with
// 16 picked ones at once (AVX-512).
#include "compiler/calls/nms.h"

#include <immintrin.h>

#include "devices/cpu/cpu.h"

enum { LANES = 16, WORK = 20000 }; // scores that a thread looks at in about 20 us

struct nms_state {
    struct nms n;
    int64_t heap_bytes, thread_bytes, grain;
    bool (*overlaps)(const float *kept, int64_t stride, int64_t n, const float *box, float iou);
};

// What stands behind the last kept box counts for nothing.
__attribute__((target("avx512f"))) static bool by_sixteen(const float *kept, int64_t stride,
                                                          int64_t n, const float *box, float iou) {
    __m512 y1 = _mm512_set1_ps(box[0]), x1 = _mm512_set1_ps(box[1]), y2 = _mm512_set1_ps(box[2]),
           x2 = _mm512_set1_ps(box[3]), area = _mm512_set1_ps(box[4]), zero = _mm512_setzero_ps();
    for (int64_t k = 0; k < n; k += LANES) {
        __mmask16 in = n - k >= LANES ? 0xffff : (__mmask16)((1 << (n - k)) - 1);
        __m512 high = _mm512_sub_ps(_mm512_min_ps(y2, _mm512_loadu_ps(kept + 2 * stride + k)),
                                    _mm512_max_ps(y1, _mm512_loadu_ps(kept + k)));
        __m512 wide = _mm512_sub_ps(_mm512_min_ps(x2, _mm512_loadu_ps(kept + 3 * stride + k)),
                                    _mm512_max_ps(x1, _mm512_loadu_ps(kept + stride + k)));
        __m512 common = _mm512_mul_ps(_mm512_max_ps(high, zero), _mm512_max_ps(wide, zero));
        __m512 all =
            _mm512_sub_ps(_mm512_add_ps(_mm512_loadu_ps(kept + 4 * stride + k), area), common);
        in = _mm512_mask_cmp_ps_mask(in, all, zero, _CMP_GT_OQ);
        if (_mm512_mask_cmp_ps_mask(in, _mm512_div_ps(common, all), _mm512_set1_ps(iou),
                                    _CMP_GT_OQ))
            return true;
    }
    return false;
}

static bool nms_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                        const char **why) {
    *why = "not a suppression of boxes";
    return nms_is(i);
}
static status_t nms_open(struct cpu_exe *x, struct cpu_step *step) {
    struct nms_state *s = arena_new_of(&x->arena, struct nms_state);
    RETURN_IF_ERR(nms_read(step->plan->instr, &s->n));
    bool vectors = cpu_target()->vector_bits == 512;
    s->overlaps = vectors ? by_sixteen : nms_overlaps;
    s->heap_bytes = (s->n.n * (int64_t)sizeof(int32_t) + 63) / 64 * 64;
    s->thread_bytes = s->heap_bytes + nms_stride(s->n.most) * 5 * (int64_t)sizeof(float);
    if (s->thread_bytes * cpu_threads() > x->scratch_bytes)
        x->scratch_bytes = s->thread_bytes * cpu_threads();
    s->grain = WORK / s->n.n + 1;
    step->flops = s->n.rows * s->n.n * 8;
    step->alone = s->n.rows < 2 * s->grain;
    step->detail = vectors ? "nms:avx512" : "nms";
    step->state = s;
    return ST_OK;
}
struct nms_run {
    const struct nms_state *s;
    void **bufs;
    char *scratch;
};
static void part(void *ctx, int64_t begin, int64_t end, int thread) {
    const struct nms_run *c = ctx;
    const struct nms *n = &c->s->n;
    char *own = c->scratch + c->s->thread_bytes * thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t box = r / (n->rows / n->batches) * n->n;
        struct nms_boxes b = {.scores = (const float *)c->bufs[NMS_SCORES] + r * n->n,
                              .y1 = (const float *)c->bufs[NMS_Y1] + box,
                              .x1 = (const float *)c->bufs[NMS_X1] + box,
                              .y2 = (const float *)c->bufs[NMS_Y2] + box,
                              .x2 = (const float *)c->bufs[NMS_X2] + box,
                              .iou = *(const float *)c->bufs[NMS_IOU],
                              .least = *(const float *)c->bufs[NMS_LEAST]};
        nms_row(&b, n->n, n->most, (int32_t *)(void *)own,
                (float *)(void *)(own + c->s->heap_bytes),
                (int64_t *)c->bufs[NMS_OPERANDS] + r * n->most,
                (uint8_t *)c->bufs[NMS_OPERANDS + 1] + r * n->most, c->s->overlaps);
    }
}
static status_t nms_run_step(struct cpu_exe *x, struct cpu_step *step, void **bufs) {
    const struct nms_state *s = step->state;
    cpu_parallel(part, &(struct nms_run){s, bufs, x->scratch}, s->n.rows, s->grain);
    return ST_OK;
}
const struct cpu_impl cpu_impl_nms = {"nms",        nms_accepts, nms_open, NULL,
                                      nms_run_step, NULL,        NULL,     NULL};
