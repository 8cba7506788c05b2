// SPDX-License-Identifier: Apache-2.0
// EXPECT: loads that are begun before LOAD comes, while the compiler makes code or the daemon
// stores the artefact. What is begun is kept under its key with the bytes that it was begun from;
// LOAD takes it where its own bytes say the same, else loads anew. It stops between two steps as
// soon as any other call waits, and keeps how far it came. Nothing depends on it: an EXPECT may be
// lost, fail, or be for what never comes; few are kept, and they go first when memory is short.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "devices/worker/worker_calls.h"

enum { MAX_BEGUN = 4 };
struct begun {
    struct digest key;
    struct dev_exe *x;    // NULL: free
    struct executable *e; // x's
    uint8_t *bytes;       // that e was unpacked from
    size_t n;
    bool whole; // not a draft
    int64_t ns; // worked at it
    uint64_t used;
};
static struct begun all[MAX_BEGUN];
static uint64_t tick;

static void drop(struct begun *b) {
    if (b->x) dev_unload(b->x);
    free(b->bytes);
    *b = (struct begun){0};
}
bool worker_begun_drop(void) {
    bool any = false;
    for (int k = 0; k < MAX_BEGUN; k++) {
        any = any || all[k].x;
        drop(&all[k]);
    }
    return any;
}
static struct begun *find(struct digest key) {
    for (int k = 0; k < MAX_BEGUN; k++)
        if (all[k].x && digest_eq(all[k].key, key)) return &all[k];
    return NULL;
}
static struct begun *oldest(void) {
    struct begun *b = &all[0];
    for (int k = 1; k < MAX_BEGUN && b->x; k++)
        if (!all[k].x || all[k].used < b->used) b = &all[k];
    return b;
}

// What the draft lacks, from a whole artefact. False: it is of another program.
static status_t complete(struct begun *b, struct span bytes, bool *out_same) {
    *out_same = true;
    if (!b->whole) return executable_complete(b->e, (struct span){b->bytes, b->n}, bytes, out_same);
    *out_same = bytes.n == b->n && memcmp(bytes.p, b->bytes, b->n) == 0;
    return ST_OK;
}

bool worker_begun(struct digest key, struct span artifact, const _Atomic bool *cancel,
                  struct dev_exe **out, int64_t *out_ns) {
    struct begun *b = find(key);
    bool same = false;
    *out = NULL;
    if (!b) return false;
    *out_ns = b->ns;
    status_t st = complete(b, artifact, &same);
    if (!st && same) st = b->x->dev->vt->finish(b->x, cancel);
    bool used = same && (!st || st_code(st) == ST_CANCELLED);
    if (!st && same) {
        *out = b->x;
        b->x = NULL;
    }
    st_drop(st); // loading anew says what is wrong
    drop(b);
    return used;
}

// ---- the call

static status_t begin(struct device *d, struct begun *b, const _Atomic bool *stop) {
    struct span bytes = {b->bytes, b->n};
    if (b->whole)
        RETURN_IF_ERR(executable_unpack(bytes, &b->e));
    else
        RETURN_IF_ERR(executable_unpack_main(bytes, &b->e));
    return d->vt->begin(d, b->e, stop, &b->x); // takes e
}
// A whole artefact behind its draft. False: nothing to go on with is left.
static status_t go_on(struct begun *b, uint8_t *bytes, size_t n, bool *out_same) {
    RETURN_IF_ERR(complete(b, (struct span){bytes, n}, out_same));
    if (!*out_same || b->whole) return ST_OK;
    uint8_t *draft = b->bytes;
    b->bytes = bytes;
    b->n = n;
    b->whole = true;
    free(draft);
    return ST_OK;
}

// Takes bytes.
static status_t expect(struct worker_call *c, struct device *d, struct digest key, uint8_t *bytes,
                       size_t n, bool whole) {
    struct begun *b = find(key);
    bool same = false;
    status_t st = ST_OK;
    if (b && whole) st = go_on(b, bytes, n, &same);
    if (same && b->bytes != bytes) free(bytes);
    if (b && !same) drop(b);
    if (!same) {
        b = oldest();
        drop(b);
        *b = (struct begun){.key = key, .bytes = bytes, .n = n, .whole = whole};
        st_drop(st);
        st = begin(d, b, &c->cancel);
    }
    b->used = ++tick;
    if (!st && whole && !c->cancel) st = d->vt->finish(b->x, &c->cancel);
    if (st_code(st) == ST_CANCELLED) {
        st_drop(st);
        return ST_OK;
    }
    if (st) drop(b);
    return st;
}

static status_t serve(struct worker_call *c, struct device *d) {
    const Hlod__Wire__Expect *q = (const Hlod__Wire__Expect *)c->request;
    struct digest key;
    struct span bytes;
    if (!d->vt->begin || c->cancel) return ST_OK;
    if (q->key.len != sizeof key.b) return st_internal("key is not a digest");
    memcpy(key.b, q->key.data, sizeof key.b);
    RETURN_IF_ERR(worker_call_blob(c, q->artifact, &bytes));
    if (!bytes.n) return st_internal("an EXPECT without an artefact");
    uint8_t *own = malloc(bytes.n); // it cannot change while it is read
    if (!own) return st_oom();
    memcpy(own, bytes.p, bytes.n);
    int64_t start = clock_ns();
    status_t st = expect(c, d, key, own, bytes.n, q->whole);
    struct begun *b = find(key);
    if (b) b->ns += clock_ns() - start;
    return st;
}
WORKER_ANSWER(expect) {
    int64_t start = clock_ns();
    status_t st = serve(c, d);
    ((Hlod__Wire__ExpectReply *)reply)->ms = clock_ms_since(start);
    return st;
}
