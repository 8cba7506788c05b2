// SPDX-License-Identifier: Apache-2.0
// abi: the contract between generated kernels and the runtime, standalone. Its version is part of
// the cache key: change anything here, raise it.
#pragma once
#include <stdint.h>
#define HLOD_KERNEL_ABI      6
#define HLOD_QUOTE_(n)       #n
#define HLOD_QUOTE(n)        HLOD_QUOTE_(n)
#define HLOD_KERNEL_ABI_TEXT HLOD_QUOTE(HLOD_KERNEL_ABI) // as names of targets have it
// A kernel computes units [begin, end) of its `extent` parallel units. Units are independent.
// Thread safe. Its buffers are operand leaves in order, then result leaves; 64-byte aligned except
// weights bound as they are, which are at least element-aligned. scratch: `scratch_bytes` private
// to the calling thread, 64-byte aligned. sizes: what this kernel gives to a body that several
// share, NULL where there is none. Up to HLOD_KERNEL_DIRECT buffers come as arguments of their
// own, which cannot alias, so that no second function must be compiled; more come as an array.
// A scatter that plan_updates_alone (plan/in_place.h) is about finds its operands in its results.
enum { HLOD_KERNEL_DIRECT = 8 };
// A loop that is one function is called once, as of an array: the leaves of its state, which begin
// as the first turn's and end as the result; its working memory, 64-byte aligned, of sizes[0]
// bytes; a byte that is not 0 when it is to stop; where it leaves an outcome.
enum { HLOD_LOOP_BUFFERS = 3 };
struct hlod_loop_outcome {
    int64_t work;    // operations that all turns took, an estimate
    int64_t stopped; // at the byte's word; the state is of no use
};
static inline void hlod_loop_call(void *code, void *const *b, void *scratch) {
    typedef void *p;
    union {
        void *code;
        void (*loop)(void *const *, int64_t, int64_t, p, const int64_t *);
    } f = {.code = code};
    f.loop(b, 0, 1, scratch, 0);
}

// code: the address of a kernel with n buffers.
static inline void hlod_kernel_call(void *code, int n, void *const *b, int64_t begin, int64_t end,
                                    void *scratch, const int64_t *sizes) {
    typedef void *p;
    typedef const int64_t *s;
    typedef int64_t i;
    union {
        void *code;
        void (*many)(void *const *, i, i, p, s);
        void (*of1)(p, i, i, p, s);
        void (*of2)(p, p, i, i, p, s);
        void (*of3)(p, p, p, i, i, p, s);
        void (*of4)(p, p, p, p, i, i, p, s);
        void (*of5)(p, p, p, p, p, i, i, p, s);
        void (*of6)(p, p, p, p, p, p, i, i, p, s);
        void (*of7)(p, p, p, p, p, p, p, i, i, p, s);
        void (*of8)(p, p, p, p, p, p, p, p, i, i, p, s);
    } f = {.code = code};

    switch (n) {
    case 1:
        f.of1(b[0], begin, end, scratch, sizes);
        break;
    case 2:
        f.of2(b[0], b[1], begin, end, scratch, sizes);
        break;
    case 3:
        f.of3(b[0], b[1], b[2], begin, end, scratch, sizes);
        break;
    case 4:
        f.of4(b[0], b[1], b[2], b[3], begin, end, scratch, sizes);
        break;
    case 5:
        f.of5(b[0], b[1], b[2], b[3], b[4], begin, end, scratch, sizes);
        break;
    case 6:
        f.of6(b[0], b[1], b[2], b[3], b[4], b[5], begin, end, scratch, sizes);
        break;
    case 7:
        f.of7(b[0], b[1], b[2], b[3], b[4], b[5], b[6], begin, end, scratch, sizes);
        break;
    case 8:
        f.of8(b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], begin, end, scratch, sizes);
        break;
    default:
        f.many(b, begin, end, scratch, sizes);
    }
}
_Static_assert(HLOD_KERNEL_DIRECT == 8, "hlod_kernel_call has a case for each");
