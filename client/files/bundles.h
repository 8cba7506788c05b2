// SPDX-License-Identifier: Apache-2.0
// bundles: `hlo cache keygen`, `export`, `sign`, `import`: keys that sign executables, and
// executables as files, in folders laid out as a remote of the cache (hlod --cache-remote):
// DIR/executables/<aa>/<digest>. All give exit codes, already reported. Thread: one.
#pragma once
#include "client/cli/hlo.h"

struct sign_private;
int cache_keygen(struct hlo *h, const char *path); // path, and path.pub
// Bundles of the server into dir, with key's signature; key NULL: as the server gives them.
int cache_export(struct hlo *h, const char *const *digests, int n, const char *dir,
                 const char *key);
int cache_sign(struct hlo *h, const char *const *files, int n, const char *key); // in place
int cache_import(struct hlo *h, const char *const *files, int n); // gives them to the server
// A bundle's bytes with the signature of the key in that file. In h->arena.
status_t cache_signed(struct hlo *h, struct span bundle, const char *key,
                      struct span *out) MUST_CHECK;
