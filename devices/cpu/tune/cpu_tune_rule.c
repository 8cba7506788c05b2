// SPDX-License-Identifier: Apache-2.0
// The rule by which a way to run a step is kept (cpu_tune.h). Rounds are compared in pairs, since
// what a machine does beside a measurement changes from one round to the next more than the ways
// differ.
#include <stdlib.h>
#include <string.h>

#include "devices/cpu/tune/cpu_tune.h"

#define CLEAR .95

static int by_ratio(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static int by_time(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

bool tune_wins(const struct tune_times *t, int way) {
    double r[TUNE_ROUNDS];
    int n = t->n_rounds;
    if (n < TUNE_LEAST_ROUNDS || way == 0) return false;
    for (int k = 0; k < n; k++)
        r[k] = (double)t->ns[way][k] / (double)(t->ns[0][k] > 0 ? t->ns[0][k] : 1);
    qsort(r, (size_t)n, sizeof *r, by_ratio);
    return r[n / 2] <= CLEAR && r[(3 * n + 3) / 4 - 1] < 1;
}
int64_t tune_median(const struct tune_times *t, int way) {
    int64_t v[TUNE_ROUNDS];
    if (!t->n_rounds) return 0;
    memcpy(v, t->ns[way], sizeof *v * (size_t)t->n_rounds);
    qsort(v, (size_t)t->n_rounds, sizeof *v, by_time);
    return v[t->n_rounds / 2];
}
int tune_choose(const struct tune_times *t) {
    int best = 0;
    for (int w = 1; w < t->n_ways; w++)
        if (tune_wins(t, w) && (!best || tune_median(t, w) < tune_median(t, best))) best = w;
    return best;
}
