// SPDX-License-Identifier: Apache-2.0
// sort: sort and topk whose comparator is an order of numbers: one key or several, ascending or
// descending, by IEEE's total order, by value, or as JAX writes it (all NaN alike and last, both
// zeros alike). Keys become integers that order alike; pairs of key and position are sorted by
// digits from the lowest (radix sort), which is stable, so several keys are several sorts, the last
// key first; then elements are fetched by position. topk keeps the best seen so far and a bound
// that most elements do not pass; so does a sort by one key of which only the beginning is read,
// and leaves the rest of its results as it is. A line is one thread's.
// Complex numbers have two keys, their parts. Does not: other comparators (a generated kernel's).
#include "compiler/ops/rules.h"
#include "devices/cpu/cpu.h"

#include <math.h>

enum { MAX_KEYS = 16, FEW = 48, MANY = 65536, MAX_LINE = 1 << 30 };
enum { IN_ORDER = 16, ROOM = 192 }; // topk: results that are kept in order; candidates beside them
enum part { WHOLE, REAL_PART, IMAG_PART };
struct key {
    int operand;
    enum part part;           // of a complex number
    enum dtype type;          // of the key
    bool down;                // descending
    bool one_zero, nans_last; // -0 is 0; all NaN are alike, above everything
};
struct keys {
    struct key v[MAX_KEYS];
    int n;
};

// ---- comparators

