// SPDX-License-Identifier: Apache-2.0
// The programs of the kit that have a compiler in them as one file under several names, since LLVM
// is most of each: what it does goes by the name that it is called by. Their mains are compiled
// with another name (tests/device.mk).
#include <stdio.h>
#include <string.h>

int run_main(int argc, char **argv);
int worker_main(int argc, char **argv);
int opt_main(int argc, char **argv);
int contract_main(int argc, char **argv);

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*main)(int argc, char **argv);
    } programs[] = {
        {"hlo-run", run_main},
        {"hlod-worker", worker_main},
        {"hlo-opt", opt_main},
        {"device_test", contract_main}};
    const char *slash = argc ? strrchr(argv[0], '/') : NULL, *name = slash ? slash + 1 : argv[0];
    for (size_t k = 0; name && k < sizeof programs / sizeof programs[0]; k++)
        if (strcmp(programs[k].name, name) == 0) return programs[k].main(argc, argv);
    fprintf(stderr, "kit: call it hlo-run, hlo-opt, hlod-worker or device_test\n");
    return 2;
}
