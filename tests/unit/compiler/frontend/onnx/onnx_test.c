// SPDX-License-Identifier: Apache-2.0
// Which initializers are weights: in a model that is to be trained also small ones of real numbers,
// but not those that a compile must know.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/frontend/frontend.h"
#include "compiler/frontend/wire.h"

enum { FLOAT = 1, INT64 = 7, FLOAT16 = 10, FLOAT8 = 17 };

// Appends `from` as a field and empties it.
static void nest(struct strbuf *b, uint32_t field, struct strbuf *from) {
    wire_put_bytes(b, field, from->p, from->n);
    strbuf_done(from);
}
static void put_text(struct strbuf *b, uint32_t field, const char *text) {
    wire_put_bytes(b, field, text, strlen(text));
}
static void initializer(struct strbuf *g, const char *name, int type, uint64_t n, size_t size) {
    static const float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct strbuf t = {0};
    wire_put_int(&t, 1, n);
    wire_put_int(&t, 2, (uint64_t)type);
    put_text(&t, 8, name);
    wire_put_bytes(&t, 9, ones, n * size);
    nest(g, 5, &t);
}
static void node(struct strbuf *g, const char *op, const char *const in[4], const char *out) {
    struct strbuf n = {0};
    for (int k = 0; k < 4 && in[k]; k++)
        put_text(&n, 1, in[k]);
    put_text(&n, 2, out);
    put_text(&n, 4, op);
    nest(g, 1, &n);
}
static void value(struct strbuf *g, uint32_t field, const char *name, const int *dims, int rank) {
    struct strbuf shape = {0}, tensor = {0}, type = {0}, v = {0};
    for (int k = 0; k < rank; k++) {
        struct strbuf d = {0};
        wire_put_int(&d, 1, (uint64_t)dims[k]);
        nest(&shape, 1, &d);
    }
    wire_put_int(&tensor, 1, FLOAT);
    nest(&tensor, 2, &shape);
    nest(&type, 1, &tensor);
    put_text(&v, 1, name);
    nest(&v, 2, &type);
    nest(g, field, &v);
}
// y = Resize(x * w + b, scales) clipped; f8 and half stand beside.
static struct strbuf model(void) {
    struct strbuf g = {0}, m = {0}, opset = {0};
    node(&g, "Mul", (const char *const[4]){"x", "w"}, "xw");
    node(&g, "Add", (const char *const[4]){"xw", "b"}, "xwb");
    node(&g, "Resize", (const char *const[4]){"xwb", "", "scales"}, "r");
    node(&g, "Max", (const char *const[4]){"r", "floor"}, "m");
    node(&g, "Clip", (const char *const[4]){"m", "least"}, "y");
    initializer(&g, "w", FLOAT, 10, 4);
    initializer(&g, "b", FLOAT, 10, 4);
    initializer(&g, "scales", FLOAT, 2, 4);
    initializer(&g, "least", FLOAT, 1, 4);
    initializer(&g, "floor", FLOAT, 10, 4);
    initializer(&g, "half", FLOAT16, 3, 2);
    initializer(&g, "f8", FLOAT8, 3, 1);
    initializer(&g, "numbers", INT64, 3, 8);
    value(&g, 11, "x", (const int[]){4, 10}, 2);
    value(&g, 12, "y", (const int[]){0, 0}, 0);
    wire_put_int(&m, 1, 8);
    nest(&m, 7, &g);
    put_text(&opset, 1, "");
    wire_put_int(&opset, 2, 19);
    nest(&m, 8, &opset);
    return m;
}

