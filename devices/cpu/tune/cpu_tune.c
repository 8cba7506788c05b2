// SPDX-License-Identifier: Apache-2.0
// Which implementation takes a product or convolution, measured. Each step of main (of loops'
// bodies too) that several could take is run by itself, on values of our own making, by each of
// them in turn: a round after the other, beginning with another each time. Before a run as much
// memory is read as the program reads, so that weights are as far away as they are in a run of it,
// and the operands that the step before would have left near are read last. Steps that do the same
// are measured once. What is kept follows from cpu_tune_rule.c; what gives other values than who
// takes the step without a tuning is out (cpu_tune_values.c). The program itself is not run: it may
// not end on made-up inputs.
//
// HLOD_CPU_TUNE=NAME=NS,... gives the times instead of the clock (those not named take 1000 ns),
// for tests.
#include <stdlib.h>

#include "base/clock.h"
#include "compiler/passes/fusion/library.h"
#include "devices/cpu/cpu_pool.h"
#include "devices/cpu/cpu_work.h"
#include "devices/cpu/tune/cpu_tune.h"

enum { FAR_BYTES = 32 << 20, NEAR_BYTES = 1 << 20 };

struct tune_way {
    struct cpu_candidate c;
    const char *name;
    struct cpu_step step;
    void *packed;
    const char *why; // it is out of the race; "" while it is in
};
struct place { // a step where it stands
    const struct cpu_plan *p;
    int k, in_loop;
    int like; // index of the first that does the same
    int64_t work;
};
struct tuner {
    struct cpu_exe *x;
    const struct dev_tune *how;
    struct arena *a;
    int64_t begin_ns;
    struct place *places;
    int n_places;
    char *far; // what is read between runs; NULL: the program is small
    int64_t far_bytes;
    volatile int64_t sum; // of it
    bool late, left_out;
    // Of the step at hand.
    struct tune_way ways[TUNE_WAYS];
    int n_ways;
    void **bufs;      // operands, then results
    void *results[2]; // of way 0, of the others
};

static const struct cpu_step *step_of(const struct place *l) {
    return &l->p->steps[l->k];
}
static const struct hlo_instr *instr_of(const struct place *l) {
    return step_of(l)->plan->instr;
}

// ---- time

static const char *given_times(void) {
    const char *v = getenv("HLOD_CPU_TUNE");
    return v && *v ? v : NULL;
}
static bool out_of_time(struct tuner *t) {
    if (given_times()) return false;
    t->late = t->late || clock_ns() - t->begin_ns >= t->how->budget_ns;
    return t->late;
}

// ---- which steps

static bool in_bytes(const struct shape *s) {
    return !shape_is_tuple(s) && dtype_bits(s->dtype) >= 8 && shape_bytes(s) > 0;
}
static bool tunable(const struct cpu_step *s) {
    const struct hlo_instr *i = s->plan->instr, *hero = tune_hero(i);
    bool ok = hero && !s->called && in_bytes(i->shape) && in_bytes(hero->shape);
    for (int k = 0; ok && k < i->n_operands; k++)
        ok = in_bytes(i->operands[k]->shape);
    return ok && s->plan->n_in == i->n_operands && s->plan->n_out == 1;
}
static bool bound_at(const struct place *l, int e) {
    const struct slice *in = &step_of(l)->plan->in[e];
    return in->where == SLICE_PARAM && l->p->bound[in->index] >= 0;
}
static bool alike(const struct place *a, const struct place *b) {
    const struct cpu_step *s = step_of(a), *t = step_of(b);
    if (s->impl != t->impl || !a->in_loop != !b->in_loop || s->plan->n_in != t->plan->n_in ||
        !tune_alike(instr_of(a), instr_of(b)))
        return false;
    for (int e = 0; e < s->plan->n_in; e++)
        if (bound_at(a, e) != bound_at(b, e) ||
            (s->plan->in[e].where == SLICE_CONST) != (t->plan->in[e].where == SLICE_CONST))
            return false;
    return true;
}
static int count(const struct cpu_plan *p) {
    int n = p->plan->n_steps;
    for (int k = 0; k < p->plan->n_steps; k++)
        for (int c = 0; p->steps[k].called && c < p->steps[k].plan->instr->n_called; c++)
            n += count(p->steps[k].called[c]);
    return n;
}
static void find_steps(struct tuner *t, const struct cpu_plan *p, int in_loop) {
    for (int k = 0; k < p->plan->n_steps; k++) {
        const struct cpu_step *s = &p->steps[k];
        bool loop = s->plan->instr->op == HLO_WHILE;
        for (int c = 0; s->called && c < s->plan->instr->n_called; c++)
            find_steps(t, s->called[c], in_loop + loop);
        if (!tunable(s) || out_of_time(t)) continue; // each is compared with those before
        struct place *l = &t->places[t->n_places];
        *l = (struct place){.p = p, .k = k, .in_loop = in_loop, .like = t->n_places};
        for (int e = 0; e < t->n_places && l->like == t->n_places; e++)
            if (t->places[e].like == e && alike(&t->places[e], l)) l->like = e;
        t->places[l->like].work += s->flops + 1;
        t->n_places++;
    }
}
static int by_work(const void *a, const void *b) {
    const struct place *x = *(const struct place *const *)a, *y = *(const struct place *const *)b;
    if (x->work != y->work) return x->work < y->work ? 1 : -1;
    return x->like < y->like ? -1 : x->like > y->like;
}

