// SPDX-License-Identifier: Apache-2.0
// hlod_async.h: many requests at once without a thread for each. A `struct hlod_async` is an
// address and one thread of the library that drives all its calls: over one connection with grpc://
// and grpcs://, over as many kept ones as are needed with http:// and https:// (or no scheme).
//
// A call is started, ends once, and is freed by its owner. How its end is heard of: by `done`, on
// the library's thread; or, with done NULL, from hlod_async_next, whose descriptor can be polled
// beside others. A call that has ended has an error, and on success a result to be taken.
//
// Thread: every function here may be called from any thread at any time, also from callbacks, but
// for: hlod_async_close, hlod_async_next and hlod_call_wait not from callbacks; hlod_call_take_...
// and hlod_call_free only after the call's end, by one thread, and not after close. Callbacks run
// one after the other on the library's thread and should be brief. Example:
// client/examples/async.c.
#pragma once
#include "hlod.h"

#if defined(__cplusplus)
extern "C" {
#endif

struct hlod_async;
struct hlod_call;
// Nothing is sent yet. addr, s, errors as for hlod_open_secure.
HLOD_API enum hlod_code hlod_async_open(const char *addr, const struct hlod_security *s,
                                        struct hlod_async **out);
// Cancels what is under way, waits until it has ended and its callbacks have returned, and frees
// every call. NULL is fine.
HLOD_API void hlod_async_close(struct hlod_async *q);

// ctx     as given at the start
typedef void (*hlod_done_fn)(void *ctx, struct hlod_call *c);
// All pointers (model, options and what they point to, names, tensors' data) are borrowed until the
// call's end; tensors are sent from where they lie. on_event of the options runs on the library's
// thread; its `false` cancels.
// done    NULL: the end is told by hlod_async_next
// out     the call; may be NULL where done frees it. Set before done can run
// errors  INVALID_ARGUMENT what can be seen without the server; RESOURCE_EXHAUSTED. Then there is
//         no call. hlod_call_error has all else
HLOD_API enum hlod_code hlod_run_start(struct hlod_async *q, const char *digest,
                                       const struct hlod_tensor *in, size_t n_in,
                                       const struct hlod_run_options *o, hlod_done_fn done,
                                       void *ctx, struct hlod_call **out);
HLOD_API enum hlod_code hlod_compile_start(struct hlod_async *q, const void *model,
                                           size_t model_bytes, const struct hlod_compile_options *o,
                                           hlod_done_fn done, void *ctx, struct hlod_call **out);
HLOD_API enum hlod_code hlod_compile_file_start(struct hlod_async *q, const char *path,
                                                const struct hlod_compile_options *o,
                                                hlod_done_fn done, void *ctx,
                                                struct hlod_call **out); // NOT_FOUND: no such file

// Readable while hlod_async_next has something. Poll it; do not read or close it.
HLOD_API int hlod_async_fd(const struct hlod_async *q);
// The next call started without `done` that has ended, in the order of their ends; NULL when there
// is none within timeout_ms (-1: wait for ever).
HLOD_API struct hlod_call *hlod_async_next(struct hlod_async *q, int timeout_ms);

// Its end is told as ever: CANCELLED, unless it was over already. The server stops the work.
HLOD_API void hlod_call_cancel(struct hlod_call *c);
HLOD_API bool hlod_call_wait(struct hlod_call *c, int timeout_ms); // has it ended? -1: for ever
HLOD_API void *hlod_call_ctx(const struct hlod_call *c);
// After the end. Borrowed from c; code HLOD_OK on success; never NULL.
HLOD_API const struct hlod_error *hlod_call_error(const struct hlod_call *c);
// After the end. NULL after a failure, a second time, or of a call of the other kind. The caller
// frees it with hlod_result_free or hlod_executable_free.
HLOD_API struct hlod_result *hlod_call_take_result(struct hlod_call *c);
HLOD_API struct hlod_executable *hlod_call_take_executable(struct hlod_call *c);
HLOD_API void hlod_call_free(struct hlod_call *c); // after the end; from `done` too; NULL is fine

// What may change and what not: as in hlod.h.
#if defined(__cplusplus)
}
#endif
