// SPDX-License-Identifier: Apache-2.0
// A device of any driver of OpenGL ES 3.0, by EGL without a window. The spec:
//     gl                     the first device of EGL's list that is no software, else the first
//     gl:1, gl:device=1      by its number in the list
//     gl:surfaceless         Mesa's platform without surfaces
//     gl:memory=512M         no more memory than that
//     gl:library=FILE        another library than libEGL.so.1
#include <stdlib.h>

#include "base/limits.h"
#include "base/str.h"
#include "compiler/codegen/shader/shader.h"
#include "devices/gl/gl_device.h"
#include "proto/hlod.pb-c.h"

enum { MOST_DEVICES = 64, MOST_BITS = 15, LEAST_BITS = 6 };
struct gl_options {
    struct queue_options of;
    bool surfaceless;
};

// ---- calls

static status_t lost(struct gl_device *d, const char *what) {
    d->base.lost = true;
    return st_new(ST_UNAVAILABLE, "the OpenGL device is lost: %s", what);
}
status_t gl_check(struct gl_device *d, const char *what) {
    enum { MOST_ERRORS = 16 };
    uint32_t code = d->gl->GetError();
    bool reset = d->resets && d->gl->ResetStatus();
    if (reset || code == GL_CONTEXT_LOST) return lost(d, what);
    if (code == 0) return ST_OK;
    for (int k = 0; k < MOST_ERRORS && d->gl->GetError(); k++)
        continue;
    if (code == GL_OUT_OF_MEMORY)
        return st_reason(st_exhausted("no device memory: %s gave OUT_OF_MEMORY", what),
                         HLOD__V1__REASON__REASON_DEVICE_MEMORY);
    return st_internal("%s gave OpenGL's error 0x%04x", what, (unsigned)code);
}
status_t gl_enter(struct gl_device *d) {
    if (d->base.compiles_only) return ST_OK;
    if (d->gl->MakeCurrent(d->display, NULL, NULL, d->context)) return ST_OK;
    return lost(d, "its context cannot be had");
}
void gl_leave(struct gl_device *d) {
    if (d->base.compiles_only) return;
    d->gl->MakeCurrent(d->display, NULL, NULL, NULL);
}

// ---- options

static status_t parse(struct arena *a, const char *text, struct gl_options *o) {
    struct str rest = str_of(text), item, key = {0};
    *o = (struct gl_options){.of = {.device = -1, .library = ""}};
    while (str_cut(&rest, ':', &item)) {
        bool known = true, good = true;
        int64_t number;
        str_cut(&item, '=', &key);
        if (item.n == 0 && str_is(key, "surfaceless"))
            o->surfaceless = true;
        else if (item.n == 0 && str_to_i64(key, &number) && number >= 0)
            o->of.device = number;
        else
            good = queue_option(a, key, item, &o->of, &known);
        if (!good)
            return queue_bad_option(known, key, item,
                                    "a device's number, surfaceless, device, memory, library");
    }
    return ST_OK;
}

// ---- which device

