// SPDX-License-Identifier: Apache-2.0
#include "scheduler/blobs.h"

#include "base/clock.h"
#include "base/store.h"
#include "proto/hlod.pb-c.h"
#include "scheduler/journal.h"

static struct digest owner_key(const char *tenant, struct digest d) {
    struct sha256 h;
    sha256_init(&h);
    sha256_str(&h, str_of(tenant));
    sha256_add(&h, d.b, sizeof d.b);
    return sha256_end(&h);
}

status_t blob_own(struct journal *j, const char *tenant, struct digest d) {
    struct span record = {(const uint8_t *)tenant, strlen(tenant)};
    return journal_put(j, JOURNAL_BLOB, owner_key(tenant, d), d, record, clock_wall_ns());
}

status_t blob_store(struct store *s, struct span bytes, struct digest *out) {
    struct store_writer *w;
    RETURN_IF_ERR(store_write_begin(s, STORE_BLOB, &w));
    status_t st = store_write(w, bytes.p, bytes.n);
    if (st) {
        store_write_abort(w);
        return st;
    }
    return store_write_end(w, out);
}
status_t blob_put(struct store *s, struct journal *j, const char *tenant, struct span bytes,
                  struct digest *out) {
    RETURN_IF_ERR(blob_store(s, bytes, out));
    return blob_own(j, tenant, *out);
}

status_t blob_open(struct store *s, struct journal *j, const char *tenant, struct digest d,
                   int *out_fd, int64_t *out_bytes) {
    struct arena a = {0};
    struct span record;
    int64_t offset;
    status_t st = journal_get(j, JOURNAL_BLOB, owner_key(tenant, d), &a, &record);
    arena_done(&a);
    if (!st) st = store_open_fd(s, STORE_BLOB, d, false, out_fd, &offset, out_bytes);
    if (st_code(st) != ST_NOT_FOUND) return st;
    st_drop(st);
    char hex[65];
    digest_hex(d, hex);
    return st_reason(st_new(ST_NOT_FOUND, "no blob %s here", hex),
                     HLOD__V1__REASON__REASON_BLOB_NOT_FOUND);
}
