// SPDX-License-Identifier: Apache-2.0
#include "compiler/strings.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/vec.h"

struct strings {
    const struct strings *base;
    int32_t first; // places below are the base's
    struct arena arena;
    struct smap places; // string -> place + 1
    VEC(struct str) all;
    int64_t bytes, max_bytes;
};
enum { MAX_TEXTS = 1 << 30, ENTRY_BYTES = 64 }; // what a string takes beside its own bytes, about

struct strings *strings_new(const struct strings *base, int64_t max_bytes) {
    struct strings *t = calloc(1, sizeof *t);
    if (!t) abort();
    t->base = base;
    t->first = base ? strings_count(base) : 0;
    t->max_bytes = max_bytes ? max_bytes : INT64_C(256) << 20;
    smap_seed_random(&t->places);
    int32_t zero;
    if (!base) st_drop(strings_add(t, (struct str){"", 0}, &zero));
    return t;
}
void strings_free(struct strings *t) {
    if (!t) return;
    smap_done(&t->places);
    vec_done(&t->all);
    arena_done(&t->arena);
    free(t);
}
int32_t strings_count(const struct strings *t) {
    return t->first + (int32_t)t->all.n;
}
struct str strings_get(const struct strings *t, int32_t place) {
    if (place < 0 || place >= strings_count(t)) return (struct str){"", 0};
    return place < t->first ? strings_get(t->base, place) : t->all.v[place - t->first];
}

status_t strings_add(struct strings *t, struct str s, int32_t *out_place) {
    if (!s.p) s.p = "";
    for (const struct strings *x = t; x; x = x->base) {
        uintptr_t found = (uintptr_t)smap_get(&x->places, s);
        if (!found) continue;
        *out_place = (int32_t)(found - 1);
        return ST_OK;
    }
    if (strings_count(t) >= MAX_TEXTS || s.n > INT32_MAX ||
        (int64_t)s.n + ENTRY_BYTES > t->max_bytes - t->bytes)
        return st_exhausted("the run holds more than %lld bytes of text", (long long)t->max_bytes);
    t->bytes += (int64_t)s.n + ENTRY_BYTES;
    struct str own = {arena_strndup(&t->arena, s.p, s.n), s.n};
    *out_place = strings_count(t);
    vec_push(&t->all, own);
    smap_put(&t->places, own, (void *)((uintptr_t)*out_place + 1));
    return ST_OK;
}

// ---- in a module

static void put_places(struct strbuf *b, const bool *v, int n) {
    bool some = false;
    for (int k = 0; k < n; k++)
        if (v[k]) {
            strbuf_printf(b, "%s%d", some ? "," : "", k);
            some = true;
        }
    strbuf_putc(b, ';');
}
static bool plain(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ' ';
}
void strings_to_module(struct hlo_module *m, const struct string_layout *l) {
    struct strbuf b = {0};
    put_places(&b, l->in, l->n_in);
    put_places(&b, l->out, l->n_out);
    for (int32_t k = 1; k < strings_count(l->table); k++) { // the first is the empty one
        struct str s = strings_get(l->table, k);
        for (size_t i = 0; i < s.n; i++)
            if (plain(s.p[i]))
                strbuf_putc(&b, s.p[i]);
            else
                strbuf_printf(&b, "%%%02x", (uint8_t)s.p[i]);
        strbuf_putc(&b, ',');
    }
    hlo_set_frontend(m, "hlod_text", (struct str){strbuf_cstr(&b), b.n});
    strbuf_done(&b);
}

static void take_places(struct str list, bool *v, int n) {
    struct str one;
    int64_t k;
    while (str_cut(&list, ',', &one))
        if (str_to_i64(one, &k) && k >= 0 && k < n) v[k] = true;
}
static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 0;
}
static void take_table(struct arena *a, struct str list, struct strings *t) {
    struct str one;
    char *p = arena_alloc(a, list.n + 1);
    while (str_cut(&list, ',', &one)) {
        size_t n = 0;
        int32_t place;
        for (size_t i = 0; i < one.n; i++) {
            bool code = one.p[i] == '%' && i + 2 < one.n;
            p[n++] = code ? (char)(digit(one.p[i + 1]) << 4 | digit(one.p[i + 2])) : one.p[i];
            i += code ? 2 : 0;
        }
        st_drop(strings_add(t, (struct str){p, n}, &place));
    }
}
bool strings_of_module(struct arena *a, const struct hlo_module *m, struct string_layout *out) {
    struct str all, in, results;
    const struct shape *root = m->entry->root->shape;
    *out = (struct string_layout){.n_out = shape_leaves(root)};
    if (!hlo_frontend(m, "hlod_text", &all)) return false;
    out->in = arena_zarray(a, bool, m->entry->params.n + 1);
    out->out = arena_zarray(a, bool, out->n_out + 1);
    if (!str_cut(&all, ';', &in) || !str_cut(&all, ';', &results)) return false;
    take_places(in, out->in, (int)m->entry->params.n);
    take_places(results, out->out, out->n_out);
    for (size_t k = 0; k < m->entry->params.n; k++) {
        const struct hlo_instr *p = m->entry->params.v[k];
        if (p->param_kind == PARAM_INPUT && p->shape->dtype != DT_S32) out->in[out->n_in] = false;
        out->n_in += p->param_kind == PARAM_INPUT;
    }
    for (int k = 0; k < out->n_out; k++)
        out->out[k] = out->out[k] && shape_leaf(root, k)->dtype == DT_S32;
    out->table = strings_new(NULL, INT64_C(1) << 31);
    take_table(a, all, out->table);
    return true;
}
