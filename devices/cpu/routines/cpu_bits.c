// SPDX-License-Identifier: Apache-2.0
// bits: the call of compiler/calls/bits.h, products of a few rows with weights of 2, 4 or 8 bits,
// read as they are: a decoder's step runs at the speed of the memory it reads, and f32 would be 4
// to 16 times as much. Panels of 64 columns hold, word by word, 32 bits of each column; a word is
// taken apart in registers. A block's sum meets its scale once:
//     y += scale * (sum of x q - zero * sum of x)
// An x that is not finite is multiplied by each weight, as many rows are.
// For many rows a part of a panel at a time is unpacked to f32, in the second cache, and multiplied
// by all of them: unpacking is paid once, and memory never holds the matrix in f32.
// Bound weights are packed at PREPARE, others at each run.
#include "devices/cpu/routines/cpu_bits.h"

#include "devices/cpu/cpu.h"
#include "devices/cpu/routines/cpu_thin.h"

enum {
    PANEL = BITS_PANEL,
    LANES = 16,
    VECTORS = PANEL / LANES,
    GROUP = BITS_GROUP,
    WORD = BITS_WORD
};
enum {
    FEW_ROWS = 16,   // more are worth unpacking
    UNPACKED = 256,  // of k at a time
    SPREAD = 1 << 17 // of x, 20 us
};
typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(64)));
#define UNROLL _Pragma("GCC unroll 16")

// ---- a panel

