# SPDX-License-Identifier: Apache-2.0
"""Networks as ONNX models, node by node, and the same as functions of JAX: of many families, for
tests that train them. NETS: name -> function that makes a Net."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

import jax
import jax.numpy as jnp
from jax import lax

ROWS = 64
TYPES = {"int64": TensorProto.INT64, "float32": TensorProto.FLOAT}
NCHW = ("NCHW", "OIHW", "NCHW")


class Net:
    """A graph as it grows. w: what is trained; c: other constants; fixed: weights that are not
    (statistics); rows: inputs by name; label: what the loss compares with, None: nothing."""

    def __init__(self, seed):
        self.r = np.random.RandomState(seed)
        self.nodes, self.w, self.c, self.steps = [], {}, {}, []
        self.fixed, self.rows, self.label, self.words = [], {}, None, []
        self.opset, self.rank = 18, 2

    def normal(self, *shape, scale=None):
        fan = np.prod(shape[1:]) if len(shape) > 2 else shape[0]
        return (self.r.randn(*shape) * (scale or np.sqrt(2 / fan))).astype(np.float32)

    def weight(self, value, name=None):
        name = name or "w%d" % len(self.w)
        self.w[name] = np.asarray(value, np.float32)
        return name

    def ones(self, *shape):
        return self.weight(np.ones(shape))

    def zeros(self, *shape):
        return self.weight(np.zeros(shape))

    def constant(self, value, dtype=np.int64):
        name = "const%d" % len(self.c)
        self.c[name] = np.asarray(value, dtype)
        return name

    def number(self, value):
        return self.constant(value, np.float32)

    def op(self, op, ins, f, outs=1, **attrs):
        out = ["v%d_%d" % (len(self.steps), k) for k in range(outs)]
        self.nodes.append(helper.make_node(op, ins, out, **attrs))
        self.steps.append((out, ins, f))
        return out[0] if outs == 1 else out

    def apply(self, p, feeds):
        v = {**self.c, **self.w, **p, **feeds}
        for out, ins, f in self.steps:
            y = f(*[v[k] if k else None for k in ins])
            v.update(zip(out, y) if len(out) > 1 else [(out[0], y)])
        return v[self.steps[-1][0][0]]

    def train_on(self, rows, label, loss, twin, words=()):
        self.rows, self.label, self.loss, self.twin = rows, label, loss, twin
        self.words = list(words)
        return self

    def model(self, batch="N", constants=False):
        """constants: weights in Constant nodes."""
        value = helper.make_tensor_value_info
        w = [numpy_helper.from_array(v, k) for k, v in self.w.items()]
        c = [numpy_helper.from_array(v, k) for k, v in self.c.items()]
        front = [helper.make_node("Constant", [], [t.name], value=t) for t in w]
        end = helper.make_node("Identity", [self.steps[-1][0][0]], ["y"])
        dims = [batch] + [None] * (self.rank - 1) if self.rank else []
        g = helper.make_graph(
            (front if constants else []) + self.nodes + [end], "g",
            [value(n, TYPES[str(x.dtype)], [batch, *x.shape[1:]]) for n, x in self.rows.items()],
            [value("y", TensorProto.FLOAT, dims)], c if constants else w + c)
        return helper.make_model(g, opset_imports=[helper.make_opsetid("", self.opset)],
                                 ir_version=10)

    # ---- layers

    def conv(self, x, n, m, k=3, stride=1, group=1, bias=True, pad=None):
        pad = k // 2 if pad is None else pad
        ins = [x, self.weight(self.normal(m, n // group, k, k))]
        if bias:
            ins.append(self.zeros(m))

        def f(x, w, b=None):
            y = lax.conv_general_dilated(x, w, (stride,) * 2, ((pad, pad),) * 2,
                                         dimension_numbers=NCHW, feature_group_count=group)
            return y if b is None else y + b[:, None, None]
        return self.op("Conv", ins, f, kernel_shape=[k] * 2, strides=[stride] * 2,
                       pads=[pad] * 4, group=group)

    def up_conv(self, x, n, m, k=2, stride=2, pad=0, more=0):
        ins = [x, self.weight(self.normal(n, m, k, k)), self.zeros(m)]

        def f(x, w, b):
            w = w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
            edge = (k - 1 - pad, k - 1 - pad + more)
            y = lax.conv_general_dilated(x, w, (1, 1), (edge, edge), lhs_dilation=(stride,) * 2,
                                         dimension_numbers=NCHW)
            return y + b[:, None, None]
        return self.op("ConvTranspose", ins, f, kernel_shape=[k] * 2, strides=[stride] * 2,
                       pads=[pad] * 4, output_padding=[more] * 2)

    def batch_norm(self, x, n):
        scale = [self.ones(n), self.zeros(n)]
        kept = [self.weight(self.normal(n, scale=0.1)), self.weight(1 + self.r.rand(n))]
        self.fixed += kept

        def f(x, g, h, m, v):
            m, s = m[:, None, None], (g * lax.rsqrt(v + 1e-5))[:, None, None]
            return (x - m) * s + h[:, None, None]
        return self.op("BatchNormalization", [x] + scale + kept, f, epsilon=1e-5)

    def relu(self, x):
        return self.op("Relu", [x], jax.nn.relu)

    def tanh(self, x):
        return self.op("Tanh", [x], jnp.tanh)

    def sigmoid(self, x):
        return self.op("Sigmoid", [x], jax.nn.sigmoid)

    def silu(self, x):
        return self.mul(x, self.sigmoid(x))

    def pool(self, x, k=2):
        return self.op("MaxPool", [x], lambda x: lax.reduce_window(
            x, -jnp.inf, lax.max, (1, 1, k, k), (1, 1, k, k), "VALID"),
            kernel_shape=[k] * 2, strides=[k] * 2)

    def everywhere(self, x):
        return self.op("GlobalAveragePool", [x], lambda x: x.mean((2, 3), keepdims=True))

    def flat(self, x):
        return self.op("Flatten", [x], lambda x: x.reshape(len(x), -1))

    def dense(self, x, n, m):
        y = self.op("MatMul", [x, self.weight(self.normal(n, m))], jnp.matmul)
        return self.add(y, self.zeros(m))

    def gemm(self, x, n, m):
        return self.op("Gemm", [x, self.weight(self.normal(m, n, scale=0.3)), self.zeros(m)],
                       lambda x, w, b: x @ w.T + b, transB=1)

    def layer_norm(self, x, n):
        def f(x, g, h):
            m = x.mean(-1, keepdims=True)
            return (x - m) * lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * g + h
        return self.op("LayerNormalization", [x, self.ones(n), self.zeros(n)], f, axis=-1,
                       epsilon=1e-5)

    def add(self, x, y):
        return self.op("Add", [x, y], lambda x, y: x + y)

    def mul(self, x, y):
        return self.op("Mul", [x, y], lambda x, y: x * y)

    def div(self, x, y):
        return self.op("Div", [x, y], lambda x, y: x / y)

    def matmul(self, x, y):
        return self.op("MatMul", [x, y], jnp.matmul)

    def softmax(self, x):
        return self.op("Softmax", [x], lambda x: jax.nn.softmax(x, -1), axis=-1)

    def shape(self, x, dims):
        return self.op("Reshape", [x, self.constant(dims)], lambda x, _: x.reshape(
            [x.shape[k] if d == 0 else d for k, d in enumerate(dims)]))

    def turn(self, x, perm):
        return self.op("Transpose", [x], lambda x: x.transpose(perm), perm=perm)

    def concat(self, xs, axis=1):
        return self.op("Concat", xs, lambda *v: jnp.concatenate(v, axis), axis=axis)

    def rows_of(self, table, ids):
        return self.op("Gather", [self.weight(table), ids], lambda w, k: w[k])

    def mean(self, x, axis):
        return self.op("ReduceMean", [x, self.constant([axis])], lambda x, _: x.mean(axis),
                       keepdims=0)

    def attention(self, q, k, v, n, heads, mask=None):
        split = [0, 0, heads, n // heads]
        q, k, v = [self.turn(self.shape(x, split), [0, 2, 1, 3]) for x in (q, k, v)]
        a = self.div(self.matmul(q, self.turn(k, [0, 1, 3, 2])), self.number(np.sqrt(n / heads)))
        if mask:
            a = self.op("Where", [mask, a, self.number(-1e9)], jnp.where)
        return self.shape(self.turn(self.matmul(self.softmax(a), v), [0, 2, 1, 3]), [0, 0, n])

    def pictures(self, *dims):
        return self.r.randn(ROWS, *dims).astype(np.float32)

    def classes(self, n, *dims):
        return self.r.randint(0, n, (ROWS, *dims))


# ---- losses

def classes_loss(axis=-1):
    def f(y, t):
        p = jax.nn.log_softmax(y, axis)
        return -jnp.take_along_axis(p, jnp.expand_dims(t, axis), axis).mean()
    return f


def bce(y, t):
    return (jnp.maximum(y, 0) - y * t + jnp.log1p(jnp.exp(-jnp.abs(y)))).mean()


def mse(y, t):
    return ((y - t) ** 2).mean()


def mae(y, t):
    return jnp.abs(y - t).mean()


CE = "softmax-cross-entropy"


# ---- pictures

def unet(up):
    """Down, up by a transposed convolution or by Resize, and across: a class for each pixel."""
    g = Net(5)
    g.rank = 4
    a = g.relu(g.conv("x", 3, 8))
    b = g.relu(g.conv(g.pool(a), 8, 16))

    def resized(x, *_):
        n, c, h, w = x.shape
        return (jnp.repeat(jnp.repeat(x, 2, 2), 2, 3) if up == "nearest" else
                jax.image.resize(x, (n, c, 2 * h, 2 * w), "linear"))
    if up == "convolution":
        u = g.up_conv(b, 16, 8)
    else:
        how = {"coordinate_transformation_mode": "half_pixel"} if up == "linear" else {
            "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        u = g.op("Resize", [b, "", g.constant([1, 1, 2, 2], np.float32)], resized, mode=up, **how)
        u = g.conv(u, 16, 8, k=1)
    g.conv(g.relu(g.conv(g.concat([u, a]), 16, 8)), 8, 4, k=1)
    return g.train_on({"x": g.pictures(3, 16, 16)}, g.classes(4, 16, 16), CE, classes_loss(1),
                      ["axis=1"])


def group_norm_resnet():
    g, n = Net(6), 16
    g.opset = 21

    def norm(x):
        def f(x, w, b):
            z = x.reshape(len(x), 4, -1)
            z = (z - z.mean(-1, keepdims=True)) * lax.rsqrt(z.var(-1, keepdims=True) + 1e-5)
            return z.reshape(x.shape) * w[:, None, None] + b[:, None, None]
        return g.op("GroupNormalization", [x, g.ones(n), g.zeros(n)], f, num_groups=4,
                    epsilon=1e-5)
    a = g.relu(norm(g.conv("x", 3, n)))
    for _ in range(2):
        a = g.relu(g.add(a, norm(g.conv(g.relu(norm(g.conv(a, n, n))), n, n))))
    g.dense(g.flat(g.everywhere(a)), n, 5)
    return g.train_on({"x": g.pictures(3, 16, 16)}, g.classes(5), CE, classes_loss())


def mobile():
    """Depthwise convolutions, squeeze and excite, hard activations."""
    g = Net(7)
    g.opset = 17

    def six(x):
        return g.op("Clip", [x, g.number(0), g.number(6)],
                    lambda x, _, __: jnp.minimum(jnp.maximum(x, 0.0), 6.0))
    a = six(g.batch_norm(g.conv("x", 3, 8, stride=2, bias=False), 8))
    for _ in range(2):
        b = six(g.batch_norm(g.conv(a, 8, 16, k=1, bias=False), 16))
        b = g.batch_norm(g.conv(b, 16, 16, group=16, bias=False), 16)
        b = g.op("HardSwish", [b], lambda x: x * jnp.clip(x / 6 + 0.5, 0, 1))
        s = g.conv(g.relu(g.conv(g.everywhere(b), 16, 4, k=1)), 4, 16, k=1)
        s = g.op("HardSigmoid", [s], lambda x: jnp.clip(x / 6 + 0.5, 0, 1), alpha=1 / 6, beta=0.5)
        a = g.add(a, g.batch_norm(g.conv(g.mul(b, s), 16, 8, k=1, bias=False), 8))
    g.gemm(g.flat(g.everywhere(a)), 8, 5)
    return g.train_on({"x": g.pictures(3, 16, 16)}, g.classes(5), CE, classes_loss())


def super_resolution():
    g = Net(8)
    g.rank = 4

    def spread(x):
        n, _, h, w = x.shape
        x = x.reshape(n, 3, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3)
        return x.reshape(n, 3, 2 * h, 2 * w)
    a = g.conv(g.relu(g.conv("x", 3, 16, k=5)), 16, 12)
    g.op("DepthToSpace", [a], spread, blocksize=2, mode="CRD")
    return g.train_on({"x": g.pictures(3, 8, 8)}, g.pictures(3, 16, 16), "mse", mse)


def style():
    """Reflected edges, instance normalisation, a transposed convolution with output padding."""
    g = Net(9)
    g.rank = 4

    def reflected(x, p):
        return g.op("Pad", [x, g.constant([0, 0, p, p, 0, 0, p, p])], lambda x, _: jnp.pad(
            x, ((0, 0), (0, 0), (p, p), (p, p)), mode="reflect"), mode="reflect")

    def norm(x):
        def f(x, w, b):
            z = x - x.mean((2, 3), keepdims=True)
            z = z * lax.rsqrt(x.var((2, 3), keepdims=True) + 1e-5)
            return z * w[:, None, None] + b[:, None, None]
        return g.op("InstanceNormalization", [x, g.ones(8), g.zeros(8)], f, epsilon=1e-5)
    a = g.relu(norm(g.conv(reflected("x", 2), 3, 8, k=5, pad=0)))
    a = g.relu(norm(g.conv(a, 8, 8, stride=2)))
    a = g.relu(norm(g.up_conv(a, 8, 8, k=3, pad=1, more=1)))
    g.tanh(g.conv(reflected(a, 1), 8, 3, pad=0))
    return g.train_on({"x": g.pictures(3, 12, 12)}, np.tanh(g.pictures(3, 12, 12)), "mae", mae)


def autoencoder():
    g = Net(10)
    g.rank = 4
    a = g.relu(g.conv(g.relu(g.conv("x", 1, 8, stride=2)), 8, 4, stride=2))
    g.sigmoid(g.up_conv(g.relu(g.up_conv(a, 4, 8)), 8, 1))
    x = g.r.rand(ROWS, 1, 16, 16).astype(np.float32)
    return g.train_on({"x": x}, x, "mse", mse)


def siamese():
    """Two inputs through the same weights, compared by their angle."""
    g = Net(11)
    w = g.weight(g.normal(2, 1, 3, 3)), g.weight(g.normal(2 * 8 * 8, 16))

    def tower(x):
        x = g.op("Conv", [x, w[0]], lambda x, w: lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=NCHW), kernel_shape=[3, 3], pads=[1] * 4)
        return g.matmul(g.flat(g.tanh(x)), w[1])

    def over(op, x, f):
        return g.op(op, [x, g.constant([1])], lambda x, _: f(x), keepdims=1)

    def size(x):
        return over("ReduceL2", x, lambda x: jnp.sqrt((x * x).sum(1, keepdims=True)))
    a, b = tower("left"), tower("right")
    dot = over("ReduceSum", g.mul(a, b), lambda x: x.sum(1, keepdims=True))
    g.mul(g.div(dot, g.mul(size(a), size(b))), g.number([5]))
    return g.train_on({"left": g.pictures(1, 8, 8), "right": g.pictures(1, 8, 8)},
                      g.classes(2, 1).astype(np.float32), "sigmoid-bce", bce)


def channels_last():
    """As TensorFlow's exporter writes it."""
    g = Net(12)
    a = g.turn(g.relu(g.conv(g.turn("x", [0, 3, 1, 2]), 3, 8)), [0, 2, 3, 1])
    a = g.add(a, g.weight(g.normal(8, scale=0.1)))
    a = g.op("PRelu", [a, g.weight(np.full((1, 1, 8), 0.25))],
             lambda x, s: jnp.where(x >= 0, x, s * x))
    a = g.op("ReduceMean", [a, g.constant([1, 2])], lambda x, _: x.mean((1, 2)), keepdims=0)
    g.dense(a, 8, 4)
    return g.train_on({"x": g.pictures(10, 10, 3)}, g.classes(4), CE, classes_loss())


