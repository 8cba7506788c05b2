// SPDX-License-Identifier: Apache-2.0
// What a worker in its filter can do and cannot, each tried in a child that enters the filter.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "compiler/ir/text/text.h"
#include "devices/cpu/cpu_pool.h"
#include "devices/device.h"
#include "devices/worker/sandbox.h"
#include "proto/frame.h"

// The child's answer: 0 = as it should be.
enum { AS_IT_SHOULD = 0, NO_FILTER = 100 };
static void in_filter(int (*fn)(void)) {
    fflush(NULL);
    pid_t pid = fork();
    int how;
    if (pid == 0) {
        status_t st = sandbox_enter();
        if (st_code(st) == ST_UNIMPLEMENTED) _exit(NO_FILTER);
        _exit(st ? 99 : fn());
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    if (WIFSIGNALED(how)) fail_msg("died of signal %d", WTERMSIG(how));
    if (WEXITSTATUS(how) == NO_FILTER) skip();
    assert_int_equal(WEXITSTATUS(how), AS_IT_SHOULD);
}

static pid_t parent;
static int one_refused(const char *name, long result) {
    const char *last;
    static int64_t before;
    int64_t n = sandbox_refused(&last);
    int ok = result == -1 && errno == EPERM && n > before && strcmp(last, name) == 0;
    if (!ok)
        fprintf(stderr, "%s: result %ld errno %d, last refused %s\n", name, result, errno, last);
    before = n;
    return ok ? 0 : 1;
}
static int refusals(void) {
    int bad = 0;
    struct stat sb;
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    char *const no_args[] = {NULL};
    bad += one_refused("openat", open("/etc/passwd", O_RDONLY));
    bad += one_refused("openat", open("/tmp", O_TMPFILE | O_WRONLY, 0600));
    bad += one_refused("open", syscall(SYS_open, "/etc/passwd", O_RDONLY));
    bad += one_refused("openat2", syscall(SYS_openat2, AT_FDCWD, "/etc/passwd", NULL, 0));
    bad += one_refused("newfstatat", stat("/etc/passwd", &sb));
    bad += one_refused("newfstatat",
                       syscall(SYS_newfstatat, AT_FDCWD, "/etc/passwd", &sb, AT_EMPTY_PATH));
    bad += one_refused("prlimit64", syscall(SYS_prlimit64, parent, RLIMIT_CORE, NULL, &all));
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    bad += one_refused("sched_setaffinity", sched_setaffinity(parent, sizeof cpus, &cpus));
    bad += one_refused("ftruncate", ftruncate(STDERR_FILENO, 0));
    bad += one_refused("unlink", unlink("/tmp/no-such-file"));
    bad += one_refused("socket", socket(AF_INET, SOCK_STREAM, 0));
    bad += one_refused("socket", socket(AF_UNIX, SOCK_STREAM, 0));
    bad += one_refused("execve", execve("/bin/true", no_args, no_args));
    bad += one_refused("clone", syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    bad += one_refused("fork", syscall(SYS_fork));
    bad += one_refused("vfork", syscall(SYS_vfork));
    bad += one_refused("ptrace", ptrace(PTRACE_ATTACH, parent, 0, 0));
    bad += one_refused("process_vm_readv", syscall(SYS_process_vm_readv, parent, 0, 0, 0, 0, 0));
    bad += one_refused("kill", kill(parent, 0));
    bad += one_refused("tgkill", syscall(SYS_tgkill, parent, parent, 0));
    bad += one_refused("pidfd_open", syscall(SYS_pidfd_open, parent, 0));
    bad += one_refused("io_uring_setup", syscall(SYS_io_uring_setup, 8, NULL));
    bad += one_refused("bpf", syscall(SYS_bpf, 0, NULL, 0));
    bad += one_refused("ioctl", syscall(SYS_ioctl, 0, 0, 0));
    bad += one_refused("dup", dup(0));
    bad += one_refused("fcntl", fcntl(0, F_SETOWN, 1));
    bad += one_refused("prlimit64", syscall(SYS_prlimit64, 0, RLIMIT_CORE, &all, NULL));
    bad += one_refused("mmap", (long)mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    return bad;
}
static void test_refused(void **state) {
    (void)state;
    parent = getpid();
    in_filter(refusals);
}

static int clone3_is_absent(void) {
    const char *last;
    return !(syscall(SYS_clone3, NULL, 0) == -1 && errno == ENOSYS && sandbox_refused(&last) == 0);
}
static void test_clone3(void **state) {
    (void)state;
    in_filter(clone3_is_absent);
}

static void *say_yes(void *arg) {
    cpu_set_t cpus;
    *(int *)arg = !pthread_getaffinity_np(pthread_self(), sizeof cpus, &cpus);
    return arg;
}
static int own_work(void) {
    pthread_t t;
    int yes = 0, fd;
    uint8_t *p;
    void *base;
    size_t bytes;
    if (pthread_create(&t, NULL, say_yes, &yes) || pthread_join(t, NULL) || !yes) return 1;
    status_t st = frame_memfd("test", 100000, &fd);
    if (!st) st = frame_map(fd, 0, 100000, true, &p, &base, &bytes);
    if (st) return 3;
    memset(p, 1, 100000);
    frame_unmap(base, bytes);
    close(fd);
    char *big = malloc(64 << 20);
    if (!big) return 4;
    memset(big, 1, 64 << 20);
    free(realloc(big, 128 << 20));
    if (usleep(1000)) return 5;
    struct stat sb;
    cpu_set_t cpus;
    if (fstat(STDERR_FILENO, &sb) || !sb.st_mode) return 7;
    if (syscall(SYS_newfstatat, STDERR_FILENO, "", &sb, AT_EMPTY_PATH) || !sb.st_mode) return 8;
    if (syscall(SYS_newfstatat, -1, "", &sb, AT_EMPTY_PATH) != -1 || errno != EBADF) return 9;
    if (sched_getaffinity(0, sizeof cpus, &cpus) || sched_setaffinity(0, sizeof cpus, &cpus))
        return 10;
    if (pthread_getaffinity_np(pthread_self(), sizeof cpus, &cpus)) return 11;
    const char *last;
    return sandbox_refused(&last) != 0 ? 6 : 0;
}
static void test_allowed(void **state) {
    (void)state;
    in_filter(own_work);
}

// What stands behind the filter, without it.
static void test_landlock(void **state) {
    (void)state;
    int how;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int before = open("/etc/passwd", O_RDONLY);
        char c;
        if (!sandbox_forget_paths()) _exit(NO_FILTER);
        bool good = open("/etc/passwd", O_RDONLY) < 0 && errno == EACCES;
        good &= open("/tmp", O_TMPFILE | O_WRONLY, 0600) < 0 && errno == EACCES;
        _exit(good && read(before, &c, 1) == 1 ? AS_IT_SHOULD : 1);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    if (WEXITSTATUS(how) == NO_FILTER) skip();
    assert_int_equal(how, 0);
}

// A worker opens its device before it enters the filter, and so do these.
static struct device *device;

// Compile, load and run on the CPU, generated code and the library both, on all compute threads,
// within the filter.
static status_t compile_and_run(const char *text, float *out) {
    struct compile_options opt = {.disable_passes = "", .disable_rules = "", .verify_each = true};
    static float in[512 * 512];
    struct hlo_module *m;
    struct executable *e;
    struct dev_exe *x;
    struct dev_weights *w;
    for (int k = 0; k < 512 * 512; k++)
        in[k] = 1;
    const void *ins[] = {in};
    void *outs[] = {out};
    RETURN_IF_ERR(hlo_parse(str_of(text), NULL, &m));
    RETURN_IF_ERR(hlo_compile_module(m, &opt, dev_target(device), NULL, &e));
    RETURN_IF_ERR(dev_load(device, e, NULL, &x));
    RETURN_IF_ERR(dev_prepare(x, NULL, 0, NULL, &w));
    RETURN_IF_ERR(dev_run(x, w, &(struct dev_run){.in = ins, .out = outs}));
    dev_release(w);
    dev_unload(x);
    return ST_OK;
}
static int cpu_device(void) {
    static float out[512 * 512];
    status_t st = compile_and_run(
        "HloModule m\nENTRY e { x = f32[512,512] parameter(0)\nd = f32[512,512] dot(x, x), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}\ns = f32[512,512] sqrt(d)\nROOT r = "
        "f32[512,512] tanh(s) }\n",
        out);
    const char *last = "";
    sandbox_refused(&last);
    if (st) fprintf(stderr, "%s (last refused: %s)\n", st_message(st), last);
    if (st || !(out[100] > 0.99f && out[100] <= 1)) return 1;
    if (sandbox_refused(&last)) return fprintf(stderr, "refused on the way: %s\n", last), 2;
    return 0;
}
static void test_cpu_device(void **state) {
    (void)state;
    assert_int_equal(dev_open("cpu", &device), ST_OK);
    in_filter(cpu_device);
    dev_close(device);
}

// A user's OMP_PROC_BIND: each compute thread goes to its place by itself, which the filter allows.
// OpenMP reads it before main, so this program is started again.
static int bound_device(void) {
    int bad = cpu_device();
    if (bad) return bad;
    cpu_set_t one, other;
    if (!cpu_place_bind(0) || sched_getaffinity(0, sizeof one, &one)) return 3;
    if (!cpu_place_bind(1) || sched_getaffinity(0, sizeof other, &other)) return 4;
    return omp_get_num_places() > 1 && CPU_EQUAL(&one, &other) ? 5 : 0;
}
static void test_bound_threads(void **state) {
    (void)state;
    int how;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("OMP_PROC_BIND", "true", 1);
        setenv("OMP_NUM_THREADS", "3", 1);
        execl("/proc/self/exe", "sandbox_test", "bound", NULL);
        _exit(98);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how));
    if (WEXITSTATUS(how) == NO_FILTER) skip();
    assert_int_equal(WEXITSTATUS(how), AS_IT_SHOULD);
}
static int start_bound(void) {
    status_t st = dev_open("cpu", &device);
    if (!st) st = sandbox_enter();
    int code = st_code(st);
    st_drop(st);
    if (code == ST_UNIMPLEMENTED) return NO_FILTER;
    return code ? 99 : bound_device();
}

// Does this machine's kernel give AMX's registers to a process that asks? Asked in a child: what is
// given is kept.
static bool gives_tiles(void) {
    enum { REQUEST = 0x1023, TILE_DATA = 18 };
    char line[8192];
    bool bf16 = false, tiles = false;
    int how = 1;
#if defined(__x86_64__)
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f) && strncmp(line, "flags", 5) != 0)
        continue;
    bf16 = strstr(line, " avx512_bf16") != NULL;
    tiles = strstr(line, " amx_bf16") != NULL && strstr(line, " amx_int8") != NULL;
    if (f) fclose(f);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) _exit(syscall(SYS_arch_prctl, REQUEST, TILE_DATA) != 0);
    if (waitpid(pid, &how, 0) != pid) how = 1;
