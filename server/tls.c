// SPDX-License-Identifier: Apache-2.0
// A generation is what one read of the files gave. GnuTLS borrows a generation's certificate and
// key during a handshake, so the last few stay.
#include "server/tls.h"

#include <dlfcn.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/store/file.h"
#include "base/vec.h"
#include "proto/reason.h"
#include "server/secrets.h"

enum { MAX_CHAIN = 16, MAX_PEM = 1 << 20, KEPT = 8 };
struct generation {
    struct generation *older;
    struct arena arena;
    struct tls_pem pem;
    gnutls_pcert_st chain[MAX_CHAIN];
    unsigned n_chain;
    gnutls_privkey_t key;
    gnutls_x509_trust_list_t trust; // NULL: no client certificates
};
struct tls {
    struct arena arena;
    struct tls_files files;
    pthread_mutex_t lock; // gRPC's threads read `now`'s texts
    struct generation *now;
};
static struct tls *the_tls; // GnuTLS' callback has no argument of ours

// ---- reading

static status_t read_pem(struct arena *a, const char *path, const char **out) {
    struct str text;
    RETURN_IF_ERR(file_read(a, path, MAX_PEM, NULL, &text));
    *out = text.p;
    return ST_OK;
}
static gnutls_datum_t datum(const char *z) {
    return (gnutls_datum_t){(unsigned char *)(uintptr_t)z, (unsigned)strlen(z)};
}
MUST_CHECK static status_t wrong(const char *path, const char *what, int code) {
    return st_invalid("%s: %s: %s", path, what, gnutls_strerror(code));
}

static void generation_free(struct generation *g) {
    if (!g) return;
    for (unsigned i = 0; i < g->n_chain; i++)
        gnutls_pcert_deinit(&g->chain[i]);
    if (g->key) gnutls_privkey_deinit(g->key);
    if (g->trust) gnutls_x509_trust_list_deinit(g->trust, 1);
    arena_done(&g->arena);
    free(g);
}

// Does the key belong to the first certificate?
static status_t pair(const struct tls_files *f, struct generation *g) {
    gnutls_pubkey_t public = NULL;
    unsigned char a[64], b[64];
    size_t na = sizeof a, nb = sizeof b;
    int rc = gnutls_pubkey_init(&public);
    if (!rc) rc = gnutls_pubkey_import_privkey(public, g->key, 0, 0);
    if (!rc) rc = gnutls_pubkey_get_key_id(public, GNUTLS_KEYID_USE_SHA256, a, &na);
    if (!rc) rc = gnutls_pubkey_get_key_id(g->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, b, &nb);
    if (public) gnutls_pubkey_deinit(public);
    if (rc) return wrong(f->key, "cannot use this key", rc);
    if (na != nb || memcmp(a, b, na))
        return st_invalid("%s is not the key of the certificate in %s", f->key, f->cert);
    return ST_OK;
}

