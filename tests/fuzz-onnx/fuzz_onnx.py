# SPDX-License-Identifier: Apache-2.0
"""make fuzz-onnx-graphs N=2000 SEED=1: random small ONNX networks through hlod's daemon and ONNX
Runtime.

    fuzz_onnx.py BUILD [--n 1000] [--seed 1|clock] [--first 0] [--out build/fuzz-onnx] [--show
    INDEX] [--no-reduce] [--limit SECONDS] fuzz_onnx.py BUILD --again FILE.onnx one saved finding
    (its inputs lie in FILE.npz) fuzz_onnx.py BUILD --found found/*.onnxtxt: what failed once, with
    seeded inputs; PASS or FAIL each fuzz_onnx.py BUILD --text FILE.onnx a finding as such a text

Graph k of a seed is the same everywhere; every sixth is given as ONNX Runtime's optimizer rewrites
it, with operators of com.microsoft. What hlod answers must lie within the bound of its numbers (f32
1e-4 of an output's scale, f64 1e-6, f16 5e-3) of one of ONNX Runtime's answers, optimised or not,
or no farther than these two are apart; where it does not, ONNX Runtime is asked with every float
result changed in its last digits, and an output that this moves as far is no finding (`unstable`: a
choice between near equals). Networks with 8-bit integers may differ by a step of a scale here and
there.

Counts: differ, crash (worker or daemon died, INTERNAL), stuck, refused, left out (ONNX Runtime does
not run it). Each finding is written to --out, reduced. Exit code 1 when anything differs, crashes
or is stuck, or the generator makes what ONNX Runtime refuses too often.
"""
import argparse
import collections
import glob
import os
import re
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "zoo")]
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnx.parser  # noqa: E402
import onnx.printer  # noqa: E402
import onnx_gen  # noqa: E402
import onnx_more  # noqa: E402
import onnx_reduce  # noqa: E402
import onnxruntime as ort  # noqa: E402
import side  # noqa: E402
from models import difference  # noqa: E402

BOUND = {"float32": 1e-4, "float64": 1e-6, "float16": 5e-3}
AGAIN = 200  # graphs after which the daemon begins anew, so that its cache stays small


def generate(seed, index):
    """(model, inputs, graph)"""
    for k in range(20):
        g = onnx_gen.Graph([seed, index, k])
        blocks = [(w, f) for w, f, kinds in onnx_more.BLOCKS if g.kind in kinds]
        weights = np.array([w for w, _ in blocks])
        for _ in range(g.between(2, 7)):
            f = blocks[int(g.r.choice(len(blocks), p=weights / weights.sum()))][1]
            try:
                f(g)
            except onnx_gen.Cannot:
                pass
        if (g.nodes and len(g.ins)
            and any(v.name in {o for n in g.nodes for o in n.output} for v in g.values)):
            m, data = g.model()
            if len(m.graph.output):
                used = g.used()
                keep = [i for i in m.graph.input if i.name in used or inner(m, i.name)]
                del m.graph.input[:]
                m.graph.input.extend(keep)
                return m, {i.name: data[i.name] for i in keep}, g
    raise RuntimeError("no graph for %s" % [seed, index])


def inner(m, name):
    return any(name in onnx_reduce.reads(n) for n in m.graph.node)


def theirs(model, inputs, optimised=True):
    o = ort.SessionOptions()
    o.intra_op_num_threads = o.inter_op_num_threads = 1
    o.log_severity_level = 4
    # sums of u8 by s8 that do not saturate where the CPU has no VNNI
    o.add_session_config_entry("session.x64quantprecision", "1")
    if not optimised:
        o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    s = ort.InferenceSession(model.SerializeToString(), o, providers=["CPUExecutionProvider"])
    names = [x.name for x in s.get_outputs()]
    return dict(zip(names, s.run(None, {i.name: inputs[i.name] for i in s.get_inputs()})))


def rewritten(model):
    """As ONNX Runtime's optimizer saves it, with the operators of com.microsoft that it fuses to;
    the model itself where it does not run."""
    with tempfile.TemporaryDirectory() as tmp:
        o = ort.SessionOptions()
        o.log_severity_level, o.graph_optimization_level, o.optimized_model_filepath = (
            4, ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED, os.path.join(tmp, "m.onnx"))
        try:
            ort.InferenceSession(model.SerializeToString(), o, providers=["CPUExecutionProvider"])
            return onnx.load(o.optimized_model_filepath)
        except Exception:
            return model


