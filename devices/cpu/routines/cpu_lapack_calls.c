// SPDX-License-Identifier: Apache-2.0
// lapack_calls: JAX's calls of LAPACK (compiler/ops/linalg/lapack.h) by OpenBLAS: a table, one row
// a routine, of the arguments in LAPACK's order. Matrices are turned into columns and back, the
// order that the routines read; vectors are read and written where they lie. What a routine needs
// besides is asked for at load and lies in the scratchpad, a part for each thread; the matrices of
// a stack are shared among the threads.
//
// Results are those of LAPACK, signs and the number of a failure (info) among them. The library's
// products of f32 lose NaN (OpenBLAS 0.3.21), and some routines need not end on it, so a matrix
// that holds NaN or infinities is the reference evaluator's alone. Vectors that the program does
// not read are not computed. Sizes 0 and matrices of more than MOST elements stay with the
// reference evaluator, and all calls where the library is not there.
#include <float.h>
#include <math.h>

#include "compiler/ops/linalg/lapack.h"
#include "devices/cpu/cpu.h"
#include "devices/cpu/routines/cpu_lapack.h"

enum { MOST = 1 << 28 };          // elements of a matrix: LAPACK counts in 32 bits
enum { GRAIN_PRODUCTS = 200000 }; // multiplications that a thread takes at least
enum { ARGS = 20, LEAVES = 12, ALIGN = 64 };

// A letter for each argument:
//   a b c d      operand 0 to 3, read only (a matrix: a copy)
//   0 to 5       result; "0=a": it begins as that operand
//   @ #          results 2 and 3 of geev as real numbers: pairs of columns, made complex afterwards
//   m n k p q    rows and columns of the first operand; reflectors; rows and columns of the third
//   M P V        distance of columns: m, p, rows of result 3
//   o ! N Y      1; no pointer; the letters 'N' and 'V'
//   u s t        triangle, side, transposition
//   j l r        vectors: any (svd: A, S or N), left, right
//   W L R F I J  room of numbers and its length, of real ones, of integers
//   B -          room of truth values; info that the call has no result for
static const struct routine {
    enum lapack_kind kind;
    int work;            // multiplications, as multiples of rows, columns and the fewer of them
    const char *name[2]; // of real and of complex numbers
    const char *args[2];
} routines[] = {
    {LAPACK_GETRF, 1, {"getrf", "getrf"}, {"mn0=aM12", "mn0=aM12"}},
    {LAPACK_GEQRF, 2, {"geqrf", "geqrf"}, {"mn0=aM1WL-", "mn0=aM1WL-"}},
    {LAPACK_GEQP3, 2, {"geqp3", "geqp3"}, {"mn0=aM1=b2WL-", "mn0=aM1=b2WLR-"}},
    {LAPACK_ORGQR, 2, {"orgqr", "ungqr"}, {"mnk0=aMbWL-", "mnk0=aMbWL-"}},
    {LAPACK_ORMQR, 2, {"ormqr", "unmqr"}, {"stpqkaMb0=cPWL-", "stpqkaMb0=cPWL-"}},
    {LAPACK_SYEVD, 5, {"syevd", "heevd"}, {"jun0=aM1WLIJ2", "jun0=aM1WLRFIJ2"}},
    {LAPACK_GESDD, 10, {"gesdd", "gesdd"}, {"jmn0=aM12M3VWLI4", "jmn0=aM12M3VWLRI4"}},
    {LAPACK_GESVD, 20, {"gesvd", "gesvd"}, {"jjmn0=aM12M3VWL4", "jjmn0=aM12M3VWLR4"}},
    {LAPACK_GEEV, 20, {"geev", "geev"}, {"lrnaM01@M#MWL4", "lrnaM01M2MWLR3"}},
    {LAPACK_GEES, 15, {"gees", "gees"}, {"jN!n0=aM4231MWLB5", "jN!n0=aM321MWLRB4"}},
    {LAPACK_GEHRD, 2, {"gehrd", "gehrd"}, {"non0=aM1WL2", "non0=aM1WL2"}},
    {LAPACK_SYTRD, 1, {"sytrd", "hetrd"}, {"un0=aM123WL4", "un0=aM123WL4"}},
    {LAPACK_GTSV, 1, {"gtsv", "gtsv"}, {"mn0=a1=b2=c3=dM4", "mn0=a1=b2=c3=dM4"}},
};
// All arguments are pointers; the lengths of texts, which Fortran wants behind them, are 1. More
// than a routine takes are not looked at.
typedef void (*routine_fn)(void *, void *, void *, void *, void *, void *, void *, void *, void *,
                           void *, void *, void *, void *, void *, void *, void *, void *, void *,
                           void *, void *);

