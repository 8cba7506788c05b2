// SPDX-License-Identifier: Apache-2.0
// ahead: a device begins to load what is still being compiled. When a compile that a run waits for
// sends its DRAFT, the worker where that run would be placed now is told to EXPECT it; when the
// artefact comes, it is told again, with all of it, while the artefact is stored. LOAD follows as
// ever, and finds what is begun. Nothing waits for an EXPECT, its outcome is of no interest, and
// the worker stops it for any other call; one that does not stop costs the worker its life. Thread:
// loop.
#pragma once
#include "scheduler/op/op.h"

struct aheads; // those under way
struct aheads *aheads_new(struct loop *l);
void aheads_free(struct aheads *x);     // after pool_stop; NULL is fine
bool ahead_wanted(const struct op *op); // is a DRAFT of its compile of use?
void ahead_draft(struct op *op, const struct frame *f);
void ahead_whole(struct op *op); // op->compile has come
