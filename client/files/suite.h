// SPDX-License-Identifier: Apache-2.0
// suite: a YAML file of batch jobs (docs/jobs.md) as the message that submits them. Files that it
// names are found beside it, read, and handed to `io`, which gives the digest they have on the
// server. Unknown keys are errors: a slip must not quietly test less. Thread: any.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"
#include "proto/hlod.pb-c.h"

struct suite_io {
    status_t (*model)(void *ctx, const char *path, char out_hex[65]);
    status_t (*blob)(void *ctx, struct span bytes, char out_hex[65]);
    void *ctx;
};
struct suite {
    const char *path;
    Hlod__V1__SubmitJobsRequest *request; // in the arena
    const int *model_lines, *input_lines; // where they begin in the file, by index
};
// INVALID_ARGUMENT names file and line.
status_t suite_read(struct arena *a, const char *path, const struct suite_io *io,
                    struct suite *out) MUST_CHECK;
// The line of a job by the names it has: its input's, else its model's, else 1.
int suite_line(const struct suite *s, const char *model, const char *input);
