# SPDX-License-Identifier: Apache-2.0
"""Programs that train, made by hlo-opt --train and run on the CPU, against JAX and optax: 200 steps
of every optimiser, losses, schedules, clipping, shuffling, networks with batch normalisation,
attention and recurrence, what is refused.
   train.py BUILD [NAME]..."""
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402
from jax import lax  # noqa: E402

BUILD = sys.argv[1]
R = np.random.RandomState(7)
TYPES = {"f16": np.float16, "f32": np.float32, "s32": np.int32, "f64": np.float64, "s64": np.int64}


def f(*shape, scale=1.0):
    return (R.randn(*shape) * scale).astype(np.float32)


class Program:
    """A model (path or HLO text) as the program of a spec."""

    def __init__(self, source, spec, ending=".onnx"):
        self.dir = tempfile.TemporaryDirectory()
        at = lambda name: os.path.join(self.dir.name, name)  # noqa: E731
        path = at("model" + ending)
        if isinstance(source, str):
            open(path, "w").write(source)
        else:
            onnx.save(source, path)
        p = subprocess.run([BUILD + "/hlo-opt", "--train=" + spec, "--train-to=" + at("it.json"),
                            path], capture_output=True, text=True)
        if p.returncode:
            raise ValueError(p.stderr.strip())
        open(at("it.hlo"), "w").write(p.stdout)
        self.about = json.load(open(at("it.json")))
        self.leaves = self.about["leaves"]
        self.slice = 64
        for word in spec.split(";"):
            if word.startswith("slice="):
                self.slice = int(word[6:])

    def start(self, weights, data, label=None, seed=0):
        """The first values of all parameters; weights and data by the model's names."""
        v = {}
        for leaf in self.leaves:
            role, shape = leaf["role"], leaf["shape"]
            t = TYPES[leaf["dtype"]]
            if role in ("weight", "mean", "statistic", "frozen"):
                v[leaf["name"]] = weights[leaf["of"]].astype(t)
            elif role == "slot":
                v[leaf["name"]] = np.full(shape, leaf["initial"], t)
            elif role == "data":
                v[leaf["name"]] = data[leaf["of"]]
            elif role == "label":
                v[leaf["name"]] = np.asarray(label, t)
            else:
                v[leaf["name"]] = np.full(shape, seed if role == "seed" else 0, t)
            if list(v[leaf["name"]].shape) != shape:
                raise ValueError("%s: %s given, %s wanted" % (
                    leaf["name"], v[leaf["name"]].shape, shape))
        return v

    def run(self, v, limit=0, precision="default"):
        """One run: the state becomes what it is after it. Returns losses and accuracies."""
        args = [BUILD + "/hlo-run", "--precision", precision]
        for k, leaf in enumerate(self.leaves):
            if leaf["role"] == "limit":
                v[leaf["name"]] = np.array(limit, np.int32)
            path = os.path.join(self.dir.name, "in%d" % k)
            np.ascontiguousarray(v[leaf["name"]]).tofile(path)
            args += ["--in", path]
        out = os.path.join(self.dir.name, "out")
        p = subprocess.run(args + ["--out", out, os.path.join(self.dir.name, "it.hlo")],
                           capture_output=True, text=True, timeout=300)
        if p.returncode:
            raise ValueError(p.stderr.strip())
        got, at = open(out, "rb").read(), 0
        for leaf in self.leaves[:self.about["state"]]:
            t, n = TYPES[leaf["dtype"]], int(np.prod(leaf["shape"]))
            v[leaf["name"]] = np.frombuffer(got, t, n, at).reshape(leaf["shape"])
            at += n * t().itemsize
        rest = np.frombuffer(got, np.float32, -1, at)
        return rest[:len(rest) // (1 + self.about["accuracy"])], rest


def model(nodes, inputs, outputs, weights, opset=17):
    value = helper.make_tensor_value_info
    g = helper.make_graph(nodes, "g", [value(n, TensorProto.FLOAT, s) for n, s in inputs],
                          [value(n, TensorProto.FLOAT, s) for n, s in outputs],
                          [numpy_helper.from_array(w, n) for n, w in weights.items()])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)])


def node(op, ins, outs, **attrs):
    return helper.make_node(op, ins.split(), outs.split(), **attrs)


# ---- a perceptron: its model, and the same in JAX

MLP = {"w1": f(16, 32, scale=0.3), "b1": f(32, scale=0.1), "w2": f(32, 5, scale=0.3),
       "b2": f(5, scale=0.1)}


def mlp_model(extra=()):
    nodes = [node("Gemm", "x w1 b1", "a"), node("Relu", "a", "b"), node("Gemm", "b w2 b2", "y")]
    return model(nodes + list(extra), [("x", ["N", 16])], [("y", ["N", 5])], MLP)


def mlp(p, x):
    return jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


