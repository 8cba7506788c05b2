// SPDX-License-Identifier: Apache-2.0
// hlo: what the commands of the user's tool share. Data goes to stdout, progress and errors to
// stderr; exit codes are those of `hlo help exit-codes`.
#pragma once
#include <jansson.h>
#include <stdio.h>

#include "base/arena.h"
#include "client/hlod_admin.h"
#include "client/lib/http.h"

enum {
#define EXIT(name, code, text) EXIT_##name = code,
#include "client/exits.def"
#undef EXIT
};
struct hlo {
    const char *addr;
    struct http_security security;
    struct hlod *hlod; // hlo_open makes it when it is first needed
    bool json, quiet, tty;
    const struct command *command; // that runs
    const char *lacks;             // an option at the end of the line whose value is missing
    struct arena arena;
    int argc; // words behind the command
    char **argv;
};
struct command {
    const char *name;
    int (*fn)(struct hlo *h);
    const char *usage, *doc;
};
#define COMMAND(name, usage, doc) int cmd_##name(struct hlo *h);
#include "client/cli/commands.def"
#undef COMMAND

// The value behind option `name` at argv[*k] ("--x V" or "--x=V"), advancing *k; NULL if it is
// another word.
const char *option_value(struct hlo *h, int *k, const char *name);
// The same for a whole number in [low, high]: 1 and *out, 0 if it is another word, -1 if it is no
// such number, which was reported.
int option_count(struct hlo *h, int *k, const char *name, int low, int high, int *out);
// From now on errors go to stderr as one line of JSON: code, message, and what the server's error
// has besides.
void errors_as_json(void);
// Reports "hlo: ...; see `hlo COMMAND --help`", COMMAND as usage_of named it.
void usage_of(const char *command);
int usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int unknown_word(struct hlo *h, const char *command, int k); // a usage error about argv[k]
int fail_status(status_t st);                                // prints, frees, gives the exit code
// After a call of h->hlod: prints its error; `code` for those that have no exit code of their own.
int hlo_fail(struct hlo *h, int code);
// An error's code, reason, message and details; `otherwise` when there is none.
void print_error(const json_t *error, const char *otherwise);
status_t hlo_open(struct hlo *h) MUST_CHECK; // h->hlod is there after it
// Calls a method of hlod.v1: 0 and its reply, or an exit code already reported.
// request  taken; NULL = {}
// on_event as for hlod_call_json; NULL for a method that is no stream. A stream has no reply
int hlo_call(struct hlo *h, const char *method, json_t *request, json_t **out);
int hlo_stream(struct hlo *h, const char *method, json_t *request, hlod_json_fn on_event,
               void *ctx);
// The same, with texts as they are: not for people's eyes. NULL: refused, and nothing was reported.
json_t *hlo_try(struct hlo *h, const char *method, json_t *request);
// Calls it and prints the reply if --json is given: then *out is NULL.
int hlo_print(struct hlo *h, const char *method, json_t *request, json_t **out);
// Before j is printed for people: what is not seen in its texts is by number (base/text.h).
// Gives j.
json_t *shown_json(const struct hlo *h, json_t *j);
// Options about pictures: --size HxW, --crop PART, --mean M, --std S, --layout nchw|nhwc.
// *out_taken: was argv[*k] one of them?
struct image_options;
status_t image_option(struct hlo *h, int *k, struct image_options *o, bool *out_taken) MUST_CHECK;
// The first digits of an executable's digest, 6 or more, as lists print them, become the whole
// digest; other words stay. 0, or an exit code already reported.
int full_digest(struct hlo *h, const char **digest);
// Is the word a model's file? Else it is a digest or a name; what looks like a file and is none is
// an error that was reported: an exit code.
int model_is_file(const char *word, bool *out);
// What follows a compile: nothing; a run with inputs, so that a model that cannot be compiled
// before a run brings shapes or values is fine; a run with inputs made up, which knows values only.
enum compile_then { THEN_NOTHING, THEN_RUN, THEN_TRY };
// Uploads a model and compiles it; events go to stderr. *out: the CompileReply, or sourceDigest
// alone where the run will tell the rest.
int compile_model(struct hlo *h, const char *path, const char *query, enum compile_then then,
                  json_t **out);
// Compiles a model that the server knows, with what a query says besides (query_add). 0 and *out,
// or an exit code already reported.
int compile_known(struct hlo *h, const char *model, const char *query,
                  struct hlod_executable **out);
// Uploads a model unless the server holds it, and nothing more: hex gets its digest.
int upload_model(struct hlo *h, const char *path, char hex[65]);
void print_assumed(const json_t *compiled, FILE *f); // of a CompileReply: the shapes it took
// A list that is about to be printed: with --json the whole reply instead; "hlo: `none`" on stderr
// where it is empty, and on a terminal a line of headings. True: now its lines.
bool list_begin(const struct hlo *h, const json_t *reply, const char *key, const char *none,
                const char *headings);
void print_shape(const json_t *dims, FILE *f); // [1, 3, 224] as 1x3x224
// cmd_runs.c: a job's timeline (Trace Event Format) to a file, "-" = stdout; a run's steps as a
// table.
int save_trace(struct hlo *h, int64_t job, const char *path); // an exit code
void print_profile(struct hlo *h, const json_t *profile);
// The text of one stage of an executable (hlod_text_free). 0, or an exit code already reported.
int stage_text(struct hlo *h, const char *digest, const char *stage, char **out);
// The SHA-256 of a file, or of the parts that stand for it.
status_t file_digest(const char *path, const struct span *parts, size_t n_parts,
                     char out_hex[65]) MUST_CHECK;
void print_job(const json_t *job); // cmd_jobs.c: a line
// Appends [&]key=value, escaped.
void query_add(struct strbuf *b, const char *key, const char *value);
const char *path_part(struct arena *a, const char *word); // escaped, as one part of a path
bool parse_duration(const char *text, int64_t *out_ms);   // cmd_submit.c: "90s", "10m", "250ms"
void print_json(const json_t *j);
void print_json_line(const json_t *j);
const char *text_at(const json_t *j, const char *key); // "" when absent
double number_at(const json_t *j, const char *key);    // numbers may be strings (64-bit)
struct size_text {                                     // "612 B", "16.0 kB", "25.3 GB"
    char s[16];
} size_text(double bytes);
struct size_text time_text(double ms); // "0.4 us", "12.3 ms", "20.1 s"
