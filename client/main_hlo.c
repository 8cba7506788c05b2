// SPDX-License-Identifier: Apache-2.0
// hlo: the user's command. Reads the global options and hands over to the command.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/docs.h"
#include "client/cli/hlo.h"

static const struct command commands[] = {
#define COMMAND(name, usage, doc) {#name, cmd_##name, usage, doc},
#include "client/cli/commands.def"
#undef COMMAND
};

static const char values[] =
    "\nVALUE: @file.npy, @file.npz (the member NAME), @file.png, @file.jpg, or numbers, which take "
    "the\n  input's type, and its shape where their count says which:\n"
    "      1,2,3   [[1,2],[3,4]]   2x2=1,2,3,4   random\n"
    "  With a type in front also raw files and types that NumPy lacks:\n"
    "      2x3xs64=1,2,3,4,5,6   8xf32=@file   bf16=@file.npy   (any f8, s4, u4 as well)\n"
    "  Pictures become (value - mean) / std in f32, after a centre crop of PART of the short side "
    "(a\n  square) and resizing; mean and std of 0 to 255, or of 0 to 1 where std is below 1.\n";

static int no_command(const char *name) {
    if (name[0] == '-') return usage_error("there is no option %s, or its value is missing", name);
    for (size_t k = 0; k < sizeof commands / sizeof commands[0]; k++)
        if (str_is_like(str_of(name), str_of(commands[k].name)))
            return usage_error("no command is called '%s' (did you mean %s?)", name,
                               commands[k].name);
    return usage_error("no command is called '%s'", name);
}
static const struct command *command_find(const char *name) {
    for (size_t k = 0; k < sizeof commands / sizeof commands[0]; k++)
        if (strcmp(name, commands[k].name) == 0) return &commands[k];
    return NULL;
}
static int help_command(const struct command *c) {
    struct strbuf b = {0};
    docs_command(&b, c->name, c->usage, c->doc);
    fputs(strbuf_cstr(&b), stdout);
    strbuf_done(&b);
    if (strstr(c->usage, "VALUE")) fputs(values, stdout);
    puts("\n`hlo --help`: all commands; `hlo help options`: server, credentials, --json");
    return 0;
}
// The overview fits a screen of 24 lines and 80 columns; what is behind a command's name is in its
// own help. tests/client/cli.py sees to it that no command is missing.
static const struct {
    const char *group, *name, *brief;
} overview[] = {
    {"Models", "compile", "compile a model, for a device here or for another target"},
    {"", "run", "run a model once, on inputs from files or made up"},
    {"", "show", "what a model is: inputs, outputs, operators, parameters"},
    {"", "inspect", "the fused program and what came before it"},
    {"", "convert", "a program as StableHLO, HLO text or HloModuleProto"},
    {"", "export", "a model as a page or a package that runs it in the browser"},
    {"", "train", "a model on rows of your own, as one executable"},
    {"", "models", "names and versions of models; batching"},
    {"", "plan", "several executables in one request"},
    {"", "buffers", "values that stay on the device between runs"},
    {"Measuring", "tune", "measure who runs each step fastest, and keep that"},
    {"", "doctor", "is all well; of a model: why it takes as long as it does"},
    {"", "bench", "requests a second and latencies under load"},
    {"", "top", "what the server does now"},
    {"", "runs", "what it did last, as timelines for Perfetto"},
    {"Batches", "submit", "a suite: models, targets, inputs, expected outputs, budgets"},
    {"", "jobs", "list, follow and cancel its jobs; their results"},
    {"Server", "devices", "devices and their state"},
    {"", "targets", "what can be compiled for and executed here"},
    {"", "plugins", "PJRT plugins for TPUs and GPUs"},
    {"", "cache", "compiled executables: list, keep, verify, exchange"},
    {"", "nodes", "the servers of its cluster, and their room"},
    {"", "tenants", "who shares the devices, and how much"},
    {"", "aside", "work that ended its workers twice, refused for now"},
    {"", "tokens", "who may use a server"},
    {"", "health", "ready or not, for probes"}};

