// SPDX-License-Identifier: Apache-2.0
// tokens: the file that says who may do what, written by `hlo tokens`, read by hlod. One line a
// token or certificate, `#` begins a comment:
//
//     NAME TENANT SCOPES CREATED KIND [expires:TIME]
//     ci   team-a read,run 2026-11-21 token:ID:SALT:HASH expires:2027-02-19T12:00:00Z
//     farm team-a jobs     2026-11-21 cert:SUBJECT           a client certificate's CN or SAN
//
// A token's text is hlod_ID_SECRET: 8 and 32 random bytes in hex. The file keeps the SHA-256 of
// salt and secret only; 256 random bits need no slow hash. Thread: any, one tokens at a time.
#pragma once
#include "base/arena.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/str.h"

enum {
    SCOPE_NONE = 0, // of a row: anybody
#define SCOPE(name, text, bit, help) SCOPE_##name = 1 << bit,
#include "proto/scopes.def"
#undef SCOPE
    SCOPE_ALL = 0
#define SCOPE(name, text, bit, help) | 1 << bit
#include "proto/scopes.def"
#undef SCOPE
};
// "read,run"; false for an unknown or empty name. ADMIN brings all.
bool scopes_parse(struct str text, unsigned *out);
void scopes_print(struct strbuf *b, unsigned scopes);

struct token {
    const char *name, *tenant, *created; // created: a date, for people
    const char *expires;                 // RFC 3339; NULL: never
    int64_t expires_ns;                  // the same, CLOCK_REALTIME
    unsigned scopes;
    const char *subject; // of a certificate; NULL: a token
    char id[17];
    uint8_t salt[16];
    struct digest hash; // of salt and secret
};
struct tokens {
    struct arena arena;
    struct token *v;
    size_t n, cap;
};
// INVALID_ARGUMENT names the line; PERMISSION_DENIED when others may write the file; NOT_FOUND.
// *out is tokens_done by the caller, also after an error.
status_t tokens_read(const char *path, struct tokens *out) MUST_CHECK;
void tokens_done(struct tokens *t);
// Replaces the file whole (temp file, fsync, rename).
// group  that may read it: the file gets it and mode 0640. -1: a file that was there keeps owner,
//        group and readers, a new one has mode 0600
status_t tokens_write(const char *path, const struct tokens *t, int64_t group) MUST_CHECK;
// Name, tenant and subject: 1 to 100 letters, digits, '.', '_', '-' (a subject also ':', '@', '/').
// INVALID_ARGUMENT.
status_t tokens_check(const struct token *x) MUST_CHECK;
// Adds x, whose strings are copied. For a token id, salt and hash are drawn here and its text put
// in out_text: the only time it is seen. Its `expires_ns` is from tokens_expire.
// ALREADY_EXISTS: the name, INVALID_ARGUMENT.
enum { TOKEN_TEXT = 5 + 16 + 1 + 64 + 1 };
status_t tokens_add(struct tokens *t, const struct token *x, char out_text[TOKEN_TEXT]) MUST_CHECK;
// "90d", "12h" from now_ns on, or a date or time (RFC 3339) behind it. INVALID_ARGUMENT.
status_t tokens_expire(struct token *x, struct arena *a, const char *text,
                       int64_t now_ns) MUST_CHECK;
bool tokens_expired(const struct token *x, int64_t now_ns); // CLOCK_REALTIME
bool tokens_remove(struct tokens *t, const char *name);
// Whose token this text is, or NULL; it may have expired. As fast for any wrong secret.
const struct token *tokens_find(const struct tokens *t, struct str text);
const struct token *tokens_find_subject(const struct tokens *t, const char *subject);
