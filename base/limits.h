// SPDX-License-Identifier: Apache-2.0
// limits: what the control groups of this process (versions 1 and 2, those above it too) allow:
// memory and processor time. A container's machine is as large as its host, its share is not.
// Rlimits and affinity are not looked at here. Thread: any.
#pragma once
#include <stdint.h>

struct limits {
    int64_t memory_bytes; // INT64_MAX: no bound
    int64_t memory_left;  // of the group that has least left; INT64_MAX: no bound
    int processors;       // a quota rounded up; INT32_MAX: none
};
// groups: /proc/self/cgroup or a file of that form; mount: where the groups are seen, without a
// final slash (/sys/fs/cgroup). What cannot be read bounds nothing.
struct limits limits_of(const char *groups, const char *mount);
struct limits limits_here(void);
int64_t limits_memory(void); // bytes: the machine's, or less by limits_here
// A number at the start of a file; -1: there is none.
int64_t limits_number_in(const char *path);
