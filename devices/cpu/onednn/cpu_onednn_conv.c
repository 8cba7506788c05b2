// SPDX-License-Identifier: Apache-2.0
// How a convolution is described to oneDNN 2.6, and which implementation runs it. The library's own
// order looks at the time of a run alone; what it generates at load is ours to wait for, and its
// kernels of small matrix products (brgconv) are many: one for each number of positions in a row, a
// hundred times the work of a kernel that is as fast. So such a choice is passed over where a later
// one measured no slower (COST_VERSION of cpu_target.c), and a convolution in one dimension with
// taps far apart is described as one in two, which kernels without padding across take.
#include <string.h>

#include "devices/cpu/onednn/cpu_onednn.h"

// ---- how it is described

static int64_t common(int64_t a, int64_t b) {
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}
int64_t onednn_fold(const struct hlo_instr *h) {
    enum { LEAST = 4 }; // positions in a row: fewer fill no registers
    const struct window *w = &HLO_ATTR(h, conv)->window;
    const struct window_dim *d = &w->v[0];
    if (w->n != 1 || d->stride != 1 || d->window_dilation < LEAST || d->base_dilation != 1)
        return 1;
    int64_t f = common(common(d->window_dilation, h->operands[0]->shape->dims[2]),
                       common(d->pad_low, d->pad_high));
    return f < LEAST ? 1 : f;
}
int onednn_fold_dims(const struct shape *s, int64_t fold, dnnl_dims_t dims) {
    int n = s->rank;
    for (int k = 0; k < n; k++)
        dims[k] = s->dims[k];
    if (fold == 1) return n;
    dims[n - 1] /= fold;
    dims[n] = fold;
    return n + 1;
}

void onednn_conv_dims(const struct hlo_instr *h, dnnl_dims_t stride, dnnl_dims_t dilate,
                      dnnl_dims_t low, dnnl_dims_t high) {
    const struct window *w = &HLO_ATTR(h, conv)->window;
    int64_t fold = onednn_fold(h);
    for (int d = 0; d < w->n && lib_transposed(h); d++) { // the strided convolution's
        const struct window_dim *v = &w->v[d];
        int64_t in = h->shape->dims[d + 2], out = h->operands[0]->shape->dims[d + 2];
        stride[d] = v->base_dilation;
        dilate[d] = 0;
        low[d] = v->size - 1 - v->pad_low;
        high[d] = (out - 1) * stride[d] + v->size - in - low[d];
        if (high[d] < 0) high[d] = 0; // positions that no window reaches
    }
    if (lib_transposed(h)) return;
    for (int d = 0; d < w->n; d++) {
        stride[d] = w->v[d].stride;
        dilate[d] = w->v[d].window_dilation / fold - 1;
        low[d] = w->v[d].pad_low / fold;
        high[d] = w->v[d].pad_high / fold;
    }
    if (fold == 1) return;
    stride[1] = 1;
    dilate[1] = low[1] = high[1] = 0;
}

int onednn_kernel_dims(const struct hlo_instr *h, dnnl_dims_t dims) {
    const struct shape *k = h->operands[1]->shape;
    int64_t g = HLO_ATTR(h, conv)->feature_group_count;
    int n = 0;
    if (g > 1)
        dims[n++] = g, dims[n++] = k->dims[0] / g;
    else
        dims[n++] = k->dims[0];
    for (int d = 1; d < k->rank; d++)
        dims[n++] = k->dims[d];
    if (onednn_fold(h) > 1) dims[n++] = 1;
    return n;
}

// ---- which implementation