def volumes():
    g = Net(13)
    w = [g.weight(g.normal(6, 2, 3, 3, 3)), g.zeros(6)]
    a = g.op("Conv", ["x"] + w, lambda x, w, b: lax.conv_general_dilated(
        x, w, (1, 2, 2), ((1, 1),) * 3, dimension_numbers=("NCDHW", "OIDHW", "NCDHW")) +
        b[:, None, None, None], kernel_shape=[3] * 3, strides=[1, 2, 2], pads=[1] * 6)
    a = g.op("AveragePool", [g.relu(a)], lambda x: lax.reduce_window(
        x, 0.0, lax.add, (1, 1, 2, 2, 2), (1, 1, 2, 2, 2), "VALID") / 8, kernel_shape=[2] * 3,
        strides=[2] * 3)
    g.dense(g.flat(a), 6 * 8, 4)
    return g.train_on({"x": g.pictures(2, 4, 8, 8)}, g.classes(4), CE, classes_loss())


def lenet():
    """Of an old opset, with local response normalisation and logarithms at its end."""
    g = Net(14)
    g.opset = 11
    a = g.tanh(g.conv("x", 1, 6, k=5, pad=0))
    a = g.op("AveragePool", [a], lambda x: lax.reduce_window(
        x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4, kernel_shape=[2, 2],
        strides=[2, 2])
    a = g.op("LRN", [a], lambda x: x / (1 + 1e-4 / 3 * sum(
        jnp.pad(x * x, ((0, 0), (1, 1), (0, 0), (0, 0)))[:, k:k + 6] for k in range(3))) ** 0.75,
        size=3)
    a = g.gemm(g.sigmoid(g.gemm(g.flat(a), 6 * 36, 16)), 16, 4)
    g.op("LogSoftmax", [a], lambda x: jax.nn.log_softmax(x, -1), axis=1)
    return g.train_on({"x": g.pictures(1, 16, 16)}, g.classes(4), "nll",
                      lambda y, t: -jnp.take_along_axis(y, t[:, None], 1).mean())


# ---- sequences

def vision_transformer(gelu):
    g, n = Net(15), 32
    g.opset = 20
    p = g.turn(g.shape(g.conv("x", 3, n, k=4, stride=4, pad=0), [0, n, -1]), [0, 2, 1])
    rows = g.op("Gather", [g.op("Shape", ["x"], lambda x: np.array(x.shape)), g.constant([0])],
                lambda s, k: s[np.asarray(k)])
    dims = g.op("Concat", [rows, g.constant([1, n])], lambda x, y: np.concatenate([x, y]), axis=0)
    first = g.op("Expand", [g.weight(g.normal(1, 1, n, scale=0.1)), dims],
                 lambda x, s: jnp.broadcast_to(x, tuple(int(k) for k in s)))
    h = g.add(g.concat([first, p]), g.weight(g.normal(1, 17, n, scale=0.1)))
    for _ in range(2):
        z = g.layer_norm(h, n)
        q, k, v = [g.dense(z, n, n) for _ in range(3)]
        h = g.add(h, g.dense(g.attention(q, k, v, n, 4), n, n))
        z = g.dense(g.layer_norm(h, n), n, 64)
        if gelu:
            z = g.op("Gelu", [z], lambda x: jax.nn.gelu(x, approximate=False))
        else:
            e = g.op("Erf", [g.div(z, g.number(np.sqrt(2)))], lax.erf)
            z = g.mul(g.mul(z, g.add(e, g.number(1))), g.number(0.5))
        h = g.add(h, g.dense(z, 64, n))
    c = g.op("Gather", [g.layer_norm(h, n), g.constant(0)], lambda x, _: x[:, 0], axis=1)
    g.dense(c, n, 5)
    return g.train_on({"x": g.pictures(3, 16, 16)}, g.classes(5), CE, classes_loss())


def decoder():
    """A language model: each place sees those before it."""
    g, n, words, length = Net(16), 16, 11, 8
    g.rank = 3
    h = g.add(g.rows_of(g.normal(words, n, scale=0.5), "x"),
              g.weight(g.normal(length, n, scale=0.1)))
    ones = g.op("ConstantOfShape", [g.constant([length] * 2)], lambda _: jnp.ones([length] * 2),
                value=numpy_helper.from_array(np.ones(1, np.float32)))
    mask = g.op("Cast", [g.op("Trilu", [ones], jnp.tril, upper=0)], lambda x: x > 0,
                to=TensorProto.BOOL)
    qkv = g.dense(g.layer_norm(h, n), n, 3 * n)
    q, k, v = g.op("Split", [qkv], lambda x: tuple(jnp.split(x, 3, -1)), outs=3, axis=-1,
                   num_outputs=3)
    h = g.add(h, g.dense(g.attention(q, k, v, n, 2, mask), n, n))
    h = g.add(h, g.dense(g.silu(g.dense(g.layer_norm(h, n), n, 32)), 32, n))
    g.dense(g.layer_norm(h, n), n, words)
    x = g.classes(words, length)
    return g.train_on({"x": x}, np.roll(x, -1, 1), CE, classes_loss())


def gru(reset_behind):
    g, n, h, words = Net(17), 8, 12, 20
    g.opset = 17
    e = g.turn(g.rows_of(g.normal(words, n, scale=1.0), "x"), [1, 0, 2])

    def f(x, w, r, b):
        w, r, wb, rb = w[0], r[0], b[0][:3 * h], b[0][3 * h:]

        def cell(s, x):
            a, c = x @ w.T + wb, s @ r.T
            z = jax.nn.sigmoid(a[:, :h] + c[:, :h] + rb[:h])
            k = jax.nn.sigmoid(a[:, h:2 * h] + c[:, h:2 * h] + rb[h:2 * h])
            c = (k * (c[:, 2 * h:] + rb[2 * h:]) if reset_behind else
                 (k * s) @ r[2 * h:].T + rb[2 * h:])
            s = (1 - z) * jnp.tanh(a[:, 2 * h:] + c) + z * s
            return s, s
        s, y = lax.scan(cell, jnp.zeros((x.shape[1], h)), x)
        return y[:, None], s[None]
    w = [g.weight(g.normal(1, 3 * h, k, scale=0.3)) for k in (n, h)]
    _, s = g.op("GRU", [e] + w + [g.weight(g.normal(1, 6 * h, scale=0.1))], f, outs=2,
                hidden_size=h, linear_before_reset=int(reset_behind))
    g.dense(g.op("Squeeze", [s, g.constant([0])], lambda x, _: x[0]), h, 3)
    return g.train_on({"x": g.classes(words, 7)}, g.classes(3), CE, classes_loss())


def tagger():
    """A bidirectional LSTM with a class for each place."""
    g, n, h = Net(18), 6, 8
    g.opset, g.rank = 17, 3

    def f(x, w, r, b):
        out = []
        for d in range(2):
            def cell(s, x, d=d):
                z = x @ w[d].T + s[0] @ r[d].T + b[d][:4 * h] + b[d][4 * h:]
                i, o, k, c = jnp.split(z, 4, -1)
                c = jax.nn.sigmoid(k) * s[1] + jax.nn.sigmoid(i) * jnp.tanh(c)
                s = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (s, c), s
            zero = jnp.zeros((x.shape[1], h))
            _, y = lax.scan(cell, (zero, zero), x[::-1] if d else x)
            out.append(y[::-1] if d else y)
        return jnp.stack(out, 1)
    w = [g.weight(g.normal(2, 4 * h, k, scale=0.3)) for k in (n, h)]
    y = g.op("LSTM", [g.turn("x", [1, 0, 2])] + w + [g.weight(g.normal(2, 8 * h, scale=0.1))], f,
             hidden_size=h, direction="bidirectional")
    g.dense(g.shape(g.turn(y, [2, 0, 1, 3]), [0, 0, 2 * h]), 2 * h, 4)
    return g.train_on({"x": g.pictures(9, n)}, g.classes(4, 9), CE, classes_loss())


def waves():
    """Dilated convolutions over what came before, with gates."""
    g = Net(19)
    g.rank = 3

    def conv(x, n, m, k, dilation):
        pads = (dilation * (k - 1), 0)
        return g.op("Conv", [x, g.weight(g.normal(m, n, k)), g.zeros(m)],
                    lambda x, w, b: lax.conv_general_dilated(
                        x, w, (1,), (pads,), rhs_dilation=(dilation,),
                        dimension_numbers=("NCH", "OIH", "NCH")) + b[:, None],
                    kernel_shape=[k], dilations=[dilation], pads=pads)
    h, skip = conv("x", 2, 8, 1, 1), None
    for dilation in (1, 2, 4):
        z = g.mul(g.tanh(conv(h, 8, 8, 2, dilation)), g.sigmoid(conv(h, 8, 8, 2, dilation)))
        k = conv(z, 8, 8, 1, 1)
        skip, h = (g.add(skip, k) if skip else k), g.add(h, conv(z, 8, 8, 1, 1))
    conv(g.relu(skip), 8, 5, 1, 1)
    return g.train_on({"x": g.pictures(2, 20)}, g.classes(5, 20), CE, classes_loss(1), ["axis=1"])


def einsum_attention():
    g = Net(20)

    def product(x, y, how):
        return g.op("Einsum", [x, y], lambda x, y: jnp.einsum(how, x, y), equation=how)
    q, k = [product("x", g.weight(g.normal(8, 2, 4, scale=0.4)), "bsd,dhk->bhsk")
            for _ in range(2)]
    o = product(g.softmax(product(q, k, "bhsk,bhtk->bhst")), "x", "bhst,btd->bsd")
    m = g.op("ReduceMax", [o, g.constant([1])], lambda x, _: x.max(1), keepdims=0)
    g.dense(m, 8, 3)
    return g.train_on({"x": g.pictures(5, 8)}, g.classes(3), CE, classes_loss())


def attention_operator():
    """Attention and RMSNormalization of opset 23."""
    g = Net(21)
    g.opset = 23
    a = g.op("RMSNormalization", [g.dense("x", 8, 16), g.ones(16)], lambda x, s: x * lax.rsqrt(
        (x * x).mean(-1, keepdims=True) + 1e-5) * s, axis=-1, epsilon=1e-5)

    def f(*qkv):
        q, k, v = [x.reshape(*x.shape[:2], 2, 8).transpose(0, 2, 1, 3) for x in qkv]
        o = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / np.sqrt(8), -1) @ v
        return o.transpose(0, 2, 1, 3).reshape(qkv[0].shape)
    o = g.op("Attention", [g.dense(a, 16, 16) for _ in range(3)], f, q_num_heads=2, kv_num_heads=2)
    g.dense(g.mean(o, 1), 16, 3)
    return g.train_on({"x": g.pictures(6, 8)}, g.classes(3), CE, classes_loss())


