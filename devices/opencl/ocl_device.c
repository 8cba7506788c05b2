// SPDX-License-Identifier: Apache-2.0
// An OpenCL device of any driver: which one, what it can do, what kernels it takes. The spec:
//     opencl                       the first GPU of all platforms, else the first device
//     opencl:platform=1:device=0   by number
//     opencl:memory=512M           no more of its memory than that
//     opencl:library=FILE          another loader than libOpenCL.so.1
#include <stdlib.h>

#include "base/limits.h"
#include "base/str.h"
#include "compiler/codegen/opencl.h"
#include "devices/opencl/ocl_device.h"
#include "proto/hlod.pb-c.h"

enum { MOST_PLATFORMS = 16, MOST_DEVICES = 64 };
struct ocl_options {
    struct queue_options of;
    int64_t platform; // -1 = any
};

status_t ocl_check(struct ocl_device *d, ocl_code code, const char *call) {
    if (code == 0) return ST_OK;
    const char *name = ocl_name_of(code);

    switch (ocl_kind_of(code)) {
    case OCL_LOST:
        d->base.lost = true;
        return st_new(ST_UNAVAILABLE, "the OpenCL device is lost: %s gave %s (%d)", call, name,
                      code);
    case OCL_FULL:
        return st_reason(st_exhausted("no device memory: %s gave %s (%d)", call, name, code),
                         HLOD__V1__REASON__REASON_DEVICE_MEMORY);
    default:
        return st_internal("%s gave %s (%d)", call, name, code);
    }
}
// What fails at the end failed on the device: nothing is left to be had from it.
status_t ocl_finish(struct queue_device *base) {
    struct ocl_device *d = (struct ocl_device *)base;
    ocl_code code = d->cl->Finish(d->queue);
    if (code == 0) return ST_OK;
    d->base.lost = true;
    return st_new(ST_UNAVAILABLE, "the OpenCL device is lost: clFinish gave %s (%d)",
                  ocl_name_of(code), code);
}

// ---- options

static status_t parse(struct arena *a, const char *text, struct ocl_options *o) {
    struct str rest = str_of(text), item, key = {0};
    *o = (struct ocl_options){.of = {.device = -1, .library = ""}, .platform = -1};
    while (str_cut(&rest, ':', &item)) {
        bool known = true, good;
        str_cut(&item, '=', &key);
        if (str_is(key, "platform"))
            good = str_to_i64(item, &o->platform) && o->platform >= 0;
        else
            good = queue_option(a, key, item, &o->of, &known);
        if (!good)
            return queue_bad_option(known, key, item, "platform, device, memory, library");
    }
    return ST_OK;
}

// ---- which device, and what it can do

static int64_t number(const struct ocl_device *d, enum ocl_device_info what, size_t bytes) {
    uint64_t v = 0;
    uint32_t half = 0;
    if (bytes == 4) return d->cl->GetDeviceInfo(d->id, what, 4, &half, NULL) ? 0 : half;
    if (d->cl->GetDeviceInfo(d->id, what, 8, &v, NULL)) return 0;
    return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}
static const char *text(struct ocl_device *d, enum ocl_device_info what) {
    size_t n = 0;
    if (d->cl->GetDeviceInfo(d->id, what, 0, NULL, &n) || n == 0 || n > 65536) return "";
    char *s = arena_zarray(&d->base.arena, char, n + 1);
    return d->cl->GetDeviceInfo(d->id, what, n, s, NULL) ? "" : s;
}

