// SPDX-License-Identifier: Apache-2.0
// The cases of tests/ops as packages for browsers: each compiled for the web target, run by Node
// (or in a browser, by way of files: browser_cases.py), compared with what the case expects. What
// the target refuses is listed, and must be what the list of refusals has: it may only become
// shorter.
// With --backend packages have WGSL or GLSL too. What stays in WebAssembly is such a list for each
// language, of operations and reasons.
//     web_cases [--node PROGRAM] [--refused FILE] [--backend webgpu|webgl]
//               [--tiles always]
//               [--wgsl FILE] [--glsl FILE] [--write DIR | --read DIR] RUNTIME SERVE FILE...
#include <stdlib.h>

#include "base/store/file.h"
#include "base/str.h"
#include "compiler/results.h"
#include "compiler/tools/cases.h"
#include "tests/web/web_runner.h"

static struct {
    const char *node, *refused;
    struct web_runner r;
    enum web_backend backend;
    bool tiles; // of GPUs, however few units are left
    int ran, failed, refusals;
    struct strbuf names; // of what was refused
    struct smap known;   // operations that the list has
    struct list {
        enum web_backend backend;
        const char *path;
        struct smap stay; // "operation: reason"
    } lists[2];
} all = {.node = "node", .lists = {{.backend = WEB_WEBGPU}, {.backend = WEB_WEBGL}}};

static int leaves_of(const struct literal *l, struct span *out, int n) {
    if (!shape_is_tuple(l->shape)) {
        out[n++] = (struct span){l->data, l->size_bytes};
        return n;
    }
    for (int e = 0; e < l->shape->n_elems; e++)
        n = leaves_of(l->elems[e], out, n);
    return n;
}

static struct str operation(const char *path) {
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    return (struct str){name, strcspn(name, ".")};
}
static status_t in_wasm(struct arena *a, const char *path, const struct test_case *c,
                        const struct executable *e, struct list *l) {
    struct str op = operation(path);
    struct web_options o = {.name = "", .backend = l->backend};
    struct web_files files;
    if (!l->path) return ST_OK;
    RETURN_IF_ERR(web_package(a, e, NULL, 0, &o, NULL, &files));
    for (int k = 0; k < files.n_in_wasm; k++) {
        const char *why = files.in_wasm[k].why, *text = strrchr(why, ':');
        const char *line = arena_printf(a, "%.*s: %s", (int)op.n, op.p, text ? text + 2 : why);
        if (smap_has(&l->stay, str_of(line))) continue;
        printf("%s:%d: in WebAssembly, not in %s: %s\n", path, c->line, files.in_wasm[k].language,
               line);
        all.failed++;
    }
    return ST_OK;
}
static status_t run(struct arena *a, const char *path, const struct test_case *c,
                    const struct executable *e, struct strbuf *why, bool *ok) {
    const struct shape *root = e->main->entry->root->shape;
    struct web_options o = {.name = "", .backend = all.backend, .whole = true, .tiles = all.tiles};
    struct web_files files;
    struct span in[64], *out;
    int n_in = 0, n_out = shape_leaves(root);
    for (int k = 0; k < c->n_in; k++)
        n_in = leaves_of(c->in[k], in, n_in);
    RETURN_IF_ERR(web_package(a, e, NULL, 0, &o, NULL, &files));
    for (int k = 0; k < 2; k++)
        RETURN_IF_ERR(in_wasm(a, path, c, e, &all.lists[k]));
    RETURN_IF_ERR(web_runner_run(&all.r, a, &files, in, n_in, n_out, &out));
    if (!out) return ST_OK;

    struct literal **got = arena_array(a, struct literal *, n_out + 1);
    for (int k = 0; k < n_out; k++) {
        if ((int64_t)out[k].n != shape_bytes(shape_leaf(root, k)))
            return st_internal("output %d has %zu bytes", k, out[k].n);
        got[k] = lit_borrow(a, shape_leaf(root, k), out[k].p);
    }
    for (int k = 0; k < c->n_want && *ok; k++)
        *ok = cases_matches(c, e->main, k, got, why);
    return ST_OK;
}
static void refuse(const char *path, const struct test_case *c, status_t st) {
    struct str op = operation(path);
    const char *text = strrchr(st_message(st), ':');
    all.refusals++;
    if (all.refused && smap_get(&all.known, op)) return;
    printf("%s:%d: refused:%s\n", path, c->line, text ? text + 1 : st_message(st));
    if (all.refused) all.failed++;
}
static void one(const char *path, const struct test_case *c) {
    struct compile_options opt = {.disable_passes = "", .disable_rules = "", .verify_each = true};
    struct arena a = {0};
    struct strbuf why = {0};
    struct executable *e = NULL;
    bool ok = true;
    status_t st =
        hlo_compile_module(hlo_module_clone(c->m), &opt, web_target_for(all.backend), NULL, &e);
    if (!st) st = run(&a, path, c, e, &why, &ok);
    all.ran++;
    if (c->refused.n) { // by the compiler, whatever the target
        if (!st) printf("%s:%d: was not refused\n", path, c->line), all.failed++;
    } else if (st_code(st) == ST_UNIMPLEMENTED) {
        refuse(path, c, st);
    } else if (st || !ok) {
        printf("%s:%d: %s\n", path, c->line, st ? st_message(st) : strbuf_cstr(&why));
        all.failed++;
    }
    st_drop(st);
    strbuf_done(&why);
    executable_free(e);
    arena_done(&a);
}
static status_t file(const char *path) {
    struct arena a = {0};
    struct span bytes;
    status_t st = file_map(&a, path, &bytes);
    struct str text = {(const char *)bytes.p, bytes.n};
    int line = 0;
    for (; !st;) {
        struct test_case c;
        st = cases_next(&text, &line, &c);
        if (st || !c.m) break;
        one(path, &c);
        cases_done(&c);
    }
    arena_done(&a);
    return st;
}
static status_t read_list(struct arena *a, const char *path, struct smap *out) {
    struct span bytes;
    if (!path) return ST_OK;
    RETURN_IF_ERR(file_map(a, path, &bytes));
    struct str rest = {(const char *)bytes.p, bytes.n}, line;
    while (str_cut(&rest, '\n', &line))
        if (line.n && line.p[0] != '#') smap_put(out, str_trim(line), a);
    return ST_OK;
}

