// SPDX-License-Identifier: Apache-2.0
// jax.export's flatbuffer: tables whose fields are found by slots of a table of offsets. Every
// offset is checked; the tree of arguments is walked to a depth and a number of nodes.
#include "compiler/frontend/stablehlo/jax_export.h"

#include <stdio.h>
#include <string.h>

enum { // slots of Exported
    FUNCTION_NAME = 6,
    IN_TREE = 8,
    IN_AVALS = 10,
    OUT_TREE = 12,
    OUT_AVALS = 14,
    DEVICES_SHORT = 16,
    PLATFORMS = 22,
    MODULE = 30,
    CALLING_CONVENTION = 32,
    KEPT = 34,
    VJP = 38,
    DEVICES = 40,
    UNIQUE_AVALS = 42,
    IN_AVAL_INDEXES = 48,
    OUT_AVAL_INDEXES = 50
};
enum { AVAL_KIND = 4, AVAL_SHAPE = 6, AVAL_DTYPE = 8 };    // of AbstractValue
enum { TREE_KIND = 4, TREE_CHILDREN = 6, TREE_NAMES = 8 }; // of PyTreeDef
enum { LEAF, NONE, TUPLE, LIST, DICT, CUSTOM };            // kinds of PyTreeDef
enum { OLDEST_CONVENTION = 9, MAX_DEPTH = 100, MAX_NAME = 256 };

struct fb {
    struct span all;
    struct arena *a;
    status_t st; // the first error; what is read after it is 0
};
struct vector {
    size_t at; // of the first element
    uint32_t n;
};

// ---- the flatbuffer

static uint64_t number(struct fb *b, size_t at, size_t size) {
    uint64_t v = 0;
    if (!b->st && (at > b->all.n || b->all.n - at < size))
        b->st = st_invalid("byte %zu: the flatbuffer ends before it", at);
    if (!b->st) memcpy(&v, b->all.p + at, size);
    return v;
}
static size_t indirect(struct fb *b, size_t at) {
    uint64_t to = number(b, at, 4);
    return b->st ? 0 : at + (size_t)to;
}
// Where a field of the table lies; 0: it is not there.
static size_t field(struct fb *b, size_t table, size_t slot) {
    int64_t back = (int32_t)number(b, table, 4), vtable = (int64_t)table - back;
    if (!b->st && (vtable < 0 || vtable > (int64_t)b->all.n))
        b->st = st_invalid("byte %zu: a table's fields lie outside the flatbuffer", table);
    uint64_t size = number(b, (size_t)vtable, 2);
    if (b->st || slot + 2 > size) return 0;
    uint64_t offset = number(b, (size_t)vtable + slot, 2);
    return b->st || !offset ? 0 : table + (size_t)offset;
}
static uint64_t scalar(struct fb *b, size_t table, size_t slot, size_t size) {
    size_t at = field(b, table, slot);
    return at ? number(b, at, size) : 0;
}
static struct vector vector_at(struct fb *b, size_t at, size_t size) {
    struct vector v = {at + 4, (uint32_t)number(b, at, 4)};
    if (!b->st && v.n > (b->all.n - v.at) / size)
        b->st = st_invalid("byte %zu: %u elements go beyond the flatbuffer", at, v.n);
    if (b->st) v.n = 0;
    return v;
}
static struct vector vector(struct fb *b, size_t table, size_t slot, size_t size) {
    size_t at = field(b, table, slot);
    if (!at) return (struct vector){0, 0};
    at = indirect(b, at);
    return vector_at(b, at, size);
}
static struct span bytes(struct fb *b, struct vector v) {
    return (struct span){b->all.p + v.at, v.n};
}
static struct str text_at(struct fb *b, size_t at) {
    struct span s = bytes(b, vector_at(b, indirect(b, at), 1));
    return (struct str){(const char *)s.p, s.n};
}
static struct str *texts(struct fb *b, struct vector v) {
    struct str *out = arena_zarray(b->a, struct str, (size_t)v.n + 1);
    for (uint32_t k = 0; k < v.n && !b->st; k++)
        out[k] = text_at(b, v.at + (size_t)k * 4);
    return out;
}

