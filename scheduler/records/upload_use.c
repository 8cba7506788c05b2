// SPDX-License-Identifier: Apache-2.0
// Models that came with calls: whose they are, and the end of those that no reader takes, so that
// such bytes cannot fill the disk. Only what the call itself wrote may go, and only while nobody
// else counts on it.
#include <stdlib.h>
#include <string.h>

#include "base/store/store.h"
#include "scheduler/loop.h"
#include "scheduler/records/blobs.h"
#include "scheduler/records/journal.h"
#include "scheduler/sched_inside.h"

static void count(struct sched *s, struct digest d, intptr_t by) {
    intptr_t n = (intptr_t)smap_get(&s->uploads, digest_str(&d)) + by;
    if (n > 0)
        smap_put(&s->uploads, digest_str(&d), (void *)n);
    else
        smap_del(&s->uploads, digest_str(&d));
}
void sched_upload(struct sched *s, const char *tenant, struct digest source) {
    owners_add(s->owners, tenant, source, (struct digest){0});
    count(s, source, 1);
}
void sched_upload_used(struct sched *s, struct digest source) {
    count(s, source, -1);
}

struct drop {
    struct sched *s;
    struct digest d, record;
    uint64_t file;
};
static void drop_work(void *arg) {
    struct drop *w = arg;
    struct arena a = {0};
    struct span rec;
    int owners = 0;
    status_t read = journal_get(w->s->journal, JOURNAL_SOURCE, w->record, &a, &rec),
             st = owners_written(w->s->journal, w->d, &owners);
    if (st_code(read) == ST_NOT_FOUND && !st && owners <= 1)
        blob_remove(w->s->store, w->s->journal,
                    &(struct unused_blob){.digest = w->d, .file = w->file});
    st_drop(read);
    st_drop(st);
    arena_done(&a);
}
static void dropped(void *arg) {
    free(arg);
}
void sched_drop_upload(struct sched *s, const char *tenant, struct digest source, uint64_t file) {
    if ((intptr_t)smap_get(&s->uploads, digest_str(&source)) > 1 ||
        owners_count(s->owners, source) > 1 || sched_remembers(s, source))
        return;
    struct drop *w = calloc(1, sizeof *w);
    if (!w) return;
    *w = (struct drop){s, source, sched_record(s, tenant, source), file};
    owners_forget(s->owners, tenant, source);
    loop_work(s->loop, drop_work, dropped, w);
}
