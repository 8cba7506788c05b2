// SPDX-License-Identifier: Apache-2.0
// moved_clock: preloaded, it moves what CLOCK_REALTIME, gettimeofday and time say by as many
// nanoseconds as the file named by MOVED_CLOCK says at the moment; a test that maps the same file
// steps the clock of a daemon and its workers. CLOCK_MONOTONIC stays.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic int64_t *offset_ns;
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("MOVED_CLOCK");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *p = mmap(NULL, sizeof *offset_ns, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p != MAP_FAILED) offset_ns = p;
}
static int moved(clockid_t id, struct timespec *t) {
    static _Atomic(int (*)(clockid_t, struct timespec *)) own;
    int (*f)(clockid_t, struct timespec *) = atomic_load(&own);
    if (!f) {
        f = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
        atomic_store(&own, f);
    }
    int rc = f(id, t);
    if (rc || !offset_ns || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return rc;
    int64_t ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + atomic_load(offset_ns);
    t->tv_sec = ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
    return 0;
}
int clock_gettime(clockid_t id, struct timespec *t) {
    return moved(id, t);
}
int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    (void)zone;
    struct timespec t;
    int rc = moved(CLOCK_REALTIME, &t);
    *tv = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
    return rc;
}
time_t time(time_t *out) {
    struct timespec t;
    moved(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}