def found_shapes(model, inputs):
    """name -> type and shape of results that shape inference does not tell (com.microsoft's and
    what comes behind), as ONNX Runtime finds them."""
    told = {v.name for v in list(onnx.shape_inference.infer_shapes(model).graph.value_info) + list(
                model.graph.output)}
    names = [n for node in model.graph.node for n in node.output if n and n not in told]
    m = onnx.ModelProto()
    m.CopyFrom(model)
    m.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in names)
    got = theirs(m, inputs, optimised=False) if names else {}
    return {n: onnx.helper.make_tensor_type_proto(
                onnx.helper.np_dtype_to_tensor_dtype(got[n].dtype), got[n].shape).tensor_type
            for n in names if isinstance(got.get(n), np.ndarray)}


def shaken(model, size, seed, found):
    """Every float result and input multiplied by numbers about one: what rounding differently might
    do anywhere."""
    r = np.random.default_rng(seed)
    m, kinds = onnx.ModelProto(), {onnx.TensorProto.FLOAT: np.float32,
                                   onnx.TensorProto.FLOAT16: np.float16,
                                   onnx.TensorProto.DOUBLE: np.float64}
    m.CopyFrom(model)
    info = {**found,
            **{v.name: v.type.tensor_type
               for v in list(onnx.shape_inference.infer_shapes(model).graph.value_info) + list(
                   m.graph.input) + list(m.graph.output)}}

    def shake(name, to):
        t = info[name]
        noise = np.asarray(1 + size * r.choice([-1, 1],
                                               [d.dim_value or 1
                                                for d in t.shape.dim])).astype(kinds[t.elem_type])
        m.graph.initializer.append(onnx.numpy_helper.from_array(noise, to + "/noise"))
        return onnx.helper.make_node("Mul", [name, to + "/noise"], [to])
    floats = {n for n, t in info.items() if t.elem_type in kinds}
    nodes = [shake(i.name, i.name + "/near") for i in m.graph.input if i.name in floats]
    rename = {i.name: i.name + "/near" for i in m.graph.input if i.name in floats}
    for n in m.graph.node:
        for k, name in enumerate(n.input):
            n.input[k] = rename.get(name, name)
        nodes.append(n)
        for k, name in enumerate(n.output):
            if name in floats and n.op_type not in ("Reshape", "Transpose", "Squeeze", "Unsqueeze",
                                                    "Flatten", "Identity", "DequantizeLinear",
                                                    "Cast"):
                n.output[k] = name + "/exact"
                info[name + "/exact"] = info[name]
                nodes.append(shake(name + "/exact", name))
    del m.graph.node[:]
    m.graph.node.extend(nodes)
    return m


def moved(model, inputs, want, size):
    """name -> how far results that differ by `size` everywhere move it."""
    far = dict.fromkeys(want, 0.0)
    r = np.random.default_rng(3)
    try:
        found = found_shapes(model, inputs)
    except Exception:  # a result that is no tensor
        found = {}
    for seed in range(8):
        try:
            near = theirs(shaken(model, size, seed, found), inputs, optimised=False)
        except Exception:  # a shape that shape inference told wrongly: inputs alone
            near = theirs(model,
                          {n: (a * (1 + 10 * size * r.standard_normal(a.shape))).astype(a.dtype)
                           if a.dtype.kind == "f" else a
                           for n, a in inputs.items()})
        for n, a in near.items():
            far[n] = max(far[n], difference(a, want[n]))
    return far


def traits(model):
    """(type of its floats, quantised) as the file says it."""
    ops = {n.op_type for n in model.graph.node}
    types = {i.data_type for i in model.graph.initializer} | {
        i.type.tensor_type.elem_type for i in list(model.graph.input) + list(model.graph.output)}
    kind = ("float16" if onnx.TensorProto.FLOAT16 in types else "float32"
            if onnx.TensorProto.FLOAT in types else "float64")
    if any(n.op_type == "Cast" and n.attribute[0].i == onnx.TensorProto.FLOAT16
           for n in model.graph.node):
        kind = "float16"
    if kind == "float64" and any(n.op_type == "Cast" and n.attribute[0].i == onnx.TensorProto.FLOAT
                                 for n in model.graph.node):
        kind = "float32"
    return kind, bool(ops & {"QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv",
                             "QLinearMatMul", "ConvInteger", "MatMulInteger"})


