// SPDX-License-Identifier: Apache-2.0
// trees_bits: sums over trees of at most 64 leaves, eight or sixteen rows at once. All comparisons
// of a tree are made, none depends on another: a vector has one feature of the rows of a block. A
// row has a bit for each leaf, in order; a comparison that does not hold clears the leaves on its
// first side; the first bit that is left is the leaf that a walk would come to. So a node costs
// three instructions for all rows, where a step of a walk waits for its memory.
// >= and > are < and <= with sides swapped, where NaN goes the other way; != is == swapped.
// Sums are those of the walks: by tree in order. Does not: other trees, one or two rows
// (cpu_trees.c), leaves whose values go to several targets, processors without AVX2.
#include "devices/cpu/routines/cpu_trees_bits.h"

#include <immintrin.h>

enum { MAX_LEAVES = 64, LEQ, LEQ_NAN, LT, LT_NAN, EQ, EQ_NAN, LISTS, MAX_SCRATCH = 1 << 19 };
enum { FIRST_LIST = LEQ, N_LISTS = LISTS - FIRST_LIST };
struct bits_tree {
    int32_t count[N_LISTS]; // comparisons of each kind, one list behind the other
    int32_t target, leaves; // leaves: how many
};
struct trees_bits {
    enum dtype type;
    int64_t trees, slots, targets, n, n_values;
    struct bits_tree *tree;
    void *split, *value; // by node; by leaf
    uint64_t *keep;      // by node: the bits of leaves that stay where it does not hold
    int32_t *slot;       // by node: its feature's place in a block
    int32_t *feature;    // of a slot
    char *scratch;       // of each thread: [slots + targets][64 bytes]
    size_t scratch_bytes;
    void (*sums)(const struct trees_bits *b, const void *x, void *acc);
};

// ---- sums of one block. x: [slots][lanes]; acc: [targets][lanes], zero before.

typedef double v8d __attribute__((vector_size(64)));
typedef double v4d __attribute__((vector_size(32)));
typedef int64_t v8l __attribute__((vector_size(64)));
typedef int64_t v4l __attribute__((vector_size(32)));
typedef float v16f __attribute__((vector_size(64)));
typedef float v8f __attribute__((vector_size(32)));
typedef int32_t v16i __attribute__((vector_size(64)));
typedef int32_t v8i __attribute__((vector_size(32)));

#define COMMA  ,
#define AVX2   __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512cd")))

#define EACH(NODE, LIST, HOLDS)                                                                    \
    for (const int32_t *last = slot + t->count[LIST - FIRST_LIST]; slot < last;                    \
         slot++, split++, keep++)                                                                  \
        NODE(HOLDS)
#define ALL_LISTS(NODE)                                                                            \
    EACH(NODE, LEQ, v <= *split)                                                                   \
    EACH(NODE, LEQ_NAN, ~(v > *split))                                                             \
    EACH(NODE, LT, v < *split)                                                                     \
    EACH(NODE, LT_NAN, ~(v >= *split))                                                             \
    EACH(NODE, EQ, v == *split)                                                                    \
    EACH(NODE, EQ_NAN, (v == *split) | (v != v))
// BITS: the words of a block, all ones before a tree.
#define SUMS(NAME, TARGET, TYPE, VECTOR, LANES, BITS, NODE, ADD)                                   \
    TARGET static void NAME(const struct trees_bits *b, const void *block, void *acc) {            \
        const VECTOR *x = block;                                                                   \
        const int32_t *slot = b->slot;                                                             \
        const TYPE *split = b->split, *value = b->value;                                           \
        const uint64_t *keep = b->keep;                                                            \
        for (const struct bits_tree *t = b->tree; t < b->tree + b->trees; t++) {                   \
            BITS;                                                                                  \
            ALL_LISTS(NODE)                                                                        \
            TYPE *to = (TYPE *)acc + LANES * t->target;                                            \
            ADD value += t->leaves;                                                                \
        }                                                                                          \
    }

// Doubles: a lane has its 64 bits.
#define NODE64_512(HOLDS)                                                                          \
    {                                                                                              \
        v8d v = x[*slot];                                                                          \
        bits &= (HOLDS) | (int64_t)*keep;                                                          \
    }
#define ADD64_512                                                                                  \
    _mm512_store_pd(to, _mm512_add_pd(_mm512_load_pd(to),                                          \
                                      _mm512_i64gather_pd(_mm512_lzcnt_epi64((__m512i)bits),       \
                                                          value, 8)));
#define NODE64_256(HOLDS)                                                                          \
    for (int half = 0; half < 2; half++) {                                                         \
        v4d v = x[2 * *slot + half];                                                               \
        bits[half] &= (HOLDS) | (int64_t)*keep;                                                    \
    }
#define ADD64_256                                                                                  \
    for (int k = 0; k < 8; k++)                                                                    \
        to[k] += value[__builtin_clzll((uint64_t)bits[k / 4][k % 4])];
