// SPDX-License-Identifier: Apache-2.0
// Files under DIR/<kind>/<aa>/<digest>. An entry's file is a 48-byte header (magic, payload size,
// SHA-256 of the payload) and the payload. Recency is the file's modification time, touched at each
// opening, so that it survives restarts. Pins are kept in memory.
#include "base/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"

enum { HEADER = 48, PATH = 4096 };
static const char schema[] = "hlod-store 1\n";
static const char *const kinds[STORE_KIND_COUNT] = {"blobs", "programs", "executables"};

struct store {
    char *dir;
    int lock_fd;
    int64_t budget;
    pthread_mutex_t mutex; // pins, counter
    uint64_t counter;
    struct smap pins;    // "kind/hex"
    struct smap checked; // "kind/hex" -> struct stamp: of the file whose bytes had their digest
};
struct stamp {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime, ctime;
};

static void path_of(const struct store *s, enum store_kind k, struct digest d, char out[PATH]) {
    char hex[65];
    digest_hex(d, hex);
    snprintf(out, PATH, "%s/%s/%.2s/%s", s->dir, kinds[k], hex, hex);
}

static status_t make_dir(const char *path) {
    return mkdir(path, 0700) == 0 || errno == EEXIST ? ST_OK : st_errno(errno, path);
}
static status_t make_dirs(const char *path) { // as mkdir -p
    char part[PATH];
    snprintf(part, sizeof part, "%s", path);
    for (char *p = part + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        RETURN_IF_ERR(make_dir(part));
        *p = '/';
    }
    return make_dir(part);
}

static status_t write_all(int fd, const void *p, size_t n, const char *what) {
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

static status_t check_schema(const char *dir) {
    char path[PATH], text[64] = {0};
    snprintf(path, sizeof path, "%s/VERSION", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return st_errno(errno, path);
    ssize_t n = read(fd, text, sizeof text - 1);
    status_t st = ST_OK;
    if (n == 0)
        st = write_all(fd, schema, sizeof schema - 1, path);
    else if (strcmp(text, schema) != 0)
        st = st_new(ST_FAILED_PRECONDITION,
                    "%s: the data folder has format '%.*s', this build uses '%.*s'", dir,
                    (int)strcspn(text, "\n"), text, (int)strcspn(schema, "\n"), schema);
    close(fd);
    return st;
}

static void clean_tmp(const char *dir) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/tmp", dir);
    DIR *d = opendir(path);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
}

static status_t take_lock(struct store *s) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/lock", s->dir);
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock_fd < 0) return st_errno(errno, path);
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0) return ST_OK;
    return st_new(ST_FAILED_PRECONDITION, "%s is in use by another process", s->dir);
}

status_t store_open(const char *dir, int64_t budget_bytes, struct store **out) {
    struct store *s = calloc(1, sizeof *s);
    if (!s) return st_oom();
    s->dir = strdup(dir);
    s->lock_fd = -1;
    s->budget = budget_bytes;
    pthread_mutex_init(&s->mutex, NULL);
    char path[PATH];
    status_t st = s->dir ? make_dirs(dir) : st_oom();
    if (!st) st = take_lock(s);
    if (!st) st = check_schema(dir);
    static const char *const extra[] = {"tmp", "quarantine"};
    for (int k = 0; k < STORE_KIND_COUNT + 2 && !st; k++) {
        snprintf(path, sizeof path, "%s/%s", dir,
                 k < STORE_KIND_COUNT ? kinds[k] : extra[k - STORE_KIND_COUNT]);
        st = make_dir(path);
    }
    if (st) {
        store_close(s);
        return st;
    }
    clean_tmp(dir);
    *out = s;
    return ST_OK;
}

static void forget_checked(struct store *s);
void store_close(struct store *s) {
    if (!s) return;
    if (s->lock_fd >= 0) close(s->lock_fd);
    smap_done(&s->pins);
    forget_checked(s);
    pthread_mutex_destroy(&s->mutex);
    free(s->dir);
    free(s);
}
const char *store_default_dir(struct arena *a) {
    const char *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (xdg && *xdg == '/') return arena_printf(a, "%s/hlod", xdg);
    return arena_printf(a, "%s/.local/share/hlod", home && *home ? home : "/var/lib");
}

// ---- writing

struct store_writer {
    struct store *s;
    enum store_kind kind;
    int fd;
    struct sha256 hash;
    int64_t bytes;
    char path[PATH];
};

