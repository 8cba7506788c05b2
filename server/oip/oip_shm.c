// SPDX-License-Identifier: Apache-2.0
// System shared memory of the Open Inference Protocol: a client on this machine registers a POSIX
// shared memory object and lets tensors lie there. Off unless --allow-shared-memory: whoever may
// call names objects of every user that the daemon may open. Objects are read and written through
// their descriptors, never mapped: a client that shortens one gets an error, not us a signal. A
// region is its tenant's: its name is among that tenant's names, and while one tenant has a region
// in an object no other may have one there.
// Device memory (CUDA) is not offered.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/message.h"
#include "server/body/tensors.h"
#include "server/oip/oip.h"

enum { MAX_REGIONS = 1024, MAX_OF_TENANT = 256, MAX_KEY = 250 };
struct region {
    struct region *next;
    char *name, *key, *tenant;
    int64_t offset, bytes;
    int fd;
};
struct oip_regions {
    struct region *first;
    size_t n;
};

struct oip_regions *oip_regions_new(void) {
    struct oip_regions *r = arena_must_calloc(1, sizeof *r);
    return r;
}
static void drop(struct oip_regions *all, struct region **at) {
    struct region *x = *at;
    *at = x->next;
    all->n--;
    if (x->fd >= 0) close(x->fd);
    free(x->name);
    free(x->key);
    free(x->tenant);
    free(x);
}
void oip_regions_free(struct oip_regions *all) {
    if (!all) return;
    while (all->first)
        drop(all, &all->first);
    free(all);
}

MUST_CHECK static status_t bad(const char *name, const char *why) {
    return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "shared memory region '%.100s': %s", name,
                      why);
}
MUST_CHECK static status_t off(void) {
    return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                      "shared memory is off: start hlod with --allow-shared-memory");
}
static const char *tenant_of(const struct call *c) {
    return c->principal.tenant && *c->principal.tenant ? c->principal.tenant : "default";
}
// name "": the first of the caller's.
static struct region **find(const struct call *c, const char *name) {
    struct region **at = &c->api->regions->first;
    while (*at && (strcmp((*at)->tenant, tenant_of(c)) || (*name && strcmp((*at)->name, name))))
        at = &(*at)->next;
    return at;
}
static bool is_anothers(const struct call *c, const char *base) {
    for (const struct region *x = c->api->regions->first; x; x = x->next)
        if (!strcmp(x->key + 1, base) && strcmp(x->tenant, tenant_of(c))) return true;
    return false;
}

// ---- the calls