static status_t load(const struct tls_files *f, struct generation *g) {
    RETURN_IF_ERR(read_pem(&g->arena, f->cert, &g->pem.cert));
    RETURN_IF_ERR(read_pem(&g->arena, f->key, &g->pem.key));
    gnutls_datum_t d = datum(g->pem.cert);
    unsigned n = MAX_CHAIN;
    int rc = gnutls_pcert_list_import_x509_raw(g->chain, &n, &d, GNUTLS_X509_FMT_PEM, 0);
    if (rc || n == 0) return wrong(f->cert, "no certificate chain in PEM", rc);
    g->n_chain = n;
    d = datum(g->pem.key);
    rc = gnutls_privkey_init(&g->key);
    if (!rc) rc = gnutls_privkey_import_x509_raw(g->key, &d, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (rc) return wrong(f->key, "no private key in PEM without a password", rc);
    RETURN_IF_ERR(pair(f, g));
    if (!*f->client_ca) return ST_OK;
    RETURN_IF_ERR(read_pem(&g->arena, f->client_ca, &g->pem.client_ca));
    d = datum(g->pem.client_ca);
    rc = gnutls_x509_trust_list_init(&g->trust, 0);
    if (!rc)
        rc = gnutls_x509_trust_list_add_trust_mem(g->trust, &d, NULL, GNUTLS_X509_FMT_PEM, 0, 0);
    return rc > 0 ? ST_OK : wrong(f->client_ca, "no CA certificate in PEM", rc);
}

static void trim(struct generation *g) { // keeps the newest few
    for (int i = 1; g && i < KEPT; i++)
        g = g->older;
    if (!g) return;
    struct generation *old = g->older;
    g->older = NULL;
    while (old) {
        struct generation *next = old->older;
        generation_free(old);
        old = next;
    }
}

// ---- read again

static status_t load_new(void *ctx, void **out) {
    struct tls **t = ctx;
    struct generation *g = calloc(1, sizeof *g);
    if (!g) return st_oom();
    status_t st = load(&(*t)->files, g);
    if (st)
        generation_free(g);
    else
        *out = g;
    return st;
}
static void take_new(void *ctx, void *loaded) {
    struct tls *t = *(struct tls **)ctx;
    struct generation *g = loaded;
    pthread_mutex_lock(&t->lock);
    g->older = t->now;
    g->pem.version = t->now ? t->now->pem.version + 1 : 1;
    t->now = g;
    pthread_mutex_unlock(&t->lock);
    trim(g);
}
static void drop_new(void *g) {
    generation_free(g);
}
void tls_watch(struct tls **t, const struct tls_files *files, struct secrets *s) {
    secrets_add(s, &(struct secret_group){.what = "certificates",
                                          .files = {files->cert, files->key, files->client_ca},
                                          .n = 3,
                                          .load = load_new,
                                          .take = take_new,
                                          .drop = drop_new,
                                          .ctx = t});
}

status_t tls_open(const struct tls_files *files, struct tls **out) {
    struct tls *t = calloc(1, sizeof *t);
    if (!t) return st_oom();
    pthread_mutex_init(&t->lock, NULL);
    t->files = (struct tls_files){.cert = arena_strdup(&t->arena, files->cert),
                                  .key = arena_strdup(&t->arena, files->key),
                                  .client_ca = arena_strdup(&t->arena, files->client_ca)};
    void *g = NULL;
    status_t st = load_new(&t, &g);
    if (st) {
        tls_close(t);
        return st;
    }
    take_new(&t, g);
    *out = the_tls = t;
    return ST_OK;
}
void tls_close(struct tls *t) {
    if (!t) return;
    while (t->now) {
        struct generation *older = t->now->older;
        generation_free(t->now);
        t->now = older;
    }
    pthread_mutex_destroy(&t->lock);
    arena_done(&t->arena);
    if (the_tls == t) the_tls = NULL;
    free(t);
}
unsigned tls_version(const struct tls *t) {
    return t->now->pem.version;
}

void tls_pem(struct tls *t, struct arena *a, struct tls_pem *out) {
    pthread_mutex_lock(&t->lock);
    const struct tls_pem *p = &t->now->pem;
    *out = (struct tls_pem){.cert = arena_strdup(a, p->cert),
                            .key = arena_strdup(a, p->key),
                            .client_ca = p->client_ca ? arena_strdup(a, p->client_ca) : NULL,
                            .version = p->version};
    pthread_mutex_unlock(&t->lock);
}

// ---- libmicrohttpd's side

static int choose(UNUSED gnutls_session_t session, UNUSED const gnutls_datum_t *ca, UNUSED int n_ca,
                  UNUSED const gnutls_pk_algorithm_t *algorithms, UNUSED int n_algorithms,
                  gnutls_pcert_st **chain, unsigned *n_chain, gnutls_privkey_t *key) {
    struct generation *g = the_tls->now;
    *chain = g->chain;
    *n_chain = g->n_chain;
    *key = g->key;
    return 0;
}
tls_callback tls_certificate_callback(void) {
    return (tls_callback)choose;
}

static void names_of(gnutls_x509_crt_t crt, struct arena *a, const char *const **out,
                     size_t *out_n) {
    VEC(const char *) all = {0};
    char name[256];
    size_t n = sizeof name;
    if (gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &n) == 0)
        avec_push(a, &all, arena_strndup(a, name, n));
    for (unsigned i = 0; i < 64; i++) {
        n = sizeof name;
        int kind = gnutls_x509_crt_get_subject_alt_name(crt, i, name, &n, NULL);
        if (kind == GNUTLS_E_SHORT_MEMORY_BUFFER) continue;
        if (kind < 0) break;
        if (kind == GNUTLS_SAN_DNSNAME || kind == GNUTLS_SAN_RFC822NAME || kind == GNUTLS_SAN_URI)
            avec_push(a, &all, arena_strndup(a, name, n));
    }
    if (!all.n) avec_push(a, &all, arena_strdup(a, "(no name)"));
    *out = all.v;
    *out_n = all.n;
}

