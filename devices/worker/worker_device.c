// SPDX-License-Identifier: Apache-2.0
// LOAD, PREPARE, RUN, UNLOAD: what is resident in this process. Tables are small and belong to the
// run thread; their sizes are published for STATS. When too much is resident (worker_room.h) or the
// device's memory is full some of it goes; the daemon learns of it by NOT_FOUND, and loads it.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "compiler/results.h"
#include "devices/string_io.h"
#include "devices/worker/worker_calls.h"
#include "devices/worker/worker_maps.h"
#include "devices/worker/worker_profile.h"
#include "devices/worker/worker_room.h"
#include "devices/worker/worker_streams.h"

enum {
    MAX_MODELS = 64,         // programs of which anything is resident
    MAX_RESIDENT = 2048,     // executables; each has some mappings, of which a process has 65,530
    SPARE_PART = 8,          // of the device's memory, for shapes beside those in use
    WEIGHTS_PART = 4,        // of their size is what weights count: half of the memory for them
    STREAM_LEAST_NS = 200000 // of a run: less is over before another thread has taken it
};
static const int64_t SPARE_LEAST = 64 << 20;
static const uint64_t MAX_GATHERED = UINT64_C(16) << 30; // bytes of one input in parts
struct prepared {
    struct digest digest;
    struct dev_weights *w;
};
struct resident {
    struct room_item item; // pinned, and when it was used
    struct dev_exe *exe;
    int64_t code_bytes;
    struct string_io *text; // or NULL
    VEC(struct prepared) sets;
    int64_t counted;       // of them, in prepared_total
    int64_t last_run_ns;   // 0 = none yet
    bool no_streams;       // it has been tried
    struct digest made_of; // load_digest
    struct dev_exe *streams[WORKER_STREAMS];
};
static struct room room;
static VEC(struct room_item *) pins; // of the present call
static _Atomic int32_t count;
static _Atomic int64_t prepared_total;

void worker_residents(int32_t *n, int64_t *prepared_bytes) {
    *n = count;
    *prepared_bytes = prepared_total;
}

static bool digest_of(ProtobufCBinaryData b, struct digest *out) {
    if (b.len != 32) return false;
    memcpy(out->b, b.data, 32);
    return true;
}
static int64_t stays(const struct dev_exe *x) {
    struct dev_stats s = dev_stats(x);
    return s.arena_bytes - s.shared_bytes + s.resident_bytes;
}
static int64_t own_bytes(const struct resident *r) {
    int64_t n = r->code_bytes + stays(r->exe);
    for (int k = 0; k < WORKER_STREAMS && r->streams[k]; k++)
        n += stays(r->streams[k]);
    return n;
}
// Sets share memory: what one lets go may be another's from then on. Weights count less than what
// is made anew without them: a model with large ones, used by two shapes in turn that share none of
// them, would bring all of them again for each run.
static void weigh(struct resident *r) {
    int64_t own = own_bytes(r), counted = 0, needed = 0;
    for (size_t e = 0; e < r->sets.n; e++) {
        counted += r->sets.v[e].w->bytes;
        needed += r->sets.v[e].w->needs;
    }
    room_weigh(&r->item, own + counted / WEIGHTS_PART,
               own + (needed ? needed : counted) / WEIGHTS_PART);
    prepared_total += counted - r->counted;
    r->counted = counted;
}
static void weigh_owner(struct dev_weights *w) {
    weigh(w->owner);
}
static struct resident *find(struct digest key) {
    struct resident *r = (struct resident *)room_find(&room, key);
    if (!r) return NULL;
    room_use(&room, &r->item);
    weigh(r); // its last run may have made something
    return r;
}
static void pin(struct resident *r) {
    r->item.pinned = true;
    vec_push(&pins, &r->item);
}
void worker_unpin(void) {
    while (pins.n)
        vec_pop(&pins)->pinned = false;
}