SUMS(sums64_avx512, AVX512, double, v8d, 8, v8l bits = (v8l){0} - 1, NODE64_512, ADD64_512)
SUMS(sums64_avx2, AVX2, double, v4d, 8, v4l bits[2] = {(v4l){0} - 1 COMMA (v4l){0} - 1},
     NODE64_256, ADD64_256)

// Floats: 32 bits a lane, twice.
#define NODE32_512(HOLDS)                                                                          \
    {                                                                                              \
        v16f v = x[*slot];                                                                         \
        v16i holds = HOLDS;                                                                        \
        high &= holds | (int32_t)(*keep >> 32);                                                    \
        low &= holds | (int32_t)(uint32_t)*keep;                                                   \
    }
#define ADD32_512                                                                                  \
    __m512i at = _mm512_lzcnt_epi32((__m512i)high);                                                \
    at = _mm512_mask_add_epi32(at, _mm512_cmpeq_epi32_mask((__m512i)high, _mm512_setzero_si512()), \
                               at, _mm512_lzcnt_epi32((__m512i)low));                              \
    _mm512_store_ps(to, _mm512_add_ps(_mm512_load_ps(to), _mm512_i32gather_ps(at, value, 4)));
#define NODE32_256(HOLDS)                                                                          \
    for (int half = 0; half < 2; half++) {                                                         \
        v8f v = x[2 * *slot + half];                                                               \
        v8i holds = HOLDS;                                                                         \
        high[half] &= holds | (int32_t)(*keep >> 32);                                              \
        low[half] &= holds | (int32_t)(uint32_t)*keep;                                             \
    }
#define ADD32_256                                                                                  \
    for (int k = 0; k < 16; k++) {                                                                 \
        uint32_t h = (uint32_t)high[k / 8][k % 8];                                                 \
        to[k] += value[h ? __builtin_clz(h) : 32 + __builtin_clz((uint32_t)low[k / 8][k % 8])];    \
    }
SUMS(sums32_avx512, AVX512, float, v16f, 16, v16i high = (v16i){0} - 1 COMMA low = high,
     NODE32_512, ADD32_512)
SUMS(sums32_avx2, AVX2, float, v8f, 16, v8i ones = (v8i){0} - 1 COMMA high[2] = {ones COMMA ones}
     COMMA low[2] = {ones COMMA ones}, NODE32_256, ADD32_256)

// ---- rows

int64_t trees_bits_lanes(const struct trees_bits *b) {
    return b->type == DT_F64 ? 8 : 16;
}
int64_t trees_bits_ns(const struct trees_bits *b) {
    return b->n * 3 / 2 + b->trees * 20 + b->slots * 8;
}
#define BLOCK_OF(TYPE, LANES)                                                                      \
    {                                                                                              \
        const TYPE *from = x;                                                                      \
        TYPE *to = (TYPE *)place, *acc = to + b->slots * LANES, *out = scores;                     \
        for (int k = 0; k < LANES; k++) {                                                          \
            const TYPE *row = from + (k < rows ? k : rows - 1) * features;                         \
            for (int64_t j = 0; j < b->slots; j++)                                                 \
                to[j * LANES + k] = row[b->feature[j]];                                            \
        }                                                                                          \
        memset(acc, 0, sizeof(TYPE) * LANES * (size_t)b->targets);                                 \
        b->sums(b, to, acc);                                                                       \
        for (int64_t k = 0; k < rows; k++)                                                         \
            for (int64_t j = 0; j < b->targets; j++)                                               \
                out[k * b->targets + j] = acc[j * LANES + k];                                      \
    }
void trees_bits_block(const struct trees_bits *b, const void *x, int64_t features, int64_t rows,
                      void *scores, int thread) {
    char *place = b->scratch + b->scratch_bytes * (size_t)thread;
    if (b->type == DT_F64)
        BLOCK_OF(double, 8)
    else
        BLOCK_OF(float, 16)
}

// ---- making it

