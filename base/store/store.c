// SPDX-License-Identifier: Apache-2.0
// Files under DIR/<kind>/<aa>/<digest>. An entry's file is a 48-byte header (magic, payload size,
// SHA-256 of the payload) and the payload. Recency is the file's modification time, touched at each
// opening, so that it survives restarts. Pins are kept in memory.
#include "base/store/store.h"

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
#include "base/store/file.h"
#include "base/store/store_schema.h"
#include "base/str.h"
#include "base/vec.h"

enum {
    HEADER = 48,
    PATH = 4096,
    COPY_MAX = 64 << 20, // what a reader gets a copy of
    CHUNK = 64 << 10,
    TOUCH_S = 60 // files of their own digest: how exactly their last use is known
};
static const char *const kinds[STORE_KIND_COUNT] = {"blobs", "programs", "executables", "tunings",
                                                    "packages"};

struct store {
    char *dir;
    int lock_fd;
    int64_t budget;
    pthread_mutex_t mutex;   // pins, counter, upto, puts
    pthread_mutex_t placing; // which file is a blob's
    int64_t upto;            // executables have no more bytes than these; -1: not known
    uint64_t puts;           // of executables
    uint64_t counter;
    struct smap pins;    // "kind/hex"
    struct smap checked; // "kind/hex" -> struct stamp: of the file whose bytes had their digest
    store_evicted_fn evicted;
    void *evicted_ctx;
    char mended[200];
};
struct stamp {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime, ctime;
    bool young; // another write in the same tick of the clock would leave it as it is
};

static void path_of(const struct store *s, enum store_kind k, struct digest d, char out[PATH]) {
    struct hex_digest hex = digest_to_hex(d);
    snprintf(out, PATH, "%s/%s/%.2s/%s", s->dir, kinds[k], hex.z, hex.z);
}

const char *store_mended(const struct store *s) {
    return s->mended;
}

