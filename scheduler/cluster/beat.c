// SPDX-License-Identifier: Apache-2.0
#include "scheduler/cluster/beat.h"

#include <ctype.h>
#include <string.h>

#include "base/str.h"
#include "proto/message.h"
#include "proto/weigh.h"
#include "scheduler/remote/peers.h"

// Printable ASCII without quotes: texts go to logs, tables and labels.
static bool plain(const char *text) {
    size_t n = strnlen(text, BEAT_TEXT + 1);
    for (size_t i = 0; i < n; i++)
        if (text[i] < 0x20 || text[i] > 0x7e || strchr("\"'`\\<>", text[i])) return false;
    return n <= BEAT_TEXT;
}

bool beat_address_fits(const char *text) {
    struct str rest = str_of(text), host, number;
    int64_t port;
    size_t scheme = str_starts(rest, "http://") ? 7 : str_starts(rest, "https://") ? 8 : 0;
    if (!scheme || !plain(text)) return false;
    rest = (struct str){rest.p + scheme, rest.n - scheme};
    bool six = rest.n && rest.p[0] == '[';
    const char *colon = six ? memchr(rest.p, ']', rest.n) : memchr(rest.p, ':', rest.n);
    if (!colon) return false;
    host = (struct str){rest.p + six, (size_t)(colon - rest.p) - six};
    colon += six;
    if (colon >= rest.p + rest.n || *colon != ':' || !host.n) return false;
    number = (struct str){colon + 1, (size_t)(rest.p + rest.n - colon - 1)};
    for (size_t i = 0; i < host.n; i++)
        if (!isalnum((unsigned char)host.p[i]) && !strchr(six ? ":." : ".-_", host.p[i]))
            return false;
    for (size_t i = 0; i < number.n; i++)
        if (!isdigit((unsigned char)number.p[i])) return false;
    return number.n <= 5 && str_to_i64(number, &port) && port >= 1 && port <= 65535;
}

static bool is_state(const char *s) {
    static const char *const all[] = {"serving", "starting", "draining", "gone"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(s, all[i])) return true;
    return false;
}
static bool targets_fit(const Hlod__V1__Node *m) {
    if (m->n_targets > BEAT_MAX_TARGETS) return false;
    for (size_t i = 0; i < m->n_targets; i++)
        if (!*m->targets[i]->target_id || !plain(m->targets[i]->target_id) ||
            !plain(m->targets[i]->build_id))
            return false;
    return true;
}
static bool kinds_fit(const Hlod__V1__Node *m) {
    if (m->n_device_kinds > BEAT_MAX_TARGETS) return false;
    for (size_t i = 0; i < m->n_device_kinds; i++)
        if (!*m->device_kinds[i] || !plain(m->device_kinds[i])) return false;
    return true;
}
static bool counts_fit(const Hlod__V1__Node *m) {
    enum { DEVICES = 4096, PLACES = 1 << 20, JOBS = 1 << 30 };
    return m->devices >= 0 && m->devices <= DEVICES && m->devices_up >= 0 &&
           m->devices_up <= m->devices && m->places >= 0 && m->places <= PLACES && m->jobs >= 0 &&
           m->jobs <= JOBS && m->queued >= 0 && m->queued <= JOBS && m->max_queue >= 0 &&
           m->max_queue <= JOBS && m->uptime_ms >= 0 && m->names >= 0;
}
static const char *fault(const Hlod__V1__Node *m) {
    if (!peer_name_fits(m->node)) return "no name of a node";
    if (!peer_name_fits(m->life)) return "no name of a process";
    if (!beat_address_fits(m->address)) return "no address";
    if (!plain(m->version)) return "no version";
    if (!is_state(m->state)) return "no state";
    if (m->beat_ms < BEAT_MIN_MS || m->beat_ms > BEAT_MAX_MS) return "no time between beats";
    if (!targets_fit(m)) return "no targets";
    if (!kinds_fit(m)) return "no kinds of devices";
    return counts_fit(m) ? NULL : "counts out of bounds";
}
const char *beat_fault(Hlod__V1__Node *m) {
    m->self = m->proved = m->incompatible = false; // not for others to say
    m->seconds = 0;
    return fault(m);
}

Hlod__V1__Node *beat_read(struct arena *a, struct span bytes, const char **out_why) {
    *out_why = "it is too long";
    if (bytes.n > BEAT_MAX_BYTES) return NULL;
    *out_why = "it is no message";
    Hlod__V1__Node *m = weigh_unpack_in(a, &hlod__v1__node__descriptor, bytes);
    if (!m) return NULL;
    *out_why = beat_fault(m);
    return *out_why ? NULL : m;
}
struct span beat_write(struct arena *a, const Hlod__V1__Node *m) {
    return message_pack(a, &m->base);
}
