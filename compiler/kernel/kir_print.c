// SPDX-License-Identifier: Apache-2.0
// kir as text, its verifier, and the sweep of unused values. The text has no names and numbers
// values in order of appearance, so kernels that do the same have the same text.
#include <inttypes.h>

#include "base/str.h"
#include "compiler/ir/attr_kinds.h"
#include "compiler/kernel/kir.h"

enum { KF_USED = 128, KF_LITERAL = 64, SMALL = 16 };

static void mark(struct kir_val *v);
static void mark_loop(struct kir_loop *l) {
    mark(l->begin);
    mark(l->end);
    for (int i = 0; i < l->n_carry; i++) {
        mark(l->init[i]);
        mark(l->yield[i]);
    }
}
static void mark(struct kir_val *v) {
    if (v->flags & KF_USED) return;
    v->flags |= KF_USED;
    for (int i = 0; i < v->n_args; i++)
        mark(v->args[i]);
    if (v->loop) mark_loop(v->loop);
}
static bool stores(const struct kir_block *b) {
    for (struct kir_val *v = b->first; v; v = v->next)
        if (v->op == K_STORE || (v->op == K_FOR && stores(&v->loop->body))) return true;
    return false;
}
static void mark_roots(struct kir_block *b) {
    for (struct kir_val *v = b->first; v; v = v->next) {
        v->flags &= (uint8_t)~KF_USED;
        if (v->op == K_FOR) mark_roots(&v->loop->body);
    }
}
static void mark_effects(struct kir_block *b) {
    for (struct kir_val *v = b->first; v; v = v->next) {
        if (v->op == K_STORE) mark(v);
        if (v->op != K_FOR) continue;
        if (stores(&v->loop->body)) mark_loop(v->loop);
        mark_effects(&v->loop->body);
    }
}
static bool loop_used(const struct kir_loop *l) {
    for (int i = 0; i < l->n_carry; i++)
        if (l->result[i]->flags & KF_USED) return true;
    return stores(&l->body);
}
static void drop(struct kir_block *b) {
    struct kir_val *first = NULL, *last = NULL;
    for (struct kir_val *v = b->first, *next; v; v = next) {
        next = v->next;
        bool keep = v->op == K_FOR ? loop_used(v->loop) : (v->flags & KF_USED) != 0;
        if (v->op == K_FOR && keep) drop(&v->loop->body);
        v->flags &= (uint8_t)~KF_USED;
        if (!keep) continue;
        v->next = NULL;
        if (last)
            last->next = v;
        else
            first = v;
        last = v;
    }
    b->first = first;
    b->last = last;
}
void kir_sweep(struct kir *k) {
    mark_roots(&k->fn->top);
    mark_effects(&k->fn->top);
    drop(&k->fn->top);
}

void kir_each(struct kir_block *b, void (*fn)(void *ctx, struct kir_val *v), void *ctx) {
    for (struct kir_val *v = b->first; v; v = v->next) {
        fn(ctx, v);
        if (v->op == K_FOR) kir_each(&v->loop->body, fn, ctx);
    }
}

static void put_indent(struct strbuf *b, int indent) {
    static const char blank[] = "                                                                ";
    int n = 2 * indent, most = (int)sizeof blank - 1;
    for (; n > most; n -= most)
        strbuf_add(b, blank, (size_t)most);
    strbuf_add(b, blank, (size_t)n);
}

static void put_type(struct strbuf *b, enum dtype t, int lanes) {
    strbuf_puts(b, dtype_name(t));
    if (lanes) strbuf_putc(b, 'x'), strbuf_i64(b, lanes);
}

