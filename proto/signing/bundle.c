// SPDX-License-Identifier: Apache-2.0
#include "proto/signing/bundle.h"

#include "proto/message.h"
#include "proto/signing/signing.h"

Hlod__V1__ExecutableInfo *bundle_record(struct arena *a, const Hlod__V1__ExecutableInfo *x) {
    Hlod__V1__ExecutableInfo *r = arena_dup(a, x, sizeof *x);
    char *none = (char *)(uintptr_t)protobuf_c_empty_string;
    r->source_digest = r->weights_digest = none;
    r->weights_bytes = 0;
    r->origin = r->signed_by = none;
    r->ed25519 = (ProtobufCBinaryData){0, NULL};
    r->remotes = NULL;
    r->n_remotes = 0;
    r->pinned = r->unsigned_import = false;
    return r;
}

static void add(struct sha256 *h, struct span record, const Hlod__V1__ExecutableBundle *b) {
    sha256_str(h, STR("hlod executable 2"));
    sha256_str(h, (struct str){(const char *)record.p, record.n});
    sha256_add(h, b->artifact.data, b->artifact.len);
}
struct digest bundle_digest(const Hlod__V1__ExecutableBundle *b, const struct str *key) {
    struct arena a = {0};
    struct span record = message_pack(&a, &bundle_record(&a, b->info)->base);
    struct digest d;
    if (key) {
        struct hmac m;
        hmac_init(&m, (struct span){(const uint8_t *)key->p, key->n});
        add(&m.inner, record, b);
        d = hmac_end(&m);
    } else {
        struct sha256 h;
        sha256_init(&h);
        add(&h, record, b);
        d = sha256_end(&h);
    }
    arena_done(&a);
    return d;
}

void bundle_sign(struct arena *a, const struct sign_private *k, Hlod__V1__ExecutableBundle *b) {
    uint8_t *p = arena_alloc(a, SIGN_BYTES);
    sign_digest(k, bundle_digest(b, NULL), p);
    b->ed25519 = (ProtobufCBinaryData){SIGN_BYTES, p};
    b->signer = arena_strdup(a, sign_public_of(k)->id);
}
