// SPDX-License-Identifier: Apache-2.0
// cpu_matmul_run: see cpu_matmul.h.
#include <string.h>

#include "base/span.h"
#include "devices/cpu/cpu.h"
#include "devices/cpu/panels/cpu_matmul.h"

enum {
    MOST_BLOCK = 8192,  // floats of a result that a chunk and a block of rows make
    LEAST_COLUMNS = 32, // where there are more threads than chunks
    TALL = 4,           // row blocks that a thread packs a chunk once for
    DIRECT_ROWS = 24,   // as many read the right operand where it lies, in blocks of
    DIRECT_TERMS = 64,  // terms: as many pages as the processor has at hand
    PACKED = 8,         // panels of a part of a pack, or
    PACKED_TERMS = 64,  // terms
    WIDEST = PANEL_VECTORS * 16,
    NEAR = 2048,   // floats of a result that go through the steps together
    GRAIN = 600000 // operations: a share below about 20 us wakes no thread
};

// Terms of a block; rows of one of the left operand: with these terms most of the second cache;
// columns of a chunk.
static const struct schedule {
    int depth, rows, columns;
} schedules[] = {{768, 128, 64}, {768, 64, 128}, {768, 256, 32}, {384, 128, 64}, {1536, 64, 64}};
const char *const matmul_schedules[] = {"768x128x64", "768x64x128", "768x256x32",
                                        "384x128x64", "1536x64x64", NULL};

static int64_t wide(const struct matmul *m) {
    return PANEL_VECTORS * (int64_t)m->panel->lanes;
}
static int64_t even_block(int64_t n, int64_t most) {
    return ceil_div(n, ceil_div(n, most));
}

bool matmul_plan(struct matmul *m, int vector_bits, int threads) {
    const struct schedule *s = &schedules[m->schedule];
    m->panel = cpu_panel_isa(vector_bits);
    if (!m->panel) return false;
    m->activate = cpu_thin_activate();
    m->panels = ceil_div(m->columns, wide(m));
    m->direct = !m->packed && m->right_column == 1 && m->rows <= DIRECT_ROWS;
    m->depth_block = even_block(m->depth, m->direct ? DIRECT_TERMS : s->depth);
    m->row_block = even_block(m->rows, s->rows);
    m->row_blocks = ceil_div(m->rows, m->row_block);
    int64_t matrices = 1;
    for (int k = 0; k < m->n_batch; k++)
        matrices *= m->batch[k];

    int64_t columns = m->direct ? MOST_BLOCK / m->row_block / wide(m) * wide(m) : s->columns;
    while (columns > LEAST_COLUMNS &&
           matrices * m->row_blocks * ceil_div(m->columns, columns) < 4 * threads)
        columns /= 2;
    m->chunk = columns > wide(m) ? even_block(m->panels, columns / wide(m)) : 1;
    m->chunks = ceil_div(m->panels, m->chunk);
    m->all_chunks = matrices * m->chunks;
    m->tall = 1;
    if (!m->packed && m->depth_block == m->depth)
        while (m->tall < TALL &&
               m->all_chunks * ceil_div(m->row_blocks, 2 * m->tall) >= 4 * threads)
            m->tall *= 2;
    m->units = m->all_chunks * ceil_div(m->row_blocks, m->tall);
    m->bias = m->n_post > 0 && m->post[0].kind == LIB_POST_BIAS;
    m->relu = m->n_post > m->bias && m->post[m->bias].kind == LIB_POST_RELU;
    m->first_step = m->bias + m->relu;
    m->grain = GRAIN / (2 * m->row_block * m->tall * m->depth * m->chunk * wide(m)) + 1;
    return true;
}
bool matmul_same_blocks(const struct matmul *a, const struct matmul *b) {
    return a->depth_block == b->depth_block && a->row_block == b->row_block &&
           a->chunk == b->chunk && a->tall == b->tall;
}
double matmul_products(const struct matmul *m) {
    return 2 * (double)m->rows * (double)m->depth * (double)m->columns *
           ((double)m->all_chunks / (double)m->chunks);
}
int64_t matmul_packed_bytes(const struct matmul *m) {
    return m->panels * wide(m) * m->depth * (int64_t)sizeof(float);
}
// Of a chunk as a thread packs it, a block of terms at a time.
static int64_t own_floats(const struct matmul *m) {
    return m->packed ? 0 : m->chunk * wide(m) * m->depth_block;
}
int64_t matmul_scratch_bytes(const struct matmul *m, int threads) {
    return own_floats(m) * threads * (int64_t)sizeof(float);
}

