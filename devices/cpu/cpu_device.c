// SPDX-License-Identifier: Apache-2.0
// The CPU device: loading (plan, code, one implementation a step), preparing weights, running. A
// run allocates nothing: the plan's arena, scratchpads and all step states are made at load.
#include "devices/cpu/cpu_bind.h"
#include "devices/cpu/cpu_pool.h"
#include "devices/cpu/cpu_weights.h"
#include "devices/cpu/cpu_work.h"

#include <limits.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "compiler/ir/op.h"
#include "compiler/kernel/merge.h"
#include "devices/host_buffer.h"

enum {
    STREAMS = 4,              // by default, at most
    STREAM_BYTES = 128 << 20, // programs of larger runs gain little, and take as much for each
};

struct cpu_device {
    struct device base;
    int64_t memory_bytes;
    struct cpu_options options;
    struct cpu_weights *sets;
    struct cpu_work *work;
};
struct cpu_weights **cpu_sets(struct device *d) {
    return &((struct cpu_device *)d)->sets;
}
struct cpu_work *cpu_work_of(struct device *d) {
    return ((struct cpu_device *)d)->work;
}

// ---- addresses and running

static int64_t moved_bytes(const struct cpu_plan *p) {
    int64_t n = 0;
    for (int k = 0; k < p->plan->n_root; k++)
        if (plan_moves(p->plan, k)) n += (p->plan->root[k].size_bytes + 63) / 64 * 64;
    return n;
}

static void copy_leaves(const struct cpu_plan *p, const struct cpu_frame *f,
                        const struct slice *from, void *const *to, int n) {
    for (int k = 0; k < n; k++) {
        void *src = cpu_address(p, f, &from[k]);
        if (src != to[k] && from[k].size_bytes) memmove(to[k], src, (size_t)from[k].size_bytes);
    }
}

// Runs a called plan on the values at `args`, results to `out`.
static status_t run_called(struct cpu_exe *x, const struct cpu_plan *p,
                           const struct cpu_frame *outer, char *memory, void *const *args,
                           void *const *out) {
    struct cpu_frame f = {.params = (const void *const *)args,
                          .memory = memory,
                          .weights = outer->weights,
                          .run = outer->run};
    RETURN_IF_ERR(cpu_run_plan(x, p, &f));
    copy_leaves(p, &f, p->plan->root, out, p->plan->n_root);
    return ST_OK;
}

// The state lives in the result's buffers from the start; the body reads and writes it, so its
// results are copied at the end of each turn, by way of `stage` where they change places.
static status_t run_while(struct cpu_exe *x, struct cpu_step *s, const struct cpu_frame *outer,
                          void *const *in, void *const *out) {
    const struct plan_step *ps = s->plan;
    const struct cpu_plan *body = s->called[1];
    const struct slice *root = body->plan->root;
    char *memory = outer->memory + ps->scratch_offset;
    for (int k = 0; k < ps->n_out; k++)
        if (out[k] != in[k] && ps->out[k].size_bytes)
            memcpy(out[k], in[k], (size_t)ps->out[k].size_bytes);

    struct cpu_frame f = {.params = (const void *const *)out,
                          .memory = memory,
                          .weights = outer->weights,
                          .run = outer->run};
    for (int k = 0; k < body->plan->n_steps; k++)
        body->steps[k].begins = true;
    if (s->loop && !(f.run && f.run->profile)) return cpu_loop_run(x, s, &f, out);

    for (;;) {
        uint8_t go = 0;
        void *go_at = &go;
        RETURN_IF_ERR(run_called(x, s->called[0], outer, memory, out, &go_at));
        if (!go) return ST_OK;
        RETURN_IF_ERR(cpu_run_plan(x, body, &f));

        char *at = s->stage;
        for (int k = 0; k < ps->n_out; k++)
            if (plan_moves(body->plan, k)) {
                memcpy(at, out[root[k].index], (size_t)root[k].size_bytes);
                at += (root[k].size_bytes + 63) / 64 * 64;
            }
        for (int k = 0; k < ps->n_out; k++)
            if (!plan_moves(body->plan, k)) copy_leaves(body, &f, &root[k], &out[k], 1);
        at = s->stage;
        for (int k = 0; k < ps->n_out; k++)
            if (plan_moves(body->plan, k)) {
                memcpy(out[k], at, (size_t)root[k].size_bytes);
                at += (root[k].size_bytes + 63) / 64 * 64;
            }
    }
}

