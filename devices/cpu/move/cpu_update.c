// SPDX-License-Identifier: Apache-2.0
// dynamic-update-slice: copies the operand unless the plan put the result over it, then the update,
// line by line. In a loop that fills a table this costs one line a turn instead of the table. Lines
// of one element (a column, a channel) are as many as the table has rows, so those that lie equally
// far apart are one loop.
#include "devices/cpu/cpu.h"

struct update_state {
    int64_t elem, line; // bytes of an element; elements of a line, contiguous in both
    int rank;
    int64_t most[HLO_MAX_RANK];   // largest start
    int64_t stride[HLO_MAX_RANK]; // of the operand, elements
    int outer;                    // dims that number series of lines
    int64_t dims[HLO_MAX_RANK];   // of the update, neighbours as one where they can be
    int64_t apart[HLO_MAX_RANK];  // bytes, in the operand
    int64_t series, lines, step;  // lines of a series, and bytes from one to the next
};

static bool update_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                           const char **why) {
    *why = "not a dynamic-update-slice in row-major order";
    return i->op == HLO_DYNAMIC_UPDATE_SLICE && i->n_operands == i->shape->rank + 2 &&
           shape_in_order(i->shape) && shape_in_order(i->operands[0]->shape) &&
           shape_in_order(i->operands[1]->shape) && shape_elements(i->operands[1]->shape) > 0;
}
static status_t update_open(struct cpu_exe *x, struct cpu_step *s) {
    struct update_state *u = arena_new_of(&x->arena, struct update_state);
    const struct hlo_instr *i = s->plan->instr;
    const struct shape *to = i->shape, *from = i->operands[1]->shape;
    int64_t stride = 1, bytes;
    int outer = to->rank, n = 0;
    u->elem = dtype_size(to->dtype);
    u->rank = to->rank;
    u->line = u->series = u->lines = 1;
    for (int d = to->rank - 1; d >= 0; d--) {
        u->most[d] = to->dims[d] - from->dims[d];
        u->stride[d] = stride;
        stride *= to->dims[d];
    }
    // Trailing dims that the update has whole lie together with the one in front of them.
    bool whole = true;
    while (outer > 0 && whole) {
        outer--;
        u->line *= from->dims[outer];
        whole = u->most[outer] == 0;
    }

    // So do others, line by line.
    for (int d = 0; d < outer; d++) {
        bytes = u->stride[d] * u->elem;
        if (from->dims[d] == 1) continue;
        if (n && u->apart[n - 1] == bytes * from->dims[d]) {
            u->dims[n - 1] *= from->dims[d];
            u->apart[n - 1] = bytes;
        } else {
            u->dims[n] = from->dims[d];
            u->apart[n++] = bytes;
        }
    }

    if (n) {
        u->lines = u->dims[--n];
        u->step = u->apart[n];
    }
    u->outer = n;
    for (int d = 0; d < n; d++)
        u->series *= u->dims[d];
    s->detail = "update";
    s->alone = s->apart = true;
    s->state = u;
    return ST_OK;
}
// n lines from `from` on, to places that are `step` bytes apart.
static void put_lines(char *to, int64_t step, const char *from, int64_t bytes, int64_t n) {
#define LINES(size)                                                                                \
    case size:                                                                                     \
        for (int64_t k = 0; k < n; k++)                                                            \
            memcpy(to + k * step, from + k * size, size);                                          \
        break;
    switch (bytes) {
        LINES(1)
        LINES(2)
        LINES(4)
        LINES(8)
        LINES(12)
        LINES(16)
    default:
        for (int64_t k = 0; k < n; k++)
            memcpy(to + k * step, from + k * bytes, (size_t)bytes);
    }
#undef LINES
}
static status_t update_run(UNUSED struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct update_state *u = s->state;
    const struct hlo_instr *i = s->plan->instr;
    char *out = bufs[s->plan->n_in];
    int64_t at = 0, index[HLO_MAX_RANK] = {0};
    if (out != bufs[0]) memcpy(out, bufs[0], (size_t)s->plan->out[0].size_bytes);
    for (int d = 0; d < u->rank; d++) {
        struct literal l = {.shape = i->operands[d + 2]->shape, .data = bufs[d + 2]};
        int64_t start = lit_get_start(&l, 0);
        start = start < 0 ? 0 : start > u->most[d] ? u->most[d] : start;
        at += start * u->stride[d];
    }
    const char *from = bufs[1];
    int64_t bytes = u->line * u->elem;
    for (int64_t n = 0; n < u->series; n++) {
        char *to = out + at * u->elem;
        for (int d = 0; d < u->outer; d++)
            to += index[d] * u->apart[d];
        put_lines(to, u->step, from, bytes, u->lines);
        from += bytes * u->lines;
        for (int d = u->outer - 1; d >= 0 && ++index[d] == u->dims[d]; d--)
            index[d] = 0;
    }
    return ST_OK;
}
const struct cpu_impl cpu_impl_update = {"update",   update_accepts, update_open, NULL,
                                         update_run, NULL,           NULL,        NULL};
