// SPDX-License-Identifier: Apache-2.0
// cpu: what the files of the CPU device share. A step of the plan is bound at load to the first
// implementation of the ordered list that accepts it (cpu_impls.c); an implementation keeps its own
// state for the step and runs it on buffers that are given at each run.
#pragma once
#include "compiler/plan/plan.h"
#include "devices/device.h"

enum { CPU_MAX_BUFS = 8192 }; // operands and results of a step
struct cpu_exe;
struct cpu_step {
    const struct plan_step *plan;
    const struct cpu_impl *impl;
    void *state;        // of the implementation
    const char *detail; // for profiles: "onednn:jit:avx512_core"
    int packed_in; // operand leaf that is read in packed form from the prepared weights, -1 = none
    int pack_slot; // where in dev_weights
    struct cpu_plan **called;      // NULL too where a loop is one function
    const struct cpu_step **views; // by operand leaf: the step whose view it reads; or NULL
    char *view;                    // cpu_view.c: where the result lies since it ran
    char *stage;                   // of a loop whose state changes places
    struct cpu_loop *loop;         // of a loop: how it runs without a profile; NULL = step by step
    int64_t flops, bytes;
    double products;    // operations of a contraction that takes fewer than its flops; 0: as many
    double estimate_ns; // by the cost model; 0 until cpu_estimate
    bool declined;      // of open
    bool begins;        // since it was opened, or a loop around it began, it has not run
    const struct exe_choice *choice; // of a tuning, that says who runs it; or NULL
    int asked;                       // so many of the list need not be asked: they do not take it
    bool alone;                      // runs on the calling thread alone, and takes always as long
    bool swallows; // of open: its library gives a number where an operand's NaN is to stay,
                   // or NaN where a number is to be
    bool looks;    // and its operands may hold one: cpu_nan.c
    uint32_t nan_leaves, nan_bound; // of these; and weights, looked at in runs that met one
    bool apart;       // touches nothing but its state and its buffers: may run while other steps do
    int beside_below; // with fewer threads it runs at the same time as the plan's ones beside it
    int64_t own_bytes, own_at; // of x->scratch: its own if it is `apart`, while it runs
};
struct cpu_plan {
    struct plan *plan;
    struct cpu_step *steps;
    int *bound;       // by parameter leaf: the entry's bound parameter that it always is, -1 = none
    const bool *kept; // of a loop's body, by parameter leaf: no turn changes it; or NULL
};

struct cpu_impl {
    const char *name;
    // Says no with a reason (static text); must not allocate.
    bool (*accepts)(const struct cpu_exe *x, const struct hlo_instr *i, const char **why);
    // May set s->declined, keeping nothing: what only making it shows. The next one is asked then.
    status_t (*open)(struct cpu_exe *x, struct cpu_step *s);
    void (*close)(struct cpu_step *s); // NULL: nothing to let go
    // bufs: operand leaves, then result leaves; behind them the memory of called plans.
    status_t (*run)(struct cpu_exe *x, struct cpu_step *s, void **bufs);
    // Weights read in a form of the implementation's own; NULL = never.
    int64_t (*pack_bytes)(const struct cpu_step *s);
    // Of several steps at once on several threads, each alone on its own; plain may lie unaligned.
    status_t (*pack)(struct cpu_exe *x, struct cpu_step *s, const void *plain, void *packed);
    // Would two steps of this implementation pack one value into the same bytes? Then they read one
    // copy. NULL = never.
    bool (*same_pack)(const struct cpu_step *a, const struct cpu_step *b);
};
extern const struct cpu_impl cpu_impl_thin, cpu_impl_thin8, cpu_impl_onednn, cpu_impl_int8,
    cpu_impl_pairs, cpu_impl_gemm, cpu_impl_sort, cpu_impl_fft, cpu_impl_update, cpu_impl_concat,
    cpu_impl_pad, cpu_impl_trees, cpu_impl_table, cpu_impl_bits, cpu_impl_attention,
    cpu_impl_kernel, cpu_impl_channels, cpu_impl_nms, cpu_impl_lapack, cpu_impl_lapack_calls,
    cpu_impl_transpose, cpu_impl_random, cpu_impl_control, cpu_impl_depthwise, cpu_impl_reference,
    cpu_impl_winograd, cpu_impl_matmul, cpu_impl_amx, cpu_impl_pointwise, cpu_impl_dim_maps;
