# SPDX-License-Identifier: Apache-2.0
"""Blocks of networks for the graph fuzzer: convolutions and what surrounds them, activations,
residuals, norms, attention, pooling, recurrent cells, quantised layers.

A block is a function of a Graph; it takes values that are there (or makes inputs) and adds nodes.
BLOCKS holds (weight, function, types of floats it is for).
"""
import numpy as np

from onnx_gen import Cannot

BLOCKS = []
F32, HALF, ALL = ("float32",), ("float32", "float16"), ("float32", "float16", "float64")


def block(weight=1.0, kinds=HALF):
    def mark(f):
        BLOCKS.append((weight, f, kinds))
        return f
    return mark


# ---- activations: f(graph, x) gives a value of x's shape
def plain(op, **attrs):
    return lambda g, x: g.unary(op, x, **attrs)


def bounded(g, x):
    return x if x.small else g.node(g.choose("Tanh", "Sigmoid"), [x], x.shape, small=True)


def clip(g, x):
    return g.node("Clip", [x, g.number(-0.7), g.number(g.choose(0.9, 6))], x.shape)


def prelu(g, x):
    slope = g.choose((1,), (x.shape[1],) + (1,) * (x.rank - 2) if x.rank > 1 else (1,))
    return g.node("PRelu", [x, g.const(np.abs(g.r.standard_normal(slope)).astype(g.kind) * 0.3)],
                  x.shape)


def silu(g, x):
    return g.binary("Mul", x, g.unary("Sigmoid", x))


def mish(g, x):
    return g.binary("Mul", x, g.unary("Tanh", g.unary("Softplus", x)))


def gelu(g, x):
    y = g.unary("Erf", g.binary("Div", x, g.number(2 ** 0.5)))
    return g.binary("Mul", g.binary("Mul", x, g.binary("Add", y, g.number(1))), g.number(0.5))


def gelu_tanh(g, x):
    cube = g.binary("Mul", g.binary("Pow", x, g.number(3)), g.number(0.044715))
    y = g.unary("Tanh", g.binary("Mul", g.binary("Add", x, cube), g.number((2 / np.pi) ** 0.5)))
    return g.binary("Mul", g.binary("Mul", x, g.binary("Add", y, g.number(1))), g.number(0.5))


def hard_swish(g, x):
    y = g.node("Clip", [g.binary("Add", x, g.number(3)), g.number(0), g.number(6)], x.shape)
    return g.binary("Mul", x, g.binary("Div", y, g.number(6)))


def relu6(g, x):
    return g.node("Clip", [x, g.number(0), g.number(6)], x.shape)


def root(g, x):
    return g.unary("Sqrt", g.binary("Add", g.unary("Abs", x), g.number(0.01)))


def logarithm(g, x):
    return g.unary("Log", g.binary("Add", g.unary("Abs", x), g.number(0.5)))


def exponent(g, x):
    return g.unary("Exp", bounded(g, x))


def inverse(g, x):
    return g.unary("Reciprocal", g.binary("Add", g.binary("Mul", x, x), g.number(0.5)))


# the last not in f16
ACTS = [plain("Relu"), plain("Relu"), plain("Relu"), plain("LeakyRelu", alpha=0.1),
        plain("Sigmoid"), plain("Tanh"), plain("Elu", alpha=0.8), plain("Selu"),
        plain("HardSigmoid", alpha=1 / 6), plain("Softplus"), plain("Softsign"),
        plain("ThresholdedRelu", alpha=0.3), plain("Erf"), plain("Abs"), plain("Neg"), plain("Sin"),
        plain("Cos"), silu, silu, silu, mish, gelu, gelu, gelu_tanh, hard_swish, relu6, clip, prelu,
        root, logarithm, exponent, inverse, plain("Celu", alpha=1.3)]
SIMPLE = [plain("Relu"), plain("Sigmoid"), plain("Tanh"), plain("Abs"), plain("Neg"), silu,
          gelu_tanh, root, logarithm, exponent, inverse, hard_swish]


