// SPDX-License-Identifier: Apache-2.0
#include "server/api.h"

#include <string.h>

#include "base/clock.h"

enum { UNARY = 0, SERVER = 1 };
struct api_row api_rows[API_ROWS] = {
#define RPC(method, handler, stream, verb, alias, body)                                            \
    {#method, handler, stream, VERB_##verb, alias, BODY_##body, NULL, NULL},
#include "server/api.def"
#undef RPC
};

const char *api_version_text(void) {
    return HLOD_VERSION;
}
const char *api_verb_name(enum api_verb v) {
    static const char *const names[] = {"GET", "POST", "DELETE"};
    return names[v];
}

status_t api_init(void) {
    const ProtobufCServiceDescriptor *d = &hlod__v1__hlod__descriptor;
    if (d->n_methods != API_ROWS)
        return st_new(ST_INTERNAL, "api.def has %d rows, the service %u methods", API_ROWS,
                      d->n_methods);
    for (unsigned i = 0; i < d->n_methods; i++) {
        if (strcmp(d->methods[i].name, api_rows[i].method))
            return st_new(ST_INTERNAL, "api.def row %u is %s, the service's method %s", i,
                          api_rows[i].method, d->methods[i].name);
        api_rows[i].input = d->methods[i].input;
        api_rows[i].output = d->methods[i].output;
    }
    return ST_OK;
}

status_t api_digest(const char *text, const char *what, struct digest *out) {
    if (!digest_parse(str_of(text), out))
        return st_reason(st_new(ST_INVALID_ARGUMENT,
                                "%s: expected a digest of 64 hex digits, found '%.80s'", what,
                                text),
                         HLOD__V1__REASON__REASON_BAD_DIGEST);
    return ST_OK;
}

void api_dispatch(struct call *c) {
    bool probe = c->row->handler == api_health || c->row->handler == api_version;
    if (c->api->draining && !probe)
        call_finish(c, NULL,
                    st_reason(st_new(ST_UNAVAILABLE, "the server is shutting down"),
                              HLOD__V1__REASON__REASON_SHUTTING_DOWN));
    else
        c->row->handler(c);
}
