// SPDX-License-Identifier: Apache-2.0
// Packing for cpu_pairs.c. vpmaddubsw multiplies bytes of x, without a sign, with bytes of weights
// and sums pairs of products in 16 bits, where they saturate; they do not while the weights of a
// pair that have one sign sum to no more than 128 (255 * 128 < 2^15). Steps whose pairs are all so
// stand first in a panel; the others are multiplied in 16 bits.
#include <immintrin.h>
#include <string.h>

#include "base/span.h"
#include "devices/cpu/pairs/cpu_pairs.h"

#define TARGET __attribute__((target("avx2,fma")))
enum { MOST = 128, FLIP = 0x80, BEHIND = 15 }; // bytes that are read behind a run

// ---- weights

struct header {
    int64_t narrow;
    int32_t start[PAIRS_PANEL];
};
static int64_t order_at(void) {
    return round_up(sizeof(struct header), 64);
}
static int64_t steps_at(const struct pairs_state *t) {
    return order_at() + round_up(t->quads * (int64_t)sizeof(int32_t), 64);
}
int64_t cpu_pairs_panel_bytes(const struct pairs_state *t) {
    return steps_at(t) + t->quads * PAIRS_STEP;
}
struct pairs_panel cpu_pairs_panel(const struct pairs_state *t, const char *w, int64_t panel) {
    const char *p = w + panel * cpu_pairs_panel_bytes(t);
    const struct header *h = (const struct header *)(const void *)p;
    return (struct pairs_panel){.start = h->start,
                                .order = (const int32_t *)(const void *)(p + order_at()),
                                .steps = p + steps_at(t),
                                .narrow = h->narrow};
}

// Do the pairs of a step's columns stay within 16 bits?
static bool fits(const int8_t *step) {
    for (int c = 0; c < PAIRS_PANEL * 2; c++) {
        int x = step[2 * c], y = step[2 * c + 1];
        int above = (x > 0 ? x : 0) + (y > 0 ? y : 0), below = (x < 0 ? -x : 0) + (y < 0 ? -y : 0);
        if (above > MOST || below > MOST) return false;
    }
    return true;
}
// Bytes k.. k + 4 of each column, side by side.
static void gather(const struct pairs_state *t, const int8_t *from, int64_t k, int64_t n,
                   int8_t *to) {
    if (t->column == 1 && n >= PAIRS_PANEL) { // columns lie side by side
        __m128i r[PAIRS_QUAD];
        for (int b = 0; b < PAIRS_QUAD; b++) {
            int32_t at = t->from[k + b];
            r[b] = at < 0 ? _mm_setzero_si128()
                          : _mm_loadu_si128((const __m128i *)(const void *)(from + at));
        }
        __m128i a = _mm_unpacklo_epi8(r[0], r[1]), b = _mm_unpackhi_epi8(r[0], r[1]),
                c = _mm_unpacklo_epi8(r[2], r[3]), d = _mm_unpackhi_epi8(r[2], r[3]);
        __m128i *out = (__m128i *)(void *)to;
        _mm_storeu_si128(out, _mm_unpacklo_epi16(a, c));
        _mm_storeu_si128(out + 1, _mm_unpackhi_epi16(a, c));
        _mm_storeu_si128(out + 2, _mm_unpacklo_epi16(b, d));
        _mm_storeu_si128(out + 3, _mm_unpackhi_epi16(b, d));
        return;
    }
    for (int c = 0; c < PAIRS_PANEL; c++)
        for (int b = 0; b < PAIRS_QUAD; b++) {
            int32_t at = t->from[k + b];
            to[c * PAIRS_QUAD + b] = (int8_t)(c < n && at >= 0 ? from[c * t->column + at] : 0);
        }
}
// What is 128 too much of x in a column's sum.
static void add_start(const struct pairs_state *t, const int8_t *step, int32_t *start) {
    for (int c = 0; t->sign && c < PAIRS_PANEL; c++)
        for (int b = 0; b < PAIRS_QUAD; b++)
            start[c] -= FLIP * step[c * PAIRS_QUAD + b];
}
void cpu_pairs_pack_panel(const struct pairs_state *t, const int8_t *from, int64_t panel, char *w) {
    int64_t p = panel % t->panels, group = panel / t->panels, n = t->cols - p * PAIRS_PANEL;
    char *to = w + panel * cpu_pairs_panel_bytes(t);
    struct header *h = (struct header *)(void *)to;
    int32_t *order = (int32_t *)(void *)(to + order_at());
    int8_t *step = (int8_t *)to + steps_at(t), *last = step + t->quads * PAIRS_STEP;
    int64_t behind = t->quads;
    *h = (struct header){0};
    from += (group * t->cols + p * PAIRS_PANEL) * t->column;

    for (int64_t k = 0; k < t->quads; k++) {
        gather(t, from, k * PAIRS_QUAD, n, step);
        add_start(t, step, h->start);
        if (fits(step)) {
            order[h->narrow++] = (int32_t)k;
            step += PAIRS_STEP;
            continue;
        }
        order[--behind] = (int32_t)k;
        last -= PAIRS_STEP;
        if (last != step) memcpy(last, step, PAIRS_STEP);
    }
}

// ---- rows of x

