// SPDX-License-Identifier: Apache-2.0
// footprint: what the work under way in one device worker needs of its memory, by plan: for each
// executable in use once its working memory and weights (its runs go one after another), for each
// run its tensors. What is resident and not in use does not count: the worker lets go of it when it
// needs the room. Pure. Thread: loop.
#pragma once
#include "base/hash.h"
#include "base/vec.h"

struct footprint_want {
    struct digest key;      // of the executable
    int64_t resident_bytes; // working memory and weights
    int64_t tensor_bytes;   // in and out
    int64_t prepare_bytes;  // more, as long as its weights are not prepared there
};
struct footprint {
    VEC(struct footprint_use {
        struct digest key;
        int64_t resident_bytes;
        int32_t runs;
    })
    uses;
    int64_t bytes; // in all
};
int64_t footprint_needs(const struct footprint *f, const struct footprint_want *w); // bytes more
void footprint_add(struct footprint *f, const struct footprint_want *w);
void footprint_drop(struct footprint *f, const struct footprint_want *w); // added before
void footprint_done(struct footprint *f);
