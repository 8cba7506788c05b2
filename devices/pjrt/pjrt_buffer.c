// SPDX-License-Identifier: Apache-2.0
// Values on a plugin's device: to it, from it, and those that stay there between runs.
#include <stdlib.h>

#include "devices/pjrt/pjrt_device.h"

struct pj_buffer {
    struct dev_buffer base;
    void *pj;
};

static int type_of(enum dtype t) {
    static const int types[DT_COUNT] = {
        [DT_PRED] = 1,        [DT_S8] = 2,          [DT_S16] = 3,
        [DT_S32] = 4,         [DT_S64] = 5,         [DT_U8] = 6,
        [DT_U16] = 7,         [DT_U32] = 8,         [DT_U64] = 9,
        [DT_F16] = 10,        [DT_F32] = 11,        [DT_F64] = 12,
        [DT_BF16] = 13,       [DT_C64] = 14,        [DT_C128] = 15,
        [DT_F8E5M2] = 16,     [DT_F8E4M3FN] = 17,   [DT_F8E4M3B11FNUZ] = 18,
        [DT_F8E5M2FNUZ] = 19, [DT_F8E4M3FNUZ] = 20, [DT_S4] = 21,
        [DT_U4] = 22,         [DT_S2] = 24,         [DT_U2] = 25,
        [DT_F8E4M3] = 26,     [DT_F8E3M4] = 27,     [DT_F8E8M0FNU] = 28,
        [DT_F4E2M1FN] = 29};
    return types[t];
}

status_t pj_to_device(struct pj_device *d, void *device, const struct shape *s, const void *data,
                      size_t number, struct pj_pending *w, void **out) {
    struct pj_from_host h = {.client = d->client,
                             .data = data,
                             .type = type_of(s->dtype),
                             .dims = s->dims,
                             .n_dims = (size_t)s->rank,
                             .semantics = PJ_KEEP_UNTIL_DONE,
                             .device = device};
    if (!h.type) return st_invalid("this device has no values of type %s", dtype_name(s->dtype));
    RETURN_IF_ERR(PJ_CALL(d->plugin, Client_BufferFromHostBuffer, &h));
    *out = h.buffer;
    pj_pending_add(w, h.done, "input", number);
    return ST_OK;
}

status_t pj_to_host(struct pj_device *d, const struct shape *s, void *buffer, void *dst,
                    size_t number, struct pj_pending *w) {
    int64_t order[HLO_MAX_RANK + 1];
    for (int k = 0; k < s->rank; k++)
        order[k] = s->rank - 1 - k;
    struct pj_layout layout = {.struct_size = sizeof layout, .type = PJ_LAYOUT_TILED};
    layout.tiled.struct_size = sizeof layout.tiled;
    layout.tiled.minor_to_major = order;
    layout.tiled.n_minor_to_major = (size_t)s->rank;
    struct pj_to_host h = {
        .buffer = buffer, .layout = &layout, .dst = dst, .dst_size = (size_t)shape_bytes(s)};
    if (!h.dst_size) return ST_OK;
    RETURN_IF_ERR(PJ_CALL(d->plugin, Buffer_ToHostBuffer, &h));
    pj_pending_add(w, h.event, "result", number);
    return ST_OK;
}
void pj_to_host_end(const struct shape *s, void *dst) {
    if (s->dtype != DT_S4) return;
    for (int8_t *v = dst, *end = v + shape_bytes(s); v < end; v++)
        *v = (int8_t)((*v & 7) - (*v & 8));
}

void pj_destroy_buffers(const struct pj_plugin *p, void **b, size_t n) {
    for (size_t k = 0; k < n; k++)
        pj_destroy(p, PJ_Buffer_Destroy, b[k]);
}

// ---- values that stay

void *pj_buffer_of(struct dev_buffer *b) {
    return ((struct pj_buffer *)b)->pj;
}
status_t pj_buffer_wrap(struct pj_device *d, const struct shape *s, void *pj,
                        struct dev_buffer **out) {
    struct pj_buffer *b = calloc(1, sizeof *b);
    if (!b) {
        pj_destroy(d->plugin, PJ_Buffer_Destroy, pj);
        return st_oom();
    }
    *b =
        (struct pj_buffer){.base = {.dev = &d->base, .refs = 1, .bytes = shape_bytes(s)}, .pj = pj};
    b->base.shape = shape_make(&b->base.arena, s->dtype, s->dims, s->rank);
    *out = &b->base;
    return ST_OK;
}
status_t pj_buffer_put(struct device *base, const struct shape *s, const void *data,
                       struct dev_buffer **out) {
    struct pj_device *d = (struct pj_device *)base;
    struct pj_pending w = {0};
    struct pj_get_args there = {0};
    RETURN_IF_ERR(pj_to_device(d, d->device, s, data, 0, &w, &there.object));
    // Done with the host's memory is not yet arrived: errors of the device show here.
    status_t st = pj_has(d->plugin, PJ_Buffer_ReadyEvent)
                      ? PJ_CALL(d->plugin, Buffer_ReadyEvent, &there)
                      : ST_OK;
    pj_pending_add(&w, there.out, "value", 0);
    status_t arrived = pj_pending_wait(d->plugin, &w, NULL);
    if (!st) {
        st = arrived;
    } else {
        st_drop(arrived);
    }
    if (!st) return pj_buffer_wrap(d, s, there.object, out);
    pj_destroy(d->plugin, PJ_Buffer_Destroy, there.object);
    return st;
}
void pj_buffer_drop(struct dev_buffer *base) {
    struct pj_buffer *b = (struct pj_buffer *)base;
    pj_destroy(((struct pj_device *)base->dev)->plugin, PJ_Buffer_Destroy, b->pj);
    arena_done(&base->arena);
    free(b);
}
static status_t get_all(struct pj_device *d, const struct pj_buffer *b, void *dst) {
    struct pj_pending w = {0};
    RETURN_IF_ERR(pj_to_host(d, b->base.shape, b->pj, dst, 0, &w));
    RETURN_IF_ERR(pj_pending_wait(d->plugin, &w, NULL));
    pj_to_host_end(b->base.shape, dst);
    return ST_OK;
}
// Through a copy of the whole where a part is asked for: the layout is the plugin's own.
status_t pj_buffer_get(struct dev_buffer *base, int64_t offset, int64_t n, void *dst) {
    const struct pj_buffer *b = (const struct pj_buffer *)base;
    struct pj_device *d = (struct pj_device *)base->dev;
    if (offset == 0 && n == base->bytes) return get_all(d, b, dst);
    uint8_t *all = malloc((size_t)base->bytes + 1);
    if (!all) return st_oom();
    status_t st = get_all(d, b, all);
    if (!st && n) memcpy(dst, all + offset, (size_t)n);
    free(all);
    return st;
}
// After a run that did not succeed: was this value taken by it?
void pj_buffer_check(struct dev_buffer *base) {
    struct pj_buffer_deleted q = {.buffer = pj_buffer_of(base)};
    const struct pj_device *d = (const struct pj_device *)base->dev;
    status_t st = PJ_CALL(d->plugin, Buffer_IsDeleted, &q);
    base->spent = st || q.deleted; // what cannot say it is not used again
    st_drop(st);
}
