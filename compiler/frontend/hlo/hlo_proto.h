// SPDX-License-Identifier: Apache-2.0
// hlo_proto: HLO modules as protocol buffers (proto/formats/hlo.proto): HloModuleProto, or HloProto
// ("hlo_with_config"), whose field 1 is one. Reading checks nesting and the memory that the message
// would take before anything is unpacked; unknown fields are skipped. Writing gives what XLA reads.
// Thread: any.
#pragma once
#include "base/str.h"
#include "compiler/frontend/frontend.h"

bool hlo_proto_sniff(struct span head);
status_t hlo_proto_ingest(struct arena *a, struct span source, const struct frontend_limits *limits,
                          struct ingest_result *out) MUST_CHECK;
status_t hlo_proto_lower(const struct lower_request *req, struct hlo_module **out) MUST_CHECK;

// The module, verified; the caller frees it. INVALID_ARGUMENT names computation, instruction and
// reason; RESOURCE_EXHAUSTED when a limit is passed. `incomplete` as in hlo_parse_limits.
status_t hlo_proto_read(struct span bytes, const struct frontend_limits *limits, bool incomplete,
                        struct hlo_module **out) MUST_CHECK;
// The module's text as it stands in the message, nothing checked, inferred or left out: for what
// hlo_proto_read refuses. Attributes follow an instruction in JSON.
status_t hlo_proto_raw(struct span bytes, struct strbuf *out) MUST_CHECK;
// Instructions and computations of a module in either form, which need not be one that we can read:
// unknown opcodes and attributes count as well.
status_t hlo_proto_count(struct span bytes, struct hlo_counts *out) MUST_CHECK;
// Appends a HloModuleProto. INVALID_ARGUMENT for what the format cannot hold: constants whose value
// was left out, layouts with parts it has no field for.
status_t hlo_proto_write(const struct hlo_module *m, struct strbuf *out) MUST_CHECK;
