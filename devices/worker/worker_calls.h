// SPDX-License-Identifier: Apache-2.0
// worker_calls: what the request handlers share. A handler runs on the run thread, reads its
// request from the frame and fills a reply in the call's arena; its descriptors go into reply_fds.
#pragma once
#include <pthread.h>

#include "devices/device.h"
#include "proto/frame.h"
#include "proto/message.h"
#include "proto/wire.pb-c.h"

// The sending side of the socket to the daemon. Thread: any.
struct worker_socket {
    int fd;
    pthread_mutex_t mutex;
    struct frame_batch batch; // what is held, and since when
    int64_t held_ns;
};
struct worker_call {
    struct worker_call *next;
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
    int event_fds[1]; // closed by who sends the event
    int n_event_fds;
    struct worker_socket *socket;
    int64_t refused_before; // system calls, when it began
    bool device_lost;       // the reply is the last thing this process does
    // Of an INGEST: what a COMPILE will probably ask to be lowered (worker_lowered.c), or NULL.
    const struct lower_request *expected;
    const char *expected_format;
    bool expected_small;
};
// Bytes of a blob: inline, or mapped read-only until the call ends.
status_t worker_call_blob(struct worker_call *c, const Hlod__Wire__Blob *b,
                          struct span *out) MUST_CHECK;
// Puts bytes into a reply: inline when small, else into a memfd.
status_t worker_call_put_blob(struct worker_call *c, const void *p, size_t n,
                              Hlod__Wire__Blob **out) MUST_CHECK;
// m NULL: no body. What cannot be sent is left out: the loop thread sees that the daemon is gone.
void worker_send(struct worker_socket *s, uint32_t type, uint64_t id, const ProtobufCMessage *m,
                 const int *fds, int n_fds);
// The same, but it may be held until worker_send_held: for replies to calls that came together.
void worker_send_soon(struct worker_socket *s, uint32_t type, uint64_t id,
                      const ProtobufCMessage *m, const int *fds, int n_fds);
void worker_send_held(struct worker_socket *s);
void worker_call_event(struct worker_call *c, uint32_t type, const ProtobufCMessage *m);
Hlod__Wire__Status *worker_call_status(struct worker_call *c,
                                       status_t st); // takes st; NULL gives code 0
void worker_call_free(struct worker_call *c);

// Answers a call of one type (rows of worker.c): fills in reply, the message of that type's reply,
// as far as it comes, but for its status, which becomes what is returned. d: NULL in a compile
// worker.
#define WORKER_ANSWER(type)                                                                        \
    status_t worker_##type(struct worker_call *c, UNUSED struct device *d, UNUSED void *reply)
WORKER_ANSWER(ingest);
void worker_compile_for(struct device *d);        // before the first compile; borrowed
void worker_device_memory(int64_t bytes);         // before the first load; 0: the device's
const struct target *worker_compile_target(void); // that device's own
// Compiles a program of its own for nothing but warmth; some 20 ms. Thread: run.
void worker_compile_warm(const struct target *t);
void worker_device_warm(struct device *d); // the same for what runs; some 30 ms
// worker_lowered.c; run thread. After an ingest: keeps in c what a COMPILE of its result lowers.
void worker_expect_compile(struct worker_call *c, const struct ingest_result *r,
                           const struct frontend_limits *limits);
// Once the reply is sent and while no call waits: lowers that, and compiles it for t (or NULL) by
// the default options if it is small.
void worker_lower_ahead(struct worker_call *c, const struct target *t);
// Is `next` a COMPILE of what an INGEST found? Reads its program; while the run thread works ahead.
bool worker_made_for(const struct worker_call *from, struct worker_call *next);
// What a COMPILE asks for, as far as it was made ahead, to own; what it did not ask for is gone.
struct made_ahead {
    struct executable *exe;    // or NULL
    struct hlo_module *module; // the same, only lowered; or NULL
    int64_t lower_ns;          // what lowering took
};
struct made_ahead worker_take_ahead(const char *format, const struct lower_request *req,
                                    const struct compile_options *opt, const struct target *t);
WORKER_ANSWER(compile);
WORKER_ANSWER(target);
WORKER_ANSWER(inspect);
WORKER_ANSWER(tune); // worker_tune.c
// A load of e goes by these from now on; t NULL: none. How many steps they change.
int worker_choose(struct executable *e, const Hlod__V1__Tuning *t);
struct device *worker_compiles_for(void); // worker_compile_for's
WORKER_ANSWER(train);                     // worker_train.c
WORKER_ANSWER(trained);
WORKER_ANSWER(export); // worker_export.c
// UNIMPLEMENTED is for calls that do not exist; what a compiler lacks is an error of the request.
// Takes st.
status_t worker_lacking(status_t st) MUST_CHECK;
WORKER_ANSWER(load);
WORKER_ANSWER(prepare);
// worker_ahead.c: what may be loaded soon. *out_ns: how long it was worked at so far. False:
// nothing is begun that these bytes can use. True with *out: it is loaded; *out NULL: cancelled.
WORKER_ANSWER(expect);
bool worker_begun(struct digest key, struct span artifact, const _Atomic bool *cancel,
                  struct dev_exe **out, int64_t *out_ns);
