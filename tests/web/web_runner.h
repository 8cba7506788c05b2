// SPDX-License-Identifier: Apache-2.0
// web_runner: packages of compiler/web run by Node in a process beside the test, or written as
// files that a browser's page runs (browser_cases.py).
#pragma once
#include <stdio.h>
#include <sys/types.h>

#include "compiler/web/web.h"

struct web_runner {
    FILE *to, *from; // of Node; NULL with `dir`
    pid_t pid;
    const char *dir; // requests go to DIR/N.req, or answers come from DIR/N.rep; or NULL
    bool writes;     // with dir: the former
    int n;
};
enum web_backend web_runner_backend(const char *name); // WEB_WASM where none is called so
// node: its program; runtime: the folder of runtime/. UNAVAILABLE: there is no such program.
status_t web_runner_start(struct web_runner *r, const char *node, const char *serve,
                          const char *runtime) MUST_CHECK;
void web_runner_stop(struct web_runner *r);
// Runs it; *out [n_out] lie in a. Where only requests are written *out is NULL. INTERNAL with what
// the runtime threw.
status_t web_runner_run(struct web_runner *r, struct arena *a, const struct web_files *files,
                        const struct span *in, int n_in, int n_out, struct span **out) MUST_CHECK;
