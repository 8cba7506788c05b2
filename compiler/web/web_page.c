// SPDX-License-Identifier: Apache-2.0
// A page may run nothing but what it came with: its policy (CSP) names the script and the style by
// their digests, lets WebAssembly be compiled, pictures of the visitor's be shown, and nothing be
// fetched; a page of a folder may fetch what lies beside it. Modules do not load each other from
// file://, so the single page has them as one script: their text one behind the other without
// import lines, which must be one line each, and without `export` in front; so no two modules may
// have a top-level name in common (tests/web/models.py).
#include "compiler/web/web_page.h"

#include "compiler/web/web_sources.h"

// In an order in which each comes behind what it imports.
static const char *const modules[] = {
    "errors.js", "dtypes.js", "sha256.js", "libm.js",     "image.js", "manifest.js", "wasm.js",
    "gpu.js",    "webgpu.js", "webgl.js",  "backends.js", "hlod.js",  "page.js"};

// The runtime's modules for GPUs.
static const struct gpu_module {
    const char *file, *name, *by; // NULL: of both
    enum web_backend of;
} gpu_modules[] = {{"gpu.js", NULL, NULL, WEB_AUTO},
                   {"webgpu.js", "webgpu", "byWebGpu", WEB_WEBGPU},
                   {"webgl.js", "webgl", "byWebGl", WEB_WEBGL}};
enum { GPU_MODULES = sizeof gpu_modules / sizeof *gpu_modules };
static bool is_for(const struct gpu_module *m, enum web_backend b) {
    return b == WEB_AUTO || m->of == b || (b != WEB_WASM && !m->by);
}
static struct str backends_js(struct arena *a, enum web_backend b) {
    const char *imports = "", *all = "";
    for (int k = 0; k < GPU_MODULES; k++) {
        const struct gpu_module *m = &gpu_modules[k];
        if (!m->by || !is_for(m, b)) continue;
        imports = arena_printf(a, "%simport { %s } from \"./%s\";\n", imports, m->by, m->file);
        all = arena_printf(a, "%s%s%s: %s", all, *all ? ", " : "", m->name, m->by);
    }
    return str_of(arena_printf(a,
                               "// SPDX-License-Identifier: Apache-2.0\n%sexport const onGpu = "
                               "{ %s };\n",
                               imports, all));
}
struct str web_runtime(struct arena *a, const char *name, enum web_backend b) {
    for (int k = 0; k < GPU_MODULES; k++)
        if (!strcmp(gpu_modules[k].file, name) && !is_for(&gpu_modules[k], b))
            return (struct str){0};
    if (strcmp(name, "backends.js") == 0) return backends_js(a, b);
    struct span s = web_source(name);
    return (struct str){(const char *)s.p, s.n};
}

static void source_digest(struct strbuf *b, struct str text) {
    struct digest d = sha256_of(text.p, text.n);
    strbuf_puts(b, "'sha256-");
    strbuf_base64(b, d.b, sizeof d.b);
    strbuf_putc(b, '\'');
}
static struct str text_of(const char *name) {
    struct span s = web_source(name);
    return (struct str){(const char *)s.p, s.n};
}

static void bundle(struct arena *a, enum web_backend backend, struct strbuf *b) {
    strbuf_putc(b, '\n');
    for (size_t k = 0; k < sizeof modules / sizeof *modules; k++) {
        struct str text = web_runtime(a, modules[k], backend), line;
        while (text.n && str_cut(&text, '\n', &line)) {
            if (str_starts(line, "import ") || str_starts(line, "export {")) continue;
            if (str_starts(line, "export ")) line = (struct str){line.p + 7, line.n - 7};
            strbuf_add(b, line.p, line.n);
            strbuf_putc(b, '\n');
        }
    }
}

static void head(struct strbuf *b, const char *policy) {
    strbuf_printf(b,
                  "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width\">\n"
                  "<title>model</title>\n",
                  policy);
}
void web_page_folder(struct strbuf *b) {
    struct str body = text_of("page.html");
    head(b, "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; "
            "connect-src 'self'; img-src blob:; base-uri 'none'; form-action 'none'");
    strbuf_puts(b, "<link rel=\"stylesheet\" href=\"runtime/page.css\">\n"
                   "<script type=\"module\" src=\"runtime/page.js\"></script>\n</head>\n<body>\n");
    strbuf_add(b, body.p, body.n);
    strbuf_puts(b, "</body>\n</html>\n");
}

static void embed(struct strbuf *b, const char *name, const void *p, size_t n) {
    strbuf_printf(b, "<script type=\"application/octet-stream\" id=\"%s\">", name);
    strbuf_base64(b, p, n);
    strbuf_puts(b, "</script>\n");
}
void web_page_single(struct arena *a, enum web_backend backend, struct strbuf *b,
                     struct str manifest, const struct web_blob *files, int n) {
    struct strbuf script = {0}, policy = {0};
    struct str body = text_of("page.html"), style = text_of("page.css");
    bundle(a, backend, &script);
    strbuf_puts(&policy, "default-src 'none'; script-src ");
    source_digest(&policy, (struct str){script.p, script.n});
    strbuf_puts(&policy, " 'wasm-unsafe-eval'; style-src ");
    source_digest(&policy, style);
    strbuf_puts(&policy, "; img-src blob:; base-uri 'none'; form-action 'none'");

    head(b, strbuf_cstr(&policy));
    strbuf_puts(b, "<style>");
    strbuf_add(b, style.p, style.n);
    strbuf_puts(b, "</style>\n</head>\n<body>\n");
    strbuf_add(b, body.p, body.n);
    embed(b, "manifest.json", manifest.p, manifest.n);
    for (int k = 0; k < n; k++)
        embed(b, files[k].path, files[k].bytes.p, files[k].bytes.n);
    strbuf_puts(b, "<script type=\"module\">");
    strbuf_add(b, script.p, script.n);
    strbuf_puts(b, "</script>\n</body>\n</html>\n");
    strbuf_done(&script);
    strbuf_done(&policy);
}
