# SPDX-License-Identifier: Apache-2.0
"""Structure of ONNX graphs through the running daemon, against ONNX Runtime: branches, loops,
scans, functions, captures, weights inside subgraphs.

    graphs.py BUILD [NAME ...]

Each model is text (onnx.parser); inputs are made from a seed by type and shape; every entry of RUNS
overrides some of them. Prints PASS and FAIL lines.
"""
import hashlib
import os
import re
import subprocess
import sys

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import daemon  # noqa: E402
import graphs_parts  # noqa: E402
import graphs_sizes  # noqa: E402
import graphs_turns  # noqa: E402
import harness  # noqa: E402

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'

# name -> (text, [overrides of inputs per run]); WEIGHT in the text stands for 600 numbers, which
# are bound, not baked
MODELS = {"if, captures of three levels": ("""
g (float[3, 4] x, bool a, bool b) => (float[3, 4] y)
{
  two = Constant <value = float {2}> ()
  x2 = Mul (x, two)
  y = If (a) <
    then_branch = t () => (float[3, 4] r) {
      s = Sin (x2)
      r = If (b) <
        then_branch = tt () => (float[3, 4] q) { q = Add (s, x) },
        else_branch = te () => (float[3, 4] q) { p = Sub (s, two)
          q = Mul (p, x2) }
      >
    },
    else_branch = e () => (float[3, 4] r) { r = Neg (x) }
  >
}""", [{"a": np.array(p), "b": np.array(q)} for p in (True, False) for q in (True, False)]),
          "if, two outputs, one a capture itself": ("""
g (float[4] x, bool a) => (float[4] y, float[4] z)
{
  w = Exp (x)
  y, z = If (a) <
    then_branch = t () => (float[4] p, float[4] q) { p = Identity (w)
      q = Neg (x) },
    else_branch = e () => (float[4] p, float[4] q) { p = Cos (x)
      q = Identity (x) }
  >
}""", [{"a": np.array(True)}, {"a": np.array(False)}]),
          "if on a shape": ("""
g (float[N, 4] x) => (float[M] y)
{
  s = Shape (x)
  zero = Constant <value_int = 0> ()
  n = Gather (s, zero)
  three = Constant <value_int = 3> ()
  c = Greater (n, three)
  axes = Constant <value_ints = [1]> ()
  y = If (c) <
    then_branch = t () => (float[M] r) { r = ReduceSum <keepdims = 0> (x, axes) },
    else_branch = e () => (float[M] r) { m = Constant <value_ints = [-1]> ()
      r = Reshape (x, m) }
  >
}""", [{"x": np.arange(8, dtype=np.float32).reshape(2, 4)},
       {"x": np.arange(20, dtype=np.float32).reshape(5, 4)}]),
          "loop, trip count of the request": ("""
g (int64 n, float[3] x) => (float[3] y)
{
  t = Constant <value = bool {1}> ()
  y = Loop (n, t, x) <
    body = b (int64 i, bool c, float[3] v) => (bool d, float[3] w) {
      d = Identity (c)
      f = Cast <to = 1> (i)
      u = Add (v, f)
      w = Sin (u)
    }
  >
}""", [{"n": np.array(k)} for k in (0, 1, 7)]),
          "loop, a condition that counts to a length, and a shape of what it stacked": ("""
g (float[N, 4] x) => (float[M, 4] y, float[K, 4] z, float[L, 4] w)
{
  s = Shape (x)
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  n = Gather (s, zero)
  t = Constant <value = bool {1}> ()
  big = Constant <value_int = 1000> ()
  row = Constant <value_floats = [0.0, 0.5, 1.0, 1.5]> ()
  j, v, rows = Loop (n, t, zero, row) <
    body = b (int64 i, bool c, int64 j0, float[4] v0) => (bool d, int64 j1, float[4] v1, float[4] r) {
      j1 = Add (j0, one)
      d0 = Less (j1, n)
      fi = Cast <to = 1> (i)
      fn = Cast <to = 1> (n)
      d1 = Less (fi, fn)
      d = And (d0, d1)
      xi = Gather (x, j0)
      v1 = Add (v0, xi)
      r = Tanh (v1)
    }
  >
  s2 = Shape (rows)
  e = Constant <value = float {2}> ()
  f = Expand (e, s2)
  y = Add (f, rows)
  three = Constant <value_int = 3> ()
  k, u, some = Loop (big, t, zero, row) <
    body = b2 (int64 i2, bool c2, int64 k0, float[4] u0) => (bool d2, int64 k1, float[4] u1, float[4] q) {
      k1 = Add (k0, one)
      d2 = Less (k0, three)
      u1 = Sin (u0)
      q = Identity (u1)
    }
  >
  z = Add (some, v)
  p, single = Loop ("", t, row) <
    body = b3 (int64 i3, bool c3, float[4] p0) => (bool d3, float[4] p1, float[4] o) {
      d3 = Constant <value = bool {0}> ()
      p1 = Cos (p0)
      o = Identity (p1)
    }
  >
  w = Add (single, p)
}""", [{"x": np.arange(4 * m, dtype=np.float32).reshape(m, 4) / 9} for m in (1, 2, 7)]),
          "loop, condition of the data": ("""
g (float x) => (float y, int64 k)
{
  m = Constant <value_int = 9223372036854775807> ()
  t = Constant <value = bool {1}> ()
  z = Constant <value_int = 0> ()
  y, k = Loop (m, t, x, z) <
    body = b (int64 i, bool c, float v, int64 j) => (bool d, float w, int64 l) {
      half = Constant <value = float {0.5}> ()
      lim = Constant <value = float {0.01}> ()
      w = Mul (v, half)
      d = Greater (w, lim)
      l = Identity (i)
    }
  >
}""", [{"x": np.float32(v)} for v in (1.0, 0.005, 300.0)]),
          "loop without trip count, condition false at first": ("""
g (float x, bool t) => (float y)
{
  y = Loop ("", t, x) <
    body = b (int64 i, bool c, float v) => (bool d, float w) {
      one = Constant <value = float {1}> ()
      ten = Constant <value = float {10}> ()
      w = Add (v, one)
      d = Less (w, ten)
    }
  >
}""", [{"x": np.float32(2), "t": np.array(True)}, {"x": np.float32(2), "t": np.array(False)}]),
          "loop, stacked results": ("""
g (float[2, 3] x) => (float[2, 3] last, float[5, 2, 3] rows, int64[5] numbers)
{
  n = Constant <value_int = 5> ()
  last, rows, numbers = Loop (n, "", x) <
    body = b (int64 i, bool c, float[2, 3] v) => (bool d, float[2, 3] w, float[2, 3] r, int64 k) {
      d = Constant <value = bool {1}> ()
      r = Cos (v)
      w = Add (r, x)
      k = Mul (i, i)
    }
  >
}""", [{}]),
          "loop, stacked results of a trip count given with the run": ("""
g (int64 n, float[2] x) => (float[R, 2] rows)
{
  last, rows = Loop (n, "", x) <
    body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w, float[2] r) {
      d = Identity (c)
      w = Mul (v, v)
      r = Sqrt (w)
    }
  >
}""", [{"n": np.array(4)}, {"n": np.array(1)}, {"n": np.array(0)}]),
          "loop whose carried value grows": ("""
g (float[2] x) => (float[16] y)
{
  n = Constant <value_int = 3> ()
  y = Loop (n, "", x) <
    body = b (int64 i, bool c, float[L] v) => (bool d, float[K] w) {
      d = Identity (c)
      w = Concat <axis = 0> (v, v)
    }
  >
}""", [{}]),
          "conditional in a loop of 1,000 in a branch": ("""
g (float[8] x, bool a) => (float[8] y)
{
  y = If (a) <
    then_branch = t () => (float[8] r) {
      n = Constant <value_int = 1000> ()
      r = Loop (n, "", x) <
        body = b (int64 i, bool c, float[8] v) => (bool d, float[8] w) {
          d = Identity (c)
          two = Constant <value_int = 2> ()
          zero = Constant <value_int = 0> ()
          odd = Mod (i, two)
          even = Equal (odd, zero)
          w = If (even) <
            then_branch = tt () => (float[8] q) { q = Cos (v) },
            else_branch = te () => (float[8] q) { k = Constant <value = float {0.25}> ()
              h = Mul (x, k)
              q = Add (v, h) }
          >
        }
      >
    },
    else_branch = e () => (float[8] r) { r = Identity (x) }
  >
}""", [{"a": np.array(True)}, {"a": np.array(False)}]),
          "scan, two states, axes and directions": ("""
g (float[3] s, float[4, 3] x, float[3, 4] z) => (float[3] last, float[3, 4] up, float[4, 3] down)
{
  last, up, down = Scan (s, x, z) <num_scan_inputs = 2, scan_input_axes = [0, 1], scan_input_directions = [0, 1],
                                   scan_output_axes = [1, 0], scan_output_directions = [0, 1],
    body = b (float[3] v, float[3] p, float[3] q) => (float[3] w, float[3] r1, float[3] r2) {
      a = Mul (p, q)
      w = Add (v, a)
      r1 = Identity (w)
      r2 = Sub (w, q)
    }
  >
}""", [{}]),
          "scan inside a scan": ("""
g (float[2] s, float[3, 4, 2] x) => (float[2] last, float[3, 2] rows)
{
  last, rows = Scan (s, x) <num_scan_inputs = 1,
    body = b (float[2] v, float[4, 2] p) => (float[2] w, float[2] r) {
      w = Scan (v, p) <num_scan_inputs = 1,
        body = bb (float[2] vv, float[2] pp) => (float[2] ww) { t = Add (vv, pp)
          ww = Tanh (t) }
      >
      r = Mul (w, s)
    }
  >
}""", [{}]),
          "convolutions and work on weights inside branches and loops": ("""
g (float[1, 10, 9, 9] x, bool a, bool b, int64 n) => (float[1, 10, 9, 9] y)
{
  flat = Constant <value = float[600] {WEIGHT}> ()
  dims = Constant <value_ints = [6, 10, 10, 1]> ()
  six = Reshape (flat, dims)
  y = If (a) <
    then_branch = t () => (float[1, 10, 9, 9] r) {
      zero = Constant <value_int = 0> ()
      part = Gather <axis = 0> (six, zero)
      kdims = Constant <value_ints = [10, 10, 1, 1]> ()
      w = Reshape (part, kdims)
      k = Tanh (w)
      r = Loop (n, "", x) <
        body = bb (int64 i, bool c, float[1, 10, 9, 9] v) => (bool d, float[1, 10, 9, 9] q) {
          d = Identity (c)
          q = If (b) <
            then_branch = tt () => (float[1, 10, 9, 9] o) {
              e = Exp (w)
              u = Conv (v, e)
              o = Tanh (u) },
            else_branch = te () => (float[1, 10, 9, 9] o) {
              f = Sin (k)
              g = Transpose <perm = [1, 0, 2, 3]> (f)
              o = Conv (v, g) }
          >
        }
      >
    },
    else_branch = e () => (float[1, 10, 9, 9] r) {
      one = Constant <value_int = 1> ()
      part2 = Gather <axis = 0> (six, one)
      kdims2 = Constant <value_ints = [10, 10, 1, 1]> ()
      w2 = Reshape (part2, kdims2)
      r0 = Conv (x, w2)
      r1 = Relu (r0)
      r2 = Conv (r1, w2)
      r = Add (r2, x)
    }
  >
}""", [{"a": np.array(p), "b": np.array(q), "n": np.array(k)}
       for p, q, k in ((True, True, 3), (True, False, 2), (True, True, 0), (False, False, 1))]),
          "weights inside branches and loops": ("""
g (float[20] x, bool a, int64 n) => (float[30] y)
{
  dims = Constant <value_ints = [20, 30]> ()
  y = If (a) <
    then_branch = t () => (float[30] r) {
      flat = Constant <value = float[600] {WEIGHT}> ()
      w = Reshape (flat, dims)
      back = Transpose <perm = [1, 0]> (w)
      z = Loop (n, "", x) <
        body = b (int64 i, bool c, float[20] v) => (bool d, float[20] q) {
          d = Identity (c)
          other = Constant <value = float[600] {WEIGHT}> ()
          m = Reshape (other, dims)
          h = MatMul (v, m)
          k = MatMul (h, back)
          q = Tanh (k)
        }
      >
      r = MatMul (z, w)
    },
    else_branch = e () => (float[30] r) {
      flat2 = Constant <value = float[600] {WEIGHT}> ()
      w2 = Reshape (flat2, dims)
      r = MatMul (x, w2)
    }
  >
}""", [{"a": np.array(True), "n": np.array(3)}, {"a": np.array(False), "n": np.array(0)}]),
          "sequences: split, mapped, grown in a loop, joined": ("""
g (float[6, 2] x, int64 n) => (float[K, 2] y, int64 len)
{
  three = Constant <value_int = 3> ()
  first = Constant <value_int = -1> ()
  parts = SplitToSequence <axis = 0> (x, three)
  empty = SequenceEmpty ()
  grown = Loop (n, "", empty) <
    body = b (int64 i, bool c, seq(float[2]) s) => (bool d, seq(float[2]) t) {
      d = Identity (c)
      p = SequenceAt (parts, i)
      q = Neg (p)
      t = SequenceInsert (s, q)
    }
  >
  more = SequenceInsert (grown, x, first)
  y = ConcatFromSequence <axis = 0> (more)
  len = SequenceLength (more)
}""", [{"n": np.array(1)}, {"n": np.array(2)}]),
          "nonzero of the request's data, passed on": ("""
g (float[3, 4] x) => (int64[2, N] at, float[N] values, int64[R] dims, float[1, N] scaled)
{
  zero = Constant <value = float {0}> ()
  two = Constant <value = float {2}> ()
  axis = Constant <value_ints = [0]> ()
  pos = Greater (x, zero)
  at = NonZero (pos)
  rows = Transpose <perm = [1, 0]> (at)
  values = GatherND (x, rows)
  half = Div (values, two)
  scaled = Unsqueeze (half, axis)
  dims = Shape (rows)
}""", [{}, {"x": np.full((3, 4), -1, np.float32)}, {"x": np.ones((3, 4), np.float32)},
       {"x": np.arange(12, dtype=np.float32).reshape(3, 4) - 9}]),
          "compress along an axis and flat": ("""
g (float[3, 4] x, bool[4] c, bool[5] d) => (float[3, N] y, float[M] z)
{
  y = Compress <axis = 1> (x, c)
  z = Compress (x, d)
}""", [{"c": np.array([0, 1, 1, 0], bool), "d": np.array([1, 0, 0, 0, 1], bool)},
       {"c": np.zeros(4, bool), "d": np.ones(5, bool)}]),
          "stacked results of a loop that ends early": ("""
g (float x) => (float y, float[N, 2] rows)
{
  m = Constant <value_int = 20> ()
  t = Constant <value = bool {1}> ()
  axis = Constant <value_ints = [0]> ()
  y, all = Loop (m, t, x) <
    body = b (int64 i, bool c, float v) => (bool d, float w, float[2] r) {
      half = Constant <value = float {0.5}> ()
      lim = Constant <value = float {0.01}> ()
      w = Mul (v, half)
      d = Greater (w, lim)
      p = Unsqueeze (v, axis)
      q = Unsqueeze (w, axis)
      r = Concat <axis = 0> (p, q)
    }
  >
  rows = Neg (all)
}""", [{"x": np.float32(v)} for v in (1.0, 0.005, 300.0, 1e9)]),
          "the best boxes of two batches and three classes": ("""
g (float[2, 40, 4] boxes, float[2, 3, 40] scores, float[1] low) => (int64[N, 3] y)
{
  most = Constant <value_ints = [7]> ()
  over = Constant <value = float[1] {0.4}> ()
  y = NonMaxSuppression (boxes, scores, most, over, low)
}""", [{"low": np.array([v], np.float32)} for v in (-10, 1.5, 100)]),
          "unique slices of the request's data": ("""
g (int64[2, 3, 6] x) => (int64[2, 3, N] y, int64[N] at, int64[6] back, int64[N] times, int64[M] flat, int64[M] first, int64[36] inverse, int64[M] many)
{
  two = Constant <value_int = 2> ()
  z = Mod (x, two)
  y, at, back, times = Unique <axis = 2> (z)
  flat, first, inverse, many = Unique <sorted = 0> (x)
}""", [{}, {"x": np.zeros((2, 3, 6), np.int64)},
       {"x": np.arange(36).reshape(2, 3, 6)[:, :, ::-1].copy()},
       {"x": (np.arange(36) * 7 % 5).reshape(2, 3, 6)}]),
          "functions with attributes, one calling the other": ("""
g (float[2, 3] x) => (float[2, 3] y, float[3, 2] z)
{
  y = my.twice <k = 3.0> (x)
  z = my.flip (x)
}
<domain: "my", opset_import: ["" : 17]>
scaled <k: float = 2.0> (v) => (w)
{
  c = Constant <value_float: float = @k> ()
  w = Mul (v, c)
}
<domain: "my", opset_import: ["" : 17, "my" : 1]>
twice <k: float> (v) => (w)
{
  t = my.scaled <k: float = @k> (v)
  u = my.scaled (t)
  w = Add (u, v)
}
<domain: "my", opset_import: ["" : 17]>
flip (v) => (w)
{
  w = Transpose (v)
}""", [{}]),}


