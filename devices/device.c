// SPDX-License-Identifier: Apache-2.0
// The registry, and the check that every device's caller makes.
#include "devices/device.h"

#include "proto/hlod.pb-c.h"

#define KIND(kind, traits) extern const struct dev_vtable kind##_vtable;
#include "proto/kinds.def"
#undef KIND
static const struct dev_vtable *const table[] = {
#define KIND(kind, traits) &kind##_vtable,
#include "proto/kinds.def"
#undef KIND
};

static status_t open_as(const char *spec, bool compiler, struct device **out) {
    size_t n = strcspn(spec, ":");
    struct strbuf b = {0};
    for (size_t k = 0; k < sizeof table / sizeof table[0]; k++) {
        const struct dev_vtable *vt = table[k];
        if (strlen(vt->kind) == n && memcmp(spec, vt->kind, n) == 0) {
            strbuf_done(&b);
            status_t (*open)(const char *, struct device **) =
                compiler && vt->open_compiler ? vt->open_compiler : vt->open;
            return st_note(open(spec[n] ? spec + n + 1 : "", out), "device '%s'", spec);
        }
        strbuf_printf(&b, " %s", vt->kind);
    }
    status_t st = st_new(ST_NOT_FOUND, "no device kind is called '%.*s'; there are:%s", (int)n,
                         spec, strbuf_cstr(&b));
    strbuf_done(&b);
    return st;
}
status_t dev_open(const char *spec, struct device **out) {
    return open_as(spec, false, out);
}
status_t dev_open_compiler(const char *spec, struct device **out) {
    return open_as(spec, true, out);
}

static status_t cancelled(const _Atomic bool *cancel) {
    return cancel && *cancel ? st_new(ST_CANCELLED, "the call was cancelled") : ST_OK;
}
status_t dev_load(struct device *d, struct executable *e, const _Atomic bool *cancel,
                  struct dev_exe **out) {
    status_t st = cancelled(cancel);
    if (!st) return d->vt->load(d, e, cancel, out);
    executable_free(e);
    return st;
}
status_t dev_prepare(struct dev_exe *x, const struct span *w, int n, const _Atomic bool *cancel,
                     struct dev_weights **out) {
    RETURN_IF_ERR(cancelled(cancel));
    return x->dev->vt->prepare(x, w, n, cancel, out);
}

status_t dev_find_target(struct device *d, const char *name, const struct target **out) {
    if (d->vt->find_target) return d->vt->find_target(d, name, out);
    *out = dev_target(d);
    if (!*name || strcmp((*out)->id, name) == 0) return ST_OK;
    return st_new(ST_FAILED_PRECONDITION,
                  "target %s cannot be compiled for here: this machine is %s", name, (*out)->id);
}

static bool same_shape(const struct shape *want, int replicas, const struct dev_tensor *t) {
    int lead = replicas > 1; // the dimension of all replicas
    bool same = dtype_from_name(str_of(t->dtype)) == want->dtype && t->rank == want->rank + lead;
    if (same && lead) same = t->dims[0] == replicas;
    for (int d = 0; same && d < want->rank; d++)
        same = t->dims[d + lead] == want->dims[d];
    return same;
}

static status_t mismatch(const struct hlo_instr *p, int replicas, const struct dev_tensor *t) {
    struct arena a = {0};
    struct strbuf dims = {0};
    for (int d = 0; d < t->rank; d++)
        strbuf_printf(&dims, "%s%lld", d ? "," : "", (long long)t->dims[d]);
    status_t st = st_reason(
        st_invalid("input '%s': expected %s%s, %lld bytes; found %s[%s], %zu bytes", p->name,
                   shape_text(&a, p->shape),
                   replicas > 1 ? arena_printf(&a, " for each of %d replicas", replicas) : "",
                   (long long)shape_bytes(p->shape) * replicas, t->dtype, strbuf_cstr(&dims),
                   t->data.n),
        dtype_from_name(str_of(t->dtype)) == p->shape->dtype
            ? HLOD__V1__REASON__REASON_SHAPE_MISMATCH
            : HLOD__V1__REASON__REASON_DTYPE_MISMATCH);
    strbuf_done(&dims);
    arena_done(&a);
    return st;
}

status_t dev_check_inputs(const struct dev_exe *x, const struct dev_tensor *in, int n) {
    const struct hlo_computation *m = x->exe->main->entry;
    int want = 0;
    for (size_t k = 0; k < m->params.n; k++)
        want += m->params.v[k]->param_kind == PARAM_INPUT;
    if (n != want)
        return st_reason(st_invalid("%d inputs given, the executable takes %d", n, want),
                         n < want ? HLOD__V1__REASON__REASON_MISSING_INPUT
                                  : HLOD__V1__REASON__REASON_UNKNOWN_INPUT);
    for (size_t k = 0, i = 0; k < m->params.n; k++) {
        const struct hlo_instr *p = m->params.v[k];
        if (p->param_kind != PARAM_INPUT) continue;
        const struct dev_tensor *t = &in[i++];
        int all = x->exe->replicas;
        if (!same_shape(p->shape, all, t) || (int64_t)t->data.n != shape_bytes(p->shape) * all)
            return mismatch(p, all, t);
    }
    return ST_OK;
}

status_t dev_find_weight(const struct hlo_instr *q, const struct span *weights, int n,
                         const void **out) {
    if (q->param_index >= n || (int64_t)weights[q->param_index].n != shape_bytes(q->shape))
        return st_invalid("weight %lld ('%s') is missing or has the wrong size",
                          (long long)q->param_index, q->name);
    *out = weights[q->param_index].p;
    return ST_OK;
}
