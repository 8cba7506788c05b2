// SPDX-License-Identifier: Apache-2.0
// Credentials are asked for anew before each handshake, so that certificates can be changed.
#include "server/grpc/grpc_port.h"

#include <stdlib.h>

#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>

#include "base/log.h"
#include "base/vec.h"
#include "server/grpc/grpc_gate.h"
#include "server/grpc/grpc_head.h"
#include "server/last_words.h"
#include "server/tls.h"

// What the library asks for at a time, and ends the process where it does not get it: what
// server/reserve.h stands for.
enum { READ_BYTES = 60 << 10 };

static grpc_server *make_server(struct grpc_port *r, int64_t room) {
    const struct rpc_config *cfg = r->cfg;
    int max = cfg->max_message_bytes > INT32_MAX ? INT32_MAX : (int)cfg->max_message_bytes;
    r->quota = grpc_resource_quota_create("hlod");
    grpc_resource_quota_resize(r->quota, (size_t)room);

#define INTEGER(name, v) {.type = GRPC_ARG_INTEGER, .key = (char *)(name), .value.integer = (v)}
    grpc_arg args[] = {INTEGER(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, max),
                       INTEGER(GRPC_ARG_MAX_METADATA_SIZE, GRPC_METADATA_BYTES),
                       INTEGER(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1),
                       INTEGER(GRPC_ARG_ALLOW_REUSEPORT, 0),
                       INTEGER(GRPC_ARG_MAX_CONCURRENT_STREAMS, GRPC_PORT_STREAMS),
                       INTEGER(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, READ_BYTES),
                       INTEGER(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, cfg->header_s * 1000),
                       INTEGER(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
                       {.type = GRPC_ARG_POINTER,
                        .key = (char *)GRPC_ARG_RESOURCE_QUOTA,
                        .value.pointer = {r->quota, grpc_resource_quota_arg_vtable()}}};
    grpc_channel_args all = {sizeof args / sizeof *args, args};
    return grpc_server_create(&all, NULL);
}

// Asked before each handshake, on a thread of the library's.
static grpc_ssl_certificate_config_reload_status
certificates(void *arg, grpc_ssl_server_certificate_config **out) {
    struct grpc_port *r = arg;
    struct arena a = {0};
    struct tls_pem p;
    tls_pem(r->cfg->tls, &a, &p);
    bool fresh = atomic_exchange(&r->tls_version, p.version) != p.version;
    grpc_ssl_pem_key_cert_pair pair = {p.key, p.cert};
    // Roots must be there (the library ends the process otherwise). Where no CA is named, clients
    // need no certificate and our own chain stands in.
    const char *roots = p.client_ca ? p.client_ca : p.cert;
    if (fresh) *out = grpc_ssl_server_certificate_config_create(roots, &pair, 1);
    arena_done(&a);
    return !fresh ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED
           : *out ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW
                  : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
}
static grpc_server_credentials *make_credentials(struct grpc_port *r) {
    if (!r->cfg->tls) return grpc_insecure_server_credentials_create();
    struct arena a = {0};
    struct tls_pem p;
    tls_pem(r->cfg->tls, &a, &p);
    grpc_ssl_client_certificate_request_type ask =
        p.client_ca ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                    : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    arena_done(&a);
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(ask, certificates, r));
}

// What the library says before it ends the process goes into the last words.
static void on_library_log(gpr_log_func_args *args) {
    last_words(args->message);
    log_event(LOG_DEBUG, "grpc.error", "why=\"%s\"", args->message);
}
static void start_library(void) {
    grpc_init();
    gpr_set_log_function(on_library_log);
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
}

status_t grpc_port_open(struct grpc_port *r, int64_t room) {
    const char *address = r->cfg->address;
    start_library();
    r->server = make_server(r, room);
    r->queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(r->server, r->queue, NULL);
    grpc_server_credentials *how = make_credentials(r);
    gate_listens(true);
    r->number = how ? grpc_server_add_http2_port(r->server, address, how) : 0;
    gate_listens(false);
    if (how) grpc_server_credentials_release(how);
    if (r->number) return ST_OK;
    grpc_port_close(r);
    return st_new(ST_UNAVAILABLE, "gRPC cannot listen on %s: in use, or no address of this machine",
                  address);
}
void grpc_port_close(struct grpc_port *r) {
    grpc_server_destroy(r->server);
    grpc_resource_quota_unref(r->quota);
    grpc_completion_queue_shutdown(r->queue);
    grpc_completion_queue_destroy(r->queue);
    grpc_shutdown();
}

int64_t grpc_port_ms_left(gpr_timespec until) {
    if (gpr_time_cmp(until, gpr_inf_future(until.clock_type)) == 0) return 0;
    int64_t ms = gpr_time_to_millis(gpr_time_sub(until, gpr_now(until.clock_type)));
    return ms > 0 ? ms : 1;
}
size_t grpc_port_names(grpc_call *call, struct arena *a, const char *const **out) {
    static const char *const kinds[] = {GRPC_X509_CN_PROPERTY_NAME, GRPC_X509_SAN_PROPERTY_NAME};
    VEC(const char *) names = {0};
    grpc_auth_context *peer = grpc_call_auth_context(call);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        grpc_auth_property_iterator at = grpc_auth_context_find_properties_by_name(peer, kinds[i]);
        const grpc_auth_property *p;
        while ((p = grpc_auth_property_iterator_next(&at)))
            avec_push(a, &names, arena_strndup(a, p->value, p->value_length));
    }
    grpc_auth_context_release(peer);
    *out = names.v;
    return names.n;
}

status_t rpc_try(const struct rpc_config *cfg) {
    struct grpc_port r = {.cfg = cfg};
    RETURN_IF_ERR(grpc_port_open(&r, cfg->receive_bytes));
    // One that was never started does not let go of its port.
    grpc_server_start(r.server);
    grpc_server_shutdown_and_notify(r.server, r.queue, &r);
    grpc_completion_queue_next(r.queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_port_close(&r);
    return ST_OK;
}
