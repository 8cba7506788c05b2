// SPDX-License-Identifier: Apache-2.0
#include "compiler/codegen/shader/shader.h"

bool shader_too_narrow(const struct kir_fn *f) {
    return f->extent < 4 * SHADER_GROUP && kir_work(f) / (f->extent + 1) > SHADER_WORK_OF_FEW;
}

static status_t add_kernel(const struct shader *s, struct strbuf *b, const struct kernel_unit *u) {
    size_t before = b->n;
    status_t st = s->kernel(b, u->fn, u->symbol);
    if (st_code(st) != ST_UNIMPLEMENTED) return st;
    b->n = before;
    strbuf_printf(b, "// %s: %s\n", u->symbol, st_message(st));
    st_drop(st);
    return ST_OK;
}
status_t shader_module(const struct shader *s, struct backend_work *w, struct span *out) {
    struct strbuf b = {0};
    status_t st = ST_OK;
    *out = (struct span){0};
    if (w->n == 0) return ST_OK;
    strbuf_puts(&b, s->prologue);
    for (int k = 0; k < w->n && !st; k++)
        st = add_kernel(s, &b, &w->units[k]);
    if (!st && w->text) strbuf_add(w->text, b.p, b.n);
    if (!st) *out = (struct span){arena_dup(w->a, b.p, b.n), b.n};
    strbuf_done(&b);
    return st;
}
