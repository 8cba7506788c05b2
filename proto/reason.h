// SPDX-License-Identifier: Apache-2.0
// reason: a status with its stable reason, by the reason's name in hlod.proto:
//     return st_because(ST_NOT_FOUND, JOB_NOT_FOUND, "no job '%.80s' here", id);
#pragma once
#include "base/status.h"
#include "proto/hlod.pb-c.h"

#define st_because(code, reason, ...)                                                              \
    st_reason(st_new((code), __VA_ARGS__), HLOD__V1__REASON__REASON_##reason)
