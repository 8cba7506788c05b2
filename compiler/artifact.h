// SPDX-License-Identifier: Apache-2.0
// artifact: what the compiler says of an executable, as messages of proto/hlod.proto. Used by the
// artefact itself and by the worker's replies. Everything lies in `a` or is borrowed from the
// arguments.
#pragma once
#include "compiler/compile.h"
#include "proto/hlod.pb-c.h"

Hlod__V1__Counts *executable_counts(struct arena *a, struct hlo_counts n);
// Fills *m; its name is borrowed from s.
void pass_stat_message(Hlod__V1__PassStat *m, const struct pass_stat *s);
// [e->n_passes], names borrowed from e.
Hlod__V1__PassStat **pass_stat_messages(struct arena *a, const struct executable *e);