def fill(text):
    """WEIGHT -> 600 numbers, other ones each time."""
    rng = np.random.default_rng(7)
    return re.sub("WEIGHT", lambda _: ", ".join("%.4f" % v for v in rng.standard_normal(600) * 0.1),
                  text)


def make(v, rng):
    t = v.type.tensor_type
    shape = [d.dim_value for d in t.shape.dim]
    kind = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
    return np.asarray(rng.standard_normal(shape) * 2).astype(kind)


def check(d, name, text, runs):
    head = HEAD.replace('"" : 17', '"" : 17, "my" : 1') if "my." in text else HEAD
    m = onnx.parser.parse_model(head + fill(text))
    data = m.SerializeToString()
    s = ort.InferenceSession(data)
    digest, worst, exe = hashlib.sha256(data).hexdigest(), 0.0, set()
    try:
        c = d.compile(data, {})
        if int(c["executable"].get("weightsBytes", 0)) != 2400 * text.count("WEIGHT"):
            return "%s bytes of weights are bound" % c["executable"].get("weightsBytes")
    except daemon.Refused as e:
        if e.body.get("reason") not in ("UNBOUND_VALUE", "UNBOUND_DIM"):
            return "refused: %s" % e
    for run in runs:
        rng = np.random.default_rng(1)
        ins = {v.name: np.asarray(run[v.name]) if v.name in run else make(v, rng)
               for v in m.graph.input}
        want = s.run(None, ins)
        try:
            got, info = d.run(digest, ins)
        except daemon.Refused as e:
            return "refused: %s" % e
        exe.add(info["executable"])
        for o, w in zip(s.get_outputs(), want):
            g = got[o.name]
            if g.shape != w.shape or g.dtype != w.dtype:
                return "%s is %s%s, expected %s%s" % (o.name, g.dtype, g.shape, w.dtype, w.shape)
            if (np.isnan(g) != np.isnan(w)).any():
                return "%s is NaN at %d places, expected at %d" % (
                    o.name, np.isnan(g).sum(), np.isnan(w).sum())
            if w.size:
                off = np.nan_to_num(np.abs(g.astype(np.float64) - w), posinf=np.inf)
                worst = max(worst, float(off.max() / max(np.abs(np.nan_to_num(w)).max(), 1)))
    return None if worst <= 1e-5 else "error %.2g" % worst


