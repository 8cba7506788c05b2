// SPDX-License-Identifier: Apache-2.0
// libhlod_older.so.0: what the C and C++ libraries of glibc 2.27 and GCC 7 lack of what libhlod and
// the libraries beside it call. older.py takes the version off these references, so that the
// dynamic loader takes a definition of the process's own C library where it has one (that comes
// first in every scope) and the one here otherwise. Each keeps the contract of the function it
// stands for, on x86-64. Defines nothing for programs.
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/random.h>

#define SHARED                   __attribute__((visibility("default")))
#define OLD(name, real, version) __asm__(".symver " #name "," #real "@" version)
enum { STAT_VERSION = 1 }; // of x86-64: struct stat as the kernel has it

int old_stat(int version, const char *path, void *out);
int old_lstat(int version, const char *path, void *out);
int old_fstat(int version, int fd, void *out);
int old_res_query(const char *name, int class, int type, unsigned char *answer, int bytes);
int old_res_nsearch(void *state, const char *name, int class, int type, unsigned char *answer,
                    int bytes);
int old_dn_expand(const unsigned char *message, const unsigned char *end, const unsigned char *from,
                  char *out, int bytes);
OLD(old_stat, __xstat, "GLIBC_2.2.5");
OLD(old_lstat, __lxstat, "GLIBC_2.2.5");
OLD(old_fstat, __fxstat, "GLIBC_2.2.5");
OLD(old_res_query, __res_query, "GLIBC_2.2.5");
OLD(old_res_nsearch, __res_nsearch, "GLIBC_2.2.5");
OLD(old_dn_expand, __dn_expand, "GLIBC_2.2.5");
OLD(fcntl, fcntl, "GLIBC_2.2.5");

SHARED int hlod_stat(const char *path, void *out) __asm__("stat");
SHARED int hlod_lstat(const char *path, void *out) __asm__("lstat");
SHARED int hlod_fstat(int fd, void *out) __asm__("fstat");
SHARED int hlod_fstat64(int fd, void *out) __asm__("fstat64");
SHARED int hlod_fcntl64(int fd, int command, ...) __asm__("fcntl64");
SHARED _Noreturn void hlod_thrd_exit(int result) __asm__("thrd_exit");
SHARED uint32_t hlod_arc4random(void) __asm__("arc4random");
SHARED int hlod_res_query(const char *name, int class, int type, unsigned char *answer,
                          int bytes) __asm__("res_query");
SHARED int hlod_res_nsearch(void *state, const char *name, int class, int type,
                            unsigned char *answer, int bytes) __asm__("res_nsearch");
SHARED int hlod_dn_expand(const unsigned char *message, const unsigned char *end,
                          const unsigned char *from, char *out, int bytes) __asm__("dn_expand");
struct found_object; // glibc's struct dl_find_object
SHARED int hlod_find_object(void *pc, struct found_object *out) __asm__("_dl_find_object");

int hlod_stat(const char *path, void *out) {
    return old_stat(STAT_VERSION, path, out);
}
int hlod_lstat(const char *path, void *out) {
    return old_lstat(STAT_VERSION, path, out);
}
int hlod_fstat(int fd, void *out) {
    return old_fstat(STAT_VERSION, fd, out);
}
int hlod_fstat64(int fd, void *out) {
    return old_fstat(STAT_VERSION, fd, out);
}

// off_t has 64 bits either way; the argument is read as the kernel reads it.
int hlod_fcntl64(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    void *arg = va_arg(args, void *);
    va_end(args);
    return fcntl(fd, command, arg);
}

void hlod_thrd_exit(int result) {
    pthread_exit((void *)(intptr_t)result);
}

// glibc's does not come back without a random number either.
uint32_t hlod_arc4random(void) {
    uint32_t r;
    while (getrandom(&r, sizeof r, 0) != sizeof r)
        if (errno != EINTR && errno != EAGAIN) __builtin_trap();
    return r;
}

int hlod_res_query(const char *name, int class, int type, unsigned char *answer, int bytes) {
    return old_res_query(name, class, type, answer, bytes);
}
int hlod_res_nsearch(void *state, const char *name, int class, int type, unsigned char *answer,
                     int bytes) {
    return old_res_nsearch(state, name, class, type, answer, bytes);
}
int hlod_dn_expand(const unsigned char *message, const unsigned char *end,
                   const unsigned char *from, char *out, int bytes) {
    return old_dn_expand(message, end, from, out, bytes);
}

// "There may be other threads": always right, never quick.
SHARED char hlod_single_threaded __asm__("__libc_single_threaded") = 0;

// What the unwinder asks for: where the object of an instruction lies and its PT_GNU_EH_FRAME.
struct found_object {
    unsigned long long flags;
    void *from, *end;
    struct link_map *map; // not asked for by libgcc
    void *eh_frame;
    unsigned long long reserved[7];
};
struct search {
    uintptr_t pc;
    struct found_object *out;
};
static int look(struct dl_phdr_info *object, size_t bytes, void *ctx) {
    (void)bytes;
    struct search *s = ctx;
    uintptr_t from = UINTPTR_MAX, end = 0, eh_frame = 0;
    int here = 0;
    for (int k = 0; k < object->dlpi_phnum; k++) {
        const ElfW(Phdr) *p = &object->dlpi_phdr[k];
        uintptr_t at = object->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_GNU_EH_FRAME) eh_frame = at;
        if (p->p_type != PT_LOAD) continue;
        here |= s->pc >= at && s->pc - at < p->p_memsz;
        from = at < from ? at : from;
        end = at + p->p_memsz > end ? at + p->p_memsz : end;
    }
    if (!here || !eh_frame) return here ? -1 : 0;
    *s->out = (struct found_object){
        .from = (void *)from, .end = (void *)end, .eh_frame = (void *)eh_frame}; // NOLINT
    return 1;
}
int hlod_find_object(void *pc, struct found_object *out) {
    struct search s = {(uintptr_t)pc, out};
    return dl_iterate_phdr(look, &s) == 1 ? 0 : -1;
}

// GCC 11's: std::__throw_bad_array_new_length(), which throws what a handler of std::bad_alloc
// takes too, and std::string::reserve(), a request that need not be met.
_Noreturn void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv");
SHARED _Noreturn void hlod_throw_length(void) __asm__("_ZSt28__throw_bad_array_new_lengthv");
SHARED void hlod_string_reserve(void *string) __asm__(
    "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE7reserveEv");
void hlod_throw_length(void) {
    throw_bad_alloc();
}
void hlod_string_reserve(void *string) {
    (void)string;
}