int main(int argc, char **argv) {
    struct arena a = {0};
    int k = 1;
    for (; k + 1 < argc && strncmp(argv[k], "--", 2) == 0; k += 2) {
        if (strcmp(argv[k], "--node") == 0) all.node = argv[k + 1];
        if (strcmp(argv[k], "--refused") == 0) all.refused = argv[k + 1];
        if (strcmp(argv[k], "--wgsl") == 0) all.lists[0].path = argv[k + 1];
        if (strcmp(argv[k], "--glsl") == 0) all.lists[1].path = argv[k + 1];
        if (strcmp(argv[k], "--tiles") == 0) all.tiles = strcmp(argv[k + 1], "always") == 0;
        if (strcmp(argv[k], "--backend") == 0) all.backend = web_runner_backend(argv[k + 1]);
        bool writes = strcmp(argv[k], "--write") == 0;
        if (writes || strcmp(argv[k], "--read") == 0) {
            all.r.dir = argv[k + 1];
            all.r.writes = writes;
        }
    }
    if (k + 2 >= argc)
        return fputs("usage: web_cases [OPTION VALUE] RUNTIME SERVE FILE...\n", stderr), 2;

    status_t st = read_list(&a, all.refused, &all.known);
    for (int n = 0; n < 2 && !st; n++)
        st = read_list(&a, all.lists[n].path, &all.lists[n].stay);
    if (!st && !all.r.dir) st = web_runner_start(&all.r, all.node, argv[k + 1], argv[k]);
    for (k += 2; k < argc && !st; k++)
        st = st_note(file(argv[k]), "%s", argv[k]);
    web_runner_stop(&all.r);
    if (st) fprintf(stderr, "web_cases: %s\n", st_message(st)), all.failed++;
    st_drop(st);
    printf("%d cases, %d failed, %d refused\n", all.ran, all.failed, all.refusals);
    smap_done(&all.known);
    for (int n = 0; n < 2; n++)
        smap_done(&all.lists[n].stay);
    arena_done(&a);
    return all.failed != 0;
}