def old_training(d):
    """BatchNormalization in training before opset 14 (ONNX Runtime does not have it): the batch's
    statistics, and the running ones moved towards them."""
    text = """<ir_version: 6, opset_import: ["" : 9]>
g (float[4, 3, 5] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[4, 3, 5] y, float[3] rm, float[3] rv, float[3] sm, float[3] sv)
{ y, rm, rv, sm, sv = BatchNormalization <momentum = 0.8> (x, s, b, m, v) }"""
    m = onnx.parser.parse_model(text)
    data, rng = m.SerializeToString(), np.random.default_rng(2)
    ins = {i.name: (rng.random([k.dim_value for k in i.type.tensor_type.shape.dim]) + 0.1).astype(
               np.float32)
           for i in m.graph.input}
    d.compile(data, {})
    got, _ = d.run(hashlib.sha256(data).hexdigest(), ins)
    x = ins["x"].astype(np.float64)
    mean, var = x.mean((0, 2)), x.var((0, 2))
    want = {"y": (x - mean[:, None]) / np.sqrt(var + 1e-5)[:, None] * ins["s"][:, None] + ins["b"][
                :, None], "sm": mean, "sv": var, "rm": ins["m"] * 0.8 + mean * 0.2,
            "rv": ins["v"] * 0.8 + var * 0.2}
    bad = [n for n, w in want.items() if np.abs(got[n] - w).max() > 1e-5]
    return "differs: %s" % bad if bad else None