def close(a, b, kind, quantised):
    """Within the bound; with 8-bit integers a rounding may go the other way in a few places, by a
    step."""
    d = difference(a, b)
    if d <= BOUND[kind]:
        return True
    if not quantised or not np.isfinite(d) or b.dtype.kind not in "fiu":
        return False
    e = (np.abs(a.astype(np.float64) - b.astype(np.float64))
         / (np.abs(b.astype(np.float64)).max() or 1))
    return bool(e.max() < 5e-2 and e.mean() < 3e-3)


def judge(model, inputs, got, want):
    """None, ("unstable", text) or ("differ", text)."""
    kind, quantised = traits(model)
    bad = [n for n, w in want.items() if n not in got or not close(got[n], w, kind, quantised)]
    if not bad:
        return None
    try:
        plain = theirs(model, inputs, optimised=False)
        bad = [n for n in bad
               if n not in got
               or not (close(got[n], plain[n], kind, quantised)
                       or difference(got[n], want[n]) <= difference(plain[n], want[n]) < np.inf)]
    except Exception:
        pass
    if not bad:
        return None
    worst = max(difference(got[n], want[n]) if n in got else np.inf for n in bad)
    text = "%s: %.3g of scale" % (bad[0], worst)
    if not all(n in got and got[n].shape == want[n].shape for n in bad):
        return "differ", text + " (shapes %s, %s)" % (got[bad[0]].shape if bad[0] in got else None,
                                                      want[bad[0]].shape)
    far = moved(model, inputs, want,
                3e-7 if kind == "float32" else 1e-12 if kind == "float64" else 1e-3)
    if all(difference(got[n], want[n]) <= 10 * far[n] for n in bad):
        return "unstable", text
    return "differ", text


class Runner:
    def __init__(self, o):
        self.o, self.h, self.counts, self.refusals, self.left = (
            o, side.Hlod(o.build, o.limit, 2), collections.Counter(), collections.Counter(),
            collections.Counter())

    def ours(self, model, inputs):
        """("ok", outputs) or (kind, text)"""
        try:
            return "ok", self.h.run(model.SerializeToString(), inputs)[0]
        except side.Stuck as e:
            return "stuck", str(e)
        except side.daemon.Refused as e:
            text = "%s %s %s" % (e.code, e.body.get("message", ""),
                                 " ".join(e.body.get("details", [])))
            return ("crash" if e.code in (0, 500, 503) else "refused"), text

    def check(self, model, inputs):
        """(kind, text): ok, unstable, differ, crash, stuck, refused, left out"""
        try:
            want = theirs(model, inputs)
        except Exception as e:
            return "left out", str(e)
        kind, got = self.ours(model, inputs)
        if kind != "ok":
            return kind, got
        return judge(model, inputs, got, want) or ("ok", "")

    def finding(self, name, kind, text, model, inputs):
        path = os.path.join(self.o.out, name)
        onnx_reduce.save(path + ".full", model, inputs)
        if not self.o.no_reduce:
            reason = re.sub(r"\d+", "N", text)[:60] if kind == "refused" else None

            def fails(m, i):
                k, t = self.check(m, i)
                return k == kind and (reason is None or re.sub(r"\d+", "N", t)[:60] == reason)
            model, inputs = onnx_reduce.reduce(model, inputs, fails, theirs)
        onnx_reduce.save(path, model, inputs)
        print("%s %s: %s\n%s" % (kind.upper(), path + ".onnx", text[:300], onnx_reduce.text(model)),
              flush=True)

    def one(self, index):
        model, inputs, _ = generate(self.o.seed, index)
        if index % 6 == 5:
            model = rewritten(model)
        kind, text = self.check(model, inputs)
        self.counts[kind] += 1
        if kind == "left out":
            self.left[re.sub(r"'[^']*'|\d+", "_", text)[:140]] += 1
        if kind == "refused":
            key = re.sub(r"'[^']*'|\d+", "_", text)[:140]
            self.refusals[key] += 1
            if self.refusals[key] > 1:
                return
        if kind in ("differ", "crash", "stuck", "refused"):
            self.finding("s%d-%d" % (self.o.seed, index), kind, text, model, inputs)

    def all(self):
        start = time.monotonic()
        for index in range(self.o.first, self.o.first + self.o.n):
            if index % AGAIN == AGAIN - 1:
                self.h.end()
            self.one(index)
        self.h.end()
        c = self.counts
        print("%d graphs of seed %d in %.0f s: %d agree, %d differ, %d crash, %d stuck, %d "
              "refused, %d unstable, %d left out (ONNX Runtime does not run them)"
              % (self.o.n, self.o.seed, time.monotonic() - start, c["ok"], c["differ"], c["crash"],
                 c["stuck"], c["refused"], c["unstable"], c["left out"]))
        for title, counter in (("refused", self.refusals), ("left out", self.left)):
            for text, n in counter.most_common(8):
                print("  %s %d times: %s" % (title, n, text.replace("\n", " ")))
        bad = c["differ"] + c["crash"] + c["stuck"]
        print("%s fuzz-onnx-graphs seed %d"
              % ("FAIL" if bad or c["left out"] > self.o.n / 5 else "PASS", self.o.seed))
        return 1 if bad or c["left out"] > self.o.n / 5 else 0


