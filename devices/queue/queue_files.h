// SPDX-License-Identifier: Apache-2.0
// queue_files: where drivers keep what they compiled. Thread: one at a time, before others start.
#pragma once

// Drivers keep it in files, by default of the user. Two processes in one folder were seen to spoil
// it for each other, so the daemon gives each worker its own (HLOD_DEVICE_CACHE): its folder `name`
// is made and is the value of the environment's `variable`, where that is not set. Nothing without
// HLOD_DEVICE_CACHE, or where no folder can be made.
void queue_keep_files(const char *name, const char *variable);
