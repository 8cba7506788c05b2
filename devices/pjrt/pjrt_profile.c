// SPDX-License-Identifier: Apache-2.0
// The profiler's interface in our own words: a table behind the extension, each function with one
// struct that begins with its size (no extension list here), NULL or an error object given back.
#include "devices/pjrt/pjrt_profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "compiler/frontend/wire.h"

struct extension {
    struct pj_extension head;
    const struct table *table;
};
struct table {
    size_t struct_size;
    void *priv;
    void (*error_destroy)(void *args);
    void (*error_message)(void *args);
    void *(*error_code)(void *args);
    void *(*create)(void *args);
    void *(*destroy)(void *args);
    void *(*start)(void *args);
    void *(*stop)(void *args);
    void *(*collect)(void *args);
};
struct error_args {
    size_t struct_size;
    void *priv, *error;
};
struct create_args {
    size_t struct_size;
    const char *options; // ProfileOptions
    size_t options_size;
    void *profiler; // filled in
};
struct profiler_args {
    size_t struct_size;
    void *profiler;
};
struct collect_args {
    size_t struct_size;
    void *profiler;
    uint8_t *buffer; // NULL: the size is filled in, and maybe a place of the profiler's
    size_t buffer_size;
};
struct pj_profiler {
    const struct table *table;
    void *handle;
};

// ---- the plugin's profiler

static bool worked(const struct table *t, void *error) {
    struct error_args d = {sizeof d, NULL, error};
    if (error && t->error_destroy) t->error_destroy(&d);
    return !error;
}

struct pj_profiler *pj_profiler_begin(const struct pj_plugin *p) {
    // host_tracer_level 2: 0, device_tracer_level 3: 1, python_tracer_level 4: 0, version 5: 1
    static const char options[] = "\x10\x00\x18\x01\x20\x00\x28\x01";
    const struct extension *e = (const struct extension *)pj_find_extension(p, PJ_EXT_PROFILER);
    const struct table *t = e && e->head.struct_size >= sizeof *e ? e->table : NULL;
    if (!t || t->struct_size < sizeof *t || !t->create || !t->start || !t->stop || !t->collect)
        return NULL;
    struct create_args c = {sizeof c, options, sizeof options - 1, NULL};
    struct pj_profiler *x = calloc(1, sizeof *x);
    if (!x || !worked(t, t->create(&c)) || !c.profiler) {
        free(x);
        return NULL;
    }
    *x = (struct pj_profiler){t, c.profiler};
    struct profiler_args s = {sizeof s, x->handle};
    if (worked(t, t->start(&s))) return x;
    if (t->destroy) worked(t, t->destroy(&s));
    free(x);
    return NULL;
}

// XLA's size is one byte more than the message has.
static void read_padded(struct span xspace, struct arena *a, int64_t start_ns,
                        struct profile *out) {
    status_t st = pj_profile_read(xspace, a, start_ns, out);
    if (st && xspace.p[xspace.n - 1] == 0) {
        st_drop(st);
        xspace.n--;
        st = pj_profile_read(xspace, a, start_ns, out);
    }
    st_drop(st); // a run is worth more than what is told of it
}

void pj_profiler_end(struct pj_profiler *x, struct arena *a, int64_t start_ns,
                     struct profile *out) {
    if (!x) return;
    const struct table *t = x->table;
    struct profiler_args s = {sizeof s, x->handle};
    struct collect_args c = {sizeof c, x->handle, NULL, 0};
    if (worked(t, t->stop(&s)) && worked(t, t->collect(&c)) && c.buffer_size) {
        // The interface's text says that the first call gives a size and a second one writes to
        // the caller's memory. XLA and libtpu give their own at the first and write nothing later.
        uint8_t *own = NULL;
        if (!c.buffer) c.buffer = own = calloc(1, c.buffer_size);
        if (c.buffer && (!own || worked(t, t->collect(&c))))
            read_padded((struct span){c.buffer, c.buffer_size}, a, start_ns, out);
        free(own);
    }
    if (t->destroy) worked(t, t->destroy(&s));
    free(x);
}

// ---- XSpace

enum { SPACE_PLANES = 1, PLANE_NAME = 2, PLANE_LINES = 3, PLANE_EVENT_NAMES = 4 };
enum { LINE_NAME = 2, LINE_TIMESTAMP_NS = 3, LINE_EVENTS = 4 };
enum { EVENT_NAME = 1, EVENT_OFFSET_PS = 2, EVENT_DURATION_PS = 3, NAME_TEXT = 2 };

struct reading {
    const uint8_t *base;
    struct arena *a;
    struct pmap names; // event metadata id -> text
    int64_t first_ns;  // start of the earliest event; INT64_MAX before any
    int32_t from;      // first row of ours
    struct profile *out;
};

