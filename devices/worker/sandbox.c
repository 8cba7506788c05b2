// SPDX-License-Identifier: Apache-2.0
// The filter, by libseccomp: a list of what is allowed; all else raises SIGSYS, whose handler notes
// the number and lets the call return EPERM. New threads inherit it. Not allowed on purpose: open
// and its kin (descriptors come from the daemon), socket, exec, fork, ptrace and process_vm,
// signals to others, mount, keyctl, bpf, io_uring, ioctl.
#include "devices/worker/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/hash.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

static const int allowed[] = {
    // the socket to the daemon, and descriptors that came over it
    SCMP_SYS(recvmsg), SCMP_SYS(sendmsg), SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(shutdown),
    SCMP_SYS(close), SCMP_SYS(read), SCMP_SYS(pread64), SCMP_SYS(readv), SCMP_SYS(write),
    SCMP_SYS(writev), SCMP_SYS(lseek), SCMP_SYS(fstat),
    // memory, tensors of its own
    SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(brk), SCMP_SYS(memfd_create),
    // threads: glibc, libgomp, LLVM
    SCMP_SYS(futex), SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity), // libgomp asks by the number of the thread that calls
    SCMP_SYS(gettid), SCMP_SYS(getpid), SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(membarrier),
    SCMP_SYS(getcpu),
    // signals of its own: this filter's report, abort
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(sigaltstack),
    SCMP_SYS(restart_syscall),
    // time, sizes, chance
    SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday), SCMP_SYS(getrandom), SCMP_SYS(sysinfo), SCMP_SYS(getrusage),
    SCMP_SYS(uname), SCMP_SYS(pause)};

static _Atomic int64_t refused;
static _Atomic int last_number = -1;

enum { BY_SECCOMP = 1 }; // SYS_SECCOMP of the kernel's siginfo.h, which the C library lacks
// The arguments of the call that was refused, and where its result goes.
#if defined(__x86_64__)
static long argument(const ucontext_t *u, int k) {
    static const int reg[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10};
    return (long)u->uc_mcontext.gregs[reg[k]];
}
static void set_result(ucontext_t *u, long value) {
    u->uc_mcontext.gregs[REG_RAX] = value;
}
#elif defined(__aarch64__)
static long argument(const ucontext_t *u, int k) {
    return (long)u->uc_mcontext.regs[k];
}
static void set_result(ucontext_t *u, long value) {
    u->uc_mcontext.regs[0] = (unsigned long long)value;
}
#else
#error "where does a system call's result go on this machine?"
#endif

// A filter sees no further than numbers: newfstatat with AT_EMPTY_PATH takes a path all the same.
// So it is refused, and what newer C libraries mean by it, fstat, is done here.
static bool means_fstat(const ucontext_t *u) {
    const char *path = (const char *)argument(u, 1);
    return (argument(u, 3) & AT_EMPTY_PATH) && path && !*path;
}
static void on_refused(UNUSED int sig, siginfo_t *info, void *context) {
    if (info->si_code != BY_SECCOMP) return;
    ucontext_t *u = context;
    int before = errno;
    if (info->si_syscall == SYS_newfstatat && means_fstat(u)) {
        long r = syscall(SYS_fstat, argument(u, 0), argument(u, 2));
        set_result(u, r < 0 ? -errno : r);
    } else {
        atomic_store(&last_number, info->si_syscall);
        atomic_fetch_add(&refused, 1);
        set_result(u, -EPERM);
    }
    errno = before;
}

int64_t sandbox_refused(const char **out_last) {
    static _Thread_local char text[64];
    int number = atomic_load(&last_number);
    char *name = number < 0 ? NULL : seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number);
    strncpy(text, name ? name : "none", sizeof text - 1);
    free(name);
    *out_last = text;
    return atomic_load(&refused);
}

// A rule with one condition on an argument.
static int allow_if(scmp_filter_ctx f, int call, struct scmp_arg_cmp condition) {
    return seccomp_rule_add_array(f, SCMP_ACT_ALLOW, call, 1, &condition);
}

