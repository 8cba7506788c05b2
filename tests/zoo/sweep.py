# SPDX-License-Identifier: Apache-2.0
"""make bench-ops: forms of single ONNX operators beside ONNX Runtime, to find the ones that run badly.

    sweep.py BUILD [--ops REGEX] [--types f32,u8] [--threads N] [--rounds N] [--json FILE] [--worst N]

Each form is a graph of one to three nodes at a size that takes some 0.1 to 10 ms. hlo-run and ONNX Runtime run in turn; the least time of each counts, as loops on the device (hlo-run --loop: with its
copies of inputs and results) and `run` from NumPy to NumPy. A table line: form, ms of ours, ms of theirs, ours over theirs. At the end the worst, and the steps that take ten times what the cost model says
(hlo-run --profile). What either refuses is counted and left out. Benchmark only: the values are tests/conform's."""
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

TYPES = {"f32": T.FLOAT, "f16": T.FLOAT16, "bf16": T.BFLOAT16, "u8": T.UINT8, "s8": T.INT8, "s32": T.INT32, "s64": T.INT64, "bool": T.BOOL}
NUMPY = {"f32": np.float32, "f16": np.float16, "u8": np.uint8, "s8": np.int8, "s32": np.int32, "s64": np.int64, "bool": np.bool_}
FORMS = {}


def form(op, name, type_, shape, nodes, extra=(), out=None, more=()):
    """One graph: input x of `shape`, `nodes` (op, inputs, outputs, attributes), initializers `extra` (name, array), result "y" of type `out`; `more`: further inputs (name, type, shape)."""
    given = [h.make_tensor_value_info("x", TYPES[type_], shape)] + [h.make_tensor_value_info(n, TYPES[t], s) for n, t, s in more]
    graph = h.make_graph([h.make_node(o, i, r, **a) for o, i, r, a in nodes], "sweep", given, [h.make_tensor_value_info("y", TYPES[out or type_], None)],
                         [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in extra])
    FORMS["%s %s %s" % (op, name, type_)] = (h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), [("x", type_, shape)] + list(more))


def ints(*v):
    return np.array(v, np.int64)


