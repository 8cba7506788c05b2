// SPDX-License-Identifier: Apache-2.0
#include "base/store/store_schema.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096, FORMAT = 1 };
static const char schema[] = "hlod-store 1\n";

// The format, written twice so that a damaged copy is found. 0: not there, or not readable.
static int read_schema(const char *dir, const char *name) {
    char path[PATH], text[64] = {0};
    int format = 0, end = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    bool is = n > 0 && sscanf(text, "hlod-store %9d\n%n", &format, &end) == 1 && end == (int)n;
    return is ? format : 0;
}
static status_t write_schema(const char *dir, const char *name) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return st_errno(errno, path);
    ssize_t n = write(fd, schema, sizeof schema - 1);
    status_t st = n == (ssize_t)sizeof schema - 1 ? ST_OK : st_errno(n < 0 ? errno : ENOSPC, path);
    close(fd);
    return st;
}
static bool is_there(const char *dir, const char *name) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}
status_t store_schema_check(const char *dir, char mended[200]) {
    static const char *const names[] = {"VERSION", "VERSION.copy"};
    int says[2] = {read_schema(dir, names[0]), read_schema(dir, names[1])};
    bool there[2] = {is_there(dir, names[0]), is_there(dir, names[1])},
         new = !there[0] && !there[1];
    int other = says[0] && says[0] != FORMAT ? says[0] : says[1];
    if (says[0] != FORMAT && says[1] != FORMAT && other)
        return st_new(ST_FAILED_PRECONDITION,
                      "%s: the data folder has format 'hlod-store %d', this build uses '%.*s'", dir,
                      other, (int)strcspn(schema, "\n"), schema);
    for (int k = 0; k < 2; k++) {
        if (says[k] == FORMAT) continue;
        if (there[k] || (k == 0 && !new))
            snprintf(mended + strlen(mended), 200 - strlen(mended),
                     "%s%s was %s, and is written anew", *mended ? "; " : "", names[k],
                     there[k] ? "damaged" : "removed");
        status_t st = write_schema(dir, names[k]);
        if (st && new) return st;
        st_drop(st); // a full disk: the next start
    }
    return ST_OK;
}
