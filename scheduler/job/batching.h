// SPDX-License-Identifier: Apache-2.0
// batching: how runs of a named model are joined (batch.h), as its name says it. Pure.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct batching {     // how runs of a model are joined
    int32_t max;      // rows of one batch; 0 and 1 = they are not
    int32_t delay_us; // the first waits so long for others
    bool unchecked;   // the compiler need not show that rows are independent
};
enum { BATCH_MAX = 1024, BATCH_MAX_DELAY_US = 10000000 };
int64_t batch_bucket(int64_t rows, int64_t max); // the size that runs so many