def act(g, x):
    if g.opset >= 14 and g.chance(0.05):
        return g.unary("HardSwish", x)
    if g.opset >= 18 and g.kind == "float32" and g.chance(0.04):
        return g.unary("Mish", x)
    if g.opset >= 20 and g.kind == "float32" and g.chance(0.05):
        return g.unary("Gelu", x, approximate=g.choose("none", "tanh"))
    return g.choose(*(SIMPLE if g.kind == "float64" else ACTS[:-1] if g.kind == "float16"
                      else ACTS))(g, x)


def maybe_act(g, x, p=0.6):
    return act(g, x) if g.chance(p) else x


# ---- convolutions
def conv(g, x, cout=None, k=None, same=False, groups=None, bias=None):
    """Any channels, groups, strides, dilations, pads; same: the spatial shape stays."""
    dims, cin = x.rank - 2, x.shape[1]
    groups = groups or g.choose(1, 1, 1, *[d for d in range(1, cin + 1) if cin % d == 0])
    cout = cout or groups * max(1, g.channels() // groups)
    if cout % groups:
        groups = 1
    ks, strides, dilations, pads, out = [], [], [], ([], []), []
    for size in x.shape[2:]:
        kk = k or g.choose(1, 1, 2, 3, 3, 3, 4, 5, 7)
        d = g.choose(1, 1, 1, 2, 3)
        s = 1 if same else g.choose(1, 1, 1, 2, 3)
        span = d * (kk - 1)
        low, high = ((span - span // 2, span // 2) if g.chance(0.3)
                     else (span // 2, span - span // 2))
        if not same:
            low, high = g.choose((low, high), (0, 0), (g.below(4), g.below(4)))
        if size + low + high < span + 1:
            low, high = span // 2, span - span // 2
        ks.append(kk), strides.append(s), dilations.append(d), pads[0].append(low), pads[1].append(
            high)
        out.append((size + low + high - span - 1) // s + 1)
    weights = ([x, g.weight(cout, cin // groups, *ks)]
               + ([g.weight(cout, scale=0.3)] if (g.chance(0.6) if bias is None else bias) else []))
    return g.node("Conv", weights, (x.shape[0], cout) + tuple(out),
                  kernel_shape=ks if g.chance(0.7) else None, strides=strides, dilations=dilations,
                  pads=pads[0] + pads[1], group=groups)


def batch_norm(g, x):
    c = x.shape[1]
    return g.node("BatchNormalization",
                  [x, g.weight(c, scale=0.5), g.weight(c, scale=0.3), g.weight(c, scale=0.3),
                   g.const(g.r.uniform(0.5, 1.5, c).astype(g.kind))], x.shape, epsilon=1e-3)


def maybe_norm(g, x):
    return batch_norm(g, x) if g.chance(0.35) else x


@block(3)
def conv_block(g):
    maybe_act(g, maybe_norm(g, conv(g, g.image(g.choose(1, 2, 2, 2, 3)))))


@block(3)
def residual(g):
    """Convolution, activation and residual sum in every order."""
    x = g.image(g.choose(1, 2, 2, 2))
    y = x
    for _ in range(g.between(1, 2)):
        y = maybe_act(g, maybe_norm(g, conv(g, y, cout=x.shape[1], same=True)))
    if g.chance(0.2):
        y = g.binary("Mul", y, g.weight(x.shape[1], *[1] * (x.rank - 2), scale=0.5))
    y = g.binary(g.choose("Add", "Add", "Add", "Sub", "Mul", "Max"),
                 *((x, y) if g.chance(0.5) else (y, x)))
    y = maybe_act(g, y)
    if g.chance(0.3):
        y = g.binary("Add", y, g.choose(x, conv(g, y, cout=x.shape[1], same=True)))
        maybe_act(g, y)


@block(1.5)
def depthwise(g):
    x = g.image()
    c = x.shape[1]
    y = maybe_act(g, maybe_norm(g, conv(g, x, cout=c * g.between(1, 2), groups=c)))
    y = maybe_act(g, maybe_norm(g, conv(g, y, k=1, same=True, groups=1, cout=c)))
    if y.shape == x.shape:
        g.binary("Add", x, y)


@block(1)
def conv_sum(g):
    """Two convolutions of the same result shape, added; a library may do this in one call."""
    x = g.image()
    c = g.channels()
    a, b = maybe_act(g, conv(g, x, cout=c, same=True),
                     0.4), maybe_act(g, conv(g, x, cout=c, same=True), 0.4)
    maybe_act(g, g.binary("Add", a, b))


@block(1)
def excite(g):
    x = g.image()
    c, m = x.shape[1], g.between(1, 8)
    y = g.node("GlobalAveragePool", [x], x.shape[:2] + (1,) * (x.rank - 2))
    y = conv(g, act(g, conv(g, y, cout=m, k=1, same=True, groups=1)), cout=c, k=1, same=True,
             groups=1)
    g.binary("Mul", x,
             g.unary(g.choose("Sigmoid", "HardSigmoid") if g.kind == "float32" else "Sigmoid", y))


@block(1.5, F32)
def conv_transpose(g):
    x = g.image(g.choose(1, 2, 2))
    cin = x.shape[1]
    groups = g.choose(1, 1, *[d for d in range(1, cin + 1) if cin % d == 0])
    each = max(1, g.between(1, 12) // groups)
    ks, strides, dilations, pads, extra, out = [], [], [], ([], []), [], []
    for size in x.shape[2:]:
        k, s, d = g.between(1, 5), g.between(1, 4), g.choose(1, 1, 2)
        low, high = g.below(k), g.below(k)
        e = g.below(s) if s > 1 else 0
        n = s * (size - 1) + d * (k - 1) + 1 + e - low - high
        if n < 1:
            low = high = 0
            n = s * (size - 1) + d * (k - 1) + 1 + e
        ks.append(k), strides.append(s), dilations.append(d), pads[0].append(
            low), pads[1].append(high), extra.append(e), out.append(n)
    ins = ([x,
            g.weight(cin, each, *ks, scale=(cin * max(1, np.prod(ks) / np.prod(strides))) ** -0.5)]
           + ([g.weight(each * groups, scale=0.3)] if g.chance(0.6) else []))
    y = g.node("ConvTranspose", ins, (x.shape[0], each * groups) + tuple(out), strides=strides,
               dilations=dilations, pads=pads[0] + pads[1], output_padding=extra, group=groups)
    maybe_act(g, maybe_norm(g, y))


@block(1)
def gated(g):
    """WaveNet's gate; the two halves from two convolutions or from one that is split."""
    x = g.image(1)
    c = g.between(1, 9)
    if g.chance(0.5):
        a, b = conv(g, x, cout=c, same=True), conv(g, x, cout=c, same=True)
    else:
        y = conv(g, x, cout=2 * c, same=True)
        a, b = g.node("Split", [y, g.ints(c, c)], [(y.shape[0], c) + y.shape[2:]] * 2, axis=1)
    g.binary("Mul", g.unary(g.choose("Tanh", "Tanh", "Neg"), a), g.unary("Sigmoid", b))


# ---- pooling, resizing
@block(1)
def pool(g):
    x = g.image(g.choose(1, 2, 2))
    ks, strides, pads, out, ceil = [], [], ([], []), [], g.chance(0.2)
    for size in x.shape[2:]:
        k = min(g.between(1, 4), size)
        s, low, high = g.between(1, 3), g.below(k), g.below(k)
        n = (size + low + high - k + (s - 1 if ceil else 0)) // s + 1
        if ceil and (n - 1) * s >= size + low:
            n -= 1
        ks.append(k), strides.append(s), pads[0].append(low), pads[1].append(high), out.append(n)
    op = g.choose("MaxPool", "MaxPool", "AveragePool") if g.kind == "float32" else "MaxPool"
    if op == "AveragePool" and ceil:
        raise Cannot  # what a window beyond the end counts is not told alike by all versions
    more = {"count_include_pad": g.below(2)} if op == "AveragePool" else {}
    g.node(op, [x], x.shape[:2] + tuple(out), kernel_shape=ks, strides=strides,
           pads=pads[0] + pads[1], ceil_mode=int(ceil), **more)


@block(0.7, F32)
def global_pool(g):
    x = g.image(g.choose(1, 2, 3))
    g.node(g.choose("GlobalAveragePool", "GlobalMaxPool"), [x], x.shape[:2] + (1,) * (x.rank - 2))


@block(1, F32)
def resize(g):
    x = g.image()
    mode = g.choose("nearest", "nearest", "linear", "cubic")
    scales = [g.choose(1, 2, 2, 3, 0.5, 1.5) for _ in range(2)]
    out = x.shape[:2] + tuple(int(np.floor(s * d)) for s, d in zip(scales, x.shape[2:]))
    way = (g.choose("asymmetric", "half_pixel") if mode == "nearest"
           else g.choose("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"))
    more = {"nearest_mode": g.choose("floor", "round_prefer_floor")} if mode == "nearest" else {}
    if mode == "nearest" and more["nearest_mode"] != "floor" and any(s == 1.5 for s in scales):
        raise Cannot  # a tie
    whole = any(int(s * d) != s * d for s, d in zip(scales, x.shape[2:]))
    if whole or (way == "align_corners" and 0.5 in scales):
        raise Cannot  # sizes that are not whole: ONNX and ONNX Runtime part
    if g.chance(0.5):
        g.node("Resize", [x, None, g.const(np.array([1, 1] + scales, np.float32))], out, mode=mode,
               coordinate_transformation_mode=way, **more)
    else:
        g.node("Resize", [x, None, None, g.ints(*out)], out, mode=mode,
               coordinate_transformation_mode=way, **more)


@block(0.6)
def depth_space(g):
    x = g.image()
    n, c, h, w = x.shape
    if c % 4 == 0 and g.chance(0.6):
        g.node("DepthToSpace", [x], (n, c // 4, 2 * h, 2 * w), blocksize=2,
               mode=g.choose("DCR", "CRD"))
    elif h % 2 == 0 and w % 2 == 0:
        g.node("SpaceToDepth", [x], (n, 4 * c, h // 2, w // 2), blocksize=2)
    elif g.chance(0.5):
        conv(g, x, cout=4 * g.between(1, 3), same=True, groups=1)


@block(0.5)
def shuffle(g):
    x = g.image()
    n, c, h, w = x.shape
    k = g.choose(*[d for d in range(1, c + 1) if c % d == 0])
    y = g.transpose(g.reshape(x, n, k, c // k, h, w), 0, 2, 1, 3, 4)
    conv(g, g.reshape(y, n, c, h, w))


@block(1.5)
def branches(g):
    """Channels split, joined, shuffled, reversed and cut between convolutions, in numbers that fill
    blocks and that do not."""
    x = g.image(g.choose(1, 2, 2, 2, 3))
    some = lambda: g.choose(8, 10, 16, 20, 24, 29, 32, 48)  # noqa: E731
    parts = [conv(g, x, cout=some(), same=True) for _ in range(g.between(1, 2))]
    for _ in range(g.between(1, 3)):
        y = g.choose(*parts)
        n, c, space = y.shape[0], y.shape[1], y.shape[2:]
        kind = g.below(5)
        if kind == 0 and c > 1:
            cut = g.choose(c // 2, g.between(1, c - 1))
            parts += g.node("Split", [y, g.ints(cut, c - cut)],
                            [(n, s) + space for s in (cut, c - cut)], axis=1)
        elif kind == 1:
            k = g.choose(*[d for d in range(1, c + 1) if c % d == 0])
            parts.append(g.reshape(g.transpose(g.reshape(y, n, k, c // k, *space), 0, 2, 1,
                                               *range(3, 3 + len(space))), n, c, *space))
        elif kind == 2:
            step = g.choose(-1, 2, 3)
            start, end, left = (c - 1, -c - 1, c) if step < 0 else (0, c, (c + step - 1) // step)
            parts.append(g.node("Slice", [y, g.ints(start), g.ints(end), g.ints(1), g.ints(step)],
                                (n, left) + space))
        else:
            few = [g.choose(*parts) for _ in range(g.between(2, 3))]
            parts.append(g.node("Concat", few, (n, sum(p.shape[1] for p in few)) + space, axis=1))
        if g.chance(0.3):
            parts[-1] = maybe_act(g, conv(g, parts[-1], cout=some(), same=True))
    last = parts[-1]
    conv(g, last, cout=some(), same=True)
    if g.chance(0.3):
        act(g, last)


# ---- norms
def norm(g, x, kind=None):
    c = x.shape[-1]
    kind = kind or g.choose("layer", "layer", "rms", "written")
    if kind == "layer" and g.opset >= 17:
        return g.node("LayerNormalization",
                      [x, g.weight(c, scale=0.7), g.weight(c, scale=0.3)][:g.choose(2, 3)], x.shape,
                      axis=-1, epsilon=1e-3)
    if kind == "rms":
        m = reduce(g, "ReduceMean", g.binary("Mul", x, x), -1)
        return g.binary("Mul",
                        g.binary("Div", x, g.unary("Sqrt", g.binary("Add", m, g.number(1e-3)))),
                        g.weight(c, scale=0.7))
    d = g.binary("Sub", x, reduce(g, "ReduceMean", x, -1))
    v = reduce(g, "ReduceMean", g.binary("Pow", d, g.number(2)), -1)
    y = g.binary("Div", d, g.unary("Sqrt", g.binary("Add", v, g.number(1e-3))))
    return g.binary("Add", g.binary("Mul", y, g.weight(c, scale=0.7)), g.weight(c, scale=0.3))


def reduce(g, op, x, *axes, keep=1):
    axes = [a % x.rank for a in axes]
    shape = tuple(1 if k in axes else d for k, d in enumerate(x.shape) if keep or k not in axes)
    if g.opset >= 18 or op == "ReduceSum":
        return g.node(op, [x, g.ints(*axes)], shape, keepdims=keep)
    return g.node(op, [x], shape, axes=axes, keepdims=keep)


@block(1, ALL)
def normalise(g):
    maybe_act(g, norm(g, g.any()), 0.3)


@block(0.7, F32)
def group_norm(g):
    x = g.image(g.choose(1, 2))
    c = x.shape[1]
    k = g.choose(*[d for d in range(1, c + 1) if c % d == 0])
    if g.opset >= 21 and g.chance(0.4):
        y = g.node("GroupNormalization", [x, g.weight(c, scale=0.7), g.weight(c, scale=0.3)],
                   x.shape, num_groups=k, epsilon=1e-3)
    elif g.chance(0.3):
        y = g.node("InstanceNormalization", [x, g.weight(c, scale=0.7), g.weight(c, scale=0.3)],
                   x.shape, epsilon=1e-3)
    else:
        n, rest = x.shape[0], x.size // x.shape[0] // k
        y = g.node("InstanceNormalization", [g.reshape(x, n, k, rest), g.const(np.ones(k, g.kind)),
                                             g.const(np.zeros(k, g.kind))], (n, k, rest),
                   epsilon=1e-3)
        y = g.reshape(y, *x.shape)
        y = g.binary("Add", g.binary("Mul", y, g.weight(c, *[1] * (x.rank - 2), scale=0.7)),
                     g.weight(c, *[1] * (x.rank - 2), scale=0.3))
    maybe_act(g, y, 0.4)


# ---- products
def linear(g, x, cout, bias=True):
    y = g.node("MatMul", [x, g.weight(x.shape[-1], cout, scale=x.shape[-1] ** -0.5)],
               x.shape[:-1] + (cout,))
    return g.binary("Add", *((y, g.weight(cout, scale=0.3)) if g.chance(0.7)
                             else (g.weight(cout, scale=0.3), y))) if bias else y


@block(2, ALL)
def dense(g):
    x = g.any()
    c = g.choose(1, 2, 3, 5, 8, 16, 17, 33)
    if x.rank == 2 and g.chance(0.5):
        ta, tb = (0 if x.shape[0] == 1 else g.choose(0, 0, 1)), g.below(2)
        rows, k = (x.shape[1], x.shape[0]) if ta else x.shape
        ins = [x, g.weight(*((c, k) if tb else (k, c)), scale=k ** -0.5)]
        if g.chance(0.7):
            ins.append(g.weight(*g.choose((c,), (1, c), (rows, c), (rows, 1), (1,)), scale=0.3))
        maybe_act(g, g.node("Gemm", ins, (rows, c), transA=ta, transB=tb,
                            alpha=g.choose(1.0, 1.0, 0.5), beta=g.choose(1.0, 1.0, 0.25)))
        return
    maybe_act(g, linear(g, x, c, g.chance(0.7)))


@block(1, ALL)
def product(g):
    """Of two computed values, with broadcast batches."""
    x = g.any()
    if x.rank < 2:
        raise Cannot
    perm = list(range(x.rank - 2)) + [x.rank - 1, x.rank - 2]
    y = g.transpose(x, *perm)
    if g.chance(0.3) and x.rank > 2:
        y = g.node("Slice", [y, g.ints(0), g.ints(1), g.ints(0)], (1,) + y.shape[1:])
    s = g.node("MatMul", [x, y], x.shape[:-1] + (x.shape[-2],))
    g.binary("Mul", s, g.number(x.shape[-1] ** -0.5))


@block(0.5, ("float32", "float64"))
def einsum(g):
    x = g.rows()
    b, t, c = x.shape
    how = g.below(4)
    if how == 0:
        g.node("Einsum", [x, g.weight(c, 5, scale=c ** -0.5)], (b, t, 5), equation="btc,cd->btd")
    elif how == 1:
        g.node("Einsum", [x, x], (b, t, t), equation="bic,bjc->bij")
    elif how == 2:
        g.node("Einsum", [x, g.weight(t, t, scale=t ** -0.5)], (b, c, t), equation="btc,ts->bcs")
    else:
        g.node("Einsum", [x], (b, c), equation="btc->bc")


def softmax(g, x, axis=-1):
    return g.node(g.choose("Softmax", "Softmax", "Softmax", "LogSoftmax"), [x], x.shape, axis=axis)


@block(1.5, ALL)
def soft(g):
    x = g.any()
    if g.chance(0.5):
        x = g.binary("Mul", x, g.number(g.choose(0.1, 3, 8)))
    softmax(g, x, g.between(-x.rank, x.rank - 1))


@block(2, ALL)
def attention(g):
    x = g.rows()
    b, t, c = x.shape
    h = g.choose(*[d for d in range(1, c + 1) if c % d == 0])
    d = c // h
    y = norm(g, x) if g.chance(0.5) else x
    m, source = t, y
    if g.chance(0.25):
        other = g.rows()
        if other.shape[0] == b:
            source, m = other, other.shape[1]
    heads = lambda v, n: g.transpose(g.reshape(v, b, n, h, d), 0, 2, 1, 3)  # noqa: E731
    if m == t and source is y and g.chance(0.3):  # one product for all three
        q, k, v = (heads(p, t) for p in g.node("Split", [linear(g, y, 3 * c), g.ints(c, c, c)],
                                               [(b, t, c)] * 3, axis=-1))
    else:
        q, k, v = heads(linear(g, y, c), t), heads(linear(g, source, c),
                                                   m), heads(linear(g, source, c), m)
    if g.chance(0.5):
        q = g.binary(g.choose("Mul", "Div"), q, g.number(d ** -0.5 if g.chance(0.5) else d ** 0.5))
    if g.chance(0.2):
        cut = d // 2
        if cut:
            lo, hi = g.node("Split", [q, g.ints(cut, d - cut)],
                            [(b, h, t, cut), (b, h, t, d - cut)], axis=-1)
            q = g.node("Concat", [g.unary("Neg", hi), lo], (b, h, t, d), axis=-1)
    s = g.node("MatMul", [q, g.transpose(k, 0, 1, 3, 2)], (b, h, t, m))
    if g.chance(0.5):
        s = g.binary("Mul", s, g.number(d ** -0.5))
    how = g.below(4)
    if how == 0 and m == t:
        s = g.binary("Add", s, g.const(np.where(np.tril(np.ones((t, t))), 0, -1e4).astype(g.kind)))
    elif how == 1:
        keep = (g.input((b, 1, 1, m), "bool") if not g.parent and g.chance(0.5)
                else g.const(np.arange(m) >= m // 3))
        s = g.node("Where", [keep, s, g.number(-1e4)], s.shape, kinds=g.kind)
    elif how == 2:
        s = g.binary("Add", s, g.weight(1, h, t, m, scale=0.5))
    y = g.node("MatMul", [g.node("Softmax", [s], s.shape, axis=-1), v], (b, h, t, d))
    y = linear(g, g.reshape(g.transpose(y, 0, 2, 1, 3), b, t, c), c)
    if g.chance(0.7):
        y = g.binary("Add", x, y)
    if g.chance(0.4):
        g.binary("Add", y, linear(g, act(g, linear(g, norm(g, y), 2 * c)), c))


@block(0.7)
def tokens(g):
    """An image as a row of patches, or back."""
    x = g.image()
    n, c, h, w = x.shape
    y = g.transpose(g.reshape(x, n, c, h * w), 0, 2, 1)
    if g.chance(0.5):
        y = g.binary("Add", y, g.weight(h * w, c, scale=0.3))
    y = norm(g, y)
    if g.chance(0.5):
        y = linear(g, y, c)
    if g.chance(0.5):
        y = g.reshape(g.transpose(y, 0, 2, 1), n, c, h, w)
        maybe_act(g, g.binary("Add", x, y))


@block(0.5)
def channels_last(g):
    x = g.image()
    y = g.transpose(x, 0, 2, 3, 1)
    y = linear(g, act(g, linear(g, norm(g, y), g.between(1, 20))), x.shape[1])
    g.binary("Add", x, g.transpose(y, 0, 3, 1, 2))


# ---- recurrent
@block(1, F32)
def recurrent(g):
    x = g.rows()
    t, b, c = x.shape
    op, gates = g.choose(("LSTM", 4), ("GRU", 3), ("RNN", 1), ("LSTM", 4))
    h, way = g.choose(1, 3, 4, 8, 9, 16), g.choose("forward", "reverse", "bidirectional")
    n = 2 if way == "bidirectional" else 1
    ins = [x, g.weight(n, gates * h, c, scale=c ** -0.5),
           g.weight(n, gates * h, h, scale=h ** -0.5)]
    if g.chance(0.7):
        ins.append(g.weight(n, 2 * gates * h, scale=0.2))
        if g.chance(0.3):
            ins += [g.const(g.r.integers(1, t + 1, b).astype(np.int32)) if g.chance(0.5) else None,
                    g.weight(n, b, h, scale=0.5)]
            if op == "LSTM":
                ins.append(g.weight(n, b, h, scale=0.5))
    shapes = [(t, n, b, h), (n, b, h)] + ([(n, b, h)] if op == "LSTM" else [])
    y = g.node(op, ins, shapes, hidden_size=h, direction=way,
               linear_before_reset=g.below(2) if op == "GRU" else None)[0]
    if g.chance(0.7):
        y = g.reshape(g.transpose(y, 0, 2, 1, 3), t, b, n * h)
        if g.chance(0.5):
            linear(g, y, g.between(1, 9))