static bool has(const char *list, const char *word) {
    return list && str_listed(str_of(word), list);
}
static void *make_context(struct gl_device *d) {
    const struct gl_api *gl = d->gl;
    const char *list = gl->QueryString(d->display, EGL_EXTENSIONS);
    static const int32_t wanted[] = {EGL_SURFACE_TYPE, 0, EGL_RENDERABLE_TYPE, EGL_OPENGL_ES3_BIT,
                                     EGL_NONE};
    int32_t pairs[] = {EGL_CONTEXT_MAJOR_VERSION, 3,
                       EGL_CONTEXT_OPENGL_RESET_NOTIFICATION_STRATEGY_EXT,
                       EGL_LOSE_CONTEXT_ON_RESET_EXT, EGL_NONE};
    void *config = NULL;
    int32_t n = 0;
    if (!gl->BindAPI(EGL_OPENGL_ES_API)) return NULL;
    if (!has(list, "EGL_KHR_no_config_context") &&
        (!gl->ChooseConfig(d->display, wanted, &config, 1, &n) || n < 1))
        return NULL;

    d->resets = has(list, "EGL_EXT_create_context_robustness") && gl->ResetStatus;
    void *made = d->resets ? gl->CreateContext(d->display, config, NULL, pairs) : NULL;
    if (made) return made;
    d->resets = false;
    pairs[2] = EGL_NONE;
    return gl->CreateContext(d->display, config, NULL, pairs);
}
// The display stays: it is the same for all of a process.
static void give_back(struct gl_device *d) {
    if (d->context) d->gl->DestroyContext(d->display, d->context);
    d->context = d->display = NULL;
}
// Is it a device of OpenGL ES 3.0 that draws without a surface? Then its context is current.
static bool opens(struct gl_device *d, uint32_t platform, void *of) {
    int32_t major, minor;
    d->display = d->gl->GetPlatformDisplayEXT(platform, of, NULL);
    if (!d->display) return false;
    if (!d->gl->Initialize(d->display, &major, &minor)) {
        d->display = NULL;
        return false;
    }
    d->context = make_context(d);
    if (d->context && d->gl->MakeCurrent(d->display, NULL, NULL, d->context)) return true;
    give_back(d);
    return false;
}
static bool is_software(const struct gl_device *d, void *device) {
    return d->gl->QueryDeviceString &&
           has(d->gl->QueryDeviceString(device, EGL_EXTENSIONS), "EGL_MESA_device_software");
}
static status_t no_device(struct gl_device *d, void *const *devices, int32_t n, int64_t wanted) {
    struct strbuf names = {0};
    for (int32_t k = 0; k < n; k++) {
        const char *file = d->gl->QueryDeviceString
                               ? d->gl->QueryDeviceString(devices[k], EGL_DRM_DEVICE_FILE_EXT)
                               : NULL;
        const char *name = opens(d, EGL_PLATFORM_DEVICE_EXT, devices[k])
                               ? d->gl->GetString(GL_RENDERER)
                               : "cannot be opened";
        strbuf_printf(&names, "%s%d: %s%s%s", k ? ", " : "", k, name ? name : "",
                      file ? " at " : "", file ? file : "");
        if (d->context) gl_leave(d);
        give_back(d);
    }
    status_t st =
        wanted < 0
            ? st_new(ST_FAILED_PRECONDITION,
                     "no OpenGL device is here: no driver is installed, or none has OpenGL "
                     "ES 3.0 without a window; EGL's list: %s",
                     names.n ? strbuf_cstr(&names) : "empty")
            : st_new(ST_FAILED_PRECONDITION, "there is no OpenGL device %lld; EGL's list: %s",
                     (long long)wanted, names.n ? strbuf_cstr(&names) : "empty");
    strbuf_done(&names);
    return st;
}
static status_t choose(struct gl_device *d, const struct gl_options *o) {
    void *devices[MOST_DEVICES];
    int32_t n = 0;
    if (!o->surfaceless &&
        (!d->gl->QueryDevices || !d->gl->QueryDevices(MOST_DEVICES, devices, &n)))
        n = 0;
    int64_t wanted = o->of.device;
    if (wanted >= 0) {
        d->software = wanted < n && is_software(d, devices[wanted]);
        if (wanted < n && opens(d, EGL_PLATFORM_DEVICE_EXT, devices[wanted])) return ST_OK;
        return no_device(d, devices, n, wanted);
    }

    for (int soft = 0; soft < 2; soft++)
        for (int32_t k = 0; k < n; k++) {
            d->software = is_software(d, devices[k]);
            if (d->software == soft && opens(d, EGL_PLATFORM_DEVICE_EXT, devices[k])) return ST_OK;
        }
    d->software = true; // as far as is known
    if (opens(d, EGL_PLATFORM_SURFACELESS_MESA, NULL)) return ST_OK;
    return no_device(d, devices, n, -1);
}

// ---- what it can do

