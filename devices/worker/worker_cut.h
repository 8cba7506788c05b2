// SPDX-License-Identifier: Apache-2.0
// worker_cut: a file of the store that somebody makes shorter while a call reads it through a
// mapping. Its pages are gone: the signal would end the worker and every run in it. Instead they
// read as zeros from then on, and the call that is under way fails.
#pragma once
#include <stdbool.h>

// Once, before the calls. Thread: any afterwards.
void worker_cut_watch(void);
// Did it happen since the last question?
bool worker_cut_happened(void);
