// SPDX-License-Identifier: Apache-2.0
// thin: products of a few rows with a matrix, alone or with the post-operations of library.h, in
// f32: what a recurrent step, a decoder's step or a classifier of one row is made of. Such a
// product reads each weight once or a few times, so it runs at the speed of the memory it reads;
// what a library's call costs around that is what it saves. Bound weights are packed at PREPARE in
// panels that are read from front to end; what the program computes is read as it is.
// Several rows take matrices that other data drives out of the caches between two runs by a few
// terms at a time, which are fetched in the order of memory: in columns of a few vectors each of
// them would wait for its page.
// Weights that were f16 or bf16 before the program widened them are packed as such: half the bytes.
// Does not: other types, rows that do not lie one after the other. Those are the library's.
#include "devices/cpu/routines/cpu_thin.h"

#include <immintrin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "devices/cpu/cpu.h"

#define THIN(name) name##_plain
#define THIN_BYTES 16
#define THIN_TARGET
#define THIN_WIDE 2
#define THIN_DEEP 4
#define THIN_FROM_F16(h) ((void)(h), (vec_plain){0}) // never used: packed in f32
#include "devices/cpu/routines/cpu_thin_body.h"
#include "devices/cpu/routines/cpu_thin_activate.h"
#define THIN(name) name##_avx2
#define THIN_BYTES 32
#define THIN_TARGET __attribute__((target("avx2,fma,f16c")))
#define THIN_WIDE 2
#define THIN_DEEP 4
#define THIN_FROM_F16(h) ((vec_avx2)_mm256_cvtph_ps((__m128i)(h)))
#include "devices/cpu/routines/cpu_thin_body.h"
#include "devices/cpu/routines/cpu_thin_activate.h"
#define THIN(name) name##_avx512
#define THIN_BYTES 64
#define THIN_TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define THIN_WIDE 4
#define THIN_DEEP 8
#define THIN_FROM_F16(h) ((vec_avx512)_mm512_cvtph_ps((__m256i)(h)))
#include "devices/cpu/routines/cpu_thin_body.h"
#include "devices/cpu/routines/cpu_thin_activate.h"

enum {
    MAX_ROWS = 16,
    CHUNK = 4096,      // columns at a time, of one or two rows: lines are read from front to end
    BLOCK_CHUNK = 128, // of more
    FAR_CHUNK = 512,   // of more, from a far matrix; MAX_ROWS of them are no more than two CHUNKs
    FAR_TERMS = 64,    // of it at a time: a part of the second cache
    FAR_BYTES = 10 << 20, // that a run reads from which on little is at hand in the next
    LINE_BYTES = 64,   // of a cache
    LINED = 8192,      // floats of a matrix that is laid out in lines for several rows
    MANY = 128,        // rows whose few columns are the rows of a product with the left operand
    NARROW = 32,       // columns that panels of AVX2 hold with less padding than those of AVX-512
    LANES_MAX = 16,    // of a vector on any CPU
    PANEL_MAX = 64,    // columns
    UNIT = 64          // columns that a thread takes at least; whole panels of every kind
};

// By length of vectors, LANES_MAX and halves of it.
enum { WIDTHS = 3 };
static void (*const products[WIDTHS])(const struct thin_product *p) = {product_avx512, product_avx2,
                                                                       product_plain};
static const int64_t panel_columns[WIDTHS] = {PANEL_MAX, 16, 8};
static const char *const details[WIDTHS] = {"thin:avx512", "thin:avx2", "thin:plain"};

struct thin_state {
    int widest; // of products, on this CPU
    thin_activate_fn activate;
    int x, w; // leaves
    int64_t batch, rows, cols, k;
    enum thin_form form;
    bool by_column; // before packing
    int64_t panel;  // columns
    struct lib_post post[LIB_MAX_POST];
    int leaf[LIB_MAX_POST]; // of the operand, -1 = none
    int out;                // leaf
    int n_post;
    bool far;    // products_far
    bool turned; // the result is [columns, rows], of the few columns of a right operand
    bool x_turned; // which lies by terms
    int64_t units, grain;
};

