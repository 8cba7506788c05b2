// SPDX-License-Identifier: Apache-2.0
// hlo: the user's command. Reads the global options and hands over to the command.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/hlo.h"

static const struct command commands[] = {
    {"compile", cmd_compile, "MODEL [--shape NAME=1x3x224x224]... [--precision strict] [--json]",
     "compile a model; prints digest, counts, passes, timings"},
    {"run", cmd_run,
     "MODEL|DIGEST|NAME -i NAME=VALUE... [-o OUT.npz|OUT.npy] [--profile TRACE.json] [--repeat N] "
     "[--top K [--labels FILE]] [pictures: --size HxW --crop PART --mean M --std S --layout "
     "nchw|nhwc]",
     "run a model once; compiles first where needed"},
    {"inspect", cmd_inspect,
     "DIGEST --stage hlo-before|hlo-after|prepare|kir|llvm|plan | --pass NAME | --diff A B",
     "the text of one stage of an executable"},
    {"models", cmd_models,
     "[ls] | set NAME MODEL|DIGEST [--version N] [--shape ...] | rm NAME [--version N]",
     "names of models; a name stands for its digest, as NAME or NAME:VERSION, and answers on /v2"},
    {"devices", cmd_devices, "[--json]", "devices and their state"},
    {"cache", cmd_cache, "ls | rm DIGEST | explain A B | stats", "the executables in the cache"},
    {"doctor", cmd_doctor, "", "checks that the server answers and its devices are up"},
};

static int help(FILE *f) {
    fputs("usage: hlo [--addr ADDR:PORT] [--json] COMMAND ...\n\n", f);
    for (size_t k = 0; k < sizeof commands / sizeof commands[0]; k++)
        fprintf(f, "  %-8s %s\n           %s\n", commands[k].name, commands[k].doc,
                commands[k].usage);
    fputs("\nVALUE: @file.npy, @file.npz (the member NAME), @file.png, @file.jpg, or numbers: "
          "1,2,3;\n"
          "       with shape and type in front also other types and raw files: 2x3xs64=1,2,3,4,5,6 "
          " 8xf32=@file\n"
          "       Pictures become (value - mean) / std in f32, after a centre crop of PART of the "
          "short side (a square) and resizing\n"
          "The address comes from --addr, HLOD_ADDR, or is 127.0.0.1:8000. `hlo help exit-codes` "
          "lists the exit codes.\n",
          f);
    return 0;
}
static int exit_codes(void) {
    puts("0 ok\n1 results differ\n2 usage\n3 model refused (unsupported or invalid)\n4 compile "
         "failed\n5 execution failed\n69 server unreachable\n75 busy, try again\n124 deadline");
    return 0;
}

int main(int argc, char **argv) {
    struct hlo h = {.addr = getenv("HLOD_ADDR"),
                    .tty = isatty(STDERR_FILENO) && !getenv("NO_COLOR") && !getenv("CI")};
    const char *command = NULL;
    char **rest = calloc((size_t)argc + 1, sizeof *rest);
    if (!rest) return EXIT_RUN;
    for (int k = 1; k < argc; k++) {
        if (strcmp(argv[k], "--json") == 0)
            h.json = true;
        else if (strcmp(argv[k], "--quiet") == 0 || strcmp(argv[k], "-q") == 0)
            h.quiet = true;
        else if (strcmp(argv[k], "--addr") == 0 && k + 1 < argc)
            h.addr = argv[++k];
        else if (strncmp(argv[k], "--addr=", 7) == 0)
            h.addr = argv[k] + 7;
        else if (strcmp(argv[k], "--version") == 0 && !command)
            return puts("hlo " HLOD_VERSION) < 0;
        else if (strcmp(argv[k], "--help") == 0 || strcmp(argv[k], "-h") == 0)
            return help(stdout);
        else if (!command)
            command = argv[k];
        else
            rest[h.argc++] = argv[k];
    }
    h.argv = rest;
    if (!h.addr || !h.addr[0]) h.addr = "127.0.0.1:8000";
    status_t st = http_client_new(h.addr, &h.http);
    if (st) return fail_status(st);
    int rc = EXIT_USAGE;
    bool known = false;
    if (command && strcmp(command, "help") == 0) {
        rc = h.argc && strcmp(rest[0], "exit-codes") == 0 ? exit_codes() : help(stdout);
        known = true;
    }
    for (size_t k = 0; command && k < sizeof commands / sizeof commands[0]; k++) {
        if (strcmp(command, commands[k].name) != 0) continue;
        rc = commands[k].fn(&h);
        known = true;
    }
    if (!known) {
        if (command) fprintf(stderr, "hlo: no command is called '%s'\n", command);
        help(stderr);
    }
    http_client_free(h.http);
    arena_done(&h.arena);
    free(rest);
    return rc;
}
