# SPDX-License-Identifier: Apache-2.0
"""Graphs (graphs.py) of sizes that only the run knows, and what detectors and masks do behind them:
selections gathered, cut, joined, reduced, sorted, scattered."""
import numpy as np

R = np.random.default_rng(5)


def boxes(n, k):
    p = R.random((n, k, 2)) * 80
    return np.concatenate([p, p + 5 + R.random((n, k, 2)) * 30], -1).astype(np.float32)


def masks(*dims):
    """Inputs x: usual, none chosen, all chosen, one chosen."""
    x = R.standard_normal(dims).astype(np.float32)
    one = np.full(dims, -1, np.float32)
    one[(1,) * len(dims)] = 2
    return [{"x": x}, {"x": -np.abs(x) - 1}, {"x": np.abs(x) + 1}, {"x": one}]


NMS = [{"boxes": boxes(1, 60), "scores": R.random((1, 3, 60)).astype(np.float32),
        "low": np.array([v], np.float32)}
       for v in (0.3, 0.97, 2.0)]

GRAPHS = {
    "detector: selected boxes with class and score, the first twenty": ("""
g (float[1, 60, 4] boxes, float[1, 3, 60] scores, float[1] low) => (float[N, 6] found, int64[M] labels, float[P, 6] first)
{
  most = Constant <value_ints = [10]> ()
  over = Constant <value = float[1] {0.4}> ()
  at = NonMaxSuppression (boxes, scores, most, over, low)
  one = Constant <value_ints = [1]> ()
  two = Constant <value_ints = [2]> ()
  three = Constant <value_ints = [3]> ()
  zero = Constant <value_ints = [0]> ()
  flat = Constant <value_ints = [-1]> ()
  column = Constant <value_ints = [-1, 1]> ()
  c2 = Slice (at, one, two, one)
  classes = Reshape (c2, flat)
  b2 = Slice (at, two, three, one)
  places = Squeeze (b2, one)
  plain = Squeeze (boxes, zero)
  chosen = Gather <axis = 0> (plain, places)
  by_box = Transpose <perm = [0, 2, 1]> (scores)
  points = Concat <axis = 1> (b2, c2)
  plain_scores = Squeeze (by_box, zero)
  best = GatherND (plain_scores, points)
  best2 = Reshape (best, column)
  as_float = Cast <to = 1> (classes)
  class2 = Unsqueeze (as_float, one)
  found = Concat <axis = 1> (chosen, best2, class2)
  labels = Identity (classes)
  twenty = Constant <value_ints = [20]> ()
  first = Slice (found, zero, twenty, zero)
}""", NMS),
    "detector: the best of all classes in order, as many as there are": ("""
g (float[1, 60, 4] boxes, float[1, 3, 60] scores, float[1] low) => (float[N] top, float[N, 4] chosen, int64[1] count)
{
  most = Constant <value_ints = [20]> ()
  over = Constant <value = float[1] {0.5}> ()
  at = NonMaxSuppression (boxes, scores, most, over, low)
  two = Constant <value_int = 2> ()
  one = Constant <value_int = 1> ()
  zero = Constant <value_int = 0> ()
  zeros = Constant <value_ints = [0]> ()
  places = Gather <axis = 1> (at, two)
  classes = Gather <axis = 1> (at, one)
  n = Constant <value_int = 60> ()
  before = Mul (classes, n)
  flat_place = Add (before, places)
  all = Constant <value_ints = [-1]> ()
  flat = Reshape (scores, all)
  values = Gather (flat, flat_place)
  dims = Shape (values)
  size = Gather (dims, zero)
  limit = Constant <value_int = 25> ()
  k = Min (size, limit)
  k1 = Reshape (k, all)
  top, order = TopK (values, k1)
  sorted = Gather (places, order)
  plain = Squeeze (boxes, zeros)
  chosen = Gather (plain, sorted)
  count = Shape (top)
}""", NMS),
    "reductions over what was selected": ("""
g (float[5, 7] x) => (float[7] sum, float[1, 7] mean, float[7] high, float[] all, int64[7] which, float[N] rows, float[N, 7] share, float[7, 7] gram, int64[] much)
{
  zero = Constant <value = float {0}> ()
  column = Constant <value_ints = [1]> ()
  lead = Constant <value_ints = [0]> ()
  s = ReduceSum <keepdims = 0> (x, column)
  mark = Greater (s, zero)
  never = Constant <value = bool[1] {1}> ()
  one = Constant <value = bool[5] {1, 0, 0, 0, 0}> ()
  some = Or (mark, one)
  y = Compress <axis = 0> (x, some)
  sum = ReduceSum <keepdims = 0> (y, lead)
  mean = ReduceMean <axes = [0]> (y)
  high = ReduceMax <axes = [0], keepdims = 0> (y)
  both = Constant <value_ints = [0, 1]> ()
  all = ReduceSum <keepdims = 0> (y, both)
  which = ArgMax <axis = 0, keepdims = 0> (y)
  rows = ReduceMin <axes = [1], keepdims = 0> (y)
  share = Softmax <axis = 0> (y)
  t = Transpose (y)
  gram = MatMul (t, y)
  much = Size (y)
}""", masks(5, 7)),
    "values put where a mask holds": ("""
g (float[4, 6] x) => (float[4, 6] y, float[4, 6] z, int64[N, 2] where, float[N, 3] wide, int64[N] numbers, float[N] filled)
{
  zero = Constant <value = float {0}> ()
  mark = Greater (x, zero)
  at = NonZero (mark)
  where = Transpose (at)
  nine = Constant <value = float {9}> ()
  dims = Shape (where)
  lead = Constant <value_ints = [0]> ()
  next = Constant <value_ints = [1]> ()
  n = Slice (dims, lead, next)
  updates = Expand (nine, n)
  y = ScatterND (x, where, updates)
  old = GatherND (x, where)
  new = Mul (old, updates)
  z = ScatterND (x, where, new)
  three = Constant <value_ints = [3]> ()
  shape = Concat <axis = 0> (n, three)
  column = Unsqueeze (old, next)
  wide = Expand (column, shape)
  start = Constant <value_int = 0> ()
  step = Constant <value_int = 1> ()
  size = Squeeze (n, lead)
  numbers = Range (start, size, step)
  filled = ConstantOfShape <value = float[1] {2.5}> (n)
}""", masks(4, 6)),
    "selections joined, cut and turned over to a layer": ("""
g (float[6, 3] x) => (float[N, 3] joined, float[M, 3] tail, float[K, 4] layer, float[L, 2, 2] parts, float[3] last, float[J] flat)
{
  zero = Constant <value = float {0}> ()
  one = Constant <value_ints = [1]> ()
  lead = Constant <value_ints = [0]> ()
  s = ReduceSum <keepdims = 0> (x, one)
  up = Greater (s, zero)
  down = Not (up)
  a = Compress <axis = 0> (x, up)
  b = Compress <axis = 0> (x, down)
  joined = Concat <axis = 0> (a, x, b)
  nine = Constant <value_ints = [9]> ()
  end = Constant <value_ints = [-1]> ()
  tail = Slice (joined, nine, end, lead)
  w = Constant <value = float[3, 4] {1, 2, 3, 4, -1, -2, -3, -4, 0.5, 0.25, 0, 1}> ()
  bias = Constant <value = float[4] {1, 0, -1, 2}> ()
  h = Gemm (joined, w, bias)
  layer = Relu (h)
  form = Constant <value_ints = [-1, 2, 2]> ()
  parts = Reshape (layer, form)
  minus = Constant <value_int = -1> ()
  last = Gather <axis = 0> (joined, minus)
  all = Constant <value_ints = [-1]> ()
  flat = Reshape (joined, all)
}""", masks(6, 3)),
    "bounds of Clip that are no numbers": ("""
g (float[4, 6] x, float[] lo, float[] hi, double[9] d) => (float[4, 6] y, double[9] a, double[9] b)
{
  y = Clip (x, lo, hi)
  nan = Constant <value = double {nan}> ()
  half = Constant <value = double {0.5}> ()
  a = Clip (d, nan, half)
  b = Clip (d, half, nan)
}""", [{"lo": np.float32(lo), "hi": np.float32(hi)}
       for lo in (-0.5, np.nan) for hi in (0.25, np.nan)]),
    "losses whose reduction is another text": ("""
g (float[4, 6] x) => (float y, float z)
{
  t = Constant <value_ints = [1, 0, 5, 2]> ()
  y = NegativeLogLikelihoodLoss <reduction = "SUM"> (x, t)
  z = SoftmaxCrossEntropyLoss <reduction = ""> (x, t)
}""", [{}]),
}