static status_t run_control(struct cpu_exe *x, struct cpu_step *s, const struct cpu_frame *f,
                            void **bufs) {
    const struct plan_step *ps = s->plan;
    void **in = bufs, **out = bufs + ps->n_in;
    char *memory = f->memory + ps->scratch_offset;
    if (ps->instr->op == HLO_CALL) return run_called(x, s->called[0], f, memory, in, out);
    if (ps->instr->op == HLO_CONDITIONAL) {
        bool pred = ps->instr->operands[0]->shape->dtype == DT_PRED;
        int32_t k = pred ? (*(uint8_t *)in[0] ? 0 : 1) : *(int32_t *)in[0];
        if (k < 0 || k >= ps->instr->n_called) k = ps->instr->n_called - 1;
        return run_called(x, s->called[k], f, memory, in + plan_branch_leaf(ps, k), out);
    }
    return run_while(x, s, f, in, out);
}

// A loop's estimate is that of all turns that it took. Rows of loops leave room for those of main.
static void add_row(struct profile *p, const struct cpu_step *s, int64_t start, int64_t end,
                    double inside_ns) {
    const struct hlo_instr *i = s->plan->instr;
    p->estimate_ns += s->estimate_ns + inside_ns;
    if (p->n >= (p->depth ? p->cap - p->cap / 4 : p->cap)) return;
    p->rows[p->n++] = (struct profile_row){.name = i->name,
                                           .op = i->op_name ? i->op_name : hlo_op_name(i->op),
                                           .impl = s->detail,
                                           .start_ns = start - p->zero_ns,
                                           .ns = end - start,
                                           .flops = s->flops,
                                           .bytes = s->bytes,
                                           .estimate_ns = s->estimate_ns + inside_ns,
                                           .instr = i,
                                           .depth = p->depth};
}

// Calls nest up to HLO_MOST_NESTED deep: a level keeps little on the stack.
status_t cpu_run_step(struct cpu_exe *x, const struct cpu_plan *p, const struct cpu_frame *f,
                      struct cpu_step *s) {
    enum { NARROW = 32 };
    const struct plan_step *ps = s->plan;
    int n = ps->n_in + ps->n_out;
    void *narrow[NARROW + 1], **bufs = narrow;
    if (x->cancel && *x->cancel) return cpu_cancelled();
    if (n > NARROW) bufs = malloc(sizeof *bufs * ((size_t)n + 1));
    if (!bufs) return st_exhausted("addresses of '%s'", ps->instr->name);

    for (int e = 0; e < ps->n_in; e++)
        bufs[e] = cpu_address(p, f, &ps->in[e]);
    for (int e = 0; e < ps->n_out; e++)
        bufs[ps->n_in + e] = cpu_address(p, f, &ps->out[e]);
    bufs[n] = f->memory + ps->scratch_offset;
    for (int e = 0; s->views && e < ps->n_in; e++)
        if (s->views[e]) bufs[e] = s->views[e]->view;
    if (s->packed_in >= 0) bufs[s->packed_in] = f->weights->packed[s->pack_slot]->p;
    status_t st = s->called ? run_control(x, s, f, bufs) : s->impl->run(x, s, bufs);
    if (bufs != narrow) free(bufs);
    return st;
}

// Steps that the plan put beside each other, one thread each.
struct beside_call {
    struct cpu_exe *x;
    const struct cpu_plan *p;
    const struct cpu_frame *f;
    struct cpu_step *s;
    status_t *st;
};
static void beside_part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct beside_call *c = ctx;
    for (int64_t k = begin; k < end; k++)
        c->st[k] = cpu_run_step(c->x, c->p, c->f, c->s + k);
}
enum { MAX_BESIDE = 8 };
static status_t run_beside(struct cpu_exe *x, const struct cpu_plan *p, const struct cpu_frame *f,
                           struct cpu_step *s) {
    status_t all[MAX_BESIDE], st = ST_OK;
    int n = s->plan->beside + 1;
    cpu_parallel(beside_part, &(struct beside_call){x, p, f, s, all}, n, 1);
    for (int k = 0; k < n; k++) {
        if (st)
            st_drop(all[k]);
        else
            st = all[k];
    }
    return st;
}

