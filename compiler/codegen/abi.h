// SPDX-License-Identifier: Apache-2.0
// abi: the contract between generated kernels and the runtime, standalone. Its version is part of
// the cache key: change anything here, raise it.
#pragma once
#include <stdint.h>
#define HLOD_KERNEL_ABI 2
// bufs: operand leaves in order, then result leaves; 64-byte aligned except weights bound as they
// are, which are at least element-aligned. Computes units [begin, end) of the kernel's `extent`
// parallel units. Units are independent. Thread safe. scratch: `scratch_bytes` private to the
// calling thread, 64-byte aligned.
typedef void (*hlod_kernel_fn)(void *const *bufs, int64_t begin, int64_t end, void *scratch);