# ---- tables

def bag():
    """The mean of those rows of a table that a mask names."""
    g = Net(22)
    g.opset = 17
    e = g.rows_of(g.normal(50, 8, scale=1.0), "ids")
    m = g.op("Unsqueeze", ["mask", g.constant([-1])], lambda x, _: x[..., None])
    s = g.op("ReduceSum", [g.mul(e, m), g.constant([1])], lambda x, _: x.sum(1), keepdims=0)
    n = g.op("ReduceSum", ["mask", g.constant([1])], lambda x, _: x.sum(1, keepdims=True),
             keepdims=1)
    g.dense(g.div(s, g.op("Max", [n, g.number([1])], jnp.maximum)), 8, 3)
    return g.train_on({"ids": g.classes(50, 6), "mask": (g.r.rand(ROWS, 6) > 0.3).astype(
        np.float32)}, g.classes(3), CE, classes_loss())


def recommender():
    """Three tables and their products by pairs."""
    g, n = Net(23), 6
    g.opset = 17
    d = g.relu(g.dense("dense", 4, n))
    parts = [g.op("Unsqueeze", [v, g.constant([1])], lambda x, _: x[:, None]) for v in [d] + [
        g.rows_of(g.normal(30, n, scale=0.5), "id%d" % k) for k in range(3)]]
    t = g.concat(parts)
    z = g.shape(g.matmul(t, g.turn(t, [0, 2, 1])), [0, 16])
    below = [4 * i + j for i in range(4) for j in range(i)]
    p = g.op("Gather", [z, g.constant(below)], lambda x, k: x[:, k], axis=1)
    g.dense(g.relu(g.dense(g.concat([d, p]), n + 6, 8)), 8, 1)
    rows = {"dense": g.pictures(4), **{"id%d" % k: g.classes(30) for k in range(3)}}
    return g.train_on(rows, g.classes(2, 1).astype(np.float32), "sigmoid-bce", bce)


