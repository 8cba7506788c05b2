// SPDX-License-Identifier: Apache-2.0
// kernel_cases: the modules of kernel_test.c.
#pragma once
#define ADD_MAX                                                                                    \
    "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b)\n}\n"        \
    "max { a2 = f32[] parameter(0)\n b2 = f32[] parameter(1)\n ROOT r2 = f32[] maximum(a2, "       \
    "b2)\n}\n"
#define T16 "{3,2,1,0:T(16,1,1)}"
static const char *const kernel_cases[] = {
    // reductions: all kinds of dimensions, sizes 1 and 0, two results
    "HloModule m\n" ADD_MAX
    "ENTRY e {\n x = f32[7,33,19] parameter(0)\n z = f32[] constant(0)\n l = f32[] constant(-inf)\n"
    " a = f32[33,19] reduce(x, z), dimensions={0}, to_apply=add\n b = f32[7,19] reduce(x, z), "
    "dimensions={1}, to_apply=add\n"
    " c = f32[7,33] reduce(x, l), dimensions={2}, to_apply=max\n d = f32[] reduce(x, z), "
    "dimensions={0,1,2}, to_apply=add\n"
    " f = f32[33] reduce(x, l), dimensions={0,2}, to_apply=max\n ROOT g = f32[19] reduce(x, z), "
    "dimensions={0,1}, to_apply=add\n}\n",
    "HloModule m\n" ADD_MAX
    "ENTRY e {\n x = f32[0,5] parameter(0)\n y = f32[1,5] parameter(1)\n z = f32[] constant(3)\n"
    " a = f32[5] reduce(x, z), dimensions={0}, to_apply=add\n b = f32[5] reduce(y, z), "
    "dimensions={0}, to_apply=add\n"
    " ROOT c = f32[0] reduce(x, z), dimensions={1}, to_apply=add\n}\n",
    "HloModule m\narg { v = f32[] parameter(0)\n i = s32[] parameter(1)\n w = f32[] parameter(2)\n "
    "j = s32[] parameter(3)\n p = pred[] compare(v, w), direction=GE\n"
    " sv = f32[] select(p, v, w)\n si = s32[] select(p, i, j)\n ROOT t = (f32[], s32[]) tuple(sv, "
    "si)\n}\n"
    "ENTRY e {\n x = f32[5,101] parameter(0)\n k = s32[5,101] iota(), iota_dimension=1\n l = f32[] "
    "constant(-inf)\n z = s32[] constant(0)\n"
    " a = (f32[5], s32[5]) reduce(x, k, l, z), dimensions={1}, to_apply=arg\n ROOT b = (f32[101], "
    "s32[101]) reduce(x, k, l, z), dimensions={0}, to_apply=arg\n}\n",
    // shapes
    "HloModule m\nENTRY e {\n x = f32[4,6,10] parameter(0)\n y = f32[4,3,10] parameter(1)\n a = "
    "f32[24,10] reshape(x)\n b = f32[10,24] transpose(a), dimensions={1,0}\n"
    " c = f32[4,9,10] concatenate(x, y), dimensions={1}\n z = f32[] constant(7)\n d = f32[7,6,13] "
    "pad(x, z), padding=1_2x0_0x2_1\n f = f32[7,11,8] pad(x, z), padding=1_2x0_0_1x-1_-1\n"
    " g = f32[2,3,5] slice(x), slice={[0:4:2],[1:4],[0:10:2]}\n h = f32[4,6,10] reverse(x), "
    "dimensions={0,2}\n i = f32[5,4,6,10] broadcast(x), dimensions={1,2,3}\n"
    " j = f32[8,3,10] reshape(x)\n ROOT k = f32[10,4,6] transpose(x), dimensions={2,0,1}\n}\n",
    "HloModule m\nENTRY e {\n x = f32[9,12] parameter(0)\n ix = s32[5] parameter(1)\n s = s32[] "
    "constant(4)\n t = s32[] constant(100)\n u = f32[2,3] parameter(2)\n"
    " a = f32[3,4] dynamic-slice(x, s, t), dynamic_slice_sizes={3,4}\n b = f32[9,12] "
    "dynamic-update-slice(x, u, s, t)\n"
    " ROOT c = f32[5,12] gather(x, ix), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1,12}\n}\n",
    // tiled layouts, padded and not, in and out; windows
    "HloModule m\n" ADD_MAX
    "ENTRY e {\n x = f32[2,32,9,7] parameter(0)\n b = f32[32] parameter(1)\n l = f32[] "
    "constant(-inf)\n z = f32[] constant(0)\n c = f32[2,32,9,7]" T16
    " copy(x)\n bb = f32[2,32,9,7]" T16 " broadcast(b), dimensions={1}\n s = f32[2,32,9,7]" T16
    " add(c, bb)\n"
    " p = f32[2,32,4,3]" T16
    " reduce-window(s, l), window={size=1x1x2x2 stride=1x1x2x2}, to_apply=max\n"
    " q = f32[2,32,5,4]" T16
    " reduce-window(s, l), window={size=1x1x3x3 stride=1x1x2x2 pad=0_0x0_0x1_1x1_1}, to_apply=max\n"
    " g = f32[2,32] reduce(s, z), dimensions={2,3}, to_apply=add\n h = f32[32] reduce(s, z), "
    "dimensions={0,2,3}, to_apply=add\n"
    " big = f32[2,32,1,1] reduce-window(x, z), window={size=1x1x9x7}, to_apply=add\n w2 = "
    "f32[2,32,9,7] reduce-window(x, z), window={size=1x1x3x3 pad=0_0x0_0x1_1x1_1}, to_apply=add\n"
    " d = f32[2,32,9,7] copy(s)\n ROOT f = f32[2,2016] reshape(s)\n}\n",
    "HloModule m\n" ADD_MAX
    "ENTRY e {\n x = f32[2,19,3,5] parameter(0)\n z = f32[] constant(0)\n c = f32[2,19,3,5]" T16
    " copy(x)\n e1 = f32[2,19,3,5]" T16 " exponential(c)\n g = f32[2,19] reduce(e1, z), "
                                        "dimensions={2,3}, to_apply=add\n cc = f32[2,38,3,5]" T16
    " concatenate(c, e1), dimensions={1}\n ROOT d = f32[2,19,3,5] copy(e1)\n}\n",
    // contractions
    "HloModule m\nENTRY e {\n a = f32[5,37] parameter(0)\n b = f32[37,29] parameter(1)\n bt = "
    "f32[29,37] parameter(2)\n x = f32[3,5,7] parameter(3)\n y = f32[3,7,11] parameter(4)\n"
    " c = f32[5,29] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n d = f32[5,29] "
    "dot(a, bt), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
    " ROOT f = f32[3,5,11] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, "
    "lhs_contracting_dims={2}, rhs_contracting_dims={1}\n}\n",
    "HloModule m\nENTRY e {\n x = f32[2,6,9,8] parameter(0)\n k = f32[10,6,3,3] parameter(1)\n g = "
    "f32[6,1,3,3] parameter(2)\n"
    " a = f32[2,10,9,8] convolution(x, k), window={size=3x3 pad=1_1x1_1}, "
    "dim_labels=bf01_oi01->bf01\n"
    " b = f32[2,10,4,3] convolution(x, k), window={size=3x3 stride=2x2}, "
    "dim_labels=bf01_oi01->bf01\n"
    " ROOT c = f32[2,6,9,8] convolution(x, g), window={size=3x3 pad=1_1x1_1}, "
    "dim_labels=bf01_oi01->bf01, feature_group_count=6\n}\n",
    // fusions: loop, two results, softmax and layer norm rows, column variance
    "HloModule m\nf { p = f32[6,50] parameter(0)\n q = f32[50] parameter(1)\n bq = f32[6,50] "
    "broadcast(q), dimensions={1}\n s = f32[6,50] add(p, bq)\n t = f32[6,50] tanh(s)\n"
    " ROOT r = (f32[6,50], f32[6,50]) tuple(s, t)\n}\nENTRY e {\n x = f32[6,50] parameter(0)\n y = "
    "f32[50] parameter(1)\n"
    " ROOT a = (f32[6,50], f32[6,50]) fusion(x, y), kind=kLoop, calls=f\n}\n",
    "HloModule m\n" ADD_MAX
    "sm { p = f32[3,5,67] parameter(0)\n l = f32[] constant(-inf)\n z = f32[] constant(0)\n m = "
    "f32[3,5] reduce(p, l), dimensions={2}, to_apply=max\n"
    " bm = f32[3,5,67] broadcast(m), dimensions={0,1}\n d = f32[3,5,67] subtract(p, bm)\n x = "
    "f32[3,5,67] exponential(d)\n s = f32[3,5] reduce(x, z), dimensions={2}, to_apply=add\n"
    " bs = f32[3,5,67] broadcast(s), dimensions={0,1}\n ROOT r = f32[3,5,67] divide(x, "
    "bs)\n}\nENTRY e {\n x1 = f32[3,5,67] parameter(0)\n"
    " ROOT a1 = f32[3,5,67] fusion(x1), kind=kCustom, calls=sm\n}\n",
    "HloModule m\n" ADD_MAX
    "ln { p = f32[4,96] parameter(0)\n g = f32[96] parameter(1)\n z = f32[] constant(0)\n n = "
    "f32[] constant(0.010416667)\n s = f32[4] reduce(p, z), dimensions={1}, to_apply=add\n"
    " bn = f32[4] broadcast(n), dimensions={}\n mu = f32[4] multiply(s, bn)\n bmu = f32[4,96] "
    "broadcast(mu), dimensions={0}\n d = f32[4,96] subtract(p, bmu)\n"
    " q = f32[4,96] multiply(d, d)\n v = f32[4] reduce(q, z), dimensions={1}, to_apply=add\n mv = "
    "f32[4] multiply(v, bn)\n rs = f32[4] rsqrt(mv)\n brs = f32[4,96] broadcast(rs), "
    "dimensions={0}\n"
    " bg = f32[4,96] broadcast(g), dimensions={1}\n o = f32[4,96] multiply(d, brs)\n ROOT r = "
    "f32[4,96] multiply(o, bg)\n}\n"
    "cv { p = f32[40,33] parameter(0)\n z = f32[] constant(0)\n n = f32[] constant(0.025)\n s = "
    "f32[33] reduce(p, z), dimensions={0}, to_apply=add\n"
    " bn = f32[33] broadcast(n), dimensions={}\n mu = f32[33] multiply(s, bn)\n bmu = f32[40,33] "
    "broadcast(mu), dimensions={1}\n d = f32[40,33] subtract(p, bmu)\n q = f32[40,33] multiply(d, "
    "d)\n"
    " ROOT v = f32[33] reduce(q, z), dimensions={0}, to_apply=add\n}\n"
    "ENTRY e {\n x1 = f32[4,96] parameter(0)\n g1 = f32[96] parameter(1)\n y1 = f32[40,33] "
    "parameter(2)\n c1 = f32[33] fusion(y1), kind=kInput, calls=cv\n"
    " ROOT a1 = f32[4,96] fusion(x1, g1), kind=kCustom, calls=ln\n}\n",
};
