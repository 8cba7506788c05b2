#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention over large squares, which runs by blocks of rows (compiler/passes/fusion/attention.c),
against ONNX Runtime: sizes that fill no block, masks of any form, scales on either side, other
widths of values, transposed inputs, causal, groups of heads, as plain graphs and as operators.

    attention.py BUILD [--n N] [--seed S]

Each model runs with both vector lengths; its profile must say that the step was taken as one, and
its memory must not hold the square.
"""
import os
import re
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from random_modules import main, run

BOUND = 2e-5  # of the largest value of the result


def sizes(rng, few):
    """heads, rows, keys: a square of 5 to 20 MB. One head alone adds its mask in the product's
    call, which the pass does not take. Softmax over few keys beside many rows would be, by itself,
    a kernel of another form."""
    if few:
        return 20, 4096, int(rng.choice([16, 19, 40]))
    rows = int(rng.choice([37, 127, 256, 401, 512, 1031]))
    keys = int(rng.choice([257, 384, 600, 1027]))
    return max(2, int(rng.uniform(1.4e6, 4e6) / (rows * keys))), rows, keys


def plain(rng, few):
    h, s, t = sizes(rng, few)
    d, width = int(rng.choice([8, 13, 64, 80])), int(rng.choice([16, 33, 64]))
    apart = rng.integers(2)  # heads behind rows, as projections give them
    shapes = [[1, h, s, d], [1, h, t, d], [1, h, t, width]]
    if apart:
        shapes = [[x[0], x[2], x[1], x[3]] for x in shapes]
    ins, inits, nodes = dict(zip("qkv", shapes)), {"scale": np.float32(d ** -0.5)}, []
    names = list("qkv")
    for n, perm in zip(
        "qkv", ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]) if apart else (None, [0, 1, 3, 2], None)):
        if perm:
            nodes.append(helper.make_node("Transpose", [n], [n + "_t"], perm=perm))
            names["qkv".index(n)] = n + "_t"
    q, k, v = names
    if rng.integers(2):
        nodes += [helper.make_node("Mul", [q, "scale"], ["qs"]),
                  helper.make_node("MatMul", ["qs", k], ["a"])]
    else:
        nodes += [helper.make_node("MatMul", [q, k], ["raw"]),
                  helper.make_node("Mul", ["raw", "scale"], ["a"])]
    at = "a"
    mask = 0 if few else rng.integers(3)
    if mask:
        ins["mask"] = [1, 1, s, t] if mask == 1 else [1, 1, 1, t]
        nodes.append(helper.make_node("Add", [at, "mask"], ["m"]))
        at = "m"
    nodes += [helper.make_node("Softmax", [at], ["p"], axis=-1),
              helper.make_node("MatMul", ["p", v], ["y"])]
    return ins, inits, nodes, {"": 17}


def batched(rng):
    """Some sequences of many heads, a mask for each or for all of them."""
    b, h, s, t, d = int(rng.choice([1, 8])), 12, 64, 192, int(rng.choice([8, 64]))
    h *= 8 // b
    mask = [int(rng.choice([1, b])), 1, int(rng.choice([1, s])), t]
    ins = {"q": [b, h, s, d], "k": [b, h, d, t], "v": [b, h, t, d], "mask": mask}
    nodes = [helper.make_node("MatMul", ["q", "k"], ["a"]),
             helper.make_node("Add", ["a", "mask"], ["m"]),
             helper.make_node("Softmax", ["m"], ["p"], axis=-1),
             helper.make_node("MatMul", ["p", "v"], ["y"])]
    return ins, {}, nodes, {"": 17}


def operator(rng, few):
    h, s, t = sizes(rng, few)
    d, causal, group = int(rng.choice([32, 64])), int(rng.integers(2)), int(rng.choice([1, 2]))
    h = -(-h // group) * group
    kind = rng.integers(2)
    if kind:
        ins = {"q": [1, h, s, d], "k": [1, h // group, t, d], "v": [1, h // group, t, d]}
        return ins, {}, [helper.make_node("Attention", ["q", "k", "v"], ["y"],
                                          is_causal=causal)], {"": 23}
    ins = {"q": [1, s, h * d], "k": [1, t, h * d], "v": [1, t, h * d]}
    return ins, {}, [helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["y"],
                                      domain="com.microsoft",
                                      num_heads=h)], {"": 17, "com.microsoft": 1}


def check(build, number, rng):
    shapes, inits, nodes, opsets = (
        batched(rng) if number % 4 == 3
        else (operator if number % 3 == 2 else plain)(rng, number > 8))
    declare = lambda n, s: helper.make_tensor_value_info(n, TensorProto.FLOAT, s)  # noqa: E731
    graph = helper.make_graph(nodes, "g", [declare(n, s) for n, s in shapes.items()],
                              [declare("y", None)],
                              [numpy_helper.from_array(v, n) for n, v in inits.items()])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*o) for o in opsets.items()], ir_version=10)
    values = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    said = "%d: %s %s" % (number, nodes[-1].op_type, shapes)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        onnx.save(model, path)
        want = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, values)[0]
        for isa in ("", "avx2"):
            p, raw = run(build, folder, values.values(), isa, ["--profile"], "m.onnx")
            if p.returncode:
                return said, p.stderr
            got = np.frombuffer(raw, np.float32).reshape(want.shape)
            error = np.abs(got - want).max() / np.abs(want).max()
            if not error <= BOUND:
                return said, "%s error %.2g" % (isa, error)
            if " attention:" not in p.stdout:
                return said, "%s not taken as one step:\n%s" % (isa, p.stdout)
            peak = float(re.search(r"peak ([\d.]+) MB", p.stderr).group(1))
            if peak > sum(v.nbytes
                          for v in values.values()) * 2.5 / 1e6 + want.nbytes * 2 / 1e6 + 1:
                return said, "%s holds %.1f MB" % (isa, peak)
    return said, None


if __name__ == "__main__":
    sys.exit(main("attention", check, 12))