struct printer {
    struct strbuf *b;
    struct pmap number;
    intptr_t n;
    struct arena *arena;     // of sizes
    struct kir_sizes *sizes; // not NULL: the text leaves them open
};
static void ref(struct printer *p, struct kir_val *v) {
    intptr_t id = (intptr_t)pmap_get_ptr(&p->number, v);
    if (!id) {
        id = ++p->n;
        pmap_put_ptr(&p->number, v, (void *)id);
    }
    strbuf_putc(p->b, '%');
    strbuf_i64(p->b, id - 1);
}
static void buffer(struct strbuf *b, int64_t buf) {
    if (buf == KIR_SCRATCH)
        strbuf_puts(b, "scratch");
    else if (buf == KIR_OWN)
        strbuf_puts(b, "own");
    else if (buf == KIR_SUMS)
        strbuf_puts(b, "sums");
    else
        strbuf_puts(b, "buf"), strbuf_i64(b, buf);
}
static void print_block(struct printer *p, const struct kir_block *blk, int indent);
static void print_loop(struct printer *p, struct kir_loop *l, int indent) {
    struct strbuf *b = p->b;
    for (int i = 0; i < l->n_carry; i++) {
        if (i) strbuf_puts(b, ", ");
        ref(p, l->result[i]);
    }
    strbuf_puts(b, l->n_carry ? " = for " : "for ");
    ref(p, l->var);
    strbuf_puts(b, " in ");
    ref(p, l->begin);
    strbuf_puts(b, "..");
    ref(p, l->end);

    for (int i = 0; i < l->n_carry; i++) {
        strbuf_puts(b, i ? ", " : " carry ");
        ref(p, l->carry[i]);
        strbuf_putc(b, ':');
        put_type(b, l->carry[i]->type, l->carry[i]->lanes);
        strbuf_puts(b, " = ");
        ref(p, l->init[i]);
    }

    if (l->vectorize) strbuf_puts(b, " vectorize");
    if (l->interleave) strbuf_printf(b, " interleave %d", l->interleave);
    strbuf_puts(b, l->unroll ? " unroll {\n" : " {\n");
    print_block(p, &l->body, indent + 1);

    if (l->n_carry) {
        put_indent(b, indent + 1);
        strbuf_puts(b, "yield ");
        for (int i = 0; i < l->n_carry; i++) {
            if (i) strbuf_puts(b, ", ");
            ref(p, l->yield[i]);
        }
        strbuf_putc(b, '\n');
    }
    put_indent(b, indent);
    strbuf_puts(b, "}\n");
}
// Constants of index arithmetic that may differ between kernels of one form. Not small ones, and
// not strides of a loop that runs as vectors: they decide what the vector code looks like.
static void find_literals(UNUSED void *ctx, struct kir_val *v) {
    if (v->op != K_MUL || v->type != DT_S64) return;
    for (int i = 0; i < 2; i++) {
        const struct kir_val *var = v->args[1 - i];
        if (var->op == K_VAR && var->loop && var->loop->vectorize) v->args[i]->flags |= KF_LITERAL;
    }
}
static void clear_literals(UNUSED void *ctx, struct kir_val *v) {
    v->flags &= (uint8_t)~KF_LITERAL;
}
static bool is_size(const struct kir_val *v) {
    return v->op == K_CONST && v->type == DT_S64 && !(v->flags & KF_LITERAL) &&
           (v->imm_i >= SMALL || v->imm_i <= -SMALL);
}
static void print_imm(struct printer *p, struct kir_val *v) {
    struct strbuf *b = p->b;

    switch (v->op) {
    case K_CONST:
        if (p->sizes && is_size(v)) {
            avec_push(p->arena, p->sizes, v->imm_i);
            v->imm_j = (int64_t)p->sizes->n; // where codegen finds it among the arguments
            strbuf_puts(b, " size");
        } else if (dtype_is_float(v->type))
            strbuf_printf(b, " %.17g", v->imm_f);
        else
            strbuf_putc(b, ' '), strbuf_i64(b, v->imm_i);
        break;
    case K_CMP:
        strbuf_putc(b, ' ');
        strbuf_puts(b, hlo_enum_cmp_direction[v->imm_i]);
        break;
    case K_CALL:
        strbuf_printf(b, " %s", kir_fn_name((int)v->imm_i));
        break;
    case K_QUANT:
        strbuf_printf(b, " %s", dtype_name((enum dtype)v->imm_i));
        break;
    case K_DIVMOD:
        strbuf_puts(b, " /");
        strbuf_i64(b, v->imm_i);
        strbuf_puts(b, " %");
        strbuf_i64(b, v->imm_j);
        if (p->sizes) strbuf_puts(b, v->args[0]->hi < INT64_C(0xffffffff) ? " 32" : " 64");
        break;
    case K_ZIP:
        strbuf_puts(b, v->imm_i ? " second" : " first");
        break;
    case K_TABLE:
        strbuf_printf(b, " t%" PRId64, v->imm_i);
        break;
    case K_LOAD:
        strbuf_putc(b, ' ');
        buffer(b, v->imm_i);
        if (v->elem == v->type) break;
        strbuf_puts(b, " as ");
        strbuf_puts(b, dtype_name(v->elem));
        break;
    default:
        break;
    }
}
static void print_val(struct printer *p, struct kir_val *v, int indent) {
    struct strbuf *b = p->b;
    put_indent(b, indent);

    if (v->op == K_FOR) {
        print_loop(p, v->loop, indent);
        return;
    }
    if (v->op == K_STORE) {
        strbuf_puts(b, "store ");
        buffer(b, v->imm_i);
        strbuf_putc(b, ' ');
        put_type(b, v->elem, v->lanes);
        strbuf_puts(b, " [");
        ref(p, v->args[0]);
        strbuf_puts(b, "] ");
        ref(p, v->args[1]);
        strbuf_putc(b, '\n');
        return;
    }

    ref(p, v);
    strbuf_puts(b, " = ");
    put_type(b, v->type, v->lanes);
    strbuf_putc(b, ' ');
    strbuf_puts(b, kop_name(v->op));
    print_imm(p, v);
    for (int i = 0; i < v->n_args; i++) {
        strbuf_puts(b, i ? ", " : " ");
        ref(p, v->args[i]);
    }
    if (v->flags & KF_REASSOC) strbuf_puts(b, " reassoc");
    if (v->flags & KF_NUMBERS) strbuf_puts(b, " numbers");
    if (v->flags & KF_CONTRACT) strbuf_puts(b, " contract");
    if (p->sizes && v->type == DT_S64 && !kir_fits_32(v))
        strbuf_puts(b, kir_is_exact(v) ? " wide exact" : " wide");
    if (v->flags & KF_FITS) strbuf_puts(b, " fits");
    strbuf_putc(b, '\n');
}
static void print_block(struct printer *p, const struct kir_block *blk, int indent) {
    for (struct kir_val *v = blk->first; v; v = v->next)
        print_val(p, v, indent);
}
static void print_fn(struct printer *p, const struct kir_fn *f) {
    struct strbuf *b = p->b;
    strbuf_printf(b, "kernel bufs=%d in=%d", f->n_bufs, f->n_in);
    if (!p->sizes)
        strbuf_printf(b, " extent=%" PRId64 " scratch=%" PRId64, f->extent, f->scratch_bytes);
    if (f->own.n) {
        strbuf_puts(b, " own=");
        put_type(b, f->own.type, f->own.lanes);
        strbuf_printf(b, "[%d]", f->own.n);
    }
    strbuf_puts(b, " (");
    ref(p, f->begin);
    strbuf_puts(b, ", ");
    ref(p, f->end);
    strbuf_puts(b, ") {\n");
    for (size_t i = 0; i < f->tables.n; i++) {
        const struct kir_table *t = &f->tables.v[i];
        strbuf_printf(b, "  table t%zu %s[%" PRId64 "] = ", i, dtype_name(t->elem), t->n);
        for (int64_t j = 0; j < t->n * dtype_size(t->elem); j++) {
            uint8_t byte = ((const uint8_t *)t->data)[j];
            strbuf_putc(b, "0123456789abcdef"[byte >> 4]);
            strbuf_putc(b, "0123456789abcdef"[byte & 15]);
        }
        strbuf_putc(b, '\n');
    }
    print_block(p, &f->top, 1);
    strbuf_puts(b, "}\n");
    pmap_done(&p->number);
}
void kir_print(struct strbuf *b, const struct kir_fn *f) {
    struct printer p = {.b = b};
    print_fn(&p, f);
    if (f->sums) kir_print(b, f->sums);
}
void kir_print_form(struct strbuf *b, struct arena *a, struct kir_fn *f, struct kir_sizes *out) {
    struct printer p = {.b = b, .arena = a, .sizes = out};
    if (f->tiles) p.sizes = NULL; // of its own: addresses in its loops are constants
    kir_each(&f->top, find_literals, NULL);
    print_fn(&p, f);
    if (f->sums) kir_print(b, f->sums);
    kir_each(&f->top, clear_literals, NULL);
}

