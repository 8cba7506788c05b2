// SPDX-License-Identifier: Apache-2.0
#include "scheduler/error.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/text.h"
#include "base/vec.h"
#include "proto/message.h"
#include "proto/reason.h"

Hlod__V1__Error *error_of(struct arena *a, status_t st) {
    Hlod__V1__Error *e = message_new(a, &hlod__v1__error__descriptor);
    const ProtobufCEnumValue *r =
        protobuf_c_enum_descriptor_get_value(&hlod__v1__reason__descriptor, st_get_reason(st));
    e->code = (char *)(uintptr_t)st_code_name(st_code(st));
    if (r && r->value) e->reason = (char *)(uintptr_t)r->name + strlen("REASON_");
    struct str text = str_of(st_message(st)), line = str_of(""); // a worker may say nothing
    str_cut(&text, '\n', &line);
    e->message = arena_strndup(a, line.p, line.n);
    VEC(char *) details = {0};
    while (str_cut(&text, '\n', &line))
        avec_push(a, &details, arena_strndup(a, line.p, line.n));
    e->details = details.v;
    e->n_details = details.n;
    e->retry_after_ms = st_get_retry_ms(st);
    return e;
}

status_t error_from(const Hlod__V1__Error *e, const char *from) {
    char name[100];
    snprintf(name, sizeof name, "REASON_%.80s", e->reason);
    const ProtobufCEnumValue *r =
        protobuf_c_enum_descriptor_get_value_by_name(&hlod__v1__reason__descriptor, name);
    enum status_code code = st_code_from_name(e->code, strlen(e->code));
    struct strbuf b = {0};
    text_show(&b, str_of(e->message), "");
    status_t st = st_new(code ? code : ST_UNKNOWN, "%s: %s", from, strbuf_cstr(&b));
    strbuf_done(&b);
    if (r) st = st_reason(st, r->value);
    return e->retry_after_ms > 0 ? st_retry_after(st, e->retry_after_ms) : st;
}

unsigned error_http_code(status_t st) {
    switch (st_get_reason(st)) {
    case HLOD__V1__REASON__REASON_METHOD_NOT_ALLOWED:
        return 405;
    case HLOD__V1__REASON__REASON_BODY_TOO_LARGE:
        return 413;
    case HLOD__V1__REASON__REASON_UNSUPPORTED_MEDIA_TYPE:
        return 415;
    case HLOD__V1__REASON__REASON_BAD_RANGE:
        return 416;
    case HLOD__V1__REASON__REASON_STORE_FULL:
        return 507;
    default:
        return (unsigned)st_code_http(st_code(st));
    }
}

enum { SAY_EVERY_S = 10 };
status_t error_of_store(status_t st) {
    static _Atomic int64_t next_ns;
    if (st_code(st) != ST_RESOURCE_EXHAUSTED) return st;
    int64_t now = clock_ns(), due = atomic_load(&next_ns);
    if (now >= due &&
        atomic_compare_exchange_strong(&next_ns, &due, now + SAY_EVERY_S * INT64_C(1000000000)))
        log_event(LOG_ERROR, "store.full", "why=\"%s\"", st_message(st));
    return st_reason(st, HLOD__V1__REASON__REASON_STORE_FULL);
}
