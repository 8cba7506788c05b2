// SPDX-License-Identifier: Apache-2.0
// container: several relocatable objects in one span. Little endian: "HKOB", u32 count, then for
// each u64 length and the bytes. Lengths are checked; content is checked by the ELF reader.
#pragma once
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
