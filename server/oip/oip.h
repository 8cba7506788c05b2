// SPDX-License-Identifier: Apache-2.0
// oip: what the handlers of the Open Inference Protocol share. A model is a name given by SetModel
// or a load, or the digest of an uploaded model. Thread: loop.
#pragma once
#include "proto/formats/inference.pb-c.h"
#include "scheduler/records/models.h"
#include "server/api/api_job.h"

struct oip_model {
    struct named_model *named; // NULL: by digest
    struct digest source;
    const char *name, *version;
};
// NOT_FOUND, UNAVAILABLE when it is not loaded. In the call's arena.
status_t oip_find(struct call *c, const char *name, const char *version,
                  struct oip_model *out) MUST_CHECK;
const char *oip_datatype(const char *dtype); // "f32" -> "FP32"; HLO's own where there is none
// oip_request.c. A parameter of a request, input or output by its key; NULL if it was not given.
const Inference__InferParameter *oip_parameter(const ProtobufCMessage *m, const char *key);
bool oip_integer(const Inference__InferParameter *p, int64_t *out); // false: none, or not a number
int oip_flag(const Inference__InferParameter *p);                   // -1: not given
// Are those that mean something here of their types? `of` the request ("", name ""), or an input or
// output of that name.
status_t oip_check_parameters(const ProtobufCMessage *m, const char *of,
                              const char *name) MUST_CHECK;
bool oip_in_region(const ProtobufCMessage *tensor); // an input or requested output lies there
// One more parameter in a reply, to be filled.
Inference__InferParameter *oip_add_parameter(struct arena *a, Inference__ModelInferResponse *m,
                                             const char *key);

// oip_tensors.c. Does output i go as bytes behind the JSON? By its own parameter, or the request's.
bool oip_output_binary(const struct call *c, size_t i);
// The parameters of output i that the reply shows, as the inside of a JSON object; false: none.
bool oip_output_parameters(const struct call *c, size_t i, struct strbuf *b);
// Are there raw contents alone, as the protocol wants where there are any?
status_t oip_no_contents(const Inference__ModelInferRequest *q) MUST_CHECK;
// Typed contents of a gRPC request into the payload, after tensors_layout.
status_t oip_contents(struct call *c) MUST_CHECK;
// The call's outputs as raw contents of the reply, borrowed from it.
void oip_outputs_into(struct call *c, Inference__ModelInferResponse *reply);
// Outputs for which classification was asked become BYTES: "value:index" of the largest, of each
// row (a leading dimension where the rank is 2 or more), with ":label" where x has labels of the
// output. x NULL: no name.
status_t oip_classify(struct call *c, const struct named_model *x) MUST_CHECK;
// Outputs that were asked for in shared memory, written there.
status_t oip_outputs_to_regions(struct call *c) MUST_CHECK;

// oip_whole.c. c->whole_body to inputs, by the signature. Thread: pool, or loop.
status_t oip_whole(struct call *c, const Hlod__V1__Signature *sig) MUST_CHECK;

// oip_shm.c: system shared memory.
struct oip_regions;
struct oip_regions *oip_regions_new(void);
void oip_regions_free(struct oip_regions *r); // NULL is fine
status_t oip_region_read(struct call *c, const ProtobufCMessage *tensor,
                         const struct job_input *in) MUST_CHECK; // to the payload
status_t oip_region_write(struct call *c, const ProtobufCMessage *tensor,
                          struct span data) MUST_CHECK;

// oip_settings.c. Over HTTP a settings message is the object of settings itself.
status_t oip_parse_settings(struct call *c, struct str text) MUST_CHECK; // c->request
void oip_print_settings(struct strbuf *b, const ProtobufCMessage *m);
