// SPDX-License-Identifier: Apache-2.0
#include "scheduler/remote/exchange.h"

#include <string.h>

#include "base/store/store.h"
#include "proto/message.h"
#include "proto/reason.h"
#include "proto/signing/bundle.h"
#include "proto/weigh.h"
#include "scheduler/error.h"
#include "scheduler/job/key.h"
#include "scheduler/records/artifact.h"
#include "scheduler/records/journal.h"
#include "scheduler/records/owners.h"
#include "scheduler/remote/trust.h"

static status_t read_record(const struct exchange *x, struct arena *a, struct digest key,
                            Hlod__V1__ExecutableInfo **out) {
    struct span rec;
    status_t st = journal_get(x->journal, JOURNAL_EXECUTABLE, key, a, &rec);
    if (st && st_code(st) != ST_NOT_FOUND) return st;
    *out = st || !store_has(x->store, STORE_EXECUTABLE, key)
               ? NULL
               : weigh_unpack_in(a, &hlod__v1__executable_info__descriptor, rec);
    st_drop(st);
    return *out ? ST_OK
                : st_because(ST_NOT_FOUND, EXECUTABLE_NOT_FOUND, "no executable %s here",
                             digest_to_hex(key).z);
}

// ---- out

status_t exchange_give(const struct exchange *x, struct arena *a, struct digest key,
                       Hlod__V1__ExecutableBundle **out) {
    Hlod__V1__ExecutableBundle *b = message_new(a, &hlod__v1__executable_bundle__descriptor);
    Hlod__V1__ExecutableInfo *kept;
    struct span bytes;
    RETURN_IF_ERR(read_record(x, a, key, &kept));
    RETURN_IF_ERR(store_read(x->store, STORE_EXECUTABLE, key, a, &bytes));
    b->info = bundle_record(a, kept);
    b->artifact = (ProtobufCBinaryData){bytes.n, (uint8_t *)(uintptr_t)bytes.p};
    b->artifact_digest = arena_strdup(a, digest_to_hex(sha256_of(bytes.p, bytes.n)).z);
    if (!kept->unsigned_import) trust_sign(x->trust, a, b);
    if (kept->ed25519.len && !b->ed25519.len) {
        b->ed25519 = kept->ed25519;
        b->signer = kept->signed_by;
    }
    *out = b;
    return ST_OK;
}

// ---- in

MUST_CHECK static status_t refused(const char *what) {
    return st_because(ST_INVALID_ARGUMENT, IMPORT_REFUSED, "%s", what);
}
MUST_CHECK static status_t import_refused(status_t st) {
    return st_reason(st, HLOD__V1__REASON__REASON_IMPORT_REFUSED);
}
struct names { // that an executable is kept under
    struct digest key, program;
};
static status_t check_name(struct arena *a, const struct arrival *how,
                           const Hlod__V1__ExecutableInfo *info, struct names *out) {
    struct key_parts parts = key_parts_of(a, info);
    struct digest said;
    if (!digest_parse(str_of(info->digest), &said) || !digest_eq(key_of(&parts), said))
        return refused("the digest does not follow from program, shapes, options, target and "
                       "compiler: the record was changed");
    if (how->wanted && !digest_eq(said, *how->wanted))
        return refused("it is another executable than was asked for");
    *out = (struct names){said, parts.program};
    return ST_OK;
}
static status_t check(const struct exchange *x, struct arena *a, const struct arrival *how,
                      const Hlod__V1__ExecutableBundle *b, struct names *out, const char **out_by) {
    struct span bytes = {b->artifact.data, b->artifact.len};
    struct digest said;
    if (!b->info || !bytes.n || !b->info->signature) return refused("the bundle is not whole");
    RETURN_IF_ERR(check_name(a, how, b->info, out));
    if (!digest_parse(str_of(b->artifact_digest), &said) ||
        !digest_eq(said, sha256_of(bytes.p, bytes.n)))
        return refused("the artefact does not have its digest");
    RETURN_IF_ERR(import_refused(trust_check(x->trust, b, out_by)));
    return import_refused(artifact_check(bytes, b->info));
}

