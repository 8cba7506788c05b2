// SPDX-License-Identifier: Apache-2.0
// Evaluation of operations that move data: for each element of the result, where it comes from.
#include "compiler/ops/eval_rules.h"
#include "compiler/ops/index.h"

EVAL(CONSTANT) {
    *out = i->literal;
    return ST_OK;
}
EVAL(IOTA) {
    NEW_RESULT(r);
    int64_t d = HLO_ATTR(i, iota)->iota_dimension, k = 0;
    EACH_INDEX(x, r->shape) lit_set_i64(r, k++, x[d]);
    return ST_OK;
}
EVAL(PARTITION_ID) {
    NEW_RESULT(r);
    (void)r;
    return ST_OK;
}
EVAL(REPLICA_ID) {
    return hlo_eval_PARTITION_ID(ev, i, in, out);
}

// The same bytes under another shape.
static status_t view(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *x,
                     struct literal **out) {
    *out = shape_is_tuple(i->shape) ? x : lit_borrow(ev->arena, i->shape, x->data);
    return ST_OK;
}
EVAL(COPY) {
    return view(ev, i, in[0], out);
}
EVAL(RESHAPE) {
    return view(ev, i, in[0], out);
}
EVAL(OPT_BARRIER) {
    return view(ev, i, in[0], out);
}
EVAL(ADD_DEPENDENCY) {
    return view(ev, i, in[0], out);
}
EVAL(DOMAIN) {
    return view(ev, i, in[0], out);
}
// (destination, source, context...): the copy is there at once.
EVAL(COPY_START) {
    if (!shape_is_tuple(i->shape) || i->shape->n_elems < 2 ||
        !shape_compatible(i->shape->elems[0], in[0]->shape) ||
        !shape_compatible(i->shape->elems[1], in[0]->shape))
        return st_invalid("instruction '%s': copy-start gives %s", i->name,
                          shape_text(ev->arena, i->shape));
    NEW_RESULT(r);
    r->elems[0] = r->elems[1] = in[0];
    return ST_OK;
}
EVAL(COPY_DONE) {
    if (!shape_is_tuple(in[0]->shape) || in[0]->shape->n_elems < 1 ||
        !shape_compatible(in[0]->shape->elems[0], i->shape))
        return st_invalid("instruction '%s': copy-done of %s", i->name,
                          shape_text(ev->arena, in[0]->shape));
    *out = in[0]->elems[0];
    return ST_OK;
}
EVAL(AFTER_ALL) {
    *out = lit_new(ev->arena, i->shape);
    return ST_OK;
}

// bitcast reinterprets the buffer: logical orders differ when layouts do.
EVAL(BITCAST) {
    const struct shape *from = i->operands[0]->shape, *to = i->shape;
    if (layout_is_default(from->layout, from->rank) && layout_is_default(to->layout, to->rank))
        return view(ev, i, in[0], out);
    NEW_RESULT(r);
    struct literal *flat =
        lit_new(ev->arena, shape_make(ev->arena, from->dtype,
                                      (int64_t[]){shape_bytes(from) / dtype_size(from->dtype)}, 1));
    int64_t k = 0;
    EACH_INDEX(x, from) element_copy(flat, shape_offset(from, x), in[0], k++);
    k = 0;
    EACH_INDEX(x, to) element_copy(r, k++, flat, shape_offset(to, x));
    return ST_OK;
}

// n elements of `bytes` each, every one `step` bytes behind the one before; 0: all are the first.
static void copy_run(char *to, const char *from, int64_t n, size_t bytes, size_t step) {
    size_t all = (size_t)n * bytes, have = bytes;
    if (step == bytes) {
        memcpy(to, from, all);
    } else if (step) {
        for (int64_t k = 0; k < n; k++)
            memcpy(to + (size_t)k * bytes, from + (size_t)k * step, bytes);
    } else {
        for (memcpy(to, from, bytes); have < all; have *= 2)
            memcpy(to + have, to, have < all - have ? have : all - have);
    }
}
EVAL(BROADCAST) {
    NEW_RESULT(r);
    struct i64s map = HLO_ATTR(i, dims)->dimensions;
    const struct shape *s = r->shape;
    int64_t x[HLO_MAX_RANK] = {0}, stride[HLO_MAX_RANK + 1] = {0}, at = 1;
    int outer = s->rank ? s->rank - 1 : 0;
    int64_t row = s->rank ? s->dims[outer] : 1, n = shape_elements(s);
    size_t bytes = (size_t)dtype_size(s->dtype);
    for (int d = map.n - 1; d >= 0; at *= in[0]->shape->dims[d--])
        stride[map.v[d]] = at;
    for (int64_t k = 0; k < n; k += row, index_next(x, s->dims, outer)) {
        int64_t from = 0;
        for (int d = 0; d < outer; d++)
            from += x[d] * stride[d];
        copy_run((char *)r->data + (size_t)k * bytes,
                 (const char *)in[0]->data + (size_t)from * bytes, row, bytes,
                 (size_t)stride[outer] * bytes);
    }
    return ST_OK;
}
EVAL(TRANSPOSE) {
    NEW_RESULT(r);
    struct i64s perm = HLO_ATTR(i, dims)->dimensions;
    int64_t k = 0;
    EACH_INDEX(x, r->shape) {
        int64_t y[HLO_MAX_RANK];
        for (int d = 0; d < perm.n; d++)
            y[perm.v[d]] = x[d];
        element_copy(r, k++, in[0], index_linear(y, in[0]->shape->dims, perm.n));
    }
    return ST_OK;
}
EVAL(REVERSE) {
    NEW_RESULT(r);
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    int64_t k = 0;
    EACH_INDEX(x, r->shape) {
        int64_t y[HLO_MAX_RANK];
        for (int d = 0; d < r->shape->rank; d++)
            y[d] = i64s_has(dims, d) ? r->shape->dims[d] - 1 - x[d] : x[d];
        element_copy(r, k++, in[0], index_linear(y, r->shape->dims, r->shape->rank));
    }
    return ST_OK;
}
EVAL(CONCATENATE) {
    NEW_RESULT(r);
    int64_t d = HLO_ATTR(i, dims)->dimensions.v[0], k = 0;
    EACH_INDEX(x, r->shape) {
        int64_t y[HLO_MAX_RANK];
        memcpy(y, x, sizeof y);
        int p = 0;
        while (y[d] >= in[p]->shape->dims[d])
            y[d] -= in[p++]->shape->dims[d];
        element_copy(r, k++, in[p], index_linear(y, in[p]->shape->dims, r->shape->rank));
    }
    return ST_OK;
}
EVAL(PAD) {
    NEW_RESULT(r);
    const struct padding *p = &HLO_ATTR(i, pad)->padding;
    const struct shape *s = in[0]->shape;
    int64_t k = 0;
    EACH_INDEX(x, r->shape) {
        int64_t y[HLO_MAX_RANK];
        bool inside = true;
        for (int d = 0; inside && d < s->rank; d++) {
            int64_t v = x[d] - p->v[d].low, step = p->v[d].interior + 1;
            inside = v >= 0 && v % step == 0 && v / step < s->dims[d];
            y[d] = inside ? v / step : 0;
        }
        if (inside)
            element_copy(r, k, in[0], index_linear(y, s->dims, s->rank));
        else
            element_copy(r, k, in[1], 0);
        k++;
    }
    return ST_OK;
}
EVAL(SLICE) {
    NEW_RESULT(r);
    const struct ranges *s = &HLO_ATTR(i, slice)->slice;
    int64_t k = 0;
    EACH_INDEX(x, r->shape) {
        int64_t y[HLO_MAX_RANK];
        for (int d = 0; d < s->n; d++)
            y[d] = s->v[d].start + x[d] * s->v[d].stride;
        element_copy(r, k++, in[0], index_linear(y, in[0]->shape->dims, s->n));
    }
    return ST_OK;
}

