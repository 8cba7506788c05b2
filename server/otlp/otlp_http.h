// SPDX-License-Identifier: Apache-2.0
// otlp_http: OTLP's requests over HTTP, as protobuf, by libcurl. Thread: the exporter's.
#pragma once
#include "server/otlp/otlp_send.h"

extern const struct otlp_transport otlp_http;
