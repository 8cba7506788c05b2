// SPDX-License-Identifier: Apache-2.0
// The handler uses what is safe in one: a buffer of its own, write, raise.
#include "server/last_words.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { KEPT = 400 };
static char words[2][KEPT]; // one is shown while the other is written
static atomic_int shown = -1;
static atomic_flag writing = ATOMIC_FLAG_INIT;

void last_words(const char *why) {
    if (atomic_flag_test_and_set(&writing)) return; // two at a time: one will do
    int k = atomic_load(&shown) == 0;
    size_t n = strnlen(why, KEPT - 1);
    for (size_t i = 0; i < n; i++) // one event, one line
        words[k][i] = why[i] == '"' ? '\'' : (unsigned char)why[i] < ' ' ? ' ' : why[i];
    words[k][n] = 0;
    atomic_store(&shown, k);
    atomic_flag_clear(&writing);
}

static void say(const char *text) {
    (void)!write(STDERR_FILENO, text, strlen(text));
}
static const char *name_of(int number) {
    return number == SIGABRT   ? "6 name=SIGABRT"
           : number == SIGSEGV ? "11 name=SIGSEGV"
           : number == SIGBUS  ? "7 name=SIGBUS"
           : number == SIGFPE  ? "8 name=SIGFPE"
                               : "4 name=SIGILL";
}
static void on_end(int number) {
    int k = atomic_load(&shown);
    say("lvl=error ev=server.died signal=");
    say(name_of(number));
    say(" why=\"");
    say(k < 0 ? "not known" : words[k]);
    say("\"\n");
    raise(number); // SA_RESETHAND: the default now
}
void last_words_watch(void) {
    static char stack[64 << 10]; // of an overflow's handler
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    static const int ends[] = {SIGABRT}; // the others are the sanitizer's
#else
    static const int ends[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
#endif
    stack_t alt = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction a = {.sa_handler = on_end, .sa_flags = SA_RESETHAND | SA_ONSTACK};
    sigaltstack(&alt, NULL);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        sigaction(ends[i], &a, NULL);
}

void last_words_hold(bool yes) {
    static const int asked[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    sigset_t set;
    sigemptyset(&set);
    for (size_t k = 0; k < sizeof asked / sizeof *asked; k++)
        sigaddset(&set, asked[k]);
    pthread_sigmask(yes ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}
