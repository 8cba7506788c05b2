// SPDX-License-Identifier: Apache-2.0
// report: how the jobs of a suite ended, for programs that read test results: JUnit's XML, GitHub's
// annotations and step summary. Thread: any.
#pragma once
#include <jansson.h>
#include <stdio.h>

#include "base/status.h"
#include "client/files/suite.h"

struct report_job {
    const json_t *job;    // hlod.v1.Job
    const json_t *result; // hlod.v1.JobOutcome, of those that did not pass; or NULL
    const char *log;      // "" of those that passed
};
struct report {
    const struct suite *suite;
    const char *id; // of the suite on the server
    const char *started;
    double seconds;
    const struct report_job *jobs;
    size_t n_jobs;
};
struct report_counts {
    size_t passed, failed, errors, cancelled, over_budget; // over_budget: of failed, nothing else
};
struct report_counts report_count(const struct report *r);
const char *report_message(const struct report_job *j); // "" if it passed
// One <testcase> a job: <failure> for differing outputs and budgets, <error> for what could not be
// run, <skipped> for cancelled ones.
status_t report_junit(const struct report *r, const char *path) MUST_CHECK;
// ::error lines, at most 50, for `out`.
void report_annotations(const struct report *r, FILE *out);
// Markdown, appended: what GITHUB_STEP_SUMMARY names.
status_t report_summary(const struct report *r, const char *path) MUST_CHECK;
