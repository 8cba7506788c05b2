# SPDX-License-Identifier: Apache-2.0
"""Graphs (graphs.py) in whose loops, branches and functions sizes are computed from values in the
run: the program is cut between the nodes of the inner graph
(compiler/frontend/onnx/onnx_open.c)."""
import numpy as np

R = np.random.default_rng(12)


def some(n, **forms):
    return [{name: R.standard_normal(form).astype(np.float32) for name, form in forms.items()}
            for _ in range(n)]


GRAPHS = {
    "a decoder that stops at a token and collects": ("""
g (float[6] h0) => (float[6] h, int64[T] tokens, float[U, 6] states)
{
  emb = Constant <value = float[6, 6] {0.1, -0.4, 0.3, 0.9, -0.2, 0.5, -0.7, 0.2, 0.6, -0.1, 0.8, -0.3, 0.4, 0.7, -0.9, 0.2, -0.5, 0.1, 0.9, -0.6, 0.3, -0.8, 0.2, 0.4, -0.2, 0.5, 0.1, 0.7, -0.4, -0.9, 0.6, -0.3, 0.8, 0.2, 0.5, -0.1}> ()
  most = Constant <value_int = 9> ()
  true = Constant <value = bool {1}> ()
  none = Constant <value = int64[0] {}> ()
  start = Constant <value_int = 0> ()
  h, tokens, last, states = Loop (most, true, h0, none, start) <
    body = b (int64 i, bool go_in, float[6] hi, int64[K] seen, int64 token) => (bool go, float[6] ho, int64[M] all, int64 next, float[6] row) {
      e = Gather (emb, token)
      s = Add (hi, e)
      ho = Sin (s)
      next = ArgMax <axis = 0, keepdims = 0> (ho)
      one = Constant <value_ints = [1]> ()
      n1 = Reshape (next, one)
      all = Concat <axis = 0> (seen, n1)
      stop = Constant <value_int = 3> ()
      is = Equal (next, stop)
      go = Not (is)
      row = Identity (ho)
    }
  >
}""", some(8, h0=6)),
    "a cache that grows until its mean is small": ("""
g (float[4] x) => (float[K, 4] cache)
{
  lead = Constant <value_ints = [0]> ()
  true = Constant <value = bool {1}> ()
  most = Constant <value_int = 7> ()
  first = Unsqueeze (x, lead)
  cache = Loop (most, true, first) <
    body = b (int64 i, bool go_in, float[N, 4] c) => (bool go, float[M, 4] d) {
      all = ReduceMean <axes = [0], keepdims = 1> (c)
      new = Tanh (all)
      d = Concat <axis = 0> (c, new)
      size = ReduceL2 <keepdims = 0> (new)
      limit = Constant <value = float {0.6}> ()
      go = Greater (size, limit)
    }
  >
}""", some(4, x=4) + [{"x": np.full(4, 3, np.float32)}, {"x": np.zeros(4, np.float32)}]),
    "means of rows of computed lengths": ("""
g (float[B, T, 3] x) => (float[B, 3] y)
{
  a = Abs (x)
  sums = ReduceSum <keepdims = 0> (a, axes)
  axes = Constant <value_ints = [1, 2]> ()
  whole = Cast <to = 7> (sums)
  four = Constant <value_int = 4> ()
  rest = Mod (whole, four)
  unit = Constant <value_int = 1> ()
  lens = Add (rest, unit)
  shape = Shape (x)
  zero = Constant <value_int = 0> ()
  rows = Gather (shape, zero)
  true = Constant <value = bool {1}> ()
  y = Loop (rows, true) <
    body = b (int64 i, bool go_in) => (bool go, float[3] mean) {
      go = Identity (go_in)
      row = Gather <axis = 0> (x, i)
      n = Gather (lens, i)
      one = Constant <value_ints = [1]> ()
      end = Reshape (n, one)
      from = Constant <value_ints = [0]> ()
      some = Slice (row, from, end)
      mean = ReduceMean <axes = [0], keepdims = 0> (some)
    }
  >
}""", some(1, x=(3, 5, 3)) + some(1, x=(20, 5, 3))),
    "a branch in a branch, each of a rank of its own": ("""
g (float[3, 4] x) => (float[] y, float s)
{
  zero = Constant <value = float {0}> ()
  sum = ReduceSum <keepdims = 0> (x)
  up = Greater (sum, zero)
  y = If (up) <
    then_branch = t () => (float[] r) {
      size = Abs (sum)
      n = Cast <to = 7> (size)
      from = Constant <value_int = 0> ()
      by = Constant <value_int = 1> ()
      steps = Range (from, n, by)
      f = Cast <to = 1> (steps)
      all = ReduceSum <keepdims = 0> (f)
      three = Constant <value = float {3}> ()
      many = Greater (all, three)
      r = If (many) <
        then_branch = tt () => (float[] q) { form = Constant <value_ints = [1, -1]> ()
          q = Reshape (f, form) },
        else_branch = te () => (float[] q) { q = Sin (f) }
      >
    },
    else_branch = e () => (float[] r) {
      below = Less (x, zero)
      at = NonZero (below)
      af = Cast <to = 1> (at)
      two = Constant <value_ints = [2, 1]> ()
      r = Tile (af, two)
    }
  >
  w = Exp (sum)
  s = Log (w)
}""", [{"x": np.full((3, 4), v, np.float32)} for v in (0.3, 0.1, -0.2)] + some(2, x=(3, 4))),
    "no turns, and rows of a declared size": ("""
g (float[5] x, int64 n) => (float[T, 2] rows, float[5] y)
{
  true = Constant <value = bool {1}> ()
  y, rows = Loop (n, true, x) <
    body = b (int64 i, bool go_in, float[5] a) => (bool go, float[5] c, float[2] row) {
      go = Identity (go_in)
      c = Sin (a)
      one = Constant <value_ints = [1]> ()
      end = Reshape (i, one)
      from = Constant <value_ints = [0]> ()
      some = Slice (a, from, end)
      m = ReduceSum <keepdims = 1> (some)
      row = Concat <axis = 0> (m, m)
    }
  >
}""", [{"n": np.array(k)} for k in (0, 1, 4)]),
    "turns in turns": ("""
g (float[3, 4] x) => (int64[K] found)
{
  rows = Constant <value_int = 3> ()
  true = Constant <value = bool {1}> ()
  none = Constant <value = int64[0] {}> ()
  found = Loop (rows, true, none) <
    body = b (int64 i, bool go_in, int64[N] seen) => (bool go, int64[M] all) {
      go = Identity (go_in)
      row = Gather <axis = 0> (x, i)
      three = Constant <value_int = 3> ()
      all, left = Loop (three, go_in, seen, row) <
        body = c (int64 k, bool in_in, int64[P] have, float[4] r) => (bool more, int64[Q] next, float[4] half) {
          best = ArgMax <axis = 0, keepdims = 1> (r)
          next = Concat <axis = 0> (have, best)
          down = Constant <value = float {-0.7}> ()
          half = Mul (r, down)
          top = ReduceMax <keepdims = 0> (half)
          limit = Constant <value = float {0.4}> ()
          more = Greater (top, limit)
        }
      >
    }
  >
}""", some(3, x=(3, 4))),
}
# Functions are text of their own behind the graph.
GRAPHS["a size computed in a function"] = ("""
g (float[5] x) => (float[N] y, float[M] z)
{
  y = my.counted (x)
  twice = Add (x, x)
  z = my.counted (twice)
}
<domain: "my", opset_import: ["" : 17, "my" : 1]>
counted (v) => (r)
{
  a = Abs (v)
  s = ReduceSum <keepdims = 1> (a)
  n = Cast <to = 7> (s)
  ones = ConstantOfShape <value = float[1] {1}> (n)
  zero = Constant <value_int = 0> ()
  sums = CumSum (ones, zero)
  r = my.odd (sums, v)
}
<domain: "my", opset_import: ["" : 17]>
odd (v, w) => (r)
{
  up = ReduceMax <keepdims = 0> (w)
  limit = Constant <value = float {1}> ()
  is = Greater (up, limit)
  r = If (is) <
    then_branch = t () => (float[] q) { q = Neg (v) },
    else_branch = e () => (float[] q) { top = ReduceMax <keepdims = 0> (v)
      lead = Constant <value_ints = [0]> ()
      q = Unsqueeze (top, lead) }
  >
}""", [{"x": np.array(v, np.float32)}
       for v in ([1, -2, 1, 0.5, 0], [0.5, 0.5, 0.5, 0, 0.6], [3, 3, 3, 1, 0])])

GRAPHS["inputs that calls of functions leave out"] = ("""
g (float[3, 4] x) => (float[3, 4] a, float[3, 4] b, float[3, 4] c, float[3, 4] d)
{
  low = Constant <value = float {-0.5}> ()
  high = Constant <value = float {0.25}> ()
  a = my.within (x, low, high)
  b = my.within (x, low)
  c = my.within (x, , high)
  d = my.within (x)
}
<domain: "my", opset_import: ["" : 17, "my" : 1]>
within (v, lo, hi) => (r)
{
  w = Neg (v)
  r = my.inner (w, lo, hi)
}
<domain: "my", opset_import: ["" : 17]>
inner (v, lo, hi) => (r)
{
  r = Clip (v, lo, hi)
}""", [{}])
