// SPDX-License-Identifier: Apache-2.0
// The manual page and shell completion of hlo, from commands.def. Options and words are found in
// the usage texts, which are regular: `--name VALUE`, `--name a|b|c`, alternatives with | between
// that begin with a word in lower case.
#include "client/cli/docs.h"

#include <ctype.h>
#include <string.h>

static const struct {
    const char *name, *usage, *doc;
} commands[] = {
#define COMMAND(name, usage, doc) {#name, usage, doc},
#include "client/cli/commands.def"
#undef COMMAND
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };
static const char globals[] =
    "[--addr HOST:PORT] [--token T] [--cacert PEM] [--cert PEM] [--key PEM] [--json] [--quiet] "
    "[--version] [--help]";

// ---- words of a usage text

struct word {
    struct str text;   // "--shape", "ls"
    struct str value;  // what the usage has behind it, "NAME=VALUE"
    struct str values; // the same where it is "a|b|c"; .n 0 = none of that form
    bool takes_value;
};
struct words { // each once
    struct word v[64];
    int n;
};

static bool word_char(char c) {
    return islower((unsigned char)c) || isdigit((unsigned char)c) || c == '-';
}
static struct str lower_run(const char *p, bool bars) {
    struct str s = {p, 0};
    while (word_char(p[s.n]) || (bars && p[s.n] == '|'))
        s.n++;
    return s;
}
static void add(struct words *l, struct word w) {
    for (int k = 0; k < l->n; k++)
        if (str_eq(l->v[k].text, w.text)) return;
    if (l->n < (int)(sizeof l->v / sizeof *l->v)) l->v[l->n++] = w;
}

static struct words words_of(const char *usage) {
    struct words l = {.n = 0};
    bool head = true; // of an alternative
    for (const char *p = usage; *p;) {
        bool option = p[0] == '-' && word_char(p[1]), word = head && islower((unsigned char)*p);
        if (!option && !word) {
            head = *p == '|' || (head && (*p == ' ' || *p == '['));
            p++;
            continue;
        }
        struct word w = {.text = lower_run(p, false)};
        p += w.text.n;
        head = false;
        if (word && *p && !strchr(" ]|", *p)) continue; // "pictures:", "a=b"
        if (option && *p == ' ' && p[1] != '|' && p[1] != '[' && p[1] != '-') {
            w.takes_value = true;
            struct str v = lower_run(++p, true);
            if (memchr(v.p, '|', v.n)) w.values = v;
            w.value = (struct str){p, 0};
            while (*p && *p != ' ' && *p != ']' && strncmp(p, "|-", 2))
                p++;
            w.value.n = (size_t)(p - w.value.p);
            if (w.value.n > 3 && !memcmp(p - 3, "...", 3)) w.value.n -= 3;
        }
        add(&l, w);
    }
    return l;
}
static bool is_option(const struct word *w) {
    return w->text.p[0] == '-';
}
static void put_values(struct strbuf *b, struct str values) {
    for (size_t k = 0; k < values.n; k++)
        strbuf_putc(b, values.p[k] == '|' ? ' ' : values.p[k]);
}
static void put_words(struct strbuf *b, const char *usage) {
    struct words l = words_of(usage);
    for (int k = 0; k < l.n; k++)
        strbuf_printf(b, " " STR_FMT, STR_ARG(l.v[k].text));
}

// ---- what options mean

static const struct {
    const char *command, *option, *doc;
} options[] = {
#define OPTION(command, option, doc) {command, option, doc},
#include "client/cli/options.def"
#undef OPTION
};
static const char *option_doc(const char *command, struct str option) {
    const char *all = NULL;
    for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
        if (!str_eq(option, str_of(options[k].option))) continue;
        if (!strcmp(options[k].command, command)) return options[k].doc;
        if (!options[k].command[0] && !all) all = options[k].doc;
    }
    return all;
}

// ---- `hlo COMMAND --help`

