# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers with weights of the model, and the products of few rows they are made of,
against ONNX Runtime; with AVX-512 and without.

    recurrent.py BUILD [--all]      --all: more sizes

A product's model holds many of them: rows, depth and columns around the widths of vectors and
panels, weights bound or computed, either side transposed, behind it nothing, a bias, or an
activation. Prints PASS and FAIL lines.
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
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape)
              for n, a in inputs.items()]
    inits = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
    return helper.make_model(helper.make_graph(nodes, "g", values, results, inits),
                             opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def check(build, name, m, inputs, bound=1e-5):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        save(m, path)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        # sums of u8 by s8 that do not saturate where the CPU has no VNNI
        options.add_session_config_entry("session.x64quantprecision", "1")
        # with more, DynamicQuantizeLSTM rounds each thread's rows by their own range
        options.intra_op_num_threads = 1
        want = ort.InferenceSession(path, options,
                                    providers=["CPUExecutionProvider"]).run(None, inputs)
        cmd = [os.path.join(build, "hlo-run"), path, "--out", os.path.join(folder, "out")]
        for n, a in inputs.items():
            a.tofile(os.path.join(folder, n))
            cmd += ["--in", os.path.join(folder, n)]
        failed = 0
        for isa in ("", "avx2"):
            r = subprocess.run(cmd, capture_output=True, text=True, timeout=300,
                               env=dict(os.environ, HLOD_CPU_ISA=isa))
            why = r.stderr.strip().splitlines()[-1:] if r.returncode else None
            data, at = open(os.path.join(folder, "out"),
                            "rb").read() if not r.returncode else b"", 0
            for k, w in enumerate(want if not why else []):
                g = np.frombuffer(data[at:at + w.nbytes], np.float32).reshape(w.shape)
                at += w.nbytes
                scale, error = max(np.abs(w).max(), 1e-2), np.abs(g - w).max()
                if not error <= bound * scale:
                    why = ("result %d %s: error %.2g of %.2g"
                           % (k, m.graph.output[k].name, error, scale))
                    break
            print("%s %s%s%s" % ("FAIL" if why else "PASS", name, " " + isa if isa else "",
                                 ": %s" % why if why else ""), flush=True)
            failed += why is not None
    return failed


BEHIND = ("", "bias", "Relu", "Sigmoid", "Tanh", "bias Sigmoid", "bias Tanh", "add", "add Relu")


def products(rows, how, third):
    """How: 'bound' weights, 'bound, transposed', 'computed', 'computed, transposed', 'column' (the
    matrix on the left)."""
    nodes, inputs, weights, outputs = [], {}, {}, []
    dims = [(k, n) for k in (1, 3, 16, 65, 130)
            for n in (1, 7, 15, 16, 33, 64, 70, 200, 530)][third::3]
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
            nodes.append(helper.make_node("Gemm", [x, w], [steps[0]],
                                          transB=int("transposed" in how)))
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
    weights = {"W": f32(n, gates * hidden, size) * s, "R": f32(n, gates * hidden, hidden) * s,
               "B": f32(n, 2 * gates * hidden) * s}
    weights.update({"W2": f32(1, gates * hidden, n * hidden) * s,
                    "R2": f32(1, gates * hidden, hidden) * s, "B2": f32(1, 2 * gates * hidden) * s})
    weights["flat"] = np.array([steps, batch, n * hidden])
    nodes = [helper.make_node(op, ["x", "W", "R", "B", "", "h0"], ["y", "h"], hidden_size=hidden,
                              direction=direction, **attrs),
             helper.make_node("Transpose", ["y"], ["t"], perm=[0, 2, 1, 3]),
             helper.make_node("Reshape", ["t", "flat"], ["y2"]),
             helper.make_node(op, ["y2", "W2", "R2", "B2"], ["z", "zh"], hidden_size=hidden)]
    inputs = {"x": f32(steps, batch, size), "h0": f32(n, batch, hidden)}
    return model(nodes, inputs, ["y", "h", "z", "zh"], weights), inputs


def quantised(steps, batch, size, hidden, direction, kind, columns, lens=None, peep=False, **attrs):
    """com.microsoft.DynamicQuantizeLSTM."""
    n = 2 if direction == "bidirectional" else 1
    weights = {"B": f32(n, 8 * hidden)}
    low = 0 if kind == np.uint8 else -128
    for name, depth in (("W", size), ("R", hidden)):
        p = (n, 4 * hidden) if columns else (n,)
        weights[name] = R.integers(low, low + 256, (n, depth, 4 * hidden)).astype(kind)
        weights[name + "s"] = (
            R.uniform(0.5, 1.5, p).astype(np.float32) / np.float32(128 * np.sqrt(depth)))
        weights[name + "z"] = (
            (0 if columns else R.integers(-9, 9, p)) + np.full(p, low + 128)).astype(kind)
    inputs = {"x": f32(steps, batch, size), "h": f32(n, batch, hidden), "c": f32(n, batch, hidden)}
    names, outs = ["x", "W", "R", "B", "", "h", "c", "", "Ws", "Wz", "Rs", "Rz"], ["y", "yh", "yc"]
    if lens:
        names[4] = "lens"
        weights["lens"] = np.array(lens, np.int32)
    if peep:
        names[7] = "P"
        weights["P"] = f32(n, 3 * hidden)
    node = helper.make_node("DynamicQuantizeLSTM", names, outs, domain="com.microsoft",
                            hidden_size=hidden, direction=direction, **attrs)
    m = model([node], inputs, outs, weights)
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return m, inputs


BEHIND8 = ("", "scale", "columns", "columns bias", "columns add", "scale bias Relu",
           "columns Sigmoid", "columns bias Tanh", "scale add")


def products8(rows, kinds, zeros, transposed):
    """MatMulInteger of few rows: weights of the model, behind it nothing or what quantised models
    have. zeros: a zero point of the weights ('' none, 'one', 'columns')."""
    nodes, inputs, weights, outputs = [], {}, {}, []
    dims = [(k, n) for k in (1, 3, 4, 17, 66, 130) for n in (1, 15, 64, 70, 200)]
    for j, (k, n) in enumerate(dims):
        low = [0 if t == np.uint8 else -128 for t in kinds]
        x, w, y, names = "x%d" % j, "w%d" % j, "y%d" % j, []
        inputs[x] = R.integers(-3, 252, (rows, k)).astype(np.float32)
        nodes.append(helper.make_node("Add" if low[0] == 0 else "Sub",
                                      [x, "three" if low[0] == 0 else "more"], [x + "s"]))
        nodes.append(helper.make_node("Cast", [x + "s"], [x + "q"],
                                      to=TensorProto.UINT8 if low[0] == 0 else TensorProto.INT8))
        weights[w] = R.integers(low[1], low[1] + 256,
                                (n, k) if transposed else (k, n)).astype(kinds[1])
        if transposed:
            nodes.append(helper.make_node("Transpose", [w], [w + "t"], perm=[1, 0]))
        names = [x + "q", w + "t" if transposed else w, "xz"]
        if zeros:
            weights["wz%d" % j] = R.integers(low[1], low[1] + 256,
                                             n if zeros == "columns" else ()).astype(kinds[1])
            names.append("wz%d" % j)
        nodes.append(helper.make_node("MatMulInteger", names, [y + "i"]))
        nodes.append(helper.make_node("Cast", [y + "i"], [y + "_0"], to=TensorProto.FLOAT))
        behind = BEHIND8[j % len(BEHIND8)].split()
        for e, what in enumerate(behind):
            names = [y + "_%d" % e]
            if what in ("scale", "columns", "bias"):
                weights["%s%d" % (what, j)] = f32() if what == "scale" else f32(n)
            if what == "add":
                inputs["%s%d" % (what, j)] = f32(rows, n)
            if what in ("scale", "columns", "bias", "add"):
                names.append("%s%d" % (what, j))
                what = "Mul" if what in ("scale", "columns") else "Add"
            nodes.append(helper.make_node(what, names, [y + "_%d" % (e + 1)]))
        outputs.append(y + "_%d" % len(behind))
    weights.update({"three": np.float32(3), "more": np.float32(125),
                    "xz": np.array(99, np.uint8) if kinds[0] == np.uint8
                    else np.array(-7, np.int8)})
    return model(nodes, inputs, outputs, weights), inputs


def products_bits(rows, bits, zeros):
    """com.microsoft.MatMulNBits of few rows. zeros: '', 'packed' or 'floats'."""
    nodes, inputs, weights, outputs = [], {}, {}, []
    for j, (k, n, block) in enumerate([(32, 64, 16), (40, 7, 32), (96, 130, 32), (256, 65, 128),
                                       (200, 1, 16), (16, 200, 64)]):
        x, y, blocks = "x%d" % j, "y%d" % j, (k + block - 1) // block
        inputs[x] = f32(rows, k)
        weights["w%d" % j] = R.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
        weights["s%d" % j] = R.uniform(0.5, 1.5, (n, blocks)).astype(np.float32)
        names = [x, "w%d" % j, "s%d" % j]
        if zeros:
            z = (R.integers(0, 256, (n, (blocks * bits + 7) // 8)).astype(np.uint8)
                 if zeros == "packed" else R.uniform(0, 1 << bits, (n, blocks)).astype(np.float32))
            weights["z%d" % j] = z
            names.append("z%d" % j)
        if j % 2:
            weights["b%d" % j] = f32(n)
            names += [""] * (5 - len(names)) + ["b%d" % j]
        nodes.append(helper.make_node("MatMulNBits", names, [y], domain="com.microsoft", K=k, N=n,
                                      bits=bits, block_size=block))
        outputs.append(y)
    m = model(nodes, inputs, outputs, weights)
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return m, inputs


def main():
    build, more, failed = sys.argv[1], "--all" in sys.argv, 0
    for rows in (1, 2, 3, 4, 5, 9, 16, 17) if more else (1, 2, 5, 8):
        for how in ("bound", "bound, transposed", "computed",
                    "computed, transposed") + (("column",) if rows == 1 else ()):
            for third in range(3):
                failed += check(build, "%d rows, %s, %d" % (rows, how, third),
                                *products(rows, how, third))
                if how in ("bound", "bound, transposed") and not third:
                    for place, kinds in enumerate(((np.uint8, np.int8), (np.uint8, np.uint8),
                                                   (np.int8, np.int8))):
                        zeros = ("", "one", "columns")[(rows + place) % 3]
                        what = "%d rows, %s x %s, %s, zero %s" % (
                            rows, kinds[0].__name__, kinds[1].__name__, how, zeros or "none")
                        failed += check(build, what,
                                        *products8(rows, kinds, zeros, "transposed" in how))
        for bits, zeros in ((4, ("", "packed", "floats")[rows % 3]), (8, ("packed", "")[rows % 2]),
                            (2, "")):
            failed += check(build,
                            "%d rows, MatMulNBits %d, zeros %s" % (rows, bits, zeros or "none"),
                            *products_bits(rows, bits, zeros), bound=2e-5)
    sizes = [(40, 1, 24, 40, "bidirectional"), (20, 3, 8, 65, "forward"),
             (17, 9, 16, 16, "reverse")]
    if more:
        sizes += [(200, 1, 128, 256, "bidirectional"), (30, 32, 64, 128, "forward"),
                  (1, 1, 3, 1, "forward"), (2000, 1, 4, 8, "forward"), (18, 64, 8, 512, "forward"),
                  (18, 1, 8, 1024, "reverse")]
    for op in ("RNN", "GRU", "LSTM"):
        for size in sizes:
            failed += check(build, "%s %s" % (op, size), *layers(op, *size), bound=2e-5)
    failed += check(build, "GRU linear_before_reset",
                    *layers("GRU", 30, 2, 8, 48, "bidirectional", linear_before_reset=1),
                    bound=2e-5)
    for kind in (np.int8, np.uint8):
        for columns in (False, True):
            what = "DynamicQuantizeLSTM %s%s" % (kind.__name__, ", by column" if columns else "")
            failed += check(build, what, *quantised(20, 2, 12, 36, "bidirectional", kind, columns),
                            bound=1e-4)
            failed += check(build, what + ", few steps",
                            *quantised(5, 1, 70, 65, "reverse", kind, columns), bound=1e-4)
    failed += check(build, "DynamicQuantizeLSTM, lengths",
                    *quantised(18, 3, 33, 40, "forward", np.int8, False, lens=[18, 4, 11]),
                    bound=1e-4)
    failed += check(build, "DynamicQuantizeLSTM, short lengths",
                    *quantised(18, 3, 33, 40, "forward", np.int8, True, lens=[7, 4, 7]), bound=1e-4)
    failed += check(build, "DynamicQuantizeLSTM, peepholes and activations",
                    *quantised(17, 2, 9, 24, "forward", np.int8, False, peep=True, clip=2.5,
                               activations=["HardSigmoid", "Tanh", "Softsign"]), bound=1e-4)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
