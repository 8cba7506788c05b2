# SPDX-License-Identifier: Apache-2.0
"""Gradient of ai.onnx.preview.training through the running daemon, against differences of the
graph's own values in double precision (ONNX's reference evaluator).

    gradient.py BUILD [NAME ...]        prints PASS and FAIL lines
"""
import hashlib
import os
import sys

import numpy as np
import onnx
import onnx.parser
import onnx.reference

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import daemon  # noqa: E402
import harness  # noqa: E402

HEAD = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.preview.training" : 1]>\n'

# name -> (declarations of the inputs, graph whose value y is derived by all of them, lowest input
# value)
GRAPHS = {
    "sums, products, broadcast": ("float[3, 4] a, float[4] b, float[3, 1] c",
                                  "p = Mul (a, b)\n q = Sub (p, c)\n y = Div (q, b)", 0.5),
    "functions": ("float[6] a, float[6] b", """e = Exp (a)
 l = Log (b)
 t = Tanh (a)
 s = Sigmoid (b)
 r = Sqrt (b)
 i = Sin (a)
 c = Cos (b)
 f = Erf (a)
 x = Abs (a)
 n = Neg (b)
 z = Pow (b, a)
 y = Sum (e, l, t, s, r, i, c, f, x, n, z)""", 0.3),
    "steps count for nothing": ("float[5] a", "f = Floor (a)\n g = Mul (a, f)\n y = Add (g, a)",
                                0.2),
    "maximum, clip, where": ("float[7] a, float[7] b", """m = Max (a, b)
 lo = Constant <value = float {-0.5}> ()
 hi = Constant <value = float {0.8}> ()
 k = Clip (a, lo, hi)
 g = Greater (a, b)
 w = Where (g, k, b)
 y = Mul (m, w)""", -2),
    "matrix product": ("float[2, 3, 4] a, float[4, 5] b", "p = MatMul (a, b)\n y = Tanh (p)", -1),
    "batched product, transposed": (
        "float[2, 3, 4] a, float[2, 5, 4] b",
        "t = Transpose <perm = [0, 2, 1]> (b)\n p = MatMul (a, t)\n y = Mul (p, p)", -1),
    "gemm": ("float[3, 4] a, float[5, 3] b, float[5] c",
             "p = Gemm <transA = 1, transB = 1, alpha = 0.5, beta = 2.0> (a, b, c)\n y = Sigmoid "
             "(p)", -1),
    "moves": ("float[4, 6] a, float[2, 6] b", """c = Concat <axis = 0> (a, b)
 st = Constant <value_ints = [1, 5]> ()
 en = Constant <value_ints = [6, 0]> ()
 ax = Constant <value_ints = [0, 1]> ()
 sp = Constant <value_ints = [2, -2]> ()
 s = Slice (c, st, en, ax, sp)
 pads = Constant <value_ints = [0, 1, 2, 0]> ()
 p = Pad (s, pads)
 m = Constant <value_ints = [-1]> ()
 r = Reshape (p, m)
 y = Mul (r, r)""", -1),
    "reductions": ("float[3, 4] a",
                   "s = ReduceSum <keepdims = 0> (a)\n m = ReduceMax <axes = [1], keepdims = 1> "
                   "(a)\n v = ReduceMean <axes = [0]> (a)\n p = Mul (m, v)\n y = Mul (p, s)", -1),
    "softmax": ("float[3, 5] a, float[3, 5] b", "s = Softmax <axis = 1> (a)\n y = Mul (s, b)", -1),
    "layer normalization": ("float[3, 5] a, float[5] b, float[5] c, float[3, 5] d",
                            "n = LayerNormalization <axis = 1> (a, b, c)\n y = Mul (n, d)", -1),
    "convolution": ("float[2, 4, 6, 6] a, float[6, 2, 3, 3] b, float[6] c",
                    "k = Conv <group = 2, strides = [2, 1], pads = [1, 0, 0, 1]> (a, b, c)\n "
                    "y = Tanh (k)", -1),
    "transposed convolution": ("float[1, 3, 4, 4] a, float[3, 2, 3, 3] b",
                               "k = ConvTranspose <strides = [2, 2]> (a, b)\n y = Mul (k, k)", -1),
    "pools": ("float[1, 2, 6, 6] a", """m = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (a)
 v = AveragePool <kernel_shape = [3, 3], strides = [2, 2]> (a)
 g = GlobalAveragePool (a)
 p = Mul (m, v)
 y = Mul (p, g)""", -1),
    "batch normalization": (
        "float[3, 2, 4] a, float[2] b, float[2] c, float[2] d, float[2] e",
        "n = BatchNormalization (a, b, c, d, e)\n y = Mul (n, n)", 0.4),
    "gather": ("float[5, 3] a", """i = Constant <value_ints = [1, 4, 1]> ()
 g = Gather (a, i)
 y = Mul (g, g)""", -1),
    "a loop": ("float[3] a", """n = Constant <value_int = 3> ()
 go = Constant <value = bool {1}> ()
 y = Loop (n, go, a) <body = b (int64 i, bool c, float[3] v) => (bool d, float[3] w) { d = Identity (c)
    w = Mul (v, v) }>""", 0.5),
    "a branch": ("float[3] a, float[3] b", """s = ReduceSum <keepdims = 0> (a)
 z = Constant <value = float {0}> ()
 g = Greater (s, z)
 r = If (g) <then_branch = t () => (float[3] w) { w = Mul (a, b) },
             else_branch = f () => (float[3] w) { w = Sin (b) }>
 y = Exp (r)""", -1),
    "a recurrent network": ("float[4, 2, 3] a, float[1, 16, 3] b, float[1, 16, 4] c",
                            "l, h, k = LSTM <hidden_size = 4> (a, b, c)\n y = Mul (l, l)", -1),}
