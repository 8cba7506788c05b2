// SPDX-License-Identifier: Apache-2.0
// http_read: what libmicrohttpd reads of its connections goes by their guards (http_guard.h) first.
// The library has no hook there, so its calls of recv and gnutls_record_recv are ours, by the
// dynamic linker's order: a program's functions stand before those of libraries. They do what
// theirs do, but for connections of `http_reads_of`, on its thread. Bytes at fault are not handed
// on; when the library wants more of that connection (whatever came before is answered then), the
// client is told why in a reply of our own, and the library is told that the connection has ended.
// Should the linker not give us these calls, every request is refused (http_conn_begun). A client
// for whose connection no descriptor is left is turned away with 503: the library would look at its
// door again only when a connection of its own has ended. Thread: loop.
#pragma once

struct http_conns;
// From here on what this thread reads is of these connections; NULL: of nobody's.
void http_reads_of(struct http_conns *all);
// Puts a descriptor aside for when there are no more, if there is none: after a connection came or
// went.
void http_reads_spare(void);
