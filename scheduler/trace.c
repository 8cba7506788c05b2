// SPDX-License-Identifier: Apache-2.0
#include "scheduler/trace.h"

#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/str.h"

// ---- ids

// Ids are to be different, not secret: xoshiro256++ (Blackman and Vigna, "Scrambled linear
// pseudorandom number generators", 2021), one a thread, from the system's random bytes.
static uint64_t turned(uint64_t x, int bits) {
    return x << bits | x >> (64 - bits);
}
static uint64_t draw(void) {
    static _Thread_local uint64_t s[4];
    if (!(s[0] | s[1] | s[2] | s[3]) && getrandom(s, sizeof s, 0) != sizeof s) // never, for so few
        for (int k = 0; k < 4; k++) {
            uint64_t x[3] = {(uint64_t)clock_wall_ns(), (uint64_t)clock_ns(), (uint64_t)k + 1};
            s[k] = hash64(x, sizeof x, (uint64_t)(uintptr_t)s) | 1;
        }
    uint64_t out = turned(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = turned(s[3], 45);
    return out;
}
static void fill(uint8_t *p, size_t n) { // of a multiple of 8
    for (size_t k = 0; k < n; k += 8) {
        uint64_t x = draw();
        memcpy(p + k, &x, 8);
    }
}
static void new_id(uint8_t *p, size_t n) {
    fill(p, n);
    for (size_t k = 0; k < n; k++)
        if (p[k]) return;
    p[n - 1] = 1;
}
void trace_new_span(uint8_t out[8]) {
    new_id(out, 8);
}
void trace_begin(struct trace *out) {
    *out = (struct trace){.state = ""};
    new_id(out->id, sizeof out->id);
    trace_new_span(out->span);
}
void trace_child(const struct trace *of, struct trace *out) {
    struct trace t = *of;
    memcpy(t.parent, of->span, sizeof t.parent);
    t.remote = false;
    trace_new_span(t.span);
    *out = t;
}
bool trace_sampled(const struct trace *t) {
    return t && t->flags & TRACE_SAMPLED;
}

// ---- text

static bool read_hex(const char *text, uint8_t *out, size_t n) {
    return str_from_hex((struct str){text, 2 * n}, out, n);
}
static bool is_zero(const uint8_t *p, size_t n) {
    return !*p && !memcmp(p, p + 1, n - 1);
}

bool trace_parse(const char *text, struct trace *out) {
    enum { ID = 3, PARENT = 36, FLAGS = 53, ALL = 55, KNOWN_FLAGS = 3 }; // sampled, random
    struct trace t = {.state = "", .remote = true};
    uint8_t version;
    if (!text) return false;
    size_t n = strnlen(text, 256);
    // A later version may append fields after another dash; ff is never one.
    bool later = n > ALL && text[ALL] == '-' && strncmp(text, "00", 2);
    if ((n != ALL && !later) || !read_hex(text, &version, 1) || version == 0xff) return false;
    if (text[ID - 1] != '-' || text[PARENT - 1] != '-' || text[FLAGS - 1] != '-') return false;
    if (!read_hex(text + ID, t.id, sizeof t.id) || is_zero(t.id, sizeof t.id)) return false;
    if (!read_hex(text + PARENT, t.parent, sizeof t.parent) || is_zero(t.parent, sizeof t.parent))
        return false;
    if (!read_hex(text + FLAGS, &t.flags, 1)) return false;
    t.flags &= KNOWN_FLAGS;
    trace_new_span(t.span);
    *out = t;
    return true;
}
void trace_write(const struct trace *t, char out[TRACE_PARENT_TEXT]) {
    char *p = out;
    memcpy(p, "00-", 3);
    p = str_put_hex(p + 3, t->id, sizeof t->id);
    *p++ = '-';
    p = str_put_hex(p, t->span, sizeof t->span);
    *p++ = '-';
    str_put_hex(p, &t->flags, 1);
}
void trace_write_id(const struct trace *t, char out[TRACE_ID_TEXT]) {
    str_put_hex(out, t->id, sizeof t->id);
}

// ---- tracestate

enum { MOST_MEMBERS = 32, MOST_KEY = 256, MOST_VALUE = 256 };
static bool key_fits(struct str key) {
    bool named = key.n && key.n <= MOST_KEY &&
                 ((key.p[0] >= 'a' && key.p[0] <= 'z') || (key.p[0] >= '0' && key.p[0] <= '9'));
    for (size_t k = 0; k < key.n && named; k++) {
        char c = key.p[k];
        named = (c >= 'a' && c <= 'z') || (c && strchr("0123456789_-*/@", c));
    }
    return named;
}
static bool value_fits(struct str value) {
    bool fits = value.n && value.n <= MOST_VALUE;
    for (size_t k = 0; k < value.n && fits; k++)
        fits = value.p[k] >= ' ' && value.p[k] <= '~' && value.p[k] != '=';
    return fits;
}
bool trace_state_fits(const char *text) {
    size_t n = strnlen(text, TRACE_STATE_MOST + 1), members = 0;
    if (n > TRACE_STATE_MOST) return false;
    for (const char *at = text, *end; *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, ",");
        struct str one = str_trim((struct str){at, (size_t)(end - at)});
        if (!one.n) continue; // an empty member is none
        const char *eq = memchr(one.p, '=', one.n);
        if (!eq || ++members > MOST_MEMBERS) return false;
        struct str key = {one.p, (size_t)(eq - one.p)}, value = {eq + 1, one.n - key.n - 1};
        if (!key_fits(key) || !value_fits(value)) return false;
    }
    return members > 0;
}