// ---- which products

struct thin_dims {
    bool swapped, by_column; // swapped: the left operand is the matrix, the right one the row, or
    bool turned, x_turned;   // turned: the rows, as columns
    int64_t batch, rows, cols, k;
};
static bool leading(struct i64s dims) {
    for (int k = 0; k < dims.n; k++)
        if (dims.v[k] != k) return false;
    return true;
}
static bool row_major_f32(const struct shape *s) {
    return !shape_is_tuple(s) && s->dtype == DT_F32 && !s->dynamic &&
           layout_is_default(s->layout, s->rank) && shape_elements(s) > 0;
}
// How many columns of a right operand are better as rows, by the terms of each: a library's tile
// has 16, full or not. Measured on Zen 5 beside oneDNN 2.6, 128 to 100,000 rows: 0.3 to 0.85 of its
// time.
static int64_t columns_as_rows(int64_t terms) {
    bool wide = cpu_target()->vector_bits == 512;
    return terms < 64 ? 1 : terms < 128 ? (wide ? 4 : 3) : !wide ? 5 : terms < 256 ? 6 : 8;
}
static bool form_of(const struct lib_call *c, struct thin_dims *f) {
    const struct hlo_instr *h = c->hero;
    if (h->op != HLO_DOT) return false;
    const struct hlo_attr_dot *d = HLO_ATTR(h, dot);
    const struct shape *x = h->operands[0]->shape, *y = h->operands[1]->shape;
    int nb = d->lhs_batch_dims.n;
    if (d->lhs_contracting_dims.n != 1 || d->rhs_contracting_dims.n != 1 ||
        !leading(d->lhs_batch_dims) || !leading(d->rhs_batch_dims) || !row_major_f32(x) ||
        !row_major_f32(y) || !row_major_f32(h->shape) || !row_major_f32(c->result))
        return false;
    int64_t xc = d->lhs_contracting_dims.v[0], yc = d->rhs_contracting_dims.v[0];
    *f = (struct thin_dims){.batch = 1, .k = x->dims[xc]};
    for (int k = 0; k < nb; k++)
        f->batch *= x->dims[k];
    f->rows = shape_elements(x) / f->k / f->batch;
    f->cols = shape_elements(y) / f->k / f->batch;
    if (f->cols == 1 && f->rows > 1) {
        if (xc != nb && xc != x->rank - 1) return false;
        f->swapped = true;
        f->cols = f->rows;
        f->rows = 1;
        f->by_column = xc == x->rank - 1;
        return true;
    }
    if (f->cols > 1 && f->cols <= columns_as_rows(f->k) && f->rows >= MANY && nb == 0 &&
        xc == x->rank - 1 && y->rank == 2 && f->k * f->cols <= LINED) {
        int64_t rows = f->cols;
        f->swapped = f->turned = f->by_column = true;
        f->x_turned = yc == 0;
        f->cols = f->rows;
        f->rows = rows;
        return true;
    }
    if (xc != x->rank - 1 && f->rows > 1) return false; // rows that do not lie together
    if (yc != nb && yc != y->rank - 1) return false;
    f->by_column = yc == y->rank - 1 || f->cols == 1;
    return true;
}
static bool posts_ok(const struct lib_call *c, const struct thin_dims *f) {
    for (int k = 0; k < c->n_post; k++) {
        const struct lib_post *p = &c->post[k];
        if (p->kind > LIB_POST_SWISH) return false;
        if (p->operand && !row_major_f32(p->operand->shape)) return false;
        if (p->kind == LIB_POST_BIAS && f->swapped && !f->turned) return false;
    }
    return true;
}
static bool thin_accepts(const struct cpu_exe *x, const struct hlo_instr *i, const char **why) {
    enum { KEPT_ROWS = 12 };
    struct lib_call c;
    struct thin_dims f;
    *why = "not a product of few rows";
    if (shape_is_tuple(i->shape) || !lib_match(i, &c) || !form_of(&c, &f) || f.rows > MAX_ROWS ||
        !posts_ok(&c, &f))
        return false;
    *why = "small products, which a kernel runs across";
    bool kept = f.by_column && f.batch == 1 && f.rows <= KEPT_ROWS; // if it is bound: thin_open
    return kept || !(cpu_small_dot(i) && cpu_find_kernel(x, i));
}

