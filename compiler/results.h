// SPDX-License-Identifier: Apache-2.0
// results: sizes of results that only the run knows. A program computes such a result up to a bound
// and, as a further leaf of its root that nobody is sent, how much of one dimension counts. The
// module says so in frontend_attributes={hlod_dynamic="LEAF:DIM:SIZE_LEAF,..."}; size leaves are
// the last ones. Whoever returns results cuts them. Thread: any.
#pragma once
#include "compiler/ir/module.h"

struct dynamic_result {
    int leaf, dim; // of the root
    int size_leaf; // s64 scalar
};
void results_set_dynamic(struct hlo_module *m, const struct dynamic_result *r, int n);
// How many there are; the first `max` in out. What is malformed or does not fit the root is left
// out.
int results_dynamic(const struct hlo_module *m, struct dynamic_result *out, int max);
// Leaves of the root that are sent: all but the sizes.
int results_sent(const struct hlo_module *m);
// Cuts dimension dim of a dense row-major array of `rank` dims and elements of elem_bytes to `size`
// (clamped to 0..dims[dim]) in place, and dims with it. Gives the bytes that are left.
int64_t results_cut(int64_t elem_bytes, int rank, int dim, int64_t size, void *data, int64_t *dims);
// Cuts all of them in place; p[k] is the data of leaf k. True dims by leaf, NULL where the bound is
// the size; in arena a.
int64_t **results_cut_all(struct arena *a, const struct hlo_module *m, void *const *p);
