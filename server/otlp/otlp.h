// SPDX-License-Identifier: Apache-2.0
// otlp: traces and metrics to an OpenTelemetry collector. Work that has ended is copied to a queue
// of a fixed size; a thread of its own makes spans of it and sends them, so that a collector that
// is slow, gone or hung costs requests nothing: what finds no room is dropped and counted.
//
//   loop: otlp_tell -> queue -> thread: spans -> 512 of them, or 5 s -> a request -> taken
//                                                        ^--- later, by its answer or twice as long
//
// Thread: loop.
#pragma once
#include "scheduler/trace.h"
#include "server/otlp/otlp_config.h"

struct otlp;
// Logs what cfg warns of, reads certificates, starts the thread. cfg is copied but for what it
// points to, which stays. *out stays NULL where nothing is to be exported.
status_t otlp_start(const struct otlp_config *cfg, const struct otlp_address *http,
                    const struct otlp_address *grpc, struct otlp **out) MUST_CHECK;
// Sends what waits, in about so long at most; the rest is dropped. NULL is fine.
void otlp_stop(struct otlp *o, int64_t most_ms);
void otlp_configure(struct otlp *o, const struct otlp_config *cfg); // sampler, detail, names; NULL

// Is this trace recorded? Of a caller's, or one that was begun here.
bool otlp_samples(const struct otlp *o, const struct trace *t);
void otlp_tell(void *otlp, const struct trace_work *w); // of a trace that is
