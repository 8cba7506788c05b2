// SPDX-License-Identifier: Apache-2.0
// Programs: the driver compiles a fragment shader of each result of each kernel. Many are given to
// it before the first is waited for, since some drivers compile several at a time.
#include <stdio.h>

#include "devices/gl/gl_device.h"

// One triangle over all that may be drawn to.
static const char vertex[] = "#version 300 es\n"
                             "void main() {\n"
                             "  gl_Position = vec4(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 "
                             "? 3.0 : -1.0, 0.0, 1.0);\n"
                             "}\n";

static uint32_t shader(struct gl_device *d, uint32_t kind, const char *const *texts,
                       const int32_t *sizes, int n) {
    uint32_t id = d->gl->CreateShader(kind);
    d->gl->ShaderSource(id, n, texts, sizes);
    d->gl->CompileShader(id);
    return id;
}
static struct gl_program make(struct gl_device *d, const char *first, struct span head,
                              struct span code) {
    const struct gl_api *gl = d->gl;
    const char *texts[] = {first, (const char *)head.p, (const char *)code.p};
    const int32_t sizes[] = {(int32_t)strlen(first), (int32_t)head.n, (int32_t)code.n};
    if (!d->vertex) {
        const char *whole = vertex;
        d->vertex = shader(d, GL_VERTEX_SHADER, &whole, NULL, 1);
    }

    struct gl_program p = {.id = gl->CreateProgram()};
    p.fragment = shader(d, GL_FRAGMENT_SHADER, texts, sizes, 3);
    gl->AttachShader(p.id, d->vertex);
    gl->AttachShader(p.id, p.fragment);
    gl->LinkProgram(p.id);
    return p;
}
struct gl_program gl_program(struct gl_device *d, struct span head, struct span code,
                             const char *name, int result, int bytes) {
    char first[512];
    snprintf(first, sizeof first,
             "#version 300 es\n#define HLOD_KERNEL %.200s\n#define HLOD_RESULT %d\n"
             "#define HLOD_PACK %d\n#define HLOD_PARTS %d\n#define HLOD_WIDTH %d\n",
             name, result, bytes < 4 ? 4 / bytes : 1, bytes > 4 ? bytes / 4 : 1, d->bits);
    return make(d, first, head, code);
}
struct gl_program gl_sums_program(struct gl_device *d, struct span head, struct span code,
                                  const char *name, int layers) {
    char first[512];
    snprintf(first, sizeof first,
             "#version 300 es\n#define HLOD_KERNEL %.200s_sums\n#define HLOD_SUMS %d\n"
             "#define HLOD_WIDTH %d\n",
             name, layers, d->bits);
    return make(d, first, head, code);
}
bool gl_program_good(struct gl_device *d, struct gl_program *p, struct arena *a, const char **why) {
    const struct gl_api *gl = d->gl;
    int32_t linked = 0;
    gl->GetProgramiv(p->id, GL_LINK_STATUS, &linked);
    if (!linked) {
        char log[2][400] = {"", ""};
        gl->GetShaderInfoLog(p->fragment, sizeof log[0] - 1, NULL, log[0]);
        gl->GetProgramInfoLog(p->id, sizeof log[1] - 1, NULL, log[1]);
        *why =
            arena_printf(a, "the driver refuses it: %s%s%s", log[0], *log[0] ? "; " : "", log[1]);
    }
    gl->DeleteShader(p->fragment);
    p->fragment = 0;
    p->places = gl->GetUniformLocation(p->id, "hlod_p");
    p->at = gl->GetUniformLocation(p->id, "hlod_q");
    int32_t sums = linked ? gl->GetUniformLocation(p->id, "hlod_s") : -1;
    if (sums >= 0) {
        gl->UseProgram(p->id);
        gl->Uniform1i(sums, 1);
    }
    return linked;
}

// What is at a place of memory, to be drawn.
status_t gl_make_copier(struct gl_device *d) {
    static const char text[] = "precision highp float;\n"
                               "precision highp int;\n"
                               "uniform highp usampler2D hlod_m;\n"
                               "uniform int hlod_p[1];\n"
                               "uniform ivec3 hlod_q;\n"
                               "out uint hlod_out;\n"
                               "void main() {\n"
                               "  int w = (int(gl_FragCoord.y) << HLOD_WIDTH) + "
                               "int(gl_FragCoord.x) + hlod_q.x + hlod_p[0];\n"
                               "  hlod_out = texelFetch(hlod_m, ivec2(w & ((1 << HLOD_WIDTH) - 1), "
                               "w >> HLOD_WIDTH), 0).x;\n"
                               "}\n";
    const struct span empty = {(const uint8_t *)"", 0};
    const char *why = "";
    d->copier =
        gl_program(d, (struct span){(const uint8_t *)text, sizeof text - 1}, empty, "copy", 0, 4);
    if (gl_program_good(d, &d->copier, &d->base.arena, &why)) return gl_check(d, "glLinkProgram");
    return st_new(ST_FAILED_PRECONDITION, "OpenGL copies no words here: %s", why);
}
