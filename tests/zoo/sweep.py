# SPDX-License-Identifier: Apache-2.0
"""make bench-ops: forms of single ONNX operators beside ONNX Runtime, to find the ones that run
badly.

    sweep.py BUILD [--ops REGEX] [--types f32,u8] [--threads N] [--rounds N] [--json FILE] [--worst
    N]

Each form is a graph of one to three nodes at a size that takes some 0.1 to 10 ms. hlo-run and ONNX
Runtime run in turn; the least time of each counts, as loops on the device (hlo-run --loop: with its
copies of inputs and results) and `run` from NumPy to NumPy. A table line: form, ms of ours, ms of
theirs, ours over theirs. At the end the worst, and the steps that take ten times what the cost
model says (hlo-run --profile). What either refuses is counted and left out. Values are compared
too, and the exit code is 1 where some differ; speed is only told."""
import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h

TYPES = {"f32": T.FLOAT, "f64": T.DOUBLE, "f16": T.FLOAT16, "bf16": T.BFLOAT16, "u8": T.UINT8,
         "s8": T.INT8, "s32": T.INT32, "s64": T.INT64, "bool": T.BOOL}
NUMPY = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "u8": np.uint8, "s8": np.int8,
         "s32": np.int32, "s64": np.int64, "bool": np.bool_}
BOUNDS = {2: 4e-3, 4: 1e-4, 8: 1e-9}  # by the bytes of an element
FORMS = {}


def form(op, name, type_, shape, nodes, extra=(), out=None, more=()):
    """One graph: input x of `shape`, `nodes` (op, inputs, outputs, attributes), initializers
    `extra` (name, array), result "y" of type `out`; `more`: further inputs (name, type, shape)."""
    given = ([h.make_tensor_value_info("x", TYPES[type_], shape)]
             + [h.make_tensor_value_info(n, TYPES[t], s) for n, t, s in more])
    graph = h.make_graph([h.make_node(o, i, r, **a) for o, i, r, a in nodes], "sweep", given,
                         [h.make_tensor_value_info("y", TYPES[out or type_], None)],
                         [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in extra])
    FORMS["%s %s %s" % (op, name, type_)] = (
        h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9),
        [("x", type_, shape)] + list(more))


def ints(*v):
    return np.array(v, np.int64)