static void drop(struct resident *r) {
    room_del(&room, &r->item);
    for (size_t k = 0; k < r->sets.n; k++)
        r->sets.v[k].w->changed = NULL;
    for (size_t k = 0; k < r->sets.n; k++)
        dev_release(r->sets.v[k].w);
    prepared_total -= r->counted;
    vec_done(&r->sets);
    for (int k = 0; k < WORKER_STREAMS; k++)
        dev_unload(r->streams[k]);
    dev_unload(r->exe);
    string_io_free(r->text);
    free(r);
    count--;
}
static bool drop_item(struct room_item *i) {
    if (i) drop((struct resident *)i);
    return i != NULL;
}
static int64_t given_memory_bytes;
void worker_device_memory(int64_t bytes) {
    given_memory_bytes = bytes;
}
// Lets go of what is more than may be resident.
static void fit(struct device *d) {
    int64_t all = dev_attributes(d).memory_bytes;
    if (given_memory_bytes && given_memory_bytes < all) all = given_memory_bytes;
    int64_t most = all / SPARE_PART;
    if (most < SPARE_LEAST && !given_memory_bytes) most = SPARE_LEAST;
    while (room.models.n > MAX_MODELS && drop_item(room_of_oldest_model(&room)))
        ;
    while ((room_spare(&room) > most || room.items.n > MAX_RESIDENT) &&
           drop_item(room_oldest_spare(&room)))
        ;
}
// Half of what is spare, so that a call is not tried again for each shape; else the executable used
// longest ago. False when there is none that may go.
static bool evict(void) {
    int64_t half = room_spare(&room) / 2;
    if (!drop_item(room_oldest_spare(&room))) return drop_item(room_oldest(&room));
    while (half && room_spare(&room) > half && drop_item(room_oldest_spare(&room)))
        ;
    return true;
}
bool worker_make_room(status_t *st) {
    if (st_code(*st) != ST_RESOURCE_EXHAUSTED || (!worker_begun_drop() && !evict())) return false;
    st_drop(*st);
    *st = ST_OK;
    return true;
}
static status_t not_here(const char *what) {
    return st_reason(st_new(ST_NOT_FOUND, "%s is not resident in this worker", what),
                     HLOD__V1__REASON__REASON_EXECUTABLE_NOT_FOUND);
}

// ---- load

static status_t load_bytes(struct worker_call *c, struct device *d, struct digest key,
                           struct span bytes, struct dev_exe **out, int64_t *out_begun_ns,
                           int *out_choices) {
    Hlod__V1__Tuning *tuning = ((const Hlod__Wire__Load *)c->request)->tuning;
    struct executable *e;
    status_t st = ST_OK;
    *out = NULL;
    if (!tuning && worker_begun(key, bytes, &c->cancel, out, out_begun_ns)) // begun without one
        return *out ? ST_OK : st_new(ST_CANCELLED, "the call was cancelled");
    do {
        RETURN_IF_ERR(executable_unpack(bytes, &e));
        *out_choices = worker_choose(e, tuning);
        st = dev_load(d, e, &c->cancel, out); // takes e
    } while (worker_make_room(&st));
    return st;
}

