// SPDX-License-Identifier: Apache-2.0
// Attributes that a module keeps as text, in HloInstructionProto and HloModuleProto. A row of the
// tables names the attribute and gives two functions: text to fields, and fields to text. Writing
// runs both: what does not come back letter for letter (other spelling, parts without a field, no
// row at all) also travels whole, as the frontend attribute "hlod_kept.<name>", which reading
// prefers. So the fields serve other readers, and nothing that was kept is lost.
#include "compiler/frontend/hlo/hlo_pb_kept.h"
#include "compiler/frontend/hlo/hlo_pb.h"

static Xla__FrontendAttributes__Entry *new_entry(struct arena *a, const char *key,
                                                 const char *value) {
    Xla__FrontendAttributes__Entry *e =
        message_new(a, &xla__frontend_attributes__entry__descriptor);
    e->key = (char *)(uintptr_t)key;
    e->value = (char *)(uintptr_t)value;
    return e;
}
static void add_frontend(struct arena *a, Xla__FrontendAttributes **to, const char *key,
                         const char *value) {
    if (!*to) *to = message_new(a, &xla__frontend_attributes__descriptor);
    PB_PUSH(a, *to, map, new_entry(a, key, value));
}
static void add_kept(struct arena *a, Xla__FrontendAttributes **to, struct str name,
                     struct str value) {
    add_frontend(a, to, arena_printf(a, HLO_PB_KEPT STR_FMT, STR_ARG(name)),
                 arena_strndup(a, value.p, value.n));
}

// {name="value",name={...}} to a map. A value in braces keeps them.
static void put_frontend(struct arena *a, struct str text, Xla__FrontendAttributes **to) {
    struct cursor c = {text.p + 1, text.p + text.n - 1};
    while (!p_at_end(&c)) {
        struct str name = p_word(&c);
        if (!p_take(&c, "=")) return;
        struct str value = p_cut(&c, ",");
        add_frontend(a, to, arena_strndup(a, name.p, name.n),
                     p_is_string(value) ? p_unescape(a, value).p
                                        : arena_strndup(a, value.p, value.n));
        p_take(&c, ",");
    }
}
static bool is_word(const char *s) {
    struct cursor c = {s, s + strlen(s)};
    struct str w = p_word(&c);
    return w.n && w.p == s && w.n == strlen(s); // no blanks or comments behind it either
}

// ---- metadata: op_type and op_name are fields of the instruction, the rest is text

enum { M_STR, M_I32, M_I64 };
#define META(field, kind) {#field, offsetof(Xla__OpMetadata, field), kind}
static const struct {
    const char *name;
    size_t offset;
    int kind;
} metadata[] = {
    META(source_file, M_STR),
    META(source_line, M_I32),
    META(source_end_line, M_I32),
    META(source_column, M_I32),
    META(source_end_column, M_I32),
    META(deduplicated_name, M_STR),
    META(scheduling_name, M_STR),
    META(stack_frame_id, M_I32),
    META(size_of_generated_code_in_bytes, M_I64),
    META(size_of_memory_working_set_in_bytes, M_I64),
};
// profile_type={1,2}, the one list
static void put_profile(struct arena *a, struct str value, Xla__OpMetadata *m) {
    struct cursor c = over(value);
    int64_t v;
    p_take(&c, "{");
    while (p_i64(&c, &v)) {
        PB_PUSH(a, m, profile_type, (int32_t)v);
        if (!p_take(&c, ",")) return;
    }
}
enum {
    N_METADATA = sizeof metadata / sizeof metadata[0],
    PROFILE_AFTER = 4 /* source_end_column */
};

