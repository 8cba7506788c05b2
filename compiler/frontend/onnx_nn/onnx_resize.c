// SPDX-License-Identifier: Apache-2.0
// Resize and Upsample. Where each output element comes from depends on sizes alone, so every axis
// becomes a constant table of taps (input position, weight), applied one axis after another as
// gather, multiply, sum; by a whole factor as neighbours, repeated (no gather). Nearest upsampling
// by a whole factor is a broadcast.
#include <math.h>
#include <stdlib.h>

#include "compiler/frontend/onnx/onnx_tools.h"

enum {
    MAX_TAPS = 1 << 24, // of one axis: bounds the tables
    MAX_PHASES = 32
};
enum resize_mode { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC };
struct resize {
    enum resize_mode mode;
    struct str coordinates, rounding;
    bool antialias, exclude_outside, opset_10;
    double cubic_a, extrapolation;
    int n; // axes
    int64_t axes[HLO_MAX_RANK], size[HLO_MAX_RANK];
    double scale[HLO_MAX_RANK], roi_from[HLO_MAX_RANK], roi_to[HLO_MAX_RANK];
};
struct taps {
    int64_t n;      // of each output element
    int64_t *first; // the first one's place, also outside of the input
    int64_t *at;
    double *weight;
    double *inside; // 1, or 0 where extrapolation_value stands
    bool all_inside;
};

// ---- one axis

// The input coordinate of output element o (ONNX, Resize, coordinate_transformation_mode), in f32
// as everyone computes it: scales like 0.6 put coordinates on whole numbers, or just beside them.
static double coordinate(const struct resize *r, int k, int64_t in, int64_t o) {
    float scale = (float)r->scale[k], out = scale * (float)in, x = (float)o, last = (float)(in - 1);
    if (str_is(r->coordinates, "align_corners")) {
        // Corners lie on corners where the input grows (PyTorch, ONNX Runtime); of a smaller
        // length ONNX's own cases take the fraction too.
        if (scale > 1) out = (float)r->size[k];
        return out == 1 ? 0 : (double)(x * last / (out - 1));
    }
    if (str_is(r->coordinates, "asymmetric")) return (double)(x / scale);
    if (str_is(r->coordinates, "tf_half_pixel_for_nn")) return (double)((x + 0.5f) / scale);
    if (str_is(r->coordinates, "tf_crop_and_resize")) {
        out = (float)r->size[k]; // whole, as in ONNX Runtime
        float from = (float)r->roi_from[k], span = ((float)r->roi_to[k] - from) * last;
        return (double)((out == 1 ? span / 2 : x * span / (out - 1)) + from * last);
    }
    if (str_is(r->coordinates, "pytorch_half_pixel") && r->size[k] == 1) return 0;
    float shift = 0;
    if (str_is(r->coordinates, "half_pixel_symmetric"))
        shift = (float)in / 2 * (1 - (float)r->size[k] / out);
    return (double)(shift + (x + 0.5f) / scale - 0.5f);
}
static double cubic(double x, double a) { // Keys, "Cubic convolution interpolation", 1981
    x = fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((x - 5) * x + 8) * a * x - 4 * a : 0;
}
// Opset 10 names no rounding, nor does an empty text; its own test of a reduction has the element
// behind x, as ONNX Runtime.
static int64_t nearest(const struct resize *r, int k, double x) {
    double low = floor(x), f = x - low;
    if (f == 0) return (int64_t)low;
    bool simple = r->opset_10 || !r->rounding.n;
    bool up = simple                                     ? r->scale[k] < 1
              : str_is(r->rounding, "ceil")              ? true
              : str_is(r->rounding, "floor")             ? false
              : str_is(r->rounding, "round_prefer_ceil") ? f >= 0.5
                                                         : f > 0.5;
    return (int64_t)low + up;
}

// Weights of the elements around x from `first` on; returns nothing outside the filter's support.
static void weigh(const struct resize *r, double x, double shrink, int64_t first, int64_t n,
                  int64_t in, double *w) {
    double sum = 0;
    for (int64_t k = 0; k < n; k++) {
        double d = ((double)(first + k) - x) * shrink;
        w[k] = r->mode == RESIZE_CUBIC ? cubic(d, r->cubic_a) : fmax(0, 1 - fabs(d));
        if (r->exclude_outside && (first + k < 0 || first + k >= in)) w[k] = 0;
        sum += w[k];
    }
    for (int64_t k = 0; k < n && sum != 0 && (r->exclude_outside || shrink < 1); k++)
        w[k] /= sum;
}

