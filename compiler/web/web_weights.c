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

// ---- weights of few values, as quantised ones are: a table of these and a byte for each element

enum { ENTRIES = 256, SLOTS = 1024, LEAST = 4096 };
struct few_values {
    uint32_t value[ENTRIES];
    int n, size; // bytes of an element
    uint16_t slot[SLOTS];
};
static uint32_t element(const uint8_t *p, int size) {
    uint32_t v = 0;
    memcpy(&v, p, (size_t)size);
    return v;
}
// Of a value: its place in the table; -1: there is no room for it.
static int place_in(struct few_values *t, uint32_t v) {
    for (uint32_t h = v * UINT32_C(2654435761) >> 22;; h = (h + 1) % SLOTS) {
        if (t->slot[h] && t->value[t->slot[h] - 1] == v) return t->slot[h] - 1;
        if (t->slot[h]) continue;
        if (t->n == ENTRIES) return -1;
        t->value[t->n] = v;
        t->slot[h] = (uint16_t)++t->n;
        return t->n - 1;
    }
}
// The tensor in that form; false: it has too many values, or is too small to gain by it.
static bool add_table(const struct web_bytes *w, const uint8_t *data, struct strbuf *out) {
    struct few_values t = {.size = dtype_size(w->type)};
    if ((t.size != 2 && t.size != 4) || w->bytes < LEAST) return false;
    int64_t n = w->bytes / t.size;
    for (int64_t k = 0; k < n; k++)
        if (place_in(&t, element(data + k * t.size, t.size)) < 0) return false;
    for (int k = 0; k < ENTRIES; k++)
        strbuf_add(out, &t.value[k], (size_t)t.size);
    for (int64_t k = 0; k < n; k++)
        strbuf_putc(out, (char)place_in(&t, element(data + k * t.size, t.size)));
    return true;
}

// ---- weights of f32 as halves

// Is each of them an f16, or a bf16, as those are that a model of halves came with?
static bool are_halves(const uint8_t *p, int64_t n, bool brain) {
    for (int64_t k = 0; k < n; k++) {
        float f;
        memcpy(&f, p + k * 4, 4);
        float as = brain ? bf16_to_f32(f32_to_bf16(f)) : f16_to_f32(f32_to_f16(f));
        if (memcmp(&as, &f, 4) != 0 || isnan(f)) return false;
    }
    return true;
}
static void add_halves(const uint8_t *p, int64_t n, bool brain, struct strbuf *out) {
    for (int64_t k = 0; k < n; k++) {
        float f;
        memcpy(&f, p + k * 4, 4);
        uint16_t h = brain ? f32_to_bf16(f) : f32_to_f16(f);
        strbuf_add(out, &h, sizeof h);
    }
}
static enum web_form add_weight(const struct web_bytes *w, const uint8_t *data, bool f16,
                                struct strbuf *out) {
    int64_t n = w->type == DT_F32 ? w->bytes / 4 : 0;
    if (add_table(w, data, out)) return dtype_size(w->type) == 2 ? FORM_TABLE16 : FORM_TABLE32;
    bool half = n > 1 && ((f16 && fits_half(data, n)) || are_halves(data, n, false));
    if (half || (n > 1 && are_halves(data, n, true))) {
        add_halves(data, n, !half, out);
        return half ? FORM_F16 : FORM_BF16;
    }
    if (w->bytes) strbuf_add(out, data, (size_t)w->bytes);
    return FORM_RAW;
}
void web_weights_stream(struct web_program *p, const struct literal *const *results, bool f16,
                        struct strbuf *out) {
    for (size_t k = 0; k < p->weights.n; k++) {
        struct web_bytes *w = &p->weights.v[k];
        w->form = add_weight(w, w->result < 0 ? w->data : results[w->result]->data, f16, out);
        strbuf_add(out, "\0\0\0", -out->n & 3);
    }
}
