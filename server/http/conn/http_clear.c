// SPDX-License-Identifier: Apache-2.0
// The function below stands before libc's in every library of the process (as server/reserve.c's
// functions do), but where a sanitizer has one of its own.
#include "server/http/conn/http_clear.h"

#include <dlfcn.h>
#include <string.h>

_Thread_local bool http_clears;

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
static void *(*libc_memset)(void *p, int c, size_t n);
__attribute__((constructor)) static void find_memset(void) {
    *(void **)&libc_memset = dlsym(RTLD_NEXT, "memset");
}

static void clear(char *p, size_t n) {
    enum { PIECE = 4096 };
    static const char zeros[PIECE];
    for (size_t some; n; p += some, n -= some) {
        some = n < PIECE ? n : PIECE;
        if (memcmp(p, zeros, some) != 0) libc_memset(p, 0, some);
    }
}

__attribute__((visibility("default"))) void *memset(void *p, int c, size_t n) {
    enum { LARGE = 16 << 10 };
    if (http_clears && !c && n >= LARGE && libc_memset)
        clear(p, n);
    else if (libc_memset)
        libc_memset(p, c, n);
    else // while the process starts; volatile, or the compiler calls memset for it
        for (volatile char *at = p; n; n--)
            *at++ = (char)c;
    return p;
}
#endif