void store_check_folder(struct store *s, char said[200]) {
    *said = 0;
    status_t st = store_schema_check(s->dir, said);
    if (st) snprintf(said, 200, "VERSION: %s", st_message(st));
    st_drop(st);
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
    s->upto = -1;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_mutex_init(&s->placing, NULL);
    char path[PATH];
    status_t st = s->dir ? file_make_folders(dir, 0700) : st_oom();
    if (!st) st = take_lock(s);
    if (!st) st = store_schema_check(dir, s->mended);
    static const char *const extra[] = {"tmp", "quarantine", "uploads"};
    for (int k = 0; k < STORE_KIND_COUNT + 3 && !st; k++) {
        snprintf(path, sizeof path, "%s/%s", dir,
                 k < STORE_KIND_COUNT ? kinds[k] : extra[k - STORE_KIND_COUNT]);
        st = file_make_folders(path, 0700);
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
    pthread_mutex_destroy(&s->placing);
    free(s->dir);
    free(s);
}
const char *store_default_dir(struct arena *a) {
    const char *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (xdg && *xdg == '/') return arena_printf(a, "%s/hlod", xdg);
    return arena_printf(a, "%s/.local/share/hlod", home && *home ? home : "/var/lib");
}

// ---- writing

static void now_checked(struct store *s, enum store_kind kind, struct digest key,
                        const struct stamp *was);
static struct stamp stamp_of(const struct stat *sb);
struct store_writer {
    struct store *s;
    enum store_kind kind;
    int fd;
    struct sha256 hash;
    int64_t bytes;
    struct stamp last; // after our last write
    bool doubted;      // another process wrote, or may have
    char path[PATH];
};

static status_t open_tmp(struct store *s, char path[PATH], int *out_fd) {
    pthread_mutex_lock(&s->mutex);
    uint64_t n = ++s->counter;
    pthread_mutex_unlock(&s->mutex);
    snprintf(path, PATH, "%s/tmp/%d-%llu", s->dir, (int)getpid(), (unsigned long long)n);
    *out_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (*out_fd >= 0 || errno != ENOENT) return *out_fd < 0 ? st_errno(errno, path) : ST_OK;
    RETURN_IF_ERR(file_make_parents(path, 0700)); // it was removed
    *out_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return *out_fd < 0 ? st_errno(errno, path) : ST_OK;
}

static status_t move_into_place(const char *tmp, const char *path, const char *folder) {
    if (rename(tmp, path) == 0) return ST_OK;
    if (errno != ENOENT) return st_errno(errno, path);
    RETURN_IF_ERR(file_make_folders(folder, 0700)); // the first of its folder, or that was removed
    return rename(tmp, path) ? st_errno(errno, path) : ST_OK;
}
// Rename into place; what cannot be made again (`sync`) with an fsync before, and of the folder
// behind. The temporary file is gone afterwards, whatever happens.
static status_t commit(struct store *s, enum store_kind kind, struct digest key, const char *tmp,
                       int fd, bool sync) {
    char path[PATH], folder[PATH];
    path_of(s, kind, key, path);
    snprintf(folder, sizeof folder, "%.*s", (int)(strlen(path) - 65), path);
    status_t st = ST_OK;
    if (sync && (FAULT("store.fsync") ? (errno = EIO, -1) : fsync(fd)))
        st = st_errno(errno, "fsync");
    pthread_mutex_lock(&s->placing);
    if (!st) st = move_into_place(tmp, path, folder);
    pthread_mutex_unlock(&s->placing);
    if (st) {
        unlink(tmp);
        return st;
    }
    int dir = sync ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
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
static bool same_stamp(const struct stamp *a, const struct stamp *b);
static struct stamp stamp_now(int fd) {
    struct stat sb;
    return fstat(fd, &sb) ? (struct stamp){0} : stamp_of(&sb);
}
static void look_for_others(struct store_writer *w) {
    struct stamp is = stamp_now(w->fd);
    if (w->bytes && !same_stamp(&w->last, &is)) w->doubted = true;
}
status_t store_write(struct store_writer *w, const void *p, size_t n) {
    look_for_others(w);
    if (lseek(w->fd, w->bytes, SEEK_SET) < 0) return st_errno(errno, "data folder");
    status_t st = file_write(w->fd, p, n, "data folder");
    if (st) // the next try begins at the same place; meanwhile others may have the room
        return ftruncate(w->fd, w->bytes) ? st_note(st, "the file keeps its room") : st;
    sha256_add(&w->hash, p, n);
    w->bytes += (int64_t)n;
    w->last = stamp_now(w->fd);
    return ST_OK;
}

// The first `bytes` bytes go into the hash; what is behind them was not answered for.
static status_t go_on(struct store_writer *w, int64_t bytes, const struct digest *prefix) {
    uint8_t chunk[CHUNK];
    while (w->bytes < bytes) {
        size_t want = bytes - w->bytes < CHUNK ? (size_t)(bytes - w->bytes) : CHUNK;
        ssize_t n = pread(w->fd, chunk, want, w->bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return st_new(ST_DATA_LOSS, "its file is shorter than what was held");
        sha256_add(&w->hash, chunk, (size_t)n);
        w->bytes += n;
    }
    if (!digest_eq(sha256_peek(&w->hash), *prefix))
        return st_new(ST_DATA_LOSS, "its file holds other bytes than it was sent");
    return ftruncate(w->fd, bytes) ? st_errno(errno, "upload") : ST_OK;
}
static void upload_path(const struct store *s, const char *name, char path[PATH]) {
    snprintf(path, PATH, "%s/uploads/%.100s", s->dir, name);
}
status_t store_write_named(struct store *s, enum store_kind kind, const char *name, int64_t bytes,
                           const struct digest *prefix, struct store_writer **out) {
    struct store_writer *w = calloc(1, sizeof *w);
    if (!w) return st_oom();
    w->s = s;
    w->kind = kind;
    w->doubted = true; // much can happen between two pieces
    upload_path(s, name, w->path);
    int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (bytes ? 0 : O_CREAT | O_TRUNC);
    w->fd = open(w->path, flags, 0600);
    if (w->fd < 0 && errno == ENOENT && !bytes) { // the folder was removed
        status_t st = file_make_parents(w->path, 0700);
        st_drop(st);
        w->fd = open(w->path, flags, 0600);
    }
    status_t st = w->fd < 0 ? st_errno(errno, w->path) : ST_OK;
    sha256_init(&w->hash);
    if (!st && bytes) st = go_on(w, bytes, prefix);
    if (st)
        store_write_leave(w);
    else
        *out = w;
    return st;
}
status_t store_write_sync(struct store_writer *w, struct digest *out_prefix) {
    if (fdatasync(w->fd)) return st_errno(errno, "data folder");
    *out_prefix = sha256_peek(&w->hash);
    return ST_OK;
}
void store_write_leave(struct store_writer *w) {
    if (!w) return;
    sha256_abandon(&w->hash);
    if (w->fd >= 0) close(w->fd);
    free(w);
}
void store_upload_remove(struct store *s, const char *name) {
    char path[PATH];
    upload_path(s, name, path);
    unlink(path);
}
void store_uploads_keep(struct store *s, bool (*known)(void *ctx, const char *name), void *ctx) {
    char path[PATH];
    upload_path(s, "", path);
    DIR *d = opendir(path);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.' && !known(ctx, e->d_name)) unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
}

// Of a file and what was written to it last; never 0. A file's place is used again once it is gone,
// the time of the write tells them apart.
static uint64_t number_of(const struct stat *sb) {
    uint64_t written = (uint64_t)sb->st_mtim.tv_sec * 1000000000 + (uint64_t)sb->st_mtim.tv_nsec;
    uint64_t n = (uint64_t)sb->st_ino * UINT64_C(0x9E3779B97F4A7C15) ^ written;
    return n ? n : 1;
}
static uint64_t file_number(int fd) {
    struct stat sb;
    return fstat(fd, &sb) ? 0 : number_of(&sb);
}
status_t store_write_end(struct store_writer *w, struct digest *out_digest, uint64_t *out_fresh) {
    struct digest d = sha256_end(&w->hash);
    if (out_fresh) *out_fresh = store_has(w->s, w->kind, d) ? 0 : file_number(w->fd);
    look_for_others(w);
    status_t st = commit(w->s, w->kind, d, w->path, w->fd, true);
    if (!st && !w->doubted) { // as it was written
        struct stamp is = stamp_now(w->fd);
        now_checked(w->s, w->kind, d, &is);
    }
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

// With so many bytes more, may there be more than the budget? Files that went since the last look
// are still counted: then it is looked again.
static bool over_budget(struct store *s, int64_t bytes) {
    pthread_mutex_lock(&s->mutex);
    s->puts++;
    if (s->upto >= 0) s->upto += bytes;
    bool over = s->budget && (s->upto < 0 || s->upto > s->budget);
    pthread_mutex_unlock(&s->mutex);
    return over;
}
status_t store_put(struct store *s, enum store_kind kind, struct digest key, const void *p,
                   size_t n, bool lasts) {
    char tmp[PATH];
    uint8_t h[HEADER];
    int fd;
    if (FAULT("store.put")) return st_exhausted("data folder: no space (injected)");
    RETURN_IF_ERR(open_tmp(s, tmp, &fd));
    header_of(key, p, n, h);
    status_t st = file_write(fd, h, sizeof h, tmp);
    if (!st) st = file_write(fd, p, n, tmp);
    if (st)
        unlink(tmp);
    else
        st = commit(s, kind, key, tmp, fd, lasts);
    close(fd);
    RETURN_IF_ERR(st);
    if (kind != STORE_EXECUTABLE || !over_budget(s, (int64_t)(n + sizeof h))) return ST_OK;
    return store_evict(s, NULL);
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
    snprintf(buf, 96, "%s/%s", kinds[kind], digest_to_hex(key).z);
    return str_of(buf);
}
// Reads, and not maps: a file cut short meanwhile would end the process. Into `into` too,
// unless that is NULL.
static bool payload_matches(int fd, int64_t offset, int64_t size, const struct digest *key,
                            struct digest want, uint8_t *into) {
    uint8_t chunk[CHUNK];
    struct sha256 h;
    sha256_init(&h);
    if (key) sha256_add(&h, key->b, sizeof key->b);
    for (int64_t at = 0; at < size;) {
        size_t n = size - at < CHUNK ? (size_t)(size - at) : CHUNK;
        uint8_t *to = into ? into + at : chunk;
        ssize_t k = pread(fd, to, n, offset + at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            sha256_abandon(&h);
            return false;
        }
        sha256_add(&h, to, (size_t)k);
        at += k;
    }
    return digest_eq(sha256_end(&h), want);
}

// ---- files whose bytes were looked at in this life of the store

// The kernel's clock for times of files goes in ticks of some milliseconds.
enum { TICK_NS = 100000000, YOUNG_S = 2 };
static int64_t ns_of(struct timespec t) {
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return ns_of(t);
}
static struct stamp stamp_of(const struct stat *sb) {
    return (struct stamp){.dev = sb->st_dev,
                          .ino = sb->st_ino,
                          .size = sb->st_size,
                          .mtime = sb->st_mtim,
                          .ctime = sb->st_ctim,
                          .young = now_ns() - ns_of(sb->st_ctim) < TICK_NS};
}
static bool same_stamp(const struct stamp *a, const struct stamp *b) {
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           ns_of(a->mtime) == ns_of(b->mtime) && ns_of(a->ctime) == ns_of(b->ctime);
}
// A stamp that was young holds for a moment; then the bytes are looked at once more.
static bool is_checked(struct store *s, enum store_kind kind, struct digest key,
                       const struct stat *sb) {
    char buf[96];
    struct stamp is = stamp_of(sb);
    pthread_mutex_lock(&s->mutex);
    const struct stamp *t = smap_get(&s->checked, pin_name(kind, key, buf));
    bool same = t && same_stamp(t, &is) &&
                (!t->young || now_ns() - ns_of(t->ctime) < YOUNG_S * INT64_C(1000000000));
    pthread_mutex_unlock(&s->mutex);
    return same;
}
// was: before its bytes were read, or it was written by us and closed to others.
static void now_checked(struct store *s, enum store_kind kind, struct digest key,
                        const struct stamp *was) {
    char buf[96];
    pthread_mutex_lock(&s->mutex);
    struct stamp *t = smap_get(&s->checked, pin_name(kind, key, buf));
    if (!t && (t = malloc(sizeof *t))) smap_put(&s->checked, pin_name(kind, key, buf), t);
    if (t) *t = *was;
    pthread_mutex_unlock(&s->mutex);
}
static void forget_checked(struct store *s) {
    struct str k;
    void *v;
    for (size_t i = 0; smap_next(&s->checked, &i, &k, &v);)
        free(v);
    smap_done(&s->checked);
}

// A private copy, which does not change while it is read.
struct copy {
    int fd; // -1: none
    uint8_t *p;
    size_t n;
};
static status_t copy_begin(struct copy *c, int64_t n) {
    *c = (struct copy){.fd = -1};
    if (n <= 0 || n > COPY_MAX) return ST_OK;
    int fd = memfd_create("hlod-entry", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return st_errno(errno, "memfd_create");
    if (ftruncate(fd, n) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) ||
        (c->p = mmap(NULL, (size_t)n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
        status_t st = st_errno(errno, "memory for an entry");
        close(fd);
        return st;
    }
    c->fd = fd;
    c->n = (size_t)n;
    return ST_OK;
}
// The descriptor, for reading alone where the kernel gives one.
static int copy_end(struct copy *c, bool good) {
    if (c->fd < 0) return -1;
    munmap(c->p, c->n);
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", c->fd);
    int fd = good ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 && good) return c->fd;
    close(c->fd);
    return fd;
}

struct looked { // at a file of the store
    struct stat sb;
    bool entry;
    int64_t offset, size;
    struct digest want;
    const char *why; // it is not as it was put; NULL
};
static status_t look_at_head(enum store_kind kind, struct digest key, const char *path, int fd,
                             struct looked *l) {
    uint8_t h[HEADER] = {0};
    *l = (struct looked){.want = key};
    if (fstat(fd, &l->sb)) return st_errno(errno, path);
    if (!S_ISREG(l->sb.st_mode)) {
        l->why = "no regular file";
        return ST_OK;
    }
    // A file whose name is its own digest has no header; programs may be either.
    l->entry = pread(fd, h, HEADER, 0) == HEADER && memcmp(h, magic, 8) == 0 && kind != STORE_BLOB;
    if (!l->entry && kind != STORE_BLOB && memcmp(h, "HLODENT1", 8) == 0) { // made again
        unlink(path);
        return st_new(ST_NOT_FOUND, "%s: an entry of an older form", path);
    }
    l->offset = l->entry ? HEADER : 0;
    l->size = l->sb.st_size - l->offset;
    int64_t said = 0;
    for (int k = 7; l->entry && k >= 0; k--)
        said = (int64_t)((uint64_t)said << 8 | h[8 + k]);
    if (l->entry) memcpy(l->want.b, h + 16, 32);
    l->why = kind >= STORE_EXECUTABLE && !l->entry ? "no header"
             : l->entry && said != l->size         ? "size"
                                                   : NULL;
    return ST_OK;
}
// The last use of a file of its own digest, now and then: each change of a time is one more look at
// its bytes. Entries, whose bytes are looked at each time, at each time.
static void touch(struct store *s, enum store_kind kind, struct digest key, int fd,
                  const struct looked *l, bool checked) {
    struct timespec now[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
    struct stat sb;
    int64_t age = now_ns() - ns_of(l->sb.st_mtim);
    if (!l->entry && age >= 0 && age < TOUCH_S * INT64_C(1000000000)) return;
    struct stamp was = stamp_of(&l->sb), is;
    bool same = checked && !fstat(fd, &sb) && (is = stamp_of(&sb), same_stamp(&was, &is));
    if (futimens(fd, now) || l->entry || !same || fstat(fd, &sb)) return;
    is = stamp_of(&sb);
    now_checked(s, kind, key, &is);
}

static status_t open_at(struct store *s, enum store_kind kind, struct digest key, char path[PATH],
                        int *out) {
    path_of(s, kind, key, path);
    *out = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (*out < 0 && errno == ENOENT) {
        return st_new(ST_NOT_FOUND, "%s %s is not in the store", kinds[kind], digest_to_hex(key).z);
    }
    if (*out < 0 && errno == ELOOP) return quarantine(s, kind, key, "no regular file");
    return *out < 0 ? st_errno(errno, path) : ST_OK;
}
status_t store_open_fd(struct store *s, enum store_kind kind, struct digest key,
                       enum store_check check, int *out_fd, int64_t *out_offset,
                       int64_t *out_size) {
    char path[PATH];
    struct looked l;
    struct copy copy = {.fd = -1};
    int fd;
    RETURN_IF_ERR(open_at(s, kind, key, path, &fd));
    status_t st = look_at_head(kind, key, path, fd, &l);
    if (!st && !l.why && check == STORE_COPY) st = copy_begin(&copy, l.size);
    if (st) {
        close(fd);
        return st;
    }

    struct stamp was = stamp_of(&l.sb);
    bool known = !l.entry && is_checked(s, kind, key, &l.sb);
    bool look = l.entry || check == STORE_CHECK || check == STORE_COPY ||
                (check == STORE_CHECK_ONCE && !known);
    if (!l.why && look &&
        !payload_matches(fd, l.offset, l.size, l.entry ? &key : NULL, l.want, copy.p))
        l.why = "digest";

    int copied = copy_end(&copy, !l.why);
    if (l.why) {
        close(fd);
        return quarantine(s, kind, key, l.why);
    }

    if (look && !l.entry) now_checked(s, kind, key, &was); // a change meanwhile shows at the next
    touch(s, kind, key, fd, &l, look || known);
    if (copied >= 0) close(fd);

    *out_fd = copied >= 0 ? copied : fd;
    *out_offset = copied >= 0 ? 0 : l.offset;
    *out_size = l.size;
    return ST_OK;
}

// The file's head, and its bytes in *to, or where *to points; `room`: their number, -1 = any.
static status_t read_payload(struct store *s, enum store_kind kind, struct digest key,
                             struct arena *a, uint8_t **to, int64_t room, int64_t *out_size) {
    char path[PATH];
    struct looked l;
    int fd;
    RETURN_IF_ERR(open_at(s, kind, key, path, &fd));
    status_t st = look_at_head(kind, key, path, fd, &l);
    if (!st && !l.why && room >= 0 && l.size != room) l.why = "size";
    if (!st && !l.why && !*to) *to = arena_alloc(a, (size_t)l.size + 1);
    if (!st && !l.why && !payload_matches(fd, l.offset, l.size, l.entry ? &key : NULL, l.want, *to))
        l.why = "digest";
    close(fd);
    if (st) return st;
    if (l.why) return quarantine(s, kind, key, l.why);
    *out_size = l.size;
    return ST_OK;
}
status_t store_read(struct store *s, enum store_kind kind, struct digest key, struct arena *a,
                    struct span *out) {
    uint8_t *p = NULL;
    int64_t size;
    RETURN_IF_ERR(read_payload(s, kind, key, a, &p, -1, &size));
    *out = (struct span){p, (size_t)size};
    return ST_OK;
}
status_t store_read_into(struct store *s, enum store_kind kind, struct digest key, uint8_t *to,
                         int64_t bytes) {
    return read_payload(s, kind, key, NULL, &to, bytes, &bytes);
}

bool store_has(struct store *s, enum store_kind kind, struct digest key) {
    char path[PATH];
    path_of(s, kind, key, path);
    return access(path, F_OK) == 0;
}
int64_t store_size(struct store *s, enum store_kind kind, struct digest key) {
    char path[PATH];
    struct stat sb;
    path_of(s, kind, key, path);
    return stat(path, &sb) == 0 ? (int64_t)sb.st_size : 0;
}
status_t store_remove(struct store *s, enum store_kind kind, struct digest key) {
    char path[PATH];
    path_of(s, kind, key, path);
    return unlink(path) == 0 ? ST_OK : st_errno(errno, path);
}
bool store_remove_file(struct store *s, enum store_kind kind, struct digest key, uint64_t file,
                       bool only_ask) {
    char path[PATH];
    struct stat sb;
    path_of(s, kind, key, path);
    pthread_mutex_lock(&s->placing);
    bool same = stat(path, &sb) == 0 && number_of(&sb) == file;
    if (same && !only_ask) same = unlink(path) == 0;
    pthread_mutex_unlock(&s->placing);
    return same;
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

static void add_bytes(void *ctx, UNUSED enum store_kind kind, UNUSED struct digest key,
                      int64_t bytes, UNUSED int64_t mtime, UNUSED bool pinned) {
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

void store_on_evict(struct store *s, store_evicted_fn fn, void *ctx) {
    s->evicted = fn;
    s->evicted_ctx = ctx;
}

struct candidate {
    struct digest key;
    int64_t bytes, mtime;
    bool pinned;
};
struct candidates {
    VEC(struct candidate) v;
    int64_t total;
    size_t loose; // that are not pinned
};
static void collect(void *ctx, UNUSED enum store_kind kind, struct digest key, int64_t bytes,
                    int64_t mtime, bool pinned) {
    struct candidates *c = ctx;
    c->total += bytes;
    c->loose += !pinned;
    vec_push(&c->v, ((struct candidate){key, bytes, mtime, pinned}));
}
static int oldest_first(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    return x->mtime < y->mtime ? -1 : x->mtime > y->mtime;
}
status_t store_evict(struct store *s, int64_t *out_freed_bytes) {
    enum { MANY = 512, PART = 64 };
    struct candidates c = {0};
    int64_t freed = 0;
    pthread_mutex_lock(&s->mutex);
    uint64_t puts = s->puts;
    pthread_mutex_unlock(&s->mutex);
    status_t st = store_list(s, STORE_EXECUTABLE, collect, &c);
    if (!st && c.v.n) qsort(c.v.v, c.v.n, sizeof *c.v.v, oldest_first);
    // Of many some more go, so that they are not all looked at again for the next one: a part of
    // those that may go, as the others may fill the budget.
    size_t more = c.v.n > MANY && c.total > s->budget ? c.loose / PART : 0;
    for (size_t k = 0; !st && k < c.v.n && s->budget; k++) {
        if (c.total <= (more ? s->budget - s->budget / PART : s->budget)) break;
        if (c.v.v[k].pinned) continue;
        more -= more > 0;
        if (s->evicted) s->evicted(s->evicted_ctx, c.v.v[k].key);
        st_drop(store_remove(s, STORE_EXECUTABLE, c.v.v[k].key)); // gone already is as good
        c.total -= c.v.v[k].bytes;
        freed += c.v.v[k].bytes;
    }
    vec_done(&c.v);
    pthread_mutex_lock(&s->mutex);
    s->upto = st || s->puts != puts ? -1 : c.total;
    pthread_mutex_unlock(&s->mutex);
    if (!st && out_freed_bytes) *out_freed_bytes = freed;
    return st;
}
