// SPDX-License-Identifier: Apache-2.0
// A line is SUM KEY FAMILY WALL RECORD: hex, but for the wall clock's nanoseconds; RECORD is "-"
// for a removal. SUM is the SHA-256 of the rest of the line.
#include "scheduler/records/journal_names.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/map.h"
#include "base/store/file.h"
#include "base/str.h"
#include "base/vec.h"

enum { PATH = 4096, MAX_BYTES = 1 << 30, HEX = 64 };
struct names_log {
    char path[PATH], fresh[PATH + 8];
    ino_t ino;
    off_t size; // -1: nothing is known of it
};

struct names_log *names_log_new(const char *dir) {
    struct names_log *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    snprintf(l->path, sizeof l->path, "%.4000s/names.log", dir);
    snprintf(l->fresh, sizeof l->fresh, "%s.new", l->path);
    l->size = -1;
    return l;
}
void names_log_free(struct names_log *l) {
    free(l);
}
const char *names_log_path(const struct names_log *l) {
    return l->path;
}

// ---- lines

static void put_line(struct strbuf *b, const struct name_row *r) {
    struct strbuf t = {0};
    strbuf_hex(&t, r->key.b, sizeof r->key.b);
    strbuf_putc(&t, ' ');
    strbuf_hex(&t, r->family.b, sizeof r->family.b);
    strbuf_printf(&t, " %" PRId64 " ", r->wall_ns);
    if (r->record.n)
        strbuf_hex(&t, r->record.p, r->record.n);
    else
        strbuf_putc(&t, '-');
    struct digest sum = sha256_of(t.p, t.n);
    strbuf_hex(b, sum.b, sizeof sum.b);
    strbuf_putc(b, ' ');
    strbuf_add(b, t.p, t.n);
    strbuf_putc(b, '\n');
    strbuf_done(&t);
}
static bool parse_line(struct arena *a, struct str line, struct name_row *out) {
    struct str sum, key, family, wall, rest = line;
    struct digest said, is;
    if (!str_cut(&rest, ' ', &sum) || !digest_parse(sum, &said)) return false;
    is = sha256_of(rest.p, rest.n);
    if (!digest_eq(said, is) || !str_cut(&rest, ' ', &key) || !digest_parse(key, &out->key) ||
        !str_cut(&rest, ' ', &family) || !digest_parse(family, &out->family) ||
        !str_cut(&rest, ' ', &wall) || !str_to_i64(wall, &out->wall_ns))
        return false;
    out->record = (struct span){0};
    if (rest.n == 1 && *rest.p == '-') return true;
    uint8_t *p = arena_alloc(a, rest.n / 2 + 1);
    out->record = (struct span){p, rest.n / 2};
    return rest.n && str_from_hex(rest, p, rest.n / 2);
}

// ---- the file

static bool look(const struct names_log *l, struct stat *out) {
    return lstat(l->path, out) == 0 && S_ISREG(out->st_mode);
}
static void remember(struct names_log *l) {
    struct stat sb;
    l->size = -1;
    if (!look(l, &sb)) return;
    l->ino = sb.st_ino;
    l->size = sb.st_size;
}
const char *names_log_moved(const struct names_log *l) {
    struct stat sb;
    if (l->size < 0) return "it could not be written";
    if (!look(l, &sb)) return "it was removed";
    return sb.st_ino != l->ino     ? "it is another file"
           : sb.st_size != l->size ? "it has not the size it had"
                                   : NULL;
}

static void keep_last(struct arena *a, struct smap *at, struct name_rows *rows,
                      const struct name_row *r) {
    struct str key = {(const char *)r->key.b, sizeof r->key.b};
    size_t i = (size_t)(uintptr_t)smap_get(at, key); // from 1
    if (i) {
        rows->v[i - 1] = *r;
        return;
    }
    avec_push(a, rows, *r);
    smap_put(at, key, (void *)(uintptr_t)rows->n);
}
status_t names_log_read(struct names_log *l, struct arena *a, struct name_rows *out) {
    struct stat sb;
    struct str text = {"", 0}, line;
    *out = (struct name_rows){0};
    remember(l);
    if (!look(l, &sb)) {
        out->why = lstat(l->path, &sb) ? NAMES_LOG_ABSENT : "no regular file";
        return ST_OK;
    }
    RETURN_IF_ERR(file_read(a, l->path, MAX_BYTES, NULL, &text));
    if (text.n && text.p[text.n - 1] != '\n') out->why = "its last line was cut";
    struct smap at = {0};
    while (text.n) {
        struct name_row r;
        (void)str_cut(&text, '\n', &line);
        out->changes++;
        if (parse_line(a, line, &r))
            keep_last(a, &at, out, &r);
        else
            out->why = "a line has not the sum it was written with";
    }
    smap_done(&at);
    return ST_OK;
}

static status_t write_text(const char *path, int flags, const struct strbuf *b) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (fd < 0) return st_errno(errno, path);
    status_t st = ST_OK;
    for (size_t done = 0; done < b->n && !st;) {
        ssize_t n =
            FAULT("names.write") ? (errno = ENOSPC, -1) : write(fd, b->p + done, b->n - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) st = st_errno(errno, path);
        if (n > 0) done += (size_t)n;
    }
    if (!st && fdatasync(fd)) st = st_errno(errno, path);
    close(fd);
    return st;
}
status_t names_log_write(struct names_log *l, const struct name_rows *rows) {
    struct strbuf b = {0};
    for (size_t i = 0; i < rows->n; i++)
        if (rows->v[i].record.n) put_line(&b, &rows->v[i]);
    unlink(l->fresh);
    status_t st = write_text(l->fresh, O_EXCL, &b);
    strbuf_done(&b);
    if (!st && rename(l->fresh, l->path)) st = st_errno(errno, l->path);
    if (st) unlink(l->fresh);
    l->size = -1;
    if (!st) remember(l);
    return st;
}
status_t names_log_add(struct names_log *l, const struct name_row *row) {
    struct strbuf b = {0};
    put_line(&b, row);
    status_t st = write_text(l->path, O_APPEND, &b);
    strbuf_done(&b);
    if (st) unlink(l->path);
    l->size = -1;
    if (!st) remember(l);
    return st;
}
