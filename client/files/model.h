// SPDX-License-Identifier: Apache-2.0
// model: the bytes that stand for a model's file. Its functions that need no more than the
// file's name are in hlo.h. Thread: one.
#pragma once
#include "client/files/hlox.h"

// A model's file, or the parts that stand for it.
struct source {
    const char *path;
    struct span *parts;
    size_t n_parts;
    const char *const *paths; // [n_paths] all files that were read
    size_t n_paths;
    int64_t bytes;
    bool ahead; // an executable and its model in one file (client/files/hlox.h)
    struct hlox hlox;
};
// Parts lie in h->arena or are mapped there. INVALID_ARGUMENT also for an empty file.
status_t source_open(struct hlo *h, const char *path, struct source *s) MUST_CHECK;
