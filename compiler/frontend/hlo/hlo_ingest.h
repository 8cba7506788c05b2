// SPDX-License-Identifier: Apache-2.0
// hlo_ingest: what HLO in any form has in common as a source format. The program is the source
// itself, its digest the canonical hash of the graph, so spelling and names do not matter.
// Parameters are inputs, there are no weights, nothing is symbolic.
#pragma once
#include "compiler/frontend/frontend.h"
#include "compiler/ir/text/text.h"

struct hlo_parse_limits hlo_ingest_limits(const struct frontend_limits *limits); // NULL = defaults
// Custom calls that no device runs. `named`: instructions have the names that JAX gives them; what
// jax.debug.print and jax.debug.callback make is left out. Those in branches of conditionals and
// what only they reach (a check that calls back into Python where it fails, another platform's
// kernel) become calls that end the run which comes to them, with what hlo_ingest_check_runs would
// have said; not calls back into Python without results where nothing is named (a run must not end
// for what may only be shown), nor those with results of a dynamic size.
status_t hlo_ingest_calls(struct hlo_module *m, bool named) MUST_CHECK;
// hlo_split_tuple_params and hlo_ingest_calls, named, on a module that was just read: frees it
// where it fails. What lowering is for a format that is HLO already.
status_t hlo_ingest_lowered(struct hlo_module *m) MUST_CHECK;
// INVALID_ARGUMENT when no device can run an instruction: all of those in one message (reason
// UNSUPPORTED_OP), custom calls by their target.
status_t hlo_ingest_check_runs(const struct hlo_module *m) MUST_CHECK;
// INVALID_ARGUMENT by hlo_ingest_check_runs. Tuple parameters are split (hlo_params).
// m: as hlo_ingest_calls leaves it.
status_t hlo_ingest_module(struct arena *a, struct hlo_module *m, struct span source,
                           const char *format, struct ingest_result *out) MUST_CHECK;
