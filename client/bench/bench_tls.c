// SPDX-License-Identifier: Apache-2.0
// No read-ahead: what SSL_read leaves of a record is asked for by the caller's next read, so that a
// level-triggered epoll set needs to know of the socket only.
#include "client/bench/bench_tls.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

struct bench_tls {
    SSL_CTX *ctx;
    struct arena arena;
    const char *host;
};
struct bench_tls_session {
    SSL *ssl;
};

static status_t failed(enum status_code code, const char *what) {
    char text[256];
    unsigned long e = ERR_get_error();
    if (e) ERR_error_string_n(e, text, sizeof text);
    ERR_clear_error();
    return st_new(code, "%s: %s", what, e ? text : "TLS failed");
}

static status_t load_files(SSL_CTX *c, const struct http_security *s) {
    if (s->cacert ? !SSL_CTX_load_verify_locations(c, s->cacert, NULL)
                  : !SSL_CTX_set_default_verify_paths(c))
        return failed(ST_INVALID_ARGUMENT, s->cacert ? s->cacert : "the system's CAs");
    if (s->cert && SSL_CTX_use_certificate_chain_file(c, s->cert) != 1)
        return failed(ST_INVALID_ARGUMENT, s->cert);
    if (s->key && SSL_CTX_use_PrivateKey_file(c, s->key, SSL_FILETYPE_PEM) != 1)
        return failed(ST_INVALID_ARGUMENT, s->key);
    return ST_OK;
}
status_t bench_tls_new(const struct http_security *s, const char *host, struct bench_tls **out) {
    struct bench_tls *t = calloc(1, sizeof *t);
    if (!t) return st_oom();
    t->host = arena_strdup(&t->arena, host);
    t->ctx = SSL_CTX_new(TLS_client_method());
    status_t st = t->ctx ? load_files(t->ctx, s) : st_oom();
    if (st) {
        bench_tls_free(t);
        return st;
    }
    SSL_CTX_set_min_proto_version(t->ctx, TLS1_2_VERSION);
    SSL_CTX_set_verify(t->ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(t->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    *out = t;
    return ST_OK;
}
void bench_tls_free(struct bench_tls *t) {
    if (!t) return;
    SSL_CTX_free(t->ctx);
    arena_done(&t->arena);
    free(t);
}

status_t bench_tls_connect(struct bench_tls *t, int fd, struct bench_tls_session **out) {
    struct bench_tls_session *s = calloc(1, sizeof *s);
    if (!s || !(s->ssl = SSL_new(t->ctx))) {
        free(s);
        return st_oom();
    }
    // An address is looked for among the certificate's addresses, and is no name to send.
    if (!X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(s->ssl), t->host)) {
        ERR_clear_error();
        SSL_set1_host(s->ssl, t->host);
        SSL_set_tlsext_host_name(s->ssl, t->host);
    }
    SSL_set_fd(s->ssl, fd);
    if (SSL_connect(s->ssl) != 1) {
        long verify = SSL_get_verify_result(s->ssl);
        status_t st = verify ? st_new(ST_UNAVAILABLE, "the certificate of %s: %s", t->host,
                                      X509_verify_cert_error_string(verify))
                             : failed(ST_UNAVAILABLE, t->host);
        ERR_clear_error();
        bench_tls_close(s);
        return st;
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    *out = s;
    return ST_OK;
}
void bench_tls_close(struct bench_tls_session *s) {
    if (!s) return;
    SSL_free(s->ssl);
    free(s);
}

static ssize_t result(struct bench_tls_session *s, int k) {
    if (k > 0) return k;
    int e = SSL_get_error(s->ssl, k);
    ERR_clear_error(); // of this thread: the next call must not find it
    errno = e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    return e == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}
ssize_t bench_tls_send(struct bench_tls_session *s, const void *p, size_t n) {
    return result(s, SSL_write(s->ssl, p, n < INT_MAX ? (int)n : INT_MAX));
}
ssize_t bench_tls_recv(struct bench_tls_session *s, void *p, size_t n) {
    return result(s, SSL_read(s->ssl, p, n < INT_MAX ? (int)n : INT_MAX));
}
