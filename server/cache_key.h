// SPDX-License-Identifier: Apache-2.0
// cache_key: a secret that daemons share, by which one knows an executable that another of them
// compiled: HMAC-SHA256 over its record and its artefact (docs/security.md). Thread: any; it never
// changes.
#pragma once
#include "base/status.h"
#include "proto/hlod.pb-c.h"

struct cache_key;
// A file of keys, one a line, `#` comments: the first signs, each may have signed. At least 32
// characters each; nobody but its owner and group may read the file. Blocks.
// errors  INVALID_ARGUMENT, PERMISSION_DENIED; none repeats what the file says
status_t cache_key_open(const char *path, struct cache_key **out) MUST_CHECK;
void cache_key_close(struct cache_key *k); // NULL is fine
// b has info and artifact.
struct digest cache_key_sign(const struct cache_key *k, const Hlod__V1__ExecutableBundle *b);
// errors  PERMISSION_DENIED: it has no signature, or by another key, or was changed
status_t cache_key_check(const struct cache_key *k, const Hlod__V1__ExecutableBundle *b) MUST_CHECK;
