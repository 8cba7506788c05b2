// SPDX-License-Identifier: Apache-2.0
// Kernels of an executable: the object's text (compiler/codegen/shader/shader.h) taken apart, the
// tables in memory, programs for the steps.
#include "base/str.h"
#include "compiler/codegen/shader/shader.h"
#include "devices/gl/gl_device.h"

// ---- the text

static status_t wrong(struct str line) {
    return st_new(ST_DATA_LOSS, "the kernels' text has '%.*s'", line.n < 100 ? (int)line.n : 100,
                  line.p);
}
static struct gl_text *new_text(struct gl_exe *x, struct str name) {
    struct gl_text *t = arena_new_of(&x->base.arena, struct gl_text);
    t->name = arena_strndup(&x->base.arena, name.p, name.n);
    smap_put(&x->texts, str_of(t->name), t);
    return t;
}
// "NAME 4 1": the kernel that follows.
static status_t begin_kernel(struct gl_exe *x, struct str line, struct gl_text **out) {
    struct str rest = line, item;
    str_cut(&rest, ' ', &item);
    struct gl_text *t = new_text(x, item);
    while (str_cut(&rest, ' ', &item)) {
        int64_t n;
        if (!str_to_i64(item, &n) || (n != 1 && n != 2 && n != 4 && n != 8)) return wrong(line);
        avec_push(&x->base.arena, &t->unit_bytes, (int)n);
    }
    *out = t;
    return ST_OK;
}
// "8192 16": what is drawn before it.
static status_t take_sums(struct str line, struct gl_text *t) {
    struct str rest = line, units, each;
    int64_t n;
    if (!t || t->code.n || !str_cut(&rest, ' ', &units) || !str_cut(&rest, ' ', &each) ||
        !str_to_i64(units, &t->sum_units) || !str_to_i64(each, &n) || t->sum_units < 1 ||
        t->sum_units > INT32_MAX || n < 1 || n > SHADER_MOST_SUMS)
        return wrong(line);
    t->sum_layers = (int)ceil_div(n, 4);
    return ST_OK;
}
static status_t place_table(struct gl_exe *x, struct str hex, struct gl_text *t) {
    struct queue_device *d = queue_of(&x->base.base);
    size_t n = hex.n / 2;
    struct queue_memory m = {0};
    uint8_t *bytes = arena_alloc(&x->base.arena, n + 1);
    if (hex.n % 2 || !str_from_hex(hex, bytes, n)) return wrong(hex);
    if (d->compiles_only) {
        avec_push(&x->base.arena, &t->tables, m.place);
        return ST_OK;
    }
    RETURN_IF_ERR(queue_take(d, (int64_t)n, "tables of kernels", &m));
    vec_push(&x->tables, m);
    x->base.stats.resident_bytes += m.bytes;
    avec_push(&x->base.arena, &t->tables, m.place);
    return queue_write(d, m.place, bytes, (int64_t)n, true);
}
static bool takes(struct str *s, const char *begin) {
    size_t n = strlen(begin);
    if (s->n < n || memcmp(s->p, begin, n) != 0) return false;
    *s = (struct str){s->p + n, s->n - n};
    return true;
}
static status_t take_apart(struct gl_exe *x, struct span object) {
    struct str rest = {(const char *)object.p, object.n}, line;
    struct gl_text *t = NULL;
    const char *from = rest.p;
    x->head = (struct span){object.p, object.n};
    bool in_head = true;
    while (str_cut(&rest, '\n', &line)) {
        struct str at = line, name;
        if (!takes(&at, "// ")) {
            if (t) t->code = (struct span){(const uint8_t *)from, (size_t)(line.p + line.n - from)};
            continue;
        }
        if (in_head) x->head.n = (size_t)(line.p - from);
        in_head = false;

        if (takes(&at, "kernel ")) {
            RETURN_IF_ERR(begin_kernel(x, at, &t));
        } else if (takes(&at, "table ")) {
            if (!t || t->code.n) return wrong(line);
            RETURN_IF_ERR(place_table(x, at, t));
        } else if (takes(&at, "sums ")) {
            RETURN_IF_ERR(take_sums(at, t));
        } else {
            str_cut(&at, ':', &name);
            t = new_text(x, name);
            t->why = arena_strndup(&x->base.arena, at.p, at.n);
            while (*t->why == ' ')
                t->why++;
            t = NULL;
        }
        from = line.p + line.n;
    }
    return ST_OK;
}
status_t gl_begin(struct queue_exe *base, const struct kernel_set *k) {
    struct gl_exe *x = (struct gl_exe *)base;
    smap_done(&x->texts);
    x->texts = (struct smap){0};
    return take_apart(x, k->object);
}

// ---- steps

