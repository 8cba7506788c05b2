// SPDX-License-Identifier: Apache-2.0
// A PJRT plugin that misbehaves as BAD_PLUGIN says, to test what the driver does about it: `abort`
// and `hang` in Client_Create, `size` (a table that ends early), `version` (too old), `slots` (NULL
// where functions are), `null` (no table), `error` (a refusal with a message).
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/pjrt/pjrt_abi.h"

static struct {
    struct pj_api api;
    void *slots[PJ_SLOT_COUNT];
} table;
static char refusal[] = "no device on this machine";

static void *nothing(void *args) {
    (void)args;
    return NULL;
}
static void *create(void *args) {
    (void)args;
    const char *how = getenv("BAD_PLUGIN");
    if (strcmp(how, "abort") == 0) abort();
    while (strcmp(how, "hang") == 0)
        pause();
    return refusal; // the error object
}
static void *message(void *args) {
    struct pj_error_message *m = args;
    m->message = m->error;
    m->message_size = strlen(m->message);
    return NULL;
}
static void *code(void *args) {
    ((struct pj_error_code *)args)->code = 9; // FAILED_PRECONDITION
    return NULL;
}

__attribute__((visibility("default"))) const struct pj_api *GetPjrtApi(void);
const struct pj_api *GetPjrtApi(void) {
    const char *how = getenv("BAD_PLUGIN");
    if (strcmp(how, "null") == 0) return NULL;
    table.api.struct_size = strcmp(how, "size") == 0 ? 24 : sizeof table;
    table.api.version.minor = strcmp(how, "version") == 0 ? 12 : 104;
    table.slots[PJ_Plugin_Initialize] = nothing;
    table.slots[PJ_Error_Destroy] = nothing;
    table.slots[PJ_Error_Message] = message;
    table.slots[PJ_Error_GetCode] = code;
    if (strcmp(how, "slots") != 0) table.slots[PJ_Client_Create] = create;
    return &table.api;
}