def placeholders(d):
    """Dimensions that have no name but a placeholder are not one size."""
    for name in ("?", "", "None", "-1", "unknown"):
        x = onnx.helper.make_tensor_value_info("x", 1, [name, 3, name])
        z = onnx.helper.make_tensor_value_info("z", 1, [name])
        y = onnx.helper.make_tensor_value_info("y", 1, [name, 3, name])
        m = onnx.helper.make_model(
            onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "z"], ["y"])], "g", [x, z],
                                   [y]), opset_imports=[onnx.helper.make_opsetid("", 17)],
            ir_version=8)
        data, ins = m.SerializeToString(), {"x": np.ones((2, 3, 5), np.float32),
                                            "z": np.arange(5, dtype=np.float32)}
        try:
            d.compile(data, {n: list(v.shape) for n, v in ins.items()})
            got, _ = d.run(hashlib.sha256(data).hexdigest(), ins)
        except daemon.Refused as e:
            return "%r: %s" % (name, e)
        if not np.array_equal(got["y"], ins["x"] + ins["z"]):
            return "%r: values differ" % name
    return None


def sparse(d):
    """Sparse initializers and Constants of sparse_value, indices of both forms; the same daemon, so
    that values and places must be part of the program's digest. An index out of range is
    refused."""
    h, rng = onnx.helper, np.random.default_rng(3)

    def model(dense, kind, flat, inner, wrong=0):
        at = np.flatnonzero(dense)
        places = at if flat else np.stack(np.unravel_index(at, dense.shape), 1)
        places = places + wrong
        v = onnx.helper.make_sparse_tensor(
            h.make_tensor("w", kind, [len(at)], dense.reshape(-1)[at]),
            h.make_tensor("i", 7, places.shape, places.reshape(-1)), dense.shape)
        names = [h.make_tensor_value_info(n, kind, dense.shape) for n in ("x", "y")]
        if inner:
            v.values.name = ""
        nodes = ([h.make_node("Constant", [], ["w"], sparse_value=v)] if inner
                 else []) + [h.make_node("Add", ["x", "w"], ["y"])]
        g = h.make_graph(nodes, "g", names[:1], names[1:], sparse_initializer=[] if inner else [v])
        return h.make_model(g, opset_imports=[h.make_opsetid("", 17)],
                            ir_version=8).SerializeToString()
    for kind, np_kind in ((1, np.float32), (11, np.float64)):
        for dims in ((4, 5), (7,), (2, 3, 4), (300, 200)):
            for flat in (True, False):
                for inner in (False, True):
                    dense = (rng.standard_normal(dims) * (rng.random(dims) < 0.1)).astype(np_kind)
                    dense.reshape(-1)[-1] = 3
                    x, data = rng.standard_normal(dims).astype(np_kind), model(
                        dense, kind, flat or len(dims) == 1, inner)
                    want = ort.InferenceSession(data).run(None, {"x": x})[0]
                    d.compile(data, {})
                    got, _ = d.run(hashlib.sha256(data).hexdigest(), {"x": x})
                    if not np.array_equal(got["y"], want):
                        return (
                            "%s %s: values differ" % (dims, "Constant" if inner else "initializer"))
    try:
        d.compile(model(dense, kind, True, False, wrong=1), {})
        return "an index out of range is taken"
    except daemon.Refused as e:
        return None if "index 60000" in str(e) else str(e)


