// SPDX-License-Identifier: Apache-2.0
// compile: the one door of the compiler. Program bytes, bindings, options, target -> executable;
// executable <-> artefact bytes (D4).
#pragma once
#include "compiler/batchable.h"
#include "compiler/codegen/codegen.h"
#include "compiler/frontend/frontend.h"
#include "compiler/plan/cost.h"

struct compile_options {
    enum precision precision;
    const char *disable_passes; // comma separated, "" = none
    const char *disable_rules;
    bool verify_each; // verify between passes (always on in debug builds)
    int replicas;     // devices that run it together, each on its own inputs; 0 = 1
};
struct executable;
struct pass_stat {
    const char *name;
    int64_t ns;
    int64_t instrs_before, instrs_after;
    bool changed;
    bool begins; // on_pass only, of a pass that may take long: it starts now, its end is told too
};
// Progress and cancellation during a compile; both optional. `pass` NULL when a phase is meant
// ("lower", "codegen").
struct compile_observer {
    void *ctx;
    void (*on_pass)(void *ctx, const struct pass_stat *s);
    const _Atomic bool *cancel;
    // Text of the module after each pass (inspect --pass); NULL = no dumps.
    void (*on_dump)(void *ctx, const char *pass, const struct hlo_module *m);
    // main is final, its code is about to be made (executable_pack_main); NULL = not called.
    void (*on_main)(void *ctx, struct executable *e);
};
// Who takes an instruction of main, where a tuning measured that (devices/device.h, `tune`).
struct exe_choice {
    const char *instr, *impl, *usual; // usual: who would take it otherwise
    int64_t ns, usual_ns;
};
// The result. Modules are owned; the rest lies in `arena` (owned).
struct executable {
    struct arena *arena;
    struct hlo_module *main, *prepare; // prepare may have an empty root tuple
    struct span constants;        // of an unpacked e: large literals of all its modules, in arena
    const char *main_text;        // of executable_pack_main, in arena; or NULL
    struct hlo_constants *beside; // of main_text, and of prepare's since executable_pack; owned
    struct hlo_counts before, after;   // unsplit module before; main after
    struct hlo_counts prepare_counts;
    struct pass_stat *passes;
    int32_t n_passes;
    struct kernel_set kernels, prepare_kernels;
    struct emitted emitted, emitted_prepare; // instead of kernels, where the target has a compiler
    struct hlo_counts optimized;             // of that compiler's main
    struct hlo_cost cost;                    // of main as it runs
    struct batchable batchable;              // of the whole program; not kept in the artefact
    const struct shape *results; // of main as the program gives them; passes may flatten its root
    int32_t replicas;
    int64_t memory_bytes;                         // of the target's device, 0 = not known
    int64_t compile_ns, peak_bytes, values_bytes; // peak: plan of main
    int64_t prepare_bytes, bound_bytes; // plan of prepare, its results; not kept in the artefact
    int32_t in_place;                             // results of main that lie in an operand
    const char *target_id, *options_text, *build_id;
    const char *precision_note; // what the target cannot give of the precision, or NULL; not kept
    struct signature sig; // with concrete shapes
    const struct exe_choice *choices; // executable_choose's, by name; not kept in the artefact
    int32_t n_choices;
    const char *choices_list;
};
void executable_free(struct executable *e);
status_t hlo_compile(const char *format, const struct lower_request *req,
                     const struct compile_options *opt, const struct target *t,
                     const struct compile_observer *obs, struct executable **out) MUST_CHECK;
// The same from a module (hlo-opt, hlo-run, tests). Takes m.
status_t hlo_compile_module(struct hlo_module *m, const struct compile_options *opt,
                            const struct target *t, const struct compile_observer *obs,
                            struct executable **out) MUST_CHECK;
// Canonical text of the options, as it enters the cache key.
bool precision_named(struct str name, enum precision *out); // false: none is called so
void compile_options_print(struct strbuf *b, const struct compile_options *o);
status_t compile_options_parse(struct arena *a, struct str text,
                               struct compile_options *out) MUST_CHECK;
const char *compile_build_id(void); // of this compiler binary (GNU build id note), hex
// Artefact: a protobuf message (proto/artifact.proto). Unpack checks version, build and target of
// the caller. content (may be NULL): SHA-256 over what the executable does: modules, options,
// target, code. Times and figures of the compile are left out, so a compiler that is reproducible
// gives the same again.
status_t executable_pack(const struct executable *e, struct strbuf *out,
                         struct digest *content) MUST_CHECK;
status_t executable_unpack(struct span bytes, struct executable **out) MUST_CHECK;
// From now on a load of e goes by these, which are copied, where the device's implementations are
// still those of `list`.
void executable_choose(struct executable *e, const char *list, const struct exe_choice *v, int n);
const struct exe_choice *executable_choice(const struct executable *e, const char *instr); // NULL
// A draft: an artefact with main alone, of an e that has no more yet. Unpacked, e->prepare is NULL.
status_t executable_pack_main(struct executable *e, struct strbuf *out) MUST_CHECK;
status_t executable_unpack_main(struct span bytes, struct executable **out) MUST_CHECK;
// e was unpacked from this draft: what it lacks comes from the artefact. *out_same: false where
// that has another main, target or options; then e is as it was. After an error it is of no use.
status_t executable_complete(struct executable *e, struct span draft, struct span bytes,
                             bool *out_same) MUST_CHECK;
