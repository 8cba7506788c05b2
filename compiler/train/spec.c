// SPDX-License-Identifier: Apache-2.0
// The text of a spec: words "key=value;...", where optimizer and schedule take their own settings
// behind colons. A table of fields serves reading, checking and printing.
#include "compiler/train/parts.h"

#include <stddef.h>

enum kind { NUMBER, COUNT, FLAG, TEXT };
struct field {
    const char *name;
    size_t at;
    enum kind kind;
    double low, high; // of numbers, both included
};
#define AT(f) offsetof(struct train_spec, f)
static const struct field fields[] = {
    {"output", AT(output), COUNT, 0, 65535},
    {"axis", AT(axis), COUNT, -HLO_MAX_RANK, HLO_MAX_RANK},
    {"smoothing", AT(smoothing), NUMBER, 0, 1},
    {"delta", AT(delta), NUMBER, 1e-30, 1e30},
    {"clip", AT(clip), NUMBER, 0, 1e30},
    {"ema", AT(ema), NUMBER, 0, 1},
    {"loss_scale", AT(loss_scale), NUMBER, 1e-30, 1e30},
    {"trainable", AT(trainable), TEXT, 0, 0},
    {"decayed", AT(decayed), TEXT, 0, 0},
    {"whole", AT(whole), TEXT, 0, 0},
    {"batch", AT(batch), COUNT, 1, 1 << 24},
    {"rows", AT(rows), COUNT, 0, 1 << 30},
    {"slice", AT(slice), COUNT, 1, 1 << 20},
    {"shuffle", AT(shuffle), FLAG, 0, 0},
    {"batchnorm", AT(batchnorm), FLAG, 0, 0},
    {"statistics", AT(momentum_of_statistics), NUMBER, 0, 1},
    {"evaluate", AT(evaluate), FLAG, 0, 0},
};
static const struct field hyper_fields[] = {
    {"rate", AT(hyper.rate), NUMBER, 0, 1e30},
    {"momentum", AT(hyper.momentum), NUMBER, 0, 1},
    {"beta1", AT(hyper.beta1), NUMBER, 0, 1},
    {"beta2", AT(hyper.beta2), NUMBER, 0, 1},
    {"decay", AT(hyper.decay), NUMBER, 0, 1},
    {"eps", AT(hyper.eps), NUMBER, 0, 1},
    {"weight_decay", AT(hyper.weight_decay), NUMBER, 0, 1e30},
};
static const struct field schedule_fields[] = {
    {"warmup", AT(warmup), COUNT, 0, 1 << 30}, {"steps", AT(steps), COUNT, 1, 1 << 30},
    {"every", AT(every), COUNT, 1, 1 << 30},   {"factor", AT(factor), NUMBER, 0, 1e30},
    {"end", AT(end), NUMBER, 0, 1e30},
};
#define COUNT_OF(t) (int)(sizeof(t) / sizeof *(t))
static const char *const nan_names[] = {"stop", "skip", "ignore"};
static const char *const remat_names[] = {"none", "segments", "BYTES"};
static const char *const constants_names[] = {"auto", "frozen", "trained"};
static struct train_spec usual(void) {
    return (struct train_spec){.axis = -1,
                               .delta = 1,
                               .hyper = optimizer_rows[0].usual,
                               .factor = 0.1,
                               .every = 1,
                               .loss_scale = 1,
                               .trainable = "*",
                               .decayed = "matrices",
                               .whole = "",
                               .batch = 1,
                               .slice = 64,
                               .momentum_of_statistics = 0.9};
}
static void *place(const struct train_spec *s, const struct field *f) {
    return (char *)(uintptr_t)s + f->at;
}

// ---- reading

