// SPDX-License-Identifier: Apache-2.0
// Reads HloModuleProto. Before anything is unpacked, a walk over the wire checks nesting and adds
// up the memory that the structs would take; unpacking then goes into an arena. The module is built
// through the same functions as from text, so every shape is checked against its rule.
#include "compiler/frontend/hlo/hlo_proto.h"

#include "compiler/frontend/hlo/hlo_ingest.h"
#include "compiler/frontend/hlo/hlo_pb.h"
#include "compiler/frontend/wire.h"
#include "proto/json.h"

enum { MAX_NESTING = 100 };
#define MAX_MEMORY (INT64_C(4) << 30)

// ---- what is it

// Field 1 of HloSnapshot and of HloProto is a message; of HloModuleProto, a name. All begin with
// its tag.
static bool is_wrapped(struct span s) {
    struct wire w = wire_open(s.p, s);
    struct wire_field f;
    status_t st = ST_OK;
    bool wrapped = wire_next(&w, &f, &st) && f.number == 1 && f.type == WIRE_LEN && f.bytes.n > 2 &&
                   (f.bytes.p[0] == 0x0a || f.bytes.p[0] == 0x12 || f.bytes.p[0] == 0x1a);
    st_drop(st);
    return wrapped;
}
bool hlo_proto_sniff(struct span head) {
    // The tag of field 1 and a length; then a name of printable characters, or the module.
    if (head.n < 4 || head.p[0] != 0x0a) return false;
    size_t at = 1, length = 0;
    for (int shift = 0; at < head.n && at < 6; shift += 7) {
        length |= (size_t)(head.p[at] & 0x7f) << shift;
        if (head.p[at++] < 0x80) break;
    }
    if (at < head.n && head.p[at] == 0x0a && length > 4) return true;
    for (size_t k = at; k < at + length && k < head.n; k++)
        if (head.p[k] < 0x20 || head.p[k] == 0x7f) return false;
    return length > 0 && length < 4096 && (at + length >= head.n || head.p[at + length] >= 0x0a);
}

// ---- budget

struct budget {
    const uint8_t *start;
    int64_t left; // bytes of memory
};
static status_t walk(struct budget *b, const ProtobufCMessageDescriptor *d, struct span s,
                     int depth) {
    struct wire w = wire_open(b->start, s);
    struct wire_field f;
    status_t st = ST_OK;
    if (depth > MAX_NESTING)
        return st_invalid("byte %zu: messages nest deeper than %d", (size_t)(s.p - b->start),
                          MAX_NESTING);
    b->left -= (int64_t)d->sizeof_message;
    while (wire_next(&w, &f, &st)) {
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(d, f.number);
        // A packed varint of one byte becomes an element of up to eight; everything else grows
        // less. Unknown fields are kept as they are, with a header.
        b->left -= 64 + 8 * (int64_t)(f.type == WIRE_LEN ? f.bytes.n : 8);
        if (b->left < 0)
            return st_exhausted("byte %zu: the message takes more than %lld bytes of memory",
                                (size_t)(f.at - b->start), (long long)MAX_MEMORY);
        if (!field || f.type != WIRE_LEN || field->type != PROTOBUF_C_TYPE_MESSAGE) continue;
        b->left += 8 * (int64_t)f.bytes.n; // counted inside
        st = walk(b, field->descriptor, f.bytes, depth + 1);
    }
    return st;
}

static void *in_arena(void *a, size_t n) {
    return n ? arena_alloc_aligned(a, n, 16) : NULL;
}
static void not_freed(UNUSED void *a, UNUSED void *p) {}

static status_t unpack(struct arena *a, struct span s, Xla__HloModuleProto **out) {
    struct budget b = {s.p, MAX_MEMORY};
    ProtobufCAllocator memory = {in_arena, not_freed, a};
    for (int k = 0; k < 2 && is_wrapped(s); k++) { // HloSnapshot, HloProto
        struct wire_field f;
        bool got;
        RETURN_IF_ERR(wire_find(s.p, s, 1, &f, &got));
        s = f.bytes;
    }
    RETURN_IF_ERR(walk(&b, &xla__hlo_module_proto__descriptor, s, 0));
    *out = xla__hlo_module_proto__unpack(&memory, s.n, s.p);
    return *out ? ST_OK
                : st_invalid("the bytes are not a HloModuleProto (a field has "
                             "another wire type than the format says)");
}

// ---- instructions