static int help(FILE *f) {
    fputs("usage: hlo [--addr HOST:PORT] [--json] COMMAND ...    first: hlo run model.onnx\n", f);
    for (size_t k = 0; k < sizeof overview / sizeof *overview; k++)
        fprintf(f, "%-10s %-8s %s\n", overview[k].group, overview[k].name, overview[k].brief);
    fputs("More: `hlo COMMAND --help`, `hlo help options`, `hlo help exit-codes`\n", f);
    return 0;
}
static int help_options(void) {
    fputs("A server is started by `hlod &`; its dashboard is http://127.0.0.1:8000/ in a browser.\n"
          "Before or behind any command:\n\n"
          "  --addr [https://]HOST[:PORT]\n"
          "                 the server; else HLOD_ADDR, else 127.0.0.1:8000\n"
          "  --token T      who asks; else HLOD_TOKEN, or the content of HLOD_TOKEN_FILE\n"
          "  --cacert PEM   the authority that signed the server's certificate, for https://;\n"
          "                 else HLOD_CACERT, else those of the system\n"
          "  --cert PEM, --key PEM\n"
          "                 the client's own certificate; else HLOD_CERT, HLOD_KEY\n"
          "  --json         the server's reply as JSON, on stdout\n"
          "  --quiet, -q    results and errors only: no progress, no notes\n"
          "  --version      this program's version\n"
          "\nNO_COLOR, CI or TERM=dumb in the environment: no progress line.\n",
          stdout);
    return 0;
}
static int print(void (*text)(struct strbuf *b)) {
    struct strbuf b = {0};
    text(&b);
    fputs(strbuf_cstr(&b), stdout);
    strbuf_done(&b);
    return EXIT_OK; // main sees whether it was written
}
static void exit_codes(struct strbuf *b) {
    docs_exit_codes(b, "");
}
static int print_docs(const char *what) { // for `make install`
    static const struct {
        const char *what;
        void (*text)(struct strbuf *b);
    } all[] = {{"man", docs_man}, {"bash", docs_bash}, {"zsh", docs_zsh}};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (!strcmp(what, all[k].what)) return print(all[k].text);
    return EXIT_USAGE;
}

static int run_command(struct hlo *h, const char *name, bool usage) {
    if (strcmp(name, "help") == 0 && h->argc) {
        if (strcmp(h->argv[0], "exit-codes") == 0) return print(exit_codes);
        if (strcmp(h->argv[0], "options") == 0) return help_options();
        name = h->argv[0];
        usage = true;
    }
    if (strcmp(name, "help") == 0) return help(stdout);
    const struct command *c = command_find(name);
    if (!c) return no_command(name);
    h->command = c;
    usage_of(c->name);
    if (usage) return help_command(c);
    status_t st = http_security_env(&h->arena, &h->security);
    return st ? fail_status(st) : c->fn(h);
}

// The value of `--name V` or `--name=V` among the global options, with which *k moves on.
static bool global_text(int argc, char **argv, int *k, const char *name, const char **out) {
    size_t n = strlen(name);
    if (strncmp(argv[*k], name, n) != 0) return false;
    if (argv[*k][n] == '=')
        *out = argv[*k] + n + 1;
    else if (argv[*k][n] || *k + 1 >= argc)
        return false;
    else
        *out = argv[++*k];
    return true;
}

int main(int argc, char **argv) {
    struct hlo h = {.addr = getenv("HLOD_ADDR"),
                    .tty = isatty(STDERR_FILENO) && !getenv("NO_COLOR") && !getenv("CI") &&
                           strcmp(getenv("TERM") ? getenv("TERM") : "", "dumb") != 0};
    const char *command = NULL;

    if (argc == 2 && strncmp(argv[1], "--print-docs=", 13) == 0) return print_docs(argv[1] + 13);
    bool version = false, usage = false;
    h.argv = arena_zarray(&h.arena, char *, argc + 1);

    for (int k = 1; k < argc; k++) {
        if (strcmp(argv[k], "--json") == 0)
            h.json = true;
        else if (strcmp(argv[k], "--quiet") == 0 || strcmp(argv[k], "-q") == 0)
            h.quiet = true;
        else if (global_text(argc, argv, &k, "--addr", &h.addr) ||
                 global_text(argc, argv, &k, "--token", &h.security.token) ||
                 global_text(argc, argv, &k, "--cacert", &h.security.cacert) ||
                 global_text(argc, argv, &k, "--cert", &h.security.cert) ||
                 global_text(argc, argv, &k, "--key", &h.security.key))
            continue;
        else if (strcmp(argv[k], "--version") == 0 && !command)
            version = true;
        else if (strcmp(argv[k], "--help") == 0 || strcmp(argv[k], "-h") == 0)
            usage = true;
        else if (!command)
            command = argv[k];
        else
            h.argv[h.argc++] = argv[k];
    }

    if (h.json) errors_as_json();
    if (!h.addr || !h.addr[0]) h.addr = "127.0.0.1:8000";

    int rc = EXIT_USAGE;
    if (usage && !command)
        rc = help(stdout);
    else if (version)
        rc = puts("hlo " HLOD_VERSION) < 0;
    else if (command)
        rc = run_command(&h, command, usage);
    else
        help(stderr);

    hlod_close(h.hlod);
    arena_done(&h.arena);
    if (!fflush(stdout) && !ferror(stdout)) return rc;
    fputs("hlo: standard output cannot be written\n", stderr);
    return rc ? rc : EXIT_USAGE;
}
