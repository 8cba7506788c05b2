// SPDX-License-Identifier: Apache-2.0
// hlo_pb: the pieces that reading and writing of HloModuleProto share. Text of shapes and of kept
// attributes goes through the text parser (compiler/ir/text/parser.h), so both formats have one
// meaning.
#pragma once
#include "compiler/ir/text/parser.h"
#include "proto/formats/hlo.pb-c.h"
#include "proto/message.h"

// Appends to a repeated field whose count is n_<field>, in the arena.
#define PB_PUSH(a, p, field, x)                                                                    \
    do {                                                                                           \
        size_t n_ = (p)->n_##field;                                                                \
        if ((n_ & (n_ - 1)) == 0) {                                                                \
            void *grown_ = arena_alloc((a), sizeof *(p)->field * (n_ ? 2 * n_ : 1));               \
            if (n_) memcpy(grown_, (p)->field, sizeof *(p)->field *n_);                            \
            (p)->field = grown_;                                                                   \
        }                                                                                          \
        (p)->field[n_] = (x);                                                                      \
        (p)->n_##field = n_ + 1;                                                                   \
    } while (0)

// ---- hlo_pb_shape.c
status_t pb_put_shape(struct arena *a, const struct shape *s, Xla__ShapeProto **out) MUST_CHECK;
status_t pb_get_shape(struct parser *p, const Xla__ShapeProto *s,
                      const struct shape **out) MUST_CHECK;
void pb_shape_text(struct strbuf *b, const Xla__ShapeProto *s);
// Elements stand in the order of the given shape's layout.
status_t pb_put_literal(struct arena *a, const struct literal *l, const struct shape *s,
                        Xla__LiteralProto **out) MUST_CHECK;
status_t pb_get_literal(struct parser *p, const Xla__LiteralProto *m,
                        struct literal **out) MUST_CHECK;

// ---- hlo_pb_attrs.c: the records of attrs.def
void pb_put_attrs(struct arena *a, const struct hlo_instr *i, Xla__HloInstructionProto *p);
status_t pb_get_attrs(struct arena *a, enum hlo_op op, const Xla__HloInstructionProto *p,
                      void **out) MUST_CHECK;

Xla__Window *pb_put_window(struct arena *a, const struct window *w);
status_t pb_get_window(struct arena *a, const Xla__Window *p, struct window *out) MUST_CHECK;
Xla__ConvolutionDimensionNumbers *pb_put_labels(struct arena *a, const struct labels *l);
status_t pb_get_labels(const Xla__ConvolutionDimensionNumbers *p, struct labels *l) MUST_CHECK;

// ---- hlo_pb_kept.c: attributes kept as text. What has fields is written to them; what the fields
// do not give back letter for letter also travels as a frontend attribute, HLO_PB_KEPT and the
// name.
#define HLO_PB_KEPT "hlod_kept."
void pb_put_kept(struct arena *a, const struct hlo_instr *i, Xla__HloInstructionProto *p);
status_t pb_get_kept(struct parser *p, const Xla__HloInstructionProto *m,
                     struct hlo_instr *i) MUST_CHECK;
void pb_put_module_kept(struct arena *a, const struct hlo_module *m, Xla__HloModuleProto *p);
status_t pb_get_module_kept(struct parser *p, const Xla__HloModuleProto *m) MUST_CHECK;