REFUSED = {
    "a loop until a value is met": ("float[3] a", """n = Constant <value_int = 3> ()
 go = Constant <value = bool {1}> ()
 one = Constant <value = float {1}> ()
 y = Loop (n, go, a) <body = b (int64 i, bool c, float[3] v) => (bool d, float[3] w) { w = Mul (v, v)
    s = ReduceSum <keepdims = 0> (w)
    d = Less (s, one) }>"""),
}


def model(ins, body):
    names = [d.split()[-1] for d in ins.replace(", float", ";float").split(";")]
    grads = ["d" + n for n in names]
    text = (HEAD + "g (%s) => (float[M] y, %s)\n{ %s\n %s = ai.onnx.preview.training.Gradient <xs "
                   "= [%s], y = \"y\"> (%s) }" % (
                ins, ", ".join("float[K] " + g for g in grads), body, ", ".join(grads),
                ", ".join('"%s"' % n for n in names), ", ".join(names)))
    m = onnx.parser.parse_model(text)
    for o in m.graph.output:
        o.type.tensor_type.ClearField("shape")
    return m, names


def differences(m, names, ins):
    """The same by central differences of the sum of y, in double precision."""
    f = onnx.ModelProto()
    f.CopyFrom(m)
    del f.graph.node[-1]
    del f.graph.output[1:]
    for v in list(f.graph.input) + list(f.graph.output):
        v.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    for n in f.graph.node:
        for a in n.attribute:
            if a.HasField("t") and a.t.data_type == onnx.TensorProto.FLOAT:
                a.t.CopyFrom(onnx.numpy_helper.from_array(
                                 onnx.numpy_helper.to_array(a.t).astype(np.float64)))
    run = onnx.reference.ReferenceEvaluator(f)
    wide = {n: ins[n].astype(np.float64) for n in names}
    found = {}
    for n in names:
        g = np.zeros(wide[n].size)
        for k in range(g.size):
            sums = []
            for step in (1e-6, -1e-6):
                moved = dict(wide)
                moved[n] = wide[n].copy()
                moved[n].reshape(-1)[k] += step
                sums.append(run.run(None, moved)[0].sum())
            g[k] = (sums[0] - sums[1]) / 2e-6
        found["d" + n] = g.reshape(wide[n].shape)
    return found


def check(d, ins, body, low):
    m, names = model(ins, body)
    rng = np.random.default_rng(3)
    values = {
        v.name: (low + 2 * rng.random([x.dim_value for x in v.type.tensor_type.shape.dim])).astype(
            np.float32)
        for v in m.graph.input}
    data = m.SerializeToString()
    try:
        d.compile(data, {})
        got, _ = d.run(hashlib.sha256(data).hexdigest(), values)
    except daemon.Refused as e:
        return "refused: %s" % e
    for name, w in differences(m, names, values).items():
        error = np.abs(got[name] - w).max() / max(1, np.abs(w).max())
        if got[name].shape != w.shape or not error < 1e-4:
            return "%s: error %g" % (name, error)
    return None


def refused(d, ins, body):
    try:
        d.compile(model(ins, body)[0].SerializeToString(), {})
    except daemon.Refused as e:
        return None if "derivative" in str(e.body) else "%s" % e
    return "was taken"


def main():
    results = harness.Results()
    with daemon.Daemon(sys.argv[1]) as d:
        checks = ([(n, lambda a=args: check(d, *a)) for n, args in GRAPHS.items()]
                  + [(n, lambda a=args: refused(d, *a)) for n, args in REFUSED.items()])
        results.each(checks, sys.argv[2:])
    return results.code()


if __name__ == "__main__":
    sys.exit(main())
