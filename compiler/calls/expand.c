// SPDX-License-Identifier: Apache-2.0
#include "compiler/calls/expand.h"

#include "compiler/calls/bits.h"
#include "compiler/calls/lu.h"
#include "compiler/calls/nms.h"
#include "compiler/calls/trees.h"

status_t call_expand(struct hb *b, struct arena *a, const struct hlo_instr *i, hv *out) {
    *out = NULL;
    if (i->op != HLO_CUSTOM_CALL) return ST_OK;
    if (bits_is(i)) {
        struct bits d;
        RETURN_IF_ERR(bits_read(a, i, &d));
        *out = bits_as_dot(b, d.bits, i->operands);
    } else if (lu_is(i)) {
        *out = lu_as_while(b, i->operands[0]);
    } else if (nms_is(i)) {
        struct nms n;
        RETURN_IF_ERR(nms_read(i, &n));
        *out = nms_as_while(b, i->operands, n.most);
    } else if (trees_is(i) && trees_are_constant(i)) {
        struct trees t;
        RETURN_IF_ERR(trees_read(a, i, NULL, &t));
        *out = trees_as_gathers(b, i, &t);
    }
    return ST_OK;
}
