// SPDX-License-Identifier: Apache-2.0
// hlo plugins: PJRT plugins of others, kept in the data folder of this machine's hlod. Fetched by
// pip (download only: nothing is installed into a Python, none of their code runs) by the digests
// of proto/plugins.def, unpacked, and put in place once their licences were shown and accepted.
//
//     DATA/plugins/.NAME.new/wheels, tree   while it comes      DATA/plugins/NAME   then
#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/store/file.h"
#include "base/store/store.h"
#include "client/cli/hlo.h"

struct plugin {
    const char *name, *kind, *file, *about, *wheels;
};
static const struct plugin plugins[] = {
#define PLUGIN(name, kind, file, examples, about, wheels) {name, kind, file, about, wheels},
#include "proto/plugins.def"
#undef PLUGIN
};
enum { N_PLUGINS = sizeof plugins / sizeof *plugins };

static const struct plugin *find(const char *name) {
    for (int k = 0; k < N_PLUGINS; k++)
        if (strcmp(plugins[k].name, name) == 0) return &plugins[k];
    return NULL;
}

// ---- folders

static int remove_entry(const char *path, const struct stat *sb, int type, struct FTW *f) {
    (void)sb, (void)type, (void)f;
    return remove(path);
}
static void remove_tree(const char *path) {
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
static int programs_run(const char *path, const struct stat *sb, int type, struct FTW *f) {
    (void)f;
    bool program = type == FTW_F && (strstr(path, "/bin/") || strstr(path, ".so"));
    return program ? chmod(path, sb->st_mode | 0755) : 0; // unpacking loses that
}
static int64_t tree_bytes; // nftw has no context
static int add_bytes(const char *path, const struct stat *sb, int type, struct FTW *f) {
    (void)path, (void)f;
    if (type == FTW_F) tree_bytes += (int64_t)sb->st_size;
    return 0;
}

// ---- programs

static status_t run(const char *const argv[]) {
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        dup2(2, 1); // what they say is progress
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        fprintf(stderr, "hlo: %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return st_errno(errno, argv[0]);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return ST_OK;
    return st_new(ST_UNAVAILABLE, "%s %s %s failed", argv[0], argv[1], argv[2]);
}

static const char *python(void) {
    const char *p = getenv("HLO_PYTHON");
    return p && *p ? p : "python3";
}

// The wheels carry no code of ours and need no Python of a certain version: the tags are those of
// the files that the digests name.
static status_t download(struct hlo *h, const struct plugin *p, const char *dir) {
    const char *list = arena_printf(&h->arena, "%s/wheels.txt", dir);
    FILE *f = fopen(list, "we");
    if (!f) return st_errno(errno, list);
    bool ok = fprintf(f, "%s\n", p->wheels) > 0;
    if (fclose(f) || !ok) return st_errno(errno, list);
    char *wheels = arena_printf(&h->arena, "%s/wheels", dir);
    const char *argv[] = {python(),
                          "-m",
                          "pip",
                          "download",
                          "-q",
                          "--disable-pip-version-check",
                          "--no-deps",
                          "--require-hashes",
                          "--only-binary=:all:",
                          "--python-version=3.11",
                          "--platform=manylinux_2_31_x86_64",
                          "--platform=manylinux_2_27_x86_64",
                          "--platform=manylinux2014_x86_64",
                          "--platform=manylinux2010_x86_64",
                          "-d",
                          wheels,
                          "-r",
                          list,
                          NULL};
    return st_note(run(argv), "fetching plugin '%s'", p->name);
}

static status_t unpack(struct hlo *h, const char *dir) {
    glob_t found;
    const char *tree = arena_printf(&h->arena, "%s/tree", dir);
    status_t st = file_make_folders(tree, 0700);
    if (st) return st;
    if (glob(arena_printf(&h->arena, "%s/wheels/*.whl", dir), 0, NULL, &found))
        return st_new(ST_NOT_FOUND, "no wheel came to %s/wheels", dir);
    for (size_t k = 0; k < found.gl_pathc && !st; k++) {
        const char *argv[] = {python(), "-m", "zipfile", "-e", found.gl_pathv[k], tree, NULL};
        st = run(argv);
    }
    globfree(&found);
    if (!st && nftw(tree, programs_run, 16, FTW_PHYS)) st = st_errno(errno, tree);
    return st;
}

// ---- licences

// The lines of METADATA that name a licence.
static void show_metadata(const char *path) {
    char line[512];
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f) && line[0] != '\n') {
        static const char *const keys[] = {"Name:", "Version:", "License:", "License-Expression:"};
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (strncmp(line, keys[k], strlen(keys[k])) == 0) fprintf(stderr, "  %s", line);
    }
    if (f) fclose(f);
}
static void show_text(const char *path) {
    char line[8192]; // a whole paragraph, its address too
    FILE *f = fopen(path, "re");
    fprintf(stderr, "  --- %s\n", path);
    for (int k = 0; k < 12 && f && fgets(line, sizeof line, f); k++)
        fprintf(stderr, "  | %s%s", line, strchr(line, '\n') ? "" : "\n");
    if (f && !feof(f)) fputs("  | ... (all of it in that file)\n", stderr);
    if (f) fclose(f);
}
static void show_licences(struct hlo *h, const char *tree) {
    static const char *const where[] = {"*.dist-info/METADATA", "*.dist-info/LICENSE*",
                                        "*.dist-info/licenses/*", "*/LICENSE*"};
    for (size_t k = 0; k < sizeof where / sizeof *where; k++) {
        glob_t found;
        if (glob(arena_printf(&h->arena, "%s/%s", tree, where[k]), 0, NULL, &found)) continue;
        for (size_t i = 0; i < found.gl_pathc; i++)
            (k == 0 ? show_metadata : show_text)(found.gl_pathv[i]);
        globfree(&found);
    }
}
static bool accepted(bool yes) {
    char answer[16] = "";
    if (yes) return true;
    fputs("Use it under these licences? [y/N] ", stderr);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

// ---- commands

static status_t install(struct hlo *h, const char *data, const struct plugin *p, bool yes) {
    char *dir = arena_printf(&h->arena, "%s/plugins/.%s.new", data, p->name);
    const char *to = arena_printf(&h->arena, "%s/plugins/%s", data, p->name),
               *tree = arena_printf(&h->arena, "%s/tree", dir),
               *file = arena_printf(&h->arena, "%s/%s", tree, p->file);
    fprintf(stderr, "%s: %s; from PyPI:\n", p->name, p->about);
    struct str rest = str_of(p->wheels), line;
    while (rest.n && str_cut(&rest, '\n', &line))
        fprintf(stderr, "  " STR_FMT "\n", STR_ARG(line));
    remove_tree(dir);
    status_t st = file_make_folders(arena_printf(&h->arena, "%s/wheels", dir), 0700);
    if (!st) st = download(h, p, dir);
    if (!st) st = unpack(h, dir);
    if (!st && access(file, R_OK)) st = st_errno(errno, file);
    if (!st) {
        show_licences(h, tree);
        if (!accepted(yes)) st = st_new(ST_CANCELLED, "not accepted; nothing was kept");
    }
    if (!st) {
        remove_tree(to);
        if (rename(tree, to)) st = st_errno(errno, to);
    }
    remove_tree(dir);
    if (!st) printf("%s/%s\n", to, p->file);
    return st;
}

static int list(struct hlo *h, const char *data) {
    json_t *all = json_array();
    for (int k = 0; k < N_PLUGINS; k++) {
        const struct plugin *p = &plugins[k];
        const char *dir = arena_printf(&h->arena, "%s/plugins/%s", data, p->name),
                   *file = arena_printf(&h->arena, "%s/%s", dir, p->file);
        bool here = access(file, R_OK) == 0;
        tree_bytes = 0;
        if (here) nftw(dir, add_bytes, 16, FTW_PHYS);
        if (h->json)
            json_array_append_new(all, json_pack("{s:s, s:s, s:b, s:s, s:I}", "name", p->name,
                                                 "kind", p->kind, "installed", here, "file", file,
                                                 "bytes", (json_int_t)tree_bytes));
        else if (here)
            printf("%-5s devices %-8s %6.0f MB  %s\n", p->name, p->kind, (double)tree_bytes / 1e6,
                   file);
        else
            printf("%-5s devices %-8s not installed: hlo plugins install %s (%s)\n", p->name,
                   p->kind, p->name, p->about);
    }
    if (h->json) print_json(all);
    json_decref(all);
    return 0;
}

int cmd_plugins(struct hlo *h) {
    const char *words[2] = {"ls", NULL}, *data = getenv("HLOD_DATA"), *v;
    bool yes = false;
    int n = 0;
    for (int k = 0; k < h->argc; k++) {
        if ((v = option_value(h, &k, "--data")))
            data = v;
        else if (strcmp(h->argv[k], "--yes") == 0)
            yes = true;
        else if (h->argv[k][0] == '-' || n == 2)
            return unknown_word(h, "plugins", k);
        else
            words[n++] = h->argv[k];
    }
    if (!data || !*data) data = store_default_dir(&h->arena);
    if (strcmp(words[0], "ls") == 0 && !words[1]) return list(h, data);
    const struct plugin *p = words[1] ? find(words[1]) : NULL;
    if (words[1] && !p) return usage_error("no plugin is called '%s'; hlo plugins ls", words[1]);
    if (p && strcmp(words[0], "install") == 0) {
        status_t st = install(h, data, p, yes);
        return st ? fail_status(st) : 0;
    }
    if (p && strcmp(words[0], "rm") == 0) {
        const char *dir = arena_printf(&h->arena, "%s/plugins/%s", data, p->name);
        if (access(dir, F_OK)) return fail_status(st_errno(errno, dir));
        remove_tree(dir);
        return 0;
    }
    return usage_error("plugins takes ls, install NAME or rm NAME");
}
