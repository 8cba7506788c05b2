// SPDX-License-Identifier: Apache-2.0
// cpu_winograd_run: Winograd's convolutions on arrays: how tiles are divided into blocks and among
// threads, weights transformed once, a run. The transforms themselves: cpu_winograd_body.h.
// A block of tiles is transformed, [point][tile][channel]; then, for a panel of features after the
// other, all points' products are computed and made results while they are near. So the memory is
// that of a block, whatever the image is: transformed inputs of the block and, for each thread, one
// panel's sums. Where there are blocks enough, each thread takes whole blocks; where there are not,
// all threads transform one block together and then share its panels.
#include <math.h>
#include <string.h>

#include "base/span.h"
#include "devices/cpu/cpu.h"
#include "devices/cpu/panels/cpu_winograd.h"

enum {
    BLOCK = 24,              // tiles that a panel of weights serves, which comes from a near cache
    FAR_BLOCK = 72,          // and from far away
    FAR_BYTES = 16 << 20,    // of weights that are read anew in each run
    ANEW_TILES = 1024,       // whose products take 20 times as long as to transform weights
    ANEW_BYTES = 1 << 20,    // of weights that are worth it
    SHARED_FLOATS = 2 << 20, // of a block that all threads transform together
    GRAIN = 600000           // operations: a share below about 20 us wakes no thread
};

bool winograd_plan(struct winograd *w, int vector_bits, int threads) {
    w->isa = winograd_isa(vector_bits);
    w->panel = cpu_panel_isa(vector_bits);
    if (!w->isa || !w->panel) return false;
    int lanes = w->panel->lanes;
    w->activate = cpu_thin_activate();
    w->points = (w->m + 2) * (w->m + 2);
    w->in_blocks = ceil_div(w->channels, lanes);
    w->out_blocks = ceil_div(w->features, lanes);
    w->panels = ceil_div(w->out_blocks, PANEL_VECTORS);
    w->tiles_high = ceil_div(w->out_height, w->m);
    w->tiles_wide = ceil_div(w->out_width, w->m);
    w->tiles = w->batch * w->tiles_high * w->tiles_wide;

    w->anew = w->tiles >= ANEW_TILES && winograd_packed_bytes(w) >= ANEW_BYTES;
    int64_t each = w->points * w->in_blocks * lanes; // floats of a transformed tile
    int64_t most = winograd_packed_bytes(w) > FAR_BYTES ? FAR_BLOCK : BLOCK;
    w->units = ceil_div(w->tiles, most);
    w->shared = w->units < 4 * threads && threads > 1;
    if (w->shared && SHARED_FLOATS / each > most) most = SHARED_FLOATS / each;
    w->units = ceil_div(w->tiles, most);
    if (!w->shared) w->units = ceil_div(w->units, threads) * threads;
    if (w->units > w->tiles) w->units = w->tiles;
    w->block = ceil_div(w->tiles, w->units);
    w->units = ceil_div(w->tiles, w->block);
    // An odd number of cache lines: points of one tile do not fall into the same set.
    w->step = ceil_div(w->block * w->in_blocks * lanes, 16);
    w->step = (w->step + (w->step % 2 == 0)) * 16;
    int64_t work = 2 * w->block * each * w->panels * PANEL_VECTORS * lanes;
    w->grain = GRAIN / work + 1;
    return true;
}
// Floats of the transformed weights. Behind them lie the signs of the filters as they were, which
// the results of infinite inputs need: a word for each channel and feature, two bits a tap, and
// above these one that says that it is no finite number, for which the transform took zero; behind
// the signs a word for each panel: has it such a tap?
enum { TAPS = 9, NOT_FINITE = 2 * TAPS, WORDS = 16 };
static int64_t weight_floats(const struct winograd *w) {
    int64_t lanes = w->panel->lanes;
    return w->panels * w->points * w->in_blocks * lanes * PANEL_VECTORS * lanes;
}
int64_t winograd_packed_bytes(const struct winograd *w) {
    return (weight_floats(w) + weight_floats(w) / w->points + ceil_div(w->panels, WORDS) * WORDS) *
           (int64_t)sizeof(float);
}
static int64_t flags_at(const struct winograd *w) {
    return weight_floats(w) + weight_floats(w) / w->points;
}
static int64_t sums_floats(const struct winograd *w) {
    return w->block * w->points * PANEL_VECTORS * w->panel->lanes;
}
int64_t winograd_scratch_bytes(const struct winograd *w, int threads) {
    int64_t v = w->points * w->step, n = sums_floats(w) * threads + v * (w->shared ? 1 : threads);
    return n * (int64_t)sizeof(float) + (w->anew ? winograd_packed_bytes(w) : 0);
}
double winograd_products(const struct winograd *w) {
    double lanes = w->panel->lanes;
    return 2 * (double)w->tiles * w->points * (double)w->in_blocks * lanes * (double)w->out_blocks *
           lanes;
}
bool winograd_alone(const struct winograd *w) {
    return winograd_products(w) < 2 * GRAIN;
}

