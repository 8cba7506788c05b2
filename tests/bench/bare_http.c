// SPDX-License-Identifier: Apache-2.0
// What the HTTP library alone can do: reads a request's body, drops it, answers REPLY_BYTES of
// fixed bytes. One thread, epoll, as in hlod. `make bench-serve` measures hlod beside it.
// Usage: bare_http PORT REPLY_BYTES (a body may ask for another size with the header Reply-Bytes)
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char *bytes;
enum { MOST = 64 << 20 };
static size_t usual;

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
                                  const char *verb, const char *version, const char *data,
                                  size_t *n, void **state) {
    (void)cls, (void)url, (void)verb, (void)version, (void)data;
    if (!*state) {
        *state = bytes;
        return MHD_YES;
    }
    if (*n) {
        *n = 0;
        return MHD_YES;
    }
    const char *asked = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Reply-Bytes");
    size_t size = asked ? strtoul(asked, NULL, 10) : usual;
    struct MHD_Response *r =
        MHD_create_response_from_buffer(size < MOST ? size : MOST, bytes, MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(r, "Content-Type", "application/octet-stream");
    enum MHD_Result ok = MHD_queue_response(c, 200, r);
    MHD_destroy_response(r);
    return ok;
}

static void on_connection(void *cls, struct MHD_Connection *c, void **ctx,
                          enum MHD_ConnectionNotificationCode what) {
    (void)cls, (void)ctx;
    int one = 1;
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (what == MHD_CONNECTION_NOTIFY_STARTED && i)
        setsockopt(i->connect_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    usual = strtoul(argv[2], NULL, 10);
    bytes = calloc(1, MOST);
    if (!bytes || usual > MOST) return 1;
    memset(bytes, 'x', MOST);
    struct MHD_Daemon *d =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, (uint16_t)strtoul(argv[1], NULL, 10), NULL,
                         NULL, on_request, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, NULL,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(64 << 10), MHD_OPTION_END);
    if (!d) return 1;
    puts("ready");
    fflush(stdout);
    pause();
}
