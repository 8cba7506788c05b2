// SPDX-License-Identifier: Apache-2.0
#include "server/otlp/otlp_send.h"

#include <stdio.h>

#include "proto/formats/otlp.pb-c.h"
#include "proto/weigh.h"

static void say(struct otlp_answer *out, const char *text) {
    snprintf(out->why, sizeof out->why, "%.150s", text); // as it came: the log shows it
}

void otlp_answer_body(struct span body, struct otlp_answer *out) {
    *out = (struct otlp_answer){.how = OTLP_TAKEN};
    struct arena a = {0};
    const Otlp__ExportResponse *m = weigh_unpack_in(&a, &otlp__export_response__descriptor, body);
    if (m && m->partial_success) {
        out->rejected = m->partial_success->rejected > 0 ? m->partial_success->rejected : 0;
        say(out, m->partial_success->error_message);
    }
    arena_done(&a);
}

// RetryInfo among a status's details, in ms; 0: none.
static int64_t retry_delay(struct arena *a, const Otlp__RpcStatus *s) {
    static const char type[] = "/google.rpc.RetryInfo";
    enum { MOST_S = 1000000 };
    for (size_t k = 0; s && k < s->n_details; k++) {
        const Otlp__Any *d = s->details[k];
        size_t n = strlen(d->type_url);
        if (n < strlen(type) || strcmp(d->type_url + n - strlen(type), type) != 0) continue;
        struct span value = {d->value.data, d->value.len};
        const Otlp__RetryInfo *info = weigh_unpack_in(a, &otlp__retry_info__descriptor, value);
        if (!info || !info->retry_delay) continue;
        int64_t seconds = info->retry_delay->seconds, nanos = info->retry_delay->nanos;
        if (seconds < 0 || nanos < 0) return 1;
        return (seconds < MOST_S ? seconds : MOST_S) * 1000 + nanos / 1000000 + 1;
    }
    return 0;
}
void otlp_answer_http(int code, struct span body, struct otlp_answer *out) {
    struct arena a = {0};
    if (code >= 200 && code <= 299) {
        otlp_answer_body(body, out);
        return;
    }
    *out = (struct otlp_answer){.how = OTLP_REFUSED};
    if (code == 429 || code == 502 || code == 503 || code == 504) out->how = OTLP_AGAIN;
    const Otlp__RpcStatus *s =
        body.n ? weigh_unpack_in(&a, &otlp__rpc_status__descriptor, body) : NULL;
    bool says = s && *s->message;
    snprintf(out->why, sizeof out->why, "HTTP %d%s%.120s", code, says ? ": " : "",
             says ? s->message : "");
    arena_done(&a);
}
void otlp_answer_refusal(int code, struct span status, struct otlp_answer *out) {
    *out = (struct otlp_answer){.how = OTLP_REFUSED};
    struct arena a = {0};
    const Otlp__RpcStatus *s =
        status.n ? weigh_unpack_in(&a, &otlp__rpc_status__descriptor, status) : NULL;
    out->retry_ms = retry_delay(&a, s);
    switch (code) {
    case ST_CANCELLED:
    case ST_DEADLINE_EXCEEDED:
    case ST_ABORTED:
    case ST_OUT_OF_RANGE:
    case ST_UNAVAILABLE:
    case ST_DATA_LOSS:
        out->how = OTLP_AGAIN;
        break;
    case ST_RESOURCE_EXHAUSTED: // only where it says that it will pass
        if (out->retry_ms) out->how = OTLP_AGAIN;
        break;
    default:
        break;
    }
    if (s) say(out, s->message);
    arena_done(&a);
}
