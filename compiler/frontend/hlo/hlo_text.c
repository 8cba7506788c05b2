// SPDX-License-Identifier: Apache-2.0
// HLO text, in XLA's syntax.
#include "compiler/frontend/hlo/hlo_text.h"

#include "compiler/frontend/hlo/hlo_ingest.h"

bool hlo_text_sniff(struct span head) {
    struct str s = str_trim((struct str){(const char *)head.p, head.n < 4096 ? head.n : 4096});
    while (str_starts(s, "//") || str_starts(s, "/*")) { // leading comments
        struct str line;
        if (s.p[1] == '/') {
            if (!str_cut(&s, '\n', &line)) return false;
        } else {
            const char *end = memmem(s.p, s.n, "*/", 2);
            if (!end) return false;
            s = (struct str){end + 2, (size_t)(s.p + s.n - end) - 2};
        }
        s = str_trim(s);
    }
    return str_starts(s, "HloModule") || str_starts(s, "ENTRY");
}

static status_t parse(struct span source, const struct frontend_limits *limits,
                      struct hlo_module **out) {
    struct hlo_parse_limits l = hlo_ingest_limits(limits);
    return hlo_parse((struct str){(const char *)source.p, source.n}, &l, out);
}
status_t hlo_text_ingest(struct arena *a, struct span source, const struct frontend_limits *limits,
                         struct ingest_result *out) {
    struct hlo_module *m;
    RETURN_IF_ERR(parse(source, limits, &m));
    status_t st = hlo_ingest_module(a, m, source, "hlo-text", out);
    hlo_module_free(m);
    return st;
}
status_t hlo_text_lower(const struct lower_request *req, struct hlo_module **out) {
    RETURN_IF_ERR(parse(req->program, &req->limits, out));
    return hlo_ingest_lowered(*out);
}
