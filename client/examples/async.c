// SPDX-License-Identifier: Apache-2.0
// Many runs at once from one thread, as an event loop would do it: starts some, polls the library's
// descriptor, takes what has ended, starts the next.
//     async DIGEST|NAME COUNT IN_FLIGHT [ADDRESS]      the model takes x: f32[1,4]
#include <hlod_async.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

struct request {
    float x[4];
    struct hlod_tensor in; // borrowed by the library until the call's end, as x is
};

static int start(struct hlod_async *q, const char *model, int number) {
    static const int64_t dims[2] = {1, 4};
    struct request *r = malloc(sizeof *r);
    if (!r) return 1;
    for (int k = 0; k < 4; k++)
        r->x[k] = (float)(number + k);
    r->in = (struct hlod_tensor){"x", "f32", 2, dims, r->x, sizeof r->x};
    return hlod_run_start(q, model, &r->in, 1, NULL, NULL, r, NULL);
}

int main(int argc, char **argv) {
    struct hlod_async *q;
    if (argc < 4 || hlod_async_open(argc > 4 ? argv[4] : NULL, NULL, &q)) {
        fprintf(stderr, "usage: async DIGEST|NAME COUNT IN_FLIGHT [ADDRESS]\n");
        return 2;
    }
    int count = (int)strtol(argv[2], NULL, 10), most = (int)strtol(argv[3], NULL, 10);
    int started = 0, ended = 0, failed = 0;
    double sum = 0;
    while (ended < count) {
        while (started < count && started - ended < most)
            if (start(q, argv[1], started++)) return 1;
        struct pollfd p = {.fd = hlod_async_fd(q), .events = POLLIN}; // and others of your own
        poll(&p, 1, -1);
        for (struct hlod_call *c; (c = hlod_async_next(q, 0)); ended++) {
            struct hlod_result *r = hlod_call_take_result(c);
            if (r) {
                sum += (double)((const float *)r->outputs[0].data)[0];
            } else {
                if (!failed++) fprintf(stderr, "%s\n", hlod_call_error(c)->message);
            }
            hlod_result_free(r);
            free(hlod_call_ctx(c));
            hlod_call_free(c);
        }
    }
    printf("%d runs, %d failed, sum of first outputs %g\n", ended, failed, sum);
    hlod_async_close(q);
    return failed != 0;
}
