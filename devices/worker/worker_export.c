// SPDX-License-Identifier: Apache-2.0
// EXPORT: a model's file as a package for browsers, one archive or one page. All that was compiled
// is gone with the call.
#include <unistd.h>

#include "compiler/web/web.h"
#include "devices/worker/worker_calls.h"
#include "proto/reason.h"

static status_t three(const double *v, size_t n, const char *what, double usual, double out[3]) {
    if (n > 1 && n != 3)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                          "image: %s: one number, or one for each of 3 channels, found %zu", what,
                          n);
    for (size_t k = 0; k < 3; k++)
        out[k] = n ? v[n == 1 ? 0 : k] : usual;
    return ST_OK;
}
static status_t image_of(const Hlod__V1__WebImage *m, struct web_image *out) {
    bool nhwc = strcmp(m->layout, "nhwc") == 0;
    if (!nhwc && *m->layout && strcmp(m->layout, "nchw") != 0)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                          "image: layout '%.40s': expected nchw or nhwc", m->layout);
    *out = (struct web_image){.wanted = true,
                              .input = m->input,
                              .width = m->width,
                              .height = m->height,
                              .crop = m->crop,
                              .nhwc = nhwc};
    RETURN_IF_ERR(three(m->mean, m->n_mean, "mean", 0, out->mean));
    return three(m->std, m->n_std, "std", 1, out->std);
}
static status_t options_of(const Hlod__V1__ExportWebRequest *q, struct web_options *o) {
    o->backend = WEB_AUTO;
    if (*q->backend && !web_backend_of(str_of(q->backend), &o->backend))
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                          "backend '%.40s': expected auto, webgpu, webgl or wasm", q->backend);
    o->f16 = strcmp(q->weights, "f16") == 0;
    if (!o->f16 && *q->weights && strcmp(q->weights, "f32") != 0)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "weights '%.40s': expected f32 or f16",
                          q->weights);
    o->name = q->name;
    o->single_file = q->single_file;
    o->labels = str_of(q->labels);
    return q->image ? image_of(q->image, &o->image) : ST_OK;
}

// The archive is written where it is sent from, without a copy of it in between.
static status_t put_archive(struct worker_call *c, const struct web_files *files,
                            Hlod__Wire__Blob **out) {
    static const char folder[] = "package";
    int64_t n;
    int fd;
    uint8_t *map;
    void *base;
    size_t mapped;
    RETURN_IF_ERR(web_archive_bytes(files, folder, &n));
    RETURN_IF_ERR(frame_memfd("hlod-package", n, &fd));
    c->reply_fds[c->n_reply_fds++] = fd;
    RETURN_IF_ERR(frame_map(fd, 0, n, true, &map, &base, &mapped));
    web_archive_write(files, folder, map);
    frame_unmap(base, mapped);

    *out = message_new(&c->arena, &hlod__wire__blob__descriptor);
    (*out)->fd = (uint32_t)c->n_reply_fds;
    (*out)->size = (uint64_t)n;
    return ST_OK;
}

static Hlod__V1__WebPackage *info_of(struct arena *a, const struct web_files *f) {
    Hlod__V1__WebPackage *m = message_new(a, &hlod__v1__web_package__descriptor);
    m->runtime_bytes = f->runtime_bytes;
    m->kernel_bytes = f->kernel_bytes;
    m->wgsl_bytes = f->wgsl_bytes;
    m->glsl_bytes = f->glsl_bytes;
    m->plan_bytes = f->plan_bytes;
    m->weight_bytes = f->weight_bytes;
    m->in_wasm = arena_array(a, char *, f->n_in_wasm + 1);
    for (int k = 0; k < f->n_in_wasm; k++)
        m->in_wasm[m->n_in_wasm++] = arena_printf(a, "%s: %s: %s", f->in_wasm[k].language,
                                                  f->in_wasm[k].instr, f->in_wasm[k].why);
    return m;
}

static status_t export(struct worker_call *c, Hlod__Wire__ExportReply *out) {
    const Hlod__Wire__Export *q = (const Hlod__Wire__Export *)c->request;
    struct dim_binding *b = arena_array(&c->arena, struct dim_binding, q->n_bindings + 1);
    struct web_files files = {0};
    struct web_export e = {.format = *q->format ? q->format : NULL,
                           .limits = worker_limits(q->limits),
                           .bindings = b,
                           .n_bindings = (int32_t)q->n_bindings,
                           .cancel = &c->cancel};
    for (size_t k = 0; k < q->n_bindings; k++)
        b[k] = (struct dim_binding){q->bindings[k]->symbol, q->bindings[k]->size};
    if (q->how) RETURN_IF_ERR(options_of(q->how, &e.options));
    RETURN_IF_ERR(worker_call_blob(c, q->source, &e.source));

    RETURN_IF_ERR(web_export(&c->arena, &e, &files));
    if (e.options.single_file) {
        const struct span *page = &files.v[0].bytes;
        RETURN_IF_ERR(worker_call_put_blob(c, page->p, page->n, &out->package));
    } else {
        RETURN_IF_ERR(put_archive(c, &files, &out->package));
    }
    out->info = info_of(&c->arena, &files);
    return ST_OK;
}
WORKER_ANSWER(export) {
    return worker_lacking(export(c, reply));
}
