// SPDX-License-Identifier: Apache-2.0
// exchange: executables out of this daemon and into it, by whatever way: a user's push or pull, a
// peer, a remote of the cache. What comes in is object code; all that can be checked is, here, in
// one place: it is whole; its key follows from what its record says, and is the one that was asked
// for; the artefact has its digest, and says the same as the record; who vouches for it. One that
// was made here is never replaced. Blocking. Thread: any; call it on the pool.
#pragma once
#include "base/hash.h"
#include "base/status.h"
#include "proto/hlod.pb-c.h"

struct arena;
struct journal;
struct store;
struct trust;
struct exchange {
    struct store *store;
    struct journal *journal;
    const struct trust *trust;
};
// The executable as a bundle, signed unless that would vouch for what is not known; one that came
// with a signature keeps it. In a.
// errors  NOT_FOUND; DATA_LOSS: the stored one was damaged, and is in quarantine
status_t exchange_give(const struct exchange *x, struct arena *a, struct digest key,
                       Hlod__V1__ExecutableBundle **out) MUST_CHECK;

struct arrival {
    const char *from;              // "import", or a remote's name
    const struct digest *wanted;   // the key that was asked for; NULL: any that fits
    const char *owner;             // whose it will be; NULL: nobody's
    struct digest source, weights; // of the model that it is wanted for, zero: none
    int64_t weights_bytes;
};
// Checks b and keeps it. *out: the record that is kept, in a, borrowing from b.
// out_existed   one was there, which stays; NULL: not asked
// errors  INVALID_ARGUMENT, PERMISSION_DENIED (signature), with REASON_IMPORT_REFUSED: it is
//         refused; others are ours: no room, the disk
status_t exchange_take(const struct exchange *x, struct arena *a, const struct arrival *how,
                       const Hlod__V1__ExecutableBundle *b, bool *out_existed,
                       Hlod__V1__ExecutableInfo **out) MUST_CHECK;
// The same; *out: the record as a message of the caller's (protobuf_c_message_free_unpacked).
status_t exchange_take_own(const struct exchange *x, const struct arrival *how,
                           const Hlod__V1__ExecutableBundle *b,
                           Hlod__V1__ExecutableInfo **out) MUST_CHECK;
// And of the bundle's bytes.
status_t exchange_take_bytes(const struct exchange *x, const struct arrival *how, struct span bytes,
                             Hlod__V1__ExecutableInfo **out) MUST_CHECK;
