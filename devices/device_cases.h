// SPDX-License-Identifier: Apache-2.0
// device_cases: runs the case files of tests/ops on a device, each case compiled as a program of
// its own. What ran where is counted, so that a test can ask that no step fell back.
#pragma once
#include <stdio.h>

#include "compiler/tools/cases.h"
#include "devices/device.h"

struct device_cases {
    int ran, failed, skipped; // cases; skipped: the device or the compiler says UNIMPLEMENTED
    int64_t steps, reference; // steps of the plans, and those on the reference evaluator
    enum precision precision;
    const char *disable_passes; // "" = none
    bool list_reference;        // print every step that fell back
};
// Prints failures to log. INVALID_ARGUMENT on a file that is not well formed or has no cases.
status_t device_cases_check(struct device *d, struct str text, FILE *log,
                            struct device_cases *c) MUST_CHECK;
