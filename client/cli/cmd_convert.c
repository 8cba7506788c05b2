// SPDX-License-Identifier: Apache-2.0
// hlo convert: a program in another form, without a server: hlo-opt, which stands beside hlo, reads
// and writes it.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/hlo.h"

// How hlo-opt writes a file of this name; NULL: its ending says nothing.
static const char *form_of(const char *path) {
    static const struct {
        const char *ending, *option;
    } forms[] = {{".mlir", "--to=stablehlo"},
                 {".hlo", "--to=text"},
                 {".txt", "--to=text"},
                 {".pb", "--to=proto"}};
    const char *dot = strrchr(path, '.');
    for (size_t k = 0; dot && k < sizeof forms / sizeof *forms; k++)
        if (strcmp(dot, forms[k].ending) == 0) return forms[k].option;
    return NULL;
}
// The tool in hlo's own folder, else wherever PATH has it.
static const char *tool(struct hlo *h) {
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/');
    if (!slash) return "hlo-opt";
    *slash = 0;
    const char *path = arena_printf(&h->arena, "%s/hlo-opt", self);
    return access(path, X_OK) == 0 ? path : "hlo-opt";
}
// Runs argv with its output in a new file, whose name path (".XXXXXX") becomes; its exit code, or
// below 0.
static int run_into(char *path, const char **argv) {
    int fd = mkostemp(path, O_CLOEXEC), status;
    if (fd < 0) return -fail_status(st_errno(errno, path));
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask); // as of any file that is written
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd, STDOUT_FILENO);
        execvp(argv[0], (char **)(uintptr_t)argv);
        fprintf(stderr, "hlo: %s: %s; it comes with the server's package\n", argv[0],
                strerror(errno));
        _exit(127);
    }
    close(fd);
    if (pid < 0) return -fail_status(st_errno(errno, "fork"));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}

int cmd_convert(struct hlo *h) {
    const char *in = NULL, *out = NULL, *bind = NULL, *v;
    for (int k = 0; k < h->argc; k++) {
        if ((v = option_value(h, &k, "--bind")))
            bind = v;
        else if ((h->argv[k][0] == '-' && h->argv[k][1]) || out)
            return unknown_word(h, "convert", k);
        else if (in)
            out = h->argv[k];
        else
            in = h->argv[k];
    }
    if (!out) return usage_error("convert needs two files: hlo convert MODEL.onnx OUT.mlir");
    const char *form = form_of(out);
    if (!form)
        return usage_error("%s: what is written goes by the ending: .mlir (StableHLO), .hlo (HLO "
                           "text) or .pb (HloModuleProto)",
                           out);
    if (access(in, R_OK)) return fail_status(st_errno(errno, in));

    char *part = arena_printf(&h->arena, "%s.XXXXXX", out);
    const char *argv[] = {tool(h), form, "--weights", in, NULL, NULL};
    if (bind) argv[4] = arena_printf(&h->arena, "--bind=%s", bind);
    int rc = run_into(part, argv);
    if (rc < 0) return -rc;
    if (!rc && rename(part, out)) rc = fail_status(st_errno(errno, out));
    if (rc) unlink(part);
    return rc == 127 ? EXIT_RUN : rc ? EXIT_REFUSED : 0;
}