static void put_metadata_text(struct arena *a, struct str text, Xla__OpMetadata *m) {
    struct cursor c = {text.p, text.p + text.n};
    while (!p_at_end(&c)) {
        struct str name = p_word(&c);
        if (!p_take(&c, "=")) return;
        struct str value = p_cut(&c, " ");
        if (str_is(name, "profile_type")) put_profile(a, value, m);
        for (int k = 0; k < N_METADATA; k++) {
            int64_t v;
            void *to = (char *)m + metadata[k].offset;
            if (!str_is(name, metadata[k].name)) continue;
            if (metadata[k].kind == M_STR && p_is_string(value))
                *(char **)to = (char *)(uintptr_t)p_unescape(a, value).p;
            else if (metadata[k].kind == M_I32 && str_to_i64(value, &v) && v == (int32_t)v)
                *(int32_t *)to = (int32_t)v;
            else if (metadata[k].kind == M_I64 && str_to_i64(value, &v))
                *(int64_t *)to = v;
        }
    }
}
static void metadata_text(struct strbuf *b, const Xla__OpMetadata *m) {
    for (int k = 0; k < N_METADATA; k++) {
        const void *from = (const char *)m + metadata[k].offset;
        const char *sep = b->n ? " " : "";
        if (metadata[k].kind == M_STR) {
            const char *s = *(char *const *)from;
            if (!s[0]) continue;
            strbuf_printf(b, "%s%s=", sep, metadata[k].name);
            hlo_quote(b, str_of(s));
        } else {
            int64_t v = metadata[k].kind == M_I32 ? *(const int32_t *)from : *(const int64_t *)from;
            if (v) strbuf_printf(b, "%s%s=%lld", sep, metadata[k].name, (long long)v);
        }
        if (k == PROFILE_AFTER && m->n_profile_type) {
            strbuf_printf(b, "%sprofile_type=", b->n ? " " : "");
            PUT_LIST(b, "{", "}", m, profile_type);
        }
    }
}
static void put_metadata(struct arena *a, const struct hlo_instr *i, Xla__HloInstructionProto *p) {
    size_t n = 0;
    const char *text = hlo_extra(i, "metadata", &n);
    if (!i->op_type && !i->op_name && !text) return;
    p->metadata = message_new(a, &xla__op_metadata__descriptor);
    if (i->op_type) p->metadata->op_type = (char *)(uintptr_t)i->op_type;
    if (i->op_name) p->metadata->op_name = (char *)(uintptr_t)i->op_name;
    if (text) put_metadata_text(a, (struct str){text, n}, p->metadata);
}

// ---- writing

static bool same_text(const struct strbuf *b, struct str s) {
    return b->n == s.n && (s.n == 0 || memcmp(b->p, s.p, s.n) == 0);
}

void pb_put_kept(struct arena *a, const struct hlo_instr *i, Xla__HloInstructionProto *p) {
    static const char *const kinds[] = {[PARAM_WEIGHT] = "weight", [PARAM_BOUND] = "bound"};
    struct strbuf b = {0};
    put_metadata(a, i, p);
    if (i->op == HLO_PARAMETER && i->param_kind != PARAM_INPUT)
        add_frontend(a, &p->frontend_attributes, "hlod_param",
                     arena_printf(a, "%s:%lld", kinds[i->param_kind], (long long)i->param_index));
    for (size_t k = 0; k < i->extra.n; k++) {
        struct hlo_text_attr x = i->extra.v[k];
        strbuf_clear(&b);
        if (str_is(x.name, "frontend_attributes")) {
            put_frontend(a, x.value, &p->frontend_attributes);
            continue;
        }
        if (str_is(x.name, "metadata")) {
            metadata_text(&b, p->metadata);
        } else {
            const struct pb_kept *row = pb_kept_find(x.name);
            if (row && row->put(a, x.value, p)) row->get(&b, i->op, p);
        }
        if (!same_text(&b, x.value)) add_kept(a, &p->frontend_attributes, x.name, x.value);
    }
    strbuf_done(&b);
}

void pb_put_module_kept(struct arena *a, const struct hlo_module *m, Xla__HloModuleProto *p) {
    struct strbuf b = {0};
    for (size_t k = 0; k < m->extra.n; k++) {
        struct hlo_text_attr x = m->extra.v[k];
        bool braced = x.value.n >= 2 && x.value.p[0] == '{';
        if (str_is(x.name, "frontend_attributes") && braced) {
            put_frontend(a, x.value, &p->frontend_attributes);
            continue;
        }
        strbuf_clear(&b);
        pb_put_module_attr(a, x.name, x.value, p);
        pb_get_module_attr(&b, x.name, p);
        if (!same_text(&b, x.value)) add_kept(a, &p->frontend_attributes, x.name, x.value);
    }
    strbuf_done(&b);
}

// ---- reading

// Attributes read so far, by name; the first one given stays.
struct found {
    struct hlo_text_attr *v;
    size_t n, cap;
};
static void found_add(struct parser *p, struct found *f, const char *name, struct str value) {
    for (size_t k = 0; k < f->n; k++)
        if (str_is(f->v[k].name, name)) return;
    struct str text = {arena_strndup(p->m->arena, value.p, value.n), value.n};
    avec_push(p->m->arena, f,
              ((struct hlo_text_attr){str_of(arena_strdup(p->m->arena, name)), text}));
}

// Text that a row keeps is one attribute value: in normal form, without a comma or line break at
// its top level.
static bool is_value(const char *v) {
    struct strbuf b = {0};
    struct cursor c = {v, v + strlen(v)};
    struct str cut = p_cut(&c, ",");
    bool ok = cut.n && c.p == c.end && p_normal(&b, cut) && str_is((struct str){b.p, b.n}, v);
    strbuf_done(&b);
    return ok;
}

// Reserved: written by other means, so that they cannot come in as kept text.
static bool is_reserved(struct str name) {
    return str_listed(
        name, "to_apply calls condition body select scatter true_computation false_computation "
              "branch_computations called_computations control-predecessors "
              "entry_computation_layout frontend_attributes");
}

