// SPDX-License-Identifier: Apache-2.0
// The registry.
#include "devices/device.h"

#define DEVICE(kind, vt) extern const struct dev_vtable vt;
#include "devices/devices.def"
#undef DEVICE
static const struct dev_vtable *const table[] = {
#define DEVICE(kind, vt) &vt,
#include "devices/devices.def"
#undef DEVICE
};

status_t dev_open(const char *kind, struct device **out) {
    struct strbuf b = {0};
    for (size_t k = 0; k < sizeof table / sizeof table[0]; k++) {
        if (strcmp(kind, table[k]->kind) == 0) {
            strbuf_done(&b);
            return table[k]->open(out);
        }
        strbuf_printf(&b, " %s", table[k]->kind);
    }
    status_t st =
        st_new(ST_NOT_FOUND, "no device kind is called '%s'; there are:%s", kind, strbuf_cstr(&b));
    strbuf_done(&b);
    return st;
}
