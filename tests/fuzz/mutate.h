// SPDX-License-Identifier: Apache-2.0
// mutate: what a worker gone wrong may say, at random by a seed. fake_worker sends through it when
// FAKE_WORKER_SEED is set; tests/fuzz/daemon.py looks at what the daemon makes of it.
#pragma once
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

void mutate_seed(uint64_t seed);
// Sends the frame, or something like it: with other fields, number, type or descriptors, twice, not
// at all, with a stray one behind it, or seldom what is no frame.
void mutate_send(int sock, uint32_t type, uint64_t call, const ProtobufCMessage *m, const int *fds,
                 int n_fds);
