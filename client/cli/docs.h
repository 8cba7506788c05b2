// SPDX-License-Identifier: Apache-2.0
// docs: hlo(1) and completion for bash and zsh, for `make install` (`hlo
// --print-docs=man|bash|zsh`).
#pragma once
#include "base/str.h"

void docs_man(struct strbuf *b);
void docs_bash(struct strbuf *b);
void docs_zsh(struct strbuf *b);
// For `hlo COMMAND --help`: what it does, its forms, what its options mean; at most 100 columns.
void docs_command(struct strbuf *b, const char *name, const char *usage, const char *doc);
void docs_exit_codes(struct strbuf *b, const char *separator); // behind each line
