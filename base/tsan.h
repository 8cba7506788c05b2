// SPDX-License-Identifier: Apache-2.0
// tsan: what one thread did before it handed a thing to another through a library that is not
// instrumented (gRPC core's queues), told to ThreadSanitizer. Nothing in other builds.
#pragma once

#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *p);
void __tsan_release(void *p);
#define tsan_release(p) __tsan_release(p) // before it is given away
#define tsan_acquire(p) __tsan_acquire(p) // after it was taken
#else
#define tsan_release(p) (void)(p)
#define tsan_acquire(p) (void)(p)
#endif
