// SPDX-License-Identifier: Apache-2.0
// auth: who a caller is and what they may do: a bearer token or the name in a verified client
// certificate, looked up in the tokens file (proto/tokens.h). A transport hands over what came with
// the request; scheduler code sees the tenant alone. Life: one auth for the daemon; a principal
// lives in its call's arena, so that a reload takes nothing away from calls under way.
// Thread: loop.
#pragma once
#include "base/arena.h"
#include "base/status.h"
#include "proto/tokens.h"

struct principal {
    const char *name;   // of the token or certificate; "anonymous" where no token is needed
    const char *tenant; // "default" then
    unsigned scopes;    // SCOPE_*
    bool anonymous;
    bool node; // another node of the cluster, for one of its callers
};
struct credentials {
    const char *authorization; // the header or metadata; NULL: none
    const char *const *names;  // CN and SANs of a verified certificate
    size_t n_names;
};
struct auth;
// Reads the tokens file: blocks.
status_t auth_open(const char *tokens_path, struct auth **out) MUST_CHECK;
void auth_close(struct auth *a);     // NULL is fine
void auth_say(const struct auth *a); // how many entries, in the log
// Looks at the file of *a, which is opened later, again.
struct secrets;
void auth_watch(struct auth **a, const char *tokens_path, struct secrets *s);

// a NULL: anonymous, with every scope. With scope NONE nothing is asked for, and a caller without
// credentials is anonymous without scopes.
// errors  UNAUTHENTICATED: REASON_NO_CREDENTIALS, REASON_BAD_CREDENTIALS,
//         REASON_EXPIRED_CREDENTIALS, told only to who has the right secret or certificate
status_t auth_who(const struct auth *a, struct arena *arena, const struct credentials *with,
                  unsigned scope, struct principal *out) MUST_CHECK;
// PERMISSION_DENIED, REASON_MISSING_SCOPE. `what`: for the message.
status_t auth_may(const struct principal *p, unsigned scope, const char *what) MUST_CHECK;
