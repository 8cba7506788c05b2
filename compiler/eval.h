// SPDX-License-Identifier: Apache-2.0
// eval: the reference evaluator, which is the specification of every op. Slow and obvious; constant
// folding uses it, every device is tested against it, and it is the last entry of the CPU's
// implementation list. Budgets bound memory, steps and nesting. Thread: any, one hlo_eval per
// thread.
#pragma once
#include "compiler/ir/op.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
#define OP(e, ...)                                                                                 \
    status_t hlo_eval_##e(struct hlo_eval *ev, const struct hlo_instr *i,                          \
                          struct literal *const *in, struct literal **out) MUST_CHECK;
#include "compiler/ir/ops.def"
#undef OP
#pragma GCC diagnostic pop

// Can this instruction be evaluated at all? UNIMPLEMENTED says why not: its op needs a host or
// other devices, or it is a custom-call of an unknown target. Types and shapes are not looked at.
status_t hlo_eval_supports(const struct hlo_instr *i) MUST_CHECK; // ops/custom_call.c
// The same of a custom-call, without its name.
status_t hlo_eval_supports_call(const struct hlo_instr *i) MUST_CHECK;
// Is it a call that says of its one operand where or how it lies, and gives it back?
bool hlo_eval_gives_operand(struct str custom_call_target);
bool hlo_eval_calls_python(const struct hlo_instr *i); // a custom-call
// Is it its operand, as it stands? A custom-call that says how a value is spread over devices.
bool hlo_eval_is_operand(const struct hlo_instr *i);
// What a run is told that comes to an instruction which ends it; ST_OK of any other.
status_t hlo_eval_ends_run(const struct hlo_instr *i) MUST_CHECK;
// Appends one that ends a run with `why`, instead of a value of shape s.
status_t hlo_end_run(struct hlo_computation *c, const struct shape *s, const char *why,
                     struct hlo_instr **out) MUST_CHECK;
status_t hlo_eval_has_rule(const struct hlo_instr *i) MUST_CHECK; // whatever a custom-call's target
#define HLO_EVAL_FIRST_STATE 0x853c49e6748fea9bu                  // of random numbers
struct hlo_eval hlo_eval_begin(struct arena *a); // default budgets: 16 GiB, 1e9 steps
// For what a compile computes itself: EVAL_COMPILE_BYTES, and so many operations, of the
// EVAL_COMPILE_WORK that one compile has for all; what goes beyond is left to the run. cancel may
// be NULL.
enum { EVAL_COMPILE_BYTES = 256 << 20, EVAL_COMPILE_WORK = 1 << 26 };
struct hlo_eval hlo_eval_at_compile(struct arena *a, int64_t work, const _Atomic bool *cancel);
// A zeroed literal of i's shape within the budget.
status_t hlo_eval_alloc(struct hlo_eval *ev, const struct hlo_instr *i,
                        struct literal **out) MUST_CHECK;
// The same for an op with n results: *out is the literal or the tuple of them, (*out_each)[k]
// result k.
status_t hlo_eval_alloc_each(struct hlo_eval *ev, const struct hlo_instr *i, int n,
                             struct literal ***out_each, struct literal **out) MUST_CHECK;
status_t hlo_eval_charge(struct hlo_eval *ev, const struct shape *s) MUST_CHECK;
// Before that many operations; for rules whose work their shapes do not tell. CANCELLED when
// ev->cancel is set.
status_t hlo_eval_spend(struct hlo_eval *ev, int64_t work) MUST_CHECK;
// args[k] = parameter k. Shapes are checked. UNIMPLEMENTED names the instruction whose op has no
// rule; CANCELLED when ev->cancel is set.
status_t hlo_eval_computation(struct hlo_eval *ev, const struct hlo_computation *c,
                              struct literal *const *args, int n, struct literal **out) MUST_CHECK;
status_t hlo_eval_module(struct hlo_eval *ev, const struct hlo_module *m,
                         struct literal *const *args, int n, struct literal **out) MUST_CHECK;
// The value of one instruction whose operands reach back to constants only (INTERNAL if they reach
// a parameter).
status_t hlo_eval_value(struct hlo_eval *ev, const struct hlo_instr *i,
                        struct literal **out) MUST_CHECK;
// A scalar computation prepared for many calls (reducers, comparators, map): no allocation that
// grows with the number of calls. INVALID_ARGUMENT unless c takes n_args scalars and gives
// n_results (one: a scalar or a tuple of one; more: a tuple).
struct hlo_fn;
status_t hlo_fn_open(struct hlo_eval *ev, const struct hlo_computation *c, int n_args,
                     int n_results, struct hlo_fn **out) MUST_CHECK;
struct literal *hlo_fn_arg(struct hlo_fn *f, int k); // scalar to be set before the call
status_t hlo_fn_call(struct hlo_fn *f,
                     struct literal **out) MUST_CHECK; // result valid until the next call
// A row of calls: acc[to] = f(acc[to], in[from]), from one on, to `step` on (0 or 1), n times. *did
// false: f is not an operation that has a row, nothing is done.
status_t hlo_fn_row(struct hlo_fn *f, struct literal *acc, int64_t to, int64_t step,
                    const struct literal *in, int64_t from, int64_t n, bool *did) MUST_CHECK;
void hlo_fn_close(struct hlo_fn *f); // NULL is fine
