// SPDX-License-Identifier: Apache-2.0
// config: the options of config.def from the command line, the environment (HLOD_*) and a file in a
// strict subset of TOML (comments, `key = "text" | 123 | true | ["a", "b"]`; one level, no tables).
// An unknown key, flag or variable, or a value out of bounds is an error that names where it
// stands. Thread: start-up.
#pragma once
#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

struct config {
    struct arena arena;
#define CONFIG_TEXT                                     const char *
#define CONFIG_INT                                      int64_t
#define CONFIG_BYTES                                    int64_t
#define CONFIG_BOOL                                     bool
#define CONFIG_LIST                                     const char *
#define OPTION(name, type, def, low, high, value, help) CONFIG_##type name;
#include "server/config.def"
#undef OPTION
    bool help, version, check; // --help --version --check-config
};
// env is like environ (NULL-terminated "K=V"). *out is config_done by the caller, also after an
// error.
status_t config_read(int argc, char *const *argv, char *const *env, struct config *out) MUST_CHECK;
void config_done(struct config *c);
void config_help(struct strbuf *b);     // --help
void config_markdown(struct strbuf *b); // docs/config.md
// "127.0.0.1:8000", "[::1]:0", "localhost:80" apart. INVALID_ARGUMENT.
status_t config_address(struct arena *a, const char *text, const char **out_host,
                        uint16_t *out_port) MUST_CHECK;
