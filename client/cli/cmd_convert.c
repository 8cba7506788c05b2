// SPDX-License-Identifier: Apache-2.0
// hlo convert: a program in another form, without a server: hlo-opt, which stands beside hlo, reads
// and writes it.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/hlo.h"
#include "client/files/opt_tool.h"

// How hlo-opt writes a file of this name; NULL: its ending says nothing.
static const char *form_of(const char *path) {
    static const struct {
        const char *ending, *option;
    } forms[] = {{".mlir", "--to=stablehlo"},
                 {".hlo", "--to=text"},
                 {".txt", "--to=text"},
                 {".pb", "--to=proto"}};
    const char *dot = strrchr(path, '.');
    for (size_t k = 0; dot && k < sizeof forms / sizeof *forms; k++)
        if (strcmp(dot, forms[k].ending) == 0) return forms[k].option;
    return NULL;
}
int cmd_convert(struct hlo *h) {
    const char *in = NULL, *out = NULL, *bind = NULL, *v;
    for (int k = 0; k < h->argc; k++) {
        if ((v = option_value(h, &k, "--bind")))
            bind = v;
        else if ((h->argv[k][0] == '-' && h->argv[k][1]) || out)
            return unknown_word(h, "convert", k);
        else if (in)
            out = h->argv[k];
        else
            in = h->argv[k];
    }
    if (!out) return usage_error("convert needs two files: hlo convert MODEL.onnx OUT.mlir");
    const char *form = form_of(out);
    if (!form)
        return usage_error("%s: what is written goes by the ending: .mlir (StableHLO), .hlo (HLO "
                           "text) or .pb (HloModuleProto)",
                           out);
    if (access(in, R_OK)) return fail_status(st_errno(errno, in));

    const char *argv[] = {form, "--weights", NULL, NULL};
    if (bind) argv[2] = arena_printf(&h->arena, "--bind=%s", bind);
    return hlo_opt_into(h, out, argv, in);
}
