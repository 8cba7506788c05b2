// SPDX-License-Identifier: Apache-2.0
// text: HLO as XLA writes it, out (print.c) and in (parse*.c). Law: parse(print(m)) equals m,
// and print(parse(print(m))) equals print(m) byte for byte.
#pragma once
#include "base/map.h"
#include "base/str.h"
#include "compiler/ir/module.h"

enum {
    HLO_PRINT_METADATA = 1, // metadata={op_type=... op_name=...}
    HLO_PRINT_LAYOUTS = 2,  // also default layouts
    HLO_PRINT_ELIDE = 4,    // constants over 16 elements as {...} (not parseable)
    HLO_PRINT_CANONICAL =
        8, // names replaced by op.number in order, no metadata: the text that is hashed
};
#define HLO_PRINT_DEFAULT HLO_PRINT_METADATA
void hlo_print_module(struct strbuf *b, const struct hlo_module *m, unsigned flags);
// Large literals beside the text, in binary: the text has {@OFFSET} for one of them, equal bytes
// are there once. For what programs keep and read again; text for people has its numbers inside.
struct hlo_constants { // zero-initialise
    struct strbuf bytes; // literals begin at multiples of 64
    struct pmap at;      // hash of the bytes -> offset + 1
};
void hlo_constants_done(struct hlo_constants *k);
void hlo_print_module_beside(struct strbuf *b, const struct hlo_module *m, unsigned flags,
                             struct hlo_constants *beside);
void hlo_print_instr(struct strbuf *b, const struct hlo_instr *i, unsigned flags);
const char *hlo_dump(const struct hlo_instr *i); // for gdb: static buffer

struct hlo_parse_limits {
    int64_t max_text_bytes, max_literal_bytes;
    int max_depth;
    int64_t max_instrs;
    bool incomplete; // also take unbounded dimensions and elided constants (see hlo_complete)
    // What the text's {@OFFSET} refer to; they are an error without. The module borrows it.
    struct span constants;
}; // 0 = default
// Parses one module. INVALID_ARGUMENT with line:column, what was expected and what was found;
// UNIMPLEMENTED never: unknown opcodes are INVALID_ARGUMENT with reason. The result is verified
// (hlo_verify). Caller frees with hlo_module_free.
status_t hlo_parse(struct str text, const struct hlo_parse_limits *limits,
                   struct hlo_module **out) MUST_CHECK;

// verify.c: structure (order, users, parents, names, roots, parameter numbering, callee before
// caller, no recursion, arity, attributes) and every shape against its rule.
status_t hlo_verify(const struct hlo_module *m) MUST_CHECK;

// Can the module be compiled: no dimension without a bound ("?"), no constant whose value was left
// out of the text ("{...}"). INVALID_ARGUMENT names the instruction.
status_t hlo_complete(const struct hlo_module *m) MUST_CHECK;

// canon.c: SHA-256 of the canonical graph: same for modules that differ only in names, metadata,
// ids and the order of independent instructions. Literals are hashed.
struct digest;
void hlo_canonical_hash(const struct hlo_module *m, struct digest *out);
// The same of what each operand of the entry's root is: of that value alone, as a function of
// parameters, where weights count by their index. out: as many as the root has operands.
void hlo_canonical_results(const struct hlo_module *m, struct digest *out);