static bool starts(const char *info, const char *with) {
    return strncmp(info, with, strlen(with)) == 0;
}
// In one dimension its kernels take so many blocks of channels together as divide them.
static bool blocks_divide(const dnnl_convolution_desc_t *d) {
    int64_t blocks = (d->dst_desc.dims[1] + 15) / 16;
    return d->dst_desc.ndims > 3 || blocks == 1 || blocks % 2 == 0 || blocks % 3 == 0 ||
           blocks % 5 == 0;
}
bool onednn_by_tiles(const char *info) {
    return strstr(info, "amx") != NULL;
}
// Is `info` no slower than the matrix products, and made in less time?
static bool instead(const dnnl_convolution_desc_t *d, const char *info) {
    return strcmp(info, "jit_int8:avx512_core_vnni") == 0 ||
           (strcmp(info, "jit:avx512_core") == 0 && blocks_divide(d));
}
// The matrix products that others may stand for. None is as fast as AMX's. By groups those take
// longer (1x1 twice as long, depthwise up to half as long again); 1x1 of f32 are made in no less
// time; in three dimensions nothing was measured.
static bool replaceable(const dnnl_convolution_desc_t *d, const char *info) {
    if (d->weights_desc.ndims > d->dst_desc.ndims || d->dst_desc.ndims > 4) return false;
    if (onednn_by_tiles(info)) return false;
    return starts(info, "brgconv:") ||
           (starts(info, "brgconv_1x1:") && d->src_desc.data_type != dnnl_f32);
}
static bool one_by_one(const char *info) {
    return strstr(info, "_1x1:") != NULL;
}
dnnl_status_t onednn_conv_choose(const dnnl_convolution_desc_t *d, const_dnnl_primitive_attr_t attr,
                                 bool no_tiles, dnnl_primitive_desc_t *out) {
    dnnl_primitive_desc_iterator_t all;
    dnnl_status_t rc = dnnl_primitive_desc_iterator_create(&all, d, attr, onednn_engine(), NULL);
    if (rc != dnnl_success) return rc;
    *out = dnnl_primitive_desc_iterator_fetch(all);
    while (no_tiles && *out && onednn_by_tiles(onednn_info(*out))) {
        dnnl_primitive_desc_destroy(*out);
        bool more = dnnl_primitive_desc_iterator_next(all) == dnnl_success;
        *out = more ? dnnl_primitive_desc_iterator_fetch(all) : NULL;
    }
    bool products = *out && replaceable(d, onednn_info(*out));
    while (products && dnnl_primitive_desc_iterator_next(all) == dnnl_success) {
        dnnl_primitive_desc_t next = dnnl_primitive_desc_iterator_fetch(all);
        const char *info = onednn_info(next);
        if (instead(d, info)) {
            dnnl_primitive_desc_destroy(*out);
            *out = next;
            break;
        }
        if (next) dnnl_primitive_desc_destroy(next);
        if (!starts(info, "jit") && !one_by_one(info)) break;
    }
    dnnl_primitive_desc_iterator_destroy(all);
    return *out ? dnnl_success : dnnl_out_of_memory;
}

// With few channels its kernel of AMX takes a window's taps and channels for one row of terms, 32
// at a time, and the last of these run on beside the window, where weights are zero. All its
// kernels of bf16 multiply pairs of channels, of which the last of an odd number has a neighbour.
enum onednn_beside onednn_reads_beside(const struct hlo_instr *h, const char *info) {
    enum { TERMS = 32 };
    const struct shape *k = h->operands[1]->shape;
    bool one = k->rank == 2 || shape_elements(k) == k->dims[0] * k->dims[1];
    if (k->dtype != DT_BF16) return BESIDE_NOT;
    if (k->dims[1] % 2 && k->dims[1] > 1) return BESIDE_ODD;
    bool few = starts(info, "jit:") && onednn_by_tiles(info) && !one && k->dims[1] < TERMS;
    return few ? BESIDE_EVEN : BESIDE_NOT;
}

bool onednn_conv_ok(const struct hlo_instr *h) {
    const struct hlo_attr_conv *c = HLO_ATTR(h, conv);
    int n = c->dim_labels.n_spatial;
    if (n < 1 || n > 3 || c->batch_group_count != 1 || c->window.n != n ||
        (cpu_gemm_filter(h) && cpu_gemm_accepts(h)) || cpu_tiles_better(h))
        return false;
    if (lib_transposed(h)) return cpu_transposed_better(h);
    if (!labels_in_order(&c->dim_labels, 0)) return false;
    for (int d = 0; d < n; d++) {
        const struct window_dim *w = &c->window.v[d];
        if (w->base_dilation != 1 || w->reversal || w->pad_low < 0 || w->pad_high < 0) return false;
    }
    return true;
}