bool worker_begun_drop(void); // frees what is begun; was there any?
WORKER_ANSWER(run);
// Will this RUN be over before another thread could be woken for it? By what is resident and how
// long it took last. While nothing runs.
bool worker_run_is_brief(const struct worker_call *c);
// Runs at the same time (docs/decisions/0027): begun and ended by the run thread, computed by
// others (worker_streams.h). Are both such runs, of one executable and without a profile?
bool worker_runs_alike(const struct worker_call *a, const struct worker_call *b);
// Has c's executable n streams? Opens them the first time; while nothing runs. False: it has none,
// or its runs are too brief to gain.
bool worker_run_has_streams(const struct worker_call *c, int n);
struct worker_run;
// reply: a RunReply. Borrows c and reply until worker_run_end. An error: there is nothing to end.
status_t worker_run_begin(struct worker_call *c, void *reply, struct worker_run **out) MUST_CHECK;
void worker_run_compute(struct worker_run *run, int stream); // thread: any; a stream's runs in turn
struct worker_call *worker_run_call(const struct worker_run *run);
void *worker_run_reply(const struct worker_run *run);
status_t worker_run_end(struct worker_run *run) MUST_CHECK; // fills in the reply
WORKER_ANSWER(unload);
void worker_residents(int32_t *n, int64_t *prepared_bytes); // any thread
// Most memory that the process held since worker_peak_begin (where the kernel allows that; else
// since its start).
void worker_peak_open(void); // before the filter
void worker_peak_begin(void);
int64_t worker_peak_bytes(void);
WORKER_ANSWER(run_plan);
WORKER_ANSWER(put);
WORKER_ANSWER(get);
WORKER_ANSWER(free);
void worker_buffers_held(int32_t *n, int64_t *bytes); // any thread

// ---- for calls that run or hold something on the device; run thread

// What is resident by these names until the call ends; or NOT_FOUND, REASON_EXECUTABLE_NOT_FOUND.
status_t worker_resident(ProtobufCBinaryData key, ProtobufCBinaryData weights, struct dev_exe **x,
                         struct dev_weights **w) MUST_CHECK;
// After a call that the device's memory did not suffice for: lets go of the executable used longest
// ago, and of the error. False: there is none that this call does not use, or another error.
bool worker_make_room(status_t *st);
void worker_unpin(void); // the call is over
// Libraries want aligned data; what lies in the body of a frame need not be.
const void *worker_align(struct worker_call *c, const char *dtype, struct span data);
struct dev_buffer *worker_buffer(uint64_t id);              // borrowed; NULL if there is none
status_t worker_buffer_missing(uint64_t id) MUST_CHECK;     // NOT_FOUND, REASON_BUFFER_NOT_FOUND
void worker_buffer_keep(uint64_t id, struct dev_buffer *b); // takes the reference
void worker_buffer_drop(uint64_t id);                       // none is fine

// Where what a call sends lies: few bytes in the frame, else one memfd with each part at a multiple
// of 64 bytes; the daemon's (`given`, from 1) if it gave one that fits. Begins zeroed.
struct string_io;
struct strings;
struct worker_outputs {
    void **p; // [n]
    int64_t *offset;
    int n;
    uint8_t *map;
    void *base; // to be unmapped
    size_t base_bytes;
    bool shared;                  // lies in a memfd
    const struct string_io *text; // of the executable; or NULL
    struct strings *texts;        // of the run: its results are laid out when they are known
};
status_t worker_outputs_make(struct worker_call *c, const int64_t *bytes, int n, uint32_t given,
                             struct worker_outputs *o) MUST_CHECK;
Hlod__Wire__Blob *worker_outputs_blob(struct worker_call *c, const struct worker_outputs *o, int k,
                                      int64_t bytes);
// dims NULL: those of s. data NULL: none.
Hlod__Wire__WireTensor *worker_tensor(struct arena *a, const struct shape *s, int64_t *dims,
                                      Hlod__Wire__Blob *data);
enum { MAX_ROWS = 8192 }; // of a profile

// proto <-> compiler types
struct frontend_limits worker_limits(const Hlod__Wire__Limits *l); // NULL: the defaults
Hlod__V1__Signature *worker_signature(struct arena *a, const struct signature *s);
