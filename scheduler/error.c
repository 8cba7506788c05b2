// SPDX-License-Identifier: Apache-2.0
#include "scheduler/error.h"

#include <string.h>

#include "base/str.h"
#include "base/vec.h"

Hlod__V1__Error *error_of(struct arena *a, status_t st) {
    Hlod__V1__Error *e = arena_new_of(a, Hlod__V1__Error);
    hlod__v1__error__init(e);
    const ProtobufCEnumValue *r =
        protobuf_c_enum_descriptor_get_value(&hlod__v1__reason__descriptor, st_get_reason(st));
    e->code = (char *)(uintptr_t)st_code_name(st_code(st));
    if (r && r->value) e->reason = (char *)(uintptr_t)r->name + strlen("REASON_");
    struct str text = str_of(st_message(st)), line;
    str_cut(&text, '\n', &line);
    e->message = arena_strndup(a, line.p, line.n);
    struct {
        char **v;
        size_t n, cap;
    } details = {0};
    while (str_cut(&text, '\n', &line))
        avec_push(a, &details, arena_strndup(a, line.p, line.n));
    e->details = details.v;
    e->n_details = details.n;
    e->retry_after_ms = st_get_retry_ms(st);
    return e;
}