// ---- operands

// What lhs and rhs of the product are: values of both signs; what follows it adds positive ones.
static status_t make_operands(struct tuner *t, const struct place *l) {
    const struct cpu_step *s = step_of(l);
    const struct hlo_instr *i = instr_of(l), *hero = tune_hero(i);
    struct lib_call c;
    bool call = lib_match(i, &c);
    int left = call ? lib_operand(i, c.lhs) : 0, right = call ? lib_operand(i, c.rhs) : 1;
    for (int e = 0; e < s->plan->n_in; e++) {
        const struct slice *in = &s->plan->in[e];
        t->bufs[e] = cpu_memory(in->size_bytes);
        if (!t->bufs[e])
            return st_exhausted("no memory for %lld bytes of values", (long long)in->size_bytes);
        if (in->where == SLICE_CONST)
            memcpy(t->bufs[e], l->p->plan->consts[in->index]->data, (size_t)in->size_bytes);
        else
            tune_fill(i->operands[e]->shape, hero && e != left && e != right, t->bufs[e]);
    }
    return ST_OK;
}
static status_t make_results(struct tuner *t, const struct place *l) {
    int64_t bytes = step_of(l)->plan->out[0].size_bytes;
    for (int k = 0; k < 2; k++) {
        t->results[k] = cpu_memory(bytes);
        if (!t->results[k])
            return st_exhausted("no memory for %lld bytes of results", (long long)bytes);
    }
    return ST_OK;
}
static void drop_values(struct tuner *t, const struct place *l) {
    for (int e = 0; t->bufs && e < step_of(l)->plan->n_in; e++)
        free(t->bufs[e]);
    for (int k = 0; k < 2; k++) {
        free(t->results[k]);
        t->results[k] = NULL;
    }
    t->bufs = NULL;
}

// ---- ways

// What a load would make of the step beside those that stay: does it look for NaN?
static void mark_nan(struct cpu_exe *x, const struct place *l, struct cpu_step *s) {
    struct arena a = {0};
    int n = l->p->plan->n_steps;
    struct cpu_plan with = *l->p;
    with.steps = arena_array(&a, struct cpu_step, n);
    memcpy(with.steps, l->p->steps, sizeof *s * (size_t)n);
    for (int k = 0; k < n; k++)
        with.steps[k].looks = false;
    with.steps[l->k] = *s;
    if (s->swallows) cpu_mark_nan(x, &with);
    *s = with.steps[l->k];
    arena_done(&a);
}
static status_t open_way(struct tuner *t, const struct place *l, const struct cpu_candidate *c) {
    struct cpu_exe *x = t->x;
    struct tune_way *w = &t->ways[t->n_ways];
    int packs = x->n_packs;
    const struct cpu_step *loaded = step_of(l);
    *w = (struct tune_way){.why = "", .step = {.plan = loaded->plan, .packed_in = -1}};
    x->bound = l->p->bound;
    x->kept = NULL;
    x->in_loop = l->in_loop;
    status_t st = c ? cpu_open_as(x, &w->step, *c) : cpu_open_step(x, &w->step);
    x->in_loop = 0;
    x->n_packs = packs;
    if (st || w->step.declined) return st;

    t->n_ways++;
    w->name = w->step.impl->name;
    if (c) w->c = *c;
    mark_nan(x, l, &w->step);
    if (w->step.packed_in < 0) return ST_OK;
    int64_t bytes = w->step.impl->pack_bytes(&w->step);
    w->packed = cpu_memory(bytes);
    if (!w->packed) return st_exhausted("no memory for %lld bytes of weights", (long long)bytes);
    return w->step.impl->pack(x, &w->step, t->bufs[w->step.packed_in], w->packed);
}
static void close_last(struct tuner *t) {
    struct tune_way *w = &t->ways[--t->n_ways];
    if (w->step.impl->close) w->step.impl->close(&w->step);
    free(w->packed);
}
static bool same_way(const struct tune_way *a, const struct tune_way *b) {
    const char *x = a->step.detail, *y = b->step.detail;
    return a->step.impl == b->step.impl && (!x || !y || strcmp(x, y) == 0);
}
// Way 0 is who takes the step now; one that turns out to be the same gives it its whole name.
static status_t open_ways(struct tuner *t, const struct place *l) {
    char name[CPU_CANDIDATE];
    bool named = false;
    RETURN_IF_ERR(open_way(t, l, NULL));
    for (const struct cpu_candidate *c = cpu_candidates(); c->impl && t->n_ways < TUNE_WAYS; c++) {
        int n = t->n_ways;
        status_t st = open_way(t, l, c);
        if (st && st_code(st) != ST_RESOURCE_EXHAUSTED && st_code(st) != ST_CANCELLED) {
            st_drop(st); // it cannot after all
            if (t->n_ways > n) close_last(t);
            continue;
        }
        RETURN_IF_ERR(st);
        if (t->n_ways == n) continue;
        struct tune_way *w = &t->ways[n];
        int same = 0;
        w->name = arena_strdup(t->a, cpu_candidate_name(*c, name));
        while (!same_way(&t->ways[same], w))
            same++;
        if (same == n) continue;
        if (same == 0 && !named) t->ways[0].name = w->name;
        named = named || same == 0;
        close_last(t);
    }
    return cpu_work_join(t->x);
}