static status_t open_tmp(struct store *s, char path[PATH], int *out_fd) {
    pthread_mutex_lock(&s->mutex);
    uint64_t n = ++s->counter;
    pthread_mutex_unlock(&s->mutex);
    snprintf(path, PATH, "%s/tmp/%d-%llu", s->dir, (int)getpid(), (unsigned long long)n);
    *out_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return *out_fd < 0 ? st_errno(errno, path) : ST_OK;
}

// fsync, rename into place, fsync of the folder. The temporary file is gone afterwards, whatever
// happens.
static status_t commit(struct store *s, enum store_kind kind, struct digest key, const char *tmp,
                       int fd) {
    char path[PATH], folder[PATH];
    path_of(s, kind, key, path);
    snprintf(folder, sizeof folder, "%.*s", (int)(strlen(path) - 65), path);
    status_t st = make_dir(folder);
    if (!st && (FAULT("store.fsync") ? (errno = EIO, -1) : fsync(fd)))
        st = st_errno(errno, "fsync");
    if (!st && rename(tmp, path)) st = st_errno(errno, path);
    if (st) {
        unlink(tmp);
        return st;
    }
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0) {
        fsync(dir);
        close(dir);
    }
    return ST_OK;
}

status_t store_write_begin(struct store *s, enum store_kind kind, struct store_writer **out) {
    struct store_writer *w = calloc(1, sizeof *w);
    if (!w) return st_oom();
    w->s = s;
    w->kind = kind;
    status_t st = open_tmp(s, w->path, &w->fd);
    if (st) {
        free(w);
        return st;
    }
    sha256_init(&w->hash);
    *out = w;
    return ST_OK;
}
status_t store_write(struct store_writer *w, const void *p, size_t n) {
    if (lseek(w->fd, w->bytes, SEEK_SET) < 0) return st_errno(errno, "data folder");
    status_t st = write_all(w->fd, p, n, "data folder");
    if (st) // the next try begins at the same place; meanwhile others may have the room
        return ftruncate(w->fd, w->bytes) ? st_note(st, "the file keeps its room") : st;
    sha256_add(&w->hash, p, n);
    w->bytes += (int64_t)n;
    return ST_OK;
}

static void now_checked(struct store *s, enum store_kind kind, struct digest key, int fd);
status_t store_write_end(struct store_writer *w, struct digest *out_digest, bool *out_fresh) {
    struct digest d = sha256_end(&w->hash);
    if (out_fresh) *out_fresh = !store_has(w->s, w->kind, d);
    status_t st = commit(w->s, w->kind, d, w->path, w->fd);
    if (!st) now_checked(w->s, w->kind, d, w->fd); // as it was written
    close(w->fd);
    free(w);
    if (!st) *out_digest = d;
    return st;
}
void store_write_abort(struct store_writer *w) {
    if (!w) return;
    sha256_abandon(&w->hash);
    close(w->fd);
    unlink(w->path);
    free(w);
}

// key: of an entry, in front of its payload in what is digested; NULL: a file of its own digest.
static struct digest digest_of(const struct digest *key, const void *p, size_t n) {
    if (!key) return sha256_of(p, n);
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, key->b, sizeof key->b);
    sha256_add(&h, p, n);
    return sha256_end(&h);
}
static const char magic[] = "HLODENT2"; // 1: the digest did not cover the key
static void header_of(struct digest key, const void *p, size_t n, uint8_t h[HEADER]) {
    struct digest d = digest_of(&key, p, n);
    memcpy(h, magic, 8);
    for (int k = 0; k < 8; k++)
        h[8 + k] = (uint8_t)((uint64_t)n >> (8 * k));
    memcpy(h + 16, d.b, 32);
}

status_t store_put(struct store *s, enum store_kind kind, struct digest key, const void *p,
                   size_t n) {
    char tmp[PATH];
    uint8_t h[HEADER];
    int fd;
    if (FAULT("store.put"))
        return st_new(ST_RESOURCE_EXHAUSTED, "data folder: no space (injected)");
    RETURN_IF_ERR(open_tmp(s, tmp, &fd));
    header_of(key, p, n, h);
    status_t st = write_all(fd, h, sizeof h, tmp);
    if (!st) st = write_all(fd, p, n, tmp);
    if (st)
        unlink(tmp);
    else
        st = commit(s, kind, key, tmp, fd);
    close(fd);
    RETURN_IF_ERR(st);
    return s->budget ? store_evict(s, NULL) : ST_OK;
}

// ---- reading

