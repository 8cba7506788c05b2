// SPDX-License-Identifier: Apache-2.0
// hlo-opt's passes: runs a list, and prints what passes decide and leave behind. A name that begins
// with '@' stands for a list of pipeline.c, so that goldens see what a compile does.
#include <errno.h>
#include <regex.h>
#include <stdio.h>

#include "compiler/codegen/opencl.h"
#include "compiler/codegen/shader/shader.h"
#include "compiler/passes/fusion/library.h"
#include "compiler/passes/rules/rules.h"
#include "compiler/pipeline.h"
#include "compiler/tools/opt.h"
#include "compiler/web/web.h"

// A target for goldens: its library takes every contraction of f32 that is one call, transposed
// convolutions from 16 channels on, so tests do not depend on the machine.
static bool takes_all(UNUSED const struct target *t, const struct hlo_instr *i) {
    struct lib_call c;
    if (lib_transposed(i) && i->operands[1]->shape->dims[0] < 16) return false;
    return lib_match(i, &c) && c.hero->shape->dtype == DT_F32 && !lib_direct(c.hero);
}
static bool takes_int8(const struct target *t, const struct hlo_instr *i) {
    return takes_all(t, i) || lib_table(i) ||
           ((i->op == HLO_CONVOLUTION || i->op == HLO_DOT) && i->shape->dtype == DT_S32 &&
            dtype_bits(i->operands[1]->shape->dtype) == 8);
}
static bool runs_bf16(UNUSED const struct target *t, const struct lib_call *c) {
    return c->hero->shape->dtype == DT_F32 && !lib_direct(c->hero);
}
static bool wants_all(const struct target *t, const struct hlo_instr *i, enum conv_form *out_input,
                      enum conv_form *out_output) {
    struct lib_call c;
    if (!t->conv_block || !lib_match(i, &c) || c.hero->op != HLO_CONVOLUTION ||
        i->shape->rank < 3 || i->shape->rank > 5 || lib_direct(c.hero))
        return false;
    *out_input = *out_output = c.hero->shape->dtype == DT_F32 ? FORM_BLOCKED : FORM_LAST;
    return true;
}

status_t opt_target(const char *name, struct target *out) {
    *out = (struct target){0};
    if (!name) return ST_OK;
    if (strcmp(name, "web") == 0 || strcmp(name, "wasm") == 0) {
        *out = *web_target_for(strcmp(name, "web") ? WEB_WASM : WEB_AUTO);
        return ST_OK;
    }
    if (strcmp(name, "webgpu") == 0 || strcmp(name, "webgl") == 0) {
        *out = *(strcmp(name, "webgl") ? &shader_wgsl : &shader_glsl)->target(false);
        return ST_OK;
    }
    const struct target *device = gl_target_named(name);
    if (!device) device = opencl_target_named(name);
    if (device) {
        *out = *device;
        return ST_OK;
    }
    bool avx2 = strcmp(name, "cpu-avx2") == 0, vnni = strcmp(name, "cpu-vnni") == 0,
         bf16 = strcmp(name, "cpu-bf16") == 0, emulated = strcmp(name, "cpu-bf16-emulated") == 0;
    if (!avx2 && !vnni && !bf16 && !emulated && strcmp(name, "cpu-avx512") != 0)
        return st_invalid("no target is called '%s': cpu-avx512, cpu-vnni, cpu-bf16, "
                          "cpu-bf16-emulated, cpu-avx2, web, wasm, webgpu, webgl, gl, opencl or "
                          "opencl-cpu",
                          name);

    *out = (struct target){.id = name,
                           .kind = "cpu",
                           .llvm_triple = "x86_64-unknown-linux-gnu",
                           .llvm_cpu = avx2 ? "x86-64-v3" : "x86-64-v4",
                           .llvm_features = "",
                           .vector_bits = avx2 ? 256 : 512,
                           .conv_block = avx2 ? 8 : 16,
                           .threads = 2,
                           .library_accepts = vnni ? takes_int8 : takes_all,
                           .library_channels = !avx2 && !vnni,
                           .library_dim_maps = true,
                           .library_attention = true,
                           .library_int8 = vnni,
                           .few_bits = true,
                           .few_bits_x8 = vnni,
                           .library_bf16 = bf16,
                           .bf16_emulated = emulated,
                           .library_runs = bf16 || emulated ? runs_bf16 : NULL,
                           .wants_form = wants_all};
    return ST_OK;
}

// ---- what passes say

