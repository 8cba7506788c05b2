// SPDX-License-Identifier: Apache-2.0
// What a worker does before its first call, so that pages, tables and symbols are there when a user
// waits: a compile worker compiles one small program, for the code generator and for what the
// compiler asks the library, and touches the heap that most compiles need; a device worker loads,
// prepares and runs another, for the library of convolutions and products and its threads.
#include <malloc.h>
#include <stdlib.h>

#include "compiler/compile.h"
#include "compiler/ir/text/text.h"
#include "devices/worker/worker_calls.h"

// A softmax, a layout change and a lookup, at sizes of each effort (codegen/backend.h); a product
// and convolutions of each kind with bias and activation, of floats and of bytes.
static const char program[] =
    "HloModule warm\n"
    "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"
    "ENTRY e {\n"
    "  x = f32[8,96] parameter(0)\n"
    "  i = s64[7] parameter(1)\n"
    "  y = f32[512,512] parameter(2)\n"
    "  z = f32[64,64] parameter(3)\n"
    "  zero = f32[] constant(0)\n"
    "  ex = f32[8,96] exponential(x)\n"
    "  s = f32[8] reduce(ex, zero), dimensions={1}, to_apply=sum\n"
    "  sb = f32[8,96] broadcast(s), dimensions={0}\n"
    "  q = f32[8,96] divide(ex, sb)\n"
    "  g = f32[7,96] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1,96}\n"
    "  t = f32[512,512] transpose(y), dimensions={1,0}\n"
    "  u = f32[64,64] tanh(z)\n"
    "  w = f32[96,64] parameter(4)\n"
    "  b = f32[64] parameter(5)\n"
    "  v = f32[1,16,14,14] parameter(6)\n"
    "  k3 = f32[16,16,3,3] parameter(7)\n"
    "  kd = f32[16,1,3,3] parameter(8)\n"
    "  k1 = f32[32,16,1,1] parameter(9)\n"
    "  bc = f32[16] parameter(10)\n"
    "  d = f32[8,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "  db = f32[8,64] broadcast(b), dimensions={1}\n"
    "  ds = f32[8,64] add(d, db)\n"
    "  dz = f32[8,64] broadcast(zero), dimensions={}\n"
    "  dr = f32[8,64] maximum(ds, dz)\n"
    "  c3 = f32[1,16,14,14] convolution(v, k3), window={size=3x3 pad=1_1x1_1}, "
    "dim_labels=bf01_oi01->bf01\n"
    "  cb = f32[1,16,14,14] broadcast(bc), dimensions={1}\n"
    "  cs = f32[1,16,14,14] add(c3, cb)\n"
    "  cz = f32[1,16,14,14] broadcast(zero), dimensions={}\n"
    "  cr = f32[1,16,14,14] maximum(cs, cz)\n"
    "  cd = f32[1,16,14,14] convolution(cr, kd), window={size=3x3 pad=1_1x1_1}, "
    "dim_labels=bf01_oi01->bf01, feature_group_count=16\n"
    "  cds = f32[1,16,14,14] add(cd, cr)\n"
    "  c1 = f32[1,32,14,14] convolution(cds, k1), window={size=1x1}, "
    "dim_labels=bf01_oi01->bf01\n"
    "  xb = u8[64,96] parameter(11)\n"
    "  wb = s8[96,64] parameter(12)\n"
    "  vb = u8[1,16,14,14] parameter(13)\n"
    "  kb = s8[16,16,3,3] parameter(14)\n"
    "  pb = s32[64,64] dot(xb, wb), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "  pf = f32[64,64] convert(pb)\n"
    "  cw = s32[1,16,14,14] convolution(vb, kb), window={size=3x3 pad=1_1x1_1}, "
    "dim_labels=bf01_oi01->bf01\n"
    "  cf = f32[1,16,14,14] convert(cw)\n"
    "  ROOT r = (f32[8,96], f32[7,96], f32[512,512], f32[64,64], f32[8,64], f32[1,32,14,14], "
    "f32[64,64], f32[1,16,14,14]) tuple(q, g, t, u, dr, c1, pf, cf)\n"
    "}\n";

// Blocks of up to 8 MiB come from the calling thread's heap, whose pages stay when they are free.
static void warm_heap(void) {
    enum { KEPT = 8 << 20, PAGE = 4096 };
    mallopt(M_MMAP_THRESHOLD, KEPT + PAGE);
    mallopt(M_TRIM_THRESHOLD, 2 * KEPT);
    char *p = malloc(KEPT);
    for (size_t k = 0; p && k < KEPT; k += PAGE)
        ((volatile char *)p)[k] = 0;
    free(p);
}

