#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Convolutions, transposed convolutions and poolings with what stands behind them, as families:
channels that fill no block, every activation before and after a sum, groups, dilations, 1 to 3
dimensions, pads beyond the kernel. Beside ONNX Runtime on the same model.

    convs.py BUILD [--bench] [--all] [--list N] [NAME...]      NAME: only cases whose name holds it

Without --bench: a case in STRIDE (--all: each), prints PASS or FAIL. A case fails when its values
differ by more than 1e-4 of scale, or when a step runs in an implementation that goes element by
element (oneDNN's `ref`, our reference evaluator, a kernel for a lone convolution): no shape may
fall off that cliff (D20). With --bench: every case, best times on one thread, those slower than 1.5
times ONNX Runtime are listed, worst first; it fails when one is five times slower (and by more than
0.2 ms).
"""
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

R = np.random.default_rng(11)
STRIDE = 5
CASES = []  # name, nodes, {initializer: array}, {input: array}


def f32(*dims):
    return (R.standard_normal(dims) * 0.3).astype(np.float32)


class Net:
    """A graph that grows at its end."""

    def __init__(self, name, x):
        self.name, self.nodes, self.init, self.inputs, self.at, self.shape = name, [], {}, {
            "x": x}, "x", x.shape

    def weight(self, array, given=False):
        name = "w%d" % (len(self.init) + len(self.inputs))
        (self.inputs if given else self.init)[name] = array
        return name

    def node(self, op, *more, **attrs):
        out = "v%d" % len(self.nodes)
        self.nodes.append(helper.make_node(op, [self.at, *more], [out], **attrs))
        self.at = out
        return self

    def conv(self, cout, kernel, stride=1, dilation=1, group=1, pad=None, op="Conv", bias=True,
             given=False, **attrs):
        n = len(self.shape) - 2
        cin, k = self.shape[1], [kernel] * n if isinstance(kernel, int) else kernel
        w = self.weight(f32(*((cout, cin // group) if op == "Conv" else (cin, cout // group)), *k),
                        given)
        pad = [(x - 1) * dilation // 2 for x in k] * 2 if pad is None else pad
        inputs = [w, self.weight(f32(cout))] if bias else [w]
        return self.node(op, *inputs, kernel_shape=k, strides=[stride] * n,
                         dilations=[dilation] * n, group=group, pads=pad, **attrs)

    def conv8(self, cout, kernel, stride=1, dilation=1, group=1, pad=None, how="dynamic",
              kind=np.int8, zero=""):
        """A convolution of 8-bit integers: dynamic: ConvInteger, its result times both scales;
        static: Conv of dequantised values. zero: the weights' zero point ('', 'one', 'each')."""
        n, cin, first = len(self.shape) - 2, self.shape[1], 0 if kind == np.uint8 else -128
        k = [kernel] * n if isinstance(kernel, int) else kernel
        attrs = dict(kernel_shape=k, strides=[stride] * n, dilations=[dilation] * n, group=group,
                     pads=[(x - 1) * dilation // 2 for x in k] * 2 if pad is None else pad)
        w = self.weight(R.integers(first, first + 256, (cout, cin // group, *k)).astype(kind))
        points = (R.integers(first, first + 256, cout if zero == "each" else ()).astype(kind)
                  if zero else None)
        scale, x = self.weight(np.float32(0.01)), self.at
        if how == "static":
            step = [self.weight(np.float32(0.012)), self.weight(np.uint8(117))]
            self.node("QuantizeLinear", *step).node("DequantizeLinear", *step)
            x, self.at = self.at, w
            self.node("DequantizeLinear", self.weight(np.full(cout, 0.01, np.float32)),
                      self.weight(points if zero == "each" else np.full(cout, points or 0, kind)),
                      axis=0)
            w, self.at = self.at, x
            return self.node("Conv", w, **attrs)
        self.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], ["q", "qs", "qz"]))
        self.at = "q"
        more = [self.weight(points)] if zero else []
        return self.node("ConvInteger", w, "qz", *more, **attrs).node(
            "Cast", to=TensorProto.FLOAT).node("Mul", self.with_scale(scale))

    def with_scale(self, scale):
        self.nodes.append(helper.make_node("Mul", ["qs", scale], ["both"]))
        return "both"

    def add(self):
        CASES.append(self)


ACTIVATIONS = {
    "relu": lambda n: n.node("Relu"), "leaky": lambda n: n.node("LeakyRelu", alpha=0.1),
    "elu": lambda n: n.node("Elu"), "sigmoid": lambda n: n.node("Sigmoid"),
    "tanh": lambda n: n.node("Tanh"), "silu": lambda n: twice(n, "Sigmoid"),
    "hardswish": lambda n: n.node("HardSwish"), "hardsigmoid": lambda n: n.node("HardSigmoid"),
    "hardswish by hand": lambda n: twice(n, "HardSigmoid", alpha=1 / 6, beta=0.5),
    "gelu": lambda n: n.node("Gelu"), "gelu tanh": lambda n: n.node("Gelu", approximate="tanh"),
    "mish": lambda n: n.node("Mish"),
    "clip": lambda n: n.node("Clip", n.weight(np.float32(0)), n.weight(np.float32(6))),
    "softplus": lambda n: n.node("Softplus"),
    "prelu": lambda n: n.node("PRelu", n.weight(f32(24, *[1] * (len(n.shape) - 2)))),
    "selu": lambda n: n.node("Selu"), "none": lambda n: n}


def twice(n, op, **attrs):
    at = n.at
    n.node(op, **attrs)
    return n.node("Mul", at)


def channels():
    for cin in range(1, 18):
        for cout, k in ((16, 3), (cin, 3), (5, 1)):
            Net("channels %d to %d, %dx%d" % (cin, cout, k, k),
                f32(1, cin, 56, 56)).conv(cout, k).node("Relu").add()
    for cout in range(1, 18):
        for cin in (3, 24):
            Net("channels %d to %d, 3x3" % (cin, cout),
                f32(1, cin, 56, 56)).conv(cout, 3).node("Relu").add()
    for c in (5, 12, 17, 24, 40, 72):
        n = Net("chain of three, %d channels" % c, f32(1, c, 56, 56))
        for _ in range(3):
            n.conv(c, 3).node("Relu")
            n.shape = (1, c, 56, 56)
        n.add()


def windows():
    for k, s, d in itertools.product((1, 2, 3, 5, 7), (1, 2), (1, 2, 3)):
        for cin, cout in ((3, 32), (32, 48)):
            Net("window %d, stride %d, dilation %d, %d to %d" % (k, s, d, cin, cout),
                f32(1, cin, 56, 56)).conv(cout, k, s, d).node("Relu").add()
    for batch, size in ((1, 7), (1, 1), (1, 224), (2, 28), (8, 14), (8, 28)):
        Net("batch %d, %dx%d" % (batch, size, size),
            f32(batch, 32, size, size)).conv(32, 3).node("Relu").add()
    Net("kernel 3x1 and 1x3", f32(1, 32, 40, 40)).conv(32, [3, 1]).node("Relu").add()
    Net("kernel 1x9", f32(1, 20, 12, 100)).conv(32, [1, 9]).add()
    Net("asymmetric pads", f32(1, 16, 40, 40)).conv(32, 3, 2, pad=[0, 1, 1, 0]).add()


def groups():
    for c, g, cout in ((64, 64, 64), (24, 24, 24), (17, 17, 17), (64, 64, 128), (24, 24, 72),
                       (5, 5, 10), (64, 2, 64), (64, 4, 64), (64, 8, 64), (64, 32, 64),
                       (96, 32, 64), (48, 16, 96), (12, 3, 6), (128, 32, 128)):
        for k, s in ((3, 1), (5, 2), (1, 1)):
            Net("groups %d of %d to %d, window %d, stride %d" % (g, c, cout, k, s),
                f32(1, c, 56, 56)).conv(cout, k, s, group=g).node("Relu").add()
    n = Net("depthwise and pointwise, silu, sum", f32(1, 24, 56, 56)).conv(24, 3, group=24)
    twice(n, "Sigmoid").conv(24, 1)
    twice(n, "Sigmoid").node("Add", "x").add()


def epilogues():
    for act, where in itertools.product(ACTIVATIONS,
                                        ("", "sum behind", "sum before", "product behind",
                                         "scale and bias behind", "sum between two")):
        if act == "none" and where == "sum between two":
            continue
        for kind, k, g in (("3x3", 3, 1), ("1x1", 1, 1), ("depthwise", 3, 24)):
            if kind != "3x3" and where not in ("", "sum behind"):
                continue
            n = Net("%s, %s%s" % (kind, act, ", " + where if where else ""),
                    f32(1, 24, 56, 56)).conv(24, k, group=g)
            if where in ("sum before", "sum between two"):
                if where == "sum between two":
                    ACTIVATIONS[act](n)
                n.node("Add", "x")
            ACTIVATIONS[act](n)
            if where == "sum behind":
                n.node("Add", "x")
            if where == "product behind":
                n.node("Mul", "x")
            if where == "scale and bias behind":
                n.node("Mul", n.weight(f32(24, 1, 1))).node("Add", n.weight(f32(24, 1, 1)))
            n.add()
    n = Net("two sums",
            f32(1, 32, 28, 28)).conv(32, 3).node("Add", "x").node("Relu").node("Add", "x")
    n.add()
    n = Net("gate of a channel (squeeze and excite)", f32(1, 32, 28, 28)).conv(32, 3).node("Relu")
    at = n.at
    n.node("GlobalAveragePool").conv(32, 1,
                                     pad=[0] * 4).node("Sigmoid").node("Mul", at).conv(32, 1).add()


def dimensions():
    for k, d, c in ((3, 1, 64), (3, 8, 64), (31, 1, 32), (1, 1, 64), (5, 1, 7)):
        for g in (1, c):
            span = (k - 1) * d
            Net("1-d window %d, dilation %d, %d channels, %d groups" % (k, d, c, g),
                f32(1, c, 2000)).conv(c, k, 1, d, g).node("Relu").add()
            Net("1-d causal window %d, dilation %d, %d channels, %d groups" % (k, d, c, g),
                f32(1, c, 2000)).conv(c, k, 1, d, g, [span, 0]).add()
    # factors in common or none
    for c, d, wide, pad in ((64, 16, 800, None), (64, 64, 800, [128, 0]), (20, 12, 96, None),
                            (64, 8, 801, None), (3, 8, 64, [16, 8]), (48, 40, 200, [0, 80])):
        n = Net("1-d window 3, dilation %d, %d channels, %d positions, batch 2, sum" % (d, c, wide),
                f32(2, c, wide)).conv(c, 3, 1, d, pad=pad).node("Tanh")
        (n.node("Add", "x") if pad is None or sum(pad) == 2 * d else n).add()
    Net("1-d samples to features", f32(1, 1, 16000)).conv(64, 400, 160, pad=[0, 0]).add()
    Net("1-d 80 to 512", f32(1, 80, 1500)).conv(512, 3).node("Gelu").add()
    for cin, cout, k, s, g in ((1, 16, 3, 1, 1), (16, 32, 3, 2, 1), (32, 32, 1, 1, 1),
                               (32, 32, 3, 1, 32), (12, 6, 3, 1, 2)):
        Net("3-d %d to %d, window %d, stride %d, %d groups" % (cin, cout, k, s, g),
            f32(1, cin, 16, 16, 16)).conv(cout, k, s, 1, g).node("Relu").add()


def little():
    """Dimensions that hold less than they look: one element, covered by the window, taps over
    padding alone."""
    for cin, cout, high, wide, k, pad, more in (
        (256, 128, 300, 1, [5, 1], [0] * 4, {}), (64, 64, 300, 1, [3, 3], [1] * 4, {}),
        (64, 64, 1, 80, [3, 3], [1] * 4, {}), (20, 200, 48, 100, [48, 3], [0, 1, 0, 1], {}),
        (20, 40, 100, 24, [3, 24], [1, 0, 1, 0], {}), (32, 64, 7, 7, [7, 7], [0] * 4, {}),
        (32, 32, 7, 7, [7, 7], [0] * 4, {"group": 32}),
        (48, 48, 40, 1, [3, 3], [1] * 4, {"group": 48}), (16, 24, 2, 2, [5, 5], [2] * 4, {}),
        (16, 24, 3, 3, [3, 3], [4] * 4, {"stride": 3, "dilation": 2}),
        (17, 24, 1, 1, [3, 3], [1] * 4, {})):
        n = Net("%d to %d, %s over %dx%d, pads %s %s" % (cin, cout, k, high, wide, pad, more),
                f32(1, cin, high, wide)).conv(cout, k, pad=pad, **more).node("Relu")
        n.add()
    n = Net("three layers of width 1 and pools", f32(2, 24, 200, 1))
    for _ in range(3):
        n.conv(24, [3, 1], pad=[1, 0, 1, 0]).node("Relu").node(
            "MaxPool", kernel_shape=[2, 1], strides=[2, 1])
        n.shape = (2, 24, 0, 1)
    n.add()


def transposed():
    for k, s, cin, cout, size in ((4, 2, 64, 32, 28), (2, 2, 64, 32, 32), (3, 2, 32, 32, 28),
                                  (3, 1, 32, 32, 28), (5, 3, 16, 8, 20), (8, 4, 16, 16, 16),
                                  (2, 3, 8, 8, 16), (4, 2, 3, 5, 28), (4, 2, 256, 128, 28)):
        n = Net("transposed %d, stride %d, %d to %d" % (k, s, cin, cout), f32(1, cin, size, size))
        n.conv(cout, k, s, op="ConvTranspose", pad=[max(0, (k - s) // 2)] * 4).node("Relu").add()
    for name, more in (("output padding", {"output_padding": [1, 1]}),
                       ("asymmetric pads", {"pad": [0, 1, 1, 0]}), ("dilation", {"dilation": 2}),
                       ("groups", {"group": 4}), ("depthwise", {"group": 16}),
                       ("no bias", {"bias": False}), ("weights of a run", {"given": True})):
        Net("transposed, " + name, f32(2, 16, 14, 14)).conv(16, 3, 2, op="ConvTranspose",
                                                            **{"pad": [1] * 4, **more}).add()
    Net("transposed 1-d 16, stride 8",
        f32(1, 32, 200)).conv(16, 16, 8, op="ConvTranspose", pad=[4, 4]).add()
    Net("transposed 1-d 441, stride 160",
        f32(1, 1, 300)).conv(1, 441, 160, op="ConvTranspose", pad=[0, 0]).add()
    Net("transposed 3-d", f32(1, 16, 8, 8, 8)).conv(8, 2, 2, op="ConvTranspose", pad=[0] * 6).add()


def pads():
    for k, p in ((3, 64), (3, 65), (3, 300), (129, 64), (257, 128), (1023, 511)):
        Net("1-d window %d, pads %d" % (k, p), f32(1, 4, 3000)).conv(8, k, pad=[p, p]).add()
    Net("1-d window 475, stride 160", f32(1, 1, 16000)).conv(160, 475, 160, pad=[7, 160]).add()
    for k, step, p in ((512, 160, 256), (251, 1, 125), (80, 4, 40)):
        Net("1-d window %d, stride %d, pads %d, one channel" % (k, step, p),
            f32(1, 1, 16000)).conv(160, k, step, pad=[p, p]).node("Relu").add()
    Net("1-d depthwise window 401", f32(1, 6, 3000)).conv(6, 401, group=6, pad=[200, 200]).add()
    Net("2-d window 65, pads 32", f32(1, 2, 80, 80)).conv(2, 65).add()
    Net("2-d pads 100", f32(1, 8, 20, 20)).conv(16, 3, pad=[100] * 4).add()
    Net("1-d dilation 128, causal", f32(1, 16, 2000)).conv(16, 3, 1, 128, pad=[256, 0]).add()
    Net("weights of a run", f32(1, 32, 28, 28)).conv(32, 3, given=True).node("Relu").add()


def pools():
    for op in ("MaxPool", "AveragePool"):
        for k, s, p in ((2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 1, 2), (13, 1, 6), (7, 7, 0)):
            more = {"count_include_pad": 1} if op == "AveragePool" else {}
            Net("%s %d, stride %d" % (op, k, s), f32(1, 48, 56, 56)).node(
                op, kernel_shape=[k, k], strides=[s, s], pads=[p] * 4, **more).add()
            n = Net("%s %d, stride %d, between convolutions" % (op, k, s), f32(1, 16, 56, 56)).conv(
                32, 3).node("Relu").node(op, kernel_shape=[k, k], strides=[s, s], pads=[p] * 4)
            n.shape = (1, 32, 0, 0)
            n.conv(16, 1).add()
        Net("%s 1-d" % op,
            f32(1, 48, 3000)).node(op, kernel_shape=[5], strides=[2], pads=[2, 2]).add()
        Net("%s 3-d" % op, f32(1, 16, 16, 16, 16)).node(op, kernel_shape=[3, 3, 3],
                                                        strides=[2, 2, 2], pads=[1] * 6).add()
        Net("%s ceiling" % op, f32(1, 17, 31, 31)).node(op, kernel_shape=[3, 3], strides=[2, 2],
                                                        ceil_mode=1).add()
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        Net(op, f32(1, 48, 28, 28)).node(op).add()
        Net(op + " behind a convolution",
            f32(1, 16, 28, 28)).conv(48, 3).node("Relu").node(op).add()
    n = Net("concatenation of two convolutions, resize",
            f32(1, 16, 28, 28)).conv(32, 3).node("Relu")
    at = n.at
    n.shape = (1, 32, 28, 28)
    n.conv(32, 3).node("Relu").node("Concat", at, axis=1)
    n.shape = (1, 64, 28, 28)
    n.conv(16, 1).node("Resize", "", n.weight(np.array([1, 1, 2, 2], np.float32)), mode="nearest",
                       coordinate_transformation_mode="asymmetric", nearest_mode="floor").add()


def integers():
    sizes = {1: (1, 32, 1500), 2: (1, 32, 40, 40), 3: (1, 32, 12, 12, 12)}
    for d, size in sizes.items():
        for g in (1, 32, 4, 2):
            for how, kind, zero in (("dynamic", np.int8, ""), ("static", np.int8, ""),
                                    ("dynamic", np.uint8, "one"), ("dynamic", np.int8, "one"),
                                    ("static", np.uint8, "one")):
                what = "%d-d %s, %s%s, %d groups" % (d, how, kind.__name__,
                                                     ", zero point" if zero else "", g)
                Net(what, f32(*size)).conv8(32, 3, 1, 2 if d == 1 else 1, g, how=how, kind=kind,
                                            zero=zero).node("Relu").add()
        Net("%d-d dynamic, stride 2, odd channels" % d,
            f32(1, 5, *size[2:])).conv8(7, 3, 2).node("Sigmoid").add()
        Net("%d-d static, 1x1, 64 channels" % d,
            f32(1, 64, *size[2:])).conv8(64, 1, how="static").add()
    for d, wide in ((16, 800), (64, 800), (12, 96), (2, 300), (8, 801)):
        Net("1-d static, dilation %d, %d positions" % (d, wide),
            f32(2, 40, wide)).conv8(24, 3, 1, d, how="static").node("Relu").add()
    Net("1-d dynamic, causal, pads 256", f32(1, 64, 1500)).conv8(64, 3, 1, 128, pad=[256, 0]).add()
    Net("1-d dynamic, 80 to 512", f32(1, 80, 1000)).conv8(512, 3).add()
    Net("1-d dynamic, one channel, window 400, stride 160",
        f32(1, 1, 16000)).conv8(64, 400, 160, pad=[0, 0]).add()
    Net("1-d static, one channel, window 400, stride 160",
        f32(1, 1, 16000)).conv8(64, 400, 160, pad=[0, 0], how="static").add()


def model_of(case):
    value = helper.make_tensor_value_info
    inputs = [value(k, TensorProto.FLOAT, v.shape) for k, v in case.inputs.items()]
    g = helper.make_graph(case.nodes, "g", inputs, [value(case.at, TensorProto.FLOAT, None)],
                          [numpy_helper.from_array(v, k) for k, v in case.init.items()])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 22)],
                             ir_version=10).SerializeToString()


def session(data):
    o = ort.SessionOptions()
    o.intra_op_num_threads = o.inter_op_num_threads = 1
    o.log_severity_level = 3
    return ort.InferenceSession(data, o, providers=["CPUExecutionProvider"])


def ours(build, case, data, want, runs):
    """Largest difference in units of the result's scale, implementations of the steps, best time in
    ms, or None and an error."""
    with tempfile.TemporaryDirectory() as d:
        args = [build + "/hlo-run", "--profile", "--out",
                d + "/y"] + (["--time", str(runs)] if runs else [])
        with open(d + "/m.onnx", "wb") as f:
            f.write(data)
        for name, x in case.inputs.items():
            x.tofile(d + "/" + name)
            args += ["--in", d + "/" + name]
        r = subprocess.run(args + [d + "/m.onnx"], capture_output=True, text=True,
                           env=dict(os.environ, OMP_NUM_THREADS="1"))
        if r.returncode:
            return None, r.stderr.strip() or "exit code %d" % r.returncode, None
        y = np.fromfile(d + "/y", np.float32)
        if y.size != want.size:
            return None, "%d values instead of %d" % (y.size, want.size), None
        text = r.stdout + r.stderr
        steps = ["element by element"
                 if name.startswith("convolution") and not direct(case) and how == "kernel" else how
                 for name, how in re.findall(r"^ +[\d.]+ ms +[\d.]+ G\S+ +(\S+) +(\S+)", text,
                                             re.M)]
        ms = re.search(r"min ([\d.]+)", text)
        return np.abs(y - want.ravel()).max(initial=0) / max(
            1e-6, np.abs(want).max(initial=0)), steps, float(ms[1]) if ms else None


def direct(case):
    """Does one of its convolutions have so few terms that a kernel of ours writes them out
    (passes/library.h)?"""
    for node in case.nodes:
        if node.op_type == "Conv" and node.input[1] in case.init:
            w, group = case.init[node.input[1]], next(a.i for a in node.attribute
                                                      if a.name == "group")
            each, taps = w.shape[1], int(np.prod(w.shape[2:]))
            if (group > 1 and each * taps <= 32
                and (each <= 4 if taps == 1 else w.ndim == 3 and each <= 2)):
                return True
    return False


def ort_ms(s, feeds, runs):
    best = 1e9
    for _ in range(runs):
        t = time.perf_counter()
        s.run(None, feeds)
        best = min(best, time.perf_counter() - t)
    return best * 1e3


def one(build, case, bench):
    data = model_of(case)
    s = session(data)
    want = s.run(None, case.inputs)[0]
    once = ort_ms(s, case.inputs, 3)
    runs = max(5, min(100, int(100 / max(once, 0.01)))) if bench else 0
    error, steps, ms = ours(build, case, data, want, runs)
    if error is None:
        return "FAIL %s: %s" % (case.name, steps), None
    slow = [x for x in steps
            if x.startswith(("reference", "element")) or x.startswith("onednn:ref")]
    if slow:
        return "FAIL %s: runs as %s" % (case.name, ", ".join(slow)), None
    if not error <= 1e-4:
        return "FAIL %s: differs by %.2g of scale" % (case.name, error), None
    if not bench:
        return "PASS convs %s" % case.name, None
    their = ort_ms(s, case.inputs, runs)
    return "PASS convs %s" % case.name, (ms / their, ms, their, case.name, " ".join(steps))


def main():
    args = sys.argv[2:]
    bench, every = "--bench" in args, "--all" in args
    names = [a for a in args if not a.startswith("--")]
    for family in (channels, windows, groups, epilogues, dimensions, little, transposed, pads,
                   pools, integers):
        family()
    chosen = [c for k, c in enumerate(CASES)
              if (bench or every or names or k % STRIDE == 0)
              and (not names or any(n in c.name for n in names))]
    rows, bad = [], 0
    for case in chosen:
        verdict, row = one(sys.argv[1], case, bench)
        bad += verdict.startswith("FAIL")
        if not bench or verdict.startswith("FAIL"):
            print(verdict, flush=True)
        if row:
            rows.append(row)
    if bench and rows:
        rows.sort(reverse=True)
        behind = [r for r in rows if r[0] > 1.5 and r[1] - r[2] > 0.02]
        far = [r for r in rows if r[0] > 5 and r[1] - r[2] > 0.2]
        for r in behind:
            print("%6.2f times: %8.3f ms, ONNX Runtime %8.3f  %s  [%s]" % r)
        print("%d cases, geometric mean %.2f times ONNX Runtime's time, %d slower than 1.5 times, "
              "%d than 5 times, %d failed"
              % (len(rows), np.exp(np.mean(np.log([r[0] for r in rows]))), len(behind), len(far),
                 bad))
        bad += len(far)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
