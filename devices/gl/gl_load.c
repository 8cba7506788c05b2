// SPDX-License-Identifier: Apache-2.0
#include "devices/gl/gl_load.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "devices/queue/queue_files.h"

typedef void *(*find_fn)(const char *name);

static status_t fill(struct gl_api *api, void *dl, find_fn find, const char *file) {
#define GL_FN(ret, prefix, fn, params) {#prefix #fn, offsetof(struct gl_api, fn), true},
    static const struct {
        const char *name;
        size_t at;
        bool needed;
    } slots[] = {
#include "devices/gl/gl_slots.def"
        {"glGetGraphicsResetStatus", offsetof(struct gl_api, ResetStatus), false},
        {"eglQueryDevicesEXT", offsetof(struct gl_api, QueryDevices), false},
        {"eglQueryDeviceStringEXT", offsetof(struct gl_api, QueryDeviceString), false},
    };
#undef GL_FN
    for (size_t k = 0; k < sizeof slots / sizeof *slots; k++) {
        void *fn = slots[k].name[0] == 'e' ? dlsym(dl, slots[k].name) : NULL;
        if (!fn) fn = find(slots[k].name);
        if (!fn && slots[k].needed)
            return st_new(ST_FAILED_PRECONDITION, "%s has no %s", file, slots[k].name);
        memcpy((char *)api + slots[k].at, &fn, sizeof fn);
    }
    return ST_OK;
}
status_t gl_load(const char *file, const struct gl_api **out) {
    static struct gl_api api;
    static char loaded[1024];
    const char *name = *file ? file : "libEGL.so.1";
    if (*loaded && strcmp(loaded, name) != 0)
        return st_new(ST_FAILED_PRECONDITION, "this process has %s already", loaded);
    *out = &api;
    if (*loaded) return ST_OK;
    if (strlen(name) >= sizeof loaded) return st_invalid("a path that is too long");

    queue_keep_files("mesa", "MESA_SHADER_CACHE_DIR");
    queue_keep_files("nvidia", "__GL_SHADER_DISK_CACHE_PATH");
    void *dl = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!dl)
        return st_new(ST_FAILED_PRECONDITION,
                      "EGL is not installed here (its library, and a driver of OpenGL ES): %s",
                      dlerror());
    find_fn find = NULL;
    void *fn = dlsym(dl, "eglGetProcAddress");
    memcpy(&find, &fn, sizeof fn);
    status_t st = find ? fill(&api, dl, find, name)
                       : st_new(ST_FAILED_PRECONDITION, "%s has no eglGetProcAddress", name);
    if (st)
        dlclose(dl);
    else
        memcpy(loaded, name, strlen(name) + 1);
    return st;
}
