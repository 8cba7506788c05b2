// SPDX-License-Identifier: Apache-2.0
// hlod.h: the C client of hlod, a daemon that compiles model graphs into whole-program executables
// and runs them. A `struct hlod` is one connection: hlod_open makes it, hlod_close ends it. What a
// call gives is one object with all it points to, ended by its _free. Every function that may fail
// returns an enum hlod_code; hlod_error has the reason in words until the next call.
//
// Thread: one connection, one thread at a time; any number of connections. Link with
// `pkg-config --cflags --libs hlod`. Example (compiled and run by the tests):
//
//     #include <hlod.h>
//     #include <stdio.h>
//
//     int main(int argc, char **argv) {
//         struct hlod *h;
//         struct hlod_executable *e;
//         struct hlod_result *r;
//         const float x[4] = {1, 2, 3, 4};
//         const int64_t dims[2] = {1, 4};
//         const struct hlod_tensor in = {"x", "f32", 2, dims, x, sizeof x};
//         const struct hlod_shape shape = {"x", 2, dims};
//         struct hlod_compile_options o = HLOD_COMPILE_OPTIONS;
//         o.shapes = &shape;
//         o.n_shapes = 1;
//         if (argc < 2 || hlod_open(NULL, &h)) return 2; // HLOD_ADDR, or 127.0.0.1:8000
//         if (hlod_compile_file(h, argv[1], &o, &e) || hlod_run(h, e->digest, &in, 1, NULL, &r)) {
//             fprintf(stderr, "%s\n", hlod_error(h)->message);
//             return 1;
//         }
//         printf("%s: %g\n", r->outputs[0].name, ((const float *)r->outputs[0].data)[0]);
//         hlod_result_free(r);
//         hlod_executable_free(e);
//         hlod_close(h);
//         return 0;
//     }
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hlod_events.h"