status_t cpu_run_plan(struct cpu_exe *x, const struct cpu_plan *p, const struct cpu_frame *f) {
    const struct dev_run *r = f->run;
    struct profile *profile = r ? r->profile : NULL;
    int64_t at = profile ? clock_ns() : 0;
    for (int k = 0; k < p->plan->n_steps; k++) {
        struct cpu_step *s = &p->steps[k];
        int threads = s->beside_below && !profile ? cpu_threads() : 1; // a profile has them in turn
        if (threads > 1 && threads < s->beside_below) {
            RETURN_IF_ERR(run_beside(x, p, f, s));
            k += s->plan->beside;
            continue;
        }
        double outside_ns = profile ? profile->estimate_ns : 0, inside_ns = 0;
        if (profile) profile->depth++, profile->estimate_ns = 0; // a control step's lie inside it
        status_t st = cpu_run_step(x, p, f, s);
        if (profile) {
            inside_ns = profile->estimate_ns;
            profile->estimate_ns = outside_ns;
            profile->depth--;
        }
        RETURN_IF_ERR(st);
        if (profile) {
            int64_t now = clock_ns();
            add_row(profile, s, at, now, inside_ns);
            at = now;
        }
    }
    return ST_OK;
}

// ---- loading

// Steps that read one weight in the same form read one copy: the turns of an unrolled loop, layers
// that share weights.
static void share_pack(struct cpu_exe *x, struct cpu_step *s) {
    int bound = x->bound[s->plan->in[s->packed_in].index];
    if (!s->impl->same_pack) return;
    for (struct cpu_pack *p = x->packs; p; p = p->next)
        if (p->bound == bound && p->step->impl == s->impl && s->impl->same_pack(p->step, s)) {
            s->pack_slot = p->step->pack_slot;
            x->n_packs--; // it was the last
            return;
        }
    struct cpu_pack *p = arena_new_of(&x->arena, struct cpu_pack);
    *p = (struct cpu_pack){.step = s, .bound = bound};
    *(x->last_pack ? &x->last_pack->next : &x->packs) = p;
    x->last_pack = p;
}

static status_t bind_step(struct cpu_exe *x, struct cpu_step *s) {
    if (s->plan->n_in + s->plan->n_out > CPU_MAX_BUFS)
        return st_unimplemented("instruction '%s' has more than %d operands and results",
                                s->plan->instr->name, CPU_MAX_BUFS);
    s->bytes = plan_step_bytes(s->plan); // an implementation may know better
    s->packed_in = -1;
    RETURN_IF_ERR(st_note(cpu_open_step(x, s), "instruction '%s'", s->plan->instr->name));
    if (s->impl && s->packed_in >= 0) share_pack(x, s);
    return ST_OK;
}

// Which parameters of called plan c of step s are always bound weights: what is handed on as it is,
// and in a loop left as it is.
static void pass_bound(const struct cpu_plan *outer, const struct cpu_step *s, int c, int *bound) {
    const struct plan_step *ps = s->plan;
    const struct hlo_instr *i = ps->instr;
    int first = i->op == HLO_CONDITIONAL ? plan_branch_leaf(ps, c) : 0;
    for (int k = 0; k < ps->called[c]->n_params; k++) {
        const struct slice *in = &ps->in[first + k];
        bool same = i->op != HLO_WHILE || plan_unchanged(ps->called[1], k);
        bound[k] = same && in->where == SLICE_PARAM ? outer->bound[in->index] : -1;
    }
}

