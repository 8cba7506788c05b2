// SPDX-License-Identifier: Apache-2.0
// hlo_pb_kept: the rows of hlo_pb_rows.c. put reads the text into fields, false when it cannot;
// get appends the text of the fields, nothing when they are not set.
#pragma once
#include "compiler/frontend/hlo/hlo_pb.h"

struct pb_kept {
    const char *name;
    bool (*put)(struct arena *a, struct str text, Xla__HloInstructionProto *p);
    void (*get)(struct strbuf *b, enum hlo_op op, const Xla__HloInstructionProto *p);
};
// How a put and a get function begin.
#define PUT(name)                                                                                  \
    bool pb_row_put_##name(UNUSED struct arena *a, struct str text, Xla__HloInstructionProto *p)
#define GET(name)                                                                                  \
    void pb_row_get_##name(struct strbuf *b, UNUSED enum hlo_op op,                                \
                           const Xla__HloInstructionProto *p)

static inline struct cursor over(struct str s) {
    return (struct cursor){s.p, s.p + s.n};
}

// ---- lists of numbers

// "{1,2}" or "[1,2]" into a repeated field; false when it is something else.
#define TAKE_LIST(a, c, open, close, p, field)                                                     \
    ({                                                                                             \
        int64_t v_;                                                                                \
        bool ok_ = p_take(c, open);                                                                \
        while (ok_ && !p_take(c, close)) {                                                         \
            ok_ = ((p)->n_##field == 0 || p_take(c, ",")) && p_i64(c, &v_);                        \
            if (ok_) PB_PUSH(a, p, field, v_);                                                     \
        }                                                                                          \
        ok_;                                                                                       \
    })
#define PUT_LIST(b, open, close, p, field)                                                         \
    do {                                                                                           \
        strbuf_puts(b, open);                                                                      \
        for (size_t k_ = 0; k_ < (p)->n_##field; k_++)                                             \
            strbuf_printf(b, "%s%lld", k_ ? "," : "", (long long)(p)->field[k_]);                  \
        strbuf_puts(b, close);                                                                     \
    } while (0)

// hlo_pb_devices.c
PUT(sharding);
GET(sharding);
PUT(domain);
GET(domain);
PUT(replica_groups);
GET(replica_groups);
PUT(source_target_pairs);
GET(source_target_pairs);
PUT(slice_sizes);
GET(slice_sizes);

extern const struct pb_kept pb_kept_rows[]; // ends with a row without name
const struct pb_kept *pb_kept_find(struct str name);

void pb_put_module_attr(struct arena *a, struct str name, struct str text, Xla__HloModuleProto *p);
void pb_get_module_attr(struct strbuf *b, struct str name, const Xla__HloModuleProto *p);
