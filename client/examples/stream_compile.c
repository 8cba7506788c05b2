// SPDX-License-Identifier: Apache-2.0
// Compiles a model and prints each step as the server takes it.
//     stream_compile MODEL INPUT=1x3x224x224... [--addr ADDRESS]
#include <hlod.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHAPES = 8, MAX_RANK = 8 };

static bool show(void *ctx, const struct hlod_event *e) {
    int *passes = ctx;
    switch (e->kind) {
    case HLOD_EVENT_INGESTED:
        printf("%8.1f ms  model %s\n", e->t_ms, e->hit ? "known" : "read");
        break;
    case HLOD_EVENT_COMPILING:
        printf("%8.1f ms  compiling%s\n", e->t_ms, e->hit ? " (by another request)" : "");
        break;
    case HLOD_EVENT_PASS:
        ++*passes;
        printf("%8.1f ms  pass %-16s %6.1f ms\n", e->t_ms, e->name, e->ms);
        break;
    case HLOD_EVENT_COMPILED:
        printf("%8.1f ms  %s\n", e->t_ms, e->hit ? "was in the cache" : "compiled");
        break;
    default:
        break; // later versions have more
    }
    return true; // false would cancel
}

int main(int argc, char **argv) {
    const char *model = NULL, *addr = NULL;
    struct hlod_shape shapes[MAX_SHAPES];
    int64_t dims[MAX_SHAPES][MAX_RANK];
    size_t n = 0;

    for (int i = 1; i < argc; i++) {
        char *eq = strchr(argv[i], '=');
        if (!strcmp(argv[i], "--addr") && i + 1 < argc) {
            addr = argv[++i];
        } else if (eq && n < MAX_SHAPES) {
            shapes[n] = (struct hlod_shape){argv[i], 0, dims[n]};
            *eq = 0;
            for (char *p = eq + 1, *end; shapes[n].rank < MAX_RANK && *p; p = *end ? end + 1 : end)
                dims[n][shapes[n].rank++] = strtoll(p, &end, 10);
            n++;
        } else
            model = argv[i];
    }

    struct hlod *h;
    if (!model || hlod_open(addr, &h)) {
        fprintf(stderr, "usage: stream_compile MODEL INPUT=1x3x224x224... [--addr ADDRESS]\n");
        return 2;
    }

    int passes = 0;
    struct hlod_compile_options o = HLOD_COMPILE_OPTIONS;
    o.shapes = shapes;
    o.n_shapes = n;
    o.on_event = show;
    o.ctx = &passes;
    struct hlod_executable *e;
    if (hlod_compile_file(h, model, &o, &e)) {
        fprintf(stderr, "%s: %s\n", hlod_error(h)->reason, hlod_error(h)->message);
        hlod_close(h);
        return 1;
    }

    printf("%s: %lld instructions before, %lld after, %d passes\n", e->digest,
           (long long)e->entry_before, (long long)e->entry_after, passes);
    hlod_executable_free(e);
    hlod_close(h);
    return 0;
}