static const char *text(struct gl_device *d, uint32_t what) {
    const char *s = d->gl->GetString(what);
    return s ? s : "";
}
// For tests a texture can be had as if it were the largest: HLOD_GL_SIDE.
static int64_t find_side(struct gl_device *d) {
    const char *form = getenv("HLOD_GL_SIDE");
    int32_t side = 0, view[2] = {0, 0};
    int64_t given;
    d->gl->GetIntegerv(GL_MAX_TEXTURE_SIZE, &side);
    d->gl->GetIntegerv(GL_MAX_VIEWPORT_DIMS, view);
    if (view[0] < side) side = view[0];
    if (view[1] < side) side = view[1];
    if (form && str_to_i64(str_of(form), &given) && given > 0 && given < side)
        side = (int32_t)given;
    return side;
}
static status_t describe(struct gl_device *d, const struct gl_options *o) {
    int64_t side = find_side(d), here = limits_memory();
    const char *form = getenv("HLOD_GL_FORM"); // for tests
    int32_t kib = 0;
    while (d->bits < MOST_BITS && INT64_C(2) << d->bits <= side)
        d->bits++;
    if (d->bits < LEAST_BITS)
        return st_new(ST_FAILED_PRECONDITION, "OpenGL's textures are too small here: %lld texels",
                      (long long)side);
    d->most_rows = side;

    struct queue_device *q = &d->base;
    q->memory_bytes = (side << d->bits) * 4;
    if (has(text(d, GL_EXTENSIONS), "GL_NVX_gpu_memory_info"))
        d->gl->GetIntegerv(GL_GPU_MEMORY_INFO_TOTAL_AVAILABLE_MEMORY_NVX, &kib);
    if (kib > 0 && kib * INT64_C(1024) < q->memory_bytes) q->memory_bytes = kib * INT64_C(1024);
    if (d->software && here < q->memory_bytes) q->memory_bytes = here;
    if (o->of.memory && o->of.memory < q->memory_bytes) q->memory_bytes = o->of.memory;
    q->most_bytes = q->memory_bytes;
    q->target = gl_target(form && strcmp(form, "tiles") == 0);
    q->description =
        arena_printf(&q->arena, "%s (%s), textures of %lld x %lld words", text(d, GL_RENDERER),
                     text(d, GL_VERSION), (long long)(INT64_C(1) << d->bits), (long long)side);
    return gl_check(d, "glGetIntegerv");
}

// ---- open and close

static void gl_close(struct device *base) {
    struct gl_device *d = (struct gl_device *)base;
    if (d->context && d->gl->MakeCurrent(d->display, NULL, NULL, d->context)) {
        gl_drop_textures(d);
        if (d->copier.id) d->gl->DeleteProgram(d->copier.id);
        if (d->vertex) d->gl->DeleteShader(d->vertex);
        gl_leave(d);
    }
    give_back(d);
    vec_done(&d->ranges);
    arena_done(&d->base.arena);
    free(d);
}
static status_t open_into(struct gl_device *d, const char *options) {
    struct gl_options o;
    RETURN_IF_ERR(parse(&d->base.arena, options, &o));
    RETURN_IF_ERR(gl_load(o.of.library, &d->gl));
    RETURN_IF_ERR(choose(d, &o));
    RETURN_IF_ERR(describe(d, &o));
    RETURN_IF_ERR(gl_drawn_rows(d, 0));
    RETURN_IF_ERR(gl_sums_rows(d, 1));
    return gl_make_copier(d);
}
extern const struct dev_vtable gl_vtable;
static const struct queue_driver gl_driver = {.name = "OpenGL",
                                              .exe_bytes = sizeof(struct gl_exe),
                                              .take = gl_take,
                                              .give = gl_give,
                                              .write = gl_write,
                                              .read = gl_read,
                                              .copy = gl_copy,
                                              .finish = gl_finish,
                                              .begin = gl_begin,
                                              .bind = gl_bind,
                                              .ready = gl_ready,
                                              .unload = gl_unload,
                                              .run = gl_run,
                                              .settle = gl_settle,
                                              .explain = gl_explain};
