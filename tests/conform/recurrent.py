# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers with weights of the model, and the products of few rows they are made of, against ONNX Runtime; with AVX-512 and without.

    recurrent.py BUILD [--all]      --all: more sizes

A product's model holds many of them: rows, depth and columns around the widths of vectors and panels, weights bound or computed, either side transposed,
behind it nothing, a bias, or an activation. Prints PASS and FAIL lines.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper, save

R = np.random.default_rng(11)


def f32(*dims):
    return R.standard_normal(dims).astype(np.float32)


def model(nodes, inputs, outputs, weights, opset=17):
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in inputs.items()]
    inits = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
    return helper.make_model(helper.make_graph(nodes, "g", values, results, inits), opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def check(build, name, m, inputs, bound=1e-5, twin=None):
    """twin: the model that ONNX Runtime runs instead of m."""
    with tempfile.TemporaryDirectory() as folder:
        path, oracle = os.path.join(folder, "m.onnx"), os.path.join(folder, "oracle.onnx")
        save(m, path)
        save(twin or m, oracle)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        want = ort.InferenceSession(oracle, options, providers=["CPUExecutionProvider"]).run(None, inputs)
        cmd = [os.path.join(build, "hlo-run"), path, "--out", os.path.join(folder, "out")]
        for n, a in inputs.items():
            a.tofile(os.path.join(folder, n))
            cmd += ["--in", os.path.join(folder, n)]
        failed = 0
        for isa in ("", "avx2"):
            r = subprocess.run(cmd, capture_output=True, text=True, timeout=300, env=dict(os.environ, HLOD_CPU_ISA=isa))
            why = r.stderr.strip().splitlines()[-1:] if r.returncode else None
            data, at = open(os.path.join(folder, "out"), "rb").read() if not r.returncode else b"", 0
            for k, w in enumerate(want if not why else []):
                g = np.frombuffer(data[at:at + w.nbytes], np.float32).reshape(w.shape)
                at += w.nbytes
                scale, error = max(np.abs(w).max(), 1e-2), np.abs(g - w).max()
                if not error <= bound * scale:
                    why = "result %d %s: error %.2g of %.2g" % (k, m.graph.output[k].name, error, scale)
                    break
            print("%s %s%s%s" % ("FAIL" if why else "PASS", name, " " + isa if isa else "", ": %s" % why if why else ""), flush=True)
            failed += why is not None
    return failed


BEHIND = ("", "bias", "Relu", "Sigmoid", "Tanh", "bias Sigmoid", "bias Tanh", "add", "add Relu")


def products(rows, how, third):
    """How: 'bound' weights, 'bound, transposed', 'computed', 'computed, transposed', 'column' (the matrix on the left)."""
    nodes, inputs, weights, outputs = [], {}, {}, []
    dims = [(k, n) for k in (1, 3, 16, 65, 130) for n in (1, 7, 15, 16, 33, 64, 70, 200, 530)][third::3]
    for j, (k, n) in enumerate(dims):
        x, w, y = "x%d" % j, "w%d" % j, "y%d" % j
        inputs[x] = f32(k, rows) if how == "column" else f32(rows, k)
        shape = (n, k) if "transposed" in how or how == "column" else (k, n)
        (weights if "bound" in how or how == "column" else inputs)[w] = f32(*shape)
        behind = BEHIND[j % len(BEHIND)].split()
        result = (n, rows) if how == "column" else (rows, n)
        steps = [y + "_%d" % e for e in range(len(behind) + 1)]
        if how == "column":
            nodes.append(helper.make_node("MatMul", [w, x], [steps[0]]))
        else:
            nodes.append(helper.make_node("Gemm", [x, w], [steps[0]], transB=int("transposed" in how)))
        for e, what in enumerate(behind):
            if what == "bias":
                weights["b%d" % j] = f32(result[1])
                nodes.append(helper.make_node("Add", [steps[e], "b%d" % j], [steps[e + 1]]))
            elif what == "add":
                inputs["a%d" % j] = f32(*result)
                nodes.append(helper.make_node("Add", [steps[e], "a%d" % j], [steps[e + 1]]))
            else:
                nodes.append(helper.make_node(what, [steps[e]], [steps[e + 1]]))
        outputs.append(steps[-1])
    return model(nodes, inputs, outputs, weights), inputs


def layers(op, steps, batch, size, hidden, direction, **attrs):
    gates, n = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], 2 if direction == "bidirectional" else 1
    s = np.float32(1 / np.sqrt(hidden))
    weights = {"W": f32(n, gates * hidden, size) * s, "R": f32(n, gates * hidden, hidden) * s, "B": f32(n, 2 * gates * hidden) * s}
    weights.update({"W2": f32(1, gates * hidden, n * hidden) * s, "R2": f32(1, gates * hidden, hidden) * s, "B2": f32(1, 2 * gates * hidden) * s})
    weights["flat"] = np.array([steps, batch, n * hidden])
    nodes = [helper.make_node(op, ["x", "W", "R", "B", "", "h0"], ["y", "h"], hidden_size=hidden, direction=direction, **attrs),
             helper.make_node("Transpose", ["y"], ["t"], perm=[0, 2, 1, 3]), helper.make_node("Reshape", ["t", "flat"], ["y2"]),
             helper.make_node(op, ["y2", "W2", "R2", "B2"], ["z", "zh"], hidden_size=hidden)]
    inputs = {"x": f32(steps, batch, size), "h0": f32(n, batch, hidden)}
    return model(nodes, inputs, ["y", "h", "z", "zh"], weights), inputs