// The ordered list; with HLOD_CPU_IMPL=NAME only control flow, that implementation and, where it
// does not accept, the reference evaluator.
const struct cpu_impl *const *cpu_impls(int *n);
const char *cpu_only_impl(void);   // HLOD_CPU_IMPL, or NULL
const char *cpu_forced_impl(void); // or NULL; by cpu_ask, or the environment
// A packed weight: the entry's bound parameter, and the first step that reads it so.
struct cpu_pack {
    struct cpu_pack *next;
    const struct cpu_step *step;
    int bound;
};
struct cpu_exe {
    struct dev_exe base;
    struct executable *exe;   // owned, where `of` is NULL
    const struct cpu_exe *of; // of a stream: whose weight sets it runs; or NULL
    struct arena arena;
    struct cpu_plan *main, *prepare;
    struct code *code, *prepare_code;
    const struct kernel_set *kernels; // of the module being bound
    struct code *binding;             // its code
    const int *bound;                 // of the plan being bound
    const bool *kept;                 // the same
    int64_t kept_bytes;               // of forms of what loops do not change, in the arena
    int in_loop;                      // loops around it: its steps find the other threads awake
    // Of the run that goes on (cpu_work.h): where main's plan lies, and what steps share.
    void *memory, *scratch;
    int64_t memory_bytes, scratch_bytes;
    void **results;            // of a run, by root leaf: where cpu_frame's are
    struct dev_buffer **ahead; // of a run, by root leaf: made for what stays; NULL between runs
    int n_packs;
    struct cpu_pack *packs, *last_pack; // that a later step may share, in order
    struct dev_stats stats;
    const struct dev_run *run;  // that goes on
    const _Atomic bool *cancel; // of the call that goes on; or NULL
    uint64_t rng_state;         // of random numbers, since the first: goes on from run to run
    bool strict, estimated;
    bool nan;          // this run has met NaN or an infinity before a step that swallows NaN
    const bool *odd;   // of its weights; NULL between runs
    bool early;        // only what needs main alone is opened
    bool finished;     // loading
    bool choices_hold; // exe's, of a tuning: they are of this list of implementations
};
struct cpu_weights; // cpu_weights.h
// What a run needs besides the plan: where parameters and results are.
struct cpu_frame {
    const void *const *params;
    char *memory;
    struct cpu_weights *weights; // or NULL
    const struct dev_run *run;   // profile; or NULL
    void *const *results; // of the entry, by root leaf: memory of its own, NULL = in the arena; or
                          // NULL
};
// A step on the buffers of a frame, whatever it is.
status_t cpu_run_step(struct cpu_exe *x, const struct cpu_plan *p, const struct cpu_frame *f,
                      struct cpu_step *s) MUST_CHECK;
// A kernel that one thread runs, as one call; code NULL: it is something else.
struct cpu_direct {
    void *code;
    const int64_t *sizes;
    int64_t extent;
    int n_bufs;
};
void cpu_direct_of(const struct cpu_step *s, struct cpu_direct *out);
// Loops of small steps (cpu_loop.c). s: a while whose called plans are bound; NULL: not such a one.
struct cpu_loop *cpu_loop_of(struct cpu_exe *x, struct cpu_step *s);
// f: params and memory of the body; out: the state, in place.
status_t cpu_loop_run(struct cpu_exe *x, const struct cpu_step *s, const struct cpu_frame *f,
                      void *const *out) MUST_CHECK;
// Of a loop's body: slices of what the loop leaves as it is are read where they lie (cpu_view.c).
void cpu_mark_views(struct cpu_exe *x, const struct cpu_plan *p);
status_t cpu_run_plan(struct cpu_exe *x, const struct cpu_plan *p,
                      const struct cpu_frame *f) MUST_CHECK;
