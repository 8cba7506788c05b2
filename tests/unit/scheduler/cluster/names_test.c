// SPDX-License-Identifier: Apache-2.0
// Names of models that several nodes write: records in any order, any number of times, leave the
// same; what was removed stays so; a restart knows it all; what is no record.
#include "scheduler/cluster/names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "proto/message.h"
#include "tests/unit/scheduler/rig.h"

enum { RECORDS = 400, WRITERS = 3, NAMES = 5, VERSIONS = 3 };
static uint64_t seed = 1;
static unsigned draw(unsigned n) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned)(seed >> 33) % n;
}
static Hlod__Journal__NamedModel *record(struct arena *a) {
    static const char *const tenants[] = {"default", "t1"};
    Hlod__Journal__NamedModel *r = message_new(a, &hlod__journal__named_model__descriptor);
    uint8_t *digest = arena_zalloc(a, 32);
    digest[0] = (uint8_t)draw(256);
    r->name = arena_printf(a, "m%u", draw(NAMES));
    r->tenant = (char *)(uintptr_t)tenants[draw(2)];
    r->version = 1 + draw(VERSIONS);
    r->writer = arena_printf(a, "n%u", draw(WRITERS));
    r->revision = clock_wall_ns() / 1000 - 1000000 + draw(50);
    r->removed = draw(4) == 0;
    r->unloaded = draw(4) == 0;
    r->batch_max = (int32_t)draw(9);
    r->source = (ProtobufCBinaryData){32, digest};
    return r;
}
static void add_line(void *ctx, const Hlod__Journal__NamedModel *r) {
    struct strbuf *b = ctx;
    if (r->removed) return;
    strbuf_printf(b, "%s %s %" PRId64 " %s %d %d %d\n", r->tenant, r->name, r->version, r->writer,
                  r->source.data[0], r->unloaded, r->batch_max);
}
static int compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}
// What a node knows, as lines in order.
static char *known(struct models *m, struct arena *a) {
    struct strbuf b = {0};
    models_walk(m);
    while (models_walk_on(m, 3, add_line, &b))
        ;
    struct str text = {strbuf_cstr(&b), b.n}, line;
    const char *lines[RECORDS];
    size_t n = 0;
    while (text.n && str_cut(&text, '\n', &line))
        lines[n++] = arena_strndup(a, line.p, line.n);
    qsort(lines, n, sizeof *lines, compare);
    strbuf_clear(&b);
    for (size_t k = 0; k < n; k++)
        strbuf_printf(&b, "%s\n", lines[k]);
    char *all = arena_strdup(a, strbuf_cstr(&b));
    strbuf_done(&b);
    return all;
}

// Two records of one key, revision and writer are one record: made so.
static void make(struct arena *a, Hlod__Journal__NamedModel **v) {
    for (size_t k = 0; k < RECORDS; k++) {
        v[k] = record(a);
        for (size_t i = 0; i < k; i++)
            if (!strcmp(v[i]->name, v[k]->name) && !strcmp(v[i]->tenant, v[k]->tenant) &&
                v[i]->version == v[k]->version && v[i]->revision == v[k]->revision &&
                !strcmp(v[i]->writer, v[k]->writer))
                v[k] = v[i];
    }
}
static void any_order(void **state) {
    (void)state;
    rig_open(&(struct sched_config){0});
    struct arena a = {0};
    Hlod__Journal__NamedModel *v[RECORDS];
    struct models *one = sched_models(rig.s), *two, *again;
    size_t n, n2;
    make(&a, v);
    assert_null(models_new(rig.s, &two));
    models_share(one, "n0", NULL, NULL);
    models_share(two, "n1", NULL, NULL);
    for (size_t k = 0; k < RECORDS; k++)
        (void)models_merge(one, v[k]);
    char *want = known(one, &a);
    uint64_t sum = models_sum(one, &n);
    for (int round = 0; round < 3; round++) { // what was told before changes nothing
        for (size_t k = RECORDS; k > 1; k--) {
            size_t i = draw((unsigned)k);
            Hlod__Journal__NamedModel *x = v[i];
            v[i] = v[k - 1];
            v[k - 1] = x;
        }
        for (size_t k = 0; k < RECORDS; k++)
            (void)models_merge(two, v[k]);
        assert_true(sum == models_sum(two, &n2) && n == n2);
        assert_string_equal(known(two, &a), want);
    }
    UNTIL(!models_saving(one) && !models_saving(two));

    assert_null(models_new(rig.s, &again)); // from the journal
    models_share(again, "n2", NULL, NULL);
    assert_true(sum == models_sum(again, &n2) && n == n2);
    assert_string_equal(known(again, &a), want);
    for (size_t k = 0; k < RECORDS; k++)
        assert_int_equal(models_merge(again, v[k]), MODELS_OLD);
    UNTIL(!models_saving(again));
    models_free(two);
    models_free(again);
    arena_done(&a);
    rig_close();
}

