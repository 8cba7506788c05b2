// SPDX-License-Identifier: Apache-2.0
#include "tests/web/web_runner.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/str.h"

extern char **environ;

enum web_backend web_runner_backend(const char *name) {
    for (int b = 0; b < WEB_BACKENDS; b++)
        if (strcmp(name, web_backend_name((enum web_backend)b)) == 0) return (enum web_backend)b;
    return WEB_WASM;
}

status_t web_runner_start(struct web_runner *r, const char *node, const char *serve,
                          const char *runtime) {
    int down[2], up[2];
    if (pipe(down) || pipe(up)) return st_errno(errno, "pipe");
    signal(SIGPIPE, SIG_IGN);
    r->pid = fork();
    if (r->pid == 0) {
        dup2(down[0], 0);
        dup2(up[1], 1);
        for (int k = 0; k < 2; k++)
            close(down[k]), close(up[k]);
        execlp(node, node, serve, runtime, (char *)NULL);
        _exit(127);
    }
    close(down[0]);
    close(up[1]);
    r->to = fdopen(down[1], "wb");
    r->from = fdopen(up[0], "rb");
    return r->pid > 0 && r->to && r->from ? ST_OK : st_errno(errno, node);
}
// Node may hang at its end (nodejs/node#54918), when all answers are here.
void web_runner_stop(struct web_runner *r) {
    pid_t ended = 0;
    if (r->to) fclose(r->to);
    if (r->from) fclose(r->from);
    for (int k = 0; r->pid > 0 && k < 1000 && !(ended = waitpid(r->pid, NULL, WNOHANG)); k++)
        usleep(10000);
    if (r->pid > 0 && !ended) {
        kill(r->pid, SIGKILL);
        waitpid(r->pid, NULL, 0);
    }
}

static void put(struct strbuf *b, const char *name, struct span bytes) {
    uint32_t n = (uint32_t)strlen(name), size = (uint32_t)bytes.n;
    strbuf_add(b, &n, 4);
    strbuf_puts(b, name);
    strbuf_add(b, &size, 4);
    if (size) strbuf_add(b, bytes.p, size);
}
static FILE *numbered(const struct web_runner *r, const char *how) {
    struct strbuf path = {0};
    strbuf_printf(&path, "%s/%d.%s", r->dir, r->n, r->writes ? "req" : "rep");
    FILE *f = fopen(strbuf_cstr(&path), how);
    strbuf_done(&path);
    return f;
}

static status_t read_answer(FILE *f, struct arena *a, int n_out, struct span **out) {
    uint32_t status, n;
    *out = arena_zarray(a, struct span, n_out + 1);
    if (fread(&status, 4, 1, f) != 1) return st_internal("no answer");
    for (int k = 0; k < (status ? 1 : n_out); k++) {
        if (fread(&n, 4, 1, f) != 1) return st_internal("a short answer");
        uint8_t *p = arena_alloc_aligned(a, n + 64, 64);
        if (n && fread(p, 1, n, f) != n) return st_internal("a short answer");
        if (status) return st_internal("%.*s", (int)n, (char *)p);
        (*out)[k] = (struct span){p, n};
    }
    return ST_OK;
}
status_t web_runner_run(struct web_runner *r, struct arena *a, const struct web_files *files,
                        const struct span *in, int n_in, int n_out, struct span **out) {
    struct strbuf b = {0};
    status_t st = ST_OK;
    uint32_t n;
    *out = NULL;
    r->n++;
    for (size_t k = 0; k < files->n; k++)
        if (str_starts(str_of(files->v[k].path), "model/"))
            put(&b, files->v[k].path, files->v[k].bytes);
    for (int k = 0; k < n_in; k++)
        put(&b, arena_printf(a, "in%d", k), in[k]);

    FILE *f = r->dir ? numbered(r, r->writes ? "wbe" : "rbe") : NULL;
    if (r->dir && !f) {
        st = st_errno(errno, r->dir);
    } else if (f && r->writes) {
        if (fwrite(b.p, 1, b.n, f) != b.n) st = st_errno(errno, r->dir);
    } else if (f) {
        st = read_answer(f, a, n_out, out);
    } else {
        n = (uint32_t)b.n;
        bool sent =
            fwrite(&n, 4, 1, r->to) == 1 && fwrite(b.p, 1, b.n, r->to) == b.n && fflush(r->to) == 0;
        if (!sent || fread(&n, 4, 1, r->from) != 1)
            st = st_internal("Node ended");
        else
            st = read_answer(r->from, a, n_out, out);
    }
    if (f) fclose(f);
    strbuf_done(&b);
    return st;
}
