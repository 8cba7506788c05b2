// SPDX-License-Identifier: Apache-2.0
// hlo convert, hlo export: a program in another form, and a model as a package for browsers,
// without a server: hlo-opt, which stands beside hlo, reads and writes them.
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/hlo.h"
#include "client/files/input.h"
#include "client/files/opt_tool.h"

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

    const char *argv[] = {form, "--weights", NULL, NULL};
    if (bind) argv[2] = arena_printf(&h->arena, "--bind=%s", bind);
    return hlo_opt_into(h, out, argv, in);
}

// ---- export

struct export {
    struct hlo *h;
    const char *model, *dir, *input, *labels, *name;
    struct image_options image;
    bool picture; // some option was about it
    const char **argv; // of hlo-opt: at most one for each of ours, and OWN_ARGS
    int n;
};
enum { OWN_ARGS = 4 };
static void add(struct export *e, const char *arg) {
    e->argv[e->n++] = arg;
}

static int read_options(struct export *e) {
    struct hlo *h = e->h;
    const char *v;

    for (int k = 0; k < h->argc; k++) {
        bool taken;
        status_t st = image_option(h, &k, &e->image, &taken);
        if (st) return fail_status(st);
        e->picture |= taken;
        if (taken) continue;

        if ((v = option_value(h, &k, "--web"))) {
            e->dir = v;
        } else if ((v = option_value(h, &k, "--bind"))) {
            add(e, arena_printf(&h->arena, "--bind=%s", v));
        } else if ((v = option_value(h, &k, "--name"))) {
            e->name = v;
        } else if ((v = option_value(h, &k, "--weights"))) {
            if (strcmp(v, "f16") == 0)
                add(e, "--web-f16");
            else if (strcmp(v, "f32") != 0)
                return usage_error("--weights %s: expected f32 or f16", v);
        } else if ((v = option_value(h, &k, "--backend"))) {
            if (strcmp(v, "auto") && strcmp(v, "webgpu") && strcmp(v, "webgl") && strcmp(v, "wasm"))
                return usage_error("--backend %s: expected auto, webgpu, webgl or wasm", v);
            add(e, arena_printf(&h->arena, "--web-backend=%s", v));
        } else if ((v = option_value(h, &k, "--labels"))) {
            e->labels = v;
        } else if ((v = option_value(h, &k, "--input"))) {
            e->input = v;
            e->picture = true;
        } else if (strcmp(h->argv[k], "--single-file") == 0) {
            add(e, "--web-single");
        } else if (h->argv[k][0] == '-' || e->model) {
            return unknown_word(h, "export", k);
        } else {
            e->model = h->argv[k];
        }
    }
    return 0;
}
// The file's name without folder and ending.
static const char *base_name(struct arena *a, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path,
               *dot = strrchr(name, '.');
    return arena_strndup(a, name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
}
static int add_picture(struct export *e) {
    const struct image_options *i = &e->image;
    const double *m = i->mean, *s = i->std;
    bool scaled;
    if (!e->picture) return 0;
    status_t st = input_scale(&e->image, &scaled);
    if (st) return fail_status(st);
    add(e, arena_printf(&e->h->arena,
                        "--web-image=%dx%d:%.17g:%.17g,%.17g,%.17g:%.17g,%.17g,%.17g:%s:%s",
                        i->height, i->width, i->crop, m[0], m[1], m[2], s[0], s[1], s[2],
                        i->nhwc ? "nhwc" : "nchw", e->input ? e->input : ""));
    return 0;
}

int cmd_export(struct hlo *h) {
    struct export e = {.h = h, .image = {.std = {1, 1, 1}}};
    e.argv = arena_zarray(&h->arena, const char *, h->argc + OWN_ARGS + 1);
    int rc = read_options(&e);
    if (!rc) rc = add_picture(&e);
    if (rc) return rc;
    if (!e.model || !e.dir)
        return usage_error("export needs a model's file and a folder: hlo export MODEL --web DIR");
    if (access(e.model, R_OK)) return fail_status(st_errno(errno, e.model));
    if (e.labels && access(e.labels, R_OK)) return fail_status(st_errno(errno, e.labels));
    if (mkdir(e.dir, 0777) && errno != EEXIST) return fail_status(st_errno(errno, e.dir));

    if (!e.name) e.name = base_name(&h->arena, e.model);
    add(&e, arena_printf(&h->arena, "--web-name=%s", e.name));
    if (e.labels) add(&e, arena_printf(&h->arena, "--web-labels=%s", e.labels));
    add(&e, arena_printf(&h->arena, "--web=%s", e.dir));
    return hlo_opt_run(h, arena_printf(&h->arena, "%s/model", e.dir), e.argv, e.model);
}
