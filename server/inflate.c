// SPDX-License-Identifier: Apache-2.0
#include "server/inflate.h"

#include <zlib.h>

#include "proto/hlod.pb-c.h"

status_t inflate_body(struct str in, int64_t max_bytes, struct strbuf *out) {
    enum { EITHER = 32 + MAX_WBITS }; // zlib looks at the head
    z_stream z = {0};
    if (inflateInit2(&z, EITHER) != Z_OK) return st_oom();
    unsigned char buf[32 << 10];
    status_t st = ST_OK;
    int rc = Z_OK;
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
            st = st_reason(st_new(ST_INVALID_ARGUMENT,
                                  "the body is larger than %lld bytes when decompressed",
                                  (long long)max_bytes),
                           HLOD__V1__REASON__REASON_BODY_TOO_LARGE);
        else
            strbuf_add(out, buf, n);
    }
    if (!st && (rc != Z_STREAM_END || z.avail_in || in.n))
        st = st_reason(st_new(ST_INVALID_ARGUMENT, "the compressed body is %s",
                              rc == Z_STREAM_END  ? "followed by other bytes"
                              : rc == Z_BUF_ERROR ? "cut short"
                                                  : "damaged"),
                       HLOD__V1__REASON__REASON_BAD_FRAMING);
    inflateEnd(&z);
    return st;
}
