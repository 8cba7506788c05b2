// SPDX-License-Identifier: Apache-2.0
// hlo-opt: the compiler developer's tool. Reads a module, does what the options say, prints HLO
// text (or another stage) on stdout. Each group of options lives in its own opt_*.c; this file only
// reads the command line and the input.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/store/file.h"
#include "base/str.h"
#include "compiler/tools/opt.h"

static const char usage[] =
    "usage: hlo-opt [OPTION...] FILE|-\n"
    "  --canonical           print the canonical text (names replaced, no metadata)\n"
    "  --to=text|proto|stablehlo  how to print the module: HLO text, a HloModuleProto, or "
    "StableHLO\n"
    "                        text\n"
    "  --hash                print the SHA-256 of the canonical graph\n"
    "  --counts              print instruction counts\n"
    "  --eval                evaluate with the inputs in the file's comments, compare (see "
    "tests/ops/README.md)\n"
    "  --check-passes        evaluate each module before and after every pass and the pipeline, "
    "compare\n"
    "  --gradient            replace the entry by its derivatives: parameters, then a seed for "
    "each\n"
    "                        result, to a tuple of the derivatives by each parameter\n"
    "  --jvp                 replace the entry by its Jacobian-vector product: parameters, then a "
    "direction\n"
    "                        for each, to a tuple of what each result changes by along them\n"
    "  --check-gradient      compare the derivatives of each module with central differences\n"
    "  --train=SPEC          replace a model by the program that trains it: "
    "\"loss=mse;optimizer=adam:rate=1e-3;\n"
    "                        batch=32;rows=1000;shuffle=1;...\" (compiler/train/train.h)\n"
    "  --train-rows=SHAPES   of all rows: \"x:1000x3x32x32;label:1000\"; sizes that the model\n"
    "                        leaves open are these\n"
    "  --train-to=FILE       write what the parameters of that program are, as JSON\n"
    "  --train-state=FILE    write what its state begins with, as safetensors\n"
    "  --with-weights=FILE   print the model with the weights of a safetensors file instead\n"
    "  --bind N=1,S=128      sizes of an ONNX model's symbolic dimensions\n"
    "  --weights             a model's weights as constants of the module\n"
    "  --passes=a,b,c        run these passes in order, verifying after each; @whole, @prepare and "
    "@main\n"
    "                        are the lists a compile runs (compiler/pipeline.c)\n"
    "  --disable-pass=a,b    leave these passes out\n"
    "  --disable-rule=a,b    leave these rules of algsimp out\n"
    "  --explain-fusion      print each decision of the passes that fuse: producer, consumer, "
    "fused or why not\n"
    "  --explain-rules       print each rewrite of algsimp: rule, instruction, its replacement\n"
    "  --dump-passes[=RE]    print the module after each pass whose name matches RE (default: "
    "all)\n"
    "  --dump-to=DIR         write the dumps to DIR/NNN.MODULE.PASS.hlo instead\n"
    "  --stage=STAGE         print hlo (default), kir (kernels), plan, or what a back end makes of "
    "the kernels:\n"
    "                        llvm (optimised IR), wasm (assembly), opencl, wgsl and glsl (source)\n"
    "  --target=NAME         cpu-avx512, cpu-vnni, cpu-bf16, cpu-avx2: a library that takes every "
    "f32 call; web, wasm, webgpu, webgl; gl; opencl, opencl-cpu\n"
    "  --web=DIR             write the model as a package for browsers (compiler/web)\n"
    "  --web-backend=NAME    auto: WebGPU or WebGL2 where there is a GPU, WebAssembly beside it "
    "(default);\n"
    "                        webgpu, webgl: wherever there is such; wasm\n"
    "  --web-single          as one page\n"
    "  --web-f16             its weights of f32 as f16\n"
    "  --web-image=HOW       what a picture goes through to be an input: "
    "HEIGHTxWIDTH:CROP:MEAN,MEAN,MEAN:\n"
    "                        STD,STD,STD:nchw|nhwc:INPUT; 0x0 is the input's size, no INPUT the "
    "only one\n"
    "  --web-labels=FILE     names of its classes, a line each\n"
    "  --web-name=NAME       of the package\n"
    "  --strict              strict precision\n"
    "  --fast                convolutions and dots of f32 in bf16 (--target=cpu-bf16)\n"
    "  --list-passes         the table of passes, as Markdown\n"
    "  --list-rules          the table of algsimp's rules, as Markdown\n"
    "  --no-output           parse and verify only\n"
    "Exit codes: 0 ok, 1 results differ, 2 usage, 3 module refused.\n";

