// SPDX-License-Identifier: Apache-2.0
// bench_tls: TLS over the load's own sockets (OpenSSL, which libcurl has loaded anyway).
#pragma once
#include <sys/types.h>

#include "client/lib/http.h"

struct bench_tls;         // whom we trust and who we are, for any number of connections
struct bench_tls_session; // one connection
// host    what the server's certificate must name: a name or an address
// errors  files of s that cannot be read
status_t bench_tls_new(const struct http_security *s, const char *host,
                       struct bench_tls **out) MUST_CHECK;
void bench_tls_free(struct bench_tls *t); // NULL is fine
// Shakes hands over a blocking, connected socket, which stays the caller's and never blocks after.
status_t bench_tls_connect(struct bench_tls *t, int fd, struct bench_tls_session **out) MUST_CHECK;
void bench_tls_close(struct bench_tls_session *s); // NULL is fine
// As send and recv on a socket that does not block: -1 with EAGAIN; 0 from recv when it is over.
ssize_t bench_tls_send(struct bench_tls_session *s, const void *p, size_t n);
ssize_t bench_tls_recv(struct bench_tls_session *s, void *p, size_t n);
