# SPDX-License-Identifier: Apache-2.0
"""Models that no other test has, as strangers bring them: control flow, every kind of element,
sizes left open, empty arrays and scalars, names that JavaScript means something by, operators of
old and new opsets. Text of ONNX, read by onnx.parser; weights are seeded.

    models() gives (name, onnx.ModelProto, inputs by name, words of the refusal or None)"""
import itertools
import zlib

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

HEAD = '<ir_version: 10, opset_import: ["": %d, "ai.onnx.ml": 3]>\n'
NP = {"float": np.float32, "double": np.float64, "float16": np.float16, "int64": np.int64,
      "int32": np.int32, "int8": np.int8, "uint8": np.uint8, "bool": np.bool_,
      "uint64": np.uint64, "uint16": np.uint16, "int16": np.int16, "uint32": np.uint32}


def rng(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def f32(name, *shape):
    return rng(name).standard_normal(shape).astype(np.float32)


def made(text, weights=None, opset=22):
    m = parser.parse_model(HEAD % opset + text)
    for name, array in (weights or {}).items():
        if array.dtype == ml_dtypes.bfloat16:
            t = helper.make_tensor(name, TensorProto.BFLOAT16, array.shape, array.tobytes(),
                                   raw=True)
        else:
            t = numpy_helper.from_array(array, name)
        m.graph.initializer.append(t)
    return m


def control():
    yield "loop with scanned results", made("""
      g (float[3,4] x, int64 n) => (float[3,4] y, float[k,3] sums) {
        go = Constant <value_int = 1> ()
        t = Cast <to = 9> (go)
        y, sums = Loop <body = b (int64 i, bool c, float[3,4] s) => (bool c2, float[3,4] s2, float[3] r) {
            axis = Constant <value_ints = [1]> ()
            fi = Cast <to = 1> (i)
            half = Constant <value_float = 0.5> ()
            a = Mul (s, half)
            s2 = Add (a, fi)
            r = ReduceSum <keepdims = 0> (s2, axis)
            c2 = Identity (c)
        }> (n5, t, x)
      }""".replace("n5", "five"), {"five": np.int64(5)}), {"x": f32("l", 3, 4),
                                                        "n": np.int64(5)}, None
    yield "loop while a condition holds", made("""
      g (float[4] x) => (float[4] y, int64 turns) {
        t = Constant <value_int = 1> ()
        go = Cast <to = 9> (t)
        zero = Constant <value_int = 0> ()
        y, turns = Loop <body = b (int64 i, bool c, float[4] s, int64 k) => (bool c2, float[4] s2, int64 k2) {
            one = Constant <value_int = 1> ()
            two = Constant <value_float = 2.0> ()
            most = Constant <value_float = 1000.0> ()
            s2 = Mul (s, two)
            k2 = Add (k, one)
            sum = ReduceSum <keepdims = 0> (s2)
            c2 = Less (sum, most)
        }> ("", go, x, zero)
      }""".replace('""', "many"), {"many": np.int64(2**62)}), {
          "x": np.float32([1, 2, 3, 4])}, None
    yield "if within if", made("""
      g (float[2,3] x, bool p, bool q) => (float[2,3] y) {
        y = If <then_branch = a () => (float[2,3] u) {
               u = If <then_branch = c () => (float[2,3] w) { w = Exp (x) },
                       else_branch = d () => (float[2,3] w) { w = Neg (x) }> (q) },
             else_branch = b () => (float[2,3] u) { u = Relu (x) }> (p)
      }"""), {"x": f32("i", 2, 3), "p": np.bool_(True), "q": np.bool_(False)}, None
    yield "scan", made("""
      g (float[2] s, float[5,2] x) => (float[2] last, float[5,2] all) {
        last, all = Scan <num_scan_inputs = 1, body = b (float[2] a, float[2] v) => (float[2] a2, float[2] o) {
            a2 = Add (a, v)
            o = Tanh (a2)
        }> (s, x)
      }"""), {"s": f32("s", 2), "x": f32("x", 5, 2)}, None


def kinds():
    yield "f64", made("""
      g (double[3,8] x) => (double[3,5] y, double[3] z) {
        h = MatMul (x, w)
        y = Softmax (h)
        axis = Constant <value_ints = [1]> ()
        z = ReduceLogSumExp <axes = [1], keepdims = 0> (h)
      }""", {"w": rng("f64").standard_normal((8, 5))}, 17), {
          "x": rng("f64x").standard_normal((3, 8))}, None
    yield "f16 convolution", made("""
      g (float16[1,3,16,16] x) => (float16[1,8,8,8] y) {
        c = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w, b)
        y = Relu (c)
      }""", {"w": f32("w", 8, 3, 3, 3).astype(np.float16),
             "b": f32("b", 8).astype(np.float16)}), {
                 "x": f32("x", 1, 3, 16, 16).astype(np.float16)}, None
    yield "bf16 weights", made("""
      g (float[2,64] x) => (float[2,10] y) {
        wide = Cast <to = 1> (w)
        y = MatMul (x, wide)
      }""", {"w": f32("w", 64, 10).astype(ml_dtypes.bfloat16)}), {"x": f32("x", 2, 64)}, None
    yield "integers of 64 bits", made("""
      g (int64[6] a, uint64[6] u) => (int64[6] sum, int64[6] product, int64[6] rest, uint64[6] right, int64[6] sign, int64[6] running) {
        sum = Add (a, big)
        product = Mul (a, a)
        rest = Mod (a, seven)
        s = Constant <value_ints = [3]> ()
        by = Cast <to = 13> (s)
        right = BitShift <direction = "RIGHT"> (u, by)
        sign = Sign (a)
        z = Constant <value_int = 0> ()
        running = CumSum (a, z)
      }""", {"big": np.int64(2**53 + 1), "seven": np.int64(7)}), {
          "a": np.int64([2**53 + 3, -5, 0, 7, -2**62, 123456789012]),
          "u": np.uint64([2**64 - 1, 2**63, 5, 8, 0, 2**33])}, None
    yield "small integers", made("""
      g (uint8[2,4] u, int8[2,4] s, uint16[3] w, bool[4] p) => (float[2,4] f, uint8[2,4] q, int32[2,2] m, uint16[3] k, bool[4] n, int8[2,4] t) {
        scale = Constant <value_float = 0.05> ()
        f = DequantizeLinear (u, scale, zero)
        twice = Add (f, f)
        q = QuantizeLinear (twice, scale, zero)
        b = Transpose <perm = [1,0]> (s)
        c = Slice (b, starts, ends, axes)
        m = MatMulInteger (u, c)
        k = BitwiseNot (w)
        n = Not (p)
        t = Clip (s, low, high)
      }""", {"zero": np.uint8(128), "starts": np.int64([0]), "ends": np.int64([2]),
             "axes": np.int64([1]), "low": np.int8(-20), "high": np.int8(50)}), {
                 "u": np.uint8([[0, 100, 200, 255], [1, 2, 3, 128]]),
                 "s": np.int8([[-128, 127, 0, 1], [5, -5, 64, -64]]),
                 "w": np.uint16([0, 65535, 1000]), "p": np.bool_([1, 0, 0, 1])}, None
    yield "quantised convolution", made("""
      g (float[1,4,9,9] x) => (float[1,6,9,9] y) {
        q, s, z = DynamicQuantizeLinear (x)
        c = ConvInteger <pads = [1,1,1,1]> (q, w, z)
        f = Cast <to = 1> (c)
        y = Mul (f, s)
      }""", {"w": rng("qc").integers(0, 255, (6, 4, 3, 3)).astype(np.uint8)}), {
          "x": f32("x", 1, 4, 9, 9)}, None


def shapes():
    for n, t in ((1, 1), (3, 7)):
        yield "sizes left open, %dx%d" % (n, t), made("""
          g (int64[N,T] ids, float[N,T] mask) => (float[N,8] pooled, int64[N] best) {
            e = Gather (table, ids)
            last = Constant <value_ints = [-1]> ()
            m = Unsqueeze (mask, last)
            masked = Mul (e, m)
            one = Constant <value_ints = [1]> ()
            sum = ReduceSum <keepdims = 0> (masked, one)
            count = ReduceSum <keepdims = 0> (m, one)
            pooled = Div (sum, count)
            best = ArgMax <axis = 1, keepdims = 0> (pooled)
          }""", {"table": f32("table", 3000, 8)}), {
              "ids": rng("ids").integers(-3000, 3000, (n, t)), "mask": np.ones((n, t), np.float32)
          }, None
    yield "empty arrays", made("""
      g (float[0,3] e, float[2,3] x) => (float[2,3] y, float[0,3] z, float[3] s) {
        y = Concat <axis = 0> (e, x)
        z = Exp (e)
        axis = Constant <value_ints = [0]> ()
        s = ReduceSum <keepdims = 0> (e, axis)
      }"""), {"e": np.zeros((0, 3), np.float32), "x": f32("x", 2, 3)}, None
    yield "scalars", made("""
      g (float a, int64 b, bool c) => (float y, int64 z, bool n, float k) {
        one = Constant <value_float = 1.0> ()
        y = Add (a, one)
        z = Neg (b)
        n = Not (c)
        k = Where (c, a, one)
      }"""), {"a": np.float32(2.5), "b": np.int64(2**40), "c": np.bool_(True)}, None
    yield "reshaped by its own shape", made("""
      g (float[N,C,4,6] x) => (float[N,C,24] y, int64[4] s, int64 n) {
        s = Shape (x)
        z = Constant <value_ints = [0,0,-1]> ()
        y = Reshape (x, z)
        n = Size (x)
      }"""), {"x": f32("x", 2, 3, 4, 6)}, None
    yield "three dimensions", made("""
      g (float[1,2,6,7,8] x) => (float[1,4,3,3,4] p, float[1,4,3,3,4] a, float[1,3,12,13,14] t) {
        c = Conv <pads = [1,1,1,1,1,1]> (x, w)
        p = MaxPool <kernel_shape = [2,2,2], strides = [2,2,2]> (c)
        a = AveragePool <kernel_shape = [2,2,2], strides = [2,2,2]> (c)
        t0 = ConvTranspose <strides = [2,2,2]> (x, v)
        t = Slice (t0, starts, ends, axes)
      }""", {"w": f32("w", 4, 2, 3, 3, 3), "v": f32("v", 2, 3, 2, 2, 2),
             "starts": np.int64([0, 1, 2]), "ends": np.int64([12, 14, 16]),
             "axes": np.int64([2, 3, 4])}), {"x": f32("x", 1, 2, 6, 7, 8)}, None
    yield "a large constant", made("""
      g (int64[4] i, float[4,900] x) => (float[4,900] y, float[4] d) {
        row = Gather (c, i)
        y = Add (row, x)
        m = Mul (y, y)
        one = Constant <value_ints = [1]> ()
        d = ReduceSum <keepdims = 0> (m, one)
      }""", {"c": f32("c", 2000, 900)}), {"i": np.int64([0, 1999, -1, 7]),
                                          "x": f32("x", 4, 900)}, None


def names():
    """Words that objects of JavaScript have already, quotes, other alphabets, an input that is a
    result, the same value twice, an input that nothing reads, a weight as a result."""
    def v(n, *shape):
        return helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)
    w = numpy_helper.from_array(f32("w", 3), "constructor weight")
    nodes = [helper.make_node("Add", ["valueOf", "toString"], ["hasOwnProperty"]),
             helper.make_node("Neg", ["valueOf"], ["__proto__"]),
             helper.make_node("Identity", ["valueOf"], ['qu"o\'te</script>\\']),
             helper.make_node("Mul", ["hasOwnProperty", "constructor weight"], ["数é\u2028"])]
    outputs = ["hasOwnProperty", 'qu"o\'te</script>\\', "数é\u2028", "constructor weight",
               "__proto__"]
    g = helper.make_graph(nodes, "<b>g</b>", [v("valueOf", 3), v("toString", 3),
                                              v("constructor", 2)],
                          [v(n, 3) for n in outputs], [w])
    yield "names", helper.make_model(g, ir_version=10, opset_imports=[
        helper.make_opsetid("", 22)]), {"valueOf": f32("a", 3), "toString": f32("b", 3),
                                        "constructor": f32("c", 2)}, None


