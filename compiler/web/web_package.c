// SPDX-License-Identifier: Apache-2.0
// The files of a package: an npm-shaped folder, or one page.
#include "compiler/web/web_page.h"

#include <ctype.h>

#include "compiler/codegen/shader/shader.h"
#include "compiler/web/web_sources.h"

enum { CHUNK = 4 << 20, MAX_NAME = 64, MAX_SIDE = 32768 };

struct span web_source(const char *name) {
    for (int k = 0; k < n_web_sources; k++)
        if (strcmp(web_sources[k].name, name) == 0) return web_sources[k].bytes;
    return (struct span){0};
}

struct packer {
    struct arena *a;
    struct web_files *out;
    const struct web_options *o;
    struct web_program p;
    VEC(struct web_blob) files; // kernels, these in languages of GPUs, then chunks
};
static void add_file(struct packer *k, const char *path, const void *p, size_t n) {
    avec_push(k->a, k->out, ((struct web_file){path, {p, n}}));
}
// b's text, kept.
static struct str keep(struct packer *k, struct strbuf *b) {
    struct str s = {arena_strndup(k->a, strbuf_cstr(b), b->n), b->n};
    strbuf_done(b);
    return s;
}
static void add_text(struct packer *k, const char *path, struct strbuf *b) {
    struct str s = keep(k, b);
    add_file(k, path, s.p, s.n);
}

// A name that npm takes: lower case letters, digits and dashes.
static const char *npm_name(struct arena *a, const char *name) {
    char *s = arena_alloc(a, MAX_NAME + 1);
    size_t n = 0;
    for (; *name && n < MAX_NAME; name++) {
        char c = (char)tolower((unsigned char)*name);
        bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (plain || (n && s[n - 1] != '-')) s[n++] = plain ? c : '-';
    }
    while (n && s[n - 1] == '-')
        n--;
    s[n] = 0;
    return n ? s : "model";
}
static void package_json(struct packer *k) {
    struct strbuf b = {0};
    strbuf_printf(&b,
                  "{\n  \"name\": \"%s\",\n  \"version\": \"1.0.0\",\n"
                  "  \"description\": \"A model compiled by hlod: runs in browsers and Node\",\n"
                  "  \"type\": \"module\",\n  \"main\": \"index.js\",\n"
                  "  \"types\": \"index.d.ts\",\n"
                  "  \"exports\": {\".\": {\"types\": \"./index.d.ts\", \"default\": "
                  "\"./index.js\"},\n              \"./model/*\": \"./model/*\"},\n"
                  "  \"sideEffects\": false\n}\n",
                  npm_name(k->a, k->o->name));
    add_text(k, "package.json", &b);
}
static void index_files(struct packer *k) {
    struct strbuf js = {0}, types = {0};
    strbuf_puts(&js, "import { load as loadFrom } from \"./runtime/hlod.js\";\n"
                     "export * from \"./runtime/hlod.js\";\n"
                     "/** Loads the model of this package, or one elsewhere. */\n"
                     "export const load = (source = new URL(\"./model/manifest.json\", "
                     "import.meta.url), options = {}) =>\n  loadFrom(source, options);\n");
    strbuf_puts(&types, "import { LoadOptions, Model } from \"./runtime/hlod.js\";\n"
                        "export * from \"./runtime/hlod.js\";\n"
                        "/** Loads the model of this package, or one elsewhere. */\n"
                        "export function load(source?: string | URL | ((file: string | null) => "
                        "Promise<Uint8Array>),\n  options?: LoadOptions): Promise<Model>;\n");
    add_text(k, "index.js", &js);
    add_text(k, "index.d.ts", &types);
}
static void describe(struct strbuf *b, const char *side, const struct web_value *v, size_t n) {
    for (size_t k = 0; k < n; k++) {
        strbuf_printf(b, "| %s | ", side);
        for (const char *c = v[k].name; *c; c++)
            if (*c != '|' && *c != '\n') strbuf_putc(b, *c);
        strbuf_printf(b, " | %s[", dtype_name(v[k].shape->dtype));
        for (int d = 0; d < v[k].shape->rank; d++)
            strbuf_printf(b, d ? ",%lld" : "%lld", (long long)v[k].shape->dims[d]);
        strbuf_puts(b, "] |\n");
    }
}
static void readme(struct packer *k) {
    struct strbuf b = {0};
    const char *name = npm_name(k->a, k->o->name);
    strbuf_printf(&b,
                  "# %s\nA model compiled to WebAssembly by hlod. No dependencies, no server: "
                  "`index.html` is a page\nthat runs it (over http; `hlo export --single-file` "
                  "writes one that opens by a double click).\n\n"
                  "```js\nimport * as hlod from \"%s\";\nconst model = await hlod.load();\n"
                  "const outputs = await model.run({ /* name: typed array */ });\n```\n\n"
                  "| | name | type and shape |\n|---|---|---|\n",
                  name, name);
    describe(&b, "input", k->p.inputs.v, k->p.inputs.n);
    describe(&b, "output", k->p.outputs.v, k->p.outputs.n);
    if (k->o->image.wanted)
        strbuf_printf(&b,
                      "\nThe input `%s` also takes a picture (a file, an element, a bitmap or "
                      "pixels), which is resized\nas `hlo run` does it.\n",
                      k->o->image.input);
    add_text(k, "README.md", &b);
}