// ---- runs

static status_t run_way(struct tuner *t, int way, int64_t *ns) {
    struct tune_way *w = &t->ways[way];
    const struct plan_step *ps = w->step.plan;
    void *bufs[CPU_MAX_BUFS + 1];
    memcpy(bufs, t->bufs, sizeof *bufs * (size_t)ps->n_in);
    bufs[ps->n_in] = t->results[way > 0];
    bufs[ps->n_in + 1] = NULL; // nothing is called
    if (w->step.packed_in >= 0) bufs[w->step.packed_in] = w->packed;
    if (t->how->cancel && *t->how->cancel) return cpu_cancelled();
    t->x->nan = false;
    int64_t start = clock_ns();
    status_t st = w->step.impl->run(t->x, &w->step, bufs);
    *ns = clock_ns() - start;
    return st;
}
static int64_t read_all(const void *p, int64_t n) {
    const int64_t *v = p;
    int64_t sum = 0;
    for (int64_t k = 0; k < n / 8; k += 8) // a cache line each
        sum += v[k];
    return sum;
}
// Weights go, what the step before would have made comes.
static void far_and_near(struct tuner *t, const struct place *l) {
    if (!t->far) return;
    t->sum += read_all(t->far, t->far_bytes);
    for (int e = 0; e < step_of(l)->plan->n_in; e++)
        if (!bound_at(l, e)) t->sum += read_all(t->bufs[e], step_of(l)->plan->in[e].size_bytes);
}

static int64_t given_ns(const char *times, const char *name) {
    struct str all = str_of(times), one;
    int64_t ns = 1000;
    while (str_cut(&all, ',', &one)) {
        struct str key;
        if (str_cut(&one, '=', &key) && str_is(key, name) && !str_to_i64(one, &ns)) ns = 1000;
    }
    return ns;
}

// The first of each: what it costs to make is not counted, and what it gives is looked at.
static status_t check_values(struct tuner *t, const struct place *l) {
    int64_t ns;
    for (int w = 0; w < t->n_ways; w++) {
        memset(t->results[w > 0], 0, (size_t)step_of(l)->plan->out[0].size_bytes);
        RETURN_IF_ERR(run_way(t, w, &ns));
        if (w && !tune_same(instr_of(l), t->results[0], t->results[1]))
            t->ways[w].why = "its values differ by more than the bound";
    }
    return ST_OK;
}
static status_t measure(struct tuner *t, const struct place *l, struct tune_times *times) {
    const char *given = given_times();
    times->n_ways = t->n_ways;
    for (int r = 0; r < TUNE_ROUNDS && !out_of_time(t); r++) {
        for (int k = 0; k < t->n_ways; k++) {
            int w = (k + r) % t->n_ways;
            if (*t->ways[w].why) {
                times->ns[w][r] = INT64_MAX / 2; // never kept
            } else if (given) {
                times->ns[w][r] = given_ns(given, t->ways[w].name);
            } else {
                far_and_near(t, l);
                RETURN_IF_ERR(run_way(t, w, &times->ns[w][r]));
            }
        }
        times->n_rounds = r + 1;
    }
    return ST_OK;
}

// ---- a step

