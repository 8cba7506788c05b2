// SPDX-License-Identifier: Apache-2.0
// What a module's attributes say of donated memory, by the numbers of entry parameters.
#include "compiler/ir/module.h"

const char *const hlo_donor_attrs[2] = {"buffer_donor", "input_output_alias"};

// The list of one attribute with other numbers, without its last brace.
static void renumber(struct str text, hlo_renumber_fn now, void *ctx, struct strbuf *b) {
    struct str head, number, none, path, tail;
    if (text.n) text.p++, text.n--; // the list's own brace
    while (str_cut(&text, '(', &head) && text.n) {
        int64_t old;
        if (!str_cut(&text, ',', &number) || !str_to_i64(str_trim(number), &old) ||
            !str_cut(&text, '{', &none) || !str_cut(&text, '}', &path) ||
            !str_cut(&text, ')', &tail))
            break;
        old = now(ctx, old, &path);
        head = str_trim(head);
        if (head.n && *head.p == ',') head = str_trim((struct str){head.p + 1, head.n - 1});
        if (old < 0) continue;
        strbuf_printf(b, "%s" STR_FMT "%s(%lld, {" STR_FMT "}" STR_FMT ")", b->n ? ", " : "{ ",
                      STR_ARG(head), head.n ? " " : "", (long long)old, STR_ARG(path),
                      STR_ARG(tail));
    }
}
void hlo_drop_donors(struct hlo_module *m) {
    for (int k = 0; k < 2; k++)
        hlo_set_module_extra(m, hlo_donor_attrs[k], (struct str){NULL, 0});
}
void hlo_renumber_donors(struct hlo_module *m, hlo_renumber_fn now, void *ctx) {
    for (int k = 0; k < 2; k++) {
        struct strbuf b = {0};
        renumber(str_trim(hlo_module_extra(m, hlo_donor_attrs[k])), now, ctx, &b);
        if (b.n) strbuf_puts(&b, " }");
        hlo_set_module_extra(m, hlo_donor_attrs[k], (struct str){b.n ? b.p : NULL, b.n});
        strbuf_done(&b);
    }
}
