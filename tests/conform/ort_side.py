# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime on the same cases, by direct InferenceSession, in a child process: reads "SUITE
NAME" lines, answers one JSON line each.

The parent (onnx.py) starts another child where this one dies, and counts the case as failed. Graph
inputs and outputs of element types that ONNX Runtime's Python does not pass as arrays (bf16, f8,
4-bit) are wrapped in Cast nodes to and from f32, which holds every value of them.
"""
import json
import os
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases as K  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime as ort  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

WRAPPED = set(K.EXOTIC) | set(K.PACKED)


def wrap(model):
    """A copy whose exotic inputs and outputs are f32, and whether there were any."""
    m = onnx.ModelProto()
    m.CopyFrom(model)
    g, before, after = m.graph, [], []
    for v in g.input:
        t = v.type.tensor_type
        if (v.type.WhichOneof("value") == "tensor_type"
            and K.TYPES.get(t.elem_type, ("",))[0] in WRAPPED):
            before.append(helper.make_node("Cast", [v.name + "__f32"], [v.name], to=t.elem_type))
            v.name += "__f32"
            t.elem_type = TensorProto.FLOAT
    for v in g.output:
        t = v.type.tensor_type
        if (v.type.WhichOneof("value") == "tensor_type"
            and K.TYPES.get(t.elem_type, ("",))[0] in WRAPPED):
            after.append(helper.make_node("Cast", [v.name], [v.name + "__f32"],
                                          to=TensorProto.FLOAT))
            v.name += "__f32"
            t.elem_type = TensorProto.FLOAT
    nodes = before + list(g.node) + after
    del g.node[:]
    g.node.extend(nodes)
    return m, bool(before or after)


def to_numpy(v):
    if isinstance(v, list):
        return [to_numpy(x) for x in v]
    if v is None:
        return None
    if v.dtype in WRAPPED:
        return v.numbers().astype(np.float32)
    return v.array.astype(bool) if v.dtype == "pred" else v.array


def from_numpy(x, want):
    if x is None:
        return None
    if isinstance(x, list):
        return [from_numpy(y, want[k] if isinstance(want, list) and k < len(want) else None)
                for k, y in enumerate(x)]
    x = np.asarray(x)
    if x.dtype.kind in "US":
        x = x.astype(object)
    # every value of the type is one of f32
    if isinstance(want, K.Tensor) and want.dtype in K.EXOTIC and x.dtype == np.float32:
        import ml_dtypes
        return K.Tensor(want.dtype,
                        x.astype(getattr(ml_dtypes, K.EXOTIC[want.dtype])).view(want.array.dtype))
    if isinstance(want, K.Tensor) and want.dtype in WRAPPED and x.dtype == np.float32:
        return K.Tensor(want.dtype, x.astype(want.array.dtype))
    return K.Tensor(K.NUMPY[str(x.dtype)], x.astype(np.uint8) if x.dtype == bool else x)


def run(case):
    """Why it is wrong, or None."""
    why = None
    model, wrapped = wrap(case.model)
    o = ort.SessionOptions()
    o.log_severity_level = 4
    o.intra_op_num_threads = 1
    s = ort.InferenceSession(model.SerializeToString() if wrapped else case.path, o,
                             providers=["CPUExecutionProvider"])
    for ins, want in case.sets():
        feed = {}
        for i in s.get_inputs():
            name = i.name[:-5] if i.name.endswith("__f32") else i.name
            if name in ins:
                feed[i.name] = to_numpy(ins[name])
        got = s.run(None, feed)
        for k, w in enumerate(want):
            g = from_numpy(got[k], w)
            bad = K.compare(g, w, K.is_random(case))
            why = why or bad and "output %d: %s" % (k, bad)
    return why


def main():
    warnings.simplefilter("ignore")
    ort.set_default_logger_severity(4)
    known = {}
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print does not mix with the answers
    for line in sys.stdin:
        suite, name = line.split()
        if suite not in known:
            known[suite] = {c.name: c for c in K.find([suite])}
        case = known[suite][name]
        try:
            why = run(case)
            out.write(json.dumps({"ok": why is None, "why": why}) + "\n")
        except Exception as e:  # noqa: BLE001 - whatever it raises is its answer
            out.write(json.dumps({"ok": False, "why": str(e)[:300]}) + "\n")
        case.forget()


if __name__ == "__main__":
    main()