// Number k of each word, less the middle of its range: pack leaves it as a signed one, so that what
// is symmetric needs no zero, and no sum of x cancels.
static inline __attribute__((always_inline)) void signed_of(const words *word, int k, int bits,
                                                            vec *out) {
    ints q = (ints)(*word << (WORD - (k + 1) * bits));
    *out = __builtin_convertvector(q >> (WORD - bits), vec);
}
// The same by the lower 4 bits of a lane, of numbers of up to 4 bits.
static inline __attribute__((always_inline)) void signed_table(int bits, vec *out) {
    for (int k = 0; k < LANES; k++)
        (*out)[k] = (float)(((k & ((1 << bits) - 1)) ^ 1 << (bits - 1)) - (1 << (bits - 1)));
}
// scales, zeros: of the panel's columns; stride 0 keeps to one zero for all.
static inline __attribute__((always_inline)) void
panel(const struct bits_state *s, const struct bits_rows *x, const uint32_t *w, const float *scales,
      const float *zeros, int64_t stride, float *out, int rows, int bits, bool look_up) {
    vec table, total[GROUP][VECTORS];
    signed_table(bits, &table);
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int v = 0; v < VECTORS; v++)
        total[r][v] = (vec){0};
    for (int64_t block = 0; block < s->b.blocks; block++) {
        vec sum[GROUP][VECTORS];
        UNROLL
        for (int r = 0; r < rows; r++)
            UNROLL
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = (vec){0};
        const float *at = (const float *)x->x + block * s->b.block;
        for (int64_t n = 0; n < s->words; n++, w += PANEL, at += WORD / bits)
            UNROLL
        for (int v = 0; v < VECTORS; v++) {
            words word = *(const words *)(w + v * LANES);
            UNROLL
            for (int k = 0; k < WORD / bits; k++) {
                vec value;
                signed_of(&word, k, bits, &value);
                if (look_up) value = __builtin_shuffle(table, (ints)(word >> (k * bits)));
                UNROLL
                for (int r = 0; r < rows; r++)
                    sum[r][v] += at[r * s->wide + k] * value;
            }
        }
        UNROLL
        for (int v = 0; v < VECTORS; v++) {
            vec scale = *(const vec *)(scales + block * s->b.n + v * LANES);
            vec zero = (vec){0} + zeros[0];
            if (stride) zero = *(const vec *)(zeros + block * stride + v * LANES);
            zero -= (float)(1 << (bits - 1));
            UNROLL
            for (int r = 0; r < rows; r++)
                total[r][v] += scale * (sum[r][v] - zero * x->sums[r * s->b.blocks + block]);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int v = 0; v < VECTORS; v++)
        *(vec *)(out + r * PANEL + v * LANES) = total[r][v];
}
// scales and zeros: of the panel's columns [blocks, PANEL].
static inline __attribute__((always_inline)) void
unpack(const struct bits_state *s, const uint32_t *w, const float *scales, const float *zeros,
       int64_t from, int64_t to, float *out, int bits, bool look_up) {
    vec table;
    signed_table(bits, &table);
    for (int64_t n = from, block = from / s->words, end; n < to; block++) {
        end = (block + 1) * s->words < to ? (block + 1) * s->words : to;
        for (; n < end; n++, out += WORD / bits * PANEL)
            UNROLL
        for (int v = 0; v < VECTORS; v++) {
            words word = *(const words *)(w + n * PANEL + v * LANES);
            vec scale = *(const vec *)(scales + block * PANEL + v * LANES);
            vec zero = *(const vec *)(zeros + block * PANEL + v * LANES);
            UNROLL
            for (int k = 0; k < WORD / bits; k++) {
                vec value;
                signed_of(&word, k, bits, &value);
                if (look_up) value = __builtin_shuffle(table, (ints)(word >> (k * bits)));
                *(vec *)(out + k * PANEL + v * LANES) = (value - zero) * scale;
            }
        }
    }
}
enum { LOOK_UP_avx512 = 1, LOOK_UP_avx2 = 0, LOOK_UP_plain = 0 }; // one instruction there
#define PANEL_FN(ISA, TARGET, ROWS, BITS)                                                          \
    static TARGET void panel_##ISA##_##ROWS##_##BITS(                                              \
        const struct bits_state *s, const struct bits_rows *x, const uint32_t *w,                  \
        const float *scales, const float *zeros, int64_t stride, float *out) {                     \
        panel(s, x, w, scales, zeros, stride, out, ROWS, BITS, LOOK_UP_##ISA &&BITS <= 4);         \
    }
#define UNPACK_FN(ISA, TARGET, BITS)                                                               \
    static TARGET void unpack_##ISA##_##BITS(const struct bits_state *s, const uint32_t *w,        \
                                             const float *scales, const float *zeros,              \
                                             int64_t from, int64_t to, float *out) {               \
        unpack(s, w, scales, zeros, from, to, out, BITS, LOOK_UP_##ISA &&BITS <= 4);               \
    }
#define PANEL_FNS(ISA, TARGET, BITS)                                                               \
    UNPACK_FN(ISA, TARGET, BITS)                                                                   \
    PANEL_FN(ISA, TARGET, 1, BITS)                                                                 \
    PANEL_FN(ISA, TARGET, 2, BITS)                                                                 \
    PANEL_FN(ISA, TARGET, 3, BITS) PANEL_FN(ISA, TARGET, 4, BITS)
#define PANELS(ISA, TARGET)                                                                        \
    PANEL_FNS(ISA, TARGET, 2) PANEL_FNS(ISA, TARGET, 4) PANEL_FNS(ISA, TARGET, 8)
// Registers of 128 bits hold no more than a row: several are taken one by one.
#define ROW_BY_ROW(ROWS, BITS)                                                                     \
    static void panel_plain_##ROWS##_##BITS(const struct bits_state *s, const struct bits_rows *x, \
                                            const uint32_t *w, const float *scales,                \
                                            const float *zeros, int64_t stride, float *out) {      \
        for (int r = 0; r < ROWS; r++) {                                                           \
            struct bits_rows one = {(const float *)x->x + r * s->wide, x->sums + r * s->b.blocks,  \
                                    NULL};                                                         \
            panel_plain_1_##BITS(s, &one, w, scales, zeros, stride, out + r * PANEL);              \
        }                                                                                          \
    }
#define PLAIN_PANELS(BITS)                                                                         \
    UNPACK_FN(plain, , BITS)                                                                       \
    PANEL_FN(plain, , 1, BITS)                                                                     \
    ROW_BY_ROW(2, BITS) ROW_BY_ROW(3, BITS) ROW_BY_ROW(4, BITS)
#define AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma")))
#define AVX2   __attribute__((target("avx2,fma")))
PANELS(avx512, AVX512)
PANELS(avx2, AVX2)
PLAIN_PANELS(2)
PLAIN_PANELS(4)
PLAIN_PANELS(8)

