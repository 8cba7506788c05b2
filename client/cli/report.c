// SPDX-License-Identifier: Apache-2.0
#include "client/cli/report.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

enum { MAX_ANNOTATIONS = 50, MAX_ROWS = 200 };

static const char *text(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}
static double run_ms(const struct report_job *j) {
    return json_number_value(json_object_get(j->job, "runMs"));
}
static bool is(const struct report_job *j, const char *state) {
    return !strcmp(text(j->job, "state"), state);
}
const char *report_message(const struct report_job *j) {
    return text(json_object_get(j->job, "error"), "message");
}

struct report_counts report_count(const struct report *r) {
    struct report_counts n = {0};
    for (size_t i = 0; i < r->n_jobs; i++) {
        const struct report_job *j = &r->jobs[i];
        const char *reason = text(json_object_get(j->job, "error"), "reason");
        n.passed += is(j, "passed");
        n.failed += is(j, "failed");
        n.over_budget += is(j, "failed") && !strcmp(reason, "BUDGET_EXCEEDED");
        n.errors += is(j, "error");
        n.cancelled += is(j, "cancelled");
    }
    return n;
}

// ---- JUnit

// For XML 1.0: what it cannot hold becomes U+FFFD.
static void put_xml(struct strbuf *b, const char *s) {
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '&')
            strbuf_puts(b, "&amp;");
        else if (c == '<')
            strbuf_puts(b, "&lt;");
        else if (c == '>')
            strbuf_puts(b, "&gt;");
        else if (c == '"')
            strbuf_puts(b, "&quot;");
        else if (c == '\n' || c == '\t')
            strbuf_printf(b, "&#%d;", c);
        else if (c < 0x20)
            strbuf_puts(b, "\xef\xbf\xbd");
        else
            strbuf_putc(b, (char)c);
    }
}
static void put_attribute(struct strbuf *b, const char *name, const char *value) {
    strbuf_printf(b, " %s=\"", name);
    put_xml(b, value);
    strbuf_putc(b, '"');
}
static void put_counts(struct strbuf *b, const struct report *r) {
    struct report_counts n = report_count(r);
    strbuf_printf(b, " tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\" time=\"%.3f\"",
                  r->n_jobs, n.failed, n.errors, n.cancelled, r->seconds);
}

static void put_details(struct strbuf *b, const struct report_job *j) {
    const json_t *x;
    size_t i;
    put_xml(b, report_message(j));
    json_array_foreach(json_object_get(j->result, "overBudget"), i, x) {
        strbuf_putc(b, '\n');
        put_xml(b, json_string_value(x));
    }
}

static void put_case(struct strbuf *b, const struct report *r, const struct report_job *j) {
    const json_t *error = json_object_get(j->job, "error");
    const char *tag = is(j, "error") ? "error" : is(j, "failed") ? "failure" : NULL;
    const char *input = text(j->job, "input"), *target = text(j->job, "target");
    char name[500];
    snprintf(name, sizeof name, "%.200s%s%.200s%s", *input ? input : "compile", *target ? " [" : "",
             target, *target ? "]" : "");
    strbuf_puts(b, "    <testcase");
    put_attribute(b, "classname", text(j->job, "model"));
    put_attribute(b, "name", name);
    put_attribute(b, "file", r->suite->path);
    strbuf_printf(b, " line=\"%d\" time=\"%.9f\">",
                  suite_line(r->suite, text(j->job, "model"), input), run_ms(j) / 1e3);
    if (tag) {
        strbuf_printf(b, "\n      <%s", tag);
        put_attribute(b, "type",
                      *text(error, "reason") ? text(error, "reason") : text(error, "code"));
        put_attribute(b, "message", report_message(j));
        strbuf_putc(b, '>');
        put_details(b, j);
        strbuf_printf(b, "</%s>", tag);
    } else if (is(j, "cancelled"))
        strbuf_puts(b, "\n      <skipped message=\"cancelled\"/>");
    if (*j->log) {
        strbuf_puts(b, "\n      <system-out>");
        put_xml(b, j->log);
        strbuf_puts(b, "</system-out>");
    }
    strbuf_puts(b, tag || *j->log || is(j, "cancelled") ? "\n    </testcase>\n" : "</testcase>\n");
}

static status_t write_text(const char *path, const char *mode, const struct strbuf *b) {
    FILE *f = fopen(path, mode);
    if (!f) return st_errno(errno, path);
    bool ok = fwrite(strbuf_cstr(b), 1, b->n, f) == b->n;
    if (fclose(f) || !ok) return st_errno(errno, path);
    return ST_OK;
}

