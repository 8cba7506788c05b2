// SPDX-License-Identifier: Apache-2.0
// See mutate.h. A copy of the message is changed field by field, by its descriptor, so that it
// still parses and reaches the code behind the parser. A test program: the copies leak.
#include "tests/fuzz/mutate.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/frame.h"
#include "proto/wire.pb-c.h"

static uint64_t state;

void mutate_seed(uint64_t seed) {
    state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
}
static uint64_t next(void) { // xorshift
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}
static bool one_in(unsigned n) {
    return next() % n == 0;
}

static int64_t odd_number(void) {
    static const int64_t some[] = {0,         1,  2,       3,       16,        64,        65,
                                   99,        -1, 4096,    1 << 20, INT32_MAX, INT32_MIN, 1ll << 32,
                                   INT64_MAX, -4, 1 << 16, 1 << 30, INT64_MIN, 1ll << 62, 7};
    return some[next() % (sizeof some / sizeof *some)];
}
static char *odd_text(void) {
    static const char *const some[] = {"",        "x",        "f32",      "string", "u8",
                                       "no such", "\xff\xfe", "p.0",      "..\n",   "cpu:0",
                                       "a=b;c",   "\"\\\r",   "HloModule"};
    if (!one_in(8)) return strdup(some[next() % (sizeof some / sizeof *some)]);
    char *long_one = malloc(70001);
    memset(long_one, 'a', 70000);
    long_one[70000] = 0;
    return long_one;
}

static void change_message(ProtobufCMessage *m, unsigned odds, int depth);
static void change_one(const ProtobufCFieldDescriptor *f, void *at, unsigned odds, int depth) {
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        *(char **)at = odd_text();
        break;
    case PROTOBUF_C_TYPE_BYTES: {
        ProtobufCBinaryData *b = at;
        size_t n = one_in(2) ? b->len / 2 : b->len + next() % 100;
        uint8_t *p = malloc(n + 1);
        for (size_t i = 0; i < n; i++)
            p[i] = i < b->len && !one_in(8) ? b->data[i] : (uint8_t)next();
        *b = (ProtobufCBinaryData){n, p};
        break;
    }
    case PROTOBUF_C_TYPE_MESSAGE:
        change_message(*(ProtobufCMessage **)at, odds, depth);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        *(double *)at = one_in(3) ? -1 : one_in(2) ? 1e300 : (double)odd_number();
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
        *(int64_t *)at = odd_number();
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)at = !*(protobuf_c_boolean *)at;
        break;
    default:
        *(int32_t *)at = (int32_t)odd_number();
    }
}
static size_t size_of(ProtobufCType t) {
    switch (t) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    default:
        return 4;
    }
}
// A list loses its end, or its first element stands everywhere and once more.
static void change_list(const ProtobufCFieldDescriptor *f, size_t *n, void **list) {
    size_t size = size_of(f->type);
    if (*n == 0) return;
    if (one_in(2)) {
        *n = next() % *n;
        return;
    }
    uint8_t *p = malloc((*n + 1) * size);
    for (size_t i = 0; i <= *n; i++)
        memcpy(p + i * size, *list, size);
    *list = p;
    *n += 1;
}
static void change_message(ProtobufCMessage *m, unsigned odds, int depth) {
    if (!m || depth > 8) return;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        uint8_t *at = (uint8_t *)m + f->offset;
        bool is_message = f->type == PROTOBUF_C_TYPE_MESSAGE;
        if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) continue;
        if (f->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t *n = (size_t *)(void *)((uint8_t *)m + f->quantifier_offset);
            if (one_in(odds)) change_list(f, n, (void **)(void *)at);
            for (size_t k = 0; k < *n && k < 50; k++)
                if (is_message || one_in(odds))
                    change_one(f, *(uint8_t **)(void *)at + k * size_of(f->type), odds, depth + 1);
        } else if (is_message && one_in(odds)) {
            *(ProtobufCMessage **)(void *)at = NULL;
        } else if (is_message || one_in(odds)) {
            change_one(f, at, odds, depth + 1);
        }
    }
}

