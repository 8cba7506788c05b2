// SPDX-License-Identifier: Apache-2.0
// bus: messages between the daemons of a cluster, by a NATS server: what one publishes on the
// subject all get, itself too, or, where the server or the network is away, nobody. Letters go to
// one subject: another daemon's inbox, or JetStream, whose answers come to ours. bus.c is the
// only file that knows nats.h. A thread of its own connects (to one server of the list after
// another, forever, with growing pauses), publishes, hears, and notices the end of a connection.
// The loop never waits for it. What is too long, or too much, is dropped and counted. Thread: loop,
// where not said otherwise.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"

struct loop;
struct bus;
enum { BUS_SERVERS = 16, BUS_NOBODY = 503 };
struct bus_server {
    const char *url;  // nats://HOST:PORT or tls://HOST:PORT
    const char *host; // that a certificate must be of
    bool tls, loopback;
};
struct bus_mail {      // what came; borrowed
    const char *at;    // what follows our inbox in its subject, or that of a message that JetStream
                       // keeps; NULL: it came on the shared one
    const char *reply; // where an answer goes; "": nowhere
    int status;        // that a server says in the place of contents; 0: none. BUS_NOBODY: nobody
                       // takes what was sent to a subject
    struct span bytes;
};
struct bus_letter {
    const char *subject;
    const char *reply; // ".NAME": where in our inbox answers go; NULL: there is none
    const char *id;    // by which JetStream knows what it has already; NULL: none
    int64_t expect;    // 0: nothing; else JetStream takes it only where the last message on its
                       // subject has this number less one, 0 being none
    struct span bytes;
};
struct bus_config {
    struct loop *loop;
    const struct bus_server *servers;
    size_t n_servers;
    const char *name, *subject;
    const char *inbox;                         // of this process alone: INBOX.>; "": it has none
    const char *credentials, *ca, *cert, *key; // files; "": none
    size_t max_bytes;                          // of a message; longer ones are dropped
    int64_t quiet_ms; // who hears nothing for so long, also not itself, connects again
    // Thread: the bus's, one message after another. Makes of a message what the loop is to
    // have, in a; NULL: nothing, and it counts as refused.
    void *(*read)(void *ctx, struct arena *a, const struct bus_mail *mail);
    // Of such a message; a is taken.
    void (*take)(void *ctx, struct arena *a, void *message);
    // It is connected now (why NULL), or not any more, or still not; texts borrowed.
    void (*state)(void *ctx, bool up, const char *server, const char *why);
    void *ctx;
};
// Entries of --cluster. INVALID_ARGUMENT, with the entry.
status_t bus_servers(struct arena *a, const char *list, struct bus_server *out,
                     size_t *out_n) MUST_CHECK;
// All texts of cfg are copied. Starts the thread.
status_t bus_new(const struct bus_config *cfg, struct bus **out) MUST_CHECK;
// To all; dropped without a connection, or where too much waits already.
void bus_publish(struct bus *b, struct span bytes);
// To one subject; copied. The same.
void bus_send(struct bus *b, const struct bus_letter *x);
int64_t bus_refused(const struct bus *b);
// No callbacks any more; what was published before is still sent, where there is a connection. NULL
// is fine, as for
void bus_stop(struct bus *b);
void bus_free(struct bus *b); // after the loop; waits seconds at most for the thread
