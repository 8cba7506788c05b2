// SPDX-License-Identifier: Apache-2.0
// cpu_amx_run: see cpu_amx.h. A unit is a panel of columns by a chunk of rows, of which the left
// operand stays in the second cache; a thread's units are panels that lie one after the other, and
// while one is multiplied the next one is fetched.
#include <string.h>

#include "base/span.h"
#include "devices/cpu/amx/cpu_amx.h"
#include "devices/cpu/cpu.h"

enum {
    NEAR_BYTES = 1 << 20, // of the left operand: half of the second cache of CPUs with AMX
    ONE_SET = 4096, // bytes from row to row at which all 16 rows are in one set of the first cache
    LINES = 2 * AMX_TILE / 64, // of a panel, a step
    GRAIN = 8000000,           // operations: a share below some 10 us wakes no thread
    PART = 8                   // steps, or panels, that are packed together
};
typedef uint16_t loose __attribute__((aligned(1), may_alias)); // a weight in a file

void amx_plan(struct amx *m, const struct amx_isa *isa, int threads) {
    m->isa = isa;
    m->panel = cpu_panel_isa(512); // there is no AMX without AVX-512
    m->activate = cpu_thin_activate();
    m->steps = ceil_div(m->depth, AMX_TERMS);
    m->panels = ceil_div(m->columns, AMX_BLOCK);
    int64_t row_bytes = m->steps * AMX_TERMS * 2, blocks = ceil_div(m->rows, AMX_BLOCK),
            chunk = NEAR_BYTES / (row_bytes * AMX_BLOCK);
    if (chunk < 1) chunk = 1;
    if (chunk > blocks) chunk = blocks;
    while (chunk > 1 && m->panels * ceil_div(blocks, chunk) < 2 * threads)
        chunk = ceil_div(chunk, 2);
    m->row_chunks = ceil_div(blocks, chunk);
    m->row_chunk = ceil_div(blocks, m->row_chunks) * AMX_BLOCK;
    m->row_chunks = ceil_div(m->rows, m->row_chunk);
    m->pack_left = m->depth % AMX_TERMS || (m->rows > 1 && m->left_row * 2 % ONE_SET == 0);
    m->units = m->panels * m->row_chunks;
    int64_t rows = m->rows < m->row_chunk ? m->rows : m->row_chunk;
    m->grain = GRAIN / (2 * rows * AMX_BLOCK * m->depth) + 1;
}
int64_t amx_packed_bytes(const struct amx *m) {
    return m->panels * m->steps * 2 * AMX_TILE;
}
int64_t amx_scratch_bytes(const struct amx *m) {
    return m->pack_left ? ceil_div(m->rows, AMX_ROWS) * m->steps * AMX_TILE : 0;
}

// ---- packing

// Terms [k, k + 32) of columns [c, c + 16): pairs of terms, 16 columns of each.
static void pack_tile(const struct amx *m, const void *right, int64_t k, int64_t c,
                      uint16_t to[AMX_TERMS / 2][AMX_ROWS][2]) {
    int64_t terms = m->depth - k < AMX_TERMS ? m->depth - k : AMX_TERMS,
            columns = m->columns - c < AMX_ROWS ? m->columns - c : AMX_ROWS;
    if (terms < AMX_TERMS || columns < AMX_ROWS) memset(to, 0, AMX_TILE);
    if (columns <= 0) return;
    const loose *from = (const loose *)right + k * m->right_term + c * m->right_column;
    if (m->right_column == 1)
        for (int64_t t = 0; t < terms; t++)
            for (int64_t e = 0; e < columns; e++)
                to[t / 2][e][t % 2] = from[t * m->right_term + e];
    else
        for (int64_t e = 0; e < columns; e++)
            for (int64_t t = 0; t < terms; t++)
                to[t / 2][e][t % 2] = from[t * m->right_term + e * m->right_column];
}
// A part is some lines of the operand as it lies: steps, or panels.
static bool lines_of_terms(const struct amx *m) {
    return m->right_column == 1;
}
int64_t amx_pack_parts(const struct amx *m) {
    return ceil_div(lines_of_terms(m) ? m->steps : m->panels, PART);
}
struct span amx_pack(const struct amx *m, const void *right, int64_t part, char *packed) {
    bool terms = lines_of_terms(m);
    int64_t begin = part * PART, all = terms ? m->steps : m->panels,
            end = begin + PART < all ? begin + PART : all;
    for (int64_t s = terms ? begin : 0; s < (terms ? end : m->steps); s++)
        for (int64_t c = terms ? 0 : 2 * begin; c < 2 * (terms ? m->panels : end); c++)
            pack_tile(m, right, s * AMX_TERMS, c * AMX_ROWS,
                      (uint16_t(*)[AMX_ROWS][2])(void *)(packed +
                                                         (c / 2 * m->steps + s) * 2 * AMX_TILE +
                                                         c % 2 * AMX_TILE));
    int64_t width = terms ? AMX_TERMS : AMX_BLOCK, lines = terms ? m->depth : m->columns,
            line = (terms ? m->right_term : m->right_column) * 2, last = end * width;
    if (last > lines) last = lines;
    return (struct span){(const uint8_t *)right + begin * width * line,
                         (size_t)((last - begin * width) * line)};
}
// Tiles of 16 rows, all steps of each together; rows that there are not stay as they are.
static void pack_rows(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct amx_run *r = ctx;
    const struct amx *m = r->m;
    int64_t whole = m->depth / AMX_TERMS, over = m->depth % AMX_TERMS;
    for (int64_t row = begin * AMX_ROWS; row < end * AMX_ROWS && row < m->rows; row++) {
        const uint16_t *from = (const uint16_t *)r->left + row * m->left_row;
        char *to = (char *)r->scratch + row / AMX_ROWS * m->steps * AMX_TILE + row % AMX_ROWS * 64;
        for (int64_t s = 0; s < whole; s++)
            memcpy(to + s * AMX_TILE, from + s * AMX_TERMS, 64);
        if (!over) continue;
        memset(to + whole * AMX_TILE, 0, 64);
        memcpy(to + whole * AMX_TILE, from + whole * AMX_TERMS, (size_t)over * 2);
    }
}

