// SPDX-License-Identifier: Apache-2.0
// hlo-opt --web: a model as a package for browsers (compiler/web), without a daemon.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/store/file.h"
#include "base/str.h"
#include "compiler/tools/opt.h"
#include "compiler/web/web.h"

// Bytes at a path below dir; folders are made.
static status_t write_file(const char *dir, const char *path, struct span bytes) {
    struct strbuf to = {0};
    strbuf_printf(&to, "%s/%s", dir, path);
    status_t st = file_make_parents(strbuf_cstr(&to), 0777);
    FILE *out = st ? NULL : fopen(to.p, "wbe");
    if (!st && !out) st = st_errno(errno, to.p);
    if (out && (fwrite(bytes.p, 1, bytes.n, out) != bytes.n) | (fclose(out) != 0))
        st = st_errno(errno, to.p);
    strbuf_done(&to);
    return st;
}

// HEIGHTxWIDTH:CROP:M,M,M:S,S,S:LAYOUT:INPUT
static bool numbers(struct str text, double *out, int n) {
    struct str one;
    for (int k = 0; k < n; k++)
        if (!str_cut(&text, ',', &one) || !str_to_f64(one, &out[k])) return false;
    return text.n == 0;
}
static status_t image_of(const char *text, struct web_image *out) {
    enum { SIZE, CROP, MEAN, STD, LAYOUT, PARTS };
    struct str rest = str_of(text), part[PARTS], h, w;
    int64_t height, width;
    bool good = true;
    for (int k = 0; k < PARTS; k++)
        good &= str_cut(&rest, ':', &part[k]);
    good = good && str_cut(&part[SIZE], 'x', &h) && str_cut(&part[SIZE], 'x', &w) &&
           str_to_i64(h, &height) && str_to_i64(w, &width) && height >= 0 && width >= 0 &&
           height <= 32768 && width <= 32768 && !height == !width;
    good = good && str_to_f64(part[CROP], &out->crop) && out->crop >= 0 && out->crop <= 1 &&
           numbers(part[MEAN], out->mean, 3) && numbers(part[STD], out->std, 3) &&
           (str_is(part[LAYOUT], "nchw") || str_is(part[LAYOUT], "nhwc"));
    for (int k = 0; k < 3 && good; k++)
        good = isfinite(out->mean[k]) && isfinite(out->std[k]) && out->std[k] != 0;
    if (!good)
        return st_invalid("--web-image=%s: expected HEIGHTxWIDTH:CROP:M,M,M:S,S,S:nchw|nhwc:INPUT",
                          text);
    out->wanted = true;
    out->height = (int32_t)height;
    out->width = (int32_t)width;
    out->nhwc = str_is(part[LAYOUT], "nhwc");
    out->input = rest.p ? rest.p : "";
    return ST_OK;
}
static status_t options_of(struct arena *a, const struct opt_options *o, struct web_options *w) {
    const char *backend = o->web_backend ? o->web_backend : "auto";
    struct span labels;
    if (!web_backend_of(str_of(backend), &w->backend))
        return st_invalid("--web-backend=%s: expected auto, webgpu, webgl or wasm", backend);
    w->name = o->web_name;
    w->single_file = o->web_single;
    w->f16 = o->web_f16;
    if (o->web_image) RETURN_IF_ERR(image_of(o->web_image, &w->image));
    if (!o->web_labels) return ST_OK;
    RETURN_IF_ERR(file_map(a, o->web_labels, &labels));
    w->labels = (struct str){(const char *)labels.p, labels.n};
    return ST_OK;
}

static status_t package(struct arena *a, const struct opt_options *o, struct span source,
                        struct web_files *out) {
    struct web_export e = {.source = source, .strict = o->strict};
    struct lower_request given = {0};
    RETURN_IF_ERR(options_of(a, o, &e.options));
    RETURN_IF_ERR(frontend_bindings_parse(a, o->bind, &given));
    e.bindings = given.bindings;
    e.n_bindings = given.n_bindings;
    status_t st = web_export(a, &e, out);
    opt_tell_assumed(&e.sizes, given.n_bindings, 0);
    for (size_t k = 0; k < out->n && !st; k++)
        st = write_file(o->web, out->v[k].path, out->v[k].bytes);
    return st;
}
status_t opt_web(const struct opt_options *o, struct span source) {
    struct arena a = {0};
    struct web_files files = {0};
    status_t st = package(&a, o, source, &files);
    if (!st)
        printf("runtime=%lld kernels=%lld wgsl=%lld glsl=%lld plan=%lld weights=%lld\n",
               (long long)files.runtime_bytes, (long long)files.kernel_bytes,
               (long long)files.wgsl_bytes, (long long)files.glsl_bytes,
               (long long)files.plan_bytes, (long long)files.weight_bytes);
    for (int k = 0; k < files.n_in_wasm && !st; k++)
        fprintf(stderr, "WebAssembly alone (not in %s): %s: %s\n", files.in_wasm[k].language,
                files.in_wasm[k].instr, files.in_wasm[k].why);
    arena_done(&a);
    return st;
}
