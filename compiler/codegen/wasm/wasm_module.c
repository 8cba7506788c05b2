// SPDX-License-Identifier: Apache-2.0
// A relocatable object holds, for each place that a linker would patch, the value that is right as
// long as nothing moves. Nothing does: it is the only object, its functions keep their numbers, its
// data begin at 0, and the one global that it imports is defined in its place. So sections are
// copied, but for imports, the global, exports, and what describes relocations. The format: the
// WebAssembly core specification, section 5, and tool-conventions' Linking.md.
#include "compiler/codegen/wasm/wasm_module.h"

#include "base/str.h"

enum section {
    CUSTOM,
    TYPE,
    IMPORT,
    FUNCTION,
    TABLE,
    MEMORY,
    GLOBAL,
    EXPORT,
    START,
    ELEMENT,
    CODE,
    DATA,
    DATA_COUNT,
    SECTIONS
};
enum kind { FUNC_KIND, TABLE_KIND, MEMORY_KIND, GLOBAL_KIND };
enum symbol { SYMBOL_FUNCTION, SYMBOL_DATA, SYMBOL_GLOBAL };
enum { UNDEFINED = 0x10, EXPLICIT_NAME = 0x40, SYMBOL_TABLE = 8 };

struct reader {
    const uint8_t *p, *end;
    bool damaged;
};
static uint64_t read_uleb(struct reader *r) {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (r->p == r->end) break;
        uint8_t b = *r->p++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) return v;
    }
    r->damaged = true;
    return 0;
}
static uint8_t read_byte(struct reader *r) {
    if (r->p < r->end) return *r->p++;
    r->damaged = true;
    return 0;
}
static struct reader read_part(struct reader *r, uint64_t n) {
    struct reader part = {r->p, r->p, false};
    if (n > (uint64_t)(r->end - r->p))
        r->damaged = true;
    else
        r->p = part.end = r->p + n;
    return part;
}
static struct str read_name(struct reader *r) {
    struct reader s = read_part(r, read_uleb(r));
    return (struct str){(const char *)s.p, (size_t)(s.end - s.p)};
}

static void put_uleb(struct strbuf *b, uint64_t v) {
    do {
        uint8_t byte = v & 0x7f;
        v >>= 7;
        if (v) byte |= 0x80;
        strbuf_add(b, &byte, 1);
    } while (v);
}
static void put_name(struct strbuf *b, struct str s) {
    put_uleb(b, s.n);
    strbuf_add(b, s.p, s.n);
}
static void put_section(struct strbuf *b, enum section id, const void *p, size_t n) {
    uint8_t byte = (uint8_t)id;
    strbuf_add(b, &byte, 1);
    put_uleb(b, n);
    strbuf_add(b, p, n);
}

struct linker {
    struct reader section[SECTIONS]; // p NULL: it is not there
    struct reader linking;
    bool stack; // there is a stack pointer
    const char *const *names;
    int n_names;
    struct strbuf imports, exports, out;
    int n_imports, n_exports;
};
static status_t damaged(void) {
    return st_new(ST_DATA_LOSS, "damaged object of WebAssembly");
}

static status_t find_sections(struct linker *l, struct span object) {
    struct reader r = {object.p, object.p + object.n, false};
    if (object.n < 8 || memcmp(object.p, "\0asm\1\0\0\0", 8) != 0) return damaged();
    r.p += 8;
    while (r.p < r.end && !r.damaged) {
        uint8_t id = read_byte(&r);
        struct reader part = read_part(&r, read_uleb(&r));
        if (id >= SECTIONS || (id != CUSTOM && l->section[id].p)) return damaged();
        if (id != CUSTOM) {
            l->section[id] = part;
            continue;
        }
        struct str name = read_name(&part);
        if (str_is(name, "linking")) l->linking = part;
    }
    return r.damaged ? damaged() : ST_OK;
}

static void skip_limits(struct reader *r) {
    bool most = read_byte(r) & 1;
    read_uleb(r);
    if (most) read_uleb(r);
}
static void import(struct linker *l, const char *name, enum kind kind) {
    uint8_t k = (uint8_t)kind;
    put_name(&l->imports, str_of("env"));
    put_name(&l->imports, str_of(name));
    strbuf_add(&l->imports, &k, 1);
    l->n_imports++;
}
static status_t read_imports(struct linker *l) {
    struct reader r = l->section[IMPORT];
    for (uint64_t n = r.p ? read_uleb(&r) : 0; n > 0 && !r.damaged; n--) {
        read_name(&r); // "env"
        struct str name = read_name(&r);
        enum kind kind = (enum kind)read_byte(&r);
        if (kind == FUNC_KIND) {
            put_name(&l->imports, str_of("env"));
            put_name(&l->imports, name);
            strbuf_add(&l->imports, "\0", 1);
            put_uleb(&l->imports, read_uleb(&r));
            l->n_imports++;
        } else if (kind == MEMORY_KIND) {
            skip_limits(&r);
        } else if (kind == GLOBAL_KIND && str_is(name, "__stack_pointer") && !l->stack) {
            read_byte(&r);
            read_byte(&r);
            l->stack = true;
        } else {
            return st_unimplemented("kernels that need '" STR_FMT "' of a linker", STR_ARG(name));
        }
    }
    import(l, "memory", MEMORY_KIND);
    strbuf_add(&l->imports, "\0\1", 2); // at least a page
    return r.damaged ? damaged() : ST_OK;
}

