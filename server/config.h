// SPDX-License-Identifier: Apache-2.0
// config: the options of config.def from the command line, the environment (HLOD_*) and a file in a
// strict subset of TOML (comments, `key = "text" | 123 | true | ["a", "b"]`; one level, but for
// [plugins]). An unknown key, flag or variable, or a value out of bounds is an error that names
// where it stands. Thread: start-up.
#pragma once
#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

struct config {
    struct arena arena;
#define CONFIG_TEXT                                           const char *
#define CONFIG_INT                                            int64_t
#define CONFIG_BYTES                                          int64_t
#define CONFIG_BOOL                                           bool
#define CONFIG_LIST                                           const char *
#define OPTION(name, type, def, low, high, when, value, help) CONFIG_##type name;
#include "server/config.def"
#undef OPTION
    bool help, version, check; // --help --version --check-config
};
// env is like environ (NULL-terminated "K=V"). *out is config_done by the caller, also after an
// error.
status_t config_read(int argc, char *const *argv, char *const *env, struct config *out) MUST_CHECK;
void config_done(struct config *c);
// Takes over the LIVE options of `next`, read again; `changed` is told of every option that
// differs, also of those that need a start (live false).
void config_update(struct config *c, const struct config *next,
                   void (*changed)(void *ctx, const char *name, bool live, const char *from,
                                   const char *to),
                   void *ctx);
void config_help(struct strbuf *b);     // --help
void config_markdown(struct strbuf *b); // docs/config.md
// config_docs.c: hlod(8), hlod.toml(5), the sample file, completion for bash and zsh.
void config_man(struct strbuf *b);
void config_man_file(struct strbuf *b);
void config_sample(struct strbuf *b);
void config_bash(struct strbuf *b);
void config_zsh(struct strbuf *b);
// "127.0.0.1:8000", "[::1]:0", "localhost:80" apart. INVALID_ARGUMENT.
status_t config_address(struct arena *a, const char *text, const char **out_host,
                        uint16_t *out_port) MUST_CHECK;
