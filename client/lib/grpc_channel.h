// SPDX-License-Identifier: Apache-2.0
// grpc_channel: a channel of gRPC core, plain or over TLS, for messages of any size.
#pragma once
#include <grpc/grpc.h>

#include "client/lib/http.h"

// addr "HOST:PORT"; nothing is sent yet. s: as in http.h, used when tls. After grpc_init; the
// caller destroys it. The files of s that cannot be read are errors.
status_t grpc_channel_open(const char *addr, bool tls, const struct http_security *s,
                           grpc_channel **out) MUST_CHECK;
