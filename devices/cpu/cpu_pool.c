// SPDX-License-Identifier: Apache-2.0
// The compute pool is OpenMP's (docs/decisions/0002): the library's parallel regions use the same
// threads, so the machine is never oversubscribed.
#include <omp.h>

#include "devices/cpu/cpu.h"

int cpu_threads(void) {
    return omp_get_max_threads();
}

int cpu_use_threads(int n) {
    int was = omp_get_max_threads();
    omp_set_num_threads(n);
    return was;
}

void cpu_parallel(void (*fn)(void *ctx, int64_t begin, int64_t end, int thread), void *ctx,
                  int64_t extent, int64_t grain) {
    int n = cpu_threads();
    if (extent < 2 * (grain > 0 ? grain : 1) || n == 1 || omp_in_parallel()) {
        fn(ctx, 0, extent, 0);
        return;
    }
#pragma omp parallel num_threads(n)
    {
        int64_t t = omp_get_thread_num(), count = omp_get_num_threads();
        int64_t begin = extent * t / count, end = extent * (t + 1) / count;
        if (begin < end) fn(ctx, begin, end, (int)t);
    }
}
