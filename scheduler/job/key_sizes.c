// SPDX-License-Identifier: Apache-2.0
// Dimensions that are expressions over symbols: evaluated where the symbols are bound; one that is
// linear in a single unknown symbol tells its size. What is found may tell more, so it goes round.
#include <inttypes.h>
#include <stdio.h>

#include "base/map.h"
#include "proto/size_expr.h"
#include "scheduler/job/key.h"

enum { MOST_ROUNDS = 64, MOST_BYTES = 1 << 22 }; // of expressions read for one request

struct sizes {
    struct arena *a;
    struct smap known; // symbol or expression -> its size
    size_t read;
};

static bool find(void *ctx, struct str symbol, int64_t *out) {
    const struct sizes *s = ctx;
    const int64_t *size = smap_get(&s->known, symbol);
    if (size) *out = *size;
    return size != NULL;
}
static void learn(struct sizes *s, struct str symbol, int64_t size) {
    smap_put(&s->known, symbol, arena_dup(s->a, &size, sizeof size));
}
static status_t wrong(const Hlod__V1__TensorSpec *in, size_t d, const char *fmt, ...) {
    char why[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return st_because(ST_INVALID_ARGUMENT, SHAPE_MISMATCH, "input '%s', dimension %zu ('%s'): %s",
                      in->name, d, in->dims[d]->symbol, why);
}

static status_t settle_dim(struct sizes *s, const Hlod__V1__TensorSpec *in, size_t d, bool *more) {
    struct str text = str_of(in->dims[d]->symbol);
    struct size_expr x;
    int64_t size, found;
    s->read += text.n;
    if (s->read > MOST_BYTES)
        return st_exhausted("input '%s': the expressions of dimensions take too long", in->name);
    status_t st = size_expr_read(text, find, s, &x);
    if (st)
        return st_reason(st_note(st, "input '%s', dimension %zu ('%s')", in->name, d, text.p),
                         HLOD__V1__REASON__REASON_SHAPE_MISMATCH);
    bool has = find(s, text, &size);

    if (x.form == SIZE_KNOWN) {
        if (x.value < 0) return wrong(in, d, "its size would be %" PRId64, x.value);
        if (has && size != x.value)
            return wrong(in, d, "expected %" PRId64 ", found %" PRId64, x.value, size);
        if (!has) learn(s, text, x.value);
        *more |= !has;
    } else if (x.form == SIZE_LINEAR && has) {
        if (!size_expr_solve(&x, size, &found) || found < 0)
            return wrong(in, d, "no size '%.*s' gives %" PRId64, STR_ARG(x.unknown), size);
        learn(s, x.unknown, found);
        *more = true;
    }
    return ST_OK;
}
static status_t settle_all(struct sizes *s, const Hlod__V1__Signature *sig) {
    bool more = true;
    for (int round = 0; more && round < MOST_ROUNDS; round++) {
        more = false;
        for (size_t i = 0; i < sig->n_inputs; i++)
            for (size_t d = 0; d < sig->inputs[i]->n_dims; d++)
                if (sig->inputs[i]->dims[d]->expression)
                    RETURN_IF_ERR(settle_dim(s, sig->inputs[i], d, &more));
    }
    return ST_OK;
}
static void take_found(struct key_binder *b, struct sizes *s, const Hlod__V1__Signature *sig) {
    for (size_t i = 0; i < sig->n_inputs; i++)
        for (size_t d = 0; d < sig->inputs[i]->n_dims; d++) {
            const Hlod__V1__Dim *dim = sig->inputs[i]->dims[d];
            int64_t size;
            if (dim->size >= 0 || smap_has(&b->index, str_of(dim->symbol)) ||
                !find(s, str_of(dim->symbol), &size))
                continue;
            key_add(b, arena_strdup(b->a, dim->symbol), size);
        }
}

status_t key_settle(struct key_binder *b, const Hlod__V1__Signature *sig) {
    struct sizes s = {.a = b->a};
    bool any = false;
    for (size_t i = 0; i < sig->n_inputs && !any; i++)
        for (size_t d = 0; d < sig->inputs[i]->n_dims; d++)
            any |= sig->inputs[i]->dims[d]->expression;
    if (!any) return ST_OK;
    smap_seed_random(&s.known);
    for (size_t k = 0; k < b->bound.n; k++)
        learn(&s, str_of(b->bound.v[k]->symbol), b->bound.v[k]->size);
    status_t st = settle_all(&s, sig);
    if (!st) take_found(b, &s, sig);
    smap_done(&s.known);
    return st;
}
