// SPDX-License-Identifier: Apache-2.0
// store_schema: the data folder's word about its own format, so that no build reads what another
// wrote in another way. For store.c.
#pragma once
#include "base/status.h"

// FAILED_PRECONDITION: another format. What was damaged or removed is written anew, and named in
// `mended`, which stays as it is otherwise.
status_t store_schema_check(const char *dir, char mended[200]) MUST_CHECK;
