// SPDX-License-Identifier: Apache-2.0
// The servers of --cluster. Pure.
#include <ctype.h>
#include <string.h>

#include "base/str.h"
#include "scheduler/cluster/bus.h"

MUST_CHECK static status_t wrong(struct str entry, const char *what) {
    return st_invalid("'%.*s': %s", (int)(entry.n < 200 ? entry.n : 200), entry.p, what);
}
static status_t read_server(struct arena *a, struct str text, struct bus_server *x) {
    struct str rest = text, host, number;
    int64_t port;
    x->tls = str_starts(text, "tls://");
    size_t scheme = x->tls ? 6 : str_starts(text, "nats://") ? 7 : 0;
    if (memchr(text.p, '@', text.n))
        return wrong(text, "an address has no credentials: they come from a file "
                           "(--cluster-credentials)");
    if (!scheme) return wrong(text, "expected nats://HOST:PORT or tls://HOST:PORT");

    rest = (struct str){rest.p + scheme, rest.n - scheme};
    bool six = rest.n && rest.p[0] == '[';
    const char *end = rest.n ? memchr(rest.p, six ? ']' : ':', rest.n) : NULL;
    if (!end) return wrong(text, "expected HOST:PORT behind the slashes");
    host = (struct str){rest.p + six, (size_t)(end - rest.p) - six};
    end += six;
    number = (struct str){end, (size_t)(rest.p + rest.n - end)};
    bool fits = host.n && number.n > 1 && number.p[0] == ':' && isdigit((unsigned char)end[1]) &&
                str_to_i64((struct str){number.p + 1, number.n - 1}, &port) && port > 0 &&
                port < 65536;
    for (size_t i = 0; i < host.n; i++)
        fits = fits && (isalnum((unsigned char)host.p[i]) || strchr(six ? ":." : ".-_", host.p[i]));
    if (!fits) return wrong(text, "expected HOST:PORT behind the slashes");

    x->url = arena_strndup(a, text.p, text.n);
    x->host = arena_strndup(a, host.p, host.n);
    x->loopback = str_is_loopback(host);
    return ST_OK;
}
status_t bus_servers(struct arena *a, const char *list, struct bus_server *out, size_t *out_n) {
    struct str rest = str_of(list), one;
    *out_n = 0;
    while (rest.n && str_cut(&rest, ',', &one)) {
        if (*out_n == BUS_SERVERS) return st_invalid("more than %d servers", BUS_SERVERS);
        RETURN_IF_ERR(read_server(a, str_trim(one), &out[(*out_n)++]));
    }
    return ST_OK;
}