// A step with called plans touches what these touch.
static void join_called(struct cpu_step *s) {
    s->apart = s->alone = true;
    for (int c = 0; c < s->plan->instr->n_called; c++)
        for (int k = 0; k < s->called[c]->plan->n_steps; k++) {
            const struct cpu_step *in = &s->called[c]->steps[k];
            s->apart = s->apart && in->apart;
            s->alone = s->alone && in->alone;
        }
}
// From so many threads on each of the steps beside each other has more of them when they run in
// turn; none where one is enough for each, or where they may not run at the same time.
static void mark_beside(struct cpu_plan *p) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        int n = p->plan->steps[k].beside + 1;
        bool apart = n > 1 && n <= MAX_BESIDE, alone = true;
        for (int e = k; e < k + n; e++) {
            apart = apart && p->steps[e].apart;
            alone = alone && p->steps[e].alone;
        }
        p->steps[k].beside_below = !apart ? 0 : alone ? INT_MAX : n + 1;
        k += n - 1;
    }
}

static void lay_out(struct cpu_exe *x, struct plan *plan, int *bound, struct cpu_plan **out) {
    struct cpu_plan *p = arena_new_of(&x->arena, struct cpu_plan);
    p->plan = plan;
    p->bound = bound;
    p->kept = NULL;
    p->steps = arena_zarray(&x->arena, struct cpu_step, plan->n_steps + 1);
    *out = p;
    for (int k = 0; k < plan->n_steps; k++) {
        struct cpu_step *s = &p->steps[k];
        s->plan = &plan->steps[k];
        if (!s->plan->called) continue;
        s->called = arena_zarray(&x->arena, struct cpu_plan *, s->plan->instr->n_called + 1);
        for (int c = 0; c < s->plan->instr->n_called; c++) {
            int *passed = arena_array(&x->arena, int, s->plan->called[c]->n_params + 1);
            pass_bound(p, s, c, passed);
            lay_out(x, s->plan->called[c], passed, &s->called[c]);
            if (s->plan->instr->op == HLO_WHILE && c == 1)
                s->called[c]->kept = s->called[c]->plan->kept;
        }
    }
}
// Does the library run a step that s calls? If not, s may turn out to be one function.
static bool calls_library(const struct plan_step *s) {
    const struct target *t = cpu_target();
    bool yes = s->called == NULL && !merge_is_small(s->instr) && t->library_accepts(t, s->instr);
    for (int c = 0; s->called && c < s->instr->n_called; c++)
        for (int k = 0; k < s->called[c]->n_steps && !yes; k++)
            yes = calls_library(&s->called[c]->steps[k]);
    return yes;
}
// Each step that is not bound yet. May stop at any and be called again.
static status_t bind_plan(struct cpu_exe *x, struct cpu_plan *p) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        struct cpu_step *s = &p->steps[k];
        x->bound = p->bound;
        x->kept = p->kept;
        if (x->cancel && *x->cancel) return cpu_cancelled();
        if (!s->impl) RETURN_IF_ERR(bind_step(x, s));
        bool loop = s->plan->instr->op == HLO_WHILE;
        if (x->early && loop && !calls_library(s->plan)) continue;
        for (int c = 0; s->called && c < s->plan->instr->n_called; c++) {
            x->in_loop += loop;
            status_t st = bind_plan(x, s->called[c]);
            x->in_loop -= loop;
            RETURN_IF_ERR(st);
        }
    }
    return ST_OK;
}
// Where the scratch of steps lies that may run while others do, from `at` on; gives where it ends.
static int64_t place_scratch(struct cpu_plan *p, int64_t at) {
    int64_t end = at;
    for (int k = 0; k < p->plan->n_steps; k++) {
        int n = p->steps[k].beside_below ? p->plan->steps[k].beside + 1 : 1;
        int64_t own = at;
        for (int e = k; e < k + n; e++) {
            struct cpu_step *s = &p->steps[e];
            int64_t to = own + s->own_bytes;
            s->own_at = own;
            for (int c = 0; s->called && c < s->plan->instr->n_called; c++) {
                int64_t inside = place_scratch(s->called[c], own);
                if (inside > to) to = inside;
            }
            own = n > 1 ? to : at;
            if (to > end) end = to;
        }
        k += n - 1;
    }
    return end;
}
// What follows from how all steps were bound.
static void settle_plan(struct cpu_exe *x, struct cpu_plan *p) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        struct cpu_step *s = &p->steps[k];
        if (!s->called) continue;
        bool loop = s->plan->instr->op == HLO_WHILE;
        for (int c = 0; c < s->plan->instr->n_called; c++) {
            settle_plan(x, s->called[c]);
            if (loop && c == 1) cpu_mark_views(x, s->called[c]);
        }
        if (loop) {
            s->stage = arena_alloc_aligned(&x->arena, (size_t)moved_bytes(s->called[1]) + 64, 64);
            s->loop = cpu_loop_of(x, s);
        }
        join_called(s);
    }
    mark_beside(p);
    x->bound = p->bound;
    cpu_mark_nan(x, p);
}

