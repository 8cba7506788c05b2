// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over files, without a fuzzer: make check replays the corpus in any build.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int main(int argc, char **argv) {
    for (int k = 1; k < argc; k++) {
        FILE *f = fopen(argv[k], "rbe");
        if (!f) return perror(argv[k]), 1;
        fseek(f, 0, SEEK_END);
        long n = ftell(f);
        rewind(f);
        uint8_t *data = malloc(n > 0 ? (size_t)n : 1);
        if (!data || n < 0 || fread(data, 1, (size_t)n, f) != (size_t)n) return perror(argv[k]), 1;
        fclose(f);
        printf("%s\n", argv[k]); // the last one named is the one that failed
        fflush(stdout);
        LLVMFuzzerTestOneInput(data, (size_t)n);
        free(data);
    }
    return argc > 1 ? 0 : 2;
}
