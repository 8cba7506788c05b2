// SPDX-License-Identifier: Apache-2.0
// signing: Ed25519 keys (RFC 8032, libcrypto) in PEM files, as OpenSSL writes them, and signatures
// over a digest. A key's id is 16 hex digits of the SHA-256 of its 32 public bytes: it names who
// signed, and proves nothing. Used by hlo (`hlo cache keygen`, `sign`) and hlod. Thread: any; a key
// never changes.
#pragma once
#include "base/arena.h"
#include "base/hash.h"
#include "base/status.h"

enum { SIGN_BYTES = 64, SIGN_PUBLIC_BYTES = 32, SIGN_ID = 17 };
struct sign_public {
    uint8_t key[SIGN_PUBLIC_BYTES];
    char id[SIGN_ID];
};
struct sign_private;

// A new pair: `path` (mode 0600) and `path`.pub, neither of which may be there.
// errors  ALREADY_EXISTS; those of files
status_t sign_make(const char *path, struct sign_public *out) MUST_CHECK;
// A private key in PEM without a password, which nobody but its owner and group may read. Blocks.
// errors  INVALID_ARGUMENT, PERMISSION_DENIED; none repeats what the file says
status_t sign_read_private(const char *path, struct sign_private **out) MUST_CHECK;
void sign_private_free(struct sign_private *k); // NULL is fine
const struct sign_public *sign_public_of(const struct sign_private *k);
// All public keys of a file, one PEM block after the other, at most `most`. Blocks.
// errors  INVALID_ARGUMENT: no such key, more, or another kind
status_t sign_read_public(const char *path, struct sign_public *out, size_t most,
                          size_t *out_n) MUST_CHECK;

void sign_digest(const struct sign_private *k, struct digest d, uint8_t out[SIGN_BYTES]);
bool sign_verify(const struct sign_public *k, struct digest d, struct span signature);
