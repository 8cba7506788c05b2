# SPDX-License-Identifier: Apache-2.0
"""The generated networks themselves: each function adds one network to a builder.Net. A function's
attributes: kinds = formats it is made in, opset."""
import numpy as np
from onnx import TensorProto

I64 = TensorProto.INT64
ALL = []


def network(kinds=("f32", "f16", "bf16", "qdq", "dyn"), opset=17):
    def mark(f):
        f.kinds, f.opset = kinds, opset
        ALL.append(f)
        return f
    return mark


@network()
def mlp(n):
    x, c = n.input("x", [1, 64]), 64
    for k in n.pick((256, 256, 128), (32, 16)):
        x, c = n.op("Relu", [n.linear(x, c, k, gain=1.4)]), k
    n.output(n.op("Softmax", [n.linear(x, c, 10)], axis=-1), "y")


def rotary(n, x, d, cos, sin):
    """x: [b, h, t, d]; cos, sin: [t, d]"""
    a = n.op("Slice", [x, n.ints(0), n.ints(d // 2), n.ints(3)])
    b = n.op("Slice", [x, n.ints(d // 2), n.ints(d), n.ints(3)])
    turned = n.op("Concat", [n.op("Neg", [b]), a], axis=-1)
    return n.op("Add", [n.op("Mul", [x, cos]), n.op("Mul", [turned, sin])])


def angles(n, positions, d, length=512):
    t = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)[None]
    both = np.concatenate([t, t], -1)
    return [n.op("Gather", [n.floats(f(both)), positions], axis=0) for f in (np.cos, np.sin)]


def llama(n, t, past):
    """Blocks of a decoder with rotary positions, RMS norms and a gated MLP; with past > 0 a step
    over a key-value cache."""
    layers, c, h, vocab = n.pick((4, 256, 8, 2048), (1, 32, 4, 64))
    d = c // h
    ids = n.input("ids", [1, t], "ids %d" % vocab, I64)
    where = n.input("positions", [t], "value %d" % past if t == 1 else "steps", I64)
    cos, sin = angles(n, where, d)
    x = n.op("Gather", [n.normal(vocab, c, scale=1), ids], axis=0)
    mask = n.floats(np.where(np.tril(np.ones((t, t))), 0, -1e4)) if t > 1 else None
    for layer in range(layers):
        y = n.rms_norm(x, c)
        q, k, v = (n.heads(n.linear(y, c, c, bias=False), 1, t, h, d) for _ in "qkv")
        q, k = rotary(n, q, d, cos, sin), rotary(n, k, d, cos, sin)
        if past:
            k, v = (n.op("Concat", [n.input("past_%s_%d" % (s, layer), [1, h, past, d]), a], axis=2)
                    for s, a in (("k", k), ("v", v)))
            n.output(k, "present_k_%d" % layer)
            n.output(v, "present_v_%d" % layer)
        x = n.op("Add", [x, n.linear(n.attend(q, k, v, d, 1, t, h, mask), c, c, bias=False)])
        y = n.rms_norm(x, c)
        y = n.op("Mul",
                 [n.silu(n.linear(y, c, 3 * c, bias=False)), n.linear(y, c, 3 * c, bias=False)])
        x = n.op("Add", [x, n.linear(y, 3 * c, c, bias=False)])
    n.output(n.linear(n.rms_norm(x, c), c, vocab, bias=False), "logits")


@network()
def decoder_kv(n):
    llama(n, 1, n.pick(63, 7))


@network(("f32", "f16", "bf16", "dyn"))
def decoder_prefill(n):
    llama(n, n.pick(32, 5), 0)


@network()
def decoder_fixed(n):
    """A cache of fixed length: the step's key and value are scattered to their place, later places
    masked."""
    layers, c, h, length = n.pick((4, 256, 8, 128), (1, 32, 4, 8))
    d = c // h
    x, at = n.input("x", [1, 1, c]), n.input("at", [1], "value 5", I64)
    late = n.op("Greater", [n.const(np.arange(length)), at])
    mask = n.op("Where", [late, n.floats(-1e4), n.floats(0)])
    for layer in range(layers):
        y = n.layer_norm(x, c)
        q, k, v = (n.heads(n.linear(y, c, c), 1, 1, h, d) for _ in "qkv")
        index = n.op("Expand", [at, n.ints(1, h, 1, d)])
        k, v = (n.op("ScatterElements",
                     [n.input("cache_%s_%d" % (s, layer), [1, h, length, d]), index, a], axis=2)
                for s, a in (("k", k), ("v", v)))
        n.output(k, "new_k_%d" % layer)
        n.output(v, "new_v_%d" % layer)
        x = n.op("Add", [x, n.linear(n.attend(q, k, v, d, 1, 1, h, mask), c, c)])
        x = n.op("Add",
                 [x, n.linear(n.gelu_tanh(n.linear(n.layer_norm(x, c), c, 4 * c)), 4 * c, c)])
    n.output(x, "y")


@network()
def vit(n):
    size, patch, c, h, layers = n.pick((96, 16, 192, 3, 6), (16, 8, 16, 2, 1))
    tokens = (size // patch) ** 2
    x = n.conv(n.input("image", [1, 3, size, size]), 3, c, patch, stride=patch, pad=0)
    x = n.op("Transpose", [n.op("Reshape", [x, n.ints(1, c, tokens)])], perm=[0, 2, 1])
    x = n.op("Concat", [n.normal(1, 1, c, scale=1), x], axis=1)
    x = n.op("Add", [x, n.normal(1, tokens + 1, c, scale=0.2)])
    for _ in range(layers):
        x = n.block(x, c, h, 1, tokens + 1)
    x = n.op("Gather", [n.layer_norm(x, c), n.const(np.int64(0))], axis=1)
    n.output(n.linear(x, c, n.pick(100, 10)), "y")


@network()
def swin(n):
    """Shifted windows with a relative bias on a square map."""
    size, w, c, h, layers = n.pick((28, 7, 96, 3, 4), (8, 4, 16, 2, 2))
    windows, tokens = (size // w) ** 2, w * w
    x = n.op("Transpose",
             [n.conv(n.input("image", [1, 3, 4 * size, 4 * size]), 3, c, 4, stride=4, pad=0)],
             perm=[0, 2, 3, 1])

    def roll(v, by):
        for axis in (1, 2):
            a, b = n.op("Slice", [v, n.ints(by), n.ints(2 ** 31), n.ints(axis)]), n.op(
                "Slice", [v, n.ints(0), n.ints(by), n.ints(axis)])
            v = n.op("Concat", [a, b], axis=axis)
        return v
    for layer in range(layers):
        y = n.layer_norm(x, c)
        y = roll(y, w // 2) if layer % 2 else y
        y = n.op("Transpose", [n.op("Reshape", [y, n.ints(1, size // w, w, size // w, w, c)])],
                 perm=[0, 1, 3, 2, 4, 5])
        y = n.op("Reshape", [y, n.ints(windows, tokens, c)])
        y = n.attention(y, c, h, windows, tokens, bias=n.normal(1, h, tokens, tokens, scale=0.5))
        y = n.op("Transpose", [n.op("Reshape", [y, n.ints(1, size // w, size // w, w, w, c)])],
                 perm=[0, 1, 3, 2, 4, 5])
        y = n.op("Reshape", [y, n.ints(1, size, size, c)])
        x = n.op("Add", [x, roll(y, size - w // 2) if layer % 2 else y])
        x = n.op("Add", [x, n.linear(n.gelu(n.linear(n.layer_norm(x, c), c, 4 * c)), 4 * c, c)])
    n.output(n.reduce("ReduceMean", x, 1, 2, keep=0), "y")


@network()
def convnext(n):
    size, widths = n.pick((96, (48, 96, 192)), (32, (8, 16)))
    x, c = n.input("image", [1, 3, size, size]), 3

    def norm(v, width):  # over channels, as the framework does it: there and back
        v = n.layer_norm(n.op("Transpose", [v], perm=[0, 2, 3, 1]), width)
        return n.op("Transpose", [v], perm=[0, 3, 1, 2])
    for stage, width in enumerate(widths):
        k = 2 if stage else 4
        x = n.conv(norm(x, c) if stage else x, c, width, k, stride=k, pad=0)
        c = width
        for _ in range(2):
            y = n.op("Transpose", [n.conv(x, c, c, 7, groups=c)], perm=[0, 2, 3, 1])
            y = n.linear(n.gelu(n.linear(n.layer_norm(y, c), c, 4 * c)), 4 * c, c)
            y = n.op("Transpose", [n.op("Mul", [y, n.normal(c, scale=0.5)])], perm=[0, 3, 1, 2])
            x = n.op("Add", [x, y])
    n.output(n.op("GlobalAveragePool", [x]), "y")


@network()
def mobilevit(n):
    size, c, h = n.pick((64, 64, 4), (16, 16, 2))
    x = n.op("HardSwish", [n.batch_norm(n.conv(n.input("image", [1, 3, size, size]), 3, 16, 3,
                                               stride=2, bias=False), 16)])
    size //= 2
    y = n.op("HardSwish", [n.batch_norm(n.conv(x, 16, 64, 1, bias=False), 64)])
    y = n.op("HardSwish", [n.batch_norm(n.conv(y, 64, 64, 3, groups=64, bias=False), 64)])
    s = n.op("Relu", [n.conv(n.op("GlobalAveragePool", [y]), 64, 16, 1)])
    y = n.op("Mul", [y, n.op("HardSigmoid", [n.conv(s, 16, 64, 1)], alpha=1 / 6)])
    x = n.op("Add", [x, n.batch_norm(n.conv(y, 64, 16, 1, bias=False), 16)])
    y = n.conv(n.silu(n.conv(x, 16, 16, 3)), 16, c, 1)
    # patches of 2x2: tokens of the same place in each patch attend to one another
    p, tokens = 4, size * size // 4
    y = n.op("Transpose", [n.op("Reshape", [y, n.ints(c * size // 2, 2, size // 2, 2)])],
             perm=[0, 2, 1, 3])
    y = n.op("Transpose", [n.op("Reshape", [y, n.ints(1, c, tokens, p)])], perm=[0, 3, 2, 1])
    y = n.op("Reshape", [y, n.ints(p, tokens, c)])
    for _ in range(2):
        y = n.block(y, c, h, p, tokens, act=n.silu)
    y = n.op("Transpose", [n.op("Reshape", [n.layer_norm(y, c), n.ints(1, p, tokens, c)])],
             perm=[0, 3, 2, 1])
    y = n.op("Transpose", [n.op("Reshape", [y, n.ints(c * size // 2, size // 2, 2, 2)])],
             perm=[0, 2, 1, 3])
    y = n.silu(n.conv(n.op("Reshape", [y, n.ints(1, c, size, size)]), c, 16, 1))
    n.output(n.conv(n.op("Concat", [x, y], axis=1), 32, 16, 3), "y")


def c2f(n, x, cin, cout, repeats, shortcut=True):
    """YOLOv8's block: split, bottlenecks, everything concatenated."""
    half = cout // 2
    x = n.silu(n.conv(x, cin, cout, 1))
    a, b = n.op("Split", [x, n.ints(half, half)], n_out=2, axis=1)
    parts = [a, b]
    for _ in range(repeats):
        y = n.silu(n.conv(n.silu(n.conv(parts[-1], half, half, 3)), half, half, 3))
        parts.append(n.op("Add", [parts[-1], y]) if shortcut else y)
    return n.silu(n.conv(n.op("Concat", parts, axis=1), half * len(parts), cout, 1))


def larger(n, x, mode="nearest"):
    way = ({"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
           if mode == "nearest" else {"coordinate_transformation_mode": "half_pixel"})
    return n.op("Resize", [x, "", n.const(np.array([1, 1, 2, 2], np.float32))], mode=mode, **way)


@network()
def yolo_neck(n):
    size, c = n.pick((160, 16), (32, 4))
    x = n.silu(n.conv(n.input("image", [1, 3, size, size]), 3, c, 3, stride=2))
    maps = []
    for k in range(3):
        x = c2f(n, n.silu(n.conv(x, c, 2 * c, 3, stride=2)), 2 * c, 2 * c, n.pick(2, 1))
        c *= 2
        maps.append((x, c))
    pooled = [n.silu(n.conv(x, c, c // 2, 1))]
    for _ in range(3):
        pooled.append(n.op("MaxPool", [pooled[-1]], kernel_shape=[5, 5], strides=[1, 1],
                           pads=[2] * 4))
    x = n.silu(n.conv(n.op("Concat", pooled, axis=1), 2 * c, c, 1))
    for y, cy in maps[1::-1]:
        x, c = c2f(n, n.op("Concat", [larger(n, x), y], axis=1), c + cy, cy, 1, False), cy
    n.output(x, "features")
    box = n.op("Reshape", [n.conv(x, c, 4 * 16, 3), n.ints(1, 4, 16, -1)])
    box = n.op("Softmax", [n.op("Transpose", [box], perm=[0, 2, 1, 3])], axis=1)
    n.output(n.conv(box, 16, 1, 1, bias=False), "distances")
    n.output(n.op("Sigmoid", [n.conv(x, c, n.pick(20, 5), 3)]), "scores")


@network()
def unet(n):
    size, c = n.pick((96, 16), (16, 4))
    x, cin, kept = n.input("image", [1, 1, size, size]), 1, []

    def twice(v, a, b):
        for k in (a, b):
            v = n.op("Relu", [n.batch_norm(n.conv(v, k, b, 3, bias=False), b)])
        return v
    for k in range(3):
        x = twice(x, cin, c << k)
        kept.append((x, c << k))
        x, cin = n.op("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2]), c << k
    x, cin = twice(x, cin, c << 3), c << 3
    for y, cy in kept[::-1]:
        x = twice(n.op("Concat", [n.deconv(x, cin, cy, 2, 2), y], axis=1), 2 * cy, cy)
        cin = cy
    n.output(n.op("Sigmoid", [n.conv(x, cin, 1, 1)]), "mask")


def res_block(n, x, cin, c, shape, t, tc):
    """A diffusion model's: group norm, SiLU, convolution, time embedding."""
    y = n.conv(n.silu(n.group_norm(x, cin, 8, [shape[0], cin] + shape[2:])), cin, c, 3)
    y = n.op("Add", [y, n.op("Reshape", [n.linear(n.silu(t), tc, c), n.ints(1, c, 1, 1)])])
    y = n.conv(n.silu(n.group_norm(y, c, 8, shape)), c, c, 3)
    return n.op("Add", [n.conv(x, cin, c, 1) if cin != c else x, y])


@network()
def diffusion(n):
    size, c, cc, m = n.pick((32, 64, 96, 16), (8, 16, 12, 4))
    x, steps = n.input("latent", [1, 4, size, size]), n.input("t", [1], "value 0.37")
    text = n.input("text", [1, m, cc])
    f = n.floats(1000.0 * 10000.0 ** (-np.arange(16) / 16) / 16)
    wave = n.op("Mul", [n.op("Reshape", [steps, n.ints(1, 1)]), f])
    t = n.op("Concat", [n.op("Cos", [wave]), n.op("Sin", [wave])], axis=1)
    t = n.linear(n.silu(n.linear(t, 32, 4 * c)), 4 * c, 4 * c)
    x, tokens = n.conv(x, 4, c, 3), size * size // 4
    x = res_block(n, x, c, c, [1, c, size, size], t, 4 * c)
    x = n.conv(x, c, 2 * c, 3, stride=2)
    shape = [1, 2 * c, size // 2, size // 2]
    x = res_block(n, x, 2 * c, 2 * c, shape, t, 4 * c)
    y = n.op("Transpose",
             [n.op("Reshape", [n.group_norm(x, 2 * c, 8, shape), n.ints(1, 2 * c, tokens)])],
             perm=[0, 2, 1])
    y = n.op("Add", [y, n.attention(n.layer_norm(y, 2 * c), 2 * c, 4, 1, tokens)])
    y = n.op("Add", [y, n.attention(n.layer_norm(y, 2 * c), 2 * c, 4, 1, tokens, text, cc, m)])
    a, b = n.op("Split", [n.linear(n.layer_norm(y, 2 * c), 2 * c, 8 * c), n.ints(4 * c, 4 * c)],
                n_out=2, axis=-1)
    y = n.op("Add", [y, n.linear(n.op("Mul", [a, n.gelu(b)]), 4 * c, 2 * c)])
    x = n.op("Add", [x, n.op("Reshape", [n.op("Transpose", [y], perm=[0, 2, 1]), n.ints(*shape)])])
    x = n.conv(larger(n, x), 2 * c, c, 3)
    n.output(n.conv(n.silu(n.group_norm(x, c, 8, [1, c, size, size])), c, 4, 3), "noise")


@network()
def gan(n):
    c = n.pick(128, 16)
    x = n.op("Reshape", [n.linear(n.input("z", [1, 64]), 64, c * 16), n.ints(1, c, 4, 4)])
    for _ in range(n.pick(3, 2)):
        x = n.op("Relu", [n.batch_norm(n.deconv(x, c, c // 2, 4, 2, 1), c // 2)])
        c //= 2
    n.output(n.op("Tanh", [n.deconv(x, c, 3, 4, 2, 1)]), "image")


@network()
def vocoder(n):
    """HiFi-GAN's shape: 1-D transposed convolutions with long kernels, dilated residual blocks,
    leaky ReLU."""
    c, t = n.pick((128, 40), (16, 8))
    x = n.conv(n.input("mel", [1, 80, t]), 80, c, 7, dims=1)
    for k, s in ((16, 8), (16, 8), (4, 2)):
        x = n.deconv(n.op("LeakyRelu", [x], alpha=0.1), c, c // 2, k, s, (k - s) // 2, dims=1)
        c //= 2
        for d in (1, 3):
            y = n.conv(n.op("LeakyRelu", [x], alpha=0.1), c, c, 3, dilation=d, dims=1)
            x = n.op("Add",
                     [x, n.conv(n.op("LeakyRelu", [y], alpha=0.1), c, c, 3, dims=1, gain=0.5)])
    n.output(n.op("Tanh", [n.conv(n.op("LeakyRelu", [x], alpha=0.01), c, 1, 7, dims=1)]), "wave")


@network()
def srnet(n):
    size, c = n.pick((48, 32), (12, 8))
    x = n.op("Relu", [n.conv(n.input("image", [1, 3, size, size], "unit"), 3, c, 5)])
    y = x
    for _ in range(n.pick(4, 1)):
        y = n.op("Add",
                 [y, n.conv(n.op("PRelu", [n.conv(y, c, c, 3), n.floats(np.full((c, 1, 1), 0.2))]),
                            c, c, 3, gain=0.5)])
    y = n.op("DepthToSpace", [n.conv(n.op("Add", [x, y]), c, 12, 3)], blocksize=2, mode="CRD")
    n.output(n.op("Clip", [y, n.floats(0), n.floats(1)]), "image2")


@network()
def wavenet(n):
    c, t, layers = n.pick((48, 800, 8), (6, 40, 3))
    x, total = n.conv(n.input("audio", [1, 1, t]), 1, c, 1, pad=0, dims=1), None
    for k in range(layers):
        d = 1 << k % 8
        a, b = (n.conv(x, c, c, 2, pad=[d, 0], dilation=d, dims=1) for _ in "ab")
        y = n.op("Mul", [n.op("Tanh", [a]), n.op("Sigmoid", [b])])
        skip = n.conv(y, c, c, 1, pad=0, dims=1)
        total = n.op("Add", [total, skip]) if total else skip
        x = n.op("Add", [x, n.conv(y, c, c, 1, pad=0, dims=1)])
    y = n.op("Relu", [n.conv(n.op("Relu", [total]), c, c, 1, pad=0, dims=1)])
    n.output(n.conv(y, c, 64, 1, pad=0, dims=1), "logits")


@network()
def tcn(n):
    c, t = n.pick((64, 400), (7, 30))
    x, cin = n.input("x", [1, 12, t]), 12
    for k in range(n.pick(6, 2)):
        d = 1 << k
        y = n.op("Relu",
                 [n.batch_norm(n.conv(x, cin, c, 3, pad=[2 * d, 0], dilation=d, dims=1), c)])
        y = n.op("Relu", [n.batch_norm(n.conv(y, c, c, 3, pad=[2 * d, 0], dilation=d, dims=1), c)])
        x = n.op("Relu", [n.op("Add", [n.conv(x, cin, c, 1, pad=0, dims=1) if cin != c else x, y])])
        cin = c
    n.output(n.reduce("ReduceMax", x, 2, keep=0), "y")


def recurrent(n, kind, gates, layers, t, cin, c, both=False):
    x = n.op("Transpose", [n.input("x", [1, t, cin])], perm=[1, 0, 2])
    for _ in range(layers):
        k = 2 if both else 1
        w, r, b = n.normal(k, gates * c, cin, scale=cin ** -0.5), n.normal(
            k, gates * c, c, scale=c ** -0.5), n.normal(k, 2 * gates * c, scale=0.05)
        y = n.op(kind, [x, w, r, b], n_out=3 if kind == "LSTM" else 2, hidden_size=c,
                 direction="bidirectional" if both else "forward",
                 linear_before_reset=1 if kind == "GRU" else None)
        x = n.op("Reshape", [n.op("Transpose", [y[0]], perm=[0, 2, 1, 3]), n.ints(t, 1, k * c)])
        cin = k * c
    n.output(n.linear(x, cin, 10), "y")
    n.output(y[1], "state")


@network(("f32", "f16", "dyn"))
def gru(n):
    recurrent(n, "GRU", 3, *n.pick((2, 50, 80, 128), (1, 6, 7, 9)))


@network(("f32", "f16", "dyn"))
def lstm(n):
    recurrent(n, "LSTM", 4, *n.pick((2, 50, 80, 128), (1, 6, 7, 9)), both=True)


@network()
def whisper_encoder(n):
    t, c, h, layers = n.pick((200, 192, 3, 3), (12, 16, 2, 1))
    x = n.gelu(n.conv(n.input("mel", [1, 80, t]), 80, c, 3, dims=1))
    x = n.gelu(n.conv(x, c, c, 3, stride=2, dims=1))
    x = n.op("Add", [n.op("Transpose", [x], perm=[0, 2, 1]), n.normal(t // 2, c, scale=0.2)])
    for _ in range(layers):
        x = n.block(x, c, h, 1, t // 2)
    n.output(n.layer_norm(x, c), "y")


@network()
def conformer(n):
    """Half-step feed-forward, attention, gated depthwise convolution in time, half-step
    feed-forward."""
    t, c, h, layers = n.pick((120, 144, 4, 2), (10, 16, 2, 1))
    x = n.input("x", [1, t, c])

    def forward(v):
        y = n.linear(n.silu(n.linear(n.layer_norm(v, c), c, 4 * c)), 4 * c, c)
        return n.op("Add", [v, n.op("Mul", [y, n.floats(0.5)])])
    for _ in range(layers):
        x = forward(x)
        x = n.op("Add", [x, n.attention(n.layer_norm(x, c), c, h, 1, t)])
        y = n.conv(n.op("Transpose", [n.layer_norm(x, c)], perm=[0, 2, 1]), c, 2 * c, 1, pad=0,
                   dims=1)
        a, b = n.op("Split", [y, n.ints(c, c)], n_out=2, axis=1)
        y = n.conv(n.op("Mul", [a, n.op("Sigmoid", [b])]), c, c, 15, groups=c, dims=1)
        y = n.conv(n.silu(n.batch_norm(y, c)), c, c, 1, pad=0, dims=1)
        x = forward(n.op("Add", [x, n.op("Transpose", [y], perm=[0, 2, 1])]))
    n.output(n.op("LogSoftmax", [n.linear(x, c, n.pick(200, 20))], axis=-1), "logp")


@network(("f32", "f16"))
def crnn(n):
    """Text recognition: convolutions down to one line, a bidirectional LSTM, softmax and argmax."""
    w, c = n.pick((128, 48), (16, 6))
    x, cin = n.input("line", [1, 1, 32, w], "unit"), 1
    for k, stride in enumerate(([2, 2], [2, 2], [2, 1], [2, 1], [2, 1])):
        x = n.op("Relu", [n.batch_norm(n.conv(x, cin, c, 3, bias=False), c)])
        x, cin = n.op("MaxPool", [x], kernel_shape=stride, strides=stride), c
    x = n.op("Transpose", [n.op("Squeeze", [x, n.ints(2)])], perm=[2, 0, 1])
    weights = [n.normal(2, 4 * c, c, scale=c ** -0.5), n.normal(2, 4 * c, c, scale=c ** -0.5),
               n.normal(2, 8 * c, scale=0.05)]
    y = n.op("LSTM", [x] + weights, n_out=3, hidden_size=c, direction="bidirectional")[0]
    y = n.op("Reshape", [n.op("Transpose", [y], perm=[0, 2, 1, 3]), n.ints(w // 4, 1, 2 * c)])
    p = n.op("Softmax", [n.linear(y, 2 * c, n.pick(96, 12), gain=4)], axis=-1)
    n.output(p, "p")
    n.output(n.op("ArgMax", [p], axis=2, keepdims=0), "text", I64)


@network(("f32", "f16", "bf16"))
def detector(n):
    """A head with decoding, top-k and non-maximum suppression."""
    size, c, classes = n.pick((96, 24, 12), (24, 7, 3))
    x = n.silu(n.conv(n.input("image", [1, 3, size, size]), 3, c, 3, stride=4))
    x = n.op("Add", [x, n.silu(n.conv(x, c, c, 3))])
    places = ((size + 3) // 4) ** 2
    box = n.op("Transpose", [n.op("Reshape", [n.conv(x, c, 4, 1), n.ints(1, 4, places)])],
               perm=[0, 2, 1])
    centre, half = n.op("Split", [box, n.ints(2, 2)], n_out=2, axis=2)
    half = n.op("Exp", [half])
    box = n.op("Concat", [n.op("Sub", [centre, half]), n.op("Add", [centre, half])], axis=2)
    score = n.op("Sigmoid",
                 [n.op("Reshape", [n.conv(x, c, classes, 1), n.ints(1, classes, places)])])
    best = n.reduce("ReduceMax", score, 1, keep=0)
    top, where = n.op("TopK", [best, n.ints(20)], n_out=2, axis=1)
    n.output(top, "top")
    if n.numbers != "f32" or n.rounded:  # what comes after depends on the last bit
        return
    n.output(n.op("GatherND", [box, n.op("Unsqueeze", [where, n.ints(-1)])], batch_dims=1), "boxes")
    n.output(n.op("NonMaxSuppression",
                  [box, score, n.ints(10), n.const(np.array([0.4], np.float32)),
                   n.const(np.array([0.6], np.float32))]), "kept", I64)


@network()
def efficient(n):
    """Inverted residuals with squeeze and excitation; 5x5 depthwise."""
    size, c = n.pick((96, 16), (16, 8))
    x = n.silu(n.batch_norm(n.conv(n.input("image", [1, 3, size, size]), 3, c, 3, stride=2,
                                   bias=False), c))
    for k, stride, cout in ((3, 2, 24), (5, 1, 24), (5, 2, 40), (3, 1, 40)):
        e = 4 * c
        y = n.silu(n.batch_norm(n.conv(x, c, e, 1, bias=False), e))
        y = n.silu(n.batch_norm(n.conv(y, e, e, k, stride=stride, groups=e, bias=False), e))
        s = n.silu(n.conv(n.op("GlobalAveragePool", [y]), e, max(c // 4, 1), 1))
        y = n.op("Mul", [y, n.op("Sigmoid", [n.conv(s, max(c // 4, 1), e, 1)])])
        y = n.batch_norm(n.conv(y, e, cout, 1, bias=False), cout)
        x, c = n.op("Add", [x, y]) if c == cout and stride == 1 else y, cout
    n.output(n.linear(n.op("Flatten", [n.op("GlobalAveragePool", [x])], axis=1), c, 50), "y")


@network()
def shuffle(n):
    """Grouped convolutions and channel shuffles; odd group widths."""
    size, c, g = n.pick((64, 60, 3), (16, 12, 3))
    x = n.op("Relu", [n.conv(n.input("image", [1, 3, size, size]), 3, c, 3, stride=2)])
    size //= 2
    for _ in range(n.pick(4, 1)):
        y = n.op("Relu", [n.batch_norm(n.conv(x, c, c, 1, groups=g, bias=False), c)])
        y = n.op("Transpose", [n.op("Reshape", [y, n.ints(1, g, c // g, size, size)])],
                 perm=[0, 2, 1, 3, 4])
        y = n.batch_norm(n.conv(n.op("Reshape", [y, n.ints(1, c, size, size)]), c, c, 3, groups=c,
                                bias=False), c)
        x = n.op("Relu",
                 [n.op("Add", [x, n.batch_norm(n.conv(y, c, c, 1, groups=g, bias=False), c)])])
    n.output(n.op("AveragePool", [x], kernel_shape=[4, 4], strides=[4, 4]), "y")


@network()
def segmenter(n):
    """Dilated convolutions in parallel, image pooling, bilinear upsampling, argmax."""
    size, c = n.pick((128, 32), (16, 6))
    x = n.op("Relu", [n.conv(n.input("image", [1, 3, size, size]), 3, c, 3, stride=4)])
    parts = [n.op("Relu", [n.batch_norm(n.conv(x, c, c, 3, dilation=d, bias=False), c)])
             for d in n.pick((1, 6, 12, 18), (1, 2))]
    pooled = n.op("Relu", [n.conv(n.op("GlobalAveragePool", [x]), c, c, 1)])
    parts.append(n.op("Expand", [pooled, n.ints(1, c, size // 4, size // 4)]))
    y = n.conv(n.op("Concat", parts, axis=1), c * len(parts), n.pick(21, 5), 1)
    y = larger(n, larger(n, y, "linear"), "linear")
    n.output(y, "logits")


@network()
def mixer(n):
    tokens, c, layers = n.pick((100, 128, 4), (9, 12, 1))
    x = n.linear(n.input("patches", [1, tokens, 48]), 48, c)
    for _ in range(layers):
        y = n.op("Transpose", [n.layer_norm(x, c)], perm=[0, 2, 1])
        y = n.linear(n.gelu(n.linear(y, tokens, 2 * tokens)), 2 * tokens, tokens)
        x = n.op("Add", [x, n.op("Transpose", [y], perm=[0, 2, 1])])
        x = n.op("Add", [x, n.linear(n.gelu(n.linear(n.layer_norm(x, c), c, 4 * c)), 4 * c, c)])
    n.output(n.reduce("ReduceMean", x, 1, keep=0), "y")


@network(("f32", "dyn"), opset=18)
def graph_net(n):
    """Message passing: gathers along edges, sums by scatter."""
    nodes, edges, c = n.pick((200, 1000, 64), (9, 20, 6))
    x = n.linear(n.input("nodes", [nodes, 16]), 16, c)
    index = n.input("edges", [2, edges], "ids %d" % nodes, I64)
    src, dst = (n.op("Gather", [index, n.const(np.int64(k))], axis=0) for k in (0, 1))
    for _ in range(n.pick(3, 1)):
        pair = n.op("Concat", [n.op("Gather", [x, src], axis=0), n.op("Gather", [x, dst], axis=0)],
                    axis=1)
        message = n.linear(n.op("Relu", [n.linear(pair, 2 * c, c)]), c, c)
        zeros = n.floats(np.zeros((nodes, c)))
        total = n.op("ScatterND", [zeros, n.op("Unsqueeze", [dst, n.ints(1)]), message],
                     reduction="add")
        x = n.op("Add", [x, n.op("Relu", [n.linear(n.op("Concat", [x, total], axis=1), 2 * c, c)])])
    n.output(n.reduce("ReduceSum", x, 0), "y")



def forest(n, kind, trees, depth, features, targets):
    """Full trees of random splits over uniform features; leaves of a classifier are votes of one
    class each."""
    nodes, leaves, r = 2 ** depth - 1, 2 ** depth, n.rng
    tree, ids, mode, value, feature, yes, no = ([] for _ in range(7))
    lt, li, lk, lw = ([] for _ in range(4))
    for t in range(trees):
        for k in range(nodes + leaves):
            leaf = k >= nodes
            tree.append(t), ids.append(k), mode.append("LEAF" if leaf else "BRANCH_LEQ")
            value.append(0.0 if leaf else float(np.float32(r.random()))), feature.append(
                0 if leaf else int(r.integers(features)))
            yes.append(0 if leaf else 2 * k + 1), no.append(0 if leaf else 2 * k + 2)
            if leaf:
                lt.append(t), li.append(k), lk.append(int(r.integers(targets))), lw.append(
                    float(np.float32(r.standard_normal())))
    common = dict(nodes_treeids=tree, nodes_nodeids=ids, nodes_modes=mode, nodes_values=value,
                  nodes_featureids=feature, nodes_truenodeids=yes, nodes_falsenodeids=no,
                  domain="ai.onnx.ml")
    x = n.input("x", [n.pick(64, 5), features], "unit")
    if kind == "regressor":
        n.output(n.op("TreeEnsembleRegressor", [x], target_treeids=lt, target_nodeids=li,
                      target_ids=lk, target_weights=lw, n_targets=targets, **common), "y")
        return
    label, p = n.op("TreeEnsembleClassifier", [x], n_out=2, class_treeids=lt, class_nodeids=li,
                    class_ids=lk, class_weights=lw, classlabels_int64s=list(range(targets)),
                    post_transform="SOFTMAX", **common)
    n.output(label, "label", I64)
    n.output(p, "p")


@network(("f32",))
def trees(n):
    forest(n, "regressor", *n.pick((100, 6, 30, 1), (5, 3, 4, 1)))


@network(("f32",))
def tree_classes(n):
    forest(n, "classifier", *n.pick((60, 6, 20, 4), (5, 3, 4, 3)))
