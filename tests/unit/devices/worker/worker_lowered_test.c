// SPDX-License-Identifier: Apache-2.0
// What a worker lowers ahead is what COMPILE would lower, and only for the same request.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/ir/text/text.h"
#include "devices/worker/worker_calls.h"

static const char text[] = "HloModule m\nENTRY e {\n  x = f32[2,3] parameter(0)\n"
                           "  y = f32[2,3] tanh(x)\n  ROOT r = f32[2,3] add(x, y)\n}\n";
static const struct frontend_limits limits = {.max_depth = 50};

static void ingest(struct worker_call *c, struct ingest_result *r) {
    struct span source = {(const uint8_t *)text, sizeof text - 1};
    assert_null(frontend_ingest(&c->arena, "hlo-text", source, &limits, r));
    worker_expect_compile(c, r, &limits);
}
static const struct compile_options options = {.disable_passes = "", .disable_rules = ""};
static struct hlo_module *take(const char *format, const struct lower_request *req) {
    static const struct target t = {.id = "none"};
    struct made_ahead made = worker_take_ahead(format, req, &options, &t);
    assert_null(made.exe);
    return made.module;
}
static struct lower_request request_of(const struct ingest_result *r) {
    return (struct lower_request){.program = r->program, .entry_name = "main", .limits = limits};
}

static void test_same(void **state) {
    struct worker_call c = {.type = 0};
    struct ingest_result r;
    struct strbuf a = {0}, b = {0};
    (void)state;
    ingest(&c, &r);
    struct lower_request req = request_of(&r);
    assert_null(take(r.format, &req)); // nothing yet
    assert_non_null(c.expected);
    worker_lower_ahead(&c, NULL);
    struct hlo_module *ahead = take(r.format, &req), *now = NULL;
    assert_non_null(ahead);
    assert_null(frontend_lower(r.format, &req, &now));
    hlo_print_module(&a, ahead, HLO_PRINT_DEFAULT);
    hlo_print_module(&b, now, HLO_PRINT_DEFAULT);
    assert_string_equal(strbuf_cstr(&a), strbuf_cstr(&b));
    assert_null(take(r.format, &req)); // once
    hlo_module_free(ahead);
    hlo_module_free(now);
    strbuf_done(&a);
    strbuf_done(&b);
    arena_done(&c.arena);
}

static void test_other(void **state) {
    struct dim_binding size = {"N", 1};
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct worker_call c = {.type = 0};
        struct ingest_result r;
        ingest(&c, &r);
        worker_lower_ahead(&c, NULL);
        struct lower_request req = request_of(&r);
        if (k == 0) req.program.n--;
        if (k == 1) req.limits.max_nodes = 1;
        if (k == 2) req.bindings = &size, req.n_bindings = 1;
        assert_null(take(k == 3 ? "onnx" : r.format, &req));
        req = request_of(&r); // what nobody took is gone
        assert_null(take(r.format, &req));
        arena_done(&c.arena);
    }
}

// A small program is compiled too: for the same options and target only.
static void test_compiled(void **state) {
    static const struct target t = {.id = "one", .kind = "cpu", .min_kernel_elements = INT64_MAX},
                               other = {.id = "other", .kind = "cpu"};
    static const struct compile_options strict = {
        .disable_passes = "", .disable_rules = "", .precision = PRECISION_STRICT};
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct worker_call c = {.type = 0};
        struct ingest_result r;
        ingest(&c, &r);
        worker_lower_ahead(&c, &t);
        struct lower_request req = request_of(&r);
        struct made_ahead made =
            worker_take_ahead(r.format, &req, k == 1 ? &strict : &options, k == 2 ? &other : &t);
        assert_null(made.module);
        if (k)
            assert_null(made.exe);
        else
            assert_string_equal(made.exe->passes[0].name, "lower");
        executable_free(made.exe);
        arena_done(&c.arena);
    }
}

// A request has to say the sizes: nothing is lowered before it does.
static void test_open(void **state) {
    struct worker_call c = {.type = 0};
    struct ingest_result r;
    (void)state;
    ingest(&c, &r);
    struct sig_dim dims[] = {{.size = -1, .symbol = "length", .usual = 128}, {.size = 3}};
    struct sig_tensor in = {.name = "x", .dtype = DT_F32, .rank = 2, .dims = dims};
    r.sig.in = &in;
    r.sig.n_in = 1;
    c.expected = NULL;
    worker_expect_compile(&c, &r, &limits);
    assert_null(c.expected);
    dims[0].usual = 1; // a batch
    worker_expect_compile(&c, &r, &limits);
    assert_non_null(c.expected);
    assert_int_equal(c.expected->n_bindings, 1);
    arena_done(&c.arena);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_other),
        cmocka_unit_test(test_compiled),
        cmocka_unit_test(test_open),
    };
    return cmocka_run_group_tests_name("devices/worker_lowered", tests, NULL, NULL);
}