static void choose(struct bits_state *s, int vector_bits) {
#define ROW(ISA, BITS)                                                                             \
    {panel_##ISA##_1_##BITS, panel_##ISA##_2_##BITS, panel_##ISA##_3_##BITS, panel_##ISA##_4_##BITS}
#define ROWS(ISA) {ROW(ISA, 2), ROW(ISA, 4), ROW(ISA, 8)}
    static const bits_panel_fn all[3][3][GROUP] = {ROWS(plain), ROWS(avx2), ROWS(avx512)};
#define UNPACKS(ISA) {unpack_##ISA##_2, unpack_##ISA##_4, unpack_##ISA##_8}
    static void (*const unpacks[3][3])(const struct bits_state *, const uint32_t *, const float *,
                                       const float *, int64_t, int64_t,
                                       float *) = {UNPACKS(plain), UNPACKS(avx2), UNPACKS(avx512)};
    int isa = vector_bits == 512 ? 2 : vector_bits == 256 ? 1 : 0, bits = s->b.bits / 4;
    memcpy(s->panel, all[isa][bits], sizeof s->panel);
    for (int r = 0; r < GROUP && s->x_bytes == 1; r++)
        s->panel[r] = cpu_bits8_panel(s->b.bits, r + 1);
    s->unpack = unpacks[isa][bits];
    s->vector_bits = vector_bits;
}

// ---- running

static bool is_many(const struct bits_state *s) {
    return s->b.rows > FEW_ROWS && s->x_bytes != 1;
}
static int64_t panels(const struct bits_state *s) {
    return (s->b.n + PANEL - 1) / PANEL;
}
static int64_t panel_words(const struct bits_state *s) {
    return s->b.blocks * s->words * PANEL;
}
static int64_t pack_bytes(const struct bits_state *s) {
    return panels(s) * panel_words(s) * 4;
}
static void pack(const struct bits_state *s, const uint8_t *from, uint32_t *to) {
    int64_t column = s->b.blocks * s->words; // words
    const uint32_t middles = bits_middles(s->b.bits);
    memset(to, 0, (size_t)pack_bytes(s));
    for (int64_t c = 0; c < s->b.n; c++) {
        uint32_t *at = to + c / PANEL * panel_words(s) + c % PANEL;
        for (int64_t n = 0; n < column; n++) {
            memcpy(at + n * PANEL, from + (c * column + n) * 4, 4);
            at[n * PANEL] ^= middles;
        }
    }
}
struct bits_run {
    const struct bits_state *s;
    const float *x; // of many rows
    struct bits_rows few;
    const float *scales, *zeros;
    const uint32_t *w;
    float *out;
};
static struct bits_rows rows_of(const struct bits_run *c, int64_t row, int64_t block) {
    const struct bits_state *s = c->s;
    int64_t x = (row * s->wide + block * s->b.block) * s->x_bytes, at = row * s->b.blocks + block;
    return (struct bits_rows){(const char *)c->few.x + x, c->few.sums + at,
                              c->few.steps ? c->few.steps + at : NULL};
}
// The last panel may reach beyond the columns: its parameters are laid out apart, block by block.
static void one_panel(const struct bits_run *c, int64_t u, int64_t row, int rows, float *out) {
    const struct bits_state *s = c->s;
    int64_t col = u * PANEL, n = s->b.n, stride = s->b.one_zero ? 0 : n;
    struct bits_rows x = rows_of(c, row, 0);
    const uint32_t *w = c->w + u * panel_words(s);
    if (col + PANEL <= n) {
        s->panel[rows - 1](s, &x, w, c->scales + col, c->zeros + (s->b.one_zero ? 0 : col), stride,
                           out);
        return;
    }
    struct bits_state one = *s;
    float scales[PANEL] = {0}, zeros[PANEL] = {0}, part[GROUP * PANEL], sums[GROUP], steps[GROUP];
    one.b.blocks = 1;
    memset(out, 0, sizeof part);
    for (int64_t b = 0; b < s->b.blocks; b++) {
        memcpy(scales, c->scales + b * n + col, (size_t)(n - col) * sizeof *scales);
        if (!s->b.one_zero) memcpy(zeros, c->zeros + b * n + col, (size_t)(n - col) * 4);
        x = rows_of(c, row, b);
        for (int r = 0; r < rows; r++) {
            sums[r] = x.sums[r * s->b.blocks];
            steps[r] = s->x_bytes == 1 ? x.steps[r * s->b.blocks] : 1;
        }
        x.sums = sums;
        x.steps = steps;
        s->panel[rows - 1](&one, &x, w + b * s->words * PANEL, scales,
                           s->b.one_zero ? c->zeros : zeros, stride, part);
        for (int k = 0; k < rows * PANEL; k++)
            out[k] += part[k];
    }
}
static void part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct bits_run *c = ctx;
    const struct bits_state *s = c->s;
    float out[GROUP * PANEL] __attribute__((aligned(64)));
    for (int64_t u = begin; u < end; u++)
        for (int64_t row = 0; row < s->b.rows; row += GROUP) {
            int rows = (int)(s->b.rows - row < GROUP ? s->b.rows - row : GROUP);
            int64_t col = u * PANEL, n = s->b.n - col < PANEL ? s->b.n - col : PANEL;
            one_panel(c, u, row, rows, out);
            for (int r = 0; r < rows; r++)
                memcpy(c->out + (row + r) * s->b.n + col, out + r * PANEL, (size_t)n * 4);
        }
}
// The scales and zeros of the columns [col, col + n) for blocks [from, to), by panels.
static void put_parameters(const struct bits_run *c, int64_t col, int64_t n, int64_t from,
                           int64_t to, float *scales, float *zeros) {
    for (int64_t b = from; b < to; b++, scales += PANEL, zeros += PANEL) {
        const float *zero = c->zeros + (c->s->b.one_zero ? 0 : b * c->s->b.n + col);
        memcpy(scales, c->scales + b * c->s->b.n + col, (size_t)n * sizeof *scales);
        for (int64_t k = 0; k < n; k++)
            zeros[k] = zero[c->s->b.one_zero ? 0 : k] - (float)(1 << (c->s->b.bits - 1));
    }
}
// One panel for all rows.
static void panel_of_many(const struct bits_run *c, int64_t u) {
    const struct bits_state *s = c->s;
    const int64_t col = u * PANEL, n = s->b.n - col < PANEL ? s->b.n - col : PANEL;
    const int64_t each = WORD / s->b.bits, most = UNPACKED / each;
    const int64_t all = (s->b.k + each - 1) / each; // words that hold any of k
    float w[UNPACKED * PANEL] __attribute__((aligned(64)));
    // A word meets one block.
    float scales[UNPACKED / 4 * PANEL], zeros[UNPACKED / 4 * PANEL];
    for (int64_t r = 0; r < s->b.rows; r++)
        memset(c->out + r * s->b.n + col, 0, (size_t)n * sizeof *c->out);
    for (int64_t from = 0; from < all; from += most) {
        int64_t to = from + most < all ? from + most : all, k = from * each;
        int64_t block = from / s->words;
        put_parameters(c, col, n, block, (to - 1) / s->words + 1, scales, zeros);
        s->unpack(s, c->w + u * panel_words(s) + block * s->words * PANEL, scales, zeros,
                  from - block * s->words, to - block * s->words, w);
        struct thin_product p = {.x = c->x + k,
                                 .w = w,
                                 .out = c->out + col,
                                 .x_stride = s->b.k,
                                 .w_stride = PANEL,
                                 .out_stride = s->b.n,
                                 .k = to * each < s->b.k ? (to - from) * each : s->b.k - k,
                                 .cols = n,
                                 .form = THIN_LINES};
        cpu_thin_product(s->vector_bits, p, s->b.rows);
    }
}
static void part_of_many(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    for (int64_t u = begin; u < end; u++)
        panel_of_many(ctx, u);
}
// Rows of x to whole blocks, and the sums of their blocks.
struct bits_spread {
    const struct bits_state *s;
    const float *from;
    char *x;
    float *sums, *steps;
};
static void spread_part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct bits_spread *c = ctx;
    const struct bits_state *s = c->s;
    for (int64_t r = begin; r < end; r++) {
        const float *from = c->from + r * s->b.k;
        char *x = c->x + r * s->wide * s->x_bytes;
        float *sums = c->sums + r * s->b.blocks, *to = (float *)(void *)x;
        if (s->x_bytes == 1) {
            if (!cpu_bits8_round(s, from, (int8_t *)x, sums, c->steps + r * s->b.blocks))
                sums[0] = NAN; // other_rows takes it
            continue;
        }
        memcpy(to, from, (size_t)s->b.k * sizeof *to);
        memset(to + s->b.k, 0, (size_t)(s->wide - s->b.k) * sizeof *to);
        for (int64_t b = 0; b < s->b.blocks; b++) {
            sums[b] = 0;
            for (int64_t k = 0; k < s->b.block; k++)
                sums[b] += to[b * s->b.block + k];
        }
    }
}
static int64_t spread_bytes(const struct bits_state *s) {
    return s->b.rows * (s->wide * s->x_bytes + s->b.blocks * (s->x_bytes == 1 ? 8 : 4));
}
static struct bits_rows spread_x(const struct bits_state *s, const float *from, void *scratch) {
    struct bits_spread c = {.s = s, .from = from, .x = scratch};
    c.sums = (float *)(void *)(c.x + s->b.rows * s->wide * s->x_bytes);
    c.steps = s->x_bytes == 1 ? c.sums + s->b.rows * s->b.blocks : NULL;
    cpu_parallel(spread_part, &c, s->b.rows, SPREAD / s->wide + 1);
    return (struct bits_rows){c.x, c.sums, c.steps};
}
static bool all_finite(const float *v, int64_t n) {
    float sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += v[k] * 0;
    return sum == 0;
}
// Rows whose sums say nothing, again: an infinity less an infinity is none of their products.
static void other_rows(struct bits_run c, const float *x) {
    struct bits_state one = *c.s;
    one.b.rows = 1;
    for (int64_t r = 0; r < c.s->b.rows; r++) {
        if (all_finite(c.few.sums + r * one.b.blocks, one.b.blocks)) continue;
        struct bits_run row = c;
        row.s = &one;
        row.x = x + r * one.b.k;
        row.out = c.out + r * one.b.n;
        cpu_parallel(part_of_many, &row, one.units, one.grain);
    }
}
static status_t bits_run(struct cpu_exe *x, struct cpu_step *step, void **bufs) {
    const struct bits_state *s = step->state;
    struct bits_run c = {.s = s,
                         .x = bufs[BITS_X],
                         .w = bufs[BITS_Q],
                         .scales = bufs[BITS_SCALES],
                         .zeros = bufs[BITS_ZEROS],
                         .out = bufs[step->plan->n_in]};
    if (step->packed_in < 0) {
        uint32_t *packed = (uint32_t *)(void *)((char *)x->scratch + s->scratch_x);
        pack(s, bufs[BITS_Q], packed);
        c.w = packed;
    }
    if (is_many(s)) {
        cpu_parallel(part_of_many, &c, s->units, s->grain);
        return ST_OK;
    }

    c.few = spread_x(s, bufs[BITS_X], x->scratch);
    cpu_parallel(part, &c, s->units, s->grain);
    other_rows(c, bufs[BITS_X]);
    return ST_OK;
}