static void close_plan(struct cpu_plan *p) {
    if (!p) return;
    for (int k = 0; k < p->plan->n_steps; k++) {
        struct cpu_step *s = &p->steps[k];
        if (s->impl && s->impl->close) s->impl->close(s);
        for (int c = 0; s->called && c < s->plan->instr->n_called; c++)
            close_plan(s->called[c]);
    }
}

void cpu_unload(struct dev_exe *base) {
    struct cpu_exe *x = (struct cpu_exe *)base;
    close_plan(x->main);
    close_plan(x->prepare);
    code_free(x->code);
    code_free(x->prepare_code);
    cpu_work_leave(x);
    if (!x->of) executable_free(x->exe);
    arena_done(&x->arena);
    free(x);
}

// By parameter leaf of an entry: its own number where it is a bound weight. Prepare has none.
static int *bound_params(struct cpu_exe *x, const struct plan *plan) {
    int *bound = arena_array(&x->arena, int, plan->n_params + 1), n = 0;
    for (size_t k = 0; k < plan->comp->params.n; k++) {
        const struct hlo_instr *p = plan->comp->params.v[k];
        for (int e = 0; e < shape_leaves(p->shape); e++, n++)
            bound[n] = p->param_kind == PARAM_BOUND && !shape_is_tuple(p->shape) ? n : -1;
    }
    return bound;
}

// Main's steps that need nothing else.
static status_t begin_main(struct cpu_exe *x, const _Atomic bool *stop) {
    struct plan *main;
    RETURN_IF_ERR(plan_make(&x->arena, x->exe->main->entry, &main));
    lay_out(x, main, bound_params(x, main), &x->main);
    x->early = true;
    x->cancel = stop;
    status_t st = bind_plan(x, x->main);
    x->early = false;
    x->cancel = NULL;
    if (st_code(st) != ST_CANCELLED) return st;
    st_drop(st);
    return ST_OK;
}
static status_t bind_main(struct cpu_exe *x) {
    const struct executable *e = x->exe;
    if (e->kernels.object.n && !x->code) RETURN_IF_ERR(code_load(e->kernels.object, &x->code));
    x->kernels = &e->kernels;
    x->binding = x->code;
    return bind_plan(x, x->main);
}
static status_t bind_prepare(struct cpu_exe *x) {
    const struct executable *e = x->exe;
    struct plan *prepare;
    if (e->prepare_kernels.object.n && !x->prepare_code)
        RETURN_IF_ERR(code_load(e->prepare_kernels.object, &x->prepare_code));
    x->kernels = &e->prepare_kernels;
    x->binding = x->prepare_code;
    if (!x->prepare) {
        RETURN_IF_ERR(plan_make(&x->arena, e->prepare->entry, &prepare));
        lay_out(x, prepare, bound_params(x, prepare), &x->prepare);
    }
    return bind_plan(x, x->prepare);
}
static status_t take_memory(struct cpu_exe *x) {
    const struct plan *main = x->main->plan;
    x->results = arena_zarray(&x->arena, void *, main->n_root + 1);
    x->ahead = arena_zarray(&x->arena, struct dev_buffer *, main->n_root + 1);
    x->memory_bytes = main->arena_bytes;
    int64_t own = place_scratch(x->main, 0), before = x->of ? 0 : place_scratch(x->prepare, 0);
    if (own < before) own = before;
    if (own > x->scratch_bytes) x->scratch_bytes = own;
    RETURN_IF_ERR(cpu_work_join(x));
    x->stats.arena_bytes = x->stats.shared_bytes = x->memory_bytes + x->scratch_bytes;
    x->stats.scratch_bytes = x->scratch_bytes;
    const struct executable *e = x->exe;
    x->stats.resident_bytes = (int64_t)x->arena.used_bytes; // of steps: states
    if (!x->of)                                             // and the program itself, often more
        x->stats.resident_bytes += (int64_t)(e->arena->used_bytes + e->main->arena->used_bytes +
                                             e->prepare->arena->used_bytes);
    x->stats.one_thread = true;
    for (int k = 0; k < main->n_steps; k++)
        x->stats.one_thread =
            x->stats.one_thread && x->main->steps[k].alone && !x->main->steps[k].called;
    return ST_OK;
}
static status_t cpu_finish(struct dev_exe *base, const _Atomic bool *cancel) {
    struct cpu_exe *x = (struct cpu_exe *)base;
    if (x->finished) return ST_OK;
    x->cancel = cancel;
    status_t st = bind_main(x);
    if (!st && !x->of) st = bind_prepare(x);
    x->cancel = NULL;
    RETURN_IF_ERR(st);
    settle_plan(x, x->main);
    if (!x->of) settle_plan(x, x->prepare);
    x->finished = true;
    return take_memory(x);
}

