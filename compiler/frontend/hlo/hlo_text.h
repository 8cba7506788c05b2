// SPDX-License-Identifier: Apache-2.0
// hlo_text: HLO text as a source format. Parameters are inputs, there are no weights, nothing is
// symbolic.
#pragma once
#include "compiler/frontend/frontend.h"
bool hlo_text_sniff(struct span head);
status_t hlo_text_ingest(struct arena *a, struct span source, const struct frontend_limits *limits,
                         struct ingest_result *out) MUST_CHECK;
status_t hlo_text_lower(const struct lower_request *req, struct hlo_module **out) MUST_CHECK;