def quantised(steps, batch, size, hidden, direction, kind, columns):
    """com.microsoft.DynamicQuantizeLSTM, and an LSTM with the weights that it stands for."""
    n = 2 if direction == "bidirectional" else 1
    weights, plain = {"B": f32(n, 8 * hidden)}, {}
    low = 0 if kind == np.uint8 else -128
    for name, depth in (("W", size), ("R", hidden)):
        q = R.integers(low, low + 256, (n, depth, 4 * hidden)).astype(kind)
        p = (n, 4 * hidden) if columns else (n,)
        scale, zero = R.uniform(0.5, 1.5, p).astype(np.float32) / np.float32(128 * np.sqrt(depth)), (R.integers(-9, 9, p) + low + 128).astype(kind)
        if columns:
            zero[:] = low + 128
        weights.update({name: q, name + "s": scale, name + "z": zero})
        wide = [v[:, None, :] if columns else v[:, None, None] for v in (zero.astype(np.float32), scale)]
        plain[name] = np.ascontiguousarray(((q - wide[0]) * wide[1]).transpose(0, 2, 1)).astype(np.float32)
    plain["B"] = weights["B"]
    inputs = {"x": f32(steps, batch, size), "h": f32(n, batch, hidden), "c": f32(n, batch, hidden)}
    attrs = {"hidden_size": hidden, "direction": direction}
    names, outs = ["x", "W", "R", "B", "", "h", "c"], ["y", "yh", "yc"]
    node = helper.make_node("DynamicQuantizeLSTM", names + ["", "Ws", "Wz", "Rs", "Rz"], outs, domain="com.microsoft", **attrs)
    m = model([node], inputs, outs, weights)
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return m, inputs, model([helper.make_node("LSTM", names, outs, **attrs)], inputs, outs, plain)


def main():
    build, more, failed = sys.argv[1], "--all" in sys.argv, 0
    for rows in (1, 2, 3, 4, 5, 9, 16, 17) if more else (1, 2, 5, 8):
        for how in ("bound", "bound, transposed", "computed", "computed, transposed") + (("column",) if rows == 1 else ()):
            for third in range(3):
                failed += check(build, "%d rows, %s, %d" % (rows, how, third), *products(rows, how, third))
    sizes = [(40, 1, 24, 40, "bidirectional"), (20, 3, 8, 65, "forward"), (17, 9, 16, 16, "reverse")]
    if more:
        sizes += [(200, 1, 128, 256, "bidirectional"), (30, 32, 64, 128, "forward"), (1, 1, 3, 1, "forward"), (2000, 1, 4, 8, "forward"), (18, 64, 8, 512, "forward"),
                  (18, 1, 8, 1024, "reverse")]
    for op in ("RNN", "GRU", "LSTM"):
        for size in sizes:
            failed += check(build, "%s %s" % (op, size), *layers(op, *size), bound=2e-5)
    failed += check(build, "GRU linear_before_reset", *layers("GRU", 30, 2, 8, 48, "bidirectional", linear_before_reset=1), bound=2e-5)
    for kind in (np.int8, np.uint8):
        for columns in (False, True):
            m, inputs, twin = quantised(20, 2, 12, 36, "bidirectional", kind, columns)
            what = "DynamicQuantizeLSTM %s%s" % (kind.__name__, ", by column" if columns else "")
            failed += check(build, what, m, inputs, 2e-5, twin)
            failed += check(build, what + ", as ONNX Runtime rounds", m, inputs, 4e-2)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
