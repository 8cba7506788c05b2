// SPDX-License-Identifier: Apache-2.0
// libhlod's resident buffers and plans against a daemon with a simulated device, over the transport
// that the address names.  Usage: buffers_test ADDR MODEL.hlo   (the model: x + 1, f32[4])
#include <stdio.h>
#include <string.h>

#include <hlod.h>
#include <hlod_admin.h>
#include <hlod_buffers.h>

static struct hlod *h;
#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, hlod_error(h)->message);        \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

int main(int argc, char **argv) {
    const float x[4] = {1, 2, 3, 4};
    const int64_t dims[1] = {4};
    const struct hlod_tensor t = {"x", "f32", 1, dims, x, sizeof x};
    struct hlod_executable *e;
    struct hlod_buffers *b, *list;
    struct hlod_outputs *r, *got;
    if (argc < 3 || hlod_open(argv[1], &h)) return 2;
    CHECK(!hlod_compile_file(h, argv[2], NULL, &e));

    // A profile's rows: every text of them is there, if only empty.
    struct hlod_run_options ro = HLOD_RUN_OPTIONS;
    struct hlod_result *run;
    ro.profile = true;
    CHECK(!hlod_run(h, e->digest, &t, 1, &ro, &run) && run->n_profile > 0);
    for (size_t i = 0; i < run->n_profile; i++) {
        const struct hlod_step *s = &run->profile[i];
        CHECK(s->name[0] && s->op && s->impl && s->depth == 0);
        CHECK(s->of_peak >= 0 && s->bound && s->n_nodes == 0);
        for (size_t k = 0; k < s->n_hlo; k++)
            CHECK(s->hlo[k][0]);
    }
    hlod_result_free(run);

    struct hlod_put_options po = HLOD_PUT_OPTIONS;
    po.lease_ms = 60000;
    CHECK(!hlod_buffer_put(h, &t, 1, &po, &b) && b->n_buffers == 1);
    CHECK(b->buffers[0].bytes == 16 && b->buffers[0].lease_ms == 60000 && b->buffers[0].rank == 1);

    // A state that is donated and kept, ten times.
    struct hlod_resident_options o = HLOD_RESIDENT_OPTIONS;
    const char *all[] = {"*"};
    char state[64];
    o.keep = all;
    o.n_keep = 1;
    snprintf(state, sizeof state, "%s", b->buffers[0].handle);
    for (int k = 0; k < 10; k++) {
        struct hlod_input in = {.handle = state, .donate = true};
        CHECK(!hlod_run_resident(h, e->digest, &in, 1, &o, &r));
        CHECK(r->n_outputs == 1 && r->outputs[0].handle && !r->outputs[0].tensor.size_bytes);
        snprintf(state, sizeof state, "%s", r->outputs[0].handle);
        hlod_outputs_free(r);
    }
    CHECK(!hlod_buffer_get(h, state, &got));
    for (int k = 0; k < 4; k++)
        CHECK(((const float *)got->outputs[0].tensor.data)[k] == x[k] + 10);
    hlod_outputs_free(got);
    CHECK(hlod_buffer_get(h, b->buffers[0].handle, &got) == HLOD_FAILED_PRECONDITION);
    CHECK(!strcmp(hlod_error(h)->reason, "BUFFER_DONATED"));
    CHECK(!hlod_buffer_list(h, &list) && list->n_buffers == 1);
    CHECK(!strcmp(list->buffers[0].handle, state) && !strcmp(list->buffers[0].state, "ready"));
    hlod_buffers_free(list);
    hlod_buffers_free(b);

    const char *const elements[] = {state, state};
    CHECK(!hlod_buffer_tuple(h, elements, 2, -1, &b) && b->buffers[0].n_elements == 2);
    CHECK(!hlod_buffer_renew(h, b->buffers[0].handle, 1000));
    CHECK(!hlod_buffer_free(h, b->buffers[0].handle));
    CHECK(hlod_buffer_free(h, b->buffers[0].handle) == HLOD_NOT_FOUND);
    hlod_buffers_free(b);

    char plan[512];
    snprintf(plan, sizeof plan,
             "{\"steps\":[{\"name\":\"a\",\"model\":\"%s\",\"inputs\":[{\"input\":\"x\"}]},"
             "{\"name\":\"b\",\"model\":\"%s\",\"inputs\":[{\"step\":\"a\"}]}],"
             "\"outputs\":[{\"step\":\"b\",\"name\":\"y\"}]}",
             e->digest, e->digest);
    struct hlod_input in = {.tensor = t};
    CHECK(!hlod_plan(h, plan, &in, 1, &r) && r->n_outputs == 1);
    CHECK(!strcmp(r->outputs[0].tensor.name, "y"));
    CHECK(((const float *)r->outputs[0].tensor.data)[3] == 6);
    hlod_outputs_free(r);

    // Any method with tensors: contents beside the reply, or in it.
    char *text;
    CHECK(!hlod_call_tensors(h, "RunPlanUnary", plan, &in, 1, &text, &r) && r->n_outputs == 1);
    CHECK(((const float *)r->outputs[0].tensor.data)[0] == 3 && r->device[0]);
    CHECK(strstr(text, "\"steps\":[") && !strstr(text, "\"data\"") && !strstr(text, "\"raw\""));
    hlod_text_free(text);
    hlod_outputs_free(r);
    CHECK(!hlod_call_tensors(h, "RunPlanUnary", plan, &in, 1, &text, NULL));
    CHECK(strstr(text, "\"data\":[3,4,5,6]") && !strstr(text, "\"raw\""));
    hlod_text_free(text);
    CHECK(hlod_call_tensors(h, "RunPlan", plan, &in, 1, &text, NULL) == HLOD_UNIMPLEMENTED);
    CHECK(hlod_call_tensors(h, "Health", NULL, &in, 1, &text, NULL) == HLOD_INVALID_ARGUMENT);
    in.tensor.name = "z";
    CHECK(hlod_plan(h, plan, &in, 1, &r) == HLOD_INVALID_ARGUMENT);
    CHECK(!strcmp(hlod_error(h)->reason, "BAD_PLAN") && strstr(hlod_error(h)->message, "'a'"));
    CHECK(hlod_plan(h, "not JSON", &in, 1, &r) == HLOD_INVALID_ARGUMENT);
    CHECK(!hlod_buffer_free(h, state));
    hlod_executable_free(e);
    hlod_close(h);
    puts("buffers_test: all is well");
    return 0;
}