struct reader {
    struct parser p; // module, limits, and the text functions
    struct pmap computations, instrs;
    int64_t n_instrs;
};

static status_t get_operands(struct reader *r, const struct hlo_computation *c,
                             const Xla__HloInstructionProto *m, struct hlo_instr ***out) {
    *out = arena_array(r->p.m->arena, struct hlo_instr *, m->n_operand_ids + 1);
    for (size_t k = 0; k < m->n_operand_ids; k++) {
        struct hlo_instr *x = pmap_get(&r->instrs, (uint64_t)m->operand_ids[k]);
        if (!x || x->parent != c)
            return st_invalid("operand %zu has id %lld, which no instruction "
                              "above it has",
                              k, (long long)m->operand_ids[k]);
        (*out)[k] = x;
    }
    return ST_OK;
}
static status_t get_called(struct reader *r, enum hlo_op op, const Xla__HloInstructionProto *m,
                           struct hlo_computation ***out) {
    size_t n = m->n_called_computation_ids;
    *out = arena_array(r->p.m->arena, struct hlo_computation *, n + 1);
    for (size_t k = 0; k < n; k++) {
        size_t j = op == HLO_WHILE ? n - 1 - k : k; // XLA has the body first
        (*out)[j] = pmap_get(&r->computations, (uint64_t)m->called_computation_ids[k]);
        if (!(*out)[j])
            return st_invalid("calls computation %lld, which does not stand above",
                              (long long)m->called_computation_ids[k]);
    }
    return ST_OK;
}

static status_t get_leaf(struct reader *r, struct hlo_computation *c, enum hlo_op op,
                         const struct shape *shape, const Xla__HloInstructionProto *m,
                         struct hlo_instr **out) {
    if (op == HLO_CONSTANT) {
        struct literal *l;
        if (!m->literal) return st_invalid("the constant has no literal");
        RETURN_IF_ERR(pb_get_literal(&r->p, m->literal, &l));
        if (!shape_compatible(l->shape, shape))
            return st_invalid("the literal has another shape than the constant");
        *out = hlo_add_constant(c, l);
        (*out)->shape = shape;
        return ST_OK;
    }
    RETURN_IF_ERR(p_check_param(&r->p, c, m->parameter_number));
    *out = hlo_add_param(c, m->parameter_number, shape, "param");
    return ST_OK;
}

static status_t get_instr(struct reader *r, struct hlo_computation *c,
                          const Xla__HloInstructionProto *m, struct hlo_instr **out) {
    struct arena *a = r->p.m->arena;
    const struct shape *shape;
    struct hlo_instr **operands;
    struct hlo_computation **called;
    enum hlo_op op;
    void *attr;

    if (++r->n_instrs > r->p.limits.max_instrs)
        return st_exhausted("more than %lld instructions", (long long)r->p.limits.max_instrs);
    if (!hlo_op_from_name(str_of(m->opcode), &op))
        return st_invalid("unknown opcode '%.60s'", m->opcode);
    RETURN_IF_ERR(pb_get_shape(&r->p, m->shape, &shape));

    if (op == HLO_PARAMETER || op == HLO_CONSTANT) {
        RETURN_IF_ERR(get_leaf(r, c, op, shape, m, out));
    } else {
        RETURN_IF_ERR(get_operands(r, c, m, &operands));
        RETURN_IF_ERR(get_called(r, op, m, &called));
        RETURN_IF_ERR(pb_get_attrs(a, op, m, &attr));
        RETURN_IF_ERR(hlo_add_read_instr(c, op, shape, operands, (int)m->n_operand_ids, attr,
                                         called, (int)m->n_called_computation_ids, out));
    }

    if (m->name[0]) hlo_set_name(*out, m->name);
    for (size_t k = 0; k < m->n_control_predecessor_ids; k++) {
        struct hlo_instr *x = pmap_get(&r->instrs, (uint64_t)m->control_predecessor_ids[k]);
        if (!x || x->parent != c)
            return st_invalid("control predecessor %lld does not stand above",
                              (long long)m->control_predecessor_ids[k]);
        hlo_add_control_pred(*out, x);
    }
    return pb_get_kept(&r->p, m, *out);
}

// ---- computations

