// SPDX-License-Identifier: Apache-2.0
// opt_tool: hlo-opt, the server package's compiler tool, run by commands that need no server.
#pragma once
struct hlo;
// Runs hlo-opt with these arguments (a NULL ends them); what it prints becomes the file `out`,
// which stays as it was if that fails. 0, or an exit code; the tool has said why.
int hlo_opt_into(struct hlo *h, const char *out, const char *const *args);