static status_t no_device(const struct ocl_options *o) {
    if (o->platform < 0 && o->of.device < 0)
        return st_new(ST_FAILED_PRECONDITION,
                      "no OpenCL device is here: no driver is installed, or it finds none");
    return st_new(ST_FAILED_PRECONDITION, "there is no OpenCL device of platform=%lld:device=%lld",
                  (long long)(o->platform < 0 ? 0 : o->platform),
                  (long long)(o->of.device < 0 ? 0 : o->of.device));
}
static status_t choose(struct ocl_device *d, const struct ocl_options *o, void **out_platform) {
    void *platforms[MOST_PLATFORMS], *devices[MOST_DEVICES];
    uint32_t n = 0;
    ocl_code code = d->cl->GetPlatformIDs(MOST_PLATFORMS, platforms, &n);
    if (code && code != OCL_PLATFORM_NOT_FOUND)
        RETURN_IF_ERR(ocl_check(d, code, "clGetPlatformIDs"));
    if (code) n = 0;

    for (int gpu = 1; gpu >= 0 && !d->id; gpu--) // the first GPU, or else the first
        for (uint32_t p = 0; p < n && p < MOST_PLATFORMS && !d->id; p++) {
            uint32_t m = 0;
            ocl_bits type = gpu && o->of.device < 0 ? OCL_DEVICE_TYPE_GPU : OCL_DEVICE_TYPE_ALL;
            if (o->platform >= 0 && o->platform != p) continue;
            if (o->platform < 0 && o->of.device >= 0 && p > 0) continue;
            if (d->cl->GetDeviceIDs(platforms[p], type, MOST_DEVICES, devices, &m)) continue;
            int64_t at = o->of.device < 0 ? 0 : o->of.device;
            if (at >= m || at >= MOST_DEVICES) continue;
            d->id = devices[at];
            *out_platform = platforms[p];
        }
    return d->id ? ST_OK : no_device(o);
}

// For tests a CPU can be had as if it were a GPU, one for which all contractions are tiles, or one
// that lacks what a device may lack.
static void set_target(struct ocl_device *d, bool f64, bool fma, bool cpu) {
    const char *form = getenv("HLOD_OPENCL_FORM");
    bool narrow = form && strcmp(form, "narrow") == 0, gpu = form && strcmp(form, "gpu") == 0,
         tiles = form && strcmp(form, "tiles") == 0;
    d->is_cpu = cpu && !gpu && !narrow && !tiles;
    d->base.target =
        opencl_target((f64 && !narrow ? OPENCL_F64 : 0) | (fma && !narrow ? OPENCL_FMA : 0) |
                      (d->is_cpu ? OPENCL_CPU : 0) | (tiles ? OPENCL_TILES : 0));
}
static void describe(struct ocl_device *d, const struct ocl_options *o, void *platform) {
    char name[256] = "";
    size_t sizes[16] = {0}, n = 0;
    int64_t config = number(d, OCL_DEVICE_SINGLE_FP_CONFIG, 8), bits;
    d->cl->GetPlatformInfo(platform, OCL_PLATFORM_NAME, sizeof name - 1, name, NULL);
    d->units = (size_t)number(d, OCL_DEVICE_MAX_COMPUTE_UNITS, 4);
    d->most_local = (size_t)number(d, OCL_DEVICE_MAX_WORK_GROUP_SIZE, 8);
    if (!d->cl->GetDeviceInfo(d->id, OCL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, &n) &&
        n && sizes[0] && sizes[0] < d->most_local)
        d->most_local = sizes[0];
    if (d->units < 1) d->units = 1;
    if (d->most_local < 1) d->most_local = 1;

    // A CPU's driver names the whole machine's memory; this process may have less.
    int64_t here = limits_memory(), type = number(d, OCL_DEVICE_TYPE, 8);
    d->base.memory_bytes = number(d, OCL_DEVICE_GLOBAL_MEM_SIZE, 8);
    if (!(type & (int64_t)OCL_DEVICE_TYPE_GPU) && here < d->base.memory_bytes)
        d->base.memory_bytes = here;
    if (o->of.memory && o->of.memory < d->base.memory_bytes) d->base.memory_bytes = o->of.memory;
    if (d->base.memory_bytes < 1) d->base.memory_bytes = 1;
    d->base.most_bytes = number(d, OCL_DEVICE_MAX_MEM_ALLOC_SIZE, 8);
    d->parameter_bytes = number(d, OCL_DEVICE_MAX_PARAMETER_SIZE, 8);
    bits = number(d, OCL_DEVICE_ADDRESS_BITS, 4);
    d->most_items = bits == 32 ? INT32_MAX : INT64_C(1) << 40;

    bool f64 = str_listed(str_of("cl_khr_fp64"), text(d, OCL_DEVICE_EXTENSIONS));
    set_target(d, f64, config & OCL_FP_FMA, type & (int64_t)OCL_DEVICE_TYPE_CPU);
    d->build_options = config & OCL_FP_EXACT_DIVIDE
                           ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"
                           : "-cl-std=CL1.2";
    d->base.description =
        arena_printf(&d->base.arena, "%s (%s, %s), %zu units%s", text(d, OCL_DEVICE_NAME), name,
                     text(d, OCL_DEVICE_VERSION), d->units, f64 ? "" : ", no f64");
}

