// SPDX-License-Identifier: Apache-2.0
// First code of the programs of `make dist` and `make wheel`: starts them with the C library
// that lies beside them (DIR/../lib/hlod/c), so that they run on an x86-64 Linux whose own is
// older, or of another kind. The kernel takes a program's loader by an absolute path
// (PT_INTERP) only. These programs have none: the kernel starts hlod_start, which maps our ld-
// linux-x86-64.so.2 as the kernel would have done, corrects the two entries of the auxiliary
// vector that name it (AT_BASE, AT_ENTRY; System V ABI, x86-64 supplement, "Process
// Initialization"), and jumps to it. The loader wants to see a PT_INTERP, so the header that
// nointerp.sh made PT_NULL in the file is made one again in memory. /proc/self/exe, argv and
// the name of the process stay those of the program; libraries are found by its DT_RPATH. Runs
// before anything is relocated or initialised: no libc, no globals with addresses, no stack
// protector. Does not look at LD_* (the loader does).
#include <elf.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define LOADER "../lib/hlod/c/ld-linux-x86-64.so.2"
enum { PAGE = 4096, PATH = 4096 };

extern char _start[]
    __attribute__((visibility("hidden"))); // of the C library's crt1: where the loader is to go
uintptr_t hlod_map_loader(uintptr_t *sp) __attribute__((visibility("hidden"), used));

__asm__(".text\n"
        ".globl hlod_start\n"
        ".hidden hlod_start\n"
        ".type hlod_start, @function\n"
        "hlod_start:\n"
        "  xor %ebp, %ebp\n"
        "  mov %rsp, %rdi\n"
        "  mov %rsp, %rbx\n" // kept by the call
        "  and $-16, %rsp\n"
        "  call hlod_map_loader\n"
        "  mov %rbx, %rsp\n"
        "  xor %edx, %edx\n" // nothing to be called at exit
        "  jmp *%rax\n");

static long call6(long n, long a, long b, long c, long d, long e, long f) {
    long r;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return r;
}

static size_t length(const char *s) {
    size_t n = 0;
    while (s[n])
        n++;
    return n;
}

static void say(const char *s) {
    call6(SYS_write, 2, (long)s, (long)length(s), 0, 0, 0);
}

static _Noreturn void die(const char *path, const char *what) {
    say("hlod: ");
    say(path);
    say(what);
    for (;;)
        call6(SYS_exit_group, 127, 0, 0, 0, 0, 0);
}

// The loader's path into `out`: beside the program's own, as the kernel knows it; where /proc
// is not mounted, as it was started.
static void loader_path(char out[PATH], const char *started_as) {
    long n =
        call6(SYS_readlink, (long)"/proc/self/exe", (long)out, PATH - (long)sizeof LOADER, 0, 0, 0);
    if (n <= 0) {
        n = started_as ? (long)length(started_as) : 0;
        if (!n || n >= PATH - (long)sizeof LOADER)
            die("", "its own path is not known: mount /proc\n");
        for (long k = 0; k < n; k++)
            out[k] = started_as[k];
    }
    while (n > 0 && out[n - 1] != '/')
        n--;
    const char *rest = LOADER;
    for (size_t k = 0; k < sizeof LOADER; k++)
        out[n + (long)k] = rest[k];
}

static uintptr_t down(uintptr_t a) {
    return a & ~(uintptr_t)(PAGE - 1);
}
static uintptr_t up(uintptr_t a) {
    return down(a + PAGE - 1);
}

static long map(uintptr_t at, size_t bytes, int prot, int flags, int fd, uintptr_t offset) {
    return call6(SYS_mmap, (long)at, (long)bytes, prot, flags, fd, (long)offset);
}
static int failed(long r) {
    return r < 0 && r > -PAGE;
}

// One PT_LOAD: its file pages, zeros to the end of the last one, and further pages of zeros.
static int map_segment(const Elf64_Phdr *p, uintptr_t base, int fd) {
    int prot = (p->p_flags & PF_R ? PROT_READ : 0) | (p->p_flags & PF_W ? PROT_WRITE : 0) |
               (p->p_flags & PF_X ? PROT_EXEC : 0);
    uintptr_t from = base + down(p->p_vaddr), file_end = base + p->p_vaddr + p->p_filesz,
              end = base + p->p_vaddr + p->p_memsz;
    if (failed(map(from, file_end - from, prot, MAP_PRIVATE | MAP_FIXED, fd, down(p->p_offset))))
        return 0;
    if (end == file_end) return 1;
    for (volatile char *z = (char *)file_end; z < (char *)up(file_end) && p->p_flags & PF_W; z++)
        *z = 0;
    return end <= up(file_end) || !failed(map(up(file_end), up(end) - up(file_end), prot,
                                              MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0));
}

