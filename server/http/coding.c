// SPDX-License-Identifier: Apache-2.0
#include "server/http/coding.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "proto/reason.h"

const char *coding_name(enum coding c) {
    static const char *const names[] = {"identity", "gzip", "deflate"};
    return names[c];
}
bool coding_of(const char *text, enum coding *out) {
    if (!strcasecmp(text, "x-gzip")) text += 2; // RFC 9110, 8.4.1.3
    for (int c = CODING_NONE; c <= CODING_DEFLATE; c++) {
        if (strcasecmp(text, coding_name((enum coding)c)) != 0 && (*text || c)) continue;
        *out = (enum coding)c;
        return true;
    }
    return false;
}
enum coding coding_accepted(const char *text) {
    struct str all = str_of(text), one, name, weight;
    enum coding best = CODING_NONE, c;
    double most = 0;
    while (str_cut(&all, ',', &one)) {
        double q = 1;
        char word[16] = "";
        str_cut(&one, ';', &name);
        name = str_trim(name);
        weight = str_trim(one);
        if (weight.n > 2 && (weight.p[0] | 32) == 'q' &&
            !str_to_f64((struct str){weight.p + 2, weight.n - 2}, &q))
            q = 0;
        if (name.n < sizeof word) memcpy(word, name.p, name.n);
        if (!coding_of(word, &c) || c == CODING_NONE || q <= most) continue;
        best = c;
        most = q;
    }
    return best;
}

int64_t coding_most(int64_t n, int64_t max_bytes) {
    enum { RATIO = 1032, HEAD = 64 };
    return n < max_bytes / RATIO ? n * RATIO + HEAD : max_bytes;
}

// gzip's output is a series of members (RFC 1952, 2.2): does the next one begin here?
static bool next_member(z_stream *z, struct str rest, bool gzip) {
    const unsigned char *at = z->avail_in ? z->next_in : (const unsigned char *)rest.p;
    return gzip && (z->avail_in || rest.n) && *at == 0x1f && inflateReset(z) == Z_OK;
}
status_t coding_undo(struct str in, int64_t max_bytes, struct strbuf *out) {
    enum { EITHER = 32 + MAX_WBITS }; // zlib looks at the head
    z_stream z = {0};
    if (inflateInit2(&z, EITHER) != Z_OK) return st_oom();
    unsigned char buf[32 << 10];
    status_t st = ST_OK;
    int rc = Z_OK;
    bool gzip = in.n && *in.p == 0x1f;
    while (!st && rc == Z_OK) {
        if (z.avail_in == 0 && in.n) {
            z.next_in = (unsigned char *)(uintptr_t)in.p;
            z.avail_in = in.n < 1u << 30 ? (unsigned)in.n : 1u << 30;
            in.p += z.avail_in;
            in.n -= z.avail_in;
        }

        z.next_out = buf;
        z.avail_out = sizeof buf;
        rc = inflate(&z, Z_NO_FLUSH);
        size_t n = sizeof buf - z.avail_out;
        if ((int64_t)(out->n + n) > max_bytes)
            st = st_because(ST_INVALID_ARGUMENT, BODY_TOO_LARGE,
                            "the body is larger than %lld bytes when decompressed",
                            (long long)max_bytes);
        else if (!strbuf_room(out, n))
            st = st_oom();
        else
            strbuf_add(out, buf, n);
        if (rc == Z_STREAM_END && next_member(&z, in, gzip)) rc = Z_OK;
    }

    if (!st && (rc != Z_STREAM_END || z.avail_in || in.n))
        st = st_because(ST_INVALID_ARGUMENT, BAD_FRAMING, "the compressed body is %s",
                        rc == Z_STREAM_END  ? "followed by other bytes"
                        : rc == Z_BUF_ERROR ? "cut short"
                                            : "damaged");
    inflateEnd(&z);
    return st;
}

void coding_do(enum coding c, const struct span *parts, size_t n, struct strbuf *out) {
    enum { FAST = 1, MEMORY = 8, GZIP = 16 };
    z_stream z = {0};
    if (deflateInit2(&z, FAST, Z_DEFLATED, MAX_WBITS + (c == CODING_GZIP ? GZIP : 0), MEMORY,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        abort(); // out of memory
    unsigned char buf[32 << 10];
    struct span left = {0};
    int rc = Z_OK;
    for (size_t i = 0; rc != Z_STREAM_END;) {
        while (!left.n && i < n)
            left = parts[i++];
        z.next_in = (unsigned char *)(uintptr_t)left.p;
        z.avail_in = left.n < 1u << 30 ? (unsigned)left.n : 1u << 30;
        bool last = i == n && z.avail_in == left.n;
        z.next_out = buf;
        z.avail_out = sizeof buf;
        unsigned before = z.avail_in;
        rc = deflate(&z, last ? Z_FINISH : Z_NO_FLUSH);
        left.p += before - z.avail_in;
        left.n -= before - z.avail_in;
        strbuf_add(out, buf, sizeof buf - z.avail_out);
    }
    deflateEnd(&z);
}
