// SPDX-License-Identifier: Apache-2.0
// web_page: the page, as files that load each other or as one that holds all. Private to
// compiler/web.
#pragma once
#include "compiler/web/web_program.h"

// index.html of a folder.
void web_page_folder(struct strbuf *b);
// The page that opens by a double click: script, style, manifest, and files in it. `manifest` as
// printed.
void web_page_single(struct arena *a, enum web_backend backend, struct strbuf *b,
                     struct str manifest, const struct web_blob *files, int n);
// A file of the runtime in a package for `backend`; empty: it has none of that name.
struct str web_runtime(struct arena *a, const char *name, enum web_backend backend);