static status_t quarantine(struct store *s, enum store_kind kind, struct digest key,
                           const char *why) {
    char path[PATH], to[PATH], hex[65];
    digest_hex(key, hex);
    path_of(s, kind, key, path);
    snprintf(to, sizeof to, "%s/quarantine/%s-%s", s->dir, kinds[kind], hex);
    if (rename(path, to)) unlink(path);
    return st_new(ST_DATA_LOSS, "%s %s is damaged (%s); it was moved to quarantine", kinds[kind],
                  hex, why);
}

static struct str pin_name(enum store_kind kind, struct digest key, char buf[96]) {
    char hex[65];
    digest_hex(key, hex);
    snprintf(buf, 96, "%s/%s", kinds[kind], hex);
    return str_of(buf);
}
static bool payload_matches(int fd, int64_t offset, int64_t size, const struct digest *key,
                            struct digest want) {
    if (size == 0) return digest_eq(digest_of(key, "", 0), want);
    void *p = mmap(NULL, (size_t)(offset + size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return false;
    struct digest d = digest_of(key, (char *)p + offset, (size_t)size);
    munmap(p, (size_t)(offset + size));
    return digest_eq(d, want);
}

// ---- files whose bytes were looked at in this life of the store

static struct stamp stamp_of(const struct stat *sb) {
    return (struct stamp){sb->st_dev, sb->st_ino, sb->st_size, sb->st_mtim, sb->st_ctim};
}
static bool same_time(struct timespec a, struct timespec b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}
static bool is_checked(struct store *s, enum store_kind kind, struct digest key,
                       const struct stat *sb) {
    char buf[96];
    pthread_mutex_lock(&s->mutex);
    const struct stamp *t = smap_get(&s->checked, pin_name(kind, key, buf));
    bool same = t && t->dev == sb->st_dev && t->ino == sb->st_ino && t->size == sb->st_size &&
                same_time(t->mtime, sb->st_mtim) && same_time(t->ctime, sb->st_ctim);
    pthread_mutex_unlock(&s->mutex);
    return same;
}
// fd: of the file as it is now. Our own touches of its times are seen to by who makes them.
static void now_checked(struct store *s, enum store_kind kind, struct digest key, int fd) {
    struct stat sb;
    char buf[96];
    if (fstat(fd, &sb)) return;
    pthread_mutex_lock(&s->mutex);
    struct stamp *t = smap_get(&s->checked, pin_name(kind, key, buf));
    if (!t && (t = malloc(sizeof *t))) smap_put(&s->checked, pin_name(kind, key, buf), t);
    if (t) *t = stamp_of(&sb);
    pthread_mutex_unlock(&s->mutex);
}
static void forget_checked(struct store *s) {
    struct str k;
    void *v;
    for (size_t i = 0; smap_next(&s->checked, &i, &k, &v);)
        free(v);
    smap_done(&s->checked);
}

status_t store_open_fd(struct store *s, enum store_kind kind, struct digest key,
                       enum store_check check, int *out_fd, int64_t *out_offset,
                       int64_t *out_size) {
    char path[PATH];
    struct stat sb;
    uint8_t h[HEADER] = {0};
    path_of(s, kind, key, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        char hex[65];
        digest_hex(key, hex);
        return st_new(ST_NOT_FOUND, "%s %s is not in the store", kinds[kind], hex);
    }
    if (fd < 0) return st_errno(errno, path);
    if (fstat(fd, &sb)) {
        close(fd);
        return st_errno(errno, path);
    }
    // A file whose name is its own digest has no header; programs may be either.
    bool entry =
        pread(fd, h, HEADER, 0) == HEADER && memcmp(h, magic, 8) == 0 && kind != STORE_BLOB;
    if (!entry && kind != STORE_BLOB && memcmp(h, "HLODENT1", 8) == 0) { // made again
        close(fd);
        unlink(path);
        return st_new(ST_NOT_FOUND, "%s: an entry of an older form", path);
    }
    struct digest want = key;
    int64_t offset = entry ? HEADER : 0, size = sb.st_size - offset, said = 0;
    for (int k = 7; entry && k >= 0; k--)
        said = said << 8 | h[8 + k];
    if (entry) memcpy(want.b, h + 16, 32);
    bool look = entry || check == STORE_CHECK ||
                (check == STORE_CHECK_ONCE && !is_checked(s, kind, key, &sb));
    bool bad_header = kind == STORE_EXECUTABLE && !entry;
    const char *why = bad_header              ? "no header"
                      : entry && said != size ? "size"
                      : look && !payload_matches(fd, offset, size, entry ? &key : NULL, want)
                          ? "digest"
                          : NULL;
    if (why) {
        close(fd);
        return quarantine(s, kind, key, why);
    }
    struct timespec now[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
    bool known = look || is_checked(s, kind, key, &sb);
    futimens(fd, now);
    if (known && !entry) now_checked(s, kind, key, fd);
    *out_fd = fd;
    *out_offset = offset;
    *out_size = size;
    return ST_OK;
}

bool store_has(struct store *s, enum store_kind kind, struct digest key) {
    char path[PATH];
    path_of(s, kind, key, path);
    return access(path, F_OK) == 0;
}
status_t store_remove(struct store *s, enum store_kind kind, struct digest key) {
    char path[PATH];
    path_of(s, kind, key, path);
    return unlink(path) == 0 ? ST_OK : st_errno(errno, path);
}

void store_pin(struct store *s, enum store_kind kind, struct digest key, bool pinned) {
    char buf[96];
    struct str name = pin_name(kind, key, buf);
    pthread_mutex_lock(&s->mutex);
    if (pinned)
        smap_put(&s->pins, name, s);
    else
        smap_del(&s->pins, name);
    pthread_mutex_unlock(&s->mutex);
}

bool store_pinned(struct store *s, enum store_kind kind, struct digest key) {
    char buf[96];
    pthread_mutex_lock(&s->mutex);
    bool pinned = smap_has(&s->pins, pin_name(kind, key, buf));
    pthread_mutex_unlock(&s->mutex);
    return pinned;
}

// ---- listing and eviction

status_t store_list(struct store *s, enum store_kind kind, store_list_fn fn, void *ctx) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", s->dir, kinds[kind]);
    DIR *top = opendir(path);
    if (!top) return st_errno(errno, path);
    for (struct dirent *e; (e = readdir(top));) {
        if (e->d_name[0] == '.') continue;
        int fd = openat(dirfd(top), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *sub = fd < 0 ? NULL : fdopendir(fd);
        for (struct dirent *f; sub && (f = readdir(sub));) {
            struct digest d;
            struct stat sb;
            if (!digest_parse(str_of(f->d_name), &d) || fstatat(dirfd(sub), f->d_name, &sb, 0))
                continue;
            bool pinned = store_pinned(s, kind, d);
            fn(ctx, kind, d, sb.st_size,
               (int64_t)sb.st_mtim.tv_sec * 1000000000 + sb.st_mtim.tv_nsec, pinned);
        }
        if (sub) closedir(sub);
    }
    closedir(top);
    return ST_OK;
}

static void add_bytes(void *ctx, enum store_kind kind, struct digest key, int64_t bytes,
                      int64_t mtime, bool pinned) {
    (void)kind, (void)key, (void)mtime, (void)pinned;
    *(int64_t *)ctx += bytes;
}
int64_t store_bytes(struct store *s) {
    int64_t n = 0;
    for (int k = 0; k < STORE_KIND_COUNT; k++)
        st_drop(store_list(s, (enum store_kind)k, add_bytes, &n));
    return n;
}

int64_t store_free_bytes(struct store *s) {
    struct statvfs v;
    return statvfs(s->dir, &v) ? INT64_MAX : (int64_t)v.f_bavail * (int64_t)v.f_frsize;
}

struct candidate {
    struct digest key;
    int64_t bytes, mtime;
    bool pinned;
};
struct candidates {
    VEC(struct candidate) v;
    int64_t total;
};
static void collect(void *ctx, enum store_kind kind, struct digest key, int64_t bytes,
                    int64_t mtime, bool pinned) {
    struct candidates *c = ctx;
    (void)kind;
    c->total += bytes;
    vec_push(&c->v, ((struct candidate){key, bytes, mtime, pinned}));
}
static int oldest_first(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    return x->mtime < y->mtime ? -1 : x->mtime > y->mtime;
}
status_t store_evict(struct store *s, int64_t *out_freed_bytes) {
    struct candidates c = {0};
    int64_t freed = 0;
    status_t st = store_list(s, STORE_EXECUTABLE, collect, &c);
    if (!st && c.v.n) qsort(c.v.v, c.v.n, sizeof *c.v.v, oldest_first);
    for (size_t k = 0; !st && k < c.v.n && s->budget && c.total > s->budget; k++) {
        if (c.v.v[k].pinned) continue;
        st_drop(store_remove(s, STORE_EXECUTABLE, c.v.v[k].key)); // gone already is as good
        c.total -= c.v.v[k].bytes;
        freed += c.v.v[k].bytes;
    }
    vec_done(&c.v);
    if (!st && out_freed_bytes) *out_freed_bytes = freed;
    return st;
}
