// SPDX-License-Identifier: Apache-2.0
// Usual sizes: at which size a symbolic dimension of an input may be bound where nobody says one,
// so that a model can be compiled and tried without knowing it.
//
//   1. A symbol is a batch (a leading dimension, a name that says so, the middle dimension of a
//      recurrent state), a picture's height or width, its channels, or a length.
//   2. A batch is 1. For the others the sizes of the tables below are tried in turn, then those
//   that
//      the weights have: the program, which holds no weights by now, is lowered, which infers every
//      shape. The first that fits and gives the outputs that the file declares is taken, else the
//      first that fits.
//   3. Where none fits, the symbols keep no usual size: it has to be said.
//
// How often the program is lowered is bounded by its nodes, never by time: the same file gives the
// same sizes everywhere. It is no proof that a model means anything at these sizes.
#include <ctype.h>
#include <stdio.h>

#include "compiler/frontend/onnx/onnx.h"

enum { MAX_SYMBOLS = 32, MAX_TRIES = 60, MAX_LOWERED_NODES = 60000, MAX_STATES = 3 };
enum { MAX_HINTS = 16, TRIAL_NODES = 20000 };
enum role { BATCH, CHANNELS, HEIGHT, WIDTH, LENGTH, SUM };
struct usual {
    const char *symbol;
    enum role role;
    bool named; // the role is the name's
    int64_t size;
};
struct usuals {
    struct usual v[MAX_SYMBOLS];
    int n;
};
struct trial {
    int64_t height, width, length, channels; // 0: the usual one
};
struct trials {
    struct trial v[96];
    int n, plain; // those before `plain` are tried first, alone
};

// Pictures first as classifiers and detectors take them, then lines of text, then small ones.
static const struct trial pictures[] = {{224, 224, 128, 0}, {320, 320, 128, 0}, {48, 320, 128, 0},
                                        {32, 100, 64, 0},   {32, 320, 64, 0},   {64, 256, 64, 0},
                                        {256, 256, 64, 0},  {640, 640, 64, 0},  {512, 512, 64, 0},
                                        {64, 64, 32, 0},    {32, 32, 16, 0},    {28, 28, 16, 0}};
static const struct trial lengths[] = {
    {0, 0, 128, 0},  {0, 0, 512, 0},  {0, 0, 64, 0},    {0, 0, 32, 0}, {0, 0, 16, 0},
    {0, 0, 1024, 0}, {0, 0, 4096, 0}, {0, 0, 16000, 0}, {0, 0, 8, 0},  {0, 0, 1, 0}};

// Is `word` in the name, whatever its case?
static bool says(const char *name, const char *word) {
    size_t n = strlen(word);
    for (; *name; name++) {
        size_t k = 0;
        while (k < n && tolower((unsigned char)name[k]) == word[k])
            k++;
        if (k == n) return true;
    }
    return false;
}

static struct usual *find(struct usuals *u, const char *symbol) {
    for (int k = 0; k < u->n; k++)
        if (strcmp(u->v[k].symbol, symbol) == 0) return &u->v[k];
    return NULL;
}

// The role that a symbol's name says; false: none.
static bool role_of_name(const char *s, enum role *out) {
    if (strchr(s, '+'))
        *out = SUM;
    else if (says(s, "batch") || !strcmp(s, "N") || !strcmp(s, "B") || !strcmp(s, "bs"))
        *out = BATCH;
    else if (says(s, "height"))
        *out = HEIGHT;
    else if (says(s, "width"))
        *out = WIDTH;
    else if (says(s, "channel"))
        *out = CHANNELS;
    else
        return false;
    return true;
}

// The role of dimension d by where it stands. Rank 4 is NCHW, or NHWC where only the last dimension
// is known and small; [layers, batch, hidden] is a recurrent state.
static enum role role_of_place(const struct sig_tensor *t, int d) {
    if (d == 0) return BATCH;
    bool floats = dtype_is_float(t->dtype) || t->dtype == DT_U8;
    bool last = t->rank == 4 && t->dims[3].size > 0 && t->dims[3].size <= 4;
    if (t->rank == 4 && floats && last) return d == 1 ? HEIGHT : WIDTH;
    if (t->rank == 4 && floats && t->dims[1].size > 4 && t->dims[3].size >= 0) return LENGTH;
    if (t->rank == 4 && floats) return d == 1 ? CHANNELS : d == 2 ? HEIGHT : WIDTH;
    if (t->rank == 3 && d == 1 && t->dims[0].size > 1 && t->dims[2].size > 1) return BATCH;
    return LENGTH;
}

