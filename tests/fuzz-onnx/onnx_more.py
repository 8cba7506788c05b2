# SPDX-License-Identifier: Apache-2.0
"""More blocks for the graph fuzzer: data movement, indices, reductions and choices, integers and
casts, quantised layers, control flow."""
import numpy as np
from onnx import helper
from onnx_blocks import (ALL, BLOCKS, F32, act, block, bounded, conv, linear, maybe_act, reduce,
                         softmax)
from onnx_gen import TYPE, Cannot, Graph, Value

INTS = ("int32", "int64")


# ---- elementwise
@block(2, ALL)
def activation(g):
    act(g, g.any())


@block(2, ALL)
def arithmetic(g):
    x = g.any()
    y = (g.floats(where=lambda v: fits(v, x)) if g.chance(0.6)
         else g.weight(*[d if g.chance(0.6) else 1 for d in x.shape][g.below(x.rank):]))
    op = g.choose("Add", "Add", "Sub", "Mul", "Mul", "Max", "Min", "Div",
                  *(("Mean", "Sum") if g.kind == "float32" else ()))
    if op == "Div":
        y = g.binary("Add", g.unary("Abs", y), g.number(0.5))
    if op in ("Max", "Min", "Mean", "Sum") and g.chance(0.3):
        g.node(op, [x, y, g.number(0.25)], np.broadcast_shapes(x.shape, y.shape))
        return
    g.binary(op, x, y)


def fits(a, b):
    try:
        return np.prod(np.broadcast_shapes(a.shape, b.shape)) <= 4096
    except ValueError:
        return False


@block(1, ALL)
def compare(g):
    """Comparisons, logic, Where."""
    x = g.any()
    y = g.floats(where=lambda v: fits(v, x))
    a = g.binary(g.choose("Greater", "Less", "GreaterOrEqual", "LessOrEqual"), x, y, kinds="bool")
    if g.chance(0.3):
        b = g.binary("Less", x, g.number(0.3), kinds="bool")
        a = g.binary(g.choose("And", "Or", "Xor"), a, b)
    if g.chance(0.3):
        a = g.unary("Not", a)
    if g.chance(0.7):
        g.node("Where", [a, x, g.number(g.choose(0, 1, -2)) if g.chance(0.5) else y],
               np.broadcast_shapes(a.shape, x.shape, y.shape), kinds=g.kind)
    else:
        g.unary("Cast", a, kinds=g.kind, to=TYPE[g.kind])


@block(0.5, F32)
def rounding(g):
    x = g.any()
    g.unary(g.choose("Floor", "Ceil", "Round", "Sign"), g.binary("Mul", x, g.number(3)))


@block(0.6, ALL)
def cast(g):
    x = g.any()
    kind = g.choose("int32", "int64", "float32", "float64", "float16", "bool", "uint8", "int8")
    if kind in ("uint8", "int8", "int32", "int64"):
        x = g.binary("Mul", g.unary("Abs", bounded(g, x)), g.number(100))
    y = g.unary("Cast", x, kinds=kind, to=TYPE[kind])
    if g.chance(0.6) and kind != g.kind:
        y = g.unary("Cast", y, kinds=g.kind, to=TYPE[g.kind])
        if kind in ("uint8", "int8", "int32", "int64"):
            g.binary("Mul", y, g.number(0.01))


# ---- reductions and choices
@block(2, ALL)
def reduction(g):
    x = g.any()
    axes = sorted(set(g.below(x.rank) for _ in range(g.between(1, x.rank))))
    op = g.choose("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2",
                  "ReduceSumSquare", "ReduceLogSumExp", "ReduceL1", "ReduceProd")
    if op == "ReduceProd":
        if np.prod([x.shape[a] for a in axes]) > 20:
            raise Cannot
    if op in ("ReduceSum", "ReduceL1", "ReduceSumSquare"):  # before the sum: f16 ends at 65504
        x = g.binary("Mul", x, g.number(max(1, np.prod([x.shape[a] for a in axes])) ** (
                                            -0.5 if op == "ReduceSumSquare" else -1.0)))
    y = reduce(g, op, x, *axes, keep=g.below(2))
    if y.rank == x.rank and g.chance(0.4):
        g.binary(g.choose("Sub", "Add"), x, y)


