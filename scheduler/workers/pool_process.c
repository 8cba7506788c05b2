// SPDX-License-Identifier: Apache-2.0
#include "scheduler/workers/pool_process.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "scheduler/loop.h"

// OpenMP counts the processors that it may run on; of a control group's quota it knows nothing, and
// threads beyond that only wait for each other.
static char *threads_by_quota(char text[PROCESS_TEXT]) {
    int most = limits_here().processors;
    if (getenv("OMP_NUM_THREADS") || most >= sysconf(_SC_NPROCESSORS_ONLN)) return NULL;
    snprintf(text, PROCESS_TEXT, "OMP_NUM_THREADS=%d", most);
    return text;
}
// Credentials of the daemon's own are not for processes that read what strangers send.
static bool is_secret(const char *variable) {
    static const char *const names[] = {"AWS_SECRET_ACCESS_KEY=",
                                        "AWS_SESSION_TOKEN=",
                                        "HLOD_TOKEN=",
                                        "OTEL_EXPORTER_OTLP_HEADERS=",
                                        "OTEL_EXPORTER_OTLP_METRICS_HEADERS=",
                                        "OTEL_EXPORTER_OTLP_TRACES_HEADERS="};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (!strncmp(variable, names[k], strlen(names[k]))) return true;
    return false;
}
char **process_env(int64_t spins, char spin[PROCESS_TEXT], char threads[PROCESS_TEXT],
                   char *const *more, int n_more) {
    size_t n = 0;
    while (environ[n])
        n++;
    char **env = calloc(n + 3 + (size_t)n_more, sizeof *env);
    if (!env) abort();
    size_t all = n;
    n = 0;
    for (size_t k = 0; k < all; k++)
        if (!is_secret(environ[k])) env[n++] = environ[k];
    snprintf(spin, PROCESS_TEXT, "GOMP_SPINCOUNT=%lld", (long long)spins);
    if (!getenv("GOMP_SPINCOUNT") && !getenv("OMP_WAIT_POLICY")) env[n++] = spin;
    for (int k = 0; k < n_more; k++)
        env[n++] = more[k];
    env[n] = threads_by_quota(threads);
    return env;
}

enum { OUT_OF_MEMORY = 66 }; // devices/worker/worker.h: WORKER_OUT_OF_MEMORY
static bool is_fault(const siginfo_t *i) {
    if (i->si_code == CLD_EXITED) return i->si_status != 0;
    return i->si_status != SIGKILL && i->si_status != SIGTERM && i->si_status != SIGINT &&
           i->si_status != SIGHUP;
}
const char *process_end(int pid, int64_t memory, char out[PROCESS_END], bool *out_fault) {
    siginfo_t i = {0};
    for (int k = 0; k < 20 && pid && !i.si_pid; k++) {
        if (k) nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
        if (waitid(P_PID, (id_t)pid, &i, WEXITED | WNOHANG | WNOWAIT)) break;
    }
    *out_fault = i.si_pid && is_fault(&i);
    bool aborted = i.si_code != CLD_EXITED && i.si_status == SIGABRT;
    if (i.si_pid && memory && (aborted || i.si_status == OUT_OF_MEMORY))
        snprintf(out, PROCESS_END,
                 "its process was out of memory%s: a compile may take compile_memory = %lld bytes",
                 aborted ? ", or aborted" : "", (long long)memory);
    else if (!i.si_pid)
        snprintf(out, PROCESS_END, "its process ended");
    else if (i.si_code == CLD_EXITED)
        snprintf(out, PROCESS_END, "its process ended with status %d", i.si_status);
    else
        snprintf(out, PROCESS_END, "its process was ended by signal %d (%s)%s", i.si_status,
                 strsignal(i.si_status), i.si_status == SIGKILL ? ": out of memory?" : "");
    return out;
}

// ---- the end of all

static void count_process(uv_handle_t *h, void *n) {
    *(int *)n += h->type == UV_PROCESS && !uv_is_closing(h);
}
static void kill_process(uv_handle_t *h, UNUSED void *arg) {
    if (h->type == UV_PROCESS && !uv_is_closing(h)) uv_process_kill((uv_process_t *)h, SIGKILL);
}
static void free_handle(uv_handle_t *h) {
    free(h);
}
static void leave_process(uv_handle_t *h, UNUSED void *arg) {
    if (h->type != UV_PROCESS || uv_is_closing(h)) return;
    log_event(LOG_ERROR, "worker.stays", "pid=%d why=\"SIGKILL does not end it\"",
              ((uv_process_t *)h)->pid);
    uv_close(h, free_handle);
}
static int living(struct loop *l) {
    int n = 0;
    uv_walk(loop_uv(l), count_process, &n);
    return n;
}
static void nothing(UNUSED void *arg) {}
static void await(struct loop *l, int64_t ns) {
    enum { LOOK_MS = 50 };
    struct loop_timer *look = loop_timer_new(l, nothing, NULL);
    for (int64_t until = clock_ns() + ns; living(l) && clock_ns() < until;) {
        loop_timer_start(look, LOOK_MS);
        loop_turn(l);
    }
    loop_timer_free(look);
}
void process_await_all(struct loop *l, int64_t grace_ns) {
    static const int64_t KILLED_NS = INT64_C(5000) * CLOCK_MS;
    await(l, grace_ns);
    uv_walk(loop_uv(l), kill_process, NULL);
    await(l, KILLED_NS);
    uv_walk(loop_uv(l), leave_process, NULL);
}