struct arg {
    void *fixed;                 // a number or letter of lapack_state.value; or NULL
    int in, out;                 // operand and result, -1 = none
    int64_t offset;              // in the thread's part of the scratchpad, -1 = none
    int64_t rows, columns, size; // of a matrix in columns (size 0: none); bytes of an element
    int64_t room;                // bytes in the scratchpad
    int64_t skip;                // bytes at its begin that the routine does not get
    bool pairs;
};
struct lapack_state {
    const struct routine *routine;
    routine_fn call;
    struct lapack_call c;
    int type, n_args, n_in, n_out;
    int value[128]; // by the argument's letter; its first byte is what Fortran reads as a text
    struct arg args[ARGS];
    const struct shape *leaves[LEAVES], *ones[LEAVES]; // operands, then results; of one matrix
    int64_t each[LEAVES];                              // their bytes of one matrix
    int64_t part, grain; // of the scratchpad, bytes a thread; matrices a thread
};

// ---- which

static const struct shape *result_leaf(const struct hlo_instr *i, int k) {
    return shape_is_tuple(i->shape) ? i->shape->elems[k] : i->shape;
}
static int result_count(const struct hlo_instr *i) {
    return shape_is_tuple(i->shape) ? i->shape->n_elems : 1;
}
// In rows, no more elements a matrix than LAPACK counts.
static bool fits(const struct shape *s, int64_t batch) {
    int64_t n = shape_elements(s);
    return layout_is_default(s->layout, s->rank) && !s->dynamic && n > 0 && n / batch <= MOST;
}
static const struct routine *routine_of(const struct hlo_instr *i, struct lapack_call *c) {
    if (!lapack_read(i, c) || c->m == 0 || c->n == 0 || c->batch == 0) return NULL;
    for (int k = 0; k < i->n_operands; k++)
        if (!fits(i->operands[k]->shape, c->batch)) return NULL;
    for (int k = 0; k < result_count(i); k++)
        if (!fits(result_leaf(i, k), c->batch)) return NULL;
    for (size_t k = 0; k < sizeof routines / sizeof *routines; k++)
        if (routines[k].kind == c->kind) return &routines[k];
    return NULL;
}
static bool calls_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                          const char **why) {
    struct lapack_call c;
    *why = "not a call of LAPACK";
    if (!routine_of(i, &c)) return false;
    *why = CPU_LAPACK_PACKAGE;
    return cpu_lapack_open();
}

// ---- arguments

