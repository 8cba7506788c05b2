# SPDX-License-Identifier: Apache-2.0
"""Training steps of ONNX models (hlo-opt --train, on hlo-run: the device without daemon) beside the
same network, loss and optimiser in JAX and optax on XLA:CPU: steps a second, interleaved, medians;
the losses of the first steps compared.

    training.py BUILD [--threads N] [--rounds N] [NAME...]   NAME: only rows whose name holds it
    training.py BUILD --remat WORD [...]    instead: with remat=WORD beside the same without it
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from programs import Ours  # noqa: E402

R = np.random.RandomState(3)


def normal(*shape, scale=None):
    fan = np.prod(shape[1:]) if len(shape) > 2 else shape[0]
    return (R.randn(*shape) * (scale or np.sqrt(2 / fan))).astype(np.float32)


class Graph:
    """An ONNX model as it grows, and the same as a function of JAX's."""

    def __init__(self):
        self.nodes, self.weights, self.steps, self.n = [], {}, [], 0

    def weight(self, name, value):
        self.weights[name] = value
        return name

    def node(self, op, ins, jax, **attrs):
        self.n += 1
        out = "v%d" % self.n
        self.nodes.append(helper.make_node(op, ins, [out], **attrs))
        self.steps.append((out, ins, jax))
        return out

    def apply(self, p, feeds):
        v = dict(self.weights)
        v.update(p)
        v.update(feeds)
        for out, ins, f in self.steps:
            v[out] = f(*[v[k] for k in ins])
        return v[self.steps[-1][0]]

    def model(self, inputs, n_out):
        value = helper.make_tensor_value_info
        g = helper.make_graph(
            self.nodes + [helper.make_node("Identity", [self.steps[-1][0]], ["y"])], "g",
            [value(n, TensorProto.INT32 if x.dtype == np.int32 else TensorProto.FLOAT,
                   ["N", *x.shape[1:]]) for n, x in inputs.items()],
            [value("y", TensorProto.FLOAT, ["N"] + [None] * (n_out - 1))],
            [numpy_helper.from_array(w, n) for n, w in self.weights.items()])
        return helper.make_model(g, opset_imports=[helper.make_opsetid("", 20)])

    # ---- layers

    def dense(self, x, name, n_in, n_out):
        w = self.weight(name + ".w", normal(n_in, n_out))
        b = self.weight(name + ".b", np.zeros(n_out, np.float32))
        y = self.node("MatMul", [x, w], lambda x, w: x @ w)
        return self.node("Add", [y, b], lambda x, b: x + b)

    def relu(self, x):
        import jax
        return self.node("Relu", [x], jax.nn.relu)

    def conv(self, x, name, n_in, n_out, size=3, stride=1, bias=True):
        from jax import lax
        pad = size // 2
        ins = [x, self.weight(name + ".w", normal(n_out, n_in, size, size))]
        if bias:
            ins.append(self.weight(name + ".b", np.zeros(n_out, np.float32)))

        def f(x, w, b=None):
            y = lax.conv_general_dilated(x, w, (stride, stride), ((pad, pad), (pad, pad)),
                                         dimension_numbers=("NCHW", "OIHW", "NCHW"))
            return y if b is None else y + b[:, None, None]
        return self.node("Conv", ins, f, kernel_shape=[size] * 2, strides=[stride] * 2,
                         pads=[pad] * 4)

    def batch_norm(self, x, name, n):
        from jax import lax
        ones, zeros = np.ones(n, np.float32), np.zeros(n, np.float32)
        ins = [x] + [self.weight(name + k, v) for k, v in (
            (".g", ones), (".h", zeros), (".m", zeros), (".v", ones))]

        def f(x, g, h, m, v):
            mean = x.mean((0, 2, 3))
            var = (x * x).mean((0, 2, 3)) - mean * mean
            scale = g * lax.rsqrt(var + 1e-5)
            return (x - mean[:, None, None]) * scale[:, None, None] + h[:, None, None]
        return self.node("BatchNormalization", ins, f, epsilon=1e-5)

    def pool(self, x, size=2, stride=2, pad=0):
        import jax.numpy as jnp
        from jax import lax
        return self.node("MaxPool", [x], lambda x: lax.reduce_window(
            x, -jnp.inf, lax.max, (1, 1, size, size), (1, 1, stride, stride),
            ((0, 0), (0, 0), (pad, pad), (pad, pad))), kernel_shape=[size] * 2,
            strides=[stride] * 2, pads=[pad] * 4)