static status_t begin(struct device *d, struct executable *exe, const struct cpu_exe *of,
                      const _Atomic bool *stop, struct dev_exe **out) {
    struct cpu_exe *x = calloc(1, sizeof *x);
    if (!x) {
        if (!of) executable_free(exe);
        return st_oom();
    }
    x->base = (struct dev_exe){.dev = d, .exe = exe};
    x->exe = exe;
    x->of = of;
    x->strict = strstr(exe->options_text, "precision=strict") != NULL;
    x->choices_hold = exe->choices_list && strcmp(exe->choices_list, cpu_candidates_id()) == 0;
    status_t st = ST_OK;
    if (strcmp(exe->target_id, cpu_target()->id) != 0)
        st = st_new(ST_FAILED_PRECONDITION, "the executable is for target %s, this device is %s",
                    exe->target_id, cpu_target()->id);
    if (!st) st = begin_main(x, stop);
    if (st)
        cpu_unload(&x->base);
    else
        *out = &x->base;
    return st;
}
static status_t cpu_begin(struct device *d, struct executable *exe, const _Atomic bool *stop,
                          struct dev_exe **out) {
    return begin(d, exe, NULL, stop, out);
}
status_t cpu_load(struct device *d, struct executable *exe, const _Atomic bool *cancel,
                  struct dev_exe **out) {
    struct dev_exe *x;
    RETURN_IF_ERR(cpu_begin(d, exe, cancel, &x));
    status_t st = cpu_finish(x, cancel);
    if (st)
        cpu_unload(x);
    else
        *out = x;
    return st;
}

static status_t cpu_stream(struct dev_exe *base, struct dev_exe **out) {
    struct cpu_exe *x = (struct cpu_exe *)base;
    struct dev_exe *made = NULL;
    if (x->stats.arena_bytes > STREAM_BYTES)
        return st_unimplemented("its runs take %lld bytes each", (long long)x->stats.arena_bytes);
    int was = cpu_use_threads(1); // what the steps are made for
    status_t st = begin(base->dev, x->exe, x, NULL, &made);
    if (!st) st = cpu_finish(made, NULL);
    cpu_use_threads(was);
    if (!st) st = cpu_stream_fits((struct cpu_exe *)made);
    if (!st)
        *out = made;
    else if (made)
        cpu_unload(made);
    return st;
}

// ---- run

