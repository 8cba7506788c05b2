// SPDX-License-Identifier: Apache-2.0
// web_sources: the runtime's and page's files (compiler/web/runtime), built in.
#pragma once
#include "base/span.h"

struct web_source {
    const char *name;
    struct span bytes;
};
extern const struct web_source web_sources[];
extern const int n_web_sources;
// "hlod.js"; an empty span: there is none.
struct span web_source(const char *name);
