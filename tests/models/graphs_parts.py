# SPDX-License-Identifier: Apache-2.0
"""Graphs (graphs.py) whose sizes are computed from values in the run, so that they run in parts:
length regulators, counts, branches of different rank, sizes of sizes."""
import numpy as np

R = np.random.default_rng(11)
ONES = """
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  lead = Constant <value_ints = [0]> ()
  next = Constant <value_ints = [1]> ()
  minus = Constant <value_ints = [-1]> ()
"""


def logs(n, *more):
    """Logarithms of durations: usual, all short, one long."""
    usual = R.standard_normal(n).astype(np.float32)
    short = np.full(n, -9, np.float32)
    long = short.copy()
    long[n // 2] = 4.4
    return [{"logd": x, **m} for x in (usual, short, long) for m in (more or [{}])]


GRAPHS = {"frames by a mask and a product": ("""
g (float[5] logd, float[5, 3] x) => (float[L, 3] y, int64[R] dims)
{""" + ONES + """
  e = Exp (logd)
  d = Ceil (e)
  ends = CumSum (d, zero)
  all = ReduceSum <keepdims = 0> (d)
  n = Cast <to = 7> (all)
  frames = Range (zero, n, one)
  ff = Cast <to = 1> (frames)
  column = Unsqueeze (ff, next)
  row = Unsqueeze (ends, lead)
  before = Less (column, row)
  b = Cast <to = 1> (before)
  pads = Constant <value_ints = [0, 1, 0, -1]> ()
  shifted = Pad (b, pads)
  path = Sub (b, shifted)
  y = MatMul (path, x)
  dims = Shape (y)
}""", logs(5)),
          "frames by an index": ("""
g (float[6] logd, float[6, 4] x) => (float[L, 4] y, float[1, M] wide)
{""" + ONES + """
  e = Exp (logd)
  d = Round (e)
  ends = CumSum (d, zero)
  last = Gather (ends, minus)
  floor = Constant <value = float[1] {1}> ()
  some = Max (last, floor)
  n1 = Cast <to = 7> (some)
  n = Squeeze (n1, lead)
  frames = Range (zero, n, one)
  ff = Cast <to = 1> (frames)
  column = Unsqueeze (ff, next)
  row = Unsqueeze (ends, lead)
  past = GreaterOrEqual (column, row)
  p = Cast <to = 7> (past)
  at0 = ReduceSum <keepdims = 0> (p, next)
  most = Constant <value_int = 5> ()
  at = Min (at0, most)
  y = Gather <axis = 0> (x, at)
  half = Constant <value = float[1] {0.5}> ()
  dims = Concat <axis = 0> (next, n1)
  wide = Expand (half, dims)
}""", logs(6)),
          "counts of each number": ("""
g (int64[7] v) => (int64[C] counts)
{""" + ONES + """
  top = ReduceMax <keepdims = 1> (v)
  c = Add (top, next)
  none = ConstantOfShape <value = int64[1] {0}> (c)
  ones = Shape (v)
  filled = ConstantOfShape <value = int64[1] {1}> (ones)
  counts = ScatterElements <axis = 0, reduction = "add"> (none, v, filled)
}""", [{"v": np.array(v)} for v in ([0, 1, 1, 3, 0, 0, 9], [0] * 7, [40, 2, 2, 2, 2, 2, 2])]),
          "branches of different rank": ("""
g (float[3, 4] x) => (float z)
{
  limit = Constant <value = float {0}> ()
  s = ReduceSum <keepdims = 0> (x)
  up = Greater (s, limit)
  y = If (up) <
    then_branch = t () => (float[3] r) { axis = Constant <value_ints = [1]> ()
      r = ReduceSum <keepdims = 0> (x, axis) },
    else_branch = e () => (float[3, 4] r) { r = Neg (x) }
  >
  w = Exp (y)
  z = ReduceSum <keepdims = 0> (w)
}""", [{"x": np.full((3, 4), v, np.float32)} for v in (0.5, -0.5)]),
          "a size of a size": ("""
g (float[4] x) => (float[N] y, float[M] z)
{""" + ONES + """
  a = Abs (x)
  s = ReduceSum <keepdims = 1> (a)
  n = Cast <to = 7> (s)
  first = ConstantOfShape <value = float[1] {1.5}> (n)
  y = CumSum (first, zero)
  s2 = ReduceSum <keepdims = 1> (y)
  m = Cast <to = 7> (s2)
  z = ConstantOfShape <value = float[1] {2}> (m)
}""", [{"x": np.array(v, np.float32)} for v in ([1, -2, 1, 0.5], [0, 0, 0, 0], [3, 3, 3, 1])]),
          "several sizes at once, and what was ready before": ("""
g (float[6] x, float[2, 3] w) => (float[A] p, float[B, 3] q, float[2, 3] r, float[N] s)
{""" + ONES + """
  a = Abs (x)
  s1 = ReduceSum <keepdims = 1> (a)
  n = Cast <to = 7> (s1)
  s2 = ReduceMax <keepdims = 1> (a)
  s3 = Ceil (s2)
  m = Cast <to = 7> (s3)
  p = ConstantOfShape <value = float[1] {3}> (n)
  three = Constant <value_ints = [3]> ()
  dims = Concat <axis = 0> (m, three)
  head = Slice (w, lead, next, lead)
  q = Expand (head, dims)
  r = Exp (w)
  none = Constant <value = float {0}> ()
  up = Greater (x, none)
  s = Compress <axis = 0> (x, up)
}""", [{"x": R.standard_normal(6).astype(np.float32) * k} for k in (1, 3, 0.1)]),
          "an exact size of what a mask chose": ("""
g (float[5, 2] x) => (float[2, N] y, float[K] t)
{""" + ONES + """
  none = Constant <value = float {0}> ()
  up2 = Greater (x, none)
  up = Reshape (up2, minus)
  flat = Compress (x, up)
  back = Constant <value_ints = [-2]> ()
  end = Constant <value_ints = [100]> ()
  t = Slice (flat, back, end, lead)
  two = Concat <axis = 0> (flat, flat)
  form = Constant <value_ints = [2, -1]> ()
  y = Reshape (two, form)
}""", [{"x": np.array(v, np.float32).reshape(5, 2)}
       for v in (np.arange(10) - 3, np.arange(10) - 7.5, np.arange(10) + 1)]),
          "random numbers on both sides of the cut": ("""
g (float[8] x) => (float[N] y, float d)
{""" + ONES + """
  r = RandomUniformLike (x)
  four = Constant <value = float {4}> ()
  r4 = Mul (r, four)
  up = Ceil (r4)
  s = ReduceSum <keepdims = 1> (up)
  n = Cast <to = 7> (s)
  y0 = ConstantOfShape <value = float[1] {1}> (n)
  have = ReduceSum <keepdims = 0> (y0)
  again = ReduceSum <keepdims = 0> (up)
  d = Sub (have, again)
  none = Constant <value = float {0}> ()
  y1 = Mul (y0, none)
  few = Slice (y1, lead, next, lead)
  y = Identity (few)
}""", [{}] * 4),
          "scatters into what a mask chose": ("""
g (float[4, 5] x) => (float[N, 5] y, float[4, 5] z)
{""" + ONES + """
  none = Constant <value = float {0}> ()
  up = Greater (x, none)
  one1 = Constant <value_ints = [1]> ()
  sums = ReduceSum <keepdims = 0> (x, one1)
  rows = Greater (sums, none)
  some = Compress <axis = 0> (x, rows)
  shape = Shape (some)
  n = Slice (shape, lead, one1)
  ns = Squeeze (n, lead)
  numbers = Range (zero, ns, one)
  colform = Constant <value_ints = [-1, 1]> ()
  column = Reshape (numbers, colform)
  cshape = Shape (column)
  m1 = Constant <value_ints = [-1, -1]> ()
  is = Equal (cshape, m1)
  ones2 = Constant <value_ints = [1, 1]> ()
  to = Where (is, ones2, cshape)
  first = Expand (column, to)
  fourth = Constant <value_int = 3> ()
  kk = Expand (fourth, cshape)
  at = Concat <axis = -1> (first, kk)
  nine = Constant <value = float {9}> ()
  upd = Expand (nine, n)
  y = ScatterND (some, at, upd)
  same = Shape (x)
  wide = Expand (up, same)
  idx = NonZero (wide)
  idxt = Transpose <perm = [1, 0]> (idx)
  from = NonZero (up)
  fromt = Transpose <perm = [1, 0]> (from)
  values = GatherND (x, fromt)
  count = Shape (idxt)
  c0 = Slice (count, lead, one1)
  cut = Slice (values, lead, c0, lead)
  zeros = ConstantOfShape <value = float[1] {0}> (same)
  z = ScatterND (zeros, idxt, cut)
}""", [{"x": R.standard_normal((4, 5)).astype(np.float32)}, {"x": np.full((4, 5), -1, np.float32)},
       {"x": np.ones((4, 5), np.float32)}]),}