// ---- weights

// G: at point p of the n - 1 finite ones, p^k over the product of its differences from the others.
static void weight_matrix(int m, double g[][3]) {
    static const double four[] = {0, WINOGRAD_A, -WINOGRAD_A, WINOGRAD_B, -WINOGRAD_B},
                        two[] = {0, 1, -1};
    const double *p = m == 4 ? four : two;
    for (int i = 0; i <= m; i++) {
        double others = 1;
        for (int j = 0; j <= m; j++)
            if (j != i) others *= p[i] - p[j];
        for (int k = 0; k < 3; k++)
            g[i][k] = (k == 0 ? 1 : k == 1 ? p[i] : p[i] * p[i]) / others;
    }
    g[m + 1][0] = g[m + 1][1] = 0;
    g[m + 1][2] = 1;
}
// One channel's filters of a panel, [tap][feature], to its points, `step` floats apart.
static void pack_filters(int m, double g[][3], double taps[][2 * 16], int columns, float *to,
                         int64_t step) {
    double half[WINOGRAD_MOST + 2][3][2 * 16];
    for (int r = 0; r < m + 2; r++)
        for (int c = 0; c < 3; c++)
            for (int f = 0; f < columns; f++)
                half[r][c][f] =
                    g[r][0] * taps[c][f] + g[r][1] * taps[3 + c][f] + g[r][2] * taps[6 + c][f];
    for (int r = 0; r < m + 2; r++)
        for (int c = 0; c < m + 2; c++, to += step)
            for (int f = 0; f < columns; f++)
                to[f] = (float)(g[c][0] * half[r][0][f] + g[c][1] * half[r][1][f] +
                                g[c][2] * half[r][2][f]);
}
static uint32_t word_of(const float *tap) {
    uint32_t word = 0;
    for (int k = 0; k < TAPS; k++) {
        word |= (tap[k] > 0    ? TAINT_PLUS
                 : tap[k] < 0  ? TAINT_MINUS
                 : tap[k] == 0 ? 0u
                               : TAINT_PLUS | TAINT_MINUS)
                << 2 * k;
        word |= (uint32_t)(tap[k] - tap[k] != 0) << (NOT_FINITE + k);
    }
    return word;
}
static void pack_panels(const struct winograd *w, const void *weights, int64_t begin, int64_t end,
                        float *packed) {
    double g[WINOGRAD_MOST + 2][3], taps[TAPS][2 * 16];
    int columns = PANEL_VECTORS * w->panel->lanes;
    int64_t depth = w->in_blocks * w->panel->lanes, step = depth * columns;
    uint32_t *signs = (uint32_t *)(void *)(packed + weight_floats(w)) + begin * step;
    uint32_t *flags = (uint32_t *)(void *)(packed + flags_at(w));
    weight_matrix(w->m, g);
    for (int64_t p = begin; p < end; p++) {
        uint32_t seen = 0;
        for (int64_t c = 0; c < depth; c++) {
            for (int f = 0; f < columns; f++) {
                int64_t feature = p * columns + f;
                float tap[TAPS] = {0};
                if (feature < w->features && c < w->channels)
                    memcpy(tap, (const char *)weights + (feature * w->channels + c) * sizeof tap,
                           sizeof tap);
                *signs = word_of(tap);
                seen |= *signs++ >> NOT_FINITE;
                for (int k = 0; k < TAPS; k++)
                    taps[k][f] = tap[k] - tap[k] == 0 ? (double)tap[k] : 0;
            }
            pack_filters(w->m, g, taps, columns, packed + p * w->points * step + c * columns, step);
        }
        flags[p] = seen;
    }
}

void winograd_pack(const struct winograd *w, const void *weights, float *packed) {
    pack_panels(w, weights, 0, w->panels, packed);
}
struct packing {
    const struct winograd *w;
    const void *weights;
    float *packed;
};
static void pack_part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct packing *p = ctx;
    pack_panels(p->w, p->weights, begin, end, p->packed);
}

