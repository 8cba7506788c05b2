// SPDX-License-Identifier: Apache-2.0
#include "server/grpc/grpc_head.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/ssl.h>

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum { PREFACE_BYTES = sizeof preface - 1, HEADERS = 1, CONTINUATION = 9, END_HEADERS = 4 };

// A frame's head is whole.
static void begin_frame(struct grpc_head *h) {
    const uint8_t *f = h->frame;
    h->have = 0;
    h->left = (uint32_t)f[0] << 16 | (uint32_t)f[1] << 8 | f[2];
    if (f[3] != HEADERS && f[3] != CONTINUATION) return;
    if (f[3] == HEADERS) h->bytes = 0;
    h->bytes += sizeof h->frame + h->left;
    if (f[4] & END_HEADERS) h->bytes = 0;
}
bool grpc_head_follow(struct grpc_head *h, const void *bytes, size_t n) {
    const uint8_t *p = bytes, *end = p + n;
    while (p < end && h->preface < PREFACE_BYTES && !h->other)
        h->other = *p++ != (uint8_t)preface[h->preface++];

    while (p < end && !h->other && h->bytes <= GRPC_HEAD_BYTES) {
        size_t some = (size_t)(end - p);
        if (h->left) {
            if (some > h->left) some = h->left;
            h->left -= (uint32_t)some;
            p += some;
            continue;
        }
        h->frame[h->have++] = *p++;
        if (h->have == sizeof h->frame) begin_frame(h);
    }
    return h->bytes <= GRPC_HEAD_BYTES;
}

// ---- over TLS

static int place; // of a connection's struct grpc_head in its SSL
static int (*own_read)(SSL *s, void *to, int n);

static void drop(void *parent, void *h, CRYPTO_EX_DATA *all, int at, long n, void *arg) {
    (void)parent, (void)all, (void)at, (void)n, (void)arg;
    free(h);
}
static void begin(void) {
    void *p = dlsym(RTLD_NEXT, "SSL_read");
    if (!p) abort();
    memcpy(&own_read, &p, sizeof own_read);
    place = SSL_get_ex_new_index(0, NULL, NULL, NULL, drop);
}
static struct grpc_head *head_of(SSL *s) {
    struct grpc_head *h = SSL_get_ex_data(s, place);
    if (h) return h;
    h = calloc(1, sizeof *h);
    if (h && SSL_set_ex_data(s, place, h)) return h;
    free(h);
    return NULL;
}
// Of a connection that was accepted; those that this process made are read as they are.
__attribute__((visibility("default"))) int SSL_read(SSL *s, void *to, int n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
    int got = own_read(s, to, n);
    if (got <= 0 || !SSL_is_server(s) || place < 0) return got;
    struct grpc_head *h = head_of(s);
    return h && grpc_head_follow(h, to, (size_t)got) ? got : -1;
}