// Does anything but a get-tuple-element of another result read this one?
static bool is_read(const struct hlo_instr *i, int result) {
    if (i == i->parent->root || i->users.n == 0) return true;
    for (size_t k = 0; k < i->users.n; k++) {
        const struct hlo_instr *u = i->users.v[k];
        if (u->op != HLO_GET_TUPLE_ELEMENT || HLO_ATTR(u, gte)->index == result) return true;
    }
    return false;
}
static int svd_letter(const struct lapack_state *t, bool vectors) {
    const struct shape *u = t->leaves[t->n_in + 2], *v = t->leaves[t->n_in + 3];
    int64_t least = t->c.m < t->c.n ? t->c.m : t->c.n;
    bool whole = u->dims[u->rank - 1] > least || v->dims[v->rank - 2] > least;
    return !vectors ? 'N' : whole ? 'A' : 'S';
}
static void set_values(struct lapack_state *t, const struct hlo_instr *i) {
    const struct lapack_call *c = &t->c;
    const struct shape *first = t->leaves[0], *last = t->leaves[t->n_in - 1];
    bool svd = c->kind == LAPACK_GESDD || c->kind == LAPACK_GESVD;
    bool q = c->kind == LAPACK_ORGQR || c->kind == LAPACK_ORMQR;
    int *v = t->value;
    v['m'] = v['M'] = (int)c->m;
    v['n'] = (int)c->n;
    v['o'] = 1;
    v['N'] = 'N', v['Y'] = 'V';
    v['u'] = c->upper ? 'U' : 'L';
    v['s'] = c->left ? 'L' : 'R';
    v['t'] = !c->adjoint ? 'N' : dtype_is_complex(first->dtype) ? 'C' : 'T';
    v['l'] = c->left_vectors ? 'V' : 'N';
    v['r'] = c->right_vectors ? 'V' : 'N';
    if (q) v['k'] = (int)t->leaves[1]->dims[t->leaves[1]->rank - 1];
    if (c->kind == LAPACK_ORMQR) {
        v['p'] = v['P'] = (int)last->dims[last->rank - 2];
        v['q'] = (int)last->dims[last->rank - 1];
    }

    bool vectors = c->left_vectors;
    if (c->kind == LAPACK_SYEVD) vectors = vectors && is_read(i, 0);
    if (svd) vectors = vectors && (is_read(i, 2) || is_read(i, 3));
    v['j'] = svd ? svd_letter(t, vectors) : vectors ? 'V' : 'N';
    if (svd) v['V'] = (int)t->leaves[t->n_in + 3]->dims[t->leaves[t->n_in + 3]->rank - 2];
}
// Of the last two dims where there are some beside the stack's.
static void set_matrix(const struct lapack_state *t, struct arg *a, const struct shape *s) {
    bool gtsv = t->c.kind == LAPACK_GTSV;
    int nb = t->leaves[gtsv ? 3 : 0]->rank - 2;
    if (s->rank != nb + 2) return;
    a->rows = s->dims[nb], a->columns = s->dims[nb + 1];
    a->size = dtype_size(s->dtype);
    a->room = a->rows * a->columns * a->size;
}
static void set_arg(struct lapack_state *t, struct arg *a, const char **at) {
    char letter = *(*at)++;
    *a = (struct arg){.in = -1, .out = -1, .offset = -1};
    if (strchr("WRIB-", letter)) return; // room: see set_room
    if (letter == '!') {
        a->fixed = NULL;
    } else if (letter == '@' || letter == '#') {
        a->out = letter == '@' ? 2 : 3;
        set_matrix(t, a, t->leaves[t->n_in + a->out]);
        a->pairs = true;
        a->size /= 2;
        a->room /= 2;
    } else if (letter >= '0' && letter <= '9') {
        a->out = letter - '0';
        set_matrix(t, a, t->leaves[t->n_in + a->out]);
        if (**at == '=') a->in = (*at)[1] - 'a', *at += 2;
        if (t->c.kind == LAPACK_GTSV && a->out == 0) // its first element is not used
            a->skip = dtype_size(t->leaves[0]->dtype);
    } else if (letter >= 'a' && letter <= 'd') {
        a->in = letter - 'a';
        set_matrix(t, a, t->leaves[a->in]);
    } else {
        a->fixed = &t->value[(int)letter];
    }
}

// ---- room

