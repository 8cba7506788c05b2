// SPDX-License-Identifier: Apache-2.0
// package: what an export for browsers gave, kept in the store under the digest of all that went
// into it, so that the same export need not be compiled again. The tenant is part of the key: what
// one tenant exported tells another nothing, not even by the time an answer takes. A package that
// is damaged goes to quarantine and counts as absent. Packages of more than PACKAGE_MOST bytes are
// not kept, nor more than PACKAGES_BYTES of all. Blocking: call it on the pool.
#pragma once
#include "base/store/store.h"
#include "proto/hlod.pb-c.h"

enum { PACKAGE_MOST = 63 << 20, PACKAGES_BYTES = 1 << 30 };

struct package_parts {
    const char *tenant, *format, *bindings, *build_id; // bindings: as a key has them (key.h)
    struct digest source;
    const Hlod__V1__ExportWebRequest *how; // model, shapes, time and priority count for nothing
};
struct digest package_key(const struct package_parts *p);

// Of the packages that are there the least used go until `most` bytes hold. Fine: it is too large.
status_t package_keep(struct store *s, struct digest key, const Hlod__V1__WebPackage *info,
                      struct span bytes, int64_t most) MUST_CHECK;
struct package {
    Hlod__V1__WebPackage *info; // freed by its free_unpacked
    int fd;                     // a copy, which cannot shrink; the caller's
    int64_t offset, bytes;
};
// NOT_FOUND; DATA_LOSS: it was damaged.
status_t package_open(struct store *s, struct digest key, struct package *out) MUST_CHECK;
