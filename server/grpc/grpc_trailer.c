// SPDX-License-Identifier: Apache-2.0
#include "server/grpc/grpc_trailer.h"

#include <stdio.h>
#include <string.h>

#include <grpc/slice.h>

#include "proto/hlod.pb-c.h"

enum { MAX_STATUS_TEXT = 4000 }; // clients refuse trailers beyond 8 KiB: a head must do
void trailer_add(struct trailer *t, const char *key, const char *value) {
    t->v[t->n++] = (grpc_metadata){.key = grpc_slice_from_static_string(key),
                                   .value = grpc_slice_from_copied_string(value)};
}
void trailer_status(struct trailer *t, status_t st, const char *key, const char *value,
                    grpc_op *op) {
    const ProtobufCEnumValue *reason =
        protobuf_c_enum_descriptor_get_value(&hlod__v1__reason__descriptor, st_get_reason(st));
    *t = (struct trailer){.text = grpc_slice_from_copied_buffer(
                              st_message(st), strnlen(st_message(st), MAX_STATUS_TEXT))};
    if (st_get_reason(st) && reason)
        trailer_add(t, "hlod-reason", reason->name + strlen("REASON_"));
    if (st_get_retry_ms(st)) {
        char ms[24];
        snprintf(ms, sizeof ms, "%lld", (long long)st_get_retry_ms(st));
        trailer_add(t, "hlod-retry-after-ms", ms);
    }
    if (value) trailer_add(t, key, value);
    op->op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    op->data.send_status_from_server.status = (grpc_status_code)st_code(st);
    op->data.send_status_from_server.trailing_metadata = t->v;
    op->data.send_status_from_server.trailing_metadata_count = t->n;
    op->data.send_status_from_server.status_details = &t->text;
}
void trailer_done(struct trailer *t) {
    for (size_t i = 0; i < t->n; i++)
        grpc_slice_unref(t->v[i].value);
    grpc_slice_unref(t->text);
}

const char *metadata_find(const grpc_metadata_array *head, struct arena *a, const char *name) {
    for (size_t i = 0; i < head->count; i++) {
        const grpc_metadata *m = &head->metadata[i];
        if (grpc_slice_str_cmp(m->key, name) == 0)
            return arena_strndup(a, (const char *)GRPC_SLICE_START_PTR(m->value),
                                 GRPC_SLICE_LENGTH(m->value));
    }
    return NULL;
}
bool metadata_clear(const grpc_metadata_array *head, const char *name) {
    int times = 0;
    for (size_t i = 0; i < head->count; i++) {
        const grpc_metadata *m = &head->metadata[i];
        if (grpc_slice_str_cmp(m->key, name) != 0) continue;
        size_t n = GRPC_SLICE_LENGTH(m->value);
        if (++times > 1 || (n && memchr(GRPC_SLICE_START_PTR(m->value), 0, n))) return false;
    }
    return true;
}