static struct taps taps_of(struct onnx_ctx *c, const struct resize *r, int k, int64_t in) {
    int64_t out = r->size[k];
    double shrink = r->antialias && r->scale[k] < 1 ? r->scale[k] : 1;
    int64_t half = (int64_t)ceil((r->mode == RESIZE_CUBIC ? 2 : 1) / shrink);
    struct taps t = {.n = r->mode == RESIZE_NEAREST ? 1 : 2 * half, .all_inside = true};
    t.at = arena_array(c->a, int64_t, out *t.n + 1);
    t.first = arena_array(c->a, int64_t, out + 1);
    t.weight = arena_array(c->a, double, out *t.n + 1);
    t.inside = arena_array(c->a, double, out + 1);
    for (int64_t o = 0; o < out; o++) {
        double x = coordinate(r, k, in, o);
        int64_t first = (int64_t)floor(x) - half + 1;
        if (r->mode == RESIZE_NEAREST)
            first = nearest(r, k, x), t.weight[o] = 1;
        else
            weigh(r, x, shrink, first, t.n, in, t.weight + o * t.n);
        t.first[o] = first;
        for (int64_t j = 0; j < t.n; j++) {
            int64_t at = first + j;
            t.at[o * t.n + j] = at < 0 ? 0 : at >= in ? in - 1 : at;
        }
        bool crop = str_is(r->coordinates, "tf_crop_and_resize");
        t.inside[o] = !crop || (x >= 0 && x <= (double)(in - 1));
        t.all_inside &= t.inside[o] != 0;
    }
    return t;
}

static bool is_repeat(const struct taps *t, int64_t in, int64_t out) {
    if (t->n != 1 || out % in) return false;
    for (int64_t o = 0; o < out; o++)
        if (t->at[o] != o / (out / in)) return false;
    return true;
}
static hv repeat(struct onnx_ctx *c, hv x, int64_t axis, int64_t times) {
    int64_t dims[HLO_MAX_RANK + 1], map[HLO_MAX_RANK], out[HLO_MAX_RANK];
    int rank = x->shape->rank;
    for (int d = 0; d < rank; d++) {
        map[d] = d <= axis ? d : d + 1;
        dims[map[d]] = out[d] = x->shape->dims[d];
    }
    dims[axis + 1] = times;
    out[axis] *= times;
    return hb_reshape(&c->b, hb_broadcast(&c->b, x, dims, rank + 1, map), out, rank);
}

