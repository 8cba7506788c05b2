// SPDX-License-Identifier: Apache-2.0
// Manual pages, shell completion and the sample file, all from config.def: what is not in the table
// is not in them.
#include <ctype.h>
#include <string.h>

#include "server/api/api.h"
#include "server/config.h"

enum kind { K_TEXT, K_INT, K_BYTES, K_BOOL, K_LIST };
enum when { W_START, W_LIVE };
static const struct row {
    const char *name;
    enum kind kind;
    const char *def;
    enum when when;
    const char *value, *help;
} rows[] = {
#define OPTION(name, type, def, low, high, when, value, help)                                      \
    {#name, K_##type, def, W_##when, value, help},
#include "server/config.def"
#undef OPTION
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static void put_dashed(struct strbuf *b, const char *name, const char *dash) {
    for (; *name; name++)
        if (*name == '_')
            strbuf_puts(b, dash);
        else
            strbuf_putc(b, *name);
}
static void roff(struct strbuf *b, const char *text) {
    strbuf_roff(b, str_of(text));
}
static void roff_head(struct strbuf *b, const char *name, const char *section, const char *what) {
    strbuf_printf(b, ".\\\" made from server/config.def\n.TH %s %s \"\" \"hlod %s\" \"hlod\"\n",
                  name, section, api_version_text());
    strbuf_printf(b, ".SH NAME\n%s \\- %s\n", name, what);
}

// .TP of one option: `tag` writes its head.
static void roff_rows(struct strbuf *b, bool flags) {
    for (int k = 0; k < N_ROWS; k++) {
        const struct row *o = &rows[k];
        strbuf_puts(b, ".TP\n\\fB");
        if (flags) strbuf_puts(b, "\\-\\-");
        put_dashed(b, o->name, flags ? "\\-" : "_");
        strbuf_puts(b, "\\fR");
        if (flags && *o->value) strbuf_printf(b, " \\fI%s\\fR", o->value);
        if (!flags)
            strbuf_puts(b, o->kind == K_BOOL   ? " = true | false"
                           : o->kind == K_INT  ? " = \\fInumber\\fR"
                           : o->kind == K_LIST ? " = [\"...\", ...]"
                                               : " = \"...\"");
        strbuf_putc(b, '\n');
        roff(b, o->help);
        strbuf_puts(b, *o->def ? ".\nDefault: " : ".\n");
        roff(b, o->def);
        strbuf_puts(b, *o->def ? ".\n" : "");
        if (o->when == W_LIVE) strbuf_puts(b, "A reload takes it.\n");
    }
}

void config_man(struct strbuf *b) {
    roff_head(b, "hlod", "8",
              "daemon that compiles model graphs into whole\\-program executables and runs them");
    strbuf_puts(
        b,
        ".SH SYNOPSIS\n.B hlod\n[\\fIoptions\\fR]\n.SH DESCRIPTION\n"
        "Takes ONNX models and HLO over HTTP and gRPC, compiles each whole program into one\n"
        "executable of fused HLO, keeps it under its hash, runs it on a device in a worker\n"
        "process, and streams results and timings. It also answers the Open Inference Protocol.\n"
        "A page for people is at \\fBhttp://127.0.0.1:8000/\\fR.\n"
        ".PP\nOptions come from flags, which win over the environment (\\fBHLOD_MAX_QUEUE\\fR is\n"
        "\\fB\\-\\-max\\-queue\\fR), that over the file of \\fBhlod.toml\\fR(5), that over the "
        "default.\n"
        ".SH OPTIONS\n.TP\n\\fB\\-\\-config\\fR \\fIFILE\\fR\nRead options from there. Also "
        "\\fBHLOD_CONFIG\\fR.\n.TP\n\\fB\\-\\-check\\-config\\fR\nRead everything, say what is "
        "wrong, start nothing.\n.TP\n\\fB\\-\\-version\\fR, \\fB\\-\\-help\\fR\nSay so and end.\n");

    roff_rows(b, true);
    strbuf_puts(
        b,
        ".SH SIGNALS\n.TP\n\\fBSIGTERM\\fR, \\fBSIGINT\\fR\nTake no more connections, wait up "
        "to \\fB\\-\\-drain\\-ms\\fR for requests under way, end. A second one ends at once.\n"
        ".TP\n\\fBSIGHUP\\fR\nRead options, tokens and certificates again. With a mistake in "
        "them nothing changes, and the log says why.\n"
        ".TP\n\\fBSIGUSR1\\fR\nWrite whole copies of the databases to \\fIDATA/backup\\fR, for a "
        "backup while it runs; the log says when they are there, or why not.\n"
        ".SH SERVICE MANAGER\nWith \\fBNOTIFY_SOCKET\\fR (systemd \\fBType=notify\\fR) it says "
        "ready when a compile worker and a device worker are up, and when it reloads and stops; "
        "it feeds the watchdog from the thread that serves.\n"
        ".SH FILES\n.TP\n\\fI/etc/hlod/hlod.toml\\fR\nOptions of the packaged service.\n.TP\n"
        "\\fI/var/lib/hlod\\fR\nIts data folder: models, executables, batch jobs.\n"
        ".SH EXIT STATUS\n0 after a shutdown, 1 when it could not start, 2 for a mistake in the "
        "options.\n.SH SEE ALSO\n\\fBhlo\\fR(1), \\fBhlod.toml\\fR(5)\n");
}

void config_man_file(struct strbuf *b) {
    roff_head(b, "hlod.toml", "5", "options of hlod");
    strbuf_puts(
        b, ".SH DESCRIPTION\nRead by \\fBhlod \\-\\-config\\fR \\fIFILE\\fR; a subset of TOML: one "
           "\\fIkey\\fR = \\fIvalue\\fR a line, of one level. A value is a \\fB\"text\"\\fR, a "
           "number, \\fBtrue\\fR or \\fBfalse\\fR, or a list of texts. Sizes may be written as "
           "\\fB\"256M\"\\fR. Behind a # is comment. An unknown key is a mistake, and a mistake "
           "keeps the daemon from starting. Flags and the environment win over the file.\n"
           ".SH KEYS\n");
    roff_rows(b, false);
    strbuf_puts(b, ".SH SEE ALSO\n\\fBhlod\\fR(8), \\fBhlo\\fR(1)\n");
}

void config_sample(struct strbuf *b) {
    strbuf_printf(
        b,
        "# Options of hlod %s, each with its default. Take the # away from what is to "
        "change; hlod.toml(5) tells more.\n# `hlod --config FILE --check-config` says what "
        "is wrong. Those marked (reload) follow `systemctl reload hlod` (SIGHUP), the "
        "others a restart.\n",
        api_version_text());
    for (int k = 0; k < N_ROWS; k++) {
        const struct row *o = &rows[k];
        bool quoted = o->kind == K_TEXT || o->kind == K_BYTES;
        strbuf_printf(b, "\n# %s%s\n#%s = ", o->help, o->when == W_LIVE ? " (reload)" : "",
                      o->name);
        if (o->kind == K_LIST)
            strbuf_printf(b, *o->def ? "[\"%s\"]\n" : "[]\n", o->def);
        else
            strbuf_printf(b, quoted ? "\"%s\"\n" : "%s\n", o->def);
    }
}

// What completes the value behind an option.
static bool takes_file(const struct row *o) {
    return !strcmp(o->value, "FILE") || !strcmp(o->value, "DIR") || !strcmp(o->value, "PEM");
}

void config_bash(struct strbuf *b) {
    strbuf_puts(b,
                "# Completion of hlod for bash; made from server/config.def\n_hlod() {\n    local "
                "cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n    case $prev "
                "in\n    --config");
    for (int k = 0; k < N_ROWS; k++)
        if (takes_file(&rows[k])) {
            strbuf_puts(b, "|--");
            put_dashed(b, rows[k].name, "-");
        }
    strbuf_puts(b, ")\n        compopt -o default; COMPREPLY=(); return ;;\n    --log)\n        "
                   "COMPREPLY=($(compgen -W 'error warn info debug' -- \"$cur\")); return ;;\n    "
                   "esac\n    COMPREPLY=($(compgen -W '--config --check-config --version --help");
    for (int k = 0; k < N_ROWS; k++) {
        strbuf_puts(b, " --");
        put_dashed(b, rows[k].name, "-");
    }
    strbuf_puts(b, "' -- \"$cur\"))\n}\ncomplete -F _hlod hlod\n");
}

// Text inside '...[...]' of _arguments.
static void put_zsh(struct strbuf *b, const char *text) {
    for (; *text; text++)
        if (*text == '\'')
            strbuf_puts(b, "'\\''");
        else if (*text == '[' || *text == ']' || *text == ':' || *text == '\\')
            strbuf_printf(b, "\\%c", *text);
        else
            strbuf_putc(b, *text);
}

void config_zsh(struct strbuf *b) {
    strbuf_puts(b, "#compdef hlod\n# Made from server/config.def\n_arguments \\\n"
                   "    '--config[a file with options]:file:_files' \\\n"
                   "    '--check-config[read everything, start nothing]' \\\n"
                   "    '--version[say the version]' \\\n    '--help[say the options]'");
    for (int k = 0; k < N_ROWS; k++) {
        const struct row *o = &rows[k];
        strbuf_puts(b, " \\\n    '--");
        put_dashed(b, o->name, "-");
        strbuf_puts(b, "[");
        put_zsh(b, o->help);
        strbuf_puts(b, "]");
        if (*o->value) {
            strbuf_puts(b, ":");
            put_zsh(b, o->value);
            strbuf_puts(b, takes_file(o) ? ":_files" : ":");
        }
        strbuf_putc(b, '\'');
    }
    strbuf_putc(b, '\n');
}