struct build {
    struct trees_bits *b;
    const struct trees *t;
    int64_t max_nodes, max_values, first_value;
    int32_t *slot_of;             // by feature, -1 = none yet
    int32_t node[MAX_LEAVES], from[MAX_LEAVES], to[MAX_LEAVES]; // of a tree: leaves cleared
    int n, target;
};
static void put(void *p, enum dtype t, int64_t k, double v) {
    if (t == DT_F64)
        ((double *)p)[k] = v;
    else
        ((float *)p)[k] = (float)v;
}
static int list_of(int kind) {
    bool nan = (kind & TREE_MISSING) != 0;
    switch (kind & 7) {
    case TREE_LEQ:
        return nan ? LEQ_NAN : LEQ;
    case TREE_LT:
        return nan ? LT_NAN : LT;
    case TREE_GTE:
        return nan ? LT : LT_NAN;
    case TREE_GT:
        return nan ? LEQ : LEQ_NAN;
    case TREE_EQ:
        return nan ? EQ_NAN : EQ;
    default:
        return EQ;
    }
}
static bool put_leaf(struct build *u, const int32_t *leaf) {
    const struct trees *t = u->t;
    double value = 0;
    if (u->b->n_values == u->max_values) return false;
    for (int64_t c = 0; c < t->width; c++) {
        double v = tree_number(t->values, t->type, leaf[TREE_YES] * t->width + c);
        int target = leaf[TREE_FEATURE] + (int)c;
        if (v == 0) continue;
        if (u->target >= 0 && u->target != target) return false;
        u->target = target;
        value = v;
    }
    put(u->b->value, t->type, u->b->n_values++, value);
    return true;
}
// Leaves below `at`, which is at `depth`; 0 when they are too many.
static int gather(struct build *u, int32_t at, int first, int depth) {
    const int32_t *n = u->t->node[at];
    if (first >= MAX_LEAVES || depth >= MAX_LEAVES) return 0;
    if ((n[TREE_KIND] & 7) == TREE_LEAF) return put_leaf(u, n) ? 1 : 0;
    int mode = n[TREE_KIND] & 7, swap = mode == TREE_GTE || mode == TREE_GT || mode == TREE_NEQ;
    int me = u->n++, yes, no;
    if (me >= MAX_LEAVES - 1) return 0;
    yes = gather(u, n[swap ? TREE_NO : TREE_YES], first, depth + 1);
    if (!yes) return 0;
    u->node[me] = at, u->from[me] = first, u->to[me] = first + yes;
    no = gather(u, n[swap ? TREE_YES : TREE_NO], first + yes, depth + 1);
    return no ? yes + no : 0;
}
static bool add_tree(struct build *u, int32_t root, struct bits_tree *tree) {
    struct trees_bits *b = u->b;
    u->n = 0, u->target = -1;
    tree->leaves = gather(u, root, 0, 0);
    if (!tree->leaves || u->n > u->max_nodes - b->n) return false;
    tree->target = u->target < 0 ? 0 : u->target;
    for (int list = FIRST_LIST; list < LISTS; list++)
        for (int k = 0; k < u->n; k++) {
            const int32_t *n = u->t->node[u->node[k]];
            if (list_of(n[TREE_KIND]) != list) continue;
            int32_t *slot = &u->slot_of[n[TREE_FEATURE]];
            if (*slot < 0) b->feature[*slot = (int32_t)b->slots++] = n[TREE_FEATURE];
            b->keep[b->n] = ~(~UINT64_C(0) >> u->from[k] & ~(~UINT64_C(0) >> u->to[k]));
            b->slot[b->n] = *slot;
            put(b->split, b->type, b->n++, tree_number(u->t->split, b->type, u->node[k]));
            tree->count[list - FIRST_LIST]++;
        }
    return true;
}
static void choose(struct trees_bits *b) {
    bool wide = cpu_target()->vector_bits == 512;
    if (b->type == DT_F64)
        b->sums = wide ? sums64_avx512 : sums64_avx2;
    else
        b->sums = wide ? sums32_avx512 : sums32_avx2;
}
struct trees_bits *trees_bits_new(struct arena *a, struct arena *scratch, const struct trees *t) {
    // No more nodes than the table has: those that trees share are there once for each.
    struct build u = {.t = t, .max_nodes = t->nodes, .max_values = t->nodes};
    if (t->how != HLO_ADD || t->targets > MAX_SCRATCH / 64 || cpu_target()->vector_bits < 256)
        return NULL;
    int64_t size = dtype_size(t->type);
    struct trees_bits *b = arena_new_of(a, struct trees_bits);
    *b = (struct trees_bits){.type = t->type, .trees = t->roots, .targets = t->targets};
    b->tree = arena_zarray(a, struct bits_tree, t->roots + 1);
    b->split = arena_alloc(a, (size_t)((t->nodes + 1) * size));
    b->value = arena_alloc(a, (size_t)((t->nodes + 1) * size));
    b->keep = arena_array(a, uint64_t, t->nodes + 1);
    b->slot = arena_array(a, int32_t, t->nodes + 1);
    b->feature = arena_array(a, int32_t, t->features + 1);
    u.b = b;
    u.slot_of = arena_array(scratch, int32_t, t->features + 1);
    memset(u.slot_of, 255, sizeof *u.slot_of * (size_t)t->features);
    for (int64_t k = 0; k < t->roots; k++)
        if (!add_tree(&u, t->root[k], &b->tree[k])) return NULL;
    b->scratch_bytes = (size_t)(b->slots + b->targets) * 64;
    if (b->scratch_bytes > MAX_SCRATCH) return NULL;
    b->scratch = arena_alloc_aligned(a, b->scratch_bytes * (size_t)cpu_threads() + 64, 64);
    choose(b);
    return b;
}
