// SPDX-License-Identifier: Apache-2.0
// manifest.json (docs/web.md): what the runtime reads. Numbers are places and sizes in
// bytes; all stay below 2^32.
#include "compiler/codegen/shader/shader.h"
#include "compiler/web/web_program.h"

// 2 has `gpu`; 3 has `cut`, and may have `gpu`.
enum { VERSION = 1, VERSION_GPU = 2, VERSION_CUT = 3, VERSION_FORMS = 4 };

static void number(struct strbuf *b, const char *name, int64_t v) {
    strbuf_printf(b, "\"%s\":%lld", name, (long long)v);
}
static void values(struct strbuf *b, const char *name, const struct web_value *v, size_t n) {
    strbuf_printf(b, ",\n\"%s\":[", name);
    for (size_t k = 0; k < n; k++) {
        strbuf_puts(b, k ? ",\n{\"name\":" : "\n{\"name\":");
        strbuf_json_str(b, str_of(v[k].name));
        strbuf_printf(b, ",\"dtype\":\"%s\",\"shape\":[", dtype_name(v[k].shape->dtype));
        for (int d = 0; d < v[k].shape->rank; d++)
            strbuf_printf(b, d ? ",%lld" : "%lld", (long long)v[k].shape->dims[d]);
        strbuf_printf(b, "],\"at\":%lld,\"bytes\":%lld", (long long)v[k].at, (long long)v[k].bytes);
        for (int c = 0; c < v[k].n_cuts; c++)
            strbuf_printf(b, "%s[%d,%lld]", c ? "," : ",\"cut\":[", v[k].cuts[c].dim,
                          (long long)v[k].cuts[c].at);
        strbuf_puts(b, v[k].n_cuts ? "]}" : "}");
    }
    strbuf_putc(b, ']');
}
static void blob(struct strbuf *b, const struct web_blob *f) {
    char hex[65];
    digest_hex(f->digest, hex);
    strbuf_puts(b, "{\"file\":");
    strbuf_json_str(b, str_of(f->path));
    strbuf_printf(b, ",\"bytes\":%zu,\"sha256\":\"%s\"}", f->bytes.n, hex);
}

// ---- the plan

static void steps(struct strbuf *b, const struct web_program *p, const struct web_steps *s);
static void part_list(struct strbuf *b, const struct web_program *p, const struct web_step *s) {
    strbuf_putc(b, '[');
    for (int k = 0; k < s->n_parts; k++) {
        if (k) strbuf_putc(b, ',');
        steps(b, p, &s->parts[k]);
    }
    strbuf_putc(b, ']');
}
static void step(struct strbuf *b, const struct web_program *p, const struct web_step *s) {
    switch (s->kind) {
    case WEB_CALL:
        strbuf_printf(b, "[\"run\",%d,[", s->kernel);
        for (int k = 0; k < p->kernels.v[s->kernel].info->n_bufs; k++)
            strbuf_printf(b, k ? ",%lld" : "%lld", (long long)s->at[k]);
        strbuf_puts(b, "]]");
        break;
    case WEB_COPY:
        strbuf_printf(b, "[\"copy\",%lld,%lld,%lld]", (long long)s->to, (long long)s->from,
                      (long long)s->bytes);
        break;
    case WEB_WHILE:
        strbuf_printf(b, "[\"while\",%lld,", (long long)s->from);
        part_list(b, p, s);
        strbuf_putc(b, ']');
        break;
    case WEB_CASE:
        strbuf_printf(b, "[\"%s\",%lld,", s->pred ? "if" : "case", (long long)s->from);
        part_list(b, p, s);
        strbuf_putc(b, ']');
        break;
    }
}
static void steps(struct strbuf *b, const struct web_program *p, const struct web_steps *s) {
    strbuf_putc(b, '[');
    for (size_t k = 0; k < s->n; k++) {
        if (k) strbuf_puts(b, ",\n");
        step(b, p, &s->v[k]);
    }
    strbuf_putc(b, ']');
}
static void kernels(struct strbuf *b, const struct web_program *p) {
    strbuf_puts(b, ",\n\"kernels\":[");
    for (size_t k = 0; k < p->kernels.n; k++) {
        const struct kernel_info *i = p->kernels.v[k].info;
        strbuf_puts(b, k ? ",\n[" : "\n[");
        strbuf_json_str(b, str_of(i->symbol));
        strbuf_printf(b, ",%lld,%d,[", (long long)i->extent, i->n_bufs);
        for (int n = 0; n < i->n_sizes; n++)
            strbuf_printf(b, n ? ",%lld" : "%lld", (long long)i->sizes[n]);
        strbuf_puts(b, "],");
        strbuf_json_str(b, str_of(p->kernels.v[k].of->name));
        strbuf_putc(b, ']');
    }
    strbuf_putc(b, ']');
}

