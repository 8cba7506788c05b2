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

#include "base/store/file.h"
#include "client/cli/hlo.h"
#include "client/lib/onnx_external.h"

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
// Runs argv with its output in fd, which is closed, or with ours (-1); its exit code, or below 0.
static int run(int fd, const char **argv) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (fd >= 0) dup2(fd, STDOUT_FILENO);
        execvp(argv[0], (char **)(uintptr_t)argv);
        fprintf(stderr, "hlo: %s: %s; it comes with the server's package\n", argv[0],
                strerror(errno));
        _exit(127);
    }
    if (fd >= 0) close(fd);
    if (pid < 0) return -fail_status(st_errno(errno, "fork"));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}
// Runs argv with its output in a new file, whose name path (".XXXXXX") becomes; as `run`.
static int run_into(char *path, const char **argv) {
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) return -fail_status(st_errno(errno, path));
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask); // as of any file that is written
    return run(fd, argv);
}

static status_t write_parts(char *path, const struct span *parts, size_t n) {
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) return st_errno(errno, path);
    status_t st = ST_OK;
    for (size_t k = 0; k < n && !st; k++)
        st = file_write(fd, parts[k].p, parts[k].n, path);
    if (close(fd) && !st) st = st_errno(errno, path);
    if (st) unlink(path);
    return st;
}
// *out: a copy of the model with all data inside, which the caller removes; NULL: it has none
// outside.
static status_t make_whole(struct hlo *h, const char *model, const char *beside, char **out) {
    struct span *parts;
    size_t n;
    *out = NULL;
    RETURN_IF_ERR(onnx_external_inline(&h->arena, model, &parts, &n));
    if (!n) return ST_OK;
    char *path = arena_printf(&h->arena, "%s.whole.XXXXXX", beside);
    RETURN_IF_ERR(write_parts(path, parts, n));
    *out = path;
    return ST_OK;
}

// Runs hlo-opt; its output becomes the file `into`, or goes where ours does (NULL). A model with
// data outside is written whole, beside `near`.
static int run_tool(struct hlo *h, char *into, const char *near, const char *const *args,
                    const char *model) {
    char *whole;
    int n = 0;
    while (args[n])
        n++;
    const char **argv = arena_zarray(&h->arena, const char *, n + 3);
    status_t st = make_whole(h, model, near, &whole);
    if (st) return fail_status(st);
    argv[0] = tool(h);
    for (int k = 0; k < n; k++)
        argv[k + 1] = args[k];
    argv[n + 1] = whole ? whole : model;

    int rc = into ? run_into(into, argv) : run(-1, argv);
    if (whole) unlink(whole);
    if (rc < 0) return -rc;
    return rc == 127 ? EXIT_RUN : rc ? EXIT_REFUSED : 0;
}
int hlo_opt_into(struct hlo *h, const char *out, const char *const *args, const char *model) {
    char *part = arena_printf(&h->arena, "%s.XXXXXX", out);
    int rc = run_tool(h, part, out, args, model);
    if (!rc && rename(part, out)) rc = fail_status(st_errno(errno, out));
    if (rc) unlink(part);
    return rc;
}
int hlo_opt_run(struct hlo *h, const char *beside, const char *const *args, const char *model) {
    return run_tool(h, NULL, beside, args, model);
}
