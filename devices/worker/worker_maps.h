// SPDX-License-Identifier: Apache-2.0
// worker_maps: tensor memory of the daemon, mapped. The daemon passes the same few memfds again and
// again (scheduler/workers/memfds.h), so their mappings are kept: to map 8 MiB anew costs more than
// to read them. Thread: whoever serves the call; one at a time.
#pragma once
#include "base/span.h"
#include "base/status.h"

// The whole of a memfd. *out_kept: do not unmap it; it is valid until the call's end. `call` is
// larger for each later call.
// What calls from this one on use stays too: calls that go on at the same time. UINT64_MAX: none.
void worker_maps_since(uint64_t call);
status_t worker_map(int fd, bool writable, uint64_t call, struct span *out,
                    bool *out_kept) MUST_CHECK;
