# SPDX-License-Identifier: Apache-2.0
"""ONNX operators in settings that ONNX's own cases leave out, against ONNX Runtime on the same one-node model and seeded input.

    onnx_variants.py BUILD [NAME...]      NAME: only variants whose name holds it

Prints PASS and FAIL lines. A variant is a name, an operator, its attributes, input arrays (None = left out) and the number of outputs; inputs named in
`constant` become initializers, because they decide shapes.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

R = np.random.default_rng(7)
VARIANTS = []


def f32(*dims):
    return R.standard_normal(dims).astype(np.float32)


def add(name, op, inputs, attrs=None, outputs=1, constant=(), opset=21, bound=1e-4):
    VARIANTS.append((name, op, inputs, attrs or {}, outputs, constant, opset, bound))


def rnn():
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for direction, n in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            for steps, lens in ((5, True), (5, False), (40, True), (40, False)):
                b, i, h = 3, 4, 6
                x = [f32(steps, b, i), f32(n, gates * h, i), f32(n, gates * h, h), f32(n, 2 * gates * h)]
                x += [np.array([steps, 2, 4], np.int32) if lens else None, f32(n, b, h)]
                attrs = {"hidden_size": h, "direction": direction}
                if op == "LSTM":
                    x += [f32(n, b, h), f32(n, 3 * h)]
                if op == "GRU" and lens:
                    attrs["linear_before_reset"] = 1
                add("%s %s, %d steps%s" % (op, direction, steps, ", lengths" if lens else ""), op, x, attrs, 3 if op == "LSTM" else 2, opset=14)
    x = [f32(6, 2, 3), f32(1, 20, 3), f32(1, 20, 5), f32(1, 40)]
    add("LSTM clip, activations", "LSTM", x, {"hidden_size": 5, "clip": 0.4, "activations": ["HardSigmoid", "Softsign", "Elu"], "activation_alpha": [0.3, 0.7],
                                              "activation_beta": [0.4]}, 3, opset=14)
    add("LSTM input_forget", "LSTM", x, {"hidden_size": 5, "input_forget": 1}, 3, opset=14)


def run(build, variant, folder):
    name, op, arrays, attrs, outputs, constant, opset, bound = variant
    names = ["" if a is None else "i%d" % k for k, a in enumerate(arrays)]
    out = ["o%d" % k for k in range(outputs)]
    free = [(n, a) for k, (n, a) in enumerate(zip(names, arrays)) if a is not None and k not in constant]
    values = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in free]
    inits = [numpy_helper.from_array(arrays[k], names[k]) for k in constant]
    node = helper.make_node(op, names, out, **attrs)
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in out], inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    path = os.path.join(folder, "m.onnx")
    model = onnx.shape_inference.infer_shapes(model)
    onnx.save(model, path)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    want = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, dict(free))
    cmd = [os.path.join(build, "hlo-run"), path, "--out", os.path.join(folder, "out")]
    for k, (_, a) in enumerate(free):
        p = os.path.join(folder, "in%d" % k)
        a.tofile(p)
        cmd += ["--in", p]
    r = subprocess.run(cmd, capture_output=True, text=True, timeout=120)
    if r.returncode:
        return "exit %d: %s" % (r.returncode, r.stderr.strip().splitlines()[-1])
    data, at, worst = open(os.path.join(folder, "out"), "rb").read(), 0, 0.0
    if len(data) != sum(w.nbytes for w in want):
        return "%d bytes of results, expected %d" % (len(data), sum(w.nbytes for w in want))
    for w in want:
        g = np.frombuffer(data[at:at + w.nbytes], w.dtype).reshape(w.shape)
        at += w.nbytes
        if w.dtype.kind in "iub" and not np.array_equal(g, w):
            return "integers differ: %d of %d" % ((g != w).sum(), w.size)
        g, w = g.astype(np.float64), w.astype(np.float64)
        bad = ~((g == w) | (np.isnan(g) & np.isnan(w)))
        scale = max(np.abs(w[np.isfinite(w)]).max(initial=0), 1e-6)
        worst = max(worst, float(np.where(bad, np.abs(g - w), 0).max(initial=0)) / scale)
    return None if worst <= bound else "error %.2g, bound %g" % (worst, bound)


def main():
    build, only, failed = sys.argv[1], sys.argv[2:], 0
    for family in (rnn,):
        family()
    for v in VARIANTS:
        if only and not any(o in v[0] for o in only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            why = run(build, v, folder)
        print("FAIL %s: %s" % (v[0], why) if why else "PASS %s" % v[0], flush=True)
        failed += why is not None
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