// What a load is made of: the artefact, and a tuning.
static struct digest load_digest(struct arena *a, struct span artifact, const Hlod__V1__Tuning *t) {
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, artifact.p, artifact.n);
    if (t) {
        size_t n = protobuf_c_message_get_packed_size(&t->base);
        uint8_t *p = arena_alloc(a, n + 1);
        sha256_add(&h, p, protobuf_c_message_pack(&t->base, p));
    }
    return sha256_end(&h);
}
// What is resident stays: two weight sets of it that are wanted at the same time would each take
// the other's with it.
static status_t load(struct worker_call *c, struct device *d, Hlod__Wire__LoadReply *out,
                     int64_t *out_begun_ns) {
    const Hlod__Wire__Load *q = (const Hlod__Wire__Load *)c->request;
    struct digest key, program = {{0}};
    struct span bytes;
    if (!digest_of(q->key, &key) || (q->program.len && !digest_of(q->program, &program)))
        return st_internal("key is not a digest");
    RETURN_IF_ERR(worker_call_blob(c, q->artifact, &bytes));
    struct digest made_of = load_digest(&c->arena, bytes, q->tuning);
    struct resident *old = find(key);
    if (old && digest_eq(old->made_of, made_of)) {
        out->resident_bytes = dev_stats(old->exe).arena_bytes;
        return ST_OK;
    }

    struct resident *r = calloc(1, sizeof *r);
    if (!r) return st_oom();
    if (old) drop(old);
    int choices = 0;
    status_t st = load_bytes(c, d, key, bytes, &r->exe, out_begun_ns, &choices);
    if (st) {
        free(r);
        return st;
    }
    r->item.key = key;
    r->made_of = made_of;
    r->text = string_io_new(r->exe->exe);
    r->code_bytes = (int64_t)bytes.n;
    room_add(&room, &r->item, program);
    weigh(r);
    count++;
    fit(d);
    struct dev_stats stats = dev_stats(r->exe);
    out->resident_bytes = stats.arena_bytes;
    out->choices_left = choices > stats.choices ? (uint32_t)(choices - stats.choices) : 0;
    return ST_OK;
}
WORKER_ANSWER(load) {
    Hlod__Wire__LoadReply *r = reply;
    int64_t start = clock_ns(), begun = 0;
    status_t st = load(c, d, r, &begun);
    r->ms = clock_ms_since(start - begun);
    return st;
}

// ---- prepare

static status_t prepare(struct worker_call *c, struct device *d, int64_t *out_bytes) {
    const Hlod__Wire__Prepare *q = (const Hlod__Wire__Prepare *)c->request;
    struct digest key, weights;
    struct span source, sidecar;
    struct prepared p;
    if (!digest_of(q->key, &key) || !digest_of(q->weights_digest, &weights))
        return st_internal("key is not a digest");
    struct resident *r = find(key);
    if (!r) return not_here("the executable");

    RETURN_IF_ERR(worker_call_blob(c, q->source, &source));
    RETURN_IF_ERR(worker_call_blob(c, q->sidecar, &sidecar));
    struct span *spans = arena_zarray(&c->arena, struct span, q->n_weights + 1);
    for (size_t k = 0; k < q->n_weights; k++) {
        const Hlod__Wire__Weight *w = q->weights[k];
        struct span from = w->sidecar ? sidecar : source;
        if (w->offset < 0 || w->size < 0 || (uint64_t)w->offset > from.n ||
            (uint64_t)w->size > from.n - (uint64_t)w->offset)
            return st_new(ST_DATA_LOSS, "weight '%s' lies outside its blob", w->name);
        spans[k] = (struct span){from.p + w->offset, (size_t)w->size};
    }

    p.digest = weights;
    status_t st;
    pin(r);
    do
        st = dev_prepare_mapped(r->exe, spans, (int)q->n_weights,
                                q->source && q->source->fd ? source : (struct span){0}, weights,
                                &c->cancel, &p.w);
    while (worker_make_room(&st));
    worker_unpin();
    RETURN_IF_ERR(st);
    p.w->changed = weigh_owner;
    p.w->owner = r;

    for (size_t k = 0; k < r->sets.n; k++)
        if (digest_eq(r->sets.v[k].digest, weights)) { // again: the new one replaces
            struct dev_weights *old = r->sets.v[k].w;
            r->sets.v[k] = vec_pop(&r->sets);
            dev_release(old);
            break;
        }
    vec_push(&r->sets, p);
    weigh(r);
    fit(d);
    *out_bytes = p.w->bytes;
    return ST_OK;
}
WORKER_ANSWER(prepare) {
    Hlod__Wire__PrepareReply *r = reply;
    int64_t start = clock_ns();
    status_t st = prepare(c, d, &r->prepared_bytes);
    r->ms = clock_ms_since(start);
    return st;
}

