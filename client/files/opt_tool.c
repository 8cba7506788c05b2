// SPDX-License-Identifier: Apache-2.0
#include "client/files/opt_tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/hlo.h"

enum { MAX_ARGS = 16 };
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

int hlo_opt_into(struct hlo *h, const char *out, const char *const *args) {
    const char *argv[MAX_ARGS + 2] = {tool(h)};
    for (int k = 0; args[k] && k < MAX_ARGS; k++)
        argv[k + 1] = args[k];
    char *part = arena_printf(&h->arena, "%s.XXXXXX", out);
    int rc = run_into(part, argv);
    if (rc < 0) return -rc;
    if (!rc && rename(part, out)) rc = fail_status(st_errno(errno, out));
    if (rc) unlink(part);
    return rc == 127 ? EXIT_RUN : rc ? EXIT_REFUSED : 0;
}