def zipped(d):
    """A classifier as scikit-learn's exporter writes it: ZipMap's list of maps is the tensor of
    probabilities, columns in the order of the labels."""
    h, want = onnx.helper, np.array([[1, 2], [-1, 0.5], [0, -3]], np.float32)
    maps = h.make_sequence_type_proto(
        onnx.TypeProto(map_type=onnx.TypeProto.Map(key_type=7,
                                                   value_type=h.make_tensor_type_proto(1, None))))
    nodes = [h.make_node("LinearClassifier", ["x"], ["label", "p"], domain="ai.onnx.ml",
                         coefficients=[1.0, 2, -1, 1, 0.5, 0], intercepts=[0.1, 0.2, 0.3],
                         classlabels_ints=[4, 5, 6], post_transform="SOFTMAX"),
             h.make_node("ZipMap", ["p"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[4, 5, 6])]
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", 1, ["N", 2])],
                     [h.make_tensor_value_info("label", 7, ["N"]), h.make_value_info("z", maps)])
    data = h.make_model(g, opset_imports=[h.make_opsetid("", 17), h.make_opsetid("ai.onnx.ml", 3)],
                        ir_version=8).SerializeToString()
    label, rows = ort.InferenceSession(data).run(None, {"x": want})
    d.compile(data, {"x": [3, 2]})
    got, _ = d.run(hashlib.sha256(data).hexdigest(), {"x": want})
    p = np.array([[r[k] for k in (4, 5, 6)] for r in rows], np.float32)
    return (None if np.array_equal(got["label"], label) and np.abs(got["z"] - p).max() < 1e-6
            else "%s, expected %s" % (got, p))


