// SPDX-License-Identifier: Apache-2.0
// table: a table of 256 bytes for each byte (compiler/passes/fusion/tables.c makes such gathers).
// With AVX-512 VBMI the table lies in four registers and 64 bytes take two permutations; with AVX2
// 32 bytes take a shuffle in each sixteenth of the table.
#include <immintrin.h>

#include "compiler/passes/fusion/library.h"
#include "devices/cpu/cpu.h"

enum { UNIT = 4096 }; // bytes that a thread takes at least
#define VBMI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#define AVX2 __attribute__((target("avx2")))

typedef void (*look_up_fn)(const uint8_t *table, const uint8_t *x, uint8_t *out, int64_t n);
struct table_state {
    look_up_fn look_up;
    int64_t bytes, units, grain;
};

static void one_by_one(const uint8_t *table, const uint8_t *x, uint8_t *out, int64_t n) {
    for (int64_t k = 0; k < n; k++)
        out[k] = table[x[k]];
}
VBMI static void by_permutes(const uint8_t *table, const uint8_t *x, uint8_t *out, int64_t n) {
    __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64),
            t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
    for (int64_t k = 0; k < n; k += 64) {
        __mmask64 in = n - k >= 64 ? ~0ull : (1ull << (n - k)) - 1;
        __m512i v = _mm512_maskz_loadu_epi8(in, x + k);
        __m512i low = _mm512_permutex2var_epi8(t0, v, t1); // bits 0 to 6
        __m512i high = _mm512_permutex2var_epi8(t2, v, t3);
        _mm512_mask_storeu_epi8(out + k, in,
                                _mm512_mask_blend_epi8(_mm512_movepi8_mask(v), low, high));
    }
}

// The low half of a table for bytes below 128, zeros for others: t[k] is what sixteenth k differs
// from the one before by, and a shuffle gives 0 where bit 7 is set. So of byte v those up to v / 16
// join; the saturating difference leaves the others below zero.
AVX2 static inline __m256i half_of(const __m256i *t, __m256i v) {
    __m256i r = _mm256_shuffle_epi8(t[0], v);
    for (int k = 1; k < 8; k++) {
        v = _mm256_subs_epi8(v, _mm256_set1_epi8(16));
        r = _mm256_xor_si256(r, _mm256_shuffle_epi8(t[k], v));
    }
    return r;
}
AVX2 static void by_shuffles(const uint8_t *table, const uint8_t *x, uint8_t *out, int64_t n) {
    const __m256i high = _mm256_set1_epi8((char)0x80);
    __m256i t[16];
    int64_t k = 0;
    for (int s = 15; s >= 0; s--) {
        t[s] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(table + 16 * s)));
        if (s % 8 != 7) t[s + 1] = _mm256_xor_si256(t[s + 1], t[s]);
    }
    for (; k + 32 <= n; k += 32) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(x + k));
        __m256i r = _mm256_or_si256(half_of(t, v), half_of(t + 8, _mm256_xor_si256(v, high)));
        _mm256_storeu_si256((__m256i *)(out + k), r);
    }
    one_by_one(table, x + k, out + k, n - k);
}

// Operand and result lie the same way.
bool cpu_table_accepts(const struct hlo_instr *i) {
    int block;
    if (!lib_table(i)) return false;
    const struct shape *x = i->operands[1]->shape;
    return layout_equal(x->layout, i->shape->layout, x->rank) &&
           (layout_is_default(x->layout, x->rank) ||
            lib_form_of(x->layout, x->rank, &block) == FORM_LAST);
}
static bool table_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                          const char **why) {
    *why = "not a table of bytes";
    return cpu_table_accepts(i);
}
static status_t table_open(struct cpu_exe *x, struct cpu_step *s) {
    struct table_state *t = arena_new_of(&x->arena, struct table_state);
    bool fast = cpu_target()->vector_bits == 512 && __builtin_cpu_supports("avx512vbmi"),
         avx2 = !fast && cpu_target()->vector_bits >= 256;
    t->look_up = fast ? by_permutes : avx2 ? by_shuffles : one_by_one;
    t->bytes = shape_elements(s->plan->instr->shape);
    t->units = ceil_div(t->bytes, UNIT);
    t->grain = fast ? 100 : avx2 ? 25 : 10; // 20 us
    s->alone = t->units < 2 * t->grain;
    s->apart = true;
    s->detail = fast ? "table:vbmi" : avx2 ? "table:avx2" : "table";
    s->state = t;
    return ST_OK;
}
struct table_call {
    const struct table_state *t;
    void **bufs;
};
static void part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct table_call *c = ctx;
    int64_t to = end * UNIT < c->t->bytes ? end * UNIT : c->t->bytes;
    begin *= UNIT;
    c->t->look_up(c->bufs[0], (const uint8_t *)c->bufs[1] + begin, (uint8_t *)c->bufs[2] + begin,
                  to - begin);
}
static status_t table_run(UNUSED struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct table_state *t = s->state;
    cpu_parallel(part, &(struct table_call){t, bufs}, t->units, t->grain);
    return ST_OK;
}
const struct cpu_impl cpu_impl_table = {"table",   table_accepts, table_open, NULL,
                                        table_run, NULL,          NULL,       NULL};