static status_t read_name(struct reading *r, struct span entry) { // of a map: key 1, value 2
    struct wire w = wire_open(r->base, entry);
    struct wire_field f, text;
    int64_t id = 0;
    struct span name = {0};
    status_t st = ST_OK;
    bool found;
    while (wire_next(&w, &f, &st)) {
        if (f.number == 1 && f.type == WIRE_VARINT) id = (int64_t)f.value;
        if (f.number != 2 || f.type != WIRE_LEN) continue;
        st = wire_find(r->base, f.bytes, NAME_TEXT, &text, &found);
        if (!st && found && text.type == WIRE_LEN) name = text.bytes;
    }
    RETURN_IF_ERR(st);
    pmap_put(&r->names, (uint64_t)id, arena_strndup(r->a, (const char *)name.p, name.n));
    return ST_OK;
}

static status_t read_event(struct reading *r, struct span event, int64_t line_ns,
                           const char *line) {
    struct wire w = wire_open(r->base, event);
    struct wire_field f;
    int64_t v[4] = {0};
    status_t st = ST_OK;
    while (wire_next(&w, &f, &st))
        if (f.type == WIRE_VARINT && f.number <= EVENT_DURATION_PS) v[f.number] = (int64_t)f.value;
    RETURN_IF_ERR(st);
    const char *name = pmap_get(&r->names, (uint64_t)v[EVENT_NAME]);
    int64_t start = line_ns + v[EVENT_OFFSET_PS] / 1000;
    if (!name || r->out->n >= r->out->cap) return ST_OK;
    if (start < r->first_ns) r->first_ns = start;
    r->out->rows[r->out->n++] = (struct profile_row){.name = name,
                                                     .op = line,
                                                     .impl = "pjrt:device",
                                                     .start_ns = start,
                                                     .ns = v[EVENT_DURATION_PS] / 1000,
                                                     .depth = 1};
    return ST_OK;
}

static status_t read_line(struct reading *r, struct span line) {
    struct wire w = wire_open(r->base, line);
    struct wire_field f;
    bool got;
    int64_t ns = 0;
    const char *name = "";
    RETURN_IF_ERR(wire_find(r->base, line, LINE_NAME, &f, &got));
    if (got && f.type == WIRE_LEN) name = arena_strndup(r->a, (const char *)f.bytes.p, f.bytes.n);
    RETURN_IF_ERR(wire_find(r->base, line, LINE_TIMESTAMP_NS, &f, &got));
    if (got && f.type == WIRE_VARINT) ns = (int64_t)f.value;
    if (strstr(name, "Steps") || strstr(name, "Modules")) return ST_OK; // covers what its lines say
    status_t st = ST_OK;
    while (wire_next(&w, &f, &st))
        if (f.number == LINE_EVENTS && f.type == WIRE_LEN) st = read_event(r, f.bytes, ns, name);
    return st;
}

static status_t read_plane(struct reading *r, struct span plane) {
    struct wire_field f;
    bool got;
    status_t st = ST_OK;
    RETURN_IF_ERR(wire_find(r->base, plane, PLANE_NAME, &f, &got));
    if (!got || f.type != WIRE_LEN || f.bytes.n < 8 || memcmp(f.bytes.p, "/device:", 8) != 0)
        return ST_OK;
    for (int pass = 0; pass < 2; pass++) { // names first: they stand behind the lines
        struct wire w = wire_open(r->base, plane);
        while (wire_next(&w, &f, &st)) {
            if (f.type != WIRE_LEN) continue;
            if (pass == 0 && f.number == PLANE_EVENT_NAMES) st = read_name(r, f.bytes);
            if (pass == 1 && f.number == PLANE_LINES) st = read_line(r, f.bytes);
        }
    }
    return st;
}

status_t pj_profile_read(struct span xspace, struct arena *a, int64_t start_ns,
                         struct profile *out) {
    struct reading r = {
        .base = xspace.p, .a = a, .first_ns = INT64_MAX, .from = out->n, .out = out};
    struct wire w = wire_open(xspace.p, xspace);
    struct wire_field f;
    status_t st = ST_OK;
    while (wire_next(&w, &f, &st)) {
        if (f.number != SPACE_PLANES || f.type != WIRE_LEN) continue;
        pmap_done(&r.names); // ids are a plane's own
        r.names = (struct pmap){0};
        st = read_plane(&r, f.bytes);
    }
    pmap_done(&r.names);
    if (st) out->n = r.from;                  // all or nothing
    for (int32_t k = r.from; k < out->n; k++) // the device's clock against ours
        out->rows[k].start_ns += start_ns - r.first_ns;
    return st;
}