static struct gl_device *make_device(void) {
    struct gl_device *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->base.base.vt = &gl_vtable;
    d->base.driver = &gl_driver;
    return d;
}
static status_t gl_open(const char *options, struct device **out) {
    struct gl_device *d = make_device();
    if (!d) return st_oom();
    status_t st = open_into(d, options);
    if (d->context) gl_leave(d);
    if (st)
        gl_close(&d->base.base);
    else
        *out = &d->base.base;
    return st;
}
// Kernels are text, so a compile worker needs neither library nor device: it keeps its filter.
static status_t gl_open_compiler(const char *options, struct device **out) {
    struct gl_options o;
    struct gl_device *d = make_device();
    if (!d) return st_oom();
    status_t st = parse(&d->base.arena, options, &o);
    d->base.target = gl_target(false);
    d->base.compiles_only = true;
    d->base.description = "compiles for OpenGL devices";
    d->base.memory_bytes = 1;
    if (st)
        gl_close(&d->base.base);
    else
        *out = &d->base.base;
    return st;
}
static status_t gl_find_target(UNUSED struct device *d, const char *name,
                               const struct target **out) {
    *out = gl_target_named(*name ? name : "gl");
    if (*out) return ST_OK;
    *out = gl_target(false);
    return st_new(ST_FAILED_PRECONDITION,
                  "target %s cannot be compiled for here: OpenGL's is %s alone", name, (*out)->id);
}
static struct dev_attributes gl_attributes(struct device *base) {
    struct gl_device *d = (struct gl_device *)base;
    return (struct dev_attributes){.memory_bytes = d->base.memory_bytes,
                                   .description = d->base.description,
                                   .foreign = d->context != NULL,
                                   .starts_slowly = true};
}
static struct dev_peak gl_peak(UNUSED struct device *d) {
    return (struct dev_peak){.source = "not known: OpenGL does not tell"};
}

// ---- with the context

static struct gl_device *of(const struct dev_exe *x) {
    return (struct gl_device *)x->dev;
}
static status_t left(struct gl_device *d, status_t st) {
    gl_leave(d);
    return st;
}
static status_t load(struct device *base, struct executable *exe, const _Atomic bool *cancel,
                     struct dev_exe **out) {
    struct gl_device *d = (struct gl_device *)base;
    status_t st = gl_enter(d);
    if (!st) return left(d, queue_load(base, exe, cancel, out));
    executable_free(exe);
    return st;
}
static status_t prepare(struct dev_exe *x, const struct span *weights, int n,
                        const _Atomic bool *cancel, struct dev_weights **out) {
    RETURN_IF_ERR(gl_enter(of(x)));
    return left(of(x), queue_prepare(x, weights, n, cancel, out));
}
static status_t run(struct dev_exe *x, struct dev_weights *w, const struct dev_run *r) {
    RETURN_IF_ERR(gl_enter(of(x)));
    return left(of(x), queue_run(x, w, r));
}
static status_t put(struct device *d, const struct shape *s, const void *data,
                    struct dev_buffer **out) {
    RETURN_IF_ERR(gl_enter((struct gl_device *)d));
    return left((struct gl_device *)d, queue_put(d, s, data, out));
}
static status_t get(struct dev_buffer *b, int64_t offset, int64_t n, void *dst) {
    struct gl_device *d = (struct gl_device *)b->dev;
    RETURN_IF_ERR(gl_enter(d));
    return left(d, queue_get(b, offset, n, dst));
}
// Nothing is to be given back to a context that cannot be had, but calls without one do nothing.
static void unload(struct dev_exe *x) {
    struct gl_device *d = of(x);
    st_drop(gl_enter(d));
    queue_unload(x);
    gl_leave(d);
}

const struct dev_vtable gl_vtable = {.kind = "gl",
                                     .open = gl_open,
                                     .open_compiler = gl_open_compiler,
                                     .find_target = gl_find_target,
                                     .close = gl_close,
                                     .target = queue_target,
                                     .attributes = gl_attributes,
                                     .load = load,
                                     .unload = unload,
                                     .prepare = prepare,
                                     .release = queue_release,
                                     .put = put,
                                     .get = get,
                                     .drop = queue_drop,
                                     .run = run,
                                     .stats = queue_stats,
                                     .explain = queue_explain,
                                     .peak = gl_peak};
