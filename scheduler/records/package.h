// SPDX-License-Identifier: Apache-2.0
// package: what an export for browsers gave, kept in the store under the digest of all that went
// into it, so that the same export need not be compiled again. The tenant is part of the key: no
// answer, nor the time that it takes, tells one tenant what another exported. Room is shared: who
// exports much can see that others do too, by what of its own is gone. A package that is damaged
// goes to quarantine and counts as absent. An entry of more than PACKAGE_MOST bytes is not kept,
// nor one that would leave less than PACKAGE_ROOM of the disk free, nor more than PACKAGES_BYTES of
// all. Blocking: call it on the pool.
#pragma once
#include "base/store/store.h"
#include "proto/hlod.pb-c.h"

enum { PACKAGE_MOST = 63 << 20, PACKAGE_ROOM = 64 << 20, PACKAGES_BYTES = 1 << 30 };

struct package_parts {
    const char *tenant, *format, *bindings, *build_id; // bindings: as a key has them (key.h)
    struct digest source;
    struct span how; // package_how
};
// What counts of a request: not its model, shapes, time and priority.
struct span package_how(struct arena *a, const Hlod__V1__ExportWebRequest *how);
struct digest package_key(const struct package_parts *p); // its last 8 bytes are the tenant's

// Of the packages that are there some go until `most` bytes hold: the least used of tenants that
// have more than an even share of it. Fine: it is too large, or there is no room.
status_t package_keep(struct store *s, struct digest key, const Hlod__V1__WebPackage *info,
                      struct span bytes, int64_t most) MUST_CHECK;
struct package {
    Hlod__V1__WebPackage *info; // freed by its free_unpacked
    int fd;                     // a copy, which cannot shrink; the caller's
    int64_t offset, bytes;
};
// NOT_FOUND; DATA_LOSS: it was damaged.
status_t package_open(struct store *s, struct digest key, struct package *out) MUST_CHECK;
