// SPDX-License-Identifier: Apache-2.0
#include "server/check_device.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/kinds.h"

extern char **environ;
enum { MAX_WORDS = 2000 }; // of what a worker says

// What comes through `fd`, of which MAX_WORDS bytes are kept, without the last line end.
static const char *words_of(struct arena *a, int fd) {
    char text[MAX_WORDS], rest[512];
    size_t n = 0;
    for (;;) {
        bool full = n == sizeof text;
        ssize_t got = read(fd, full ? rest : text + n, full ? sizeof rest : sizeof text - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        if (!full) n += (size_t)got;
    }
    while (n && text[n - 1] == '\n')
        n--;
    return arena_strndup(a, text, n);
}

MUST_CHECK static status_t ask_worker(struct arena *a, const char *worker, const char *spec) {
    int ends[2], state = -1;
    if (pipe2(ends, O_CLOEXEC)) return st_errno(errno, "pipe");
    char role[] = "--role=check", *device = arena_printf(a, "--device=%s", spec),
         *program = arena_strdup(a, worker);
    char *argv[] = {program, role, device, NULL};
    posix_spawn_file_actions_t files;
    pid_t pid = -1;
    int e = posix_spawn_file_actions_init(&files);
    if (!e) {
        e = posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
        if (!e) e = posix_spawn(&pid, program, &files, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&files);
    }
    close(ends[1]);
    const char *words = e ? "" : words_of(a, ends[0]);
    close(ends[0]);
    if (e) return st_note(st_errno(e, worker), "worker program");
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
        continue;
    if (!state) return ST_OK;
    if (*words) return st_invalid("%s", words);
    return st_invalid("device '%s': the worker ended with state %d", spec, state);
}

// The file that a spec of kind pjrt names: plugin=FILE among its options, --pjrt-plugin, or the
// environment. NULL when there is none.
static const char *plugin_file(struct arena *a, struct str options, const char *pjrt_plugin) {
    struct str one, key;
    while (options.n && str_cut(&options, ':', &one)) {
        struct str value = one;
        if (str_cut(&value, '=', &key) && str_is(key, "plugin"))
            return arena_strndup(a, value.p, value.n);
    }
    return *pjrt_plugin ? pjrt_plugin : getenv("HLOD_PJRT_PLUGIN");
}

status_t check_device(const struct plugins *plugins, struct arena *a, const char *worker,
                      const char *spec, const char *pjrt_plugin) {
    struct str options = str_of(spec), kind;
    str_cut(&options, ':', &kind);
    if (kind_has(spec, KIND_JOINS)) {
        if (!options.n) return ST_OK;
        return st_invalid("device '%s': the kind has no options; its pages say what they are",
                          spec);
    }
    if (!kind_has(spec, KIND_PLUGIN))
        return plugins_of_kind(plugins, arena_strndup(a, kind.p, kind.n))
                   ? ST_OK
                   : ask_worker(a, worker, spec);
    const char *path = plugin_file(a, options, pjrt_plugin);
    if (!path || !*path)
        return st_invalid(
            "device '%s': no plugin is named: --pjrt-plugin FILE, or pjrt:plugin=FILE", spec);
    struct stat sb;
    if (stat(path, &sb) || (S_ISREG(sb.st_mode) ? access(path, R_OK) : (errno = EISDIR)))
        return st_note(st_errno(errno, path), "device '%s': plugin (--pjrt-plugin, plugin=)", spec);
    return ST_OK;
}