static status_t add(const struct call *c, const char *name, const char *key, uint64_t offset,
                    uint64_t bytes) {
    struct oip_regions *all = c->api->regions;
    size_t mine = 0;
    for (const struct region *x = all->first; x; x = x->next)
        mine += !strcmp(x->tenant, tenant_of(c));
    const char *base = *key == '/' ? key + 1 : key;
    size_t n = strlen(base);
    if (!*name) return bad(name, "no name");
    if (n == 0 || n > MAX_KEY || strchr(base, '/') || !strcmp(base, ".") || !strcmp(base, ".."))
        return bad(name, "a key is the name of a POSIX shared memory object, '/NAME'");
    if (*find(c, name)) return bad(name, "is registered already");
    if (all->n >= MAX_REGIONS || mine >= MAX_OF_TENANT) return st_exhausted("too many regions");

    struct region *x = calloc(1, sizeof *x);
    if (!x || !(x->name = strdup(name)) || !(x->tenant = strdup(tenant_of(c))) ||
        asprintf(&x->key, "/%s", base) < 0)
        abort();
    struct stat sb;
    // Another's is as one that is not there.
    x->fd = is_anothers(c, base) ? -1 : shm_open(x->key, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
    bool there = x->fd >= 0 && fstat(x->fd, &sb) == 0 && S_ISREG(sb.st_mode);
    x->next = all->first;
    all->first = x;
    all->n++;
    if (!there) {
        drop(all, &all->first);
        return bad(name, "cannot open its object");
    }
    if (bytes == 0 || offset > (uint64_t)sb.st_size || bytes > (uint64_t)sb.st_size - offset) {
        drop(all, &all->first);
        return bad(name, "offset and byte_size go beyond its object");
    }
    x->offset = (int64_t)offset;
    x->bytes = (int64_t)bytes;
    return ST_OK;
}

// An answer that says nothing but that it is one.
static status_t reply_empty(struct call *c) {
    return call_reply(c, message_new(&c->arena, c->row->output));
}
status_t oip_shm_register(struct call *c) {
    const Inference__SystemSharedMemoryRegisterRequest *q = call_request(c);
    RETURN_IF_ERR(c->api->regions ? add(c, q->name, q->key, q->offset, q->byte_size) : off());
    return reply_empty(c);
}

status_t oip_shm_unregister(struct call *c) {
    const Inference__SystemSharedMemoryUnregisterRequest *q = call_request(c);
    struct oip_regions *all = c->api->regions;
    for (struct region **at; all && *(at = find(c, q->name));) // no name: all of the caller's
        drop(all, at); // absent is fine, as with the others
    return reply_empty(c);
}

status_t oip_shm_status(struct call *c) {
    typedef Inference__SystemSharedMemoryStatusResponse__RegionsEntry entry;
    typedef Inference__SystemSharedMemoryStatusResponse__RegionStatus row;
    const Inference__SystemSharedMemoryStatusRequest *q = call_request(c);
    Inference__SystemSharedMemoryStatusResponse *m =
        message_new(&c->arena, &inference__system_shared_memory_status_response__descriptor);
    const struct oip_regions *all = c->api->regions;
    m->regions = arena_array(&c->arena, entry *, all ? all->n + 1 : 1);
    for (const struct region *x = all ? all->first : NULL; x; x = x->next) {
        if ((*q->name && strcmp(q->name, x->name)) || strcmp(x->tenant, tenant_of(c))) continue;
        entry *e = m->regions[m->n_regions++] = message_new(
            &c->arena, &inference__system_shared_memory_status_response__regions_entry__descriptor);
        row *r = message_new(
            &c->arena, &inference__system_shared_memory_status_response__region_status__descriptor);
        r->name = e->key = arena_strdup(&c->arena, x->name);
        r->key = arena_strdup(&c->arena, x->key);
        r->offset = (uint64_t)x->offset;
        r->byte_size = (uint64_t)x->bytes;
        e->value = r;
    }
    return *q->name && !m->n_regions ? bad(q->name, "is not registered") : call_reply(c, &m->base);
}

status_t oip_cuda(struct call *c) {
    if (c->row != &api_rows[ROW_CudaSharedMemoryRegister]) return reply_empty(c);
    return st_because(
        ST_INVALID_ARGUMENT, BAD_OPTION,
        "CUDA shared memory is not offered: send tensors in binary form, or keep them "
        "on the device by handle (/v1/buffers)");
}

// ---- tensors there

// The part of a region that a tensor's parameters name.
static status_t place_of(const struct call *c, const ProtobufCMessage *tensor, struct region **out,
                         int64_t *at, int64_t *bytes) {
    const Inference__InferParameter *p = oip_parameter(tensor, "shared_memory_region");
    if (!c->api->regions) return off();
    const char *name =
        p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM
            ? p->string_param
            : "";
    struct region *x = *name ? *find(c, name) : NULL;
    if (!x) return bad(name, "is not registered");
    *at = 0;
    oip_integer(oip_parameter(tensor, "shared_memory_offset"), at);
    if (!oip_integer(oip_parameter(tensor, "shared_memory_byte_size"), bytes))
        return bad(name, "shared_memory_byte_size is not given");
    if (*at < 0 || *bytes < 0 || *at > x->bytes || *bytes > x->bytes - *at)
        return bad(name, "the tensor goes beyond it");
    *at += x->offset;
    *out = x;
    return ST_OK;
}

status_t oip_region_read(struct call *c, const ProtobufCMessage *tensor,
                         const struct job_input *in) {
    struct region *x;
    int64_t at, bytes;
    RETURN_IF_ERR(place_of(c, tensor, &x, &at, &bytes));
    if (bytes != in->size) return bad(x->name, "shared_memory_byte_size is not the input's size");
    uint8_t piece[64 << 10];
    for (int64_t done = 0; done < bytes;) {
        size_t want = bytes - done < (int64_t)sizeof piece ? (size_t)(bytes - done) : sizeof piece;
        ssize_t n = pread(x->fd, piece, want, at + done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return bad(x->name, "its object was made shorter");
        RETURN_IF_ERR(tensors_put(c, in->offset + done, piece, (size_t)n));
        done += n;
    }
    return ST_OK;
}

status_t oip_region_write(struct call *c, const ProtobufCMessage *tensor, struct span data) {
    struct region *x;
    int64_t at, bytes;
    struct stat sb;
    RETURN_IF_ERR(place_of(c, tensor, &x, &at, &bytes));
    if (bytes < (int64_t)data.n)
        return bad(x->name, "shared_memory_byte_size is less than the output's size");
    if (fstat(x->fd, &sb) || sb.st_size < at + (int64_t)data.n)
        return bad(x->name, "its object was made shorter");
    while (data.n) {
        ssize_t n = pwrite(x->fd, data.p, data.n, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return bad(x->name, "cannot be written");
        data.p += n;
        data.n -= (size_t)n;
        at += n;
    }
    return ST_OK;
}