def mlp():
    g, x = Graph(), "x"
    for k, (n, m) in enumerate(((784, 512), (512, 512), (512, 10))):
        x = g.dense(x, "d%d" % k, n, m)
        if m != 10:
            x = g.relu(x)
    return g, {"x": normal(512, 784, scale=1)}, R.randint(0, 10, 512), 128, 2, ""


def vgg():
    """VGG-like, pictures of 32x32."""
    g, x, n = Graph(), "x", 3
    for k, m in enumerate((64, 64, 0, 128, 128, 0, 256, 256, 256, 0)):
        if m:
            x, n = g.relu(g.conv(x, "c%d" % k, n, m)), m
        else:
            x = g.pool(x)
    x = g.node("Flatten", [x], lambda x: x.reshape(len(x), -1))
    x = g.dense(g.relu(g.dense(x, "d0", 4096, 512)), "d1", 512, 10)
    return g, {"x": normal(256, 3, 32, 32, scale=1)}, R.randint(0, 10, 256), 128, 2, ""


def resnet18():
    g = Graph()
    x = g.relu(g.batch_norm(g.conv("x", "stem", 3, 64, 7, 2, False), "stem.n", 64))
    x, n = g.pool(x, 3, 2, 1), 64
    for k, m in enumerate((64, 64, 128, 128, 256, 256, 512, 512)):
        stride, name = (2 if m != n else 1), "b%d" % k
        y = g.relu(g.batch_norm(g.conv(x, name + ".1", n, m, 3, stride, False), name + ".n1", m))
        y = g.batch_norm(g.conv(y, name + ".2", m, m, 3, 1, False), name + ".n2", m)
        if m != n:
            x = g.batch_norm(g.conv(x, name + ".d", n, m, 1, stride, False), name + ".nd", m)
        x, n = g.relu(g.node("Add", [x, y], lambda x, y: x + y)), m
    x = g.node("GlobalAveragePool", [x], lambda x: x.mean((2, 3), keepdims=True))
    x = g.node("Flatten", [x], lambda x: x.reshape(len(x), -1))
    g.dense(x, "fc", 512, 1000)
    return (g, {"x": normal(16, 3, 224, 224, scale=1)}, R.randint(0, 1000, 16), 8, 2,
            ";batchnorm=1")


def bert(layers=12, width=768, heads=12, length=128, words=8192):
    """An encoder of BERT-base's size (its vocabulary cut), a class for each place."""
    import jax
    import jax.numpy as jnp
    from jax import lax
    g = Graph()
    g.weight("words", normal(words, width, scale=0.05))
    x = g.node("Gather", ["words", "x"], lambda w, i: w[i])
    size = width // heads
    g.weight("split", np.array([0, 0, heads, size]))
    g.weight("join", np.array([0, 0, width]))
    g.weight("root", np.float32(1 / np.sqrt(size)))

    def norm(x, name):
        a = g.weight(name + ".g", np.ones(width, np.float32))
        b = g.weight(name + ".h", np.zeros(width, np.float32))

        def f(x, a, b):
            m = x.mean(-1, keepdims=True)
            return (x - m) * lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * a + b
        return g.node("LayerNormalization", [x, a, b], f, epsilon=1e-5)

    def spread(x, name, perm):
        y = g.dense(x, name, width, width)
        y = g.node("Reshape", [y, "split"], lambda x, s: x.reshape(*x.shape[:2], heads, size))
        return g.node("Transpose", [y], lambda x: x.transpose(perm), perm=perm)

    for k in range(layers):
        name = "l%d" % k
        q = spread(x, name + ".q", (0, 2, 1, 3))
        t = spread(x, name + ".k", (0, 2, 3, 1))
        v = spread(x, name + ".v", (0, 2, 1, 3))
        s = g.node("MatMul", [q, t], jnp.matmul)
        s = g.node("Mul", [s, "root"], lambda x, r: x * r)
        s = g.node("Softmax", [s], lambda x: jax.nn.softmax(x, -1), axis=-1)
        y = g.node("MatMul", [s, v], jnp.matmul)
        y = g.node("Transpose", [y], lambda x: x.transpose(0, 2, 1, 3), perm=(0, 2, 1, 3))
        y = g.node("Reshape", [y, "join"], lambda x, s: x.reshape(*x.shape[:2], width))
        y = g.dense(y, name + ".o", width, width)
        x = norm(g.node("Add", [x, y], lambda x, y: x + y), name + ".n1")
        y = g.dense(x, name + ".u", width, 4 * width)
        y = g.node("Gelu", [y], lambda x: jax.nn.gelu(x, approximate=False))
        y = g.dense(y, name + ".w", 4 * width, width)
        x = norm(g.node("Add", [x, y], lambda x, y: x + y), name + ".n2")
    g.dense(x, "classes", width, 32)
    ids = R.randint(0, words, (8, length)).astype(np.int32)
    return g, {"x": ids}, R.randint(0, 32, (8, length)), 4, 3, ""


