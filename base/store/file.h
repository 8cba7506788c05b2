// SPDX-License-Identifier: Apache-2.0
// file: whole files of the user's, read or mapped: configuration, tokens, certificates, tensors,
// models. What the daemon keeps by digest is base/store/store.h. Blocking: where blocking is fine.
// Errors are those of the file (NOT_FOUND, PERMISSION_DENIED, ...) and name its path. Thread: any.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"

// All bytes of a file, or of a pipe until its end, with a NUL after them, in `a`.
// max_bytes  INVALID_ARGUMENT beyond
// out_mode   the permissions of what was read; NULL: not asked
status_t file_read(struct arena *a, const char *path, size_t max_bytes, unsigned *out_mode,
                   struct str *out) MUST_CHECK;
// The same of a secret. errors: PERMISSION_DENIED where its group may write it, or others anything
status_t file_read_secret(struct arena *a, const char *path, size_t max_bytes,
                          struct str *out) MUST_CHECK;
// A file's bytes, read when they are touched, while `a` lives. The file must not be shortened.
status_t file_map(struct arena *a, const char *path, struct span *out) MUST_CHECK;
// Pages that lie wholly in s, part of a mapping of a file that nobody writes through, count no more
// as memory of this process; who reads s later has them from the file again. Of other memory: its
// contents are lost. Thread: any.
void file_forget(struct span s);
// Makes the folders above path, and path itself (as mkdir -p): those that are missing get `mode`.
status_t file_make_parents(const char *path, unsigned mode) MUST_CHECK;
status_t file_make_folders(const char *path, unsigned mode) MUST_CHECK;
// All n bytes, in as many calls as it takes; `what` is for the error.
status_t file_write(int fd, const void *p, size_t n, const char *what) MUST_CHECK;