// name=value pairs with single blanks between them, as the text parser keeps metadata.
static bool is_metadata(const char *v) {
    struct strbuf b = {0};
    struct cursor c = {v, v + strlen(v)};
    bool ok = true;
    while (ok && !p_at_end(&c)) {
        struct str name = p_word(&c), value = {0};
        if (name.n && p_take(&c, "=")) value = p_cut(&c, " \n\t\r,");
        ok = value.n && !str_is(name, "op_type") && !str_is(name, "op_name");
        strbuf_printf(&b, "%s" STR_FMT "=", b.n ? " " : "", STR_ARG(name));
        ok = ok && p_normal(&b, value);
    }
    ok = ok && b.n && str_is((struct str){b.p, b.n}, v);
    strbuf_done(&b);
    return ok;
}

// Splits a map into kept attributes and frontend_attributes.
static status_t get_map(struct parser *p, const Xla__FrontendAttributes *map, struct hlo_instr *i,
                        struct found *f) {
    struct strbuf b = {0};
    status_t st = ST_OK;
    for (size_t k = 0; map && k < map->n_map && !st; k++) {
        if (f->n == P_MAX_ATTRS) st = st_invalid("more than %d attributes", P_MAX_ATTRS);
        if (st) break;

        const char *key = map->map[k]->key, *value = map->map[k]->value;
        size_t prefix = strlen(HLO_PB_KEPT);
        if (strncmp(key, HLO_PB_KEPT, prefix) == 0) {
            bool meta = strcmp(key + prefix, "metadata") == 0;
            bool ok = is_word(key + prefix) && !is_reserved(str_of(key + prefix)) &&
                      (meta ? is_metadata(value) : is_value(value));
            if (i) ok &= !attr_has_field(hlo_op_info(i->op)->attrs, str_of(key + prefix));
            if (!ok)
                st = st_invalid("%s is not an attribute: '%.40s'", key, value);
            else
                found_add(p, f, key + prefix, str_of(value));
        } else if (i && i->op == HLO_PARAMETER && strcmp(key, "hlod_param") == 0) {
            st = p_param_kind(p, str_of(value), i);
        } else if (!is_word(key)) {
            st = st_invalid("frontend attribute '%.40s': not a name", key);
        } else {
            strbuf_printf(&b, "%s%s=", b.n ? "," : "{", key);
            if (p_is_braced(str_of(value)))
                strbuf_puts(&b, value);
            else
                hlo_quote(&b, str_of(value));
        }
    }

    if (!st && b.n) {
        strbuf_putc(&b, '}');
        found_add(p, f, "frontend_attributes", (struct str){b.p, b.n});
    }
    strbuf_done(&b);
    return st;
}

status_t pb_get_kept(struct parser *p, const Xla__HloInstructionProto *m, struct hlo_instr *i) {
    struct found f = {0};
    struct strbuf b = {0};
    RETURN_IF_ERR(get_map(p, m->frontend_attributes, i, &f));
    if (m->metadata) {
        struct arena *a = p->m->arena;
        if (m->metadata->op_type[0]) i->op_type = arena_strdup(a, m->metadata->op_type);
        if (m->metadata->op_name[0]) i->op_name = arena_strdup(a, m->metadata->op_name);
        metadata_text(&b, m->metadata);
        if (b.n) found_add(p, &f, "metadata", (struct str){b.p, b.n});
    }
    for (const struct pb_kept *row = pb_kept_rows; row->name; row++) {
        strbuf_clear(&b);
        row->get(&b, i->op, m);
        if (b.n) found_add(p, &f, row->name, (struct str){b.p, b.n});
    }
    strbuf_done(&b);
    for (size_t k = 0; k < f.n; k++)
        avec_push(p->m->arena, &i->extra, f.v[k]);
    hlo_sort_extra(i->extra.v, i->extra.n);
    return ST_OK;
}

status_t pb_get_module_kept(struct parser *p, const Xla__HloModuleProto *m) {
    static const char *const names[] = {"is_scheduled", "input_output_alias", "buffer_donor", NULL};
    struct found f = {0};
    struct strbuf b = {0};
    RETURN_IF_ERR(get_map(p, m->frontend_attributes, NULL, &f));
    for (int k = 0; names[k]; k++) {
        strbuf_clear(&b);
        pb_get_module_attr(&b, str_of(names[k]), m);
        if (b.n) found_add(p, &f, names[k], (struct str){b.p, b.n});
    }
    strbuf_done(&b);
    for (size_t k = 0; k < f.n; k++)
        avec_push(p->m->arena, &p->m->extra, f.v[k]);
    hlo_sort_extra(p->m->extra.v, p->m->extra.n);
    return ST_OK;
}
