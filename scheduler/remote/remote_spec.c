// SPDX-License-Identifier: Apache-2.0
#include "scheduler/remote/remote_spec.h"

#include <ctype.h>
#include <string.h>

#include "base/str.h"
#include "base/vec.h"

struct entries {
    struct remote_spec *v;
    size_t n, cap;
};

static bool only(struct str s, const char *also) {
    for (size_t i = 0; i < s.n; i++)
        if (!s.p[i] || (!isalnum((unsigned char)s.p[i]) && !strchr(also, s.p[i]))) return false;
    return s.n > 0;
}
MUST_CHECK static status_t wrong(struct str entry, const char *what) {
    return st_invalid("'%.*s': %s", (int)(entry.n < 200 ? entry.n : 200), entry.p, what);
}

// HOST:PORT or HOST, [::1]:PORT. port: what it is without one, 0: it must be there.
static bool host_port(struct arena *a, struct str text, uint16_t port, struct remote_spec *x) {
    struct str host = text, number = {0};
    bool six = text.n && text.p[0] == '[';
    const char *end = six ? memchr(text.p, ']', text.n) : memchr(text.p, ':', text.n);
    if (six && !end) return false;
    if (six) {
        host = (struct str){text.p + 1, (size_t)(end - text.p - 1)};
        number = (struct str){end + 1, text.n - host.n - 2};
    } else if (end) {
        host.n = (size_t)(end - text.p);
        number = (struct str){end, text.n - host.n};
    }
    int64_t v = port;
    if (number.n &&
        (number.p[0] != ':' || !str_to_i64((struct str){number.p + 1, number.n - 1}, &v)))
        return false;
    if (v < 1 || v > 65535 || !only(host, six ? ":." : ".-_")) return false;
    x->host = arena_strndup(a, host.p, host.n);
    x->port = (uint16_t)v;
    return true;
}

// Of a path or prefix: nothing that another encoding would change, and no way up.
static bool path_fits(struct str path) {
    struct str part;
    if (path.n && !only(path, "-._~/")) return false;
    while (str_cut(&path, '/', &part))
        if (str_is(part, ".") || str_is(part, "..")) return false;
    return true;
}
static struct str no_slash(struct str s) {
    while (s.n && s.p[s.n - 1] == '/')
        s.n--;
    return s;
}

static status_t read_url(struct arena *a, struct str all, struct str rest, struct remote_spec *x) {
    const char *slash = memchr(rest.p, '/', rest.n);
    struct str host = {rest.p, slash ? (size_t)(slash - rest.p) : rest.n};
    if (memchr(all.p, '@', all.n))
        return wrong(all, "an address has no credentials: they come from files");
    x->kind = slash ? REMOTE_PREFIX : REMOTE_PEER;
    if (!host_port(a, host, !slash ? 0 : x->tls ? 443 : 80, x))
        return wrong(all, slash ? "expected https://HOST/PATH or https://HOST:PORT/PATH"
                                : "a peer is http://HOST:PORT or https://HOST:PORT, a prefix "
                                  "https://HOST/PATH (the slash makes the difference)");
    struct str path = no_slash((struct str){rest.p + host.n, rest.n - host.n});
    if (!path_fits(path)) return wrong(all, "a path has letters, digits and - . _ ~ /");
    x->base = arena_strndup(a, all.p, (size_t)(rest.p - all.p) + host.n + path.n);
    return ST_OK;
}
static status_t read_s3(struct arena *a, struct str all, struct str rest, struct remote_spec *x) {
    struct str bucket;
    str_cut(&rest, '/', &bucket);
    bool fits = only(bucket, ".-") && bucket.n >= 3 && bucket.n <= 63 && bucket.p[0] != '.';
    for (size_t i = 0; i < bucket.n; i++)
        fits = fits && !isupper((unsigned char)bucket.p[i]);
    rest = no_slash(rest);
    if (!fits || (rest.n && rest.p[0] == '/') || !path_fits(rest))
        return wrong(all, "expected s3://BUCKET/PREFIX, of letters, digits and - . _ ~ /");
    x->kind = REMOTE_S3;
    x->bucket = arena_strndup(a, bucket.p, bucket.n);
    x->base = arena_strndup(a, rest.p, rest.n);
    x->tls = true;
    return ST_OK;
}
static status_t read_address(struct arena *a, struct str text, struct remote_spec *x) {
    struct str rest = text;
    x->name = arena_strndup(a, text.p, text.n);
    if (str_starts(text, "dns:")) {
        x->kind = REMOTE_DNS;
        rest = (struct str){text.p + 4, text.n - 4};
        return host_port(a, rest, 0, x) ? ST_OK : wrong(text, "expected dns:NAME:PORT");
    }
    static const struct {
        const char *scheme;
        bool tls;
    } urls[] = {{"http://", false}, {"https://", true}};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        if (!str_starts(text, urls[i].scheme)) continue;
        size_t n = strlen(urls[i].scheme);
        x->tls = urls[i].tls;
        return read_url(a, text, (struct str){text.p + n, text.n - n}, x);
    }
    if (str_starts(text, "s3://")) return read_s3(a, text, (struct str){text.p + 5, text.n - 5}, x);
    return wrong(text, "expected http(s)://HOST:PORT, dns:NAME:PORT, https://HOST/PATH or "
                       "s3://BUCKET/PREFIX");
}

