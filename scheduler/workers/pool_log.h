// SPDX-License-Identifier: Apache-2.0
// pool_log: what workers write to their standard error, by a pipe of their own: they have no
// descriptor of the daemon's log, which they could cut or write over. Each line says which worker
// it is from; what is not text becomes '?'; more than LOG_BYTES_A_SECOND of one process is left
// out.
// Thread: loop.
#pragma once
#include "base/status.h"

enum { LOG_BYTES_A_SECOND = 65536 };
struct loop;
struct pool_log; // of one process; goes when it has closed its end
struct pool_logs {
    struct pool_log *first;
};
// *out_fd: the writing end, for the process; the caller closes its own copy.
status_t pool_log_new(struct pool_logs *all, struct loop *l, int worker, int *out_fd) MUST_CHECK;
void pool_logs_done(struct pool_logs *all); // what is there is still told
