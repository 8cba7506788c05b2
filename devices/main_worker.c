// SPDX-License-Identifier: Apache-2.0
// hlod-worker: started by hlod with a socket; not for use by hand.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "devices/device.h"
#include "devices/worker/worker.h"
#include "devices/worker/worker_cut.h"

static void out_of_memory(size_t n) {
    fprintf(stderr, "lvl=error ev=worker.memory bytes=%zu\n", n);
    _exit(WORKER_OUT_OF_MEMORY);
}
// Not under sanitizers, whose shadow is larger than any bound.
static void bound_memory(int64_t bytes) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    struct rlimit r = {(rlim_t)bytes, (rlim_t)bytes};
    if (bytes && setrlimit(RLIMIT_DATA, &r)) perror("hlod-worker: RLIMIT_DATA");
    if (bytes) arena_out_of_memory = out_of_memory;
#else
    (void)bytes, (void)out_of_memory;
#endif
}

// --role=check, for `hlod --check-config`: opens the device and lets it go.
static int check(const char *spec) {
    struct device *d;
    status_t st = dev_open(spec, &d);
    if (!st)
        dev_close(d);
    else
        fprintf(stderr, "%s\n", st_message(st));
    int rc = st ? 1 : 0;
    st_drop(st);
    return rc;
}

int main(int argc, char **argv) {
    struct worker_options o = {.role = "", .device = "cpu", .name = "", .fd = -1, .filter = true};
    int join = -1;
    for (int k = 1; k < argc; k++) {
        if (strcmp(argv[k], "--version") == 0) return puts("hlod-worker " HLOD_VERSION) < 0;
        if (strncmp(argv[k], "--role=", 7) == 0)
            o.role = argv[k] + 7;
        else if (strncmp(argv[k], "--device=", 9) == 0)
            o.device = argv[k] + 9;
        else if (strncmp(argv[k], "--name=", 7) == 0)
            o.name = argv[k] + 7;
        else if (strcmp(argv[k], "--no-filter") == 0)
            o.filter = false;
        else if (strncmp(argv[k], "--memory=", 9) == 0)
            o.memory = strtoll(argv[k] + 9, NULL, 10);
        else if (strncmp(argv[k], "--device-memory=", 16) == 0)
            o.device_memory = strtoll(argv[k] + 16, NULL, 10);
        else if (strncmp(argv[k], "--fd=", 5) == 0)
            o.fd = (int)strtol(argv[k] + 5, NULL, 10);
        else if (strncmp(argv[k], "--join=", 7) == 0) // what the device's spec names
            join = (int)strtol(argv[k] + 7, NULL, 10);
        else if (strncmp(argv[k], "--state=", 8) == 0)
            o.state = (int)strtol(argv[k] + 8, NULL, 10);
    }

    if (strcmp(o.role, "check") == 0) return check(o.device);
    if (o.fd < 0 || (strcmp(o.role, "compile") != 0 && strcmp(o.role, "device") != 0)) {
        fputs("hlod-worker is started by hlod: --role=compile|device --device=SPEC --name=NAME "
              "--fd=N\n",
              stderr);
        return 2;
    }

    // Sockets that a library of the daemon opened without O_CLOEXEC.
    if (o.fd < o.state) syscall(SYS_close_range, (join > o.state ? join : o.state) + 1, ~0u, 0);
    bound_memory(o.memory);
    prctl(PR_SET_PDEATHSIG, SIGKILL); // never outlives the daemon
    signal(SIGINT, SIG_IGN);          // a terminal's interrupt is for the daemon to handle
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    signal(SIGTERM, SIG_IGN); // ends on its closed socket, so that leaks are reported
#endif

    worker_cut_watch();
    status_t st = worker_serve(&o);
    if (!st) return 0;
    log_event(LOG_ERROR, "worker.end", "role=%s name=%s code=%s msg=\"%s\"", o.role, o.name,
              st_code_name(st_code(st)), st_message(st));
    st_drop(st);
    return 1;
}