@block(2, ALL)
def choice(g):
    """Softmax or another function of a row, then the place of its extreme."""
    x = g.any()
    axis = g.choose(-1, -1, g.below(x.rank)) % x.rank
    y = softmax(g, x, axis) if g.chance(0.6) else g.choose(
        lambda: x, lambda: act(g, x), lambda: g.binary("Sub", x, reduce(g, "ReduceMax", x, axis)))()
    keep = g.below(2)
    shape = tuple(1 if k == axis else d for k, d in enumerate(y.shape) if keep or k != axis)
    op = g.choose("ArgMax", "ArgMax", "ArgMin")
    i = g.node(op, [y], shape, kinds="int64", axis=axis, keepdims=keep,
               select_last_index=g.choose(None, 0, 1))
    if keep and g.chance(0.4):
        g.node("GatherElements", [x, i], shape, axis=axis)
    if g.chance(0.3):
        reduce(g, "ReduceMax" if op == "ArgMax" else "ReduceMin", y, axis, keep=keep)


@block(1, ("float32", "float64"))
def top(g):
    x = g.any()
    axis = g.below(x.rank)
    if g.chance(0.4):
        x = softmax(g, x, axis)
    k = g.between(1, x.shape[axis])
    shape = x.shape[:axis] + (k,) + x.shape[axis + 1:]
    v, i = g.node("TopK", [x, g.ints(k)], [shape, shape], kinds=[g.kind, "int64"], axis=axis,
                  largest=g.choose(1, 1, 0))
    if g.chance(0.5):
        g.node("GatherElements", [x, i], shape, axis=axis)
    if g.chance(0.3):
        g.binary("Add", v, g.number(1))


@block(0.7, ("float32", "float64"))
def cumulate(g):
    x = g.any()
    axis = g.below(x.rank)
    y = g.node("CumSum", [x, g.const(np.int64(axis))], x.shape, exclusive=g.below(2),
               reverse=g.below(2))
    if g.chance(0.5):
        g.binary("Div", y, g.number(x.shape[axis]))


# ---- movement
@block(1.5, ALL)
def concat(g):
    x = g.any()
    axis = g.below(x.rank)
    parts = [x]
    for _ in range(g.between(1, 3)):
        try:
            parts.append(g.floats(rank=x.rank, where=lambda v: all(
                                      a == b for k, (a, b) in enumerate(zip(v.shape, x.shape))
                                      if k != axis)))
        except Cannot:
            parts.append(act(g, x))
    if g.chance(0.3):
        s = list(x.shape)
        s[axis] = g.between(1, 3)
        parts.insert(g.below(len(parts) + 1), g.weight(*s, scale=0.5))
    s = list(x.shape)
    s[axis] = sum(p.shape[axis] for p in parts)
    y = g.node("Concat", parts, tuple(s), axis=g.choose(axis, axis - x.rank))
    if y.rank == 4 and axis == 1 and g.chance(0.5):
        maybe_act(g, conv(g, y))


@block(1, ALL)
def split(g):
    x = g.any()
    axis = g.below(x.rank)
    n = x.shape[axis]
    if n < 2:
        raise Cannot
    cut = g.between(1, n - 1)
    sizes = [cut, n - cut] if n - cut < 2 or g.chance(0.5) else [cut, 1, n - cut - 1]
    parts = g.node("Split", [x, g.ints(*sizes)],
                   [x.shape[:axis] + (s,) + x.shape[axis + 1:] for s in sizes], axis=axis)
    if g.chance(0.5):
        back = parts[::-1] if g.chance(0.5) else parts
        g.node("Concat", [act(g, p) if g.chance(0.5) else p for p in back], x.shape, axis=axis)


