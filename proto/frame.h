// SPDX-License-Identifier: Apache-2.0
// frame: one message between daemon and worker over an AF_UNIX SOCK_SEQPACKET pair (D15): a fixed
// header, a protobuf body (proto/wire.proto), and file descriptors by SCM_RIGHTS. A message stays
// under FRAME_MAX_BYTES; a longer body travels in a memfd of its own, which neither side sees.
// Tensors and blobs beyond FRAME_INLINE_BYTES in total go into one memfd that the caller makes
// (frame_memfd) and names in Blob.fd. Everything received is checked (magic, lengths, fd count,
// seals of a body memfd), because a worker may have been broken by the model it read. Frames
// without descriptors may share a message (frame_batch): one system call and one wake of the peer
// for all. Thread: any; one sender and one receiver at a time a socket.
//
//     struct frame_buf *buf = frame_buf_new();
//     RETURN_IF_ERR(frame_send_msg(sock, HLOD__WIRE__TYPE__TYPE_STATS, call, &stats.base, NULL, 0,
//     -1)); struct frame f; RETURN_IF_ERR(frame_recv(sock, buf, -1, &f)); if (f.type ==
//     HLOD__WIRE__TYPE__TYPE_STATS_REPLY) ... hlod__wire__stats_reply__unpack(NULL, f.body.n,
//     f.body.p) frame_done(&f);
#pragma once
#include "base/span.h"
#include "base/status.h"

enum {
    FRAME_MAX_BYTES = 200 * 1024,   // header and body of one message
    FRAME_INLINE_BYTES = 64 * 1024, // sum of a frame's inline blobs
    RUN_INLINE_BYTES = 16 * 1024,   // outputs of a RUN up to here go inline
    RUN_MAX_REPEAT = 1000,          // times that one RUN or RUN_PLAN runs
    FRAME_BATCH_BYTES = 32 * 1024,  // of frames that share a message
    FRAME_MAX_FDS = 64,
    FRAME_MAX_BODY = 256 << 20, // of a body in a memfd
    FRAME_PROTOCOL = 2,
    WORKER_STATE_BYTES = 4096, // the page behind hlod-worker --state; its first 8 bytes: the id of
                               // the call begun last
};

struct frame {
    uint32_t type; // enum Hlod__Wire__Type; 0 = the peer closed the socket
    uint64_t call;
    struct span body; // lies in the frame_buf or in the mapping below: valid until frame_done or
                      // the next frame_recv
    int fds[FRAME_MAX_FDS]; // owned by the frame: frame_done closes what is not -1; take one with
                            // frame_take_fd
    int n_fds;
    void *map; // private
    size_t map_bytes;
};
struct frame_buf; // receive buffer, one a socket
struct frame_buf *frame_buf_new(void);
void frame_buf_free(struct frame_buf *b);
// Has the last message frames that frame_recv has not given yet? It gives those before it asks the
// socket, whichever that is: a buffer that several sockets share is read until there are none, or
// emptied.
bool frame_buf_has_more(const struct frame_buf *b);
void frame_buf_empty(struct frame_buf *b);

// A connected pair, close-on-exec, with buffers large enough for FRAME_MAX_BYTES.
status_t frame_pair(int out_fds[2]) MUST_CHECK;
// Sends one frame; the descriptors stay the caller's. timeout_ms: -1 waits, 0 never waits
// (DEADLINE_EXCEEDED when the socket is full). UNAVAILABLE when the peer is gone; INVALID_ARGUMENT
// when too many fds or FRAME_MAX_BODY is passed.
status_t frame_send(int sock, uint32_t type, uint64_t call, struct span body, const int *fds,
                    int n_fds, int timeout_ms) MUST_CHECK;
// The same with a protobuf-c message (its first member, `base`).
struct ProtobufCMessage;
status_t frame_send_msg(int sock, uint32_t type, uint64_t call, const struct ProtobufCMessage *m,
                        const int *fds, int n_fds, int timeout_ms) MUST_CHECK;

// Frames that are sent together. All zeros: empty.
struct frame_batch {
    uint8_t *p; // owned
    size_t n;
};
// Adds one; false, and nothing is added, where it has no room.
bool frame_batch_add(struct frame_batch *b, uint32_t type, uint64_t call,
                     const struct ProtobufCMessage *m) MUST_CHECK;
// Sends them as frame_send does; b is empty then, but after DEADLINE_EXCEEDED.
status_t frame_batch_send(int sock, struct frame_batch *b, int timeout_ms) MUST_CHECK;
void frame_batch_done(struct frame_batch *b);

// Receives one frame. timeout_ms as above. Peer closed: success with type 0. DATA_LOSS when the
// frame is not one of ours: drop the peer then.
status_t frame_recv(int sock, struct frame_buf *b, int timeout_ms, struct frame *out) MUST_CHECK;
void frame_done(struct frame *f);
int frame_take_fd(struct frame *f, int i); // the caller closes it; -1 if absent or taken

// A memfd of fixed size (sealed against shrinking and growing), close-on-exec. bytes > 0.
status_t frame_memfd(const char *name, int64_t bytes, int *out_fd) MUST_CHECK;
// Maps bytes [offset, offset + size) of an fd, read-only or (writable) shared; any offset.
// *out_base and *out_base_bytes are for frame_unmap. Checks against the file's size, and, for a
// memfd, that it cannot shrink under us; a regular file (on tmpfs: one opened for reading) is
// trusted not to (only the daemon writes the store).
status_t frame_map(int fd, int64_t offset, int64_t size, bool writable, uint8_t **out,
                   void **out_base, size_t *out_base_bytes) MUST_CHECK;
void frame_unmap(void *base, size_t base_bytes); // NULL is fine