// A file is mapped; the input, a pipe or what else has no size is read into `read`.
static status_t open_input(struct arena *a, const char *path, struct strbuf *read,
                           struct str *out) {
    bool input = strcmp(path, "-") == 0;
    struct span file = {0};
    if (!input) RETURN_IF_ERR(file_map(a, path, &file));
    *out = (struct str){(const char *)file.p, file.n};
    if (file.n) return ST_OK;

    FILE *f = input ? stdin : fopen(path, "rbe");
    if (!f) return st_errno(errno, path);
    char buf[65536];
    for (size_t n; (n = fread(buf, 1, sizeof buf, f)) > 0;)
        strbuf_add(read, buf, n);
    int err = ferror(f) ? errno : 0;
    if (f != stdin) fclose(f);
    *out = (struct str){strbuf_cstr(read), read->n};
    return err ? st_errno(err, path) : ST_OK;
}

// Options with a value: --name=VALUE.
static bool take_value(const char *arg, struct opt_options *o) {
    const struct {
        const char *name;
        const char **to;
    } table[] = {{"--passes=", &o->passes},
                 {"--target=", &o->target},
                 {"--bind=", &o->bind},
                 {"--train=", &o->train},
                 {"--train-rows=", &o->train_rows},
                 {"--train-to=", &o->train_to},
                 {"--train-state=", &o->train_state},
                 {"--with-weights=", &o->with_weights},
                 {"--disable-pass=", &o->disable_passes},
                 {"--disable-rule=", &o->disable_rules},
                 {"--dump-passes=", &o->dump_passes},
                 {"--web=", &o->web},
                 {"--web-backend=", &o->web_backend},
                 {"--web-image=", &o->web_image},
                 {"--web-labels=", &o->web_labels},
                 {"--web-name=", &o->web_name},
                 {"--dump-to=", &o->dump_to},
                 {"--stage=", &o->stage}};
    for (size_t k = 0; k < sizeof table / sizeof table[0]; k++) {
        size_t n = strlen(table[k].name);
        if (strncmp(arg, table[k].name, n) != 0) continue;
        *table[k].to = arg + n;
        return true;
    }
    return false;
}

// Options that switch something on.
static bool take_flag(const char *arg, struct opt_options *o) {
    const struct {
        const char *name;
        bool *to;
    } table[] = {{"--canonical", &o->canonical},
                 {"--hash", &o->hash},
                 {"--counts", &o->counts},
                 {"--weights", &o->weights},
                 {"--eval", &o->eval},
                 {"--check-passes", &o->check_passes},
                 {"--gradient", &o->gradient},
                 {"--jvp", &o->jvp},
                 {"--check-gradient", &o->check_gradient},
                 {"--explain-fusion", &o->explain_fusion},
                 {"--explain-rules", &o->explain_rules},
                 {"--list-rules", &o->list_rules},
                 {"--strict", &o->strict},
                 {"--fast", &o->fast},
                 {"--web-single", &o->web_single},
                 {"--web-f16", &o->web_f16},
                 {"--list-passes", &o->list_passes}};
    for (size_t k = 0; k < sizeof table / sizeof table[0]; k++)
        if (strcmp(arg, table[k].name) == 0) return *table[k].to = true;
    return false;
}

int main(int argc, char **argv) {
    struct opt_options o = {.print = true};

    for (int k = 1; k < argc; k++) {
        const char *arg = argv[k];
        if (strcmp(arg, "--help") == 0) return fputs(usage, stdout) < 0;
        if (take_value(arg, &o)) continue;
        if (take_flag(arg, &o)) continue;
        if (strcmp(arg, "--to=text") == 0 || strcmp(arg, "--to=proto") == 0 ||
            strcmp(arg, "--to=stablehlo") == 0)
            o.to = arg + 5;
        else if (strcmp(arg, "--no-output") == 0)
            o.print = false;
        else if (strcmp(arg, "--bind") == 0 && k + 1 < argc)
            o.bind = argv[++k];
        else if (strcmp(arg, "--dump-passes") == 0)
            o.dump_passes = "";
        else if (strcmp(arg, "--version") == 0)
            return puts("hlo-opt " HLOD_VERSION) < 0;
        else if (arg[0] == '-' && arg[1])
            return fprintf(stderr, "hlo-opt: unknown option %s\n%s", arg, usage), 2;
        else
            o.path = arg;
    }

    if (o.list_passes) opt_list_passes();
    if (o.list_rules) opt_list_rules();
    if (o.list_passes || o.list_rules) return 0;
    if (!o.path) return fputs(usage, stderr), 2;

    struct arena a = {0};
    struct strbuf read = {0};
    struct str text;
    status_t st = open_input(&a, o.path, &read, &text);
    int rc = 0;
    if (!st) st = opt_run(&o, text, &rc);
    strbuf_done(&read);
    arena_done(&a);
    if (!st) return rc;
    fprintf(stderr, "hlo-opt: %s: %s: %s\n", o.path, st_code_name(st_code(st)), st_message(st));
    st_drop(st);
    return 3;
}