void *cpu_address(const struct cpu_plan *p, const struct cpu_frame *f, const struct slice *s);
status_t cpu_cancelled(void);
// 64-byte aligned, in large pages where it is large; free()d. NULL: there is none.
void *cpu_memory(int64_t bytes);
// Loads exe as it is, without a device's `begin` before.
status_t cpu_load(struct device *d, struct executable *exe, const _Atomic bool *cancel,
                  struct dev_exe **out) MUST_CHECK; // takes exe, also on failure
void cpu_unload(struct dev_exe *base);
// dev_vtable's (cpu_weights.c).
status_t cpu_prepare(struct dev_exe *x, const struct span *weights, int n,
                     const _Atomic bool *cancel, struct dev_weights **out);
void cpu_release(struct dev_weights *w);
// cpu_step.c. While weights are prepared: n bytes at p were read. Where they lie in a mapped file
// their pages are given back, and read from it again if something else wants them.
void cpu_has_read(const struct cpu_exe *x, const void *p, int64_t n);
// cpu_nan.c. Which steps of p, whose called plans are bound, look at their operands; once bound.
void cpu_mark_nan(struct cpu_exe *x, struct cpu_plan *p);
// Does a step that swallows NaN read one now, or an infinity that makes one? bufs as for run.
bool cpu_meets_nan(struct cpu_exe *x, const struct cpu_step *s, void **bufs);
bool cpu_not_finite(const void *at, int64_t n); // does one of n f32 hold NaN or an infinity?
// Of values of type t; of others than f32, bf16 and f16 it may say so of numbers.
bool cpu_not_finite_of(enum dtype t, const void *at, int64_t bytes);
const struct target *cpu_target(void);
bool cpu_library_accepts(const struct target *t, const struct hlo_instr *i);
// cpu_runs.c: n runs of `run` bytes each, from and to steps of so many bytes; they do not overlap.
void cpu_copy_runs(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t run,
                   int64_t n);
void cpu_fill(char *to, const void *value, int64_t size, int64_t n); // n elements of size bytes
// The same at `runs` places, `step` bytes apart.
void cpu_fill_runs(char *to, int64_t step, const void *value, int64_t size, int64_t n,
                   int64_t runs);
bool cpu_sort_accepts(const struct hlo_instr *i);     // cpu_sort.c
bool cpu_channels_accepts(const struct hlo_instr *i); // cpu_channels.c
// cpu_depthwise.c. Of a call, in blocks of channels; of an instruction, as its values lie.
bool cpu_depthwise_takes(const struct target *t, const struct lib_call *c);
bool cpu_depthwise_accepts(const struct hlo_instr *i);
bool cpu_lapack_open(void); // once, before a worker closes files; false: it is not installed
bool cpu_lapack_accepts(const struct hlo_instr *i); // cpu_lapack.c
bool cpu_table_accepts(const struct hlo_instr *i);  // cpu_table.c
// Is it a transposition that is faster by itself than within a kernel?
bool cpu_transpose_alone(const struct hlo_instr *i); // cpu_transpose.c
// rows x columns elements of `size` bytes as columns x rows; on the calling thread, no overlap.
void cpu_transpose_matrix(int64_t size, const void *from, int64_t rows, int64_t columns, void *to);
// Code of a fusion inside of a step, or of a step; NULL: none was made.
const struct kernel_info *cpu_find_kernel(const struct cpu_exe *x, const struct hlo_instr *i);
bool cpu_attention_accepts(const struct hlo_instr *i); // cpu_onednn_attention.c
bool cpu_fft_accepts(const struct hlo_instr *i);       // cpu_fft.c
// Sizes of a dot or convolution: result[group, image, m, n], k terms each; images and taps (which
// are in k): of a convolution.
struct cpu_sizes {
    int64_t groups, m, n, k, images, taps;
};
struct cpu_sizes cpu_sizes_of(const struct hlo_instr *i);
// cpu_choice.c: do generated tiles take this contraction from what stands before them in the list?
bool cpu_tiles_better(const struct hlo_instr *i);
// Is it a dot, or a fusion around one, of many small matrices or of few terms, which kernels run?
bool cpu_small_dot(const struct hlo_instr *i);
bool cpu_complex_pays(const struct cpu_sizes *s); // a product by gemm
// Is lib_transposed(i) better by the library's primitive than as a convolution of phases?
bool cpu_transposed_better(const struct hlo_instr *i);
// Outputs of a tile a side that convolution i has by Winograd (2 or 4); 0: none, it is summed.
int cpu_winograd_tile(const struct hlo_instr *i);
// Is the 1x1 convolution i better by tiles of our own (cpu_pointwise.c) than by the library?
bool cpu_pointwise_better(const struct hlo_instr *i);
// Is convolution i of each channel alone, by a square window, better by tiles of so many results
// across (panels/cpu_taps.h) than by the library?
bool cpu_taps_better(const struct hlo_instr *i, int64_t across);
// Is convolution i of 8-bit integers better so (cpu_pairs.c) than by f32?
bool cpu_pairs_better(const struct hlo_instr *i);
// Is dot i better by panels of our own (cpu_matmul.c) than by thin or the library? Its right
// operand is a bound weight, or kept by a loop around it as it is.
bool cpu_matmul_better(const struct hlo_instr *i, bool bound, bool kept);
// Are products of bf16 better by AMX's tiles of our own (cpu_amx.c) than by the library's?
bool cpu_amx_better(void);
bool cpu_gemm_filter(
    const struct hlo_instr *i); // many taps, few channels: cpu_gemm.c's where it accepts
