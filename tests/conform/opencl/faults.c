// SPDX-License-Identifier: Apache-2.0
// An OpenCL loader that fails on demand: OCL_FAULT=clFinish=-14@3 in the environment makes the
// third call of clFinish give that code, and every later one; without @ all do. Linked with the
// real loader, where every other function is found.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fault(const char *name) {
    static int calls;
    const char *want = getenv("OCL_FAULT");
    size_t n = strlen(name);
    if (!want || strncmp(want, name, n) != 0 || want[n] != '=') return 0;
    const char *nth = strchr(want, '@');
    return ++calls >= (nth ? (int)strtol(nth + 1, NULL, 10) : 1)
               ? (int)strtol(want + n + 1, NULL, 10)
               : 0;
}
static void *real(const char *name) {
    return dlsym(RTLD_NEXT, name);
}
typedef void *p;
int32_t clGetPlatformIDs(uint32_t max, p *out, uint32_t *n) {
    int code = fault(__func__);
    return code ? code : ((int32_t (*)(uint32_t, p *, uint32_t *))real(__func__))(max, out, n);
}
p clCreateBuffer(p context, uint64_t flags, size_t bytes, p host, int32_t *code) {
    if ((*code = fault(__func__))) return NULL;
    return ((p(*)(p, uint64_t, size_t, p, int32_t *))real(__func__))(context, flags, bytes, host,
                                                                     code);
}
int32_t clBuildProgram(p program, uint32_t n, const p *devices, const char *options, p notify,
                       p user) {
    int code = fault(__func__);
    return code ? code
                : ((int32_t (*)(p, uint32_t, const p *, const char *, p, p))real(__func__))(
                      program, n, devices, options, notify, user);
}
int32_t clEnqueueNDRangeKernel(p queue, p kernel, uint32_t dims, const size_t *from,
                               const size_t *global, const size_t *local, uint32_t n,
                               const p *waits, p *event) {
    int code = fault(__func__);
    return code ? code
                : ((int32_t (*)(p, p, uint32_t, const size_t *, const size_t *, const size_t *,
                                uint32_t, const p *, p *))real(__func__))(
                      queue, kernel, dims, from, global, local, n, waits, event);
}
int32_t clFinish(p queue) {
    int code = fault(__func__);
    return code ? code : ((int32_t (*)(p))real(__func__))(queue);
}