// ---- inputs that are no finite numbers

bool winograd_filters(const struct winograd_run *r, int64_t p) {
    return ((const uint32_t *)(const void *)(r->weights + flags_at(r->w)))[p] != 0;
}
void winograd_taint(const struct winograd_run *r, int64_t p, int64_t channel, int place, float x,
                    struct winograd_taints *t) {
    const struct winograd *w = r->w;
    int m = w->m, y = place / (m + 2), left = place % (m + 2), columns = 2 * w->panel->lanes;
    bool finite = x - x == 0;
    const uint32_t *signs = (const uint32_t *)(const void *)(r->weights + weight_floats(w)) +
                            (p * w->in_blocks * w->panel->lanes + channel) * columns;
    t->any = true;
    for (int e = 0; e < m * m; e++) {
        int tap_y = y - e / m, tap_x = left - e % m;
        if (tap_y < 0 || tap_y > 2 || tap_x < 0 || tap_x > 2) continue;
        for (int f = 0; f < columns; f++) {
            int tap = 3 * tap_y + tap_x;
            uint32_t sign = signs[f] >> 2 * tap & 3;
            bool plus = sign == TAINT_PLUS, number = sign == TAINT_PLUS || sign == TAINT_MINUS;
            if (finite && !(signs[f] >> (NOT_FINITE + tap) & 1)) continue;
            t->of[e][f] |= x != x || x == 0 || !number ? TAINT_NAN
                           : plus == (x > 0)           ? TAINT_PLUS
                                                       : TAINT_MINUS;
        }
    }
}
float winograd_tainted(uint8_t taint) {
    return taint == TAINT_PLUS ? INFINITY : taint == TAINT_MINUS ? -INFINITY : NAN;
}

// ---- running

struct block {
    const struct winograd_run *r;
    int64_t tile, n;
};
static float *sums_of(const struct winograd_run *r, int thread) {
    const struct winograd *w = r->w;
    int64_t before = w->shared ? w->points * w->step : 0, each = sums_floats(w);
    if (!w->shared) each += w->points * w->step;
    return r->scratch + before + each * thread;
}
static void transform_part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct block *b = ctx;
    b->r->w->isa->transform(b->r, b->tile, b->n, begin, end, b->r->scratch);
}
static void finish_part(void *ctx, int64_t begin, int64_t end, int thread) {
    const struct block *b = ctx;
    for (int64_t p = begin; p < end; p++)
        b->r->w->isa->finish(b->r, b->tile, b->n, p, b->r->scratch, sums_of(b->r, thread));
}
static void blocks_part(void *ctx, int64_t begin, int64_t end, int thread) {
    const struct winograd_run *r = ctx;
    const struct winograd *w = r->w;
    float *sums = sums_of(r, thread), *v = sums + sums_floats(w);
    for (int64_t u = begin; u < end; u++) {
        int64_t tile = u * w->block, n = w->tiles - tile < w->block ? w->tiles - tile : w->block;
        w->isa->transform(r, tile, n, 0, w->in_blocks, v);
        for (int64_t p = 0; p < w->panels; p++)
            w->isa->finish(r, tile, n, p, v, sums);
    }
}
static void run_packed(const struct winograd_run *r) {
    const struct winograd *w = r->w;
    if (!w->shared) {
        cpu_parallel(blocks_part, (void *)(uintptr_t)r, w->units, w->grain);
        return;
    }
    for (int64_t tile = 0; tile < w->tiles; tile += w->block) {
        int64_t left = w->tiles - tile;
        struct block b = {r, tile, left < w->block ? left : w->block};
        int64_t lane = 2 * b.n * w->points * w->panel->lanes; // operations of a block of channels
        cpu_parallel(transform_part, &b, w->in_blocks, GRAIN / (12 * lane) + 1);
        cpu_parallel(finish_part, &b, w->panels,
                     GRAIN / (lane * PANEL_VECTORS * w->in_blocks * w->panel->lanes) + 1);
    }
}
void winograd_run(const struct winograd_run *r) {
    if (!r->w->anew) {
        run_packed(r);
        return;
    }
    struct packing p = {r->w, r->weights, r->scratch};
    struct winograd_run packed = *r;
    cpu_parallel(pack_part, &p, r->w->panels, 1);
    packed.weights = r->scratch;
    packed.scratch += winograd_packed_bytes(r->w) / (int64_t)sizeof(float);
    run_packed(&packed);
}
