// SPDX-License-Identifier: Apache-2.0
// async: what hlod_async.c gives the other files of libhlod that start calls.
#pragma once
#include "client/hlod_async.h"
#include "client/lib/wire.h"

// Makes the public object (of wire_result_new, or NULL) of what the reader has got; takes that.
// Also what tells one kind of call from another.
typedef status_t (*wire_finish)(struct wire_reader *r, void **out);
struct hlod_call *async_call(struct hlod_async *q, wire_finish finish, hlod_done_fn done,
                             void *ctx);
bool async_grpc(const struct hlod_async *q);
struct arena *async_arena(struct hlod_call *c);          // until it is freed
struct wire_request *async_request(struct hlod_call *c); // to be filled
// st: of filling it (taken); then there is no call.
enum hlod_code async_start(struct hlod_call *c, status_t st, struct hlod_call **out);
void *async_take(struct hlod_call *c, wire_finish finish);