static int add_conditional(scmp_filter_ctx f) {
    static const int commands[] = {F_ADD_SEALS, F_GET_SEALS, F_GETFD, F_SETFD, F_GETFL};
    unsigned long thread = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
    int rc = 0;
    // Threads, no processes. clone3 hides its flags in memory: glibc takes clone when it is absent.
    rc |= seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    rc |= allow_if(f, SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, thread, thread));
    // Memory is never mapped writable and executable at once. mprotect is free of that rule: the
    // code generator of oneDNN 2.6 asks it for both.
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 0);
    unsigned long both = PROT_WRITE | PROT_EXEC;
    for (unsigned long p = 0; p < 8; p++)
        if ((p & both) != both) rc |= allow_if(f, SCMP_SYS(mmap), SCMP_A2(SCMP_CMP_EQ, p));
    for (size_t k = 0; k < sizeof commands / sizeof commands[0]; k++)
        rc |= allow_if(f, SCMP_SYS(fcntl), SCMP_A1(SCMP_CMP_EQ, (scmp_datum_t)commands[k]));
    // Thread names; abort.
    rc |= allow_if(f, SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME));
    rc |= allow_if(f, SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
    // Stack sizes may be asked for, limits of this process not changed; other processes neither.
    rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 2, SCMP_A0(SCMP_CMP_EQ, 0),
                           SCMP_A2(SCMP_CMP_EQ, 0));
    rc |= allow_if(f, SCMP_SYS(sched_setaffinity), SCMP_A0(SCMP_CMP_EQ, 0));
    // Memory of its own back to where the system would put it: OpenBLAS of its buffers.
    rc |= allow_if(f, SCMP_SYS(mbind), SCMP_A3(SCMP_CMP_EQ, 0));
    // Sizes of memory of its own; not of what it was started with.
    rc |= allow_if(f, SCMP_SYS(ftruncate), SCMP_A0(SCMP_CMP_GT, STDERR_FILENO));
    return rc;
}

static status_t load_filter(scmp_filter_ctx f) {
    int rc = 0;
    for (size_t k = 0; k < sizeof allowed / sizeof allowed[0]; k++)
        rc |= seccomp_rule_add(f, SCMP_ACT_ALLOW, allowed[k], 0);
    rc |= add_conditional(f);
    rc |= seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
    if (rc) return st_internal("the system call filter cannot be built");
    rc = seccomp_load(f);
    return rc ? st_unimplemented("the kernel takes no system call filter: %s", strerror(-rc))
              : ST_OK;
}

// Numbers and layout by hand: the headers here are older than Landlock.
enum { LANDLOCK_CREATE = 444, LANDLOCK_RESTRICT = 446, LANDLOCK_GIVE_VERSION = 1 };
struct landlock {
    uint64_t fs, net, scoped; // rights that only rules give; there are none
};
bool sandbox_forget_paths(void) {
    long version = syscall(LANDLOCK_CREATE, NULL, 0, LANDLOCK_GIVE_VERSION);
    int rights = version >= 5 ? 16 : version >= 3 ? 15 : version == 2 ? 14 : 13;
    struct landlock a = {(UINT64_C(1) << rights) - 1, 3, 3};
    if (version < 1) return false;
    size_t size = version >= 6 ? sizeof a : version >= 4 ? 16 : 8;
    long rules = syscall(LANDLOCK_CREATE, &a, size, 0);
    if (rules < 0) return false;
    bool done =
        !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && syscall(LANDLOCK_RESTRICT, (int)rules, 0) == 0;
    close((int)rules);
    return done;
}

// Lets libraries read what they read from disk at first use: OpenSSL its configuration at the first
// digest, malloc the kernel's overcommit mode when a thread's heap first shrinks.
static void *grow_and_shrink(void *arg) {
    void *volatile p[16];
    for (int k = 0; k < 16; k++)
        p[k] = malloc(100000); // below what is mapped singly, together above what is kept
    for (int k = 15; k >= 0; k--)
        free(p[k]);
    return arg;
}
static void settle(void) {
    struct digest d = sha256_of("", 0);
    pthread_t t;
    (void)d;
    if (pthread_create(&t, NULL, grow_and_shrink, NULL) == 0) pthread_join(t, NULL);
}

status_t sandbox_enter(void) {
    if (SANITIZED) return st_unimplemented("sanitizers need files");
    struct sigaction report = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGSYS, &report, NULL)) return st_errno(errno, "sigaction");
    settle();
    (void)sandbox_forget_paths(); // the filter is the wall; this one stands behind it
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_TRAP);
    if (!f) return st_oom();
    status_t st = load_filter(f);
    seccomp_release(f);
    return st;
}
