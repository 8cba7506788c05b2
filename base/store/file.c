// SPDX-License-Identifier: Apache-2.0
// Whole files: see file.h.
#include "base/store/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"

// The file's permissions and the process's user, which say how to mend it.
static status_t not_opened(int err, const char *path) {
    struct stat sb;
    if (err != EACCES || stat(path, &sb)) return st_errno(err, path);
    return st_new(ST_PERMISSION_DENIED,
                  "%s: Permission denied: it belongs to %u:%u, mode %04o; this process is %u:%u",
                  path, sb.st_uid, sb.st_gid, (unsigned)(sb.st_mode & 07777), geteuid(), getegid());
}

static status_t open_file(const char *path, int *out_fd, struct stat *out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return not_opened(errno, path);
    *out = (struct stat){0};
    if (fstat(fd, out) || S_ISDIR(out->st_mode)) { // of a folder mmap would say "No such device"
        int err = S_ISDIR(out->st_mode) ? EISDIR : errno;
        close(fd);
        return st_errno(err, path);
    }
    *out_fd = fd;
    return ST_OK;
}

// Reading begins with the size of the file: a pipe has none, and a file may grow.
static status_t read_all(struct arena *a, int fd, const char *path, size_t expected, size_t max,
                         struct str *out) {
    size_t n = 0, room = expected < max ? expected + 1 : max + 1; // one more: to see the end
    char *p = arena_alloc(a, room + 1);
    for (;;) {
        ssize_t got = read(fd, p + n, room - n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return st_errno(errno, path);
        if (got == 0) break;
        n += (size_t)got;
        if (n > max) return st_invalid("%s: larger than %zu bytes", path, max);
        if (n < room) continue;
        room = room < 4096 ? 8192 : room * 2;
        if (room > max) room = max + 1;
        char *more = arena_alloc(a, room + 1);
        memcpy(more, p, n);
        p = more;
    }
    p[n] = 0;
    *out = (struct str){p, n};
    return ST_OK;
}

status_t file_read(struct arena *a, const char *path, size_t max_bytes, unsigned *out_mode,
                   struct str *out) {
    struct stat sb;
    int fd;
    RETURN_IF_ERR(open_file(path, &fd, &sb));
    status_t st = read_all(a, fd, path, (size_t)sb.st_size, max_bytes, out);
    close(fd);
    if (!st && out_mode) *out_mode = sb.st_mode;
    return st;
}

status_t file_read_secret(struct arena *a, const char *path, size_t max_bytes, struct str *out) {
    unsigned mode;
    RETURN_IF_ERR(file_read(a, path, max_bytes, &mode, out));
    if (mode & (S_IWGRP | S_IRWXO))
        return st_new(ST_PERMISSION_DENIED, "%s is a secret: chmod g-w,o-rwx it", path);
    return ST_OK;
}

static void unmap(void *obj) {
    const struct span *s = obj;
    munmap((void *)(uintptr_t)s->p, s->n);
}
status_t file_map(struct arena *a, const char *path, struct span *out) {
    struct stat sb;
    int fd;
    // A pipe would not even open before somebody writes into it.
    if (!stat(path, &sb) && (S_ISFIFO(sb.st_mode) || S_ISCHR(sb.st_mode)))
        return st_invalid("%s: a pipe or a device, not a file", path);
    RETURN_IF_ERR(open_file(path, &fd, &sb));
    struct span all = {NULL, (size_t)sb.st_size};
    if (all.n) all.p = mmap(NULL, all.n, PROT_READ, MAP_PRIVATE, fd, 0);
    int err = errno;
    close(fd);
    if (all.p == MAP_FAILED) return st_errno(err, path);
    if (all.n) arena_link(a, unmap, arena_dup(a, &all, sizeof all));
    *out = all;
    return ST_OK;
}

void file_forget(struct span s) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = ((uintptr_t)s.p + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)s.p + s.n) / page * page;
    if (at < end) madvise((void *)at, end - at, MADV_DONTNEED); // else they stay
}

status_t file_write(int fd, const void *p, size_t n, const char *what) {
    const char *at = p;
    while (n) {
        ssize_t w = FAULT("store.write") ? (errno = ENOSPC, -1) : write(fd, at, n);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return st_errno(errno, what);
        at += w;
        n -= (size_t)w;
    }
    return ST_OK;
}

status_t file_make_parents(const char *path, unsigned mode) {
    char part[PATH_MAX];
    size_t n = strlen(path);
    if (n >= sizeof part) return st_invalid("%.80s...: the path is too long", path);
    memcpy(part, path, n + 1);
    for (char *p = part + 1; *part && (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        if (mkdir(part, mode) && errno != EEXIST) return st_errno(errno, part);
    }
    return ST_OK;
}
status_t file_make_folders(const char *path, unsigned mode) {
    RETURN_IF_ERR(file_make_parents(path, mode));
    return mkdir(path, mode) && errno != EEXIST ? st_errno(errno, path) : ST_OK;
}
