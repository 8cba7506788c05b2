// SPDX-License-Identifier: Apache-2.0
// What a page loads into memory: results of prepare, by the reference evaluator, and constants.
#include <math.h>

#include "compiler/eval.h"
#include "compiler/web/web_program.h"

static status_t weight_of(const struct hlo_instr *q, const struct span *weights, int n,
                          const void **out) {
    if (q->param_index >= n || (int64_t)weights[q->param_index].n != shape_bytes(q->shape))
        return st_invalid("weight %lld ('%s') is missing or has the wrong size",
                          (long long)q->param_index, q->name);
    *out = weights[q->param_index].p;
    return ST_OK;
}
status_t web_prepare(struct arena *a, const struct executable *e, const struct span *weights, int n,
                     const _Atomic bool *cancel, const struct literal *const **out) {
    const struct hlo_computation *p = e->prepare->entry;
    struct literal **args = arena_array(a, struct literal *, p->params.n + 1), *root;
    for (size_t k = 0; k < p->params.n; k++) {
        const void *bytes;
        RETURN_IF_ERR(weight_of(p->params.v[k], weights, n, &bytes));
        args[k] = lit_borrow(a, p->params.v[k]->shape, bytes);
    }
    struct hlo_eval ev = hlo_eval_begin(a);
    ev.cancel = cancel;
    RETURN_IF_ERR(st_note(hlo_eval_module(&ev, e->prepare, args, (int)p->params.n, &root),
                          "preparing weights"));
    *out = (const struct literal *const *)root->elems;
    return ST_OK;
}

static bool fits_half(const uint8_t *p, int64_t n) {
    for (int64_t k = 0; k < n; k++) {
        float f;
        memcpy(&f, p + k * 4, 4);
        if (fabsf(f) >= 65520) return false; // infinities too; a NaN stays one
    }
    return true;
}

void web_weights_stream(struct web_program *p, const struct literal *const *results, bool f16,
                        struct strbuf *out) {
    for (size_t k = 0; k < p->weights.n; k++) {
        struct web_bytes *w = &p->weights.v[k];
        const uint8_t *data = w->result < 0 ? w->data : results[w->result]->data;
        int64_t n = w->bytes / 4;
        w->narrow = f16 && w->f32 && n > 1 && fits_half(data, n);
        if (!w->narrow && w->bytes) strbuf_add(out, data, (size_t)w->bytes);
        for (int64_t i = 0; i < n && w->narrow; i++) {
            float f;
            memcpy(&f, data + i * 4, 4);
            uint16_t h = f32_to_f16(f);
            strbuf_add(out, &h, sizeof h);
        }
        strbuf_add(out, "\0\0\0", -out->n & 3);
    }
}
