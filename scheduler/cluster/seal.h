// SPDX-License-Identifier: Apache-2.0
// seal: what the nodes of a cluster that share a secret (--cluster-secret) prove by it: messages
// over NATS (proto/formats/cluster.proto), and for whom one calls another over HTTP. A message
// holds for a minute, so that one that is repeated later counts for nothing; clocks must agree to
// that. A pass holds for one process and for as long as it says: who gets to see one can call that
// node alone, as that tenant, until then, and learns nothing of the secret. Its keys may be
// replaced at any time. Thread: any.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"
#include "proto/formats/cluster.pb-c.h"

enum {
    SEAL_KEYS = 4,
    SEAL_MIN_CHARS = 32,
    SEAL_SKEW_MS = 60000,
    SEAL_PASS_MS = 30000,
    SEAL_MAX_BYTES = 512 << 10, // of a message
    SEAL_TENANT = 200,
    // What this build speaks among nodes, and the least that it works with. A new number where
    // older nodes would do something wrong; then the other one follows once they are gone.
    SEAL_PROTOCOL = 1,
    SEAL_LEAST = 0
};
#define SEAL_SCHEME "Hlod-Node" // of the Authorization header, before the pass in hex
struct seal;
// A secret a line, at least SEAL_MIN_CHARS long, `#` begins a comment: the first seals, all open,
// so that one is replaced node by node. cluster: its name, copied. Blocks.
// errors  INVALID_ARGUMENT, those of file_read_secret
status_t seal_new(const char *path, const char *cluster, struct seal **out) MUST_CHECK;
// From now on with the keys of `fresh`, which is taken.
void seal_renew(struct seal *s, struct seal *fresh);
void seal_free(struct seal *s); // NULL is fine
// at_ms and the protocol are set here. The bytes, in a.
struct span seal_message(const struct seal *s, struct arena *a, Hlod__Cluster__Body *b);
// NULL, and why, where the bytes are none of this cluster's, or of a node that speaks otherwise.
// Its beat is taken all the same (seal_fits), so that it is seen. In a.
Hlod__Cluster__Body *seal_open(const struct seal *s, struct arena *a, struct span bytes,
                               const char **out_why);
bool seal_fits(const Hlod__Cluster__Body *b); // this build and the sender's work together
// A record that is kept under a key, and is of no time. In a; false, and why, as above.
struct span seal_record(const struct seal *s, struct arena *a, const char *key, struct span bytes);
bool seal_open_record(const struct seal *s, struct arena *a, const char *key, struct span bytes,
                      struct span *out, const char **out_why);
// Who we are to the process `to`: the value of an Authorization header, in a.
const char *seal_pass(const struct seal *s, struct arena *a, const char *from, const char *to,
                      const char *tenant, unsigned scopes);
// errors  UNAUTHENTICATED: none of this cluster, for another process, or over
status_t seal_admit(const struct seal *s, struct arena *a, const char *pass, const char *self,
                    Hlod__Cluster__Pass **out) MUST_CHECK;