def operators():
    yield "recurrent both ways", made("""
      g (float[5,2,4] x) => (float[5,2,2,3] y, float[2,2,3] h, float[2,2,3] c, float[5,1,2,3] gru) {
        y, h, c = LSTM <hidden_size = 3, direction = "bidirectional"> (x, w, r, b)
        gru = GRU <hidden_size = 3, linear_before_reset = 1> (x, gw, gr, gb)
      }""", {"w": f32("w", 2, 12, 4), "r": f32("r", 2, 12, 3), "b": f32("b", 2, 24),
             "gw": f32("gw", 1, 9, 4), "gr": f32("gr", 1, 9, 3), "gb": f32("gb", 1, 18)}), {
                 "x": f32("x", 5, 2, 4)}, None
    yield "pictures resampled", made("""
      g (float[1,2,7,9] x, float[1,5,6,2] grid, float[2,4] rois) => (float[1,2,14,18] c, float[1,2,3,4] l, float[1,2,5,6] s, float[2,2,3,3] r) {
        c = Resize <mode = "cubic", coordinate_transformation_mode = "half_pixel"> (x, "", scales)
        l = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, "", "", sizes)
        s = GridSample <mode = "bilinear", padding_mode = "reflection"> (x, grid)
        r = RoiAlign <output_height = 3, output_width = 3, sampling_ratio = 2> (x, rois, which)
      }""".replace('""', ""), {"scales": np.float32([1, 1, 2, 2]), "sizes": np.int64([1, 2, 3, 4]),
                               "which": np.int64([0, 0])}, 16), {
          "x": f32("x", 1, 2, 7, 9), "grid": np.tanh(f32("grid", 1, 5, 6, 2)),
          "rois": np.float32([[0, 0, 5, 5], [1, 2, 8, 6]])}, None
    yield "scattered and chosen", made("""
      g (float[4,5] x, int64[2,2] at, float[2] u, int64[4,2] e) => (float[4,5] s, float[2] n, float[4,3] t, int64[4,3] k, float[4,2] ge, float[4,5] se, float[4,5] tri, float[4,6] hot) {
        s = ScatterND <reduction = "add"> (x, at, u)
        n = GatherND (x, at)
        t, k = TopK (x, three)
        ge = GatherElements <axis = 1> (x, e)
        se = ScatterElements <axis = 1> (x, e, ge)
        tri = Trilu <upper = 0> (x)
        col = Gather <axis = 1> (e, zero)
        hot = OneHot (col, six, values)
      }""", {"three": np.int64([3]), "zero": np.int64(0), "six": np.int64(6),
             "values": np.float32([-1, 2])}), {
                 "x": f32("x", 4, 5), "at": np.int64([[0, 1], [3, -1]]), "u": f32("u", 2),
                 "e": np.int64([[0, 4], [1, -1], [2, 3], [3, 0]])}, None
    yield "attention and norms", made("""
      g (float[2,6,16] x) => (float[2,6,16] y, float[2,4,6,6] p) {
        n = LayerNormalization <axis = -1> (x, gain, bias)
        q = MatMul (n, wq)
        k = MatMul (n, wk)
        heads = Constant <value_ints = [2,6,4,4]> ()
        qh = Reshape (q, heads)
        kh = Reshape (k, heads)
        s = Einsum <equation = "bqhd,bkhd->bhqk"> (qh, kh)
        p = Softmax (s)
        o = Einsum <equation = "bhqk,bkhd->bqhd"> (p, kh)
        flat = Constant <value_ints = [2,6,16]> ()
        f = Reshape (o, flat)
        y = Gelu (f)
      }""", {"gain": f32("g", 16), "bias": f32("b", 16), "wq": f32("q", 16, 16),
             "wk": f32("k", 16, 16)}), {"x": f32("x", 2, 6, 16)}, None
    yield "depthwise and grouped", made("""
      g (float[1,32,20,20] x) => (float[1,8] y) {
        d = Conv <group = 32, pads = [2,2,2,2], kernel_shape = [5,5]> (x, dw)
        b = BatchNormalization (d, s, t, m, v)
        h = HardSwish (b)
        g1 = Conv <group = 4> (h, gw)
        i = InstanceNormalization (g1, is, it)
        p = GlobalAveragePool (i)
        f = Flatten (p)
        y = Gemm <transB = 1> (f, fc)
      }""", {"dw": f32("dw", 32, 1, 5, 5), "s": f32("s", 32), "t": f32("t", 32),
             "m": f32("m", 32), "v": f32("v", 32) ** 2 + 0.1, "gw": f32("gw", 16, 8, 1, 1),
             "is": f32("is", 16), "it": f32("it", 16), "fc": f32("fc", 8, 16)}), {
                 "x": f32("x", 1, 32, 20, 20)}, None
    yield "long sums of few results", made("""
      g (float[1,20000] x) => (float[1,3] y, float s, float[1,1] m) {
        y = MatMul (x, w)
        s = ReduceSum <keepdims = 0> (x)
        m = ReduceMax (x)
      }""", {"w": f32("w", 20000, 3)}), {"x": f32("x", 1, 20000)}, None
    yield "an old opset", made("""
      g (float[1,3,4,4] x) => (float[1,3,8,8] u, float[1,2,2,2] c) {
        u = Upsample <mode = "nearest", scales = [1.0,1.0,2.0,2.0]> (x)
        p = Pad <pads = [0,0,0,0,0,0,0,0], mode = "constant"> (x)
        c = Conv <kernel_shape = [3,3]> (p, w)
      }""", {"w": f32("w", 2, 3, 3, 3)}, 7), {"x": f32("x", 1, 3, 4, 4)}, None
    yield "spectra", made("""
      g (float[1,64,1] x) => (float[1,33,2] y, float[1,64,1] m) {
        y = DFT <onesided = 1> (x, "", axis)
        w = HannWindow (n)
        w2 = Unsqueeze (w, two)
        m = Mul (x, w2)
      }""".replace('""', ""), {"axis": np.int64(1), "n": np.int64(64), "two": np.int64([1])}), {
          "x": f32("x", 1, 64, 1)}, None
    yield "classical learning", made("""
      g (float[4,3] x) => (int64[4] label, float[4,3] scores) {
        s = ai.onnx.ml.Scaler <offset = [0.5,0.0,-0.5], scale = [1.0,2.0,0.5]> (x)
        label, raw = ai.onnx.ml.LinearClassifier <classlabels_ints = [10,20,30], coefficients = [1.0,0.5,-1.0,0.0,1.0,2.0,-0.5,0.25,0.75], intercepts = [0.1,0.2,0.3], post_transform = "SOFTMAX"> (s)
        scores = ai.onnx.ml.Normalizer <norm = "L2"> (raw)
      }"""), {"x": f32("x", 4, 3)}, None
    yield "sequences inside", made("""
      g (float[2,3] a, float[4,3] b) => (float[6,3] y, float[4,3] z) {
        s = SequenceConstruct (a, b)
        y = ConcatFromSequence <axis = 0> (s)
        one = Constant <value_int = 1> ()
        z = SequenceAt (s, one)
      }"""), {"a": f32("a", 2, 3), "b": f32("b", 4, 3)}, None


