// SPDX-License-Identifier: Apache-2.0
// memfds: shared memory for tensors, kept between requests (D15, D18.10). A fresh memfd costs its
// creation and a page fault every 4 KiB; a kept one neither. What one worker and tenant have seen
// is only ever given to the same two again, and nothing that a worker held when it died is used
// again: its pages may hold anything. Owner: the index of a worker, or MEMFD_NOBODY for memory that
// more than one worker may get to see, which is not kept. Thread: any (one lock).
//
//     struct memfd *m;
//     RETURN_IF_ERR(memfds_take(pool, worker, tenant, bytes, &m));
//     ... memfd_fd(m) ...
//     memfd_unref(m); // the last one puts it back
#pragma once
#include <stdint.h>

#include "base/status.h"

enum { MEMFD_NOBODY = -1 };
struct memfds;
struct memfd;
// keep_bytes: at most so much is kept for one worker; 0 = nothing. owners: how many workers.
struct memfds *memfds_new(int owners, int64_t keep_bytes);
void memfds_free(struct memfds *p); // NULL is fine; what is still out is closed at its last unref
// At least `bytes` (> 0), sealed against shrinking and growing; contents are whatever the same
// worker and tenant had there. One reference. RESOURCE_EXHAUSTED, and what memfd_create says.
status_t memfds_take(struct memfds *p, int owner, uint64_t tenant, int64_t bytes,
                     struct memfd **out) MUST_CHECK;
// The worker died: what is kept for it is closed now, what is out when it comes back.
void memfds_drop(struct memfds *p, int owner);
int64_t memfds_kept(struct memfds *p, int owner); // bytes

int memfd_fd(const struct memfd *m); // stays the memfd's
// All of it, mapped to be read and written, as long as the reference; made once and kept with the
// memfd, since to map it for each request costs more than the bytes do. RESOURCE_EXHAUSTED.
int64_t memfd_bytes(const struct memfd *m);
status_t memfd_memory(struct memfd *m, uint8_t **out) MUST_CHECK;
struct memfd *memfd_ref(struct memfd *m);
void memfd_unref(struct memfd *m); // NULL is fine