static status_t read_word(struct arena *a, struct str word, struct remote_spec *x) {
    struct str key, value = word;
    bool bucket = x->kind == REMOTE_PREFIX || x->kind == REMOTE_S3;
    str_cut(&value, '=', &key);
    if (str_is(word, "tls") && x->kind == REMOTE_DNS)
        x->tls = true;
    else if (str_is(word, "readonly") && bucket)
        x->read_only = true;
    else if (str_is(key, "token") && value.n && x->kind == REMOTE_PREFIX)
        x->token = arena_strndup(a, value.p, value.n);
    else if (str_is(key, "ca") && value.n && x->kind == REMOTE_PREFIX)
        x->ca = arena_strndup(a, value.p, value.n);
    else
        return st_invalid(
            "'%s': no word '%.*s' here%s", x->name, (int)(word.n < 100 ? word.n : 100), word.p,
            bucket ? "; there are readonly, and of https prefixes token=FILE, ca=FILE"
            : x->kind == REMOTE_DNS ? "; there is tls"
                                    : "; peers are called with --peer-token, --peer-ca");
    return ST_OK;
}
static status_t read_entry(struct arena *a, struct str text, struct remote_spec *x) {
    struct str word;
    str_cut(&text, ' ', &word);
    RETURN_IF_ERR(read_address(a, word, x));
    while (str_cut(&text, ' ', &word))
        if (word.n) RETURN_IF_ERR(read_word(a, word, x));
    if (x->token && !x->tls && !str_is_loopback(str_of(x->host)))
        return st_invalid("'%s': the token would cross the network unencrypted", x->name);
    return ST_OK;
}

status_t remote_specs(struct arena *a, const char *list, struct remote_spec **out, size_t *out_n) {
    struct entries all = {0};
    struct str rest = str_of(list), one;
    while (rest.n && str_cut(&rest, ',', &one)) {
        struct remote_spec x = {0};
        RETURN_IF_ERR(read_entry(a, str_trim(one), &x));
        for (size_t i = 0; i < all.n; i++)
            if (!strcmp(all.v[i].name, x.name)) return st_invalid("'%s' is there twice", x.name);
        if (all.n == REMOTES_MAX) return st_invalid("more than %d", REMOTES_MAX);
        avec_push(a, &all, x);
    }
    *out = all.v;
    *out_n = all.n;
    return ST_OK;
}