// A value made of one parameter: which one, and what is alike in it.
static bool match_value(const struct hlo_instr *v, int64_t *param, struct key *k) {
    if (v->op == HLO_PARAMETER) {
        *param = v->param_number;
        k->type = v->shape->dtype;
        return true;
    }
    if ((v->op == HLO_REAL || v->op == HLO_IMAG) &&
        dtype_is_complex(v->operands[0]->shape->dtype)) {
        if (!match_value(v->operands[0], param, k)) return false;
        k->part = v->op == HLO_REAL ? REAL_PART : IMAG_PART;
        k->type = v->shape->dtype;
        return true;
    }
    if (v->op == HLO_CONVERT && dtype_is_float(v->shape->dtype) &&
        (v->operands[0]->shape->dtype == DT_F16 || v->operands[0]->shape->dtype == DT_BF16))
        return match_value(v->operands[0], param, k); // exact
    if (v->op != HLO_SELECT || v->operands[0]->op != HLO_COMPARE ||
        v->operands[1]->op != HLO_CONSTANT || !dtype_is_float(v->shape->dtype))
        return false;
    const struct hlo_instr *c = v->operands[0], *to = v->operands[1], *x = c->operands[0];
    enum cmp_direction d = HLO_ATTR(c, compare)->direction;
    struct key inner = {0};
    int64_t of;
    if (!match_value(v->operands[2], param, k) || !match_value(x, &of, &inner) || of != *param ||
        inner.part != k->part || inner.one_zero || inner.nans_last ||
        HLO_ATTR(c, compare)->type == CMPT_TOTALORDER)
        return false;
    double value = lit_get_f64(to->literal, 0);
    if (d == CMP_NE && c->operands[1] == x && value != value && !signbit(value))
        k->nans_last = true;
    else if (d == CMP_EQ && c->operands[1]->op == HLO_CONSTANT && value == 0 && !signbit(value) &&
             lit_get_f64(c->operands[1]->literal, 0) == 0)
        k->one_zero = true;
    else
        return false;
    return true;
}
// A comparison of the two parameters of one operand: gives its key, and the direction with the
// first one on the left.
static bool match_compare(const struct hlo_instr *c, struct key *k, enum cmp_direction *d) {
    struct key left = {0}, right = {0};
    int64_t a, b;
    if (c->op != HLO_COMPARE || !match_value(c->operands[0], &a, &left) ||
        !match_value(c->operands[1], &b, &right) || a / 2 != b / 2 || a == b ||
        left.part != right.part || left.one_zero != right.one_zero ||
        left.nans_last != right.nans_last)
        return false;
    enum dtype t = c->operands[0]->shape->dtype;
    enum cmp_type type = HLO_ATTR(c, compare)->type;
    if (dtype_is_int(t) && type == (dtype_class(t) == DC_SIGNED ? CMPT_UNSIGNED : CMPT_SIGNED))
        return false;
    *k = left;
    k->operand = (int)(a / 2);
    *d = HLO_ATTR(c, compare)->direction;
    if (a > b) *d = *d == CMP_LT ? CMP_GT : *d == CMP_GT ? CMP_LT : *d;
    if (type != CMPT_TOTALORDER) k->one_zero = k->nans_last = true;
    return true;
}
static bool match_order(const struct hlo_instr *r, struct keys *out) {
    struct key k, same;
    enum cmp_direction d, e;
    if (out->n == MAX_KEYS) return false;
    if (match_compare(r, &k, &d)) {
        k.down = d == CMP_GT;
        out->v[out->n++] = k;
        return d == CMP_LT || d == CMP_GT;
    }
    if (r->op != HLO_OR) return false;
    for (int s = 0; s < 2; s++) {
        const struct hlo_instr *less = r->operands[s], *both = r->operands[1 - s];
        if (both->op != HLO_AND || !match_compare(less, &k, &d) || (d != CMP_LT && d != CMP_GT))
            continue;
        for (int t = 0; t < 2; t++) {
            int n = out->n;
            if (!match_compare(both->operands[t], &same, &e) || e != CMP_EQ ||
                same.operand != k.operand || same.part != k.part || same.one_zero != k.one_zero ||
                same.nans_last != k.nans_last)
                continue;
            k.down = d == CMP_GT;
            out->v[out->n++] = k;
            if (match_order(both->operands[1 - t], out)) return true;
            out->n = n;
        }
    }
    return false;
}
// 8-bit floats whose bits lie in the order of their values, all NaN behind these: the largest that
// is none; others 0.
static uint64_t last_of_f8(enum dtype t) {
    return t == DT_F8E5M2     ? 0x7c
           : t == DT_F8E4M3   ? 0x78
           : t == DT_F8E3M4   ? 0x70
           : t == DT_F8E4M3FN ? 0x7e
                              : 0;
}
static bool key_type(enum dtype t) {
    return last_of_f8(t) || t == DT_F16 || t == DT_BF16 || t == DT_F32 || t == DT_F64 ||
           t == DT_PRED || (dtype_is_int(t) && dtype_bits(t) >= 8);
}
static bool plain(const struct shape *s) {
    return !shape_is_tuple(s) && !s->dynamic && layout_is_default(s->layout, s->rank) &&
           (dtype_bits(s->dtype) >= 8 || s->dtype == DT_PRED);
}
static bool keys_of(const struct hlo_instr *i, struct keys *out) {
    *out = (struct keys){.n = 0};
    for (int k = 0; k < i->n_operands; k++)
        if (!plain(i->operands[k]->shape)) return false;
    for (int k = 0; k < shape_leaves(i->shape); k++)
        if (!plain(shape_is_tuple(i->shape) ? shape_leaf(i->shape, k) : i->shape)) return false;
    if (shape_elements(i->operands[0]->shape) == 0) return false;
    if (i->op == HLO_TOPK) {
        enum dtype t = i->operands[0]->shape->dtype;
        out->v[out->n++] = (struct key){.down = HLO_ATTR(i, topk)->largest, .type = t};
        return key_type(t) && i->shape->elems[1]->dtype == DT_S32;
    }
    if (i->op != HLO_SORT || i->n_called != 1 || !match_order(i->called[0]->root, out))
        return false;
    for (int k = 0; k < out->n; k++) {
        int o = out->v[k].operand;
        if (o >= i->n_operands || !key_type(out->v[k].type) ||
            i->called[0]->params.v[2 * o]->shape->dtype != i->operands[o]->shape->dtype)
            return false;
    }
    return true;
}
static int64_t line_dim(const struct hlo_instr *i) {
    return i->op == HLO_SORT ? HLO_ATTR(i, sort)->dimensions.v[0] : i->operands[0]->shape->rank - 1;
}
bool cpu_sort_accepts(const struct hlo_instr *i) {
    struct keys k;
    return (i->op == HLO_SORT || i->op == HLO_TOPK) && i->operands[0]->shape->rank > 0 &&
           keys_of(i, &k) && i->operands[0]->shape->dims[line_dim(i)] <= MAX_LINE &&
           (cpu_forced_impl() || !rule_sort_beside(i));
}
static bool sort_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                         const char **why) {
    *why = "not an order of numbers";
    return cpu_sort_accepts(i);
}

// ---- keys as integers