status_t report_junit(const struct report *r, const char *path) {
    struct strbuf b = {0};
    strbuf_puts(&b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites");
    put_attribute(&b, "name", "hlod");
    put_counts(&b, r);
    strbuf_puts(&b, ">\n  <testsuite");
    put_attribute(&b, "name", r->suite->request->name);
    put_counts(&b, r);
    put_attribute(&b, "timestamp", r->started);
    strbuf_puts(&b, ">\n    <properties><property");
    put_attribute(&b, "name", "hlod.suite");
    put_attribute(&b, "value", r->id);
    strbuf_puts(&b, "/></properties>\n");
    for (size_t i = 0; i < r->n_jobs; i++)
        put_case(&b, r, &r->jobs[i]);
    strbuf_puts(&b, "  </testsuite>\n</testsuites>\n");
    status_t st = write_text(path, "we", &b);
    strbuf_done(&b);
    return st;
}

// ---- GitHub

// The escapes of workflow commands; `property`: of their values before `::`.
static void put_command(struct strbuf *b, const char *s, bool property) {
    for (; *s; s++)
        if (*s == '%' || *s == '\n' || *s == '\r' || (property && (*s == ':' || *s == ',')))
            strbuf_printf(b, "%%%02X", (unsigned char)*s);
        else
            strbuf_putc(b, *s);
}

static void put_name(struct strbuf *b, const struct report_job *j) {
    strbuf_puts(b, text(j->job, "model"));
    if (*text(j->job, "target")) strbuf_printf(b, " on %s", text(j->job, "target"));
    if (*text(j->job, "input")) strbuf_printf(b, ", %s", text(j->job, "input"));
}

void report_annotations(const struct report *r, FILE *out) {
    size_t shown = 0;
    for (size_t i = 0; i < r->n_jobs; i++) {
        const struct report_job *j = &r->jobs[i];
        if (is(j, "passed") || is(j, "cancelled") || shown++ >= MAX_ANNOTATIONS) continue;
        struct strbuf name = {0}, b = {0};
        put_name(&name, j);
        strbuf_puts(&b, "::error file=");
        put_command(&b, r->suite->path, true);
        strbuf_printf(&b, ",line=%d,title=",
                      suite_line(r->suite, text(j->job, "model"), text(j->job, "input")));
        put_command(&b, strbuf_cstr(&name), true);
        strbuf_puts(&b, "::");
        put_command(&b, report_message(j), false);
        fprintf(out, "%s\n", strbuf_cstr(&b));
        strbuf_done(&name);
        strbuf_done(&b);
    }
    if (shown > MAX_ANNOTATIONS)
        fprintf(out, "::error::and %zu more jobs\n", shown - MAX_ANNOTATIONS);
}

// For a cell of a table.
static void put_cell(struct strbuf *b, const char *s) {
    for (; *s; s++)
        if (*s == '|' || *s == '\\' || *s == '<' || *s == '`')
            strbuf_printf(b, "\\%c", *s);
        else
            strbuf_putc(b, *s == '\n' ? ' ' : *s);
}

status_t report_summary(const struct report *r, const char *path) {
    struct report_counts n = report_count(r);
    struct strbuf b = {0};
    strbuf_puts(&b, "### ");
    put_cell(&b, r->suite->request->name);
    strbuf_printf(&b,
                  " (suite %s)\n\n%zu jobs in %.1f s: %zu passed, %zu failed, %zu errors, %zu "
                  "cancelled\n",
                  r->id, r->n_jobs, r->seconds, n.passed, n.failed, n.errors, n.cancelled);
    size_t rows = 0;
    for (size_t i = 0; i < r->n_jobs && rows < MAX_ROWS; i++) {
        const struct report_job *j = &r->jobs[i];
        if (is(j, "passed")) continue;
        if (!rows++)
            strbuf_puts(&b, "\n| job | model | target | input | | |\n|---|---|---|---|---|---|\n");
        static const char *const keys[] = {"id", "model", "target", "input", "state"};
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            strbuf_puts(&b, "| ");
            put_cell(&b, text(j->job, keys[k]));
            strbuf_putc(&b, ' ');
        }
        strbuf_puts(&b, "| ");
        put_cell(&b, report_message(j));
        strbuf_puts(&b, " |\n");
    }
    strbuf_putc(&b, '\n');
    status_t st = write_text(path, "ae", &b);
    strbuf_done(&b);
    return st;
}
