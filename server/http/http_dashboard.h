// SPDX-License-Identifier: Apache-2.0
// http_dashboard: the page at `/` and its files, built in (server/dashboard, embed.sh). They hold
// no data and are for anybody; what they show comes from the API, with the reader's token.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct dashboard_file {
    const char *path, *type;
    const unsigned char *bytes;
    size_t n;
};
extern const struct dashboard_file dashboard_files[];
extern const int n_dashboard_files;
// Those of the page at /worker (server/workers).
extern const struct dashboard_file worker_files[];
extern const int n_worker_files;

struct http_req;
// NULL: no such file. Who asks for "/" without accepting HTML gets text instead (http.c).
// workers: those of /worker too.
const struct dashboard_file *http_dashboard_find(const char *path, bool workers);
void http_dashboard_reply(struct http_req *r, const struct dashboard_file *f);