// ---- run

// The bytes of an input: a blob, or the rows of several requests in turn, then zeros.
static status_t input_bytes(struct worker_call *c, const Hlod__Wire__WireTensor *w,
                            struct span *out) {
    if (!w->n_parts) return worker_call_blob(c, w->data, out);
    uint64_t total = w->data ? w->data->size : 0, at = 0;
    if (total > MAX_GATHERED)
        return st_internal("an input of %llu bytes in parts", (unsigned long long)total);
    uint8_t *p = arena_alloc_aligned(&c->arena, (size_t)total + 64, 64);
    for (size_t k = 0; k < w->n_parts; k++) {
        struct span part;
        RETURN_IF_ERR(worker_call_blob(c, w->parts[k], &part));
        if (part.n > total - at) return st_internal("an input's parts exceed its size");
        if (part.n) memcpy(p + at, part.p, part.n);
        at += part.n;
    }
    memset(p + at, 0, (size_t)(total - at));
    *out = (struct span){p, (size_t)total};
    return ST_OK;
}

const void *worker_align(struct worker_call *c, const char *dtype, struct span data) {
    data = dtype_whole_codes(&c->arena, dtype_from_name(str_of(dtype)), data);
    if ((uintptr_t)data.p % 64 == 0) return data.p;
    return memcpy(arena_alloc_aligned(&c->arena, data.n + 64, 64), data.p, data.n);
}

static void free_texts(void *t) {
    strings_free(t);
}
// *texts: the run's table of a program that has texts; the call's.
static status_t bind_inputs(struct worker_call *c, const Hlod__Wire__Run *q,
                            const struct resident *r, const void **in, struct strings **texts) {
    struct dev_tensor *t = arena_zarray(&c->arena, struct dev_tensor, q->n_inputs + 1);
    for (size_t k = 0; k < q->n_inputs; k++) {
        const Hlod__Wire__WireTensor *w = q->inputs[k];
        t[k] = (struct dev_tensor){.dtype = w->dtype, .rank = (int32_t)w->n_dims, .dims = w->dims};
        RETURN_IF_ERR(input_bytes(c, w, &t[k].data));
    }
    if (r->text) {
        RETURN_IF_ERR(string_io_begin(r->text, &c->arena, t, (int)q->n_inputs, texts));
        arena_link(&c->arena, free_texts, *texts);
    }
    RETURN_IF_ERR(dev_check_inputs(r->exe, t, (int)q->n_inputs));
    for (size_t k = 0; k < q->n_inputs; k++)
        in[k] = worker_align(c, t[k].dtype, t[k].data);
    return ST_OK;
}

// The daemon's memory, if it is large enough.
static status_t given_memory(struct worker_call *c, int fd, int64_t total,
                             struct worker_outputs *o) {
    struct span all;
    bool kept;
    RETURN_IF_ERR(worker_map(fd, true, c->id, &all, &kept));
    if (!kept) {
        o->base = (void *)(uintptr_t)all.p;
        o->base_bytes = all.n;
    }
    if ((int64_t)all.n >= total) o->map = (uint8_t *)(uintptr_t)all.p;
    o->shared = o->map != NULL;
    return ST_OK;
}