// Upsampling by a whole factor s whose taps are the same for each input element but for the place:
// output s*i + p is the sum over j of weight[p, j] * x[i + low + upper[p] + j], upper 0 or 1, and
// the edges go on outside.
struct phases {
    int64_t s, low, high;   // places from i + low to i + high
    double *upper, *weight; // [s], [n, s]
    bool both;              // some are upper, others not
};
static bool phases_of(struct onnx_ctx *c, const struct taps *t, int64_t in, int64_t out,
                      struct phases *f) {
    if (t->n < 2 || t->n > 4 || out % in || out == in || out / in > MAX_PHASES) return false;
    *f = (struct phases){.s = out / in, .low = t->first[0]};
    f->upper = arena_array(c->a, double, f->s);
    f->weight = arena_array(c->a, double, f->s * t->n);
    for (int64_t p = 0; p < f->s; p++) {
        double d = f->upper[p] = (double)(t->first[p] - f->low);
        if (d != 0 && d != 1) return false;
        f->both |= d == 1;
        for (int64_t j = 0; j < t->n; j++)
            f->weight[j * f->s + p] = t->weight[p * t->n + j];
    }
    for (int64_t o = 0; o < out; o++) {
        if (t->first[o] - t->first[o % f->s] != o / f->s) return false;
        for (int64_t j = 0; j < t->n; j++)
            if (fabs(t->weight[o * t->n + j] - f->weight[j * f->s + o % f->s]) > 1e-6) return false;
    }
    f->high = f->low + f->both + t->n - 1;
    return f->low > -4 && f->low <= 0 && f->high >= 0 && f->high < 4;
}
// x with its first and last element along the axis again as often as places need.
static hv widen(struct onnx_ctx *c, hv x, int64_t axis, int64_t before, int64_t behind) {
    hv all[8];
    int n = 0;
    int64_t in = x->shape->dims[axis];
    for (int64_t k = 0; k < before; k++)
        all[n++] = onnx_part(c, x, axis, 0, 1);
    all[n++] = x;
    for (int64_t k = 0; k < behind; k++)
        all[n++] = onnx_part(c, x, axis, in - 1, in);
    return n > 1 ? hb_concat(&c->b, all, n, axis) : x;
}
static hv by_phases(struct onnx_ctx *c, hv x, int64_t axis, int64_t taps, const struct phases *f) {
    struct hb *b = &c->b;
    int rank = x->shape->rank;
    int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK], out[HLO_MAX_RANK], in = x->shape->dims[axis];
    for (int d = 0; d < rank; d++) {
        map[d] = d <= axis ? d : d + 1;
        dims[map[d]] = out[d] = x->shape->dims[d];
    }
    dims[axis + 1] = f->s;
    out[axis] *= f->s;
    hv wide = widen(c, x, axis, -f->low, f->high), sum = NULL;
    hv upper = hb_broadcast(b, onnx_lit_f64s(c, DT_PRED, f->upper, &f->s, 1), dims, rank + 1,
                            (int64_t[]){axis + 1});
    for (int64_t j = 0; j < taps && hb_ok(b); j++) {
        hv y = hb_broadcast(b, onnx_part(c, wide, axis, j, j + in), dims, rank + 1, map);
        if (f->both) {
            hv next = onnx_part(c, wide, axis, j + 1, j + 1 + in);
            y = hb_select(b, upper, hb_broadcast(b, next, dims, rank + 1, map), y);
        }
        hv w = onnx_lit_f64s(c, x->shape->dtype, f->weight + j * f->s, &f->s, 1);
        y = hb_mul(b, y, hb_broadcast(b, w, dims, rank + 1, (int64_t[]){axis + 1}));
        sum = sum ? hb_add(b, sum, y) : y;
    }
    return hb_reshape(b, sum, out, rank);
}

// Along the last axis the neighbours of all places stand side by side for each tap, elsewhere those
// of each place: either way the results that are made together are neighbours.
static hv weighed(struct onnx_ctx *c, hv x, int64_t axis, const struct taps *t, int64_t out) {
    struct hb *b = &c->b;
    bool last = axis == x->shape->rank - 1;
    int64_t dims[2] = {last ? t->n : out, last ? out : t->n}, tap = last ? axis : axis + 1;
    int64_t *at = arena_array(c->a, int64_t, out * t->n);
    double *weight = arena_array(c->a, double, out * t->n);
    for (int64_t o = 0; o < out; o++)
        for (int64_t j = 0; j < t->n; j++) {
            int64_t to = last ? j * out + o : o * t->n + j;
            at[to] = t->at[o * t->n + j];
            weight[to] = t->weight[o * t->n + j];
        }
    hv y = onnx_take(c, x, onnx_lit_s64s(c, at, dims, 2), axis);
    if (!hb_ok(b)) return x;
    hv w = onnx_lit_f64s(c, x->shape->dtype, weight, dims, 2);
    w = hb_broadcast(b, w, y->shape->dims, y->shape->rank, (int64_t[]){axis, axis + 1});
    return onnx_reduce_keep(c, hb_mul(b, y, w), &tap, 1, HLO_ADD, false);
}

