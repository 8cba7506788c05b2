// SPDX-License-Identifier: Apache-2.0
// hlod_admin.h: looking into a daemon: any method with JSON, stages of an executable, devices, the
// cache. The same connections, ownership, errors and threads as hlod.h.
#pragma once
#include "hlod.h"

#if defined(__cplusplus)
extern "C" {
#endif

// Calls any method of hlod.v1 by its name, "ListModels", over either transport.
//
// request  JSON of its request message (proto/hlod.proto), names in lowerCamel or as there,
//          bytes in base64; NULL = {}
// on_event NULL, or called with each event of a method whose reply is a stream, the last ones
//          (result, error, done) too
// out      the reply as JSON, caller frees with hlod_text_free: of a unary method its message, of a
//          stream NULL. Fields at their default are left out; those that this library's version
//          does not know are too. May be NULL
// errors   UNIMPLEMENTED no method of that name; INVALID_ARGUMENT, reason BAD_JSON, names the
//          field; UNAVAILABLE a stream that broke; those of the method. After an error *out is not
//          set
HLOD_API enum hlod_code hlod_call_json(struct hlod *h, const char *method, const char *request,
                                       hlod_json_fn on_event, void *ctx, char **out);
// The same of a unary method with its messages as protobuf bytes, for what is large: an executable
// to keep or to give to another server (ExportExecutable, ImportExecutable).
// out     the reply's bytes, caller frees with hlod_blob_free (hlod_jobs.h); may be NULL
// errors  as above; INVALID_ARGUMENT the bytes are no such request, or the reply is a stream
struct hlod_blob;
HLOD_API enum hlod_code hlod_call_message(struct hlod *h, const char *method, const void *request,
                                          size_t bytes, struct hlod_blob **out);

// The text of one stage: hlo-before, stablehlo, hlo-after, prepare, kir, llvm, opencl, glsl, plan,
// explain, pass/NAME; weights are parameters in it.
// out     caller frees with hlod_text_free
// errors  NOT_FOUND executable or stage; RESOURCE_EXHAUSTED (kir, llvm, opencl and pass/ compile
//         again)
HLOD_API enum hlod_code hlod_inspect(struct hlod *h, const char *digest, const char *stage,
                                     char **out);
HLOD_API void hlod_text_free(char *text);
// Counters and histograms since the server's start, in the text form of Prometheus (/metrics).
// out     caller frees with hlod_text_free
// errors  UNIMPLEMENTED the connection is gRPC's
HLOD_API enum hlod_code hlod_metrics(struct hlod *h, char **out);

struct hlod_device {
    const char *name, *kind, *state; // "cpu:0", "cpu"; starting, ready, busy, down
    const char *target;              // part of the cache key
    int64_t memory_bytes, worker_rss_bytes, prepared_bytes;
    int32_t threads, restarts, worker_pid;
};
struct hlod_devices {
    const struct hlod_device *devices;
    size_t n_devices;
};
HLOD_API enum hlod_code hlod_devices(struct hlod *h, struct hlod_devices **out);
HLOD_API void hlod_devices_free(struct hlod_devices *d);

struct hlod_executables {
    const struct hlod_executable *executables; // most recently used first
    size_t n_executables;
};
// limit   0 = 1000
HLOD_API enum hlod_code hlod_cache_list(struct hlod *h, uint32_t limit,
                                        struct hlod_executables **out);
HLOD_API void hlod_executables_free(struct hlod_executables *l);
HLOD_API enum hlod_code hlod_cache_remove(struct hlod *h, const char *digest); // NOT_FOUND

struct hlod_difference {   // of two executables' cache keys
    const char *component; // program, bindings, options, target, abi, build; "" = none
    const char *a, *b;     // its value on each side
};
HLOD_API enum hlod_code hlod_cache_explain(struct hlod *h, const char *a, const char *b,
                                           struct hlod_difference **out);
HLOD_API void hlod_difference_free(struct hlod_difference *d);

struct hlod_cache_stats {
    int64_t bytes, budget_bytes, executables, models, hits, misses, quarantined, compiles, joins;
};
HLOD_API enum hlod_code hlod_cache_stats(struct hlod *h, struct hlod_cache_stats *out);

#if defined(__cplusplus)
}
#endif