// Maps the loader; returns the address of its first instruction, and its base in *out_base.
static uintptr_t map_loader(const char *path, uintptr_t *out_base) {
    union {
        Elf64_Ehdr elf;
        char bytes[PAGE];
    } head;
    long fd = call6(SYS_open, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0, 0);
    if (fd < 0) die(path, " is not there: this program needs the folder lib/hlod beside its own\n");
    long n = call6(SYS_read, fd, (long)head.bytes, PAGE, 0, 0, 0);
    const Elf64_Phdr *p = (const Elf64_Phdr *)(head.bytes + head.elf.e_phoff);
    if (n < (long)sizeof head.elf || head.elf.e_ident[0] != 0x7f || head.elf.e_type != ET_DYN ||
        head.elf.e_phoff + head.elf.e_phnum * sizeof *p > (size_t)n)
        die(path, " is not a loader\n");
    uintptr_t end = 0;
    for (int k = 0; k < head.elf.e_phnum; k++)
        if (p[k].p_type == PT_LOAD) end = up(p[k].p_vaddr + p[k].p_memsz);
    long base = map(0, end, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int ok = !failed(base);
    for (int k = 0; ok && k < head.elf.e_phnum; k++)
        if (p[k].p_type == PT_LOAD) ok = map_segment(&p[k], (uintptr_t)base, (int)fd);
    if (!ok) die(path, " cannot be mapped\n");
    call6(SYS_close, fd, 0, 0, 0, 0, 0);
    *out_base = (uintptr_t)base;
    return (uintptr_t)base + head.elf.e_entry;
}

// The one PT_NULL among the program's headers is its PT_INTERP. Their page is private, read-
// only data.
static void restore_interp(Elf64_Phdr *p, size_t n) {
    uintptr_t from = down((uintptr_t)p), bytes = up((uintptr_t)(p + n)) - from;
    call6(SYS_mprotect, (long)from, (long)bytes, PROT_READ | PROT_WRITE, 0, 0, 0);
    for (size_t k = 0; k < n; k++)
        if (p[k].p_type == PT_NULL) p[k].p_type = PT_INTERP;
    call6(SYS_mprotect, (long)from, (long)bytes, PROT_READ, 0, 0, 0);
}

// sp: as the kernel left it: argc, argv, NULL, environment, NULL, auxiliary vector. Returns
// where to go on.
uintptr_t hlod_map_loader(uintptr_t *sp) {
    uintptr_t *at = sp + 1 + *sp + 1;
    while (*at)
        at++;
    Elf64_auxv_t *auxv = (Elf64_auxv_t *)(at + 1);
    const char *started_as = NULL;
    Elf64_Phdr *headers = NULL;
    size_t n_headers = 0;
    for (Elf64_auxv_t *a = auxv; a->a_type != AT_NULL; a++) {
        if (a->a_type == AT_EXECFN) started_as = (const char *)a->a_un.a_val;
        if (a->a_type == AT_PHDR) headers = (Elf64_Phdr *)a->a_un.a_val;
        if (a->a_type == AT_PHNUM) n_headers = a->a_un.a_val;
        // Whoever may link or move the program chooses what lies beside it.
        if (a->a_type == AT_SECURE && a->a_un.a_val)
            die("", "not with set-user-id or capabilities of the file: its libraries are those "
                    "beside it\n");
    }
    restore_interp(headers, n_headers);
    char path[PATH];
    loader_path(path, started_as);
    uintptr_t base, entry = map_loader(path, &base);
    for (Elf64_auxv_t *a = auxv; a->a_type != AT_NULL; a++) {
        if (a->a_type == AT_BASE) a->a_un.a_val = base;
        if (a->a_type == AT_ENTRY) a->a_un.a_val = (uintptr_t)_start;
    }
    return entry;
}
