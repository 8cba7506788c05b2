// SPDX-License-Identifier: Apache-2.0
// oip: what the handlers of the Open Inference Protocol share. A model is a name given by SetModel
// or a load, or the digest of an uploaded model. Thread: loop.
#pragma once
#include "proto/formats/inference.pb-c.h"
#include "scheduler/models.h"
#include "server/api_job.h"

struct oip_model {
    struct named_model *named; // NULL: by digest
    struct digest source;
    const char *name, *version;
};
// NOT_FOUND, UNAVAILABLE when it is not loaded. In the call's arena.
status_t oip_find(struct call *c, const char *name, const char *version,
                  struct oip_model *out) MUST_CHECK;
const char *oip_datatype(const char *dtype); // "f32" -> "FP32"; HLO's own where there is none
// Does output i go as bytes behind the JSON? By its own parameter, or the request's.
bool oip_output_binary(const struct call *c, size_t i);
// Typed contents of a gRPC request into the payload, after tensors_layout.
status_t oip_contents(struct call *c) MUST_CHECK;
// The call's outputs as raw contents of the reply, borrowed from it.
void oip_outputs_into(struct call *c, Inference__ModelInferResponse *reply);
