# SPDX-License-Identifier: Apache-2.0
"""Models in f16 and bf16 beside the same in f32, and beside ONNX Runtime in f32 and f16: one
thread, interleaved in one session, the least of each.

    half.py BUILD [NAME ...] [--rounds N] [--strict RATIO]

NAME: resnet18, mobilenet_v2, bert_base (tests/models/zoo.py, every float tensor cast) or a network
of tests/zoo; default: all that have f16. With --strict the exit code is 1 where a twin takes more
than RATIO times the f32 model's time.
"""
import argparse
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import bench  # noqa: E402

sys.path[:1] = [os.path.join(HERE, "..", "zoo"), os.path.join(HERE, "..", "models")]
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, numpy_helper  # noqa: E402

FOLDER = "build/models/half"
PLAIN = ["resnet18", "mobilenet_v2", "bert_base"]
KINDS = {"f32": (TensorProto.FLOAT, np.float32), "f16": (TensorProto.FLOAT16, np.float16),
         "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}


def cast(graph, kind):
    """Every float of a graph as f16 or bf16: tensors, types, what Cast casts to."""
    to, dtype = KINDS[kind]

    def tensor(t):
        if t.data_type == TensorProto.FLOAT:
            a, name = numpy_helper.to_array(t).astype(dtype), t.name
            t.Clear()
            t.name, t.data_type, t.raw_data = name, to, a.tobytes()
            t.dims.extend(a.shape)
    for t in graph.initializer:
        tensor(t)
    for v in list(graph.input) + list(graph.output) + list(graph.value_info):
        if v.type.tensor_type.elem_type == TensorProto.FLOAT:
            v.type.tensor_type.elem_type = to
    for node in graph.node:
        for a in node.attribute:
            if a.HasField("t"):
                tensor(a.t)
            if a.HasField("g"):
                cast(a.g, kind)
            if ((node.op_type == "Cast" and a.name == "to" or a.name == "dtype")
                and a.i == TensorProto.FLOAT):
                a.i = to


def plain(name, kind):
    """(path, inputs) of a model of tests/models/zoo.py."""
    import zoo
    source = zoo.ensure("build/models", name)
    path = source if kind == "f32" else os.path.join(FOLDER, "%s-%s.onnx" % (name, kind))
    if not os.path.exists(path):
        model = onnx.load(source)
        cast(model.graph, kind)
        onnx.save(model, path)
    return path, {n: a.astype(KINDS[kind][1]) if a.dtype == np.float32 else a
                  for n, a in zoo.sample_inputs(name, 1).items()}


def generated(name, kind):
    """(path, inputs) of a network of tests/zoo; None where it is not made so."""
    import families
    import models
    for n, numbers, make in families.rows():
        if n == "%s-%s" % (name, kind):
            path, rules, twin = make(FOLDER)
            return path, models.Model(n, path, numbers, rules, twin).inputs()
    return None


def ort_side(path, arrays):
    import onnxruntime as ort
    o = ort.SessionOptions()
    o.intra_op_num_threads, o.log_severity_level = 1, 4
    s = ort.InferenceSession(path, o)
    inputs = dict(np.load(arrays))
    bench.serve(lambda: s.run(None, inputs))


def peers(build, name):
    found = {}
    for kind in KINDS:
        row = (plain if name in PLAIN else generated)(name, kind)
        if not row:
            continue
        path, inputs = row
        base, given = os.path.join(FOLDER, "%s-%s" % (name, kind)), []
        for i in onnx.load(path, load_external_data=False).graph.input:
            inputs[i.name].tofile("%s-%s.in" % (base, i.name))
            given += ["--in", "%s-%s.in" % (base, i.name)]
        found[kind] = bench.Peer([os.path.join(build, "hlo-run"), "--bind",
                                  "N=1"] + given + [path, "--loop"], threads=1)
        if kind != "bf16":  # ONNX Runtime has no kernels for it
            np.savez(base + ".npz", **inputs)
            found["ort " + kind] = bench.Peer([sys.executable, os.path.abspath(__file__), build,
                                               path, base + ".npz", "--worker"], threads=1)
    return found


def measure(build, name, rounds):
    p = peers(build, name)
    alive = {k: v.ask(2) for k, v in p.items()}
    for v in p.values():
        v.times = []
    for _ in range(rounds):
        for k, v in p.items():
            alive[k] = alive[k] and v.ask(3)
    for v in p.values():
        v.close()
    return {k: min(v.times) for k, v in p.items() if v.times}


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("names", nargs="*")
    a.add_argument("--rounds", type=int, default=9)
    a.add_argument("--strict", type=float, default=math.inf)
    a.add_argument("--worker", action="store_true")
    o = a.parse_args()
    if o.worker:
        return ort_side(*o.names)
    os.makedirs(FOLDER, exist_ok=True)
    import networks
    names = o.names or PLAIN + [f.__name__ for f in networks.ALL if "f16" in f.kinds]
    columns, slow, ratios = ["f32", "f16", "bf16", "ort f32",
                             "ort f16"], [], {"f16": [], "bf16": [], "ort": []}
    print("%-16s" % "model" + "".join("%10s" % c for c in columns)
          + "%10s%10s%14s    (least ms of %d runs, one thread)"
          % ("f16/f32", "bf16/f32", "ort f16/f16", 3 * o.rounds))
    for name in names:
        t = measure(o.build, name, o.rounds)
        r = {k: t[k] / t["f32"] for k in ("f16", "bf16") if k in t}
        if "ort f16" in t:
            r["ort"] = t["ort f16"] / t["f16"]
        for k, v in r.items():
            ratios[k].append(v)
        slow += ["%s %s %.2f" % (name, k, r[k]) for k in ("f16", "bf16") if r.get(k, 0) > o.strict]
        print("%-16s" % name + "".join("%10s" % ("%.3f" % t[c] if c in t else "-")
                                       for c in columns) + "".join(
                  "%*s" % (w, "%.2f" % r[k] if k in r else "-")
                  for k, w in (("f16", 10), ("bf16", 10), ("ort", 14))), flush=True)
    mean = {k: math.exp(sum(map(math.log, v)) / len(v)) if v else math.nan
            for k, v in ratios.items()}
    print("geometric means: f16/f32 %.3f, bf16/f32 %.3f, ONNX Runtime f16 over hlod's %.2f"
          % (mean["f16"], mean["bf16"], mean["ort"]))
    for s in slow:
        print("FAIL slower than f32: " + s)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