static void numbers(struct strbuf *b, const int64_t *v, int n) {
    strbuf_putc(b, '[');
    for (int k = 0; k < n; k++)
        strbuf_printf(b, k ? ",%lld" : "%lld", (long long)v[k]);
    strbuf_putc(b, ']');
}
static void shader(struct strbuf *b, const struct web_program *p, const struct web_gpu *g,
                   const struct web_blob *file) {
    strbuf_printf(b, ",\n\"%s\":{\"code\":", g->language->name);
    blob(b, file);
    strbuf_puts(b, ",\n\"kernels\":[");
    for (size_t k = 0; k < p->kernels.n; k++) {
        const struct web_gpu_kernel *one = &g->kernels[k];
        if (k) strbuf_puts(b, ",\n");
        if (!one->entry) {
            strbuf_puts(b, "null");
            continue;
        }
        strbuf_printf(b, "[\"%s\",%lld,", one->entry, (long long)one->extent);
        if (one->unit_bytes) {
            int n = p->kernels.v[k].info->n_bufs - p->kernels.v[k].n_in;
            strbuf_putc(b, '[');
            for (int r = 0; r < n; r++)
                strbuf_printf(b, r ? ",%d" : "%d", one->unit_bytes[r]);
            strbuf_puts(b, "],");
        } else {
            strbuf_printf(b, "%lld,", (long long)one->scratch_bytes);
        }
        numbers(b, one->tables, 2 * one->n_tables);
        if (one->sum_units) strbuf_printf(b, ",[%lld,%d]", (long long)one->sum_units, one->sums);
        strbuf_putc(b, ']');
    }
    strbuf_puts(b, "]}");
}
static const struct web_blob *gpu(struct strbuf *b, const struct web_program *p,
                                  const struct web_options *o, const struct web_blob *files) {
    strbuf_printf(b, ",\n\"gpu\":{\"backend\":\"%s\",\n\"buffers\":[",
                  web_backend_name(o->backend));
    for (size_t k = 0; k < p->kernels.n; k++) {
        const struct web_kernel *w = &p->kernels.v[k];
        strbuf_printf(b, k ? ",\n[%d,%d," : "[%d,%d,", w->n_in, w->updates);
        numbers(b, w->bytes, w->info->n_bufs);
        strbuf_putc(b, ']');
    }
    strbuf_putc(b, ']');
    for (int l = 0; l < WEB_LANGUAGES; l++)
        if (p->gpu[l].n) shader(b, p, &p->gpu[l], ++files);
    strbuf_putc(b, '}');
    return files;
}

// ---- weights, pictures