// No frame at all, or one whose head and contents disagree: costs the worker its life.
static void send_broken(int sock, uint32_t type, uint64_t call) {
    struct {
        uint32_t magic, type;
        uint64_t call;
        uint32_t flags, n_fds;
        uint64_t body_bytes;
        uint8_t body[16];
    } f = {0x31464c48, type, call, 0, 0, 16, {0}};
    size_t n = sizeof f;
    switch (next() % 7) {
    case 0:
        n = next() % 32 + 1;
        break;
    case 1:
        f.magic = (uint32_t)next();
        break;
    case 2:
        f.type = 0;
        break;
    case 3:
        f.flags = (uint32_t)next();
        break;
    case 4:
        f.n_fds = (uint32_t)odd_number() | 1;
        break;
    case 5:
        f.body_bytes = (uint64_t)odd_number();
        break;
    default:
        f.flags = 1; // a body by descriptor, without one
        n = 32;
    }
    (void)!send(sock, &f, n, MSG_NOSIGNAL);
}

static int odd_fd(void) {
    int p[2], fd;
    switch (next() % 3) {
    case 0: // shrinks when it likes
        fd = memfd_create("odd", MFD_CLOEXEC);
        (void)!ftruncate(fd, 100);
        return fd;
    case 1:
        if (pipe(p)) abort();
        close(p[1]);
        return p[0];
    default:
        if (frame_memfd("odd", 64, &fd)) abort();
        return fd;
    }
}

void mutate_send(int sock, uint32_t type, uint64_t call, const ProtobufCMessage *m, const int *fds,
                 int n_fds) {
    if (one_in(150)) {
        send_broken(sock, type, call);
        return;
    }
    if (one_in(60)) return; // says nothing
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = malloc(n + 1);
    protobuf_c_message_pack(m, bytes);
    ProtobufCMessage *copy = protobuf_c_message_unpack(m->descriptor, NULL, n, bytes);
    if (!copy) abort();
    if (one_in(3)) change_message(copy, one_in(3) ? 4 : 25, 0);
    int all[FRAME_MAX_FDS], n_all = 0;
    for (; n_all < n_fds && !one_in(20); n_all++)
        all[n_all] = dup(fds[n_all]);
    int more = one_in(25) ? (int)(next() % (one_in(3) ? FRAME_MAX_FDS : 3)) : 0;
    while (more-- > 0 && n_all < FRAME_MAX_FDS)
        all[n_all++] = odd_fd();
    if (one_in(60)) call = one_in(2) ? call + next() % 3 - 1 : next();
    if (one_in(60)) type = one_in(2) ? type + 1 : (uint32_t)(next() % 70 + 1);
    for (int times = one_in(30) ? 2 : 1; times > 0; times--)
        if (frame_send_msg(sock, type, call, copy, all, n_all, -1)) exit(0);
    for (int i = 0; i < n_all; i++)
        close(all[i]);
    if (one_in(40)) { // a stray one: an event or a reply to nobody, or junk as a body
        uint8_t junk[40];
        for (size_t i = 0; i < sizeof junk; i++)
            junk[i] = (uint8_t)next();
        struct span body = {junk, next() % sizeof junk};
        uint32_t strays[] = {HLOD__WIRE__TYPE__TYPE_PASS,        HLOD__WIRE__TYPE__TYPE_RUNNING,
                             HLOD__WIRE__TYPE__TYPE_STEP,        HLOD__WIRE__TYPE__TYPE_HELLO,
                             HLOD__WIRE__TYPE__TYPE_STATS_REPLY, type};
        if (frame_send(sock, strays[next() % 6], one_in(2) ? call : 0, body, NULL, 0, -1)) exit(0);
    }
}