void worker_compile_warm(const struct target *t) {
    struct compile_options opt = {.disable_passes = "", .disable_rules = ""};
    struct hlo_module *m;
    struct executable *e = NULL;
    if (!t || t->emit || t->min_kernel_elements == INT64_MAX) return; // makes no kernels
    status_t st = hlo_parse(str_of(program), NULL, &m);
    if (!st) st = hlo_compile_module(m, &opt, t, NULL, &e);
    if (!st) executable_free(e);
    st_drop(st); // a user's compile will say what is wrong
    warm_heap();
}

// One call of each kind that has code of its own in the library; no kernels for other steps.
static const char calls[] =
    "HloModule calls\n"
    "ENTRY e {\n"
    "  x = f32[1,3,16,16] parameter(0)\n"
    "  y = f32[64,32] parameter(1)\n"
    "  first = f32[32,3,3,3] parameter(2), frontend_attributes={hlod_param=\"weight:0\"}\n"
    "  taps = f32[32,32,3,3] parameter(3), frontend_attributes={hlod_param=\"weight:1\"}\n"
    "  point = f32[32,32,1,1] parameter(4), frontend_attributes={hlod_param=\"weight:2\"}\n"
    "  depth = f32[32,1,3,3] parameter(5), frontend_attributes={hlod_param=\"weight:3\"}\n"
    "  matrix = f32[32,48] parameter(6), frontend_attributes={hlod_param=\"weight:4\"}\n"
    "  zero = f32[] constant(0)\n"
    "  none = f32[1,32,8,8] broadcast(zero), dimensions={}\n"
    "  c = f32[1,32,8,8] convolution(x, first), window={size=3x3 stride=2x2 pad=1_1x1_1}, "
    "dim_labels=bf01_oi01->bf01\n"
    "  r = f32[1,32,8,8] maximum(c, none)\n"
    "  d = f32[1,32,8,8] convolution(r, taps), window={size=3x3 pad=1_1x1_1}, "
    "dim_labels=bf01_oi01->bf01\n"
    "  f = f32[1,32,8,8] convolution(d, point), window={size=1x1}, dim_labels=bf01_oi01->bf01\n"
    "  s = f32[1,32,8,8] add(f, r)\n"
    "  t = f32[1,32,8,8] maximum(s, none)\n"
    "  g = f32[1,32,8,8] convolution(t, depth), window={size=3x3 pad=1_1x1_1}, "
    "dim_labels=bf01_oi01->bf01, feature_group_count=32\n"
    "  p = f32[64,48] dot(y, matrix), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "  ROOT z = (f32[1,32,8,8], f32[64,48]) tuple(g, p)\n"
    "}\n";
enum { INPUTS = 2, WEIGHTS = 5, LARGEST = 32 * 32 * 9 }; // elements

static status_t run_calls(struct dev_exe *x, const float *zeros, float *out) {
    static const int32_t elements[WEIGHTS] = {32 * 27, LARGEST, 32 * 32, 32 * 9, 32 * 48};
    struct span weights[WEIGHTS];
    const void *in[INPUTS] = {zeros, zeros};
    void *results[] = {out, out + 32 * 64};
    struct dev_weights *w;
    for (int k = 0; k < WEIGHTS; k++)
        weights[k] = (struct span){(const uint8_t *)zeros, sizeof(float) * (size_t)elements[k]};
    RETURN_IF_ERR(dev_prepare(x, weights, WEIGHTS, NULL, &w));
    status_t st = dev_run(x, w, &(struct dev_run){.in = in, .out = results});
    dev_release(w);
    return st;
}
// Threads' heaps begin with room that is theirs: growing one by pages is a call and a lock that
// stops the other threads' page faults each time. What they free stays.
static void warm_heaps(void) {
    enum { ROOM = 4 << 20, BLOCK = 1 << 20 };
    mallopt(M_TOP_PAD, ROOM);
    mallopt(M_TRIM_THRESHOLD, 2 * ROOM);
    mallopt(M_MMAP_THRESHOLD, BLOCK);
    free(malloc(BLOCK - 4096)); // this thread's has begun already
}
void worker_device_warm(struct device *d) {
    static float zeros[LARGEST], out[32 * 64 + 64 * 48];
    struct compile_options opt = {.disable_passes = "", .disable_rules = ""};
    struct hlo_module *m;
    struct executable *e;
    struct dev_exe *x = NULL;
    if (!dev_attributes(d).starts_slowly) return;
    warm_heaps();
    struct target t = *dev_target(d);
    t.min_kernel_elements = INT64_MAX;
    status_t st = hlo_parse(str_of(calls), NULL, &m);
    if (!st) st = hlo_compile_module(m, &opt, &t, NULL, &e);
    if (!st) st = dev_load(d, e, NULL, &x);
    if (!st) st = run_calls(x, zeros, out);
    dev_unload(x);
    st_drop(st);
}