static bool is_double(const struct lapack_state *t) {
    return t->type % 2;
}
// LAPACK's answer to a length of -1, a number of the routine's type; it may have been rounded down.
static double asked(const struct lapack_state *t, const char *answer) {
    return is_double(t) ? *(const double *)answer
                        : ceil(*(const float *)answer * (1 + 4 * (double)FLT_EPSILON));
}
static void call(const struct lapack_state *t, void *const *p) {
    cpu_lapack_begin();
    t->call(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11], p[12], p[13],
            p[14], p[15], p[16], p[17], p[18], p[19]);
    cpu_lapack_end();
}
// Real numbers and integers where the routine does not say how many: LAPACK's documentation.
static double real_room(const struct lapack_state *t) {
    double m = (double)t->c.m, n = (double)t->c.n, least = fmin(m, n), most = fmax(m, n);
    bool vectors = t->c.kind == LAPACK_GESDD && t->value['j'] != 'N';
    return 7 * most + (vectors ? 5 * least * least + 2 * most * least + 2 * least * least : 0);
}
// Asks for the rooms. False: longer than LAPACK counts.
static bool set_room(struct lapack_state *t, const char *spec) {
    _Alignas(ALIGN) char answers[ARGS][ALIGN] = {{0}};
    void *p[ARGS];
    bool lengths = strchr(spec, 'L'), real_asked = strchr(spec, 'F'), asks = strchr(spec, 'J');
    double w = 0, r = real_room(t), whole = 8 * fmax((double)t->c.m, (double)t->c.n);
    int real_size = is_double(t) ? 8 : 4;

    t->value['L'] = t->value['F'] = t->value['J'] = -1;
    for (int k = 0; k < ARGS; k++)
        p[k] = k < t->n_args && t->args[k].fixed ? t->args[k].fixed : answers[k];
    if (lengths) call(t, p);

    int at = 0;
    for (const char *c = spec; *c; c++, at++) {
        if (*c == 'W') w = asked(t, answers[at]);
        if (*c == 'R' && real_asked) r = asked(t, answers[at]);
        if (*c == 'I' && asks) whole = *(const int *)answers[at];
        if (c[1] == '=') c += 2;
    }
    if (!(w <= INT32_MAX && r <= INT32_MAX && whole <= INT32_MAX)) return false;

    t->value['L'] = w < 1 ? 1 : (int)w;
    t->value['F'] = r < 1 ? 1 : (int)r;
    t->value['J'] = whole < 1 ? 1 : (int)whole;
    at = 0;
    for (const char *c = spec; *c; c++, at++) {
        struct arg *a = &t->args[at];
        if (*c == 'W') a->room = (int64_t)t->value['L'] * real_size * (t->type < 2 ? 1 : 2);
        if (*c == 'R') a->room = (int64_t)t->value['F'] * real_size;
        if (strchr("IB-", *c)) a->room = (int64_t)t->value['J'] * (int64_t)sizeof(int);
        if (a->room) a->offset = t->part;
        t->part += (a->room + ALIGN - 1) / ALIGN * ALIGN;
        if (c[1] == '=') c += 2;
    }
    return true;
}
// s with a stack of one matrix.
static const struct shape *of_one(struct arena *a, const struct lapack_state *t,
                                  const struct shape *s) {
    int64_t dims[HLO_MAX_RANK];
    bool gtsv = t->c.kind == LAPACK_GTSV;
    int nb = t->leaves[0]->rank - (gtsv ? 1 : 2);
    for (int d = 0; d < s->rank; d++)
        dims[d] = d < nb ? 1 : s->dims[d];
    return shape_make(a, s->dtype, dims, s->rank);
}
static status_t calls_open(struct cpu_exe *x, struct cpu_step *s) {
    struct lapack_state *t = arena_new_of(&x->arena, struct lapack_state);
    const struct hlo_instr *i = s->plan->instr;
    t->routine = routine_of(i, &t->c);
    if (!t->routine) return st_internal("not a call of LAPACK");

    t->n_in = i->n_operands, t->n_out = result_count(i);
    for (int k = 0; k < t->n_in + t->n_out; k++) {
        t->leaves[k] = k < t->n_in ? i->operands[k]->shape : result_leaf(i, k - t->n_in);
        t->each[k] = shape_bytes(t->leaves[k]) / t->c.batch;
        t->ones[k] = of_one(&x->arena, t, t->leaves[k]);
    }
    t->type = cpu_lapack_type(t->leaves[0]->dtype);
    const char *spec = t->routine->args[t->type > 1], *at = spec;
    *(void **)&t->call = cpu_lapack_routine(t->type, t->routine->name[t->type > 1]);
    set_values(t, i);
    while (*at)
        set_arg(t, &t->args[t->n_args++], &at);
    s->declined = !t->call || !set_room(t, spec);
    if (s->declined) return ST_OK;

    int64_t scratch = t->part * cpu_threads();
    if (scratch > x->scratch_bytes) x->scratch_bytes = scratch;
    int64_t least = t->c.kind == LAPACK_GTSV ? 3 : t->c.m < t->c.n ? t->c.m : t->c.n;
    int64_t work = t->routine->work * t->c.m * t->c.n * least * (t->type > 1 ? 4 : 1);
    t->grain = cpu_lapack_turns() ? t->c.batch : GRAIN_PRODUCTS / work + 1;
    s->flops = 2 * work * t->c.batch;
    s->detail = arena_printf(&x->arena, "lapack:%s", t->routine->name[t->type > 1]);
    s->state = t;
    return ST_OK;
}

