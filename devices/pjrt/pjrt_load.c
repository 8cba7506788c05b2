// SPDX-License-Identifier: Apache-2.0
// See pjrt_load.h. The struct head is filled in here and nowhere else.
#include "devices/pjrt/pjrt_load.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

enum { OLDEST_MINOR = 57 }; // reordered the table; only extended since

static const char *const slot_names[] = {
#define PJ_SLOT(name) #name,
#include "devices/pjrt/pjrt_slots.def"
#undef PJ_SLOT
};

bool pj_has(const struct pj_plugin *p, enum pj_slot slot) {
    size_t end = offsetof(struct pj_api, slots) + ((size_t)slot + 1) * sizeof(void *);
    return end <= p->api->struct_size && p->api->slots[slot];
}

const struct pj_extension *pj_find_extension(const struct pj_plugin *p,
                                             enum pj_extension_type type) {
    const struct pj_extension *e = p->api->extension;
    for (int n = 0; e && n < 256; e = e->next, n++) // a list of someone else's: may be a ring
        if (e->type == (int)type) return e;
    return NULL;
}
static enum pj_family family_of(const struct pj_plugin *p) {
    if (pj_find_extension(p, PJ_EXT_TPU_TOPOLOGY) || pj_find_extension(p, PJ_EXT_TPU_EXECUTABLE))
        return PJ_FAMILY_TPU;
    return pj_find_extension(p, PJ_EXT_GPU_CUSTOM_CALL) ? PJ_FAMILY_GPU : PJ_FAMILY_OTHER;
}

// Error functions give nothing, so they cannot go through pj_call.
void pj_drop_error(const struct pj_plugin *p, void *error) {
    struct pj_error_args d = {.struct_size = sizeof d, .error = error};
    if (error && pj_has(p, PJ_Error_Destroy))
        ((void (*)(void *))p->api->slots[PJ_Error_Destroy])(&d);
}
static status_t take_error(const struct pj_plugin *p, enum pj_slot slot, void *error) {
    enum status_code code = ST_INTERNAL;
    struct pj_error_code c = {.struct_size = sizeof c, .error = error};
    if (pj_has(p, PJ_Error_GetCode)) {
        void *(*get)(void *) = (void *(*)(void *))p->api->slots[PJ_Error_GetCode];
        void *second = get(&c);
        if (!second && c.code > 0 && c.code <= 16) code = (enum status_code)c.code;
    }
    struct pj_error_message m = {.struct_size = sizeof m, .error = error};
    if (pj_has(p, PJ_Error_Message)) ((void (*)(void *))p->api->slots[PJ_Error_Message])(&m);
    int n = m.message_size > 4000 ? 4000 : (int)m.message_size;
    status_t st =
        st_new(code, "%s: %.*s", slot_names[slot], m.message ? n : 0, m.message ? m.message : "");
    pj_drop_error(p, error);
    return st;
}

status_t pj_call(const struct pj_plugin *p, enum pj_slot slot, void *args, size_t bytes) {
    if (!pj_has(p, slot))
        return st_unimplemented("the plugin %s has no %s", p->path, slot_names[slot]);
    struct pj_no_args *head = args;
    head->struct_size = bytes;
    head->extension = NULL;
    void *error = ((void *(*)(void *))p->api->slots[slot])(args);
    return error ? take_error(p, slot, error) : ST_OK;
}

void pj_destroy(const struct pj_plugin *p, enum pj_slot slot, void *object) {
    struct pj_object_args d = {.object = object};
    if (object) st_drop(pj_call(p, slot, &d, sizeof d));
}

status_t pj_await(const struct pj_plugin *p, void *event) {
    struct pj_object_args w = {.object = event};
    if (!event) return ST_OK;
    status_t st = PJ_CALL(p, Event_Await, &w);
    pj_destroy(p, PJ_Event_Destroy, event);
    return st;
}

const char *pj_text(const struct pj_plugin *p, enum pj_slot slot, const void *object,
                    struct arena *a) {
    struct pj_text_args t = {.object = object};
    status_t st = pj_call(p, slot, &t, sizeof t);
    const char *text = !st && t.text ? arena_strndup(a, t.text, t.text_size) : "";
    st_drop(st);
    return text;
}

static status_t file_digest(const char *path, char out[17]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat sb;
    if (fd < 0) return st_errno(errno, path);
    if (fstat(fd, &sb) || !S_ISREG(sb.st_mode) || sb.st_size == 0) {
        close(fd);
        return st_new(ST_FAILED_PRECONDITION, "%s is not a plugin: no bytes to read", path);
    }
    void *bytes = mmap(NULL, (size_t)sb.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED) return st_errno(errno, path);
    struct digest d = sha256_of(bytes, (size_t)sb.st_size);
    munmap(bytes, (size_t)sb.st_size);
    char hex[65];
    digest_hex(d, hex);
    snprintf(out, 17, "%.16s", hex);
    return ST_OK;
}

status_t pj_open(const char *path, const struct pj_plugin **out) {
    static struct pj_plugin opened; // one plugin a process: most cannot share it with another
    static char opened_path[1024];
    if (opened.api && strcmp(opened_path, path) == 0) {
        *out = &opened;
        return ST_OK;
    }
    if (opened.api)
        return st_new(ST_FAILED_PRECONDITION, "this process has the plugin %s already",
                      opened_path);

    struct pj_plugin p = {.path = opened_path};
    if (snprintf(opened_path, sizeof opened_path, "%s", path) >= (int)sizeof opened_path)
        return st_invalid("a plugin's path is longer than %zu bytes", sizeof opened_path - 1);
    RETURN_IF_ERR(file_digest(path, p.digest));

    void *dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!dl) return st_new(ST_FAILED_PRECONDITION, "%s is not a plugin: %s", path, dlerror());
    const struct pj_api *(*get)(void) = (const struct pj_api *(*)(void))dlsym(dl, "GetPjrtApi");
    if (!get)
        return st_new(ST_FAILED_PRECONDITION, "%s is not a plugin: it has no GetPjrtApi", path);
    p.api = get();
    if (!p.api || p.api->struct_size < offsetof(struct pj_api, slots))
        return st_new(ST_FAILED_PRECONDITION, "%s gives a table of %zu bytes", path,
                      p.api ? p.api->struct_size : 0);
    if (p.api->version.major != 0 || p.api->version.minor < OLDEST_MINOR)
        return st_new(ST_FAILED_PRECONDITION, "%s speaks version %d.%d, expected 0.%d or later",
                      path, p.api->version.major, p.api->version.minor, OLDEST_MINOR);

    struct pj_no_args init = {0};
    if (pj_has(&p, PJ_Plugin_Initialize)) RETURN_IF_ERR(PJ_CALL(&p, Plugin_Initialize, &init));
    p.family = family_of(&p);
    opened = p;
    *out = &opened;
    return ST_OK;
}