// Memory of their own for results, so that the step that makes one writes it there: the caller's
// where it lies as kernels want it, or a buffer that stays, unless a donated input may become it.
static status_t place_results(struct cpu_exe *x, const struct dev_run *r, int n_in) {
    const struct plan *p = x->main->plan;
    for (int k = 0; k < p->n_root; k++) {
        const struct slice *s = &p->root[k];
        x->results[k] = NULL;
        if (s->where != SLICE_ARENA || s->result != k + 1) continue;
        if (r->out[k]) {
            if ((uintptr_t)r->out[k] % 64 == 0) x->results[k] = r->out[k];
        } else if (!host_has_donor(r, n_in, s->size_bytes)) {
            RETURN_IF_ERR(host_buffer_new(
                x->base.dev, shape_leaf(x->exe->main->entry->root->shape, k), NULL, &x->ahead[k]));
            x->results[k] = host_buffer_data(x->ahead[k]);
        }
    }
    return ST_OK;
}
// May a result be written over this parameter where it lies? It is a donated buffer that no other
// parameter of the run is too.
static bool is_own(const struct dev_run *r, const void *const *params, int n_params, int leaf,
                   int in) {
    if (!r->donate || !r->donate[in] || !r->in_buffers[in]) return false;
    for (int k = 0; k < n_params; k++)
        if (k != leaf && params[k] == params[leaf]) return false;
    return true;
}
// Memory for the parameters that the plan writes results over: a donated input's own, which is then
// spent, else a copy where the result is wanted, or in memory for this run.
static status_t place_over(struct cpu_exe *x, const struct dev_run *r, int n_bound,
                           const void **params) {
    const struct plan *p = x->main->plan;
    for (int k = 0; p->over && k < p->n_root; k++) {
        int leaf = p->over[k], in = leaf - n_bound;
        if (leaf < 0 || is_own(r, params, p->n_params, leaf, in)) continue;
        bool fits = r->out[k] && (uintptr_t)r->out[k] % 64 == 0;
        if (!fits)
            RETURN_IF_ERR(host_buffer_new(
                x->base.dev, shape_leaf(x->exe->main->entry->root->shape, k), NULL, &x->ahead[k]));
        void *to = fits ? r->out[k] : host_buffer_data(x->ahead[k]);
        if (p->params[leaf].size_bytes)
            memcpy(to, params[leaf], (size_t)p->params[leaf].size_bytes);
        params[leaf] = to;
    }
    for (int k = 0; p->over && k < p->n_root; k++) {
        int leaf = p->over[k], in = leaf - n_bound;
        if (leaf >= 0 && is_own(r, params, p->n_params, leaf, in) &&
            params[leaf] == host_buffer_data(r->in_buffers[in]))
            r->in_buffers[in]->spent = true;
    }
    return ST_OK;
}
// After a run the buffers are its caller's; those of a failed one, and those for a result that was
// copied out, are freed.
static void settle_results(struct cpu_exe *x, const struct dev_run *r, bool failed) {
    for (int k = 0; k < x->main->plan->n_root; k++) {
        if (x->ahead[k] && (failed || r->out[k])) host_buffer_free(x->ahead[k]);
        x->ahead[k] = NULL;
    }
}

// The results from where the plan left them to where they are wanted.
static status_t deliver(struct cpu_exe *x, const struct cpu_frame *f, int n_in) {
    const struct plan *p = x->main->plan;
    const struct shape *root = x->exe->main->entry->root->shape;
    if (!f->run->kept) {
        copy_leaves(x->main, f, p->root, f->run->out, p->n_root);
        return ST_OK;
    }
    struct arena a = {0};
    void **src = arena_array(&a, void *, p->n_root + 1);
    const struct shape **shapes = arena_array(&a, const struct shape *, p->n_root + 1);
    for (int k = 0; k < p->n_root; k++) {
        src[k] = cpu_address(x->main, f, &p->root[k]);
        shapes[k] = shape_leaf(root, k);
    }
    status_t st = host_deliver(x->base.dev, f->run, n_in, src, shapes, p->n_root, x->ahead, NULL);
    arena_done(&a);
    return st;
}

