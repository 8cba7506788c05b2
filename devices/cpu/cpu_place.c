// SPDX-License-Identifier: Apache-2.0
// Where the pool's threads run. The kernel's balancer looks at times of milliseconds; two threads
// that work and sleep in turns of less can share one CPU for seconds while another is idle. So a
// thread that finds another of the pool on its CPU goes to a free one itself. That is a move, no
// pin: its set of CPUs is afterwards what it was, and the kernel may move it again.
#include <omp.h>

#include "devices/cpu/cpu_pool.h"

bool cpu_place_choose(int own, const cpu_set_t *allowed, const int *used, int n, cpu_set_t *out) {
    bool shared = false;
    *out = *allowed;
    for (int k = 0; k < n; k++) {
        if (used[k] < 0 || used[k] >= CPU_SETSIZE) continue;
        shared |= used[k] == own;
        CPU_CLR(used[k], out);
    }
    return shared && CPU_COUNT(out) > 0;
}

bool cpu_place_move(const cpu_set_t *to) {
    cpu_set_t before;
    if (sched_getaffinity(0, sizeof before, &before) || sched_setaffinity(0, sizeof *to, to))
        return false;
    return !sched_setaffinity(0, sizeof before, &before);
}

bool cpu_place_bind(int k) {
    int places = omp_get_num_places();
    if (omp_get_proc_bind() == omp_proc_bind_false || places < 1) return false;
    int ids[CPU_SETSIZE], place = k % places, n = omp_get_place_num_procs(place);
    cpu_set_t set;
    CPU_ZERO(&set);
    if (n < 1 || n > CPU_SETSIZE) return false;
    omp_get_place_proc_ids(place, ids);
    for (int e = 0; e < n; e++)
        if (ids[e] >= 0 && ids[e] < CPU_SETSIZE) CPU_SET(ids[e], &set);
    return !sched_setaffinity(0, sizeof set, &set);
}