// ---- packing

// Terms [k, k + depth) of panels [panel, panel + n), panel_step floats apart.
static void pack_panels(const struct matmul *m, const void *right, int64_t k, int64_t depth,
                        int64_t panel, int64_t n, float *to, int64_t panel_step) {
    int64_t column = panel * wide(m), left = m->columns - column,
            at = column * m->right_column + k * m->right_term;
    struct panel_source s = {.from = (const char *)right + at * (int64_t)sizeof *to,
                             .k_step = m->right_term,
                             .column_step = m->right_column,
                             .depth = depth,
                             .columns = left < n * wide(m) ? left : n * wide(m),
                             .panel_step = panel_step};
    if (n > 0) m->panel->pack(&s, to);
}
// A part is some lines of the operand as it lies: terms, or columns of whole panels.
static bool lines_of_terms(const struct matmul *m) {
    return m->right_column == 1;
}
static int64_t part_lines(const struct matmul *m) {
    return lines_of_terms(m) ? PACKED_TERMS : PACKED * wide(m);
}
static int64_t all_lines(const struct matmul *m) {
    return lines_of_terms(m) ? m->depth : m->columns;
}
int64_t matmul_pack_parts(const struct matmul *m) {
    return ceil_div(all_lines(m), part_lines(m));
}
struct span matmul_pack(const struct matmul *m, const void *right, int64_t part, float *packed) {
    int64_t each = m->depth * wide(m), begin = part * part_lines(m), n = all_lines(m) - begin;
    if (n > part_lines(m)) n = part_lines(m);
    if (lines_of_terms(m))
        for (int64_t p = 0; p < m->panels; p += PACKED)
            pack_panels(m, right, begin, n, p, m->panels - p < PACKED ? m->panels - p : PACKED,
                        packed + p * each + begin * wide(m), each);
    else
        pack_panels(m, right, 0, m->depth, begin / wide(m), ceil_div(n, wide(m)),
                    packed + begin * m->depth, each);
    int64_t line = (lines_of_terms(m) ? m->right_term : m->right_column) * (int64_t)sizeof *packed;
    return (struct span){(const uint8_t *)right + begin * line, (size_t)(n * line)};
}

// ---- running