static hv resize_axis(struct onnx_ctx *c, hv x, const struct resize *r, int k) {
    struct hb *b = &c->b;
    int64_t axis = r->axes[k], in = x->shape->dims[axis], out = r->size[k];
    if (in < 1 || out > MAX_TAPS || (double)out * (1 + 4 / fmin(1, r->scale[k])) > MAX_TAPS)
        return onnx_fail(c, "from %lld to %lld elements", (long long)in, (long long)out), x;
    struct taps t = taps_of(c, r, k, in);
    struct phases f;
    if (is_repeat(&t, in, out)) {
        x = repeat(c, x, axis, out / in);
    } else if (phases_of(c, &t, in, out, &f)) {
        x = by_phases(c, x, axis, t.n, &f);
    } else if (t.n > 1) {
        x = weighed(c, x, axis, &t, out);
    } else {
        x = onnx_take(c, x, onnx_lit_s64s(c, t.at, &out, 1), axis);
    }
    if (t.all_inside || !hb_ok(b)) return x;
    hv inside = onnx_along(c, onnx_lit_f64s(c, DT_PRED, t.inside, &out, 1), x->shape, axis);
    return hb_select(b, inside, x, onnx_splat_like(c, x, r->extrapolation));
}

// ---- the operators

// Sizes with the ratio of the axes kept, if asked for.
static void keep_ratio(struct onnx_ctx *c, struct resize *r, const struct shape *s) {
    struct str policy = onnx_at_str(c, "keep_aspect_ratio_policy", "stretch");
    if (str_is(policy, "stretch") || r->n == 0) return;
    double scale = r->scale[0];
    for (int k = 1; k < r->n; k++)
        scale = str_is(policy, "not_larger") ? fmin(scale, r->scale[k]) : fmax(scale, r->scale[k]);
    for (int k = 0; k < r->n; k++) {
        r->scale[k] = scale;
        r->size[k] = (int64_t)(scale * (double)s->dims[r->axes[k]] + 0.5);
    }
}

static bool scales_from(struct onnx_ctx *c, struct resize *r, const struct shape *s, size_t input) {
    const struct literal *l = onnx_in_known(c, input);
    if (!l) return false;
    if (shape_elements(l->shape) != r->n)
        return onnx_fail(c, "%lld scales for %d axes", (long long)shape_elements(l->shape), r->n),
               false;
    for (int k = 0; k < r->n; k++) {
        r->scale[k] = lit_get_f64(l, k);
        double size = floor((double)((float)r->scale[k] * (float)s->dims[r->axes[k]]));
        if (!(r->scale[k] > 0) || size > 1e9) return onnx_fail(c, "scale %g", r->scale[k]), false;
        r->size[k] = (int64_t)size;
    }
    return true;
}
static bool sizes_from(struct onnx_ctx *c, struct resize *r, const struct shape *s, size_t input) {
    int n;
    if (!onnx_in_ints(c, input, r->size, HLO_MAX_RANK, &n)) return false;
    if (n != r->n) return onnx_fail(c, "%d sizes for %d axes", n, r->n), false;
    for (int k = 0; k < n; k++) {
        int64_t in = s->dims[r->axes[k]];
        if (r->size[k] < 0 || (in == 0 && r->size[k]))
            return onnx_fail(c, "size %lld", (long long)r->size[k]), false;
        r->scale[k] = in ? (double)r->size[k] / (double)in : 1;
    }
    keep_ratio(c, r, s);
    return true;
}
static bool roi_from(struct onnx_ctx *c, struct resize *r) {
    for (int k = 0; k < r->n; k++)
        r->roi_from[k] = 0, r->roi_to[k] = 1;
    if (!str_is(r->coordinates, "tf_crop_and_resize")) return true;
    const struct literal *l = onnx_in_known(c, 1);
    if (!l) return false;
    if (shape_elements(l->shape) != 2 * r->n)
        return onnx_fail(c, "roi does not fit the axes"), false;
    for (int k = 0; k < r->n; k++) {
        r->roi_from[k] = lit_get_f64(l, k);
        r->roi_to[k] = lit_get_f64(l, r->n + k);
    }
    return true;
}

