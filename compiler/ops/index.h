// SPDX-License-Identifier: Apache-2.0
// index: walking logical indices in row-major order, and copying single elements, for the reference
// evaluator.
#pragma once
#include "compiler/ir/literal.h"

// Advances idx over dims in row-major order; false after the last. Start from all zeros; call only
// when no dim is 0.
static inline bool index_next(int64_t *idx, const int64_t *dims, int rank) {
    for (int d = rank - 1; d >= 0; d--) {
        if (++idx[d] < dims[d]) return true;
        idx[d] = 0;
    }
    return false;
}
static inline int64_t index_linear(const int64_t *idx, const int64_t *dims, int rank) {
    int64_t n = 0;
    for (int d = 0; d < rank; d++)
        n = n * dims[d] + idx[d];
    return n;
}
// Converts where the types differ (a reducer may sum bf16 values in f32).
static inline void element_copy(struct literal *to, int64_t i, const struct literal *from,
                                int64_t j) {
    if (to->shape->dtype != from->shape->dtype) {
        double c[2];
        lit_get_c128(from, j, c);
        if (dtype_class(from->shape->dtype) == DC_FLOAT || dtype_is_complex(from->shape->dtype))
            lit_set_c128(to, i, c[0], c[1]);
        else
            lit_set_i64(to, i, lit_get_i64(from, j));
        return;
    }
    size_t n = (size_t)dtype_size(from->shape->dtype);
    memcpy((char *)to->data + (size_t)i * n, (const char *)from->data + (size_t)j * n, n);
}
#define EACH_INDEX(idx, s)                                                                         \
    for (int64_t idx[HLO_MAX_RANK + 1] = {0}, *idx##_go = shape_elements(s) ? idx : NULL;          \
         idx##_go; idx##_go = index_next(idx, (s)->dims, (s)->rank) ? idx : NULL)
// Order of elements a and b: < 0, 0, > 0. Floats by IEEE 754 totalOrder.
int hlo_literal_order(const struct literal *l, int64_t a, int64_t b);
