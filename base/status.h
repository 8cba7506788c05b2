// SPDX-License-Identifier: Apache-2.0
// status: the one error type. NULL is success. A status has a canonical code, a message that says
// what and where (op, node name, byte offset, expected against found), a stable reason for clients,
// and notes added on the way up. Exactly one owner at a time: return it, send it, log it, or
// st_drop it. Functions that return one write their outputs only on success. Out-of-memory status
// is static and needs no memory.
//
//     status_t read_it(const char *path) {
//         RETURN_IF_ERR(open_it(path));
//         if (rank != 4) return st_invalid("node '%s': rank %d", name, rank);
//         return ST_OK;
//     }
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

enum status_code {
    ST_CODE_OK = 0,
#define STATUS(name, number, http, retry, text) ST_##name = number,
#include "base/status.def"
#undef STATUS
};

typedef struct status *status_t;
#define ST_OK      ((status_t)NULL)
#define MUST_CHECK __attribute__((warn_unused_result))
#define UNUSED     __attribute__((unused)) // a parameter that only the function's type asks for

// Makes a status; printf format. The macro captures the source line (debug builds print it).
#define st_new(code, ...) st_new_at((code), __FILE__, __LINE__, __VA_ARGS__)
// The codes that most messages have; printf format.
#define st_invalid(...)       st_new(ST_INVALID_ARGUMENT, __VA_ARGS__)
#define st_internal(...)      st_new(ST_INTERNAL, __VA_ARGS__)
#define st_unimplemented(...) st_new(ST_UNIMPLEMENTED, __VA_ARGS__)
#define st_exhausted(...)     st_new(ST_RESOURCE_EXHAUSTED, __VA_ARGS__)
status_t st_new_at(enum status_code code, const char *file, int line, const char *fmt,
                   ...) MUST_CHECK __attribute__((format(printf, 4, 5), returns_nonnull));
// Adds context in front of the message ("while compiling fusion.3: ..."), keeps the code. Takes and
// returns `s`; NULL stays NULL.
status_t st_note(status_t s, const char *fmt, ...) MUST_CHECK __attribute__((format(printf, 2, 3)));
// Sets the stable reason (enum Reason in proto/hlod.proto). Takes and returns `s`; NULL stays NULL.
status_t st_reason(status_t s, int reason) MUST_CHECK;
// When a retry makes sense (RESOURCE_EXHAUSTED, UNAVAILABLE). Takes and returns `s`; NULL stays so.
status_t st_retry_after(status_t s, int64_t ms) MUST_CHECK;
status_t st_copy(status_t s) MUST_CHECK; // another one that says the same; NULL for NULL
// s; but where it has the code, it is dropped and ST_OK.
status_t st_unless(enum status_code code, status_t s) MUST_CHECK;
// The first of two that is an error; the other is dropped.
status_t st_first(status_t a, status_t b) MUST_CHECK;
// errno as a status: "what: strerror"; ENOENT -> NOT_FOUND, ENOSPC/ENOMEM -> RESOURCE_EXHAUSTED,
// EACCES -> PERMISSION_DENIED.
status_t st_errno(int err, const char *what) MUST_CHECK;
status_t st_oom(void) MUST_CHECK;
// The only way to ignore a status. NULL is fine.
void st_drop(status_t s);

enum status_code st_code(status_t s);                           // ST_CODE_OK for NULL
int st_get_reason(status_t s);                                  // 0 = none
int64_t st_get_retry_ms(status_t s);                            // 0 = not said
const char *st_message(status_t s);                             // borrowed; "" for NULL
const char *st_where(status_t s);                               // "file:line", borrowed
const char *st_code_name(enum status_code c);                   // "INVALID_ARGUMENT"
enum status_code st_code_from_name(const char *name, size_t n); // ST_UNKNOWN if not a name
int st_code_http(enum status_code c); // HTTP status for the code, 200 for OK
int st_code_retryable(enum status_code c);

// The only two control-flow macros of the tree (a lint refuses others).
#define RETURN_IF_ERR(expr)                                                                        \
    do {                                                                                           \
        status_t st_tmp_ = (expr);                                                                 \
        if (__builtin_expect(st_tmp_ != NULL, 0)) return st_tmp_;                                  \
    } while (0)
// Needs a `status_t st` in scope; stores the error there and goes to the label.
#define GOTO_IF_ERR(label, expr)                                                                   \
    do {                                                                                           \
        st = (expr);                                                                               \
        if (__builtin_expect(st != NULL, 0)) goto label;                                           \
    } while (0)
