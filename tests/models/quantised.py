# SPDX-License-Identifier: Apache-2.0
"""Quantised models through the running daemon, against ONNX Runtime: convolutions and products
between QuantizeLinear and DequantizeLinear, integer operators, dynamic quantisation. Both round on
the way, so a result may be off by one step of its scale where a value lies between two; few may. On
a machine whose CPU multiplies 8-bit integers exactly (VNNI, or AVX2 by pairs) the profile must show
that it did (kernels and matrices up to 64 bytes are constants, whose product is not worth it; small
convolutions are not worth pairs).

    quantised.py BUILD [NAME ...]        prints PASS and FAIL lines
"""
import hashlib
import os
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import daemon  # noqa: E402
import harness  # noqa: E402

STEP = 0.05  # scale of results
FLAGS = set(open("/proc/cpuinfo").read().split())
# Who multiplies 8-bit integers: the profile's words. AVX-512 without VNNI: nobody.
EXACT = (("vnni", "amx_int8") if "avx512_vnni" in FLAGS
         else ("pairs",) if "avx2" in FLAGS and "avx512vl" not in FLAGS else ())
# Weights of integer operators: without VNNI, ONNX Runtime's sums of u8 by s8 saturate beyond this.
LARGEST = 127 if "avx512_vnni" in FLAGS else 63


class Graph:
    def __init__(self, seed=0):
        self.nodes, self.inits, self.inputs, self.r, self.n = [], [], [], np.random.default_rng(
            seed), 0

    def const(self, a):
        self.n += 1
        name = "c%d" % self.n
        self.inits.append(nh.from_array(np.asarray(a), name))
        return name

    def op(self, kind, ins, outputs=1, **attrs):
        self.n += 1
        outs = ["v%d_%d" % (self.n, k) for k in range(outputs)]
        self.nodes.append(h.make_node(kind, ins, outs, **attrs))
        return outs[0] if outputs == 1 else outs

    def input(self, *dims):
        name = "x%d" % len(self.inputs)
        self.inputs.append(h.make_tensor_value_info(name, T.FLOAT, dims))
        return name

    def fake(self, x, scale, zero, dtype=np.uint8):
        """x quantised and dequantised."""
        s, z = self.const(np.float32(scale)), self.const(np.array(zero, dtype))
        return self.op("DequantizeLinear", [self.op("QuantizeLinear", [x, s, z]), s, z])

    def weights(self, *dims, axis=0, per_channel=True, zero=True):
        w = self.const(self.r.integers(-127, 128, dims).astype(np.int8))
        n = dims[axis]
        s = self.const((self.r.random(n) * 0.01 + 0.002).astype(np.float32) if per_channel
                       else np.float32(0.007))
        z = [self.const(np.zeros(n, np.int8) if per_channel else np.int8(0))] if zero else []
        return self.op("DequantizeLinear", [w, s] + z, axis=axis)

    def bias(self, n):
        return self.const(self.r.standard_normal(n).astype(np.float32))

    def model(self, out, kind=T.FLOAT):
        g = h.make_graph(self.nodes, "g", self.inputs, [h.make_tensor_value_info(out, kind, None)],
                         self.inits)
        return h.make_model(g, opset_imports=[h.make_opsetid("", 13)], ir_version=8)