// False: more symbols than are tried.
static bool collect(const struct signature *sig, struct usuals *u) {
    for (int k = 0; k < sig->n_in; k++)
        for (int d = 0; d < sig->in[k].rank; d++) {
            const char *symbol = sig->in[k].dims[d].symbol;
            if (!symbol) continue;
            struct usual *old = find(u, symbol);
            enum role place = role_of_place(&sig->in[k], d);
            if (old) {
                if (place == BATCH && !old->named) old->role = BATCH;
                continue;
            }
            if (u->n == MAX_SYMBOLS) return false;
            struct usual *x = &u->v[u->n++];
            *x = (struct usual){.symbol = symbol, .role = place};
            x->named = d > 0 && role_of_name(symbol, &x->role);
            if (d == 0 && strchr(symbol, '+')) x->role = SUM;
        }
    return true;
}

// "past + seq", "past+1": the sum of sizes that are known by now; 0 = not known.
static int64_t sum_of(struct usuals *u, const char *text) {
    struct str all = str_of(text), part;
    int64_t sum = 0, n;
    while (str_cut(&all, '+', &part)) {
        char name[200];
        part = str_trim(part);
        if (!str_to_i64(part, &n)) {
            snprintf(name, sizeof name, STR_FMT, STR_ARG(part));
            struct usual *x = find(u, name);
            n = x && x->role != SUM ? x->size : 0;
        }
        if (n < 1 || !sz_add(sum, n, &sum)) return 0;
    }
    return sum;
}

// The sizes of one trial; bit k of `ones`: the k-th length is 1 (a state's batch, a step).
static void set_sizes(struct usuals *u, const struct trial *t, int ones) {
    int n = 0;
    for (int k = 0; k < u->n; k++) {
        struct usual *x = &u->v[k];
        if (x->role == BATCH) x->size = 1;
        if (x->role == CHANNELS) x->size = t->channels ? t->channels : 3;
        if (x->role == HEIGHT) x->size = t->height ? t->height : 224;
        if (x->role == WIDTH) x->size = t->width ? t->width : 224;
        if (x->role == LENGTH) x->size = ones >> n++ & 1 ? 1 : t->length;
    }
    for (int k = 0; k < u->n; k++)
        if (u->v[k].role == SUM) u->v[k].size = sum_of(u, u->v[k].symbol);
}

enum fit { UNFIT, FITS, FITS_OUTPUTS };
// Do the outputs have what the file says of them? A size of 0 says that the inputs were too small.
static enum fit outputs_fit(const struct hlo_module *m, const struct signature *sig) {
    const struct shape *root = m->entry->root->shape;
    enum fit fit = FITS_OUTPUTS;
    for (int k = 0; k < shape_leaves(root); k++) {
        const struct shape *s = shape_leaf(root, k);
        const struct sig_tensor *want = k < sig->n_out ? &sig->out[k] : NULL;
        for (int d = 0; d < s->rank; d++) {
            if (s->dims[d] == 0) return UNFIT;
            bool known = want && want->rank == s->rank && want->dims[d].size >= 0;
            if (known && want->dims[d].size != s->dims[d]) fit = FITS;
        }
    }
    return fit;
}
static enum fit try_sizes(struct arena *a, struct span program, const struct usuals *u,
                          const struct frontend_limits *limits, int64_t most_nodes,
                          const struct signature *sig) {
    struct dim_binding *b = arena_zarray(a, struct dim_binding, u->n + 1);
    struct lower_request req = {.program = program, .bindings = b, .n_bindings = u->n};
    if (limits) req.limits = *limits;
    req.limits.max_nodes = most_nodes;
    for (int k = 0; k < u->n; k++) {
        if (u->v[k].size < 1) return UNFIT;
        b[k] = (struct dim_binding){u->v[k].symbol, u->v[k].size};
    }
    struct hlo_module *m;
    status_t st = onnx_lower(&req, &m);
    if (st) {
        st_drop(st);
        return UNFIT;
    }
    enum fit fit = outputs_fit(m, sig);
    hlo_module_free(m);
    return fit;
}

