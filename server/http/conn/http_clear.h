// SPDX-License-Identifier: Apache-2.0
// http_clear: memset where the HTTP library clears the memory of a connection. The library does so
// behind each request, and with half of it before each reply: 144 KiB, of which a request has
// written a few. With some connections in turn that is more than the caches of a processor hold,
// and took a seventh of the daemon's time for a small request. What is zero already is only looked
// at here, not written; what comes out is the same.
#pragma once
#include <stdbool.h>

extern _Thread_local bool http_clears; // this thread is in the library