static Hlod__Journal__NamedModel told;
static int n_told;
static void on_told(void *ctx, const Hlod__Journal__NamedModel *r) {
    (void)ctx;
    n_told++;
    told.removed = r->removed;
    told.revision = r->revision;
}
// Changes made here: each is newer than what it replaces, also than a removal and than what comes
// from a node whose clock is ahead.
static void own_changes(void **state) {
    (void)state;
    rig_open(&(struct sched_config){.max_names = 4});
    struct arena a = {0};
    struct models *m = sched_models(rig.s);
    struct named_model *x;
    struct batching none = {0};
    assert_null(models_set(m, "default", "old", 0, rig.source, none, &x));
    models_share(m, "n5", on_told, NULL);
    assert_null(models_set(m, "default", "a", 0, rig.source, none, &x));
    assert_true(n_told == 1 && !told.removed && !strcmp(x->writer, "n5"));
    int64_t revision = told.revision;
    models_load(m, x, false);
    assert_true(n_told == 2 && told.revision > revision);
    revision = told.revision;
    models_remove(m, x);
    assert_true(n_told == 3 && told.removed && told.revision > revision);
    revision = told.revision;
    assert_null(models_set(m, "default", "a", 0, rig.source, none, &x));
    assert_true(!told.removed && told.revision > revision);

    Hlod__Journal__NamedModel *r = record(&a);
    r->name = (char *)"a";
    r->tenant = (char *)"default";
    r->version = 1;
    r->removed = r->unloaded = false;
    r->revision = told.revision + 3600000000;
    assert_int_equal(models_merge(m, r), MODELS_TAKEN);
    models_load(m, x, false);
    assert_true(told.revision == r->revision + 1);
    r->name = (char *)"b";
    assert_int_equal(models_merge(m, r), MODELS_TAKEN);
    r->name = (char *)"c";
    assert_int_equal(models_merge(m, r), MODELS_TAKEN);
    r->name = (char *)"d";
    assert_int_equal(models_merge(m, r), MODELS_FULL);
    assert_non_null(models_naming(m, NULL, rig.source));
    assert_null(models_naming(m, "t1", rig.source));
    UNTIL(!models_saving(m));
    arena_done(&a);
    rig_close();
}

static void faults(void **state) {
    (void)state;
    struct arena a = {0};
    int64_t now = clock_wall_ns() / 1000000;
    Hlod__Journal__NamedModel *r = record(&a);
    r->removed = false;
    assert_null(names_fault(r, now));
#define BAD(field, v)                                                                              \
    do {                                                                                           \
        Hlod__Journal__NamedModel x = *r;                                                          \
        x.field = (v);                                                                             \
        assert_non_null(names_fault(&x, now));                                                     \
    } while (0)
    BAD(name, (char *)"");
    BAD(name, (char *)"..");
    BAD(name, (char *)"a b");
    BAD(tenant, (char *)"");
    BAD(tenant, (char *)"\xff");
    BAD(writer, (char *)"");
    BAD(version, 0);
    BAD(revision, 0);
    BAD(revision, INT64_MAX);
    BAD(revision, (now + 2 * (int64_t)NAMES_AHEAD_MS) * 1000);
    BAD(source.len, 31);
    BAD(batch_max, -1);
    BAD(batch_delay_us, -1);
    BAD(n_labels, 100000);

    Hlod__Cluster__Names m = HLOD__CLUSTER__NAMES__INIT;
    struct span bytes = message_pack(&a, &r->base);
    ProtobufCBinaryData one[2] = {{bytes.n, (uint8_t *)(uintptr_t)bytes.p}, {1, (uint8_t[]){255}}};
    m.records = one;
    m.n_records = 1;
    struct names_heard *h = names_read(&a, &m, now);
    assert_true(h && h->n == 1 && !strcmp(h->records[0]->name, r->name));
    m.n_records = 2;
    assert_null(names_read(&a, &m, now));
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_order), cmocka_unit_test(own_changes),
                                       cmocka_unit_test(faults)};
    return rig_main(tests);
}
