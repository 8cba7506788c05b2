// SPDX-License-Identifier: Apache-2.0
// Frames: bytes sent into the socket as one message must be received as a frame or refused.
#include <sys/socket.h>
#include <unistd.h>

#include "proto/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fds[2];
    struct frame f;
    status_t st = frame_pair(fds);
    if (st) {
        st_drop(st);
        return 0;
    }
    struct frame_buf *buf = frame_buf_new();
    if (size && size < FRAME_MAX_BYTES && send(fds[0], data, size, MSG_DONTWAIT) == (ssize_t)size) {
        st = frame_recv(fds[1], buf, 0, &f);
        if (st)
            st_drop(st);
        else
            frame_done(&f);
    }
    frame_buf_free(buf);
    close(fds[0]);
    close(fds[1]);
    return 0;
}