def regression(loss, twin):
    g = Net(24)
    g.opset = 13
    a = g.op("Elu", [g.dense("x", 13, 16)], jax.nn.elu)
    a = g.op("LeakyRelu", [g.dense(a, 16, 16)], lambda x: jnp.where(x >= 0, x, 0.01 * x))
    g.dense(a, 16, 1)
    return g.train_on({"x": g.pictures(13)}, g.pictures(1), loss, twin)


def huber(y, t):
    d = jnp.abs(y - t)
    return jnp.where(d <= 1, 0.5 * d * d, d - 0.5).mean()


def quantiles():
    """The model computes its own loss; what looks like a weight of it is named."""
    g = Net(25)
    g.opset, g.rank = 17, 0
    y = g.dense(g.op("Softplus", [g.dense("x", 13, 16)], jax.nn.softplus), 16, 3)
    d = g.op("Sub", ["t", y], lambda x, y: x - y)
    above, below = g.number([0.1, 0.5, 0.9]), g.number([-0.9, -0.5, -0.1])
    a = g.op("Max", [g.mul(d, above), g.mul(d, below)], jnp.maximum)
    g.op("ReduceMean", [a], lambda x: x.mean(), keepdims=0)
    return g.train_on({"x": g.pictures(13), "t": g.pictures(1)}, None, "output", lambda y, _: y,
                      ["trainable=*,!const*"])


NETS = {"U-Net, transposed convolution": lambda: unet("convolution"),
        "U-Net, nearest": lambda: unet("nearest"), "U-Net, linear": lambda: unet("linear"),
        "group normalisation": group_norm_resnet, "depthwise": mobile,
        "super-resolution": super_resolution, "style": style, "autoencoder": autoencoder,
        "siamese": siamese, "channels last": channels_last, "volumes": volumes, "lenet": lenet,
        "vision transformer": lambda: vision_transformer(False),
        "vision transformer, Gelu": lambda: vision_transformer(True), "decoder": decoder,
        "GRU": lambda: gru(False), "GRU, reset behind": lambda: gru(True), "tagger": tagger,
        "waves": waves, "einsum": einsum_attention, "attention operator": attention_operator,
        "bag": bag, "recommender": recommender, "mae": lambda: regression("mae", mae),
        "huber": lambda: regression("huber", huber), "quantiles": quantiles}
