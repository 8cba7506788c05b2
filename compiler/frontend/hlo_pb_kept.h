// SPDX-License-Identifier: Apache-2.0
// hlo_pb_kept: the rows of hlo_pb_rows.c. put reads the text into fields, false when it cannot;
// get appends the text of the fields, nothing when they are not set.
#pragma once
#include "compiler/frontend/hlo_pb.h"

struct pb_kept {
    const char *name;
    bool (*put)(struct arena *a, struct str text, Xla__HloInstructionProto *p);
    void (*get)(struct strbuf *b, enum hlo_op op, const Xla__HloInstructionProto *p);
};
extern const struct pb_kept pb_kept_rows[]; // ends with a row without name
const struct pb_kept *pb_kept_find(struct str name);

void pb_put_module_attr(struct arena *a, struct str name, struct str text, Xla__HloModuleProto *p);
void pb_get_module_attr(struct strbuf *b, struct str name, const Xla__HloModuleProto *p);