static void add_trial(struct trials *all, struct trial t) {
    if (all->n < (int)(sizeof all->v / sizeof *all->v)) all->v[all->n++] = t;
}
// In which order sizes are tried: the table, the sizes of weights, grey pictures.
static void order_trials(const struct usuals *u, const int64_t *hints, struct trials *all) {
    bool picture = false, channels = false;
    for (int k = 0; k < u->n; k++) {
        picture |= u->v[k].role == HEIGHT || u->v[k].role == WIDTH;
        channels |= u->v[k].role == CHANNELS;
    }
    const struct trial *t = picture ? pictures : lengths;
    int n = picture ? sizeof pictures / sizeof *pictures : sizeof lengths / sizeof *lengths;
    all->n = 0;
    for (int k = 0; k < n; k++)
        add_trial(all, t[k]);
    all->plain = all->n;
    for (int k = 0; channels && k < n; k++)
        add_trial(all, (struct trial){t[k].height, t[k].width, t[k].length, 1});
    for (int k = 0; hints[k]; k++)
        add_trial(all, (struct trial){hints[k], hints[k], hints[k], channels ? hints[k] : 0});
}

struct search {
    struct arena *a;
    struct span program;
    const struct frontend_limits *limits;
    const struct signature *sig;
    struct usuals *u, best;
    int tries;
    int64_t most_nodes; // that loops may be unrolled to in one try
};
// True: nothing better will come.
static bool try_each(struct search *s, const struct trial *t, int n, int ones) {
    for (int k = 0; k < n; k++) {
        if (s->tries-- <= 0) return true;
        set_sizes(s->u, &t[k], ones);
        enum fit fit = try_sizes(s->a, s->program, s->u, s->limits, s->most_nodes, s->sig);
        if (fit == UNFIT || (fit == FITS && s->best.n)) continue;
        s->best = *s->u;
        if (fit == FITS_OUTPUTS) return true;
    }
    return false;
}

// The best of what is tried; false: none fits.
static bool search(struct search *s, int64_t n_nodes, const int64_t *hints) {
    struct trials all;
    int lengths_open = 0;
    order_trials(s->u, hints, &all);
    for (int k = 0; k < s->u->n; k++)
        lengths_open += s->u->v[k].role == LENGTH;
    int states = lengths_open <= MAX_STATES ? lengths_open : 0;
    s->tries = MAX_TRIES;
    s->most_nodes = n_nodes < TRIAL_NODES / 4 ? TRIAL_NODES : 4 * n_nodes;
    if (n_nodes > MAX_LOWERED_NODES / MAX_TRIES)
        s->tries = (int)(MAX_LOWERED_NODES / (n_nodes + 1)) + 1;
    bool done = try_each(s, all.v, all.n, 0);
    for (int ones = 1; ones < 1 << states && !done && !s->best.n; ones++)
        done = try_each(s, all.v, all.plain, ones);
    if (s->best.n) *s->u = s->best;
    return s->best.n > 0;
}

// Sizes of weights, each once, as far as they may be one of an input; 0 ends.
static void weight_sizes(const struct ingest_result *r, int64_t hints[MAX_HINTS + 1]) {
    int n = 0;
    for (int k = 0; k < r->n_weights; k++)
        for (int d = 0; d < r->weights[k].rank && n < MAX_HINTS; d++) {
            int64_t size = r->weights[k].dims[d];
            bool known = size < 1 || size > 1 << 16;
            for (int i = 0; i < n; i++)
                known |= hints[i] == size;
            if (!known) hints[n++] = size;
        }
    hints[n] = 0;
}

static void give(struct usuals *u, bool found, struct signature *sig) {
    for (int k = 0; k < sig->n_in; k++)
        for (int d = 0; d < sig->in[k].rank; d++) {
            struct sig_dim *dim = &sig->in[k].dims[d];
            const struct usual *x = dim->symbol ? find(u, dim->symbol) : NULL;
            if (x && (found || x->role == BATCH)) dim->usual = x->size;
        }
}

void onnx_usual_sizes(struct arena *a, const struct frontend_limits *limits,
                      struct ingest_result *r) {
    struct usuals u = {.n = 0};
    struct signature *sig = &r->sig;
    int64_t hints[MAX_HINTS + 1];
    bool only_batch = true, shapes_known = true;
    if (!collect(sig, &u) || !u.n) return;
    for (int k = 0; k < u.n; k++)
        only_batch = only_batch && u.v[k].role == BATCH;
    for (int k = 0; k < sig->n_in; k++)
        shapes_known = shapes_known && sig->in[k].rank >= 0 && !sig->in[k].by_value;
    weight_sizes(r, hints);
    set_sizes(&u, &pictures[0], 0);
    struct search s = {
        .a = a, .program = r->program, .limits = limits, .sig = sig, .u = &u, .best = {.n = 0}};
    // Only a batch, or what is not known before the run: the first sizes as they are.
    bool found = only_batch || !shapes_known || search(&s, r->info.nodes, hints);
    give(&u, found, sig);
}
