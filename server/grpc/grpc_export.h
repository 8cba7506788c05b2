// SPDX-License-Identifier: Apache-2.0
// grpc_export: OTLP's requests over the gRPC library. Thread: the exporter's.
#pragma once
#include "server/otlp/otlp_send.h"

extern const struct otlp_transport grpc_export;