static void runtime_files(struct packer *k) {
    for (int n = 0; n < n_web_sources; n++) {
        const struct web_source *s = &web_sources[n];
        struct str text = web_runtime(k->a, s->name, k->o->backend);
        if (strcmp(s->name, "page.html") == 0 || !text.n) continue;
        add_file(k, arena_printf(k->a, "runtime/%s", s->name), text.p, text.n);
        if (strcmp(s->name, "hlod.d.ts") != 0) k->out->runtime_bytes += (int64_t)text.n;
    }
}
static void folder(struct packer *k, struct str manifest) {
    struct strbuf page = {0};
    web_page_folder(&page);
    package_json(k);
    readme(k);
    index_files(k);
    k->out->runtime_bytes = (int64_t)page.n;
    add_text(k, "index.html", &page);
    runtime_files(k);
    add_file(k, "model/manifest.json", manifest.p, manifest.n);
    for (size_t n = 0; n < k->files.n; n++)
        add_file(k, arena_printf(k->a, "model/%s", k->files.v[n].path), k->files.v[n].bytes.p,
                 k->files.v[n].bytes.n);
}
static void single(struct packer *k, struct str manifest) {
    struct strbuf page = {0};
    web_page_single(k->a, k->o->backend, &page, manifest, k->files.v, (int)k->files.n);
    k->out->runtime_bytes = (int64_t)page.n;
    for (size_t n = 0; n < k->files.n; n++)
        k->out->runtime_bytes -= (int64_t)(k->files.v[n].bytes.n + 2) / 3 * 4;
    k->out->runtime_bytes -= (int64_t)(manifest.n + 2) / 3 * 4;
    add_text(k, "index.html", &page);
}

static void add_blob(struct packer *k, const char *path, const void *p, size_t n) {
    avec_push(k->a, &k->files, ((struct web_blob){path, {p, n}, sha256_of(p, n)}));
}
static void add_chunks(struct packer *k, const struct literal *const *bound) {
    struct strbuf stream = {0};
    web_weights_stream(&k->p, bound, k->o->f16, &stream);
    k->out->weight_bytes = (int64_t)stream.n;
    const char *kept = stream.n ? arena_dup(k->a, stream.p, stream.n) : NULL;
    for (size_t at = 0, n = 0; at < stream.n; at += CHUNK, n++)
        add_blob(k, arena_printf(k->a, "weights-%03zu.bin", n), kept + at,
                 stream.n - at < CHUNK ? stream.n - at : CHUNK);
    strbuf_done(&stream);
}

// The input that pictures become: the one that is named, or the only one.
static status_t find_image(struct packer *k, struct web_options *o) {
    struct web_image *i = &o->image;
    const struct web_value *found = NULL;
    if (!i->wanted) return ST_OK;
    bool named = i->input && *i->input;
    for (size_t n = 0; n < k->p.inputs.n; n++)
        if (named ? strcmp(k->p.inputs.v[n].name, i->input) == 0 : k->p.inputs.n == 1)
            found = &k->p.inputs.v[n];
    if (!found)
        return named ? st_invalid("the model has no input '%s'", i->input)
                     : st_invalid("the model has %zu inputs: which is a picture?", k->p.inputs.n);
    const struct shape *s = found->shape;
    bool fits = s->rank == 4 && s->dtype == DT_F32;
    for (int d = 0; d < 4 && fits; d++)
        fits = s->dims[d] <= MAX_SIDE;
    if (fits && !i->width) {
        i->height = (int32_t)s->dims[i->nhwc ? 1 : 2];
        i->width = (int32_t)s->dims[i->nhwc ? 2 : 3];
    }
    const int64_t want[2][4] = {{1, 3, i->height, i->width}, {1, i->height, i->width, 3}};
    for (int d = 0; d < 4 && fits; d++)
        fits = s->dims[d] == want[i->nhwc][d];
    if (!fits)
        return st_invalid("input '%s' is %s, a picture of %dx%d becomes f32[1,%s]", found->name,
                          shape_text(k->a, s), (int)i->height, (int)i->width,
                          i->nhwc ? arena_printf(k->a, "%d,%d,3", i->height, i->width)
                                  : arena_printf(k->a, "3,%d,%d", i->height, i->width));
    i->input = found->name;
    return ST_OK;
}