enum { WIDTH = 100, FORM_INDENT = 8, DOC_INDENT = 28 };
// The forms of a command are apart by " | ": a line each, or more where it is long.
static void put_forms(struct strbuf *b, const char *name, const char *usage) {
    size_t depth = 0;
    for (const char *p = usage, *from = usage;; p++) {
        depth += (size_t)(*p == '[') - (size_t)(*p == ']');
        if (*p && (depth || strncmp(p, " | ", 3))) continue;
        strbuf_printf(b, "  hlo %s ", name);
        struct str form = {from, (size_t)(p - from)};
        strbuf_wrapped(b, form, strlen(name) + 7, FORM_INDENT, WIDTH);
        if (!*p) return;
        p += 2;
        from = p + 1;
    }
}
void docs_command(struct strbuf *b, const char *name, const char *usage, const char *text) {
    strbuf_printf(b, "%s: ", name);
    strbuf_wrapped(b, str_of(text), strlen(name) + 2, 0, WIDTH);
    strbuf_putc(b, '\n');
    put_forms(b, name, usage);
    struct words l = words_of(usage);
    bool any = false;
    for (int k = 0; k < l.n; k++) {
        const char *doc = is_option(&l.v[k]) ? option_doc(name, l.v[k].text) : NULL;
        if (!doc) continue;
        if (!any) strbuf_putc(b, '\n');
        any = true;
        size_t at = b->n;
        strbuf_printf(b, "  " STR_FMT "%s" STR_FMT, STR_ARG(l.v[k].text), l.v[k].value.n ? " " : "",
                      STR_ARG(l.v[k].value));
        if (b->n - at + 2 > DOC_INDENT) {
            strbuf_putc(b, '\n');
            at = b->n;
        }
        strbuf_printf(b, "%*s", (int)(DOC_INDENT - (b->n - at)), "");
        strbuf_wrapped(b, str_of(doc), DOC_INDENT, DOC_INDENT, WIDTH);
    }
}

// ---- pages

void docs_man(struct strbuf *b) {
    strbuf_puts(b, ".\\\" made from client/cli/commands.def\n.TH hlo 1 \"\" \"hlod " HLOD_VERSION
                   "\" \"hlod\"\n.SH NAME\nhlo \\- compile and run model graphs on an hlod server\n"
                   ".SH SYNOPSIS\n.B hlo\n[\\fIoptions\\fR] \\fIcommand\\fR ...\n.SH OPTIONS\n");
    strbuf_roff(b, str_of(globals));
    strbuf_puts(b,
                "\n.PP\nThe address comes from \\fB\\-\\-addr\\fR, \\fBHLOD_ADDR\\fR, or is "
                "127.0.0.1:8000; credentials from the options, or \\fBHLOD_TOKEN\\fR, "
                "\\fBHLOD_TOKEN_FILE\\fR, \\fBHLOD_CACERT\\fR, \\fBHLOD_CERT\\fR, "
                "\\fBHLOD_KEY\\fR. Data goes to standard output, progress and errors to standard "
                "error.\n.SH COMMANDS\n");

    for (int k = 0; k < N_COMMANDS; k++) {
        strbuf_printf(b, ".TP\n\\fB%s\\fR ", commands[k].name);
        strbuf_roff(b, str_of(commands[k].usage));
        strbuf_putc(b, '\n');
        strbuf_roff(b, str_of(commands[k].doc));
        strbuf_puts(b, ".\n");
        struct words l = words_of(commands[k].usage);
        for (int i = 0; i < l.n; i++) {
            const char *doc = is_option(&l.v[i]) ? option_doc(commands[k].name, l.v[i].text) : NULL;
            if (!doc) continue;
            strbuf_puts(b, ".br\n\\fB");
            strbuf_roff(b, l.v[i].text);
            strbuf_puts(b, "\\fR ");
            strbuf_roff(b, str_of(doc));
            strbuf_puts(b, ".\n");
        }
    }

    strbuf_puts(
        b, ".SH VALUES OF INPUTS\nBehind \\fB\\-i\\fR \\fINAME\\fR=: \\fI@file.npy\\fR, "
           "\\fI@file.npz\\fR (the member NAME), \\fI@file.png\\fR, \\fI@file.jpg\\fR, or numbers: "
           "1,2,3, [[1,2],[3,4]], 2x2=1,2,3,4, random, which take the input's type, and its shape "
           "where their count says which; with a type in front also raw files: "
           "2x3xs64=1,2,3,4,5,6, 8xf32=@file.\n.SH EXIT STATUS\n");
    docs_exit_codes(b, ".br\n");
    strbuf_puts(b, ".SH SEE ALSO\n\\fBhlod\\fR(8), \\fBhlod.toml\\fR(5)\n");
}

void docs_exit_codes(struct strbuf *b, const char *separator) {
#define EXIT(name, code, text) strbuf_printf(b, "%d %s\n%s", code, text, separator);
#include "client/exits.def"
#undef EXIT
}

// ---- completion

