// SPDX-License-Identifier: Apache-2.0
// safetensors: named tensors in one file, which PyTorch, JAX and others read without code: 8 bytes
// of length, a JSON header, the tensors' bytes (github.com/huggingface/safetensors, "Format").
// Files are foreign input: header, shapes and offsets are checked before use. Thread: any; no
// state.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"
#include "base/str.h"

enum { SAFETENSORS_MAX_RANK = 16, SAFETENSORS_MAX_HEADER = 16 << 20 };
struct safetensor {
    const char *name;
    const char *dtype; // HLO's name: "f32", "bf16", "s64", "pred", ...
    int32_t rank;
    const int64_t *dims;
    struct span data; // row-major, little-endian; borrowed from the file
};
// The tensors of a file's bytes, in the order of their bytes; names and dims in `a`. metadata (may
// be NULL): pairs of texts, key and value, and a NULL. INVALID_ARGUMENT says what is wrong and
// where: a header that is none or longer than the file, a name twice, an element type that is not
// known, a size that the offsets do not give, holes or overlaps.
status_t safetensors_read(struct arena *a, struct span file, struct safetensor **out, size_t *n,
                          const char *const **metadata) MUST_CHECK;
// Writes them to fd, in the order given, the data aligned to 8 bytes; metadata as above, or NULL.
// INVALID_ARGUMENT: an element type that the format has not.
status_t safetensors_write(int fd, const char *path, const struct safetensor *v, size_t n,
                           const char *const *metadata) MUST_CHECK;
// What stands before the tensors' data, which follow one behind the other: length and header.
status_t safetensors_head(struct strbuf *b, const struct safetensor *v, size_t n,
                          const char *const *metadata) MUST_CHECK;
