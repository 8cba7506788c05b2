// SPDX-License-Identifier: Apache-2.0
// warm: what one device worker holds: executables loaded, and weight sets prepared for them. A hint
// that placement trusts and RUN corrects (the worker answers EXECUTABLE_NOT_FOUND when it evicted
// on its own). Emptied when the worker dies. Thread: loop.
#pragma once
#include "base/hash.h"
#include "base/map.h"

struct warm {
    struct smap held; // 32 bytes: executable; 64 bytes: executable and weights
};
void warm_init(struct warm *w);
void warm_done(struct warm *w); // and empty again
void warm_add_executable(struct warm *w, struct digest key);
void warm_add_prepared(struct warm *w, struct digest key, struct digest weights);
bool warm_has_executable(const struct warm *w, struct digest key);
bool warm_has_prepared(const struct warm *w, struct digest key, struct digest weights);
void warm_forget(struct warm *w, struct digest key); // the executable and all prepared for it