// What travels says nothing of these; they are this daemon's own.
static Hlod__V1__ExecutableInfo *complete(struct arena *a, const struct arrival *how,
                                          const char *by, bool asked,
                                          const Hlod__V1__ExecutableBundle *b) {
    Hlod__V1__ExecutableInfo *info = bundle_record(a, b->info);
    info->origin = arena_strdup(a, how->from);
    info->signed_by = arena_strdup(a, by);
    info->unsigned_import = !asked;
    if (*by && strcmp(by, "hmac") != 0) info->ed25519 = b->ed25519;
    if (digest_is_zero(how->source)) return info;
    info->source_digest = arena_strdup(a, digest_to_hex(how->source).z);
    info->weights_digest = arena_strdup(a, digest_to_hex(how->weights).z);
    info->weights_bytes = how->weights_bytes;
    return info;
}
static status_t keep(const struct exchange *x, const struct arrival *how, struct names as,
                     const Hlod__V1__ExecutableInfo *info, struct span artifact,
                     bool *out_existed) {
    struct arena a = {0};
    Hlod__V1__ExecutableInfo *old;
    status_t st = ST_OK;
    if (how->owner) // the caller's, but with no model of it: whose that may be is another matter
        st = owner_write(x->journal, how->owner, as.key, (struct digest){0});
    if (!st) st = read_record(x, &a, as.key, &old);
    bool absent = st_code(st) == ST_NOT_FOUND;
    if (out_existed) *out_existed = !st;
    arena_done(&a);
    if (!absent) return st;
    st_drop(st);
    RETURN_IF_ERR(store_put(x->store, STORE_EXECUTABLE, as.key, artifact.p, artifact.n, true));
    return journal_put_message(x->journal, JOURNAL_EXECUTABLE, as.key, as.program, &info->base);
}
status_t exchange_take(const struct exchange *x, struct arena *a, const struct arrival *how,
                       const Hlod__V1__ExecutableBundle *b, bool *out_existed,
                       Hlod__V1__ExecutableInfo **out) {
    struct names as;
    const char *by;
    RETURN_IF_ERR(check(x, a, how, b, &as, &by));
    Hlod__V1__ExecutableInfo *info = complete(a, how, by, trust_asks(x->trust), b);
    struct span artifact = {b->artifact.data, b->artifact.len};
    RETURN_IF_ERR(error_of_store(keep(x, how, as, info, artifact, out_existed)));
    *out = info;
    return ST_OK;
}

status_t exchange_take_own(const struct exchange *x, const struct arrival *how,
                           const Hlod__V1__ExecutableBundle *b, Hlod__V1__ExecutableInfo **out) {
    struct arena a = {0};
    Hlod__V1__ExecutableInfo *info;
    status_t st = exchange_take(x, &a, how, b, NULL, &info);
    if (!st) {
        struct span rec = message_pack(&a, &info->base);
        *out = weigh_unpack_or_null(&hlod__v1__executable_info__descriptor, rec);
        if (!*out) st = st_internal("a record that was packed cannot be read");
    }
    arena_done(&a);
    return st;
}
status_t exchange_take_bytes(const struct exchange *x, const struct arrival *how, struct span bytes,
                             Hlod__V1__ExecutableInfo **out) {
    ProtobufCMessage *m = NULL;
    status_t st = weigh_unpack(&hlod__v1__executable_bundle__descriptor, bytes, &m);
    if (st) {
        st_drop(st);
        return refused("it is no bundle");
    }
    st = exchange_take_own(x, how, (const Hlod__V1__ExecutableBundle *)m, out);
    protobuf_c_message_free_unpacked(m, NULL);
    return st;
}