// ---- inputs and outputs

static const enum dtype dtypes[] = {
    DT_PRED,       DT_S8,      DT_S16,    DT_S32,           DT_S64,       DT_U8,         DT_U16,
    DT_U32,        DT_U64,     DT_F16,    DT_F32,           DT_F64,       DT_C64,        DT_C128,
    DT_BF16,       DT_S4,      DT_U4,     DT_F8E4M3B11FNUZ, DT_F8E4M3FN,  DT_F8E4M3FNUZ, DT_F8E5M2,
    DT_F8E5M2FNUZ, DT_INVALID, DT_F8E4M3, DT_F8E3M4,        DT_F8E8M0FNU, DT_F4E2M1FN};

static void read_aval(struct fb *b, size_t table, struct jax_value *out) {
    uint64_t kind = scalar(b, table, AVAL_KIND, 1), type = scalar(b, table, AVAL_DTYPE, 1);
    struct vector shape = vector(b, table, AVAL_SHAPE, 4);
    if (!b->st && shape.n > HLO_MAX_RANK)
        b->st = st_invalid("byte %zu: a value of %u dimensions, at most %d", table, shape.n,
                           HLO_MAX_RANK);
    if (b->st) return;
    *out = (struct jax_value){.name = "", .rank = (int32_t)shape.n};
    out->dtype = kind == 0 && type < sizeof dtypes / sizeof *dtypes ? dtypes[type] : DT_INVALID;
    out->dims = texts(b, shape);
}
// They stand there one by one, or as indexes of those that differ.
static void read_avals(struct fb *b, size_t table, size_t slot, size_t index_slot,
                       struct jax_values *out) {
    struct vector each = vector(b, table, slot, 4), index = vector(b, table, index_slot, 4),
                  unique = vector(b, table, UNIQUE_AVALS, 4);
    uint32_t n = index.n ? index.n : each.n;
    out->v = arena_zarray(b->a, struct jax_value, (size_t)n + 1);
    out->n = (int32_t)n;
    for (uint32_t k = 0; k < n && !b->st; k++) {
        size_t at = each.at + (size_t)k * 4;
        if (index.n) {
            uint64_t which = number(b, index.at + (size_t)k * 4, 4);
            if (!b->st && which >= unique.n)
                b->st = st_invalid("byte %zu: value %llu of %u is not there", index.at,
                                   (unsigned long long)which, unique.n);
            at = unique.at + (size_t)which * 4;
        }
        read_aval(b, indirect(b, at), &out->v[k]);
    }
}

// ---- names

struct naming { // a walk over a tree, leaf by leaf
    struct jax_values *to;
    int32_t next;
    int64_t left; // nodes: a file has no more than it has bytes
    char path[MAX_NAME];
    size_t n;
};
static void put_step(struct naming *w, struct str name, long long index) {
    size_t room = sizeof w->path - w->n;
    const char *dot = w->n ? "." : "";
    int n = name.p ? snprintf(w->path + w->n, room, "%s%.*s", dot, STR_ARG(name))
                   : snprintf(w->path + w->n, room, "%s%lld", dot, index);
    w->n += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}