#if defined(__cplusplus)
extern "C" {
#endif
#if defined(__GNUC__)
#define HLOD_API __attribute__((visibility("default")))
#else
#define HLOD_API
#endif

// ---- connection and errors

// The canonical codes; docs/errors.md says which to try again.
enum hlod_code {
    HLOD_OK = 0,
    HLOD_CANCELLED = 1,
    HLOD_UNKNOWN = 2,
    HLOD_INVALID_ARGUMENT = 3, // the model or the request must change
    HLOD_DEADLINE_EXCEEDED = 4,
    HLOD_NOT_FOUND = 5,
    HLOD_ALREADY_EXISTS = 6,
    HLOD_PERMISSION_DENIED = 7,
    HLOD_RESOURCE_EXHAUSTED = 8, // too much asked of it now; see retry_after_ms
    HLOD_FAILED_PRECONDITION = 9,
    HLOD_ABORTED = 10,
    HLOD_OUT_OF_RANGE = 11,
    HLOD_UNIMPLEMENTED = 12,
    HLOD_INTERNAL = 13,
    HLOD_UNAVAILABLE = 14, // not reached, or a worker died: the same request may be sent again
    HLOD_DATA_LOSS = 15,
    HLOD_UNAUTHENTICATED = 16
};
struct hlod; // a connection
struct hlod_error {
    enum hlod_code code;
    const char *reason;         // stable name of the cause ("UNSUPPORTED_OP"), "" if none
    const char *message;        // for people; may change
    const char *const *details; // further lines: all unsupported nodes, ...
    size_t n_details;
    int64_t retry_after_ms; // 0 = not said
    bool answered;          // by the server; false: found here, or the server was not reached
};
// addr    "127.0.0.1:8000", "https://host:8000", "grpc://host:8001", "grpcs://host:8001"; NULL =
//         $HLOD_ADDR, or the first. Nothing is sent yet. Credentials and CA come from HLOD_TOKEN,
//         HLOD_TOKEN_FILE, HLOD_CACERT, HLOD_CERT, HLOD_KEY
// errors  INVALID_ARGUMENT malformed address; a token that would leave the machine in the clear
HLOD_API enum hlod_code hlod_open(const char *addr, struct hlod **out);
struct hlod_security {      // begin with HLOD_SECURITY; NULL: from the environment, as above
    size_t size;            // sizeof this struct
    const char *token;      // of `hlo tokens add`
    const char *cacert;     // PEM file: CAs trusted instead of the system's; turns TLS on
    const char *cert, *key; // PEM files: the client's own certificate; turns TLS on
};
#define HLOD_SECURITY {.size = sizeof(struct hlod_security)}
// The same with credentials given here. s may be NULL.
HLOD_API enum hlod_code hlod_open_secure(const char *addr, const struct hlod_security *s,
                                         struct hlod **out);
HLOD_API void hlod_close(struct hlod *h); // NULL is fine
// Of the last call on h. Borrowed from h until the next call; never NULL.
HLOD_API const struct hlod_error *hlod_error(const struct hlod *h);
HLOD_API const char *hlod_code_name(enum hlod_code code); // "INVALID_ARGUMENT"
struct hlod_server {
    char version[32], api[16]; // "0.1.0", "hlod.v1"
    bool ready;                // a compile worker and a device worker are up
};
HLOD_API enum hlod_code hlod_server(struct hlod *h, struct hlod_server *out);

// ---- compile

struct hlod_shape {
    const char *input; // name
    int32_t rank;
    const int64_t *dims;
};
struct hlod_compile_options {        // begin with HLOD_COMPILE_OPTIONS
    size_t size;                     // sizeof this struct
    const char *format; // "onnx", "stablehlo", "stablehlo-bytecode", "jax-export", "hlo-text",
                        // "hlo-proto"; NULL = by the bytes
    const char *device;              // kind ("cpu") or name ("cpu:0"); NULL = the first
    const char *precision;           // NULL, "strict" or "fast"
    const struct hlod_shape *shapes; // of the inputs that have symbolic dimensions
    size_t n_shapes;
    uint32_t timeout_ms; // 0 = the server's default
    hlod_event_fn on_event;
    void *ctx;                // of the functions here
    const char *target;       // instead of a device: "tpu:v5e:2x2", "gpu:h100" (docs/tpu.md)
    int32_t replicas;         // devices that run it together; 0 = 1
    int64_t max_instructions; // the most that the executable may need, 0 = any: of the entry
    int64_t max_bytes;        // computation; of the executable;
    int64_t max_hbm;          // of the device's memory
    hlod_json_fn on_json;     // each event whole, result, error and done too; besides on_event
    void (*on_progress)(void *ctx, int64_t sent, int64_t total); // bytes of the model, or NULL
};
#define HLOD_COMPILE_OPTIONS {.size = sizeof(struct hlod_compile_options)}
struct hlod_spec { // an input or output
    const char *name, *dtype;
    int32_t rank;
    const int64_t *dims; // -1 = symbolic
};
struct hlod_pass {
    const char *name;
    double ms;
    int64_t before, after; // instructions
};
struct hlod_type_count {
    const char *dtype;
    int64_t count;
};
struct hlod_executable {
    const char *digest;                       // its name: 64 hex digits
    const char *model;                        // digest of the model it was compiled from
    bool cache_hit;                           // nothing was compiled
    const struct hlod_spec *inputs, *outputs; // shapes bound, names of the model
    size_t n_inputs, n_outputs;
    int64_t entry_before, total_before; // instructions before optimisation
    int64_t entry_after, total_after, fusions;
    int64_t peak_bytes;    // working memory of a run
    int64_t weights_bytes; // of the model
    double compile_ms;     // when it was compiled
    const struct hlod_pass *passes;
    size_t n_passes;
    const struct hlod_type_count *computed_in; // convolutions and dots by what they read
    size_t n_computed_in;
    const char *precision_note; // what became of a precision that the device cannot give, or ""
};
// Uploads a model, above 64 MiB as hlod_upload does, and compiles it. Neither is done twice.
// o       NULL = defaults
// out     caller frees with hlod_executable_free
// errors  INVALID_ARGUMENT model or shapes; RESOURCE_EXHAUSTED; DEADLINE_EXCEEDED; CANCELLED by
//         on_event; UNAVAILABLE
HLOD_API enum hlod_code hlod_compile(struct hlod *h, const void *model, size_t model_bytes,
                                     const struct hlod_compile_options *o,
                                     struct hlod_executable **out);
// The same, streamed from a file; data files of an ONNX model (external data) are sent with it.
// NOT_FOUND when there is none.
HLOD_API enum hlod_code hlod_compile_file(struct hlod *h, const char *path,
                                          const struct hlod_compile_options *o,
                                          struct hlod_executable **out);
// The same for a model that was uploaded before.
HLOD_API enum hlod_code hlod_compile_digest(struct hlod *h, const char *model,
                                            const struct hlod_compile_options *o,
                                            struct hlod_executable **out);
HLOD_API void hlod_executable_free(struct hlod_executable *e); // NULL is fine

// ---- run

struct hlod_tensor {
    const char *name;  // NULL = by position
    const char *dtype; // HLO's name: "f32", "s64", "pred" (one byte), "bf16", ...; "string": each
                       // element is 4 bytes of length, little-endian, and that many bytes
    int32_t rank;
    const int64_t *dims;
    const void *data; // row-major, little-endian, packed
    size_t size_bytes;
};
struct hlod_run_options {       // begin with HLOD_RUN_OPTIONS
    size_t size;                // sizeof this struct
    const char *weights;        // with an executable: digest of the model that it is run as
    const char *device;         // NULL = any
    const char *const *outputs; // names wanted; NULL = all
    size_t n_outputs;
    uint32_t timeout_ms, repeat; // repeat: so many runs, each timed (1..1000); 0 = 1
    bool profile;                // rows in the result
    bool no_compile;             // FAILED_PRECONDITION rather than compile
    hlod_event_fn on_event;
    void *ctx;
};
#define HLOD_RUN_OPTIONS {.size = sizeof(struct hlod_run_options)}
struct hlod_step { // one row of a profile
    const char *name, *op, *impl;
    double start_ms, ms;
    int64_t flops, bytes;
    const char *const *hlo, *const *nodes; // a fusion's instructions; nodes of the source model
    size_t n_hlo, n_nodes;
    double of_peak;    // the part of the time that the machine's peak would need; 0 = not known
    const char *bound; // what that peak is of: "compute", "memory"
    int32_t depth;     // 0: of main; deeper: inside the loop or call whose row covers it
    double estimate_ms; // what the cost model expects on this machine; 0 = not known
};
struct hlod_result {
    const struct hlod_tensor *outputs; // data is aligned for its type
    size_t n_outputs;
    const char *executable, *device;
    const double *run_ms; // one for each repeat
    size_t n_run_ms;
    int64_t peak_bytes, prepared_bytes; // working memory; weights resident on the device
    const struct hlod_step *profile;
    size_t n_profile;
    const struct hlod_type_count *computed_in; // as the executable's, compiled for a precision
    size_t n_computed_in;
    const char *precision_note;
};
// Runs a model (compiled first where needed, for the inputs' shapes) or an executable, by digest.
// in      [n_in] borrowed during the call, sent without a copy
// o       NULL = defaults
// out     caller frees with hlod_result_free
// errors  INVALID_ARGUMENT names, types, shapes; NOT_FOUND digest; as for hlod_compile
HLOD_API enum hlod_code hlod_run(struct hlod *h, const char *digest, const struct hlod_tensor *in,
                                 size_t n_in, const struct hlod_run_options *o,
                                 struct hlod_result **out);
HLOD_API void hlod_result_free(struct hlod_result *r); // NULL is fine

// Many calls at once: hlod_async.h; any method with JSON, inspect, devices, cache: hlod_admin.h.
// What may change: structs grow at their end (options say their size), enums gain values, functions
// are added. What may not: the meaning of a field, the order of fields, the name of a function.
#if defined(__cplusplus)
}
#endif
