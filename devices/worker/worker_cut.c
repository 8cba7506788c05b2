// SPDX-License-Identifier: Apache-2.0
#include "devices/worker/worker_cut.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"

static atomic_bool happened;
static uintptr_t page = 4096;

// Safe in a handler: mmap is one system call, and the filter lets it pass.
static void on_bus(int number, siginfo_t *info, UNUSED void *context) {
    void *at = (void *)((uintptr_t)info->si_addr & ~(page - 1));
    bool beyond = info->si_code == BUS_ADRERR; // of the file's end
    if (beyond && mmap(at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at)
        atomic_store(&happened, true);
    else
        signal(number, SIG_DFL); // it happens again, and ends us
}
void worker_cut_watch(void) {
    struct sigaction a = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    page = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigaction(SIGBUS, &a, NULL);
}
bool worker_cut_happened(void) {
    return atomic_exchange(&happened, false);
}
