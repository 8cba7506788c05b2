// SPDX-License-Identifier: Apache-2.0
#include "scheduler/workers/pool_slots.h"

#include <string.h>

#include "proto/kinds.h"
#include "scheduler/workers/plugins.h"

static bool same_kind(const char *spec, const char *other) {
    size_t n = strcspn(spec, ":");
    return strcspn(other, ":") == n && memcmp(spec, other, n) == 0;
}
bool pool_serves(const struct pool_config *cfg, const char *spec, int n) {
    for (int k = 0; k < n; k++)
        if (same_kind(cfg->devices[k], spec)) return true;
    return false;
}

static bool own_kind(const char *spec) { // not a plugin's
    return kind_has(spec, KIND_OWN);
}
int pool_of_device(const struct pool_config *cfg, int i) {
    if (!own_kind(cfg->devices[i]) || kind_has(cfg->devices[i], KIND_JOINS)) return 1;
    if (cfg->isolate > 1) return cfg->isolate;
    bool first = same_kind(cfg->devices[i], "cpu") && !pool_serves(cfg, "cpu", i);
    return 1 + (first && cfg->relief_ns);
}
int pool_of_compilers(const struct pool_config *cfg, const char *spec) {
    if (cfg->isolate) return cfg->isolate > cfg->n_compile ? cfg->isolate : cfg->n_compile;
    return cfg->n_compile + (cfg->compile_relief_ns && own_kind(spec));
}
int64_t pool_compile_memory(const struct pool_config *cfg, int64_t machine_bytes) {
    int64_t share = machine_bytes / 4 * 3 / (cfg->n_compile > 0 ? cfg->n_compile : 1);
    return cfg->compile_memory < share ? cfg->compile_memory : share;
}
int pool_slots(const struct pool_config *cfg) {
    int n = 0;
    for (int i = 0; i < cfg->n_devices; i++) {
        n += pool_of_device(cfg, i);
        n += pool_serves(cfg, cfg->devices[i], i) ? 0 : pool_of_compilers(cfg, cfg->devices[i]);
    }
    if (!cfg->plugins) return n;
    n += !pool_serves(cfg, "cpu", cfg->n_devices);
    for (size_t i = 0; i < cfg->plugins->n; i++)
        n += !pool_serves(cfg, cfg->plugins->v[i].kind, cfg->n_devices);
    return n;
}