// Options whose values are a list, as branches of a case. False: there are none.
static bool put_cases(struct strbuf *b, const char *usage) {
    struct words l = words_of(usage);
    bool any = false;
    for (int k = 0; k < l.n; k++) {
        if (!l.v[k].values.n) continue;
        strbuf_printf(b, "%s        " STR_FMT ") COMPREPLY=($(compgen -W '",
                      any ? "" : "        case $prev in\n", STR_ARG(l.v[k].text));
        put_values(b, l.v[k].values);
        strbuf_puts(b, "' -- \"$cur\")); return ;;\n");
        any = true;
    }
    return any;
}

void docs_bash(struct strbuf *b) {
    strbuf_puts(
        b, "# Completion of hlo for bash; made from client/cli/commands.def\n_hlo() {\n    local "
           "cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= k words\n    "
           "for ((k = 1; k < COMP_CWORD; k++)); do\n        case ${COMP_WORDS[k]} in\n        "
           "--addr|--token|--cacert|--cert|--key) ((k++)) ;;\n        -*) ;;\n        *) "
           "command=${COMP_WORDS[k]}; break ;;\n        esac\n    done\n    case $prev in\n    "
           "--cacert|--cert|--key|-o|--trace|--labels|--file) compopt -o default; COMPREPLY=(); "
           "return ;;\n    esac\n    case $command in\n");
    for (int k = 0; k < N_COMMANDS; k++) {
        strbuf_printf(b, "    %s)\n", commands[k].name);
        if (put_cases(b, commands[k].usage)) strbuf_puts(b, "        esac\n");
        strbuf_puts(b, "        words='");
        put_words(b, commands[k].usage);
        strbuf_puts(b, "'; compopt -o default ;;\n");
    }
    strbuf_puts(b, "    help) words='exit-codes' ;;\n    *) words='help");
    for (int k = 0; k < N_COMMANDS; k++)
        strbuf_printf(b, " %s", commands[k].name);
    put_words(b, globals);
    strbuf_puts(b,
                "' ;;\n    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete "
                "-F _hlo hlo\n");
}

static void put_zsh(struct strbuf *b, const char *text) {
    for (; *text; text++)
        if (*text == '\'')
            strbuf_puts(b, "'\\''");
        else if (*text == ':')
            strbuf_puts(b, "\\:");
        else
            strbuf_putc(b, *text);
}
static void put_arguments(struct strbuf *b, const char *usage) {
    struct words l = words_of(usage);
    struct strbuf plain = {0};
    strbuf_puts(b, "_arguments");
    for (int k = 0; k < l.n; k++) {
        const struct word *w = &l.v[k];
        if (!is_option(w)) {
            strbuf_printf(&plain, " " STR_FMT, STR_ARG(w->text));
            continue;
        }
        strbuf_printf(b, " '*" STR_FMT, STR_ARG(w->text));
        if (w->values.n) {
            strbuf_puts(b, ":value:(");
            put_values(b, w->values);
            strbuf_putc(b, ')');
        } else if (w->takes_value)
            strbuf_puts(b, ":value:_files");
        strbuf_putc(b, '\'');
    }
    if (plain.n) strbuf_printf(b, " '1:word:(%s)'", strbuf_cstr(&plain) + 1);
    strbuf_puts(b, " '*:file:_files'");
    strbuf_done(&plain);
}

void docs_zsh(struct strbuf *b) {
    strbuf_puts(
        b, "#compdef hlo\n# Made from client/cli/commands.def\n_hlo() {\n    local -a commands\n  "
           "  local state line\n    commands=(\n");
    for (int k = 0; k < N_COMMANDS; k++) {
        strbuf_printf(b, "        '%s:", commands[k].name);
        put_zsh(b, commands[k].doc);
        strbuf_puts(b, "'\n");
    }
    strbuf_puts(b, "        'help:says the commands, or the exit codes'\n    )\n    _arguments -C "
                   "'--addr:HOST\\:PORT:' '--token:token:' '--cacert:file:_files' "
                   "'--cert:file:_files' '--key:file:_files' --json --quiet --version --help "
                   "'1:command:->command' '*::argument:->rest'\n    case $state in\n    command) "
                   "_describe command commands ;;\n    rest)\n        case $words[1] in\n");
    for (int k = 0; k < N_COMMANDS; k++) {
        strbuf_printf(b, "        %s) ", commands[k].name);
        put_arguments(b, commands[k].usage);
        strbuf_puts(b, " ;;\n");
    }
    strbuf_puts(b, "        help) _values word exit-codes ;;\n        esac ;;\n    esac\n}\n_hlo "
                   "\"$@\"\n");
}
