// SPDX-License-Identifier: Apache-2.0
// What this machine could do at best, for profiles: multiply-adds in registers, and a read through
// more memory than the caches hold, by all threads of the compute pool. Measured once a process, at
// the first profile; the best of a few short bursts, since other work on the machine only slows.
// Both are this process's share as it is: a machine busy with other things measures less.
#include <stdlib.h>

#include "base/clock.h"
#include "devices/cpu/cpu.h"

// CHAINS independent sums of vectors of N floats: enough to keep two units with a latency of four
// turns busy.
enum { CHAINS = 12, TURNS = 1 << 18, BURSTS = 5, READ_BYTES = 64 << 20 };
#define BURN(NAME, TARGET, BYTES)                                                                  \
    typedef float NAME##_vector __attribute__((vector_size(BYTES)));                               \
    TARGET static int64_t NAME(float *out) {                                                       \
        NAME##_vector sum[CHAINS] = {0}, x = {0}, y = {0};                                         \
        for (size_t k = 0; k < BYTES / 4; k++)                                                     \
            x[k] = 0.5f, y[k] = out[0];                                                            \
        for (int64_t t = 0; t < TURNS; t++)                                                        \
            _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++) sum[k] = sum[k] * x + y;     \
        for (int k = 1; k < CHAINS; k++)                                                           \
            sum[0] += sum[k];                                                                      \
        out[0] = sum[0][0];                                                                        \
        return (int64_t)TURNS * CHAINS * (BYTES / 4) * 2;                                          \
    }
BURN(burn_plain, , 16)
#ifdef __x86_64__
BURN(burn_avx2, __attribute__((target("avx2,fma"))), 32)
BURN(burn_avx512, __attribute__((target("avx512f"))), 64)
#endif

struct work {
    int64_t (*burn)(float *out);
    const uint64_t *memory;
    _Atomic int64_t done;
};
static void burn_all(void *ctx, int64_t begin, int64_t end, int thread) {
    struct work *w = ctx;
    float out[16] = {(float)thread * 1e-3f};
    for (int64_t k = begin; k < end; k++)
        w->done += w->burn(out);
    if (out[0] < 0) abort(); // never: keeps the sums
}
static void read_all(void *ctx, int64_t begin, int64_t end, int thread) {
    struct work *w = ctx;
    uint64_t sum[8] = {0};
    for (int64_t k = begin; k < end; k++) // a line of the cache a turn
        for (int e = 0; e < 8; e++)
            sum[e] |= w->memory[k * 8 + e];
    if (sum[0] & sum[1] & sum[2] & sum[3] & sum[4] & sum[5] & sum[6] & sum[7] & 1) abort();
    w->done += (end - begin) * 64;
    (void)thread;
}

static double best(struct work *w, void (*fn)(void *, int64_t, int64_t, int), int64_t extent) {
    double most = 0;
    for (int k = 0; k < BURSTS; k++) {
        w->done = 0;
        int64_t start = clock_ns();
        cpu_parallel(fn, w, extent, 1);
        double rate = (double)w->done / ((double)(clock_ns() - start) / 1e9);
        if (rate > most) most = rate;
    }
    return most;
}

struct dev_peak cpu_peak(struct device *d) {
    static struct dev_peak peak;
    (void)d;
    if (peak.source) return peak;
    struct work w = {.burn = burn_plain};
    peak.source = "measured by the worker: multiply-adds in registers and a read through 64 MiB, "
                  "all threads, best of 5 bursts";
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) w.burn = burn_avx2;
    if (__builtin_cpu_supports("avx512f")) w.burn = burn_avx512;
#endif
    peak.flops = best(&w, burn_all, cpu_threads());
    uint64_t *memory = NULL;
    if (posix_memalign((void **)&memory, 64, READ_BYTES)) return peak; // bytes: not known
    for (int64_t k = 0; k < READ_BYTES / 8; k += 512)
        memory[k] = 0; // a page each; the rest is zero as it comes
    w.memory = memory;
    peak.bytes = best(&w, read_all, READ_BYTES / 64);
    free(memory);
    return peak;
}
