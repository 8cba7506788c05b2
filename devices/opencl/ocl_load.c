// SPDX-License-Identifier: Apache-2.0
#include "devices/opencl/ocl_load.h"

#include <dlfcn.h>
#include <string.h>

#include "devices/queue/queue_files.h"

static const struct {
    ocl_code code;
    const char *name;
    enum ocl_kind kind;
} errors[] = {
#define OCL_ERROR(code, name, kind) {code, #name, OCL_##kind},
#include "devices/opencl/ocl_errors.def"
#undef OCL_ERROR
};
enum ocl_kind ocl_kind_of(ocl_code code) {
    for (size_t k = 0; k < sizeof errors / sizeof *errors; k++)
        if (errors[k].code == code) return errors[k].kind;
    return OCL_NONE;
}
const char *ocl_name_of(ocl_code code) {
    for (size_t k = 0; k < sizeof errors / sizeof *errors; k++)
        if (errors[k].code == code) return errors[k].name;
    return "an unknown error";
}

status_t ocl_load(const char *file, const struct ocl_api **out) {
    static struct ocl_api api;
    static char loaded[1024];
    const char *name = *file ? file : "libOpenCL.so.1";
    if (*loaded && strcmp(loaded, name) != 0)
        return st_new(ST_FAILED_PRECONDITION, "this process has %s already", loaded);
    *out = &api;
    if (*loaded) return ST_OK;
    if (strlen(name) >= sizeof loaded) return st_invalid("a path that is too long");

    queue_keep_files("pocl", "POCL_CACHE_DIR");
    void *dl = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!dl)
        return st_new(ST_FAILED_PRECONDITION,
                      "OpenCL is not installed here (its loader, and a driver for a device): %s",
                      dlerror());
#define OCL_FN(ret, fn, params) {"cl" #fn, offsetof(struct ocl_api, fn)},
    static const struct {
        const char *name;
        size_t at;
    } slots[] = {
#include "devices/opencl/ocl_slots.def"
    };
#undef OCL_FN

    for (size_t k = 0; k < sizeof slots / sizeof *slots; k++) {
        void *fn = dlsym(dl, slots[k].name);
        if (!fn) {
            dlclose(dl);
            return st_new(ST_FAILED_PRECONDITION, "%s has no %s", name, slots[k].name);
        }
        memcpy((char *)&api + slots[k].at, &fn, sizeof fn);
    }
    memcpy(loaded, name, strlen(name) + 1);
    return ST_OK;
}