def lstm(width=128, length=64):
    import jax
    import jax.numpy as jnp
    from jax import lax
    g = Graph()
    w = [g.weight(n, normal(1, *s, scale=0.1)) for n, s in (
        ("W", (4 * width, 64)), ("R", (4 * width, width)), ("B", (8 * width,)))]
    x = g.node("Transpose", ["x"], lambda x: x.transpose(1, 0, 2), perm=(1, 0, 2))

    def f(x, w, r, b):
        def cell(s, x):
            h, c = s
            i, o, f, n = jnp.split(x @ w[0].T + h @ r[0].T + b[0, :4 * width] + b[0, 4 * width:],
                                   4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(n)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h
        zero = jnp.zeros((x.shape[1], width))
        return lax.scan(cell, (zero, zero), x)[1]
    y = g.node("LSTM", [x, *w], f, hidden_size=width)
    g.weight("one", np.array([1]))
    y = g.node("Squeeze", [y, "one"], lambda x, a: x)
    y = g.node("Transpose", [y], lambda x: x.transpose(1, 0, 2), perm=(1, 0, 2))
    g.dense(y, "classes", width, 10)
    return (g, {"x": normal(64, length, 64, scale=1)}, R.randint(0, 10, (64, length)), 32, 3, "")


ROWS = {"mlp 784-512-512-10, batch 128, adam": (mlp, "adam", 20),
        "VGG-like 32x32, batch 128, adam": (vgg, "adam", 2),
        "ResNet18 224, batch 8, momentum": (resnet18, "momentum", 2),
        "BERT-base 128 tokens, batch 4, adamw": (bert, "adamw", 1),
        "LSTM 128, 64 steps, batch 32, adam": (lstm, "adam", 10)}


class Twin:
    """The same in JAX: a jitted step whose state is donated."""

    def __init__(self, g, feeds, label, batch, optimizer):
        import jax
        import optax
        tx = {"adam": optax.adam(1e-3), "momentum": optax.sgd(0.01, 0.9),
              "adamw": optax.adamw(1e-3, weight_decay=0.01, mask=lambda p: {
                  k: v.ndim >= 2 for k, v in p.items()})}[optimizer]
        self.jax, self.batch, self.k = jax, batch, 0
        self.feeds, self.label = feeds, label.astype(np.int32)
        statistics = {i for n in g.nodes if n.op_type == "BatchNormalization" for i in n.input[3:]}
        self.p = {k: jax.device_put(v) for k, v in g.weights.items()
                  if v.dtype == np.float32 and v.size > 1 and k not in statistics}
        self.s = tx.init(self.p)

        def step(p, s, feeds, t):
            def loss(p):
                return optax.softmax_cross_entropy_with_integer_labels(g.apply(p, feeds), t).mean()
            value, d = jax.value_and_grad(loss)(p)
            u, s = tx.update(d, s, p)
            return value, optax.apply_updates(p, u), s
        self.step = jax.jit(step, donate_argnums=(0, 1))

    def run(self, steps):
        n, losses = len(self.label) // self.batch, []
        for _ in range(steps):
            rows = slice(self.k % n * self.batch, (self.k % n + 1) * self.batch)
            value, self.p, self.s = self.step(
                self.p, self.s, {k: x[rows] for k, x in self.feeds.items()}, self.label[rows])
            losses.append(value)
            self.k += 1
        return [float(v) for v in losses]


def program(build, folder, g, feeds, label, spec, rank, steps):
    model, about = os.path.join(folder, "m.onnx"), os.path.join(folder, "about.json")
    state = os.path.join(folder, "state.safetensors")
    onnx.save(g.model(feeds, rank), model)
    p = subprocess.run([build + "/hlo-opt", "--train=" + spec, "--train-to=" + about,
                        "--train-state=" + state, model], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr.strip())
    from safetensors.numpy import load_file
    first, leaves, values = load_file(state), json.load(open(about))["leaves"], []
    for leaf in leaves:
        values.append(first[leaf["key"]] if leaf["key"] in first else
                      feeds[leaf["of"]] if leaf["role"] == "data" else
                      label.astype(np.int32) if leaf["role"] == "label" else
                      np.array(steps if leaf["role"] == "limit" else 0, np.int32))
    n = sum(v.nbytes for v, leaf in zip(values, leaves) if leaf["role"] in (
        "weight", "slot", "statistic", "order", "step"))
    return p.stdout, values, n


def measure(build, row, threads, rounds):
    make, optimizer, steps = row
    g, feeds, label, batch, rank, extra = make()
    spec = "loss=softmax-cross-entropy;optimizer=%s;batch=%d;rows=%d;slice=%d%s" % (
        optimizer, batch, len(label), steps, extra)
    twin = Twin(g, feeds, label, batch, optimizer)
    with tempfile.TemporaryDirectory() as folder:
        text, values, state = program(build, folder, g, feeds, label, spec, rank, steps)
        run = Ours(build, folder, text, values, threads)
        try:
            raw = run.values(600)
            got = np.frombuffer(raw, np.float32)[-2 * steps:-steps]
            want = np.array(twin.run(steps))
            error = float(np.abs(got - want).max() / np.abs(want).max())
            ours, theirs = run.times(1, 600), []
            for _ in range(rounds):
                ours += run.times(2, 600)
                for _ in range(2):
                    start = time.perf_counter()
                    twin.run(steps)
                    theirs.append((time.perf_counter() - start) * 1e3)
        finally:
            run.end()
    middle = lambda v: sorted(v)[len(v) // 2] / steps  # noqa: E731
    return middle(ours[1:]), middle(theirs), error, state


def planned(build, text):
    """Bytes of the planned arena on a CPU with AVX-512."""
    p = subprocess.run([build + "/hlo-opt", "--passes=@whole,@main", "--target=cpu-avx512",
                        "--counts", "-"], input=text, capture_output=True, text=True, check=True)
    return int(p.stdout.split("arena_bytes=")[1].split()[0])


def measure_remat(build, row, word, threads, rounds):
    """Milliseconds a step and bytes planned, with remat=word and without; how losses differ."""
    make, optimizer, steps = row
    g, feeds, label, batch, rank, extra = make()
    spec = "loss=softmax-cross-entropy;optimizer=%s;batch=%d;rows=%d;slice=%d%s" % (
        optimizer, batch, len(label), steps, extra)
    runs, losses, sizes, times = [], [], [], [[], []]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        try:
            for folder, more in ((one, ";remat=" + word), (two, "")):
                text, values, _ = program(build, folder, g, feeds, label, spec + more, rank, steps)
                runs.append(Ours(build, folder, text, values, threads))
                raw = runs[-1].values(600)
                losses.append(np.frombuffer(raw, np.float32)[-2 * steps:-steps])
                sizes.append(planned(build, text))
            for k in range(rounds + 1):
                for run, t in zip(runs, times):
                    t += run.times(1 if k == 0 else 2, 600)
        finally:
            for run in runs:
                run.end()
    error = float(np.abs(losses[0] - losses[1]).max() / np.abs(losses[1]).max())
    return [sorted(t[1:])[len(t[1:]) // 2] / steps for t in times], sizes, error


def remat(args):
    for name, row in ROWS.items():
        if args.names and not any(n in name for n in args.names):
            continue
        (ours, plain), (size, whole), error = measure_remat(args.build, row, args.remat,
                                                            args.threads, args.rounds)
        print("%-40s remat=%s %9.2f ms a step  without %9.2f  %5.2f  arena %.0f of %.0f MB, %.2f  "
              "losses differ by %.0e" % (name, args.remat, ours, plain, ours / plain, size / 1e6,
                                         whole / 1e6, size / whole, error), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("names", nargs="*", default=[])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--remat")
    args = p.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    if args.remat:
        return remat(args)
    logs = []
    for name, row in ROWS.items():
        if args.names and not any(n in name for n in args.names):
            continue
        ours, theirs, error, state = measure(args.build, row, args.threads, args.rounds)
        logs.append(math.log(theirs / ours))
        print("%-40s hlod %9.2f ms a step  JAX %9.2f  %5.2f  losses differ by %.0e, state %.0f MB"
              % (name, ours, theirs, theirs / ours, error, state / 1e6), flush=True)
    print("geometric mean %.2f of JAX's speed" % math.exp(sum(logs) / len(logs)))


if __name__ == "__main__":
    main()
