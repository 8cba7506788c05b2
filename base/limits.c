// SPDX-License-Identifier: Apache-2.0
#include "base/limits.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int numbers_in(const char *path, int64_t out[2]) {
    char text[64] = "";
    int n = 0;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    char *at = fgets(text, sizeof text, f), *end = at;
    fclose(f);
    for (; at && n < 2; n++, at = end) {
        out[n] = strtoll(at, &end, 10);
        if (end == at) break;
    }
    return n;
}
int64_t limits_number_in(const char *path) {
    int64_t n[2];
    return numbers_in(path, n) ? n[0] : -1;
}

// What the kernel takes back by itself before memory runs out: file pages not used recently.
static int64_t reclaimable(const char *group, bool second) {
    const char *name = second ? "inactive_file" : "total_inactive_file";
    char path[1100], line[128];
    long long n = 0;
    snprintf(path, sizeof path, "%s/memory.stat", group);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ' ')
            n = strtoll(line + strlen(name), NULL, 10);
    if (f) fclose(f);
    return n > 0 ? n : 0;
}
static void lower_memory(struct limits *l, const char *group, bool second) {
    char most[1100], taken[1100];
    snprintf(most, sizeof most, "%s/%s", group, second ? "memory.max" : "memory.limit_in_bytes");
    snprintf(taken, sizeof taken, "%s/%s", group,
             second ? "memory.current" : "memory.usage_in_bytes");
    int64_t n = limits_number_in(most), used; // "max" is no number
    if (n <= 0) return;
    if (n < l->memory_bytes) l->memory_bytes = n;

    used = limits_number_in(taken);
    if (used < 0) return;
    used -= reclaimable(group, second);
    if (n - used < l->memory_left) l->memory_left = n > used ? n - used : 0;
}
static void lower_processors(struct limits *l, int64_t quota, int64_t period) {
    if (quota <= 0 || period <= 0) return;
    int64_t n = quota / period + (quota % period != 0);
    if (n < l->processors) l->processors = (int)n;
}
static void lower_quota(struct limits *l, const char *group, bool second) {
    char path[1100], other[1100];
    int64_t n[2];
    snprintf(path, sizeof path, "%s/%s", group, second ? "cpu.max" : "cpu.cfs_quota_us");
    snprintf(other, sizeof other, "%s/cpu.cfs_period_us", group);
    if (!second)
        lower_processors(l, limits_number_in(path), limits_number_in(other));
    else if (numbers_in(path, n) == 2)
        lower_processors(l, n[0], n[1]);
}

static bool among(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && !strncmp(p, word, n)) return true;
    return false;
}
// A group and all above it, to the mount; in a container that sees its own group as the root the
// path is the host's, and only the mount is there.
static void walk(struct limits *l, const char *mount, const char *controller, char *path,
                 bool second) {
    for (;;) {
        char group[1024];
        snprintf(group, sizeof group, "%s%s%s%s", mount, *controller ? "/" : "", controller, path);
        if (second || !strcmp(controller, "memory")) lower_memory(l, group, second);
        if (second || !strcmp(controller, "cpu")) lower_quota(l, group, second);
        char *slash = strrchr(path, '/');
        if (!slash) return;
        *slash = 0;
    }
}

struct limits limits_of(const char *groups, const char *mount) {
    struct limits l = {
        .memory_bytes = INT64_MAX, .memory_left = INT64_MAX, .processors = INT32_MAX};
    char line[1024], path[512];
    FILE *f = fopen(groups, "re");
    while (f && fgets(line, sizeof line, f)) { // NUMBER:CONTROLLERS:PATH
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':'), *at = names ? strchr(names + 1, ':') : NULL;
        if (!at || strlen(at + 1) >= sizeof path) continue;
        *at++ = 0;
        names++;
        static const char *const wanted[] = {"", "memory", "cpu"};
        for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++) {
            if (k ? !among(names, wanted[k]) : *names != 0) continue;
            snprintf(path, sizeof path, "%s", at[0] == '/' && !at[1] ? "" : at);
            walk(&l, mount, wanted[k], path, k == 0);
        }
    }
    if (f) fclose(f);
    return l;
}
struct limits limits_here(void) {
    return limits_of("/proc/self/cgroup", "/sys/fs/cgroup");
}
int64_t limits_memory(void) {
    int64_t machine = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE),
            most = limits_here().memory_bytes;
    return most < machine ? most : machine;
}