static status_t set_field(struct arena *a, const struct field *f, struct str value,
                          struct train_spec *s) {
    double v = 0;
    int64_t n = 0;
    bool ok = true;
    switch (f->kind) {
    case TEXT:
        *(const char **)place(s, f) = arena_strndup(a, value.p, value.n);
        return ST_OK;
    case FLAG:
        ok = str_is(value, "0") || str_is(value, "1");
        *(bool *)place(s, f) = str_is(value, "1");
        break;
    case COUNT:
        ok = str_to_i64(value, &n) && n >= (int64_t)f->low && n <= (int64_t)f->high;
        *(int64_t *)place(s, f) = n;
        break;
    case NUMBER:
        ok = str_to_f64(value, &v) && v >= f->low && v <= f->high;
        *(double *)place(s, f) = v;
    }
    if (ok) return ST_OK;
    return f->kind == FLAG ? st_invalid("%s is 0 or 1, not '" STR_FMT "'", f->name, STR_ARG(value))
                           : st_invalid("%s is %g to %g, not '" STR_FMT "'", f->name, f->low,
                                        f->high, STR_ARG(value));
}
static const struct field *find_field(const struct field *t, int n, struct str key) {
    for (int k = 0; k < n; k++)
        if (str_is(key, t[k].name)) return &t[k];
    return NULL;
}
// An optimizer takes what its row gives a value, and weight decay.
static bool takes(const struct train_spec *s, const struct field *f) {
    struct train_spec u = {.hyper = optimizer_rows[s->optimizer].usual};
    return f->at == AT(hyper.weight_decay) || *(double *)place(&u, f) > 0;
}
// key=value:..., the settings from table t.
static status_t read_settings(struct arena *a, struct str text, const struct field *t, int n,
                              struct train_spec *s) {
    struct str item, key;
    while (str_cut(&text, ':', &item)) {
        str_cut(&item, '=', &key);
        const struct field *f = find_field(t, n, str_trim(key));
        if (!f || (t == hyper_fields && !takes(s, f)))
            return st_invalid("it has no setting '" STR_FMT "'", STR_ARG(key));
        RETURN_IF_ERR(set_field(a, f, str_trim(item), s));
    }
    return ST_OK;
}
// remat=BYTES: "512M" as well as "512MiB".
static bool remat_bytes(struct str text, struct train_spec *s) {
    if (text.n > 3 && memcmp(text.p + text.n - 2, "iB", 2) == 0) text.n -= 2;
    if (!str_to_bytes(text, &s->remat_bytes) || !s->remat_bytes) return false;
    s->remat = TRAIN_REMAT_BYTES;
    return true;
}
static status_t unknown(struct arena *a, const char *what, struct str value,
                        const char *const *names, int n) {
    const char *list = "";
    for (int k = 0; k < n; k++)
        list = arena_printf(a, "%s%s%s", list, k ? ", " : "", names[k]);
    return st_invalid("no %s is called '" STR_FMT "'; there are %s", what, STR_ARG(value), list);
}
static int index_of(struct str name, const char *const *names, int n) {
    for (int k = 0; k < n; k++)
        if (str_is(name, names[k])) return k;
    return -1;
}
static const char *const *names_of(bool losses, const char **out) {
    for (int k = 0; k < TRAIN_LOSS_COUNT && losses; k++)
        out[k] = loss_rows[k].name;
    for (int k = 0; k < TRAIN_OPTIMIZER_COUNT && !losses; k++)
        out[k] = optimizer_rows[k].name;
    return out;
}
static status_t read_word(struct arena *a, struct str key, struct str value, struct train_spec *s) {
    const char *losses[TRAIN_LOSS_COUNT], *optimizers[TRAIN_OPTIMIZER_COUNT];
    const struct {
        const char *key;
        const char *const *names;
        int n;
    } choices[] = {{"loss", names_of(true, losses), TRAIN_LOSS_COUNT},
                   {"optimizer", names_of(false, optimizers), TRAIN_OPTIMIZER_COUNT},
                   {"schedule", schedule_names, TRAIN_SCHEDULE_COUNT},
                   {"nan", nan_names, COUNT_OF(nan_names)},
                   {"remat", remat_names, COUNT_OF(remat_names)},
                   {"constants", constants_names, COUNT_OF(constants_names)}};
    const struct field *f = find_field(fields, COUNT_OF(fields), key);
    if (f && f->at == AT(loss_scale) && str_is(value, "dynamic")) {
        s->loss_scale = 0;
        return ST_OK;
    }
    if (f) return set_field(a, f, value, s);
    if (str_is(key, "remat") && remat_bytes(value, s)) return ST_OK;

    for (int c = 0; c < COUNT_OF(choices); c++) {
        struct str name;
        if (!str_is(key, choices[c].key)) continue;
        str_cut(&value, ':', &name);
        int k = index_of(str_trim(name), choices[c].names, choices[c].n);
        if (k < 0 || (c == 4 && k == TRAIN_REMAT_BYTES))
            return unknown(a, choices[c].key, name, choices[c].names, choices[c].n);
        if (c == 0) s->loss = (enum train_loss)k;
        if (c == 1) s->optimizer = (enum train_optimizer)k, s->hyper = optimizer_rows[k].usual;
        if (c == 2) s->schedule = (enum train_schedule)k;
        if (c == 3) s->nan = (enum train_nan)k;
        if (c == 4) s->remat = (enum train_remat)k;
        if (c == 5) s->constants = (enum frontend_constants)k;
        const struct field *t = c == 1 ? hyper_fields : schedule_fields;
        int n = c == 1 ? COUNT_OF(hyper_fields) : c == 2 ? COUNT_OF(schedule_fields) : 0;
        return st_note(read_settings(a, value, t, n, s), "%s", choices[c].names[k]);
    }
    return st_invalid("no word of a training spec is called '" STR_FMT "'", STR_ARG(key));
}
static status_t check(struct train_spec *s) {
    bool ends = s->schedule == TRAIN_SCHEDULE_linear || s->schedule == TRAIN_SCHEDULE_cosine;
    if (!s->rows) s->rows = s->batch;
    if (ends && s->steps <= s->warmup)
        return st_invalid("schedule %s: steps=N is missing, or not above warmup",
                          schedule_names[s->schedule]);
    if (s->rows < s->batch)
        return st_invalid("%lld rows are fewer than a batch of %lld", (long long)s->rows,
                          (long long)s->batch);
    if (s->loss_scale <= 0 && s->nan == TRAIN_NAN_IGNORE)
        return st_invalid("loss_scale=dynamic leaves out steps that overflow: nan is stop or skip");
    return ST_OK;
}
status_t train_spec_parse(struct arena *a, struct str text, struct train_spec *out) {
    struct train_spec s = usual();
    struct str item, key;
    bool loss = false;
    while (str_cut(&text, ';', &item)) {
        item = str_trim(item);
        if (!item.n) continue;
        str_cut(&item, '=', &key);
        loss |= str_is(str_trim(key), "loss");
        RETURN_IF_ERR(st_note(read_word(a, str_trim(key), str_trim(item), &s), "training spec"));
    }
    if (!loss) return st_invalid("training spec: loss=NAME is missing");
    RETURN_IF_ERR(st_note(check(&s), "training spec"));
    *out = s;
    return ST_OK;
}