def transposes(t):
    for perm in itertools.permutations(range(4)):
        if perm != (0, 1, 2, 3):
            form("Transpose", "%d%d%d%d" % perm, t, [4, 24, 48, 40],
                 [("Transpose", ["x"], ["y"], {"perm": perm})])
    for perm in ((0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (2, 0, 3, 1)):
        if t not in ("f32", "f16"):
            continue
        first = ("Transpose", ["x"], ["t"], {"perm": perm})
        p = "%d%d%d%d" % perm
        form("Transpose+Relu", p, t, [4, 24, 48, 40], [first, ("Relu", ["t"], ["y"], {})])
        form("Transpose+Softmax", p, t, [4, 24, 48, 40],
             [first, ("Softmax", ["t"], ["y"], {"axis": -1})])
        form("Transpose+ReduceMean", p, t, [4, 24, 48, 40],
             [first, ("ReduceMean", ["t", "a"], ["y"], {})], [("a", ints(-1))])
        if t == "f32":
            form("Transpose+Quantize", p, t, [4, 24, 48, 40],
                 [first, ("QuantizeLinear", ["t", "s", "z"], ["y"], {})],
                 [("s", np.float32(.02)), ("z", np.uint8(3))], out="u8")
    for perm in ((0, 2, 1, 3, 4), (0, 1, 3, 4, 2), (4, 3, 2, 1, 0), (0, 3, 4, 1, 2),
                 (1, 0, 2, 4, 3)):
        form("Transpose", "%d%d%d%d%d" % perm, t, [3, 17, 16, 7, 24],
             [("Transpose", ["x"], ["y"], {"perm": perm})])


def pieces(t):
    for axis, n, c in itertools.product(range(4), (2, 4, 8), (1, 3, 17)):
        shape = [8, 16, 20, 24]
        shape[axis] = c
        form("Concat", "axis %d of %d x %d" % (axis, n, c), t, shape,
             [("Concat", ["x"] + ["i%d" % k for k in range(1, n)], ["y"], {"axis": axis})],
             more=[("i%d" % k, t, shape) for k in range(1, n)])
    for axis, mode in itertools.product(range(4), ("constant", "reflect", "edge", "wrap")):
        pads = [0] * 8
        pads[axis] = pads[4 + axis] = 2
        form("Pad", "%s axis %d" % (mode, axis), t, [4, 24, 40, 33],
             [("Pad", ["x", "p"], ["y"], {"mode": mode})], [("p", ints(*pads))])
    for axis, step in itertools.product(range(4), (2, 3, -1)):
        begin, end = (1, 1000) if step > 0 else (-1, -1000)
        form("Slice", "axis %d step %d" % (axis, step), t, [8, 32, 40, 33],
             [("Slice", ["x", "b", "e", "a", "s"], ["y"], {})],
             [("b", ints(begin)), ("e", ints(end)), ("a", ints(axis)), ("s", ints(step))])
    form("Tile", "2,1,3,2", t, [4, 24, 20, 17], [("Tile", ["x", "r"], ["y"], {})],
         [("r", ints(2, 1, 3, 2))])
    form("Expand", "inner", t, [4, 96, 40, 1], [("Expand", ["x", "r"], ["y"], {})],
         [("r", ints(4, 96, 40, 24))])
    for mode in ("DCR", "CRD"):
        form("DepthToSpace", mode, t, [2, 48, 32, 30],
             [("DepthToSpace", ["x"], ["y"], {"blocksize": 2, "mode": mode})])
    form("SpaceToDepth", "2", t, [2, 24, 64, 60],
         [("SpaceToDepth", ["x"], ["y"], {"blocksize": 2})])
    for upper in (0, 1):
        form("Trilu", "upper %d" % upper, t, [16, 128, 120],
             [("Trilu", ["x"], ["y"], {"upper": upper})])


def indexing(t):
    r = np.random.default_rng(1)
    for axis in range(3):
        shape = [48, 40, 56]
        form("Gather", "axis %d" % axis, t, shape, [("Gather", ["x", "i"], ["y"], {"axis": axis})],
             [("i", r.integers(0, shape[axis], 64))])
        form("GatherElements", "axis %d" % axis, t, shape,
             [("GatherElements", ["x", "i"], ["y"], {"axis": axis})],
             [("i", r.integers(0, shape[axis], shape))])
        form("ScatterElements", "axis %d" % axis, t, shape,
             [("ScatterElements", ["x", "i", "x"], ["y"], {"axis": axis})],
             [("i", np.argsort(r.random(shape), axis))])
        form("OneHot", "axis %d" % axis, "s64", [40, 50],
             [("OneHot", ["x", "d", "v"], ["y"], {"axis": axis})],
             [("d", ints(64)), ("v", np.array([0, 1], np.float32))], out="f32")
        if t in ("f32", "s32", "s64"):
            form("CumSum", "axis %d" % axis, t, shape, [("CumSum", ["x", "a"], ["y"], {})],
                 [("a", np.int64(axis))])
            form("ArgMax", "axis %d" % axis, t, shape, [("ArgMax", ["x"], ["y"], {"axis": axis})],
                 out="s64")
            form("TopK", "axis %d" % axis, t, shape,
                 [("TopK", ["x", "k"], ["y", "i"], {"axis": axis})], [("k", ints(5))])
    form("Where", "rows", t, [96, 1, 1500], [("Where", ["c", "x", "z"], ["y"], {})],
         more=[("c", "bool", [1, 40, 1500]), ("z", t, [96, 40, 1])])


def reductions(t):
    for axes in ((0,), (1,), (2,), (3,), (0, 2), (1, 3), (2, 3), (0, 1, 2), (0, 1, 2, 3)):
        for op in ("ReduceSum", "ReduceMax") if t == "f32" else ("ReduceMax",):
            form(op, str(axes), t, [8, 24, 40, 33], [(op, ["x", "a"], ["y"], {})],
                 [("a", ints(*axes))])


def images(t):
    for mode, to, size in itertools.product(("nearest", "linear", "cubic"),
                                            ("half_pixel", "align_corners", "asymmetric"),
                                            ((64, 60), (50, 37), (20, 19))):
        form("Resize", "%s %s %dx%d" % (mode, to, *size), t, [1, 17, 32, 30],
             [("Resize", ["x", "", "", "s"], ["y"],
               {"mode": mode, "coordinate_transformation_mode": to})], [("s", ints(1, 17, *size))])
    for c, k, d in itertools.product((3, 24), (2, 3, 5), (1, 2)):
        a = {"kernel_shape": [k, k], "pads": [k // 2, 0, k // 2, 1], "dilations": [d, d]}
        form("MaxPool", "c %d k %d d %d" % (c, k, d), t, [2, c, 56, 50],
             [("MaxPool", ["x"], ["y"], a)])
        if d == 1:
            form("AveragePool", "c %d k %d" % (c, k), t, [2, c, 56, 50],
                 [("AveragePool", ["x"], ["y"],
                   {"kernel_shape": a["kernel_shape"], "pads": a["pads"]})])
            form("LpPool", "c %d k %d" % (c, k), t, [2, c, 56, 50],
                 [("LpPool", ["x"], ["y"], {"kernel_shape": a["kernel_shape"]})])
    if t != "f32":
        return
    for c in (3, 24):
        one = np.ones(c, np.float32)
        form("InstanceNormalization", "c %d" % c, t, [2, c, 48, 50],
             [("InstanceNormalization", ["x", "s", "s"], ["y"], {})], [("s", one)])
        form("LRN", "c %d" % c, t, [2, c, 48, 50], [("LRN", ["x"], ["y"], {"size": 3})])
        form("GridSample", "c %d" % c, t, [1, c, 48, 50], [("GridSample", ["x", "g"], ["y"], {})],
             more=[("g", "f32", [1, 40, 44, 2])])
        form("RoiAlign", "c %d" % c, t, [1, c, 48, 50],
             [("RoiAlign", ["x", "r", "b"], ["y"], {"output_height": 7, "output_width": 7})],
             [("r", np.array([[1, 2, 30, 40], [5, 5, 20, 22]] * 8, np.float32)),
              ("b", np.zeros(16, np.int64))])
    for text, other in (("bij,bjk->bik", [8, 50, 33]), ("bij,bkj->bik", [8, 33, 50]),
                        ("bij,kj->bki", [33, 50]), ("bij,bij->b", [8, 70, 50]),
                        ("bij,bkj->ikb", [8, 33, 50])):
        form("Einsum", text, t, [8, 70, 50], [("Einsum", ["x", "z"], ["y"], {"equation": text})],
             more=[("z", t, other)])


def one(op, name, t, shape, inputs=("x",), extra=(), out=None, more=(), **attributes):
    """A form of one node; `inputs` name x, what `extra` and `more` hold, or nothing."""
    form(op, name, t, shape, [(op, list(inputs), ["y"], attributes)], extra, out, more)


def arithmetic(t):
    a, b, c = [16, 33, 100], [33, 1], [16, 1, 100]
    for op in ("Add", "Mul", "Sub", "Max"):
        one(op, "rows", t, a, ("x", "z"), more=[("z", t, b)])
    one("Where", "inner", t, a, ("c", "x", "z"), more=[("c", "bool", c), ("z", t, b)])
    one("Greater", "columns", t, a, ("x", "z"), more=[("z", t, c)], out="bool")
    one("Equal", "rows", t, a, ("x", "z"), more=[("z", t, b)], out="bool")
    one("Clip", "", t, a, ("x", "l", "u"), [("l", np.array(.2 if t[0] in "fb" else 5, NUMPY[t])),
                                            ("u", np.array(.7 if t[0] in "fb" else 40, NUMPY[t]))])
    divisor = np.arange(1, 101).astype(NUMPY[t])
    one("Div", "columns", t, a, ("x", "d"), [("d", divisor)])
    one("Mod", "columns", t, a, ("x", "d"), [("d", divisor)], fmod=int(t[0] in "fb"))
    one("Pow", "2", t, a, ("x", "d"), [("d", np.array(2, NUMPY[t]))])
    for to in ("f32", "f16", "s64", "u8", "bool", "s32"):
        if to != t:
            one("Cast", "to " + to, t, a, out=to, to=TYPES[to])
    for axes in ((0,), (1,), (2,), (0, 2)):
        for op in ("ReduceSum", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceL2",
                   "ReduceLogSumExp"):
            if t[0] in "fb" or op in ("ReduceSum", "ReduceMin"):
                one(op, str(axes), t, a, ("x", "a"), [("a", ints(*axes))])
    for axis in range(3):
        one("ArgMin", "axis %d" % axis, t, a, out="s64", axis=axis)
        one("CumSum", "axis %d reverse exclusive" % axis, t, a, ("x", "a"), [("a", np.int64(axis))],
            reverse=1, exclusive=1)
    one("MatMul", "batched odd", t, [6, 33, 47], ("x", "z"), more=[("z", t, [6, 47, 21])])
    one("MatMul", "broadcast", t, [6, 5, 33, 47], ("x", "z"), more=[("z", t, [5, 47, 21])])
    one("MatMul", "vector", t, [133, 247], ("x", "z"), more=[("z", t, [247])])
    if t in ("f32", "f64"):
        one("Gemm", "transposed", t, [133, 247], ("x", "z"), more=[("z", t, [133, 95])], transA=1)
        one("BitShift" if t[0] == "u" else "Abs", "", t, a)


def logic(t):
    a = [16, 33, 100]
    for op in ("And", "Or", "Xor"):
        one(op, "rows", "bool", a, ("x", "z"), more=[("z", "bool", [33, 1])])
    one("Not", "", "bool", a)
    one("NonZero", "third", t, [60, 70, 3], out="s64")
    one("Compress", "axis 1", t, [64, 50, 30], ("x", "c"), [("c", np.arange(50) % 3 == 0)], axis=1)
    one("Where", "scalar", t, a, ("c", "x", "z"), [("z", np.array(0, NUMPY[t]))],
        more=[("c", "bool", a)])
    form("Reduce of comparison", "any", t, a,
         [("Equal", ["x", "z"], ["e"], {}), ("Cast", ["e"], ["c"], {"to": T.INT32}),
          ("ReduceMax", ["c", "a"], ["y"], {})], [("a", ints(2)), ("z", np.array(1, NUMPY[t]))],
         out="s32")


def functions(t):
    a = [16, 33, 100]
    for op in ("Erf", "Exp", "Log", "Tanh", "Sigmoid", "Sqrt", "Sin", "Cos", "Atan", "Softplus",
               "Elu", "Selu", "Gelu", "Mish", "HardSwish", "HardSigmoid", "Round", "Floor", "Sign",
               "Reciprocal", "Celu", "ThresholdedRelu", "Asin", "Sinh"):
        if op != "Gelu":
            one(op, "", t, a)
    one("LeakyRelu", "", t, a)
    one("PRelu", "rows", t, a, ("x", "s"), [("s", np.full((33, 1), .1, NUMPY[t]))])
    one("Pow", "elements", t, a, ("x", "z"), more=[("z", t, a)])
    for axis in range(3):
        for op in ("Softmax", "LogSoftmax", "LpNormalization", "Hardmax"):
            one(op, "axis %d" % axis, t, a, axis=axis)
    scale = np.ones(100, NUMPY[t])
    one("LayerNormalization", "last", t, a, ("x", "s", "s"), [("s", scale)])
    one("LayerNormalization", "two", t, a, ("x", "s", "s"), [("s", np.ones((33, 100), NUMPY[t]))],
        axis=1)
    many = np.ones(24, NUMPY[t])
    for shape in ([2, 24, 30, 31], [2, 24, 500], [1, 24, 9, 10, 11]):
        one("InstanceNormalization", "%d-D" % len(shape), t, shape, ("x", "s", "s"), [("s", many)])
        one("GlobalAveragePool", "%d-D" % len(shape), t, shape)
        one("GlobalMaxPool", "%d-D" % len(shape), t, shape)
        one("BatchNormalization", "%d-D" % len(shape), t, shape, ("x", "s", "s", "s", "s"),
            [("s", many)])
    g = [("InstanceNormalization", ["r", "s", "b"], ["n"], {}), ("Reshape", ["n", "o"], ["y"], {})]
    form("GroupNorm as exported", "6", t, [2, 24, 30, 31], [("Reshape", ["x", "i"], ["r"], {})] + g,
         [("i", ints(2, 6, -1)), ("o", ints(2, 24, 30, 31)), ("s", np.ones(6, NUMPY[t])),
          ("b", np.zeros(6, NUMPY[t]))])
    one("MeanVarianceNormalization", "", t, [2, 24, 30, 31])
    one("LRN", "5", t, [2, 24, 30, 31], size=5)


def indices(t):
    r = np.random.default_rng(2)
    a = [24, 40, 56]
    i2 = np.stack([r.integers(0, n, (200,)) for n in a[:2]], -1)
    i3 = np.stack([r.integers(0, n, (3000,)) for n in a], -1)
    one("GatherND", "rows", t, a, ("x", "i"), [("i", i2)])
    one("GatherND", "elements", t, a, ("x", "i"), [("i", i3)])
    one("GatherND", "batch", t, a, ("x", "i"), [("i", r.integers(0, 40, (24, 30, 1)))],
        batch_dims=1)
    one("Gather", "matrix of indices", t, a, ("x", "i"), [("i", r.integers(0, 40, (8, 9)))], axis=1)
    one("Gather", "rows by data", t, a, ("x", "i"), more=[("i", "s64", [128])])
    for how in ("none", "add", "mul", "max", "min"):
        if how != "none" and t in ("bool", "f16", "u8"):
            continue
        attributes = {"reduction": how} if how != "none" else {}
        one("ScatterND", "rows " + how, t, a, ("x", "i", "u"), [("i", i2)],
            more=[("u", t, [200, 56])], **attributes)
        one("ScatterND", "elements " + how, t, a, ("x", "i", "u"), [("i", i3)],
            more=[("u", t, [3000])], **attributes)
        if how != "none":
            one("ScatterElements", "axis 1 " + how, t, a, ("x", "i", "u"),
                [("i", r.integers(0, 40, (24, 30, 56)))], more=[("u", t, [24, 30, 56])], axis=1,
                **attributes)
    one("ReverseSequence", "", t, [50, 20, 30], ("x", "l"), [("l", r.integers(1, 51, 20))],
        batch_axis=1, time_axis=0)
    one("Unique", "", t, [2000])
    form("Split+Concat", "halves", t, a,
         [("Split", ["x"], ["p", "q"], {"axis": 2, "num_outputs": 2}),
          ("Neg" if t[0] != "u" and t != "bool" else "Identity", ["q"], ["n"], {}),
          ("Concat", ["n", "p"], ["y"], {"axis": 2})])
    one("Expand", "outer", t, [1, 40, 56], ("x", "r"), [("r", ints(24, 40, 56))])
    one("Expand", "middle", t, [24, 1, 56], ("x", "r"), [("r", ints(24, 40, 56))])
    one("Tile", "inner 1,1,4", t, a, ("x", "r"), [("r", ints(1, 1, 4))])
    one("Slice", "two axes", t, a, ("x", "b", "e", "a", "s"),
        [("b", ints(1, -1)), ("e", ints(39, -57)), ("a", ints(1, 2)), ("s", ints(2, -1))])
    one("Pad", "constant all", t, a, ("x", "p"), [("p", ints(1, 2, 3, 3, 2, 1))])
    one("Pad", "reflect all", t, a, ("x", "p"), [("p", ints(1, 2, 3, 3, 2, 1))], mode="reflect")
    for k in (1, 50):
        form("TopK", "k %d of 1000" % k, t, [40, 1000], [("TopK", ["x", "k"], ["y", "i"], {})],
             [("k", ints(k))])
    form("TopK", "k 100 of 25200", t, [1, 25200], [("TopK", ["x", "k"], ["y", "i"], {})],
         [("k", ints(100))])
    form("TopK", "all of 2000, smallest", t, [8, 2000],
         [("TopK", ["x", "k"], ["y", "i"], {"largest": 0})], [("k", ints(2000))])


def convolutions(t):
    r = np.random.default_rng(4)

    def w(*shape):
        return [("w", (r.standard_normal(shape) * .1).astype(NUMPY[t]))]
    for name, shape, weights, a in (
        ("1-D k 7", [2, 24, 500], (32, 24, 7), {"pads": [3, 3]}),
        ("1-D depthwise", [2, 24, 500], (24, 1, 9), {"group": 24}),
        ("1-D dilated", [1, 16, 1000], (16, 16, 3), {"dilations": [8]}),
        ("1-D one channel stride", [1, 1, 16000], (64, 1, 400), {"strides": [160]}),
        ("2-D odd channels", [1, 13, 40, 41], (17, 13, 3, 3), {"pads": [1, 1, 1, 1]}),
        ("2-D 1x7", [1, 16, 40, 41], (16, 16, 1, 7), {}),
        ("2-D groups", [1, 24, 40, 40], (48, 6, 3, 3), {"group": 4}),
        ("2-D depthwise k 7", [1, 24, 40, 40], (24, 1, 7, 7), {"group": 24, "pads": [3] * 4}),
        ("2-D multiplier 2", [1, 24, 40, 40], (48, 1, 3, 3), {"group": 24}),
        ("2-D stride 3", [1, 3, 120, 120], (16, 3, 5, 5), {"strides": [3, 3]}),
        ("2-D dilation 4", [1, 16, 40, 40], (16, 16, 3, 3), {"dilations": [4, 4], "pads": [4] * 4}),
        ("3-D", [1, 8, 12, 20, 20], (16, 8, 3, 3, 3), {"pads": [1] * 6}),
        ("3-D depthwise", [1, 16, 12, 20, 20], (16, 1, 3, 3, 3), {"group": 16}),
        ("3-D 3x1x1", [1, 8, 12, 20, 20], (16, 8, 3, 1, 1), {})):
        one("Conv", name, t, shape, ("x", "w"), w(*weights), **a)
    for name, shape, weights, a in (
        ("2-D stride 2", [1, 16, 20, 20], (16, 8, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
        ("2-D groups", [1, 16, 20, 20], (16, 4, 3, 3), {"strides": [2, 2], "group": 4}),
        ("2-D depthwise", [1, 16, 20, 20], (16, 1, 4, 4), {"strides": [2, 2], "group": 16}),
        ("1-D stride 8", [1, 32, 100], (32, 16, 16), {"strides": [8]}),
        ("3-D", [1, 8, 6, 10, 10], (8, 8, 2, 2, 2), {"strides": [2, 2, 2]})):
        one("ConvTranspose", name, t, shape, ("x", "w"), w(*weights), **a)
    for op in ("MaxPool", "AveragePool"):
        one(op, "3-D", t, [1, 16, 12, 20, 20], kernel_shape=[2, 2, 2], strides=[2, 2, 2])
        one(op, "3-D k 3", t, [1, 16, 12, 20, 20], kernel_shape=[3, 3, 3], pads=[1] * 6)
        one(op, "1-D", t, [2, 24, 500], kernel_shape=[5], strides=[2])
        one(op, "ceil", t, [1, 24, 41, 41], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        one(op, "k 13", t, [1, 24, 30, 30], kernel_shape=[13, 13], pads=[6] * 4)
    if t == "f32":
        one("Col2Im", "", t, [1, 72, 400], ("x", "s", "b"),
            [("s", ints(22, 22)), ("b", ints(3, 3))])
        form("MaxUnpool", "2", t, [1, 16, 40, 40],
             [("MaxPool", ["x"], ["p", "i"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
              ("MaxUnpool", ["p", "i"], ["y"], {"kernel_shape": [2, 2], "strides": [2, 2]})])
    for text, shape, other in (
        ("bhqd,bhkd->bhqk", [2, 4, 50, 24], [2, 4, 60, 24]),
        ("bqhd,bkhd->bhqk", [2, 50, 4, 24], [2, 60, 4, 24]),
        ("bhqk,bkhd->bqhd", [2, 4, 50, 60], [2, 60, 4, 24]), ("abc,cd->abd", [8, 30, 40], [40, 50]),
        ("bchw,bkc->bkhw", [2, 24, 20, 20], [2, 10, 24]),
        ("nkctv,kvw->nctw", [2, 3, 16, 20, 25], [3, 25, 25]), ("ij,j->i", [300, 400], [400]),
        ("i,j->ij", [300], [400]), ("bid,bjd->bij", [4, 60, 33], [4, 50, 33])):
        one("Einsum", text, t, shape, ("x", "z"), more=[("z", t, other)], equation=text)
    one("Einsum", "bii->bi", t, [40, 60, 60], equation="bii->bi")
    one("Einsum", "bij->ji", t, [40, 60, 50], equation="bij->ji")


STRANGERS = ((arithmetic, ("f32", "f64", "s64", "s32", "u8", "f16")), (logic, ("f32", "s64", "u8")),
             (functions, ("f32", "f16", "f64")), (indices, ("f32", "s64", "u8", "f16", "f64")),
             (convolutions, ("f32", "f16", "f64")))


def made(types, pattern):
    for t in types:
        for f in (transposes, pieces, indexing, reductions, images):
            if f is images and t not in ("f32", "f16", "u8"):
                continue
            if t != "f64":
                f(t)
        for f, takes in STRANGERS:
            if t in takes:
                f(t)
    return {n: f for n, f in FORMS.items() if re.search(pattern, n)}


class Ours:
    def __init__(self, build, path, env):
        self.p = subprocess.Popen([os.path.join(build, "hlo-run"), "--loop", path],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, env=env)

    def times(self, n):
        self.p.stdin.write("%d\n" % n)
        self.p.stdin.flush()
        for line in self.p.stdout:
            words = line.split()
            if len(words) == n and re.fullmatch(r"[\d. ]+", line.strip()):
                return [float(w) for w in words]
        raise RuntimeError("refused")

    def end(self):
        self.p.stdin.close()
        self.p.wait(60)


def theirs(session, inputs, n):
    times = []
    for _ in range(n):
        begin = time.perf_counter()
        session.run(None, inputs)
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def differ(build, path, values, want, env, slack):
    """What is wrong with our results; "" where they are the peer's: integers within `slack`, floats
    by their type's bound relative to the largest magnitude."""
    with tempfile.TemporaryDirectory() as d:
        args = []
        for k, v in enumerate(values.values()):
            v.tofile(os.path.join(d, "i%d" % k))
            args += ["--in", os.path.join(d, "i%d" % k)]
        r = subprocess.run([os.path.join(build, "hlo-run"), *args, "--out", os.path.join(d, "o"),
                            path], capture_output=True, text=True, env=env, timeout=120)
        with open(os.path.join(d, "o"), "rb") as f:
            data = f.read()
    if r.returncode or len(data) != sum(w.nbytes for w in want):
        return "%d bytes of %d, exit code %d" % (len(data), sum(w.nbytes for w in want),
                                                 r.returncode)
    at, worst = 0, ""
    for k, w in enumerate(want):
        got = np.frombuffer(data, w.dtype, w.size, at).reshape(w.shape)
        at += w.nbytes
        if w.dtype.kind == "f":
            a, b = got.astype(np.float64), w.astype(np.float64)
            known = np.isfinite(b)
            scale = max(np.abs(b[known]).max(initial=0), 1e-30)
            wrong = ((np.isfinite(a) != known)
                     | (known & ~(np.abs(a - b) <= BOUNDS[w.dtype.itemsize] * scale)))
        else:
            wrong = (np.abs(got.astype(np.int64) - w) > slack) if slack else got != w
        if wrong.any():
            worst = ("result %d: %d of %d, first %s for %s"
                     % (k, wrong.sum(), w.size, got[wrong][0], w[wrong][0]))
    return worst


def cliffs(build, path, env):
    r = subprocess.run([os.path.join(build, "hlo-run"), "--profile", path], capture_output=True,
                       text=True, env=env, timeout=120)
    return [" ".join(line.split()) for line in (r.stdout + r.stderr).splitlines()
            if line.rstrip().endswith("CLIFF")]


def measure(build, model, inputs, env, threads, rounds):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    r = np.random.default_rng(3)
    values = {n: (r.random(s) * (1 if t in ("f32", "f16", "f64") else 2 if t == "bool"
                                 else 60)).astype(NUMPY[t])
              for n, t, s in inputs}
    with tempfile.NamedTemporaryFile(suffix=".onnx") as f:
        onnx.save(model, f.name)
        session = ort.InferenceSession(f.name, options, providers=["CPUExecutionProvider"])
        ours = Ours(build, f.name, env)
        try:
            first = max(min(ours.times(2)), min(theirs(session, values, 2)), 0.01)
            n = max(2, min(50, int(10 / first)))
            a, b = [], []
            for _ in range(rounds):
                a += ours.times(n)
                b += theirs(session, values, n)
        finally:
            ours.end()
        return min(a), min(b), cliffs(build, f.name, env), differ(
            build, f.name, values, session.run(None, values), env,
            int(model.graph.node[0].op_type == "Resize"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--ops", default=".")
    p.add_argument("--types", default="f32,u8")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--worst", type=int, default=20)
    p.add_argument("--json")
    a = p.parse_args()
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
    rows, refused = [], 0
    for name, (model, inputs) in made(a.types.split(","), a.ops).items():
        try:
            ours, ort_ms, steps, wrong = measure(a.build, model, inputs, env, a.threads, a.rounds)
        except Exception as e:  # what either side says
            refused += 1
            print("%-44s left out: %s" % (name, str(e).splitlines()[0][:100]), flush=True)
            continue
        rows.append({"form": name, "ms": ours, "ort_ms": ort_ms, "cliffs": steps, "differs": wrong})
        print("%-44s %9.4f %9.4f %6.2f%s" % (
                  name, ours, ort_ms, ours / ort_ms,
                  ("  CLIFF" if steps else "") + ("  DIFFERS: " + wrong if wrong else "")),
              flush=True)
    rows.sort(key=lambda r: -r["ms"] / r["ort_ms"])
    print("\n%d forms, %d left out; behind 2 times and more: %d; with steps ten times the "
          "estimate: %d" % (len(rows), refused, sum(r["ms"] > 2 * r["ort_ms"] for r in rows),
                            sum(bool(r["cliffs"]) for r in rows)))
    print("worst %d:" % a.worst)
    for r in rows[:a.worst]:
        print("  %-44s %9.4f %9.4f %6.2f"
              % (r["form"], r["ms"], r["ort_ms"], r["ms"] / r["ort_ms"]))
    for r in rows:
        if r["differs"]:
            print("  DIFFERS %s: %s" % (r["form"], r["differs"]))
        for step in r["cliffs"]:
            print("  CLIFF %s: %s" % (r["form"], step))
    if a.json:
        with open(a.json, "w") as f:
            json.dump(rows, f)
    return 1 if any(r["differs"] for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
