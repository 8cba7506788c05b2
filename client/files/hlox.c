// SPDX-License-Identifier: Apache-2.0
#include "client/files/hlox.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/store/file.h"
#include "client/hlod_jobs.h"
#include "proto/hlod.pb-c.h"

static const char magic[] = "hlox 1\n";
enum { MAGIC = sizeof magic - 1, MAX_HEAD = 1 << 20 };

bool hlox_sniff(const char *path) {
    char head[MAGIC];
    FILE *f = fopen(path, "re");
    bool is = f && fread(head, 1, MAGIC, f) == MAGIC && !memcmp(head, magic, MAGIC);
    if (f) fclose(f);
    return is;
}

static status_t damaged(const char *path, const char *why) MUST_CHECK;
static status_t damaged(const char *path, const char *why) {
    return st_new(ST_DATA_LOSS, "%s: %s", path, why);
}

static status_t read_head(struct arena *a, const char *path, const json_t *j, struct span rest,
                          struct hlox *out) {
    json_int_t bundle = json_integer_value(json_object_get(j, "bundleBytes")),
               model = json_integer_value(json_object_get(j, "modelBytes"));
    if (bundle <= 0 || model <= 0 || (uint64_t)bundle > rest.n ||
        (uint64_t)model != rest.n - (uint64_t)bundle)
        return damaged(path, "the file is cut short, or longer than it says");
    char hex[65];
    struct digest is;
    if (!digest_parse(str_of(text_at(j, "executable")), &is))
        return st_new(ST_INVALID_ARGUMENT, "%s: its executable is no digest", path);
    digest_hex(sha256_of(rest.p, (size_t)bundle), hex);
    if (strcmp(hex, text_at(j, "bundleSha256")) != 0)
        return damaged(path, "the executable in it does not have its digest");
    if (strpbrk(text_at(j, "query"), " \r\n#"))
        return st_new(ST_INVALID_ARGUMENT, "%s: its query is none", path);
    *out = (struct hlox){.query = arena_strdup(a, text_at(j, "query")),
                         .executable = arena_strdup(a, text_at(j, "executable")),
                         .bundle = {rest.p, (size_t)bundle},
                         .model = {rest.p + bundle, (size_t)model}};
    return ST_OK;
}

status_t hlox_open(struct arena *a, const char *path, struct hlox *out) {
    struct span all;
    RETURN_IF_ERR(file_map(a, path, &all));
    if (all.n < MAGIC || memcmp(all.p, magic, MAGIC) != 0)
        return st_new(ST_INVALID_ARGUMENT, "%s is no executable of `hlo compile -o`", path);
    const uint8_t *head = all.p + MAGIC;
    size_t most = all.n - MAGIC < MAX_HEAD ? all.n - MAGIC : MAX_HEAD;
    const uint8_t *end = memchr(head, '\n', most);
    json_error_t e;
    json_t *j = end ? json_loadb((const char *)head, (size_t)(end - head), 0, &e) : NULL;
    if (!j) return damaged(path, "its head cannot be read");
    struct span rest = {end + 1, all.n - (size_t)(end + 1 - all.p)};
    status_t st = read_head(a, path, j, rest, out);
    json_decref(j);
    return st;
}

static status_t write_parts(const char *path, const struct span *parts, size_t n) {
    char tmp[4096];
    if (snprintf(tmp, sizeof tmp, "%s.new", path) >= (int)sizeof tmp)
        return st_new(ST_INVALID_ARGUMENT, "%.100s...: the name is too long", path);
    FILE *f = fopen(tmp, "we");
    if (!f) return st_errno(errno, tmp);
    bool ok = true;
    for (size_t k = 0; k < n && ok; k++)
        ok = fwrite(parts[k].p, 1, parts[k].n, f) == parts[k].n;
    if (fclose(f) || !ok || rename(tmp, path)) {
        status_t st = st_errno(errno, path);
        unlink(tmp);
        return st;
    }
    return ST_OK;
}

static struct span text_span(const char *z) {
    return (struct span){(const uint8_t *)z, strlen(z)};
}

int hlox_export(struct hlo *h, const char *digest, struct hlod_blob **out) {
    Hlod__V1__ExportExecutableRequest q = HLOD__V1__EXPORT_EXECUTABLE_REQUEST__INIT;
    q.digest = (char *)(uintptr_t)digest;
    uint8_t *bytes = arena_alloc(&h->arena, protobuf_c_message_get_packed_size(&q.base) + 1);
    size_t n = protobuf_c_message_pack(&q.base, bytes);
    status_t st = hlo_open(h);
    if (st) return fail_status(st);
    return hlod_call_message(h->hlod, "ExportExecutable", bytes, n, out) ? hlo_fail(h, EXIT_REFUSED)
                                                                         : 0;
}

int hlox_write(struct hlo *h, const char *path, const char *digest, const char *query,
               const char *target, const struct span *model, size_t n_model) {
    struct hlod_blob *b;
    int rc = hlox_export(h, digest, &b);
    if (!rc) {
        struct span bundle = {b->data, b->bytes};
        char hex[65];
        json_int_t bytes = 0;
        digest_hex(sha256_of(bundle.p, bundle.n), hex);
        for (size_t k = 0; k < n_model; k++)
            bytes += (json_int_t)model[k].n;
        json_t *j = json_pack("{s:s, s:s, s:s, s:I, s:s, s:I}", "query", query, "target", target,
                              "executable", digest, "bundleBytes", (json_int_t)bundle.n,
                              "bundleSha256", hex, "modelBytes", bytes);

        char *head = j ? json_dumps(j, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
        json_decref(j);
        struct span *parts = arena_array(&h->arena, struct span, n_model + 4);
        parts[0] = text_span(magic);
        parts[1] = text_span(head ? head : "");
        parts[2] = text_span("\n");
        parts[3] = bundle;
        memcpy(parts + 4, model, n_model * sizeof *model);
        status_t st = head ? write_parts(path, parts, n_model + 4) : st_oom();
        free(head);
        if (st) rc = fail_status(st);
        hlod_blob_free(b);
    }
    return rc;
}

int hlox_import(struct hlo *h, const struct hlox *x) {
    json_t *there = hlo_try(h, "GetExecutable", json_pack("{s:s}", "digest", x->executable));
    json_decref(there);
    if (there) return 0;

    status_t st = hlo_open(h);
    if (st) return fail_status(st);
    if (!hlod_call_message(h->hlod, "ImportExecutable", x->bundle.p, x->bundle.n, NULL)) return 0;
    const struct hlod_error *e = hlod_error(h->hlod);
    if (!e->answered) return hlo_fail(h, EXIT_REFUSED);
    if (!h->quiet)
        fprintf(stderr, "the executable is not taken (%s): the model in the file is compiled\n",
                e->message);
    return 0;
}
