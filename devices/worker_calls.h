// SPDX-License-Identifier: Apache-2.0
// worker_calls: what the request handlers share. A handler runs on the run thread, reads its
// request from the frame and fills a reply message in the call's arena; descriptors for the reply
// go into `fds`.
#pragma once
#include "devices/device.h"
#include "proto/frame.h"
#include "proto/wire.pb-c.h"

struct worker;
struct call {
    struct call *next;
    uint32_t type;
    uint64_t id;
    _Atomic bool cancel;
    struct arena arena;
    ProtobufCMessage *request; // unpacked
    int fds[FRAME_MAX_FDS];    // of the request, owned
    int n_fds;
    struct span maps[FRAME_MAX_FDS]; // of the whole of each, once asked for
    bool kept[FRAME_MAX_FDS];        // maps that outlive the call (worker_maps.h)
    int reply_fds[4];                // closed after sending
    int n_reply_fds;
    struct worker *worker;
    int64_t refused_before; // system calls, when it began
    bool device_lost;       // the reply is the last thing this process does
};
// Bytes of a blob: inline, or mapped read-only until the call ends.
status_t call_blob(struct call *c, const Hlod__Wire__Blob *b, struct span *out) MUST_CHECK;
// Puts bytes into a reply: inline when small, else into a memfd.
status_t call_put_blob(struct call *c, const void *p, size_t n, Hlod__Wire__Blob **out) MUST_CHECK;
// m NULL: an event without a body.
void call_event(struct call *c, uint32_t type, const ProtobufCMessage *m);
Hlod__Wire__Status *call_status(struct call *c, status_t st); // takes st; NULL gives code 0

// Each makes the reply message, also on failure (its status says so).
ProtobufCMessage *worker_ingest(struct call *c);
void worker_compile_for(struct device *d); // before the first compile; borrowed
ProtobufCMessage *worker_compile(struct call *c);
ProtobufCMessage *worker_target(struct call *c);
ProtobufCMessage *worker_inspect(struct call *c);
ProtobufCMessage *worker_load(struct call *c, struct device *d);
ProtobufCMessage *worker_prepare(struct call *c);
ProtobufCMessage *worker_run(struct call *c, struct device *d);
// Will this RUN be over before another thread could be woken for it? By what is resident and how
// long it took last. While nothing runs.
bool worker_run_is_brief(const struct call *c);
ProtobufCMessage *worker_unload(struct call *c);
void worker_residents(int32_t *n, int64_t *prepared_bytes); // any thread
// Most memory that the process held since worker_peak_begin (where the kernel allows that; else
// since its start).
void worker_peak_begin(struct call *c);
int64_t worker_peak_bytes(void);
// proto <-> compiler types
Hlod__V1__Signature *wire_signature(struct arena *a, const struct signature *s);