static void tell(struct tuner *t, const struct place *l, const struct tune_times *times,
                 struct dev_tuning *out) {
    int at = (int)(l - t->places), kept = tune_choose(times);
    struct dev_tuned_step *s = &out->steps[out->n_steps++];
    s->instrs = arena_array(t->a, const char *, t->n_places);
    for (int k = 0; k < t->n_places; k++)
        if (t->places[k].like == at)
            s->instrs[s->n_instrs++] = arena_strdup(t->a, instr_of(&t->places[k])->name);
    s->candidates = arena_array(t->a, struct dev_candidate, t->n_ways);
    s->n_candidates = t->n_ways;
    s->kept = kept;
    for (int w = 0; w < t->n_ways; w++) {
        const char *why = t->ways[w].why;
        int64_t ns = *why ? 0 : tune_median(times, w);
        if (!*why && w != kept)
            why = !ns                                   ? "no time was left"
                  : kept || ns >= tune_median(times, 0) ? "slower"
                                                        : "no clear gain";
        s->candidates[w] = (struct dev_candidate){arena_strdup(t->a, t->ways[w].name), ns, why};
    }
}
static status_t tune_step(struct tuner *t, const struct place *l, struct dev_tuning *out) {
    struct tune_times times = {0};
    t->bufs = arena_zarray(t->a, void *, step_of(l)->plan->n_in + 1);
    status_t st = make_operands(t, l);
    if (!st) st = open_ways(t, l);
    if (!st && t->n_ways == 1) tell(t, l, &times, out); // nothing is to be measured
    if (!st && t->n_ways > 1) st = make_results(t, l);
    if (!st && t->n_ways > 1) st = cpu_work_take(t->x);
    if (!st && t->n_ways > 1) {
        bool mine = cpu_pool_begin(true);
        st = check_values(t, l);
        if (!st) st = measure(t, l, &times);
        if (mine) cpu_pool_end();
        cpu_work_give(t->x);
        if (!st) tell(t, l, &times, out);
    }
    while (t->n_ways)
        close_last(t);
    drop_values(t, l);
    return st;
}

// ---- a program

static status_t make_far(struct tuner *t) {
    const struct hlo_computation *c = t->x->exe->main->entry;
    int64_t n = t->x->memory_bytes;
    for (size_t k = 0; k < c->params.n && n < FAR_BYTES; k++)
        n += shape_bytes(c->params.v[k]->shape);
    if (n < NEAR_BYTES || given_times()) return ST_OK;
    t->far_bytes = n < FAR_BYTES ? n : FAR_BYTES;
    t->far = cpu_memory(t->far_bytes);
    if (!t->far) return st_exhausted("no memory to tune in");
    memset(t->far, 1, (size_t)t->far_bytes);
    return ST_OK;
}
static status_t tune_all(struct tuner *t, struct dev_tuning *out) {
    int n = count(t->x->main), firsts = 0;
    t->places = arena_array(t->a, struct place, n + 1);
    find_steps(t, t->x->main, 0);
    RETURN_IF_ERR(make_far(t));
    const struct place **order = arena_array(t->a, const struct place *, t->n_places + 1);
    for (int k = 0; k < t->n_places; k++)
        if (t->places[k].like == k) order[firsts++] = &t->places[k];
    if (firsts) qsort(order, (size_t)firsts, sizeof *order, by_work);
    out->steps = arena_zarray(t->a, struct dev_tuned_step, firsts + 1);

    t->x->kernels = &t->x->exe->kernels;
    t->x->binding = t->x->code;
    t->x->cancel = t->how->cancel;
    status_t st = ST_OK;
    for (int k = 0; k < firsts && !st && !out_of_time(t); k++) {
        st = tune_step(t, order[k], out);
        if (st_code(st) != ST_RESOURCE_EXHAUSTED) continue;
        st_drop(st); // too large a step to be run by itself
        st = ST_OK;
        t->left_out = true;
    }
    t->x->cancel = NULL;
    out->complete = !t->late && !t->left_out;
    return st;
}
status_t cpu_tune(struct device *d, struct executable *e, const struct dev_tune *how,
                  struct arena *a, struct dev_tuning *out) {
    struct tuner t = {.how = how, .a = a, .begin_ns = clock_ns()};
    struct dev_exe *x;
    *out =
        (struct dev_tuning){.list = arena_strdup(a, cpu_candidates_id()), .threads = cpu_threads()};
    if (cpu_forced_impl()) {
        executable_free(e);
        return st_new(ST_FAILED_PRECONDITION, "nothing to tune: HLOD_CPU_IMPL names what runs");
    }
    e->n_choices = 0; // what is usual is without them
    RETURN_IF_ERR(cpu_load(d, e, how->cancel, &x));
    t.x = (struct cpu_exe *)x;
    status_t st = tune_all(&t, out);
    free(t.far);
    cpu_unload(x);
    return st;
}
