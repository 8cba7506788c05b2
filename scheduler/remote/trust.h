// SPDX-License-Identifier: Apache-2.0
// trust: by what this daemon knows an executable that another one compiled, and what it puts under
// its own (docs/security.md): secrets shared with other daemons (HMAC-SHA256), public keys of who
// signs (Ed25519), a private key to sign with. Any one that fits suffices. A trust never changes:
// files that did are read into a new one, and whoever uses the old one keeps it (counted).
// Thread: any.
#pragma once
#include <stdbool.h>

#include "base/status.h"
#include "proto/hlod.pb-c.h"

struct arena;
struct trust;
struct trust_files {     // "": none
    const char *secrets; // one a line, `#` comments: the first signs, each may have signed. At
                         // least 32 characters each; nobody but owner and group may read the file
    const char *verify;  // public keys in PEM
    const char *sign;    // a private key in PEM, as secret; its public one is trusted too
};
// Reads the files: blocks. Without any *out is a trust that asks for nothing.
// errors  INVALID_ARGUMENT, PERMISSION_DENIED, those of files; with the option in front. None
//         repeats what a file says
status_t trust_open(const struct trust_files *files, struct trust **out) MUST_CHECK;
struct trust *trust_ref(struct trust *t);
struct trust *trust_unref(struct trust *t); // NULL is fine; gives NULL
// Must what comes in be signed?
bool trust_asks(const struct trust *t);
// Can it sign at all?
bool trust_signs(const struct trust *t);
// Signs a bundle with info and artifact by what there is; in a.
void trust_sign(const struct trust *t, struct arena *a, Hlod__V1__ExecutableBundle *b);
// out_by: who vouches for it: "hmac", a key's id, "" where nothing is asked for. Static, or t's.
// errors  PERMISSION_DENIED: it has no signature, or by another key, or was changed
status_t trust_check(const struct trust *t, const Hlod__V1__ExecutableBundle *b,
                     const char **out_by) MUST_CHECK;