// ---- printing

static bool same(const struct train_spec *x, const struct train_spec *y, const struct field *f) {
    const void *p = place(x, f), *q = place(y, f);
    switch (f->kind) {
    case TEXT:
        return strcmp(*(const char *const *)p, *(const char *const *)q) == 0;
    case FLAG:
        return *(const bool *)p == *(const bool *)q;
    case COUNT:
        return *(const int64_t *)p == *(const int64_t *)q;
    case NUMBER:
        break;
    }
    double v = *(const double *)p, w = *(const double *)q;
    return !(v < w || v > w);
}
static void print_field(const struct train_spec *s, const struct field *f, char sep,
                        struct strbuf *out) {
    const void *p = place(s, f);
    strbuf_printf(out, "%c%s=", sep, f->name);
    if (f->kind == TEXT) strbuf_printf(out, "%s", *(const char *const *)p);
    if (f->kind == FLAG) strbuf_printf(out, "%d", *(const bool *)p);
    if (f->kind == COUNT) strbuf_printf(out, "%lld", (long long)*(const int64_t *)p);
    if (f->kind == NUMBER) strbuf_f64(out, *(const double *)p);
}
static void print_fields(const struct train_spec *s, const struct train_spec *usual_one,
                         const struct field *t, int n, char sep, struct strbuf *out) {
    for (int k = 0; k < n; k++)
        if (!same(s, usual_one, &t[k])) print_field(s, &t[k], sep, out);
}
void train_spec_print(const struct train_spec *s, struct strbuf *out) {
    struct train_spec u = usual();
    strbuf_printf(out, "loss=%s;optimizer=%s", loss_rows[s->loss].name,
                  optimizer_rows[s->optimizer].name);
    u.hyper = optimizer_rows[s->optimizer].usual;
    print_fields(s, &u, hyper_fields, COUNT_OF(hyper_fields), ':', out);
    struct strbuf settings = {0};
    print_fields(s, &u, schedule_fields, COUNT_OF(schedule_fields), ':', &settings);
    if (s->schedule || settings.n)
        strbuf_printf(out, ";schedule=%s%s", schedule_names[s->schedule], strbuf_cstr(&settings));
    strbuf_done(&settings);
    if (s->rows == s->batch) u.rows = s->rows;
    if (s->loss_scale <= 0) u.loss_scale = s->loss_scale;
    print_fields(s, &u, fields, COUNT_OF(fields), ';', out);
    if (s->loss_scale <= 0) strbuf_puts(out, ";loss_scale=dynamic");
    if (s->constants) strbuf_printf(out, ";constants=%s", constants_names[s->constants]);
    if (s->nan) strbuf_printf(out, ";nan=%s", nan_names[s->nan]);
    if (s->remat == TRAIN_REMAT_SEGMENTS) strbuf_puts(out, ";remat=segments");
    if (s->remat == TRAIN_REMAT_BYTES) strbuf_printf(out, ";remat=%lld", (long long)s->remat_bytes);
}