// ---- running

// The steps behind the sums of rows [row, row + rows) of panel p, and the result.
static void finish(const struct amx_run *r, int64_t row, int64_t rows, int64_t column,
                   float block[AMX_BLOCK][AMX_BLOCK]) {
    const struct amx *m = r->m;
    int64_t columns = m->columns - column < AMX_BLOCK ? m->columns - column : AMX_BLOCK;
    for (int k = 0; k < m->n_post; k++) {
        const struct lib_post *post = &m->post[k];
        bool bias = post->kind == LIB_POST_BIAS, sum = post->kind == LIB_POST_SUM;
        if (post->kind == LIB_POST_BF16) continue;
        if (!bias && !sum)
            m->activate(post->kind, post->alpha, post->beta, block[0], rows * AMX_BLOCK);
        for (int64_t e = 0; e < rows && (bias || sum); e++) {
            int64_t at = column + (sum ? (row + e) * m->columns : 0);
            if (r->operand_bf16[k])
                m->isa->add_bf16(block[e], (const uint16_t *)r->operand[k] + at, columns);
            else
                m->panel->add(block[e], (const float *)r->operand[k] + at, columns);
        }
    }
    for (int64_t e = 0; e < rows; e++) {
        int64_t at = (row + e) * m->columns + column;
        if (m->bf16)
            m->isa->to_bf16((uint16_t *)r->out + at, block[e], columns);
        else
            memcpy((float *)r->out + at, block[e], (size_t)columns * sizeof(float));
    }
}
// Panel p by rows [row, end), of which the last ones are where the last chunk ends. next: a panel
// to fetch meanwhile, or NULL.
static void unit(const struct amx_run *r, int64_t p, int64_t row, int64_t end, const char *next,
                 int *high) {
    const struct amx *m = r->m;
    float block[AMX_BLOCK][AMX_BLOCK] __attribute__((aligned(64)));
    int64_t bytes = m->steps * 2 * AMX_TILE, blocks = ceil_div(end - row, AMX_BLOCK);
    struct amx_block b = {.right = (const char *)r->right + p * bytes,
                          .steps = m->steps,
                          .out = block[0],
                          .next_lines = (int)ceil_div(LINES, blocks)};
    const char *fetched = next;
    for (; row < end; row += AMX_BLOCK) {
        int64_t rows = end - row < AMX_BLOCK ? end - row : AMX_BLOCK;
        if (m->pack_left) {
            b.left = (const char *)r->scratch + row / AMX_ROWS * m->steps * AMX_TILE;
            b.left_row = 64, b.left_tile = m->steps * AMX_TILE, b.left_step = AMX_TILE;
        } else {
            b.left = (const char *)r->left + row * m->left_row * 2;
            b.left_row = m->left_row * 2, b.left_tile = AMX_ROWS * b.left_row, b.left_step = 64;
        }
        b.rows = (int)rows;
        b.next = next && fetched < next + bytes ? fetched : NULL;
        if (b.rows != *high) m->isa->begin(*high = b.rows);
        m->isa->multiply(&b);
        fetched += m->steps * b.next_lines * 64;
        finish(r, row, rows, p * AMX_BLOCK, block);
    }
}
static void units(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct amx_run *r = ctx;
    const struct amx *m = r->m;
    int64_t bytes = m->steps * 2 * AMX_TILE;
    int high = 0;
    for (int64_t u = begin; u < end; u++) {
        int64_t p = u % m->panels, row = u / m->panels * m->row_chunk, last = row + m->row_chunk;
        bool more = u + 1 < end && p + 1 < m->panels;
        unit(r, p, row, last < m->rows ? last : m->rows,
             more ? (const char *)r->right + (p + 1) * bytes : NULL, &high);
    }
    if (high) m->isa->end();
}
void amx_multiply(const struct amx_run *r) {
    const struct amx *m = r->m;
    enum { ROWS = 8 }; // tiles of rows that are worth another thread
    if (m->pack_left)
        cpu_parallel(pack_rows, (void *)(uintptr_t)r, ceil_div(m->rows, AMX_ROWS), ROWS);
    cpu_parallel(units, (void *)(uintptr_t)r, m->units, m->grain);
}
