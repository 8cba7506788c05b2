// SPDX-License-Identifier: Apache-2.0
// A step's kernel: each result is drawn, then all are copied to their places, since one may lie
// where an operand does. At most some kernels are in the queue, so that a run that is cancelled
// ends soon.
#include "base/clock.h"
#include "compiler/codegen/shader/shader.h"
#include "devices/gl/gl_device.h"

enum { MARK_EVERY = 16 };
#define WAIT_NS 1000000000

status_t gl_finish(struct queue_device *base) {
    struct gl_device *d = (struct gl_device *)base;
    d->gl->Finish();
    return gl_check(d, "glFinish");
}

// ---- rectangles

// Draws words [word, word + words) to rows of `drawn` from row `base` on.
static void draw(struct gl_device *d, const struct gl_program *p, const int32_t *places, int n,
                 int64_t word, int64_t words, int64_t elements, int64_t base) {
    struct gl_piece piece[GL_MOST_PIECES];
    int64_t row = word >> d->bits;
    d->gl->UseProgram(p->id);
    d->gl->Uniform1iv(p->places, n, places);
    d->gl->Uniform3i(p->at, (int32_t)((row - base) * (INT64_C(1) << d->bits) - word),
                     (int32_t)words, (int32_t)elements);
    for (int k = 0, m = gl_pieces(d, word, words, piece); k < m; k++) {
        d->gl->Viewport(piece[k].x, piece[k].y - (int32_t)(row - base), piece[k].w, piece[k].h);
        d->gl->DrawArrays(GL_TRIANGLES, 0, 3);
    }
}
// What a kernel's units sum, a fragment each.
static void draw_sums(struct gl_device *d, const struct gl_text *t, const int32_t *places, int n) {
    int64_t units = t->sum_units, width = INT64_C(1) << d->bits;
    d->gl->BindFramebuffer(GL_FRAMEBUFFER, d->sums.frame[t->sum_layers - 1]);
    d->gl->UseProgram(t->sums.id);
    d->gl->Uniform1iv(t->sums.places, n, places);
    d->gl->Uniform3i(t->sums.at, 0, (int32_t)units, 0);
    d->gl->Viewport(0, 0, (int32_t)(units < width ? units : width),
                    (int32_t)ceil_div(units, width));
    d->gl->DrawArrays(GL_TRIANGLES, 0, 3);
    d->gl->BindFramebuffer(GL_FRAMEBUFFER, d->drawn.frame);
}
// What was drawn so, to its place.
static void keep(struct gl_device *d, int64_t word, int64_t words, int64_t base) {
    struct gl_piece piece[GL_MOST_PIECES];
    int32_t up = (int32_t)((word >> d->bits) - base);
    for (int k = 0, m = gl_pieces(d, word, words, piece); k < m; k++)
        d->gl->CopyTexSubImage2D(GL_TEXTURE_2D, 0, piece[k].x, piece[k].y, piece[k].x,
                                 piece[k].y - up, piece[k].w, piece[k].h);
}
status_t gl_copy(struct queue_device *base, struct queue_place to, struct queue_place from,
                 int64_t bytes) {
    struct gl_device *d = (struct gl_device *)base;
    int64_t left = ceil_div(bytes, 4), word = to.at / 4, source = from.at / 4;
    int64_t most = (d->drawn.rows - 1) << d->bits;
    while (left) {
        int64_t n = left < most ? left : most;
        int32_t place = (int32_t)source;
        draw(d, &d->copier, &place, 1, word, n, n, 0);
        keep(d, word, n, 0);
        left -= n;
        word += n;
        source += n;
    }
    return gl_check(d, "glCopyTexSubImage2D");
}

// ---- kernels

static status_t wait_for(struct gl_device *d, void *mark) {
    uint32_t how;
    do
        how = d->gl->ClientWaitSync(mark, GL_SYNC_FLUSH_COMMANDS_BIT, WAIT_NS);
    while (how == GL_TIMEOUT_EXPIRED);
    d->gl->DeleteSync(mark);
    return how == GL_WAIT_FAILED ? gl_check(d, "glClientWaitSync") : ST_OK;
}
static status_t keep_short(struct gl_device *d) {
    void *before = d->mark;
    d->mark = d->gl->FenceSync(GL_SYNC_GPU_COMMANDS_COMPLETE, 0);
    return before ? wait_for(d, before) : ST_OK;
}
static void draw_all(struct gl_device *d, const struct queue_step *s) {
    const struct gl_kernel *k = s->kernel;
    const struct plan_step *ps = s->plan;
    const struct gl_text *t = k->text;
    int32_t places[SHADER_MAX_BUFFERS];
    int n = 0;
    for (int b = 0; b < ps->n_in + ps->n_out; b++)
        places[n++] = (int32_t)(s->at[b].at / 4);
    for (size_t b = 0; b < t->tables.n; b++)
        places[n++] = (int32_t)(t->tables.v[b].at / 4);

    if (t->sum_units) draw_sums(d, t, places, n);
    for (int copies = 0; copies < 2; copies++) {
        int64_t base = 0;
        for (size_t r = 0; r < t->unit_bytes.n; r++) {
            const struct gl_result *of = &k->results[r];
            int64_t word = s->at[(size_t)ps->n_in + r].at / 4;
            if (copies)
                keep(d, word, of->words, base);
            else
                draw(d, &t->programs[r], places, n, word, of->words, of->elements, base);
            base += gl_rows(d, word, of->words);
        }
    }
}
status_t gl_run(struct queue_walk *w, const struct queue_step *s) {
    struct gl_device *d = gl_of(w->x);
    int64_t start = clock_ns();
    draw_all(d, s);
    if (w->profile) {
        RETURN_IF_ERR(gl_finish(&d->base));
        queue_host_row(w, s, "kernel", start);
        return ST_OK;
    }
    return ++d->given % MARK_EVERY ? ST_OK : keep_short(d);
}
void gl_settle(struct queue_walk *w) {
    struct gl_device *d = gl_of(w->x);
    if (d->mark) d->gl->DeleteSync(d->mark);
    d->mark = NULL;
    d->given = 0;
}