static int64_t times(int64_t x, int64_t y) {
    int64_t r;
    return __builtin_mul_overflow(x, y, &r) ? INT64_MAX : r;
}
static int64_t block_work(const struct kir_block *b) {
    int64_t sum = 0;
    for (const struct kir_val *v = b->first; v; v = v->next) {
        int64_t n = v->lanes ? v->lanes : 1;
        if (v->op == K_FOR) {
            const struct kir_loop *l = v->loop;
            n = times(l->trip, block_work(&l->body));
        }
        if (__builtin_add_overflow(sum, n, &sum)) return INT64_MAX;
    }
    return sum;
}
static void count_rare(void *n, struct kir_val *v) {
    *(int *)n += v->op == K_CMP && v->flags & KF_RARE;
}
int kir_rare(const struct kir_fn *f) {
    int n = 0;
    kir_each((struct kir_block *)(uintptr_t)&f->top, count_rare, &n);
    return n;
}
int64_t kir_work(const struct kir_fn *f) {
    int64_t sum = block_work(&f->top);
    bool over = f->sums && __builtin_add_overflow(sum, kir_work(f->sums), &sum);
    return over ? INT64_MAX : sum;
}

static status_t check_val(const struct kir_fn *f, const struct pmap *seen,
                          const struct kir_val *v) {
    for (int i = 0; i < v->n_args; i++)
        if (!pmap_has_ptr(seen, v->args[i]))
            return st_internal("kir: argument %d of %s (%u) is not defined before it", i,
                               kop_name(v->op), v->id);
    if ((v->op == K_LOAD || v->op == K_STORE) && v->args[0]->type != DT_S64)
        return st_internal("kir: the index of %s (%u) is not s64", kop_name(v->op), v->id);
    bool own = v->imm_i == KIR_SCRATCH || v->imm_i == KIR_OWN;
    if (v->op == K_STORE && !own && (v->imm_i < f->n_in || v->imm_i >= f->n_bufs))
        return st_internal("kir: store to buffer %" PRId64, v->imm_i);
    bool again = (v->flags & KF_PINNED) && v->imm_i < f->n_bufs; // what the kernel wrote
    bool sums = v->imm_i == KIR_SUMS && f->sums;
    if (v->op == K_LOAD && !own && !sums && (v->imm_i < 0 || (v->imm_i >= f->n_in && !again)))
        return st_internal("kir: load from buffer %" PRId64, v->imm_i);
    if (v->op == K_COMPLEX) return st_internal("kir: a complex pair is left");
    bool two = v->op >= K_ADD && v->op <= K_REM;
    if (two && (v->args[0]->type != v->type || v->args[1]->type != v->type))
        return st_internal("kir: types of %s (%u) differ", kop_name(v->op), v->id);
    if (v->op == K_ZIP && (v->args[0]->type != v->type || v->args[1]->type != v->type ||
                           v->args[0]->lanes != v->lanes || v->args[1]->lanes != v->lanes))
        return st_internal("kir: vectors of zip (%u) differ", v->id);
    if (v->op == K_SELECT && (v->args[0]->type != DT_PRED || v->args[1]->type != v->args[2]->type))
        return st_internal("kir: types of select (%u)", v->id);
    return ST_OK;
}

