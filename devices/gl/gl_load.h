// SPDX-License-Identifier: Apache-2.0
// gl_load: EGL's library, opened at run time, and what it gives. Thread: one at a time.
#pragma once
#include "base/status.h"
#include "devices/gl/gl_abi.h"

// file: "" = libEGL.so.1. Stays open for ever: drivers have threads. FAILED_PRECONDITION where
// there is none, or a function of gl_slots.def is not to be had from it.
status_t gl_load(const char *file, const struct gl_api **out) MUST_CHECK;
