# SPDX-License-Identifier: Apache-2.0
"""The zoo's models as the runners see them: a file, inputs by rule, bounds, comparison; those of
packages (table.py) and generated ones (families.py)."""
import glob
import os
import re
import statistics
import sys
import zlib

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "models")]
import families  # noqa: E402
import fetch  # noqa: E402
import table  # noqa: E402

# Largest difference allowed, relative to the largest magnitude of the output. Where ONNX Runtime's
# own ways differ by more, that (verdict).
BOUNDS = {"f32": 1e-4, "f64": 1e-6, "f16": 2e-3, "bf16": 2e-2, "int8": 1e-4}
TYPES = {"float": np.float32, "double": np.float64, "float16": np.float16, "int64": np.int64,
         "int32": np.int32, "int16": np.int16, "int8": np.int8, "uint8": np.uint8,
         "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64, "bool": np.bool_,
         "string": object}


class Model:
    """One row. `numbers` is a key of BOUNDS; `twin`: the same in f32 with the same weights, of f16
    and bf16 (for which ONNX Runtime has no kernels)."""

    def __init__(self, name, path, numbers, inputs, twin=None, package=""):
        self.name, self.path, self.numbers, self.rules, self.twin, self.package = (
            name, path, numbers, inputs, twin, package)

    def inputs(self):
        """name -> array, seeded by the names; a twin's are the same."""
        s = session(self.twin if self.numbers == "bf16" else self.path, threads=1)
        return {i.name: fill(i, self.rules.get(i.name),
                             zlib.crc32((self.name + "/" + i.name).encode()))
                for i in s.get_inputs()}


VNNI = "avx512_vnni" in open("/proc/cpuinfo").read()


def session(path, threads=2, optimised=True, exact=False):
    """exact: sums of u8 by s8 do not saturate where the CPU has no VNNI, which takes longer."""
    o = ort.SessionOptions()
    if exact:
        o.add_session_config_entry("session.x64quantprecision", "1")
    o.intra_op_num_threads, o.inter_op_num_threads, o.log_severity_level = threads, 1, 4
    if not optimised:
        o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])


def page(shape, r):
    """[N, C, H, W] from -1 to 1: light paper with lines of dark strokes. Noise alone leaves a text
    detector's outputs at 1e-9, where their relative error means nothing."""
    n, _, high, wide = shape
    ink = np.zeros((n, 1, high, wide))
    for k in range(n):
        for top in range(4, high - 12, 24):
            at = 6
            while at < wide - 8:
                w, lean = int(r.integers(2, 8)), int(r.integers(1, 4))
                ink[k, 0, top:top + 14, at:at + lean] = 1
                ink[k, 0, top + 2 * lean:top + 3 * lean, at:at + w] = 1
                at += w + int(r.integers(1, 6))
    return 0.8 - 1.6 * ink + 0.05 * r.standard_normal(shape)


def fill(declared, text, seed):
    """An array for an input of a session, by a rule of table.py."""
    shape_text, rule, number = ((text or "").split() + ["", "", ""])[:3]
    dtype = TYPES[declared.type[7:-1]]
    if shape_text:
        shape = () if shape_text == "-" else tuple(int(x) for x in shape_text.split(","))
    else:
        shape = tuple(d if isinstance(d, int) else 1 for d in declared.shape)
    r = np.random.default_rng(seed)
    if rule == "ids":
        return r.integers(0, int(number), shape).astype(dtype)
    if rule == "steps":
        return np.arange(np.prod(shape, dtype=np.int64)).reshape(shape).astype(dtype)
    if rule in ("ones", "zeros", "value"):
        return np.full(shape, {"ones": 1, "zeros": 0}.get(rule, float(number or 0)), dtype)
    if rule == "list":
        return np.array([float(x) for x in number.split(",")]).astype(dtype).reshape(shape)
    if rule == "letters":
        return np.array(list("abcdefgh"), object)[r.integers(0, 8, shape)]
    if rule == "page":
        return page(shape, r).astype(dtype)
    if rule == "unit":
        return r.random(shape).astype(dtype)
    if dtype is np.bool_:
        return np.ones(shape, dtype)
    if np.issubdtype(dtype, np.integer):
        return r.integers(0, 2, shape).astype(dtype)
    return r.standard_normal(shape).astype(dtype)


def whole(path):
    """The model with its external data in one file."""
    if (os.path.getsize(path) > 4 << 20
        or not any(os.path.exists(path + end) for end in (".data", "_data"))):
        return path
    one = os.path.join("build/zoo/generated", path.replace(os.sep, "_"))
    if not os.path.exists(one):
        os.makedirs(os.path.dirname(one), exist_ok=True)
        onnx.save(onnx.load(path), one)
    return one


def packaged():
    for name, package, pattern, numbers, inputs in table.MODELS:
        found = sorted(glob.glob(os.path.join(fetch.folder(package), "**",
                                              os.path.basename(pattern)), recursive=True))
        found = [f for f in found if re.search(re.escape(pattern).replace(r"\*", ".*") + "$", f)]
        if found:
            yield Model(name, whole(found[0]), numbers, inputs, package=package)
        else:
            print("SKIP %s: no %s of %s (sh deploy/setup.sh zoo)" % (name, pattern, package),
                  flush=True)