// Bytes of scratch that were stored to by what stands before, as ranges that may overlap.
struct filled {
    struct {
        __int128 lo, hi;
    } v[64];
    int n;
};
static bool reads_filled(struct filled *f, const struct kir_val *v) {
    int size = dtype_size(v->elem), lanes = v->op == K_STORE ? v->args[1]->lanes : v->lanes;
    __int128 lo = (__int128)v->args[0]->lo * size,
             hi = ((__int128)v->args[0]->hi + (lanes ? lanes : 1)) * size;
    if (v->op == K_STORE) {
        int k = f->n < 64 ? f->n++ : 63;
        bool widen = k == 63 && f->n == 64 && f->v[k].hi > f->v[k].lo;
        f->v[k].lo = widen && f->v[k].lo < lo ? f->v[k].lo : lo;
        f->v[k].hi = widen && f->v[k].hi > hi ? f->v[k].hi : hi;
        return true;
    }
    for (int k = 0; k < f->n; k++)
        if (lo < f->v[k].hi && f->v[k].lo < hi) return true;
    return false;
}
// Scratch holds what another row left there until it is stored to.
static bool scratch_is_filled(struct filled *f, const struct kir_block *b) {
    for (const struct kir_val *v = b->first; v; v = v->next) {
        bool scratch = (v->op == K_LOAD || v->op == K_STORE) && v->imm_i == KIR_SCRATCH;
        if (scratch && !reads_filled(f, v)) return false;
        if (v->op == K_FOR && !scratch_is_filled(f, &v->loop->body)) return false;
    }
    return true;
}

