// SPDX-License-Identifier: Apache-2.0
// http_file: a blob as the body of a reply, from its file. It was checked when it was opened; the
// disk may change it until it is sent. So a whole one is hashed as it goes out, and where it is not
// what its name says the connection ends before the last piece: the client has fewer bytes than
// were announced, and no wrong ones that look whole. The file is then looked at again, which
// quarantines it. Parts are not checked so. Thread: loop.
#pragma once
#include "base/hash.h"
#include "server/http/http_req.h"

// Takes f->fd.
struct MHD_Response *http_file_response(struct http_req *r, struct call_file *f,
                                        struct digest digest);