static void name_leaves(struct fb *b, struct naming *w, size_t table, int depth);
static void name_children(struct fb *b, struct naming *w, size_t table, const char *prefix,
                          int depth) {
    struct vector children = vector(b, table, TREE_CHILDREN, 4);
    struct vector names = vector(b, table, TREE_NAMES, 4);
    size_t was = w->n;
    for (uint32_t k = 0; k < children.n && !b->st; k++) {
        struct str name = {0};
        if (k < names.n) name = text_at(b, names.at + (size_t)k * 4);
        if (*prefix) name = str_of(arena_printf(b->a, "%s%u", prefix, k));
        if (b->st) return;
        put_step(w, name, k);
        name_leaves(b, w, indirect(b, children.at + (size_t)k * 4), depth + 1);
        w->n = was;
        w->path[was] = 0;
    }
}
static void name_leaves(struct fb *b, struct naming *w, size_t table, int depth) {
    uint64_t kind = scalar(b, table, TREE_KIND, 1);
    if (!b->st && (depth > MAX_DEPTH || w->left-- <= 0))
        b->st = st_exhausted("byte %zu: the tree of arguments is too deep or too large", table);
    if (b->st || kind == NONE) return;
    if (kind != LEAF) {
        name_children(b, w, table, "", depth);
    } else if (w->next < w->to->n) {
        w->to->v[w->next++].name = arena_strndup(b->a, w->path, w->n);
    }
}
// Arguments are a pair: those by place, which are called argN, and those by name.
static void name_inputs(struct fb *b, size_t table, struct jax_values *in) {
    struct naming w = {.to = in, .left = (int64_t)b->all.n};
    size_t at = field(b, table, IN_TREE);
    if (!at) return;
    size_t tree = indirect(b, at);
    struct vector pair = vector(b, tree, TREE_CHILDREN, 4);
    if (b->st || pair.n != 2) return;
    name_children(b, &w, indirect(b, pair.at), "arg", 1);
    name_leaves(b, &w, indirect(b, pair.at + 4), 1);
}
static void name_outputs(struct fb *b, size_t table, struct jax_values *out) {
    struct naming w = {.to = out, .left = (int64_t)b->all.n};
    size_t at = field(b, table, OUT_TREE);
    if (at) name_leaves(b, &w, indirect(b, at), 0);
}

// ---- the whole

static void read_rest(struct fb *b, size_t root, struct jax_export *x) {
    struct vector kept = vector(b, root, KEPT, 2), platforms = vector(b, root, PLATFORMS, 4);
    size_t name = field(b, root, FUNCTION_NAME);
    if (name) x->function = text_at(b, name);
    x->platforms = texts(b, platforms);
    x->n_platforms = (int32_t)platforms.n;
    x->n_devices = (int64_t)scalar(b, root, DEVICES, 4);
    if (!x->n_devices) x->n_devices = (int64_t)scalar(b, root, DEVICES_SHORT, 2);
    x->has_vjp = field(b, root, VJP) != 0;

    read_avals(b, root, IN_AVALS, IN_AVAL_INDEXES, &x->in);
    read_avals(b, root, OUT_AVALS, OUT_AVAL_INDEXES, &x->out);
    x->kept = arena_zarray(b->a, int32_t, (size_t)kept.n + 1);
    x->n_kept = (int32_t)kept.n;
    for (uint32_t k = 0; k < kept.n && !b->st; k++) {
        x->kept[k] = (int32_t)number(b, kept.at + (size_t)k * 2, 2);
        bool rises = !k || x->kept[k] > x->kept[k - 1];
        if (!b->st && (x->kept[k] >= x->in.n || !rises))
            b->st = st_invalid("the module keeps input %d of %d", x->kept[k], x->in.n);
    }
    if (!b->st) name_inputs(b, root, &x->in);
    if (!b->st) name_outputs(b, root, &x->out);
}
status_t jax_export_read(struct arena *a, struct span source, struct jax_export *out) {
    struct fb b = {.all = source, .a = a};
    struct jax_export x = {0};
    size_t root = indirect(&b, 0);
    struct vector module = vector(&b, root, MODULE, 1);
    x.calling_convention = (int32_t)scalar(&b, root, CALLING_CONVENTION, 2);
    RETURN_IF_ERR(b.st);
    if (!module.n) return st_invalid("the export has no module");
    if (x.calling_convention < OLDEST_CONVENTION)
        return st_unimplemented("calling convention %d of jax.export, %d and later are taken: "
                                "export it again with a newer JAX",
                                x.calling_convention, OLDEST_CONVENTION);
    x.module = bytes(&b, module);
    read_rest(&b, root, &x);
    RETURN_IF_ERR(b.st);
    *out = x;
    return ST_OK;
}
bool jax_export_sniff(struct span head) {
    struct fb b = {.all = head};
    size_t root = indirect(&b, 0);
    size_t module = field(&b, root, MODULE);
    uint64_t convention = scalar(&b, root, CALLING_CONVENTION, 2);
    bool is = !b.st && module && convention >= 1 && convention < 100 && root % 4 == 0;
    st_drop(b.st);
    return is;
}