int64_t cpu_pairs_rows_bytes(const struct pairs_state *t) {
    return round_up(t->quads * PAIRS_ROWS * (int64_t)sizeof(int32_t) + 64, 64);
}
int64_t cpu_pairs_room_bytes(const struct pairs_state *t) {
    return round_up(PAIRS_ROWS * (t->run + 64), 64);
}
static bool within(const struct pairs_axis *a, int64_t in) {
    return in >= 0 && in + (a->taps - 1) * a->dilation < a->in;
}
static void find_window(const struct pairs_state *t, struct pairs_window *w) {
    const struct pairs_axis *a = t->axis;
    for (int d = 0; d < PAIRS_AXES; d++)
        w->in[d] = w->out[d] * a[d].stride - a[d].low;
    w->lines = within(&a[0], w->in[0]) && within(&a[1], w->in[1]);
    w->inside = w->lines && within(&a[2], w->in[2]);
    w->begin =
        (((w->image * a[0].in + w->in[0]) * a[1].in + w->in[1]) * a[2].in + w->in[2]) * t->pixel;
}
void cpu_pairs_window(const struct pairs_state *t, int64_t row, struct pairs_window *w) {
    const struct pairs_axis *a = t->axis;
    w->out[2] = row % a[2].out, row /= a[2].out;
    w->out[1] = row % a[1].out, row /= a[1].out;
    w->out[0] = row % a[0].out;
    w->image = row / a[0].out;
    find_window(t, w);
}
void cpu_pairs_next(const struct pairs_state *t, struct pairs_window *w) {
    const struct pairs_axis *a = t->axis;
    int d = PAIRS_AXES - 1;
    if (++w->out[d] < a[d].out) {
        w->in[d] += a[d].stride;
        w->begin += a[d].stride * t->pixel;
        w->inside = w->lines && within(&a[d], w->in[d]);
        return;
    }
    for (w->out[d--] = 0; d >= 0 && ++w->out[d] == a[d].out; d--)
        w->out[d] = 0;
    w->image += d < 0;
    find_window(t, w);
}
static bool meets(const struct pairs_axis *a, int64_t in) {
    return in >= 0 && in < a->in;
}
// A run of a window that part of which is outside of the image, or so near to the end of x that
// what is read behind it would be: put together in `room`.
static const uint8_t *run_in_room(const struct pairs_state *t, const uint8_t *x,
                                  const struct pairs_window *w, const struct pairs_run *run,
                                  int64_t from, uint8_t *room) {
    const struct pairs_axis *a = t->axis;
    int64_t begin = w->in[2] + run->at[2], end = begin + t->across;
    int64_t first = begin < 0 ? 0 : begin, last = end < a[2].in ? end : a[2].in;
    memset(room, 0, (size_t)t->run + BEHIND);
    if (meets(&a[0], w->in[0] + run->at[0]) && meets(&a[1], w->in[1] + run->at[1]) && first < last)
        memcpy(room + (first - begin) * t->depth, x + from + (first - begin) * t->pixel,
               (size_t)((last - first) * t->depth));
    return room;
}
// 16 bytes of four rows as four quads of each.
static inline __attribute__((always_inline)) TARGET void
four_quads(const uint8_t *const *p, int64_t at, __m128i flip, int32_t *to) {
    __m128i r[PAIRS_ROWS];
    for (int k = 0; k < PAIRS_ROWS; k++)
        r[k] = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)(p[k] + at)), flip);
    __m128i a = _mm_unpacklo_epi32(r[0], r[1]), b = _mm_unpackhi_epi32(r[0], r[1]),
            c = _mm_unpacklo_epi32(r[2], r[3]), d = _mm_unpackhi_epi32(r[2], r[3]);
    __m128i *out = (__m128i *)(void *)to;
    _mm_storeu_si128(out, _mm_unpacklo_epi64(a, c));
    _mm_storeu_si128(out + 1, _mm_unpackhi_epi64(a, c));
    _mm_storeu_si128(out + 2, _mm_unpacklo_epi64(b, d));
    _mm_storeu_si128(out + 3, _mm_unpackhi_epi64(b, d));
}
TARGET void cpu_pairs_pack_rows(const struct pairs_state *t, const uint8_t *x, int64_t group,
                                struct pairs_window *w, int rows, uint8_t *room, int32_t *to) {
    const __m128i flip = _mm_set1_epi8(t->sign ? (char)FLIP : 0);
    int64_t quads = (t->run + PAIRS_QUAD - 1) / PAIRS_QUAD;
    struct pairs_window at[PAIRS_ROWS];
    for (int r = 0; r < PAIRS_ROWS; r++) { // the last one fills up
        at[r] = r < rows ? *w : at[r - 1];
        if (r < rows) cpu_pairs_next(t, w);
    }

    for (int64_t k = 0; k < t->n_runs; k++, to += quads * PAIRS_ROWS) {
        const struct pairs_run *run = &t->runs[k];
        const uint8_t *p[PAIRS_ROWS];
        for (int r = 0; r < PAIRS_ROWS; r++) {
            int64_t from = at[r].begin + run->offset + group * t->depth;
            p[r] = at[r].inside && from + t->run + BEHIND <= t->x_bytes
                       ? x + from
                       : run_in_room(t, x, &at[r], run, from, room + r * (t->run + 16));
        }
        for (int64_t b = 0; b < t->run; b += 4 * PAIRS_QUAD)
            four_quads(p, b, flip, to + b * PAIRS_ROWS / PAIRS_QUAD);
    }
}