@block(1.5, ALL)
def cut(g):
    x = g.any()
    starts, ends, axes, steps, shape = [], [], [], [], list(x.shape)
    for axis in sorted(set(g.below(x.rank) for _ in range(2))):
        n = x.shape[axis]
        lo, step = g.below(n), g.choose(1, 1, 2, 3)
        hi = g.between(lo + 1, n)
        if g.chance(0.2):  # backwards
            starts.append(hi - 1), ends.append(lo - 1 if lo else -n - 1), steps.append(-step)
        else:
            starts.append(lo - n if g.chance(0.3) else lo), ends.append(
                2 ** 31 if hi == n and g.chance(0.5) else hi), steps.append(step)
        axes.append(axis - x.rank if g.chance(0.3) else axis)
        shape[axis] = (hi - lo + step - 1) // step
    maybe_act(g, g.node("Slice", [x, g.ints(*starts), g.ints(*ends), g.ints(*axes), g.ints(*steps)],
                        tuple(shape)), 0.4)


@block(1, ALL)
def move(g):
    x = g.any()
    how = g.below(6)
    if how == 0:
        g.transpose(x, *[int(p) for p in g.r.permutation(x.rank)])
    elif how == 1:
        g.reshape(x, *g.choose((x.size,), (1, x.size), (x.shape[0], x.size // x.shape[0]),
                               (x.size // x.shape[-1], x.shape[-1])))
    elif how == 2:
        axis = g.below(x.rank + 1)
        g.node("Unsqueeze", [x, g.ints(axis)], x.shape[:axis] + (1,) + x.shape[axis:])
    elif how == 3:
        ones = [k for k, d in enumerate(x.shape) if d == 1]
        if not ones or x.rank < 2:
            raise Cannot
        axis = g.choose(*ones)
        g.node("Squeeze", [x, g.ints(axis)], x.shape[:axis] + x.shape[axis + 1:])
    elif how == 4:
        axis = g.below(x.rank + 1)
        g.node("Flatten", [x], (int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))),
               axis=axis)
    else:
        wide = (g.between(1, 3),) + tuple(g.between(1, 3) if d == 1 else d for d in x.shape)
        g.node("Expand", [x, g.ints(*wide)], wide)


@block(0.7, ALL)
def tile(g):
    x = g.any()
    n = [g.choose(1, 1, 2, 3) for _ in x.shape]
    g.node("Tile", [x, g.ints(*n)], tuple(a * b for a, b in zip(x.shape, n)))


@block(1, ALL)
def pad(g):
    x = g.any()
    mode = g.choose("constant", "constant", "reflect", "edge")
    lo, hi = ([g.below(min(3, d) if mode == "reflect" else 3) for d in x.shape] for _ in "lh")
    ins = [x, g.ints(*lo, *hi)] + ([g.number(g.choose(0, 0.5, -1))]
                                   if mode == "constant" and g.chance(0.5) else [])
    y = g.node("Pad", ins, tuple(a + d + b for a, d, b in zip(lo, x.shape, hi)), mode=mode)
    if y.rank in (3, 4) and mode == "constant" and g.kind != "float64" and g.chance(0.5):
        conv(g, y)


@block(1, ALL)
def gather(g):
    x = g.any()
    axis = g.below(x.rank)
    n, how = x.shape[axis], g.below(3)
    if how == 0:
        s = tuple(g.between(1, 4) for _ in range(g.below(3)))
        i = (g.const(g.r.integers(-n, n, s).astype(g.choose(*INTS))) if g.parent or g.chance(0.5)
             else g.input(s, g.choose(*INTS), -n, n))
        g.node("Gather", [x, i], x.shape[:axis] + s + x.shape[axis + 1:], axis=axis)
    elif how == 1:
        s = list(x.shape)
        s[axis] = g.between(1, 4)
        g.node("GatherElements", [x, g.const(g.r.integers(-n, n, s))], tuple(s), axis=axis)
    else:
        k = g.between(1, x.rank)
        m = g.between(1, 4)
        i = np.stack([g.r.integers(0, d, m) for d in x.shape[:k]], -1)
        g.node("GatherND", [x, g.const(i)], (m,) + x.shape[k:])


@block(0.8, ("float32", "float64"))
def scatter(g):
    x = g.any()
    how = g.below(2)
    mode = (g.choose("none", "none", "add", "mul", "max") if g.opset >= 18
            else g.choose("none", "add") if g.opset >= 16 else None)
    if how:
        axis = g.below(x.rank)
        k = g.between(1, x.shape[axis])
        s = list(x.shape)
        s[axis] = k
        rest = [d for a, d in enumerate(s) if a != axis]
        i = np.stack([g.r.permutation(x.shape[axis])[:k] for _ in range(int(np.prod(rest)))],
                     0).reshape(rest + [k])
        i = np.moveaxis(i, -1, axis)
        g.node("ScatterElements", [x, g.const(i.astype(np.int64)), g.weight(*s, scale=0.5)],
               x.shape, axis=axis, reduction=mode)
    else:
        m = g.between(1, x.shape[0])
        i = g.r.permutation(x.shape[0])[:m].astype(np.int64)[:, None]
        g.node("ScatterND", [x, g.const(i), g.weight(m, *x.shape[1:], scale=0.5)], x.shape,
               reduction=mode)


@block(0.6)
def embedding(g):
    if g.parent:
        raise Cannot
    v, c = g.between(2, 30), g.choose(1, 4, 7, 8, 16)
    s = (g.choose(1, 2), g.between(1, 9))
    x = g.node("Gather", [g.weight(v, c, scale=1), g.input(s, g.choose(*INTS), 0, v)], s + (c,),
               axis=0, kinds=g.kind)
    if g.chance(0.5):
        g.binary("Add", x, g.weight(s[1], c, scale=0.5))


# ---- integers
def integers(g):
    try:
        if g.chance(0.7):
            return g.pick(lambda v: v.kind in INTS and v.rank)
    except Cannot:
        pass
    if g.parent:
        raise Cannot
    return g.input(tuple(g.between(1, 6) for _ in range(g.between(1, 3))), g.choose(*INTS), -9, 10)


@block(1, ALL)
def integer(g):
    x = integers(g)
    y = g.const(g.r.integers(1, 6, [d if g.chance(0.5) else 1 for d in x.shape]).astype(x.kind))
    op = g.choose("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Equal", "Greater", "Abs", "Neg",
                  "OneHot", "Clip", "ReduceMax", "CumSum", "Cast")
    if op in ("Abs", "Neg"):
        g.unary(op, x)
    elif op in ("Equal", "Greater"):
        g.unary("Cast", g.binary(op, x, y, kinds="bool"), kinds=g.kind, to=TYPE[g.kind])
    elif op == "OneHot":
        if x.kind != "int64" or g.kind != "float32":
            raise Cannot
        g.node("OneHot", [x, g.const(np.int64(7)), g.const(np.array([0, 1], g.kind))],
               x.shape + (7,), kinds=g.kind, axis=-1)
    elif op == "Clip":
        g.node("Clip", [x, g.number(-3, x.kind), g.number(4, x.kind)], x.shape)
    elif op == "ReduceMax":
        reduce(g, "ReduceMax", x, g.below(x.rank))
    elif op == "CumSum":
        g.node("CumSum", [x, g.const(np.int64(0))], x.shape)
    elif op == "Cast":
        v = g.unary("Cast", g.node("Clip", [x, g.number(-9, x.kind), g.number(9, x.kind)], x.shape),
                    kinds=g.kind, to=TYPE[g.kind])
        g.binary("Mul", v, g.number(0.1))
    elif op == "Mul":
        g.binary("Mod", g.binary("Mul", x, y), g.const(np.full([1], 1000, x.kind)))
    else:
        g.binary(op, x, y)


# ---- quantised
def scale_of(g):
    return g.const(np.float32(g.choose(0.02, 0.03, 1 / 64)))


def zero_point(g, kind):
    return g.const(np.array(g.choose(0, 0, 3) if kind == "int8" else g.choose(128, 128, 0, 113),
                            kind))


def quantise(g, x, kind=None):
    kind = kind or g.choose("uint8", "int8")
    s, z = scale_of(g), zero_point(g, kind)
    return g.node("QuantizeLinear", [x, s, z], x.shape, kinds=kind, keep=False), s, z


def fake(g, x):
    """Quantised and back."""
    q, s, z = quantise(g, x)
    return g.node("DequantizeLinear", [q, s, z], q.shape, kinds="float32")


def fake_weight(g, shape, axis):
    """A weight as exporters of QDQ write it: integers and DequantizeLinear, per channel or not."""
    w = g.const(g.r.integers(-127, 128, shape).astype(np.int8))
    fan = np.prod(shape) / shape[axis]
    if g.chance(0.6):
        s = g.const((g.r.uniform(0.5, 1.5, shape[axis]) * fan ** -0.5 / 70).astype(np.float32))
        return g.node("DequantizeLinear", [w, s, g.const(np.zeros(shape[axis], np.int8))], shape,
                      kinds="float32", keep=False, axis=axis)
    return g.node("DequantizeLinear",
                  [w, g.const(np.float32(fan ** -0.5 / 70)), g.const(np.int8(0))], shape,
                  kinds="float32", keep=False)


@block(1.5, F32)
def qdq_conv(g):
    x = fake(g, g.image())
    c, k = g.channels(), g.choose(1, 1, 3, 3, 5)
    cin = x.shape[1]
    groups = g.choose(1, 1, 1, cin)
    c = c if groups == 1 else cin
    w = fake_weight(g, (c, cin // groups, k, k), 0)
    ins = [x, w] + ([g.weight(c, scale=0.3)] if g.chance(0.6) else [])
    y = g.node("Conv", ins, (x.shape[0], c) + x.shape[2:], pads=[k // 2] * 4, kernel_shape=[k, k],
               group=groups)
    y = maybe_act(g, y)
    if g.chance(0.6):
        y = fake(g, y)
    if y.shape == x.shape and g.chance(0.7):
        y = g.binary("Add", x, y)
        if g.chance(0.7):
            fake(g, maybe_act(g, y, 0.3))


@block(1, F32)
def qdq_dense(g):
    x = fake(g, g.any())
    c = g.choose(1, 3, 8, 16, 17)
    y = g.node("MatMul", [x, fake_weight(g, (x.shape[-1], c), 1)], x.shape[:-1] + (c,))
    if g.chance(0.5):
        y = g.binary("Add", y, g.weight(c, scale=0.3))
    if g.chance(0.6):
        fake(g, maybe_act(g, y, 0.4))


@block(0.8, F32)
def dynamic_dense(g):
    """quantize_dynamic's shape: DynamicQuantizeLinear, MatMulInteger, scales multiplied in."""
    x = g.any()
    k, c = x.shape[-1], g.choose(1, 3, 8, 16, 17)
    q, s, z = g.node("DynamicQuantizeLinear", [x], [x.shape, (), ()],
                     kinds=["uint8", "float32", "uint8"], keep=False)
    w = g.const(g.r.integers(-127, 128, (k, c)).astype(np.int8))
    wz = g.const(np.zeros(c, np.int8)) if g.chance(0.5) else g.const(np.int8(0))
    y = g.node("MatMulInteger", [q, w, z, wz], x.shape[:-1] + (c,), kinds="int32", keep=False)
    scale = (g.const((g.r.uniform(0.5, 1.5, c) * k ** -0.5 / 70).astype(np.float32))
             if g.chance(0.5) else g.const(np.float32(k ** -0.5 / 70)))
    y = g.binary("Mul", g.unary("Cast", y, kinds="float32", to=TYPE["float32"]),
                 g.binary("Mul", s, scale, keep=False))
    maybe_act(g, g.binary("Add", y, g.weight(c, scale=0.3)) if g.chance(0.5) else y, 0.4)


@block(0.6, F32)
def linear_ops(g):
    """QLinearConv, QLinearMatMul, ConvInteger: the older quantised operators."""
    how = g.below(3)
    if how == 0:
        x = g.any()
        a, s, z = quantise(g, x)
        c = g.choose(1, 5, 8)
        b = g.const(g.r.integers(-127, 128, (x.shape[-1], c)).astype(np.int8))
        ys, yz = g.const(np.float32(0.03)), zero_point(g, a.kind)
        y = g.node("QLinearMatMul", [a, s, z, b, g.const(np.float32(x.shape[-1] ** -0.5 / 70)),
                                     g.const(np.int8(0)), ys, yz], x.shape[:-1] + (c,),
                   kinds=a.kind, keep=False)
        g.node("DequantizeLinear", [y, ys, yz], y.shape, kinds="float32")
        return
    x = g.image()
    q, s, z = quantise(g, x, "uint8")
    c, k, cin = g.between(1, 9), g.choose(1, 3), x.shape[1]
    shape = (x.shape[0], c) + x.shape[2:]
    if how == 1:
        w = g.const(g.r.integers(-127, 128, (c, cin, k, k)).astype(np.int8))
        ws = g.const((g.r.uniform(0.5, 1.5, c) * (cin * k * k) ** -0.5 / 70).astype(np.float32))
        ys, yz = g.const(np.float32(0.03)), zero_point(g, "uint8")
        ins = ([q, s, z, w, ws, g.const(np.zeros(c, np.int8)), ys, yz]
               + ([g.const(g.r.integers(-500, 500, c).astype(np.int32))] if g.chance(0.5) else []))
        y = g.node("QLinearConv", ins, shape, kinds="uint8", keep=False, pads=[k // 2] * 4)
        g.node("DequantizeLinear", [y, ys, yz], y.shape, kinds="float32")
    else:
        w = g.const(g.r.integers(0, 255, (c, cin, k, k)).astype(np.uint8))
        y = g.node("ConvInteger", [q, w, z, g.const(np.uint8(128))], shape, kinds="int32",
                   keep=False, pads=[k // 2] * 4)
        g.binary("Mul", g.unary("Cast", y, kinds="float32", to=TYPE["float32"]),
                 g.number((cin * k * k) ** -0.5 / 4000))


# ---- control flow
def grow(b, x, n):
    """A few elementwise steps and products of x's shape in a body."""
    y = x
    for _ in range(n):
        how = b.below(4)
        if how == 0:
            y = b.binary(b.choose("Add", "Mul", "Sub"), y, b.weight(*x.shape[-1:], scale=0.5))
        elif how == 1 and x.rank >= 2:
            y = linear(b, y, x.shape[-1])
        else:
            y = act(b, y)
    return bounded(b, y)


@block(0.6, F32)
def branch(g):
    x = g.any()
    if g.chance(0.5) and not g.parent:
        c = g.input((), "bool")
    else:
        m = reduce(g, "ReduceMean", x, *range(x.rank), keep=0)
        c = g.node("Greater", [m, g.number(0)], (), kinds="bool")
    bodies = []
    for _ in range(2):
        b = Graph(0, g)
        y = grow(b, x, b.between(1, 3))
        bodies.append(b.proto([y], b.fresh("branch")))
    g.node("If", [c], x.shape, kinds=g.kind, then_branch=bodies[0], else_branch=bodies[1])


@block(0.6, F32)
def loop(g):
    """A fixed number of trips, a carried value, and what each trip leaves."""
    x = g.any()
    trips = g.between(1, 4)
    b = Graph(0, g)
    step, go, state = b.fresh("i"), b.fresh("go"), b.fresh("s")
    b.ins = [helper.make_tensor_value_info(step, TYPE["int64"], []),
             helper.make_tensor_value_info(go, TYPE["bool"], []),
             helper.make_tensor_value_info(state, TYPE[g.kind], x.shape)]
    s = Value(state, x.shape, g.kind)
    y = grow(b, s, b.between(1, 3))
    on = b.node("Identity", [Value(go, (), "bool")], (), kinds="bool", keep=False)
    left = b.unary(b.choose("Neg", "Abs"), y)
    g.node("Loop", [g.const(np.int64(trips)), g.const(np.bool_(True)), x],
           [x.shape, (trips,) + x.shape], kinds=[g.kind] * 2,
           body=b.proto([on, y, left], b.fresh("body")))


@block(0.6, F32)
def scan(g):
    x = g.rows()
    t, n, c = x.shape
    b = Graph(0, g)
    state, part = b.fresh("s"), b.fresh("x")
    b.ins = [helper.make_tensor_value_info(name, TYPE[g.kind], (n, c)) for name in (state, part)]
    y = b.binary("Add", Value(state, (n, c), g.kind), Value(part, (n, c), g.kind))
    y = grow(b, y, b.between(1, 2))
    left = b.unary(b.choose("Neg", "Abs", "Identity"), y)
    g.node("Scan", [g.weight(n, c, scale=0.5), x], [(n, c), (t, n, c)], kinds=[g.kind] * 2,
           body=b.proto([y, left], b.fresh("body")), num_scan_inputs=1,
           scan_input_directions=[g.below(2)])

assert BLOCKS  # with those of onnx_blocks: all that the runner draws from
