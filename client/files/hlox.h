// SPDX-License-Identifier: Apache-2.0
// hlox: an executable as a file: the bundle of `hlo cache push` (record and artefact, signed where
// the server has a cache key) and the model it was compiled from, so that it runs where executables
// of others are taken and is compiled again where they are not.
//
//   "hlox 1\n"  JSON on one line {query, target, executable, bundleBytes, bundleSha256, modelBytes}
//   "\n"  bundle (protobuf ExecutableBundle)  model
//
// The file is outside input: sizes are checked against its length, the bundle against its digest;
// what is in the bundle the server checks. Thread: one.
#pragma once
#include "client/cli/hlo.h"

struct hlox {
    const char *query;      // of the compile that made it, without the model
    const char *executable; // its digest
    struct span bundle, model;
};
bool hlox_sniff(const char *path);
// Maps the file; spans point into it, texts lie in `a`. INVALID_ARGUMENT, DATA_LOSS.
status_t hlox_open(struct arena *a, const char *path, struct hlox *out) MUST_CHECK;
// The executable's bundle, freed with hlod_blob_free. An exit code.
struct hlod_blob;
int hlox_export(struct hlo *h, const char *digest, struct hlod_blob **out);
// Fetches the executable's bundle and writes the file; `model`: the source's parts. An exit code.
int hlox_write(struct hlo *h, const char *path, const char *digest, const char *query,
               const char *target, const struct span *model, size_t n_model);
// Gives the bundle to the server. Where it does not take it, says why and that the model inside is
// compiled instead: 0 then too. Else an exit code.
int hlox_import(struct hlo *h, const struct hlox *x);
