// SPDX-License-Identifier: Apache-2.0
// code_cache: objects of kernels that this process compiled lately, so that what two models (or two
// shapes of one) have in common is compiled once. Keys are digests of everything that an object
// follows from: the kernel's text and what of the target changes its code. Bounded: the least
// lately used half goes when it is full. Thread: any.
#pragma once
#include "base/arena.h"
#include "base/hash.h"

// The object, copied to `a`; an empty span if there is none.
struct span code_cache_get(struct arena *a, struct digest key);
void code_cache_put(struct digest key, struct span object); // copied