static void make_programs(struct gl_exe *x, struct gl_text *t) {
    if (t->programs) return;
    t->programs = arena_zarray(&x->base.arena, struct gl_program, t->unit_bytes.n + 1);
    vec_push(&x->made, t);
    for (size_t r = 0; r < t->unit_bytes.n; r++)
        t->programs[r] =
            gl_program(gl_of(&x->base), x->head, t->code, t->name, (int)r, t->unit_bytes.v[r]);
    if (t->sum_units)
        t->sums = gl_sums_program(gl_of(&x->base), x->head, t->code, t->name, t->sum_layers);
}
// Words and elements of each result; false: not all of it would be drawn.
static bool measure(const struct queue_step *s, const struct gl_text *t, struct gl_result *out) {
    bool whole = true;
    for (size_t r = 0; r < t->unit_bytes.n; r++) {
        int unit = t->unit_bytes.v[r];
        int64_t all = s->info->extent * unit;
        whole &= all == s->plan->out[r].size_bytes || s->info->extent == 0;
        out[r] = (struct gl_result){ceil_div(all, 4), all / (unit < 4 ? unit : 4)};
    }
    return whole;
}
status_t gl_bind(struct queue_exe *base, struct queue_step *s) {
    struct gl_exe *x = (struct gl_exe *)base;
    const struct kernel_info *k = s->info;
    struct gl_text *t = smap_get(&x->texts, str_of(k->symbol));
    if (!t) return st_new(ST_DATA_LOSS, "there is no kernel '%s'", k->symbol);
    s->why = t->why;
    if (s->why) return ST_OK;
    if ((int64_t)t->unit_bytes.n != s->plan->n_out || k->extent > INT32_MAX || !t->code.n ||
        k->n_bufs + t->tables.n > SHADER_MAX_BUFFERS)
        return st_new(ST_DATA_LOSS, "kernel '%s' has %zu results, its step %d", k->symbol,
                      t->unit_bytes.n, s->plan->n_out);

    struct gl_kernel *own = arena_new_of(&base->arena, struct gl_kernel);
    own->text = t;
    own->results = arena_zarray(&base->arena, struct gl_result, t->unit_bytes.n + 1);
    if (!measure(s, t, own->results)) {
        s->why = "its kernel writes a part of a result";
        return ST_OK;
    }
    if (queue_of(&base->base)->compiles_only) return ST_OK;
    make_programs(x, t);
    s->kernel = own;
    vec_push(&x->bound, s);
    return ST_OK;
}
// Rows that a step draws at most, wherever its results lie.
static int64_t sum_rows(const struct gl_device *d, const struct gl_text *t) {
    return ceil_div(t->sum_units, INT64_C(1) << d->bits);
}
static int64_t rows_of(const struct gl_device *d, const struct queue_step *s) {
    const struct gl_kernel *k = s->kernel;
    int64_t rows = 0;
    for (size_t r = 0; r < k->text->unit_bytes.n; r++)
        rows += gl_rows(d, (INT64_C(1) << d->bits) - 1, k->results[r].words);
    return rows;
}
status_t gl_ready(struct queue_exe *base) {
    struct gl_exe *x = (struct gl_exe *)base;
    struct gl_device *d = gl_of(base);
    int64_t rows = 0, sums = 0;
    for (size_t k = 0; k < x->made.n; k++) {
        struct gl_text *t = x->made.v[k];
        for (size_t r = 0; r < t->unit_bytes.n; r++)
            gl_program_good(d, &t->programs[r], &base->arena, &t->why);
        if (t->sum_units) gl_program_good(d, &t->sums, &base->arena, &t->why);
    }
    RETURN_IF_ERR(gl_check(d, "glLinkProgram"));

    for (size_t k = 0; k < x->bound.n; k++) {
        struct queue_step *s = x->bound.v[k];
        int64_t n = rows_of(d, s);
        const struct gl_text *t = ((struct gl_kernel *)s->kernel)->text;
        s->why = t->why;
        if (!s->why && n > d->most_rows) s->why = "its results are more than a texture";
        if (!s->why && sum_rows(d, t) > d->most_rows) s->why = "its sums are more than a texture";
        if (s->why) {
            s->kernel = NULL;
            s->info = NULL;
            RETURN_IF_ERR(queue_evaluates(&d->base, s->plan->instr));
        } else {
            rows = n > rows ? n : rows;
            sums = sum_rows(d, t) > sums ? sum_rows(d, t) : sums;
        }
    }
    RETURN_IF_ERR(gl_sums_rows(d, sums));
    return gl_drawn_rows(d, rows);
}
static void drop(const struct gl_device *d, const struct gl_program *p) {
    if (p->fragment) d->gl->DeleteShader(p->fragment);
    d->gl->DeleteProgram(p->id);
}
void gl_unload(struct queue_exe *base) {
    struct gl_exe *x = (struct gl_exe *)base;
    struct gl_device *d = gl_of(base);
    for (size_t k = 0; k < x->made.n; k++) {
        for (size_t r = 0; r < x->made.v[k]->unit_bytes.n; r++)
            drop(d, &x->made.v[k]->programs[r]);
        if (x->made.v[k]->sum_units) drop(d, &x->made.v[k]->sums);
    }
    for (size_t k = 0; k < x->tables.n; k++)
        queue_give(&d->base, &x->tables.v[k]);
    vec_done(&x->bound);
    vec_done(&x->made);
    vec_done(&x->tables);
    smap_done(&x->texts);
}
void gl_explain(const struct queue_step *s, struct strbuf *out) {
    const struct gl_kernel *k = s->kernel;
    strbuf_printf(out, "kernel %s,", s->info->symbol);
    if (k->text->sum_units)
        strbuf_printf(out, " %lld fragments of up to %d sums, then", (long long)k->text->sum_units,
                      4 * k->text->sum_layers);
    for (size_t r = 0; r < k->text->unit_bytes.n; r++)
        strbuf_printf(out, "%s %lld", r ? " and" : "", (long long)k->results[r].words);
    strbuf_puts(out, " fragments");
}
