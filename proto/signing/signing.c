// SPDX-License-Identifier: Apache-2.0
#include "proto/signing/signing.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/store/file.h"

enum { MAX_FILE = 1 << 16 };
struct sign_private {
    EVP_PKEY *key;
    struct sign_public public;
};

static void set_id(struct sign_public *p) {
    char hex[65];
    digest_hex(sha256_of(p->key, sizeof p->key), hex);
    memcpy(p->id, hex, SIGN_ID - 1);
    p->id[SIGN_ID - 1] = 0;
}
// Takes key, also on failure.
static status_t keep(EVP_PKEY *key, const char *path, struct sign_private **out) {
    struct sign_private *k = calloc(1, sizeof *k);
    size_t n = SIGN_PUBLIC_BYTES;
    bool ours = key && EVP_PKEY_get_id(key) == EVP_PKEY_ED25519;
    if (!k || !ours || EVP_PKEY_get_raw_public_key(key, k->public.key, &n) != 1) {
        EVP_PKEY_free(key);
        free(k);
        ERR_clear_error();
        return k ? st_invalid("%s: expected a private key of Ed25519 in PEM without a password, as "
                              "from `hlo cache keygen`",
                              path)
                 : st_oom();
    }
    k->key = key;
    set_id(&k->public);
    *out = k;
    return ST_OK;
}
void sign_private_free(struct sign_private *k) {
    if (!k) return;
    EVP_PKEY_free(k->key); // which cleanses it
    free(k);
}
const struct sign_public *sign_public_of(const struct sign_private *k) {
    return &k->public;
}

// ---- files

// A password is never asked for.
static int no_password(UNUSED char *buf, UNUSED int n, UNUSED int rw, UNUSED void *u) {
    return -1;
}
status_t sign_read_private(const char *path, struct sign_private **out) {
    struct arena a = {0};
    struct str text = {0};
    EVP_PKEY *key = NULL;
    status_t st = file_read_secret(&a, path, MAX_FILE, &text);

    BIO *bio = st ? NULL : BIO_new_mem_buf(text.p, (int)text.n);
    if (bio) key = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
    BIO_free(bio);
    if (!st) st = keep(key, path, out);
    if (text.n) OPENSSL_cleanse((char *)(uintptr_t)text.p, text.n);
    arena_done(&a);
    return st;
}

static status_t next_public(BIO *bio, const char *path, struct sign_public *out, bool *out_end) {
    char *name = NULL, *header = NULL;
    unsigned char *der = NULL;
    long n_der = 0;
    int rc = PEM_read_bio(bio, &name, &header, &der, &n_der);
    *out_end = !rc && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;

    const unsigned char *at = der;
    size_t n = SIGN_PUBLIC_BYTES;
    EVP_PKEY *key = rc && !strcmp(name, PEM_STRING_PUBLIC) ? d2i_PUBKEY(NULL, &at, n_der) : NULL;
    bool fits = key && EVP_PKEY_get_id(key) == EVP_PKEY_ED25519 &&
                EVP_PKEY_get_raw_public_key(key, out->key, &n) == 1;
    EVP_PKEY_free(key);
    OPENSSL_free(name);
    OPENSSL_free(header);
    OPENSSL_free(der);
    ERR_clear_error();
    if (*out_end) return ST_OK;
    if (!fits) return st_invalid("%s: expected public keys of Ed25519 in PEM", path);
    set_id(out);
    return ST_OK;
}
status_t sign_read_public(const char *path, struct sign_public *out, size_t most, size_t *out_n) {
    struct arena a = {0};
    struct str text = {0};
    status_t st = file_read(&a, path, MAX_FILE, NULL, &text);
    BIO *bio = st ? NULL : BIO_new_mem_buf(text.p, (int)text.n);
    if (!st && !bio) st = st_oom();
    size_t n = 0;
    for (bool end = false; !st && !end;) {
        struct sign_public one;
        st = next_public(bio, path, &one, &end);
        if (st || end) break;
        if (n == most)
            st = st_invalid("%s: more than %zu keys", path, most);
        else
            out[n++] = one;
    }

    BIO_free(bio);
    arena_done(&a);
    if (!st && !n) st = st_invalid("%s: no public key of Ed25519 in PEM", path);
    if (!st) *out_n = n;
    return st;
}

// ---- new keys

static status_t write_new(const char *path, unsigned mode, BIO *bio) {
    char *p;
    long n = BIO_get_mem_data(bio, &p);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0 && errno == EEXIST)
        return st_new(ST_ALREADY_EXISTS, "%s is there: a key is never overwritten", path);
    if (fd < 0) return st_errno(errno, path);
    status_t st = file_write(fd, p, (size_t)n, path);
    if (!st && fsync(fd)) st = st_errno(errno, path);
    close(fd);
    if (st) unlink(path);
    return st;
}
static status_t write_pair(EVP_PKEY *key, const char *path, const char *public_path) {
    BIO *private = BIO_new(BIO_s_secmem()), *public = BIO_new(BIO_s_mem());
    status_t st = private && public &&
                          PEM_write_bio_PrivateKey(private, key, NULL, NULL, 0, NULL, NULL) == 1 &&
                          PEM_write_bio_PUBKEY(public, key) == 1
                      ? ST_OK
                      : st_oom();
    if (!st && !access(public_path, F_OK))
        st = st_new(ST_ALREADY_EXISTS, "%s is there: a key is never overwritten", public_path);
    if (!st) st = write_new(path, 0600, private);
    if (!st && (st = write_new(public_path, 0644, public))) unlink(path);
    BIO_free(private);
    BIO_free(public);
    return st;
}
status_t sign_make(const char *path, struct sign_public *out) {
    char public_path[4100];
    if (snprintf(public_path, sizeof public_path, "%s.pub", path) >= (int)sizeof public_path)
        return st_invalid("path too long");
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    if (!key) return st_internal("libcrypto makes no key of Ed25519");
    status_t st = write_pair(key, path, public_path);
    struct sign_private *k = NULL;
    if (st)
        EVP_PKEY_free(key);
    else
        st = keep(key, path, &k);
    if (k) *out = k->public;
    sign_private_free(k);
    return st;
}

// ---- signatures

void sign_digest(const struct sign_private *k, struct digest d, uint8_t out[SIGN_BYTES]) {
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    size_t n = SIGN_BYTES;
    if (!c || EVP_DigestSignInit(c, NULL, NULL, NULL, k->key) != 1 ||
        EVP_DigestSign(c, out, &n, d.b, sizeof d.b) != 1 || n != SIGN_BYTES)
        abort(); // only for want of memory
    EVP_MD_CTX_free(c);
}
bool sign_verify(const struct sign_public *k, struct digest d, struct span signature) {
    if (signature.n != SIGN_BYTES) return false;
    EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, k->key, sizeof k->key);
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    bool right = key && c && EVP_DigestVerifyInit(c, NULL, NULL, NULL, key) == 1 &&
                 EVP_DigestVerify(c, signature.p, signature.n, d.b, sizeof d.b) == 1;
    EVP_MD_CTX_free(c);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return right;
}
