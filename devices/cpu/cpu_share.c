// SPDX-License-Identifier: Apache-2.0
// Which prepared values an executable may take from the sets of others: those of the same weights
// that are the same function of them (hlo_canonical_results), plain, or packed by a step that packs
// as its own does. Not across precisions: what a strict program prepares is computed otherwise.
#include "devices/cpu/cpu_weights.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/ir/text/text.h"

struct cpu_hold *cpu_hold_new(struct cpu_weights *w, int64_t bytes) {
    struct cpu_hold *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    *h = (struct cpu_hold){.p = cpu_memory(bytes), .bytes = bytes, .refs = 1, .counts = w};
    if (h->p) {
        w->base.bytes += bytes;
        return h;
    }
    free(h);
    return NULL;
}

// ---- letting go

static bool holds(const struct cpu_weights *w, const struct cpu_hold *h) {
    for (int k = 0; k < w->n_bound; k++)
        if (w->bound[k] == h) return true;
    for (int k = 0; k < w->n_packed; k++)
        if (w->packed[k] == h) return true;
    return false;
}
static void let_go(struct cpu_weights *w, struct cpu_hold *h) {
    if (!h) return;
    if (--h->refs == 0) {
        free(h->p);
        free(h);
        return;
    }
    if (h->counts != w) return;
    for (struct cpu_weights *o = *cpu_sets(w->base.exe->dev); o; o = o->next)
        if (o != w && holds(o, h)) {
            h->counts = o;
            o->base.bytes += h->bytes;
            if (o->base.changed) o->base.changed(&o->base);
            return;
        }
}
void cpu_unshare(struct cpu_weights *w) {
    struct cpu_weights **first = cpu_sets(w->base.exe->dev);
    if (w->previous)
        w->previous->next = w->next;
    else if (*first == w)
        *first = w->next;
    if (w->next) w->next->previous = w->previous;
    w->next = w->previous = NULL;
    for (int k = 0; k < w->n_bound && w->bound; k++)
        let_go(w, w->bound[k]);
    for (int k = 0; k < w->n_packed && w->packed; k++)
        let_go(w, w->packed[k]);
}

// ---- taking

static const struct cpu_exe *exe_of(const struct cpu_weights *w) {
    return (const struct cpu_exe *)w->base.exe;
}
void cpu_name_values(struct cpu_weights *w, struct digest which) {
    const struct hlo_module *prepare = exe_of(w)->exe->prepare;
    const struct hlo_instr *root = prepare->entry->root;
    w->which = which;
    if (digest_is_zero(which) || root->op != HLO_TUPLE || root->n_operands != w->n_bound) return;
    w->values = calloc((size_t)w->n_bound + 1, sizeof *w->values);
    if (w->values) hlo_canonical_results(prepare, w->values);
}
void cpu_share(struct cpu_weights *w) {
    struct cpu_weights **sets = cpu_sets(w->base.exe->dev);
    if (!w->values) return;
    w->next = *sets;
    if (*sets) (*sets)->previous = w;
    *sets = w;
}

static struct cpu_hold *take(struct cpu_hold *h, bool looks) {
    if (!h || (looks && !h->looked)) return NULL;
    h->refs++;
    return h;
}
// The same value of another set; -1: it has none.
static int place_of(const struct cpu_weights *w, int bound, const struct cpu_weights *other) {
    for (int k = 0; k < other->n_bound; k++)
        if (digest_eq(other->values[k], w->values[bound])) return k;
    return -1;
}
// Each set of the same weights in turn: after NULL the first.
static const struct cpu_weights *next_set(const struct cpu_weights *w,
                                          const struct cpu_weights *at) {
    at = at ? at->next : *cpu_sets(w->base.exe->dev);
    while (at &&
           (at == w || !digest_eq(at->which, w->which) || exe_of(at)->strict != exe_of(w)->strict))
        at = at->next;
    return at;
}
static struct cpu_hold *packed_elsewhere(const struct cpu_weights *w, const struct cpu_step *s,
                                         int bound, bool looks) {
    for (const struct cpu_weights *o = NULL; s->impl->same_pack && (o = next_set(w, o));) {
        int there = place_of(w, bound, o);
        for (const struct cpu_pack *p = exe_of(o)->packs; there >= 0 && p; p = p->next) {
            if (p->bound != there || p->step->impl != s->impl || !s->impl->same_pack(p->step, s))
                continue;
            struct cpu_hold *h = take(o->packed[p->step->pack_slot], looks);
            if (h) return h;
        }
    }
    return NULL;
}
static struct cpu_hold *plain_elsewhere(const struct cpu_weights *w, int bound, bool looks) {
    for (const struct cpu_weights *o = NULL; (o = next_set(w, o));) {
        int there = place_of(w, bound, o);
        struct cpu_hold *h = there < 0 ? NULL : take(o->bound[there], looks);
        if (h) return h;
    }
    return NULL;
}
static bool adopt_packs(struct cpu_weights *w, const struct cpu_plan *p, int bound, bool looks) {
    bool all = true;
    for (int i = 0; i < p->plan->n_steps; i++) {
        const struct cpu_step *s = &p->steps[i];
        for (int c = 0; s->called && c < s->plan->instr->n_called; c++)
            all = adopt_packs(w, s->called[c], bound, looks) && all;
        const struct slice *in = s->packed_in >= 0 ? &s->plan->in[s->packed_in] : NULL;
        if (!in || in->where != SLICE_PARAM || p->bound[in->index] != bound) continue;
        struct cpu_hold **slot = &w->packed[s->pack_slot];
        if (!*slot) *slot = packed_elsewhere(w, s, bound, looks);
        all = all && *slot;
        if (*slot) w->odd[s->pack_slot] |= s->swallows && (*slot)->odd;
        if (*slot) w->any_odd |= looks && (*slot)->odd;
    }
    return all;
}
bool cpu_adopt(struct cpu_weights *w, int bound, bool looks) {
    const struct cpu_plan *p = exe_of(w)->main;
    if (!w->values) return false;
    bool all = adopt_packs(w, p, bound, looks);
    if (!cpu_read_plain(p, false, bound)) return all;
    w->bound[bound] = plain_elsewhere(w, bound, looks);
    if (!w->bound[bound]) return false;
    w->any_odd |= looks && w->bound[bound]->odd;
    return all;
}