// As ONNX Runtime and Pillow with antialias: after each axis, the last one first, numbers are whole
// again, those of 8 bits within their range.
static hv whole(struct onnx_ctx *c, hv x, enum dtype t) {
    bool is_signed = dtype_class(t) == DC_SIGNED;
    x = hb_unary(&c->b, HLO_ROUND_AFZ, x);
    if (dtype_size(t) > 1) return x;
    return hb_clamp(&c->b, hb_const_f64(&c->b, DT_F32, is_signed ? -128 : 0), x,
                    hb_const_f64(&c->b, DT_F32, is_signed ? 127 : 255));
}
static void resize_all(struct onnx_ctx *c, hv x, const struct resize *r) {
    enum dtype t = x->shape->dtype;
    bool crop = str_is(r->coordinates, "tf_crop_and_resize");
    bool wide = r->mode != RESIZE_NEAREST && dtype_size(t) < 4;
    bool done[HLO_MAX_RANK] = {false}, rounds = r->antialias && dtype_is_int(t);
    if (x->shape->rank == HLO_MAX_RANK) return onnx_fail(c, "rank %d", x->shape->rank);
    if (shape_elements(x->shape) == 0) {
        int64_t dims[HLO_MAX_RANK];
        for (int d = 0; d < x->shape->rank; d++)
            dims[d] = x->shape->dims[d];
        for (int k = 0; k < r->n; k++)
            dims[r->axes[k]] = r->size[k];
        return onnx_out_val(c, 0, hb_splat(&c->b, shape_make(c->a, t, dims, x->shape->rank), 0));
    }
    if (wide || (r->mode != RESIZE_NEAREST && !dtype_is_float(t))) x = hb_convert(&c->b, x, DT_F32);
    // Neighbours are dearest along the last axis: while there are few.
    for (int pass = 0; pass < 2; pass++)
        for (int k = r->n - 1; k >= 0 && hb_ok(&c->b); k--) {
            int64_t in = x->shape->dims[r->axes[k]];
            bool shrinks = r->size[k] < in && r->axes[k] != x->shape->rank - 1;
            bool same = r->size[k] == in && r->scale[k] == 1;
            if (done[k] || (pass == 0 && (rounds || !shrinks))) continue;
            if (!same || crop) x = resize_axis(c, x, r, k);
            if (rounds && hb_ok(&c->b)) x = whole(c, x, t);
            done[k] = true;
        }
    onnx_out_val(c, 0, hb_convert(&c->b, x, t));
}
static bool mode_of(struct onnx_ctx *c, struct resize *r) {
    struct str mode = onnx_at_str(c, "mode", "nearest");
    r->mode = str_is(mode, "cubic")                                ? RESIZE_CUBIC
              : str_is(mode, "linear") || str_is(mode, "bilinear") ? RESIZE_LINEAR
                                                                   : RESIZE_NEAREST;
    if (r->mode == RESIZE_NEAREST && !str_is(mode, "nearest"))
        return onnx_fail(c, "mode '" STR_FMT "' is not supported", STR_ARG(mode)), false;
    return true;
}
// What no mode but "nearest" reads may be anything, as in ONNX Runtime.
static bool rounds_as_known(struct onnx_ctx *c, const struct resize *r) {
    static const char *const known[] = {"", "round_prefer_floor", "round_prefer_ceil", "floor",
                                        "ceil"};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (r->mode != RESIZE_NEAREST || str_is(r->rounding, known[k])) return true;
    onnx_fail(c,
              "nearest_mode '" STR_FMT "' is none of: round_prefer_floor round_prefer_ceil "
              "floor ceil",
              STR_ARG(r->rounding));
    return false;
}