static status_t get_computation(struct reader *r, const Xla__HloComputationProto *m) {
    struct hlo_computation *c = hlo_computation_add(r->p.m, m->name);
    for (size_t k = 0; k < m->n_instructions; k++) {
        const Xla__HloInstructionProto *q = m->instructions[k];
        struct hlo_instr *i;
        if (pmap_has(&r->instrs, (uint64_t)q->id))
            return st_invalid("instruction '%.100s': id %lld is there twice", q->name,
                              (long long)q->id);
        RETURN_IF_ERR(st_note(get_instr(r, c, q, &i), "instruction '%.100s'", q->name));
        pmap_put(&r->instrs, (uint64_t)q->id, i);
        if (q->id == m->root_id) hlo_set_root(c, i);
    }
    if (!c->root) return st_invalid("no instruction has the root's id");
    for (size_t k = 0; k < c->params.n; k++)
        if (!c->params.v[k]) return st_invalid("parameter %zu is missing", k);
    if (pmap_has(&r->computations, (uint64_t)m->id))
        return st_invalid("its id %lld is there twice", (long long)m->id);
    pmap_put(&r->computations, (uint64_t)m->id, c);
    return ST_OK;
}

static struct str own(struct arena *a, const char *s) {
    return (struct str){arena_strdup(a, s), strlen(s)};
}
static void get_source_map(struct hlo_module *m, const Xla__StackFrameIndexProto *x) {
    struct hlo_source_map *t = &m->source_map;
    for (size_t k = 0; k < x->n_file_names; k++)
        avec_push(m->arena, &t->files, own(m->arena, x->file_names[k]));
    for (size_t k = 0; k < x->n_function_names; k++)
        avec_push(m->arena, &t->functions, own(m->arena, x->function_names[k]));
    for (size_t k = 0; k < x->n_file_locations; k++) {
        const Xla__StackFrameIndexProto__FileLocation *l = x->file_locations[k];
        avec_push(m->arena, &t->locations,
                  ((struct hlo_place){{l->file_name_id, l->function_name_id, l->line, l->end_line,
                                       l->column, l->end_column}}));
    }
    for (size_t k = 0; k < x->n_stack_frames; k++) // the text counts a frame's parent from 1
        avec_push(
            m->arena, &t->frames,
            ((struct hlo_place){{x->stack_frames[k]->file_location_id,
                                 (int32_t)((uint32_t)x->stack_frames[k]->parent_frame_id + 1)}}));
}

static status_t get_host_shape(struct reader *r, const Xla__ProgramShapeProto *x) {
    struct hlo_module *m = r->p.m;
    size_t n = x->n_parameters;
    const struct shape **e = arena_array(m->arena, const struct shape *, n + 1);
    for (size_t k = 0; k < n; k++)
        RETURN_IF_ERR(pb_get_shape(&r->p, x->parameters[k], &e[k]));
    RETURN_IF_ERR(pb_get_shape(&r->p, x->result, &e[n]));
    m->entry_layout = shape_tuple(m->arena, e, (int)n + 1);
    return hlo_check_entry_layout(m);
}

static status_t get_module(struct reader *r, const Xla__HloModuleProto *x) {
    struct hlo_module *m = r->p.m;
    m->name = arena_strdup(m->arena, x->name);
    for (char *q = (char *)(uintptr_t)m->name; *q; q++) { // a word, as in text
        struct cursor c = {q, q + 1};
        if (!p_word(&c).n) *q = '_';
    }
    for (size_t k = 0; k < x->n_computations; k++)
        RETURN_IF_ERR(st_note(get_computation(r, x->computations[k]), "computation '%.100s'",
                              x->computations[k]->name));
    if (!m->last) return st_invalid("the module has no computation");
    m->entry = pmap_get(&r->computations, (uint64_t)x->entry_computation_id);
    if (!m->entry)
        return st_invalid("no computation has the entry's id %lld",
                          (long long)x->entry_computation_id);
    if (x->host_program_shape) RETURN_IF_ERR(get_host_shape(r, x->host_program_shape));
    if (x->stack_frame_index) get_source_map(m, x->stack_frame_index);
    RETURN_IF_ERR(pb_get_module_kept(&r->p, x));
    RETURN_IF_ERR(st_note(hlo_verify(m), "the module does not verify"));
    return r->p.limits.incomplete ? ST_OK : hlo_complete(m);
}

