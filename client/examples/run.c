// SPDX-License-Identifier: Apache-2.0
// Runs a model once: uploads it, compiles it where needed, prints the first numbers of each output.
//     run MODEL [ADDRESS]      ADDRESS: 127.0.0.1:8000, grpc://127.0.0.1:8001, https://...
// The model's inputs are f32 of fixed shapes; every element is 0.5. (stream_compile.c fixes
// shapes.)
#include <hlod.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const struct hlod *h, const char *what) {
    const struct hlod_error *e = hlod_error(h);
    fprintf(stderr, "%s: %s %s: %s\n", what, hlod_code_name(e->code), e->reason, e->message);
    for (size_t i = 0; i < e->n_details; i++)
        fprintf(stderr, "  %s\n", e->details[i]);
    return 1;
}

int main(int argc, char **argv) {
    struct hlod *h;
    if (argc < 2 || hlod_open(argc > 2 ? argv[2] : NULL, &h)) {
        fprintf(stderr, "usage: run MODEL [ADDRESS]\n");
        return 2;
    }
    struct hlod_executable *e;
    if (hlod_compile_file(h, argv[1], NULL, &e)) return failed(h, "compile");
    printf("%s in %.1f ms, %lld instructions\n", e->cache_hit ? "found" : "compiled", e->compile_ms,
           (long long)e->entry_after);

    struct hlod_tensor *in = calloc(e->n_inputs + 1, sizeof *in);
    for (size_t i = 0; in && i < e->n_inputs; i++) {
        const struct hlod_spec *s = &e->inputs[i];
        size_t n = 1;
        for (int32_t d = 0; d < s->rank; d++)
            n *= (size_t)s->dims[d];
        float *x = malloc(n * sizeof *x + 1);
        for (size_t k = 0; x && k < n; k++)
            x[k] = 0.5f;
        in[i] = (struct hlod_tensor){s->name, "f32", s->rank, s->dims, x, n * sizeof *x};
    }
    struct hlod_result *r;
    if (hlod_run(h, e->digest, in, e->n_inputs, NULL, &r)) return failed(h, "run");
    for (size_t i = 0; i < r->n_outputs; i++) {
        const struct hlod_tensor *y = &r->outputs[i];
        printf("%s:", y->name);
        for (size_t k = 0; k < 4 && k < y->size_bytes / sizeof(float); k++)
            printf(" %g", (double)((const float *)y->data)[k]);
        printf("\n");
    }
    printf("ran on %s in %.3f ms\n", r->device, r->n_run_ms ? r->run_ms[0] : 0);
    for (size_t i = 0; i < e->n_inputs; i++)
        free((void *)in[i].data);
    free(in);
    hlod_result_free(r);
    hlod_executable_free(e);
    hlod_close(h);
    return 0;
}