static void weights(struct strbuf *b, const struct web_program *p, const struct web_blob *f,
                    int n) {
    static const char *const forms[WEB_FORMS] = {"raw", "f16", "bf16", "table16", "table32"};
    strbuf_puts(b, ",\n\"weights\":{\"chunks\":[");
    for (int k = 0; k < n; k++) {
        strbuf_puts(b, k ? ",\n" : "\n");
        blob(b, &f[k]);
    }
    strbuf_puts(b, "],\n\"tensors\":[");
    for (size_t k = 0; k < p->weights.n; k++) {
        const struct web_bytes *w = &p->weights.v[k];
        strbuf_printf(b, "%s[%lld,%lld,\"%s\"]", k ? "," : "", (long long)w->at,
                      (long long)w->bytes, forms[w->form]);
    }
    strbuf_puts(b, "]}");
}
static void three(struct strbuf *b, const char *name, const double *v) {
    strbuf_printf(b, ",\"%s\":[", name);
    for (int k = 0; k < 3; k++) {
        if (k) strbuf_putc(b, ',');
        strbuf_f64(b, v[k]);
    }
    strbuf_putc(b, ']');
}
static void image(struct strbuf *b, const struct web_image *i) {
    strbuf_puts(b, ",\n\"image\":{\"input\":");
    strbuf_json_str(b, str_of(i->input));
    strbuf_printf(b, ",\"width\":%d,\"height\":%d,\"crop\":", i->width, i->height);
    strbuf_f64(b, i->crop);
    three(b, "mean", i->mean);
    three(b, "std", i->std);
    strbuf_printf(b, ",\"layout\":\"%s\"}", i->nhwc ? "nhwc" : "nchw");
}
static void labels(struct strbuf *b, struct str text) {
    struct str line;
    const char *sep = "\n";
    strbuf_puts(b, ",\n\"labels\":[");
    while (str_cut(&text, '\n', &line)) {
        strbuf_puts(b, sep);
        strbuf_json_str(b, str_trim(line));
        sep = ",";
    }
    strbuf_putc(b, ']');
}

static bool cuts(const struct web_program *p) {
    bool any = false;
    for (size_t k = 0; k < p->outputs.n; k++)
        any |= p->outputs.v[k].n_cuts > 0;
    return any;
}
static bool has_short_forms(const struct web_program *p) {
    for (size_t k = 0; k < p->weights.n; k++)
        if (p->weights.v[k].form >= FORM_BF16) return true;
    return false;
}
static int version(const struct web_program *p, bool on_gpu) {
    if (has_short_forms(p)) return VERSION_FORMS;
    return cuts(p) ? VERSION_CUT : on_gpu ? VERSION_GPU : VERSION;
}
void web_manifest_print(struct strbuf *b, const struct executable *e, const struct web_program *p,
                        const struct web_options *o, const struct web_blob *files, int n_files) {
    const struct web_blob *last = files + n_files;
    bool on_gpu = p->gpu[0].n || p->gpu[1].n;
    strbuf_puts(b, "{\"format\":\"hlod-web\",");
    number(b, "version", version(p, on_gpu));
    strbuf_puts(b, ",\"name\":");
    strbuf_json_str(b, str_of(o->name));
    strbuf_printf(b, ",\"target\":\"%s\",\n\"memory\":{", e->target_id);
    number(b, "bytes", p->bytes);
    strbuf_putc(b, ',');
    number(b, "stack", p->stack);
    strbuf_putc(b, ',');
    number(b, "frames", p->frames);
    strbuf_putc(b, ',');
    number(b, "scratch", p->scratch);
    strbuf_puts(b, "},\n\"code\":");
    blob(b, &files[0]);
    values(b, "inputs", p->inputs.v, p->inputs.n);
    values(b, "outputs", p->outputs.v, p->outputs.n);
    kernels(b, p);
    if (on_gpu) files = gpu(b, p, o, files);
    weights(b, p, files + 1, (int)(last - files) - 1);
    if (o->image.wanted) image(b, &o->image);
    if (o->labels.n) labels(b, o->labels);
    strbuf_puts(b, ",\n\"program\":");
    steps(b, p, &p->main);
    strbuf_puts(b, "}\n");
}