struct part { // of the result
    int64_t matrix, panel, panels, column, columns, row, rows;
    const float *right; // of its matrix, or all panels
    float *own;         // panels that this thread packs
    bool again;         // which it did for the part before
};
static int64_t batch_offset(const struct matmul *m, const int64_t *stride, int64_t matrix) {
    int64_t at = 0;
    for (int d = m->n_batch - 1; d >= 0; d--) {
        at += matrix % m->batch[d] * stride[d];
        matrix /= m->batch[d];
    }
    return at;
}
static struct part part_of(const struct matmul_run *r, int64_t chunk, int thread) {
    const struct matmul *m = r->m;
    struct part p = {.matrix = chunk / m->chunks, .panel = chunk % m->chunks * m->chunk};
    p.panels = m->panels - p.panel < m->chunk ? m->panels - p.panel : m->chunk;
    p.column = p.panel * wide(m);
    p.columns =
        m->columns - p.column < p.panels * wide(m) ? m->columns - p.column : p.panels * wide(m);
    p.right = r->right + batch_offset(m, m->right_batch, p.matrix);
    p.own = r->scratch + thread * own_floats(m);
    return p;
}
// Of panel n, which has so many columns; `some`: room for it.
static const float *bias_of(const struct matmul_run *r, const struct part *p, int64_t n,
                            int64_t columns, float *some) {
    const float *bias = r->operand[0] + p->column + n * wide(r->m);
    if (columns >= wide(r->m)) return bias;
    memset(some, 0, WIDEST * sizeof *some);
    memcpy(some, bias, (size_t)columns * sizeof *some);
    return some;
}
// Panels of whole vectors: nothing behind a row is read.
static int64_t where_they_lie(const struct matmul *m, const struct part *p) {
    return p->columns / wide(m) + (p->columns % wide(m) == m->panel->lanes);
}
// Where terms [k, k + q->depth) of panel n are.
static void find_panel(const struct matmul *m, const struct part *p, int64_t k, int64_t n,
                       bool whole, struct panel_product *q) {
    q->b_term = wide(m);
    if (m->packed) {
        q->b = p->right + ((p->panel + n) * m->depth + k) * wide(m);
        q->next = q->b + m->depth * wide(m);
    } else if (m->direct && whole) {
        q->b = p->right + k * m->right_term + p->column + n * wide(m);
        q->b_term = q->next_term = m->right_term;
        q->next = n + 1 < p->panels ? q->b + wide(m) : q->b - n * wide(m) + q->depth * q->b_term;
        if (n + 1 == p->panels && k + q->depth == m->depth) q->next = NULL;
    } else {
        q->b = p->own + n * q->depth * wide(m);
        q->next = NULL;
        q->next_term = 0;
    }
}
// All sums of a part, through the steps that tiles do in registers, rows out_row floats apart. Of a
// panel that the result does not have whole, what is over is written too.
static void sums(const struct matmul_run *r, const struct part *p, const float *left, float *out,
                 int64_t out_row) {
    const struct matmul *m = r->m;
    float some[WIDEST];
    for (int64_t k = 0; k < m->depth; k += m->depth_block) {
        struct panel_product q = {.rows = p->rows,
                                  .depth =
                                      m->depth - k < m->depth_block ? m->depth - k : m->depth_block,
                                  .a = left + k,
                                  .a_row = m->left_row,
                                  .out_row = out_row,
                                  .out_vector = m->panel->lanes,
                                  .add = k > 0};
        bool last = k + q.depth == m->depth;
        q.relu = last && m->relu;
        int64_t whole = m->direct ? where_they_lie(m, p) : 0;
        if (!m->packed && !p->again)
            pack_panels(m, p->right, k, q.depth, p->panel + whole, p->panels - whole,
                        p->own + whole * q.depth * wide(m), q.depth * wide(m));

        for (int64_t n = 0; n < p->panels; n++) {
            int64_t columns = p->columns - n * wide(m);
            find_panel(m, p, k, n, n < whole, &q);
            if (last && m->bias) q.bias = bias_of(r, p, n, columns, some);
            q.out = out + n * wide(m);
            q.single = columns <= m->panel->lanes;
            m->panel->multiply(&q);
        }
    }
}
// The other steps, on `rows` lines of whole vectors; at: element of the result that the first
// begins at.
static void steps(const struct matmul_run *r, const struct part *p, int64_t at, int64_t rows,
                  int64_t width, float *lines) {
    const struct matmul *m = r->m;
    for (int k = m->first_step; k < m->n_post; k++) {
        const struct lib_post *post = &m->post[k];
        bool bias = post->kind == LIB_POST_BIAS, sum = post->kind == LIB_POST_SUM;
        if (!bias && !sum) m->activate(post->kind, post->alpha, post->beta, lines, rows * width);
        for (int64_t e = 0; e < rows && (bias || sum); e++)
            m->panel->add(lines + e * width,
                          r->operand[k] + (bias ? p->column : at + e * m->columns), p->columns);
    }
}
static void part(const struct matmul_run *r, const struct part *p) {
    const struct matmul *m = r->m;
    float block[MOST_BLOCK] __attribute__((aligned(64)));
    int64_t row = p->matrix * m->rows + p->row, width = p->panels * wide(m), n = NEAR / width;
    const float *left = r->left + batch_offset(m, m->left_batch, p->matrix) + p->row * m->left_row;
    if (m->first_step == m->n_post && p->columns == width) {
        sums(r, p, left, r->out + row * m->columns + p->column, m->columns);
        return;
    }
    sums(r, p, left, block, width);
    for (int64_t k = 0; k < p->rows; k += n) { // an operand may lie where the result does
        int64_t at = (row + k) * m->columns + p->column, rows = p->rows - k < n ? p->rows - k : n;
        float *lines = block + k * width;
        steps(r, p, at, rows, width, lines);
        for (int64_t e = 0; e < rows; e++)
            memcpy(r->out + at + e * m->columns, lines + e * width,
                   (size_t)p->columns * sizeof *lines);
    }
}
static void units(void *ctx, int64_t begin, int64_t end, int thread) {
    const struct matmul_run *r = ctx;
    const struct matmul *m = r->m;
    for (int64_t u = begin; u < end; u++) {
        struct part p = part_of(r, u % m->all_chunks, thread);
        int64_t block = u / m->all_chunks * m->tall, last = block + m->tall;
        for (; block < last && block < m->row_blocks; block++) {
            p.row = block * m->row_block;
            p.rows = m->rows - p.row < m->row_block ? m->rows - p.row : m->row_block;
            part(r, &p);
            p.again = m->depth_block == m->depth;
        }
    }
}
void matmul_run(const struct matmul_run *r) {
    cpu_parallel(units, (void *)(uintptr_t)r, r->m->units, r->m->grain);
}
