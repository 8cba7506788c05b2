// SPDX-License-Identifier: Apache-2.0
// journal_names: the names of models a third time, as text: DIR/names.log, a line for each change,
// each with a sum of its own. Where both files of journal.db are damaged or gone, names come from
// here; otherwise the journal is what counts. Blocking. Thread: the caller's, one at a time.
#pragma once
#include "base/arena.h"
#include "base/hash.h"
#include "base/status.h"

struct name_row {
    struct digest key, family;
    int64_t wall_ns;    // of the change
    struct span record; // empty: it was removed
};
struct name_rows {
    struct name_row *v; // each key once: its last change
    size_t n, cap;
    size_t changes;  // lines
    const char *why; // NULL, or what is wrong with the file; a literal
};
#define NAMES_LOG_ABSENT "it is not there"
struct names_log;
struct names_log *names_log_new(const char *dir); // touches no file; NULL without memory
void names_log_free(struct names_log *l);         // NULL is fine
const char *names_log_path(const struct names_log *l);
// Its sound lines, in a. No file: *out is empty, with a reason.
status_t names_log_read(struct names_log *l, struct arena *a, struct name_rows *out) MUST_CHECK;
// A new file with these rows, in place of the old one.
status_t names_log_write(struct names_log *l, const struct name_rows *rows) MUST_CHECK;
// Is the file as the last read, write or add left it? NULL, or what happened; a literal.
const char *names_log_moved(const struct names_log *l);
// One more line, on the disk when this returns. After an error there is no file: one that lacks a
// change would bring back what was removed.
status_t names_log_add(struct names_log *l, const struct name_row *row) MUST_CHECK;
