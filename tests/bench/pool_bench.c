// SPDX-License-Identifier: Apache-2.0
// What a parallel region costs: OpenMP's (which oneDNN's primitives use) beside a pool of our own
// that spins briefly and then sleeps on a futex, and the two taken in turn, as a network of library
// calls and generated kernels would. A program is REGIONS regions of WORK_US of work a thread with
// a short serial piece between; printed are its median and 99th percentile in ms. With --load N, N
// processes compete for the same two cores. Decision 0002 has the figures.
//     pool_bench [--load N] [--runs N] [--work US]
#include <linux/futex.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { REGIONS = 50, SPIN_US = 20, THREADS = 2 };
typedef void (*part_fn)(int thread);

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// ---- the pool of our own: one helper, a generation counter each way

static _Atomic uint32_t posted, finished;
static part_fn posted_fn;

static void wait_change(_Atomic uint32_t *at, uint32_t old) {
    int64_t end = now_ns() + SPIN_US * 1000;
    while (atomic_load(at) == old) {
        __builtin_ia32_pause();
        if (now_ns() < end) continue;
        syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    }
}
static void change(_Atomic uint32_t *at) {
    atomic_fetch_add(at, 1);
    syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
static void *helper(void *arg) {
    (void)arg;
    for (uint32_t seen = 0;; seen++) {
        wait_change(&posted, seen);
        posted_fn(1);
        change(&finished);
    }
    return NULL;
}
static void own_region(part_fn fn) {
    uint32_t before = atomic_load(&finished);
    posted_fn = fn;
    change(&posted);
    fn(0);
    wait_change(&finished, before);
}
static void omp_region(part_fn fn) {
#pragma omp parallel num_threads(THREADS)
    fn(omp_get_thread_num());
}

// ---- work: a number of passes over 16 KiB, set by time on an undisturbed thread

static float data[THREADS][4096];
static int passes = 1;
static void one_pass(float *v) {
    for (int k = 0; k < 4096; k++)
        v[k] = v[k] * 0.999f + 0.001f;
}
static void work(int thread) {
    for (int p = 0; p < passes; p++)
        one_pass(data[thread]);
}
static void calibrate(int us) {
    double best = 1e9;
    for (int k = 0; k < 2000; k++) {
        int64_t start = now_ns();
        one_pass(data[0]);
        double t = (double)(now_ns() - start) / 1e3;
        if (t < best) best = t;
    }
    passes = (int)(us / best + 0.5);
    if (passes < 1) passes = 1;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void measure(const char *name, int runs, void (*even)(part_fn), void (*odd)(part_fn)) {
    int64_t *t = calloc((size_t)runs, sizeof *t);
    for (int r = -3; r < runs; r++) {
        int64_t start = now_ns();
        for (int k = 0; k < REGIONS; k++) {
            (k & 1 ? odd : even)(work);
            one_pass(data[0]);
        }
        if (r >= 0) t[r] = now_ns() - start;
    }
    qsort(t, (size_t)runs, sizeof *t, by_value);
    printf("%-28s median %8.3f ms   p99 %8.3f ms\n", name, (double)t[runs / 2] / 1e6,
           (double)t[runs * 99 / 100] / 1e6);
    fflush(stdout);
    free(t);
}
static void alone(part_fn fn) {
    fn(0);
    fn(1);
}

int main(int argc, char **argv) {
    int load = 0, runs = 300, us = 40;
    for (int k = 1; k + 1 < argc; k += 2) {
        if (strcmp(argv[k], "--load") == 0) load = (int)strtol(argv[k + 1], NULL, 10);
        if (strcmp(argv[k], "--runs") == 0) runs = (int)strtol(argv[k + 1], NULL, 10);
        if (strcmp(argv[k], "--work") == 0) us = (int)strtol(argv[k + 1], NULL, 10);
    }
    cpu_set_t two;
    sched_getaffinity(0, sizeof two, &two);
    for (int c = 0, n = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &two) && ++n > THREADS) CPU_CLR(c, &two);
    sched_setaffinity(0, sizeof two, &two);
    calibrate(us);
    for (int k = 0; k < load; k++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile uint64_t x = 0;; x++)
                ;
        }
    const char *policy = getenv("OMP_WAIT_POLICY");
    printf("%d regions of %d us on %d threads, %d competing, OMP_WAIT_POLICY=%s\n", REGIONS, us,
           THREADS, load, policy ? policy : "(default)");
    measure("one thread", runs, alone, alone);
    measure("OpenMP", runs, omp_region, omp_region);
    pthread_t t;
    pthread_create(&t, NULL, helper, NULL);
    measure("own pool", runs, own_region, own_region);
    measure("OpenMP and own in turn", runs, omp_region, own_region);
    return 0;
}
