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
static const char *const modules[] = {"errors.js", "dtypes.js",   "sha256.js", "libm.js",
                                      "image.js",  "manifest.js", "wasm.js",   "gpu.js",
                                      "webgpu.js", "webgl.js",    "hlod.js",   "page.js"};

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

static void bundle(struct strbuf *b) {
    strbuf_putc(b, '\n');
    for (size_t k = 0; k < sizeof modules / sizeof *modules; k++) {
        struct str text = text_of(modules[k]), line;
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
void web_page_single(struct strbuf *b, struct str manifest, const struct web_blob *files, int n) {
    struct strbuf script = {0}, policy = {0};
    struct str body = text_of("page.html"), style = text_of("page.css");
    bundle(&script);
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