status_t worker_outputs_make(struct worker_call *c, const int64_t *bytes, int n, uint32_t given,
                             struct worker_outputs *o) {
    int64_t total = 0;
    int fd;
    o->n = n;
    o->p = arena_zarray(&c->arena, void *, n + 1);
    o->offset = arena_zarray(&c->arena, int64_t, n + 1);
    for (int k = 0; k < n; k++) {
        o->offset[k] = total;
        total += (bytes[k] + 127) / 64 * 64;
    }
    total += 64;
    if (total <= RUN_INLINE_BYTES || o->texts) // results of text are laid out when they are known
        o->map = arena_alloc_aligned(&c->arena, (size_t)total, 64);
    else if (given && given <= (uint32_t)c->n_fds)
        st_drop(given_memory(c, c->fds[given - 1], total, o));
    if (!o->map) { // none was given, or not one of this size
        frame_unmap(o->base, o->base_bytes);
        o->base = NULL;
        o->shared = true;
        RETURN_IF_ERR(frame_memfd("hlod-out", total, &fd));
        c->reply_fds[c->n_reply_fds++] = fd;
        RETURN_IF_ERR(frame_map(fd, 0, total, true, &o->map, &o->base, &o->base_bytes));
    }
    for (int k = 0; k < n; k++)
        o->p[k] = o->map + o->offset[k];
    return ST_OK;
}

Hlod__Wire__Blob *worker_outputs_blob(struct worker_call *c, const struct worker_outputs *o, int k,
                                      int64_t bytes) {
    Hlod__Wire__Blob *b = message_new(&c->arena, &hlod__wire__blob__descriptor);
    b->size = (uint64_t)bytes;
    if (!o->shared) {
        b->inline_bytes = (ProtobufCBinaryData){b->size, o->p[k]};
    } else {
        b->fd = 1;
        b->offset = (uint64_t)o->offset[k];
    }
    return b;
}

static int64_t *with_replicas(struct worker_call *c, int replicas, const int64_t *dims, size_t *n) {
    int64_t *all = arena_array(&c->arena, int64_t, *n + 1);
    all[0] = replicas;
    memcpy(all + 1, dims, *n * sizeof *all);
    ++*n;
    return all;
}

Hlod__Wire__WireTensor *worker_tensor(struct arena *a, const struct shape *s, int64_t *dims,
                                      Hlod__Wire__Blob *data) {
    Hlod__Wire__WireTensor *t = message_new(a, &hlod__wire__wire_tensor__descriptor);
    t->dtype = (char *)(uintptr_t)dtype_name(s->dtype);
    t->n_dims = (size_t)s->rank;
    t->dims = dims ? dims : arena_dup_array(a, s->dims, s->rank);
    t->data = data;
    return t;
}

static status_t send_outputs(struct worker_call *c, const Hlod__Wire__Run *q,
                             const struct executable *e, const struct worker_outputs *o,
                             Hlod__Wire__RunReply *out) {
    const struct hlo_module *m = e->main;
    const struct shape *root = m->entry->root->shape;
    int sent = results_sent(m);
    size_t n = q->n_outputs ? q->n_outputs : (size_t)sent;
    int64_t **dims = results_cut_all(&c->arena, m, o->p);
    out->outputs = arena_array(&c->arena, Hlod__Wire__WireTensor *, n + 1);

    for (size_t k = 0; k < n; k++) {
        uint32_t leaf = q->n_outputs ? q->outputs[k] : (uint32_t)k;
        if (leaf >= (uint32_t)sent) return st_invalid("output %u of %d", leaf, sent);
        const struct shape *s = shape_leaf(root, (int)leaf);
        Hlod__Wire__WireTensor *t = worker_tensor(&c->arena, s, dims[leaf], NULL);
        if (e->replicas > 1) t->dims = with_replicas(c, e->replicas, t->dims, &t->n_dims);
        int64_t bytes = dtype_size(s->dtype);
        for (size_t d = 0; d < t->n_dims; d++)
            bytes *= t->dims[d];
        out->outputs[k] = t; // the message is whole at any time: it is sent also on failure
        out->n_outputs = k + 1;
        if (!string_io_is_result(o->text, (int)leaf)) {
            t->data = worker_outputs_blob(c, o, (int)leaf, bytes);
            continue;
        }
        struct span texts;
        t->dtype = (char *)(uintptr_t)"string";
        t->data = worker_outputs_blob(c, o, (int)leaf, 0);
        RETURN_IF_ERR(string_io_result(o->texts, &c->arena, o->p[leaf],
                                       bytes / (int64_t)sizeof(int32_t), &texts));
        t->data->size = texts.n;
        t->data->inline_bytes = (ProtobufCBinaryData){texts.n, (uint8_t *)(uintptr_t)texts.p};
    }
    return ST_OK;
}

