// SPDX-License-Identifier: Apache-2.0
// kinds: the table of device kinds as both sides of the worker's socket read it.
#pragma once
#include "base/span.h"

enum kind_trait { KIND_OWN = 1, KIND_PLUGIN = 2, KIND_JOINS = KIND_OWN | 4 }; // proto/kinds.def
struct device_kind {
    const char *name;
    unsigned traits;
};
// The kind of a device's spec, "KIND" or "KIND:OPTIONS"; NULL: none of ours.
static inline const struct device_kind *kind_of(const char *spec) {
#define KIND(kind, traits) {#kind, KIND_##traits},
    static const struct device_kind all[] = {
#include "proto/kinds.def"
    };
#undef KIND
    size_t n = strcspn(spec, ":");
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (strlen(all[k].name) == n && memcmp(spec, all[k].name, n) == 0) return &all[k];
    return NULL;
}
static inline bool kind_has(const char *spec, enum kind_trait t) {
    const struct device_kind *k = kind_of(spec);
    return k && (k->traits & t) == t;
}
