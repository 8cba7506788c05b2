// SPDX-License-Identifier: Apache-2.0
// tls: the daemon's certificate, its key and the CA of client certificates: read from PEM files,
// checked against each other, and given to both ports in the form each wants. They are looked at
// again (tls_watch): handshakes from then on see the new ones. The only file that knows GnuTLS
// (libmicrohttpd's TLS; gRPC brings its own and takes the PEM texts). One tls a process. Thread:
// loop, but tls_pem.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

struct tls;
struct tls_files {
    const char *cert, *key; // chain, leaf first
    const char *client_ca;  // "": no client certificates
};
// Blocks. INVALID_ARGUMENT: not PEM, a key of another certificate; NOT_FOUND.
status_t tls_open(const struct tls_files *files, struct tls **out) MUST_CHECK;
// Looks at the files of *t, which is opened later, again.
struct secrets;
void tls_watch(struct tls **t, const struct tls_files *files, struct secrets *s);
void tls_close(struct tls *t);             // NULL is fine; after the servers
unsigned tls_version(const struct tls *t); // grows whenever they were read

struct tls_pem {
    const char *cert, *key, *client_ca; // client_ca NULL: none
    unsigned version;
};
void tls_pem(struct tls *t, struct arena *a, struct tls_pem *out); // copies. Thread: any

// For libmicrohttpd: the callback that chooses the certificate of a handshake (a
// gnutls_certificate_retrieve_function2).
typedef void (*tls_callback)(void);
tls_callback tls_certificate_callback(void);
// The names (CN first, then SANs) of the peer's certificate, when it has one: verified against the
// client CA now. None without a certificate. UNAUTHENTICATED: one that does not verify.
// session: the library's gnutls_session_t
status_t tls_peer(const struct tls *t, void *session, struct arena *a, const char *const **out,
                  size_t *out_n) MUST_CHECK;

// Who stands between libmicrohttpd and each decrypted read of its connections (http_read.h).
struct tls_reader {
    bool (*over)(int fd); // is nothing more to be read of this one?
    size_t (*take)(int fd, const char *p, size_t n);
    // Of its handshake: > 0: now, 0: later, < 0: its client has left, and it is over.
    int (*may_step)(int fd);
    void (*stepped)(int fd, int64_t ns, bool again, bool write); // again: it waits for the client
};
void tls_read_through(const struct tls_reader *r); // NULL: nobody. Thread: the calling one's reads
void tls_send(void *session, const char *p, size_t n); // what goes at once
