// SPDX-License-Identifier: Apache-2.0
// hash: SHA-256 (libcrypto) for keys and digests, a fast 64-bit hash for maps. A digest is 32
// bytes; its text is 64 lower-case hex digits.
#pragma once
#include "base/span.h"

struct digest {
    uint8_t b[32];
};
struct sha256 {
    void *ctx;
};
void sha256_init(struct sha256 *s); // aborts when libcrypto has no SHA-256
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_str(struct sha256 *s,
                struct str t); // length-prefixed, so that adjacent fields cannot run together
void sha256_u64(struct sha256 *s, uint64_t v);
struct digest sha256_end(struct sha256 *s);        // also frees the context
struct digest sha256_peek(const struct sha256 *s); // of what was added so far; more may come
void sha256_abandon(struct sha256 *s);
struct digest sha256_of(const void *p, size_t n);
void sha1_of(const void *p, size_t n, uint8_t out[20]); // for protocols that ask for it; no key is
// The same digests for brief texts that come again and again, such as a request's keys: each thread
// remembers some. All zeros: empty; sha256_text_end must follow.
struct sha256_text {
    size_t n;
    struct sha256 s; // of a text that is too long to remember
    uint8_t text[400];
};
void sha256_text_add(struct sha256_text *t, const void *p, size_t n);
void sha256_text_str(struct sha256_text *t, struct str s);
void sha256_text_u64(struct sha256_text *t, uint64_t v);
struct digest sha256_text_end(struct sha256_text *t);
struct hmac {            // HMAC-SHA256 (RFC 2104)
    struct sha256 inner; // what is signed goes in here
    uint8_t outer_key[64];
};
void hmac_init(struct hmac *m, struct span key);
struct digest hmac_end(struct hmac *m);
void digest_hex(struct digest d, char out[65]);
// The same as a value: digest_to_hex(d).z lives as long as the statement that it stands in.
struct hex_digest {
    char z[65];
};
struct hex_digest digest_to_hex(struct digest d);
bool digest_parse(struct str hex, struct digest *out); // exactly 64 hex digits
bool digest_eq(struct digest a, struct digest b);
bool digest_eq_secret(struct digest a, struct digest b); // in a time that tells nothing
bool digest_is_zero(struct digest d);
uint64_t hash64(const void *p, size_t n, uint64_t seed); // not cryptographic