// ---- running

static int64_t weight_size(enum thin_form form) {
    return form < THIN_PANELS_F16 ? 4 : 2;
}
static float plain_at(const char *plain, int64_t i) { // weights lie in their file as they may
    float v;
    memcpy(&v, plain + i * (int64_t)sizeof v, sizeof v);
    return v;
}
static void put_operand(const struct thin_state *t, int post, void **bufs, int64_t at, int64_t col,
                        int64_t n, float *line, bool first) {
    const float *from = bufs[t->leaf[post]];
    from += t->post[post].kind == LIB_POST_BIAS ? col : at;
    if (first)
        memcpy(line, from, (size_t)n * sizeof *line);
    else
        for (int64_t k = 0; k < n; k++)
            line[k] += from[k];
}
// A matrix that several rows meet, columns [col, col + n) of batch b, as lines of whole vectors:
// sums along short columns and what is left beside the last vector would go one by one.
static bool is_lined(const struct thin_state *t, int64_t n) {
    int64_t wide = (n + LANES_MAX - 1) / LANES_MAX * LANES_MAX;
    if (t->form > THIN_COLUMNS || t->rows <= 2 || t->k * wide > LINED) return false;
    return t->form == THIN_COLUMNS ? t->rows > 4 || t->k < 2 * LANES_MAX : n % LANES_MAX != 0;
}
static void put_lines(const struct thin_state *t, void **bufs, int64_t b, int64_t col, int64_t n,
                      float *lines) {
    const char *w = bufs[t->w];
    int64_t wide = (n + LANES_MAX - 1) / LANES_MAX * LANES_MAX, line = (int64_t)sizeof *lines;
    if (t->form == THIN_LINES)
        w += (b * t->k * t->cols + col) * line;
    else
        w += (b * t->cols + col) * t->k * line;
    for (int64_t k = 0; k < t->k; k++, lines += wide) {
        if (t->form == THIN_LINES)
            memcpy(lines, w + k * t->cols * line, (size_t)(n * line));
        else
            for (int64_t c = 0; c < n; c++)
                lines[c] = plain_at(w, c * t->k + k);
        memset(lines + n, 0, (size_t)((wide - n) * line));
    }
}
// As much as whole vectors hold, then what is left beside them by vectors half as long, and so on:
// one by one it would take longer than the rest.
static void product(int widest, struct thin_product p) {
    bool lines = p.form == THIN_LINES;
    int64_t left = lines ? p.cols : p.k, *n = lines ? &p.cols : &p.k;
    if (p.form > THIN_COLUMNS) {
        products[widest](&p);
        return;
    }
    for (int v = widest; v < WIDTHS && left; v++) {
        *n = v + 1 < WIDTHS ? left & -(int64_t)(LANES_MAX >> v) : left;
        if (*n) products[v](&p);
        left -= *n;
        p.w = (const char *)p.w + *n * (int64_t)sizeof(float);
        if (lines)
            p.out += *n;
        else
            p.x += *n;
    }
}
// How many rows go together where `left` are left: as many as registers hold the sums of, and no
// fewer at the end.
static int together(int widest, int64_t left) {
    int64_t most = widest ? THIN_ROWS - 1 : THIN_ROWS, parts = (left + most - 1) / most;
    return (int)((left + parts - 1) / parts);
}
static int widest_of(int vector_bits) {
    return vector_bits == 512 ? 0 : vector_bits == 256 ? 1 : 2;
}
void cpu_thin_product(int vector_bits, struct thin_product p, int64_t rows) {
    int widest = widest_of(vector_bits);
    for (int64_t left = rows; left; left -= p.rows) {
        p.rows = together(widest, left);
        product(widest, p);
        p.x += p.rows * p.x_stride;
        p.out += p.rows * p.out_stride;
    }
}
// The same for up to MAX_ROWS rows of a matrix in lines.
static void products_far(const struct thin_state *t, struct thin_product p) {
    const int64_t line = p.w_stride * (int64_t)sizeof(float);
    const int64_t bytes = p.cols * (int64_t)sizeof(float);
    for (int64_t k = 0; k < t->k; k += FAR_TERMS) {
        int64_t terms = t->k - k < FAR_TERMS ? t->k - k : FAR_TERMS;
        const char *w = (const char *)p.w + k * line;
        for (int64_t j = 0; j < terms; j++)
            for (int64_t at = 0; at < bytes; at += LINE_BYTES)
                __builtin_prefetch(w + j * line + at, 0, 2);
        for (int row = 0, rows; row < p.rows; row += rows) {
            struct thin_product some = p;
            rows = together(t->widest, p.rows - row);
            some.x += row * p.x_stride + k;
            some.w = w;
            some.out += row * p.out_stride;
            some.k = terms;
            some.rows = rows;
            product(t->widest, some);
        }
    }
}
struct thin_call {
    const struct thin_state *t;
    void **bufs;
    const float *x;
};
// A post-operation's operand on columns [col, col + n) of a row, where the result is turned.
static void add_turned(const struct thin_state *t, int post, void **bufs, int64_t row, int64_t col,
                       int64_t n, float *line) {
    const float *from = (const float *)bufs[t->leaf[post]] + row;
    bool bias = t->post[post].kind == LIB_POST_BIAS;
    for (int64_t c = 0; c < n; c++)
        line[c] += bias ? *from : from[(col + c) * t->rows];
}
// Result columns [col, col + n) of `rows` rows, from `lines` stride apart.
static void put_turned(const struct thin_state *t, float *out, int64_t row, int rows, int64_t col,
                       int64_t n, const float *lines, int64_t stride) {
    for (int64_t c = 0; c < n; c++)
        for (int r = 0; r < rows; r++)
            out[(col + c) * t->rows + row + r] = lines[r * stride + c];
}
// Columns [col, col + n) of `rows` rows from `row` on of batch b. lines: the matrix as put_lines
// leaves it, or NULL.
static void chunk(const struct thin_call *call, int64_t b, int64_t row, int rows, int64_t col,
                  int64_t n, const float *lines) {
    const struct thin_state *t = call->t;
    void **bufs = call->bufs;
    float sums[2 * CHUNK] __attribute__((aligned(64))); // no other rows of a chunk are more
    float *out = bufs[t->out];
    int64_t stride = (n + UNIT - 1) / UNIT * UNIT, at = (b * t->rows + row) * t->cols + col;
    // The first addition is where the sums start.
    bool add = t->n_post && t->leaf[0] >= 0 && !t->turned;
    for (int r = 0; r < rows; r++) {
        memset(sums + r * stride, 0, (size_t)stride * sizeof *sums);
        if (add) put_operand(t, 0, bufs, at + r * t->cols, col, n, sums + r * stride, true);
    }
    int64_t w = t->form == THIN_LINES ? b * t->k * t->cols + col : (b * t->cols + col) * t->k;
    struct thin_product p = {.x = call->x + (b * t->rows + row) * t->k,
                             .w = (const char *)bufs[t->w] + w * weight_size(t->form),
                             .out = sums,
                             .x_stride = t->k,
                             .w_stride = t->form == THIN_LINES ? t->cols : t->k,
                             .out_stride = stride,
                             .k = t->k,
                             .cols = n,
                             .rows = rows,
                             .form = t->form};
    if (lines) {
        p.w = lines;
        p.form = THIN_LINES;
        p.cols = p.w_stride = (n + LANES_MAX - 1) / LANES_MAX * LANES_MAX;
    }
    if (t->far && !lines)
        products_far(t, p);
    else
        product(t->widest, p);
    for (int r = 0; r < rows; r++) {
        float *line = sums + r * stride;
        for (int k = add; k < t->n_post; k++) {
            const struct lib_post *post = &t->post[k];
            if (t->leaf[k] >= 0 && t->turned)
                add_turned(t, k, bufs, row + r, col, n, line);
            else if (t->leaf[k] >= 0)
                put_operand(t, k, bufs, at + r * t->cols, col, n, line, false);
            else
                t->activate(post->kind, post->alpha, post->beta, line, n);
        }
        if (!t->turned) memcpy(out + at + r * t->cols, line, (size_t)n * sizeof *line);
    }
    if (t->turned) put_turned(t, out, row, rows, col, n, sums, stride);
}
static void columns(const struct thin_call *call, int64_t b, int64_t col, int64_t n) {
    const struct thin_state *t = call->t;
    float lines[LINED] __attribute__((aligned(64)));
    bool lined = is_lined(t, n);
    if (lined) put_lines(t, call->bufs, b, col, n, lines);
    for (int64_t row = 0, rows; row < t->rows; row += rows) {
        rows = t->far && !lined ? t->rows : together(t->widest, t->rows - row);
        chunk(call, b, row, (int)rows, col, n, lined ? lines : NULL);
    }
}
static void part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct thin_call *c = ctx;
    const struct thin_state *t = c->t;
    int64_t per_batch = t->units / t->batch;
    int64_t most = t->rows <= 2 ? CHUNK : t->far ? FAR_CHUNK : BLOCK_CHUNK;
    for (int64_t u = begin; u < end;) {
        int64_t b = u / per_batch, last = (b + 1) * per_batch < end ? (b + 1) * per_batch : end;
        int64_t from = (u - b * per_batch) * UNIT, to = (last - b * per_batch) * UNIT;
        if (to > t->cols) to = t->cols;
        for (int64_t col = from; col < to; col += most)
            columns(c, b, col, to - col < most ? to - col : most);
        u = last;
    }
}
static status_t thin_run(UNUSED struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct thin_state *t = s->state;
    float own[LINED] __attribute__((aligned(64)));
    struct thin_call c = {t, bufs, bufs[t->x]};
    int64_t row_step = t->x_turned ? 1 : t->k, step = t->x_turned ? t->rows : 1;
    if (t->turned && (t->x_turned || (uintptr_t)c.x % sizeof *own)) { // a weight lies as it may
        for (int64_t r = 0; r < t->rows; r++)
            for (int64_t k = 0; k < t->k; k++)
                own[r * t->k + k] = plain_at(bufs[t->x], r * row_step + k * step);
        c.x = own;
    }
    cpu_parallel(part, &c, t->units, t->grain);
    return ST_OK;
}

