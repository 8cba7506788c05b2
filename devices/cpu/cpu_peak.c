// SPDX-License-Identifier: Apache-2.0
// What this machine could do at best, for profiles and for the cost model (compiler/plan/estimate):
// multiply-adds in registers, reads from each level of the caches by one thread, from memory by one
// and by all of the compute pool, and by one of what another thread has just written. Measured once
// a process, at the first profile or explanation (some 50 ms); the best of a few short bursts,
// since other work on the machine only slows. All are this process's share as it is: a machine busy
// with other things measures less.
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "devices/cpu/cpu.h"

// CHAINS independent sums of vectors of N floats keep two units with a latency of four turns busy.
enum { CHAINS = 12, TURNS = 1 << 18, BURSTS = 5, READ_BYTES = 64 << 20, PIECES = 16 };
enum { PASSED = 64, PASSED_LINES = 64, PASSED_BURSTS = 20 }; // pieces of so many lines
#define BURN(NAME, TARGET, TYPE, BYTES)                                                            \
    typedef TYPE NAME##_vector __attribute__((vector_size(BYTES)));                                \
    TARGET static int64_t NAME(TYPE *out) {                                                        \
        NAME##_vector sum[CHAINS], x = {0}, y = {0};                                               \
        for (size_t k = 0; k < BYTES / sizeof(TYPE); k++)                                          \
            x[k] = (TYPE)0.5, y[k] = out[0];                                                       \
        for (int k = 0; k < CHAINS; k++) /* all different: equal ones are computed once */         \
            sum[k] = x * (TYPE)k;                                                                  \
        for (int64_t t = 0; t < TURNS; t++)                                                        \
            _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++) sum[k] = sum[k] * x + y;     \
        for (int k = 1; k < CHAINS; k++)                                                           \
            sum[0] += sum[k];                                                                      \
        out[0] = sum[0][0];                                                                        \
        return (int64_t)TURNS * CHAINS * (int64_t)(BYTES / sizeof(TYPE)) * 2;                      \
    }
BURN(burn_plain, , float, 16)
BURN(burn_plain_f64, , double, 16)
#ifdef __x86_64__
BURN(burn_avx2, __attribute__((target("avx2,fma"))), float, 32)
BURN(burn_avx2_f64, __attribute__((target("avx2,fma"))), double, 32)
BURN(burn_avx512, __attribute__((target("avx512f"))), float, 64)
BURN(burn_avx512_f64, __attribute__((target("avx512f"))), double, 64)
#endif
// A line of the cache a turn, four independent chains.
#define READ(NAME, TARGET)                                                                         \
    TARGET static bool NAME(const void *memory, int64_t begin, int64_t end) {                      \
        typedef uint64_t line __attribute__((vector_size(64)));                                    \
        const line *v = memory;                                                                    \
        line sum[4] = {0};                                                                         \
        int64_t k = begin;                                                                         \
        for (; k + 4 <= end; k += 4)                                                               \
            _Pragma("GCC unroll 4") for (int e = 0; e < 4; e++) sum[e] |= v[k + e];                \
        sum[0] |= sum[1] | sum[2] | sum[3];                                                        \
        return sum[0][0] & sum[0][3] & sum[0][5] & 1;                                              \
    }
READ(read_plain, )
#ifdef __x86_64__
READ(read_avx2, __attribute__((target("avx2"))))
READ(read_avx512, __attribute__((target("avx512f"))))
#endif

struct work {
    bool (*read)(const void *memory, int64_t begin, int64_t end);
    int64_t (*burn)(float *out);
    int64_t (*burn_f64)(double *out);
    const uint64_t *memory;
    int64_t lines, turns; // of a cache: read so often
    _Atomic int64_t done;
    int writer[PASSED];
};
static void burn_all(void *ctx, int64_t begin, int64_t end, int thread) {
    struct work *w = ctx;
    float out[16] = {(float)thread * 1e-3f};
    for (int64_t k = begin; k < end; k++)
        w->done += w->burn(out);
    if (out[0] < 0) abort(); // never: keeps the sums
}
static void burn_f64(void *ctx, int64_t begin, int64_t end, int thread) {
    struct work *w = ctx;
    double out[8] = {thread * 1e-3};
    for (int64_t k = begin; k < end; k++)
        w->done += w->burn_f64(out);
    if (out[0] < 0) abort();
}
static void read_all(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    struct work *w = ctx;
    if (w->read(w->memory, begin, end)) abort(); // never: it is all zero
    w->done += (end - begin) * 64;
}
static void read_again(void *ctx, int64_t begin, int64_t end, int thread) {
    struct work *w = ctx;
    for (int64_t k = begin; k < end; k++)
        for (int64_t t = 0; t < w->turns; t++)
            read_all(ctx, 0, w->lines, thread);
}

static void write_pieces(void *ctx, int64_t begin, int64_t end, int thread) {
    struct work *w = ctx;
    for (int64_t k = begin; k < end; k++) {
        volatile uint64_t *at = (volatile uint64_t *)w->memory + k * PASSED_LINES * 8;
        for (int e = 0; e < PASSED_LINES * 8; e++)
            at[e] = 0;
        w->writer[k] = thread;
    }
}

