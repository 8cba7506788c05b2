// SPDX-License-Identifier: Apache-2.0
// remote_spec: the entries of --cache-remote, read. Each is an address, and words behind it:
//     http://HOST:PORT  https://HOST:PORT    a peer: another hlod
//     dns:NAME:PORT [tls]                    peers: all addresses that the name has, asked again
//     https://HOST/PATH  http://HOST/PATH    a prefix: GET and PUT of bundles
//     s3://BUCKET/PREFIX                     the same in an object store
//   words of the last two: readonly (nothing is put there), and of prefixes token=FILE (sent as a
//   bearer token), ca=FILE (PEM, whom TLS trusts)
// Addresses come from the operator, never from a request; what a key adds to one is hex digits.
// Pure. Thread: any.
#pragma once
#include "base/arena.h"
#include "base/status.h"

enum remote_kind { REMOTE_PEER, REMOTE_DNS, REMOTE_PREFIX, REMOTE_S3 };
struct remote_spec {
    enum remote_kind kind;
    const char *name; // the address, as it is shown
    bool tls;
    const char *host; // peers: without brackets
    uint16_t port;
    const char *base;       // prefixes: the URL; s3: the prefix; no slash at the end
    const char *bucket;     // s3
    const char *token, *ca; // files; NULL: none
    bool read_only;
};
// list: entries with commas between. Copied to a. INVALID_ARGUMENT names the entry.
status_t remote_specs(struct arena *a, const char *list, struct remote_spec **out,
                      size_t *out_n) MUST_CHECK;
enum { REMOTES_MAX = 64 }; // entries
