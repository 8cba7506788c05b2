# SPDX-License-Identifier: Apache-2.0
"""Networks of the families that people export, small and with seeded weights: a block of a
diffusion U-Net, a speech encoder and a decoder that generates in a loop, a tagger, a detector with
suppression, quantised and half-precision networks of pictures, a vision transformer, embeddings, a
graph network, a time series network.

    models() gives rows as unseen.models() does"""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

# A value between two steps of a quantisation goes to either: ONNX Runtime's own results differ by
# so much with its fusions and without them.
BOUNDS = {"a quantised network of pictures": 1e-2}
F, I64 = TensorProto.FLOAT, TensorProto.INT64


class Net:
    """Nodes one after the other; a name for each result."""

    def __init__(self, name, seed):
        self.name, self.r = name, np.random.default_rng(seed)
        self.nodes, self.weights, self.ins, self.n = [], [], [], 0

    def input(self, name, shape, kind=F):
        self.ins.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def const(self, value, kind=None):
        self.n += 1
        self.weights.append(numpy_helper.from_array(np.asarray(value, kind), "w%d" % self.n))
        return "w%d" % self.n

    def w(self, *shape, scale=None):
        fan = np.prod(shape[1:]) if len(shape) > 1 else 4
        return self.const(self.r.standard_normal(shape) * (scale or fan ** -0.5), np.float32)

    def __getattr__(self, op):
        def add(*args, outs=1, **attrs):
            self.n += 1
            names = ["t%d_%d" % (self.n, k) for k in range(outs)]
            self.nodes.append(helper.make_node(op, list(args), names, **attrs))
            return names[0] if outs == 1 else names
        return add

    def shape(self, x, *dims):
        return self.Reshape(x, self.const(dims, np.int64))

    def dense(self, x, a, b):
        return self.Add(self.MatMul(x, self.w(a, b, scale=a ** -0.5)), self.w(b))

    def norm(self, x, n):
        return self.LayerNormalization(x, self.w(n), self.w(n), axis=-1)

    def gelu(self, x):
        half = self.Mul(x, self.const(0.5, np.float32))
        e = self.Erf(self.Div(x, self.const(2 ** 0.5, np.float32)))
        return self.Mul(half, self.Add(e, self.const(1, np.float32)))

    def silu(self, x):
        return self.Mul(x, self.Sigmoid(x))

    def attend(self, x, d, heads, other=None, t=None, s=None, causal=False):
        s = s or t
        q, k, v = (self.Transpose(self.shape(self.dense(y, d, d), -1, n, heads, d // heads),
                                  perm=[0, 2, 1, 3])
                   for y, n in ((x, t), (other or x, s), (other or x, s)))
        a = self.MatMul(self.Mul(q, self.const((d // heads) ** -0.5, np.float32)),
                        self.Transpose(k, perm=[0, 1, 3, 2]))
        if causal:
            a = self.Add(a, self.const(np.triu(np.full((t, s), -1e9), 1), np.float32))
        o = self.Transpose(self.MatMul(self.Softmax(a, axis=-1), v), perm=[0, 2, 1, 3])
        return self.dense(self.shape(o, -1, t, d), d, d)

    def block(self, x, d, heads, t, other=None, s=None, causal=False):
        x = self.Add(x, self.attend(self.norm(x, d), d, heads, t=t, causal=causal))
        if other:
            x = self.Add(x, self.attend(self.norm(x, d), d, heads, other, t, s))
        y = self.dense(self.gelu(self.dense(self.norm(x, d), d, 2 * d)), 2 * d, d)
        return self.Add(x, y)

    def row(self, feeds, *outs, opset=18, extra=()):
        infos = [helper.make_tensor_value_info(o, kind, None) for o, kind in outs]
        g = helper.make_graph(self.nodes, self.name.replace(" ", "_"), self.ins, infos,
                              self.weights)
        ids = [helper.make_opsetid("", opset), *(helper.make_opsetid(*e) for e in extra)]
        return self.name, helper.make_model(g, opset_imports=ids, ir_version=9), feeds, None

    def feed(self, *shape):
        return self.r.standard_normal(shape).astype(np.float32)


def group_norm(g, x, groups, c):
    y = g.InstanceNormalization(g.shape(x, 0, groups, -1), g.const(np.ones(groups), np.float32),
                                g.const(np.zeros(groups), np.float32), epsilon=1e-5)
    y = g.Reshape(y, g.Shape(x))
    return g.Add(g.Mul(y, g.w(c, 1, 1)), g.w(c, 1, 1))


def unet():
    g, c = Net("a block of a diffusion U-Net", 1), 16
    x, t = g.input("x", [1, 4, 16, 16]), g.input("t", [1])
    freq = np.exp(-np.log(1e4) * np.arange(8) / 8)
    a = g.Mul(g.shape(t, 1, 1), g.const(freq[None], np.float32))
    e = g.dense(g.silu(g.dense(g.Concat(g.Sin(a), g.Cos(a), axis=-1), 16, 32)), 32, c)
    h = g.Conv(x, g.w(c, 4, 3, 3), pads=[1] * 4)
    skip = h
    h = g.Conv(g.silu(group_norm(g, h, 4, c)), g.w(c, c, 3, 3), pads=[1] * 4)
    h = g.Add(h, g.shape(e, 1, c, 1, 1))
    h = g.Conv(g.silu(group_norm(g, h, 4, c)), g.w(c, c, 3, 3), pads=[1] * 4, strides=[2, 2])
    s = g.Transpose(g.shape(group_norm(g, h, 4, c), 1, c, 64), perm=[0, 2, 1])
    s = g.Transpose(g.attend(s, c, 2, t=64), perm=[0, 2, 1])
    h = g.Add(h, g.shape(s, 1, c, 8, 8))
    h = g.Resize(h, "", g.const([1, 1, 2, 2], np.float32), mode="nearest",
                 coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    h = g.Concat(g.Conv(h, g.w(c, c, 3, 3), pads=[1] * 4), skip, axis=1)
    y = g.Conv(g.silu(group_norm(g, h, 8, 2 * c)), g.w(4, 2 * c, 3, 3), pads=[1] * 4)
    return g.row({"x": g.feed(1, 4, 16, 16), "t": np.array([37], np.float32)}, (y, F))


def speech_encoder():
    g, d = Net("an encoder of speech", 2), 32
    x = g.input("mel", [1, 20, 64])
    h = g.gelu(g.Conv(x, g.w(d, 20, 3), g.w(d), pads=[1, 1]))
    h = g.gelu(g.Conv(h, g.w(d, d, 3), g.w(d), pads=[1, 1], strides=[2]))
    h = g.Add(g.Transpose(h, perm=[0, 2, 1]), g.w(32, d))
    for _ in range(2):
        h = g.block(h, d, 4, 32)
    return g.row({"mel": g.feed(1, 20, 64)}, (g.norm(h, d), F))


def speech_decoder():
    """Six tokens, greedily, in a Loop; If chooses a first step's bias."""
    g, d, vocabulary, steps = Net("a decoder that generates in a loop", 3), 16, 24, 6
    memory = g.input("memory", [1, 8, d])
    table = g.w(vocabulary, d, scale=1)
    b = Net("body", 4)
    b.n = 1000
    h = b.Add(b.Gather(table, "tokens"), b.w(1, steps + 1, d, scale=0.3))
    h = b.block(h, d, 2, steps + 1, memory, 8, causal=True)
    logits = b.MatMul(b.norm(h, d), b.Transpose(table, perm=[1, 0]))
    last = b.Gather(logits, "i", axis=1)
    then = helper.make_graph(
        [helper.make_node("Mul", [last, b.const(0.5, np.float32)], ["chosen_a"])], "then", [],
        [helper.make_tensor_value_info("chosen_a", F, None)])
    other = helper.make_graph([helper.make_node("Identity", [last], ["chosen_b"])], "else", [],
                              [helper.make_tensor_value_info("chosen_b", F, None)])
    first = b.Equal("i", b.const(0, np.int64))
    chosen = b.If(first, then_branch=then, else_branch=other)
    token = b.Cast(b.ArgMax(chosen, axis=-1, keepdims=0), to=I64)
    at = b.Unsqueeze(b.Add("i", b.const(1, np.int64)), b.const([0], np.int64))
    b.nodes.append(helper.make_node(
        "ScatterElements", ["tokens", b.Unsqueeze(at, b.const([0], np.int64)),
                            b.shape(token, 1, 1)], ["tokens_out"], axis=1))
    b.nodes.append(helper.make_node("Identity", ["go"], ["go_out"]))
    b.nodes.append(helper.make_node("Identity", [chosen], ["scores"]))
    body = helper.make_graph(
        b.nodes, "body",
        [helper.make_tensor_value_info("i", I64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("tokens", I64, [1, steps + 1])],
        [helper.make_tensor_value_info("go_out", TensorProto.BOOL, []),
         helper.make_tensor_value_info("tokens_out", I64, [1, steps + 1]),
         helper.make_tensor_value_info("scores", F, None)], b.weights)
    start = g.const([[1] + [0] * steps], np.int64)
    tokens, scores = g.Loop(g.const(steps, np.int64), g.const(True, np.bool_), start, body=body,
                            outs=2)
    return g.row({"memory": g.feed(1, 8, d)}, (tokens, I64), (scores, F))


def tagger():
    g, d = Net("a tagger with LSTMs in both directions", 5), 12
    words = g.input("words", ["B", "T"], I64)
    x = g.Transpose(g.Gather(g.w(50, 10, scale=1), words), perm=[1, 0, 2])
    y, h, _ = g.LSTM(x, g.w(2, 4 * d, 10), g.w(2, 4 * d, d), g.w(2, 8 * d), outs=3,
                     hidden_size=d, direction="bidirectional")
    y = g.Reshape(g.Transpose(y, perm=[2, 0, 1, 3]), g.const([0, 0, -1], np.int64))
    y, h = g.GRU(g.Transpose(y, perm=[1, 0, 2]), g.w(1, 3 * d, 2 * d), g.w(1, 3 * d, d),
                 g.w(1, 6 * d), outs=2, hidden_size=d, linear_before_reset=1)
    s = g.LogSoftmax(g.dense(g.Squeeze(y, g.const([1], np.int64)), d, 7), axis=-1)
    tags = g.ArgMax(s, axis=-1, keepdims=0)
    return g.row({"words": g.r.integers(0, 50, (2, 9))}, (s, F), (tags, I64))


def detector():
    g = Net("a detector of boxes with suppression", 6)
    x = g.input("image", [1, 3, 32, 32])
    h = g.silu(g.Conv(x, g.w(8, 3, 3, 3), pads=[1] * 4, strides=[2, 2]))
    a, b = g.Split(h, axis=1, outs=2, num_outputs=2)
    b = g.silu(g.Conv(b, g.w(4, 4, 3, 3), pads=[1] * 4))
    h = g.Concat(a, b, g.MaxPool(b, kernel_shape=[5, 5], pads=[2] * 4), axis=1)
    h = g.Conv(h, g.w(7, 12, 1, 1), strides=[2, 2])
    h = g.shape(h, 1, 7, 64)
    centre, size, scores = g.Split(h, g.const([2, 2, 3], np.int64), axis=1, outs=3)
    grid = np.stack(np.meshgrid(np.arange(8), np.arange(8)))[None].reshape(1, 2, 64) * 4
    centre = g.Add(g.Mul(g.Sigmoid(centre), g.const(4, np.float32)), g.const(grid, np.float32))
    size = g.Mul(g.Exp(size), g.const(3, np.float32))
    boxes = g.Transpose(g.Concat(centre, size, axis=1), perm=[0, 2, 1])
    scores = g.Sigmoid(scores)
    picked = g.NonMaxSuppression(boxes, scores, g.const(5, np.int64), g.const(0.4, np.float32),
                                 g.const(0.45, np.float32), center_point_box=1)
    kept = g.Gather(g.Squeeze(boxes, g.const([0], np.int64)),
                    g.Gather(picked, g.const(2, np.int64), axis=1))
    best, at = g.TopK(g.ReduceMax(scores, g.const([1], np.int64), keepdims=0),
                      g.const([5], np.int64), outs=2)
    return g.row({"image": g.feed(1, 3, 32, 32)}, (picked, I64), (kept, F), (best, F), (at, I64))


def quantised():
    g = Net("a quantised network of pictures", 7)
    x = g.input("image", ["N", 3, 16, 16])

    def steps(y, scale, kind=np.uint8, zero=128):
        s, z = g.const(scale, np.float32), g.const(zero, kind)
        return g.DequantizeLinear(g.QuantizeLinear(y, s, z), s, z)

    def weight(*shape):
        q = g.const(g.r.integers(-127, 128, shape), np.int8)
        return g.DequantizeLinear(q, g.const(np.full(shape[0], 0.004), np.float32),
                                  g.const(np.zeros(shape[0]), np.int8), axis=0)
    h = steps(x, 0.03)
    h = steps(g.Relu(g.Conv(h, weight(8, 3, 3, 3), g.w(8), pads=[1] * 4)), 0.02, zero=0)
    d = steps(g.Clip(g.Conv(h, weight(8, 1, 3, 3), g.w(8), group=8, pads=[1] * 4),
                     g.const(0, np.float32), g.const(6, np.float32)), 0.02, zero=0)
    h = steps(g.Add(h, d), 0.04, zero=0)
    h = g.Flatten(steps(g.GlobalAveragePool(h), 0.02, zero=0))
    y = g.Gemm(h, weight(5, 8), g.w(5), transB=1)
    return g.row({"image": g.feed(2, 3, 16, 16)}, (y, F))


def halves():
    g = Net("a network of pictures in half precision", 8)
    x = g.input("image", [1, 3, 16, 16], TensorProto.FLOAT16)

    def w(*shape):
        return g.const(g.r.standard_normal(shape) * np.prod(shape[1:]) ** -0.5, np.float16)
    h = g.HardSwish(g.Conv(x, w(8, 3, 3, 3), w(8), pads=[1] * 4, strides=[2, 2]))
    p = g.GlobalAveragePool(h)
    p = g.HardSigmoid(g.Conv(g.Relu(g.Conv(p, w(4, 8, 1, 1))), w(8, 4, 1, 1)), alpha=0.2)
    h = g.PRelu(g.Mul(h, p), w(8, 1, 1))
    h = g.ConvTranspose(h, w(8, 4, 2, 2), strides=[2, 2])
    y = g.Softmax(g.Gemm(g.Flatten(g.AveragePool(h, kernel_shape=[4, 4], strides=[4, 4])),
                         w(64, 6)), axis=-1)
    return g.row({"image": g.feed(1, 3, 16, 16).astype(np.float16)}, (y, TensorProto.FLOAT16))


def vision():
    g, d = Net("a vision transformer of any batch", 9), 24
    x = g.input("image", ["N", 3, 16, 16])
    h = g.Conv(x, g.w(d, 3, 4, 4), strides=[4, 4])
    h = g.Transpose(g.shape(h, 0, d, 16), perm=[0, 2, 1])
    n = g.Slice(g.Shape(x), g.const([0], np.int64), g.const([1], np.int64))
    cls = g.Expand(g.w(1, 1, d), g.Concat(n, g.const([1, d], np.int64), axis=0))
    h = g.Add(g.Concat(cls, h, axis=1), g.w(1, 17, d))
    for _ in range(2):
        h = g.block(h, d, 3, 17)
    y = g.dense(g.Gather(g.norm(h, d), g.const(0, np.int64), axis=1), d, 10)
    return g.row({"image": g.feed(3, 3, 16, 16)}, (y, F))


def sentence():
    g, d = Net("embeddings of sentences", 10), 16
    ids, mask = (g.input(n, ["B", 12], I64) for n in ("ids", "mask"))
    h = g.norm(g.Add(g.Gather(g.w(60, d, scale=1), ids), g.w(1, 12, d)), d)
    h = g.block(h, d, 2, 12)
    m = g.Unsqueeze(g.Cast(mask, to=F), g.const([2], np.int64))
    total = g.ReduceSum(g.Mul(h, m), g.const([1], np.int64), keepdims=0)
    y = g.Div(total, g.Max(g.ReduceSum(m, g.const([1], np.int64), keepdims=0),
                           g.const(1e-9, np.float32)))
    y = g.LpNormalization(y, axis=-1, p=2)
    mask = (np.arange(12) < np.array([[12], [5]])).astype(np.int64)
    return g.row({"ids": g.r.integers(0, 60, (2, 12)), "mask": mask}, (y, F))


def graph():
    g = Net("a network over a graph's edges", 11)
    x, edges = g.input("x", [9, 6]), g.input("edges", [2, 20], I64)
    src, to = (g.Gather(edges, g.const(k, np.int64)) for k in (0, 1))
    for a, b in ((6, 8), (8, 3)):
        h = g.dense(x, a, b)
        zero = g.Mul(h, g.const(0, np.float32))
        gone = g.ScatterND(zero, g.Unsqueeze(to, g.const([1], np.int64)), g.Gather(h, src),
                           reduction="add")
        x = g.LeakyRelu(g.Add(h, gone), alpha=0.2)
    return g.row({"x": g.feed(9, 6), "edges": g.r.integers(0, 9, (2, 20))}, (x, F))


def series():
    g = Net("a network of a time series", 12)
    x = g.input("x", ["B", 2, 48])
    h = x
    for k, c in ((1, 2), (2, 8), (4, 8)):
        y = g.Pad(h, g.const([0, 0, 2 * k, 0, 0, 0], np.int64))
        y = g.Mul(g.Tanh(g.Conv(y, g.w(8, c, 3), dilations=[k])),
                  g.Sigmoid(g.Conv(y, g.w(8, c, 3), dilations=[k])))
        h = y if c != 8 else g.Add(h, y)
    trend = g.CumSum(h, g.const(2, np.int64))
    q = g.Concat(g.ReduceMean(h, g.const([2], np.int64), keepdims=0),
                 g.ReduceL2(trend, g.const([2], np.int64), keepdims=0),
                 g.ReduceLogSumExp(h, g.const([2], np.int64), keepdims=0), axis=1)
    return g.row({"x": g.feed(2, 2, 48)}, (g.dense(q, 24, 4), F), (trend, F))


def models():
    for make in (unet, speech_encoder, speech_decoder, tagger, detector, quantised, halves, vision,
                 sentence, graph, series):
        yield make()