typedef void part_fn(void *, int64_t, int64_t, int);
static double best_of(struct work *w, part_fn *fn, int64_t extent, bool all, int bursts) {
    double most = 0;
    for (int k = 0; k < bursts; k++) {
        w->done = 0;
        int64_t start = clock_ns();
        if (all)
            cpu_parallel(fn, w, extent, 1);
        else
            fn(w, 0, extent, 0);
        double rate = (double)w->done / ((double)(clock_ns() - start) / 1e9);
        if (rate > most) most = rate;
    }
    return most;
}

static double best(struct work *w, part_fn *fn, int64_t extent, bool all) {
    return best_of(w, fn, extent, all, BURSTS);
}

// From memory: an area that is larger than the caches, a piece for each burst, so that one that is
// interrupted does not count.
static double best_of_pieces(struct work *w, bool all) {
    const uint64_t *memory = w->memory;
    double most = 0;
    for (int k = 0; k < PIECES; k++) {
        w->memory = memory + (int64_t)k * (READ_BYTES / 8 / PIECES);
        double rate = best_of(w, read_all, READ_BYTES / 64 / PIECES, all, 1);
        if (rate > most) most = rate;
    }
    w->memory = memory;
    return most;
}

// All threads write an area, then the owner reads what others wrote of it. 0: none did.
static double best_passed(struct work *w) {
    double most = 0;
    for (int k = 0; k < PASSED_BURSTS; k++) {
        cpu_parallel(write_pieces, w, PASSED, 1);
        w->done = 0;
        int64_t start = clock_ns();
        for (int64_t e = 0; e < PASSED; e++)
            if (w->writer[e]) read_all(w, e * PASSED_LINES, (e + 1) * PASSED_LINES, 0);
        double rate = (double)w->done / ((double)(clock_ns() - start) / 1e9);
        if (rate > most) most = rate;
    }
    return most;
}

// What the system says of a cache, or what is usual; half of it is read, so that it all fits.
static void measure_cache(struct work *w, struct machine *m, int k, int name, int64_t usual) {
    long said = sysconf(name);
    m->level[k].bytes = said > 0 ? said : usual;
    w->lines = m->level[k].bytes / 2 / 64;
    if (w->lines > READ_BYTES / 64) w->lines = READ_BYTES / 64;
    w->turns = (2 << 20) / (w->lines * 64) + 1;
    m->level[k].rate = best(w, read_again, 1, false);
}
static void measure_memory(struct work *w, struct machine *m, struct dev_peak *peak) {
    uint64_t *memory = NULL;
    if (posix_memalign((void **)&memory, 64, READ_BYTES)) return; // bytes: not known
    for (int64_t k = 0; k < READ_BYTES / 8; k += 512)
        memory[k] = 0; // a page each; the rest is zero as it comes
    w->memory = memory;
    peak->bytes = m->memory_all = best_of_pieces(w, true);
    measure_cache(w, m, 0, _SC_LEVEL1_DCACHE_SIZE, 32 << 10);
    measure_cache(w, m, 1, _SC_LEVEL2_CACHE_SIZE, 1 << 20);
    // The last level is shared with whatever else runs: only so much of it counts.
    measure_cache(w, m, 2, -1, 16 << 20);
    m->level[3].bytes = INT64_MAX;
    w->memory = memory;
    m->level[3].rate = best_of_pieces(w, false);
    m->passed_rate = m->threads > 1 ? best_passed(w) : 0;
    for (int k = 1; k < MACHINE_LEVELS; k++) // a farther level is not faster than a nearer one
        if (m->level[k].rate > m->level[k - 1].rate) m->level[k].rate = m->level[k - 1].rate;
    free(memory);
}

static void measure(struct machine *m, struct dev_peak *peak) {
    struct work w = {.read = read_plain, .burn = burn_plain, .burn_f64 = burn_plain_f64};
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        w.read = read_avx2, w.burn = burn_avx2, w.burn_f64 = burn_avx2_f64;
    if (__builtin_cpu_supports("avx512f"))
        w.read = read_avx512, w.burn = burn_avx512, w.burn_f64 = burn_avx512_f64;
#endif
    m->threads = cpu_threads();
    m->flops_f32 = best(&w, burn_all, 1, false);
    m->flops_f64 = best(&w, burn_f64, 1, false);
    if (cpu_has_pairs()) m->flops_i8 = 2 * m->flops_f32; // two terms a lane
    if (cpu_has_int8()) m->flops_i8 = 4 * m->flops_f32;  // an instruction's: four terms a lane
    peak->flops = m->threads > 1 ? best(&w, burn_all, m->threads, true) : m->flops_f32;
    measure_memory(&w, m, peak);
}
struct dev_peak cpu_peak(UNUSED struct device *d) {
    static struct machine m;
    static struct dev_peak peak;
    if (peak.source) return peak;
    const char *forced = getenv("HLOD_CPU_MACHINE");
    if (forced && strcmp(forced, "nominal") == 0) {
        m = estimate_nominal;
        peak = (struct dev_peak){m.flops_f32, m.memory_all, &m, "nominal figures, not measured"};
        return peak;
    }
    measure(&m, &peak);
    peak.machine = m.level[0].rate > 0 ? &m : NULL;
    peak.source = "measured by the worker: multiply-adds in registers and a read through 64 MiB, "
                  "all threads, the best of short bursts";
    return peak;
}