static void ocl_close(struct device *base) {
    struct ocl_device *d = (struct ocl_device *)base;
    if (d->queue) d->cl->ReleaseCommandQueue(d->queue);
    if (d->context) d->cl->ReleaseContext(d->context);
    arena_done(&d->base.arena);
    free(d);
}
static status_t open_into(struct ocl_device *d, const char *options) {
    struct ocl_options o;
    void *platform = NULL;
    ocl_code code = 0;
    RETURN_IF_ERR(parse(&d->base.arena, options, &o));
    RETURN_IF_ERR(ocl_load(o.of.library, &d->cl));
    RETURN_IF_ERR(choose(d, &o, &platform));
    d->context = d->cl->CreateContext(NULL, 1, &d->id, NULL, NULL, &code);
    RETURN_IF_ERR(ocl_check(d, code, "clCreateContext"));
    d->queue = d->cl->CreateCommandQueue(d->context, d->id, OCL_QUEUE_PROFILING, &code);
    RETURN_IF_ERR(ocl_check(d, code, "clCreateCommandQueue"));
    describe(d, &o, platform);
    return ST_OK;
}
extern const struct dev_vtable opencl_vtable;
static struct ocl_device *make_device(void) {
    struct ocl_device *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->base.base.vt = &opencl_vtable;
    d->base.driver = &ocl_driver;
    return d;
}
static status_t ocl_open(const char *options, struct device **out) {
    struct ocl_device *d = make_device();
    if (!d) return st_oom();
    status_t st = open_into(d, options);
    if (st)
        ocl_close(&d->base.base);
    else
        *out = &d->base.base;
    return st;
}

// ---- to compile

// Kernels are text, so a compile worker needs neither library nor device: it keeps its filter.
static status_t ocl_open_compiler(const char *options, struct device **out) {
    struct ocl_options o;
    struct ocl_device *d = make_device();
    if (!d) return st_oom();
    status_t st = parse(&d->base.arena, options, &o);
    d->base.target = opencl_target_named("opencl");
    d->base.compiles_only = true;
    d->base.description = "compiles for OpenCL devices";
    d->base.memory_bytes = 1;
    if (st)
        ocl_close(&d->base.base);
    else
        *out = &d->base.base;
    return st;
}
static status_t ocl_find_target(struct device *base, const char *name, const struct target **out) {
    *out = *name ? opencl_target_named(name) : queue_target(base);
    if (*out) return ST_OK;
    return st_new(ST_FAILED_PRECONDITION,
                  "target %s cannot be compiled for here: OpenCL's are %s "
                  "with or without :fp64, :fma and :cpu",
                  name, opencl_target(0)->id);
}

static struct dev_attributes ocl_attributes(struct device *base) {
    struct ocl_device *d = (struct ocl_device *)base;
    return (struct dev_attributes){.memory_bytes = d->base.memory_bytes,
                                   .description = d->base.description,
                                   .foreign = d->queue != NULL,
                                   .starts_slowly = true};
}
static struct dev_peak ocl_peak(UNUSED struct device *d) {
    return (struct dev_peak){.source = "not known: OpenCL does not tell"};
}

const struct queue_driver ocl_driver = {.name = "OpenCL",
                                        .exe_bytes = sizeof(struct ocl_exe),
                                        .take = ocl_take,
                                        .give = ocl_give,
                                        .write = ocl_write,
                                        .read = ocl_read,
                                        .copy = ocl_copy,
                                        .finish = ocl_finish,
                                        .begin = ocl_begin,
                                        .bind = ocl_bind,
                                        .ready = ocl_ready,
                                        .unload = ocl_unload,
                                        .run = ocl_run,
                                        .settle = ocl_settle,
                                        .explain = ocl_explain};
const struct dev_vtable opencl_vtable = {.kind = "opencl",
                                         .open = ocl_open,
                                         .open_compiler = ocl_open_compiler,
                                         .find_target = ocl_find_target,
                                         .close = ocl_close,
                                         .target = queue_target,
                                         .attributes = ocl_attributes,
                                         .load = queue_load,
                                         .unload = queue_unload,
                                         .prepare = queue_prepare,
                                         .release = queue_release,
                                         .put = queue_put,
                                         .get = queue_get,
                                         .drop = queue_drop,
                                         .run = queue_run,
                                         .stats = queue_stats,
                                         .explain = queue_explain,
                                         .peak = ocl_peak};