def open_sizes():
    """Results whose size only a run knows."""
    for what, x in (("some", [[0, 1, 0], [2, 0, -3]]), ("none", np.zeros((2, 3))),
                    ("all", np.ones((2, 3)))):
        yield "a size that values decide, " + what, made("""
          g (float[2,3] x) => (int64[2,N] at, float[M] v, float[2,3] twice) {
            at = NonZero (x)
            flat = Constant <value_ints = [6]> ()
            f = Reshape (x, flat)
            b = Cast <to = 9> (f)
            v = Compress (f, b)
            twice = Add (x, x)
          }"""), {"x": np.float32(x)}, None
    yield "columns that values decide", made("""
      g (float[3,4,2] x, bool[4] keep) => (float[3,N,2] y, int64[N] first) {
        y = Compress <axis = 1> (x, keep)
        at = NonZero (keep)
        row = Constant <value_int = 0> ()
        first = Gather <axis = 0> (at, row)
      }"""), {"x": f32("x", 3, 4, 2), "keep": np.bool_([1, 0, 0, 1])}, None
    r = rng("boxes")
    corner = r.uniform(0, 90, (1, 60, 2))
    boxes = np.concatenate([corner, corner + r.uniform(5, 30, (1, 60, 2))], 2).astype(np.float32)
    yield "boxes suppressed", made("""
      g (float[1,60,4] boxes, float[1,3,60] scores) => (int64[N,3] chosen) {
        most = Constant <value_ints = [10]> ()
        iou = Constant <value_floats = [0.3]> ()
        least = Constant <value_floats = [0.4]> ()
        chosen = NonMaxSuppression (boxes, scores, most, iou, least)
      }"""), {"boxes": boxes, "scores": r.random((1, 3, 60)).astype(np.float32)}, None


