// SPDX-License-Identifier: Apache-2.0
// Messages are bounded by the server, not here.
#include "client/lib/grpc_channel.h"

#include <limits.h>

#include <grpc/grpc_security.h>

#include "base/store/file.h"

enum { MAX_PEM = 1 << 20 };

static status_t pem(struct arena *a, const char *path, const char **out) {
    *out = NULL;
    if (!path) return ST_OK;
    struct str text;
    RETURN_IF_ERR(file_read(a, path, MAX_PEM, NULL, &text));
    *out = text.p;
    return ST_OK;
}

static status_t credentials(const struct http_security *s, bool tls,
                            grpc_channel_credentials **out) {
    struct arena a = {0};
    const char *ca = NULL, *cert = NULL, *key = NULL;
    status_t st = ST_OK;
    if (!tls) {
        *out = grpc_insecure_credentials_create();
        return ST_OK;
    }
    st = pem(&a, s->cacert, &ca);
    if (!st) st = pem(&a, s->cert, &cert);
    if (!st) st = pem(&a, s->key, &key);
    if (!st) {
        grpc_ssl_pem_key_cert_pair pair = {key, cert};
        *out = grpc_ssl_credentials_create(ca, cert && key ? &pair : NULL, NULL, NULL);
    }
    arena_done(&a);
    return st;
}

status_t grpc_channel_open(const char *addr, bool tls, const struct http_security *s,
                           grpc_channel **out) {
    grpc_channel_credentials *creds;
    RETURN_IF_ERR(credentials(s, tls, &creds));
    grpc_arg args[] = {{.type = GRPC_ARG_INTEGER,
                        .key = (char *)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                        .value.integer = INT_MAX},
                       {.type = GRPC_ARG_INTEGER,
                        .key = (char *)GRPC_ARG_MAX_SEND_MESSAGE_LENGTH,
                        .value.integer = INT_MAX}};
    grpc_channel_args all = {2, args};
    *out = grpc_channel_create(addr, creds, &all);
    grpc_channel_credentials_release(creds);
    return ST_OK;
}