static status_t check_block(const struct kir_fn *f, struct pmap *seen, const struct kir_block *b,
                            int depth) {
    if (depth > KIR_MAX_LEVEL) return st_internal("kir: nested too deeply");
    for (struct kir_val *v = b->first; v; v = v->next) {
        struct kir_loop *l = v->op == K_FOR ? v->loop : NULL;
        RETURN_IF_ERR(check_val(f, seen, v));
        pmap_put_ptr(seen, v, v);
        if (!l) continue;
        if (!pmap_has_ptr(seen, l->begin) || !pmap_has_ptr(seen, l->end))
            return st_internal("kir: bounds of a loop are not defined before it");
        for (int i = 0; i < l->n_carry; i++) {
            if (!pmap_has_ptr(seen, l->init[i]) || l->yield[i]->type != l->init[i]->type)
                return st_internal("kir: carried value %d of a loop", i);
            pmap_put_ptr(seen, l->carry[i], v);
        }
        pmap_put_ptr(seen, l->var, v);
        RETURN_IF_ERR(check_block(f, seen, &l->body, depth + 1));
        for (int i = 0; i < l->n_carry; i++) {
            if (!pmap_has_ptr(seen, l->yield[i]))
                return st_internal("kir: yield %d is not defined", i);
            pmap_put_ptr(seen, l->result[i], v);
        }
    }
    return ST_OK;
}
status_t kir_verify(const struct kir_fn *f) {
    struct pmap seen = {0};
    pmap_put_ptr(&seen, f->begin, f->begin);
    pmap_put_ptr(&seen, f->end, f->end);
    status_t st = check_block(f, &seen, &f->top, 0);
    pmap_done(&seen);
    struct filled filled = {.n = 0};
    if (!st && !scratch_is_filled(&filled, &f->top))
        st = st_internal("kir: scratch is read before it is stored to");
    if (!st && f->sums) st = kir_verify(f->sums);
    return st;
}