// ---- running

struct lapack_run {
    const struct cpu_exe *x;
    const struct lapack_state *t;
    void **bufs;
};
static bool all_finite(const struct lapack_state *t, const void *p, int64_t bytes) {
    const uint64_t *d = p, ones = UINT64_C(0x7ff) << 52;
    uint64_t found = 0;
    if (!is_double(t)) return !cpu_not_finite(p, bytes / 4);
    for (int64_t k = 0; k < bytes / 8; k++)
        found |= (d[k] & ones) == ones;
    return !found;
}
// Matrix k of a stack by the reference evaluator, which takes memory for it.
static void by_evaluator(const struct lapack_run *r, int64_t k) {
    const struct lapack_state *t = r->t;
    struct lapack_call c = t->c;
    struct literal lits[LEAVES], *at[LEAVES];
    c.batch = 1;
    for (int j = 0; j < t->n_in + t->n_out; j++) {
        lits[j] = (struct literal){.shape = t->ones[j],
                                   .data = (char *)r->bufs[j] + k * t->each[j],
                                   .size_bytes = (size_t)t->each[j]};
        at[j] = &lits[j];
        if (j >= t->n_in) memset(lits[j].data, 0, lits[j].size_bytes);
    }
    st_drop(lapack_run(&c, at, at + t->n_in)); // of a kind that routine_of knows
}
// Columns of real numbers, of which two beside each other stand for a pair of vectors where the
// eigenvalues (im: their imaginary parts) are a pair.
#define MAKE_COMPLEX(NAME, T)                                                                      \
    static void NAME(int64_t n, const T *im, const T *from, T *to) {                               \
        for (int64_t j = 0; j < n; j++) {                                                          \
            bool pair = im[j] != 0 && j + 1 < n;                                                   \
            for (int64_t r = 0; r < n; r++) {                                                      \
                T *z = to + 2 * (r * n + j), v = from[j * n + r];                                  \
                T w = pair ? from[(j + 1) * n + r] : 0;                                            \
                z[0] = v, z[1] = w;                                                                \
                if (pair) z[2] = v, z[3] = -w;                                                     \
            }                                                                                      \
            j += pair;                                                                             \
        }                                                                                          \
    }