def seeded(model):
    """Normal floats, small integers, for the inputs of a graph in found/."""
    r, inputs = np.random.default_rng(1), {}
    for i in model.graph.input:
        t = i.type.tensor_type
        shape, kind = [d.dim_value
                       for d in t.shape.dim], onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
        inputs[i.name] = np.asarray(r.standard_normal(shape) if kind.kind == "f"
                                    else r.integers(0, 2, shape)).astype(kind)
    return inputs


def printable(model):
    """Constants that the text form cannot write, and large ones, become inputs."""
    for t in list(model.graph.initializer):
        if np.prod(t.dims) > 64 or t.data_type in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BOOL):
            model.graph.input.append(
                onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims))
            model.graph.initializer.remove(t)
        else:
            t.CopyFrom(onnx.helper.make_tensor(t.name, t.data_type, t.dims,
                                               onnx.numpy_helper.to_array(t).ravel().tolist()))
    return model


def found(runner):
    bad = 0
    for path in sorted(glob.glob(os.path.join(HERE, "found", "*.onnxtxt"))):
        with open(path) as f:
            model = onnx.parser.parse_model(f.read())
        kind, text = runner.check(model, seeded(model))
        bad += kind != "ok"
        print("%s %s%s" % ("PASS" if kind == "ok" else "FAIL", os.path.basename(path),
                           "" if kind == "ok" else ": %s %s" % (kind, text)), flush=True)
    return bad


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--n", type=int, default=1000)
    a.add_argument("--seed", default="1")
    a.add_argument("--first", type=int, default=0)
    a.add_argument("--out", default="build/fuzz-onnx")
    a.add_argument("--show", type=int)
    a.add_argument("--again")
    a.add_argument("--found", action="store_true")
    a.add_argument("--text")
    a.add_argument("--no-reduce", action="store_true")
    a.add_argument("--limit", type=float, default=30, help="seconds for one run")
    o = a.parse_args()
    o.seed = int(time.time()) if o.seed == "clock" else int(o.seed)
    os.makedirs(o.out, exist_ok=True)
    runner = Runner(o)
    if o.show is not None:
        model = generate(o.seed, o.show)[0]
        print(onnx_reduce.text(rewritten(model) if o.show % 6 == 5 else model))
        return 0
    if o.text:
        print(onnx.printer.to_text(printable(onnx.load(o.text))))
        return 0
    if o.found and found(runner):
        return 1
    if o.again:
        with np.load(re.sub(r"\.onnx$", ".npz", o.again)) as data:
            kind, text = runner.check(onnx.load(o.again), dict(data))
        runner.h.end()
        print(kind, text)
        return 0 if kind in ("ok", "unstable") else 1
    return runner.all()


if __name__ == "__main__":
    sys.exit(main())
