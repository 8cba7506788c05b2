// SPDX-License-Identifier: Apache-2.0
#include "devices/worker/worker_profile.h"

#include <string.h>

#include "base/clock.h"
#include "compiler/ir/module.h"
#include "compiler/ir/op.h"
#include "proto/message.h"

struct names {
    char **v;
    size_t n, cap;
};
// Once each: a step has few, and a set would cost more.
static void add_name(struct arena *a, struct names *l, const char *name) {
    for (size_t k = 0; name && k < l->n; k++)
        if (strcmp(l->v[k], name) == 0) return;
    if (name && *name) avec_push(a, l, (char *)(uintptr_t)name);
}

// Constants are shared by all that read the value: their node is not this step's.
static bool constant(const struct hlo_instr *x) {
    return x->op == HLO_CONSTANT || (x->op == HLO_BROADCAST && x->operands[0]->op == HLO_CONSTANT);
}

static void put_origin(struct arena *a, const struct hlo_instr *i, bool with_nodes,
                       Hlod__V1__ProfileRow *r) {
    struct names hlo = {0}, nodes = {0};
    if (i->op == HLO_FUSION) // fusions may lie in fusions: what is inside has names of its own
        for (const struct hlo_instr *x = i->called[0]->first; x; x = x->next) {
            if (x->op == HLO_PARAMETER) continue;
            avec_push(a, &hlo, (char *)(uintptr_t)x->name);
            if (with_nodes && !constant(x)) add_name(a, &nodes, x->op_name);
        }
    if (with_nodes) add_name(a, &nodes, i->op_name);
    r->hlo = hlo.v;
    r->n_hlo = hlo.n;
    r->nodes = nodes.v;
    r->n_nodes = nodes.n;
}

static void put_bound(const struct dev_peak *peak, Hlod__V1__ProfileRow *r) {
    if (!(peak->flops > 0) || !(peak->bytes > 0) || r->ms <= 0 || (!r->flops && !r->bytes)) return;
    double compute_ms = (double)r->flops / peak->flops * 1e3,
           memory_ms = (double)r->bytes / peak->bytes * 1e3;
    r->bound = (char *)(compute_ms > memory_ms ? "compute" : "memory");
    r->of_peak = (compute_ms > memory_ms ? compute_ms : memory_ms) / r->ms;
}

Hlod__V1__Profile *worker_profile(struct arena *a, struct device *d, const struct profile *p,
                                  int runs, double total_ms, bool with_nodes) {
    struct dev_peak peak = dev_peak(d);
    Hlod__V1__Profile *m = message_new(a, &hlod__v1__profile__descriptor);
    m->total_ms = total_ms;
    m->runs = (uint32_t)runs;
    m->peak_gflops = peak.flops / 1e9;
    m->peak_gbytes = peak.bytes / 1e9;
    m->peak_source = (char *)(uintptr_t)peak.source;

    m->n_rows = (size_t)p->n;
    m->rows = arena_array(a, Hlod__V1__ProfileRow *, p->n + 1);
    for (int k = 0; k < p->n; k++) {
        const struct profile_row *from = &p->rows[k];
        Hlod__V1__ProfileRow *r = m->rows[k] = message_new(a, &hlod__v1__profile_row__descriptor);
        r->name = (char *)(uintptr_t)from->name;
        bool opcode = !with_nodes && from->instr; // `op` may be a node's name
        r->op = (char *)(uintptr_t)(opcode ? hlo_op_name(from->instr->op) : from->op);
        r->impl = (char *)(uintptr_t)(from->impl ? from->impl : "");
        r->start_ms = clock_ms(from->start_ns);
        r->ms = clock_ms(from->ns);
        r->flops = from->flops;
        r->bytes = from->bytes;
        r->depth = from->depth;
        r->estimate_ms = from->estimate_ns / 1e6;
        if (from->depth == 0) m->steps_ms += r->ms;
        if (from->instr) put_origin(a, from->instr, with_nodes, r);
        put_bound(&peak, r);
    }
    return m;
}
