// SPDX-License-Identifier: Apache-2.0
// opt_tool: hlo-opt, the server package's compiler tool, run by commands that need no server.
#pragma once
struct hlo;
// Runs hlo-opt on the file `model` with these arguments (a NULL ends them); what it prints becomes
// the file `out`, which stays as it was if that fails. Data that an ONNX model keeps in other files
// is put into a copy of it for that. 0, or an exit code; the reason has been said.
int hlo_opt_into(struct hlo *h, const char *out, const char *const *args, const char *model);
// The same with what it prints on stdout: for what writes files of its own. The copy lies beside
// `beside`, for as long as it is read.
int hlo_opt_run(struct hlo *h, const char *beside, const char *const *args, const char *model);
