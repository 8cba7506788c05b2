// SPDX-License-Identifier: Apache-2.0
// container: several objects in one span. Little endian: "HKOB", u32 count, then for each u64
// length and the bytes. Lengths are checked. An object is a relocatable ELF file, whose content the
// ELF reader checks, or a blob: 64 bytes of header ("HKX1", the symbol, zeros), then code that
// needs no relocation and begins at its first byte.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"

struct container {
    struct span rest;
    uint32_t left;
    bool damaged;
};
static inline status_t container_open(struct span s, struct container *out) {
    uint32_t n;
    if (s.n < 8 || memcmp(s.p, "HKOB", 4) != 0)
        return st_new(ST_DATA_LOSS, "damaged object: not a container of kernels");
    memcpy(&n, s.p + 4, 4);
    *out = (struct container){{s.p + 8, s.n - 8}, n, false};
    return ST_OK;
}
static inline bool container_next(struct container *c, struct span *out) {
    uint64_t n;
    if (c->left == 0) {
        c->damaged |= c->rest.n != 0;
        return false;
    }
    if (c->rest.n >= 8) memcpy(&n, c->rest.p, 8);
    if (c->rest.n < 8 || n > c->rest.n - 8) {
        c->damaged = true;
        return false;
    }
    *out = (struct span){c->rest.p + 8, (size_t)n};
    c->rest = (struct span){c->rest.p + 8 + n, c->rest.n - 8 - (size_t)n};
    c->left--;
    return true;
}

enum { BLOB_HEADER = 64, BLOB_SYMBOL_AT = 4 };
static inline struct span blob_make(struct arena *a, const char *symbol, struct span code) {
    uint8_t *p = arena_zalloc(a, BLOB_HEADER + code.n);
    size_t n = strlen(symbol);
    memcpy(p, "HKX1", 4);
    memcpy(p + BLOB_SYMBOL_AT, symbol, n < BLOB_HEADER - 5 ? n : BLOB_HEADER - 5);
    memcpy(p + BLOB_HEADER, code.p, code.n);
    return (struct span){p, BLOB_HEADER + code.n};
}
static inline bool blob_is(struct span s) {
    return s.n > BLOB_HEADER && memcmp(s.p, "HKX1", 4) == 0 && s.p[BLOB_HEADER - 1] == 0;
}