def conv(cin, cout, k, hw, zero=0, dtype=np.uint8, group=1, stride=1, dilation=1, relu=True, **kw):
    g = Graph()
    x = g.fake(g.input(2, cin, hw, hw), 0.02, zero, dtype)
    y = g.op("Conv", [x, g.weights(cout, cin // group, k, k, **kw), g.bias(cout)], group=group,
             kernel_shape=[k, k], pads=[k // 2 * dilation] * 4, strides=[stride] * 2,
             dilations=[dilation] * 2)
    return g.model(g.fake(g.op("Relu", [y]) if relu else y, STEP, 3))


def several(n=10):
    """Enough weights that all threads pack them: their compensation for sources with a sign is
    theirs alone."""
    g = Graph()
    x = g.fake(g.input(1, 65, 9, 7), 0.02, -5, np.int8)
    y = None
    for _ in range(n):
        z = g.fake(g.op("Conv", [x, g.weights(48, 65, 3, 3), g.bias(48)], pads=[1, 1, 1, 1]), 0.5,
                   3, np.int8)
        y = g.op("Add", [y, z]) if y else z
    return g.model(g.fake(y, STEP, 128))


def residual():
    """The block of a residual network: two convolutions, a sum, and what follows it."""
    g = Graph()
    x = g.fake(g.input(1, 32, 14, 14), 0.02, 0)
    y = g.op("Conv", [x, g.weights(64, 32, 1, 1), g.bias(64)])
    y = g.fake(g.op("Relu", [y]), 0.03, 0)
    y = g.op("Conv", [y, g.weights(64, 64, 3, 3), g.bias(64)], pads=[1, 1, 1, 1], strides=[2, 2])
    y = g.fake(g.op("Relu", [y]), 0.2, 0)
    y = g.fake(g.op("Conv", [y, g.weights(32, 64, 1, 1), g.bias(32)]), 0.5, 128)
    short = g.fake(g.op("Conv", [x, g.weights(32, 32, 1, 1), g.bias(32)], strides=[2, 2]), 0.05,
                   128)
    y = g.fake(g.op("Relu", [g.op("Add", [y, short])]), 0.5, 0)
    return g.model(g.fake(g.op("GlobalAveragePool", [y]), STEP, 0))


def matmul(m, k, n, zero=128, dims=(), per_channel=True):
    g = Graph()
    x = g.fake(g.input(*dims, m, k), 0.02, zero)
    y = g.op("Add",
             [g.op("MatMul", [x, g.weights(k, n, axis=1, per_channel=per_channel)]), g.bias(n)])
    return g.model(g.fake(y, STEP, 128))


def activations(dtype=np.uint8, zero=128, conv=True):
    """SiLU, tanh and a GELU of values of 8 bits, quantised on the way: tables of bytes."""
    g = Graph()
    y = g.fake(g.input(2, 16, 9, 13), 0.02, zero, dtype)
    if conv:
        y = g.fake(g.op("Conv", [y, g.weights(24, 16, 3, 3), g.bias(24)], pads=[1, 1, 1, 1]), 0.05,
                   zero, dtype)
    y = g.fake(g.op("Mul", [y, g.fake(g.op("Sigmoid", [y]), 1 / 256,
                                      0 if dtype == np.uint8 else -128, dtype)]), 0.03, zero, dtype)
    t = g.fake(g.op("Tanh", [y]), 1 / 128, zero, dtype)
    e = g.op("Add",
             [g.op("Erf", [g.op("Mul", [y, g.const(np.float32(0.7071))])]), g.const(np.float32(1))])
    e = g.fake(g.op("Mul", [g.op("Mul", [y, g.const(np.float32(0.5))]), e]), 0.03, zero, dtype)
    return g.model(g.fake(g.op("Add", [t, e]), STEP, zero, dtype))


def gemm():
    g = Graph()
    x = g.fake(g.input(7, 64), 0.02, 5)
    return g.model(g.fake(g.op("Gemm", [x, g.weights(24, 64), g.bias(24)], transB=1), STEP, 128))


def narrow(g, *dims):
    """Weights of an integer operator."""
    return g.r.integers(-LARGEST, LARGEST + 1, dims).astype(np.int8)


def dynamic(zero):
    """As dynamic quantisation leaves a dense layer."""
    g = Graph()
    q, s, z = g.op("DynamicQuantizeLinear", [g.input(9, 64)], outputs=3)
    w = g.const(narrow(g, 64, 48))
    y = g.op("MatMulInteger", [q, w, z] + ([g.const(np.int8(0))] if zero else []))
    y = g.op("Mul", [g.op("Cast", [y], to=T.FLOAT), g.op("Mul", [s, g.const(np.float32(0.007))])])
    return g.model(g.op("Add", [y, g.bias(48)]))


def integers(op):
    g = Graph()
    s, z = g.const(np.float32(0.02)), g.const(np.uint8(100))
    q = g.op("QuantizeLinear", [g.input(1, 16, 9, 9) if "Conv" in op else g.input(6, 16), s, z])
    if op == "ConvInteger":
        return g.model(g.op(op, [q, g.const(narrow(g, 8, 16, 3, 3)), z], pads=[1, 1, 1, 1]),
                       T.INT32)
    ys, yz, ws = g.const(np.float32(STEP)), g.const(
        np.uint8(90)), (g.r.random(8) * 0.01 + 0.002).astype(np.float32)
    if op == "QLinearConv":
        w = g.const(narrow(g, 8, 16, 3, 3))
        y = g.op(op, [q, s, z, w, g.const(ws), g.const(np.zeros(8, np.int8)), ys, yz,
                      g.const(g.r.integers(-999, 999, 8).astype(np.int32))], pads=[1, 1, 1, 1])
    else:
        y = g.op(op, [q, s, z, g.const(narrow(g, 16, 8)),
                      g.const(np.float32(0.01)), g.const(np.int8(0)), ys, yz])
    return g.model(g.op("DequantizeLinear", [y, ys, yz]))


# name -> (model, does it become a product of 8-bit integers)
MODELS = {
    "conv 3x3, no zero point": (lambda: conv(16, 32, 3, 12), True),
    "conv 3x3, zero point, padding": (lambda: conv(16, 32, 3, 12, zero=117), True),
    "conv 3x3 of s8": (lambda: conv(16, 24, 3, 12, zero=-5, dtype=np.int8), True),
    "ten convs of s8": (several, True),
    "conv 1x1, stride": (lambda: conv(64, 32, 1, 13, zero=4, stride=2), True),
    "conv 3x3, dilated, one scale": (lambda: conv(16, 16, 3, 12, dilation=2, per_channel=False),
                                     True),
    "conv 7x7 of three channels": (lambda: conv(3, 16, 7, 20, zero=114, stride=2), True),
    "conv, depthwise": (lambda: conv(128, 128, 3, 10, zero=3, group=128), True),
    "conv, groups": (lambda: conv(16, 32, 3, 10, zero=3, group=4), False),
    "conv, weights without a zero point": (lambda: conv(16, 16, 3, 9, relu=False, zero=9), True),
    "a residual block": (residual, True),
    "matmul": (lambda: matmul(11, 64, 40), True),
    "matmul, 2,000 columns": (lambda: matmul(3, 32, 2000), True),
    "matmul, batch of rows": (lambda: matmul(5, 64, 32, dims=(2, 3)), True),
    "matmul, one scale": (lambda: matmul(1, 48, 24, zero=0, per_channel=False), True),
    "activations behind a convolution": (activations, True),
    "activations of s8 behind a convolution": (lambda: activations(np.int8, -3), True),
    "activations alone": (lambda: activations(conv=False), False),
    "activations of s8 alone": (lambda: activations(np.int8, 5, False), False),
    "gemm, transposed": (gemm, True),
    "dynamic": (lambda: dynamic(False), True),
    "dynamic, a zero point of zero": (lambda: dynamic(True), True),
    "ConvInteger": (lambda: integers("ConvInteger"), True),
    "QLinearConv": (lambda: integers("QLinearConv"), True),
    "QLinearMatMul": (lambda: integers("QLinearMatMul"), True),}


def difference(g, w):
    """Why it is wrong, or None."""
    if g.shape != w.shape or g.dtype != w.dtype:
        return "%s%s, expected %s%s" % (g.dtype, g.shape, w.dtype, w.shape)
    if w.dtype != np.float32:
        return None if (g == w).all() else "%d of %d integers differ" % ((g != w).sum(), w.size)
    d = np.abs(g - w)
    off = (d > 1e-3 * max(1, np.abs(w).max())).mean()
    return ("off by %.3g, %.2f%% of elements" % (d.max(), 100 * off)
            if d.max() > STEP * 1.01 or off > 0.02 else None)


def check(d, model, fast, small):
    data = model.SerializeToString()
    o = ort.SessionOptions()
    # as the graph says, in f32 where it does
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    s = ort.InferenceSession(data, o, providers=["CPUExecutionProvider"])
    r = np.random.default_rng(5)
    ins = {i.name: (r.standard_normal(i.shape) * 1.5).astype(np.float32) for i in s.get_inputs()}
    want = s.run(None, ins)[0]
    for precision in ("default", "strict"):
        try:
            d.compile(data, {}, precision=precision)
            got, info = d.run(hashlib.sha256(data).hexdigest(), ins,
                              compile={"precision": precision}, profile=True)
        except daemon.Refused as e:
            return "refused: %s" % e
        why = difference(next(iter(got.values())), want)
        if why:
            return "%s: %s" % (precision, why)
        rows = info.get("profile", {}).get("rows", [])
        if (fast and precision == "default" and EXACT
            and not (small and "pairs" in EXACT)
            and not any(who in row.get("impl", "") for who in EXACT for row in rows)):
            return ("no product of 8-bit integers: %s"
                    % [row.get("impl") for row in rows])
    return None


def main():
    results = harness.Results()
    with daemon.Daemon(sys.argv[1]) as d:
        results.each([(name, lambda n=name, m=model, f=fast: check(d, m(), f, "conv" in n.lower()))
                      for name, (model, fast) in MODELS.items()], sys.argv[2:])
    return results.code()


if __name__ == "__main__":
    sys.exit(main())
