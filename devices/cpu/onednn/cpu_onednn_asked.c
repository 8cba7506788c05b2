// SPDX-License-Identifier: Apache-2.0
// Whether the library runs a call well, asked once: the compiler asks the same again as it grows
// epilogues, chooses forms and leaves out kernels, and networks repeat their layers, while an
// answer costs the library tens of microseconds to a millisecond. The key is all that the answer
// follows from, compared whole, and the answer to one key is always the same: what is forgotten
// costs time alone. The table is small; a new answer takes the place of an old one.
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "devices/cpu/onednn/cpu_onednn.h"

enum { KEY_MAX = 96, ANSWERS = 512 };
struct key {
    int n;
    bool whole; // all of it had room
    int64_t v[KEY_MAX];
};
static struct answer {
    int64_t *key; // [n]
    int32_t n;    // 0 = none here
    enum onednn_answer says;
} answers[ANSWERS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void put(struct key *k, int64_t v) {
    if (k->n < KEY_MAX)
        k->v[k->n++] = v;
    else
        k->whole = false;
}
static void put_all(struct key *k, const int64_t *v, int n) {
    put(k, n);
    for (int i = 0; i < n; i++)
        put(k, v[i]);
}
static void put_shape(struct key *k, const struct shape *s) {
    put_all(k, s->dims, s->rank);
}
static void put_form(struct key *k, const struct layout *l, int rank) {
    int block = 0;
    put(k, (int64_t)lib_form_of(l, rank, &block));
    put(k, block);
}
static void put_conv(struct key *k, const struct lib_call *c) {
    const struct hlo_instr *h = c->hero;
    dnnl_dims_t stride, dilate, low, high, kernel;
    int n = onednn_kernel_dims(h, kernel), spatial = HLO_ATTR(h, conv)->window.n;
    onednn_conv_dims(h, stride, dilate, low, high);
    put(k, onednn_fold(h));
    put(k, lib_transposed(h));
    put_all(k, kernel, n);
    put_all(k, stride, spatial);
    put_all(k, dilate, spatial);
    put_all(k, low, spatial);
    put_all(k, high, spatial);
}
static void put_dot(struct key *k, const struct lib_call *c) {
    struct onednn_dot d;
    onednn_dot_dims(c->hero, &d);
    put_all(k, d.left, d.n);
    put_all(k, d.left_strides, d.n);
    put_all(k, d.right, d.n);
    put_all(k, d.right_strides, d.n);
}
static void put_post(struct key *k, const struct lib_post *p) {
    int32_t alpha, beta;
    float scale = p->alpha, offset = p->beta;
    if (p->kind == LIB_POST_SCALE || p->kind == LIB_POST_QUANTISE)
        scale = scale == 1, offset = offset == 0; // kernels are told the values, not made for them
    memcpy(&alpha, &scale, sizeof alpha);
    memcpy(&beta, &offset, sizeof beta);
    put(k, (int64_t)p->kind);
    put(k, alpha);
    put(k, beta);
    put(k, p->operand ? (int64_t)p->operand->shape->dtype : -1);
    if (p->operand) put_shape(k, p->operand->shape);
}
static void key_of(const struct lib_call *c, const struct layout *in, const struct layout *out,
                   struct key *k) {
    const struct shape *x = c->hero->operands[0]->shape;
    bool conv = c->hero->op == HLO_CONVOLUTION, integer = c->hero->shape->dtype == DT_S32;
    k->n = 0;
    k->whole = true;
    put(k, (int64_t)c->hero->op);
    put(k, omp_get_max_threads());
    put(k, (int64_t)x->dtype);
    put(k, (int64_t)c->result->dtype);
    put_shape(k, x);
    put_shape(k, c->result);
    if (conv && !integer) {
        put_form(k, in, x->rank);
        put_form(k, out, c->result->rank);
    }
    if (conv)
        put_conv(k, c);
    else
        put_dot(k, c);
    put(k, c->n_post);
    for (int i = 0; i < c->n_post; i++)
        put_post(k, &c->post[i]);
}

// Do windows lie in the padding whole, in a dimension before the last?
static bool only_padding(const struct hlo_instr *h) {
    const struct window *w = &HLO_ATTR(h, conv)->window;
    for (int d = 0; d < w->n - 1; d++) {
        int64_t span = (w->v[d].size - 1) * w->v[d].window_dilation + 1;
        if (w->v[d].pad_low >= span || w->v[d].pad_high >= span) return true;
    }
    return false;
}
// Its convolutions by a matrix product read a binary step's operand at the wrong places: right for
// the first position, not for the others. Where a window meets padding only, its generated
// ones with a sum lose the bias and take the steps behind from an address that is none.
static bool wrong_steps(const struct lib_call *c, const struct onednn_prim *p) {
    dnnl_memory_desc_t d;
    if (c->hero->op != HLO_CONVOLUTION) return false;
    for (int k = 0; k < c->n_post; k++)
        if (onednn_adds_in_place(c, k) && only_padding(c->hero)) return true;
    if (!strstr(p->info, "gemm")) return false;
    for (int k = 0; k < c->n_post; k++)
        if (onednn_post_desc(c, k, &p->dst, &d)) return true;
    return false;
}
// Its convolutions by a matrix product copy windows out, one group after another: what it has for
// groups where a dimension of one place has padding, or padding is longer than windows. Measured on
// Zen 5, 105 random ones of f32 in one to three dimensions, 2 to 64 groups of 1 to 64 channels,
// windows of 2 to 45, strided, dilated, 1 to 4 images: generated tiles are 4.6 times as fast in the
// mean with AVX-512, 1.26 at least; 4.0 and 1.46 with AVX2.
static bool copied_groups(const struct lib_call *c, const struct onednn_prim *p) {
    const struct hlo_instr *h = c->hero;
    return h->op == HLO_CONVOLUTION && HLO_ATTR(h, conv)->feature_group_count > 1 &&
           h->operands[0]->shape->dtype == DT_F32 && strstr(p->info, "gemm");
}
bool onednn_fast(const struct lib_call *c, const struct onednn_prim *p) {
    return !onednn_is_reference(p->info) && !wrong_steps(c, p) && !copied_groups(c, p);
}
static enum onednn_answer ask(const struct lib_call *c, const struct layout *in,
                              const struct layout *out) {
    struct onednn_prim p;
    struct onednn_ask q = {.in = in, .out = out, .bound = true};
    if (c->hero->shape->dtype == DT_S32) return cpu_int8_asked(c) ? ONEDNN_RUNS : ONEDNN_NOT;
    status_t st = onednn_prim_of(c, &q, &p);
    bool ok = !st && onednn_fast(c, &p), tiles = ok && onednn_by_tiles(p.info);
    st_drop(st);
    if (p.pd) dnnl_primitive_desc_destroy(p.pd);
    return tiles ? ONEDNN_TILES : ok ? ONEDNN_RUNS : ONEDNN_NOT;
}

enum onednn_answer onednn_asked(const struct lib_call *c, const struct layout *in,
                                const struct layout *out) {
    struct key k;
    key_of(c, in, out, &k);
    if (!k.whole) return ask(c, in, out);
    size_t bytes = sizeof *k.v * (size_t)k.n;
    struct answer *a = &answers[hash64(k.v, bytes, 0) % ANSWERS];
    pthread_mutex_lock(&lock);
    bool known = a->n == k.n && memcmp(a->key, k.v, bytes) == 0;
    enum onednn_answer says = known ? a->says : ONEDNN_NOT;
    pthread_mutex_unlock(&lock);
    if (known) return says;
    says = ask(c, in, out);
    int64_t *kept = malloc(bytes);
    if (!kept) return says;
    memcpy(kept, k.v, bytes);
    pthread_mutex_lock(&lock);
    free(a->key);
    *a = (struct answer){.key = kept, .n = k.n, .says = says};
    pthread_mutex_unlock(&lock);
    return says;
}
bool onednn_runs(const struct lib_call *c, const struct layout *in, const struct layout *out) {
    return onednn_asked(c, in, out) != ONEDNN_NOT;
}
