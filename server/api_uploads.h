// SPDX-License-Identifier: Apache-2.0
// api_uploads: uploads in pieces. Each is a file in the store's tmp folder until it is finished, so
// that none outlives the daemon. Thread: loop.
#pragma once
#include <stdint.h>

struct uploads;
struct uploads *uploads_new(void);
void uploads_free(struct uploads *all); // removes their files; NULL is fine. Before the loop's end
