// SPDX-License-Identifier: Apache-2.0
// stablehlo: the entry points of StableHLO's forms (rows of frontends.def): text, portable bytecode
// (VHLO), jax.export's files. Whatever the form, the program that is kept is text in the generic
// form with its weights cut out (mlir_print).
#pragma once
#include "compiler/frontend/frontend.h"

bool stablehlo_text_sniff(struct span head);
status_t stablehlo_text_ingest(struct arena *a, struct span source,
                               const struct frontend_limits *limits,
                               struct ingest_result *out) MUST_CHECK;
status_t stablehlo_text_lower(const struct lower_request *req, struct hlo_module **out) MUST_CHECK;
bool stablehlo_bytecode_sniff(struct span head);
status_t stablehlo_bytecode_ingest(struct arena *a, struct span source,
                                   const struct frontend_limits *limits,
                                   struct ingest_result *out) MUST_CHECK;
status_t stablehlo_bytecode_lower(const struct lower_request *req,
                                  struct hlo_module **out) MUST_CHECK;
status_t jax_export_ingest(struct arena *a, struct span source,
                           const struct frontend_limits *limits,
                           struct ingest_result *out) MUST_CHECK;
status_t jax_export_lower(const struct lower_request *req, struct hlo_module **out) MUST_CHECK;

// ---- what the forms share
struct mlir_func;
struct mlir_limits;
struct mlir_module;
struct mlir_limits stablehlo_limits(const struct frontend_limits *l); // NULL: the defaults
// Attributes of arguments that ingest adds: what jax.export's own table says of them.
#define STABLEHLO_NAME "hlod.name" // a string
#define STABLEHLO_DIMS "hlod.dims" // strings: the name of each dimension, "" = none
// @main, or the only public function.
status_t stablehlo_entry(const struct mlir_module *m, const struct mlir_func **out) MUST_CHECK;
// An argument's name before it is made unique.
const char *stablehlo_input_name(struct arena *a, const struct mlir_func *f, int k);
status_t stablehlo_signature(struct arena *a, const struct mlir_module *m,
                             const struct mlir_func *f, struct signature *out) MUST_CHECK;
// Sets by_value of the inputs whose elements decide shapes.
void stablehlo_by_value(const struct mlir_module *m, const struct mlir_func *f,
                        struct signature *sig);
// From a normal tree. What no device can run is refused, all in one message.
struct lower_request;
status_t stablehlo_lower_tree(const struct mlir_module *m, const struct lower_request *req,
                              struct hlo_module **out) MUST_CHECK;
// From a tree that is not yet normal, read from `source`.
status_t stablehlo_ingest_tree(struct arena *a, struct mlir_module *m, struct span source,
                               const char *format, const struct frontend_limits *limits,
                               struct ingest_result *out) MUST_CHECK;
