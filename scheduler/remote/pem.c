// SPDX-License-Identifier: Apache-2.0
#include "scheduler/remote/pem.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/store/file.h"
#include "base/str.h"

enum { MAX_PEM = 4 << 20 };

status_t pem_read(struct arena *a, const char *path, bool secret, const char **out) {
    struct str text;
    RETURN_IF_ERR(secret ? file_read_secret(a, path, MAX_PEM, &text)
                         : file_read(a, path, MAX_PEM, NULL, &text));
    if (!text.n || !memmem(text.p, text.n, "-----BEGIN ", 11))
        return st_invalid("%s: expected PEM", path);
    *out = text.p;
    return ST_OK;
}
status_t pem_of_system(struct arena *a, const char **out) {
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    const char *said = getenv("SSL_CERT_FILE");
    if (said && *said) return pem_read(a, said, false, out);
    for (size_t k = 0; k < sizeof places / sizeof *places; k++)
        if (access(places[k], R_OK) == 0) return pem_read(a, places[k], false, out);
    return ST_OK;
}
