// SPDX-License-Identifier: Apache-2.0
// backend: what codegen.c asks of a back end. codegen gathers the kernels of a module, lowers them
// to kir and decides which share a body; a back end makes what a device loads from these bodies,
// and nothing else: it knows kir (compiler/kernel/kir.h) and no operation of HLO. A row of
// backends.def names each. docs/adding/backend.md says how to add one.
#pragma once
#include "base/hash.h"
#include "base/span.h"
#include "compiler/kernel/merge.h"

// How much compiling a body is worth. Measured on kernels of some 1 us (a text model of 95 such):
// EFFORT_LITTLE takes a quarter of the time of EFFORT_FULL and their run is no slower; it is by a
// third to a half on kernels of 100 us. EFFORT_LESS takes two thirds, and only folds over windows
// are slower (a third). EFFORT_LOOP also puts what a turn keeps in memory into registers.
enum effort { EFFORT_LITTLE, EFFORT_LESS, EFFORT_FULL, EFFORT_LOOP, EFFORTS };

// A body: a function of its own. It is a kernel, which several steps may call, or a loop.
struct kernel_unit {
    const struct kir_fn *fn;
    const struct merged_loop *loop; // instead of fn; or NULL
    const char *symbol;
    struct digest key; // of all that its code follows from
    enum effort effort;
    int n_sizes;        // constants that it reads from its argument (kir_print_form); 0: none
    struct span direct; // its code already, by `direct`; or empty
    int64_t ns;         // set by `module`: what making it took; 0 = it was there
    int kernel;         // the first of the set that has it
};
struct backend_work {
    struct arena *a; // of the object
    const struct target *t;
    struct kernel_unit *units;
    int n;
    struct strbuf *text; // NULL, or what is made as text, appended: then every body is made anew
};
struct backend {
    const char *name;
    int max_sizes; // of a shared body; 0: bodies are not shared but by equal kernels
    bool loops;    // takes loops as one function (merge.h)
    // Optional: code of a kernel at once, without `module`; empty, with *why (static text): not
    // this one. turns: how often a run calls it, where that is known, else 1; 0: one call for all
    // runs. Any thread; may write the kernel's `emit` fields.
    struct span (*direct)(struct arena *a, const struct target *t, const struct kir_fn *f,
                          int64_t turns, const char **why);
    // Optional: the same of a loop.
    struct span (*direct_loop)(struct arena *a, const struct target *t, const struct merged_loop *l,
                               const char **why);
    // One object of all bodies, what a device of the target loads (kernel_set.object). Two threads
    // at most. Errors: UNIMPLEMENTED names what a body has and the back end lacks.
    status_t (*module)(struct backend_work *w, struct span *out);
};
#define BACKEND(name, row) extern const struct backend row;
#include "compiler/codegen/backends.def"
#undef BACKEND
const struct backend *backend_find(const char *name); // NULL: none is called so
const struct backend *backend_of(const struct target *t);
// "llvm, wasm": for messages.
const char *backend_names(void);
