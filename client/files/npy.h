// SPDX-License-Identifier: Apache-2.0
// npy: NumPy's .npy and .npz files, read and written. Versions 1.0 to 3.0 of the format
// (numpy.lib.format), C and Fortran order, little-endian numeric and bool dtypes, texts (U and S).
// .npz members may
// be stored or deflated; written ones are stored. Files are foreign input: sizes are checked before
// memory is taken.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"

enum { NPY_MAX_RANK = 16 };
struct npy {
    const char *name; // member name without ".npy" (npz), or NULL
    char descr[12];   // "<f4", "|b1", ...; texts: NPY_TEXT (client/files/npy_text.h)
    const char *type; // where NumPy has none (descr "<V2", "|V1", as ml_dtypes writes it): ours, or
                      // NULL while it is not known
    int rank;
    int64_t dims[NPY_MAX_RANK];
    void *data; // row-major, arena
    size_t size_bytes;
};
// Parses one .npy from memory. INVALID_ARGUMENT says what is wrong; `what` names it in messages.
status_t npy_parse(struct arena *a, struct span bytes, const char *what,
                   struct npy *out) MUST_CHECK;
// A .npy file (one array) or a .npz file (all members) in memory; `what` names it in messages.
status_t npy_read(struct arena *a, struct span bytes, const char *what, struct npy **out,
                  int *n_out) MUST_CHECK;
status_t npy_write_file(const char *path, const struct npy *x) MUST_CHECK;
status_t npz_write_file(const char *path, const struct npy *x,
                        int n) MUST_CHECK; // names must be set; below 4 GiB in all
int npy_item_size(const char *descr);      // 0 = not a dtype we take
