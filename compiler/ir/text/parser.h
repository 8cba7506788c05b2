// SPDX-License-Identifier: Apache-2.0
// parser: what parse.c (modules, computations), parse_instr.c (instructions), parse_value.c
// (shapes, literals, attribute records) and parse_text.c (cursors, strings, kept text) share. A
// cursor walks a copy of the text in which comments are blanks, so that offsets, lines and columns
// stay those of the source. A value of an attribute is first cut out as text by bracket depth.
#pragma once
#include "base/map.h"
#include "compiler/ir/attr_kinds.h"
#include "compiler/ir/op.h"
#include "compiler/ir/text/text.h"

enum { P_MAX_ATTRS = 64, P_MAX_CALLED = 256 };

struct cursor {
    const char *p, *end;
};
struct p_renamed {
    struct hlo_instr *param;
    const char *wanted;
};
struct parser {
    const char *start; // of the text, for positions
    struct cursor c;
    struct hlo_module *m;
    struct smap computations; // name -> struct hlo_computation *
    struct smap instrs;       // of the computation being read
    // Its parameters whose names other computations have already; those of the entry.
    VEC(struct p_renamed) renamed, renamed_entry;
    struct hlo_parse_limits limits;
    // Used so far of the budgets: instructions, bytes of literals, shapes.
    int64_t n_instrs, literal_bytes, n_shapes;
    int depth; // of computations written inside an instruction, and of nested operands
};

// ---- parse_text.c
status_t p_error(const struct parser *p, const char *at, const char *fmt, ...) MUST_CHECK
    __attribute__((format(printf, 3, 4)));
char *p_blank_comments(struct arena *a, struct str text); // a copy of the same length
void p_space(struct cursor *c);
bool p_take(struct cursor *c, const char *token); // skips space, takes the token if it is there
bool p_peek(struct cursor *c, char x);            // skips space; is x next?
bool p_at_end(struct cursor *c);                  // skips space
struct str
p_word(struct cursor *c); // skips space; letters, digits, _ . - and a leading %; empty if none
bool p_i64(struct cursor *c, int64_t *out);
struct str
p_cut(struct cursor *c,
      const char *stop);        // up to a character of `stop` outside brackets and quotes, trimmed
bool p_is_string(struct str s); // one string with its quotes, nothing else
struct str p_unescape(struct arena *a, struct str s); // s is such a string; the result ends in NUL
// The normal form of text that is kept: INVALID_ARGUMENT when a string or bracket does not close.
// `what` names it in the message.
bool p_is_braced(struct str s);                  // {...} in normal form
bool p_normal(struct strbuf *out, struct str v); // appended; false when v does not close
status_t p_keep(struct parser *p, struct str what, struct str v, struct str *out) MUST_CHECK;

struct attr_text {
    struct str name, value;
    bool used;
};
// ", name=value" pairs from p->c, at most P_MAX_ATTRS.
status_t p_attrs(struct parser *p, struct attr_text *out, int *n) MUST_CHECK;
struct attr_text *p_attr_find(struct attr_text *attrs, int n, const char *name); // marks it used

// ---- parse_value.c
status_t p_shape(struct parser *p, struct cursor *c, int depth,
                 const struct shape **out) MUST_CHECK;
status_t p_literal(struct parser *p, struct cursor *c, const struct shape *s,
                   struct literal **out) MUST_CHECK;
// Fills the record of kind k from the attributes; `at` is the instruction, for messages.
status_t p_attr_record(struct parser *p, enum hlo_attr_kind k, struct attr_text *attrs, int n,
                       const char *at, void **out) MUST_CHECK;

// ---- parse_instr.c
// One instruction of c, "ROOT name = shape opcode(operands), attributes", from p->c.
status_t p_instr(struct parser *p, struct hlo_computation *c, bool *out_root) MUST_CHECK;

// hlo_add_instr for instructions from outside: mixed precision that XLA takes is spelled out as a
// convert, other forms of the same thing become one. attr may be changed.
status_t hlo_add_read_instr(struct hlo_computation *c, enum hlo_op op, const struct shape *shape,
                            struct hlo_instr *const *operands, int n, void *attr,
                            struct hlo_computation *const *called, int n_called,
                            struct hlo_instr **out) MUST_CHECK;

// May parameter `number` be made in c: in range, not there yet.
status_t p_check_param(struct parser *p, const struct hlo_computation *c,
                       int64_t number) MUST_CHECK;
// "weight:3" or "bound:0": what an entry parameter is.
status_t p_param_kind(struct parser *p, struct str text, struct hlo_instr *i) MUST_CHECK;

// ---- parse.c
// Instructions up to the closing brace, from p->c; p->instrs must be empty.
// Does m->entry_layout fit the entry? Set to NULL when it says nothing new.
status_t hlo_check_entry_layout(struct hlo_module *m) MUST_CHECK;
status_t p_body(struct parser *p, struct hlo_computation *c) MUST_CHECK;