static void say_fusion(UNUSED void *ctx, const char *pass, const struct hlo_instr *producer,
                       const struct hlo_instr *consumer, const char *why_not) {
    printf("%s: %s %%%s -> %s %%%s: %s%s\n", pass, hlo_op_name(producer->op), producer->name,
           hlo_op_name(consumer->op), consumer->name, why_not ? "not fused: " : "fused",
           why_not ? why_not : "");
}
static void say_rule(UNUSED void *ctx, const char *rule, const struct hlo_instr *i,
                     const struct hlo_instr *with) {
    printf("algsimp: %s: %s %%%s -> %s %%%s\n", rule, hlo_op_name(i->op), i->name,
           hlo_op_name(with->op), with->name);
}

struct dumper {
    const struct opt_options *o;
    regex_t re;
    bool on;
    int n; // passes seen
    status_t st;
};
static void dump(void *ctx, const char *pass, const struct hlo_module *m) {
    struct dumper *d = ctx;
    int n = d->n++;
    if (d->st || regexec(&d->re, pass, 0, NULL, 0) != 0) return;
    struct strbuf text = {0}, path = {0};
    FILE *f = stdout;
    strbuf_printf(&path, "%s/%03d.%s.%s.hlo", d->o->dump_to ? d->o->dump_to : "", n, m->name, pass);
    if (d->o->dump_to && !(f = fopen(strbuf_cstr(&path), "wbe")))
        d->st = st_errno(errno, strbuf_cstr(&path));
    hlo_print_module(&text, m, HLO_PRINT_DEFAULT);
    if (f) {
        if (f == stdout) printf("// ---- after %s\n", pass);
        fwrite(text.p, 1, text.n, f);
    }
    if (f && f != stdout && fclose(f)) d->st = st_errno(errno, strbuf_cstr(&path));
    strbuf_done(&text);
    strbuf_done(&path);
}

// ---- running

static status_t check_names(const char *list, bool rules) {
    struct str all = str_of(list ? list : ""), item;
    int n;
    const struct rule *t = rule_table(&n);
    while (str_cut(&all, ',', &item)) {
        bool found = !rules && pass_find(str_trim(item));
        for (int k = 0; k < n && rules; k++)
            found |= str_is(str_trim(item), t[k].name);
        if (!found)
            return st_invalid("no %s is called '" STR_FMT "'", rules ? "rule" : "pass",
                              STR_ARG(item));
    }
    return ST_OK;
}

static status_t run_list(struct hlo_module *m, const struct opt_options *o, struct pass_ctx *p) {
    struct str all = str_of(o->passes), name;
    while (str_cut(&all, ',', &name)) {
        const char *z = arena_strndup(p->keep, name.p, name.n);
        if (z[0] == '@')
            RETURN_IF_ERR(pipeline_run(z + 1, m, p));
        else
            RETURN_IF_ERR(pass_run(m, z, p));
    }
    return ST_OK;
}

status_t opt_run_passes(struct hlo_module *m, const struct opt_options *o) {
    struct compile_options opt = {.precision = o->strict ? PRECISION_STRICT
                                               : o->fast ? PRECISION_FAST
                                                         : PRECISION_DEFAULT,
                                  .disable_passes = o->disable_passes ? o->disable_passes : "",
                                  .disable_rules = o->disable_rules ? o->disable_rules : "",
                                  .verify_each = true};
    struct target t;
    struct arena keep = {0};
    struct dumper d = {.o = o};
    struct compile_observer obs = {.ctx = &d, .on_dump = o->dump_passes ? dump : NULL};
    struct pass_trace trace = {.fusion = o->explain_fusion ? say_fusion : NULL,
                               .rule = o->explain_rules ? say_rule : NULL};
    RETURN_IF_ERR(opt_target(o->target, &t));
    RETURN_IF_ERR(check_names(o->disable_passes, false));
    RETURN_IF_ERR(check_names(o->disable_rules, true));
    if (o->dump_passes && regcomp(&d.re, o->dump_passes, REG_EXTENDED | REG_NOSUB))
        return st_invalid("--dump-passes: '%s' is not a regular expression", o->dump_passes);
    struct pass_ctx p = {
        .opt = &opt, .target = o->target ? &t : NULL, .obs = &obs, .trace = &trace, .keep = &keep};
    status_t st = run_list(m, o, &p);
    if (o->dump_passes) regfree(&d.re);
    arena_done(&p.scratch);
    arena_done(&keep);
    if (!st) return d.st;
    st_drop(d.st);
    return st;
}

void opt_list_passes(void) {
    int n;
    const struct pass *t = pass_table(&n);
    puts("| pass | what it does |\n|---|---|");
    for (int k = 0; k < n; k++)
        printf("| `%s` | %s |\n", t[k].name, t[k].doc);
}
void opt_list_rules(void) {
    int n;
    const struct rule *t = rule_table(&n);
    puts("| rule | what it does |\n|---|---|");
    for (int k = 0; k < n; k++) {
        printf("| `%s` | ", t[k].name);
        for (const char *c = t[k].doc; *c; c++)
            printf(*c == '|' ? "\\|" : "%c", *c);
        puts(" |");
    }
}
