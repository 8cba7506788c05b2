// SPDX-License-Identifier: Apache-2.0
// Loads the objects of a container. Blobs are copied into memory of their own, which is made
// executable when it is no longer writable; ELF objects go to ORC (llvm_jit.c), which is started
// only where there is one.
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/map.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/container.h"
#include "compiler/codegen/llvm_jit.h"

enum { ALIGN = 64 };
struct code {
    struct llvm_jit *jit; // NULL: no ELF objects
    void *blobs;          // mapped
    size_t bytes;
    struct smap symbols; // of blobs -> address
};

static size_t aligned(size_t n) {
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}
static status_t measure(struct span object, size_t *bytes) {
    struct container c;
    *bytes = 0;
    RETURN_IF_ERR(container_open(object, &c));
    for (struct span part; container_next(&c, &part);)
        if (blob_is(part) && __builtin_add_overflow(*bytes, aligned(part.n - BLOB_HEADER), bytes))
            c.damaged = true;
    return c.damaged ? st_new(ST_DATA_LOSS, "damaged object: container of kernels") : ST_OK;
}
static status_t load_parts(struct code *code, struct span object) {
    struct container c;
    size_t at = 0;
    RETURN_IF_ERR(container_open(object, &c));
    for (struct span part; container_next(&c, &part);) {
        if (!blob_is(part)) {
            RETURN_IF_ERR(llvm_jit_add(&code->jit, part));
            continue;
        }
        uint8_t *to = (uint8_t *)code->blobs + at;
        memcpy(to, part.p + BLOB_HEADER, part.n - BLOB_HEADER);
        smap_put(&code->symbols, str_of((const char *)part.p + BLOB_SYMBOL_AT), to);
        at += aligned(part.n - BLOB_HEADER);
    }
    return ST_OK;
}

status_t code_load(struct span object, struct code **out) {
    size_t bytes;
    RETURN_IF_ERR(measure(object, &bytes));
    struct code *code = calloc(1, sizeof *code);
    if (!code) return st_oom();
    status_t st = ST_OK;
    if (bytes) {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
            st = st_exhausted("no memory for %zu bytes of code", bytes);
        } else {
            code->blobs = p;
            code->bytes = bytes;
        }
    }
    if (!st) st = load_parts(code, object);
    if (!st && bytes && mprotect(code->blobs, bytes, PROT_READ | PROT_EXEC))
        st = st_errno(errno, "code");
    if (st)
        code_free(code);
    else
        *out = code;
    return st;
}
void *code_symbol(struct code *c, const char *symbol) {
    void *p = smap_get(&c->symbols, str_of(symbol));
    return p || !c->jit ? p : llvm_jit_symbol(c->jit, symbol);
}
void code_free(struct code *c) {
    if (!c) return;
    llvm_jit_free(c->jit);
    if (c->blobs) munmap(c->blobs, c->bytes);
    smap_done(&c->symbols);
    free(c);
}
