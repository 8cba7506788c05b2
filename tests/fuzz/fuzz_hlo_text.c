// SPDX-License-Identifier: Apache-2.0
// HLO text: whatever parses must print, parse again, and print the same.
#include <stdlib.h>

#include "compiler/ir/text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct hlo_parse_limits limits = {.max_text_bytes = 1 << 20,
                                      .max_literal_bytes = 1 << 20,
                                      .max_instrs = 10000,
                                      .incomplete = true};
    struct hlo_module *m, *again;
    struct strbuf a = {0}, b = {0};
    status_t st = hlo_parse((struct str){(const char *)data, size}, &limits, &m);
    if (st) {
        st_drop(st);
        return 0;
    }
    hlo_print_module(&a, m, HLO_PRINT_DEFAULT);
    hlo_module_free(m);
    limits.max_text_bytes = 0; // what is printed may be longer than what was read
    st = hlo_parse((struct str){a.p, a.n}, &limits, &again);
    if (st) abort();
    hlo_print_module(&b, again, HLO_PRINT_DEFAULT);
    if (a.n != b.n || memcmp(a.p, b.p, a.n) != 0) abort();
    hlo_module_free(again);
    strbuf_done(&a);
    strbuf_done(&b);
    return 0;
}
