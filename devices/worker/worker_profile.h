// SPDX-License-Identifier: Apache-2.0
// worker_profile: a run's steps as the message that goes to the user: each with the instructions it
// was fused from, the nodes of the source model they came from, and how near it came to what the
// device could do. Thread: run.
#pragma once
#include "devices/device.h"
#include "proto/hlod.pb-c.h"

// with_nodes: the nodes of the model are told. Everything lies in `a`, or is borrowed from the
// executable. runs: that the rows are the median of.
Hlod__V1__Profile *worker_profile(struct arena *a, struct device *d, const struct profile *p,
                                  int runs, double total_ms, bool with_nodes);
