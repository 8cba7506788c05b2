// SPDX-License-Identifier: Apache-2.0
// bench_request: the bytes that `hlo bench` sends, in each protocol and body form.
#pragma once
#include "client/bench/bench.h"
#include "client/files/input.h"

enum bench_protocol { BENCH_HTTP, BENCH_GRPC, BENCH_OIP, BENCH_OIP_GRPC };
struct bench_what {
    enum bench_protocol protocol;
    bool json;                // HTTP bodies: numbers as text instead of bytes
    const char *addr, *model; // HOST:PORT
    const char *weights;      // as in RunRequest, or NULL
    bool tls;
    const struct http_security *security; // its token goes into the request
    const struct npy *in;
    int n_in;
};
// All in `a`.
status_t bench_request_make(struct arena *a, const struct bench_what *w,
                            struct bench_request *out) MUST_CHECK;
