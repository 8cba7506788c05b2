// SPDX-License-Identifier: Apache-2.0
// A module as HloModuleProto. Computations are numbered from 1 in module order, an instruction's id
// is its computation's number in the upper half and its position in the lower.
#include "compiler/frontend/hlo/hlo_pb.h"
#include "compiler/frontend/hlo/hlo_proto.h"

struct writer {
    struct arena a;
    struct pmap ids; // instruction or computation -> id
};

static int64_t id_of(struct writer *w, const void *x) {
    return (int64_t)(uintptr_t)pmap_get_ptr(&w->ids, x);
}
static void number(struct writer *w, const struct hlo_module *m) {
    uintptr_t n = 0;
    HLO_EACH_COMPUTATION(c, m) {
        uintptr_t id = ++n << 32;
        pmap_put_ptr(&w->ids, c, (void *)n);
        for (const struct hlo_instr *i = c->first; i; i = i->next)
            pmap_put_ptr(&w->ids, i, (void *)id++);
    }
}
static char *borrow(const char *s) {
    return (char *)(uintptr_t)s;
}

static status_t put_instr(struct writer *w, const struct hlo_instr *i,
                          Xla__HloInstructionProto **out) {
    struct arena *a = &w->a;
    Xla__HloInstructionProto *p = message_new(a, &xla__hlo_instruction_proto__descriptor);
    p->name = borrow(i->name);
    p->opcode = borrow(hlo_op_name(i->op));
    p->id = id_of(w, i);
    RETURN_IF_ERR(pb_put_shape(a, i->shape, &p->shape));
    if (i->op == HLO_PARAMETER) p->parameter_number = i->param_number;
    if (i->literal) RETURN_IF_ERR(pb_put_literal(a, i->literal, i->shape, &p->literal));
    for (int k = 0; k < i->n_operands; k++)
        PB_PUSH(a, p, operand_ids, id_of(w, i->operands[k]));
    for (size_t k = 0; k < i->control_preds.n; k++)
        PB_PUSH(a, p, control_predecessor_ids, id_of(w, i->control_preds.v[k]));
    for (int k = 0; k < i->n_called; k++) { // while: XLA has the body first
        int j = i->op == HLO_WHILE ? i->n_called - 1 - k : k;
        PB_PUSH(a, p, called_computation_ids, id_of(w, i->called[j]));
    }
    pb_put_attrs(a, i, p);
    pb_put_kept(a, i, p);
    *out = p;
    return ST_OK;
}

static status_t put_program_shape(struct arena *a, const struct hlo_computation *c,
                                  Xla__ProgramShapeProto **out) {
    Xla__ProgramShapeProto *p = message_new(a, &xla__program_shape_proto__descriptor);
    for (size_t k = 0; k < c->params.n; k++) {
        Xla__ShapeProto *s = NULL;
        RETURN_IF_ERR(pb_put_shape(a, c->params.v[k]->shape, &s));
        PB_PUSH(a, p, parameters, s);
        PB_PUSH(a, p, parameter_names, borrow(c->params.v[k]->name));
    }
    *out = p;
    return pb_put_shape(a, c->root->shape, &p->result);
}

static status_t put_computation(struct writer *w, const struct hlo_computation *c,
                                Xla__HloComputationProto **out) {
    struct arena *a = &w->a;
    Xla__HloComputationProto *p = message_new(a, &xla__hlo_computation_proto__descriptor);
    p->name = borrow(c->name);
    p->id = id_of(w, c);
    p->root_id = id_of(w, c->root);
    p->is_fusion_computation = c->fusion != NULL;
    for (const struct hlo_instr *i = c->first; i; i = i->next) {
        Xla__HloInstructionProto *q = NULL;
        RETURN_IF_ERR(st_note(put_instr(w, i, &q), "instruction '%s'", i->name));
        PB_PUSH(a, p, instructions, q);
    }
    *out = p;
    return put_program_shape(a, c, &p->program_shape);
}

static void put_source_map(struct arena *a, const struct hlo_source_map *t,
                           Xla__HloModuleProto *p) {
    if (!t->files.n && !t->functions.n && !t->locations.n && !t->frames.n) return;
    Xla__StackFrameIndexProto *x = message_new(a, &xla__stack_frame_index_proto__descriptor);

    for (size_t k = 0; k < t->files.n; k++)
        PB_PUSH(a, x, file_names, borrow(t->files.v[k].p));
    for (size_t k = 0; k < t->functions.n; k++)
        PB_PUSH(a, x, function_names, borrow(t->functions.v[k].p));

    for (size_t k = 0; k < t->locations.n; k++) {
        const int32_t *v = t->locations.v[k].v;
        Xla__StackFrameIndexProto__FileLocation *l =
            message_new(a, &xla__stack_frame_index_proto__file_location__descriptor);
        l->file_name_id = v[0];
        l->function_name_id = v[1];
        l->line = v[2];
        l->end_line = v[3];
        l->column = v[4];
        l->end_column = v[5];
        PB_PUSH(a, x, file_locations, l);
    }

    for (size_t k = 0; k < t->frames.n; k++) { // the text counts a frame's parent from 1
        Xla__StackFrameIndexProto__StackFrame *f =
            message_new(a, &xla__stack_frame_index_proto__stack_frame__descriptor);
        f->file_location_id = t->frames.v[k].v[0];
        f->parent_frame_id = (int32_t)((uint32_t)t->frames.v[k].v[1] - 1);
        PB_PUSH(a, x, stack_frames, f);
    }

    p->stack_frame_index = x;
}

static status_t put_host_shape(struct arena *a, const struct hlo_module *m,
                               Xla__ProgramShapeProto **out) {
    RETURN_IF_ERR(put_program_shape(a, m->entry, out));
    for (size_t k = 0; k < m->entry->params.n; k++)
        RETURN_IF_ERR(pb_put_shape(a, hlo_entry_shape(m, (int)k), &(*out)->parameters[k]));
    return pb_put_shape(a, hlo_entry_shape(m, (int)m->entry->params.n), &(*out)->result);
}

static status_t put_module(struct writer *w, const struct hlo_module *m,
                           Xla__HloModuleProto **out) {
    struct arena *a = &w->a;
    Xla__HloModuleProto *p = message_new(a, &xla__hlo_module_proto__descriptor);
    number(w, m);
    p->name = borrow(m->name);
    p->entry_computation_name = borrow(m->entry->name);
    p->entry_computation_id = id_of(w, m->entry);
    HLO_EACH_COMPUTATION(c, m) {
        Xla__HloComputationProto *q = NULL;
        RETURN_IF_ERR(st_note(put_computation(w, c, &q), "computation '%s'", c->name));
        PB_PUSH(a, p, computations, q);
    }
    put_source_map(a, &m->source_map, p);
    pb_put_module_kept(a, m, p);
    *out = p;
    return put_host_shape(a, m, &p->host_program_shape);
}

// strbuf as protobuf-c's sink.
struct sink {
    ProtobufCBuffer base;
    struct strbuf *b;
};
static void append(ProtobufCBuffer *to, size_t n, const uint8_t *data) {
    strbuf_add(((struct sink *)to)->b, data, n);
}

status_t hlo_proto_write(const struct hlo_module *m, struct strbuf *out) {
    struct writer w = {0};
    Xla__HloModuleProto *p;
    status_t st = put_module(&w, m, &p);
    if (!st) {
        struct sink s = {{append}, out};
        protobuf_c_message_pack_to_buffer(&p->base, &s.base);
    }
    pmap_done(&w.ids);
    arena_done(&w.a);
    return st;
}