static void note(struct packer *k, const char *language, size_t n, const char *why) {
    k->out->in_wasm[k->out->n_in_wasm++] =
        (struct web_in_wasm){language, arena_strdup(k->a, k->p.kernels.v[n].of->name), why};
}
static void note_in_wasm(struct packer *k) {
    size_t n_kernels = k->p.kernels.n;
    const struct web_gpu *wgsl = &k->p.gpu[0], *glsl = &k->p.gpu[1];
    k->out->n_kernels = (int)n_kernels;
    k->out->in_wasm = arena_zarray(k->a, struct web_in_wasm, WEB_LANGUAGES * n_kernels + 1);
    for (size_t n = 0; n < n_kernels; n++) {
        const char *first = wgsl->language ? wgsl->kernels[n].why : NULL,
                   *second = glsl->language ? glsl->kernels[n].why : NULL;
        bool both = first && second && strcmp(first, second) == 0;
        if (first) note(k, both ? "wgsl, glsl" : "wgsl", n, first);
        if (second && !both) note(k, "glsl", n, second);
    }
}
// Kernels in languages of GPUs, of programs that have any.
static status_t add_shaders(struct packer *k) {
    status_t st = k->o->backend == WEB_WASM ? ST_OK : web_gpu_make(k->a, k->o, &k->p);
    int64_t *const bytes[WEB_LANGUAGES] = {&k->out->wgsl_bytes, &k->out->glsl_bytes};
    for (int l = 0; l < WEB_LANGUAGES; l++) {
        struct web_gpu *g = &k->p.gpu[l];
        struct str text = keep(k, &g->text);
        if (st || !g->n) continue;
        *bytes[l] = (int64_t)text.n;
        add_blob(k, arena_printf(k->a, "kernels.%s", g->language->name), text.p, text.n);
    }
    return st;
}

const char *web_backend_name(enum web_backend b) {
    static const char *const names[WEB_BACKENDS] = {"wasm", "auto", "webgpu", "webgl"};
    return names[b];
}
status_t web_package(struct arena *a, const struct executable *e, const struct span *weights,
                     int n_weights, const struct web_options *o, const _Atomic bool *cancel,
                     struct web_files *out) {
    struct web_options own = *o;
    struct packer k = {.a = a, .out = out, .o = &own};
    const struct literal *const *bound;
    struct strbuf text = {0};
    if (!own.name || !*own.name) own.name = e->main->name;
    *out = (struct web_files){0};
    const struct target *wants = web_target_for(own.backend);
    if (strcmp(e->target_id, wants->id) != 0)
        return st_new(ST_FAILED_PRECONDITION, "the executable is for target %s, pages run %s",
                      e->target_id, wants->id);
    RETURN_IF_ERR(web_program_make(a, e, &own, &k.p));
    RETURN_IF_ERR(find_image(&k, &own));
    add_blob(&k, "kernels.wasm", e->kernels.object.p, e->kernels.object.n);
    RETURN_IF_ERR(add_shaders(&k));
    RETURN_IF_ERR(web_prepare(a, e, weights, n_weights, cancel, &bound));
    add_chunks(&k, bound);
    web_manifest_print(&text, e, &k.p, &own, k.files.v, (int)k.files.n);
    struct str manifest = keep(&k, &text);
    out->plan_bytes = (int64_t)manifest.n;
    out->kernel_bytes = (int64_t)e->kernels.object.n;
    note_in_wasm(&k);
    if (own.single_file)
        single(&k, manifest);
    else
        folder(&k, manifest);
    return ST_OK;
}

status_t web_memory(struct arena *a, const struct executable *e, const struct web_options *o,
                    int64_t *out_bytes) {
    struct web_program p;
    RETURN_IF_ERR(web_program_make(a, e, o, &p));
    *out_bytes = p.bytes;
    return ST_OK;
}