def transposes(t):
    for perm in itertools.permutations(range(4)):
        if perm != (0, 1, 2, 3):
            form("Transpose", "%d%d%d%d" % perm, t, [4, 24, 48, 40], [("Transpose", ["x"], ["y"], {"perm": perm})])
    for perm in ((0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (2, 0, 3, 1)):
        if t not in ("f32", "f16"):
            continue
        first = ("Transpose", ["x"], ["t"], {"perm": perm})
        p = "%d%d%d%d" % perm
        form("Transpose+Relu", p, t, [4, 24, 48, 40], [first, ("Relu", ["t"], ["y"], {})])
        form("Transpose+Softmax", p, t, [4, 24, 48, 40], [first, ("Softmax", ["t"], ["y"], {"axis": -1})])
        form("Transpose+ReduceMean", p, t, [4, 24, 48, 40], [first, ("ReduceMean", ["t", "a"], ["y"], {})], [("a", ints(-1))])
        if t == "f32":
            form("Transpose+Quantize", p, t, [4, 24, 48, 40], [first, ("QuantizeLinear", ["t", "s", "z"], ["y"], {})], [("s", np.float32(.02)), ("z", np.uint8(3))], out="u8")
    for perm in ((0, 2, 1, 3, 4), (0, 1, 3, 4, 2), (4, 3, 2, 1, 0), (0, 3, 4, 1, 2), (1, 0, 2, 4, 3)):
        form("Transpose", "%d%d%d%d%d" % perm, t, [3, 17, 16, 7, 24], [("Transpose", ["x"], ["y"], {"perm": perm})])


def pieces(t):
    for axis, n, c in itertools.product(range(4), (2, 4, 8), (1, 3, 17)):
        shape = [8, 16, 20, 24]
        shape[axis] = c
        form("Concat", "axis %d of %d x %d" % (axis, n, c), t, shape, [("Concat", ["x"] + ["i%d" % k for k in range(1, n)], ["y"], {"axis": axis})], more=[("i%d" % k, t, shape) for k in range(1, n)])
    for axis, mode in itertools.product(range(4), ("constant", "reflect", "edge", "wrap")):
        pads = [0] * 8
        pads[axis] = pads[4 + axis] = 2
        form("Pad", "%s axis %d" % (mode, axis), t, [4, 24, 40, 33], [("Pad", ["x", "p"], ["y"], {"mode": mode})], [("p", ints(*pads))])
    for axis, step in itertools.product(range(4), (2, 3, -1)):
        begin, end = (1, 1000) if step > 0 else (-1, -1000)
        form("Slice", "axis %d step %d" % (axis, step), t, [8, 32, 40, 33], [("Slice", ["x", "b", "e", "a", "s"], ["y"], {})], [("b", ints(begin)), ("e", ints(end)), ("a", ints(axis)), ("s", ints(step))])
    form("Tile", "2,1,3,2", t, [4, 24, 20, 17], [("Tile", ["x", "r"], ["y"], {})], [("r", ints(2, 1, 3, 2))])
    form("Expand", "inner", t, [4, 96, 40, 1], [("Expand", ["x", "r"], ["y"], {})], [("r", ints(4, 96, 40, 24))])
    for mode in ("DCR", "CRD"):
        form("DepthToSpace", mode, t, [2, 48, 32, 30], [("DepthToSpace", ["x"], ["y"], {"blocksize": 2, "mode": mode})])
    form("SpaceToDepth", "2", t, [2, 24, 64, 60], [("SpaceToDepth", ["x"], ["y"], {"blocksize": 2})])
    for upper in (0, 1):
        form("Trilu", "upper %d" % upper, t, [16, 128, 120], [("Trilu", ["x"], ["y"], {"upper": upper})])


def indexing(t):
    r = np.random.default_rng(1)
    for axis in range(3):
        shape = [48, 40, 56]
        form("Gather", "axis %d" % axis, t, shape, [("Gather", ["x", "i"], ["y"], {"axis": axis})], [("i", r.integers(0, shape[axis], 64))])
        form("GatherElements", "axis %d" % axis, t, shape, [("GatherElements", ["x", "i"], ["y"], {"axis": axis})], [("i", r.integers(0, shape[axis], shape))])
        form("ScatterElements", "axis %d" % axis, t, shape, [("ScatterElements", ["x", "i", "x"], ["y"], {"axis": axis})], [("i", np.argsort(r.random(shape), axis))])
        form("OneHot", "axis %d" % axis, "s64", [40, 50], [("OneHot", ["x", "d", "v"], ["y"], {"axis": axis})], [("d", ints(64)), ("v", np.array([0, 1], np.float32))], out="f32")
        if t in ("f32", "s32", "s64"):
            form("CumSum", "axis %d" % axis, t, shape, [("CumSum", ["x", "a"], ["y"], {})], [("a", np.int64(axis))])
            form("ArgMax", "axis %d" % axis, t, shape, [("ArgMax", ["x"], ["y"], {"axis": axis})], out="s64")
            form("TopK", "axis %d" % axis, t, shape, [("TopK", ["x", "k"], ["y", "i"], {"axis": axis})], [("k", ints(5))])
    form("Where", "rows", t, [96, 1, 1500], [("Where", ["c", "x", "z"], ["y"], {})], more=[("c", "bool", [1, 40, 1500]), ("z", t, [96, 40, 1])])


def reductions(t):
    for axes in ((0,), (1,), (2,), (3,), (0, 2), (1, 3), (2, 3), (0, 1, 2), (0, 1, 2, 3)):
        for op in ("ReduceSum", "ReduceMax") if t == "f32" else ("ReduceMax",):
            form(op, str(axes), t, [8, 24, 40, 33], [(op, ["x", "a"], ["y"], {})], [("a", ints(*axes))])


def images(t):
    for mode, to, size in itertools.product(("nearest", "linear", "cubic"), ("half_pixel", "align_corners", "asymmetric"), ((64, 60), (50, 37), (20, 19))):
        form("Resize", "%s %s %dx%d" % (mode, to, *size), t, [1, 17, 32, 30], [("Resize", ["x", "", "", "s"], ["y"], {"mode": mode, "coordinate_transformation_mode": to})], [("s", ints(1, 17, *size))])
    for c, k, d in itertools.product((3, 24), (2, 3, 5), (1, 2)):
        a = {"kernel_shape": [k, k], "pads": [k // 2, 0, k // 2, 1], "dilations": [d, d]}
        form("MaxPool", "c %d k %d d %d" % (c, k, d), t, [2, c, 56, 50], [("MaxPool", ["x"], ["y"], a)])
        if d == 1:
            form("AveragePool", "c %d k %d" % (c, k), t, [2, c, 56, 50], [("AveragePool", ["x"], ["y"], {"kernel_shape": a["kernel_shape"], "pads": a["pads"]})])
            form("LpPool", "c %d k %d" % (c, k), t, [2, c, 56, 50], [("LpPool", ["x"], ["y"], {"kernel_shape": a["kernel_shape"]})])
    if t != "f32":
        return
    for c in (3, 24):
        one = np.ones(c, np.float32)
        form("InstanceNormalization", "c %d" % c, t, [2, c, 48, 50], [("InstanceNormalization", ["x", "s", "s"], ["y"], {})], [("s", one)])
        form("LRN", "c %d" % c, t, [2, c, 48, 50], [("LRN", ["x"], ["y"], {"size": 3})])
        form("GridSample", "c %d" % c, t, [1, c, 48, 50], [("GridSample", ["x", "g"], ["y"], {})], more=[("g", "f32", [1, 40, 44, 2])])
        form("RoiAlign", "c %d" % c, t, [1, c, 48, 50], [("RoiAlign", ["x", "r", "b"], ["y"], {"output_height": 7, "output_width": 7})],
             [("r", np.array([[1, 2, 30, 40], [5, 5, 20, 22]] * 8, np.float32)), ("b", np.zeros(16, np.int64))])
    for text, other in (("bij,bjk->bik", [8, 50, 33]), ("bij,bkj->bik", [8, 33, 50]), ("bij,kj->bki", [33, 50]), ("bij,bij->b", [8, 70, 50]), ("bij,bkj->ikb", [8, 33, 50])):
        form("Einsum", text, t, [8, 70, 50], [("Einsum", ["x", "z"], ["y"], {"equation": text})], more=[("z", t, other)])


def made(types, pattern):
    for t in types:
        for f in (transposes, pieces, indexing, reductions, images):
            if f is images and t not in ("f32", "f16", "u8"):
                continue
            f(t)
    return {n: f for n, f in FORMS.items() if re.search(pattern, n)}


class Ours:
    def __init__(self, build, path, env):
        self.p = subprocess.Popen([os.path.join(build, "hlo-run"), "--loop", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)

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


def cliffs(build, path, env):
    r = subprocess.run([os.path.join(build, "hlo-run"), "--profile", path], capture_output=True, text=True, env=env, timeout=120)
    return [" ".join(line.split()) for line in (r.stdout + r.stderr).splitlines() if line.rstrip().endswith("CLIFF")]


def measure(build, model, inputs, env, threads, rounds):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    r = np.random.default_rng(3)
    values = {n: (r.random(s) * (1 if t in ("f32", "f16", "bool") else 60)).astype(NUMPY[t]) for n, t, s in inputs}
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
        return min(a), min(b), cliffs(build, f.name, env)


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
            ours, ort_ms, steps = measure(a.build, model, inputs, env, a.threads, a.rounds)
        except Exception as e:  # what either side says
            refused += 1
            print("%-44s left out: %s" % (name, str(e).splitlines()[0][:100]), flush=True)
            continue
        rows.append({"form": name, "ms": ours, "ort_ms": ort_ms, "cliffs": steps})
        print("%-44s %9.4f %9.4f %6.2f%s" % (name, ours, ort_ms, ours / ort_ms, "  CLIFF" if steps else ""), flush=True)
    rows.sort(key=lambda r: -r["ms"] / r["ort_ms"])
    print("\n%d forms, %d left out; behind 2 times and more: %d; with steps ten times the estimate: %d" % (
        len(rows), refused, sum(r["ms"] > 2 * r["ort_ms"] for r in rows), sum(bool(r["cliffs"]) for r in rows)))
    print("worst %d:" % a.worst)
    for r in rows[:a.worst]:
        print("  %-44s %9.4f %9.4f %6.2f" % (r["form"], r["ms"], r["ort_ms"], r["ms"] / r["ort_ms"]))
    for r in rows:
        for step in r["cliffs"]:
            print("  CLIFF %s: %s" % (r["form"], step))
    if a.json:
        with open(a.json, "w") as f:
            json.dump(rows, f)


if __name__ == "__main__":
    sys.exit(main())
