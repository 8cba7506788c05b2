// SPDX-License-Identifier: Apache-2.0
// bundle: an executable that travels (hlod.v1.ExecutableBundle), and what is signed of it: its
// record, without what only the daemon that has it knows or whose model it was first made of, and
// the artefact. A record that one build packed is packed alike by the same build, and others cannot
// exchange anyway. Thread: any.
#pragma once
#include "base/arena.h"
#include "base/hash.h"
#include "proto/hlod.pb-c.h"

struct sign_private;
// The record as it travels: a copy that borrows from x. In a.
Hlod__V1__ExecutableInfo *bundle_record(struct arena *a, const Hlod__V1__ExecutableInfo *x);
// Of a bundle that has info and artifact: what a signature is over (for key: its HMAC; NULL: its
// digest).
struct digest bundle_digest(const Hlod__V1__ExecutableBundle *b, const struct str *key);
// Puts the Ed25519 signature of k into b; in a.
void bundle_sign(struct arena *a, const struct sign_private *k, Hlod__V1__ExecutableBundle *b);
