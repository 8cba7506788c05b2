// SPDX-License-Identifier: Apache-2.0
// HloModuleProto: whatever is read must print as text that parses to the same, and write as a proto
// that reads back as the same.
#include <stdlib.h>

#include "compiler/frontend/hlo/hlo_proto.h"
#include "compiler/ir/text/text.h"

static void same(const struct strbuf *want, struct hlo_module *m) {
    struct strbuf b = {0};
    hlo_print_module(&b, m, HLO_PRINT_DEFAULT);
    if (want->n != b.n || memcmp(want->p, b.p, b.n) != 0) abort();
    strbuf_done(&b);
    hlo_module_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct frontend_limits limits = {.max_program_bytes = 1 << 20, .max_nodes = 10000};
    struct hlo_parse_limits text = {.incomplete = true};
    struct hlo_module *m, *again;
    struct strbuf a = {0}, proto = {0};
    status_t st = hlo_proto_read((struct span){data, size}, &limits, true, &m);
    if (st) {
        st_drop(st);
        return 0;
    }
    hlo_print_module(&a, m, HLO_PRINT_DEFAULT);
    if (hlo_parse((struct str){a.p, a.n}, &text, &again)) abort();
    same(&a, again);
    st = hlo_proto_write(m, &proto);
    if (!st) {
        if (hlo_proto_read((struct span){(const uint8_t *)proto.p, proto.n}, NULL, true, &again))
            abort();
        same(&a, again);
    }
    st_drop(st);
    hlo_module_free(m);
    strbuf_done(&a);
    strbuf_done(&proto);
    return 0;
}