// ---- the implementation

static bool bits_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                         const char **why) {
    *why = "not a product with packed weights";
    return bits_is(i) && i->operands[BITS_Q]->shape->rank == 3 &&
           i->operands[BITS_Q]->shape->dims[2] % 4 == 0;
}
static status_t bits_open(struct cpu_exe *x, struct cpu_step *step) {
    struct bits_state *s = arena_new_of(&x->arena, struct bits_state);
    RETURN_IF_ERR(bits_read(&x->arena, step->plan->instr, &s->b));
    int vector_bits = cpu_target()->vector_bits;
    s->words = s->b.block * s->b.bits / WORD;
    s->wide = s->b.blocks * s->b.block;
    s->x_bytes = cpu_bits8_takes(&s->b) ? 1 : 4;
    choose(s, vector_bits);
    if (!is_many(s)) s->scratch_x = (spread_bytes(s) + 63) / 64 * 64;
    int64_t scratch = s->scratch_x;
    if (cpu_is_bound(x, step, BITS_Q)) {
        step->packed_in = BITS_Q;
        step->pack_slot = x->n_packs++;
    } else {
        scratch += pack_bytes(s);
    }
    if (scratch > x->scratch_bytes) x->scratch_bytes = scratch;
    s->units = panels(s);
    s->grain = 600000 / (s->b.k * PANEL * (s->b.rows > 4 ? s->b.rows / 2 : 2)) + 1; // 20 us
    step->flops = 2 * s->b.rows * s->b.n * s->b.k;
    step->alone = s->units < 2 * s->grain;
    step->detail = s->x_bytes == 1      ? "bits:x8:avx512"
                   : vector_bits == 512 ? "bits:avx512"
                   : vector_bits == 256 ? "bits:avx2"
                                        : "bits";
    step->state = s;
    return ST_OK;
}
static int64_t bits_pack_bytes(const struct cpu_step *step) {
    return pack_bytes(step->state);
}
static status_t bits_pack(UNUSED struct cpu_exe *x, struct cpu_step *step, const void *plain,
                          void *packed) {
    pack(step->state, plain, packed);
    return ST_OK;
}
static bool bits_same_pack(const struct cpu_step *a, const struct cpu_step *b) {
    const struct bits_state *s = a->state, *t = b->state;
    return s->b.bits == t->b.bits && s->b.n == t->b.n && s->b.blocks == t->b.blocks &&
           s->words == t->words;
}
const struct cpu_impl cpu_impl_bits = {"bits",   bits_accepts,    bits_open, NULL,
                                       bits_run, bits_pack_bytes, bits_pack, bits_same_pack};
