// SPDX-License-Identifier: Apache-2.0
// A package as one archive: ustar as POSIX.1-1988 has it, which every tar reads. A header of 512
// bytes a file, its bytes padded to such blocks, two empty blocks at the end.
#include <stdio.h>
#include <string.h>

#include "base/span.h"
#include "compiler/web/web.h"

enum { BLOCK = 512, END = 2 * BLOCK, MAX_PATH = 100, CHECKSUM = 148 };
#define MAX_FILE ((INT64_C(1) << 33) - 1) // 11 octal digits

status_t web_archive_bytes(const struct web_files *f, const char *folder, int64_t *out_bytes) {
    int64_t bytes = END;
    for (size_t k = 0; k < f->n; k++) {
        if (strlen(folder) + 1 + strlen(f->v[k].path) >= MAX_PATH)
            return st_invalid("%s: the path is too long for an archive", f->v[k].path);
        if (f->v[k].bytes.n > (uint64_t)MAX_FILE)
            return st_invalid("%s: %zu bytes are too many for an archive", f->v[k].path,
                              f->v[k].bytes.n);
        if (!sz_add(bytes, BLOCK + round_up((int64_t)f->v[k].bytes.n, BLOCK), &bytes))
            return st_exhausted("the package is too large");
    }
    *out_bytes = bytes;
    return ST_OK;
}

static void octal(uint8_t *to, int digits, uint64_t v) {
    for (int k = digits; k-- > 0; v >>= 3)
        to[k] = (uint8_t)('0' + (v & 7));
}
static void header(uint8_t *h, const char *folder, const struct web_file *f) {
    uint64_t sum = 0;
    memset(h, 0, BLOCK);
    snprintf((char *)h, MAX_PATH, "%s/%s", folder, f->path);
    octal(h + 100, 7, 0644); // mode
    octal(h + 108, 7, 0);    // user
    octal(h + 116, 7, 0);    // group
    octal(h + 124, 11, f->bytes.n);
    octal(h + 136, 11, 0); // time
    h[156] = '0';          // an ordinary file
    memcpy(h + 257, "ustar\00000", 8);

    memset(h + CHECKSUM, ' ', 8); // as which it counts itself
    for (int k = 0; k < BLOCK; k++)
        sum += h[k];
    octal(h + CHECKSUM, 6, sum);
    h[CHECKSUM + 6] = 0;
}
void web_archive_write(const struct web_files *f, const char *folder, uint8_t *to) {
    for (size_t k = 0; k < f->n; k++) {
        const struct span *b = &f->v[k].bytes;
        size_t padded = (size_t)round_up((int64_t)b->n, BLOCK);
        header(to, folder, &f->v[k]);
        to += BLOCK;
        if (b->n) memcpy(to, b->p, b->n);
        memset(to + b->n, 0, padded - b->n);
        to += padded;
    }
    memset(to, 0, END);
}