// What is more than travels inline goes into one memfd.
static status_t send_in_one(struct worker_call *c, Hlod__Wire__RunReply *out) {
    int64_t total = 0;
    uint8_t *map;
    void *base;
    size_t base_bytes;
    int fd;
    for (size_t k = 0; k < out->n_outputs; k++)
        total += ((int64_t)out->outputs[k]->data->size + 127) / 64 * 64;
    if (total <= RUN_INLINE_BYTES) return ST_OK;
    RETURN_IF_ERR(frame_memfd("hlod-out", total, &fd));
    c->reply_fds[c->n_reply_fds++] = fd;
    RETURN_IF_ERR(frame_map(fd, 0, total, true, &map, &base, &base_bytes));
    total = 0;
    for (size_t k = 0; k < out->n_outputs; k++) {
        Hlod__Wire__Blob *b = out->outputs[k]->data;
        if (b->size) memcpy(map + total, b->inline_bytes.data, b->size);
        b->inline_bytes = (ProtobufCBinaryData){0, NULL};
        b->fd = 1;
        b->offset = (uint64_t)total;
        total += ((int64_t)b->size + 127) / 64 * 64;
    }
    frame_unmap(base, base_bytes);
    return ST_OK;
}

static status_t find_pinned(ProtobufCBinaryData key, ProtobufCBinaryData weights,
                            struct resident **out, struct dev_weights **w) {
    struct digest k, d;
    if (!digest_of(key, &k)) return st_internal("key is not a digest");
    if (!digest_of(weights, &d)) d = (struct digest){{0}};
    struct resident *r = find(k);
    if (!r) return not_here("the executable");
    for (size_t i = 0; i < r->sets.n; i++) {
        if (!digest_eq(r->sets.v[i].digest, d)) continue;
        *out = r;
        *w = r->sets.v[i].w;
        pin(r);
        return ST_OK;
    }
    return not_here("the weight set");
}
status_t worker_resident(ProtobufCBinaryData key, ProtobufCBinaryData weights, struct dev_exe **x,
                         struct dev_weights **w) {
    struct resident *r;
    RETURN_IF_ERR(find_pinned(key, weights, &r, w));
    if (r->text) return st_unimplemented("texts cannot stay on a device");
    *x = r->exe;
    return ST_OK;
}

static status_t make_outputs(struct worker_call *c, const struct resident *r, struct strings *texts,
                             uint32_t given, struct worker_outputs *o) {
    const struct executable *e = r->exe->exe;
    const struct shape *root = e->main->entry->root->shape;
    int n = shape_leaves(root);
    int64_t *bytes = arena_array(&c->arena, int64_t, n + 1);
    for (int k = 0; k < n; k++)
        bytes[k] = shape_bytes(shape_leaf(root, k)) * e->replicas;
    *o = (struct worker_outputs){.text = r->text, .texts = texts};
    return worker_outputs_make(c, bytes, n, given, o);
}

