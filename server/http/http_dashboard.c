// SPDX-License-Identifier: Apache-2.0
// The policy is as strict as it goes: scripts and styles of this origin alone, nothing inline,
// nothing framed, no other host ever. WebAssembly, which models are exported as, has no door of its
// own to anything.
#include "server/http/http_dashboard.h"

#include <string.h>

#include "server/http/http_req.h"

static const char policy[] =
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

// Its worker is a file of this server's.
static const char worker_policy[] =
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; "
    "style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

const struct dashboard_file *http_dashboard_find(const char *path, bool workers) {
    for (int k = 0; workers && k < n_worker_files; k++)
        if (!strcmp(path, worker_files[k].path)) return &worker_files[k];
    if (workers && !strncmp(path, "/worker/runtime/", 16)) path += 7; // the same files
    for (int k = 0; k < n_dashboard_files; k++)
        if (!strcmp(path, dashboard_files[k].path)) return &dashboard_files[k];
    return NULL;
}

void http_dashboard_reply(struct http_req *r, const struct dashboard_file *f) {
    http_reply_bytes(r, f->type, f->bytes, f->n);
    MHD_add_response_header(r->response, "Content-Security-Policy",
                            !strncmp(f->path, "/worker", 7) ? worker_policy : policy);
    MHD_add_response_header(r->response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(r->response, "Cache-Control", "no-cache");
    MHD_add_response_header(r->response, "Vary", "Accept");
}