def forest(trees, depth, features, classes):
    """A classifier of random trees, NaN taken to some side."""
    r, at = rng("forest"), {k: [] for k in (
        "treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
        "missing_value_tracks_true")}
    leaves = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}

    def node(tree, number, level):
        row, leaf = len(at["nodeids"]), level == depth or (level > 2 and r.random() < 0.2)
        one = (tree, next(number), 0 if leaf else int(r.integers(features)),
               "LEAF" if leaf else "BRANCH_LEQ", 0.0 if leaf else float(r.standard_normal()), 0, 0,
               int(not leaf and r.random() < 0.3))
        for k, v in zip(at, one):
            at[k].append(v)
        for k in range(classes) if leaf else ():
            for key, v in zip(leaves, (tree, one[1], k, float(r.random()))):
                leaves[key].append(v)
        if not leaf:  # deep ones are thin: one side is a leaf
            at["truenodeids"][row] = node(tree, number, level + 1)
            at["falsenodeids"][row] = node(tree, number, depth if level > 6 else level + 1)
        return one[1]
    for t in range(trees):
        node(t, itertools.count(), 0)
    return {**{"nodes_" + k: v for k, v in at.items()},
            **{"class_" + k: v for k, v in leaves.items()}}


def calls():
    """What is one instruction to hlod."""
    for trees, depth in ((20, 8), (3, 40)):
        n = helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "p"],
                             domain="ai.onnx.ml", classlabels_int64s=[5, 6, 7],
                             post_transform="SOFTMAX", **forest(trees, depth, 12, 3))
        g = helper.make_graph([n], "g", [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 12])], [
            helper.make_tensor_value_info("label", TensorProto.INT64, [6]),
            helper.make_tensor_value_info("p", TensorProto.FLOAT, [6, 3])])
        x = f32("trees", 6, 12)
        x[1, 3:6] = np.nan
        yield "a forest of depth %d" % depth, helper.make_model(g, ir_version=8, opset_imports=[
            helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]), {"x": x}, None
    r = rng("bits")
    n = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=256,
                         N=48, bits=4, block_size=32)
    g = helper.make_graph(
        [n], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 48])],
        [numpy_helper.from_array(r.integers(0, 255, (48, 8, 16)).astype(np.uint8), "w"),
         numpy_helper.from_array(f32("s", 48 * 8), "s")])
    yield "weights of four bits", helper.make_model(g, ir_version=8, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]), {
            "x": f32("x", 2, 256)}, None


def refused():
    yield "texts", made("""
      g (string[2] s) => (bool[2] y) { y = StringEqual (s, s) }""".replace(
          "StringEqual", "Equal")), {}, "texts"


def models():
    for family in (control, kinds, shapes, names, operators, open_sizes, calls, refused):
        yield from family()


if __name__ == "__main__":
    for name, m, *_ in models():
        onnx.checker.check_model(m)
        print(name)
