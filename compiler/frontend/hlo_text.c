// SPDX-License-Identifier: Apache-2.0
// The program is the text itself; its digest is the canonical hash of the graph, so formatting and
// names do not matter.
#include "compiler/frontend/hlo_text.h"

#include "compiler/ir/text.h"

bool hlo_text_sniff(struct span head) {
    struct str s = str_trim((struct str){(const char *)head.p, head.n < 4096 ? head.n : 4096});
    while (str_starts(s, "//")) { // leading comments
        struct str line;
        if (!str_cut(&s, '\n', &line)) return false;
        s = str_trim(s);
    }
    return str_starts(s, "HloModule") || str_starts(s, "ENTRY");
}

static void tensor_of(struct arena *a, const char *name, const struct shape *s,
                      struct sig_tensor *out) {
    *out = (struct sig_tensor){.name = arena_strdup(a, name), .dtype = s->dtype, .rank = s->rank};
    out->dims = arena_zarray(a, struct sig_dim, s->rank + 1);
    for (int d = 0; d < s->rank; d++)
        out->dims[d].size = s->dims[d];
}

static status_t parse(struct span source, struct hlo_module **out) {
    return hlo_parse((struct str){(const char *)source.p, source.n}, NULL, out);
}

status_t hlo_text_ingest(struct arena *a, struct span source, const struct frontend_limits *limits,
                         struct ingest_result *out) {
    struct hlo_module *m;
    struct ingest_result r = {.format = "hlo-text", .program = source};
    (void)limits; // the parser has its own
    RETURN_IF_ERR(parse(source, &m));
    const struct hlo_computation *e = m->entry;
    int leaves = shape_leaves(e->root->shape);
    r.sig = (struct signature){.n_in = (int32_t)e->params.n, .n_out = leaves};
    r.sig.in = arena_zarray(a, struct sig_tensor, e->params.n + 1);
    r.sig.out = arena_zarray(a, struct sig_tensor, leaves + 1);
    status_t st = ST_OK;
    for (size_t k = 0; k < e->params.n && !st; k++) {
        if (shape_is_tuple(e->params.v[k]->shape))
            st = st_new(ST_INVALID_ARGUMENT,
                        "parameter '%s' is a tuple: entry parameters must be arrays",
                        e->params.v[k]->name);
        else
            tensor_of(a, e->params.v[k]->name, e->params.v[k]->shape, &r.sig.in[k]);
    }
    for (int k = 0; k < leaves && !st; k++)
        tensor_of(a,
                  leaves == 1 && !shape_is_tuple(e->root->shape) ? "result"
                                                                 : arena_printf(a, "result%d", k),
                  shape_leaf(e->root->shape, k), &r.sig.out[k]);
    hlo_canonical_hash(m, &r.program_digest);
    r.weights_digest = sha256_of("", 0);
    hlo_module_free(m);
    if (!st) *out = r;
    return st;
}

status_t hlo_text_lower(const struct lower_request *req, struct hlo_module **out) {
    return parse(req->program, out);
}