ONNX_X(resize) {
    int rank = x->shape->rank;
    bool old = c->opset < 11;
    struct resize r = {
        .coordinates =
            onnx_at_str(c, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel"),
        .rounding = onnx_at_str(c, "nearest_mode", old ? "floor" : "round_prefer_floor"),
        .antialias = onnx_at_int(c, "antialias", 0) != 0,
        .opset_10 = old,
        .exclude_outside = onnx_at_int(c, "exclude_outside", 0) != 0,
        .cubic_a = onnx_at_float(c, "cubic_coeff_a", -0.75f),
        .extrapolation = onnx_at_float(c, "extrapolation_value", 0)};

    if (!mode_of(c, &r) || !rounds_as_known(c, &r)) return;
    if (onnx_at_ints(c, "axes", r.axes, HLO_MAX_RANK, &r.n)) {
        for (int k = 0; k < r.n; k++)
            r.axes[k] = onnx_axis_of(c, r.axes[k], rank);
    } else {
        for (r.n = 0; r.n < rank; r.n++)
            r.axes[r.n] = r.n;
    }

    if (!hb_ok(b) || !roi_from(c, &r)) return;
    bool sizes = !old && onnx_in_has(c, 3);
    if (sizes && onnx_in_has(c, 2)) { // an empty tensor stands for "not given"
        const struct literal *l = onnx_in_known(c, 2);
        if (!l) return;
        if (shape_elements(l->shape)) return onnx_fail(c, "both scales and sizes are given");
    }
    if (!sizes && !onnx_in_has(c, old ? 1 : 2))

        return onnx_fail(c, "neither scales nor sizes are given");
    if (sizes ? sizes_from(c, &r, x->shape, 3) : scales_from(c, &r, x->shape, old ? 1 : 2))
        resize_all(c, x, &r);
}

ONNX_X(upsample) {
    int rank = x->shape->rank;
    const struct onnx_attr *a = onnx_attr(c->n, "scales");
    struct resize r = {.coordinates = STR("asymmetric"), .rounding = STR("floor"), .n = rank};
    if (!mode_of(c, &r)) return;
    for (int k = 0; k < rank; k++)
        r.axes[k] = k;
    if (c->opset >= 9) {
        if (!onnx_in_has(c, 1)) return onnx_fail(c, "scales are missing");
        if (!scales_from(c, &r, x->shape, 1)) return;
    } else {
        if (a && (int)a->floats.n != rank) return onnx_fail(c, "scales do not fit rank %d", rank);
        for (int k = 0; k < rank; k++) {
            double old = k == rank - 1   ? onnx_at_float(c, "width_scale", 1)
                         : k == rank - 2 ? onnx_at_float(c, "height_scale", 1)
                                         : 1;
            r.scale[k] = a ? (double)a->floats.v[k] : old;
            if (!(r.scale[k] >= 1) || r.scale[k] > 1e6) return onnx_fail(c, "scale %g", r.scale[k]);
            r.size[k] = (int64_t)floor(r.scale[k] * (double)x->shape->dims[k]);
        }
    }
    resize_all(c, x, &r);
}

// Of blocks of channels (onnx_nchwc.c), by whole factors.
ONNX_X(nchwcupsample) {
    struct resize r = {.coordinates =
                           onnx_at_str(c, "coordinate_transformation_mode", "asymmetric"),
                       .rounding = STR("floor"),
                       .n = x->shape->rank};
    int64_t scales[HLO_MAX_RANK];
    int n = 0;
    if (!mode_of(c, &r)) return;
    if (!onnx_at_ints(c, "scales", scales, HLO_MAX_RANK, &n) || n != r.n)
        return onnx_fail(c, "scales do not fit rank %d", r.n);
    for (int k = 0; k < n; k++) {
        r.axes[k] = k;
        r.scale[k] = (double)scales[k];
        if (scales[k] < 1 || !sz_mul(x->shape->dims[k], scales[k], &r.size[k]))
            return onnx_fail(c, "scale %lld", (long long)scales[k]);
    }
    resize_all(c, x, &r);
}

// Each axis cut or filled with zeros on both sides; the odd element goes to the end.
ONNX_X(centercroppad) {
    int64_t size[HLO_MAX_RANK], axes[HLO_MAX_RANK];
    int n, m, rank = x->shape->rank;
    if (!onnx_in_ints(c, 1, size, HLO_MAX_RANK, &n)) return;
    if (!onnx_at_ints(c, "axes", axes, HLO_MAX_RANK, &m))
        for (m = 0; m < rank; m++)
            axes[m] = m;
    if (m != n) return onnx_fail(c, "%d sizes for %d axes", n, m);
    for (int k = 0; k < n; k++) {
        int64_t d = onnx_axis_of(c, axes[k], rank);
        if (!hb_ok(b)) return;
        int64_t have = x->shape->dims[d], low = llabs(size[k] - have) / 2;
        if (size[k] < 0) return onnx_fail(c, "size %lld", (long long)size[k]);
        if (size[k] <= have)
            x = onnx_part(c, x, d, low, low + size[k]);
        else
            x = onnx_pad_axis(c, x, d, low, size[k] - have - low, 0);
    }
    onnx_out_val(c, 0, x);
}