def mapped(d):
    """DictVectorizer, whose map travels as its keys and values."""
    h, rng = onnx.helper, np.random.default_rng(4)
    for kind, words in (7, [3, 1, -7]), (8, ["b", "\u00fc", ""]):
        vocabulary = {"int64_vocabulary" if kind == 7 else "string_vocabulary": words}
        given = {"x.keys": np.array([words[2], 5 if kind == 7 else "q", words[0]],
                                    np.int64 if kind == 7 else object),
                 "x.values": rng.standard_normal(3).astype(np.float32)}
        node = h.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", **vocabulary)
        g = h.make_graph([node], "g",
                         [h.make_value_info("x", h.make_map_type_proto(
                             kind, h.make_tensor_type_proto(1, [])))],
                         [h.make_tensor_value_info("y", 1, [1, 3])])
        data = h.make_model(g, opset_imports=[h.make_opsetid("", 17),
                                              h.make_opsetid("ai.onnx.ml", 1)],
                            ir_version=8).SerializeToString()
        one = dict(zip(given["x.keys"].tolist(), given["x.values"].tolist()))
        want = ort.InferenceSession(data).run(None, {"x": one})[0]
        d.compile(data, {"x.keys": [3], "x.values": [3]})
        got, _ = d.run(hashlib.sha256(data).hexdigest(), given)
        if not np.array_equal(got["y"], want):
            return "%s, expected %s" % (got["y"], want)
    return None


def twice(d):
    """Initializers of one name: the last one counts, large ones and small ones (as ONNX Runtime's
    warning has it, which takes the first of large ones all the same)."""
    h, as_tensor = onnx.helper, onnx.numpy_helper.from_array
    for n in (3, 600):
        x, w = np.ones((2, n), np.float32), np.arange(3 * n, dtype=np.float32).reshape(3, n)
        g = h.make_graph([h.make_node("Add", ["x", "w"], ["t"]),
                          h.make_node("Mul", ["t", "v"], ["y"])], "g",
                         [h.make_tensor_value_info("x", 1, [2, n])],
                         [h.make_tensor_value_info("y", 1, [2, n])],
                         [as_tensor(w[0], "w"), as_tensor(w[2], "v"), as_tensor(w[1], "w")])
        data = h.make_model(g, opset_imports=[h.make_opsetid("", 17)],
                            ir_version=8).SerializeToString()
        d.compile(data, {})
        got, _ = d.run(hashlib.sha256(data).hexdigest(), {"x": x})
        if not np.array_equal(got["y"], (x + w[1]) * w[2]):
            return "%s, expected %s" % (got["y"], (x + w[1]) * w[2])
    return None