static bool wanted(const struct linker *l, struct str name) {
    for (int k = 0; k < l->n_names; k++)
        if (str_is(name, l->names[k])) return true;
    return false;
}
static void add_export(struct linker *l, struct str name, enum kind kind, uint64_t index) {
    uint8_t k = (uint8_t)kind;
    put_name(&l->exports, name);
    strbuf_add(&l->exports, &k, 1);
    put_uleb(&l->exports, index);
    l->n_exports++;
}
// A symbol of the table; names of what is not defined are those of its import.
static status_t read_symbol(struct linker *l, struct reader *r) {
    enum symbol kind = (enum symbol)read_byte(r);
    uint64_t flags = read_uleb(r);
    bool defined = !(flags & UNDEFINED);
    if (kind == SYMBOL_DATA) {
        read_name(r);
        for (int k = 0; k < 3 && defined; k++)
            read_uleb(r);
        return defined ? ST_OK : st_unimplemented("kernels with data from elsewhere");
    }
    if (kind != SYMBOL_FUNCTION && kind != SYMBOL_GLOBAL)
        return st_unimplemented("kernels with symbols of kind %d", (int)kind);
    uint64_t index = read_uleb(r);
    struct str name = {0};
    if (defined || flags & EXPLICIT_NAME) name = read_name(r);
    if (kind == SYMBOL_FUNCTION && defined && wanted(l, name))
        add_export(l, name, FUNC_KIND, index);
    return ST_OK;
}
static status_t read_symbols(struct linker *l) {
    struct reader r = l->linking;
    if (read_uleb(&r) != 2) return st_unimplemented("another version of LLVM's objects");
    while (r.p < r.end && !r.damaged) {
        uint8_t type = read_byte(&r);
        struct reader part = read_part(&r, read_uleb(&r));
        if (type != SYMBOL_TABLE) continue;
        uint64_t n = read_uleb(&part);
        for (uint64_t k = 0; k < n && !part.damaged; k++)
            RETURN_IF_ERR(read_symbol(l, &part));
        if (part.damaged) return damaged();
    }
    if (l->stack) add_export(l, str_of("stack"), GLOBAL_KIND, 0);
    int want = l->n_names + l->stack;
    return r.damaged || l->n_exports != want ? damaged() : ST_OK;
}

// i32.const N, end: where segments are active.
static bool read_place(struct reader *r, int64_t *out) {
    if (read_byte(r) != 0x41) return false;
    uint64_t v = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        uint8_t b = read_byte(r);
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b & 0x80) continue;
        *out = (int64_t)(uint32_t)(b & 0x40 && shift < 28 ? v | ~UINT64_C(0) << (shift + 7) : v);
        return read_byte(r) == 0x0b;
    }
    return false;
}
static status_t measure_data(struct reader r, int64_t *out) {
    *out = 0;
    for (uint64_t n = r.p ? read_uleb(&r) : 0; n > 0 && !r.damaged; n--) {
        int64_t at;
        if (read_uleb(&r) != 0 || !read_place(&r, &at))
            return st_unimplemented("kernels with data that have no place");
        struct reader bytes = read_part(&r, read_uleb(&r));
        if (at + (bytes.end - bytes.p) > *out) *out = at + (bytes.end - bytes.p);
    }
    return r.damaged ? damaged() : ST_OK;
}

static void put_counted(struct strbuf *out, enum section id, int n, const struct strbuf *items) {
    struct strbuf all = {0};
    put_uleb(&all, (uint64_t)n);
    strbuf_add(&all, items->p, items->n);
    put_section(out, id, all.p, all.n);
    strbuf_done(&all);
}
static void copy_section(struct linker *l, enum section id) {
    const struct reader *r = &l->section[id];
    if (r->p) put_section(&l->out, id, r->p, (size_t)(r->end - r->p));
}
static status_t link_module(struct linker *l, struct span object) {
    int64_t data;
    RETURN_IF_ERR(find_sections(l, object));
    if (!l->section[TYPE].p || !l->section[CODE].p || !l->linking.p) return damaged();
    if (l->section[TABLE].p || l->section[MEMORY].p || l->section[GLOBAL].p ||
        l->section[START].p || l->section[ELEMENT].p)
        return st_unimplemented("kernels with tables or globals of their own");
    RETURN_IF_ERR(read_imports(l));
    RETURN_IF_ERR(read_symbols(l));
    RETURN_IF_ERR(measure_data(l->section[DATA], &data));

    strbuf_add(&l->out, object.p, 8);
    copy_section(l, TYPE);
    put_counted(&l->out, IMPORT, l->n_imports, &l->imports);
    copy_section(l, FUNCTION);
    if (l->stack) put_section(&l->out, GLOBAL, "\1\x7f\1\x41\0\x0b", 6); // one i32, mutable, 0
    put_counted(&l->out, EXPORT, l->n_exports, &l->exports);
    copy_section(l, DATA_COUNT);
    copy_section(l, CODE);
    copy_section(l, DATA);
    return ST_OK;
}

status_t wasm_module(struct arena *a, struct span object, const char *const *names, int n,
                     struct span *out) {
    struct linker l = {.names = names, .n_names = n};
    status_t st = link_module(&l, object);
    if (!st) *out = (struct span){arena_dup(a, l.out.p, l.out.n), l.out.n};
    strbuf_done(&l.imports);
    strbuf_done(&l.exports);
    strbuf_done(&l.out);
    return st;
}

status_t wasm_data_bytes(struct span module, int64_t *out) {
    struct linker l = {0};
    RETURN_IF_ERR(find_sections(&l, module));
    return measure_data(l.section[DATA], out);
}
