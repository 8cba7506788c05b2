// SPDX-License-Identifier: Apache-2.0
#include "compiler/parts.h"

#include <string.h>

#include "base/str.h"

void parts_set(struct hlo_module *m, const struct part *p) {
    struct strbuf b = {0};
    strbuf_printf(&b, "%d:%d:%d", p->index, p->sizes, p->carried);
    hlo_set_frontend(m, "hlod_part", (struct str){b.p, b.n});
    strbuf_done(&b);
}

static bool number(struct str *s, int most, int *out) {
    struct str item;
    int64_t v;
    if (!str_cut(s, ':', &item) || !str_to_i64(item, &v) || v < 0 || v > most) return false;
    *out = (int)v;
    return true;
}

bool parts_of(const struct hlo_module *m, struct part *out) {
    struct str text;
    struct part p;
    int inputs = 0;
    if (!hlo_frontend(m, "hlod_part", &text)) return false;
    for (size_t k = 0; k < m->entry->params.n; k++)
        inputs += m->entry->params.v[k]->param_kind == PARAM_INPUT;
    if (!number(&text, MAX_PARTS, &p.index) ||
        !number(&text, shape_leaves(m->entry->root->shape), &p.sizes) ||
        !number(&text, inputs, &p.carried))
        return false;
    *out = p;
    return true;
}

const char *parts_symbol(struct arena *a, int index, int64_t k) {
    return arena_printf(a, "@%d[%04d]", index, (int)k);
}

int64_t parts_element(const void *p, int width, bool is_signed) {
    uint64_t u = 0;
    int shift = 64 - 8 * width;
    memcpy(&u, p, (size_t)width);
    return is_signed ? (int64_t)(u << shift) >> shift : (int64_t)u;
}
