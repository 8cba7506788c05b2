#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""precision=fast (compiler/passes/change_op_data_type.c) against ONNX Runtime in f32: random chains
of convolutions, residual sums, poolings, concatenations and dots.

    fast.py BUILD [--n N] [--seed S]

Most models hold small whole numbers, of which bf16 loses none and whose sums f32 holds: there the
results are the same but for what Winograd's tiles of f32 err (EXACT), so that a lost bias or a sum
in bf16, which are off by whole numbers, show. Others hold normal
numbers, and a bound holds them. Some inputs hold NaN and infinities. Where the CPU has instructions
for bf16, the profile must name a kernel that uses them; elsewhere results are f32's.
"""
import os
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "conform")]
from harness import multiplies_bf16  # noqa: E402
from random_modules import main, run  # noqa: E402

EMULATED = os.environ.get("HLOD_CPU_BF16") == "emulated"  # such a CPU's values in f32, everywhere
EXACT = 1e-3  # of models of whole numbers
BOUND = 0.03  # of the largest value of a result, for normal numbers
TAPS = 12     # terms of a sum of whole numbers up to 8: below 256, which bf16 still holds


class Graph:
    """Nodes, inputs and weights as they are added. exact: of whole numbers. pools: with maxima over
    windows, in which ONNX Runtime loses NaN."""

    def __init__(self, rng, exact, pools):
        self.rng, self.exact, self.pools = rng, exact, pools
        self.nodes, self.inputs, self.weights, self.n = [], {}, {}, 0

    def op(self, kind, *ins, **attrs):
        self.n += 1
        self.nodes.append(helper.make_node(kind, list(ins), ["v%d" % self.n], **attrs))
        return "v%d" % self.n

    def weight(self, shape, terms):
        """Of `terms` terms a sum; one in ten is an input of the run."""
        self.n += 1
        name = "w%d" % self.n
        if self.exact:
            w = self.rng.integers(-1, 2, shape) * (self.rng.random(shape) < TAPS / 2 / terms)
        else:
            w = self.rng.standard_normal(shape) / np.sqrt(terms)
        (self.inputs if self.rng.random() < 0.1 else self.weights)[name] = w.astype(np.float32)
        return name

    def vector(self, n):
        self.n += 1
        v = self.rng.integers(-3, 4, n) if self.exact else self.rng.standard_normal(n) / 4
        self.weights["w%d" % self.n] = v.astype(np.float32)
        return "w%d" % self.n

    def constant(self, v):
        self.n += 1
        self.weights["w%d" % self.n] = np.float32(v)
        return "w%d" % self.n

    def limit(self, x):
        """Whole numbers stay below 8."""
        kind = self.rng.integers(3)
        if kind == 0:
            return self.op("Clip", x, self.constant(0), self.constant(6))
        x = self.op("Relu", x) if kind == 1 else x
        return self.op("Clip", x, self.constant(-8), self.constant(8)) if self.exact else x


def convolution(g, x, shape):
    n, c, h, w = shape
    k, s = int(g.rng.choice([1, 3, 3, 5])), int(g.rng.choice([1, 1, 2]))
    depthwise = g.rng.random() < 0.15
    out = c if depthwise else int(g.rng.choice([c, 8, 16, 20, 32, 64]))
    ins = [x, g.weight((out, 1 if depthwise else c, k, k), k * k * (1 if depthwise else c))]
    if g.rng.random() < 0.6:
        ins.append(g.vector(out))
    y = g.op("Conv", *ins, kernel_shape=[k, k], strides=[s, s], pads=[k // 2] * 4,
             group=c if depthwise else 1)
    return y, (n, out, (h - 1) // s + 1, (w - 1) // s + 1)


def image(g):
    """A chain of convolutions with what stands between them."""
    shape = (int(g.rng.choice([1, 1, 2])), int(g.rng.choice([3, 3, 16, 24])),
             int(g.rng.choice([7, 14, 17, 28])), int(g.rng.choice([8, 14, 16, 28])))
    first, x = shape, "x"
    outputs = []
    for _ in range(g.rng.integers(1, 6)):
        before, was = x, shape
        y, shape = convolution(g, x, shape)
        if shape == was and before != "x" and g.rng.random() < 0.7:
            y = g.op("Add", *([y, before] if g.rng.integers(2) else [before, y]))
        x = g.limit(y)
        between = g.rng.random()
        if g.pools and between < 0.2 and min(shape[2:]) > 3:
            x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
            shape = shape[:2] + tuple((d - 1) // 2 + 1 for d in shape[2:])
        elif between < 0.3 and shape == was and before != "x":
            x, shape = g.op("Concat", x, before, axis=1), (shape[0], 2 * shape[1]) + shape[2:]
        elif between < 0.4:
            outputs.append(x)
    if g.rng.random() < 0.4:
        x = g.op("Flatten", x)
        cols = int(np.prod(shape[1:]))
        x = g.op("Gemm", x, g.weight((cols, 10), cols), g.vector(10))
    return first, outputs + [x]


def rows(g):
    """Dots with biases, activations and sums, a weight that two of them read."""
    n, d = int(g.rng.choice([1, 5, 17, 64])), int(g.rng.choice([15, 16, 40, 64]))
    first, x = (n, d), "x"
    tied = g.weight((d, d), d)
    for _ in range(g.rng.integers(1, 5)):
        y = g.op("MatMul", x, tied if g.rng.integers(2) else g.weight((d, d), d))
        if g.rng.integers(2):
            y = g.op("Add", y, g.vector(d))
        if x != "x" and g.rng.integers(2):
            y = g.op("Add", y, x)
        x = g.limit(y)
    return first, [x]


def check(build, number, rng):
    exact = number % 4 != 3
    nan = number % 8 == 5
    g = Graph(rng, exact, not nan)
    shape, outputs = (rows if number % 3 == 2 else image)(g)
    x = rng.integers(-4, 5, shape) if exact else rng.standard_normal(shape)
    x = x.astype(np.float32)
    if nan:
        x.flat[rng.integers(x.size)] = np.nan
        x.flat[rng.integers(x.size)] = np.inf
    values = dict({"x": x}, **g.inputs)
    graph = helper.make_graph(
        g.nodes, "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape)
                       for n, v in values.items()],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
        [numpy_helper.from_array(np.asarray(w), n) for n, w in g.weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options)
    want = session.run(None, values)
    said = helper.printable_graph(graph)
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, os.path.join(folder, "m.onnx"))
        for isa in ("", "avx2"):
            p, got = run(build, folder, values.values(), isa,
                         ("--precision", "fast", "--profile", "--time", "1"), "m.onnx")
            if p.returncode:
                return said, "%s: %s" % (isa, p.stderr)
            odd = len(shape) == 2 and shape[1] % 2  # such a dot stays f32
            native = not isa and multiplies_bf16() and not EMULATED
            if native and not odd and "bf16" not in p.stdout:
                return said, "nothing ran in bf16:\n%s" % p.stdout
            for name, w in zip(outputs, want):
                y = np.frombuffer(got[:w.nbytes], np.float32).reshape(w.shape)
                got = got[w.nbytes:]
                finite = np.isfinite(w)
                if (np.isnan(y) != np.isnan(w)).any():
                    return said, "%s %s: NaN in other places" % (isa, name)
                least = EXACT if exact else BOUND * np.abs(w[finite]).max(initial=0)
                error = np.abs(y[finite] - w[finite]).max(initial=0)
                if not error <= least:
                    return said, "%s %s: error %g of %g" % (isa, name, error,
                                                            np.abs(w[finite]).max(initial=0))
    return said, None


if __name__ == "__main__":
    sys.exit(main("fast", check, 48))
