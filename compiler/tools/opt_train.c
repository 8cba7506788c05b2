// SPDX-License-Identifier: Apache-2.0
// A model as the program that trains it: what the program's parameters are, what they begin with,
// and the model with what they became.
#include "compiler/tools/opt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/store/file.h"
#include "compiler/train/model.h"

// ---- what the rows are

static status_t read_shape(struct arena *a, struct str item, struct train_rows *r) {
    struct str name = item, size;
    while (name.n && name.p[name.n - 1] != ':')
        name.n--;
    struct str dims = {item.p + name.n, item.n - name.n};
    int64_t *v = arena_array(a, int64_t, HLO_MAX_RANK);
    *r = (struct train_rows){.name = arena_strndup(a, name.p, name.n ? name.n - 1 : 0), .dims = v};
    bool good = name.n > 1;
    while (good && str_cut(&dims, 'x', &size))
        good = r->rank < HLO_MAX_RANK && str_to_i64(size, &v[r->rank]) && v[r->rank++] >= 0;
    return good ? ST_OK
                : st_invalid("--train-rows: '" STR_FMT "' is no NAME:SIZExSIZE", STR_ARG(item));
}
status_t opt_train_rows(struct arena *a, const char *text, struct train_rows **out, size_t *n) {
    struct str all = str_of(text ? text : ""), item;
    *out = arena_array(a, struct train_rows, (int64_t)all.n / 2 + 1);
    for (*n = 0; str_cut(&all, ';', &item);)
        if (item.n) RETURN_IF_ERR(read_shape(a, item, &(*out)[(*n)++]));
    return ST_OK;
}

// ---- what the parameters are

static void put_leaf(struct strbuf *b, const struct train_leaf *l) {
    strbuf_puts(b, "  {\"name\": ");
    strbuf_json_str(b, str_of(l->name));
    strbuf_printf(b, ", \"role\": \"%s\"", train_role_name(l->role));
    if (l->of) {
        strbuf_puts(b, ", \"of\": ");
        strbuf_json_str(b, str_of(l->of));
    }
    strbuf_puts(b, ", \"key\": ");
    strbuf_json_str(b, str_of(l->key));
    strbuf_printf(b, ", \"dtype\": \"%s\", \"shape\": [", dtype_name(l->shape->dtype));
    for (int k = 0; k < l->shape->rank; k++)
        strbuf_printf(b, "%s%lld", k ? ", " : "", (long long)l->shape->dims[k]);
    strbuf_puts(b, "]");
    if (l->still) strbuf_puts(b, ", \"still\": true");
    if (l->role == TRAIN_SLOT) {
        strbuf_puts(b, ", \"initial\": ");
        strbuf_f64(b, l->initial);
    }
    strbuf_puts(b, "}");
}
static status_t put_file(const char *path, const struct strbuf *b) {
    FILE *f = fopen(path, "wbe");
    if (!f) return st_errno(errno, path);
    bool whole = fwrite(b->p, 1, b->n, f) == b->n;
    int err = errno;
    whole &= fclose(f) == 0;
    return whole ? ST_OK : st_errno(err, path);
}
static status_t tell(const char *path, const struct train_program *p,
                     const struct train_spec *spec) {
    struct strbuf b = {0}, text = {0};
    train_spec_print(spec, &text);
    strbuf_puts(&b, "{\"spec\": ");
    strbuf_json_str(&b, (struct str){strbuf_cstr(&text), text.n});
    strbuf_printf(&b,
                  ",\n \"steps_per_epoch\": %lld, \"classes\": %lld, \"slice\": %lld, "
                  "\"state\": %d, \"accuracy\": %s,\n \"leaves\": [\n",
                  (long long)p->steps_per_epoch, (long long)p->classes, (long long)spec->slice,
                  p->n_state, p->accuracy ? "true" : "false");
    for (int k = 0; k < p->n_leaves; k++) {
        put_leaf(&b, &p->leaves[k]);
        strbuf_puts(&b, k + 1 < p->n_leaves ? ",\n" : "\n");
    }
    strbuf_puts(&b, " ]}\n");
    status_t st = put_file(path, &b);
    strbuf_done(&b);
    strbuf_done(&text);
    return st;
}

// ---- what they begin with

static status_t put_state(const char *path, const struct train_program *p,
                          const struct ingest_result *r, struct span source) {
    struct arena a = {0};
    struct safetensor *v = arena_zarray(&a, struct safetensor, p->n_leaves + 1);
    size_t n = 0;
    for (int k = 0; k < p->n_leaves; k++) {
        const struct train_leaf *l = &p->leaves[k];
        if (!train_leaf_kept(p, k)) continue;
        size_t bytes = (size_t)shape_bytes(l->shape);
        void *data = arena_alloc(&a, bytes + 1);
        train_leaf_initial(l, r, source, data);
        v[n++] = (struct safetensor){
            l->key, dtype_name(l->shape->dtype), l->shape->rank, l->shape->dims, {data, bytes}};
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    status_t st = fd < 0 ? st_errno(errno, path) : safetensors_write(fd, path, v, n, NULL);
    if (fd >= 0 && close(fd) && !st) st = st_errno(errno, path);
    arena_done(&a);
    return st;
}

status_t opt_train(struct hlo_module *m, const struct opt_options *o, const struct ingest_result *r,
                   struct span source, const struct train_spec *spec) {
    struct train_program p;
    struct target t;
    RETURN_IF_ERR(opt_target(o->target ? o->target : "cpu-avx512", &t));
    RETURN_IF_ERR(train_derive(m, r, spec, &t, &p));
    if (o->train_to) RETURN_IF_ERR(tell(o->train_to, &p, spec));
    if (o->train_state && !r) return st_invalid("--train-state: the module has no weights");
    return o->train_state ? put_state(o->train_state, &p, r, source) : ST_OK;
}

// ---- what they became

status_t opt_with_weights(const struct opt_options *o, struct span source) {
    struct arena a = {0};
    struct span file;
    struct strbuf b = {0};
    status_t st = file_map(&a, o->with_weights, &file);
    if (!st) st = train_with_weights(NULL, source, file, NULL, &b);
    if (!st && fwrite(b.p, 1, b.n, stdout) != b.n) st = st_errno(errno, "stdout");
    strbuf_done(&b);
    arena_done(&a);
    return st;
}
