// SPDX-License-Identifier: Apache-2.0
// A model's bytes to the files of a package: what `hlo-opt --web` and a compile worker do alike, so
// that both give the same bytes for the same options.
#include <math.h>

#include "compiler/train/model.h"
#include "compiler/web/web.h"

bool web_backend_of(struct str name, enum web_backend *out) {
    for (int k = 0; k < WEB_BACKENDS; k++)
        if (str_is(name, web_backend_name((enum web_backend)k))) {
            *out = (enum web_backend)k;
            return true;
        }
    return false;
}

// As many lines, and as long ones, as the runtime takes.
static status_t check_labels(struct str text) {
    struct str line;
    int n = 0;
    while (str_cut(&text, '\n', &line)) {
        n++;
        if (str_trim(line).n > WEB_MAX_LABEL)
            return st_invalid("labels, line %d: a label has at most %d bytes", n, WEB_MAX_LABEL);
        if (n > WEB_MAX_LABELS) return st_invalid("more than %d labels", WEB_MAX_LABELS);
    }
    return ST_OK;
}
static status_t check_image(const struct web_image *i) {
    enum { MAX_SIDE = 32768 };
    if (!i->wanted) return ST_OK;
    if (i->height < 0 || i->width < 0 || i->height > MAX_SIDE || i->width > MAX_SIDE ||
        !i->height != !i->width)
        return st_invalid("pictures of %dx%d: both sides, at most %d, or neither", (int)i->height,
                          (int)i->width, MAX_SIDE);
    if (!(i->crop >= 0 && i->crop <= 1))
        return st_invalid("the part to crop pictures to is above 0 and at most 1; 0 is none");
    for (int k = 0; k < 3; k++)
        if (!isfinite(i->mean[k]) || !isfinite(i->std[k]) || i->std[k] == 0)
            return st_invalid("mean and std of pictures are numbers, std is not 0");
    return ST_OK;
}

static const char **names_of(struct arena *a, const struct sig_tensor *t, int n) {
    const char **names = arena_array(a, const char *, n + 1);
    for (int k = 0; k < n; k++)
        names[k] = t[k].name;
    return names;
}
static status_t pack(struct arena *a, struct web_export *e, const struct ingest_result *r,
                     const struct executable *exe, struct web_files *out) {
    struct span *weights = arena_array(a, struct span, r->n_weights + 1);
    for (int k = 0; k < r->n_weights; k++) {
        const struct weight *of = &r->weights[k];
        const uint8_t *in = of->sidecar ? r->sidecar.p : e->source.p;
        weights[k] = (struct span){in + of->offset, (size_t)of->size_bytes};
    }
    e->options.inputs = names_of(a, r->sig.in, r->sig.n_in);
    e->options.n_inputs = r->sig.n_in;
    e->options.outputs = names_of(a, r->sig.out, r->sig.n_out);
    e->options.n_outputs = r->sig.n_out;
    return web_package(a, exe, weights, r->n_weights, &e->options, e->cancel, out);
}

static void free_executable(void *exe) {
    executable_free(exe);
}
status_t web_export(struct arena *a, struct web_export *e, struct web_files *out) {
    struct ingest_result r;
    struct lower_request *req = &e->sizes;
    struct compile_options opt = {.disable_passes = "", .disable_rules = ""};
    struct compile_observer obs = {.cancel = e->cancel};
    struct executable *exe;
    RETURN_IF_ERR(check_labels(e->options.labels));
    RETURN_IF_ERR(check_image(&e->options.image));
    RETURN_IF_ERR(frontend_ingest(a, e->format, e->source, &e->limits, &r));
    *req = (struct lower_request){.program = r.program,
                                  .entry_name = "main",
                                  .bindings = e->bindings,
                                  .n_bindings = e->n_bindings,
                                  .limits = e->limits,
                                  .cancel = e->cancel};
    train_assume_sizes(a, &r.sig, 0, req);
    if (e->strict) opt.precision = PRECISION_STRICT;
    e->options.precision = opt.precision;

    RETURN_IF_ERR(hlo_compile(r.format, req, &opt, web_target_for(e->options.backend), &obs, &exe));
    arena_link(a, free_executable, exe); // whose code is one of the files
    return pack(a, e, &r, exe, out);
}