// A key and, below it, a position: numbers that order as equal keys' positions do.
typedef unsigned __int128 pair_64;
typedef uint64_t pair_32;
#define PAIR_32(key, at) ((pair_32)(uint32_t)(key) << 32 | (uint32_t)(at))
#define PAIR_64(key, at) ((pair_64)(key) << 64 | (uint32_t)(at))
#define KEY_32(pair)     ((uint32_t)((pair) >> 32))
#define KEY_64(pair)     ((uint64_t)((pair) >> 64))
static inline uint64_t float_key(uint64_t bits, int width, uint64_t infinity, const struct key *k) {
    uint64_t top = UINT64_C(1) << (width - 1), size = bits & (top - 1);
    if (k->nans_last && size > infinity) return top | (top - 1);
    if (k->one_zero && size == 0) bits = 0;
    return bits & top ? ~bits & (top | (top - 1)) : bits | top;
}
static inline uint64_t number_key(const void *p, enum dtype t, const struct key *k) {
    switch (t) {
    case DT_F32:
        return float_key(*(const uint32_t *)p, 32, 0x7f800000, k);
    case DT_F64:
        return float_key(*(const uint64_t *)p, 64, UINT64_C(0x7ff0000000000000), k);
    case DT_F16:
        return float_key(*(const uint16_t *)p, 16, 0x7c00, k);
    case DT_BF16:
        return float_key(*(const uint16_t *)p, 16, 0x7f80, k);
    case DT_S8:
        return (uint8_t)(*(const uint8_t *)p ^ 0x80);
    case DT_S16:
        return (uint16_t)(*(const uint16_t *)p ^ 0x8000);
    case DT_S32:
        return *(const uint32_t *)p ^ 0x80000000u;
    case DT_S64:
        return *(const uint64_t *)p ^ (UINT64_C(1) << 63);
    case DT_U16:
        return *(const uint16_t *)p;
    case DT_U32:
        return *(const uint32_t *)p;
    case DT_U64:
        return *(const uint64_t *)p;
    case DT_F8E5M2:
    case DT_F8E4M3:
    case DT_F8E3M4:
    case DT_F8E4M3FN:
        return float_key(*(const uint8_t *)p, 8, last_of_f8(t), k);
    default:
        return *(const uint8_t *)p;
    }
}

// ---- sorting by digits

