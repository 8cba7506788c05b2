// SPDX-License-Identifier: Apache-2.0
// parser: what parse.c (modules, computations, instructions) and parse_value.c (shapes, literals,
// attribute values) share. A cursor walks a copy of the text in which comments are blanks, so that
// offsets, lines and columns stay those of the source. A value of an attribute is first cut out as
// text by bracket depth.
#pragma once
#include "base/map.h"
#include "compiler/ir/attr_kinds.h"
#include "compiler/ir/op.h"
#include "compiler/ir/text.h"

struct cursor {
    const char *p, *end;
};
struct parser {
    const char *start; // of the text, for positions
    struct cursor c;
    struct hlo_module *m;
    struct smap computations; // name -> struct hlo_computation *
    struct smap instrs;       // of the computation being read
    struct hlo_parse_limits limits;
    int64_t n_instrs;
};

status_t p_error(const struct parser *p, const char *at, const char *fmt, ...) MUST_CHECK
    __attribute__((format(printf, 3, 4)));
void p_space(struct cursor *c);
bool p_take(struct cursor *c, const char *token); // skips space, takes the token if it is there
struct str
p_word(struct cursor *c); // skips space; letters, digits, _ . - and a leading %; empty if none
struct str
p_cut(struct cursor *c,
      const char *stop); // up to a character of `stop` outside brackets and quotes, trimmed
status_t p_shape(struct parser *p, struct cursor *c, int depth,
                 const struct shape **out) MUST_CHECK;
status_t p_literal(struct parser *p, struct cursor *c, const struct shape *s,
                   struct literal **out) MUST_CHECK;
// Fills one field of an attribute record from its text. `what` is the attribute's name for
// messages.
struct attr_text {
    struct str name, value;
    bool used;
};
status_t p_attr_record(struct parser *p, enum hlo_attr_kind k, struct attr_text *attrs, int n,
                       const char *at, void **out) MUST_CHECK;