def generated(pattern, small=False):
    for name, numbers, make in families.rows(small):
        if re.search(pattern, name):
            path, inputs, twin = make("build/zoo/generated")
            yield Model(name, path, numbers, inputs, twin)


def chosen(pattern=".", which="all"):
    """which: packages, families, small (a few tiny families, for `make check`), all."""
    if which in ("all", "packages"):
        yield from (m for m in packaged()
                    if re.search(pattern, m.name) or re.search(pattern, m.package))
    if which != "packages":
        yield from generated(pattern, which == "small")


def difference(got, want):
    """Largest difference relative to the largest finite magnitude of `want`; inf where kind, shape
    or the place of infinities and NaN differ."""
    if got.shape != want.shape or (got.dtype == object) != (want.dtype == object):
        return float("inf")
    if want.dtype == object or want.size == 0:
        return 0.0 if (got == want).all() else float("inf")
    a, b = (x.astype(np.complex128 if np.iscomplexobj(x) else np.float64) for x in (got, want))
    loose = ~np.isfinite(b)
    if (loose != ~np.isfinite(a)).any() or not np.array_equal(a[loose], b[loose], equal_nan=True):
        return float("inf")
    a, b = a[~loose], b[~loose]
    return float(np.abs(a - b).max() / (np.abs(b).max() or 1)) if b.size else 0.0


def rounded(path):
    """The model's bytes with every float result rounded to bf16: how far such arithmetic strays
    from f32."""
    model = onnx.load(path)
    floats = {v.name for v in onnx.shape_inference.infer_shapes(model).graph.value_info
              if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        for k, name in enumerate(node.output):
            if name in floats:
                node.output[k] = name + "/wide"
                nodes.append(helper.make_node("Cast", [name + "/wide"], [name + "/bf16"],
                                              to=TensorProto.BFLOAT16))
                nodes.append(helper.make_node("Cast", [name + "/bf16"], [name],
                                              to=TensorProto.FLOAT))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model.SerializeToString()


def shaken(path, seed):
    """The model's bytes with every f32 constant moved in its sixth digit: where that moves a value
    across a half, an 8-bit step goes the other way, as it does where sums are taken in another
    order."""
    model, r = onnx.load(path), np.random.default_rng(seed)
    for t in list(model.graph.initializer) + [a.t for n in model.graph.node
                                              if n.op_type == "Constant" for a in n.attribute
                                              if a.name == "value"]:
        if t.data_type == TensorProto.FLOAT:
            a = onnx.numpy_helper.to_array(t)
            if (a == np.round(a)).all():  # scales of a Resize, powers
                continue
            t.CopyFrom(onnx.numpy_helper.from_array(
                           (a * (1 + 1e-6 * r.standard_normal(a.shape))).astype(np.float32),
                           t.name))
    return model.SerializeToString()


def expected(m, inputs):
    """(want, others): ONNX Runtime's answer, name -> array, and a list of answers that are as good:
    its unoptimised run; of f16 and bf16 the twin's in f32; of bf16 also the twin's with every
    result rounded; of int8 those of models with constants moved in the sixth digit."""
    def answer(path, optimised=True):
        s = session(path, optimised=optimised, exact=True)
        return dict(zip([o.name for o in s.get_outputs()],
                        s.run(None, wide if path is not m.path and m.numbers == "f16" else inputs)))
    wide = {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in inputs.items()}
    if m.numbers == "bf16":
        return answer(m.twin), [answer(rounded(m.twin), False)]
    want, others = answer(m.path), []
    try:
        if m.numbers != "int8" or VNNI:  # unoptimised, exact sums are not to be had
            others.append(answer(m.path, False))
    except Exception:  # an operator that only an optimised graph has kernels for
        pass
    if m.twin:
        others.append(answer(m.twin))
    if m.numbers == "int8":
        others += [answer(shaken(m.path, seed)) for seed in range(4)]
    return want, others


def verdict(m, got, want, others):
    """(ok, error, bound): each output lies within the bound of one of ONNX Runtime's answers, where
    the bound is the kind's, or these answers' own difference if larger: the largest, twice that for
    bf16, where an operator may round within itself as well, and of int8 that of the unoptimised run
    or twice the median of the shaken models'."""
    worst, limit, ok = 0.0, BOUNDS[m.numbers], True
    for n, w in want.items():
        if n not in got:
            return False, float("inf"), limit
        answers = [w] + [o[n] for o in others if o[n].shape == w.shape]
        error, bound = min(difference(got[n].astype(a.dtype), a) if a.dtype != object
                           else difference(got[n], a)
                           for a in answers), BOUNDS[m.numbers]
        apart = [difference(a.astype(w.dtype), w) if w.dtype != object else 0.0 for a in answers]
        spread = (max(apart) if m.numbers != "int8"
                  else max(apart[min(1, len(apart) - 1)], 2 * statistics.median(apart[2:] or [0])))
        bound = max(bound, (2 if m.numbers == "bf16" else 1) * spread if np.isfinite(spread) else 0)
        ok = ok and error <= bound
        if error / bound >= worst / limit:
            worst, limit = error, bound
    return ok, worst, limit