status_t hlo_proto_read(struct span bytes, const struct frontend_limits *limits, bool incomplete,
                        struct hlo_module **out) {
    struct hlo_parse_limits l = hlo_ingest_limits(limits);
    struct arena a = {0};
    Xla__HloModuleProto *x;
    if ((int64_t)bytes.n > l.max_text_bytes)
        return st_exhausted("a module of %zu bytes is above the limit of %lld", bytes.n,
                            (long long)l.max_text_bytes);
    status_t st = unpack(&a, bytes, &x);
    if (!st) {
        struct reader r = {.p = {.m = hlo_module_new("module"), .limits = l}};
        r.p.limits.incomplete = incomplete;
        st = get_module(&r, x);
        if (st)
            hlo_module_free(r.p.m);
        else
            *out = r.p.m;
        pmap_done(&r.computations);
        pmap_done(&r.instrs);
    }
    arena_done(&a);
    return st;
}

// ---- as it stands

static void put_raw(struct strbuf *b, Xla__HloInstructionProto *i, const struct pmap *names,
                    bool root) {
    strbuf_printf(b, "  %s%%%s = ", root ? "ROOT " : "", i->name);
    if (i->shape) pb_shape_text(b, i->shape);
    strbuf_printf(b, " %s(", i->opcode);
    if (!strcmp(i->opcode, "parameter")) strbuf_printf(b, "%lld", (long long)i->parameter_number);
    for (size_t k = 0; k < i->n_operand_ids; k++) {
        const char *name = pmap_get(names, (uint64_t)i->operand_ids[k]);
        strbuf_printf(b, "%s%%%s", k ? ", " : "", name ? name : "?");
    }
    strbuf_puts(b, ")");
    struct strbuf rest = {0};
    Xla__HloInstructionProto copy = *i; // without what was said
    copy.name = copy.opcode = (char *)protobuf_c_empty_string;
    copy.shape = NULL;
    copy.n_operand_ids = 0;
    copy.id = 0;
    json_print(&rest, &copy.base);
    if (rest.n > 2) strbuf_printf(b, "  %s", strbuf_cstr(&rest));
    strbuf_putc(b, '\n');
    strbuf_done(&rest);
}

status_t hlo_proto_raw(struct span bytes, struct strbuf *out) {
    struct arena a = {0};
    struct pmap names = {0};
    Xla__HloModuleProto *x;
    status_t st = unpack(&a, bytes, &x);
    if (!st) strbuf_printf(out, "HloModule %s\n", x->name);
    for (size_t k = 0; !st && k < x->n_computations; k++)
        for (size_t i = 0; i < x->computations[k]->n_instructions; i++)
            pmap_put(&names, (uint64_t)x->computations[k]->instructions[i]->id,
                     x->computations[k]->instructions[i]->name);
    for (size_t k = 0; !st && k < x->n_computations; k++) {
        const Xla__HloComputationProto *c = x->computations[k];
        strbuf_printf(out, "\n%s%%%s {\n",
                      !strcmp(c->name, x->entry_computation_name) ? "ENTRY " : "", c->name);
        for (size_t i = 0; i < c->n_instructions; i++)
            put_raw(out, c->instructions[i], &names, c->instructions[i]->id == c->root_id);
        strbuf_puts(out, "}\n");
    }
    pmap_done(&names);
    arena_done(&a);
    return st;
}

status_t hlo_proto_count(struct span bytes, struct hlo_counts *out) {
    struct arena a = {0};
    Xla__HloModuleProto *x;
    *out = (struct hlo_counts){0};
    status_t st = unpack(&a, bytes, &x);
    for (size_t k = 0; !st && k < x->n_computations; k++) {
        const Xla__HloComputationProto *c = x->computations[k];
        out->computations++;
        out->total += (int64_t)c->n_instructions;
        if (c->id == x->entry_computation_id) out->entry = (int64_t)c->n_instructions;
        for (size_t i = 0; i < c->n_instructions; i++)
            out->fusions += strcmp(c->instructions[i]->opcode, "fusion") == 0;
    }
    arena_done(&a);
    return st;
}

// ---- frontend

status_t hlo_proto_ingest(struct arena *a, struct span source, const struct frontend_limits *limits,
                          struct ingest_result *out) {
    struct hlo_module *m;
    RETURN_IF_ERR(hlo_proto_read(source, limits, false, &m));
    status_t st = hlo_ingest_module(a, m, source, "hlo-proto", out);
    hlo_module_free(m);
    return st;
}
status_t hlo_proto_lower(const struct lower_request *req, struct hlo_module **out) {
    RETURN_IF_ERR(hlo_proto_read(req->program, &req->limits, false, out));
    return hlo_ingest_lowered(*out);
}