// A share below about 20 us does not pay for waking a thread: so many bytes of weights, or so many
// multiplications. In a loop it is awake behind the first turn.
static int64_t grain_of(const struct thin_state *t, bool loop) {
    int64_t per_unit = t->k * UNIT * (t->rows > 4 ? t->rows / 2 : 2);
    return (loop ? 200000 : 600000) / (per_unit > 0 ? per_unit : 1) + 1;
}
// The type that the values of a prepared weight had when they were given, if nothing but movements
// and one conversion lie between.
static enum dtype source_type(const struct hlo_instr *i) {
    const struct hlo_instr *fusion = NULL;
    for (;;) {
        switch (i->op) {
        case HLO_FUSION:
            if (fusion || shape_is_tuple(i->shape)) return DT_F32;
            fusion = i;
            i = i->called[0]->root;
            break;
        case HLO_PARAMETER:
            if (!fusion || i->parent != fusion->called[0]) return DT_F32;
            i = fusion->operands[i->param_number];
            fusion = NULL;
            break;
        case HLO_COPY:
        case HLO_BITCAST:
        case HLO_RESHAPE:
        case HLO_TRANSPOSE:
        case HLO_SLICE:
            i = i->operands[0];
            break;
        case HLO_CONVERT:
            return i->operands[0]->shape->dtype;
        default:
            return DT_F32;
        }
    }
}
static enum thin_form panels_of(const struct cpu_exe *x, const struct cpu_step *s, int leaf) {
    const struct hlo_instr *all = x->exe->prepare->entry->root;
    int bound = x->bound[s->plan->in[leaf].index];
    enum dtype t = all->op == HLO_TUPLE && bound < all->n_operands
                       ? source_type(all->operands[bound])
                       : DT_F32;
    bool vectors = cpu_target()->vector_bits > 128;
    return t == DT_BF16 ? THIN_PANELS_BF16 : t == DT_F16 && vectors ? THIN_PANELS_F16 : THIN_PANELS;
}
// What a run of the computation reads is more than a core has at hand.
static bool reads_far(const struct hlo_computation *c) {
    int64_t bytes = 0;
    for (size_t k = 0; k < c->params.n && bytes <= FAR_BYTES; k++)
        bytes += shape_bytes(c->params.v[k]->shape);
    return bytes > FAR_BYTES;
}
// Few columns of a matrix that is not bound, and many terms: most of a line is outside of the
// vectors, or it is too few to keep the sums of many rows apart. The library packs them: measured
// (Zen 5; with AVX2 alone too), 2 to 16 rows, 3 to 48 columns, 256 to 20,000 terms, 2.4 times as
// fast in the mean, up to 9 times where the columns do not fill vectors, 0.8 at least.
static bool few_columns(const struct thin_state *t) {
    enum { TERMS = 256, COLUMNS_512 = 64, COLUMNS = 16 };
    return !cpu_forced_impl() && t->form == THIN_LINES && t->batch == 1 && t->rows >= 2 &&
           t->k >= TERMS && t->cols < (t->widest ? COLUMNS : COLUMNS_512);
}
bool cpu_thin_halves(const struct cpu_exe *x, const struct cpu_step *s, const struct hlo_instr *h,
                     int leaf) {
    struct cpu_sizes z = cpu_sizes_of(h);
    return z.m <= MAX_ROWS && panels_of(x, s, leaf) != THIN_PANELS;
}
thin_activate_fn cpu_thin_activate(void) {
    int bits = cpu_target()->vector_bits;
    return bits == 512 ? activate_avx512 : bits == 256 ? activate_avx2 : activate_plain;
}
static status_t thin_open(struct cpu_exe *x, struct cpu_step *s) {
    struct thin_state *t = arena_new_of(&x->arena, struct thin_state);
    const struct hlo_instr *i = s->plan->instr;
    struct lib_call c;
    struct thin_dims f;
    if (!lib_match(i, &c) || !form_of(&c, &f))
        return st_internal("accepted a product that does not match");
    t->widest = widest_of(cpu_target()->vector_bits);
    t->activate = cpu_thin_activate();
    t->x = lib_operand(i, f.swapped ? c.rhs : c.lhs);
    t->w = lib_operand(i, f.swapped ? c.lhs : c.rhs);
    t->batch = f.batch, t->rows = f.rows, t->cols = f.cols, t->k = f.k;
    t->by_column = f.by_column, t->turned = f.turned, t->x_turned = f.x_turned;
    t->form = f.by_column ? THIN_COLUMNS : THIN_LINES;
    if (f.batch == 1 && cpu_is_bound(x, s, t->w)) {
        t->form = panels_of(x, s, t->w);
        if (!t->widest && t->cols <= NARROW) t->widest = 1; // most of a wide panel would be padding
        t->panel = panel_columns[t->widest];
        s->packed_in = t->w;
        s->pack_slot = x->n_packs++;
    }
    s->declined = few_columns(t) && cpu_target()->library_accepts(cpu_target(), i);
    // A kernel turns columns in each run, which a weight's are but once.
    if (cpu_small_dot(i) && cpu_find_kernel(x, i)) s->declined = s->packed_in < 0;
    if (s->declined) return ST_OK;
    t->far = t->form == THIN_LINES && t->rows > 2 && reads_far(i->parent);
    s->detail = details[t->widest];
    t->n_post = c.n_post;
    lib_copy_posts(&c, t->post, t->leaf);
    t->out = s->plan->n_in;
    t->units = f.batch * ((f.cols + UNIT - 1) / UNIT);
    t->grain = grain_of(t, x->in_loop > 0);
    s->flops = 2 * f.batch * f.rows * f.cols * f.k;
    s->alone = t->units < 2 * t->grain;
    s->apart = true;
    s->state = t;
    return ST_OK;
}
static int64_t thin_pack_bytes(const struct cpu_step *s) {
    const struct thin_state *t = s->state;
    return (t->cols + t->panel - 1) / t->panel * t->panel * t->k * weight_size(t->form);
}
// Exact: the value was one.
__attribute__((target("f16c"))) static uint16_t narrow_f16(float v) {
    return _cvtss_sh(v, _MM_FROUND_TO_NEAREST_INT);
}
// One line of a panel. The vectors of bf16 lie in pairs: cpu_thin_body.h says why.
static void put_line(const struct thin_state *t, const float *line, char *to) {
    const int64_t lanes = LANES_MAX >> t->widest;
    uint16_t *half = (uint16_t *)to;
    if (t->form == THIN_PANELS) {
        memcpy(to, line, (size_t)t->panel * sizeof *line);
    } else if (t->form == THIN_PANELS_F16) {
        for (int64_t c = 0; c < t->panel; c++)
            half[c] = narrow_f16(line[c]);
    } else {
        for (int64_t v = 0; v < t->panel; v += 2 * lanes)
            for (int64_t c = 0; c < lanes; c++) {
                half[v + 2 * c] = f32_to_bf16(line[v + c]);
                half[v + 2 * c + 1] = f32_to_bf16(line[v + lanes + c]);
            }
    }
}
static status_t thin_pack(struct cpu_exe *x, struct cpu_step *s, const void *plain, void *packed) {
    const struct thin_state *t = s->state;
    int64_t by_k = t->by_column ? 1 : t->cols, by_col = t->by_column ? t->k : 1;
    char *to = packed;
    for (int64_t col = 0; col < t->cols; col += t->panel) {
        int64_t n = t->cols - col < t->panel ? t->cols - col : t->panel;
        float line[PANEL_MAX] = {0};
        for (int64_t k = 0; k < t->k; k++, to += t->panel * weight_size(t->form)) {
            for (int64_t c = 0; c < n; c++)
                line[c] = plain_at(plain, k * by_k + (col + c) * by_col);
            put_line(t, line, to);
        }
        if (t->by_column) cpu_has_read(x, (const char *)plain + col * t->k * 4, n * t->k * 4);
    }
    return ST_OK;
}
static bool thin_same_pack(const struct cpu_step *a, const struct cpu_step *b) {
    const struct thin_state *s = a->state, *t = b->state;
    return s->form == t->form && s->by_column == t->by_column && s->cols == t->cols && s->k == t->k;
}
const struct cpu_impl cpu_impl_thin = {"thin", thin_accepts, thin_open, NULL, thin_run,
                                       thin_pack_bytes, thin_pack, thin_same_pack};
