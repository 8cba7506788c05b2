// SPDX-License-Identifier: Apache-2.0
#include "scheduler/records/artifact.h"

#include <stdlib.h>
#include <string.h>

#include "proto/artifact.pb-c.h"
#include "proto/message.h"
#include "proto/weigh.h"

enum { VERSION = 3 };

static Hlod__Artifact__Artifact *unpack(struct arena *a, struct span bytes) {
    return weigh_unpack_in(a, &hlod__artifact__artifact__descriptor, bytes);
}

static status_t check(const Hlod__Artifact__Artifact *m, const Hlod__V1__ExecutableInfo *info) {
    if (!m) return st_invalid("the artefact cannot be read");
    if (m->version != VERSION)
        return st_invalid("the artefact has version %u, expected %u", m->version, VERSION);
    const struct {
        const char *what, *is, *said;
    } texts[] = {{"compiler build", m->build_id, info->build_id},
                 {"target", m->target_id, info->target_id},
                 {"options", m->options, info->options}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i].is, texts[i].said))
            return st_invalid("the artefact's %s is '%.200s', its record says '%.200s'",
                              texts[i].what, texts[i].is, texts[i].said);
    if (m->kernel_abi != info->kernel_abi)
        return st_invalid("the artefact has kernel interface %u, its record says %u", m->kernel_abi,
                          info->kernel_abi);
    return ST_OK;
}

status_t artifact_check(struct span artifact, const Hlod__V1__ExecutableInfo *info) {
    struct arena a = {0};
    status_t st = check(unpack(&a, artifact), info);
    arena_done(&a);
    return st;
}

// ---- difference

// How long things took is not part of what came out.
static void forget_times(Hlod__Artifact__Artifact *m) {
    m->compile_ns = 0;
    for (size_t i = 0; i < m->n_passes; i++)
        m->passes[i]->ms = 0;
}
// Nor is a plugin's account of its code, whose ids and order vary: the content digest has it
// neither.
static void forget_account(Hlod__Artifact__Emitted *e) {
    if (!e) return;
    free(e->optimized.data);
    e->optimized = (ProtobufCBinaryData){0, NULL};
}

static uint64_t varint(struct span s, size_t *at) {
    uint64_t v = 0;
    for (int shift = 0; *at < s.n && shift < 64; shift += 7) {
        uint8_t b = s.p[(*at)++];
        v |= (uint64_t)(b & 127) << shift;
        if (b < 128) break;
    }
    return v;
}
// The top-level field of a packed message that byte `at` belongs to.
static const char *field_at(const ProtobufCMessageDescriptor *d, struct span s, size_t at) {
    const ProtobufCFieldDescriptor *f = NULL;
    for (size_t i = 0; i <= at && i < s.n;) {
        uint64_t tag = varint(s, &i), n = 0;
        f = protobuf_c_message_descriptor_get_field(d, (unsigned)(tag >> 3));
        if ((tag & 7) == 0)
            varint(s, &i);
        else
            n = (tag & 7) == 1 ? 8 : (tag & 7) == 5 ? 4 : varint(s, &i);
        i += n < s.n - i ? n : s.n - i;
    }
    return f ? f->name : "form";
}

const char *artifact_difference(struct arena *a, struct span x, struct span y) {
    Hlod__Artifact__Artifact *m[2] = {unpack(a, x), unpack(a, y)};
    struct span s[2];
    if (!m[0] || !m[1]) return "form";
    for (int k = 0; k < 2; k++) {
        forget_times(m[k]);
        forget_account(m[k]->emitted);
        forget_account(m[k]->emitted_prepare);
        s[k] = message_pack(a, &m[k]->base);
    }
    size_t at = 0;
    while (at < s[0].n && at < s[1].n && s[0].p[at] == s[1].p[at])
        at++;
    if (at == s[0].n && at == s[1].n) return "";
    return field_at(m[0]->base.descriptor, at < s[0].n ? s[0] : s[1], at);
}
