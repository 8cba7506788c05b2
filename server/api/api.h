// SPDX-License-Identifier: Apache-2.0
// api: the method table (api.def joined with the service descriptor) and the handlers, one file a
// noun. Handlers check what the message's types cannot say, start a job or pool work, and answer
// the call; they decide nothing else. Thread: loop.
#pragma once
#include "base/str.h"
#include "server/call.h"
#include "server/relay.h"

enum api_dialect { DIALECT_V1, DIALECT_OIP }; // JSON names and numbers, form of errors
// The columns of api.def, where each value is explained.
enum api_body {
    BODY_NONE,
    BODY_JSON,
    BODY_LOAD,
    BODY_MODEL,
    BODY_TENSORS,
    BODY_INFER,
    BODY_BLOB,
    BODY_BYTES,
    BODY_SETTINGS
};
enum api_reply {
    REPLY_JSON,
    REPLY_STREAM,
    REPLY_TEXT,
    REPLY_FILE,
    REPLY_BYTES,
    REPLY_INFER,
    REPLY_STATUS,
    REPLY_MEMBER,
    REPLY_LIST,
    REPLY_SETTINGS
};
enum api_state { STATE_SERVING, STATE_PROBE };
enum { API_OPEN_BYTES = 4096 }; // of a request to a row that asks for no scope
enum api_verb { VERB_GET, VERB_POST, VERB_PUT, VERB_DELETE, VERB_BOTH }; // BOTH: GET and POST
struct api_row {
    const char *service, *method;
    enum api_dialect dialect;
    status_t (*handler)(struct call *c);
    enum api_verb verb;
    enum api_body body;
    enum api_reply reply;
    unsigned scope; // SCOPE_* that the caller must have
    enum api_state state;
    const char *alias;                                // several, with a space between; "" = none
    bool stream;                                      // the reply is STREAM
    const ProtobufCMessageDescriptor *input, *output; // from the service
};
struct cluster;
struct named_model;
struct api {
    struct sched *sched;
    struct suites *suites; // batch jobs
    struct budget *budget; // for request bodies, of all transports
    struct auth *auth;     // NULL: every caller is anonymous, and may do what a loopback caller may
    int64_t start_ns;
    bool leaving;            // readiness is off, replies end their connections
    bool draining;           // and new work is refused
    struct secrets *secrets; // files that are looked at again; NULL: none
    bool options_failed;     // at the last SIGHUP
    bool trust_tenant_header;
    bool allow_model_load;   // over the Open Inference Protocol, with the model's bytes
    bool allow_cache_import; // executables that other daemons compiled
    struct uploads *uploads; // of models in pieces, at most so many open a tenant
    int max_uploads;
    int64_t upload_keep_ms, max_model_bytes, max_message_bytes;
    struct cluster *cluster;     // NULL: this server is alone
    struct relay_counts relays;  // calls that its other nodes answered
    struct otlp *otlp;           // NULL: no spans are told
    struct oip_regions *regions; // shared memory that clients registered; NULL: not offered
};
// hlod.v1 first (api.def), then the Open Inference Protocol (oip.def).
#define RPC(method, ...) ROW_##method,
enum {
#include "server/api/api.def"
    API_ROWS,
    API_LAST = API_ROWS - 1,
#include "server/oip/oip.def"
    ALL_ROWS
};
#undef RPC
extern struct api_row api_rows[ALL_ROWS];
// Joins table and descriptor; INTERNAL when they do not agree.
status_t api_init(void) MUST_CHECK;
// Who calls, and whether they may: before the body is read, so that nobody uploads in vain. For
// c->principal, in `a`. UNAUTHENTICATED, PERMISSION_DENIED.
status_t api_admit(const struct api *api, const struct api_row *row, struct arena *a,
                   const struct credentials *who, struct principal *out) MUST_CHECK;
void api_dispatch(struct call *c);          // row and request are set; answers through the sink
const char *api_verb_name(enum api_verb v); // "GET, POST" for BOTH
// What an alias of a row whose reply is INFER is for.
enum api_generate { GENERATE_NO, GENERATE_REPLY, GENERATE_STREAM };
enum api_generate api_generate(const struct api_row *row, struct str path);
const char *api_media_type(const char *format); // "onnx" -> "application/onnx"
// Messages that rows take and give, each once, with those inside them; vec_done is the caller's.
struct api_messages {
    const ProtobufCMessageDescriptor **v;
    size_t n, cap;
};
struct api_messages api_messages_of(int n_rows); // of the first n_rows of api_rows
void api_messages_add(struct api_messages *s, const ProtobufCMessageDescriptor *d);
void api_metrics(const struct api *api, struct strbuf *b); // /metrics
// UNAVAILABLE, SHUTTING_DOWN: the answer to what comes when the daemon takes no more.
status_t api_ends(void) MUST_CHECK;
bool api_serves(const struct api *api); // ready: not from the moment on that it is told to end
bool api_apart(const struct api *api);  // of its cluster: it serves, but alone
int64_t api_rss_bytes(void);            // of this process
void api_openapi(struct strbuf *b);     // /v1/openapi.json
void api_markdown(struct strbuf *b, struct str proto_text); // docs/api.md, comments from hlod.proto
const char *api_version_text(void);

// The handlers, of both tables. One answers (call_reply, call_finish), or has begun what will, or
// returns why it cannot.
#define RPC(method, handler, ...) status_t handler(struct call *c);
#include "server/api/api.def"
#include "server/oip/oip.def"
#undef RPC

// For handlers.
char *api_hex(struct arena *a, struct digest d);
status_t api_digest(const char *text, const char *what,
                    struct digest *out) MUST_CHECK; // REASON_BAD_DIGEST
// The same, or the name of a model: NAME, or NAME:VERSION.
// " (did you mean 'cats'?)": a model whose name the caller sees and that is much like this one, or
// the versions that the name has, of which another was asked for; "" if there is none. In c->arena.
const char *api_like(struct call *c, const char *name);
status_t api_model(struct call *c, const char *text, struct digest *out) MUST_CHECK;
// May the caller see what is not its tenant's? True without tokens, and with the scope admin.
bool api_sees_all(const struct call *c);
// Whose names the caller means by `name`: its tenant's; of who sees all, any tenant's that has it.
const char *api_space(struct call *c, const char *name);
bool api_sees(const struct call *c, const struct named_model *x); // lists
// What the name, if it is one, says about how its runs are scheduled.
void api_name(struct call *c, const char *text, struct job_spec *out);