MUST_CHECK static status_t untrusted(unsigned why) {
    gnutls_datum_t text = {0};
    gnutls_certificate_verification_status_print(why, GNUTLS_CRT_X509, &text, 0);
    status_t st =
        st_because(ST_UNAUTHENTICATED, BAD_CREDENTIALS, "the client certificate is refused: %.*s",
                   (int)text.size, text.data ? (const char *)text.data : "");
    gnutls_free(text.data);
    return st;
}

status_t tls_peer(const struct tls *t, void *session, struct arena *a, const char *const **out,
                  size_t *out_n) {
    *out = NULL;
    *out_n = 0;
    unsigned n = 0, count = 0, why = 0;
    const gnutls_datum_t *der = gnutls_certificate_get_peers((gnutls_session_t)session, &n);
    if (!der || !n || !t->now->trust) return ST_OK;
    gnutls_x509_crt_t chain[MAX_CHAIN];
    int rc = 0;
    for (; count < n && count < MAX_CHAIN && rc == 0; count++) {
        if (gnutls_x509_crt_init(&chain[count])) abort();
        rc = gnutls_x509_crt_import(chain[count], &der[count], GNUTLS_X509_FMT_DER);
    }
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                     .data = (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT};
    if (rc == 0)
        rc = gnutls_x509_trust_list_verify_crt2(t->now->trust, chain, count, &purpose, 1, 0, &why,
                                                NULL);
    status_t st = ST_OK;
    if (rc || why)
        st = untrusted(why ? why : GNUTLS_CERT_INVALID);
    else
        names_of(chain[0], a, out, out_n);
    while (count)
        gnutls_x509_crt_deinit(chain[--count]);
    return st;
}

// ---- between the library and what it reads

static _Thread_local const struct tls_reader *reader;
void tls_read_through(const struct tls_reader *r) {
    reader = r;
}
void tls_send(void *session, const char *p, size_t n) {
    (void)!gnutls_record_send((gnutls_session_t)session, p, n);
}

// These stand before GnuTLS's own in every library of the process (as server/reserve.c's functions
// do).
typedef void (*function)(void);
static function theirs(_Atomic(function) *known, const char *name) {
    function f = *known;
    if (f) return f;
    void *p = dlsym(RTLD_NEXT, name);
    if (!p) abort();
    memcpy(&f, &p, sizeof f);
    return *known = f;
}
#define OURS __attribute__((visibility("default")))
OURS ssize_t gnutls_record_recv(gnutls_session_t session, void *data, size_t n) {
    typedef ssize_t (*record_recv)(gnutls_session_t session, void *data, size_t n);
    static _Atomic(function) known;
    record_recv f = (record_recv)theirs(&known, "gnutls_record_recv");
    int fd = reader ? gnutls_transport_get_int(session) : -1;
    if (reader && reader->over(fd)) return 0;
    ssize_t got = f(session, data, n);
    return reader && got > 0 ? (ssize_t)reader->take(fd, data, (size_t)got) : got;
}
OURS int gnutls_handshake(gnutls_session_t session) {
    static _Atomic(function) known;
    int (*f)(gnutls_session_t session) =
        (int (*)(gnutls_session_t session))theirs(&known, "gnutls_handshake");
    int fd = reader ? gnutls_transport_get_int(session) : -1;
    if (!reader) return f(session);
    int may = reader->may_step(fd);
    if (may <= 0) return may ? GNUTLS_E_PREMATURE_TERMINATION : GNUTLS_E_AGAIN;
    int64_t begun = clock_ns();
    int rc = f(session);
    reader->stepped(fd, clock_ns() - begun, rc == GNUTLS_E_AGAIN,
                    gnutls_record_get_direction(session) == 1);
    return rc;
}