def twin(apply, loss, tx, params, x, label, batch, steps, order=None):
    """Losses and parameters after steps of optax on the same batches."""
    params = {k: jnp.asarray(v) for k, v in params.items()}
    state, losses = tx.init(params), []
    value = jax.jit(jax.value_and_grad(lambda p, x, t: loss(apply(p, x), t)))
    update = jax.jit(lambda g, s, p: tx.update(g, s, p))
    n = len(x) // batch
    for k in range(steps):
        rows = slice(k % n * batch, (k % n + 1) * batch)
        if order is not None:
            rows = order[k // n][rows]
        one, g = value(params, x[rows], label[rows])
        u, state = update(g, state, params)
        params = optax.apply_updates(params, u)
        losses.append(float(one))
    return np.array(losses), {k: np.asarray(v) for k, v in params.items()}


def classes_loss(y, t):
    return optax.softmax_cross_entropy_with_integer_labels(y, t).mean()


def differs(got, want, tol):
    worst = np.abs(np.asarray(got, np.float64) - want).max() / max(1.0, np.abs(want).max())
    if not worst <= tol:
        raise ValueError("differs by %.1e" % worst)


def same_training(p, v, limit, losses, params, tol):
    got, _ = p.run(v, limit)
    differs(got[:len(losses)], losses, tol)
    for k, w in params.items():
        differs(v[k], w, tol)
    if v["step"] != limit:
        raise ValueError("step %d, not %d" % (v["step"], limit))


X, LABEL = f(96, 16), R.randint(0, 5, 96).astype(np.int32)
OPTIMIZERS = {
    "sgd:rate=0.05": optax.sgd(0.05),
    "momentum:rate=0.02": optax.sgd(0.02, 0.9),
    "nesterov:rate=0.02:momentum=0.8": optax.sgd(0.02, 0.8, nesterov=True),
    "adam": optax.adam(1e-3),
    "adamw:rate=3e-3:weight_decay=0.05": optax.adamw(3e-3, weight_decay=0.05),
    "rmsprop": optax.rmsprop(1e-3, 0.9, 1e-8),
    "adagrad": optax.adagrad(1e-2),
    "lion:rate=3e-4": optax.lion(3e-4, weight_decay=1e-3),
}


def optimizer(text, tx):
    p = Program(mlp_model(), "loss=softmax-cross-entropy;optimizer=%s;batch=32;rows=96;slice=200;"
                             "decayed=*" % text)
    v = p.start(MLP, {"x": X}, LABEL)
    losses, params = twin(mlp, classes_loss, tx, MLP, X, LABEL, 32, 200)
    same_training(p, v, 200, losses, params, 1e-5)


# ---- losses, on the same perceptron

VALUES = f(96, 5)
SHARES = np.asarray(jax.nn.softmax(f(96, 5)))
BITS = (f(96, 5) > 0).astype(np.float32)
LOSSES = {
    "mse": ((lambda y, t: ((y - t) ** 2).mean()), VALUES),
    "mae": ((lambda y, t: jnp.abs(y - t).mean()), VALUES),
    "huber;delta=0.7": ((lambda y, t: optax.huber_loss(y, t, delta=0.7).mean()), VALUES),
    "sigmoid-bce": ((lambda y, t: optax.sigmoid_binary_cross_entropy(y, t).mean()), BITS),
    "softmax-cross-entropy-dense": ((lambda y, t: optax.softmax_cross_entropy(y, t).mean()),
                                    SHARES),
    "softmax-cross-entropy;smoothing=0.1": (
        (lambda y, t: optax.softmax_cross_entropy(
            y, optax.smooth_labels(jax.nn.one_hot(t, 5), 0.1)).mean()), LABEL),
}


def one_loss(text, loss, label):
    p = Program(mlp_model(), "loss=%s;optimizer=momentum;batch=32;rows=96;slice=30" % text)
    losses, params = twin(mlp, loss, optax.sgd(0.01, 0.9), MLP, X, label, 32, 30)
    same_training(p, p.start(MLP, {"x": X}, label), 30, losses, params, 1e-5)


def probabilities():
    """cross-entropy of a model that ends in Softmax, bce of one that ends in Sigmoid."""
    for op, text, loss, label in (
            ("Softmax", "cross-entropy", lambda y, t: classes_loss(jnp.log(y), t), LABEL),
            ("LogSoftmax", "nll", classes_loss, LABEL),
            ("Sigmoid", "bce", lambda y, t: -(t * jnp.log(y) + (1 - t) * jnp.log(1 - y)).mean(),
             BITS)):
        nodes = [node("Gemm", "x w1 b1", "a"), node("Relu", "a", "b"),
                 node("Gemm", "b w2 b2", "z"), node(op, "z", "y")]
        m = model(nodes, [("x", ["N", 16])], [("y", ["N", 5])], MLP)
        end = {"Softmax": jax.nn.softmax, "LogSoftmax": jax.nn.log_softmax,
               "Sigmoid": jax.nn.sigmoid}[op]
        p = Program(m, "loss=%s;optimizer=sgd:rate=0.1;batch=32;rows=96;slice=30" % text)
        losses, params = twin(lambda q, x: end(mlp(q, x)), loss, optax.sgd(0.1), MLP, X, label,
                              32, 30)
        same_training(p, p.start(MLP, {"x": X}, label), 30, losses, params, 1e-5)


# ---- schedules, clipping, decay masks, running means

def schedules():
    for text, s in (
            ("cosine:steps=60:warmup=10:end=0.1",
             optax.warmup_cosine_decay_schedule(0, 0.1, 10, 60, 0.01)),
            ("linear:steps=50", optax.linear_schedule(0.1, 0, 50)),
            ("step:every=20:factor=0.5",
             optax.exponential_decay(0.1, 20, 0.5, staircase=True))):
        p = Program(mlp_model(), "loss=softmax-cross-entropy;optimizer=sgd:rate=0.1;schedule=%s;"
                                 "batch=32;rows=96;slice=70" % text)
        losses, params = twin(mlp, classes_loss, optax.sgd(s), MLP, X, LABEL, 32, 70)
        same_training(p, p.start(MLP, {"x": X}, LABEL), 70, losses, params, 1e-5)


def clipping():
    tx = optax.chain(optax.clip_by_global_norm(0.05), optax.add_decayed_weights(
        0.01, mask=lambda p: {k: v.ndim >= 2 for k, v in p.items()}), optax.sgd(0.1))
    p = Program(mlp_model(), "loss=softmax-cross-entropy;optimizer=sgd:rate=0.1:weight_decay=0.01;"
                             "clip=0.05;batch=32;rows=96;slice=50")
    losses, params = twin(mlp, classes_loss, tx, MLP, X, LABEL, 32, 50)
    same_training(p, p.start(MLP, {"x": X}, LABEL), 50, losses, params, 1e-5)


def running_means():
    p = Program(mlp_model(), "loss=softmax-cross-entropy;optimizer=sgd;ema=0.9;batch=32;rows=96;"
                             "slice=1")
    v, mean = p.start(MLP, {"x": X}, LABEL), {k: w.copy() for k, w in MLP.items()}
    for k in range(5):
        p.run(v, k + 1)
        for name in mean:
            mean[name] = 0.9 * mean[name] + 0.1 * v[name]
            differs(v[name + ".ema"], mean[name], 1e-6)


# ---- the loop

def shuffled():
    """Each epoch in an order of its own, every row once; the same steps in one run or in several,
    bit for bit."""
    spec = "loss=softmax-cross-entropy;optimizer=adam;batch=20;rows=96;shuffle=1;slice=40"
    p, orders = Program(mlp_model(), spec), []
    v = p.start(MLP, {"x": X}, LABEL, seed=11)
    whole, _ = p.run(v, 12)
    w, parts = p.start(MLP, {"x": X}, LABEL, seed=11), []
    for k in (1, 3, 4, 8, 12):
        parts += list(p.run(w, k)[0][:k - len(parts)])
        if k % 4 == 0:
            orders.append(w["order"])
    for name in v:
        if v[name].tobytes() != w[name].tobytes():
            raise ValueError("%s is not the same in parts" % name)
    if whole[:12].tobytes() != np.array(parts, np.float32).tobytes() or whole[12:].any():
        raise ValueError("losses are not the same in parts")
    for o in orders:
        if sorted(o) != list(range(96)) or list(o) == list(range(96)):
            raise ValueError("not a new order of all rows")
    if list(orders[0]) == list(orders[1]):
        raise ValueError("two epochs have one order")
    losses, params = twin(mlp, classes_loss, optax.adam(1e-3), MLP, X, LABEL, 20, 12, orders)
    differs(whole[:12], losses, 1e-5)
    for k, want in params.items():
        differs(v[k], want, 1e-5)
    other = p.start(MLP, {"x": X}, LABEL, seed=12)
    p.run(other, 1)
    if list(other["order"]) == list(orders[0]):
        raise ValueError("two seeds have one order")


def limits():
    """A run makes at most `slice` steps, none where the limit is behind."""
    p = Program(mlp_model(), "loss=softmax-cross-entropy;optimizer=sgd;batch=96;slice=4")
    v = p.start(MLP, {"x": X}, LABEL)
    p.run(v, 1000)
    if v["step"] != 4:
        raise ValueError("step %d" % v["step"])
    w1 = v["w1"].copy()
    p.run(v, 2)
    if v["step"] != 4 or v["w1"].tobytes() != w1.tobytes():
        raise ValueError("a limit that is behind changed the state")


def not_numbers():
    """A step whose loss is no number changes nothing; stop ends there, skip goes on."""
    bad = LABEL.copy()
    bad[40] = 5  # batch 1 of three; there are classes 0 to 4
    for how, step in (("stop", 1), ("skip", 3)):
        p = Program(mlp_model(), "loss=softmax-cross-entropy;optimizer=adam;batch=32;rows=96;"
                                 "slice=3;nan=" + how)
        v = p.start(MLP, {"x": X}, bad)
        losses, _ = p.run(v, 3)
        if v["step"] != step or not np.isnan(losses[1]) or not np.isfinite(v["w1"]).all():
            raise ValueError("%s: step %d, losses %s" % (how, v["step"], losses))
        if (how == "skip") != bool(losses[2]):
            raise ValueError("%s: losses %s" % (how, losses))


LINEAR = """HloModule m
ENTRY e {
  x = f32[8,4] parameter(0)
  w = f32[4,4] parameter(1)
  a = TYPE[8,4] convert(x)
  b = TYPE[4,4] convert(w)
  d = TYPE[8,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = TYPE[] constant(BY)
  k = TYPE[4,2] broadcast(c), dimensions={}
  ROOT y = TYPE[8,2] dot(d, k), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def linear(dtype, by, words, x, target, limit, precision="default"):
    """y = x.w.k in dtype, all of k `by`; w is trained, from ones: the program's values, losses."""
    text = LINEAR.replace("TYPE", dtype).replace("BY", str(by))
    p = Program(text, "loss=mse;batch=8;trainable=w;" + words, ".hlo")
    v = p.start({"w": np.ones((4, 4), np.float32)}, {"x": x}, np.full((8, 2), target))
    losses, _ = p.run(v, limit, precision)
    return v, losses


def gradients_overflow():
    """A norm that overflows ends a training as a loss that is no number does, and shows it."""
    x = np.full((8, 4), 1e15, np.float32)
    for words, step in (("clip=1", 0), ("loss_scale=dynamic", 16)):
        v, losses = linear("f32", 1, "optimizer=sgd;slice=20;" + words, x, 0, 20)
        if v["step"] != step or np.isfinite(losses[step]) or (v["w"] != 1).any():
            raise ValueError("%s: step %d, losses %s, weights %s" % (
                words, v["step"], losses, v["w"].ravel()))
        if not np.isfinite(losses[:step]).all() or losses[step + 1:].any():
            raise ValueError("%s: losses %s" % (words, losses))


def dynamic_loss_scale():
    """Gradients too small for f16 are kept, also where each operation rounds to it (strict); too
    large ones halve the scale and cost their step, 2000 steps without one double it."""
    x, rate = np.abs(f(8, 4)), "optimizer=sgd:rate=1e6;slice=20;"
    want, _ = linear("f32", 3e-5, rate, x, 3e-4, 20)
    lost, _ = linear("f16", 3e-5, rate, x, 3e-4, 20, "strict")
    for precision in ("default", "strict"):
        kept, _ = linear("f16", 3e-5, rate + "loss_scale=dynamic", x, 3e-4, 20, precision)
        differs(kept["w"] - 1, want["w"] - 1, 2e-2)
    if (lost["w"] != 1).any() or (abs(want["w"] - 1) < 1e-2).all():
        raise ValueError("nothing is lost without a scale: %s" % lost["w"].ravel())

    rate = "optimizer=sgd:rate=1e-3;slice=20;"
    halved, losses = linear("f16", 1, rate + "nan=skip;loss_scale=dynamic", x, 100, 20)
    scale = float(halved["loss_scale"])
    left_out = int(np.log2(65536 / scale))
    if not 3 < left_out < 10 or halved["step"] != 20 or halved["loss_scale.clean"] != 20 - left_out:
        raise ValueError("scale %g, %s" % (scale, halved))
    want, _ = linear("f32", 1, rate, x, 100, 20 - left_out)
    differs(losses[:left_out], losses[0], 0)
    differs(halved["w"], want["w"], 1e-2)

    spec = "loss=softmax-cross-entropy;optimizer=momentum;batch=32;rows=96;slice=2010"
    runs = []
    for words in ("", ";loss_scale=dynamic"):
        p = Program(mlp_model(), spec + words)
        runs.append(p.start(MLP, {"x": X}, LABEL))
        p.run(runs[-1], 2005)
    if runs[1]["loss_scale"] != 131072 or runs[1]["loss_scale.clean"] != 5:
        raise ValueError("scale %s, %s" % (runs[1]["loss_scale"], runs[1]["loss_scale.clean"]))
    for name in MLP:
        differs(runs[1][name], runs[0][name], 1e-6)


def evaluation():
    """Mean loss and accuracy of all rows, also of those that make no whole batch."""
    p = Program(mlp_model(), "loss=softmax-cross-entropy;batch=36;rows=96;evaluate=1")
    got, all_of = p.run(p.start(MLP, {"x": X}, LABEL))
    y = mlp({k: jnp.asarray(w) for k, w in MLP.items()}, X)
    differs(got, np.asarray(classes_loss(y, LABEL)), 1e-5)
    differs(all_of[1], float((np.asarray(y).argmax(1) == LABEL).mean()), 1e-6)


def dropout():
    """Drops about half, scales the rest, another half at each step, the same for one seed."""
    nodes = [node("Dropout", "x", "d", ratio=0.5), node("MatMul", "d w", "y")]
    w = {"w": np.eye(400, dtype=np.float32)}
    m = model(nodes, [("x", ["N", 400])], [("y", ["N", 400])], w, opset=9)
    ones, zeros = np.ones((8, 400), np.float32), np.zeros((8, 400), np.float32)
    p = Program(m, "loss=mse;optimizer=sgd:rate=1;batch=8;slice=1")
    seen = []
    for seed in (1, 1, 2):
        v = p.start(w, {"x": ones}, zeros, seed=seed)
        first = p.run(v, 1)[0][0]
        seen.append((float(first), v["w"].tobytes(), float(p.run(v, 2)[0][0])))
        if not 1.8 < first < 2.2:  # half of the squares of 2
            raise ValueError("loss %g" % first)
    if seen[0] != seen[1] or seen[0] == seen[2]:
        raise ValueError("masks do not follow the seed")
    p = Program(m, "loss=mse;batch=8;evaluate=1")  # nothing is dropped where it is validated
    differs(p.run(p.start(w, {"x": ones}, zeros))[0], 1.0, 1e-6)


def drawn():
    """Normal numbers of the model, which say they have a seed: others at each step, and the same
    where one step is made again; in a loop they are refused."""
    nodes = [node("MatMul", "x w", "m"), node("RandomNormalLike", "m", "e", mean=1.0, scale=2.0,
                                              seed=3.0), node("Add", "m e", "y")]
    w, x = {"w": np.zeros((4, 500), np.float32)}, np.ones((8, 4), np.float32)
    p = Program(model(nodes, [("x", ["N", 4])], [("y", ["N", 500])], w),
                "loss=mse;optimizer=sgd:rate=0;batch=8;slice=4")
    v = p.start(w, {"x": x}, np.zeros((8, 500), np.float32))
    losses, _ = p.run(v, 4)
    again, _ = p.run(p.start(w, {"x": x}, np.zeros((8, 500), np.float32)), 1)
    if len(set(losses)) < 4 or np.abs(losses - 5).max() > 0.5 or again[0] != losses[0]:
        raise ValueError("mean squares of N(1, 2): %s, %s" % (losses, again))
    value, t = helper.make_tensor_value_info, TensorProto
    body = helper.make_graph([node("Dropout", "h", "d"), node("Identity", "c", "k")], "body",
                             [value("i", t.INT64, []), value("c", t.BOOL, []),
                              value("h", t.FLOAT, None)],
                             [value("k", t.BOOL, []), value("d", t.FLOAT, None)])
    loop = helper.make_node("Loop", ["n", "", "m"], ["y"], body=body)
    refused_model("draws random numbers inside a loop", model(
        [nodes[0], loop], [("x", ["N", 4])], [("y", ["N", 500])], {**w, "n": np.array(3)}))


def refused_model(why, m, spec="loss=mse;batch=8"):
    try:
        Program(m, spec)
    except ValueError as e:
        if why not in str(e):
            raise ValueError("it says '%s'" % e)
        return
    raise ValueError("it is taken")


def named_numbers():
    """A single number is trained where it is named; what the loss cannot follow is told."""
    nodes = [node("MatMul", "x w", "m"), node("Mul", "m t", "y")]
    w = {"w": f(4, 3), "t": np.array(2, np.float32)}
    m = model(nodes, [("x", ["N", 4])], [("y", ["N", 3])], w)
    for words, names in (("", ["w"]), (";trainable=*,t", ["w", "t"]), (";trainable=t", ["t"])):
        p = Program(m, "loss=mse;batch=8" + words)
        got = [leaf["of"] for leaf in p.leaves if leaf["role"] == "weight"]
        if got != names:
            raise ValueError("trained by '%s': %s" % (words, got))
    nodes[0] = node("MatMul", "x r", "m")
    m = model([node("Round", "w", "r")] + nodes, [("x", ["N", 4])], [("y", ["N", 3])], w)
    p = Program(m, "loss=mse;batch=8;trainable=*,t")
    if [leaf["of"] for leaf in p.leaves if leaf.get("still")] != ["w"]:
        raise ValueError("not told of w")
    refused_model("the loss depends on none of the 1 weights that are trained", m)


# ---- computed again

def same_with_remat(m, weights, x, label, spec, steps, tol=0):
    """Less memory planned, and the same losses and state: by segments, and by bytes between."""
    made, arenas = [], []
    for word in ("none", "segments", "bytes"):
        if word == "bytes":
            word = "%d" % ((arenas[0] + arenas[1]) // 2)
        p = Program(m, spec + ";remat=" + word)
        v = p.start(weights, {"x": x}, label, seed=5)
        losses, _ = p.run(v, steps)
        made.append((losses, v))
        out = subprocess.run([BUILD + "/hlo-opt", "--passes=@whole,@main", "--counts",
                              "--target=cpu-avx512", p.dir.name + "/it.hlo"],
                             capture_output=True, text=True, check=True)
        arenas.append(int(out.stdout.split("arena_bytes=")[1].split()[0]))
    plain, state = made[0]
    for again, other in made[1:]:
        differs(again, plain, tol)
        for leaf in state:
            differs(other[leaf], state[leaf], tol)
    if not arenas[1] < 0.75 * arenas[0] or not arenas[2] <= (arenas[0] + arenas[1]) // 2:
        raise ValueError("planned without, by segments, by bytes: %s" % arenas)


def deep():
    """Sixteen layers with dropout: masks are drawn again from the same counters."""
    nodes, w, x = [], {}, "x"
    for k in range(16):
        w["w%d" % k], w["b%d" % k] = f(32, 32, scale=0.2), f(32, scale=0.1)
        nodes += [node("Gemm", "%s w%d b%d" % (x, k, k), "a%d" % k), node("Tanh", "a%d" % k,
                  "r%d" % k), node("Dropout", "r%d" % k, "d%d" % k, ratio=0.2)]
        x = "d%d" % k
    m = model(nodes + [node("Identity", x, "y")], [("x", ["N", 32])], [("y", ["N", 32])], w,
              opset=9)
    same_with_remat(m, w, f(512, 32), R.randint(0, 32, 512).astype(np.int32),
                    "loss=softmax-cross-entropy;optimizer=adam;batch=256;rows=512;slice=6;"
                    "trainable=w*,b*", 6)


def normalised():
    """Convolutions with batch normalisation: running statistics follow each batch once."""
    nodes, w, x, n = [], {}, "x", 2
    for k in range(9):
        w.update({"c%d" % k: f(8, n, 3, 3, scale=0.3), "g%d" % k: 1 + f(8, scale=0.1),
                  "h%d" % k: f(8, scale=0.1), "m%d" % k: f(8, scale=0.1),
                  "v%d" % k: 1 + np.abs(f(8, scale=0.1))})
        nodes += [node("Conv", "%s c%d" % (x, k), "e%d" % k, kernel_shape=[3, 3],
                       pads=[1, 1, 1, 1]),
                  node("BatchNormalization", "e%d g%d h%d m%d v%d" % ((k,) * 5), "n%d" % k),
                  node("Relu", "n%d" % k, "r%d" % k)]
        x, n = "r%d" % k, 8
    w["w"] = f(8, 4)
    nodes += [node("GlobalAveragePool", x, "q"), node("Flatten", "q", "t"),
              node("MatMul", "t w", "y")]
    m = model(nodes, [("x", ["N", 2, 16, 16])], [("y", ["N", 4])], w)
    same_with_remat(m, w, f(32, 2, 16, 16), R.randint(0, 4, 32).astype(np.int32),
                    "loss=softmax-cross-entropy;optimizer=momentum;batch=16;rows=32;slice=6;"
                    "batchnorm=1", 6, 1e-6)


# ---- networks

def conv(x, w, b=None, stride=1):
    y = lax.conv_general_dilated(x, w, (stride, stride), "SAME",
                                 dimension_numbers=("NCHW", "OIHW", "NCHW"))
    return y if b is None else y + b[:, None, None]


CNN = {"c1": f(8, 1, 3, 3, scale=0.3), "d1": f(8, scale=0.1), "c2": f(12, 8, 3, 3, scale=0.2),
       "g": 1 + f(12, scale=0.1), "h": f(12, scale=0.1), "m": f(12, scale=0.1),
       "v": 1 + 0.1 * np.abs(f(12)), "w": f(12, 10, scale=0.3), "b": f(10, scale=0.1)}
PICTURES = f(48, 1, 12, 12)
DIGITS = R.randint(0, 10, 48).astype(np.int32)


def cnn_model(by_batch=False):
    pads = dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    nodes = [node("Conv", "x c1 d1", "a", **pads), node("Relu", "a", "r"),
             node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
             node("Conv", "p c2", "e", **pads),
             node("BatchNormalization", "e g h m v", "n nm nv", epsilon=1e-3, training_mode=1,
                  momentum=0.8) if by_batch else
             node("BatchNormalization", "e g h m v", "n", epsilon=1e-3),
             node("Relu", "n", "s"), node("GlobalAveragePool", "s", "q"),
             node("Flatten", "q", "t"), node("Gemm", "t w b", "y")]
    return model(nodes, [("x", ["N", 1, 12, 12])], [("y", ["N", 10])], CNN)


def cnn(p, x, train=False):
    x = jax.nn.relu(conv(x, p["c1"], p["d1"]))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = conv(x, p["c2"])
    m, v = (x.mean((0, 2, 3)), x.var((0, 2, 3))) if train else (CNN["m"], CNN["v"])
    x = (x - m[:, None, None]) * (p["g"] * lax.rsqrt(v + 1e-3))[:, None, None]
    x = jax.nn.relu(x + p["h"][:, None, None])
    y = x.mean((2, 3)) @ p["w"] + p["b"]
    return (y, m, v) if train else y


def batchnorm(train, by_batch=False):
    """Frozen; by each batch; by each batch as the model's own training_mode says."""
    params, keep = {k: w for k, w in CNN.items() if k not in "mv"}, 0.8 if by_batch else 0.9
    p = Program(cnn_model(by_batch), "loss=softmax-cross-entropy;optimizer=adam:rate=1e-2;batch=16;"
                                     "rows=48;slice=30;batchnorm=%d" % (train and not by_batch))
    roles = {leaf["name"]: leaf["role"] for leaf in p.leaves}
    if roles["m"] != ("statistic" if train else "frozen"):
        raise ValueError("the running mean is a %s" % roles["m"])
    v = p.start(CNN, {"x": PICTURES}, DIGITS)
    apply = (lambda q, x: cnn(q, x, True)[0]) if train else cnn
    losses, params = twin(apply, classes_loss, optax.adam(1e-2), params, PICTURES, DIGITS, 16, 30)
    same_training(p, v, 30, losses, params, 1e-4)
    if train:
        first = p.start(CNN, {"x": PICTURES}, DIGITS)
        p.run(first, 1)
        _, m, var = cnn(CNN, PICTURES[:16], True)
        differs(first["m"], keep * CNN["m"] + (1 - keep) * np.asarray(m), 1e-5)
        differs(first["v"], keep * CNN["v"] + (1 - keep) * np.asarray(var), 1e-5)
    held = Program(cnn_model(by_batch), "loss=softmax-cross-entropy;batch=16;rows=48;evaluate=1")
    got, _ = held.run(held.start(CNN, {"x": PICTURES}, DIGITS))
    differs(got, np.asarray(classes_loss(cnn(CNN, PICTURES), DIGITS)), 1e-5)


LSTM = {"W": f(1, 64, 12, scale=0.3), "R": f(1, 64, 16, scale=0.3), "B": f(1, 128, scale=0.1),
        "o": f(16, 3, scale=0.3)}


def lstm(p, x):  # the gates as ONNX has them: input, output, forget, cell
    def cell(s, x):
        h, c = s
        i, o, g, n = jnp.split(x @ p["W"][0].T + h @ p["R"][0].T + p["B"][0, :64] + p["B"][0, 64:],
                               4, -1)
        c = jax.nn.sigmoid(g) * c + jax.nn.sigmoid(i) * jnp.tanh(n)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), 0
    zero = jnp.zeros((x.shape[0], 16))
    (h, _), _ = lax.scan(cell, (zero, zero), jnp.swapaxes(x, 0, 1))
    return h @ p["o"]


def recurrent():
    nodes = [node("Transpose", "x", "t", perm=[1, 0, 2]),
             helper.make_node("LSTM", ["t", "W", "R", "B"], ["", "h"], hidden_size=16),
             node("Squeeze", "h zero", "s"), node("MatMul", "s o", "y")]
    m = model(nodes, [("x", ["N", 20, 12])], [("y", ["N", 3])], dict(LSTM, zero=np.array([0])))
    x, t = f(24, 20, 12), R.randint(0, 3, 24).astype(np.int32)
    p = Program(m, "loss=softmax-cross-entropy;optimizer=adam:rate=1e-2;batch=8;rows=24;slice=20")
    losses, params = twin(lstm, classes_loss, optax.adam(1e-2), LSTM, x, t, 8, 20)
    same_training(p, p.start(LSTM, {"x": x}, t), 20, losses, params, 1e-4)


BERT = {"e": f(50, 16, scale=0.5), "q": f(16, 16, scale=0.3), "k": f(16, 16, scale=0.3),
        "v": f(16, 16, scale=0.3), "g": 1 + f(16, scale=0.1), "h": f(16, scale=0.1),
        "o": f(16, 50, scale=0.3)}


def bert(p, ids):
    x = p["e"][ids.astype(jnp.int32)]
    s = jax.nn.softmax((x @ p["q"]) @ jnp.swapaxes(x @ p["k"], -1, -2) / 4)
    x = x + s @ (x @ p["v"])
    n = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return jax.nn.gelu(n * p["g"] + p["h"], approximate=False) @ p["o"]


def transformer():
    """Embeddings, attention, layer normalisation, gelu; a class for each place."""
    nodes = [node("Cast", "x", "i", to=TensorProto.INT64), node("Gather", "e i", "a"),
             node("MatMul", "a q", "aq"), node("MatMul", "a k", "ak"), node("MatMul", "a v", "av"),
             node("Transpose", "ak", "akt", perm=[0, 2, 1]), node("MatMul", "aq akt", "s"),
             node("Mul", "s quarter", "s4"), node("Softmax", "s4", "p", axis=-1),
             node("MatMul", "p av", "r"), node("Add", "a r", "c"),
             node("LayerNormalization", "c g h", "n", epsilon=1e-5), node("Gelu", "n", "u"),
             node("MatMul", "u o", "y")]
    m = model(nodes, [("x", ["N", 10])], [("y", ["N", 10, 50])],
              dict(BERT, quarter=np.float32(0.25)), opset=20)
    x = R.randint(0, 50, (24, 10)).astype(np.float32)
    t = R.randint(0, 50, (24, 10)).astype(np.int32)
    p = Program(m, "loss=softmax-cross-entropy;optimizer=adamw;batch=8;rows=24;slice=20;"
                   "trainable=*,!quarter")
    losses, params = twin(bert, classes_loss, optax.adamw(
        1e-3, weight_decay=0.01, mask=lambda p: {k: v.ndim >= 2 for k, v in p.items()}),
        BERT, x, t, 8, 20)
    same_training(p, p.start(dict(BERT, quarter=np.float32(0.25)), {"x": x}, t), 20, losses,
                  params, 1e-4)


def from_hlo():
    """A program of HLO: parameters that trainable names are state, its result is the loss."""
    params = {k: jnp.asarray(w) for k, w in MLP.items()}
    text = jax.jit(lambda w1, b1, w2, b2, x, t: ((mlp(
        {"w1": w1, "b1": b1, "w2": w2, "b2": b2}, x) - t) ** 2).mean()).lower(
            *params.values(), X[:32], VALUES[:32]).compiler_ir("hlo").as_hlo_text()
    text = re.sub(r"\b(w1|b1|w2|b2|x|t)\.\d+\b", r"\1", text)
    p = Program(text, "loss=output;optimizer=sgd:rate=0.1;trainable=w?,b?;batch=32;rows=96;"
                      "slice=10", ".hlo")
    given = dict(MLP)
    v = {leaf["name"]: given.get(leaf["name"]) for leaf in p.leaves}
    for leaf in p.leaves:
        if leaf["role"] == "data":
            v[leaf["name"]] = X if leaf["shape"][1] == 16 else VALUES
        elif v[leaf["name"]] is None:
            v[leaf["name"]] = np.zeros(leaf["shape"], TYPES[leaf["dtype"]])
    losses, params = twin(mlp, lambda y, t: ((y - t) ** 2).mean(), optax.sgd(0.1), MLP, X, VALUES,
                          32, 10)
    same_training(p, v, 10, losses, params, 1e-5)


def names():
    """What is no name in HLO, and what the program has itself: weights and inputs keep theirs."""
    w = {"/fc/w:0": f(4, 5), "step": f(5), "label": f(5)}
    nodes = [helper.make_node("Concat", ["in put:0", "b/x"], ["c"], axis=1),
             helper.make_node("MatMul", ["c", "/fc/w:0"], ["m"]), node("Mul", "m step", "s"),
             node("Add", "s label", "y")]
    m = model(nodes, [("in put:0", ["N", 2]), ("b/x", ["N", 2])], [("y", ["N", 5])], w)
    p = Program(m, "loss=softmax-cross-entropy;optimizer=momentum;batch=8;rows=24;slice=10")
    keys = [leaf["key"] for leaf in p.leaves]
    if len(set(keys)) != len(keys) or not {*w} < {*keys}:
        raise ValueError("keys %s" % keys)
    x = f(24, 4)
    t = R.randint(0, 5, 24).astype(np.int32)
    losses, params = twin(lambda q, x: x @ q["/fc/w:0"] * q["step"] + q["label"], classes_loss,
                          optax.sgd(0.01, 0.9), w, x, t, 8, 10)
    v = p.start(w, {"in put:0": x[:, :2], "b/x": x[:, 2:]}, t)
    got, _ = p.run(v, 10)
    differs(got[:10], losses, 1e-5)
    for leaf in p.leaves:
        if leaf["role"] == "weight":
            differs(v[leaf["name"]], params[leaf["of"]], 1e-5)


REFUSED = {  # spec (model: the perceptron) -> what the error must say
    "loss=hinge": "no loss is called 'hinge'; there are softmax-cross-entropy",
    "loss=mse;optimizer=sgd:beta1=0.5": "it has no setting 'beta1'",
    "loss=mse;optimizer=adam:beta1=1.5": "beta1 is 0 to 1, not '1.5'",
    "loss=mse;speed=9": "no word of a training spec is called 'speed'",
    "loss=mse;remat=layers": "no remat is called 'layers'; there are none, segments, BYTES",
    "loss=mse;remat=0": "no remat is called '0'",
    "loss=mse;remat=BYTES": "no remat is called 'BYTES'",
    "loss=mse;remat=256": "are planned with all",
    "optimizer=sgd": "loss=NAME is missing",
    "loss=mse;schedule=cosine": "steps=N is missing",
    "loss=mse;batch=8;rows=7": "7 rows are fewer than a batch of 8",
    "loss=mse;trainable=none*": "nothing to train",
    "loss=output;batch=8": "is f32[8,5], not one number",
    "loss=mse;output=3": "the model has 1 results, there is no result 3",
    "loss=softmax-cross-entropy;axis=2": "has no dimension 2 of classes",
}


def refused(spec, why):
    try:
        Program(mlp_model(), spec)
    except ValueError as e:
        if why not in str(e):
            raise ValueError("it says '%s'" % e)
        return
    raise ValueError("it is taken")


def no_rule():
    """An operation without a derivative is named."""
    text = """HloModule m
f { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }
ENTRY e {
  w = f32[4] parameter(0)
  x = f32[1,4] parameter(1)
  v = f32[4] reshape(x)
  p = f32[4] multiply(w, v)
  everywhere = f32[4] all-reduce(p), to_apply=f
  zero = f32[] constant(0)
  ROOT y = f32[] reduce(everywhere, zero), dimensions={0}, to_apply=f
}"""
    try:
        Program(text, "loss=output;trainable=w", ".hlo")
    except ValueError as e:
        if "derivative of all-reduce everywhere" not in str(e):
            raise ValueError("it says '%s'" % e)
        return
    raise ValueError("it is taken")


def twice():
    """A loss that has the model's last step in it is refused, with the name of the right one."""
    for op, loss, right in (("Softmax", "softmax-cross-entropy", "cross-entropy"),
                            ("LogSoftmax", "softmax-cross-entropy", "nll"),
                            ("Softmax", "nll", "cross-entropy"),
                            ("Sigmoid", "sigmoid-bce", "bce")):
        m = model([node("Gemm", "x w1 b1", "z"), node(op, "z", "y")], [("x", ["N", 16])],
                  [("y", ["N", 32])], {"w1": MLP["w1"], "b1": MLP["b1"]})
        try:
            Program(m, "loss=%s;batch=8" % loss)
        except ValueError as e:
            if "that of a %s: its loss is %s, not %s" % (op, right, loss) not in str(e):
                raise ValueError("it says '%s'" % e)
            continue
        raise ValueError("%s of a %s is taken" % (loss, op))


TESTS = {"optimizer %s" % k: (lambda k=k, t=t: optimizer(k, t)) for k, t in OPTIMIZERS.items()}
TESTS.update({"loss %s" % k: (lambda k=k, t=t: one_loss(k, *t)) for k, t in LOSSES.items()})
TESTS.update({"losses of probabilities": probabilities, "schedules": schedules,
              "clipping and decay of matrices": clipping, "running means": running_means,
              "shuffled, in one run and in several": shuffled, "limits": limits,
              "losses that are no numbers": not_numbers, "evaluation": evaluation,
              "gradients that overflow": gradients_overflow,
              "dynamic loss scale": dynamic_loss_scale,
              "dropout": dropout, "random numbers": drawn, "single numbers": named_numbers,
              "computed again, with dropout": deep,
              "computed again, with statistics": normalised,
              "batch normalisation frozen": lambda: batchnorm(0),
              "batch normalisation trained": lambda: batchnorm(1),
              "batch normalisation in training mode": lambda: batchnorm(1, True),
              "LSTM": recurrent,
              "transformer": transformer, "HLO": from_hlo,
              "names": names, "a last step taken twice": twice,
              "an operation without a derivative": no_rule})
TESTS.update({"refused: " + k: (lambda k=k, t=t: refused(k, t)) for k, t in REFUSED.items()})


def main():
    failed = 0
    for name, test in TESTS.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        why = ""
        try:
            test()
        except (ValueError, KeyError, subprocess.TimeoutExpired) as e:
            why = ": %s" % e
        failed += bool(why)
        print("%s %s%s" % ("FAIL" if why else "PASS", name, why), flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
