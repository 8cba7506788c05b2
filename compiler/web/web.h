// SPDX-License-Identifier: Apache-2.0
// web: programs that run in a browser or in Node: the target that they are compiled for, and the
// files of a package: kernels as a WebAssembly module, weights in chunks, the plan as data
// (manifest.json), and the page and runtime of runtime/, which need nothing else. docs/web.md has
// the format, docs/decisions/0032 the reasons. Thread: any.
//     struct web_files files;
//     RETURN_IF_ERR(hlo_compile(format, &req, &opt, web_target_for(b), NULL, &exe));
//     RETURN_IF_ERR(web_package(a, exe, weights, n, &(struct web_options){.backend = b}, &files));
#pragma once
#include "compiler/compile.h"

// "web": kernels of WebAssembly with SIMD, one thread, no library. The same on every machine.
// What its programs compute GPUs can too.
const struct target *web_target(void);

// How a picture becomes the input of a model (client/files/image.h).
struct web_image {
    bool wanted;           // else none does
    const char *input;     // name of the input; NULL or "" = the only one
    int32_t width, height; // 0 = as the input has it
    double crop;           // of the short side, (0, 1]; 0 = none
    double mean[3], std[3];
    bool nhwc;
};
enum { WEB_MAX_LABELS = 1 << 20, WEB_MAX_LABEL = 4096 }; // lines, bytes of one; manifest.js too
// What runs kernels beside WebAssembly: nothing; a GPU, where a browser has one, by WebGPU or else
// by WebGL2; WebGPU or WebGL2 wherever it is.
enum web_backend { WEB_WASM, WEB_AUTO, WEB_WEBGPU, WEB_WEBGL, WEB_BACKENDS };
const char *web_backend_name(enum web_backend b); // "wasm", "auto", "webgpu", "webgl"
bool web_backend_of(struct str name, enum web_backend *out);
// What a package for it is compiled for: of WebAssembly alone, products of quantised values are
// those of 16-bit integers, two at a time, which GPUs do not have.
const struct target *web_target_for(enum web_backend b);
struct web_options {
    enum web_backend backend;
    enum precision precision; // that e was compiled with
    const char *name;         // of the package; "" = the module's
    bool single_file;         // one page that holds all; else a folder
    bool whole;               // results as the program leaves them: up to their bounds, sizes too
    bool tiles;               // for tests: contractions of GPUs are tiles, however small
    bool f16;                 // weights of f32 are sent as f16, where none of a tensor overflows
    const char *const *inputs, *const *outputs; // [n_inputs], [n_outputs] names by leaf; those
    int n_inputs, n_outputs;                    // that lack are the module's
    struct str labels;                          // of classes, a line each; may be empty
    struct web_image image;
};
struct web_file {
    const char *path; // relative, with '/'
    struct span bytes;
};
struct web_files {
    struct web_file *v;
    size_t n, cap;
    // What a page loads of each; of wgsl and glsl at most one.
    int64_t runtime_bytes, kernel_bytes, wgsl_bytes, glsl_bytes, plan_bytes, weight_bytes;
    // Kernels that are WebAssembly alone where a language of GPUs was asked for, and why.
    struct web_in_wasm {
        const char *language, *instr, *why; // "wgsl", "glsl", "wgsl, glsl"
    } *in_wasm;
    int n_kernels, n_in_wasm;
};
// The files of an executable that was compiled for web_target_for(), with these weights (by
// manifest entry, as dev_prepare takes them; borrowed for the call). What is made lies in a; code
// is e's. UNIMPLEMENTED lists all that no kernel computes, a line each; RESOURCE_EXHAUSTED where it
// does not fit the 4 GiB that WebAssembly has; INVALID_ARGUMENT names an option that does not fit
// the model.
status_t web_package(struct arena *a, const struct executable *e, const struct span *weights,
                     int n_weights, const struct web_options *o, const _Atomic bool *cancel,
                     struct web_files *out) MUST_CHECK;

// How many bytes of WebAssembly's memory a page will take for it. Errors as web_package's, of what
// does not depend on weights.
status_t web_memory(struct arena *a, const struct executable *e, const struct web_options *o,
                    int64_t *out_bytes) MUST_CHECK;

// A whole export: the model's bytes read, compiled and packed.
struct web_export {
    const char *format; // of frontend_ingest; NULL = look at the bytes
    struct span source;
    struct frontend_limits limits;
    const struct dim_binding *bindings; // of sizes that the model leaves open; others are assumed
    int32_t n_bindings;
    bool strict;
    const _Atomic bool *cancel; // or NULL
    // Names of inputs and outputs become the model's. INVALID_ARGUMENT for labels and pictures that
    // the runtime would refuse.
    struct web_options options;
    // What it tells: bindings and behind them those that were assumed.
    struct lower_request sizes;
};
// Errors of reading and compiling, and of web_package. All that *out has lies in a.
status_t web_export(struct arena *a, struct web_export *e, struct web_files *out) MUST_CHECK;

// web_archive.c: the files as a tar archive (ustar of POSIX.1-1988, no time, no owner) below a
// folder; the same files give the same bytes. *out_bytes of the whole. INVALID_ARGUMENT: a path or
// a size that the format has no room for.
status_t web_archive_bytes(const struct web_files *f, const char *folder,
                           int64_t *out_bytes) MUST_CHECK;
void web_archive_write(const struct web_files *f, const char *folder, uint8_t *to);