#endif
    return bf16 && tiles && how == 0;
}
static bool tiles_given;
static int tiles_in_filter(void) {
    bool told = strstr(dev_target(device)->id, "+amx") != NULL;
    const char *last;
    if (told != tiles_given) return fprintf(stderr, "target %s\n", dev_target(device)->id), 1;
    int wrong = cpu_device();
    return wrong ? wrong : sandbox_refused(&last) ? 2 : 0;
}
// A device that is opened has asked for AMX, since the filter lets nobody ask.
static void test_tiles(void **state) {
    (void)state;
    tiles_given = gives_tiles();
    assert_int_equal(dev_open("cpu", &device), ST_OK);
    in_filter(tiles_in_filter);
    dev_close(device);
}

// The library finds the pool's functions before libgomp's: those of a program that it is linked
// with.
static void test_library_on_pool(void **state) {
    (void)state;
    static const char *const names[] = {"GOMP_parallel", "GOMP_barrier", "omp_get_thread_num",
                                        "omp_get_num_threads", "omp_in_parallel"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        void *first = dlsym(RTLD_DEFAULT, names[k]), *next = dlsym(RTLD_NEXT, names[k]);
        assert_non_null(next);
        assert_ptr_not_equal(first, next);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "bound") == 0) return start_bound();
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_clone3),
        cmocka_unit_test(test_landlock),      cmocka_unit_test(test_allowed),
        cmocka_unit_test(test_cpu_device),    cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_bound_threads), cmocka_unit_test(test_library_on_pool)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
