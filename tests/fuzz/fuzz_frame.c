// SPDX-License-Identifier: Apache-2.0
// Frames: bytes sent into the socket as one message must be received as frames or refused.
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
        do {
            st = frame_recv(fds[1], buf, 0, &f);
            if (!st) frame_done(&f);
        } while (!st && frame_buf_has_more(buf));
        st_drop(st);
    }
    frame_buf_free(buf);
    close(fds[0]);
    close(fds[1]);
    return 0;
}
