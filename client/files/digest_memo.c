// SPDX-License-Identifier: Apache-2.0
// A file a memo: its name is a digest of what stat says, its content the model's digest.
#include "client/files/digest_memo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/str.h"

enum { RACY_S = 2 };

bool digest_memo_key(const char *const *paths, size_t n, char out_key[65]) {
    struct sha256 h;
    struct stat s;
    sha256_init(&h);
    for (size_t k = 0; k < n; k++) {
        if (stat(paths[k], &s) || s.st_mtime > time(NULL) - RACY_S) {
            sha256_abandon(&h);
            return false;
        }
        const uint64_t what[] = {s.st_dev,
                                 s.st_ino,
                                 (uint64_t)s.st_size,
                                 (uint64_t)s.st_mtim.tv_sec,
                                 (uint64_t)s.st_mtim.tv_nsec,
                                 (uint64_t)s.st_ctim.tv_sec,
                                 (uint64_t)s.st_ctim.tv_nsec};
        for (size_t i = 0; i < sizeof what / sizeof what[0]; i++)
            sha256_u64(&h, what[i]);
    }
    digest_hex(sha256_end(&h), out_key);
    return true;
}

// Path of the memo; false: there is no home.
static bool memo_path(const char *key, bool make_folders, struct strbuf *out) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if ((!cache || *cache != '/') && (!home || *home != '/')) return false;
    bool xdg = cache && *cache == '/';
    strbuf_printf(out, "%s%s", xdg ? cache : home, xdg ? "" : "/.cache");
    for (const char *const *f = (const char *const[]){"", "/hlo", "/digests", NULL}; *f; f++) {
        strbuf_puts(out, *f);
        if (make_folders && mkdir(strbuf_cstr(out), 0700) && errno != EEXIST) return false;
    }
    strbuf_printf(out, "/%s", key);
    return true;
}

bool digest_memo_get(const char key[65], char out_hex[65]) {
    struct strbuf path = {0};
    struct digest d;
    char text[64];
    int fd = memo_path(key, false, &path) ? open(strbuf_cstr(&path), O_RDONLY | O_CLOEXEC) : -1;
    bool ok = fd >= 0 && read(fd, text, sizeof text) == sizeof text &&
              digest_parse((struct str){text, sizeof text}, &d);
    if (fd >= 0) close(fd);
    strbuf_done(&path);
    if (ok) digest_hex(d, out_hex);
    return ok;
}

void digest_memo_put(const char key[65], const char hex[65]) {
    struct strbuf path = {0}, tmp = {0};
    if (memo_path(key, true, &path)) {
        strbuf_printf(&tmp, "%s.%d", strbuf_cstr(&path), (int)getpid());
        int fd = open(strbuf_cstr(&tmp), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        bool ok = fd >= 0 && write(fd, hex, 64) == 64;
        if (fd >= 0) close(fd);
        if (fd >= 0 && (!ok || rename(strbuf_cstr(&tmp), strbuf_cstr(&path))))
            unlink(strbuf_cstr(&tmp));
    }
    strbuf_done(&path);
    strbuf_done(&tmp);
}
