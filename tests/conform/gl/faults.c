// SPDX-License-Identifier: Apache-2.0
// An EGL that fails on demand: GL_FAULT=glGetError=1285@3 in the environment makes the third call
// of glGetError give that number, and every later one; without @ all do. Linked with the real
// library, where every other function is found.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *(*find_fn)(const char *name);
static void *real(const char *name) {
    find_fn find = (find_fn)dlsym(RTLD_NEXT, "eglGetProcAddress");
    return find(name);
}
// Is this call to fail? With what?
static int fault(const char *name, int64_t *what) {
    static int calls;
    const char *want = getenv("GL_FAULT");
    size_t n = strlen(name);
    if (!want || strncmp(want, name, n) != 0 || want[n] != '=') return 0;
    const char *nth = strchr(want, '@');
    *what = strtol(want + n + 1, NULL, 10);
    return ++calls >= (nth ? (int)strtol(nth + 1, NULL, 10) : 1);
}
static uint32_t get_error(void) {
    int64_t code;
    return fault("glGetError", &code) ? (uint32_t)code
                                      : ((uint32_t(*)(void))real("glGetError"))();
}
static uint32_t reset_status(void) {
    int64_t code;
    return fault("glGetGraphicsResetStatus", &code)
               ? (uint32_t)code
               : ((uint32_t(*)(void))real("glGetGraphicsResetStatus"))();
}
static void program_iv(uint32_t program, uint32_t what, int32_t *out) {
    int64_t value;
    ((void (*)(uint32_t, uint32_t, int32_t *))real("glGetProgramiv"))(program, what, out);
    if (fault("glGetProgramiv", &value)) *out = (int32_t)value;
}
static uint32_t query_devices(int32_t most, void **out, int32_t *n) {
    int64_t count;
    uint32_t good = ((uint32_t(*)(int32_t, void **, int32_t *))real("eglQueryDevicesEXT"))(
        most, out, n);
    if (fault("eglQueryDevicesEXT", &count)) *n = (int32_t)count;
    return good;
}
static void *display(uint32_t platform, void *of, const int32_t *pairs) {
    int64_t what;
    if (fault("eglGetPlatformDisplayEXT", &what)) return NULL;
    return ((void *(*)(uint32_t, void *, const int32_t *))real("eglGetPlatformDisplayEXT"))(
        platform, of, pairs);
}
void *eglGetProcAddress(const char *name) {
    int64_t what;
    if (strcmp(name, "glTexStorage2D") == 0 && fault(name, &what)) return NULL;
    if (strcmp(name, "glGetError") == 0) return (void *)get_error;
    if (strcmp(name, "glGetGraphicsResetStatus") == 0) return (void *)reset_status;
    if (strcmp(name, "glGetProgramiv") == 0) return (void *)program_iv;
    if (strcmp(name, "eglQueryDevicesEXT") == 0) return (void *)query_devices;
    if (strcmp(name, "eglGetPlatformDisplayEXT") == 0) return (void *)display;
    return real(name);
}