MAKE_COMPLEX(make_complex32, float)
MAKE_COMPLEX(make_complex64, double)
static void store(const struct lapack_run *r, const struct arg *a, int64_t k, const void *from) {
    const struct lapack_state *t = r->t;
    char *to = (char *)r->bufs[t->n_in + a->out] + k * t->each[t->n_in + a->out];
    const char *im = (const char *)r->bufs[t->n_in + 1] + k * t->each[t->n_in + 1];
    if (a->pairs && is_double(t))
        make_complex64(a->rows, (const double *)im, from, (double *)to);
    else if (a->pairs)
        make_complex32(a->rows, (const float *)im, from, (float *)to);
    else
        cpu_transpose_matrix(a->size, from, a->columns, a->rows, to);
}
// Where the routine finds the argument, with what it begins as.
static void *place(const struct lapack_run *r, const struct arg *a, int64_t k, char *scratch) {
    const struct lapack_state *t = r->t;
    if (a->fixed || (a->offset < 0 && a->in < 0 && a->out < 0)) return a->fixed;
    const char *from = a->in < 0 ? NULL : (const char *)r->bufs[a->in] + k * t->each[a->in];
    char *to =
        a->out < 0 ? NULL : (char *)r->bufs[t->n_in + a->out] + k * t->each[t->n_in + a->out];
    if (a->offset >= 0) {
        if (from) cpu_transpose_matrix(a->size, from, a->rows, a->columns, scratch + a->offset);
        return scratch + a->offset;
    }
    if (!to) return (void *)(uintptr_t)from; // the routine only reads it
    if (from && from != to) memcpy(to, from, (size_t)t->each[a->in]);
    return to + a->skip;
}
static bool is_written(const struct lapack_state *t, const struct arg *a) {
    if (t->c.kind == LAPACK_GEEV && a->out == t->n_out - 3) return t->c.left_vectors;
    if (t->c.kind == LAPACK_GEEV && a->out == t->n_out - 2) return t->c.right_vectors;
    bool vectors = t->c.kind == LAPACK_GEES                                 ? a->out == 1
                   : t->c.kind == LAPACK_GESDD || t->c.kind == LAPACK_GESVD ? a->out > 1
                                                                            : false;
    return !vectors || t->value['j'] != 'N';
}
static void one_matrix(const struct lapack_run *r, int64_t k, char *scratch) {
    const struct lapack_state *t = r->t;
    void *p[ARGS];
    for (int j = 0; j < t->n_in; j++)
        if (t->leaves[j]->dtype != DT_S32 &&
            !all_finite(t, (const char *)r->bufs[j] + k * t->each[j], t->each[j])) {
            by_evaluator(r, k);
            return;
        }

    for (int j = 0; j < ARGS; j++)
        p[j] = j < t->n_args ? place(r, &t->args[j], k, scratch) : (void *)(uintptr_t)1;
    call(t, p);
    for (int j = 0; j < t->n_args; j++) {
        const struct arg *a = &t->args[j];
        if (a->offset < 0 || a->out < 0) continue;
        if (is_written(t, a))
            store(r, a, k, p[j]);
        else
            memset((char *)r->bufs[t->n_in + a->out] + k * t->each[t->n_in + a->out], 0,
                   (size_t)t->each[t->n_in + a->out]);
    }
}
static void part(void *ctx, int64_t begin, int64_t end, int thread) {
    const struct lapack_run *r = ctx;
    for (int64_t k = begin; k < end && !(r->x->cancel && *r->x->cancel); k++)
        one_matrix(r, k, (char *)r->x->scratch + thread * r->t->part);
}
static status_t calls_run(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct lapack_state *t = s->state;
    cpu_parallel(part, &(struct lapack_run){x, t, bufs}, t->c.batch, t->grain);
    return x->cancel && *x->cancel ? cpu_cancelled() : ST_OK;
}
const struct cpu_impl cpu_impl_lapack_calls = {"lapack",  calls_accepts, calls_open, NULL,
                                               calls_run, NULL,          NULL,       NULL};
