// SPDX-License-Identifier: Apache-2.0
// SHA-256 through libcrypto's EVP interface (it picks SHA-NI or AVX2), and a 64-bit mixing hash in
// the multiply-fold style for maps.
#include "base/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"

static void check(int ok) {
    if (ok == 1) return;
    fprintf(stderr, "lvl=error ev=crypto.sha256\n");
    abort();
}

// Fetched once: EVP_sha256() would be looked up by name at each start, under a lock.
static const EVP_MD *sha256;
static void fetch(void) {
    sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    check(sha256 != NULL);
}
void sha256_init(struct sha256 *s) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fetch);
    s->ctx = EVP_MD_CTX_new();
    check(s->ctx != NULL);
    check(EVP_DigestInit_ex(s->ctx, sha256, NULL));
}
void sha256_add(struct sha256 *s, const void *p, size_t n) {
    check(EVP_DigestUpdate(s->ctx, p, n));
}
struct eight {
    uint8_t b[8];
};
static struct eight little_endian(uint64_t v) {
    struct eight e;
    for (int i = 0; i < 8; i++)
        e.b[i] = (uint8_t)(v >> (8 * i));
    return e;
}
void sha256_u64(struct sha256 *s, uint64_t v) {
    sha256_add(s, little_endian(v).b, 8);
}
void sha256_str(struct sha256 *s, struct str t) {
    sha256_u64(s, t.n);
    sha256_add(s, t.p, t.n);
}
struct digest sha256_end(struct sha256 *s) {
    struct digest d;
    check(EVP_DigestFinal_ex(s->ctx, d.b, NULL));
    sha256_abandon(s);
    return d;
}
struct digest sha256_peek(const struct sha256 *s) {
    struct sha256 copy = {EVP_MD_CTX_new()};
    check(copy.ctx != NULL);
    check(EVP_MD_CTX_copy_ex(copy.ctx, s->ctx));
    return sha256_end(&copy);
}
void sha256_abandon(struct sha256 *s) {
    EVP_MD_CTX_free(s->ctx);
    s->ctx = NULL;
}
void sha1_of(const void *p, size_t n, uint8_t out[20]) {
    if (!EVP_Digest(p, n, out, NULL, EVP_sha1(), NULL)) abort();
}
struct digest sha256_of(const void *p, size_t n) {
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, p, n);
    return sha256_end(&s);
}

// ---- brief texts

void sha256_text_add(struct sha256_text *t, const void *p, size_t n) {
    if (!t->s.ctx && n > sizeof t->text - t->n) {
        sha256_init(&t->s);
        sha256_add(&t->s, t->text, t->n);
    }
    if (t->s.ctx)
        sha256_add(&t->s, p, n);
    else if (n)
        memcpy(t->text + t->n, p, n);
    t->n += n;
}
void sha256_text_u64(struct sha256_text *t, uint64_t v) {
    sha256_text_add(t, little_endian(v).b, 8);
}
void sha256_text_str(struct sha256_text *t, struct str s) {
    sha256_text_u64(t, s.n);
    sha256_text_add(t, s.p, s.n);
}
// Each text has a place by its hash, which the last one keeps.
struct digest sha256_text_end(struct sha256_text *t) {
    enum { PLACES = 16 };
    static _Thread_local struct {
        size_t n; // 0: free
        struct digest d;
        uint8_t text[sizeof t->text];
    } places[PLACES];
    if (t->s.ctx) return sha256_end(&t->s);
    if (!t->n) return sha256_of(t->text, 0);
    __typeof__(&places[0]) at = &places[hash64(t->text, t->n, 0) % PLACES];
    if (at->n == t->n && !memcmp(at->text, t->text, t->n)) return at->d;
    at->n = t->n;
    at->d = sha256_of(t->text, t->n);
    memcpy(at->text, t->text, t->n);
    return at->d;
}

void hmac_init(struct hmac *m, struct span key) {
    uint8_t block[64] = {0};
    if (key.n > sizeof block) {
        struct digest d = sha256_of(key.p, key.n);
        memcpy(block, d.b, sizeof d.b);
    } else {
        memcpy(block, key.p, key.n);
    }
    for (size_t i = 0; i < sizeof block; i++) {
        m->outer_key[i] = block[i] ^ 0x5c;
        block[i] ^= 0x36;
    }
    sha256_init(&m->inner);
    sha256_add(&m->inner, block, sizeof block);
    OPENSSL_cleanse(block, sizeof block);
}
struct digest hmac_end(struct hmac *m) {
    struct digest d = sha256_end(&m->inner);
    struct sha256 outer;
    sha256_init(&outer);
    sha256_add(&outer, m->outer_key, sizeof m->outer_key);
    sha256_add(&outer, d.b, sizeof d.b);
    OPENSSL_cleanse(m->outer_key, sizeof m->outer_key);
    return sha256_end(&outer);
}

void digest_hex(struct digest d, char out[65]) {
    str_put_hex(out, d.b, sizeof d.b);
}
struct hex_digest digest_to_hex(struct digest d) {
    struct hex_digest t;
    digest_hex(d, t.z);
    return t;
}
static int nibble(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}
bool digest_parse(struct str hex, struct digest *out) {
    struct digest d;
    if (hex.n != 64) return false;
    for (int i = 0; i < 32; i++) {
        int hi = nibble(hex.p[2 * i]), lo = nibble(hex.p[2 * i + 1]);
        if (hi < 0 || lo < 0) return false;
        d.b[i] = (uint8_t)(hi << 4 | lo);
    }
    *out = d;
    return true;
}
bool digest_eq(struct digest a, struct digest b) {
    return memcmp(a.b, b.b, sizeof a.b) == 0;
}
bool digest_eq_secret(struct digest a, struct digest b) {
    return CRYPTO_memcmp(a.b, b.b, sizeof a.b) == 0;
}
bool digest_is_zero(struct digest d) {
    return digest_eq(d, (struct digest){{0}});
}

static uint64_t fold(uint64_t a, uint64_t b) {
    unsigned __int128 p = (unsigned __int128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}
uint64_t hash64(const void *p, size_t n, uint64_t seed) {
    const uint8_t *b = p;
    uint64_t h = seed ^ fold(n ^ 0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu), x, y;
    for (; n >= 16; n -= 16, b += 16) {
        memcpy(&x, b, 8);
        memcpy(&y, b + 8, 8);
        h = fold(x ^ 0xa0761d6478bd642fu, y ^ h);
    }
    x = y = 0;
    if (n >= 8) {
        memcpy(&x, b, 8);
        memcpy(&y, b + n - 8, 8);
    } else if (n) {
        memcpy(&x, b, n);
    }
    return fold(x ^ 0xe7037ed1a0b428dbu ^ h, y ^ 0x8ebc6af09c88c6e3u ^ (uint64_t)n);
}