// Start indices as given, clamped so that the slice stays inside (XLA operation semantics,
// "DynamicSlice").
static void clamped_starts(const struct hlo_instr *i, struct literal *const *in, int first,
                           const int64_t *size, int64_t *start) {
    const struct shape *s = in[0]->shape;
    bool vector = i->n_operands - first == 1 && in[first]->shape->rank == 1;
    for (int d = 0; d < s->rank; d++) {
        int64_t v = vector ? lit_get_start(in[first], d) : lit_get_start(in[first + d], 0);
        int64_t max = s->dims[d] - size[d];
        start[d] = v > max ? max : v < 0 ? 0 : v;
    }
}
EVAL(DYNAMIC_SLICE) {
    NEW_RESULT(r);
    int64_t start[HLO_MAX_RANK], k = 0;
    clamped_starts(i, in, 1, r->shape->dims, start);
    EACH_INDEX(x, r->shape) {
        int64_t y[HLO_MAX_RANK];
        for (int d = 0; d < r->shape->rank; d++)
            y[d] = start[d] + x[d];
        element_copy(r, k++, in[0], index_linear(y, in[0]->shape->dims, r->shape->rank));
    }
    return ST_OK;
}
EVAL(DYNAMIC_UPDATE_SLICE) {
    NEW_RESULT(r);
    int64_t start[HLO_MAX_RANK], k = 0;
    if (r->size_bytes) memcpy(r->data, in[0]->data, r->size_bytes);
    clamped_starts(i, in, 2, in[1]->shape->dims, start);
    EACH_INDEX(x, in[1]->shape) {
        int64_t y[HLO_MAX_RANK];
        for (int d = 0; d < r->shape->rank; d++)
            y[d] = start[d] + x[d];
        element_copy(r, index_linear(y, r->shape->dims, r->shape->rank), in[1], k++);
    }
    return ST_OK;
}
EVAL(GET_DIMENSION_SIZE) {
    NEW_RESULT(r);
    lit_set_i64(r, 0, in[0]->shape->dims[HLO_ATTR(i, dims)->dimensions.v[0]]);
    return ST_OK;
}

// Literals have fixed sizes: a size below the bound has no value here.
EVAL(SET_DIMENSION_SIZE) {
    int64_t size = lit_get_i64(in[1], 0),
            bound = i->shape->dims[HLO_ATTR(i, dims)->dimensions.v[0]];
    if (size != bound)
        return st_unimplemented("instruction '%s': set-dimension-size to %lld below the bound %lld",
                                i->name, (long long)size, (long long)bound);
    return view(ev, i, in[0], out);
}

// The sizes are operands; the declared dimensions bound them.
EVAL(DYNAMIC_RESHAPE) {
    for (int d = 0; d < i->shape->rank; d++)
        if (lit_get_i64(in[d + 1], 0) != i->shape->dims[d])
            return st_unimplemented(
                "instruction '%s': dynamic-reshape to %lld in dimension %d, declared %lld", i->name,
                (long long)lit_get_i64(in[d + 1], 0), d, (long long)i->shape->dims[d]);
    return view(ev, i, in[0], out);
}

// ---- tuples

EVAL(TUPLE) {
    *out = lit_tuple(ev->arena, i->shape, in);
    return ST_OK;
}
EVAL(GET_TUPLE_ELEMENT) {
    *out = in[0]->elems[HLO_ATTR(i, gte)->index];
    return ST_OK;
}