def many(d):
    """A Concat of more inputs than a step of a device takes."""
    h, n, x = onnx.helper, 9000, np.array([[1, 2, 3]], np.float32)
    g = h.make_graph([h.make_node("Concat", ["x"] * n, ["y"], axis=0)], "g",
                     [h.make_tensor_value_info("x", 1, [1, 3])],
                     [h.make_tensor_value_info("y", 1, [n, 3])])
    data = h.make_model(g, opset_imports=[h.make_opsetid("", 17)],
                        ir_version=8).SerializeToString()
    d.compile(data, {})
    got, _ = d.run(hashlib.sha256(data).hexdigest(), {"x": x})
    return None if np.array_equal(got["y"], np.repeat(x, n, 0)) else "wrong rows"


def optimised(d):
    """What ONNX Runtime writes at its highest level: convolutions, pools and enlargements in blocks
    of channels, with weights in the order of this machine (com.microsoft.nchwc), and what is left
    beside them; channels that fill no block among it."""
    h, rng, nodes, weights = onnx.helper, np.random.default_rng(3), [], []
    def conv(x, y, taken, made, size=3, group=1, **attrs):
        for n, dims in (y + "_w", (made, taken // group, size, size)), (y + "_b", (made,)):
            weights.append(onnx.numpy_helper.from_array(
                (rng.standard_normal(dims) * 0.2).astype(np.float32), n))
        nodes.append(h.make_node("Conv", [x, y + "_w", y + "_b"], [y], group=group,
                                 **{"pads": [size // 2] * 4, **attrs}))
    def node(op, x, y, **attrs):
        nodes.append(h.make_node(op, x if isinstance(x, list) else [x], [y], **attrs))
    conv("x", "stem", 3, 24, strides=[2, 2])
    node("Relu", "stem", "a")
    conv("a", "deep", 24, 24, group=24)
    node("Clip", ["deep", "low", "high"], "b")
    conv("b", "wide", 24, 48, 1)
    node("MaxPool", "wide", "c", kernel_shape=[3, 3], pads=[1] * 4)
    conv("c", "d", 48, 48, dilations=[2, 2], pads=[2] * 4)
    node("Add", ["d", "c"], "e")
    node("Relu", "e", "f")
    conv("f", "grouped", 48, 64, 1)
    conv("grouped", "i", 64, 64, group=2)
    node("AveragePool", "i", "j", kernel_shape=[2, 2], strides=[2, 2])
    for mode, at in ("nearest", "asymmetric"), ("linear", "half_pixel"):
        node("Resize", ["j", "", "twice"], mode, mode=mode, coordinate_transformation_mode=at,
             nearest_mode="floor")
    node("Concat", ["nearest", "linear", "i"], "k", axis=1)
    node("Erf", "k", "l")
    conv("l", "y", 192, 12, 1)
    node("Transpose", "y", "t", perm=[0, 2, 3, 1])
    node("GlobalAveragePool", "i", "mean")
    node("GlobalMaxPool", "f", "most")
    weights += [onnx.numpy_helper.from_array(np.array(v, np.float32), n)
                for n, v in (("low", 0), ("high", 6), ("twice", [1, 1, 2, 2]))]
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", 1, ["N", 3, 32, 24])],
                     [h.make_tensor_value_info(n, 1, None) for n in ("y", "t", "mean", "most")],
                     weights)
    data = h.make_model(g, opset_imports=[h.make_opsetid("", 17)],
                        ir_version=8).SerializeToString()
    options, path = ort.SessionOptions(), os.path.join(d.dir, "optimised.onnx")
    options.optimized_model_filepath, options.log_severity_level = path, 4
    x = rng.standard_normal((2, 3, 32, 24)).astype(np.float32)
    want = ort.InferenceSession(data, options).run(None, {"x": x})
    ops = {n.op_type for n in onnx.load(path).graph.node if n.domain == "com.microsoft.nchwc"}
    written = open(path, "rb").read()
    if "avx512f" in open("/proc/cpuinfo").read() and len(ops) < 8:
        return "ONNX Runtime wrote only %s" % sorted(ops)
    d.compile(written, {"x": [2, 3, 32, 24]})
    got, _ = d.run(hashlib.sha256(written).hexdigest(), {"x": x})
    far = [n for n, w in zip(("y", "t", "mean", "most"), want)
           if got[n].shape != w.shape or np.abs(got[n] - w).max() > 1e-4 * np.abs(w).max()]
    return "%s differ" % far if far else None


def told_apart(d):
    """Models that differ in one word only, one after the other in the same daemon: a branch that
    hides a name of the graph around it (only there), and functions of one name, by overload."""
    hides = HEAD + """g (float[3] x, bool c) => (float[3] y)
{ p = Neg (x)
  q = Exp (x)
  y = If (c) <
    then_branch = t () => (float[3] r) { %s = Sqrt (x)
      r = Relu (%s) },
    else_branch = e () => (float[3] s) { s = Abs (%s) } > }"""
    calls = """<ir_version: 10, opset_import: ["" : 17, "my" : 1]>
g (float[3] x, bool c) => (float[3] y) { y = my.f%s (x) }
<domain: "my", opset_import: ["" : 17]> f (v) => (w) { w = Neg (v) }
<domain: "my", overload: "e", opset_import: ["" : 17]> f (v) => (w) { w = Exp (v) }
<domain: "my", overload: "a", opset_import: ["" : 17]> f (v) => (w) { w = Abs (v) }"""
    x = np.array([-1, 0.5, 2], np.float32)
    for text, want in ((hides % (("q",) * 3), np.exp(x)), (hides % (("p",) * 3), np.abs(x)),
                       (calls % "", -x), (calls % ":e", np.exp(x)), (calls % ":a", np.abs(x))):
        data = onnx.parser.parse_model(text).SerializeToString()
        d.compile(data, {"x": [3]})
        got, _ = d.run(hashlib.sha256(data).hexdigest(), {"x": x, "c": np.array(False)})
        if np.abs(got["y"] - want).max() > 1e-6:
            return "%s, expected %s of %s" % (got["y"], want, text)
    return None


def command(d, build):
    """`hlo run` on a model that cannot be compiled before the run: a sequence, an optional left
    out, values that decide a shape. Twice: the upload is known then."""
    text = HEAD + """g (seq(float[2]) s, int64[K] dims, optional(float[2]) o) => (float[R, C] y, seq(float[2]) t, bool has)
{ c = ConcatFromSequence <axis = 0> (s)
  y = Reshape (c, dims)
  t = SequenceInsert (s, c)
  has = OptionalHasElement (o) }"""
    f = {n: os.path.join(d.dir, n) for n in ("m.onnx", "a.npy", "b.npy", "d.npy", "out.npz")}
    onnx.save(onnx.parser.parse_model(text), f["m.onnx"])
    np.save(f["a.npy"], np.array([1, 2], np.float32))
    np.save(f["b.npy"], np.array([3, 4], np.float32))
    for dims in ([2, 2], [1, -1]):
        np.save(f["d.npy"], np.array(dims))
        p = subprocess.run([os.path.join(build, "hlo"), "--addr", "%s:%d" % d.addr, "run",
                            f["m.onnx"], "-i", "s[0]=@" + f["a.npy"], "-i", "s[1]=@" + f["b.npy"],
                            "-i", "dims=@" + f["d.npy"], "-o", f["out.npz"]], capture_output=True,
                           text=True)
        if p.returncode:
            return "hlo run: %d %s" % (p.returncode, p.stderr)
        got = np.load(f["out.npz"])
        if (got["y"].tolist() != np.array([1, 2, 3, 4], np.float32).reshape(dims).tolist()
            or got["t[2]"].tolist() != [1, 2, 3, 4] or got["has"]):
            return "hlo run gives %s" % {k: got[k].tolist() for k in got}
    return None


def main():
    results = harness.Results()
    with daemon.Daemon(sys.argv[1]) as d:
        checks = [(name, lambda n=name, t=text, r=runs: check(d, n, t, r))
                  for name, (text, runs) in {**MODELS, **graphs_sizes.GRAPHS, **graphs_parts.GRAPHS,
                                             **graphs_turns.GRAPHS}.items()]
        checks += [("hlo run", lambda: command(d, sys.argv[1])),
                   ("batch norm in training before opset 14", lambda: old_training(d)),
                   ("placeholder dimensions", lambda: placeholders(d)),
                   ("as ONNX Runtime writes it", lambda: optimised(d)),
                   ("models that differ in a word", lambda: told_apart(d)),
                   ("zipmap", lambda: zipped(d)), ("maps", lambda: mapped(d)),
                   ("initializers of one name", lambda: twice(d)),
                   ("a join of thousands", lambda: many(d)),
                   ("sparse constants", lambda: sparse(d))]
        results.each(checks, sys.argv[2:])
    return results.code()


if __name__ == "__main__":
    sys.exit(main())