// Gives where the sorted pairs are: a or b.
#define RADIX(BITS)                                                                                \
    static pair_##BITS *radix_##BITS(pair_##BITS *a, pair_##BITS *b, int64_t n) {                  \
        uint32_t count[(BITS + 10) / 11 * 2048];                                                   \
        int width = n < MANY ? 8 : 11, size = 1 << width, digits = (BITS + width - 1) / width;     \
        if (n <= FEW) {                                                                            \
            for (int64_t i = 1; i < n; i++) {                                                      \
                pair_##BITS p = a[i];                                                              \
                int64_t j = i;                                                                     \
                for (; j > 0 && KEY_##BITS(a[j - 1]) > KEY_##BITS(p); j--)                         \
                    a[j] = a[j - 1];                                                               \
                a[j] = p;                                                                          \
            }                                                                                      \
            return a;                                                                              \
        }                                                                                          \
        memset(count, 0, sizeof *count *(size_t)(digits << width));                                \
        for (int64_t i = 0; i < n; i++)                                                            \
            for (int d = 0; d < digits; d++)                                                       \
                count[(d << width) +                                                               \
                      (int)(KEY_##BITS(a[i]) >> (d * width) & (unsigned)(size - 1))]++;            \
        for (int d = 0; d < digits; d++) {                                                         \
            uint32_t *c = count + ((size_t)d << width), sum = 0;                                   \
            if (c[KEY_##BITS(a[0]) >> (d * width) & (unsigned)(size - 1)] == n) continue;          \
            for (int v = 0; v < size; v++) {                                                       \
                uint32_t here = c[v];                                                              \
                c[v] = sum;                                                                        \
                sum += here;                                                                       \
            }                                                                                      \
            for (int64_t i = 0; i < n; i++)                                                        \
                b[c[KEY_##BITS(a[i]) >> (d * width) & (unsigned)(size - 1)]++] = a[i];             \
            pair_##BITS *t = a;                                                                    \
            a = b;                                                                                 \
            b = t;                                                                                 \
        }                                                                                          \
        return a;                                                                                  \
    }
RADIX(32)
RADIX(64)

// ---- a line

struct sort_state {
    const struct hlo_instr *i;
    struct keys keys;
    int64_t n, kept, lines, inner; // kept: results of a line; elements of a line lie `inner` apart
    int64_t line;                  // from one line of results to the next
    int64_t room;                  // pairs of a thread, in each of its two halves
    int64_t bytes;                 // of a thread's scratch
    int bits;                      // of a vector
    bool wide;                     // some key has 64 bits
    bool some;                     // the first ones of a line are found without sorting it
    bool parted;                   // of more than are kept the first are parted from the others
    int threads;
};
// Pairs of key k at the positions that `from` has (NULL: in order), and back.
#define FILL(BITS)                                                                                 \
    static void fill_##BITS(const struct sort_state *s, const struct key *k, const char *line,     \
                            bool again, pair_##BITS *to) {                                         \
        enum dtype t = k->type;                                                                    \
        int64_t step = dtype_size(s->i->operands[k->operand]->shape->dtype) * s->inner;            \
        if (k->part == IMAG_PART) line += dtype_size(t);                                           \
        uint64_t flip = !k->down ? 0                                                               \
                        : dtype_bits(t) >= 64                                                      \
                            ? ~UINT64_C(0)                                                         \
                            : (UINT64_C(1) << (dtype_bits(t) < 8 ? 8 : dtype_bits(t))) - 1;        \
        for (int64_t j = 0; j < s->n; j++) {                                                       \
            uint32_t at = again ? (uint32_t)to[j] : (uint32_t)j;                                   \
            to[j] = PAIR_##BITS(number_key(line + at * step, t, k) ^ flip, at);                    \
        }                                                                                          \
    }                                                                                              \
    static pair_##BITS *sort_##BITS(const struct sort_state *s, void *const *bufs, int64_t at,     \
                                    pair_##BITS *a, pair_##BITS *b) {                              \
        for (int k = s->keys.n - 1; k >= 0; k--) {                                                 \
            const struct key *key = &s->keys.v[k];                                                 \
            enum dtype t = s->i->operands[key->operand]->shape->dtype;                             \
            fill_##BITS(s, key, (const char *)bufs[key->operand] + at * dtype_size(t),             \
                        k < s->keys.n - 1, a);                                                     \
            pair_##BITS *done = radix_##BITS(a, b, s->n);                                          \
            if (done != a) b = a, a = done;                                                        \
        }                                                                                          \
        return a;                                                                                  \
    }
FILL(32)
FILL(64)

#define INLINE static inline __attribute__((always_inline))
// Keys of elements by blocks: loops of a known length for vectors.
enum { BLOCK = 32 };
#define EACH(TYPE, KEY_OF)                                                                         \
    {                                                                                              \
        const TYPE *restrict v = (const TYPE *)from;                                               \
        if (n == BLOCK)                                                                            \
            for (int e = 0; e < BLOCK; e++)                                                        \
                to[e] = (KEY_OF) ^ flip;                                                           \
        else                                                                                       \
            for (int e = 0; e < n; e++)                                                            \
                to[e] = (KEY_OF) ^ flip;                                                           \
        break;                                                                                     \
    }
// Of a float: below zero all bits turned, else the sign.
#define BY_SIGN(UINT, INT, BITS)                                                                   \
    (UINT)(v[e] ^ ((UINT)((INT)v[e] >> (BITS - 1)) | (UINT)((UINT)1 << (BITS - 1))))
// The same after both zeros are 0 and all NaN one.
static inline uint32_t value_key_f32(uint32_t x) {
    x = x << 1 > 0xff000000u ? 0x7fffffff : x << 1 ? x : 0;
    return x ^ ((uint32_t)((int32_t)x >> 31) | 0x80000000u);
}
// How key k of type t is read by blocks.
enum block {
    ONE_BY_ONE,
    BY_VALUE,
    BLOCK_F32,
    BLOCK_F64,
    BLOCK_HALF,
    BLOCK_S32,
    BLOCK_S64,
    BLOCK_U8
};
static enum block block_of(enum dtype t, const struct key *k) {
    if (dtype_is_float(t) && (k->one_zero || k->nans_last))
        return t == DT_F32 && k->one_zero && k->nans_last ? BY_VALUE : ONE_BY_ONE;
    return t == DT_F32                   ? BLOCK_F32
           : t == DT_F64                 ? BLOCK_F64
           : t == DT_F16 || t == DT_BF16 ? BLOCK_HALF
           : t == DT_S32                 ? BLOCK_S32
           : t == DT_S64                 ? BLOCK_S64
           : t == DT_U8                  ? BLOCK_U8
                                         : ONE_BY_ONE;
}
struct block_form {
    enum block how;
    enum dtype t;
    const struct key *k;
};
INLINE void keys_of_32(const struct block_form *f, const char *restrict from, int n, uint32_t flip,
                       uint32_t *restrict to) {
    switch (f->how) {
    case BLOCK_F32:
        EACH(uint32_t, BY_SIGN(uint32_t, int32_t, 32))
    case BY_VALUE:
        EACH(uint32_t, value_key_f32(v[e]))
    case BLOCK_HALF:
        EACH(uint16_t, BY_SIGN(uint16_t, int16_t, 16))
    case BLOCK_S32:
        EACH(uint32_t, v[e] ^ 0x80000000u)
    case BLOCK_U8:
        EACH(uint8_t, v[e])
    default:
        for (int e = 0; e < n; e++)
            to[e] = (uint32_t)number_key(from + e * dtype_size(f->t), f->t, f->k) ^ flip;
    }
}
INLINE void keys_of_64(const struct block_form *f, const char *restrict from, int n, uint64_t flip,
                       uint64_t *restrict to) {
    switch (f->how) {
    case BLOCK_F64:
        EACH(uint64_t, BY_SIGN(uint64_t, int64_t, 64))
    case BLOCK_S64:
        EACH(uint64_t, v[e] ^ (UINT64_C(1) << 63))
    default:
        for (int e = 0; e < n; e++)
            to[e] = number_key(from + e * dtype_size(f->t), f->t, f->k) ^ flip;
    }
}
#include "devices/cpu/routines/cpu_sort_best.h"

#define FETCH(BITS)                                                                                \
    static void fetch_##BITS(const pair_##BITS *order, const char *from, char *to, int64_t n,      \
                             int64_t size, int64_t inner) {                                        \
        for (int64_t j = 0; j < n; j++) {                                                          \
            const char *p = from + (uint32_t)order[j] * inner * size;                              \
            char *q = to + j * inner * size;                                                       \
            if (size == 4)                                                                         \
                memcpy(q, p, 4);                                                                   \
            else if (size == 8)                                                                    \
                memcpy(q, p, 8);                                                                   \
            else                                                                                   \
                memcpy(q, p, (size_t)size);                                                        \
        }                                                                                          \
    }
FETCH(32)
FETCH(64)

static void one_line(const struct sort_state *s, void *const *bufs, int64_t line, char *scratch) {
    const struct hlo_instr *i = s->i;
    bool topk = i->op == HLO_TOPK;
    int n_in = i->n_operands;
    int64_t before = line / s->inner * s->inner, at = before * s->n + line % s->inner;
    int64_t to = before * s->line + line % s->inner;
    pair_64 *a = (pair_64 *)scratch, *wide = NULL;
    pair_32 *b = (pair_32 *)scratch, *narrow = NULL;
    int key = s->keys.v[0].operand;
    const char *first = (const char *)bufs[key] + at * dtype_size(i->operands[key]->shape->dtype);
    if (s->wide && s->some)
        wide = best_64(s, first, a, a + s->room);
    else if (s->wide)
        wide = sort_64(s, bufs, at, a, a + s->room);
    else if (s->some)
        narrow = best_32(s, first, b, b + s->room);
    else
        narrow = sort_32(s, bufs, at, b, b + s->room);
    for (int o = 0; o < n_in; o++) {
        int64_t size = dtype_size(i->operands[o]->shape->dtype);
        const char *from = (const char *)bufs[o] + at * size;
        char *out = (char *)bufs[n_in + o] + to * size;
        if (wide)
            fetch_64(wide, from, out, s->kept, size, s->inner);
        else
            fetch_32(narrow, from, out, s->kept, size, s->inner);
    }
    int32_t *index = topk ? (int32_t *)bufs[n_in + 1] + to : NULL;
    for (int64_t j = 0; topk && j < s->kept; j++)
        index[j] = (int32_t)(wide ? (uint32_t)wide[j] : (uint32_t)narrow[j]);
}

// ---- the implementation

// How much of v's lines along dim is read, from their beginning.
static int64_t read_of(const struct hlo_instr *v, int64_t dim) {
    int64_t all = v->shape->dims[dim], most = 0;
    if (v->parent->root == v) return all;
    for (size_t u = 0; u < v->users.n && most < all; u++) {
        const struct hlo_instr *user = v->users.v[u];
        bool fused = user->op == HLO_FUSION;
        int64_t here = user->op == HLO_SLICE ? HLO_ATTR(user, slice)->slice.v[dim].limit : all;
        if (here > most && !fused) most = here;
        for (int k = 0; fused && k < user->n_operands; k++) {
            if (user->operands[k] != v) continue;
            here = read_of(user->called[0]->params.v[k], dim);
            if (here > most) most = here;
        }
    }
    return most;
}
// Of a sort: what is worth keeping of a line; n: all.
static int64_t kept_of_sort(const struct sort_state *s, int64_t dim) {
    enum { SHARE = 8 }; // of more, radix sort is as fast
    const struct hlo_instr *i = s->i;
    bool tuple = shape_is_tuple(i->shape);
    int64_t read = tuple ? 0 : read_of(i, dim);
    if (s->keys.n > 1 || s->keys.v[0].part || s->inner > 1 || i->parent->root == i) return s->n;
    for (size_t u = 0; tuple && u < i->users.n; u++) {
        const struct hlo_instr *user = i->users.v[u];
        int64_t here = user->op == HLO_GET_TUPLE_ELEMENT ? read_of(user, dim) : s->n;
        if (here > read) read = here;
    }
    return read <= s->n / SHARE ? read : s->n;
}
// Which lines are sorted, and what for.
static void rooms_of(struct sort_state *s) {
    enum { PARTED = 256, PARTED_WIDE = 1024 }; // of more, sorting by digits is as fast
    s->parted = s->kept <= (s->wide ? PARTED_WIDE : PARTED);
    int64_t room = s->kept <= IN_ORDER ? s->kept : (s->parted ? 3 : 2) * s->kept + ROOM;
    s->some = s->kept < s->n && (s->i->op == HLO_TOPK || s->keys.n == 1) &&
              (room < s->n || (s->parted && s->kept <= s->n / 4 * 3));
    s->room = room < s->n && s->some ? room : s->n;
}
static status_t sort_open(struct cpu_exe *x, struct cpu_step *step) {
    struct sort_state *s = arena_new_of(&x->arena, struct sort_state);
    const struct hlo_instr *i = step->plan->instr;
    const struct shape *shape = i->operands[0]->shape;
    *s = (struct sort_state){
        .i = i, .inner = 1, .threads = cpu_threads(), .bits = cpu_target()->vector_bits};
    if (!keys_of(i, &s->keys)) return st_internal("accepted a sort that does not match");
    int64_t dim = line_dim(i);
    s->n = s->kept = shape->dims[dim];
    for (int d = (int)dim + 1; d < shape->rank; d++)
        s->inner *= shape->dims[d];
    s->lines = shape_elements(shape) / s->n;
    s->kept = i->op == HLO_TOPK ? HLO_ATTR(i, topk)->k : kept_of_sort(s, dim);
    s->line = i->op == HLO_TOPK ? s->kept : s->n;
    for (int k = 0; k < s->keys.n; k++)
        s->wide |= dtype_bits(s->keys.v[k].type) > 32;
    rooms_of(s);
    int64_t each = s->wide ? (int64_t)sizeof(pair_64) : (int64_t)sizeof(pair_32);
    s->bytes = (2 * s->room * each + 63) / 64 * 64;
    if (s->bytes * s->threads > x->scratch_bytes) x->scratch_bytes = s->bytes * s->threads;
    step->detail = "sort";
    step->alone = s->lines < 2;
    step->state = s;
    return ST_OK;
}
struct sort_call {
    const struct sort_state *s;
    void *const *bufs;
    char *scratch;
};
static void part(void *ctx, int64_t begin, int64_t end, int thread) {
    const struct sort_call *c = ctx;
    for (int64_t line = begin; line < end; line++)
        one_line(c->s, c->bufs, line, c->scratch + thread * c->s->bytes);
}
static status_t sort_run(struct cpu_exe *x, struct cpu_step *step, void **bufs) {
    const struct sort_state *s = step->state;
    struct sort_call c = {s, bufs, x->scratch};
    cpu_parallel(part, &c, s->lines, 2000 / s->n + 1);
    return ST_OK;
}
const struct cpu_impl cpu_impl_sort = {"sort",   sort_accepts, sort_open, NULL,
                                       sort_run, NULL,         NULL,      NULL};