bool cpu_gemm_accepts(const struct hlo_instr *i); // cpu_gemm.c
bool cpu_library_runs(const struct target *t, const struct lib_call *call);
bool cpu_routine_runs(const struct target *t, const struct hlo_instr *i);
bool cpu_wants_form(const struct target *t, const struct hlo_instr *conv, enum conv_form *out_input,
                    enum conv_form *out_output);
// Is this operand a bound weight, which may be kept in a form of ours? While binding only.
bool cpu_is_bound(const struct cpu_exe *x, const struct cpu_step *s, int leaf);
void cpu_parallel(void (*fn)(void *ctx, int64_t begin, int64_t end, int thread), void *ctx,
                  int64_t extent, int64_t grain); // cpu_pool.c
bool cpu_thin8_runs(const struct lib_call *call); // such a call is one of cpu_thin8.c
bool cpu_has_int8(void); // instructions that sum products of 8-bit integers exactly
// cpu_pairs.c: such products on CPUs with AVX2 alone.
bool cpu_has_pairs(void);
bool cpu_pairs_runs(const struct lib_call *call);
bool cpu_pairs_accepts(const struct hlo_instr *i);
bool cpu_has_wide_path(void); // 512 bits in one step, not as two halves: Zen 5
bool cpu_has_bf16(void);      // products of bf16 that sum in f32
bool cpu_has_tiles(void);     // these, and of bytes, by AMX's tiles
int cpu_threads(void);
struct dev_peak cpu_peak(struct device *d); // cpu_peak.c; measured once a process
void cpu_estimate(struct cpu_exe *x);       // cpu_explain.c: each step of main, once
void cpu_explain(const struct dev_exe *base, struct strbuf *out);
void cpu_explain_costs(struct dev_exe *base, struct strbuf *out);
int cpu_use_threads(int n);  // from now on, in this thread; gives how many it was
void cpu_threads_are(int n); // in each thread that says nothing else; before any is asked

// cpu_stream.c. What follows "cpu:": 0 = by what the machine has.
struct cpu_options {
    int threads, streams;
};
status_t cpu_options_read(const char *text, struct cpu_options *out) MUST_CHECK;
// Does x, a stream, read x->of's weight sets as they are? UNIMPLEMENTED with the reason if not.
status_t cpu_stream_fits(const struct cpu_exe *x) MUST_CHECK;