static status_t run_once(struct resident *res, struct dev_weights *w, const struct dev_run *r) {
    status_t st;
    int64_t start = clock_ns();
    do
        st = dev_run(res->exe, w, r);
    while (worker_make_room(&st));
    res->last_run_ns = clock_ns() - start;
    return st;
}
// The last of the runs that were asked for is profiled, and more behind it on the same inputs.
static status_t run_all(struct worker_call *c, struct resident *res, struct dev_weights *w,
                        struct dev_run *r, struct profile_runs *profiles, bool again,
                        Hlod__Wire__RunReply *out, int64_t *out_last) {
    const Hlod__Wire__Run *q = (const Hlod__Wire__Run *)c->request;
    uint32_t repeat = q->repeat > 1 ? (q->repeat < RUN_MAX_REPEAT ? q->repeat : RUN_MAX_REPEAT) : 1;
    int64_t first = 0;
    out->run_ms = arena_array(&c->arena, double, repeat);
    for (uint32_t k = 0; k < repeat; k++) {
        r->profile = q->profile && k + 1 == repeat ? profile_next(profiles, again, 0) : NULL;
        *out_last = first = clock_ns();
        RETURN_IF_ERR(run_once(res, w, r));
        out->run_ms[out->n_run_ms++] = clock_ms(res->last_run_ns);
    }
    while (q->profile && (r->profile = profile_next(profiles, again, clock_ns() - first))) {
        *out_last = clock_ns();
        RETURN_IF_ERR(run_once(res, w, r));
    }
    return ST_OK;
}
// A run that is ready to be computed.
struct worker_run {
    struct worker_call *c;
    Hlod__Wire__RunReply *reply;
    struct resident *res;
    struct dev_weights *w;
    struct worker_outputs o;
    struct dev_run r;
    status_t st; // of worker_run_compute
    int64_t ns;
};
static status_t bind_run(struct worker_call *c, struct worker_run *b) {
    const Hlod__Wire__Run *q = (const Hlod__Wire__Run *)c->request;
    struct strings *texts = NULL;
    RETURN_IF_ERR(find_pinned(q->key, q->weights_digest, &b->res, &b->w));
    const void **in = arena_zarray(&c->arena, const void *, q->n_inputs + 1);
    RETURN_IF_ERR(bind_inputs(c, q, b->res, in, &texts));
    RETURN_IF_ERR(make_outputs(c, b->res, texts, q->output_fd, &b->o));
    b->r = (struct dev_run){.in = in, .out = b->o.p, .cancel = &c->cancel, .texts = b->o.texts};
    return ST_OK;
}
static status_t run(struct worker_call *c, struct device *d, Hlod__Wire__RunReply *out) {
    const Hlod__Wire__Run *q = (const Hlod__Wire__Run *)c->request;
    struct worker_run b = {0};
    struct worker_outputs *o = &b.o;
    struct profile_runs profiles;
    int64_t begun = clock_ns(), last = begun;

    bool again = q->profile && dev_peak(d).machine; // measures the machine, the first time
    out->peak_ms = q->profile ? clock_ms_since(begun) : 0;
    begun = clock_ns();

    RETURN_IF_ERR(bind_run(c, &b));
    struct resident *res = b.res;
    profile_begin(&profiles, &c->arena, MAX_ROWS);
    again = again && !o->texts; // each run would add its own
    status_t st = run_all(c, res, b.w, &b.r, &profiles, again, out, &last);

    if (!st) st = send_outputs(c, q, res->exe->exe, o, out);
    if (!st && o->texts) st = send_in_one(c, out);
    if (!st && q->profile) {
        struct profile profile;
        int runs;
        profile_median(&profiles, &profile, &runs);
        // Medians together may take longer than the last run did: then that time is reported,
        // and it begins so much earlier, among the runs they are of.
        int64_t all = profile_end(&profile), ns = res->last_run_ns, early = all > ns ? all - ns : 0;
        if (early > last - begun) early = last - begun;
        out->profile =
            worker_profile(&c->arena, d, &profile, runs, clock_ms(ns + early), !q->foreign_names);
        out->profile->start_ms = clock_ms(last - begun - early);
    }

    out->peak_bytes = dev_stats(res->exe).arena_bytes;
    out->prepared_bytes = b.w->bytes;
    frame_unmap(o->base, o->base_bytes);
    return st;
}
WORKER_ANSWER(run) {
    if (!((const Hlod__Wire__Run *)c->request)->quiet)
        worker_call_event(c, HLOD__WIRE__TYPE__TYPE_RUNNING, NULL);
    status_t st = run(c, d, reply);
    worker_unpin();
    return st;
}