static status_t run_main(struct cpu_exe *x, const struct cpu_frame *f, const void **params,
                         int n_in) {
    const struct dev_run *r = f->run;
    status_t st = place_results(x, r, n_in);
    if (!st) st = place_over(x, r, x->main->plan->n_params - n_in, params);
    x->run = r;
    x->nan = f->weights && f->weights->any_odd;
    x->odd = f->weights ? f->weights->odd : NULL;
    x->cancel = r->cancel;
    if (!st) st = cpu_run_plan(x, x->main, f);
    x->run = NULL;
    x->cancel = NULL;
    x->odd = NULL;
    if (!st) st = deliver(x, f, n_in);
    settle_results(x, r, st != NULL);
    return st;
}
static status_t cpu_run(struct dev_exe *base, struct dev_weights *wbase, const struct dev_run *r) {
    struct cpu_exe *x = (struct cpu_exe *)base;
    struct cpu_weights *w = (struct cpu_weights *)wbase;
    const struct plan *p = x->main->plan;
    struct arena many = {0};
    const void *few[256], **params = few;
    RETURN_IF_ERR(cpu_work_take(x));
    if (p->n_params > 256) params = arena_array(&many, const void *, p->n_params);
    int n_bound = w ? w->n_bound : 0;
    for (int k = 0; k < p->n_params; k++)
        params[k] = k >= n_bound  ? host_input(r, k - n_bound)
                    : w->bound[k] ? w->bound[k]->p
                                  : NULL; // read packed
    struct cpu_frame f = {
        .params = params, .memory = x->memory, .weights = w, .run = r, .results = x->results};
    if (r->profile) cpu_estimate(x);
    int64_t start = clock_ns();
    if (r->profile) r->profile->zero_ns = start;
    int threads = x->of ? cpu_use_threads(1) : 0;
    bool mine = !x->of && cpu_pool_begin(!x->stats.one_thread);
    status_t st = run_main(x, &f, params, p->n_params - n_bound);
    if (mine) cpu_pool_end();
    if (x->of) cpu_use_threads(threads);
    cpu_work_give(x);
    arena_done(&many);
    RETURN_IF_ERR(st);
    x->stats.runs++;
    x->stats.busy_ns += clock_ns() - start;
    return ST_OK;
}

static struct dev_stats cpu_stats(const struct dev_exe *base) {
    return ((const struct cpu_exe *)base)->stats;
}

static status_t cpu_open(const char *options, struct device **out) {
    extern const struct dev_vtable cpu_vtable;
    struct cpu_options o;
    RETURN_IF_ERR(cpu_options_read(options, &o));
    if (o.threads) cpu_threads_are(o.threads);
    struct cpu_device *d = calloc(1, sizeof *d);
    if (!d) return st_oom();
    d->base.vt = &cpu_vtable;
    cpu_work_open(&d->work);
    d->options = o;
    d->memory_bytes = limits_memory(); // now: a worker cannot open files later
    (void)cpu_lapack_open();           // too
    (void)cpu_has_tiles();             // nor ask the kernel for registers
    *out = &d->base;
    return ST_OK;
}
static void cpu_close(struct device *d) {
    cpu_work_close(cpu_work_of(d));
    free(d);
}
static const struct target *target(UNUSED struct device *d) {
    return cpu_target();
}
static struct dev_attributes attributes(struct device *d) {
    const struct cpu_device *c = (const struct cpu_device *)d;
    int threads = cpu_threads(), most = threads < STREAMS ? threads : STREAMS;
    return (struct dev_attributes){.memory_bytes = c->memory_bytes,
                                   .description = cpu_target()->id,
                                   .streams = c->options.streams ? c->options.streams : most,
                                   .starts_slowly = true};
}
extern const struct dev_vtable cpu_vtable;
const struct dev_vtable cpu_vtable = {.kind = "cpu",
                                      .open = cpu_open,
                                      .close = cpu_close,
                                      .target = target,
                                      .attributes = attributes,
                                      .load = cpu_load,
                                      .unload = cpu_unload,
                                      .begin = cpu_begin,
                                      .finish = cpu_finish,
                                      .prepare = cpu_prepare,
                                      .release = cpu_release,
                                      .put = host_buffer_new,
                                      .get = host_buffer_get,
                                      .drop = host_buffer_free,
                                      .run = cpu_run,
                                      .stream = cpu_stream,
                                      .stats = cpu_stats,
                                      .explain = cpu_explain,
                                      .explain_costs = cpu_explain_costs,
                                      .tune = cpu_tune,
                                      .peak = cpu_peak};
