// SPDX-License-Identifier: Apache-2.0
// gradient: reverse-mode derivatives of HLO, written as HLO beside it (Griewank & Walther,
// "Evaluating Derivatives", chapter 3). Every opcode's rule is a column of ops.def. The convention
// for complex values is JAX's: the derivative is the transpose of the linearised program, without
// conjugation. Where a function has a corner: equal operands of a maximum share the derivative,
// unless one of them is a constant, where the derivative is that of the constant side (relu is 0 at
// 0); elements equal to a reduction's or a scatter's maximum share it; the first of a window takes
// it; clamp lets through at its bounds; abs has 0 at 0.
#pragma once
#include "compiler/ir/build.h"

// The derivatives of sum(seeds * y) by xs, appended to b's computation, in which y and xs are; what
// lies between may be changed (calls are inlined, loops keep their states).
//   y      an array or a tuple; seeds[k] has the shape of its k-th leaf, NULL = zero
//   xs[n]  arrays or tuples, before y; grads[j] gets an array of xs[j]'s leaves: values of their
//          shapes, NULL where y does not depend on the leaf or the leaf is not of real or complex
//          numbers. In the module's arena.
// Errors are b's: UNIMPLEMENTED names the instruction whose opcode has no rule, or not for this
// form of it.
void gradient_of(struct hb *b, hv y, hv const *seeds, hv const *xs, int n, hv **grads);

// Reverse mode: module m with an entry that takes, behind m's parameters, a seed for each real or
// complex leaf of the result, and gives a flat tuple of the derivatives by each real or complex
// leaf of each parameter, in order, zeros where there is none. m is changed in place.
status_t gradient_module(struct hlo_module *m) MUST_CHECK;
// Forward mode: module m with an entry that takes, behind m's parameters, a direction for each real
// or complex leaf of each parameter, and gives a flat tuple of what the real and complex leaves of
// the result change by along them (a Jacobian-vector product). It is what reverse mode gives,
// derived by its seeds, so it has the same rules and refusals. m is changed in place.
status_t gradient_forward(struct hlo_module *m) MUST_CHECK;