enum { BRIEF_NS = 50000 };
bool worker_run_is_brief(const struct worker_call *c) {
    const Hlod__Wire__Run *q = (const Hlod__Wire__Run *)c->request;
    struct digest key;
    struct resident *r = digest_of(q->key, &key) ? find(key) : NULL;
    return r && !q->profile && q->repeat <= 1 && r->last_run_ns > 0 && r->last_run_ns <= BRIEF_NS &&
           dev_stats(r->exe).one_thread;
}

// ---- runs at the same time

bool worker_runs_alike(const struct worker_call *a, const struct worker_call *b) {
    if (a->type != HLOD__WIRE__TYPE__TYPE_RUN || b->type != a->type) return false;
    const Hlod__Wire__Run *p = (const Hlod__Wire__Run *)a->request,
                          *q = (const Hlod__Wire__Run *)b->request;
    struct digest k, e;
    return digest_of(p->key, &k) && digest_of(q->key, &e) && digest_eq(k, e) && !p->profile &&
           !q->profile && p->repeat <= 1 && q->repeat <= 1;
}

bool worker_run_has_streams(const struct worker_call *c, int n) {
    const Hlod__Wire__Run *q = (const Hlod__Wire__Run *)c->request;
    struct digest key;
    struct resident *r = digest_of(q->key, &key) ? find(key) : NULL;
    if (!r || r->no_streams || r->text || r->last_run_ns < STREAM_LEAST_NS) return false;
    for (int k = 0; k < n && !r->no_streams; k++) {
        status_t st = r->streams[k] ? ST_OK : dev_stream(r->exe, &r->streams[k]);
        r->no_streams = st != NULL;
        st_drop(st);
    }
    weigh(r);
    return !r->no_streams;
}

status_t worker_run_begin(struct worker_call *c, void *reply, struct worker_run **out) {
    struct worker_run *b = arena_new_of(&c->arena, struct worker_run);
    *b = (struct worker_run){.c = c, .reply = reply};
    RETURN_IF_ERR(bind_run(c, b));
    *out = b;
    return ST_OK;
}
void worker_run_compute(struct worker_run *b, int stream) {
    int64_t start = clock_ns();
    b->st = dev_run(b->res->streams[stream], b->w, &b->r);
    b->ns = clock_ns() - start;
}
struct worker_call *worker_run_call(const struct worker_run *b) {
    return b->c;
}
void *worker_run_reply(const struct worker_run *b) {
    return b->reply;
}
status_t worker_run_end(struct worker_run *b) {
    const Hlod__Wire__Run *q = (const Hlod__Wire__Run *)b->c->request;
    Hlod__Wire__RunReply *out = b->reply;
    out->n_run_ms = 1;
    out->run_ms = arena_array(&b->c->arena, double, 1);
    out->run_ms[0] = clock_ms(b->ns);
    if (!b->st) b->res->last_run_ns = b->ns;
    status_t st = b->st;
    if (!st) st = send_outputs(b->c, q, b->res->exe->exe, &b->o, out);
    out->peak_bytes = dev_stats(b->res->exe).arena_bytes;
    out->prepared_bytes = b->w->bytes;
    frame_unmap(b->o.base, b->o.base_bytes);
    return st;
}

WORKER_ANSWER(unload) {
    const Hlod__Wire__Unload *q = (const Hlod__Wire__Unload *)c->request;
    Hlod__Wire__UnloadReply *r = reply;
    struct digest key;
    struct resident *res = digest_of(q->key, &key) ? find(key) : NULL;
    int64_t before = prepared_total;
    if (res) drop(res);
    r->freed_bytes = before - prepared_total;
    return res ? ST_OK : not_here("the executable");
}
