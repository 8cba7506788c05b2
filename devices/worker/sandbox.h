// SPDX-License-Identifier: Apache-2.0
// sandbox: the system call filter of a worker (D18.10). A model that breaks into a worker finds a
// process that can compute, answer on the socket it has, and nothing else: no file, no socket, no
// program, no other process. The list of what is allowed, each with its reason, is in sandbox.c; it
// is entered once, after everything that needs files is open, and never left. A refused call gives
// EPERM, is remembered by name, and appears in the error of the request that made it.
// Thread: sandbox_enter on the only thread; sandbox_refused on any.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

// UNIMPLEMENTED where the kernel or this build (a sanitizer needs files) has no filter.
status_t sandbox_enter(void) MUST_CHECK;
// The second wall alone, where the kernel has it (Landlock, Linux 5.13): no path is opened, made or
// removed; with newer ones no port is used, no signal sent. False where it has not. Of the calling
// thread and those it starts.
bool sandbox_forget_paths(void);
// How many calls were refused so far; *out_last = the system call of the last one, static text.
int64_t sandbox_refused(const char **out_last);
