// SPDX-License-Identifier: Apache-2.0
// policy: what a target's kernels may be made of (struct kernel_policy), and the check that a
// kernel keeps to it. The driver asks for the form of loops, kmath for functions; what is left when
// a kernel is built is looked at value by value, so that nothing gets through unseen.
#pragma once
#include "compiler/kernel/kir.h"
#include "compiler/target.h"

extern const struct kernel_policy policy_cpu;
// t's; of a CPU where t or its policy is NULL.
const struct kernel_policy *policy_of(const struct target *t);
// Is a unit of i's kernel one element?
bool policy_elements(const struct kernel_policy *p, const struct hlo_instr *i);
// NULL: f keeps to p. Else what it has that p does not allow: static text, "a value of f64".
const char *policy_lacks(const struct kernel_policy *p, const struct kir_fn *f);