static struct ingest_result ingest(struct arena *a, const struct strbuf *m, bool trainable) {
    struct frontend_limits limits = {.trainable = trainable};
    struct ingest_result r;
    status_t st =
        frontend_ingest(a, "onnx", (struct span){(const uint8_t *)m->p, m->n}, &limits, &r);
    if (st) fail_msg("%s", st_message(st));
    return r;
}
static void small_initializers(void **state) {
    (void)state;
    static const char *const names[] = {"w", "b", "floor", "half"};
    struct arena a = {0};
    struct strbuf m = model();
    struct ingest_result plain = ingest(&a, &m, false), train = ingest(&a, &m, true);
    assert_int_equal(plain.n_weights, 3); // Max reads floor: it may be a limit
    assert_string_equal(plain.weights[0].name, "w");
    assert_string_equal(plain.weights[1].name, "b");
    assert_string_equal(plain.weights[2].name, "half");
    assert_int_equal(train.n_weights, 4);
    for (int k = 0; k < 4; k++) {
        assert_string_equal(train.weights[k].name, names[k]);
        assert_false(train.weights[k].inner);
    }
    assert_false(digest_eq(plain.program_digest, train.program_digest));
    strbuf_done(&m);
    arena_done(&a);
}
// What decides shapes stays known, so that the program lowers; the weights used are parameters.
static void lowers(void **state) {
    (void)state;
    struct arena a = {0};
    struct strbuf m = model();
    struct ingest_result train = ingest(&a, &m, true);
    struct lower_request req = {.program = train.program, .entry_name = "main"};
    struct hlo_module *module;
    int weights = 0;
    status_t st = frontend_lower("onnx", &req, &module);
    if (st) fail_msg("%s", st_message(st));
    for (size_t k = 0; k < module->entry->params.n; k++)
        weights += module->entry->params.v[k]->param_kind == PARAM_WEIGHT;
    assert_int_equal(weights, 3);
    hlo_module_free(module);
    strbuf_done(&m);
    arena_done(&a);
}

// A graph whose weight, of n numbers, stands in a Constant node, beside an initializer of four.
static struct strbuf with_constant(uint64_t n) {
    struct strbuf g = {0}, m = {0}, opset = {0}, t = {0}, attr = {0}, c = {0};
    static const float ones[16];
    wire_put_int(&t, 1, n);
    wire_put_int(&t, 2, FLOAT);
    wire_put_bytes(&t, 9, ones, n * 4);
    put_text(&attr, 1, "value");
    nest(&attr, 5, &t);
    wire_put_int(&attr, 20, 4);
    put_text(&c, 2, "c");
    put_text(&c, 4, "Constant");
    nest(&c, 5, &attr);
    nest(&g, 1, &c);
    node(&g, "Mul", (const char *const[4]){"x", "c"}, "xc");
    node(&g, "Mul", (const char *const[4]){"xc", "s"}, "xs");
    node(&g, "Concat", (const char *const[4]){"xs", "w"}, "y");
    initializer(&g, "w", FLOAT, 4, 4);
    initializer(&g, "s", FLOAT, 1, 4);
    value(&g, 11, "x", (const int[]){(int)n}, 1);
    value(&g, 12, "y", (const int[]){0}, 1);
    wire_put_int(&m, 1, 8);
    nest(&m, 7, &g);
    put_text(&opset, 1, "");
    wire_put_int(&opset, 2, 19);
    nest(&m, 8, &opset);
    return m;
}
static void constants(void **state) {
    (void)state;
    static const struct {
        uint64_t n;
        struct frontend_limits limits;
        int weights, inner;
    } table[] = {{8, {.trainable = true}, 2, 0}, // more numbers than the initializers have
                 {3, {.trainable = true}, 1, 0},
                 {8, {.trainable = true, .constants = CONSTANTS_FROZEN}, 1, 0},
                 {3, {.trainable = true, .constants = CONSTANTS_TRAINED}, 2, 0},
                 {3, {.trainable = true, .singles = "s"}, 2, 0},
                 {3, {.trainable = true, .singles = "x*,w"}, 1, 0},
                 {8, {.singles = "s", .constants = CONSTANTS_TRAINED}, 0, 0}};
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        struct arena a = {0};
        struct strbuf m = with_constant(table[k].n), out = {0};
        struct span source = {(const uint8_t *)m.p, m.n};
        struct ingest_result r;
        status_t st = frontend_ingest(&a, "onnx", source, &table[k].limits, &r);
        if (st) fail_msg("%s", st_message(st));
        assert_int_equal(r.n_weights, table[k].weights);
        float new_ones[16] = {7, 7, 7, 7, 7, 7, 7, 7};
        for (int j = 0; j < r.n_weights; j++) {
            struct new_weight w = {r.weights[j].name, {(const uint8_t *)new_ones,
                                   (size_t)r.weights[j].size_bytes}, false};
            assert_int_equal(r.weights[j].inner, 0);
            st = frontend_with_weights(source, &w, 1, &out);
            if (st) fail_msg("%s", st_message(st));
            assert_true(w.found);
            assert_int_equal(out.n, m.n);
            strbuf_clear(&out);
        }
        strbuf_done(&out);
        strbuf_done(&m);
        arena_done(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(small_initializers),
                                       cmocka_unit_test(lowers), cmocka_unit_test(constants)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
